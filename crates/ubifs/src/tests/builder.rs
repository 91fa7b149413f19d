//! Builds small images node by node, so that a test determines exactly what lies in the journal.

use std::vec;
use std::vec::Vec;

use flysch_api::flash::{self, Corrected};
use flysch_api::volume::{LebState, Volume, VolumeGeometry};
use flysch_wire::ubifs::lpt::{LebProperties, LptFormat, LptPlace, Ltab, Nnode, Pnode};
use flysch_wire::ubifs::{
    Branch, BranchFormat, CommitStart, Compression, Data, DirectoryEntry, EntryKind, Group, Index,
    InodeFlags, InodeNode, Key, KeyHash, Master, MasterFlags, Node, Orphans, Reference, Superblock,
    SuperblockFlags, Truncation, align8,
};

use crate::{OpenOptions, Ubifs};

pub(super) const LEB_SIZE: u32 = 15872;
pub(super) const LOG: u32 = 3;
pub(super) const ORPHANS: u32 = 7;
pub(super) const LPT: u32 = 5;
const MAIN: u32 = 8;
const LEBS: u32 = 20;
pub(super) const INDEX_LEB: u32 = 8;
pub(super) const COMMITTED_LEB: u32 = 9;
/// LEBs for the journal's base and data heads.
pub(super) const BASE: u32 = 11;
pub(super) const DATA: u32 = 12;
pub(super) const FANOUT: usize = 4;

/// A branch of the index: its key, and the LEB, offset and length of the node it leads to.
pub(super) type Leaf = (Key, u32, u32, u32);

/// LEBs in memory.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) lebs: Vec<Vec<u8>>,
}

impl Volume for Memory {
    fn geometry(&self) -> VolumeGeometry {
        let lebs = self.lebs.len() as u32;
        VolumeGeometry { leb_size: LEB_SIZE, lebs, write_size: Some(8) }
    }

    fn state(&self, lnum: u32) -> LebState {
        let written =
            self.lebs.get(lnum as usize).is_some_and(|leb| leb.iter().any(|&b| b != 0xff));
        if written { LebState::Mapped(None) } else { LebState::Unmapped }
    }

    fn read(
        &self,
        lnum: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<Corrected, flash::FlashError> {
        let leb = self.lebs.get(lnum as usize).ok_or(flash::FlashError::OutOfRange)?;
        let bytes = leb.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(flash::FlashError::OutOfRange)?);
        Ok(Corrected::NONE)
    }
}

/// Where a LEB's next node goes.
#[derive(Clone, Debug)]
struct Head {
    lnum: u32,
    offset: u32,
}

/// An image under construction.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) volume: Memory,
    pub(super) superblock: Superblock,
    sequence: u64,
    heads: Vec<Head>,
    committed: Vec<Leaf>,
    highest_inode: u64,
    /// LEBs at the end of the main area with nothing but dirt of the index, whose head is there.
    pub(super) dirty_index_lebs: u32,
}

/// An inode with usual attributes.
pub(super) fn inode(number: u32, mode: u32, links: u32, size: u64) -> InodeNode<'static> {
    InodeNode {
        key: Key::inode_node(number),
        creation_sequence: 1,
        size,
        accessed: (1, 0),
        changed: (2, 0),
        modified: (3, 500),
        links,
        owner: 10,
        group: 20,
        mode,
        flags: InodeFlags::default(),
        xattr_count: 0,
        xattr_size: 0,
        xattr_names: 0,
        compression: Compression::None,
        data: &[],
    }
}

pub(super) fn file(number: u32, size: u64) -> Node<'static> {
    Node::Inode(inode(number, 0o100_644, 1, size))
}

/// The root directory with the size of `names`.
pub(super) fn root(names: &[&str], directories: u32) -> Node<'static> {
    let size = names.iter().map(|name| u64::from(align8(56 + name.len() as u32 + 1))).sum::<u64>();
    Node::Inode(inode(1, 0o040_755, 2 + directories, 160 + size))
}

