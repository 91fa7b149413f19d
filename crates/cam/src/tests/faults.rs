//! Ends that are not plain success.

use alloc::vec::Vec;

use flysch_api::block::{BlockDevice, BlockError, Cause, Operation, Refused};
use flysch_api::command::{Ended, NotStarted};

use super::fake::{CODE, Fake, Fate, at, carry_through, disk, request, result};
use crate::Disk;
use crate::family::Action;
use crate::family::Meaning;
use crate::sense::{SENSE, lookup};

const READ: Operation = Operation::Read;

/// A read whose commands have these fates, on a disk of its own.
fn read(fates: &[Fate]) -> (Result<(), BlockError>, Disk<Fake>) {
    let mut disk = disk(4);
    disk.port_mut().script.extend(fates);
    let result = result(&mut disk, request(READ, 0, 1, 1));
    (result, disk)
}

fn cause(key: u8, asc: u8, ascq: u8) -> Cause {
    Cause::sense(key, asc, ascq)
}

/// A status without sense data.
fn status(status: u8) -> Cause {
    Cause::Scsi { status, key: 0, asc: 0, ascq: 0, information: None }
}

#[test]
fn passing_troubles_pass() {
    for fate in [
        Fate::Sense(0xB, 0x47, 3),
        Fate::Sense(4, 0x44, 0),
        Fate::Sense(3, 0x11, 0),
        Fate::Sense(6, 0x29, 0),
        Fate::Sense(2, 4, 1),
        Fate::Sense(2, 4, 0),
        Fate::Deferred(3, 0x0C, 0),
        Fate::Status(0x08),
        Fate::Status(0x28),
        Fate::Status(0x40),
        Fate::Status(2),
        Fate::End(Ended::TimedOut),
        Fate::End(Ended::Reset),
        Fate::End(Ended::Aborted),
        Fate::End(Ended::Host),
        Fate::Short(512),
    ] {
        let (result, disk) = read(&[fate]);
        assert_eq!(result, Ok(()), "{fate:?}");
        assert_eq!((disk.statistics().commands, disk.statistics().retries), (2, 1), "{fate:?}");
    }
}

#[test]
fn lasting_troubles_are_told_after_bounded_tries() {
    let short = cause(0xB, 0x4B, 0);
    for (fate, error, tries) in [
        (Fate::Sense(3, 0x11, 0), BlockError::Medium(cause(3, 0x11, 0)), 2),
        (Fate::Sense(3, 0x31, 0), BlockError::Medium(cause(3, 0x31, 0)), 1),
        (Fate::Sense(4, 0x44, 0), BlockError::Device(cause(4, 0x44, 0)), 3),
        (Fate::Sense(0xB, 0, 0), BlockError::Device(cause(0xB, 0, 0)), 5),
        (Fate::Sense(5, 0x20, 0), BlockError::Unsupported, 1),
        (Fate::Sense(5, 0x21, 0), BlockError::OutOfRange, 1),
        (Fate::Sense(5, 0x24, 0), BlockError::Device(cause(5, 0x24, 0)), 1),
        (Fate::Sense(5, 0x25, 0), BlockError::Gone, 1),
        (Fate::Sense(6, 0x29, 0), BlockError::Device(cause(6, 0x29, 0)), 17),
        (Fate::Sense(7, 0x27, 0), BlockError::WriteProtected, 1),
        (Fate::Sense(7, 0x27, 7), BlockError::Device(cause(7, 0x27, 7)), 1),
        (Fate::Sense(2, 0x3A, 0), BlockError::Gone, 1),
        (Fate::Sense(2, 4, 1), BlockError::Device(cause(2, 4, 1)), 121),
        (Fate::Sense(0xC, 0, 0), BlockError::Device(cause(0xC, 0, 0)), 1),
        (Fate::Status(0x08), BlockError::Device(status(0x08)), 13),
        (Fate::Status(0x28), BlockError::Device(status(0x28)), 13),
        (Fate::Status(0x18), BlockError::Device(status(0x18)), 1),
        (Fate::Status(2), BlockError::Device(status(2)), 5),
        (Fate::End(Ended::TimedOut), BlockError::TimedOut, 5),
        (Fate::End(Ended::Reset), BlockError::Reset, 17),
        (Fate::End(Ended::Host), BlockError::Host(CODE), 5),
        (Fate::End(Ended::NoUnit), BlockError::Gone, 1),
        (Fate::Short(512), BlockError::Device(short), 5),
    ] {
        let (result, disk) = read(&[fate; 200]);
        assert_eq!(result, Err(error), "{fate:?}");
        assert_eq!(disk.statistics().commands, tries, "{fate:?}");
        assert_eq!(disk.statistics().failures, 1);
    }
}

