//! Where requests to a provider go: the classes are asked once, when a lane is opened or the graph
//! has changed.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::BlockDevice;
use flysch_wire::geom::mirror::Balance;

use super::fan::{self, Concat, Fan, MEMBERS_MAX, Stripe};
use super::faults::Chance;
use super::jobs::NONE;
use super::lane::Lane;
use super::mirror::Mirror;
use super::paths::Paths;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::object::{ConsumerId, ProviderId};
use crate::route::{Leg, Route};
use crate::statistics::{Statistics, Traffic};

/// Maximum number of places where a way divides, and of all their branches together.
const FANS_MAX: usize = 256;
const EDGES_MAX: usize = 1024;

/// The branch that requests of callers take.
pub(super) const TOP: u32 = 0;

/// A branch: to a lane, or to where the way divides again.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// The lane, or [`NONE`].
    pub(super) lane: u32,
    /// The place where it divides, or [`NONE`].
    pub(super) fan: u32,
    /// Number of bytes added to the offset.
    pub(super) base: u64,
    /// For a branch that divides again: the number of outstanding requests for which this branch
    /// was chosen among its siblings, and the byte after the last one. For a branch to a lane, the
    /// lane knows.
    pub(super) busy: u32,
    pub(super) head: u64,
    /// The branch above the place where this one begins.
    pub(super) above: u32,
    /// Traffic that ended its way from the top here undivided: to a lane, or as a job. It passed
    /// through all branches above.
    pub(super) whole: Traffic,
    /// Other traffic of this branch.
    pub(super) parts: Traffic,
    /// The providers that this branch passes through, highest first, each with its consumer.
    passes: Vec<(ProviderId, ConsumerId)>,
}

impl Edge {
    const fn new(above: u32) -> Self {
        Self {
            lane: NONE,
            fan: NONE,
            base: 0,
            busy: 0,
            head: 0,
            above,
            whole: Traffic::NONE,
            parts: Traffic::NONE,
            passes: Vec::new(),
        }
    }

    /// The load: reads go to the lowest, among equals to the branch whose head is there.
    #[inline]
    pub(super) fn load<D: BlockDevice>(&self, lanes: &[Lane<D>], offset: u64) -> u64 {
        match lanes.get(self.lane as usize) {
            Some(lane) => lane.load(offset.wrapping_add(self.base)),
            None => u64::from(self.busy) << 1 | u64::from(self.head != offset),
        }
    }
}

/// The way of requests to one provider, down to the disks.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// All branches: the first is [`TOP`].
    pub(super) edges: Vec<Edge>,
    pub(super) fans: Vec<Fan>,
    disks: Vec<ProviderId>,
    /// Maximum number of divisions on one path down.
    pub(super) depth: u8,
    /// Size of the provider and of its sectors, bytes.
    pub(super) size: (u64, u32),
    pub(super) writes: bool,
    /// For a way that does not divide: the number of bytes added to the offset, and the traffic.
    pub(super) base: u64,
    pub(super) direct: Traffic,
    /// How busy the way and each of its lanes were at the last measurement.
    pub(super) measured: Vec<Measured>,
}

/// How busy something was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) in_flight: u64,
    pub(super) nanos: u64,
    pub(super) failures: u64,
}

impl Plan {
    /// The way of requests from `consumer`, which has its provider open. If it writes, components
    /// that must know of that in advance are told.
    ///
    /// # Errors
    /// If it is not open; if a class on the way performs only one request at a time; if the way
    /// divides too often.
    pub fn new(graph: &mut Graph, consumer: ConsumerId) -> Result<Self, GeomError> {
        let gone = || GeomError::not_found("provider", "of this consumer");
        let from = graph.objects().consumer(consumer).ok_or_else(gone)?;
        let (provider, access) = (from.provider.ok_or_else(gone)?, from.access);
        let there = &graph[provider];
        if access.read == 0 && access.write == 0 {
            return Err(GeomError::new(Kind::NotPermitted, &there.name, "is not open"));
        }
        let (media_size, sector_size) = (there.media_size, there.sector_size);
        let writes = access.write > 0;
        let edges = vec![Edge::new(TOP)];
        let mut planning = Planning { graph, writes, edges, fans: vec![], disks: vec![] };
        let depth = planning.edge(TOP as usize, (provider, consumer))?;
        let Planning { edges, fans, disks, .. } = planning;
        // A fan under construction keeps its place empty.
        let fans = fans.into_iter().flatten().collect();
        let base = edges[TOP as usize].base;
        let (direct, measured) = (Traffic::NONE, Vec::new());
        let size = (media_size, sector_size);
        Ok(Self { edges, fans, disks, depth, size, writes, base, direct, measured })
    }

