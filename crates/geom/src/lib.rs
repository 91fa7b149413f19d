//! The block layer: what stands between disks and those who use them.
//!
//! Four nouns, those of FreeBSD's GEOM. A *class* is a way to change a disk: to cut it
//! ([`class::part`]), to name it ([`class::label`]), to join several ([`class::mirror`],
//! [`class::stripe`]). A *geom* is one use of a class. It offers *providers*, which look like
//! disks, and stands on other geoms' providers through its *consumers*. All of it is the
//! [`Graph`].
//!
//! When a provider appears each class tastes it: reads the bytes that would prove it its own, and
//! takes it or says why not. Every such verdict is kept ([`Graph::verdicts`]). Access is counted
//! (read, write, exclusive) so that nobody writes beneath somebody else; who opens a provider for
//! writing *spoils* it for those who only had tasted it; a provider that goes away *orphans* those
//! who stand on it.
//!
//! The graph has one owner and no lock. Changes leave events behind; [`Graph::settle`] works them
//! off. Metadata is read and written through [`Graph::io`], which takes the way of a request
//! through the graph by plain calls.
//!
//! Whoever wants more than one request at a time takes a [`Way`]: where requests go is asked of the
//! classes once ([`Requests::route`]), and then they go by themselves to the lanes of the disks.
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
mod dump;
mod error;
mod events;
mod graph;
mod io;
mod object;
#[cfg(test)]
mod own_class;
mod record;
mod route;
pub mod way;
pub mod zone;

pub use access::Access;
pub use class::{Class, Config, News, Object, Requests, Value, all};
pub use error::{Error, Kind};
pub use graph::{DEPTH_MAX, Graph, PROVIDERS_MAX};
pub use io::{Io, Medium, Shape};
pub use object::{Consumer, ConsumerId, Geom, GeomId, Provider, ProviderId, Statistics};
pub use record::{Outcome, Reason, Taste, Verdict};
pub use route::{Faults, Leg, MirrorComponent, Path, Route};
pub use way::{Incident, Plan, Usage, Waits, Way};
pub use zone::{Zone, ZoneAnswer};
