//! The consequences of changes: tasting, orphaning, spoiling, resizing, withering.

use alloc::format;
use alloc::vec::Vec;

use flysch_api::block;

use super::Graph;
use super::class::{Class, News};
use super::objects::Objects;
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::events::Event;
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::{Outcome, Taste, Verdict};

impl Graph {
    /// Processes all pending events, including those that arise meanwhile.
    pub fn settle(&mut self) {
        loop {
            match self.events.next() {
                Some(Event::Orphan(provider)) => self.tell_orphans(provider),
                Some(Event::Spoiled(consumer)) => {
                    if self.objects.consumer(consumer).is_some_and(|there| there.spoiled) {
                        self.tell(consumer, News::Spoiled(consumer));
                    }
                }
                Some(Event::Provider(provider)) => {
                    // The class registered last is asked first.
                    for class in self.classes.clone().into_iter().rev() {
                        self.taste(class, provider);
                    }
                }
                Some(Event::Class(number)) => {
                    let class = self.classes[number];
                    let all: Vec<_> = self.objects.providers().map(|(id, _)| id).collect();
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

    /// Offers a provider to a class, unless the class already uses it.
    fn taste(&mut self, class: &'static dyn Class, provider: ProviderId) {
        let Some(there) = self.objects.provider(provider) else { return };
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
        let taste = match other_name_of(&self.objects, class, provider) {
            Some(name) => Taste::passed(format!("it is another name of {name}: looked for there")),
            None => class.taste(self, provider),
        };
        if taste.outcome() != Outcome::Passed {
            let (word, reason) = (taste.outcome().word(), &taste.reason().text);
            self.record.say(format!("{}: {name} {word}: {reason}", class.name()));
        }
        if !(matches!(&taste, Taste::Passed(reason) if reason.text.is_empty())) {
            self.record.judge(Verdict { provider: name, class: class.name(), taste });
        }
    }

    /// Tells the class of a consumer that is still there; returns its answer.
    fn tell(&mut self, consumer: ConsumerId, news: News) -> Option<bool> {
        let class = self[self.objects.consumer(consumer)?.geom].class;
        Some(class.told(self, news))
    }

    fn tell_orphans(&mut self, provider: ProviderId) {
        let Some(there) = self.objects.provider(provider) else { return };
        for consumer in there.consumers.clone() {
            self.tell(consumer, News::Orphaned(consumer));
        }
    }

    /// Tells the consumers of providers that are gone, immediately.
    pub fn settle_orphans(&mut self) {
        while let Some(provider) = self.events.next_orphan() {
            self.tell_orphans(provider);
        }
    }

    /// Removes one provider of a geom as soon as it is no longer in use: it accepts no more
    /// requests, and its consumers are told.
    pub fn wither_provider(&mut self, provider: ProviderId, error: block::BlockError) {
        if self[provider].error.is_none() {
            self.objects[provider].error = Some(error);
            self.events.post(Event::Orphan(provider));
        }
    }

    /// Removes a geom as soon as it is no longer in use; its providers are gone from now on.
    pub fn wither_geom(&mut self, geom: GeomId, error: block::BlockError) {
        self.objects[geom].withering = true;
        for provider in self[geom].providers.clone() {
            self.wither_provider(provider, error);
        }
    }

    /// Forgets withering objects that are no longer in use; returns whether there were any.
    fn wash(&mut self) -> bool {
        let had_providers = self.objects.remove_idle_providers();
        let withered = self.objects.withered();
        withered.iter().for_each(|&geom| self.drop_geom(geom));
        had_providers || !withered.is_empty()
    }

    /// A component failed a queued request that others completed ([`crate::Incident::Lost`]): its
    /// class records the consequences. New plans do without the component.
    pub fn failed(&mut self, consumer: ConsumerId, error: block::BlockError) {
        if self.tell(consumer, News::Failed(consumer, error)).is_some() {
            self.settle_orphans();
        }
    }

    /// The medium under a provider has changed its size. Consumers that cannot use a smaller one
    /// are orphaned.
    pub fn resize_provider(&mut self, provider: ProviderId, size: u64) {
        let before = self[provider].media_size;
        self.objects[provider].media_size = size;
        for consumer in self[provider].consumers.clone() {
            let fits = self.tell(consumer, News::Resized(consumer));
            if fits == Some(false) && size < before {
                self.tell(consumer, News::Orphaned(consumer));
            }
        }
        if size > before {
            self.events.post(Event::Provider(provider));
        }
    }

    /// The medium was changed: nothing that was tasted is valid any more.
    pub fn media_changed(&mut self, provider: ProviderId) {
        self.events.spoiled(self.objects.spoil(provider, None));
        self.events.post(Event::Provider(provider));
    }

    /// Lets every class taste a provider again, if it is idle.
    ///
    /// # Errors
    /// If it is open.
    pub fn retaste(&mut self, provider: ProviderId) -> Result<(), GeomError> {
        let there = &self[provider];
        if there.access != Access::NONE {
            let cause = format!("is open ({})", there.access);
            return Err(GeomError::new(Kind::Busy, &there.name, cause));
        }
        self.events.post(Event::Provider(provider));
        Ok(())
    }
}

/// The name of the provider below, if LABEL only found another name for it: the same bytes need not
/// be claimed twice.
fn other_name_of<'a>(
    objects: &'a Objects,
    class: &dyn Class,
    provider: ProviderId,
) -> Option<&'a str> {
    let there = &objects[provider];
    let is_label = objects[there.geom].class.name() == "LABEL" && class.name() != "LABEL";
    let under = &objects[objects.under(there.geom).filter(|_| is_label)?];
    (under.media_size == there.media_size).then_some(&under.name[..])
}
