//! Opening for writing.
//!
//! [`Ubifs::open`] comes first and recovers in memory. What it found is then accounted for - how
//! much each LEB holds - and, after an unclean stop, written back: master node, log, torn ends of
//! buds and of the heads of index and LEB properties. A commit makes the rest durable.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::ControlFlow;

use flysch_api::finding::Severity;
use flysch_api::vfs::{Damage, FsError};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::lpt::LptFormat;
use flysch_wire::ubifs::{MASTER_LEB, MasterFlags, SuperblockFlags, align8};

use super::buffered::Buffered;
use super::journal::{Journal, Log};
use super::master::MasterArea;
use super::merge::IndexState;
use super::numbers::Numbers;
use super::orphans::Orphans;
use super::recover::Recovery;
use super::space::Space;
use super::store::StoreMut;
use super::tnc::leaf_cost;
use crate::access::{Fault, Scratch, finding};
use crate::auth::is_unsigned;
use crate::location::Location;
use crate::lpt::Lpt;
use crate::master::{SEQUENCE_WATERMARK, bad_fields, content};
use crate::open::{OpenOptions, Ubifs, UbifsOpenError};
use crate::replay::{BudEnd, Seen};

/// Why a file system could not be opened for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UbifsMountError {
    /// The file system could not be opened.
    Open(UbifsOpenError),
    /// The flash did not give all that must be known for writing.
    Unreadable(FsError),
    /// It can only be read; the text says why.
    ReadOnly(String),
    /// Writing back the recovered state failed.
    Failed(FsError),
}

impl fmt::Display for UbifsMountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Unreadable(error) => write!(f, "the file system cannot be read: {error}"),
            Self::ReadOnly(why) => write!(f, "this UBIFS can only be read: {why}"),
            Self::Failed(error) => write!(f, "recovery could not be written back: {error}"),
        }
    }
}

impl core::error::Error for UbifsMountError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Open(error) => Some(error),
            Self::Unreadable(error) | Self::Failed(error) => Some(error),
            _ => None,
        }
    }
}

impl From<FsError> for UbifsMountError {
    fn from(error: FsError) -> Self {
        Self::Failed(error)
    }
}

fn read_only<T>(why: impl Into<String>) -> Result<T, UbifsMountError> {
    Err(UbifsMountError::ReadOnly(why.into()))
}

impl<V: VolumeMut> StoreMut<V> {
    /// Opens for writing; see [`UbifsMut::open_with`](super::UbifsMut::open_with).
    pub(super) fn open(volume: V, options: &OpenOptions) -> Result<Self, UbifsMountError> {
        let buffered = Buffered::new(volume, 8);
        let fs = Ubifs::open(buffered, options).map_err(UbifsMountError::Open)?;
        let mut this = Self::prepare(fs)?;
        let unclean = this.master.is_dirty();
        let Seen { log, buds } = core::mem::take(&mut this.fs.seen);
        let Some(log) = log else { return read_only("the log is lost") };
        let store = &mut this.fs.store;
        if let (Some(auth), Some(hasher)) = (&mut store.auth, &log.hasher) {
            auth.resume_log(hasher.clone());
        }
        let sequence = store.access.volume.sequence.max(buds.sequence).max(log.sequence);
        store.access.volume.sequence = sequence;
        if sequence >= SEQUENCE_WATERMARK {
            return read_only("its sequence numbers are used up");
        }
        this.numbers.highest_inode = this.numbers.highest_inode.max(buds.inode);
        this.numbers.random = sequence ^ u64::from_le_bytes(first_8(&store.superblock.uuid));
        this.account(&buds.ends)?;
        this.believable()?;
        this.recover_master(unclean)?;
        let (lnum, end) = log.head;
        this.journal.log.head = (lnum, end.next_multiple_of(this.fs.store.unit()));
        this.take_over_signed()?;
        this.fix_up()?;
        if unclean {
            Recovery { disk: &mut this }.write_back(&buds.ends, &log)?;
        }
        // Untrusted places have been rewritten; the other held ones were found to be stable.
        this.fs.store.access.hold_nothing();
        this.space.take_gc_leb(this.master.node.gc_lnum);
        this.grow()?;
        if unclean {
            Recovery { disk: &mut this }.finish()?;
        }
        this.make_gc_leb()?;
        this.fs.store.keep_leaves();
        Ok(this)
    }

