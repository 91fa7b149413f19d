//! Erase blocks: their content, how much of it is valid, and which blocks are free.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{FlashGeometry, Kind as FlashKind};

use crate::found::Address;

/// Dead bytes at which a block is worth collecting (`ISDIRTY`).
const DIRTY_MIN: u32 = 196;
/// Free space at the end of a block at which writing continues there, bytes.
const RESUME_MIN: u32 = 512;

/// The properties of a node that its block must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Owner: inode; tag: version.
    Inode,
    /// Owner: directory; tag: hash of the name.
    Dirent,
    /// A directory entry that records a removal. Owner and tag as above.
    Removal,
    /// Owner: number of the attribute; tag: version.
    Xattr,
    /// Owner: inode; tag: number of the attribute.
    Xref,
    /// A reference that records that the attribute was removed. Owner and tag as above.
    XrefRemoval,
    /// A node of an unknown type that must be kept.
    Other,
}

/// One node of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    /// Position in the block.
    pub(crate) at: u32,
    /// Length without padding.
    pub(crate) len: u32,
    pub(crate) kind: Kind,
    pub(crate) is_dead: bool,
    pub(crate) owner: u32,
    pub(crate) tag: u32,
}

impl Raw {
    /// Bytes with padding to the next node.
    pub(crate) fn space(&self) -> u32 {
        self.len.next_multiple_of(4)
    }

    /// Bytes of its summary entry.
    pub(crate) fn summary_entry_len(&self) -> u32 {
        match self.kind {
            Kind::Inode | Kind::Xattr => 18,
            Kind::Xref | Kind::XrefRemoval => 6,
            Kind::Dirent | Kind::Removal => 24 + (self.len.saturating_sub(40)),
            Kind::Other => 0,
        }
    }
}

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Erased and marked.
    Free,
    /// Nodes are being appended.
    Current,
    /// Holds valid nodes, and takes no more.
    Closed,
    /// No node in it is valid.
    Erasable,
    /// Given up.
    Bad,
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) state: State,
    /// In ascending order of positions.
    pub(crate) raws: Vec<Raw>,
    /// Bytes of valid nodes, with padding.
    pub(crate) used: u32,
    /// Bytes of invalid nodes, and of garbage.
    pub(crate) dead: u32,
    /// It is erased after this byte.
    pub(crate) end: u32,
    /// Bytes of padding nodes.
    pub(crate) padded: u32,
    /// Bytes of the entries that a summary needs.
    pub(crate) summary_len: u32,
    /// Something in it is or may be torn or damaged: it gets no summary.
    pub(crate) is_torn: bool,
    /// A mount copies its valid nodes elsewhere, to erase it.
    pub(crate) is_left: bool,
    /// Number of times that programming failed in it.
    pub(crate) failures: u8,
    /// Its nodes were taken from a summary.
    pub(crate) is_listed: bool,
    /// Position of a node that cannot be read. As long as that node is valid the block is not
    /// collected.
    pub(crate) unreadable: Option<u32>,
}

impl Block {
    fn new(state: State) -> Self {
        Self {
            state,
            raws: vec![],
            used: 0,
            dead: 0,
            end: 0,
            padded: 0,
            summary_len: 0,
            is_torn: false,
            is_left: false,
            failures: 0,
            is_listed: false,
            unreadable: None,
        }
    }

    /// Bytes that collecting it would free.
    fn gain(&self) -> u32 {
        if self.unreadable.is_some() {
            return 0;
        }
        if self.dead >= DIRTY_MIN || self.failures > 0 { self.dead } else { 0 }
    }
}

/// The end of a block, where writing may continue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) block: u32,
    /// Position in the block.
    pub(crate) start: u32,
    /// Something there is or may be torn or damaged.
    pub(crate) is_torn: bool,
    /// The block was to be left.
    pub(crate) is_left: bool,
}

impl End {
    /// The lowest one is written first: among equally good ones, the one with the most room.
    pub(crate) fn rank(&self) -> (bool, bool, u32) {
        (self.is_torn, self.is_left, self.start)
    }
}

/// All erase blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) geometry: FlashGeometry,
    pub(crate) blocks: Vec<Block>,
    /// Longest unused first.
    pub(crate) free: VecDeque<u32>,
    /// Longest unused first.
    pub(crate) erasable: VecDeque<u32>,
    pub(crate) current: Option<u32>,
    /// The block being collected.
    pub(crate) collected: Option<u32>,
    /// Total that collecting closed blocks would free.
    gain: u64,
    random: u32,
}

