//! Ordered requests, freezing, starting units, tags, other sizes.

use alloc::vec::Vec;

use flysch_api::block::{BlockDevice, BlockError, Operation, Refused};
use flysch_api::command::{Ended, NotStarted};

use super::fake::{Fate, SHAPE, at, carry_through, disk, request, result};
use crate::{Attention, Shape};

/// Operation codes of what was started.
fn started(disk: &crate::Disk<super::fake::Fake>) -> Vec<u8> {
    disk.port().started.iter().map(|command| command.payload.0[0]).collect()
}

#[test]
fn an_ordered_request_is_alone() {
    let mut disk = disk(8);
    disk.port.script.extend([Fate::Hold, Fate::Hold]);
    for token in 0..2 {
        disk.submit(&request(Operation::Write, token, 1, token), at(1)).unwrap();
    }
    disk.submit_ordered(&request(Operation::Flush, 0, 0, 2), at(1)).unwrap();
    disk.submit_ordered(&request(Operation::Write, 0, 8, 3), at(1)).unwrap();
    disk.submit(&request(Operation::Read, 0, 1, 4), at(1)).unwrap();
    disk.ring(at(1));
    assert_eq!(disk.poll(at(1)), None);
    assert_eq!(started(&disk), [0x2A, 0x2A], "the flush waits for both writes");
    disk.port.release();
    let mut tokens = Vec::new();
    for step in 2..20 {
        tokens.extend(core::iter::from_fn(|| disk.poll(at(step))).map(|done| done.token));
    }
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
    assert_eq!(started(&disk), [0x2A, 0x2A, 0x35, 0x2A, 0x2A, 0x28]);
    // The fast path is open again.
    assert!(disk.queue.is_quiet());
}

#[test]
fn an_ordered_request_waits_for_what_is_tried_again() {
    let mut disk = disk(8);
    disk.port.script.extend([Fate::Status(8), Fate::Good]);
    disk.submit(&request(Operation::Write, 0, 1, 0), at(1)).unwrap();
    disk.submit_ordered(&request(Operation::Write, 1, 1, 1), at(1)).unwrap();
    disk.ring(at(1));
    assert_eq!(disk.poll(at(1)), None, "busy: again in 10 ms");
    assert_eq!(disk.poll(at(2)), None);
    assert_eq!(started(&disk).len(), 1);
    assert_eq!(disk.poll(at(20)), None);
    assert_eq!(disk.poll(at(20)).map(|done| done.token), Some(0));
    assert_eq!(disk.poll(at(20)), None);
    assert_eq!(disk.poll(at(20)).map(|done| done.token), Some(1));
}

#[test]
fn a_frozen_disk_takes_requests_and_starts_none() {
    let mut disk = disk(4);
    disk.port.script.push_back(Fate::Hold);
    disk.submit(&request(Operation::Read, 0, 1, 0), at(1)).unwrap();
    disk.ring(at(1));
    disk.freeze();
    disk.freeze();
    disk.submit(&request(Operation::Read, 1, 1, 1), at(1)).unwrap();
    let tags = disk.tags();
    assert_eq!((tags.active, tags.allocated, tags.queued, tags.held), (1, 2, 1, 2));
    disk.port.release();
    assert_eq!(disk.poll(at(2)).map(|done| done.token), Some(0), "what is in flight ends");
    disk.release();
    assert_eq!((disk.poll(at(3)), disk.tags().active), (None, 0), "it was frozen twice");
    disk.release();
    disk.release();
    assert_eq!(disk.poll(at(4)), None);
    assert_eq!(disk.poll(at(4)).map(|done| done.token), Some(1));
    let fast = carry_through(&mut disk, &[request(Operation::Read, 0, 1, 5)]);
    assert_eq!(fast[0].result, Ok(()));
    // A frozen disk whose unit is gone says so.
    disk.freeze();
    disk.submit(&request(Operation::Read, 1, 1, 6), at(5)).unwrap();
    disk.lose();
    assert_eq!(disk.poll(at(6)).map(|done| done.result), Some(Err(BlockError::Gone)));
}

#[test]
fn a_unit_that_wants_to_be_started_is() {
    let mut first = disk(4);
    let not_ready = Fate::Sense(2, 4, 2);
    first.port.script.extend([not_ready, not_ready, Fate::Good, Fate::Sense(2, 4, 1)]);
    let requests = [request(Operation::Read, 0, 1, 0), request(Operation::Read, 1, 1, 1)];
    let done = carry_through(&mut first, &requests);
    assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
    // Both commands meet it, one starts the unit, and the unit then takes a while.
    assert_eq!(started(&first), [0x28, 0x28, 0x1B, 0x28, 0x28, 0x28]);
    assert_eq!(first.statistics().starts, 1);
    assert_eq!(first.port.started[2].payload.0[4], 1, "START");

    // Twice is enough.
    let mut never = disk(4);
    never.port.script.extend([not_ready, Fate::Good, not_ready, Fate::Good, not_ready]);
    let cause = flysch_api::block::Cause::sense(2, 4, 2);
    let failed = result(&mut never, request(Operation::Read, 0, 1, 0));
    assert_eq!(failed, Err(BlockError::Device(cause)));
    assert_eq!(never.statistics().starts, 2);

    // The command itself may fail in any way.
    for end in [Fate::End(Ended::TimedOut), Fate::End(Ended::Reset), Fate::Sense(5, 0x20, 0)] {
        let mut disk = disk(4);
        disk.port.script.extend([not_ready, end]);
        assert_eq!(result(&mut disk, request(Operation::Read, 0, 1, 0)), Ok(()), "{end:?}");
    }
}