#[test]
fn mixed_troubles_share_one_budget() {
    let fates = [Fate::End(Ended::TimedOut), Fate::Sense(0xB, 0, 0), Fate::End(Ended::Host)];
    let cycle: Vec<_> = fates.into_iter().cycle().take(50).collect();
    let (result, disk) = read(&cycle);
    assert!(result.is_err());
    assert_eq!(disk.statistics().commands, 5);
}

#[test]
fn recovered_errors_are_successes() {
    let (result, disk) = read(&[Fate::Recovered]);
    assert_eq!(result, Ok(()));
    assert_eq!((disk.statistics().recovered, disk.statistics().retries), (1, 0));
}

#[test]
fn one_bad_part_fails_the_request_once_and_the_rest_still_ends() {
    let mut disk = disk(4);
    disk.port_mut().script.extend([Fate::Good, Fate::Sense(3, 0x31, 0), Fate::Hold, Fate::Hold]);
    disk.submit(&request(READ, 0, 40, 1), at(1)).unwrap();
    disk.ring(at(1));
    assert_eq!(disk.poll(at(1)), None, "parts are still in the device");
    disk.port_mut().release();
    let done = disk.poll(at(2)).unwrap();
    assert_eq!(done.result, Err(BlockError::Medium(cause(3, 0x31, 0))));
    assert_eq!(disk.poll(at(2)), None);
    assert_eq!(disk.port().started.len(), 4, "no further parts are made for a failed request");
    assert!(disk.queue.is_quiet());
}

#[test]
fn the_first_error_wins() {
    let mut disk = disk(4);
    disk.port_mut().script.extend([Fate::Sense(3, 0x31, 0), Fate::Sense(5, 0x24, 0)]);
    let result = result(&mut disk, request(READ, 0, 8, 1));
    assert_eq!(result, Err(BlockError::Medium(cause(3, 0x31, 0))));
}

#[test]
fn a_busy_unit_is_asked_again_after_growing_pauses() {
    let mut disk = disk(4);
    disk.port_mut().script.extend([Fate::Status(8); 3]);
    disk.submit(&request(READ, 0, 1, 1), at(1)).unwrap();
    disk.ring(at(1));
    let mut now = at(1);
    for pause in [10, 20, 40] {
        assert_eq!(disk.poll(now), None);
        let next = disk.poll_at().unwrap();
        assert_eq!(next, now.after_nanos(pause * 1_000_000));
        let commands = disk.statistics().commands;
        assert_eq!(disk.poll(now.after_nanos(pause * 1_000_000 - 1)), None);
        assert_eq!(disk.statistics().commands, commands, "not before its time");
        now = next;
        assert_eq!(disk.poll(now), None, "issued again, with a doorbell");
    }
    assert!(disk.poll(now).is_some());
    assert_eq!(disk.statistics().busy, 3);
}

#[test]
fn a_full_task_set_lowers_the_number_of_commands_and_it_grows_again() {
    let mut disk = disk(8);
    disk.port_mut().script.extend([Fate::Good; 5]);
    disk.port_mut().script.extend([Fate::Status(0x28); 3]);
    let eight: Vec<_> = (0..8).map(|i| request(READ, i, 1, i)).collect();
    assert!(carry_through(&mut disk, &eight).iter().all(|done| done.result == Ok(())));
    assert_eq!(disk.statistics().task_set_full, 3);
    assert!(disk.openings < 8, "{}", disk.openings);
    for _ in 0..100 {
        carry_through(&mut disk, &eight);
    }
    assert_eq!(disk.openings, 8);
}

#[test]
fn a_unit_attention_in_the_middle_costs_nothing_but_a_try() {
    let mut disk = disk(4);
    for _ in 0..3 {
        disk.port_mut().script.extend([Fate::Good, Fate::Sense(6, 0x2A, 9), Fate::Good]);
    }
    let requests: Vec<_> = (0..4).map(|i| request(READ, i * 4, 4, i)).collect();
    for _ in 0..2 {
        assert!(carry_through(&mut disk, &requests).iter().all(|done| done.result == Ok(())));
    }
    let statistics = disk.statistics();
    assert_eq!(statistics.unit_attentions, 3);
    assert!(statistics.attention.capacity && !statistics.attention.luns);
}