    /// Adds the traffic of a way to the statistics of the providers and consumers on it.
    pub fn account(&self, graph: &mut Graph) {
        for usage in self.usage() {
            graph.count(usage.provider, usage.consumer, |statistics| {
                statistics.add(&usage.statistics);
            });
        }
    }

    /// The disks at which requests arrive; each needs a lane.
    #[must_use]
    pub fn disks(&self) -> &[ProviderId] {
        &self.disks
    }

    /// Whether it leads to one lane, without a division.
    pub(super) fn is_direct(&self) -> bool {
        self.edges.first().is_some_and(|edge| edge.lane != NONE)
    }

    /// The mirror where a job's way divides, if it is one.
    #[inline(always)]
    pub(super) fn mirror_mut(&mut self, fan: u32) -> Option<&mut Mirror> {
        self.fans.get_mut(fan as usize)?.mirror_mut()
    }

    /// The branches that a branch divides into.
    fn below(&self, edge: usize) -> core::ops::Range<usize> {
        let fan = self.fans.get(self.edges[edge].fan as usize);
        fan.map_or(0..0, |fan| fan.first as usize..(fan.first + fan.count) as usize)
    }

    /// Traffic that passed through a branch undivided, from the top.
    fn whole(&self, edge: usize) -> Traffic {
        let mut all = self.edges[edge].whole;
        if let Some(fan) = self.fans.get(self.edges[edge].fan as usize) {
            all.add(&fan.whole);
        }
        self.below(edge).for_each(|below| all.add(&self.whole(below)));
        all
    }

    /// Traffic of a branch.
    fn traffic(&self, edge: usize) -> Traffic {
        let mut all = self.whole(edge);
        all.add(&self.edges[edge].parts);
        if edge == TOP as usize {
            all.add(&self.direct);
        }
        all
    }

    /// Traffic of each provider and consumer of the way, from the top down.
    pub fn usage(&self) -> impl Iterator<Item = Usage> {
        let of = |number: usize, edge: &Edge| {
            let mut statistics = Statistics::default();
            statistics.add_traffic(&self.traffic(number));
            let is_only = self.edges.iter().filter(|other| other.lane == edge.lane).count() == 1;
            let lane = self.measured.get(edge.lane.wrapping_add(1) as usize);
            let top = self.measured.first();
            let measured = if number == TOP as usize { top } else { lane.filter(|_| is_only) };
            if let Some(measured) = measured {
                statistics.busy = measured.nanos;
                statistics.failures = measured.failures;
            }
            let fan = self.fans.get(edge.fan as usize);
            let waits = fan.map_or_else(Waits::default, |fan| fan.waits);
            (statistics, measured.map(|measured| measured.in_flight), waits)
        };
        let all = self.edges.iter().enumerate();
        all.flat_map(move |(number, edge)| {
            let (statistics, in_flight, waits) = of(number, edge);
            // The last one is where it divides.
            let count = edge.passes.len();
            let usage = move |(at, &(provider, consumer)): (usize, &(ProviderId, ConsumerId))| {
                let waits = if at + 1 == count { waits } else { Waits::default() };
                Usage { provider, consumer, statistics, in_flight, waits }
            };
            edge.passes.iter().enumerate().map(usage)
        })
    }
}

/// Traffic through one consumer to one provider on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The provider.
    pub provider: ProviderId,
    /// Its consumer on this way.
    pub consumer: ConsumerId,
    /// The traffic. Busy time is only measured at the top and, where one branch leads to a disk, at
    /// the disk: there it applies to all providers of the branch.
    pub statistics: Statistics,
    /// Requests that wait here or were sent on, if that is measured.
    pub in_flight: Option<u64>,
    /// What the class kept requests waiting for, if the way divides here.
    pub waits: Waits,
}

/// Time that requests spent in a class and not below it. Requests without incidents spend none:
/// they are passed on in the same call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How often requests waited on their way down: for room below, for other requests, or because
    /// of an injected fault.
    pub stalls: u64,
    /// Total nanoseconds of these waits.
    pub stalled_nanos: u64,
    /// Number of requests that a component failed, so that others were asked.
    pub retries: u64,
    /// Total nanoseconds from then until these requests ended.
    pub retried_nanos: u64,
}

struct Planning<'g> {
    graph: &'g mut Graph,
    writes: bool,
    edges: Vec<Edge>,
    fans: Vec<Option<Fan>>,
    disks: Vec<ProviderId>,
}

