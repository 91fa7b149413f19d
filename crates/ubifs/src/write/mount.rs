//! Opening for writing.
//!
//! Reading comes first: [`Ubifs::open`] recovers in memory. What it found is then counted - which
//! LEB holds how much - and, after an unclean stop, written back: master node, log, torn ends of
//! buds and of the index and LEB properties heads. A commit makes the rest of it durable.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::ControlFlow;

use flysch_api::finding::Severity;
use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::lpt::LptFormat;
use flysch_wire::ubifs::{
    Group, MASTER_LEB, MASTER_NODE_SIZE, Master, MasterFlags, NODE_ALIGNMENT, Node,
    SUPERBLOCK_HMAC, SUPERBLOCK_LEB, SUPERBLOCK_NODE_SIZE, SuperblockFlags, align8,
};

use super::buffered::{Buffered, pad};
use super::cache::Cache;
use super::journal::Log;
use super::space::Space;
use super::{GC, Stop, UbifsMut};
use crate::access::{Fault, Location, Scratch};
use crate::auth::is_unsigned;
use crate::lpt::Lpt;
use crate::master::{bad_fields, content};
use crate::open::{OpenError, Options, Ubifs};
use crate::replay::{BudEnd, FoundLog};

/// Why a file system could not be opened for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MountError {
    /// There is nothing to open.
    Open(OpenError),
    /// It can be read only; the text says why.
    ReadOnly(String),
    /// Writing back what recovery found failed.
    Failed(Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::ReadOnly(why) => write!(f, "this UBIFS can only be read: {why}"),
            Self::Failed(error) => write!(f, "recovery could not be written back: {error}"),
        }
    }
}

impl core::error::Error for MountError {}

impl From<Error> for MountError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn read_only<T>(why: impl Into<String>) -> Result<T, MountError> {
    Err(MountError::ReadOnly(why.into()))
}

/// How often a place is read to tell whether it reads the same each time.
const LOOKS: usize = 4;
/// How often without error correction, which would tell of cells that read as either.
const LOOKS_UNCORRECTED: usize = 16;

impl<V: VolumeMut> UbifsMut<V> {
    /// Opens the file system on `volume` for reading and writing.
    ///
    /// After an unclean stop, recovery is written back first. A file system that grew with its
    /// volume takes the new room.
    ///
    /// # Errors
    /// [`MountError::ReadOnly`] for what can be read and not written: authenticated and encrypted
    /// images, formats of the future, damage that cost something.
    pub fn open(volume: V) -> Result<Self, MountError> {
        Self::open_with(volume, &Options::default())
    }

    /// The same with options: an index that is trusted ([`IndexUse::Trust`](crate::IndexUse)) is
    /// not read, so that opening takes no longer with many files than with none, as in Linux.
    ///
    /// # Errors
    /// As [`open`](Self::open); a damaged part of a trusted index is met later, by the operation
    /// that needs it.
    pub fn open_with(volume: V, options: &Options) -> Result<Self, MountError> {
        let buffered = Buffered::new(volume, 8);
        let fs = Ubifs::open(buffered, options).map_err(MountError::Open)?;
        let mut this = Self::prepare(fs)?;
        let unclean = this.master.flags.contains(MasterFlags::DIRTY);
        let seen = core::mem::take(&mut this.fs.seen);
        let Some(log) = seen.log else { return read_only("the log is lost") };
        if let (Some(auth), Some(hasher)) = (&mut this.fs.store.auth, &log.hasher) {
            auth.resume_log(hasher.clone());
        }
        this.fs.store.access.volume.sequence =
            this.fs.store.access.volume.sequence.max(seen.buds.sequence).max(log.sequence);
        this.highest_inode = this.highest_inode.max(seen.buds.inode);
        this.random = this.fs.store.access.volume.sequence
            ^ u64::from_le_bytes(first_8(&this.fs.store.superblock.uuid));
        this.account(&seen.buds.ends)?;
        this.believable()?;
        this.recover_master(unclean)?;
        let (lnum, end) = log.head;
        this.log.head = (lnum, end.next_multiple_of(this.fs.store.unit()));
        this.take_over_signed()?;
        this.fix_up()?;
        if unclean {
            this.recover(&seen.buds.ends, &log)?;
        }
        // What could not be trusted is written anew, and what else was looked at is firm.
        this.fs.store.access.held.clear();
        this.take_gc_leb();
        this.grow()?;
        if unclean {
            this.finish_recovery()?;
        }
        if this.gc_leb().is_none() {
            this.make_gc_leb()?;
        }
        this.fs.store.keep_leaves();
        Ok(this)
    }

