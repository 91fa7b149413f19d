//! The graph: its objects, its classes, and what happens when either changes.
//!
//! A geom is an instance of a class, the methods of a class take the graph, and the graph has the
//! geoms. These three types cannot be defined without each other, so they are in one module. It
//! geoms. These three types cannot be defined without each other, so they are in one module. It
//! knows the contract of classes ([`Class`]), but no class except DEV, which stands for the users
//! outside. Whatever needs no class has a module of its own: providers and consumers, open counts,
//! requests, events, the record.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::ops::Index;

use flysch_random::SplitMix64;

use crate::error::GeomError;
use crate::events::{Event, Events};
use crate::io::Shape;
use crate::object::{Consumer, ConsumerId, GeomId, Provider, ProviderId};
use crate::record::Record;

mod class;
mod dev;
mod objects;
mod opens;
mod requests;
mod settle;

pub use class::{Class, Config, News, Object, Requests, Value, pass_access, wither_with};
pub use dev::DEV;
pub use objects::{DEPTH_MAX, Geom, Objects, PROVIDERS_MAX};

/// All objects, with one owner.
#[derive(Default)]
pub struct Graph {
    /// What classes decided and what happened.
    pub record: Record,
    classes: Vec<&'static dyn Class>,
    pub(crate) objects: Objects,
    events: Events,
    random: SplitMix64,
    clock: Option<fn() -> u64>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { classes, objects, events, .. } = self;
        let classes: Vec<_> = classes.iter().map(|class| class.name()).collect();
        f.debug_struct("Graph")
            .field("classes", &classes)
            .field("objects", objects)
            .field("events", events)
            .finish_non_exhaustive()
    }
}

macro_rules! index {
    ($id:ident, $object:ident) => {
        /// # Panics
        /// If it is gone.
        impl Index<$id> for Graph {
            type Output = $object;

            fn index(&self, id: $id) -> &$object {
                &self.objects[id]
            }
        }
    };
}

index!(GeomId, Geom);
index!(ProviderId, Provider);
index!(ConsumerId, Consumer);

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
        self.events.post(Event::Class(self.classes.len()));
        self.classes.push(class);
    }

    /// The classes in order of registration.
    pub fn classes(&self) -> impl Iterator<Item = &'static dyn Class> {
        self.classes.iter().copied()
    }

    /// A number that is unpredictable without knowledge of the seed, for identifiers.
    pub fn random(&mut self) -> u64 {
        self.random.bits()
    }

    /// The geoms, providers and consumers.
    #[must_use]
    pub const fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The provider with this name; a leading `/dev/` is ignored.
    ///
    /// # Errors
    /// If there is none.
    pub fn provider(&self, name: &str) -> Result<ProviderId, GeomError> {
        self.objects.provider_named(name)
    }

    /// The geom with this class and name; a leading `/dev/` is ignored.
    ///
    /// # Errors
    /// If there is none.
    pub fn geom(&self, class: &str, name: &str) -> Result<GeomId, GeomError> {
        self.objects.geom_named(class, name)
    }

    /// The state that the class keeps for a geom, if it is a `T`.
    pub fn state<T: Any>(&self, geom: GeomId) -> Option<&T> {
        self.objects.geom(geom)?.state.as_ref()?.downcast_ref()
    }

    /// The same, mutable.
    pub fn state_mut<T: Any>(&mut self, geom: GeomId) -> Option<&mut T> {
        self.objects.geom_mut(geom)?.state.as_mut()?.downcast_mut()
    }

    /// Sets the state of a geom.
    pub fn set_state(&mut self, geom: GeomId, state: impl Any) {
        self.objects[geom].state = Some(Box::new(state));
    }

    /// A new geom without consumers and providers.
    pub fn new_geom(&mut self, class: &'static dyn Class, name: impl Into<String>) -> GeomId {
        self.objects.add_geom(class, name.into())
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
    ) -> Result<ProviderId, GeomError> {
        let provider = self.objects.add_provider(geom, name.into(), shape)?;
        self.events.post(Event::Provider(provider));
        Ok(provider)
    }

    /// A new, unattached consumer.
    pub fn new_consumer(&mut self, geom: GeomId) -> ConsumerId {
        self.objects.add_consumer(geom)
    }

    /// Attaches a consumer to a provider.
    ///
    /// # Errors
    /// [`Kind::Loop`](crate::Kind::Loop) if the geom would be stacked on itself, or if more than
    /// [`DEPTH_MAX`] would be stacked.
    ///
    /// # Panics
    /// If it is attached already.
    pub fn attach(&mut self, consumer: ConsumerId, provider: ProviderId) -> Result<(), GeomError> {
        self.objects.attach(consumer, provider)
    }

    /// Closes, detaches and forgets a consumer.
    pub fn drop_consumer(&mut self, consumer: ConsumerId) {
        self.close(consumer);
        // Closing it may have removed its provider, and the consumer with it.
        if self.objects.consumer(consumer).is_some() {
            self.objects.remove_consumer(consumer);
        }
    }

    /// Forgets a geom without providers, and its consumers.
    pub(crate) fn drop_geom(&mut self, geom: GeomId) {
        for consumer in self[geom].consumers.clone() {
            if self.objects.consumer(consumer).is_some() {
                self.drop_consumer(consumer);
            }
        }
        self.objects.remove_geom(geom);
    }

    /// An attribute of a provider, as its class or those below it report it.
    pub fn attribute(&self, provider: ProviderId, name: &str) -> Option<Value> {
        self[self[provider].geom].class.attribute(self, provider, name)
    }
}
