//! What will happen in a model, in order of time.

use alloc::collections::BinaryHeap;
use core::cmp::{Ordering, Reverse};

use flysch_api::machine::Instant;

/// A queue of events. Events of the same instant come out in the order they went in, so a model is
/// deterministic.
#[derive(Debug)]
pub struct Events<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    sequence: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<T: Copy> Events<T> {
    /// An empty queue with room for `capacity` events before it must grow.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { heap: BinaryHeap::with_capacity(capacity), sequence: 0 }
    }

    /// Adds an event.
    #[inline]
    pub fn push(&mut self, at: Instant, what: T) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, what }));
    }

    /// The instant of the first event.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.0.at)
    }

    /// Takes the first event if it is due at `now`.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|entry| (entry.0.at, entry.0.what))
    }

    /// Drops the events for which `keep` does not hold.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.heap.retain(|entry| keep(&entry.0.what));
    }

    /// Number of events waiting.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
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
        let order: alloc::vec::Vec<char> =
            core::iter::from_fn(|| events.pop_due(Instant::NEVER)).map(|(_, what)| what).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }
}
