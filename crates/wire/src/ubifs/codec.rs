//! The bytes of the nodes' bodies: the position of each field, and conversion in both directions.
//!
//! The caller has checked a node's length ([`NodeKind::check_length`](super::NodeKind)) and passes
//! zeroed bytes to `encode`.

use super::node::Branch;
use super::{
    Authentication, BRANCH_SIZE, BranchFormat, COMMIT_START_NODE_SIZE, CommitStart, Compression,
    DATA_NODE_SIZE, Data, DirectoryEntry, ENTRY_NODE_SIZE, EntryKind, HEADER_SIZE, INDEX_NODE_SIZE,
    INODE_NODE_SIZE, Index, InodeFlags, InodeNode, Key, MASTER_NODE_SIZE, Master, MasterFlags,
    NAME_MAX, NodeError, ORPHAN_NODE_SIZE, Orphans, PADDING_NODE_SIZE, REFERENCE_NODE_SIZE,
    Reference, SIGNATURE_NODE_SIZE, Signature, TRUNCATION_NODE_SIZE, Truncation,
};
use crate::field::fields;

fields! {
    /// `struct ubifs_ino_node`, after the header.
    mod ino: Little[INODE_NODE_SIZE] {
        KEY: [u8; 16] = 24,
        CREAT_SQNUM: u64 = 40,
        SIZE: u64 = 48,
        ATIME_SEC: u64 = 56,
        CTIME_SEC: u64 = 64,
        MTIME_SEC: u64 = 72,
        ATIME_NSEC: u32 = 80,
        CTIME_NSEC: u32 = 84,
        MTIME_NSEC: u32 = 88,
        NLINK: u32 = 92,
        UID: u32 = 96,
        GID: u32 = 100,
        MODE: u32 = 104,
        FLAGS: u32 = 108,
        DATA_LEN: u32 = 112,
        XATTR_CNT: u32 = 116,
        XATTR_SIZE: u32 = 120,
        XATTR_NAMES: u32 = 128,
        COMPR_TYPE: u16 = 132,
    }
}

fields! {
    /// `struct ubifs_data_node`, after the header.
    mod data: Little[DATA_NODE_SIZE] {
        KEY: [u8; 16] = 24,
        SIZE: u32 = 40,
        COMPR_TYPE: u16 = 44,
        COMPR_SIZE: u16 = 46,
    }
}

fields! {
    /// `struct ubifs_dent_node`, after the header.
    mod dent: Little[ENTRY_NODE_SIZE] {
        KEY: [u8; 16] = 24,
        INUM: u64 = 40,
        TYPE: u8 = 49,
        NLEN: u16 = 50,
        COOKIE: u32 = 52,
    }
}

fields! {
    /// `struct ubifs_trun_node`, after the header.
    mod trun: Little[TRUNCATION_NODE_SIZE] {
        INUM: u32 = 24,
        OLD_SIZE: u64 = 40,
        NEW_SIZE: u64 = 48,
    }
}

fields! {
    /// `struct ubifs_pad_node`, after the header.
    mod pad: Little[PADDING_NODE_SIZE] {
        PAD_LEN: u32 = 24,
    }
}

fields! {
    /// `struct ubifs_mst_node`, after the header.
    mod mst: Little[MASTER_NODE_SIZE] {
        HIGHEST_INUM: u64 = 24,
        CMT_NO: u64 = 32,
        FLAGS: u32 = 40,
        LOG_LNUM: u32 = 44,
        ROOT_LNUM: u32 = 48,
        ROOT_OFFS: u32 = 52,
        ROOT_LEN: u32 = 56,
        GC_LNUM: u32 = 60,
        IHEAD_LNUM: u32 = 64,
        IHEAD_OFFS: u32 = 68,
        INDEX_SIZE: u64 = 72,
        TOTAL_FREE: u64 = 80,
        TOTAL_DIRTY: u64 = 88,
        TOTAL_USED: u64 = 96,
        TOTAL_DEAD: u64 = 104,
        TOTAL_DARK: u64 = 112,
        LPT_LNUM: u32 = 120,
        LPT_OFFS: u32 = 124,
        NHEAD_LNUM: u32 = 128,
        NHEAD_OFFS: u32 = 132,
        LTAB_LNUM: u32 = 136,
        LTAB_OFFS: u32 = 140,
        LSAVE_LNUM: u32 = 144,
        LSAVE_OFFS: u32 = 148,
        LSCAN_LNUM: u32 = 152,
        EMPTY_LEBS: u32 = 156,
        IDX_LEBS: u32 = 160,
        LEB_CNT: u32 = 164,
        HASH_ROOT_IDX: [u8; 64] = 168,
        HASH_LPT: [u8; 64] = 232,
        HMAC: [u8; 64] = 296,
    }
}