    /// Refuses what cannot be written according to the superblock.
    fn refuse(fs: &Ubifs<Buffered<V>>) -> Result<(), UbifsMountError> {
        let superblock = fs.store.superblock;
        let is_authenticated = superblock.flags.contains(SuperblockFlags::AUTHENTICATION);
        if is_authenticated && !fs.store.auth.as_ref().is_some_and(|auth| auth.has_key()) {
            return read_only(
                "it is authenticated, and changes cannot be signed without its key (--auth-key)",
            );
        }
        if superblock.flags.0 & !SuperblockFlags::KNOWN.0 != 0 {
            return read_only(format!("unknown flags {:#x}", superblock.flags.0));
        }
        if !(4..=flysch_wire::ubifs::FORMAT_VERSION).contains(&superblock.format_version) {
            return read_only(format!("format version {}", superblock.format_version));
        }
        let geometry = fs.store.access.volume.flash().geometry();
        if geometry.write_size.is_some_and(|it| !superblock.min_io_size.is_multiple_of(it.max(1))) {
            return read_only("its minimum I/O unit is not a multiple of the flash's write size");
        }
        if geometry.lebs < superblock.leb_count {
            return read_only(format!(
                "only {} of its {} LEBs are present",
                geometry.lebs, superblock.leb_count
            ));
        }
        Ok(())
    }

    /// Refuses what cannot be written; reads the LEB properties.
    fn prepare(mut fs: Ubifs<Buffered<V>>) -> Result<Self, UbifsMountError> {
        let given = |fs: &Ubifs<Buffered<V>>| fs.store.access.check_given();
        given(&fs).map_err(UbifsMountError::Unreadable)?;
        Self::refuse(&fs)?;
        let superblock = fs.store.superblock;
        let (Some(chosen), Some(format)) = (fs.master.take(), fs.lpt) else {
            return read_only("the master node is lost");
        };
        let layout = &fs.store.layout;
        if let [field, ..] = bad_fields(&chosen.master, &superblock, layout, &format)[..] {
            // Linux does not even read such an image.
            return read_only(format!(
                "the master node has an impossible value in field {field}; repair it first"
            ));
        }
        let worst = fs.findings.iter().find(|finding| finding.severity == Severity::Lost);
        if let Some(finding) = worst {
            return read_only(format!("{finding}; repair it first"));
        }
        if fs.properties_forged {
            return read_only("authentication failed: the LEB properties are not what was signed");
        }
        if !fs.lost.is_empty() || fs.store.index.is_none() {
            return read_only("a part of the index is damaged; repair it first");
        }
        fs.store.access.volume.unit = superblock.min_io_size;
        let lpt = Lpt::read(&fs.store.access, (format, superblock.min_io_size), &chosen.master)
            .map_err(|fault: Fault| {
                UbifsMountError::ReadOnly(format!("{}", FsError::from(fault)))
            })?;
        given(&fs).map_err(UbifsMountError::Unreadable)?;
        if let Some(problem) = lpt.contradiction() {
            let place = fs.store.access.place(chosen.master.ltab_lnum, chosen.master.ltab_offs);
            let found = finding(Severity::Inconsistent, "LPT ltab", problem, place);
            return read_only(format!("{found}; repair it first"));
        }
        let space = Space::new(&superblock, &fs.store.layout.main, lpt.properties());
        fs.store.access.volume.sequence = chosen.sequence;
        let mut node = chosen.master;
        node.flags.0 &= !MasterFlags::RECOVERY.0;
        Ok(Self {
            space,
            journal: Journal {
                log: Log::new(fs.store.layout.log.clone(), node.log_lnum),
                buds: core::mem::take(&mut fs.buds),
            },
            index: IndexState {
                at: (node.ihead_lnum, node.ihead_offs),
                size: node.index_size,
                growth: 0,
            },
            lpt,
            master: MasterArea { node, offset: chosen.offset },
            orphans: Orphans::default(),
            numbers: Numbers { highest_inode: node.highest_inode, random: 0 },
            fs,
            changed: false,
            #[cfg(test)]
            empty_lebs: None,
        })
    }

