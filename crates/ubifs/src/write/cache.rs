//! Blocks of content and inodes that wait in memory to be written.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_wire::ubifs::{BLOCK_SIZE, InodeFlags, InodeNode, Key, align8};

/// Most blocks that may wait: 2 MiB.
pub(super) const BLOCKS_MAX: usize = 512;
/// Most inodes that may wait.
pub(super) const INODES_MAX: usize = 512;

/// A block of a file: inode number and block number.
pub(super) type BlockKey = (u32, u32);

/// A block of content.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) bytes: Box<[u8; BLOCK_SIZE as usize]>,
    /// The index has no leaf for it yet.
    pub(super) new: bool,
}

/// An inode in memory: the fields of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The node without its inline data.
    pub(super) node: InodeNode<'static>,
    /// Symlink target, device number or extended attribute value.
    pub(super) data: Vec<u8>,
}

impl Record {
    pub(super) fn new(node: &InodeNode<'_>) -> Self {
        Self { node: InodeNode { data: &[], ..*node }, data: node.data.into() }
    }

    pub(super) fn node(&self) -> InodeNode<'_> {
        InodeNode { data: &self.data, ..self.node }
    }

    pub(super) fn number(&self) -> u32 {
        self.node.key.inode()
    }

    pub(super) fn key(&self) -> Key {
        self.node.key
    }

    pub(super) fn has(&self, flag: InodeFlags) -> bool {
        self.node.flags.contains(flag)
    }

    /// Size of its node, bytes.
    pub(super) fn cost(&self) -> u64 {
        u64::from(align8((flysch_wire::ubifs::INODE_NODE_SIZE + self.data.len()) as u32))
    }
}

/// What waits to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    blocks: BTreeMap<BlockKey, Block>,
    new_blocks: u64,
    inodes: BTreeMap<u32, Record>,
    inode_bytes: u64,
}

impl Cache {
    /// Bytes of inodes, number of blocks, number of new blocks.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.inode_bytes, self.blocks.len() as u64, self.new_blocks)
    }

    pub(super) fn is_full(&self) -> bool {
        self.blocks.len() >= BLOCKS_MAX || self.inodes.len() >= INODES_MAX
    }

    pub(super) fn inode(&self, number: u32) -> Option<&Record> {
        self.inodes.get(&number)
    }

    pub(super) fn inode_mut(&mut self, number: u32) -> Option<&mut Record> {
        self.inodes.get_mut(&number)
    }

    pub(super) fn put_inode(&mut self, record: Record) {
        self.take_inode(record.number());
        self.inode_bytes += record.cost();
        self.inodes.insert(record.number(), record);
    }

    pub(super) fn take_inode(&mut self, number: u32) -> Option<Record> {
        let record = self.inodes.remove(&number)?;
        self.inode_bytes -= record.cost();
        Some(record)
    }

    pub(super) fn block(&self, key: BlockKey) -> Option<&Block> {
        self.blocks.get(&key)
    }

    pub(super) fn block_mut(&mut self, key: BlockKey) -> Option<&mut Block> {
        self.blocks.get_mut(&key)
    }

    pub(super) fn put_block(&mut self, key: BlockKey, block: Block) {
        self.take_block(key);
        self.new_blocks += u64::from(block.new);
        self.blocks.insert(key, block);
    }

    pub(super) fn take_block(&mut self, key: BlockKey) -> Option<Block> {
        let block = self.blocks.remove(&key)?;
        self.new_blocks -= u64::from(block.new);
        Some(block)
    }

    /// The blocks of a file from `first` to `last`.
    pub(super) fn blocks_of(
        &self,
        inode: u32,
        first: u32,
        last: u32,
    ) -> impl Iterator<Item = (u32, &Block)> {
        let range = (inode, first)..=(inode, last.max(first));
        self.blocks.range(range).map(|((_, number), block)| (*number, block))
    }

    /// The first block of a file from `first` on.
    pub(super) fn next_block(&self, inode: u32, first: u32) -> Option<u32> {
        self.blocks_of(inode, first, u32::MAX).next().map(|it| it.0)
    }

    /// Drops the blocks of a file from `first` on.
    pub(super) fn drop_blocks(&mut self, inode: u32, first: u32) {
        let gone: Vec<u32> = self.blocks_of(inode, first, u32::MAX).map(|it| it.0).collect();
        for number in gone {
            self.take_block((inode, number));
        }
    }

    /// Files that have something waiting.
    pub(super) fn files(&self) -> Vec<u32> {
        let mut files: Vec<u32> = self.blocks.keys().map(|key| key.0).collect();
        files.extend(self.inodes.keys());
        files.sort_unstable();
        files.dedup();
        files
    }
}
