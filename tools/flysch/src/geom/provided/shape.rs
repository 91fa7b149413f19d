//! A provider in words: what it is made of, down to its disks.

use flysch_geom::{Graph, ProviderId};

use crate::geom::session::Session;

/// The structure of a provider, down to its disks.
pub(super) fn describe(session: &Session, provider: ProviderId) -> String {
    let mut disks = Vec::new();
    let shape = shape(&session.graph, provider, &mut disks);
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for disk in &disks {
        let Some(lane) = session.lanes.get(disk).and_then(|lanes| lanes.first()) else { continue };
        let kind = lane.description();
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(kind, count)| if count == 1 { kind } else { format!("{count} x {kind}") })
        .collect();
    format!("{shape}; {}", kinds.join(", "))
}

fn shape(graph: &Graph, provider: ProviderId, disks: &mut Vec<ProviderId>) -> String {
    let there = &graph[provider];
    let geom = &graph[there.geom];
    let under: Vec<ProviderId> =
        geom.consumers.iter().filter_map(|&consumer| graph[consumer].provider).collect();
    if under.is_empty() {
        if !disks.contains(&provider) {
            disks.push(provider);
        }
        return there.name.clone();
    }
    let under: Vec<String> = under.into_iter().map(|it| shape(graph, it, disks)).collect();
    format!("{} {} on {}", geom.class.name(), there.name, bracketed(&under))
}

fn bracketed(all: &[String]) -> String {
    match all {
        [one] => one.clone(),
        _ => format!("({})", all.join(", ")),
    }
}
