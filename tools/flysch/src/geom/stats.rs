//! Counters of a graph at one moment; `gstat` shows their changes.

#[cfg(test)]
mod tests;

use flysch_api::machine::Instant;
use flysch_geom::{Graph, Statistics, Usage};
use serde::{Deserialize, Serialize};

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// The instant, nanoseconds of the clock used for times: this machine's, or that of a rig's
    /// models.
    pub(crate) at: u64,
    /// Everything that has counters.
    pub(crate) counters: Vec<Counter>,
}

/// The requests to one provider, or by one consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counter {
    /// Its number in the graph.
    pub(crate) number: u32,
    /// The provider's name.
    pub(crate) name: String,
    /// Whether it is a consumer.
    pub(crate) is_consumer: bool,
    /// Its geom's rank.
    pub(crate) rank: u32,
    /// In flight, if measured.
    pub(crate) queued: Option<u64>,
    pub(crate) reads: Kind,
    pub(crate) writes: Kind,
    pub(crate) deletes: Kind,
    pub(crate) others: Kind,
    /// Nanoseconds with anything in flight, if measured.
    pub(crate) busy: Option<u64>,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Total nanoseconds, if measured.
    pub(crate) time: Option<u64>,
}

/// A clock of this machine, for [`Graph::set_clock`].
pub(crate) fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The current counters.
pub(super) fn snapshot(graph: &Graph) -> Snapshot {
    let mut counters = Vec::new();
    for (id, provider) in graph.objects().providers() {
        let rank = graph[provider.geom].rank;
        let of = (id.number(), &provider.name[..], rank);
        counters.push(counter(of, false, &provider.statistics));
        for &consumer in &provider.consumers {
            let there = &graph[consumer];
            let of = (consumer.number(), &provider.name[..], graph[there.geom].rank);
            counters.push(counter(of, true, &there.statistics));
        }
    }
    Snapshot { at: clock(), counters }
}

/// The counters of a graph whose requests go by ways, at an instant of the ways' clock: what the
/// graph knows, and what lanes have not reported to it yet. Ways do not measure how long each
/// request took.
pub(super) fn snapshot_of_ways(graph: &Graph, now: Instant, lanes: &[&[Usage]]) -> Snapshot {
    let mut all = snapshot(graph);
    all.at = now.nanos_since(Instant::START);
    for counter in &mut all.counters {
        for kind in counter.kinds() {
            kind.time = None;
        }
        let (number, is_consumer) = (counter.number, counter.is_consumer);
        let is_of = |usage: &&Usage| match is_consumer {
            true => usage.consumer.number() == number,
            false => usage.provider.number() == number,
        };
        // Lanes are busy at the same time: the busiest one tells how much of it.
        let (mut busiest, mut unmeasured) = (0, false);
        for lane in lanes {
            let mut busy = 0;
            for usage in lane.iter().filter(is_of) {
                add(counter, usage);
                busy += usage.statistics.busy;
                unmeasured |= usage.in_flight.is_none();
            }
            busiest = busiest.max(busy);
        }
        counter.busy = counter.busy.map(|before| before.saturating_add(busiest));
        if unmeasured {
            (counter.queued, counter.busy) = (None, None);
        }
    }
    all
}

impl Counter {
    fn kinds(&mut self) -> [&mut Kind; 4] {
        [&mut self.reads, &mut self.writes, &mut self.deletes, &mut self.others]
    }
}

fn add(counter: &mut Counter, usage: &Usage) {
    let it = &usage.statistics;
    let all = [
        (it.reads, it.read_bytes),
        (it.writes, it.written_bytes),
        (it.deletes, it.deleted_bytes),
        (it.flushes + it.zone_commands, 0),
    ];
    for (kind, (requests, bytes)) in counter.kinds().into_iter().zip(all) {
        kind.requests = kind.requests.saturating_add(requests);
        kind.bytes = kind.bytes.saturating_add(bytes);
    }
    let here = usage.in_flight.unwrap_or(0);
    counter.queued = counter.queued.map(|before| before.saturating_add(here));
}

fn counter(
    (number, name, rank): (u32, &str, u32),
    is_consumer: bool,
    statistics: &Statistics,
) -> Counter {
    let kind = |requests, bytes, time| Kind { requests, bytes, time: Some(time) };
    let Statistics { reads, read_bytes, writes, written_bytes, deletes, .. } = *statistics;
    let others = statistics.flushes + statistics.zone_commands;
    Counter {
        number,
        name: name.to_string(),
        is_consumer,
        rank,
        // A graph that does one request after the other has none under way when it is asked.
        queued: Some(0),
        reads: kind(reads, read_bytes, statistics.read_time),
        writes: kind(writes, written_bytes, statistics.write_time),
        deletes: kind(deletes, statistics.deleted_bytes, statistics.delete_time),
        others: kind(others, 0, statistics.flush_time + statistics.zone_time),
        busy: Some(statistics.busy),
    }
}
