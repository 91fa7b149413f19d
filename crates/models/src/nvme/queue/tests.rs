//! Queues in memory, without a controller.

use flysch_api::machine::DmaRegion;

use super::*;

const BASE: u64 = 0x10_0000;
const PAGE: u64 = 4096;

/// Queues with a pair of four entries at the start of the memory, and its doorbells.
fn queues() -> (Queues, GuestMemory) {
    let memory = GuestMemory::from(DmaRegion::zeroed(16 << 12, BASE));
    let mut queues = Queues::new(&Config { queues: 2, vectors: 3, ..Config::default() });
    let create = |at, flags| {
        let mut command = Sqe { data: [at, 0], ..Sqe::default() };
        (command.cdw10[0], command.cdw10[1]) = (3 << 16 | 1, flags);
        command
    };
    queues.create_completion(&create(BASE + PAGE, 2 << 16 | 3), PAGE).unwrap();
    queues.create_submission(&create(BASE, 1 << 16 | 1), PAGE).unwrap();
    (queues, memory)
}

fn never(_: u16) -> bool {
    false
}

#[test]
fn entries_are_fetched_up_to_the_tail() {
    let (mut queues, memory) = queues();
    let tasks = Tasks::new(32);
    assert_eq!(queues.next_ready(&tasks), None);
    queues.ring(&memory, (8, 2), never).unwrap();
    let mut lasts = Vec::new();
    while let Some(queue) = queues.next_ready(&tasks) {
        lasts.push(queues.fetch(&memory, queue).unwrap().unwrap().is_last);
    }
    assert_eq!(lasts, [false, true]);
    assert_eq!(queues.ring(&memory, (8, 4), never), Err(RingError::Value));
    assert_eq!(queues.ring(&memory, (16, 0), never), Err(RingError::Doorbell));
    assert_eq!(queues.ring(&memory, (6, 0), never), Err(RingError::Doorbell));
}

#[test]
fn a_full_ring_keeps_entries_and_blocks_its_submission_queue() {
    let (mut queues, memory) = queues();
    let tasks = Tasks::new(32);
    for cid in 0..5 {
        let entry = Cqe { sq: 1, cid, ..Cqe::default() };
        queues.announce(&memory, (1, entry), |cid| cid == 1).unwrap();
    }
    assert_eq!((queues.interrupts.raised, queues.interrupts.take_vector()), (2, Some(2)));
    assert_eq!(queues.interrupts.take_vector(), None);
    queues.ring(&memory, (8, 1), never).unwrap();
    assert_eq!(queues.next_ready(&tasks), None);
    // Three entries can be taken, not four.
    assert_eq!(queues.ring(&memory, (12, 4), never), Err(RingError::Value));
    queues.ring(&memory, (12, 3), never).unwrap();
    assert_eq!(queues.interrupts.raised, 4);
    assert_eq!(queues.next_ready(&tasks), Some(1));
    assert!(queues.is_asserted());
    queues.ring(&memory, (12, 1), never).unwrap();
    assert!(!queues.is_asserted());
}

#[test]
fn a_ring_that_is_gone_is_told() {
    let (mut queues, mut memory) = queues();
    memory.unmap(BASE, 16 << 12);
    queues.ring(&memory, (8, 1), never).unwrap();
    assert!(queues.fetch(&memory, 1).is_err());
    let entry = Cqe { sq: 1, ..Cqe::default() };
    assert_eq!(queues.announce(&memory, (1, entry), never), Err(Unreachable));
}
