//! The consequences of changes: tasting, orphaning, spoiling, resizing, withering.

use alloc::format;
use alloc::vec::Vec;

use flysch_api::block;

use crate::class::{Class, News};
use crate::error::Error;
use crate::graph::Graph;
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::{Outcome, Taste, Verdict};

/// A pending event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A provider is new, or was written: all classes taste it.
    Provider(ProviderId),
    /// A class is new: it tastes all providers.
    Class(&'static str),
    /// A provider is gone: its consumers are told, before any other event.
    Orphan(ProviderId),
    /// Somebody wrote: a consumer is told.
    Spoiled(ConsumerId),
}

impl Graph {
    pub(crate) fn post(&mut self, event: Event) {
        if self.events.contains(&event) {
            return;
        }
        match event {
            Event::Orphan(_) => self.events.push_front(event),
            _ => self.events.push_back(event),
        }
    }

    /// Processes all pending events, including those that arise meanwhile.
    pub fn settle(&mut self) {
        loop {
            match self.events.pop_front() {
                Some(Event::Orphan(provider)) => self.tell_orphans(provider),
                Some(Event::Spoiled(consumer)) => self.tell_spoiled(consumer),
                Some(Event::Provider(provider)) => {
                    // The class registered last is asked first.
                    for class in self.classes.clone().into_iter().rev() {
                        self.taste(class, provider);
                    }
                }
                Some(Event::Class(name)) => {
                    let Some(class) = self.class(name) else { continue };
                    let all: Vec<ProviderId> = self.providers().map(|(id, _)| id).collect();
                    all.into_iter().for_each(|provider| self.taste(class, provider));
                }
                None if self.wash() => {}
                None => {
                    let classes = self.classes.clone();
                    if !classes.into_iter().any(|class| class.told(self, News::Settled)) {
                        return;
                    }
                }
            }
        }
    }

    /// Offers a provider to a class, unless the class stands on it already.
    fn taste(&mut self, class: &'static dyn Class, provider: ProviderId) {
        let Some(there) = self.find_provider(provider) else { return };
        if there.error.is_some() || there.media_size == 0 || there.sector_size == 0 {
            return;
        }
        let name = there.name.clone();
        let is_on_it = there.consumers.iter().any(|&consumer| {
            self[self[consumer].geom].class.name() == class.name() && !self[consumer].spoiled
        });
        if is_on_it {
            return;
        }
        let taste = match self.other_name_of(class, provider) {
            Some(name) => Taste::passed(format!("it is another name of {name}: looked for there")),
            None => class.taste(self, provider),
        };
        if taste.outcome() != Outcome::Passed {
            let (word, reason) = (taste.outcome().word(), &taste.reason().text);
            let line = format!("{}: {name} {word}: {reason}", class.name());
            self.say(line);
        }
        if !(matches!(&taste, Taste::Passed(reason) if reason.text.is_empty())) {
            self.record.judge(Verdict { provider: name, class: class.name(), taste });
        }
    }

    /// The name of the provider below, if LABEL only found another name for it: the same bytes need
    /// not be taken twice.
    fn other_name_of(&self, class: &dyn Class, provider: ProviderId) -> Option<&str> {
        let there = &self[provider];
        let is_label = self[there.geom].class.name() == "LABEL" && class.name() != "LABEL";
        let under = &self[self.under(there.geom).filter(|_| is_label)?];
        (under.media_size == there.media_size).then_some(&under.name[..])
    }

    fn tell_orphans(&mut self, provider: ProviderId) {
        let Some(there) = self.find_provider(provider) else { return };
        for consumer in there.consumers.clone() {
            if let Some(there) = self.find_consumer(consumer) {
                let class = self[there.geom].class;
                class.told(self, News::Orphaned(consumer));
            }
        }
    }

    fn tell_spoiled(&mut self, consumer: ConsumerId) {
        let Some(there) = self.find_consumer(consumer).filter(|there| there.spoiled) else {
            return;
        };
        let class = self[there.geom].class;
        class.told(self, News::Spoiled(consumer));
    }

