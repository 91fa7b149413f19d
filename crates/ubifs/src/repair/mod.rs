//! Repair: what `fsck.ubifs` does, on any volume.
//!
//! [`survey`] finds out what a repair would change and which [`Level`] it needs; [`repair`] does
//! it. There are three kinds of changes:
//!
//! 1. What can be recomputed - LEB properties, sums of the master node, links, sizes - is
//!    recomputed; nothing can be lost by it ([`Level::Safe`]).
//! 2. What does not fit together is dropped: names without inodes, nodes with impossible fields.
//!    Regular files that lost their names go to `lost+found` ([`Level::DangerDefault`]).
//! 3. Where index, log or master node cannot be trusted, all nodes of the main area are collected
//!    into a new index ([`Level::DangerRebuild`]): what was deleted long ago may come back.
//!
//! The result is written as one commit by the writer's own steps, the master node last; until then
//! the old state stays in place, except for LEBs that hold garbage.

mod lost;
mod plan;
mod read;

#[cfg(test)]
mod cuts;
#[cfg(test)]
mod sealed_faults;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::count::counted;
use flysch_api::finding::{Finding, Severity};
use flysch_api::vfs::FsError;
use flysch_api::volume::{Volume, VolumeMut};
use flysch_wire::ubifs::lpt::LptFormat;
use flysch_wire::ubifs::{NodeKind, SuperblockFlags};

use crate::access::Scratch;
use crate::open::{IndexUse, OpenOptions, Ubifs, UbifsOpenError};
use crate::scan::{Item, Scan};
use crate::write::{Buffered, UbifsMountError, UbifsMut};
use plan::Plan;

/// How much a repair may lose, from least to most; named after the modes of fsck.ubifs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only what can be recomputed is changed: nothing can be lost (fsck.ubifs -a).
    Safe,
    /// What cannot be kept is dropped: single names, blocks of content, files (fsck.ubifs -y).
    DangerDefault,
    /// The index is rebuilt from all nodes found: in addition, deleted files may come back
    /// (fsck.ubifs -y -b).
    DangerRebuild,
}

impl Level {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::DangerDefault => "danger-default",
            Self::DangerRebuild => "danger-rebuild",
        }
    }

    /// What a repair at this level may cost.
    pub fn cost(self) -> &'static str {
        match self {
            Self::Safe => "nothing can be lost",
            Self::DangerDefault => "names, content and files that cannot be kept are dropped",
            Self::DangerRebuild => {
                "the index is rebuilt from all nodes found: what cannot be kept is dropped, and \
                 what was deleted may come back"
            }
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One change of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The lowest level at which it is made.
    pub level: Level,
    /// What is wrong, and where.
    pub finding: Finding,
    /// What is done about it.
    pub action: String,
}

/// The result of a survey or repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The level needed; `None`: nothing is wrong.
    pub level: Option<Level>,
    /// Everything that changes.
    pub changes: Vec<Change>,
}

/// Why a repair failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairError {
    /// The file system could not be opened.
    Open(UbifsOpenError),
    /// No level can repair it; the text says why.
    Unrepairable(String),
    /// The flash did not give all of it: what is there after all would be dropped.
    Unreadable(FsError),
    /// It needs a higher level than allowed; the report says what and why.
    Level(Report),
    /// Writing failed, or there is no room for a new index.
    Write(UbifsMountError),
    /// The repair was written, but the check still finds this.
    Unclean(Vec<Finding>),
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Unrepairable(why) => write!(f, "it cannot be repaired: {why}"),
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Self::Level(report) => {
                let level = report.level.unwrap_or(Level::Safe);
                write!(f, "it needs level {level}: {}", level.cost())
            }
            Self::Write(error) => write!(f, "the repair could not be written: {error}"),
            Self::Unclean(findings) => {
                let (one, many) = ("thing is still wrong", "things are still wrong");
                counted(findings.len(), one, many).fmt(f)?;
                findings.first().map_or(Ok(()), |first| write!(f, ", the first: {first}"))
            }
        }
    }
}

impl core::error::Error for RepairError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Open(error) => Some(error),
            Self::Unreadable(error) => Some(error),
            Self::Write(error) => Some(error),
            _ => None,
        }
    }
}