pub(super) fn block(number: u32, at: u32, data: &[u8]) -> Node<'_> {
    Node::Data(Data {
        key: Key::data(number, at),
        size: data.len() as u32,
        compression: Compression::None,
        plain_size: 0,
        data,
    })
}

pub(super) fn cut(inode: u32, old_size: u64, new_size: u64) -> Node<'static> {
    Node::Truncation(Truncation { inode, old_size, new_size })
}

impl Image {
    /// An image whose first nodes will be committed.
    pub(super) fn new() -> Self {
        let superblock = Superblock {
            key_hash: 0,
            key_format: 0,
            flags: SuperblockFlags::default(),
            min_io_size: 8,
            leb_size: LEB_SIZE,
            leb_count: LEBS,
            leb_count_max: LEBS,
            bud_bytes_max: u64::from(LEB_SIZE) * 5,
            log_lebs: 2,
            lpt_lebs: 2,
            orphan_lebs: 1,
            journal_heads: 1,
            fanout: FANOUT as u32,
            lsave_count: 0,
            format_version: 5,
            default_compression: 0,
            reserved_owner: 0,
            reserved_group: 0,
            reserved_size: 0,
            time_granularity: 1_000_000_000,
            uuid: [0; 16],
            ro_compat_version: 0,
            hmac: [0; 64],
            hmac_wkm: [0; 64],
            hash_algorithm: 0xffff,
            master_hash: [0; 64],
        };
        let volume = Memory { lebs: vec![vec![0xff; LEB_SIZE as usize]; LEBS as usize] };
        let heads = Vec::new();
        let committed = Vec::new();
        let (sequence, highest_inode, dirty_index_lebs) = (100, 64, 0);
        Self { volume, superblock, sequence, heads, committed, highest_inode, dirty_index_lebs }
    }

    pub(super) fn hash(&self) -> KeyHash {
        self.superblock.key_hash().unwrap()
    }

