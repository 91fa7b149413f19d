//! CONCAT: components one behind the other.

use alloc::string::ToString;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::concat as wire;

use super::array::{self, Layout, Part};
use super::{Class, Config, News, Object, guard, pass_access_alone, write_last};
use crate::access::Access;
use crate::error::Error;
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{GeomId, ProviderId};
use crate::record::Taste;

/// The class.
#[derive(Debug)]
pub struct Concat;

/// The class.
pub static CONCAT: Concat = Concat;

/// What `label` and `create` can be told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The names of the providers are written down, and no others are taken.
    pub hardcode: bool,
    /// Metadata of others is written over.
    pub force: bool,
}

fn check(graph: &Graph, name: &str, under: &[ProviderId]) -> Result<Name<16>, Error> {
    array::check(graph, name, under)?;
    Name::new(name).ok_or_else(|| Error::invalid(name, "a name has 1 to 15 bytes"))
}

/// Writes metadata onto the providers: the concatenation is there from now on (`gconcat label`).
///
/// # Errors
/// What is in the way.
pub fn label(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    options: &Options,
) -> Result<(), Error> {
    let wire_name = check(graph, name, under)?;
    let id = graph.random() as u32;
    for &provider in under {
        guard::in_use(graph, provider)?;
        if !options.force {
            guard::last_sector(graph, "CONCAT", provider)?;
        }
    }
    for (number, &provider) in under.iter().enumerate() {
        let there = &graph[provider];
        let metadata = wire::Concat {
            name: wire_name,
            id,
            number: number as u16,
            all: under.len() as u16,
            provider: options.hardcode.then(|| Name::new(&there.name)).flatten(),
            provider_size: there.media_size,
        };
        write_last(graph, provider, |sector| metadata.emit(sector))?;
    }
    graph.settle();
    Ok(())
}

/// Joins the providers without writing anything (`gconcat create`).
///
/// # Errors
/// What cannot be.
pub fn create(graph: &mut Graph, name: &str, under: &[ProviderId]) -> Result<(), Error> {
    check(graph, name, under)?;
    let mut part = Part {
        name: name.to_string(),
        id: graph.random() as u32,
        number: 0,
        all: under.len() as u16,
        layout: Layout::Concat,
        automatic: false,
    };
    for (number, &provider) in under.iter().enumerate() {
        guard::in_use(graph, provider)?;
        part.number = number as u16;
        array::join(graph, &CONCAT, provider, &part)?;
    }
    graph.settle();
    Ok(())
}

/// Removes a concatenation; its metadata stays (`gconcat stop`).
///
/// # Errors
/// That it is open, unless `force`.
pub fn stop(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), Error> {
    super::destroy(graph, geom, force)
}

impl Class for Concat {
    fn name(&self) -> &'static str {
        "CONCAT"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let metadata = match graph.peek_last(provider) {
            Ok(sector) => match wire::Concat::parse(&sector) {
                Ok(metadata) => metadata,
                Err(_) if !sector.starts_with(&wire::MAGIC) => {
                    return Taste::passed("no label of CONCAT in the last sector");
                }
                Err(error) => {
                    let at = graph[provider].last_sector();
                    let text = alloc::format!("its label of CONCAT is not sound: {error}");
                    return Taste::refused(text, at, wire::LEN as u64);
                }
            },
            Err(error) => return Taste::passed(error.to_string()),
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

    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::Error> {
        array::start(graph, provider, io)
    }

    fn access(&self, graph: &mut Graph, provider: ProviderId, change: Access) -> Result<(), Error> {
        pass_access_alone(graph, provider, change)
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        array::told(graph, news)
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        array::config(graph, object)
    }
}
