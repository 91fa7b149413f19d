//! Which geom stands on which, and why.

use flysch_geom::{GeomId, ProviderId};
use serde_json::{Value, json};

use super::session::Session;
use super::text::human;
use crate::failure::Failure;
use crate::output::Output;

/// Shows the graph from the disks upwards.
pub(super) fn run(session: &Session, output: &mut Output) -> Result<(), Failure> {
    let graph = &session.graph;
    let is_root = |id: &GeomId| graph[*id].consumers.is_empty();
    let roots: Vec<GeomId> = graph.objects().geoms().map(|(id, _)| id).filter(is_root).collect();
    if output.json() {
        let all: Vec<Value> = roots.iter().map(|id| geom_json(session, *id)).collect();
        return output.value(&all);
    }
    for root in roots {
        for &provider in &graph[root].providers {
            show(session, provider, 0, output)?;
        }
    }
    Ok(())
}

fn show(
    session: &Session,
    provider: ProviderId,
    depth: usize,
    output: &mut Output,
) -> Result<(), Failure> {
    let graph = &session.graph;
    let there = &graph[provider];
    let (class, indent) = (graph[there.geom].class.name(), "    ".repeat(depth));
    let size = human(there.media_size);
    output.line(format!("{indent}{}  {size}  {class}  {}", there.name, there.access))?;
    for &consumer in &there.consumers {
        let above = &graph[graph[consumer].geom];
        if above.providers.is_empty() {
            output.line(format!("{indent}  {} {}", above.class.name(), above.name))?;
        }
        for &provider in &above.providers {
            show(session, provider, depth + 1, output)?;
        }
    }
    Ok(())
}

/// A line of [`columns`]: its depth, the geom, its class, its provider.
type Line<'g> = (usize, &'g str, &'static str, &'g str);

/// Shows the graph as FreeBSD's `geom -t` does: one line per geom, or per provider of it.
pub(super) fn columns(session: &Session, output: &mut Output) -> Result<(), Failure> {
    let graph = &session.graph;
    if output.json() {
        return run(session, output);
    }
    let mut lines = Vec::new();
    for (id, _) in graph.objects().geoms().filter(|(_, geom)| geom.consumers.is_empty()) {
        lines_of(session, (id, 0), &mut lines);
    }
    let widest = |heading: &str, lengths: &mut dyn Iterator<Item = usize>| {
        lengths.max().unwrap_or(0).max(heading.len())
    };
    let geoms = widest("Geom", &mut lines.iter().map(|(depth, geom, ..)| 2 * depth + geom.len()));
    let classes = widest("Class", &mut lines.iter().map(|(_, _, class, _)| class.len()));
    output.line(format!("{:<geoms$}  {:<classes$}  Provider", "Geom", "Class"))?;
    for (depth, geom, class, provider) in lines {
        let geom = format!("{}{geom}", "  ".repeat(depth));
        let line = format!("{geom:<geoms$}  {class:<classes$}  {provider}");
        output.line(line.trim_end())?;
    }
    Ok(())
}

fn lines_of<'g>(session: &'g Session, (id, depth): (GeomId, usize), lines: &mut Vec<Line<'g>>) {
    let graph = &session.graph;
    let geom = &graph[id];
    let class = geom.class.name();
    if geom.providers.is_empty() {
        lines.push((depth, &geom.name, class, ""));
    }
    for &provider in &geom.providers {
        lines.push((depth, &geom.name, class, &graph[provider].name));
        for &consumer in &graph[provider].consumers {
            lines_of(session, (graph[consumer].geom, depth + 1), lines);
        }
    }
}

fn geom_json(session: &Session, id: GeomId) -> Value {
    let graph = &session.graph;
    let geom = &graph[id];
    let providers = geom.providers.iter().map(|&provider| {
        let there = &graph[provider];
        let above = there.consumers.iter().map(|&c| geom_json(session, graph[c].geom));
        json!({
            "name": there.name,
            "mediasize": there.media_size,
            "mode": there.access.to_string(),
            "geoms": above.collect::<Vec<_>>(),
        })
    });
    let providers: Vec<Value> = providers.collect();
    json!({ "class": geom.class.name(), "name": geom.name, "providers": providers })
}

/// Shows which class claimed a provider, and what the others found.
pub(super) fn why(session: &Session, name: &str, output: &mut Output) -> Result<(), Failure> {
    let graph = &session.graph;
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let verdicts: Vec<_> = graph.record.verdicts().filter(|v| v.provider == name).collect();
    if verdicts.is_empty() {
        graph.provider(name).map_err(|error| session.failure(error))?;
    }
    if output.json() {
        let all = verdicts.iter().map(|verdict| {
            let reason = verdict.taste.reason();
            json!({
                "class": verdict.class,
                "verdict": verdict.taste.outcome().word(),
                "offset": reason.bytes.map(|(at, _)| at),
                "length": reason.bytes.map(|(_, len)| len),
                "reason": reason.text,
            })
        });
        return output.value(&all.collect::<Vec<_>>());
    }
    let rows: Vec<Vec<String>> = verdicts
        .iter()
        .map(|verdict| {
            let reason = verdict.taste.reason();
            let bytes = reason.bytes.map_or_else(String::new, |(at, len)| format!("{at}+{len}"));
            let word = verdict.taste.outcome().word();
            vec![verdict.class.into(), word.into(), bytes, reason.text.clone()]
        })
        .collect();
    output.table(&["class", "verdict", "bytes", "reason"], &rows)
}

/// Shows what has happened.
pub(super) fn log(session: &Session, output: &mut Output) -> Result<(), Failure> {
    if output.json() {
        return output.value(&session.graph.record.messages().collect::<Vec<_>>());
    }
    session.graph.record.messages().try_for_each(|line| output.line(line))
}