    /// An entry of a directory.
    pub(super) fn entry<'n>(&self, parent: u32, name: &'n str, inode: u64) -> Node<'n> {
        self.entry_of(EntryKind::Directory, parent, name, (inode, 0))
    }

    pub(super) fn entry_of<'n>(
        &self,
        kind: EntryKind,
        parent: u32,
        name: &'n str,
        (inode, file_type): (u64, u8),
    ) -> Node<'n> {
        let name = name.as_bytes();
        let key = Key::any_entry(kind, parent, self.hash().hash(name));
        Node::Entry(DirectoryEntry { kind, key, inode, file_type, cookie: 0, name })
    }

    /// Appends a node to a LEB; returns its offset and its length.
    pub(super) fn put(&mut self, lnum: u32, node: &Node<'_>, group: Group) -> (u32, u32) {
        if !self.heads.iter().any(|head| head.lnum == lnum) {
            self.heads.push(Head { lnum, offset: 0 });
        }
        let head = self.heads.iter_mut().find(|head| head.lnum == lnum).unwrap();
        let offset = head.offset;
        let length = node.size() as u32;
        head.offset = align8(offset + length);
        self.sequence += 1;
        let leb = &mut self.volume.lebs[lnum as usize];
        node.emit(self.sequence, group, &mut leb[offset as usize..]);
        // Padding up to the next node is zeros.
        let end = (offset + length) as usize;
        leb[end..head_end(end)].fill(0);
        (offset, length)
    }

    /// Writes the nodes of one operation.
    pub(super) fn group(&mut self, lnum: u32, nodes: &[Node<'_>]) {
        for (at, node) in nodes.iter().enumerate() {
            let group = if at + 1 == nodes.len() { Group::Last } else { Group::More };
            self.put(lnum, node, group);
        }
    }

    /// Writes a node that the index will contain.
    pub(super) fn commit(&mut self, node: &Node<'_>) {
        let key = match node {
            Node::Inode(node) => node.key,
            Node::Data(node) => node.key,
            Node::Entry(node) => node.key,
            _ => panic!("not in an index"),
        };
        self.highest_inode = self.highest_inode.max(key.inode().into());
        let (offset, length) = self.put(COMMITTED_LEB, node, Group::None);
        self.committed.push((key, COMMITTED_LEB, offset, length));
    }

    /// Where the last node written to a LEB ends.
    pub(super) fn end(&self, lnum: u32) -> usize {
        self.heads.iter().find(|head| head.lnum == lnum).map_or(0, |head| head.offset as usize)
    }

    /// Adds a reference to a bud to the log.
    pub(super) fn bud(&mut self, lnum: u32, head: u32) {
        let reference = Node::Reference(Reference { lnum, offset: 0, head });
        self.put(LOG, &reference, Group::None);
    }

    pub(super) fn orphans(&mut self, inodes: &[u64]) {
        let bytes: Vec<u8> = inodes.iter().flat_map(|inode| inode.to_le_bytes()).collect();
        self.put(ORPHANS, &Node::Orphans(Orphans::new(1, true, &bytes)), Group::None);
    }

    /// Writes index, LEB properties, log start, master nodes and superblock for the committed
    /// nodes; opens the journal's base and data heads.
    pub(super) fn finish_commit(&mut self) {
        let root = self.write_index();
        self.finish_commit_over(root);
    }

    /// The same with an index that the test has written.
    pub(super) fn finish_commit_over(&mut self, (_, root_lnum, root_offs, root_len): Leaf) {
        let index_size = self.end(INDEX_LEB) as u64;
        let used = self.end(COMMITTED_LEB) as u32;
        let superblock = Node::Superblock(self.superblock);
        superblock.emit(1, Group::None, &mut self.volume.lebs[0]);
        let format = LptFormat::new(&self.superblock).unwrap();
        let empty = LebProperties { free: LEB_SIZE, dirty: 0, index: false };
        let mut lebs = [empty; (LEBS - MAIN) as usize];
        lebs[0] = LebProperties { free: LEB_SIZE - index_size as u32, dirty: 0, index: true };
        lebs[1] = LebProperties { free: LEB_SIZE - used, dirty: 0, index: false };
        let dirt = lebs.len() - self.dirty_index_lebs as usize;
        lebs[dirt..].fill(LebProperties { free: 0, dirty: LEB_SIZE, index: true });
        let (ihead_lnum, ihead_offs) = match self.dirty_index_lebs {
            0 => (INDEX_LEB, index_size as u32),
            _ => (LEBS - 1, LEB_SIZE),
        };
        let lpt = self.write_lpt(&format, &lebs);
        let free = |lebs: &[LebProperties]| lebs.iter().map(|leb| u64::from(leb.free)).sum();
        let dark: u64 = lebs.iter().filter(|leb| !leb.index).map(|leb| dark(leb.free)).sum();
        let master = Master {
            highest_inode: self.highest_inode,
            commit: 1,
            flags: MasterFlags::NO_ORPHANS,
            log_lnum: LOG,
            root_lnum,
            root_offs,
            root_len,
            gc_lnum: MAIN + 2,
            ihead_lnum,
            ihead_offs,
            index_size,
            total_free: free(&lebs),
            total_dirty: u64::from(self.dirty_index_lebs * LEB_SIZE),
            total_used: used.into(),
            total_dead: 0,
            total_dark: dark,
            lpt_lnum: LPT,
            lpt_offs: lpt.0,
            nhead_lnum: LPT,
            nhead_offs: lpt.2,
            ltab_lnum: LPT,
            ltab_offs: lpt.1,
            lsave_lnum: 0,
            lsave_offs: 0,
            lscan_lnum: MAIN,
            empty_lebs: LEBS - MAIN - 2 - self.dirty_index_lebs,
            idx_lebs: 1 + self.dirty_index_lebs,
            leb_cnt: LEBS,
            root_hash: [0; 64],
            lpt_hash: [0; 64],
            hmac: [0; 64],
        };
        self.write_master(master);
        self.put(LOG, &Node::CommitStart(CommitStart { commit: 1 }), Group::None);
        self.bud(BASE, 1);
        self.bud(DATA, 2);
    }

    /// Appends the master node to both LEBs.
    pub(super) fn write_master(&mut self, master: Master) {
        for lnum in [1, 2] {
            self.put(lnum, &Node::Master(master), Group::None);
            self.sequence -= u64::from(lnum == 1);
        }
    }

    /// The current master node, to be written again with a change.
    pub(super) fn master(&self) -> Master {
        let at = self.end(1) - 512;
        let bytes = &self.volume.lebs[1][at..];
        match Node::parse(bytes, BranchFormat::default()) {
            Ok((_, Node::Master(master))) => master,
            _ => panic!("no master node"),
        }
    }

    /// Sets the flags of the master node.
    pub(super) fn set_flags(&mut self, flags: u32) {
        let master = Master { flags: MasterFlags(flags), ..self.master() };
        self.write_master(master);
    }

    fn write_index(&mut self) -> Leaf {
        let mut level = 0;
        let mut branches = self.leaves();
        loop {
            let mut above = Vec::new();
            for children in branches.chunks(FANOUT) {
                above.push(self.index_node(level, children));
            }
            if let [root] = above[..] {
                return root;
            }
            branches = above;
            level += 1;
        }
    }

    /// The branches to the committed nodes, in the order of their keys.
    pub(super) fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = self.committed.clone();
        leaves.sort_by_key(|leaf| leaf.0);
        leaves
    }

    /// Writes an index node; returns the branch that leads to it.
    pub(super) fn index_node(&mut self, level: u16, children: &[Leaf]) -> Leaf {
        let mut bytes = vec![0; children.len() * 20];
        for (child, out) in children.iter().zip(bytes.chunks_mut(20)) {
            let &(key, lnum, offset, length) = child;
            Branch { lnum, offset, length, key, hash: &[] }.write(out);
        }
        let node = Node::Index(Index::new(level, BranchFormat::default(), &bytes));
        let (offset, length) = self.put(INDEX_LEB, &node, Group::None);
        (children[0].0, INDEX_LEB, offset, length)
    }

    /// Writes pnodes, nnodes and ltab; returns the offsets of root and ltab, and the end.
    fn write_lpt(&mut self, format: &LptFormat, lebs: &[LebProperties]) -> (u32, u32, u32) {
        let leb = &mut self.volume.lebs[LPT as usize];
        let mut at = 0_usize;
        let mut children = [None; 4];
        for (child, group) in children.iter_mut().zip(lebs.chunks(4)) {
            let mut pnode = Pnode { number: 0, lebs: Default::default() };
            pnode.lebs[..group.len()].copy_from_slice(group);
            pnode.emit(format, &mut leb[at..]);
            *child = Some(LptPlace { lnum: LPT, offset: at as u32 });
            at += format.pnode_size;
        }
        assert_eq!(format.height, 1, "one inner node holds all leaves");
        let root = at as u32;
        Nnode { number: 0, children }.emit(format, &mut leb[at..]);
        at += format.nnode_size;
        let ltab = at as u32;
        at += format.ltab_size;
        let live = at as u32;
        let end = at.next_multiple_of(8);
        let entries = [(LEB_SIZE - end as u32, end as u32 - live), (LEB_SIZE, 0)];
        Ltab::emit(entries, format, &mut leb[ltab as usize..]);
        leb[at..end].fill(0);
        (root, ltab, end as u32)
    }

    pub(super) fn open(&self) -> Ubifs<Memory> {
        Ubifs::open(self.volume.clone(), &OpenOptions::default()).unwrap()
    }
}

fn head_end(end: usize) -> usize {
    end.next_multiple_of(8)
}

/// Dark bytes of a LEB with `space` bytes not in use.
fn dark(space: u32) -> u64 {
    u64::from(if space < 4256 { space } else { 4256 })
}
