//! Where requests to a provider go: asked of the classes once, when a lane is opened or the graph
//! changed.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::geom::mirror::Balance;

use super::fan::{Concat, Fan, MEMBERS_MAX, Mirror, Stripe};
use crate::error::{Error, Kind};
use crate::graph::Graph;
use crate::object::{ConsumerId, ProviderId, Traffic};
use crate::route::Route;

/// Most places where a way divides, and most branches of all of them together.
const FANS_MAX: usize = 256;
const EDGES_MAX: usize = 1024;

/// A branch: to a lane, or to where the way divides again.
#[derive(Clone, Debug, Default)]
pub(super) struct Edge {
    pub(super) to: To,
    /// Bytes further on.
    pub(super) base: u64,
    /// What went this way.
    pub(super) traffic: Traffic,
    /// The providers that this branch goes through, highest first.
    passes: Vec<ProviderId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Lane(u32),
    Fan(u32),
}

impl Default for To {
    fn default() -> Self {
        Self::Lane(0)
    }
}

/// Names a branch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    /// Where it divides from; `None` of the first one.
    fan: Option<u32>,
    member: u32,
}

impl Branch {
    /// The first one.
    pub(super) const TOP: Self = Self { fan: None, member: 0 };

    /// That to a member.
    pub(super) const fn of(fan: u32, member: u32) -> Self {
        Self { fan: Some(fan), member }
    }
}

/// The way of requests to one provider, down to the disks.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub(super) top: Edge,
    pub(super) fans: Vec<Fan>,
    disks: Vec<ProviderId>,
    /// Most divisions one below the other.
    pub(super) depth: u8,
    pub(super) media_size: u64,
    pub(super) sector_size: u32,
    pub(super) writes: bool,
}

impl Plan {
    /// The disks that requests come to in the end; each is wanted as a lane.
    #[must_use]
    pub fn disks(&self) -> &[ProviderId] {
        &self.disks
    }

    /// The mirror where a job's way divides, if it is one.
    pub(super) fn mirror_mut(&mut self, fan: Option<u32>) -> Option<&mut Mirror> {
        self.fans[fan? as usize].mirror_mut()
    }

    pub(super) fn edge_mut(&mut self, branch: Branch) -> &mut Edge {
        match branch.fan {
            None => &mut self.top,
            Some(fan) => self.fans[fan as usize].edge_mut(branch.member),
        }
    }

    /// All branches.
    fn edges(&self) -> impl Iterator<Item = &Edge> {
        let below = self.fans.iter().flat_map(|fan| fan.edges());
        core::iter::once(&self.top).chain(below)
    }
}

impl Graph {
    /// The way of requests that come from `consumer`, which has its provider open. Whoever writes
    /// has it said to those components that must know it before.
    ///
    /// # Errors
    /// That it is not open; that a class on the way only does one request at a time; that the way
    /// divides too often.
    pub fn plan(&mut self, consumer: ConsumerId) -> Result<Plan, Error> {
        let gone = || Error::not_found("provider", "of this consumer");
        let from = self.find_consumer(consumer).ok_or_else(gone)?;
        let (provider, access) = (from.provider.ok_or_else(gone)?, from.access);
        let there = &self[provider];
        if access.read == 0 && access.write == 0 {
            return Err(Error::new(Kind::NotPermitted, &there.name, "is not open"));
        }
        let (media_size, sector_size) = (there.media_size, there.sector_size);
        let writes = access.write > 0;
        let mut planning = Planning { graph: self, writes, fans: vec![], disks: vec![], edges: 0 };
        let (top, depth) = planning.edge(provider)?;
        let Planning { fans, disks, .. } = planning;
        // A fan that is being made holds its place with nothing in it.
        let fans = fans.into_iter().flatten().collect();
        Ok(Plan { top, fans, disks, depth, media_size, sector_size, writes })
    }

