//! A commit that does not depend on the previous one, for repairs.
//!
//! The input is which nodes of the main area are good. Space is counted from the LEBs themselves,
//! index and LEB properties tree are written whole, and the log starts anew. The steps are those of
//! any commit; the old index, tree and master node stay until the new master node is written.

mod survey;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_api::vfs::{Damage, FsError};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::lpt::LebProperties;
use flysch_wire::ubifs::{
    DirectoryEntry, EntryKind, FIRST_INODE, Group, InodeNode, Key, Master, MasterFlags, Node,
    ROOT_INODE, align8,
};

use super::buffered::{Buffered, pad};
use super::files::Files;
use super::journal::{Journal, Log};
use super::master::MasterArea;
use super::merge::IndexState;
use super::numbers::Numbers;
use super::orphans::Orphans;
use super::space::Space;
use super::store::StoreMut;
use super::{UbifsMountError, UbifsMut};
use crate::location::Location;
use crate::lpt::Lpt;
use crate::master::{INODE_WATERMARK, SEQUENCE_WATERMARK};
use crate::open::Ubifs;
use crate::overlay::Overlay;
use crate::replay::read_log;
use crate::store::default_compression;
use survey::{Extent, Held, kept_nodes, survey};

/// A name to write into a directory.
#[derive(Clone, Debug)]
pub(crate) struct NewName {
    pub(crate) parent: u32,
    pub(crate) name: Box<[u8]>,
    pub(crate) inode: u32,
    pub(crate) file_type: u8,
}

/// What the file system will hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewState {
    /// The places of the nodes that are kept.
    pub(crate) kept: Overlay,
    /// Inodes to write, with their inline data.
    pub(crate) inodes: Vec<(InodeNode<'static>, Vec<u8>)>,
    /// Names to write.
    pub(crate) names: Vec<NewName>,
    /// Nodes that must not be mistaken for good ones again.
    pub(crate) dropped: Vec<Location>,
}

/// The name of a new entry; other nodes have none.
type FreshName = Option<Box<[u8]>>;

/// The LEB that takes new nodes.
struct Fresh {
    lnum: u32,
    bytes: Vec<u8>,
    nodes: Vec<(Key, FreshName, Location)>,
}

impl<V: VolumeMut> UbifsMut<V> {
    /// Makes `state` the entire content.
    ///
    /// # Errors
    /// [`UbifsMountError::Failed`] if the flash refuses a change, or lacks empty LEBs for a new
    /// index.
    pub(crate) fn rebase(
        fs: Ubifs<Buffered<V>>,
        state: &NewState,
    ) -> Result<Self, UbifsMountError> {
        Ok(Self { files: Files::new(rebase(fs, state)?) })
    }
}

fn rebase<V: VolumeMut>(
    mut fs: Ubifs<Buffered<V>>,
    state: &NewState,
) -> Result<StoreMut<V>, UbifsMountError> {
    let compression = default_compression(&fs.store.superblock).code();
    let is_impossible = fs.store.superblock.default_compression != compression;
    fs.store.superblock.default_compression = compression;
    let superblock = fs.store.superblock;
    let Some(format) = fs.lpt else { return Err(FsError::Invalid("no superblock").into()) };
    fs.store.access.volume.unit = superblock.min_io_size;
    let kept = kept_nodes(&state.kept);
    let (sequence, held) = survey(&fs, state, &kept);
    fs.store.access.check_given().map_err(UbifsMountError::Unreadable)?;
    if sequence >= SEQUENCE_WATERMARK {
        return Err(UbifsMountError::ReadOnly("its sequence numbers are used up".into()));
    }
    fs.store.access.volume.sequence = sequence;
    let node = sane_master(&fs, state);
    // Without a master node nobody knows whether the superblock on the flash counts fewer LEBs.
    let known = fs.master.as_ref().map(|chosen| chosen.master.leb_cnt);
    let may_have_grown = known.is_none_or(|lebs| lebs < superblock.leb_count);
    let mut lpt = Lpt::new(format, superblock.min_io_size);
    lpt.begin_behind(node.lpt_lnum);
    let offset = fs.master.take().map_or(0, |chosen| chosen.offset);
    let (log, main) = (fs.store.layout.log.clone(), fs.store.layout.main.clone());
    let log_start = log.start;
    fs.store.index = None;
    fs.store.overlay = state.kept.clone();
    fs.store.sizes = BTreeMap::new();
    let mut disk = StoreMut {
        space: Space::new(&superblock, &main, &[]),
        journal: Journal { log: Log::new(log, log_start), buds: core::mem::take(&mut fs.buds) },
        index: IndexState { at: (main.start, superblock.leb_size), size: 0, growth: 0 },
        lpt,
        master: MasterArea { node, offset },
        orphans: Orphans::default(),
        numbers: Numbers { highest_inode: node.highest_inode, random: sequence },
        fs,
        changed: true,
        #[cfg(test)]
        empty_lebs: None,
    };
    let mut rebase = Rebase { disk: &mut disk, fresh: None };
    rebase.count(&kept, held)?;
    rebase.find_log();
    if may_have_grown || is_impossible {
        // First, because a master node may count fewer LEBs than the superblock, but not more.
        rebase.disk.write_superblock()?;
    }
    rebase.disk.recover_master(true)?;
    rebase.disk.space.take_gc_leb(node.gc_lnum);
    rebase.write_fresh(state)?;
    rebase.disk.commit()?;
    rebase.clear_rest()?;
    disk.make_gc_leb()?;
    disk.fix_up()?;
    disk.fs.store.access.hold_nothing();
    Ok(disk)
}