#[test]
fn a_reset_requeues_everything_in_flight() {
    let mut disk = disk(4);
    disk.port_mut().script.extend([Fate::Hold; 4]);
    for i in 0..4 {
        disk.submit(&request(READ, i, 1, i), at(1)).unwrap();
    }
    disk.ring(at(1));
    assert_eq!(disk.poll(at(1)), None);
    disk.port_mut().end_all(Ended::Reset);
    let mut done = Vec::new();
    for _ in 0..10 {
        done.extend(disk.poll(at(2)));
    }
    assert!(done.len() == 4 && done.iter().all(|done| done.result == Ok(())));
    assert_eq!((disk.statistics().resets, disk.statistics().retries), (4, 4));
}

#[test]
fn when_the_port_is_gone_everything_ends_once() {
    let mut disk = disk(2);
    disk.port_mut().script.extend([Fate::Hold, Fate::Hold]);
    disk.submit(&request(READ, 0, 40, 1), at(1)).unwrap();
    disk.submit(&request(READ, 0, 1, 2), at(1)).unwrap();
    disk.ring(at(1));
    assert_eq!(disk.poll(at(1)), None);
    disk.port_mut().end_all(Ended::Gone);
    let mut done = Vec::new();
    for _ in 0..10 {
        done.extend(disk.poll(at(2)));
    }
    done.sort_by_key(|done| done.token);
    assert_eq!(done.iter().map(|done| done.token).collect::<Vec<_>>(), [1, 2]);
    assert!(done.iter().all(|done| done.result == Err(BlockError::Gone)));
    let late = disk.submit(&request(READ, 0, 1, 3), at(3));
    assert_eq!(late, Err(Refused::Invalid(BlockError::Gone)));
    assert_eq!(disk.port().started.len(), 2);
}

#[test]
fn a_port_that_goes_between_commands_ends_what_waits() {
    let mut disk = disk(2);
    disk.port_mut().script.extend([Fate::Status(8); 2]);
    for token in 0..2 {
        disk.submit(&request(READ, token, 1, token), at(1)).unwrap();
    }
    disk.ring(at(1));
    assert_eq!(disk.poll(at(1)), None);
    disk.port_mut().not_started.extend([NotStarted::Gone; 9]);
    let mut done = Vec::new();
    for _ in 0..5 {
        done.extend(disk.poll(at(20)));
    }
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|done| done.result == Err(BlockError::Gone)));
}

#[test]
fn a_port_in_recovery_is_asked_again() {
    let mut disk = disk(2);
    disk.port_mut().not_started.extend([NotStarted::Full; 5]);
    assert_eq!(result(&mut disk, request(READ, 0, 1, 1)), Ok(()));
    assert_eq!(result(&mut disk, request(READ, 0, 40, 2)), Ok(()));
}

#[test]
fn a_deferred_write_failure_is_told_by_the_next_flush_once() {
    let mut disk = disk(2);
    disk.port_mut().script.push_back(Fate::Deferred(3, 0x0C, 2));
    assert_eq!(result(&mut disk, request(READ, 0, 1, 1)), Ok(()));
    let flush = request(Operation::Flush, 0, 0, 2);
    assert_eq!(result(&mut disk, flush), Err(BlockError::Medium(cause(3, 0x0C, 2))));
    assert_eq!(result(&mut disk, flush), Ok(()));
}

#[test]
fn a_failed_write_is_not_flushed() {
    let mut disk = disk(2);
    disk.shape.force_unit_access = false;
    disk.port_mut().script.push_back(Fate::Sense(7, 0x27, 0));
    let mut write = request(Operation::Write, 0, 1, 1);
    write.force_unit_access = true;
    assert_eq!(result(&mut disk, write), Err(BlockError::WriteProtected));
    assert_eq!(disk.port().started.len(), 1);
}

#[test]
fn every_row_can_be_reached_and_says_why() {
    for (index, row) in SENSE.iter().enumerate() {
        let (asc, ascq) = (row.asc.unwrap_or(0xFE), row.ascq.unwrap_or(0xFE));
        let found = lookup(row.key, asc, ascq).unwrap();
        assert!(core::ptr::eq(found, &SENSE[index]), "row {index} is hidden by another one");
        assert!(!row.reason.is_empty());
        if row.failure == Meaning::Medium {
            assert!(!matches!(row.action, Action::Requeue), "row {index} could go on for long");
        }
    }
    for key in (0..16).filter(|&key| key != 0xC) {
        assert!(lookup(key, 0xFE, 0xFE).is_some(), "key {key:#x} has no row");
    }
}
