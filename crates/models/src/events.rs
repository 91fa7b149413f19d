//! Future events in a model, in order of time.

use alloc::vec::Vec;

use flysch_api::machine::Instant;

/// A queue of events. Events of the same instant come out in the order in which they were added, so
/// that a model is deterministic.
///
/// A sorted array, latest first: a model has an event or two per command in flight, and at that
/// size one short move of memory is cheaper than a walk through a heap.
#[derive(Debug)]
pub struct Events<T> {
    sorted: Vec<(Instant, T)>,
}

impl<T: Copy> Events<T> {
    /// An empty queue with room for `capacity` events before it grows.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { sorted: Vec::with_capacity(capacity) }
    }

    /// Adds an event.
    #[inline]
    pub fn push(&mut self, at: Instant, what: T) {
        let place = self.sorted.partition_point(|event| event.0 > at);
        self.sorted.insert(place, (at, what));
    }

    /// The instant of the first event.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.sorted.last().map(|event| event.0)
    }

    /// Takes the first event if it is due at `now`.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, T)> {
        self.sorted.pop_if(|event| event.0 <= now)
    }

    /// Drops the events for which `keep` does not hold.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.sorted.retain(|event| keep(&event.1));
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

/// The present of a model, and its future events.
#[derive(Debug)]
pub(crate) struct Clock<T> {
    now: Instant,
    events: Events<T>,
}

impl<T: Copy> Clock<T> {
    /// The start of time, with room for `capacity` events before it must grow.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { now: Instant::START, events: Events::with_capacity(capacity) }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// The present, nanoseconds.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        self.now.nanos()
    }

    /// When the next event happens.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.events.next()
    }

    /// Schedules `event` at `nanos`.
    #[inline]
    pub(crate) fn at(&mut self, nanos: u64, event: T) {
        self.events.push(Instant::from_nanos(nanos), event);
    }

    /// Schedules `event` `nanos` from now.
    pub(crate) fn after(&mut self, nanos: u64, event: T) {
        self.events.push(self.now.after_nanos(nanos), event);
    }

    /// Takes the next event that is due at `now`, and moves the present to it.
    #[inline]
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<T> {
        let (at, event) = self.events.pop_due(now)?;
        self.now = self.now.max(at);
        Some(event)
    }

    /// Moves the present to `now`, unless it is already later.
    #[inline]
    pub(crate) fn pass(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Drops the events for which `keep` does not hold.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.events.retain(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let mut clock = Clock::with_capacity(4);
        clock.pass(Instant::from_nanos(100));
        clock.after(50, 'b');
        clock.at(20, 'a');
        assert_eq!(clock.take_due(Instant::from_nanos(149)), Some('a'));
        assert_eq!((clock.nanos(), clock.next()), (100, Some(Instant::from_nanos(150))));
        clock.pass(Instant::from_nanos(10));
        assert_eq!(clock.nanos(), 100);
        assert_eq!(clock.take_due(Instant::NEVER), Some('b'));
        assert_eq!(clock.now(), Instant::from_nanos(150));
    }

    #[test]
    fn time_first_then_arrival() {
        let mut events = Events::with_capacity(4);
        for (at, what) in [(20, 'c'), (10, 'a'), (20, 'd'), (10, 'b')] {
            events.push(Instant::from_nanos(at), what);
        }
        assert_eq!(events.pop_due(Instant::from_nanos(9)), None);
        let order: Vec<char> =
            core::iter::from_fn(|| events.pop_due(Instant::NEVER)).map(|(_, what)| what).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }
}
