//! The slots of a disk.

use alloc::vec::Vec;

use flysch_api::block::{Operation, Request};
use flysch_api::command::Scsi;
use flysch_api::data::Data;
use flysch_api::machine::{DmaSlice, Instant};

use crate::queue::Queue;

fn queue(wishes: u16, parts: u16) -> Queue<Scsi> {
    Queue::new(wishes, parts)
}

fn request() -> Request {
    Request {
        operation: Operation::Read,
        force_unit_access: false,
        offset: 8192,
        length: 4096,
        data: Data::One(DmaSlice { address: 64, len: 4096 }),
        crypto: None,
        token: 9,
        accepted: Instant::START,
    }
}

#[test]
fn every_slot_is_handed_out_once() {
    let mut queue = queue(3, 2);
    let wishes: Vec<_> = (0..3).map(|_| queue.take_wish(&request(), 12).unwrap()).collect();
    assert_eq!(wishes, [0, 1, 2]);
    assert!(queue.take_wish(&request(), 12).is_none());
    assert_eq!((queue.wish(1).lba, queue.wish(1).blocks), (2, 1));
    let parts: Vec<_> = (0..3).map(|_| queue.take_part(1).unwrap()).collect();
    assert_eq!(parts, [1, 3, 4], "its own first");
    assert_eq!((queue.take_part(1), queue.course(1).open), (None, 3));
    assert_eq!(queue.take_part(0), Some(0), "which nobody else gets");
    for part in parts {
        assert_eq!(queue.release_part(part), 1);
    }
    assert_eq!(queue.course(1).open, 0);
    queue.release_wish(2);
    assert_eq!(queue.take_wish(&request(), 12), Some(2));
}

#[test]
fn waiting_parts_keep_their_order_and_delayed_ones_their_time() {
    let mut queue = queue(1, 4);
    queue.take_wish(&request(), 12).unwrap();
    let parts: Vec<_> = (0..5).map(|_| queue.take_part(0).unwrap()).collect();
    let at = Instant::from_nanos;
    queue.delay(parts[0], at(300));
    queue.delay(parts[1], at(100));
    queue.delay(parts[2], at(200));
    queue.wait(parts[3], false);
    queue.wait(parts[4], true);
    assert_eq!(queue.wake_at(), Some(at(100)));
    queue.wake(at(99), false);
    assert_eq!(queue.wake_at(), Some(at(100)));
    queue.wake(at(200), false);
    assert_eq!(queue.wake_at(), Some(at(300)));
    let order: Vec<_> = core::iter::from_fn(|| queue.pop_waiting()).collect();
    assert_eq!(order, [parts[4], parts[3], parts[1], parts[2]]);
    queue.wake(at(0), true);
    assert_eq!((queue.pop_waiting(), queue.wake_at()), (Some(parts[0]), None));
    assert!(queue.is_quiet());
}
