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

#[cfg(test)]
mod tests {
    use super::*;

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
