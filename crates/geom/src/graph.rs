//! The graph: its objects, and which stand on which.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::ops::Index;

use flysch_random::SplitMix64;

use crate::access::Access;
use crate::class::{Class, Value};
use crate::error::{Error, Kind};
use crate::events::Event;
use crate::io::Shape;
use crate::object::{Consumer, ConsumerId, Geom, GeomId, Provider, ProviderId, Statistics};
use crate::record::{Record, Verdict};

/// Maximum rank of a geom: at most so many stand on each other.
pub const DEPTH_MAX: u32 = 32;
/// Maximum number of providers: no metadata can create more of them.
pub const PROVIDERS_MAX: usize = 16384;

/// All objects, with one owner.
#[derive(Default)]
pub struct Graph {
    pub(crate) classes: Vec<&'static dyn Class>,
    geoms: BTreeMap<GeomId, Geom>,
    providers: BTreeMap<ProviderId, Provider>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    next: u32,
    pub(crate) events: VecDeque<Event>,
    pub(crate) record: Record,
    random: SplitMix64,
    pub(crate) clock: Option<fn() -> u64>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { classes, geoms, providers, consumers, events, .. } = self;
        let classes: Vec<_> = classes.iter().map(|class| class.name()).collect();
        f.debug_struct("Graph")
            .field("classes", &classes)
            .field("geoms", geoms)
            .field("providers", providers)
            .field("consumers", consumers)
            .field("events", events)
            .finish_non_exhaustive()
    }
}

macro_rules! index {
    ($id:ident, $object:ident, $field:ident) => {
        /// # Panics
        /// If it is gone.
        impl Index<$id> for Graph {
            type Output = $object;

            fn index(&self, id: $id) -> &$object {
                self.$field.get(&id).expect("the object is there")
            }
        }
    };
}

index!(GeomId, Geom, geoms);
index!(ProviderId, Provider, providers);
index!(ConsumerId, Consumer, consumers);

impl Graph {
    /// An empty graph with these classes. Identifiers of new metadata derive from `seed`.
    #[must_use]
    pub fn new(classes: &[&'static dyn Class], seed: u64) -> Self {
        Self { classes: classes.to_vec(), random: SplitMix64::new(seed), ..Self::default() }
    }

    /// Measures the times of requests from now on with a monotonic clock in nanoseconds.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.clock = Some(clock);
    }

    /// Adds a class; it is offered every provider at the next [`settle`](Self::settle).
    pub fn register(&mut self, class: &'static dyn Class) {
        self.classes.push(class);
        self.post(Event::Class(class.name()));
    }