/// The new state while it is being written.
struct Rebase<'d, V> {
    disk: &'d mut StoreMut<V>,
    /// The LEB that takes new nodes.
    fresh: Option<Fresh>,
}

impl<V: VolumeMut> Rebase<'_, V> {
    /// Rewrites LEBs where necessary, and accounts for the content of each.
    fn count(
        &mut self,
        kept: &BTreeMap<u32, Vec<Extent>>,
        held: Vec<(Held, Vec<u8>)>,
    ) -> Result<(), FsError> {
        let (leb_size, unit) = (self.disk.fs.store.leb_size(), self.disk.fs.store.unit());
        let mut properties = Vec::with_capacity(held.len());
        for (lnum, (held, content)) in (self.disk.fs.store.layout.main.start..).zip(held) {
            let used = kept.get(&lnum).map_or(0, |nodes| {
                nodes.iter().fold(0_u32, |sum, node| sum.saturating_add(node.1 - node.0))
            });
            let end = match held.rewrite && used == 0 {
                // All of it is dirt.
                true => leb_size,
                false => held.end.next_multiple_of(unit).min(leb_size),
            };
            if used > end {
                let place = self.disk.fs.store.access.place(lnum, 0);
                let structure = "LEB: nodes overlap";
                return Err(FsError::Damaged { structure, place, cause: Damage::Misplaced });
            }
            if held.rewrite && used > 0 {
                self.disk.fs.store.access.change_leb(lnum, &content)?;
            }
            let index = held.index && used == 0;
            properties.push(LebProperties { free: leb_size - end, dirty: end - used, index });
        }
        let superblock = self.disk.fs.store.superblock;
        self.disk.space = Space::new(&superblock, &self.disk.fs.store.layout.main, &properties);
        for bud in self.disk.journal.buds.clone() {
            // Part of the old commit's journal until there is a new one.
            self.disk.space.change(bud.lnum, |leb| leb.taken = true);
        }
        Ok(())
    }

    /// Continues after the old log, if that can be followed.
    fn find_log(&mut self) {
        let (tail, log) = (self.disk.master.node.log_lnum, self.disk.fs.store.layout.log.clone());
        if log.contains(&tail)
            && let Ok(found) =
                read_log(&self.disk.fs.store, &self.disk.master.node, &mut Vec::new())
        {
            let (lnum, end) = found.head;
            self.disk.journal.log.tail = tail;
            self.disk.journal.log.head = (lnum, end.next_multiple_of(self.disk.fs.store.unit()));
        }
    }

    fn write_fresh(&mut self, state: &NewState) -> Result<(), FsError> {
        for (inode, data) in &state.inodes {
            let node = Node::Inode(InodeNode { data, ..*inode });
            self.put_fresh(&node, (inode.key, None))?;
        }
        for new in &state.names {
            let hash = self.disk.fs.store.hash().hash(&new.name);
            let key = Key::any_entry(EntryKind::Directory, new.parent, hash);
            let cookie = self.disk.numbers.cookie();
            let node = Node::Entry(DirectoryEntry {
                kind: EntryKind::Directory,
                key,
                inode: new.inode.into(),
                file_type: new.file_type,
                cookie,
                name: &new.name,
            });
            self.put_fresh(&node, (key, Some(new.name.clone())))?;
        }
        self.finish_fresh()
    }

    fn put_fresh(&mut self, node: &Node<'_>, (key, name): (Key, FreshName)) -> Result<(), FsError> {
        let length = node.size() as u32;
        let room = self.disk.fs.store.leb_size() - align8(length);
        if self.fresh.as_ref().is_some_and(|fresh| fresh.bytes.len() as u32 > room) {
            self.finish_fresh()?;
        }
        if self.fresh.is_none() {
            let lnum = self.disk.space.empty_leb().ok_or(FsError::NoSpace)?;
            self.fresh = Some(Fresh { lnum, bytes: Vec::new(), nodes: Vec::new() });
        }
        let sequence = self.disk.fs.store.access.next_sequence();
        let fresh = self.fresh.as_mut().expect("made above");
        let offset = fresh.bytes.len();
        fresh.bytes.resize(offset + align8(length) as usize, 0);
        node.emit(sequence, Group::None, &mut fresh.bytes[offset..]);
        let at = Location { lnum: fresh.lnum, offset: offset as u32, length };
        fresh.nodes.push((key, name, at));
        Ok(())
    }

    fn finish_fresh(&mut self) -> Result<(), FsError> {
        let Some(Fresh { lnum, mut bytes, nodes }) = self.fresh.take() else { return Ok(()) };
        pad(&mut bytes, self.disk.fs.store.unit() as usize);
        self.disk.fs.store.access.clear_leb(lnum)?;
        self.disk.fs.store.access.write_leb(lnum, 0, &bytes)?;
        let free = self.disk.fs.store.leb_size() - bytes.len() as u32;
        self.disk.space.change(lnum, |leb| leb.free = free);
        for (key, name, at) in nodes {
            self.disk.space.acquire(at);
            match name {
                Some(name) => self.disk.fs.store.overlay.set_name(key, &name, Some(at)),
                None => self.disk.fs.store.overlay.set(key, at),
            }
        }
        Ok(())
    }

    /// Unmaps what is left of the old log, orphan area and LEB properties tree.
    fn clear_rest(&mut self) -> Result<(), FsError> {
        let head = self.disk.journal.log.head.0;
        let log = self.disk.fs.store.layout.log.clone().filter(|lnum| *lnum != head);
        let orphans = self.disk.fs.store.layout.orphans.clone();
        let rest: Vec<u32> = log.chain(orphans).chain(self.disk.lpt.idle_lebs()).collect();
        for lnum in rest {
            self.disk.fs.store.access.clear_leb(lnum)?;
        }
        Ok(())
    }
}

