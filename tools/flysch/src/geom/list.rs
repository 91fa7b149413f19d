//! `list` and `status`, as geom(8) prints them.

use flysch_geom::{Config, ConsumerId, Geom, GeomId, Object, ProviderId};
use serde_json::{Map, Value, json};

use super::session::Session;
use super::text::human;
use crate::failure::Failure;
use crate::output::Output;

/// What can be done to every class.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Show everything known.
    List {
        /// Also geoms without providers, which are always shown.
        #[arg(short)]
        all: bool,
        /// Only these geoms.
        names: Vec<String>,
    },
    /// Show states, one line each.
    Status {
        /// Also geoms without providers, which are always shown.
        #[arg(short)]
        all: bool,
        /// Show geoms instead of providers.
        #[arg(short)]
        geoms: bool,
        /// Omit headings and print complete lines.
        #[arg(short)]
        script: bool,
        /// Only these geoms.
        names: Vec<String>,
    },
}

/// Executes the verb.
pub(super) fn run(
    session: &Session,
    class: &str,
    verb: &Verb,
    output: &mut Output,
) -> Result<(), Failure> {
    if class == "PART" {
        session.note_refused(class, output);
    }
    match verb {
        Verb::List { names, .. } => list(session, class, names, output),
        Verb::Status { geoms, script, names, .. } => {
            let rows = rows(session, (class, *geoms), names)?;
            status(rows, *script, output)
        }
    }
}

fn wanted<'s>(
    session: &'s Session,
    class: &'s str,
    names: &[String],
) -> Result<Vec<(GeomId, &'s Geom)>, Failure> {
    if names.is_empty() {
        return Ok(session.graph.objects().geoms_of(class).collect());
    }
    let mut all = Vec::new();
    for name in names {
        let bare = name.strip_prefix("/dev/").unwrap_or(name);
        let found: Vec<_> =
            session.graph.objects().geoms_of(class).filter(|(_, geom)| geom.name == bare).collect();
        if found.is_empty() {
            session.graph.geom(class, name).map_err(|error| session.failure(error))?;
        }
        all.extend(found);
    }
    Ok(all)
}

fn config(session: &Session, object: Object) -> Config {
    let graph = &session.graph;
    let geom = match object {
        Object::Geom(geom) => geom,
        Object::Provider(provider) => graph[provider].geom,
        Object::Consumer(consumer) => graph[consumer].geom,
    };
    // FreeBSD's library reads it from the back.
    let mut config = graph[geom].class.config(graph, object);
    config.reverse();
    config
}

fn list(
    session: &Session,
    class: &str,
    names: &[String],
    output: &mut Output,
) -> Result<(), Failure> {
    let geoms = wanted(session, class, names)?;
    if output.json() {
        let all: Vec<Value> = geoms.iter().map(|(id, _)| geom_json(session, *id)).collect();
        return output.value(&all);
    }
    geoms.into_iter().try_for_each(|(id, _)| geom_lines(session, id, output))
}

/// A geom, its providers and its consumers.
fn geom_lines(session: &Session, id: GeomId, output: &mut Output) -> Result<(), Failure> {
    let geom = &session.graph[id];
    output.line(format!("Geom name: {}", geom.name))?;
    for (name, value) in config(session, Object::Geom(id)) {
        output.line(format!("{name}: {value}"))?;
    }
    if !geom.providers.is_empty() {
        output.line("Providers:")?;
        for (number, &provider) in (1..).zip(&geom.providers) {
            provider_lines(session, (number, provider), None, output)?;
        }
    }
    let attached = geom.consumers.iter().filter_map(|&c| Some((c, session.graph[c].provider?)));
    let attached: Vec<_> = attached.collect();
    if !attached.is_empty() {
        output.line("Consumers:")?;
        for (number, (consumer, provider)) in (1..).zip(attached) {
            provider_lines(session, (number, provider), Some(consumer), output)?;
        }
    }
    output.line("")
}

/// The geom that offers a provider, as `geom -p` of FreeBSD shows it.
pub(super) fn behind(session: &Session, name: &str, output: &mut Output) -> Result<(), Failure> {
    let geom = session.graph[session.provider(name)?].geom;
    if output.json() {
        return output.value(&geom_json(session, geom));
    }
    output.line(format!("Geom class: {}", session.graph[geom].class.name()))?;
    geom_lines(session, geom, output)
}

/// A provider, or a consumer and the provider beneath it.
fn provider_lines(
    session: &Session,
    (number, provider): (u32, ProviderId),
    consumer: Option<ConsumerId>,
    output: &mut Output,
) -> Result<(), Failure> {
    let there = &session.graph[provider];
    output.line(format!("{number}. Name: {}", there.name))?;
    output.line(format!("   Mediasize: {} ({})", there.media_size, human(there.media_size)))?;
    output.line(format!("   Sectorsize: {}", there.sector_size))?;
    if there.stripe_size > 0 || there.stripe_offset > 0 {
        output.line(format!("   Stripesize: {}", there.stripe_size))?;
        output.line(format!("   Stripeoffset: {}", there.stripe_offset))?;
    }
    let (object, mode) = match consumer {
        Some(consumer) => (Object::Consumer(consumer), session.graph[consumer].access),
        None => (Object::Provider(provider), there.access),
    };
    output.line(format!("   Mode: {mode}"))?;
    for (name, value) in config(session, object) {
        output.line(format!("   {name}: {value}"))?;
    }
    Ok(())
}