/// Finds out what a repair would do, without writing anything.
///
/// # Errors
/// [`RepairError::Open`], [`RepairError::Unrepairable`].
pub fn survey<V: Volume>(volume: V) -> Result<Report, RepairError> {
    Survey::new(volume).map(|survey| survey.plan.report)
}

/// Repairs the file system on `volume`, if `level` permits what is needed. Directories made by the
/// repair get the time `now`, in seconds since 1970.
///
/// A clean file system is not modified. Returns the volume with a clean file system.
///
/// # Errors
/// [`RepairError`]; with [`RepairError::Level`] nothing was written.
pub fn repair<V: VolumeMut>(volume: V, level: Level, now: u64) -> Result<(V, Report), RepairError> {
    let survey = Survey::new(Buffered::new(volume, 8))?;
    let Plan { report, .. } = &survey.plan;
    match report.level {
        None => return Ok((survey.fs.store.access.volume.into_flash(), survey.plan.report)),
        Some(needed) if needed > level => return Err(RepairError::Level(survey.plan.report)),
        Some(_) => {}
    }
    let Survey { mut fs, mut plan } = survey;
    let report = core::mem::take(&mut plan.report);
    let state = plan.state(&fs, now);
    grow(&mut fs);
    let written = UbifsMut::rebase(fs, &state).map_err(RepairError::Write)?;
    let closed = written.close();
    let volume = closed.map_err(|error| RepairError::Write(UbifsMountError::Failed(error)))?;
    let fs = Ubifs::open(volume, &OpenOptions::default()).map_err(RepairError::Open)?;
    let mut rest = fs.check();
    rest.retain(|finding| finding.severity > Severity::Note);
    match rest.is_empty() {
        true => Ok((fs.store.access.volume, report)),
        false => Err(RepairError::Unclean(rest)),
    }
}

/// Extends the file system over the rest of the volume: a new index needs room.
fn grow<V: Volume>(fs: &mut Ubifs<V>) {
    let mut superblock = *fs.superblock();
    let lebs = fs.volume().geometry().lebs.min(superblock.leb_count_max);
    superblock.leb_count = superblock.leb_count.max(lebs);
    if let (Ok(layout), Ok(format)) = (superblock.layout(), LptFormat::new(&superblock)) {
        fs.store.superblock = superblock;
        fs.store.layout = layout;
        fs.lpt = Some(format);
    }
}

/// A file system and the changes to make.
struct Survey<V> {
    fs: Ubifs<V>,
    plan: Plan,
}

impl<V: Volume> Survey<V> {
    fn new(volume: V) -> Result<Self, RepairError> {
        let fs = Ubifs::open(volume, &OpenOptions::default()).map_err(RepairError::Open)?;
        let mut findings = fs.check();
        given(&fs)?;
        refuse(&fs)?;
        findings.retain(|finding| finding.severity > Severity::Note);
        let mut structures: Vec<Change> =
            findings.iter().filter_map(|finding| change_of(&fs, finding)).collect();
        let level = structures.iter().map(|change| change.level).max();
        if level != Some(Level::DangerRebuild) {
            let damaged_buds = damaged_buds(&findings);
            let mut plan = Plan::new(&fs, &damaged_buds);
            let astray = plan.astray(&fs);
            given(&fs)?;
            if !plan.is_empty() && astray.is_none() {
                plan.add_structures(structures);
                if plan.report.level.is_none() {
                    // Whatever else was found is absent from a new commit.
                    plan.add_structures(findings.into_iter().map(recomputed).collect());
                }
                return Ok(Self { fs, plan });
            }
            let nothing = findings.first().map(|finding| Finding {
                structure: "index",
                problem: "it leads to no inode that could be kept".into(),
                ..finding.clone()
            });
            structures.extend(astray.or(nothing).map(|finding| Change {
                level: Level::DangerRebuild,
                action: "a new index is built from all nodes found".into(),
                finding,
            }));
        }
        let options = OpenOptions { index: IndexUse::Rebuild, keys: None };
        let fs = Ubifs::open(fs.store.access.volume, &options).map_err(RepairError::Open)?;
        let mut plan = Plan::new(&fs, &[]);
        given(&fs)?;
        plan.add_structures(structures);
        Ok(Self { fs, plan })
    }
}

/// Refuses file systems of which the flash did not give something.
fn given<V: Volume>(fs: &Ubifs<V>) -> Result<(), RepairError> {
    fs.store.access.check_given().map_err(RepairError::Unreadable)
}