    /// Accounts for the journal's changes to each LEB.
    fn account(&mut self, ends: &[BudEnd]) -> Result<(), FsError> {
        let leb_size = self.fs.store.leb_size();
        let mut gone = Vec::new();
        let mut come = Vec::new();
        let store = &self.fs.store;
        let empty = crate::overlay::Overlay::default();
        let committed = |first, last, skip_gone: bool, out: &mut Vec<Location>| {
            store.committed_under(&empty, (first, last), &mut |key, at| {
                let dropped = !skip_gone || !store.overlay.is_gone(key);
                if dropped {
                    out.push(at);
                }
                ControlFlow::Continue(())
            })
        };
        for (first, last) in store.overlay.gone_ranges() {
            committed(first, last, false, &mut gone)?;
        }
        let mut leaves = 0;
        for (key, at) in
            store.overlay.nodes(flysch_wire::ubifs::Key::MIN, flysch_wire::ubifs::Key::MAX)
        {
            committed(key, key, true, &mut gone)?;
            come.push(at);
            leaves += 1;
        }
        for key in store.overlay.name_keys() {
            for change in store.overlay.names_of(key) {
                gone.extend(change.replaces);
                come.extend(change.location);
                leaves += 1;
            }
        }
        self.index.growth = leaves * leaf_cost(&self.fs.store.superblock);
        for at in gone {
            self.space.release(at);
        }
        for (bud, end) in self.journal.buds.iter().zip(ends) {
            self.journal.log.bud_bytes += u64::from(leb_size - bud.start);
            self.space.change(bud.lnum, |leb| {
                leb.taken = true;
                leb.free = (leb_size - end.at).min(leb_size - leb.used);
            });
        }
        for at in come {
            let leb = self.space.leb(at.lnum);
            if leb.free + leb.used + align8(at.length) > leb_size {
                let place = self.fs.store.access.place(at.lnum, at.offset);
                let cause = Damage::Field("free and dirty bytes");
                return Err(FsError::Damaged { structure: "LEB properties", place, cause });
            }
            self.space.acquire(at);
        }
        let (lnum, offset) = self.index.at;
        let leb = self.space.leb(lnum);
        if !leb.index || leb.free != leb_size - offset {
            // Index writing continues elsewhere.
            self.index.at = (lnum, leb_size);
        }
        self.changed = !self.fs.store.overlay.is_empty();
        Ok(())
    }

    /// Rewrites the master node if its two LEBs are not in order.
    pub(super) fn recover_master(&mut self, unclean: bool) -> Result<(), FsError> {
        let store = &mut self.fs.store;
        let (leb_size, unit) = (store.leb_size(), store.unit());
        let size = MasterArea::size(store);
        let (start, end) = (self.master.offset, self.master.offset + size);
        let node = Location { lnum: MASTER_LEB, offset: start, length: size };
        let (mut first, mut second) = (Scratch::new(), Scratch::new());
        let access = &store.access;
        let same = match (
            access.bytes(node, &mut first),
            access.bytes(Location { lnum: MASTER_LEB + 1, ..node }, &mut second),
        ) {
            (Ok(first), Ok(second)) => content(first) == content(second),
            _ => false,
        };
        let is_good = |lnum| {
            access.is_erased(lnum, end, leb_size)
                && access.is_firm(lnum, start..(end + size).min(leb_size), unit)
        };
        if !unclean && same && is_good(MASTER_LEB) && is_good(MASTER_LEB + 1) {
            return Ok(());
        }
        self.master.rewrite(store)
    }