impl Blocks {
    pub(crate) fn new(geometry: FlashGeometry, seed: u32) -> Self {
        Self {
            geometry,
            blocks: vec![Block::new(State::Closed); geometry.blocks() as usize],
            free: VecDeque::new(),
            erasable: VecDeque::new(),
            current: None,
            collected: None,
            gain: 0,
            random: seed | 1,
        }
    }

    /// The block that contains an address, and the position in it.
    pub(crate) fn place(&self, address: Address) -> (u32, u32) {
        let block = self.geometry.block_of(address.offset());
        (block, (address.offset() - self.geometry.block_start(block)) as u32)
    }

    pub(crate) fn address(&self, block: u32, at: u32) -> Address {
        Address::new(self.geometry.block_start(block) + u64::from(at))
    }

    pub(crate) fn block(&mut self, block: u32) -> &mut Block {
        &mut self.blocks[block as usize]
    }

    /// Gives a block its state for the first time.
    pub(crate) fn settle(&mut self, number: u32, state: State) {
        let block = self.block(number);
        block.state = state;
        match state {
            State::Free => self.free.push_back(number),
            State::Erasable => self.erasable.push_back(number),
            State::Current => self.current = Some(number),
            State::Closed => self.gain += u64::from(self.blocks[number as usize].gain()),
            State::Bad => {}
        }
    }

    /// Closed blocks with room at their end, as found by a mount.
    pub(crate) fn ends(&self) -> impl Iterator<Item = End> {
        let closed = (0..).zip(&self.blocks).filter(|(_, block)| block.state == State::Closed);
        let ends = closed.map(|(number, block)| {
            let Block { is_torn, is_left, .. } = *block;
            End { block: number, start: self.resume_at(block), is_torn, is_left }
        });
        ends.filter(|end| end.start + RESUME_MIN <= self.geometry.erase_size)
    }

    /// Where in a block writing may continue: after everything; on NAND, and on UBI over NAND, one
    /// page further, because the next page may be partly programmed and look erased.
    fn resume_at(&self, block: &Block) -> u32 {
        let geometry = &self.geometry;
        let last = block.raws.last().map_or(0, |raw| raw.at.saturating_add(raw.space()));
        let end = block.end.max(last);
        let unit = geometry.write_size.max(4);
        let has_pages = geometry.kind == FlashKind::UbiVolume && geometry.write_size > 1;
        let skip = if geometry.kind.is_nand() || has_pages { unit } else { 0 };
        end.div_ceil(unit).saturating_mul(unit).saturating_add(skip).min(geometry.erase_size)
    }

    /// Continues appending to a closed block, from `start` on.
    pub(crate) fn resume(&mut self, number: u32, start: u32) {
        let len = self.geometry.block_len(number);
        let block = self.block(number);
        if block.state != State::Closed {
            return;
        }
        let gain = u64::from(block.gain());
        let tail = len - block.end.min(len);
        // The room at its end was counted as lost.
        if tail > len / 8 {
            block.dead = block.dead.saturating_sub(tail);
        }
        block.state = State::Current;
        block.end = start;
        self.gain -= gain;
        self.current = Some(number);
        // What it holds was to go elsewhere; now it is written to.
        self.collected = self.collected.filter(|other| *other != number);
    }

    /// Appends a node to the current block.
    pub(crate) fn push(&mut self, raw: Raw) {
        let number = self.current.expect("nodes are appended to the current block");
        let block = self.block(number);
        block.used += raw.space();
        block.end = raw.at + raw.space();
        block.summary_len += raw.summary_entry_len();
        block.raws.push(raw);
    }

    /// Useless bytes were written after the last node of a block.
    pub(crate) fn pad(&mut self, number: u32, len: u32) {
        let block = self.block(number);
        block.end += len;
        block.dead += len;
        block.padded += len;
    }

    /// A node becomes invalid. Returns what it was.
    pub(crate) fn kill(&mut self, address: Address) -> Option<Raw> {
        let (number, at) = self.place(address);
        let block = self.blocks.get_mut(number as usize)?;
        let index = block.raws.binary_search_by_key(&at, |raw| raw.at).ok()?;
        let raw = &mut block.raws[index];
        if raw.is_dead {
            return None;
        }
        raw.is_dead = true;
        let raw = *raw;
        let before = block.gain();
        block.unreadable.take_if(|unreadable| *unreadable == at);
        block.used -= raw.space();
        block.dead += raw.space();
        let after = block.gain();
        if block.state == State::Closed {
            self.gain = self.gain - u64::from(before) + u64::from(after);
            self.refile(number);
        }
        Some(raw)
    }