fields! {
    /// `struct ubifs_ref_node`, after the header.
    mod reference: Little[REFERENCE_NODE_SIZE] {
        LNUM: u32 = 24,
        OFFS: u32 = 28,
        JHEAD: u32 = 32,
    }
}

fields! {
    /// `struct ubifs_idx_node`, after the header.
    mod idx: Little[INDEX_NODE_SIZE] {
        CHILD_CNT: u16 = 24,
        LEVEL: u16 = 26,
    }
}

fields! {
    /// `struct ubifs_branch`.
    mod branch: Little[BRANCH_SIZE] {
        LNUM: u32 = 0,
        OFFS: u32 = 4,
        LEN: u32 = 8,
        KEY: [u8; 8] = 12,
    }
}

fields! {
    /// `struct ubifs_cs_node`, after the header.
    mod cs: Little[COMMIT_START_NODE_SIZE] {
        CMT_NO: u64 = 24,
    }
}

fields! {
    /// `struct ubifs_orph_node`, after the header; bit 63 marks the last one of the commit.
    mod orph: Little[ORPHAN_NODE_SIZE] {
        CMT_NO: u64 = 24,
    }
}

fields! {
    /// `struct ubifs_sig_node`, after the header.
    mod sig: Little[SIGNATURE_NODE_SIZE] {
        TYPE: u32 = 24,
        LEN: u32 = 28,
    }
}

/// Bytes of a master node that hold its HMAC.
pub const MASTER_HMAC: core::ops::Range<usize> = mst::HMAC.range();

impl<'a> InodeNode<'a> {
    pub(super) fn decode(node: &'a [u8]) -> Result<Self, NodeError> {
        let (data_len, links) = (ino::DATA_LEN.get(node) as usize, ino::NLINK.get(node));
        // In the node that marks a file as deleted, Linux omits the data but keeps its length.
        let is_bare = links == 0 && node.len() == INODE_NODE_SIZE;
        if !is_bare && node.len() != INODE_NODE_SIZE + data_len {
            return Err(NodeError::Field("data_len"));
        }
        Ok(Self {
            key: Key::read(node, ino::KEY.start()),
            creation_sequence: ino::CREAT_SQNUM.get(node),
            size: ino::SIZE.get(node),
            accessed: (ino::ATIME_SEC.get(node), ino::ATIME_NSEC.get(node)),
            changed: (ino::CTIME_SEC.get(node), ino::CTIME_NSEC.get(node)),
            modified: (ino::MTIME_SEC.get(node), ino::MTIME_NSEC.get(node)),
            links,
            owner: ino::UID.get(node),
            group: ino::GID.get(node),
            mode: ino::MODE.get(node),
            flags: InodeFlags(ino::FLAGS.get(node)),
            xattr_count: ino::XATTR_CNT.get(node),
            xattr_size: ino::XATTR_SIZE.get(node),
            xattr_names: ino::XATTR_NAMES.get(node),
            compression: Compression::from_code(ino::COMPR_TYPE.get(node)),
            data: &node[INODE_NODE_SIZE..],
        })
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        self.key.write(out, ino::KEY.start());
        ino::CREAT_SQNUM.put(out, self.creation_sequence);
        ino::SIZE.put(out, self.size);
        ino::ATIME_SEC.put(out, self.accessed.0);
        ino::CTIME_SEC.put(out, self.changed.0);
        ino::MTIME_SEC.put(out, self.modified.0);
        ino::ATIME_NSEC.put(out, self.accessed.1);
        ino::CTIME_NSEC.put(out, self.changed.1);
        ino::MTIME_NSEC.put(out, self.modified.1);
        ino::NLINK.put(out, self.links);
        ino::UID.put(out, self.owner);
        ino::GID.put(out, self.group);
        ino::MODE.put(out, self.mode);
        ino::FLAGS.put(out, self.flags.0);
        ino::DATA_LEN.put(out, self.data.len() as u32);
        ino::XATTR_CNT.put(out, self.xattr_count);
        ino::XATTR_SIZE.put(out, self.xattr_size);
        ino::XATTR_NAMES.put(out, self.xattr_names);
        ino::COMPR_TYPE.put(out, self.compression.code());
        out[INODE_NODE_SIZE..].copy_from_slice(self.data);
    }
}