    /// Adds what went a way to the statistics of the providers on it.
    pub fn account(&mut self, plan: &Plan) {
        for edge in plan.edges() {
            for &provider in &edge.passes {
                if let Some(provider) = self.find_provider_mut(provider) {
                    provider.statistics.add(&edge.traffic);
                }
            }
        }
    }
}

struct Planning<'g> {
    graph: &'g mut Graph,
    writes: bool,
    fans: Vec<Option<Fan>>,
    disks: Vec<ProviderId>,
    edges: usize,
}

impl Planning<'_> {
    /// The branch to a provider, and how often it divides below.
    fn edge(&mut self, mut provider: ProviderId) -> Result<(Edge, u8), Error> {
        let mut edge = Edge::default();
        self.edges += 1;
        loop {
            edge.passes.push(provider);
            let class = self.graph[self.graph[provider].geom].class;
            let Some(route) = class.route(self.graph, provider, self.writes)? else {
                let cause = format!("class {} does one request at a time", class.name());
                return Err(Error::invalid(&self.graph[provider].name, cause));
            };
            let consumers: Vec<ConsumerId> = match &route {
                Route::Disk => {
                    edge.to = To::Lane(self.lane(provider));
                    return Ok((edge, 0));
                }
                Route::Pass { consumer, base } => {
                    edge.base = edge.base.wrapping_add(*base);
                    provider = self.under(provider, *consumer)?;
                    continue;
                }
                Route::Stripe { consumers, .. } => consumers.clone(),
                Route::Concat(consumers) => consumers.iter().map(|(c, _)| *c).collect(),
                Route::Mirror { components, .. } => components.iter().map(|c| c.consumer).collect(),
            };
            let (number, depth) = self.fan(provider, &route, &consumers)?;
            edge.to = To::Fan(number);
            return Ok((edge, depth));
        }
    }

    fn fan(
        &mut self,
        provider: ProviderId,
        route: &Route,
        consumers: &[ConsumerId],
    ) -> Result<(u32, u8), Error> {
        let too_many = self.fans.len() >= FANS_MAX
            || self.edges + consumers.len() > EDGES_MAX
            || consumers.len() > MEMBERS_MAX;
        if too_many || consumers.is_empty() {
            let cause = if too_many { "has too many components" } else { "has no component" };
            return Err(Error::invalid(&self.graph[provider].name, cause));
        }
        let number = self.fans.len();
        self.fans.push(None);
        let (mut edges, mut deepest) = (Vec::with_capacity(consumers.len()), 0);
        for &consumer in consumers {
            let under = self.under(provider, consumer)?;
            let (edge, depth) = self.edge(under)?;
            deepest = deepest.max(depth);
            edges.push(edge);
        }
        // Mirrors that divide reads come to themselves again.
        let is_twice = matches!(route, Route::Mirror { balance: Balance::Split, .. });
        self.fans[number] = Some(match route {
            Route::Stripe { size, .. } => Fan::Stripe(Stripe::new(*size, edges)),
            Route::Concat(parts) => {
                Fan::Concat(Concat::new(parts.iter().map(|(_, length)| *length), edges))
            }
            Route::Mirror { balance, slice, components } => {
                Fan::Mirror(Mirror::new((*balance, *slice), components, edges))
            }
            Route::Disk | Route::Pass { .. } => unreachable!("these do not divide"),
        });
        Ok((number as u32, deepest + 1 + u8::from(is_twice)))
    }

    fn lane(&mut self, disk: ProviderId) -> u32 {
        let known = self.disks.iter().position(|&known| known == disk);
        let number = known.unwrap_or_else(|| {
            self.disks.push(disk);
            self.disks.len() - 1
        });
        number as u32
    }

    fn under(&self, provider: ProviderId, consumer: ConsumerId) -> Result<ProviderId, Error> {
        let consumer = self.graph.find_consumer(consumer).and_then(|found| found.provider);
        let name = || &self.graph[provider].name;
        consumer.ok_or_else(|| Error::not_found(name(), "component beneath"))
    }
}
