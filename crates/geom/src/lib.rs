//! The block layer: everything between disks and their users.
//!
//! It has four kinds of objects, those of FreeBSD's GEOM. A *class* is a transformation of disks:
//! partitioning ([`class::part`]), naming ([`class::label`]), combining several ([`class::mirror`],
//! [`class::stripe`]). A *geom* is an instance of a class. It offers *providers*, which look like
//! disks, and uses other geoms' providers through its *consumers*. Together they form the
//! [`Graph`].
//!
//! When a provider appears, each class tastes it: it reads the bytes that would identify its own
//! metadata, and takes the provider or says why not. Every such verdict is kept
//! ([`Record::verdicts`]). Access is counted (read, write, exclusive) so that nobody writes below
//! somebody else; opening a provider for writing *spoils* it for those who had only tasted it; a
//! provider that goes away *orphans* its consumers.
//!
//! The graph has one owner and no lock. Changes leave events, which [`Graph::settle`] processes.
//! Metadata is read and written through [`Graph::io`], which passes a request through the graph by
//! plain calls.
//!
//! For more than one request at a time there is the [`Way`]: the classes are asked once where
//! requests go ([`Requests::route`]), and from then on requests go directly to the lanes of the
//! disks.
//!
//! A class is one file: see [`Class`], and `docs/geom.md` for one of sixty lines.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
pub mod class;
pub mod dump;
mod error;
mod events;
mod graph;
mod io;
mod object;
#[cfg(test)]
mod own_class;
mod record;
mod route;
mod statistics;
pub mod way;
pub mod zone;

pub use access::Access;
pub use class::all;
pub use error::{GeomError, Kind};
pub use graph::{
    Class, Config, DEPTH_MAX, Geom, Graph, News, Object, Objects, PROVIDERS_MAX, Requests, Value,
};
pub use io::{Io, Medium, Shape};
pub use object::{Consumer, ConsumerId, GeomId, Provider, ProviderId};
pub use record::{Outcome, Reason, Record, Taste, Verdict};
pub use route::{Faults, Leg, MirrorComponent, Path, Route};
pub use statistics::Statistics;
pub use way::{Incident, Plan, Usage, Waits, Way};
pub use zone::{Zone, ZoneAnswer};
