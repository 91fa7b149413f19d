//! Nothing that belongs to somebody else is overwritten silently.

use alloc::format;

use flysch_wire::geom::volume::{self, FileSystem};
use flysch_wire::geom::{class_of_magic, gpt};

use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::object::ProviderId;

/// How a user confirms the overwriting.
const REMEDY: &str = "clear that first, or use `geom --force` to write over it";

/// Refuses if the last sector of a provider holds metadata or the second header of a GPT. Metadata
/// of `class` itself is no obstacle unless it is in use.
///
/// # Errors
/// [`Kind::Foreign`], which names what is there; [`Kind::Busy`] if a geom uses it.
pub fn last_sector(graph: &mut Graph, class: &str, provider: ProviderId) -> Result<(), GeomError> {
    in_use(graph, provider)?;
    let sector = graph.peek_last(provider)?;
    let name = graph[provider].name.clone();
    if class != "RAID"
        && let Some(format) = super::raid::recognised(graph, provider)
    {
        let cause = format!("metadata of a RAID ({format}) is on it; {REMEDY}");
        return Err(GeomError::new(Kind::Foreign, &name, cause));
    }
    let foreign = |what: &str| {
        let at = graph[provider].last_sector();
        let cause = format!("{what} is in its last sector (byte {at}); {REMEDY}");
        Err(GeomError::new(Kind::Foreign, &name, cause))
    };
    match class_of_magic(&sector) {
        Some(other) if other != class => foreign(&format!("metadata of {other}")),
        None if sector.starts_with(&gpt::SIGNATURE) => foreign("the second header of a GPT"),
        _ => Ok(()),
    }
}

/// The same unless `force`, which still does not permit writing below a geom.
///
/// # Errors
/// As [`last_sector`]; with `force` as [`in_use`].
pub fn last_sector_unless(
    graph: &mut Graph,
    class: &str,
    provider: ProviderId,
    force: bool,
) -> Result<(), GeomError> {
    match force {
        true => in_use(graph, provider),
        false => last_sector(graph, class, provider),
    }
}

/// Refuses if a geom uses the provider, except for labels that LABEL found by itself, which
/// disappear when the provider is written.
///
/// # Errors
/// [`Kind::Busy`], which names the geom.
pub fn in_use(graph: &Graph, provider: ProviderId) -> Result<(), GeomError> {
    let there = &graph[provider];
    let geoms = there.consumers.iter().map(|&consumer| &graph[graph[consumer].geom]);
    let mut others = geoms.filter(|geom| !matches!(geom.class.name(), "DEV" | "LABEL"));
    match others.next() {
        None => Ok(()),
        Some(geom) => {
            let class = geom.class.name();
            let verb = if class == "RAID" { "stop" } else { "destroy" };
            let (name, group) = (&geom.name, class.to_ascii_lowercase());
            let cause = format!("is in use by {class} {name}; `{group} {verb} {name}` first");
            Err(GeomError::new(Kind::Busy, &there.name, cause))
        }
    }
}

/// Refuses if a file system is found on the provider.
///
/// # Errors
/// [`Kind::Foreign`], which names it.
pub fn file_system(graph: &mut Graph, provider: ProviderId) -> Result<(), GeomError> {
    for kind in FileSystem::ALL {
        let mut read = |at: u64, to: &mut [u8]| graph.peek(provider, at, to).is_ok();
        if let Some(found) = volume::probe(kind, &mut read) {
            let label = found.name.as_str();
            let named = if label.is_empty() { "".into() } else { format!(" `{label}`") };
            let (what, at) = (kind.name(), found.at);
            let cause = format!("a {what} volume{named} is on it (byte {at}); {REMEDY}");
            return Err(GeomError::new(Kind::Foreign, &graph[provider].name, cause));
        }
    }
    Ok(())
}

/// The class of the device that a provider is a component of, by the label in its last sector: the
/// contents of a component belong to that device.
pub fn component_of(graph: &mut Graph, provider: ProviderId) -> Option<&'static str> {
    use flysch_wire::geom::{concat, mirror, multipath, stripe};
    if super::raid::recognised(graph, provider).is_some() {
        return Some("RAID");
    }
    let sector = graph.peek_last(provider).ok()?;
    let size = graph[provider].media_size;
    let is_ours = match class_of_magic(&sector)? {
        "MIRROR" => mirror::Mirror::parse(&sector)
            .is_ok_and(|label| label.provider_size == 0 || label.provider_size == size),
        "STRIPE" => stripe::Stripe::parse(&sector).is_ok_and(|label| label.provider_size == size),
        "CONCAT" => concat::Concat::parse(&sector).is_ok_and(|label| label.provider_size == size),
        "MULTIPATH" => {
            multipath::Multipath::parse(&sector).is_ok_and(|label| label.media_size == size)
        }
        _ => false,
    };
    class_of_magic(&sector).filter(|_| is_ours)
}
