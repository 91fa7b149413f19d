//! A queue pair of UFS 4.0: a submission ring and a completion ring in memory.
//!
//! Theory. The controller's ring pointers are byte offsets, ours are entry numbers. The submission
//! tail and the completion head belong to us, the others to the controller. A consumed completion
//! entry is zeroed, so a new one shows in memory as a command descriptor address that is not zero:
//! while nothing happens, looking costs no register access. (Where memory is not coherent, only the
//! controller writes the ring: nothing is zeroed, and every look reads the tail register.) Because
//! nothing guarantees that an entry of 32 bytes appears at once, the tail register determines how
//! far entries may be read; it is read once per batch, and the head register is written once per
//! batch.
//!
//! The slot of an entry follows from the address of its command descriptor, which every version of
//! the interface returns; the task tag is returned only from 4.1 on.

use crate::layout::{ENTRY, slot};
use crate::platform::QueueRegisters;
use crate::shared::Starts;
use crate::slots::Done;
use flysch_api::machine::{DmaArray, DmaRegion, Registers};
use flysch_wire::ufs::cqe::{CqeStatus, CqeUcd, STATUS_OFFSET, UCD_OFFSET};
use flysch_wire::ufs::registers::{CqInterrupts, mcq};

/// Address and status are in the first and third word of an entry.
const _: () = assert!(UCD_OFFSET == 0 && STATUS_OFFSET == 16);

/// A lane's queue pair.
#[derive(Debug)]
pub(crate) struct Mcq {
    submission: DmaArray<ENTRY>,
    completion: DmaArray<ENTRY>,
    registers: QueueRegisters,
    /// Device address of the lane's first command descriptor.
    descriptors: u64,
    /// The number of the command descriptor of device management, see [`number`](Self::number).
    management: u64,
    /// The number of the next entry.
    tail: usize,
    /// The number of the next completion, and the end of those in the current batch that follow it
    /// without a wrap.
    head: usize,
    run_end: usize,
    /// The end of the current batch.
    batch_end: usize,
}

/// The stride of command descriptors is [`ODD`] times a power of two.
const SHIFT: u32 = slot::LENGTH.trailing_zeros();
const ODD: u64 = slot::LENGTH as u64 >> SHIFT;
/// The inverse of [`ODD`] modulo 2^64, by Newton's iteration: each step doubles the number of
/// correct bits, and the start has three.
const INVERSE: u64 = {
    let (mut x, mut n) = (ODD, 0);
    while n < 5 {
        x = x.wrapping_mul(2_u64.wrapping_sub(ODD.wrapping_mul(x)));
        n += 1;
    }
    x
};

impl Mcq {
    pub(crate) fn new(
        rings: (DmaRegion, DmaRegion),
        descriptors: &DmaRegion,
        management: u64,
    ) -> Self {
        let descriptors = descriptors.address();
        Self {
            submission: DmaArray::new(rings.0),
            completion: DmaArray::new(rings.1),
            registers: QueueRegisters::default(),
            descriptors,
            management: Self::number(descriptors, management),
            tail: 0,
            head: 0,
            run_end: 0,
            batch_end: 0,
        }
    }

    /// Starts over with empty rings at the controller's present offsets; it may keep its pointers
    /// across a reset.
    pub(crate) fn restart(&mut self, starts: Starts, registers: &impl Registers) {
        let ring = self.completion.region();
        ring.fill(0, ring.len(), 0);
        registers.sync_for_device(ring.span(0, ring.len()));
        self.registers = starts.registers;
        self.tail = starts.submission as usize / ENTRY;
        self.head = starts.completion as usize / ENTRY;
        self.begin_batch(self.head);
    }

    #[inline]
    pub(crate) fn post(&mut self, entry: [u64; ENTRY / 8], registers: &impl Registers) {
        self.submission.get(self.tail).put::<0, { ENTRY / 8 }>(entry);
        registers.sync_for_device(self.submission.region().span(self.tail * ENTRY, ENTRY));
        self.tail += 1;
        if self.tail == self.submission.len() {
            self.wrap_tail();
        }
    }

    /// Out of line, so that every other entry costs only a comparison.
    #[cold]
    fn wrap_tail(&mut self) {
        self.tail = 0;
    }

    #[inline]
    pub(crate) fn ring(&self, registers: &impl Registers) {
        let tail = (self.tail * ENTRY) as u32;
        registers.write32(self.registers.submission + mcq::SQTP, tail);
    }