impl<'a> Data<'a> {
    pub(super) fn decode(node: &'a [u8]) -> Result<Self, NodeError> {
        let size = data::SIZE.get(node);
        if size == 0 || size > super::BLOCK_SIZE {
            return Err(NodeError::Field("size"));
        }
        Ok(Self {
            key: Key::read(node, data::KEY.start()),
            size,
            compression: Compression::from_code(data::COMPR_TYPE.get(node)),
            plain_size: data::COMPR_SIZE.get(node),
            data: &node[DATA_NODE_SIZE..],
        })
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        self.key.write(out, data::KEY.start());
        data::SIZE.put(out, self.size);
        data::COMPR_TYPE.put(out, self.compression.code());
        data::COMPR_SIZE.put(out, self.plain_size);
        out[DATA_NODE_SIZE..].copy_from_slice(self.data);
    }
}

impl<'a> DirectoryEntry<'a> {
    pub(super) fn decode(node: &'a [u8], kind: EntryKind) -> Result<Self, NodeError> {
        let name_len = usize::from(dent::NLEN.get(node));
        if name_len > NAME_MAX || node.len() != ENTRY_NODE_SIZE + name_len + 1 {
            return Err(NodeError::Field("nlen"));
        }
        if node[node.len() - 1] != 0 {
            return Err(NodeError::Field("name"));
        }
        Ok(Self {
            kind,
            key: Key::read(node, dent::KEY.start()),
            inode: dent::INUM.get(node),
            file_type: dent::TYPE.get(node),
            cookie: dent::COOKIE.get(node),
            name: &node[ENTRY_NODE_SIZE..ENTRY_NODE_SIZE + name_len],
        })
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        self.key.write(out, dent::KEY.start());
        dent::INUM.put(out, self.inode);
        dent::TYPE.put(out, self.file_type);
        dent::NLEN.put(out, self.name.len() as u16);
        dent::COOKIE.put(out, self.cookie);
        out[ENTRY_NODE_SIZE..ENTRY_NODE_SIZE + self.name.len()].copy_from_slice(self.name);
    }
}

impl Truncation {
    pub(super) fn decode(node: &[u8]) -> Self {
        Self {
            inode: trun::INUM.get(node),
            old_size: trun::OLD_SIZE.get(node),
            new_size: trun::NEW_SIZE.get(node),
        }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        trun::INUM.put(out, self.inode);
        trun::OLD_SIZE.put(out, self.old_size);
        trun::NEW_SIZE.put(out, self.new_size);
    }
}

/// Bytes of padding after a padding node.
pub(super) fn decode_padding(node: &[u8]) -> u32 {
    pad::PAD_LEN.get(node)
}

pub(super) fn encode_padding(length: u32, out: &mut [u8]) {
    pad::PAD_LEN.put(out, length);
}

