//! The store: all geoms, providers and consumers, and how they are stacked. It calls no class.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::ops::{Index, IndexMut};

use super::class::Class;
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::io::Shape;
use crate::object::{Consumer, ConsumerId, GeomId, Provider, ProviderId};

#[cfg(test)]
mod tests;

/// Maximum rank of a geom: at most this many are stacked.
pub const DEPTH_MAX: u32 = 32;
/// Maximum number of providers: no metadata can create more of them.
pub const PROVIDERS_MAX: usize = 16384;

/// An instance of a class.
pub struct Geom {
    /// The class.
    pub class: &'static dyn Class,
    /// Its name.
    pub name: String,
    /// 1 if it has no consumers, otherwise one more than the highest rank below it.
    pub rank: u32,
    /// Its providers, oldest first.
    pub providers: Vec<ProviderId>,
    /// Its consumers, oldest first.
    pub consumers: Vec<ConsumerId>,
    /// It is removed as soon as it is no longer in use.
    pub withering: bool,
    pub(crate) state: Option<Box<dyn Any>>,
}

impl fmt::Debug for Geom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, name, rank, providers, consumers, withering, state: _ } = self;
        f.debug_struct("Geom")
            .field("class", &class.name())
            .field("name", name)
            .field("rank", rank)
            .field("providers", providers)
            .field("consumers", consumers)
            .field("withering", withering)
            .finish_non_exhaustive()
    }
}

/// The geoms, providers and consumers of a graph ([`Graph::objects`](crate::Graph::objects)).
#[derive(Debug, Default)]
pub struct Objects {
    geoms: BTreeMap<GeomId, Geom>,
    providers: BTreeMap<ProviderId, Provider>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    /// The number of the newest object.
    newest: u32,
}

macro_rules! index {
    ($id:ident, $object:ident, $field:ident) => {
        /// # Panics
        /// If it is gone.
        impl Index<$id> for Objects {
            type Output = $object;

            fn index(&self, id: $id) -> &$object {
                self.$field.get(&id).expect("the object is there")
            }
        }

        /// # Panics
        /// If it is gone.
        impl IndexMut<$id> for Objects {
            fn index_mut(&mut self, id: $id) -> &mut $object {
                self.$field.get_mut(&id).expect("the object is there")
            }
        }
    };
}

index!(GeomId, Geom, geoms);
index!(ProviderId, Provider, providers);
index!(ConsumerId, Consumer, consumers);

/// Queries.
impl Objects {
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

    /// A geom, if it still exists.
    #[must_use]
    pub fn geom(&self, geom: GeomId) -> Option<&Geom> {
        self.geoms.get(&geom)
    }

    pub(super) fn geom_mut(&mut self, geom: GeomId) -> Option<&mut Geom> {
        self.geoms.get_mut(&geom)
    }

    /// A provider, if it still exists.
    #[must_use]
    pub fn provider(&self, provider: ProviderId) -> Option<&Provider> {
        self.providers.get(&provider)
    }

    pub(crate) fn provider_mut(&mut self, provider: ProviderId) -> Option<&mut Provider> {
        self.providers.get_mut(&provider)
    }

    /// A consumer, if it still exists.
    #[must_use]
    pub fn consumer(&self, consumer: ConsumerId) -> Option<&Consumer> {
        self.consumers.get(&consumer)
    }

    pub(crate) fn consumer_mut(&mut self, consumer: ConsumerId) -> Option<&mut Consumer> {
        self.consumers.get_mut(&consumer)
    }

    /// The provider that the first consumer of a geom is attached to.
    ///
    /// # Panics
    /// If the geom is gone.
    #[must_use]
    pub fn under(&self, geom: GeomId) -> Option<ProviderId> {
        self[geom].consumers.first().and_then(|&consumer| self[consumer].provider)
    }

    /// The provider with this name; a leading `/dev/` is ignored.
    pub(super) fn provider_named(&self, name: &str) -> Result<ProviderId, GeomError> {
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
            GeomError::new(Kind::NotFound, wanted, cause)
        })
    }

    /// The geom with this class and name; a leading `/dev/` is ignored.
    pub(super) fn geom_named(&self, class: &str, name: &str) -> Result<GeomId, GeomError> {
        let wanted = name.strip_prefix("/dev/").unwrap_or(name);
        let mut all = self.geoms_of(class);
        let found = all.find(|(_, geom)| geom.name == wanted).map(|(id, _)| id);
        found.ok_or_else(|| GeomError::not_found(wanted, &format!("geom of class {class}")))
    }
}

/// Creation and removal.
impl Objects {
    fn number(&mut self) -> u32 {
        self.newest += 1;
        self.newest
    }

    /// Adds a geom without consumers and providers.
    pub(super) fn add_geom(&mut self, class: &'static dyn Class, name: String) -> GeomId {
        let id = GeomId(self.number());
        let geom = Geom {
            class,
            name,
            rank: 1,
            providers: Vec::new(),
            consumers: Vec::new(),
            withering: false,
            state: None,
        };
        self.geoms.insert(id, geom);
        id
    }