    /// Replaces the signature by HMACs: the master node's first, because the signed superblock has
    /// the hash of a master node without one.
    fn take_over_signed(&mut self) -> Result<(), FsError> {
        if self.fs.store.auth.is_none() || !is_unsigned(&self.fs.store.superblock.hmac) {
            return Ok(());
        }
        self.mark_dirty()?;
        self.write_superblock()
    }

    /// Extends the file system over the rest of the volume.
    fn grow(&mut self) -> Result<(), UbifsMountError> {
        let superblock = self.fs.store.superblock;
        let lebs =
            self.fs.store.access.volume.flash().geometry().lebs.min(superblock.leb_count_max);
        if lebs <= superblock.leb_count {
            return Ok(());
        }
        self.fs.store.superblock.leb_count = lebs;
        let layout = self.fs.store.superblock.layout();
        let format = LptFormat::new(&self.fs.store.superblock);
        let (Ok(layout), Ok(format)) = (layout, format) else {
            self.fs.store.superblock = superblock;
            return Ok(());
        };
        self.write_superblock()?;
        self.fs.store.layout = layout;
        self.fs.lpt = Some(format);
        self.lpt.grow(format);
        self.space.grow(lebs - superblock.leb_count);
        let mut master = self.master.node;
        master.leb_cnt = lebs;
        let grown = u64::from(lebs - superblock.leb_count);
        let unit = self.fs.store.unit();
        let dark = crate::lpt::unusable(superblock.leb_size, unit).1;
        master.total_free += grown * u64::from(superblock.leb_size);
        master.total_dark += grown * u64::from(dark);
        master.empty_lebs += grown as u32;
        self.master.write(&mut self.fs.store, master)?;
        Ok(())
    }

    /// Rewrites, once, the LEBs whose erased ends a simple flasher programmed with 0xFF
    /// (`mkfs.ubifs -F`).
    pub(super) fn fix_up(&mut self) -> Result<(), FsError> {
        if !self.fs.store.superblock.flags.contains(SuperblockFlags::SPACE_FIXUP) {
            return Ok(());
        }
        let leb_size = self.fs.store.leb_size();
        let end = self.master.offset + MasterArea::size(&self.fs.store);
        let layout = self.fs.store.layout.clone();
        let mut ends = alloc::vec![(MASTER_LEB, end), (MASTER_LEB + 1, end)];
        let (log_lnum, log_offset) = self.journal.log.head;
        let log_end = |lnum| if lnum == log_lnum { log_offset } else { 0 };
        ends.extend(layout.log.map(|lnum| (lnum, log_end(lnum))));
        ends.extend(self.lpt.written());
        ends.extend(layout.orphans.map(|lnum| (lnum, 0)));
        ends.extend(self.space.lebs().map(|(lnum, leb)| (lnum, leb_size - leb.free)));
        for (lnum, end) in ends {
            let mapped = self.fs.store.access.is_mapped(lnum);
            if end == 0 && mapped {
                self.fs.store.access.unmap_leb(lnum)?;
            } else if end < leb_size && mapped {
                let mut content = self.fs.store.access.whole_leb(lnum)?;
                content.truncate(end.next_multiple_of(self.fs.store.unit()) as usize);
                self.fs.store.access.change_leb(lnum, &content)?;
            }
        }
        self.fs.store.superblock.flags.0 &= !SuperblockFlags::SPACE_FIXUP.0;
        self.write_superblock()
    }
}

fn first_8(bytes: &[u8; 16]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    first
}