impl Master {
    pub(super) fn decode(node: &[u8]) -> Self {
        Self {
            highest_inode: mst::HIGHEST_INUM.get(node),
            commit: mst::CMT_NO.get(node),
            flags: MasterFlags(mst::FLAGS.get(node)),
            log_lnum: mst::LOG_LNUM.get(node),
            root_lnum: mst::ROOT_LNUM.get(node),
            root_offs: mst::ROOT_OFFS.get(node),
            root_len: mst::ROOT_LEN.get(node),
            gc_lnum: mst::GC_LNUM.get(node),
            ihead_lnum: mst::IHEAD_LNUM.get(node),
            ihead_offs: mst::IHEAD_OFFS.get(node),
            index_size: mst::INDEX_SIZE.get(node),
            total_free: mst::TOTAL_FREE.get(node),
            total_dirty: mst::TOTAL_DIRTY.get(node),
            total_used: mst::TOTAL_USED.get(node),
            total_dead: mst::TOTAL_DEAD.get(node),
            total_dark: mst::TOTAL_DARK.get(node),
            lpt_lnum: mst::LPT_LNUM.get(node),
            lpt_offs: mst::LPT_OFFS.get(node),
            nhead_lnum: mst::NHEAD_LNUM.get(node),
            nhead_offs: mst::NHEAD_OFFS.get(node),
            ltab_lnum: mst::LTAB_LNUM.get(node),
            ltab_offs: mst::LTAB_OFFS.get(node),
            lsave_lnum: mst::LSAVE_LNUM.get(node),
            lsave_offs: mst::LSAVE_OFFS.get(node),
            lscan_lnum: mst::LSCAN_LNUM.get(node),
            empty_lebs: mst::EMPTY_LEBS.get(node),
            idx_lebs: mst::IDX_LEBS.get(node),
            leb_cnt: mst::LEB_CNT.get(node),
            root_hash: mst::HASH_ROOT_IDX.get(node),
            lpt_hash: mst::HASH_LPT.get(node),
            hmac: mst::HMAC.get(node),
        }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        mst::HIGHEST_INUM.put(out, self.highest_inode);
        mst::CMT_NO.put(out, self.commit);
        mst::FLAGS.put(out, self.flags.0);
        mst::LOG_LNUM.put(out, self.log_lnum);
        mst::ROOT_LNUM.put(out, self.root_lnum);
        mst::ROOT_OFFS.put(out, self.root_offs);
        mst::ROOT_LEN.put(out, self.root_len);
        mst::GC_LNUM.put(out, self.gc_lnum);
        mst::IHEAD_LNUM.put(out, self.ihead_lnum);
        mst::IHEAD_OFFS.put(out, self.ihead_offs);
        mst::INDEX_SIZE.put(out, self.index_size);
        mst::TOTAL_FREE.put(out, self.total_free);
        mst::TOTAL_DIRTY.put(out, self.total_dirty);
        mst::TOTAL_USED.put(out, self.total_used);
        mst::TOTAL_DEAD.put(out, self.total_dead);
        mst::TOTAL_DARK.put(out, self.total_dark);
        mst::LPT_LNUM.put(out, self.lpt_lnum);
        mst::LPT_OFFS.put(out, self.lpt_offs);
        mst::NHEAD_LNUM.put(out, self.nhead_lnum);
        mst::NHEAD_OFFS.put(out, self.nhead_offs);
        mst::LTAB_LNUM.put(out, self.ltab_lnum);
        mst::LTAB_OFFS.put(out, self.ltab_offs);
        mst::LSAVE_LNUM.put(out, self.lsave_lnum);
        mst::LSAVE_OFFS.put(out, self.lsave_offs);
        mst::LSCAN_LNUM.put(out, self.lscan_lnum);
        mst::EMPTY_LEBS.put(out, self.empty_lebs);
        mst::IDX_LEBS.put(out, self.idx_lebs);
        mst::LEB_CNT.put(out, self.leb_cnt);
        mst::HASH_ROOT_IDX.put(out, self.root_hash);
        mst::HASH_LPT.put(out, self.lpt_hash);
        mst::HMAC.put(out, self.hmac);
    }
}

