//! Where queued requests to volumes go.

use alloc::vec::Vec;

use flysch_wire::geom::mirror::Balance;

use super::array::{Level, PartState};
use super::{State, metadata, request, state};
use crate::error::GeomError;
use crate::graph::Graph;
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::route::{Leg, MirrorComponent, Route};

/// The route of requests to a volume. RAID5 has none: its parity must be computed.
pub(super) fn route(
    graph: &mut Graph,
    provider: ProviderId,
    writes: bool,
) -> Result<Option<Route>, GeomError> {
    let (geom, name) = (graph[provider].geom, graph[provider].name.clone());
    let missing = || GeomError::io(&name, flysch_api::block::BlockError::Gone);
    let number = state(graph, geom)?.volume_of(provider).ok_or_else(missing)?;
    if writes {
        request::mark(graph, (geom, number)).map_err(|error| GeomError::io(&name, error))?;
    }
    let state = state(graph, geom)?;
    let volume = &state.array.volumes[number];
    let (level, strip) = (volume.level, volume.strip.max(1));
    let leg = |slot: usize| {
        let (consumer, base) = request::disk_of(state, number, slot, 0)?;
        request::is_read(level, volume.parts[slot].state).then_some(Leg::Consumer(consumer, base))
    };
    let slots = 0..volume.parts.len();
    let legs = |slots: core::ops::Range<usize>| slots.map(leg).collect::<Option<Vec<Leg>>>();
    Ok(Some(match level {
        Level::Raid0 => Route::Stripe { size: strip, legs: legs(slots).ok_or_else(missing)? },
        Level::Raid1 => mirror(state, number, slots),
        Level::Raid10 => {
            let pair = |first| Leg::Route(mirror(state, number, first..first + 2));
            Route::Stripe { size: strip, legs: slots.step_by(2).map(pair).collect() }
        }
        Level::Concat => {
            let sizes = volume.parts.iter().map(|part| part.size);
            Route::Concat(legs(slots).ok_or_else(missing)?.into_iter().zip(sizes).collect())
        }
        Level::Raid5(_) => {
            return Err(GeomError::invalid(&name, "RAID5 does one request at a time"));
        }
    }))
}

/// A mirror of members with equal contents.
fn mirror(state: &State, number: usize, slots: core::ops::Range<usize>) -> Route {
    let volume = &state.array.volumes[number];
    let component = |slot: usize| {
        let how = volume.parts[slot].state;
        let is_read = request::is_read(volume.level, how);
        let (consumer, base) = request::disk_of(state, number, slot, 0)?;
        let there = MirrorComponent { consumer, base, priority: 0, is_read };
        (is_read || how.is_written()).then_some(there)
    };
    let components = slots.filter_map(component).collect();
    Route::Mirror { balance: Balance::Load, slice: 0, components }
}

/// A disk failed a request that others completed: since the volume is not known, all of its parts
/// that have a current copy elsewhere cease to be current.
pub(super) fn failed(graph: &mut Graph, geom: GeomId, consumer: ConsumerId, is_gone: bool) {
    let Ok(state) = state(graph, geom) else { return };
    let member = state.disks.iter().position(|disk| disk.consumer == Some(consumer));
    let mut behind = Vec::new();
    for (number, volume) in state.array.volumes.iter().enumerate() {
        for (slot, part) in volume.parts.iter().enumerate() {
            let mates = volume.mates(slot);
            let is_current = |mate: &usize| volume.parts[*mate].state == PartState::Active;
            if Some(part.member) == member && mates.iter().any(is_current) {
                behind.push((geom, number, slot));
            }
        }
    }
    // What cannot be recorded now is recorded before the next change.
    if behind.is_empty() {
        let _ = metadata::fault(graph, geom, consumer, is_gone);
    }
    for part in behind {
        let _ = metadata::fell_behind(graph, part, is_gone);
    }
}