fn config_json(session: &Session, object: Object) -> Map<String, Value> {
    let mut map = Map::new();
    for (name, value) in config(session, object) {
        let value = value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number));
        match map.get_mut(name) {
            None => drop(map.insert(name.into(), value)),
            Some(Value::Array(several)) => several.push(value),
            Some(one) => *one = json!([one.clone(), value]),
        }
    }
    map
}

/// Everything about a geom.
pub(super) fn geom_json(session: &Session, id: GeomId) -> Value {
    let graph = &session.graph;
    let geom = &graph[id];
    let shape = |provider: ProviderId, object: Object, mode: String| {
        let there = &graph[provider];
        json!({
            "name": there.name,
            "mediasize": there.media_size,
            "sectorsize": there.sector_size,
            "stripesize": there.stripe_size,
            "stripeoffset": there.stripe_offset,
            "mode": mode,
            "config": config_json(session, object),
        })
    };
    let providers = geom.providers.iter().map(|&provider| {
        shape(provider, Object::Provider(provider), graph[provider].access.to_string())
    });
    let consumers = geom.consumers.iter().filter_map(|&consumer| {
        let provider = graph[consumer].provider?;
        let mode = graph[consumer].access.to_string();
        Some(shape(provider, Object::Consumer(consumer), mode))
    });
    json!({
        "class": geom.class.name(),
        "name": geom.name,
        "rank": geom.rank,
        "config": config_json(session, Object::Geom(id)),
        "providers": providers.collect::<Vec<_>>(),
        "consumers": consumers.collect::<Vec<_>>(),
    })
}

/// The value of the first of `names` that is present.
fn told(config: &Config, names: &[&str]) -> Option<String> {
    let mut named = names.iter().filter_map(|name| config.iter().find(|(key, _)| key == name));
    named.next().map(|(_, value)| value.clone())
}

fn component(session: &Session, consumer: ConsumerId, provider: ProviderId) -> String {
    let config = config(session, Object::Consumer(consumer));
    let name = &session.graph[provider].name;
    match (told(&config, &["State"]), told(&config, &["Synchronized"])) {
        (Some(state), Some(done)) => format!("{name} ({state}, {done})"),
        (Some(state), None) => format!("{name} ({state})"),
        (None, Some(done)) => format!("{name} ({done})"),
        (None, None) => name.clone(),
    }
}

/// A line of `status`: the geom or provider, its state, the components.
type Row = (String, String, Vec<String>);

fn rows(
    session: &Session,
    (class, of_geoms): (&str, bool),
    names: &[String],
) -> Result<Vec<Row>, Failure> {
    let graph = &session.graph;
    let mut rows = Vec::new();
    for (id, geom) in wanted(session, class, names)? {
        let of_geom = told(&config(session, Object::Geom(id)), &["State", "Status"]);
        let attached = geom.consumers.iter().filter_map(|&c| Some((c, graph[c].provider?)));
        let mut components: Vec<String> =
            attached.map(|(consumer, provider)| component(session, consumer, provider)).collect();
        if components.is_empty() {
            components.push("N/A".into());
        }
        let providers = geom.providers.iter().filter(|_| !of_geoms);
        let mut shown: Vec<(String, String)> = providers
            .map(|&provider| {
                let of_provider = config(session, Object::Provider(provider));
                let state = told(&of_provider, &["State", "Status"]).or(of_geom.clone());
                (graph[provider].name.clone(), state.unwrap_or_else(|| "N/A".into()))
            })
            .collect();
        if shown.is_empty() {
            shown.push((geom.name.clone(), of_geom.unwrap_or_else(|| "N/A".into())));
        }
        rows.extend(shown.into_iter().map(|(name, state)| (name, state, components.clone())));
    }
    Ok(rows)
}

fn status(rows: Vec<Row>, script: bool, output: &mut Output) -> Result<(), Failure> {
    if output.json() {
        let row = |row: &Row| {
            let (name, state, components) = row;
            json!({ "name": name, "status": state, "components": components })
        };
        return output.value(&rows.iter().map(row).collect::<Vec<_>>());
    }
    let widest = |heading: &str, cells: &mut dyn Iterator<Item = usize>| {
        cells.max().unwrap_or(0).max(if script { 0 } else { heading.len() })
    };
    let name_width = widest("Name", &mut rows.iter().map(|row| row.0.len()));
    let state_width = widest("Status", &mut rows.iter().map(|row| row.1.len()));
    if !script && !rows.is_empty() {
        output.line(format!("{:>name_width$}  {:>state_width$}  Components", "Name", "Status"))?;
    }
    for (name, state, components) in rows {
        for (number, component) in components.iter().enumerate() {
            let again = number > 0 && !script;
            let (name, state) = if again { ("", "") } else { (&name[..], &state[..]) };
            output.line(format!("{name:>name_width$}  {state:>state_width$}  {component}"))?;
        }
    }
    Ok(())
}