impl Planning<'_> {
    /// Makes the branch to a provider; returns how often it divides below.
    fn edge(
        &mut self,
        number: usize,
        (mut provider, mut above): (ProviderId, ConsumerId),
    ) -> Result<u8, GeomError> {
        loop {
            self.edges[number].passes.push((provider, above));
            let class = self.graph[self.graph[provider].geom].class;
            let Some(route) = class.route(self.graph, provider, self.writes)? else {
                let cause = format!("class {} does one request at a time", class.name());
                return Err(GeomError::invalid(&self.graph[provider].name, cause));
            };
            match &route {
                Route::Disk => {
                    self.edges[number].lane = self.lane(provider);
                    return Ok(0);
                }
                Route::Pass { consumer, base } => {
                    self.shift(number, *base);
                    (provider, above) = (self.under(provider, *consumer)?, *consumer);
                }
                _ => return self.fan((provider, number), &route),
            }
        }
    }

    fn shift(&mut self, number: usize, base: u64) {
        let edge = &mut self.edges[number];
        edge.base = edge.base.wrapping_add(base);
    }

    /// Makes the branch to one of the destinations among which bytes are distributed.
    fn leg(&mut self, number: usize, provider: ProviderId, leg: &Leg) -> Result<u8, GeomError> {
        match leg {
            Leg::Consumer(consumer, base) => {
                self.shift(number, *base);
                let under = self.under(provider, *consumer)?;
                self.edge(number, (under, *consumer))
            }
            Leg::Route(route) => self.fan((provider, number), route),
        }
    }

    /// Makes the place where a branch divides, with all that is below it.
    fn fan(
        &mut self,
        (provider, above): (ProviderId, usize),
        route: &Route,
    ) -> Result<u8, GeomError> {
        let legs: Vec<Leg> = match route {
            Route::Stripe { legs, .. } => legs.clone(),
            Route::Concat(legs) => legs.iter().map(|(leg, _)| leg.clone()).collect(),
            Route::Mirror { components, .. } => {
                components.iter().map(|it| Leg::Consumer(it.consumer, it.base)).collect()
            }
            Route::Paths { paths, .. } => {
                paths.iter().map(|path| Leg::Consumer(path.consumer, 0)).collect()
            }
            Route::Pass { consumer, base } | Route::Faults { consumer, base, .. } => {
                Vec::from([Leg::Consumer(*consumer, *base)])
            }
            Route::Disk => Vec::new(),
        };
        let too_many = self.fans.len() >= FANS_MAX
            || self.edges.len() + legs.len() > EDGES_MAX
            || legs.len() > MEMBERS_MAX;
        if too_many || legs.is_empty() {
            let cause = if too_many { "has too many components" } else { "has no component" };
            return Err(GeomError::invalid(&self.graph[provider].name, cause));
        }
        let number = self.fans.len();
        self.fans.push(None);
        self.edges[above].fan = number as u32;
        let (above, first, mut deepest) = (above as u32, self.edges.len(), 0);
        self.edges.resize_with(first + legs.len(), || Edge::new(above));
        for (member, leg) in legs.iter().enumerate() {
            deepest = deepest.max(self.leg(first + member, provider, leg)?);
        }
        // Mirrors that divide reads lead back to themselves.
        let is_twice = matches!(route, Route::Mirror { balance: Balance::Split, .. });
        let kind = match route {
            Route::Stripe { size, .. } => fan::Kind::Stripe(Stripe::new(*size, legs.len())),
            Route::Concat(legs) => {
                fan::Kind::Concat(Concat::new(legs.iter().map(|(_, length)| *length)))
            }
            Route::Mirror { balance, slice, components } => {
                fan::Kind::Mirror(Mirror::new((*balance, *slice), components))
            }
            Route::Paths { mode, active, paths } => {
                fan::Kind::Paths(Paths::new(*mode, *active, paths))
            }
            Route::Faults { faults, .. } => fan::Kind::Faults(Chance::new(*faults)),
            // A leg that is only one consumer.
            Route::Pass { .. } | Route::Disk => {
                fan::Kind::Concat(Concat::new(core::iter::once(u64::MAX)))
            }
        };
        let (first, count) = (first as u32, legs.len() as u32);
        self.fans[number] =
            Some(Fan { first, count, above, kind, whole: Traffic::NONE, waits: Waits::default() });
        Ok(deepest + 1 + u8::from(is_twice))
    }

    fn lane(&mut self, disk: ProviderId) -> u32 {
        let known = self.disks.iter().position(|&known| known == disk);
        let number = known.unwrap_or_else(|| {
            self.disks.push(disk);
            self.disks.len() - 1
        });
        number as u32
    }

    fn under(&self, provider: ProviderId, consumer: ConsumerId) -> Result<ProviderId, GeomError> {
        let consumer = self.graph.objects().consumer(consumer).and_then(|found| found.provider);
        let name = || &self.graph[provider].name;
        consumer.ok_or_else(|| GeomError::not_found(name(), "component beneath"))
    }
}
