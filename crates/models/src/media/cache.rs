//! What a power loss would destroy: the blocks whose data is only in the write buffer.
//!
//! Before a write changes a block, its old content is stored here, until the write buffer has
//! programmed as many bytes as had arrived with that write. When power fails, each write of a block
//! survives or vanishes independently, and the last survivor may be torn at a 512-byte boundary: a
//! host may rely only on what it flushed.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use crate::faults::{Injector, Kind};
use crate::store::{Store, StoreError};

/// The units whose blocks are at risk.
pub(crate) trait Units {
    /// The data of a unit, if it still exists, and whether its blocks never tear on a power loss.
    fn unit(&mut self, number: u8) -> Option<(&mut Store, bool)>;
}

/// Granularity at which a block may tear, bytes.
const TEAR: usize = 512;

/// The content of one block before one write.
#[derive(Debug)]
struct Before {
    unit: u8,
    offset: u64,
    bytes: Box<[u8]>,
    /// Number of bytes that had arrived in the write buffer with the write.
    mark: u64,
}

/// Blocks at risk, oldest write first.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    enabled: bool,
    log: VecDeque<Before>,
}

/// What a power loss did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Writes of single blocks that survived although they were never flushed.
    pub survived: u64,
    /// Writes of single blocks that vanished.
    pub vanished: u64,
    /// Blocks left with parts of two versions.
    pub torn: u64,
}

impl Cache {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, log: VecDeque::new() }
    }

    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Stores the old content of the blocks that a write to a range (offset and length) of unit
    /// `number` changes.
    pub(crate) fn keep(
        &mut self,
        (number, block_shift): (u8, u32),
        store: &mut Store,
        (offset, len): (u64, u64),
        mark: u64,
    ) -> Result<(), StoreError> {
        let block = 1_usize << block_shift;
        for at in (offset..offset + len).step_by(block) {
            let mut bytes = vec![0; block].into_boxed_slice();
            store.get(at, &mut bytes)?;
            self.log.push_back(Before { unit: number, offset: at, bytes, mark });
        }
        Ok(())
    }

    /// Forgets what is on the medium by now.
    pub(crate) fn programmed(&mut self, total: u64) {
        while self.log.front().is_some_and(|before| before.mark <= total) {
            self.log.pop_front();
        }
    }

    /// Forgets the blocks of a range that was discarded.
    pub(crate) fn discarded(&mut self, unit: u8, offset: u64, len: u64) {
        let outside = |before: &Before| {
            before.unit != unit || before.offset < offset || before.offset - offset >= len
        };
        self.log.retain(outside);
    }

    /// Power fails: decides the fate of every block at risk.
    pub(crate) fn lose(
        &mut self,
        units: &mut impl Units,
        faults: &mut Injector,
    ) -> Result<Loss, StoreError> {
        let mut blocks: BTreeMap<(u8, u64), Vec<Box<[u8]>>> = BTreeMap::new();
        for before in self.log.drain(..) {
            blocks.entry((before.unit, before.offset)).or_default().push(before.bytes);
        }
        let mut loss = Loss::default();
        for ((number, offset), mut versions) in blocks {
            let Some((store, reliable)) = units.unit(number) else { continue };
            let mut last = vec![0; versions[0].len()].into_boxed_slice();
            store.get(offset, &mut last)?;
            versions.push(last);
            let content = fate(&versions, reliable, faults, &mut loss);
            store.put(offset, &content)?;
        }
        Ok(loss)
    }
}

/// What is left of a block with these `versions`, the oldest of which is safe on the medium.
fn fate(
    versions: &[Box<[u8]>],
    reliable: bool,
    faults: &mut Injector,
    loss: &mut Loss,
) -> Box<[u8]> {
    let mut survivor = 0;
    for version in 1..versions.len() {
        if faults.choose(Kind::PowerLoss, 2) == 0 {
            loss.vanished += 1;
        } else {
            loss.survived += 1;
            survivor = version;
        }
    }
    let mut content = versions[survivor].clone();
    if survivor > 0 && !reliable && faults.choose(Kind::PowerLoss, 4) == 0 {
        let parts = (content.len() / TEAR) as u64;
        // A block of a single such part is either old or new.
        if parts > 1 {
            let whole = faults.choose(Kind::PowerLoss, parts - 1) as usize + 1;
            let old = &versions[survivor - 1];
            content[whole * TEAR..].copy_from_slice(&old[whole * TEAR..]);
            loss.torn += 1;
        }
    }
    content
}
