//! The present of a controller, and what will happen to it.

use flysch_api::machine::Instant;

use super::task::TaskRef;
use crate::events::Events;

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The firmware has a command and looks at what it needs.
    Accepted(TaskRef),
    /// The first data of a read is ready to be sent.
    Ready(TaskRef),
    /// The data of a write, so many bytes, is in the write buffer.
    Arrived(TaskRef, u32),
    /// A command ends.
    Complete(TaskRef),
    /// A die may be done programming.
    Die(u16),
    /// CSTS.RDY follows CC.EN.
    Follows { epoch: u32, ready: bool },
    /// The shutdown is complete.
    ShutDown { epoch: u32 },
    /// A format or a sanitize operation ends.
    Upkeep { number: u32 },
    /// New firmware runs.
    Activated { epoch: u32 },
}

/// The present and what will happen after it.
#[derive(Debug)]
pub(super) struct Clock {
    now: Instant,
    events: Events<Event>,
    /// Counts controller resets: an event of an earlier life is stale.
    epoch: u32,
}

impl Clock {
    /// The begin of time, with room for as many events as `commands` commands cause.
    pub(super) fn new(commands: usize) -> Self {
        let events = Events::with_capacity(2 * commands + 64);
        Self { now: Instant::START, events, epoch: 0 }
    }

    #[inline]
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// The present, nanoseconds.
    #[inline]
    pub(super) fn nanos(&self) -> u64 {
        self.now.nanos()
    }

    /// The life the controller is in.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// When the next thing happens.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.events.next()
    }

    /// `event` happens at `nanos`.
    #[inline]
    pub(super) fn at(&mut self, nanos: u64, event: Event) {
        self.events.push(Instant::from_nanos(nanos), event);
    }

    /// `event` happens `nanos` from now.
    pub(super) fn after(&mut self, nanos: u64, event: Event) {
        self.events.push(self.now.after_nanos(nanos), event);
    }

    /// Takes the next event that is due at `now`; its time is the present.
    #[inline]
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Event> {
        let (at, event) = self.events.pop_due(now)?;
        self.now = self.now.max(at);
        Some(event)
    }

    /// The present is `now`, unless it is later already.
    #[inline]
    pub(super) fn pass(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The controller begins another life.
    pub(super) fn start_over(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Power goes: nothing will happen but the end of what goes on over a loss of power.
    pub(super) fn lose_power(&mut self) {
        self.events.retain(|event| matches!(event, Event::Upkeep { .. }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back_and_upkeep_survives_a_loss_of_power() {
        let mut clock = Clock::new(1);
        clock.pass(Instant::from_nanos(100));
        clock.after(50, Event::Die(1));
        clock.at(20, Event::Upkeep { number: 7 });
        assert_eq!(clock.take_due(Instant::from_nanos(149)), Some(Event::Upkeep { number: 7 }));
        assert_eq!((clock.nanos(), clock.next()), (100, Some(Instant::from_nanos(150))));
        clock.pass(Instant::from_nanos(10));
        assert_eq!(clock.nanos(), 100);
        clock.after(9, Event::Upkeep { number: 8 });
        clock.lose_power();
        assert_eq!(clock.take_due(Instant::NEVER), Some(Event::Upkeep { number: 8 }));
        assert_eq!(clock.take_due(Instant::NEVER), None);
    }
}
