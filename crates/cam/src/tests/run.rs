//! One command to its end.

use core::cell::Cell;

use flysch_api::command::{Command, Direction, Ended, NotStarted, Ordering, Scsi, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, Instant, Wake};

use super::fake::{Fake, Fate, at};
use crate::{Family, run};

/// A clock that skips to every instant that is waited for.
pub(super) struct Skipping(Cell<Instant>);

impl Skipping {
    pub(super) fn new() -> Self {
        Self(Cell::new(at(1)))
    }
}

impl Clock for Skipping {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        let Some(until) = until else { return Wake::Idle };
        self.0.set(self.0.get().max(until));
        Wake::Deadline
    }
}

fn flush() -> Command<Scsi> {
    Command {
        unit: 0,
        payload: Scsi::flush(),
        direction: Direction::None,
        data: Data::NONE,
        crypto: None,
        ordering: Ordering::Simple,
        deadline: at(100),
        token: Token::new(77),
    }
}

#[test]
fn a_command_comes_back_with_its_outcome() {
    let clock = Skipping::new();
    let mut port = Fake::new(2, 4096, 4096);
    port.not_started.push_back(NotStarted::Full);
    let outcome = run(&mut port, &clock, flush()).unwrap();
    assert_eq!((outcome.token.number(), outcome.ended), (77, Ended::Good));
    port.script.push_back(Fate::End(Ended::TimedOut));
    assert_eq!(run(&mut port, &clock, flush()).unwrap().ended, Ended::TimedOut);
}

#[test]
fn a_port_that_takes_or_ends_nothing_does_not_keep_us_for_ever() {
    let clock = Skipping::new();
    let mut port = Fake::new(2, 4096, 4096);
    port.not_started.extend([NotStarted::Full; 1000]);
    assert_eq!(run(&mut port, &clock, flush()), Err(NotStarted::Full));
    assert!(clock.now() >= at(100));
    port.not_started = [NotStarted::Gone].into();
    assert_eq!(run(&mut port, &clock, flush()), Err(NotStarted::Gone));
    port.script.push_back(Fate::Hold);
    let late = Command { deadline: clock.now().after_nanos(1), ..flush() };
    assert_eq!(run(&mut port, &clock, late), Err(NotStarted::Gone));
}
