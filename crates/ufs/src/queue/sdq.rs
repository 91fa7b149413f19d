use crate::layout::ENTRY;
use crate::slots::Done;
use flysch_api::machine::{DmaArray, DmaRegion, Registers};
use flysch_wire::ufs::registers::{UTRIACR, UTRLDBR};
use flysch_wire::ufs::utrd::{STATUS_OFFSET, UtrdStatus};

/// A lane's range of slots in the transfer request list. The doorbell is write-one-to-set, so lanes
/// with disjoint ranges write it without coordination.
///
/// Both sides write adjacent entries: a machine whose memory is not coherent must synchronise it in
/// units of 32 bytes or less, or map the driver's memory uncached.
#[derive(Debug)]
pub(crate) struct Sdq {
    list: DmaArray<ENTRY>,
    /// The lane's first slot in the list.
    first: usize,
    /// Posted slots whose doorbell has not rung yet, bits of the doorbell register.
    posted: u32,
    /// Slots that the controller has, as far as is known.
    issued: u32,
    /// Slots found to have ended and not yet taken.
    batch: u32,
}

impl Sdq {
    pub(crate) fn new(list: DmaRegion, first: usize) -> Self {
        Self { list: DmaArray::new(list), first, posted: 0, issued: 0, batch: 0 }
    }

    fn bit(&self, slot: usize) -> u32 {
        1 << (self.first + slot)
    }

    #[inline]
    pub(crate) fn post(
        &mut self,
        slot: usize,
        entry: [u64; ENTRY / 8],
        registers: &impl Registers,
    ) {
        let at = self.first + slot;
        self.list.get(at).put::<0, { ENTRY / 8 }>(entry);
        registers.sync_for_device(self.list.region().span(at * ENTRY, ENTRY));
        self.posted |= self.bit(slot);
    }

    #[inline]
    pub(crate) fn ring(&mut self, registers: &impl Registers) {
        self.issued |= self.posted;
        registers.write32(UTRLDBR, self.posted);
        self.posted = 0;
    }

    #[inline]
    pub(crate) fn take(&mut self, registers: &impl Registers) -> Option<Done> {
        if self.batch == 0 {
            return None;
        }
        let at = self.batch.trailing_zeros() as usize;
        self.batch &= self.batch - 1;
        self.issued &= !(1 << at);
        let slot = at - self.first;
        Some(Done { number: slot as u64, ocs: self.status(slot, registers) })
    }

    /// Overall command status of a slot as it is in memory.
    #[inline]
    pub(crate) fn status(&self, slot: usize, registers: &impl Registers) -> u8 {
        let at = self.first + slot;
        registers.sync_for_cpu(self.list.region().span(at * ENTRY, ENTRY));
        // Ordered after the read of the doorbell, so what the device wrote before is visible.
        let [word] = self.list.get(at).get::<STATUS_OFFSET, 1>();
        UtrdStatus::from_bits(u64::from_le(word) as u32).ocs().into_bits()
    }

    #[inline]
    pub(crate) fn refill(&mut self, registers: &impl Registers) -> bool {
        if self.issued != 0 {
            self.batch = self.issued & !registers.read32(UTRLDBR);
        }
        self.batch != 0
    }

    #[inline]
    pub(crate) fn acknowledge(&self, registers: &impl Registers, count: Option<u32>) {
        if let Some(count) = count {
            registers.write32(UTRIACR, count);
        }
    }

    /// This lane's part of a mask over the whole list, bit 0 its first slot.
    pub(crate) fn range(&self, mask: u32) -> u32 {
        mask >> self.first
    }

    pub(crate) fn forget(&mut self, slot: usize) {
        let bit = self.bit(slot);
        self.posted &= !bit;
        self.issued &= !bit;
        self.batch &= !bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use flysch_wire::ufs::utrd::Ocs;

    struct Doorbell(Cell<u32>);

    impl Registers for Doorbell {
        fn read32(&self, offset: u32) -> u32 {
            assert_eq!(offset, UTRLDBR);
            self.0.get()
        }
        fn write32(&self, offset: u32, value: u32) {
            assert_eq!(offset, UTRLDBR);
            self.0.set(self.0.get() | value);
        }
    }

    #[test]
    fn ends_are_found_by_the_doorbell_and_reported_once() {
        let list = DmaRegion::zeroed(1024, 0);
        let mut queue = Sdq::new(list.clone(), 8);
        let doorbell = Doorbell(Cell::new(0x1));
        let entry = [0, u64::from(Ocs::Invalid.into_bits()).to_le(), 0, 0];
        for slot in [0, 3, 4] {
            queue.post(slot, entry, &doorbell);
        }
        queue.ring(&doorbell);
        assert_eq!(doorbell.0.get(), 0x1901, "another lane's slot is left alone");
        assert!(!queue.refill(&doorbell));
        list.fill((8 + 3) * ENTRY + STATUS_OFFSET, 1, 0);
        doorbell.0.set(0x101);
        assert!(queue.refill(&doorbell));
        assert_eq!(queue.take(&doorbell), Some(Done { number: 3, ocs: 0 }));
        assert_eq!(queue.take(&doorbell), Some(Done { number: 4, ocs: 0xF }));
        assert_eq!(queue.take(&doorbell), None);
        assert!(!queue.refill(&doorbell));
        queue.forget(0);
        doorbell.0.set(0);
        assert!(!queue.refill(&doorbell), "a held slot is the host's business");
    }
}