    /// The class with this name, in upper or lower case.
    pub fn class(&self, name: &str) -> Option<&'static dyn Class> {
        self.classes.iter().find(|class| class.name().eq_ignore_ascii_case(name)).copied()
    }

    /// All geoms, oldest first.
    pub fn geoms(&self) -> impl DoubleEndedIterator<Item = (GeomId, &Geom)> {
        self.geoms.iter().map(|(id, geom)| (*id, geom))
    }

    /// All geoms of a class, oldest first, except withering ones.
    pub fn geoms_of<'a>(
        &'a self,
        class: &'a str,
    ) -> impl DoubleEndedIterator<Item = (GeomId, &'a Geom)> {
        self.geoms().filter(move |(_, geom)| geom.class.name() == class && !geom.withering)
    }

    /// All providers, oldest first.
    pub fn providers(&self) -> impl DoubleEndedIterator<Item = (ProviderId, &Provider)> {
        self.providers.iter().map(|(id, provider)| (*id, provider))
    }

    /// The provider with this name; a leading `/dev/` is ignored.
    ///
    /// # Errors
    /// If there is none.
    pub fn provider(&self, name: &str) -> Result<ProviderId, Error> {
        let wanted = name.strip_prefix("/dev/").unwrap_or(name);
        let mut all = self.providers();
        let found = all.find(|(_, provider)| provider.name == wanted && provider.error.is_none());
        found.map(|(id, _)| id).ok_or_else(|| {
            let there: Vec<&str> =
                self.providers().map(|(_, provider)| &provider.name[..]).take(12).collect();
            let cause = match &there[..] {
                [] => "there is no such provider, nor any other".into(),
                names => format!("there is no such provider; there are {}", names.join(", ")),
            };
            Error::new(Kind::NotFound, wanted, cause)
        })
    }

    /// The geom with this class and name.
    ///
    /// # Errors
    /// If there is none.
    pub fn geom(&self, class: &str, name: &str) -> Result<GeomId, Error> {
        let wanted = name.strip_prefix("/dev/").unwrap_or(name);
        let mut all = self.geoms_of(class);
        let found = all.find(|(_, geom)| geom.name == wanted).map(|(id, _)| id);
        found.ok_or_else(|| Error::not_found(wanted, &format!("geom of class {class}")))
    }

    /// A consumer, if it still exists.
    #[must_use]
    pub fn find_consumer(&self, consumer: ConsumerId) -> Option<&Consumer> {
        self.consumers.get(&consumer)
    }

    pub(crate) fn find_consumer_mut(&mut self, consumer: ConsumerId) -> Option<&mut Consumer> {
        self.consumers.get_mut(&consumer)
    }

    /// A provider, if it still exists.
    #[must_use]
    pub fn find_provider(&self, provider: ProviderId) -> Option<&Provider> {
        self.providers.get(&provider)
    }

    pub(crate) fn find_provider_mut(&mut self, provider: ProviderId) -> Option<&mut Provider> {
        self.providers.get_mut(&provider)
    }

    pub(crate) fn provider_mut(&mut self, provider: ProviderId) -> &mut Provider {
        self.providers.get_mut(&provider).expect("the provider is there")
    }

    pub(crate) fn consumer_mut(&mut self, consumer: ConsumerId) -> &mut Consumer {
        self.consumers.get_mut(&consumer).expect("the consumer is there")
    }

    pub(crate) fn geom_mut(&mut self, geom: GeomId) -> &mut Geom {
        self.geoms.get_mut(&geom).expect("the geom is there")
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A number that is unpredictable without knowledge of the seed, for identifiers.
    pub fn random(&mut self) -> u64 {
        self.random.bits()
    }

    /// Records a message about an event.
    pub fn say(&mut self, message: String) {
        self.record.say(message);
    }

    /// The recorded messages, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.record.messages.iter().map(String::as_str)
    }

    /// The newest verdict of every class on every provider.
    pub fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.record.verdicts.iter()
    }

    /// A new geom without consumers and providers.
    pub fn new_geom(&mut self, class: &'static dyn Class, name: impl Into<String>) -> GeomId {
        let id = GeomId(self.number());
        let geom = Geom {
            class,
            name: name.into(),
            rank: 1,
            providers: Vec::new(),
            consumers: Vec::new(),
            withering: false,
            state: None,
        };
        self.geoms.insert(id, geom);
        id
    }

    /// The state that the class keeps for a geom, if it is a `T`.
    pub fn state<T: Any>(&self, geom: GeomId) -> Option<&T> {
        self.geoms.get(&geom)?.state.as_ref()?.downcast_ref()
    }

    /// The same, mutable.
    pub fn state_mut<T: Any>(&mut self, geom: GeomId) -> Option<&mut T> {
        self.geoms.get_mut(&geom)?.state.as_mut()?.downcast_mut()
    }

    /// Sets the state of a geom.
    pub fn set_state(&mut self, geom: GeomId, state: impl Any) {
        self.geom_mut(geom).state = Some(Box::new(state));
    }

    /// A new provider; it is offered to every class at the next [`settle`](Self::settle).
    ///
    /// # Errors
    /// If the name is taken, or if there are too many already.
    pub fn new_provider(
        &mut self,
        geom: GeomId,
        name: impl Into<String>,
        shape: Shape,
    ) -> Result<ProviderId, Error> {
        let name = name.into();
        if self.providers.len() >= PROVIDERS_MAX {
            let cause = format!("there are already {PROVIDERS_MAX} providers");
            return Err(Error::new(Kind::NoSpace, name, cause));
        }
        let is_taken = |other: &Provider| other.name == name && other.error.is_none();
        if self.providers.values().any(is_taken) {
            return Err(Error::new(Kind::Exists, name, "a provider of this name already exists"));
        }
        let id = ProviderId(self.number());
        let provider = Provider {
            geom,
            name,
            media_size: shape.media_size,
            sector_size: shape.sector_size,
            stripe_size: shape.stripe_size,
            stripe_offset: shape.stripe_offset,
            access: Access::NONE,
            consumers: Vec::new(),
            error: None,
            statistics: Statistics::default(),
        };
        self.providers.insert(id, provider);
        self.geom_mut(geom).providers.push(id);
        self.post(Event::Provider(id));
        Ok(id)
    }

    /// Renames an idle provider, as FreeBSD renames partitions.
    pub fn rename(&mut self, provider: ProviderId, name: impl Into<String>) {
        self.provider_mut(provider).name = name.into();
    }

    /// A new, unattached consumer.
    pub fn new_consumer(&mut self, geom: GeomId) -> ConsumerId {
        let id = ConsumerId(self.number());
        let consumer = Consumer {
            geom,
            provider: None,
            access: Access::NONE,
            spoiled: false,
            statistics: Statistics::default(),
        };
        self.consumers.insert(id, consumer);
        self.geom_mut(geom).consumers.push(id);
        id
    }

    /// Attaches a consumer to a provider.
    ///
    /// # Errors
    /// [`Kind::Loop`] if the geom would stand on itself, or if more than [`DEPTH_MAX`] would stand
    /// on each other.
    ///
    /// # Panics
    /// If it is attached already.
    pub fn attach(&mut self, consumer: ConsumerId, provider: ProviderId) -> Result<(), Error> {
        assert!(self[consumer].provider.is_none(), "a consumer has one provider");
        let (geom, beneath) = (self[consumer].geom, self[provider].geom);
        let name = || self[provider].name.clone();
        if self.stands_on(beneath, geom) {
            let cause = format!("{} would be on top of itself", self[geom].name);
            return Err(Error::new(Kind::Loop, name(), cause));
        }
        let rank = self[geom].rank.max(self[beneath].rank + 1);
        if rank + self.height_above(geom) > DEPTH_MAX {
            let cause = format!("more than {DEPTH_MAX} geoms would be on top of each other");
            return Err(Error::new(Kind::Loop, name(), cause));
        }
        self.consumer_mut(consumer).provider = Some(provider);
        self.consumer_mut(consumer).spoiled = false;
        self.provider_mut(provider).consumers.push(consumer);
        self.rank(geom);
        Ok(())
    }

    /// Detaches a consumer from its provider.
    ///
    /// # Panics
    /// If it has its provider open.
    pub fn detach(&mut self, consumer: ConsumerId) {
        assert!(self[consumer].access == Access::NONE, "what is detached is closed");
        let Some(provider) = self.consumer_mut(consumer).provider.take() else { return };
        self.provider_mut(provider).consumers.retain(|other| *other != consumer);
        let geom = self[consumer].geom;
        self.rank(geom);
    }

    /// Whether `above` is `below` or stands on it.
    fn stands_on(&self, above: GeomId, below: GeomId) -> bool {
        above == below || self.beneath(above).any(|geom| self.stands_on(geom, below))
    }

    /// The geoms directly below one.
    fn beneath(&self, geom: GeomId) -> impl Iterator<Item = GeomId> + '_ {
        let providers = self[geom].consumers.iter().filter_map(|&c| self[c].provider);
        providers.map(|provider| self[provider].geom)
    }

    /// The geoms directly above one.
    fn above(&self, geom: GeomId) -> impl Iterator<Item = GeomId> + '_ {
        let providers = self[geom].providers.iter().map(|&provider| &self[provider]);
        providers.flat_map(|provider| provider.consumers.iter().map(|&c| self[c].geom))
    }

    /// The number of geoms that stand on each other above one.
    fn height_above(&self, geom: GeomId) -> u32 {
        let above = self.above(geom).map(|geom| 1 + self.height_above(geom));
        above.max().unwrap_or(0)
    }

    /// Computes the ranks of a geom and of those above it. [`attach`](Self::attach) guarantees that
    /// this terminates.
    fn rank(&mut self, geom: GeomId) {
        let beneath = self.beneath(geom).map(|geom| self[geom].rank).max();
        let rank = beneath.unwrap_or(0) + 1;
        if self[geom].rank != rank {
            self.geom_mut(geom).rank = rank;
            for above in self.above(geom).collect::<Vec<_>>() {
                self.rank(above);
            }
        }
    }

    /// Closes, detaches and forgets a consumer.
    pub fn drop_consumer(&mut self, consumer: ConsumerId) {
        self.close(consumer);
        if self.find_consumer(consumer).is_none() {
            // Its provider went away when it was closed, and took it along.
            return;
        }
        self.detach(consumer);
        let geom = self[consumer].geom;
        self.geom_mut(geom).consumers.retain(|other| *other != consumer);
        self.consumers.remove(&consumer);
    }

    /// Forgets a provider without consumers.
    pub(crate) fn drop_provider(&mut self, provider: ProviderId) {
        let geom = self[provider].geom;
        self.geom_mut(geom).providers.retain(|other| *other != provider);
        self.providers.remove(&provider);
    }

    /// Forgets a geom without providers, and its consumers.
    pub(crate) fn drop_geom(&mut self, geom: GeomId) {
        for consumer in self[geom].consumers.clone() {
            if self.find_consumer(consumer).is_some() {
                self.drop_consumer(consumer);
            }
        }
        let left = self.geoms.get(&geom).map_or(0, |geom| geom.providers.len());
        debug_assert_eq!(left, 0, "somebody may stand on a provider");
        self.geoms.remove(&geom);
    }

    /// An attribute of a provider, as its class or those below it report it.
    pub fn attribute(&self, provider: ProviderId, name: &str) -> Option<Value> {
        self[self[provider].geom].class.attribute(self, provider, name)
    }

    /// The provider that the first consumer of a geom is attached to.
    pub fn under(&self, geom: GeomId) -> Option<ProviderId> {
        self[geom].consumers.first().and_then(|&consumer| self[consumer].provider)
    }
}
