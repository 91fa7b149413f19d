//! CONCAT: components one after the other.

use alloc::string::ToString;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::concat as wire;

use super::array::{self, Layout, Part, Place};
use super::{Class, Config, News, Object, Requests, guard, pass_access_alone, write_last};
use crate::access::Access;
use crate::error::GeomError;
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{GeomId, ProviderId};
use crate::record::Taste;
use crate::route::Route;

/// The type of the class.
#[derive(Debug)]
pub struct Concat;

/// The class, to be registered with a graph.
pub static CONCAT: Concat = Concat;

/// The parameters of `label` and `create`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConcatOptions {
    /// The names of the providers are recorded, and no others are accepted.
    pub hardcode: bool,
    /// Metadata of other classes is overwritten.
    pub force: bool,
}

fn check(graph: &Graph, name: &str, under: &[ProviderId]) -> Result<Name<16>, GeomError> {
    array::check(graph, name, under)?;
    Name::new(name).ok_or_else(|| GeomError::invalid(name, "a name must have 1 to 15 bytes"))
}

/// Writes metadata to the providers: the concatenation exists from now on (`gconcat label`).
///
/// # Errors
/// The error names the obstacle.
pub fn label(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    options: &ConcatOptions,
) -> Result<(), GeomError> {
    let name = check(graph, name, under)?;
    let id = graph.random() as u32;
    let overrides = (options.hardcode, options.force);
    array::label(graph, &CONCAT, under, overrides, |place, sector| {
        let Place { number, all, provider, provider_size } = *place;
        let metadata = wire::Concat { name, id, number, all, provider, provider_size };
        metadata.emit(sector);
    })
}

/// Joins the providers without writing anything (`gconcat create`).
///
/// # Errors
/// If the providers cannot be used together.
pub fn create(graph: &mut Graph, name: &str, under: &[ProviderId]) -> Result<(), GeomError> {
    check(graph, name, under)?;
    let part = Part {
        name: name.to_string(),
        id: graph.random() as u32,
        number: 0,
        all: under.len() as u16,
        layout: Layout::Concat,
        automatic: false,
    };
    array::create(graph, &CONCAT, under, part)
}

/// Adds components after the existing ones (`gconcat append`). The first component holds the number
/// of components and is written last: a power cut leaves the old or the new concatenation.
///
/// # Errors
/// If it is open, or if a component is missing.
pub fn append(
    graph: &mut Graph,
    geom: GeomId,
    under: &[ProviderId],
    options: &ConcatOptions,
) -> Result<(), GeomError> {
    let text = graph[geom].name.clone();
    let (automatic, mut all) = array::whole(graph, geom)?;
    let before = all.len();
    for &provider in under {
        guard::in_use(graph, provider)?;
        if all.contains(&provider) {
            return Err(GeomError::invalid(&graph[provider].name, "is named twice"));
        }
        if automatic && !options.force {
            guard::last_sector(graph, "CONCAT", provider)?;
        }
        all.push(provider);
    }
    let count = u16::try_from(all.len())
        .map_err(|_| GeomError::invalid(&text, "has too many components"))?;
    if !automatic {
        super::destroy(graph, geom, false)?;
        return create(graph, &text, &all);
    }
    let mut labels = Vec::new();
    for &provider in &all[..before] {
        let sector = graph.peek_last(provider)?;
        let parsed = wire::Concat::parse(&sector);
        let unsound = |why| GeomError::invalid(&graph[provider].name, why);
        labels.push(wire::Concat { all: count, ..parsed.map_err(unsound)? });
    }
    let Some(&first) = labels.first() else {
        return Err(GeomError::not_found(text, "component"));
    };
    for (number, &provider) in (0..count).zip(&all).skip(before) {
        let there = &graph[provider];
        let only = options.hardcode.then(|| Name::new(&there.name)).flatten();
        let provider_size = there.media_size;
        labels.push(wire::Concat { number, provider: only, provider_size, ..first });
    }
    super::destroy(graph, geom, false)?;
    for (&provider, label) in all.iter().zip(&labels).rev() {
        write_last(graph, provider, |sector| label.emit(sector))?;
    }
    graph.settle();
    Ok(())
}

/// Removes a concatenation; its metadata stays (`gconcat stop`).
///
/// # Errors
/// If it is open, unless `force`.
pub fn stop(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    super::destroy(graph, geom, force)
}

impl Class for Concat {
    fn name(&self) -> &'static str {
        "CONCAT"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let there = (&wire::MAGIC[..], wire::LEN);
        let metadata = match array::read(graph, &CONCAT, provider, there, wire::Concat::parse) {
            Ok(metadata) => metadata,
            Err(taste) => return taste,
        };
        let part = Part {
            name: metadata.name.to_string(),
            id: metadata.id,
            number: metadata.number,
            all: metadata.all,
            layout: Layout::Concat,
            automatic: true,
        };
        let only = metadata.provider.map(|name| name.to_string());
        array::taste(graph, &CONCAT, provider, (part, metadata.provider_size, only))
    }

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        pass_access_alone(graph, provider, change)
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        array::told(graph, news)
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        array::config(graph, object)
    }
}

impl Requests for Concat {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        array::start(graph, provider, io)
    }

    fn route(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        _: bool,
    ) -> Result<Option<Route>, GeomError> {
        Ok(array::route(graph, provider))
    }
}
