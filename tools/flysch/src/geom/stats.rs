//! Counters of a graph at one moment: what `gstat` shows the changes of.

use flysch_geom::{Graph, Statistics};
use serde::{Deserialize, Serialize};

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// When, nanoseconds of this machine's clock.
    pub(crate) at: u64,
    /// Everybody who counts.
    pub(crate) counters: Vec<Counter>,
}

/// What was asked of one provider, or by one consumer.
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
    /// Under way.
    pub(crate) queued: u64,
    pub(crate) reads: Kind,
    pub(crate) writes: Kind,
    pub(crate) deletes: Kind,
    pub(crate) others: Kind,
    /// Nanoseconds in which anything was under way.
    pub(crate) busy: u64,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Nanoseconds, all of them together.
    pub(crate) time: u64,
}

/// A clock of this machine, for [`Graph::set_clock`].
pub(crate) fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The counters now.
pub(super) fn snapshot(graph: &Graph) -> Snapshot {
    let mut counters = Vec::new();
    for (id, provider) in graph.providers() {
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

fn counter(
    (number, name, rank): (u32, &str, u32),
    is_consumer: bool,
    statistics: &Statistics,
) -> Counter {
    let kind = |requests, bytes, time| Kind { requests, bytes, time };
    let Statistics { reads, read_bytes, writes, written_bytes, deletes, flushes, .. } = *statistics;
    Counter {
        number,
        name: name.to_string(),
        is_consumer,
        rank,
        // A graph that does one request after the other has none under way when it is asked.
        queued: 0,
        reads: kind(reads, read_bytes, statistics.read_time),
        writes: kind(writes, written_bytes, statistics.write_time),
        deletes: kind(deletes, statistics.deleted_bytes, statistics.delete_time),
        others: kind(flushes, 0, statistics.flush_time),
        busy: statistics.busy,
    }
}