    /// A provider is gone: it takes no requests any more, and its consumers are told.
    pub fn orphan_provider(&mut self, provider: ProviderId, error: block::Error) {
        if self[provider].error.is_none() {
            self.provider_mut(provider).error = Some(error);
            self.post(Event::Orphan(provider));
        }
    }

    /// Removes a geom as soon as it is not in use; its providers are gone from now on.
    pub fn wither_geom(&mut self, geom: GeomId, error: block::Error) {
        self.geom_mut(geom).withering = true;
        for provider in self[geom].providers.clone() {
            self.orphan_provider(provider, error);
        }
    }

    /// Removes one provider of a geom as soon as it is not in use.
    pub fn wither_provider(&mut self, provider: ProviderId, error: block::Error) {
        self.orphan_provider(provider, error);
    }

    /// Closes `consumer`, detaches it and lets its geom wither: for classes that need it.
    pub fn wither_with(&mut self, consumer: ConsumerId) {
        let geom = self[consumer].geom;
        self.wither_geom(geom, block::Error::Gone);
        self.settle_orphans();
        if self.find_consumer(consumer).is_some() {
            self.drop_consumer(consumer);
        }
    }

    /// Tells the consumers of providers that are gone, immediately.
    pub fn settle_orphans(&mut self) {
        while let Some(Event::Orphan(provider)) = self.events.front().copied() {
            self.events.pop_front();
            self.tell_orphans(provider);
        }
    }

    /// A component failed a queued request that others completed ([`crate::Incident::Lost`]): its
    /// class records the consequences. New plans do without the component.
    pub fn failed(&mut self, consumer: ConsumerId, error: block::Error) {
        if let Some(there) = self.find_consumer(consumer) {
            let class = self[there.geom].class;
            class.told(self, News::Failed(consumer, error));
            self.settle_orphans();
        }
    }

    /// The medium under a provider has changed its size. Consumers that cannot use a smaller one
    /// are orphaned.
    pub fn resize_provider(&mut self, provider: ProviderId, size: u64) {
        let before = self[provider].media_size;
        self.provider_mut(provider).media_size = size;
        for consumer in self[provider].consumers.clone() {
            let Some(there) = self.find_consumer(consumer) else { continue };
            let class = self[there.geom].class;
            if !class.told(self, News::Resized(consumer)) && size < before {
                class.told(self, News::Orphaned(consumer));
            }
        }
        if size > before {
            self.post(Event::Provider(provider));
        }
    }

    /// The medium was changed: nothing that was tasted is valid any more.
    pub fn media_changed(&mut self, provider: ProviderId) {
        self.spoil(provider, None);
        self.post(Event::Provider(provider));
    }

    /// Forgets withering objects that are no longer in use; returns whether there were any.
    fn wash(&mut self) -> bool {
        let gone = |(id, provider): (ProviderId, &crate::object::Provider)| {
            let is_idle = provider.error.is_some() && provider.consumers.is_empty();
            is_idle.then_some(id)
        };
        let providers: Vec<ProviderId> = self.providers().filter_map(gone).collect();
        let mut changed = !providers.is_empty();
        providers.into_iter().for_each(|provider| self.drop_provider(provider));
        let withered: Vec<GeomId> = self
            .geoms()
            .filter(|(_, geom)| geom.withering && geom.providers.is_empty())
            .map(|(id, _)| id)
            .collect();
        changed |= !withered.is_empty();
        withered.into_iter().for_each(|geom| self.drop_geom(geom));
        changed
    }

    /// Lets every class taste a provider again, if it is idle.
    ///
    /// # Errors
    /// If it is open.
    pub fn retaste(&mut self, provider: ProviderId) -> Result<(), Error> {
        let there = &self[provider];
        if there.access != crate::Access::NONE {
            let cause = format!("is open ({})", there.access);
            return Err(Error::new(crate::Kind::Busy, &there.name, cause));
        }
        self.post(Event::Provider(provider));
        Ok(())
    }
}