#[test]
fn a_port_that_cannot_start_units_leaves_the_failure() {
    let mut disk = disk(4);
    disk.port.script.push_back(Fate::Sense(2, 4, 2));
    disk.submit(&request(Operation::Read, 0, 1, 0), at(1)).unwrap();
    disk.ring(at(1));
    disk.port.not_started.push_back(NotStarted::Unsupported);
    assert_eq!(disk.poll(at(1)), None);
    // It is tried once more, and the unit is as it was.
    disk.port.script.push_back(Fate::Sense(2, 4, 2));
    let next = disk.poll_at().unwrap();
    assert_eq!(disk.poll(next), None);
    let done = disk.poll(next.after_nanos(1)).expect("nobody starts it");
    assert_eq!(done.result, Err(BlockError::Device(flysch_api::block::Cause::sense(2, 4, 2))));
    assert!(disk.queue.is_quiet());
}

#[test]
fn tags_go_down_and_slowly_up() {
    let mut disk = disk(8);
    let (openings, max) = (disk.tags().openings, disk.tags().max);
    assert_eq!((openings, max), (8, 8));
    disk.port.script.extend([Fate::Hold, Fate::Hold, Fate::Hold, Fate::Status(0x28)]);
    for token in 0..4 {
        disk.submit(&request(Operation::Read, token, 1, token), at(1)).unwrap();
    }
    disk.ring(at(1));
    assert_eq!(disk.poll(at(1)), None);
    let tags = disk.tags();
    assert_eq!((tags.openings, tags.active, tags.queued), (0, 3, 1), "as many as it had");
    disk.port.release();
    while disk.poll(at(2)).is_some() {}
    while disk.poll(at(3)).is_some() {}
    for token in 0..64 {
        carry_through(&mut disk, &[request(Operation::Read, 0, 1, token)]);
    }
    assert_eq!(disk.tags().openings, 4, "one more after 64 good ones");
    // Set by hand, as with `camcontrol tags -N`: that is then the maximum.
    assert_eq!(disk.set_tags(3), 3);
    for token in 0..100 {
        carry_through(&mut disk, &[request(Operation::Read, 0, 1, token)]);
    }
    assert_eq!((disk.tags().openings, disk.tags().max), (3, 3));
    assert_eq!((disk.set_tags(0), disk.set_tags(1000)), (1, 8));
}

#[test]
fn a_disk_may_get_another_size() {
    let mut disk = disk(4);
    let beyond = request(Operation::Read, SHAPE.blocks, 1, 0);
    assert_eq!(disk.submit(&beyond, at(1)), Err(Refused::Invalid(BlockError::OutOfRange)));
    disk.reshape(Shape { blocks: SHAPE.blocks + 1, ..SHAPE }).unwrap();
    assert_eq!(result(&mut disk, beyond), Ok(()));
    assert_eq!(disk.geometry().blocks, SHAPE.blocks + 1);
    disk.reshape(Shape { blocks: 10, write_protected: true, ..SHAPE }).unwrap();
    assert_eq!(disk.submit(&beyond, at(1)), Err(Refused::Invalid(BlockError::OutOfRange)));
    let write = request(Operation::Write, 0, 1, 0);
    assert_eq!(disk.submit(&write, at(1)), Err(Refused::Invalid(BlockError::WriteProtected)));
    // Another block size or another unit means a different disk.
    assert!(disk.reshape(Shape { block_size: 512, ..SHAPE }).is_err());
    assert!(disk.reshape(Shape { unit: 5, ..SHAPE }).is_err());
    assert_eq!(disk.geometry().blocks, 10);
}

#[test]
fn what_a_unit_told_is_told_once() {
    let mut disk = disk(4);
    disk.port.script.extend([Fate::Sense(6, 0x2A, 9), Fate::Sense(6, 0x3F, 0x0E)]);
    assert_eq!(result(&mut disk, request(Operation::Read, 0, 1, 0)), Ok(()));
    let told = Attention { capacity: true, luns: true, ..Attention::default() };
    assert_eq!(disk.take_attention(), told);
    assert_eq!(disk.take_attention(), Attention::default());
    assert_eq!(disk.statistics().attention, told, "the statistics keep it");
}
