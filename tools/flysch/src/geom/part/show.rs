//! `part show`, as gpart(8) prints it.

use flysch_geom::GeomId;
use flysch_geom::class::part::{self, Partition, Table};
use serde_json::{Value, json};

use super::super::session::Session;
use super::super::text::human;
use crate::failure::Failure;
use crate::output::Output;

/// Options of `geom part show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Show names instead of types.
    #[arg(short = 'l', conflicts_with = "raw")]
    labels: bool,
    /// Show types as the table stores them.
    #[arg(short = 'r')]
    raw: bool,
    /// Show providers instead of numbers.
    #[arg(short = 'p')]
    providers: bool,
    /// The disks; default: all that have a table.
    geoms: Vec<String>,
}

/// Shows tables.
pub(crate) fn run(
    session: &Session,
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut all: Vec<GeomId> = session.graph.objects().geoms_of("PART").map(|(id, _)| id).collect();
    session.note_refused("PART", output);
    if !arguments.geoms.is_empty() {
        let named = arguments.geoms.iter().map(|name| super::find(session, name));
        all = named.collect::<Result<_, _>>()?;
    }
    let tables = all.iter().filter_map(|&id| Some((id, part::table(&session.graph, id)?)));
    // One that is to be erased has nothing to show.
    let tables = tables.filter(|(_, table)| !table.is_destroyed);
    if output.json() {
        let all: Vec<Value> = tables.map(|(id, table)| table_json(session, id, table)).collect();
        return output.value(&all);
    }
    for (id, table) in tables {
        show(session, (id, table), arguments, output)?;
    }
    Ok(())
}

fn sorted(table: &Table) -> Vec<&Partition> {
    let mut sorted: Vec<&Partition> = table.partitions.iter().collect();
    sorted.sort_by_key(|partition| partition.start);
    sorted
}

fn show(
    session: &Session,
    (id, table): (GeomId, &Table),
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let geom = &session.graph[id];
    let under = session.graph.objects().under(id).map(|under| &session.graph[under]);
    let sector = under.map_or(512, |under| u64::from(under.sector_size));
    let size = under.map_or(0, |under| under.media_size);
    let name = |partition: &Partition| match arguments.providers {
        true => format!("{}{}", geom.name, table.suffix(partition)),
        false => partition.index.to_string(),
    };
    let wide = table.last.to_string().len();
    let names = table.partitions.iter().map(|partition| name(partition).len());
    let name_wide = names.max().unwrap_or(0).max(geom.name.len());
    let corrupt = if table.corrupt.is_some() { " [CORRUPT]" } else { "" };
    let (first, count) = (table.first, (table.last + 1).saturating_sub(table.first));
    output.line(format!(
        "=>{first:>wide$}  {count:>wide$}  {:>name_wide$}  {}  ({}){corrupt}",
        geom.name,
        table.scheme.name(),
        human(size)
    ))?;
    let mut next = table.first;
    let free = |from: u64, to: u64, output: &mut Output| {
        let (count, size) = (to - from, human((to - from) * sector));
        output.line(format!(
            "  {from:>wide$}  {count:>wide$}  {:>name_wide$}  - free -  ({size})",
            ""
        ))
    };
    for partition in sorted(table) {
        if partition.start > next {
            free(next, partition.start, output)?;
        }
        let kind = match (arguments.labels, arguments.raw) {
            (true, _) if partition.label.is_empty() => "(null)".into(),
            (true, _) => partition.label.clone(),
            (_, true) => partition.kind.raw(),
            _ => partition.kind.name(),
        };
        let attributes = match partition.attribute_names() {
            names if names.is_empty() => String::new(),
            names => format!(" [{}] ", names.join(",")),
        };
        let (start, count) = (partition.start, partition.length());
        let (name, size) = (name(partition), human(count * sector));
        output.line(format!(
            "  {start:>wide$}  {count:>wide$}  {name:>name_wide$}  {kind} {attributes} ({size})"
        ))?;
        next = partition.end + 1;
    }
    if next <= table.last {
        free(next, table.last + 1, output)?;
    }
    output.line("")
}

fn table_json(session: &Session, id: GeomId, table: &Table) -> Value {
    let geom = &session.graph[id];
    let partition = |partition: &&Partition| {
        json!({
            "index": partition.index,
            "provider": format!("{}{}", geom.name, table.suffix(partition)),
            "start": partition.start,
            "end": partition.end,
            "data": partition.data,
            "type": partition.kind.name(),
            "rawtype": partition.kind.raw(),
            "label": partition.label,
            "uuid": partition.unique.to_string(),
            "attributes": partition.attribute_names(),
        })
    };
    json!({
        "geom": geom.name,
        "scheme": table.scheme.name(),
        "first": table.first,
        "last": table.last,
        "entries": table.entries,
        "state": if table.corrupt.is_some() { "CORRUPT" } else { "OK" },
        "damage": table.corrupt,
        "modified": table.modified,
        "partitions": sorted(table).iter().map(partition).collect::<Vec<_>>(),
    })
}
