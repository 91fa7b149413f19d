use super::*;
use core::cell::RefCell;
use flysch_wire::nvme::Cqe;
use std::vec::Vec;

#[derive(Default)]
struct File(RefCell<Vec<(u32, u32)>>);

impl Registers for File {
    fn read32(&self, _: u32) -> u32 {
        0
    }
    fn write32(&self, offset: u32, value: u32) {
        self.0.borrow_mut().push((offset, value));
    }
}

#[test]
fn the_phase_turns_with_the_ring_and_the_head_follows_once_per_batch() {
    let memory = DmaRegion::zeroed(4096, 0x1000);
    let (mut queue, file) = (Completion::new(memory.carve(0, 3 * 16), 0x1004), File::default());
    queue.restart(&file);
    let put = |at: usize, cid: u16, phase: bool| {
        let [low, high] = Cqe { cid, phase, result: 7, ..Cqe::default() }.to_words();
        memory.store64(at * 16, low);
        memory.store64(at * 16 + 8, high);
    };
    for turn in 0..4_u16 {
        assert_eq!(queue.take(&file), None, "the last turn's entries are old");
        let phase = turn % 2 == 0;
        (0..3).for_each(|at| put(at, turn * 3 + at as u16, phase));
        for n in 0..3 {
            let done = queue.take(&file).expect("an entry");
            assert_eq!((done.cid(), done.status(), done.result), (turn * 3 + n, 0, 7));
            assert!(!done.is_plainly_good());
        }
        // At the end of the ring it is worth a look, which turns it.
        assert_eq!(queue.take(&file), None);
        assert!(!queue.is_waiting(&file));
    }
    put(0, 99, true);
    queue.take(&file);
    queue.ring(&file);
    queue.ring(&file);
    assert_eq!(*file.0.borrow(), [(0x1004, 1)]);
    put(1, 99, true);
    queue.take(&file).expect("an entry");
    queue.tell_no_more();
    queue.ring(&file);
    assert_eq!(file.0.borrow().len(), 1, "a controller that is switched off has no doorbells");
}
