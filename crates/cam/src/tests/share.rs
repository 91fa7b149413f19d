use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::{BlockDevice, BlockError, Cause, Operation};
use flysch_api::command::Ended;

use super::fake::{DATA, Fake, Fate, SHAPE, at, request};
use crate::share::{Lane, Member};
use crate::{Disk, DiskOptions, Shape};

/// Two disks on different units of one port with this many slots.
fn two(slots: u32) -> (Lane<Fake>, [Disk<Member<Fake>>; 2]) {
    let lane = Lane::new(Fake::new(slots, 16384, SHAPE.block_size));
    let disk = |unit| {
        let member = lane.member();
        let scratch = lane.with_port(|port| {
            use flysch_api::command::Port as _;
            port.memory().carve(0, DATA)
        });
        Disk::new(member, Shape { unit, ..SHAPE }, scratch, &DiskOptions::default()).unwrap()
    };
    let disks = [disk(1 << 48), disk(2 << 48)];
    (lane, disks)
}

#[test]
fn every_outcome_finds_its_disk() {
    let (lane, mut disks) = two(8);
    for token in 0..3 {
        for (number, disk) in disks.iter_mut().enumerate() {
            let token = token * 10 + number as u64;
            disk.submit(&request(Operation::Read, token, 1, token), at(1)).unwrap();
        }
    }
    disks[0].ring(at(1));
    // All outcomes come while the second disk polls; the first finds its own afterwards.
    let tokens = |disk: &mut Disk<Member<Fake>>| {
        let next = core::iter::from_fn(|| disk.poll(at(2)));
        let mut tokens: Vec<u64> = next.map(|done| done.token).collect();
        tokens.sort_unstable();
        tokens
    };
    assert_eq!(tokens(&mut disks[1]), [1, 11, 21]);
    assert!(disks[0].poll_at() <= Some(at(2)), "something waits for it");
    assert_eq!(tokens(&mut disks[0]), [0, 10, 20]);
    assert_eq!(lane.strays(), 0);
    let units: Vec<u64> =
        lane.with_port(|port| port.started.iter().map(|c| c.unit >> 48).collect());
    assert_eq!(units, [1, 2, 1, 2, 1, 2]);
}

#[test]
fn a_failure_is_told_to_the_disk_it_happened_to() {
    let (lane, mut disks) = two(8);
    let medium = Fate::Sense(3, 0x31, 0);
    lane.with_port(|port| port.script.extend([Fate::Good, medium, Fate::Sense(5, 0x21, 0)]));
    disks[0].submit(&request(Operation::Read, 0, 1, 7), at(1)).unwrap();
    disks[1].submit(&request(Operation::Read, 0, 1, 8), at(1)).unwrap();
    disks[0].submit(&request(Operation::Read, 0, 1, 9), at(1)).unwrap();
    disks[1].ring(at(1));
    // The first disk's poll meets the second one's failure, and its own after that.
    let mut own = vec![];
    own.extend(core::iter::from_fn(|| disks[0].poll(at(2))).map(|done| (done.token, done.result)));
    assert_eq!(own, [(7, Ok(())), (9, Err(BlockError::OutOfRange))]);
    let done = disks[1].poll(at(2)).unwrap();
    assert_eq!((done.token, done.result), (8, Err(BlockError::Medium(Cause::sense(3, 0x31, 0)))));
}

#[test]
fn a_flood_leaves_the_other_disk_its_share() {
    let (lane, mut disks) = two(8);
    lane.with_port(|port| port.script.extend([Fate::Hold; 8]));
    for token in 0..8 {
        disks[0].submit(&request(Operation::Write, token, 1, token), at(1)).unwrap();
    }
    disks[0].ring(at(1));
    disks[1].submit(&request(Operation::Read, 0, 1, 100), at(1)).unwrap();
    assert_eq!(disks[1].tags().active, 0, "no slot is free");
    lane.with_port(Fake::release);
    // The flood goes on, but its next commands wait until the other disk has a slot.
    let done = disks[0].poll(at(2)).unwrap();
    disks[0].submit(&request(Operation::Write, 9, 1, 9), at(2)).unwrap();
    assert_eq!((done.token, disks[0].tags().active), (0, 7));
    assert_eq!(disks[1].poll(at(3)), None);
    disks[1].ring(at(3));
    assert_eq!(disks[1].tags().active, 1);
    assert_eq!(disks[1].poll(at(3)).map(|done| done.token), Some(100));
    let rest = core::iter::from_fn(|| disks[0].poll(at(4))).count();
    disks[0].ring(at(4));
    assert_eq!(rest + core::iter::from_fn(|| disks[0].poll(at(5))).count(), 8);
}

#[test]
fn a_frozen_lane_starts_nothing_and_goes_on_when_released() {
    let (lane, mut disks) = two(4);
    lane.freeze();
    disks[0].submit(&request(Operation::Read, 0, 1, 1), at(1)).unwrap();
    assert_eq!((disks[0].poll(at(1)), disks[0].tags().active), (None, 0));
    assert!(disks[0].poll_at().is_some(), "it asks again");
    lane.release();
    assert_eq!(disks[0].poll(at(2)), None);
    assert_eq!(disks[0].poll(at(2)).map(|done| done.token), Some(1));
    // One user alone.
    disks[1].port().freeze();
    disks[0].submit(&request(Operation::Read, 0, 1, 2), at(3)).unwrap();
    disks[1].submit(&request(Operation::Read, 0, 1, 3), at(3)).unwrap();
    disks[0].ring(at(3));
    assert_eq!(disks[0].poll(at(3)).map(|done| done.token), Some(2));
    assert_eq!(disks[1].poll(at(3)), None);
    disks[1].port().release();
    assert_eq!(disks[1].poll(at(4)), None);
    assert_eq!(disks[1].poll(at(4)).map(|done| done.token), Some(3));
}

#[test]
fn pass_through_goes_beside_a_disk() {
    use flysch_api::command::{Cdb, Command, Direction, Ordering, Port, Token};
    use flysch_api::data::Data;
    let (lane, mut disks) = two(4);
    let mut pass = lane.member();
    lane.with_port(|port| port.script.extend([Fate::Good, Fate::End(Ended::NoUnit)]));
    disks[0].submit(&request(Operation::Read, 0, 1, 1), at(1)).unwrap();
    let mut cdb = [0; 16];
    cdb[0] = 0x35;
    // The same number as the disk's token: only the table tells them apart.
    let token = lane.with_port(|port| port.started[0].token.number());
    let command = Command {
        unit: 9,
        payload: Cdb(cdb),
        direction: Direction::None,
        data: Data::NONE,
        crypto: None,
        ordering: Ordering::Simple,
        deadline: at(1000),
        token: Token::new(token),
    };
    pass.start(command, at(1)).unwrap();
    pass.ring(at(1));
    let outcome = pass.poll(at(2)).unwrap();
    assert_eq!((outcome.token.number(), outcome.ended), (token, Ended::NoUnit));
    assert_eq!(disks[0].poll(at(2)).map(|done| done.result), Some(Ok(())));
}