/// The master node, as far as it can be trusted.
fn sane_master<V: VolumeMut>(fs: &Ubifs<Buffered<V>>, state: &NewState) -> Master {
    let layout = &fs.store.layout;
    let found = fs.master.as_ref().map(|chosen| chosen.master);
    let mut master = found.unwrap_or(Master {
        highest_inode: 0,
        commit: 0,
        flags: MasterFlags(0),
        log_lnum: layout.log.start,
        root_lnum: layout.main.start,
        root_offs: 0,
        root_len: 0,
        gc_lnum: u32::MAX,
        ihead_lnum: layout.main.start,
        ihead_offs: 0,
        index_size: 0,
        total_free: 0,
        total_dirty: 0,
        total_used: 0,
        total_dead: 0,
        total_dark: 0,
        lpt_lnum: layout.lpt.start,
        lpt_offs: 0,
        nhead_lnum: layout.lpt.start,
        nhead_offs: 0,
        ltab_lnum: layout.lpt.start,
        ltab_offs: 0,
        lsave_lnum: 0,
        lsave_offs: 0,
        lscan_lnum: layout.main.start,
        empty_lebs: 0,
        idx_lebs: 0,
        leb_cnt: fs.store.superblock.leb_count,
        root_hash: [0; 64],
        lpt_hash: [0; 64],
        hmac: [0; 64],
    });
    master.flags = MasterFlags(master.flags.0 & !MasterFlags::RECOVERY.0);
    master.leb_cnt = fs.store.superblock.leb_count;
    if !layout.main.contains(&master.lscan_lnum) {
        master.lscan_lnum = layout.main.start;
    }
    let kept = state.kept.nodes(Key::MIN, Key::MAX).map(|(key, _)| key.inode());
    let numbers = kept.chain(state.inodes.iter().map(|(inode, _)| inode.key.inode()));
    let highest = u64::from(numbers.max().unwrap_or(ROOT_INODE).max(FIRST_INODE));
    if master.highest_inode >= INODE_WATERMARK {
        master.highest_inode = 0;
    }
    master.highest_inode = master.highest_inode.max(highest);
    master
}