    #[inline]
    pub(crate) fn take<R: Registers>(&mut self, registers: &R) -> Option<Done> {
        if self.head == self.run_end {
            return None;
        }
        registers.sync_for_cpu(self.completion.region().span(self.head * ENTRY, ENTRY));
        let entry = self.completion.get(self.head);
        let [ucd, _, status] = entry.get::<UCD_OFFSET, 3>();
        if R::COHERENT {
            entry.put::<UCD_OFFSET, 1>([0]);
        }
        self.head += 1;
        if self.head == self.run_end {
            self.end_run(registers);
        }
        let ucd = CqeUcd::from_bits(u64::from_le(ucd)).base();
        let status = CqeStatus::from_bits(u64::from_le(status) as u32);
        let number = Self::number(self.descriptors, ucd);
        Some(Done { number, ocs: status.ocs().into_bits() })
    }

    /// Continues after the wrap, or tells the controller that the batch has been taken.
    #[inline]
    fn end_run(&mut self, registers: &impl Registers) {
        if self.head == self.completion.len() {
            self.head = 0;
            self.run_end = self.batch_end;
        }
        if self.head == self.batch_end {
            let head = (self.head * ENTRY) as u32;
            registers.write32(self.registers.completion + mcq::CQHP, head);
        }
    }

    /// Begins a batch at the head.
    fn begin_batch(&mut self, end: usize) {
        self.batch_end = end;
        self.run_end = if end < self.head { self.completion.len() } else { end };
    }

    /// The number of the slot whose command descriptor is at a device address, counted from that of
    /// slot 0; for an address where none can be, a number far beyond all slots.
    ///
    /// This is a division that detects a remainder: multiplied by the inverse, a multiple of the
    /// odd factor becomes the quotient, and every other number something larger than the largest
    /// quotient; the rotation does the same for the power of two. Different addresses give
    /// different numbers.
    #[inline]
    const fn number(descriptors: u64, ucd: u64) -> u64 {
        ucd.wrapping_sub(descriptors).wrapping_mul(INVERSE).rotate_right(SHIFT)
    }

    /// Whether this is the number of the command descriptor of device management.
    pub(crate) fn is_management(&self, done: Done) -> bool {
        done.number == self.management
    }

    #[inline]
    pub(crate) fn refill<R: Registers>(&mut self, registers: &R) -> bool {
        let quiet = R::COHERENT && self.is_empty_at(self.head);
        !quiet && self.refill_from_tail(registers)
    }

    #[inline]
    fn is_empty_at(&self, at: usize) -> bool {
        self.completion.region().load64(at * ENTRY + UCD_OFFSET) == 0
    }

    /// Trusts only the tail register: correct even if the device wrote nothing into the entry.
    pub(crate) fn refill_from_tail(&mut self, registers: &impl Registers) -> bool {
        let tail = registers.read32(self.registers.completion + mcq::CQTP);
        // As a number of entries. An offset within an entry moves to the top bits, beyond every
        // ring.
        let tail = tail.rotate_right(ENTRY.trailing_zeros()) as usize;
        if tail >= self.completion.len() {
            return false;
        }
        self.begin_batch(tail);
        self.head != tail
    }

    /// Trusts only memory, for a controller that is switched off. Where memory is not coherent it
    /// shows nothing, and what nobody saw counts as lost in the reset.
    pub(crate) fn refill_from_memory<R: Registers>(&mut self, _: &R) {
        let mut end = self.head;
        while R::COHERENT && !self.is_empty_at(end) {
            end = next(end, self.completion.len());
            if end == self.head {
                break;
            }
        }
        self.begin_batch(end);
    }

    #[inline]
    pub(crate) fn acknowledge(&self, registers: &impl Registers, count: Option<u32>) {
        let block = self.registers.completion_interrupt;
        if let Some(count) = count {
            registers.write32(block + mcq::MCQIACR, count);
        }
        registers.write32(block + mcq::CQIS, CqInterrupts::new().with_teps(true).into_bits());
    }

    /// Sets whether completions raise the queue's vector.
    pub(crate) fn enable(&self, on: bool, registers: &impl Registers) {
        let block = self.registers.completion_interrupt;
        registers.write32(block + mcq::CQIE, CqInterrupts::new().with_teps(on).into_bits());
    }
}

