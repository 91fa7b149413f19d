//! Events that wait for [`Graph::settle`](crate::Graph::settle).

use alloc::collections::VecDeque;

use crate::object::{ConsumerId, ProviderId};

/// A pending event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A provider is new, or was written: all classes taste it.
    Provider(ProviderId),
    /// A class is new: it tastes all providers. Its number in order of registration.
    Class(usize),
    /// A provider is gone: its consumers are told before any other event is processed.
    Orphan(ProviderId),
    /// Somebody wrote: a consumer is told.
    Spoiled(ConsumerId),
}

/// Pending events, each at most once.
#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<Event>);

impl Events {
    /// Adds an event: at the front if it is about a provider that is gone, otherwise at the end.
    pub(crate) fn post(&mut self, event: Event) {
        if self.0.contains(&event) {
            return;
        }
        match event {
            Event::Orphan(_) => self.0.push_front(event),
            _ => self.0.push_back(event),
        }
    }

    /// Adds an event for each consumer on a provider that somebody wrote.
    pub(crate) fn spoiled(&mut self, consumers: impl IntoIterator<Item = ConsumerId>) {
        consumers.into_iter().for_each(|consumer| self.post(Event::Spoiled(consumer)));
    }

    /// Takes the next event.
    pub(crate) fn next(&mut self) -> Option<Event> {
        self.0.pop_front()
    }

    /// Takes the next provider that is gone.
    pub(crate) fn next_orphan(&mut self) -> Option<ProviderId> {
        let Some(&Event::Orphan(provider)) = self.0.front() else { return None };
        self.0.pop_front();
        Some(provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_that_are_gone_come_first_and_nothing_comes_twice() {
        let mut events = Events::default();
        let (one, other) = (ProviderId(1), ProviderId(2));
        for event in [Event::Provider(one), Event::Class(0), Event::Provider(one)] {
            events.post(event);
        }
        assert_eq!(events.next_orphan(), None);
        events.post(Event::Orphan(one));
        events.post(Event::Orphan(other));
        events.post(Event::Orphan(one));
        events.post(Event::Spoiled(ConsumerId(3)));
        assert_eq!(events.next_orphan(), Some(other));
        assert_eq!(events.next(), Some(Event::Orphan(one)));
        assert_eq!(events.next_orphan(), None, "others are left");
        let left = core::iter::from_fn(|| events.next());
        let expected = [Event::Provider(one), Event::Class(0), Event::Spoiled(ConsumerId(3))];
        assert!(left.eq(expected));
    }
}