/// Refuses file systems that a repair cannot handle.
fn refuse<V: Volume>(fs: &Ubifs<V>) -> Result<(), RepairError> {
    let superblock = fs.superblock();
    let refuse = |why: String| Err(RepairError::Unrepairable(why));
    let wrong =
        |finding: &&Finding| finding.structure == "superblock" && finding.severity > Severity::Note;
    if let Some(finding) = fs.findings().iter().find(wrong) {
        return refuse(format!(
            "{finding}: only the superblock says where everything lies, and it has no copy"
        ));
    }
    if superblock.flags.contains(SuperblockFlags::AUTHENTICATION) {
        return refuse(
            "it is authenticated, and repairs are not signed, not even with --auth-key: extract \
             what can still be verified"
                .into(),
        );
    }
    if superblock.flags.contains(SuperblockFlags::ENCRYPTION) {
        return refuse(
            "it has encrypted files, whose names a repair cannot check, not even with --key: \
             extract what is intact"
                .into(),
        );
    }
    if superblock.flags.0 & !SuperblockFlags::KNOWN.0 != 0 {
        return refuse(format!("unknown flags {:#x}", superblock.flags.0));
    }
    if !(4..=flysch_wire::ubifs::FORMAT_VERSION).contains(&superblock.format_version) {
        return refuse(format!("format version {}", superblock.format_version));
    }
    if fs.lpt.is_none() {
        return refuse("the superblock leaves no room for the LEB properties".into());
    }
    Ok(())
}

/// The change for a finding about structures below files; `None` for files, examined one by one.
fn change_of<V: Volume>(fs: &Ubifs<V>, finding: &Finding) -> Option<Change> {
    let (level, action) = match finding.structure {
        "index node" | "index" | "log" | "reference node" => {
            (Level::DangerRebuild, "a new index is built from all nodes found")
        }
        "master node" if is_misleading(fs, finding) => {
            (Level::DangerRebuild, "a new index is built from all nodes found")
        }
        "master node" => (Level::Safe, "a new master node is written"),
        "LEB" if is_index_leb(fs, finding) => {
            (Level::DangerRebuild, "a new index is built from all nodes found")
        }
        "LEB" => (Level::DangerDefault, "these bytes are given up"),
        "journal" => (Level::DangerDefault, "content in this LEB of the journal is dropped"),
        "orphan area" | "orphan node" => (Level::DangerDefault, "the orphan area is emptied"),
        "superblock" => (Level::Safe, "new files are not compressed"),
        "LEB properties" => (Level::Safe, "recounted"),
        lpt if lpt.starts_with("LPT") => (Level::Safe, "the tree is rewritten"),
        _ => return None,
    };
    Some(Change { level, finding: finding.clone(), action: action.into() })
}

fn recomputed(finding: Finding) -> Change {
    Change { level: Level::Safe, finding, action: "gone with the old index".into() }
}

/// Whether a master node with this fault is unusable: its other fields are only sums.
fn is_misleading<V: Volume>(fs: &Ubifs<V>, finding: &Finding) -> bool {
    let fields = ["highest_inum", "log_lnum", "root_lnum", "root_len", "lpt_lnum"];
    let field = finding.problem.strip_prefix("impossible value in field ");
    fs.master.is_none() || field.is_some_and(|field| fields.contains(&field))
}

/// Whether the LEB that a finding is about holds index nodes.
fn is_index_leb<V: Volume>(fs: &Ubifs<V>, finding: &Finding) -> bool {
    let mut scratch = Scratch::new();
    let Some(lnum) = finding.place.leb else { return false };
    let Ok(leb) = fs.store.access.leb(lnum, &mut scratch) else { return false };
    let first = Scan::new(leb, 0).find_map(|item| match item {
        Item::Node { header, .. } => Some(header.kind),
        Item::Garbage { .. } => None,
    });
    first == Some(NodeKind::Index)
}

/// LEBs of the journal in which nodes were lost.
fn damaged_buds(findings: &[Finding]) -> Vec<u32> {
    let lost = findings.iter().filter(|finding| finding.structure == "journal");
    lost.filter_map(|finding| finding.place.leb).collect()
}

impl From<FsError> for RepairError {
    fn from(error: FsError) -> Self {
        Self::Write(UbifsMountError::Failed(error))
    }
}