/// The number of the entry after `at` in a ring of `len`.
#[inline]
fn next(at: usize, len: usize) -> usize {
    if at + 1 < len { at + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use core::cell::RefCell;

    #[derive(Default)]
    struct File(RefCell<BTreeMap<u32, u32>>);

    impl Registers for File {
        fn read32(&self, offset: u32) -> u32 {
            self.0.borrow().get(&offset).copied().unwrap_or(0)
        }
        fn write32(&self, offset: u32, value: u32) {
            self.0.borrow_mut().insert(offset, value);
        }
    }

    const REGISTERS: QueueRegisters =
        QueueRegisters { submission: 0x1000, completion: 0x101C, completion_interrupt: 0x1024 };

    fn queue() -> (Mcq, DmaRegion, DmaRegion) {
        let memory = DmaRegion::zeroed(16384, 0x10_0000);
        let submission = memory.carve(0, 3 * ENTRY);
        let completion = memory.carve(1024, 6 * ENTRY);
        let descriptors = memory.carve(4096, 2 * slot::LENGTH);
        let rings = (submission.clone(), completion.clone());
        let mut queue = Mcq::new(rings, &descriptors, 0x10_0800);
        let starts = Starts { submission: 32, registers: REGISTERS, ..Starts::default() };
        queue.restart(starts, &File::default());
        (queue, submission, completion)
    }

    #[test]
    fn tail_wraps_and_rings_once_per_batch() {
        let (mut queue, submission, _) = queue();
        let file = File::default();
        queue.post([0x0101_0101_0101_0101; 4], &file);
        queue.post([0x0202_0202_0202_0202; 4], &file);
        assert!(file.0.borrow().is_empty());
        queue.ring(&file);
        assert_eq!(file.read32(0x1004), 0, "from 32 over 64 to 0");
        assert_eq!(submission.load32(32), 0x0101_0101);
        assert_eq!(submission.load32(64), 0x0202_0202);
    }

    #[test]
    fn only_entries_before_the_tail_register_are_believed() {
        let (mut queue, _, completion) = queue();
        let file = File::default();
        assert!(!queue.refill(&file));
        completion.store64(0, (0x10_1000_u64 | 3).to_le());
        assert!(!queue.refill(&file), "the tail has not moved yet");
        completion.store64(32, 0x10_1900_u64.to_le());
        completion.store32(32 + STATUS_OFFSET, 7_u32.to_le());
        completion.store64(64, 0x10_0800_u64.to_le());
        completion.store64(96, 0x10_1080_u64.to_le());
        file.write32(0x1020, 128);
        assert!(queue.refill(&file));
        assert_eq!(queue.take(&file), Some(Done { number: 0, ocs: 0 }));
        assert_eq!(queue.take(&file), Some(Done { number: 1, ocs: 7 }));
        let management = queue.take(&file).expect("an entry");
        assert!(queue.is_management(management) && management.slot() > 256);
        let stranger = queue.take(&file).expect("an entry");
        assert!(!queue.is_management(stranger) && stranger.slot() > 256);
        assert_eq!(queue.take(&file), None);
        assert_eq!(file.read32(0x101C), 128, "the head follows once per batch");
    }

    #[test]
    fn a_tail_outside_the_ring_is_not_believed() {
        let (mut queue, _, completion) = queue();
        let file = File::default();
        completion.store64(0, 0x10_1000_u64.to_le());
        for tail in [6 * ENTRY as u32, 33, u32::MAX] {
            file.write32(0x1020, tail);
            assert!(!queue.refill(&file));
        }
    }

    #[test]
    fn a_batch_goes_on_behind_the_wrap_and_is_told_once() {
        let (mut queue, _, completion) = queue();
        let file = File::default();
        for (tail, entries) in [(4, 0..4), (2, 4..8)] {
            for n in entries.clone() {
                completion.store64(n % 6 * ENTRY, (0x10_1000_u64 + n as u64 % 2 * 0x900).to_le());
            }
            file.write32(0x1020, tail * ENTRY as u32);
            assert!(queue.refill(&file));
            let told = file.read32(0x101C);
            for n in entries {
                assert_eq!(file.read32(0x101C), told, "not before the last is taken");
                assert_eq!(queue.take(&file), Some(Done { number: n as u64 % 2, ocs: 0 }));
            }
            assert_eq!((queue.take(&file), queue.refill(&file)), (None, false));
            assert_eq!(file.read32(0x101C), tail * ENTRY as u32);
        }
    }

    /// The addresses of slots have their numbers, others numbers beyond all slots.
    #[test]
    fn only_the_address_of_a_slot_has_the_number_of_one() {
        const FIRST: u64 = 0x1_0000_0000;
        assert_eq!(INVERSE.wrapping_mul(ODD), 1);
        for slot in 0..256 {
            let address = FIRST + slot * slot::LENGTH as u64;
            assert_eq!(Mcq::number(FIRST, address), slot);
            for wrong in [address + 128, address ^ 1 << 63, address.wrapping_sub(FIRST) ^ 1 << 40] {
                assert!(Mcq::number(FIRST, wrong) > 1 << 32, "{wrong:#x}");
            }
        }
        assert!(Mcq::number(FIRST, FIRST - slot::LENGTH as u64) > 1 << 32);
    }
}
