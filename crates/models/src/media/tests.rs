//! The media without the protocol around it.

use super::*;
use crate::ufs::profile::GALAXY_BOOK_S;

#[test]
fn a_stream_of_reads_does_not_starve_a_program_operation() {
    let timing = GALAXY_BOOK_S.timing;
    let mut media = Media::new(timing, GALAXY_BOOK_S.energy, 1);
    let unit = media.unit(Program::Tlc);
    assert!(media.admit(unit));
    media.arrived(unit, false);
    let started = media.program(0, false).expect("a whole unit and an idle die");
    let pages_per_row = u64::from(timing.channels * timing.dies_per_channel);
    let mut at = 0;
    for page in 0..10_000 {
        // Every page of this loop is on the die that is programming.
        at = media.read_page(page * pages_per_row + u64::from(started.die), 4096, at);
    }
    let bound = u64::from(SUSPENDS_MAX) * (timing.suspend_ns + timing.read_ns);
    assert!(at > started.end + bound, "the reads outlast the program operation");
    assert!(media.programmed(started.die, started.end + bound).is_ok());
}

#[test]
fn a_link_hibernates_when_nothing_happened_for_its_time_and_not_under_a_command() {
    let mut media = Media::new(GALAXY_BOOK_S.timing, GALAXY_BOOK_S.energy, 1);
    media.set_auto_hibern8((1_000_000, 300_000), 1);
    let mut late = |at, alone| media.accept(at, alone) > at + 300_000;
    assert!(late(2_000_000, true), "it has to wake");
    assert!(!late(2_900_000, true), "used lately");
    assert!(!late(4_500_000, false), "another command is in the device");
    media.rests(6_000_000);
    assert!(!media.is_auto_hibernated(6_900_000), "a command ended lately");
    assert!(media.is_auto_hibernated(7_000_000));
    // Hibernated from 1 to 2 ms before the first command, and from 7 ms on.
    let energy = media.energy(9_500_000);
    let [awake, hibernated] = [0, 1].map(|at| energy.states[at].amount);
    assert_eq!((awake, hibernated), (9_500_000 - 3_500_000, 1_000_000 + 2_500_000));
    let commands = energy.work.iter().find(|part| part.name == "commands").map(|part| part.amount);
    assert_eq!(commands, Some(3));
}
