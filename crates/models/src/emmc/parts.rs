//! The partitions of a card and the data in them.

use flysch_wire::mmc::ext_csd::partition;

use super::provision::Layout;
use crate::media::Span;
use crate::media::cache::Units;
use crate::store::Store;

/// Partitions lie so far apart on the medium: log2 of bytes.
const PLACE_SHIFT: u32 = 42;

/// A partition with data.
#[derive(Debug)]
struct Part {
    store: Store,
    size: u64,
}

/// The partitions by PARTITION_ACCESS.
#[derive(Debug)]
pub(super) struct Parts {
    parts: [Option<Part>; 8],
    /// Bytes ever written.
    written: u64,
    /// What the next power-on makes.
    next: Option<Layout>,
}

impl Parts {
    /// A card with a user area of so many bytes, and in memory of boot and general purpose
    /// partitions those that have a size.
    pub(super) fn new(user: (Store, u64), boot: u64, general: [u64; 4]) -> Self {
        let part = |size: u64| (size != 0).then(|| Part { store: Store::memory(size), size });
        let user = Some(Part { store: user.0, size: user.1 });
        let [one, two, three, four] = general.map(part);
        let parts = [user, part(boot), part(boot), None, one, two, three, four];
        Self { parts, written: 0, next: None }
    }

    /// The data of every partition.
    pub(super) fn stores(&self) -> impl Iterator<Item = &Store> {
        self.parts.iter().flatten().map(|part| &part.store)
    }

    /// The data of a partition.
    #[inline]
    pub(super) fn store(&mut self, number: u8) -> Option<&mut Store> {
        self.parts[usize::from(number)].as_mut().map(|part| &mut part.store)
    }

    /// The same for a write of so many bytes.
    #[inline]
    pub(super) fn store_to_write(&mut self, number: u8, bytes: u64) -> Option<&mut Store> {
        self.written += bytes;
        self.store(number)
    }

    /// Bytes of a partition.
    #[inline]
    pub(super) fn size(&self, number: u8) -> Option<u64> {
        self.parts[usize::from(number)].as_ref().map(|part| part.size)
    }

    /// Bytes ever written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// What `blocks` sectors of a partition are on the medium.
    #[inline]
    pub(super) fn span(&self, number: u8, first: u32, blocks: u32) -> Span {
        let base = u64::from(number) << PLACE_SHIFT;
        Span {
            address: base + u64::from(first) * 512,
            len: u64::from(blocks) * 512,
            limit: base + self.size(number).unwrap_or(0),
        }
    }

    /// The next power-on makes other partitions.
    pub(super) fn set_next(&mut self, layout: Layout) {
        self.next = Some(layout);
    }

    /// After power-on the partitions are those that were asked for, if others were. What was in the
    /// user area stays as far as it fits; the partitions are empty.
    pub(super) fn take_next(&mut self) -> Option<Layout> {
        let layout = self.next.take()?;
        for access in [partition::USER].into_iter().chain(partition::GP1..=partition::MASK) {
            let size = layout.size(access).unwrap_or(0);
            match &mut self.parts[usize::from(access)] {
                Some(part) => part.size = size,
                none if size != 0 => *none = Some(Part { store: Store::memory(size), size }),
                _ => {}
            }
        }
        Some(layout)
    }
}

impl Units for Parts {
    /// Sectors are written whole, or not at all.
    fn unit(&mut self, number: u8) -> Option<(&mut Store, bool)> {
        self.parts.get_mut(usize::from(number))?.as_mut().map(|part| (&mut part.store, true))
    }
}
