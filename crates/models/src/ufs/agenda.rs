//! Future events in order of time, and the present instant.

use flysch_api::machine::Instant;

use super::task::TaskRef;
use crate::events::Events;

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The firmware has a command and determines what it needs.
    Accepted(TaskRef),
    /// The first data of a read is ready to be sent.
    Ready(TaskRef),
    /// The data of a write, this many bytes, is in the write buffer.
    Arrived(TaskRef, u32),
    /// A command ends.
    Complete(TaskRef),
    /// A die may have finished programming.
    Die(u16),
    /// HCE has come up.
    Enabled { epoch: u32 },
    /// HCE falls back to zero, and will come up again.
    Glitch { epoch: u32 },
    /// Power comes back.
    PowerBack,
    /// The UIC command in progress ends.
    Uic { epoch: u32 },
    /// The power mode change or hibernate begun by a UIC command ends.
    LinkChanged { epoch: u32 },
    /// A task management request ends.
    TaskManagement { epoch: u32, slot: u8 },
    /// Auto-hibern8 may begin.
    Idle,
    /// A WriteBooster buffer may have its new size.
    Resize,
    /// The interrupt aggregation timer of a completion queue, or of the single doorbell.
    Aggregation { epoch: u32, queue: Option<u8> },
}

impl Event {
    /// Whether it happens inside the device, which forgets it when power is lost.
    fn is_of_device(&self) -> bool {
        matches!(self, Self::Die(_) | Self::Ready(_) | Self::Accepted(_) | Self::Arrived(..))
    }
}

/// The present, and everything later.
#[derive(Debug)]
pub(super) struct Agenda {
    now: Instant,
    events: Events<Event>,
    /// Counts the controller's resets; an event of an earlier life is stale.
    epoch: u32,
}

impl Agenda {
    /// An empty agenda, with room for `capacity` events.
    pub(super) fn new(capacity: usize) -> Self {
        Self { now: Instant::START, events: Events::with_capacity(capacity), epoch: 0 }
    }

    /// The present, nanoseconds.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.now.nanos()
    }

    /// The present.
    #[inline]
    pub(super) fn instant(&self) -> Instant {
        self.now
    }

    /// Schedules `event` at a time in nanoseconds.
    #[inline]
    pub(super) fn at(&mut self, nanos: u64, event: Event) {
        self.events.push(Instant::from_nanos(nanos), event);
    }

    /// Schedules `event` this many nanoseconds from now.
    #[inline]
    pub(super) fn after(&mut self, nanos: u64, event: Event) {
        self.events.push(self.now.after_nanos(nanos), event);
    }

    /// When the next event happens.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.events.next()
    }

    /// Takes the first event that is due by `until`, and moves the present to it.
    #[inline]
    pub(super) fn take_due(&mut self, until: Instant) -> Option<Event> {
        let (at, event) = self.events.pop_due(until)?;
        self.pass(at);
        Some(event)
    }

    /// Time passes until `now`; it never goes backwards.
    #[inline]
    pub(super) fn pass(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The controller's life, as recorded in its events.
    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The controller is reset: events on their way to it are stale.
    pub(super) fn begin_life(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// The device has lost its power: nothing continues inside it.
    pub(super) fn forget_device(&mut self) {
        self.events.retain(|event| !event.is_of_device());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_with_what_happens_and_never_goes_back() {
        let mut agenda = Agenda::new(4);
        agenda.after(100, Event::Idle);
        agenda.at(50, Event::Resize);
        assert_eq!(agenda.take_due(Instant::from_nanos(49)), None);
        assert_eq!(agenda.take_due(Instant::from_nanos(400)), Some(Event::Resize));
        assert_eq!(agenda.now(), 50);
        agenda.pass(Instant::from_nanos(20));
        assert_eq!(agenda.now(), 50);
        assert_eq!(agenda.next(), Some(Instant::from_nanos(100)));
    }

    #[test]
    fn without_power_only_the_controller_goes_on() {
        let mut agenda = Agenda::new(4);
        agenda.at(1, Event::Die(3));
        agenda.at(2, Event::Uic { epoch: agenda.epoch() });
        agenda.forget_device();
        assert_eq!(agenda.take_due(Instant::NEVER), Some(Event::Uic { epoch: 0 }));
        assert_eq!(agenda.take_due(Instant::NEVER), None);
    }
}