    /// Refuses what can not be written for what its superblock says.
    fn refuse(fs: &Ubifs<Buffered<V>>) -> Result<(), MountError> {
        let superblock = fs.store.superblock;
        let is_authenticated = superblock.flags.contains(SuperblockFlags::AUTHENTICATION);
        if is_authenticated && !fs.store.auth.as_ref().is_some_and(|auth| auth.has_key()) {
            return read_only(
                "it is authenticated, and the key to sign changes is not at hand (--auth-key)",
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
            return read_only("its unit of writing is smaller than the flash's");
        }
        if geometry.lebs < superblock.leb_count {
            return read_only(format!(
                "{} of its {} LEBs are there",
                geometry.lebs, superblock.leb_count
            ));
        }
        Ok(())
    }

    /// Refuses what can not be written; reads the LEB properties.
    fn prepare(mut fs: Ubifs<Buffered<V>>) -> Result<Self, MountError> {
        Self::refuse(&fs)?;
        let superblock = fs.store.superblock;
        let (Some(chosen), Some(format)) = (fs.master.clone(), fs.lpt) else {
            return read_only("the master node is lost");
        };
        let layout = &fs.store.layout;
        if let [field, ..] = bad_fields(&chosen.master, &superblock, layout, &format)[..] {
            // Linux does not even read one.
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
            .map_err(|fault: Fault| MountError::ReadOnly(format!("{}", Error::from(fault))))?;
        let space = Space::new(&superblock, &fs.store.layout.main, lpt.properties());
        fs.store.access.volume.sequence = chosen.sequence;
        let master = chosen.master;
        Ok(Self {
            fs,
            space,
            lpt,
            master: Master {
                flags: MasterFlags(master.flags.0 & !MasterFlags::RECOVERY.0),
                ..master
            },
            master_at: chosen.offset,
            log: Log { tail: master.log_lnum, head: (master.log_lnum, 0), bud_bytes: 0 },
            cache: Cache::default(),
            orphans: Default::default(),
            leaving: Default::default(),
            index_head: (master.ihead_lnum, master.ihead_offs),
            index_size: master.index_size,
            index_growth: 0,
            highest_inode: master.highest_inode,
            cipher: None,
            random: 0,
            changed: false,
            #[cfg(test)]
            only_gaps: false,
        })
    }

    /// Counts what the journal changed about each LEB.
    fn account(&mut self, ends: &[BudEnd]) -> Result<(), Error> {
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
        self.index_growth = leaves * self.leaf_cost();
        for at in gone {
            self.space.release(at);
        }
        let buds: Vec<_> = self.fs.buds.iter().copied().zip(ends.iter().copied()).collect();
        for (bud, end) in buds {
            self.log.bud_bytes += u64::from(leb_size - bud.start);
            self.space.change(bud.lnum, |leb| {
                leb.taken = true;
                leb.free = (leb_size - end.at).min(leb_size - leb.used);
            });
        }
        for at in come {
            let leb = self.space.leb(at.lnum);
            if leb.free + leb.used + align8(at.length) > leb_size {
                let place = self.fs.store.access.place(at.lnum, at.offset);
                return Err(Error::Damaged { structure: "LEB properties", place });
            }
            self.space.acquire(at);
        }
        let (lnum, offset) = self.index_head;
        let leb = self.space.leb(lnum);
        if !leb.index || leb.free != leb_size - offset {
            // Index writing goes on elsewhere.
            self.index_head = (lnum, leb_size);
        }
        self.changed = !self.fs.store.overlay.is_empty();
        Ok(())
    }

    /// Writes the master node anew if its two LEBs are not as they should be.
    pub(super) fn recover_master(&mut self, unclean: bool) -> Result<(), Error> {
        let size = (MASTER_NODE_SIZE as u32).next_multiple_of(self.fs.store.unit());
        let node = Location { lnum: MASTER_LEB, offset: self.master_at, length: size };
        let (mut first, mut second) = (Scratch::new(), Scratch::new());
        let access = &self.fs.store.access;
        let same = match (
            access.bytes(node, &mut first),
            access.bytes(Location { lnum: MASTER_LEB + 1, ..node }, &mut second),
        ) {
            (Ok(first), Ok(second)) => content(first) == content(second),
            _ => false,
        };
        let end = self.master_at + size;
        let is_good = |lnum| {
            self.fs.store.access.is_erased(lnum, end, self.fs.store.leb_size())
                && self.is_firm(lnum, self.master_at, end + size)
        };
        if !unclean && same && is_good(MASTER_LEB) && is_good(MASTER_LEB + 1) {
            return Ok(());
        }
        let flags = MasterFlags(self.master.flags.0 | MasterFlags::RECOVERY.0);
        let mut bytes = self.emit_master(Master { flags, ..self.master });
        pad(&mut bytes, self.fs.store.unit() as usize);
        self.fs.store.access.change_leb(MASTER_LEB, &bytes)?;
        self.fs.store.access.change_leb(MASTER_LEB + 1, &bytes)?;
        self.master_at = 0;
        if let Some(chosen) = &mut self.fs.master {
            (chosen.lnum, chosen.offset) = (MASTER_LEB, 0);
        }
        Ok(())
    }

    /// Whether a place reads the same each time, with hardly a bit to correct: a write that was cut
    /// short, or not even begun as it seems, does not.
    fn is_firm(&self, lnum: u32, start: u32, end: u32) -> bool {
        let read = |bytes: &mut [u8]| self.volume().read(lnum, start, bytes);
        let mut first = alloc::vec![0; (end.min(self.fs.store.leb_size()) - start) as usize];
        let mut again = first.clone();
        let Ok(corrected) = read(&mut first) else { return false };
        let looks = match self.volume().point(lnum, start, 1) {
            // Memory.
            Some(_) => 1,
            None if self.fs.store.unit() > NODE_ALIGNMENT => LOOKS,
            None => LOOKS_UNCORRECTED,
        };
        let mut is_clean = corrected.bits == 0;
        for _ in 1..looks {
            is_clean &= read(&mut again).is_ok_and(|it| it.bits == 0) && first == again;
        }
        is_clean
    }

    /// Puts HMACs in the place of a signature: the master node first, whose hash the signed
    /// superblock has as long as there is none in it.
    fn take_over_signed(&mut self) -> Result<(), Error> {
        if self.fs.store.auth.is_none() || !is_unsigned(&self.fs.store.superblock.hmac) {
            return Ok(());
        }
        self.mark_dirty()?;
        self.write_superblock()
    }

    /// Writes back what an unclean stop left torn, as it was seen when it was read.
    fn recover(&mut self, ends: &[BudEnd], log: &FoundLog) -> Result<(), Error> {
        let buds = self.fs.buds.clone();
        for (bud, end) in buds.iter().zip(ends) {
            // A write cut short may look erased, or good this once: it is written anew.
            if end.is_torn || end.is_last {
                let end = self.cut_leb(bud.lnum, end.at)?;
                let free = self.fs.store.leb_size() - end;
                self.space.change(bud.lnum, |leb| leb.free = free);
            }
        }
        let (lnum, offset) = self.index_head;
        if offset < self.fs.store.leb_size() {
            self.cut_leb(lnum, offset)?;
        }
        let head = self.lpt.head();
        if head.offset < self.fs.store.leb_size() {
            self.cut_leb(head.lnum, head.offset)?;
        }
        let idle: Vec<u32> = self.lpt.idle_lebs().filter(|lnum| *lnum != head.lnum).collect();
        for lnum in idle {
            self.fs.store.access.clear_leb(lnum)?;
        }
        self.recover_log(log)
    }

    /// Keeps a LEB up to `end`, padded; tells where it ends then.
    fn cut_leb(&mut self, lnum: u32, end: u32) -> Result<u32, Error> {
        if end == 0 {
            self.fs.store.access.clear_leb(lnum)?;
            self.fs.store.access.map_leb(lnum)?;
            return Ok(0);
        }
        let mut content = self.fs.store.access.whole_leb(lnum)?;
        content.truncate(end as usize);
        pad(&mut content, self.fs.store.unit() as usize);
        self.fs.store.access.change_leb(lnum, &content)?;
        Ok(content.len() as u32)
    }

    /// Writes the log into its first LEB: what a commit cut short began is not in the way then.
    fn recover_log(&mut self, log: &FoundLog) -> Result<(), Error> {
        let mut nodes = log.nodes.clone();
        pad(&mut nodes, self.fs.store.unit() as usize);
        let tail = self.log.tail;
        let mut used = alloc::vec![tail];
        if nodes.len() <= self.fs.store.leb_size() as usize {
            self.fs.store.access.change_leb(tail, &nodes)?;
            self.log.head = (tail, nodes.len() as u32);
        } else {
            // It stays as it is up to its last node.
            let (lnum, _) = log.head;
            self.log.head = (lnum, self.cut_leb(lnum, log.end)?);
            while used.last() != Some(&lnum) {
                used.push(self.next_log_leb(used[used.len() - 1]));
            }
        }
        for lnum in self.fs.store.layout.log.clone() {
            if !used.contains(&lnum) {
                self.fs.store.access.clear_leb(lnum)?;
            }
        }
        Ok(())
    }

    /// Commits what recovery found: sizes that follow the data, files deleted.
    fn finish_recovery(&mut self) -> Result<(), Error> {
        self.changed = true;
        // No commit may come before the sizes are written: the journal may be longer than usual.
        self.log.bud_bytes = 0;
        for (inode, size) in core::mem::take(&mut self.fs.store.sizes) {
            let mut record = self.load_any(inode)?;
            record.node.size = size;
            self.write_inode(&record)?;
        }
        self.empty_lebs_hold_nothing()?;
        self.commit()
    }

    /// What a LEB that counts as empty holds was given up before the stop. UBI may still have it,
    /// or what is left of it when the power went during its erase: a fastmap does not tell.
    fn empty_lebs_hold_nothing(&mut self) -> Result<(), Error> {
        let leb_size = self.fs.store.leb_size();
        let is_empty = |lnum: u32, leb: &super::space::Leb| {
            leb.free == leb_size && !leb.taken && lnum != self.index_head.0
        };
        let empty = self.space.lebs().filter(|(lnum, leb)| is_empty(*lnum, leb));
        let empty = empty.map(|(lnum, _)| lnum);
        for lnum in empty.collect::<Vec<u32>>() {
            self.fs.store.access.clear_leb(lnum)?;
        }
        Ok(())
    }

    /// Takes the LEB that garbage collection starts with.
    pub(super) fn take_gc_leb(&mut self) {
        let known = self.master.gc_lnum;
        let is_main = self.fs.store.layout.main.contains(&known);
        let lnum = match is_main && self.space.leb(known).is_available() {
            true => Some(known),
            false => self.empty_leb(),
        };
        if let Some(lnum) = lnum {
            let leb_size = self.fs.store.leb_size();
            self.space.change(lnum, |leb| {
                leb.free = leb_size;
                leb.reserved = true;
            });
        }
    }

    /// Without any empty LEB: the contents of one go into the free end of another.
    pub(super) fn make_gc_leb(&mut self) -> Result<(), Error> {
        self.mark_dirty()?;
        self.commit()?;
        self.take_gc_leb();
        if self.gc_leb().is_some() {
            return Ok(());
        }
        let data = |leb: &super::space::Leb| !leb.index && !leb.taken;
        let roomy = self.space.lebs().filter(|(_, leb)| data(leb)).max_by_key(|it| it.1.free);
        let Some((lnum, free)) = roomy.map(|(lnum, leb)| (lnum, leb.free)) else {
            return Err(Error::NoSpace);
        };
        let small = self.space.lebs().filter(|(other, leb)| data(leb) && *other != lnum);
        let victim = small.min_by_key(|(_, leb)| leb.used).map(|(lnum, leb)| (lnum, leb.used));
        let Some((victim, used)) = victim else { return Err(Error::NoSpace) };
        if used > free {
            return Err(Error::NoSpace);
        }
        let offset = self.fs.store.leb_size() - free;
        let moved = self.switch_head(GC, lnum, offset).and_then(|()| self.empty(victim));
        match moved {
            Ok(()) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Commit | Stop::Full) => Err(Error::NoSpace),
        }
    }

    /// Takes LEBs that the volume has beyond those of the file system.
    fn grow(&mut self) -> Result<(), MountError> {
        let superblock = self.fs.store.superblock;
        let lebs = self.volume().geometry().lebs.min(superblock.leb_count_max);
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
        let mut master = self.master;
        master.leb_cnt = lebs;
        let grown = u64::from(lebs - superblock.leb_count);
        let unit = self.fs.store.unit();
        let dark = crate::lpt::unusable(superblock.leb_size, unit).1;
        master.total_free += grown * u64::from(superblock.leb_size);
        master.total_dark += grown * u64::from(dark);
        master.empty_lebs += grown as u32;
        self.write_master(master)?;
        Ok(())
    }

    pub(super) fn write_superblock(&mut self) -> Result<(), Error> {
        let mut bytes = alloc::vec![0; SUPERBLOCK_NODE_SIZE];
        if let Some(hmac) = self.fs.store.auth.as_ref().and_then(|auth| auth.well_known()) {
            self.fs.store.superblock.hmac_wkm = hmac.padded();
        }
        let node = Node::Superblock(self.fs.store.superblock);
        node.emit(self.fs.store.access.next_sequence(), Group::None, &mut bytes);
        if let Some(auth) = &self.fs.store.auth {
            auth.sign(&mut bytes, SUPERBLOCK_HMAC.start);
        }
        pad(&mut bytes, self.fs.store.unit() as usize);
        self.fs.store.access.change_leb(SUPERBLOCK_LEB, &bytes)
    }

    /// Rewrites LEBs whose erased ends were programmed with 0xFF by a simple flasher
    /// (`mkfs.ubifs -F`); once.
    pub(super) fn fix_up(&mut self) -> Result<(), Error> {
        if !self.fs.store.superblock.flags.contains(SuperblockFlags::SPACE_FIXUP) {
            return Ok(());
        }
        let leb_size = self.fs.store.leb_size();
        let size = (MASTER_NODE_SIZE as u32).next_multiple_of(self.fs.store.unit());
        let layout = self.fs.store.layout.clone();
        let mut ends = alloc::vec![
            (MASTER_LEB, self.master_at + size),
            (MASTER_LEB + 1, self.master_at + size),
        ];
        let (log_lnum, log_offset) = self.log.head;
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
