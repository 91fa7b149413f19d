//! ZERO: a provider that reads as zeros and discards writes (`gzero`): shows the cost of the
//! classes above it.

use flysch_api::block;

use super::{Class, Requests, destroy};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::{Io, Shape};
use crate::object::ProviderId;
use crate::record::Taste;

/// The type of the class.
#[derive(Debug)]
pub struct Zero;

/// The class, to be registered with a graph.
pub static ZERO: Zero = Zero;

/// The name of the geom and its provider, as in FreeBSD.
pub const NAME: &str = "gzero";

/// The provider's shape: an exbibyte in sectors of 512 bytes (FreeBSD's `g_zero.c`).
const SHAPE: Shape =
    Shape { media_size: 1 << 60, sector_size: 512, stripe_size: 0, stripe_offset: 0 };

/// Makes the provider (`geom zero load`).
///
/// # Errors
/// If it exists already, or if its name is taken.
pub fn load(graph: &mut Graph) -> Result<ProviderId, GeomError> {
    if graph.geom("ZERO", NAME).is_ok() {
        return Err(GeomError::new(Kind::Exists, NAME, "already exists"));
    }
    let geom = graph.new_geom(&ZERO, NAME);
    let provider = graph.new_provider(geom, NAME, SHAPE).inspect_err(|_| graph.drop_geom(geom))?;
    graph.settle();
    Ok(provider)
}

/// Removes it (`geom zero unload`).
///
/// # Errors
/// If it does not exist, or is in use.
pub fn unload(graph: &mut Graph) -> Result<(), GeomError> {
    let geom = graph.geom("ZERO", NAME)?;
    destroy(graph, geom, false)
}

impl Class for Zero {
    fn name(&self) -> &'static str {
        "ZERO"
    }

    fn taste(&self, _: &mut Graph, _: ProviderId) -> Taste {
        Taste::passed("")
    }

    fn access(&self, _: &mut Graph, _: ProviderId, _: Access) -> Result<(), GeomError> {
        Ok(())
    }
}

impl Requests for Zero {
    fn start(&self, _: &mut Graph, _: ProviderId, io: Io<'_>) -> Result<(), block::BlockError> {
        if let Io::Read { to, .. } = io {
            to.fill(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use std::{assert, assert_eq};

    use super::{NAME, load, unload};
    use crate::{Access, Graph, Io, all};

    #[test]
    fn an_exbibyte_of_zeros_keeps_nothing() {
        let mut graph = Graph::new(&all(), 1);
        let provider = load(&mut graph).unwrap();
        assert_eq!(graph[provider].media_size, 1_152_921_504_606_846_976);
        let open = graph.open(provider, Access::ALONE).unwrap();
        let last = graph[provider].last_sector();
        let mut back = [1; 512];
        for offset in [0, last] {
            graph.io(open, Io::Write { offset, from: &[7; 512] }).unwrap();
            graph.io(open, Io::Flush).unwrap();
            graph.io(open, Io::Read { offset, to: &mut back }).unwrap();
            assert_eq!(back, [0; 512]);
        }
        graph.io(open, Io::Delete { offset: 0, length: last }).unwrap();
        assert!(graph.io(open, Io::Read { offset: last + 512, to: &mut back }).is_err());
        assert!(unload(&mut graph).unwrap_err().to_string().contains("open"));
        graph.shut(open);
        assert!(load(&mut graph).unwrap_err().to_string().contains("already"));
        unload(&mut graph).unwrap();
        assert!(graph.provider(NAME).is_err());
        assert!(unload(&mut graph).is_err());
    }
}