    /// A valid node cannot be read: its block stays as it is.
    pub(crate) fn keep(&mut self, address: Address) {
        let (number, at) = self.place(address);
        let block = self.block(number);
        let gain = u64::from(block.gain());
        block.unreadable = Some(at);
        if block.state == State::Closed {
            self.gain -= gain;
        }
        self.collected = self.collected.filter(|other| *other != number);
    }

    /// An invalid node turns out to be valid. Returns what it is.
    pub(crate) fn revive(&mut self, address: Address) -> Option<Raw> {
        let (number, at) = self.place(address);
        let len = self.geometry.block_len(number);
        let block = self.blocks.get_mut(number as usize)?;
        let index = block.raws.binary_search_by_key(&at, |raw| raw.at).ok()?;
        let raw = &mut block.raws[index];
        if !raw.is_dead {
            return None;
        }
        raw.is_dead = false;
        let raw = *raw;
        match block.state {
            State::Closed => self.gain -= u64::from(block.gain()),
            State::Erasable => block.dead = len,
            _ => {}
        }
        block.used += raw.space();
        block.dead = block.dead.saturating_sub(raw.space());
        if block.state == State::Erasable {
            block.state = State::Closed;
            self.erasable.retain(|other| *other != number);
        }
        let block = &self.blocks[number as usize];
        if block.state == State::Closed {
            self.gain += u64::from(block.gain());
        }
        Some(raw)
    }

    /// Takes a closed block without valid nodes, to be erased.
    fn refile(&mut self, number: u32) {
        let block = self.block(number);
        if block.state == State::Closed && block.used == 0 {
            let gain = u64::from(block.gain());
            block.state = State::Erasable;
            self.gain -= gain;
            self.erasable.push_back(number);
        }
    }

    /// Closes the current block to further nodes. `failed`: because programming failed.
    pub(crate) fn close(&mut self, failed: bool) {
        let Some(number) = self.current.take() else { return };
        let len = self.geometry.block_len(number);
        let block = self.block(number);
        block.state = State::Closed;
        // What is left of a block that failed is lost until it is collected.
        block.dead += if failed { len.saturating_sub(block.end) } else { 0 };
        block.end = len;
        block.failures = block.failures.saturating_add(u8::from(failed));
        let gain = u64::from(block.gain());
        self.gain += gain;
        self.refile(number);
    }

    /// Makes a freshly erased block the current one.
    pub(crate) fn open(&mut self, number: u32, start: u32) {
        let block = self.block(number);
        let failures = block.failures;
        *block = Block { end: start, failures, ..Block::new(State::Current) };
        self.current = Some(number);
    }

    /// Number of blocks that can be written, after an erase.
    pub(crate) fn available(&self) -> u32 {
        (self.free.len() + self.erasable.len()) as u32
    }

    /// Dead bytes in blocks that are worth collecting.
    pub(crate) fn dirty(&self) -> u64 {
        self.gain
    }

    /// Whether a block is mostly dead: collecting it is progress, however little dirt there is in
    /// all.
    pub(crate) fn has_very_dirty(&self) -> bool {
        let half = self.geometry.erase_size / 2;
        self.blocks.iter().any(|block| block.state == State::Closed && block.gain() >= half)
    }

    pub(crate) fn random(&mut self) -> u32 {
        // xorshift32 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }

    /// The block to collect next: one in which programming failed; otherwise usually a very dirty
    /// one and occasionally a clean one, so that all blocks wear evenly.
    pub(crate) fn victim(&mut self) -> Option<u32> {
        let closed = |(number, block): (usize, &Block)| {
            let can_be = block.state == State::Closed && block.unreadable.is_none();
            can_be.then_some((number as u32, block.failures, block.gain()))
        };
        let luck = self.random() % 128;
        let start = self.random() as usize % self.blocks.len().max(1);
        let half = self.geometry.erase_size / 2;
        let (mut dirtiest, mut least, mut clean) = (None, None, None);
        let around = (start..self.blocks.len()).chain(0..start);
        for (number, failures, gain) in around.filter_map(|at| closed((at, &self.blocks[at]))) {
            if failures > 0 {
                return Some(number);
            }
            if gain == 0 {
                clean.get_or_insert(number);
                continue;
            }
            if dirtiest.is_none_or(|(_, most)| gain > most) {
                dirtiest = Some((number, gain));
            }
            if gain < half && least.is_none() {
                least = Some(number);
            }
        }
        // As Linux: 110 of 128 times a very dirty block, 16 times a dirty one, twice a clean one.
        let dirtiest = dirtiest.map(|(number, _)| number);
        match luck {
            0..110 => dirtiest.or(clean),
            110..126 => least.or(dirtiest).or(clean),
            _ => clean.or(dirtiest),
        }
    }
}