impl Reference {
    pub(super) fn decode(node: &[u8]) -> Self {
        Self {
            lnum: reference::LNUM.get(node),
            offset: reference::OFFS.get(node),
            head: reference::JHEAD.get(node),
        }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        reference::LNUM.put(out, self.lnum);
        reference::OFFS.put(out, self.offset);
        reference::JHEAD.put(out, self.head);
    }
}

impl<'a> Index<'a> {
    pub(super) fn decode(node: &'a [u8], format: BranchFormat) -> Result<Self, NodeError> {
        let count = usize::from(idx::CHILD_CNT.get(node));
        let branches = &node[INDEX_NODE_SIZE..];
        if branches.len() != count * format.branch_size() {
            return Err(NodeError::Field("child_cnt"));
        }
        Ok(Self { level: idx::LEVEL.get(node), format, branches })
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        idx::CHILD_CNT.put(out, self.len() as u16);
        idx::LEVEL.put(out, self.level);
        out[INDEX_NODE_SIZE..].copy_from_slice(self.branches);
    }

    /// Branch number `at`.
    pub fn branch(&self, at: usize) -> Branch<'a> {
        let size = self.format.branch_size();
        let bytes = &self.branches[at * size..(at + 1) * size];
        Branch {
            lnum: branch::LNUM.get(bytes),
            offset: branch::OFFS.get(bytes),
            length: branch::LEN.get(bytes),
            key: Key::read(bytes, branch::KEY.start()),
            hash: &bytes[BRANCH_SIZE..],
        }
    }

    /// Key of branch number `at`.
    pub fn key(&self, at: usize) -> Key {
        Key::read(self.branches, at * self.format.branch_size() + branch::KEY.start())
    }
}

impl Branch<'_> {
    /// Writes the branch into `out`, which has exactly its size.
    pub fn write(&self, out: &mut [u8]) {
        branch::LNUM.put(out, self.lnum);
        branch::OFFS.put(out, self.offset);
        branch::LEN.put(out, self.length);
        self.key.write(out, branch::KEY.start());
        out[BRANCH_SIZE..].copy_from_slice(self.hash);
    }
}

impl CommitStart {
    pub(super) fn decode(node: &[u8]) -> Self {
        Self { commit: cs::CMT_NO.get(node) }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        cs::CMT_NO.put(out, self.commit);
    }
}

impl<'a> Orphans<'a> {
    const LAST: u64 = 1 << 63;

    pub(super) fn decode(node: &'a [u8]) -> Result<Self, NodeError> {
        let inodes = &node[ORPHAN_NODE_SIZE..];
        if !inodes.len().is_multiple_of(8) {
            return Err(NodeError::Length(node.len() as u32));
        }
        let commit = orph::CMT_NO.get(node);
        let (commit, last) = (commit & !Self::LAST, commit & Self::LAST != 0);
        Ok(Self { commit, last, inodes })
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        let last = if self.last { Self::LAST } else { 0 };
        orph::CMT_NO.put(out, self.commit | last);
        out[ORPHAN_NODE_SIZE..].copy_from_slice(self.inodes);
    }
}

impl<'a> Authentication<'a> {
    pub(super) fn decode(node: &'a [u8]) -> Self {
        Self { hmac: &node[HEADER_SIZE..] }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        out[HEADER_SIZE..].copy_from_slice(self.hmac);
    }
}

impl<'a> Signature<'a> {
    pub(super) fn decode(node: &'a [u8]) -> Result<Self, NodeError> {
        let length = sig::LEN.get(node) as usize;
        let signature = node[SIGNATURE_NODE_SIZE..].get(..length).ok_or(NodeError::Field("len"))?;
        Ok(Self { kind: sig::TYPE.get(node), signature })
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        sig::TYPE.put(out, self.kind);
        sig::LEN.put(out, self.signature.len() as u32);
        out[SIGNATURE_NODE_SIZE..].copy_from_slice(self.signature);
    }
}
