//! What the classes on the ways of a workload did, for the report of `bench`.

use flysch_bench::results::Layer;
use flysch_geom::{Graph, Plan, ProviderId};

/// Counts of all ways so far, by provider.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    /// In the order in which they were first seen: topmost first. Some are gone at report time.
    known: Vec<(ProviderId, Layer)>,
}

impl Layers {
    /// The providers of a plan that requests use from now on.
    pub(super) fn know(&mut self, graph: &Graph, plan: &Plan) {
        for usage in plan.usage() {
            let id = usage.provider;
            let is_new = self.known.iter().all(|(known, _)| *known != id);
            if let (true, Some(there)) = (is_new, graph.objects().provider(id)) {
                let class = graph[there.geom].class.name().to_string();
                let layer = Layer { class, provider: there.name.clone(), ..Layer::default() };
                self.known.push((id, layer));
            }
        }
    }

    /// Adds the counts of a way.
    pub(super) fn add(&mut self, plan: &Plan) {
        for usage in plan.usage() {
            let Some((_, layer)) = self.known.iter_mut().find(|(id, _)| *id == usage.provider)
            else {
                continue;
            };
            let (statistics, waits) = (&usage.statistics, &usage.waits);
            layer.reads += statistics.reads;
            layer.writes += statistics.writes;
            layer.others += statistics.flushes + statistics.deletes;
            layer.stalls += waits.stalls;
            layer.stalled_nanos += waits.stalled_nanos;
            layer.retries += waits.retries;
            layer.retried_nanos += waits.retried_nanos;
        }
    }

    /// All of them, merged by name: a disk that disappeared and came back counts as another one.
    pub(super) fn told(&self) -> Vec<Layer> {
        let mut all: Vec<Layer> = Vec::new();
        for (_, layer) in &self.known {
            let same =
                |it: &&mut Layer| (&it.class, &it.provider) == (&layer.class, &layer.provider);
            let Some(known) = all.iter_mut().find(same) else {
                all.push(layer.clone());
                continue;
            };
            known.reads += layer.reads;
            known.writes += layer.writes;
            known.others += layer.others;
            known.stalls += layer.stalls;
            known.stalled_nanos += layer.stalled_nanos;
            known.retries += layer.retries;
            known.retried_nanos += layer.retried_nanos;
        }
        all
    }
}