    /// Adds a provider to a geom.
    ///
    /// # Errors
    /// If the name is taken, or if there are too many already.
    pub(super) fn add_provider(
        &mut self,
        geom: GeomId,
        name: String,
        shape: Shape,
    ) -> Result<ProviderId, GeomError> {
        if self.providers.len() >= PROVIDERS_MAX {
            let cause = format!("there are already {PROVIDERS_MAX} providers");
            return Err(GeomError::new(Kind::NoSpace, name, cause));
        }
        let is_taken = |other: &Provider| other.name == name && other.error.is_none();
        if self.providers.values().any(is_taken) {
            return Err(GeomError::new(
                Kind::Exists,
                name,
                "a provider of this name already exists",
            ));
        }
        let id = ProviderId(self.number());
        self.providers.insert(id, Provider::new(geom, name, shape));
        self[geom].providers.push(id);
        Ok(id)
    }

    /// Adds an unattached consumer to a geom.
    pub(super) fn add_consumer(&mut self, geom: GeomId) -> ConsumerId {
        let id = ConsumerId(self.number());
        self.consumers.insert(id, Consumer::new(geom));
        self[geom].consumers.push(id);
        id
    }

    /// Forgets a consumer that is closed.
    pub(super) fn remove_consumer(&mut self, consumer: ConsumerId) {
        self.detach(consumer);
        let geom = self[consumer].geom;
        self[geom].consumers.retain(|other| *other != consumer);
        self.consumers.remove(&consumer);
    }

    /// Forgets a provider without consumers.
    pub(super) fn remove_provider(&mut self, provider: ProviderId) {
        let geom = self[provider].geom;
        self[geom].providers.retain(|other| *other != provider);
        self.providers.remove(&provider);
    }

    /// Forgets a geom without providers and consumers.
    pub(super) fn remove_geom(&mut self, geom: GeomId) {
        let left = self.geoms.get(&geom).map_or(0, |geom| geom.providers.len());
        debug_assert_eq!(left, 0, "somebody may stand on a provider");
        self.geoms.remove(&geom);
    }

    /// Forgets the providers that are gone and that nobody uses any more; returns whether there
    /// were any.
    pub(super) fn remove_idle_providers(&mut self) -> bool {
        let is_idle = |it: &Provider| it.error.is_some() && it.consumers.is_empty();
        let idle: Vec<_> =
            self.providers().filter(|(_, it)| is_idle(it)).map(|(id, _)| id).collect();
        idle.iter().for_each(|&provider| self.remove_provider(provider));
        !idle.is_empty()
    }

    /// The geoms that wither and have no providers any more.
    pub(super) fn withered(&self) -> Vec<GeomId> {
        let is_withered = |geom: &Geom| geom.withering && geom.providers.is_empty();
        self.geoms().filter(|(_, geom)| is_withered(geom)).map(|(id, _)| id).collect()
    }
}

/// Stacking.
impl Objects {
    /// Attaches a consumer to a provider.
    ///
    /// # Errors
    /// [`Kind::Loop`] if the geom would be stacked on itself, or if more than [`DEPTH_MAX`] would
    /// be stacked.
    ///
    /// # Panics
    /// If it is attached already.
    pub(super) fn attach(
        &mut self,
        consumer: ConsumerId,
        provider: ProviderId,
    ) -> Result<(), GeomError> {
        assert!(self[consumer].provider.is_none(), "a consumer has one provider");
        let (geom, beneath) = (self[consumer].geom, self[provider].geom);
        let name = || self[provider].name.clone();
        if self.stands_on(beneath, geom) {
            let cause = format!("{} would be on top of itself", self[geom].name);
            return Err(GeomError::new(Kind::Loop, name(), cause));
        }
        let rank = self[geom].rank.max(self[beneath].rank + 1);
        if rank + self.height_above(geom) > DEPTH_MAX {
            let cause = format!("more than {DEPTH_MAX} geoms would be on top of each other");
            return Err(GeomError::new(Kind::Loop, name(), cause));
        }
        let attached = &mut self[consumer];
        (attached.provider, attached.spoiled) = (Some(provider), false);
        self[provider].consumers.push(consumer);
        self.rank(geom);
        Ok(())
    }

    /// Detaches a consumer from its provider.
    ///
    /// # Panics
    /// If it has its provider open.
    fn detach(&mut self, consumer: ConsumerId) {
        assert!(self[consumer].access == Access::NONE, "what is detached is closed");
        let Some(provider) = self[consumer].provider.take() else { return };
        self[provider].consumers.retain(|other| *other != consumer);
        let geom = self[consumer].geom;
        self.rank(geom);
    }

    /// Whether `above` is `below` or is stacked on it.
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

    /// The height of the stack of geoms above one.
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
            self[geom].rank = rank;
            for above in self.above(geom).collect::<Vec<_>>() {
                self.rank(above);
            }
        }
    }
}
