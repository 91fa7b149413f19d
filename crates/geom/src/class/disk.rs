//! DISK and MD: the bottom of a graph.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::{self, Change};

use super::{Class, Config, Object, Requests, Value};
use crate::access::Access;
use crate::error::GeomError;
use crate::graph::Graph;
use crate::io::{Io, Medium, Shape};
use crate::object::ProviderId;
use crate::record::Taste;
use crate::route::Route;
use crate::zone::{Zone, ZoneAnswer, Zones};

/// The class of disks.
#[derive(Debug)]
pub struct Disk(&'static str);

/// Disks of targets.
pub static DISK: Disk = Disk("DISK");
/// Image files and memory.
pub static MD: Disk = Disk("MD");

/// Maximum sector size in bytes: no disk has larger sectors.
pub const SECTOR_MAX: u32 = 65536;

#[derive(Debug)]
struct State {
    medium: Box<dyn Medium>,
    zones: Option<Box<dyn Zones>>,
}

impl Disk {
    /// Inserts a disk of this class.
    ///
    /// # Errors
    /// If its shape is invalid, or if its name is taken.
    pub fn insert(
        &'static self,
        graph: &mut Graph,
        name: &str,
        medium: Box<dyn Medium>,
    ) -> Result<ProviderId, GeomError> {
        let shape = medium.shape();
        let sector = shape.sector_size;
        if !sector.is_power_of_two() || !(512..=SECTOR_MAX).contains(&sector) {
            let cause =
                format!("its sectors have {sector} bytes; they must have 512 to {SECTOR_MAX}");
            return Err(GeomError::invalid(name, cause));
        }
        let media_size = shape.media_size / u64::from(sector) * u64::from(sector);
        let geom = graph.new_geom(self, name);
        graph.set_state(geom, State { medium, zones: None });
        graph.new_provider(geom, name, Shape { media_size, ..shape }).inspect_err(|_| {
            graph.drop_geom(geom);
        })
    }
}

/// Declares that the disk is zoned.
pub fn set_zones(graph: &mut Graph, provider: ProviderId, zones: Box<dyn Zones>) {
    let geom = graph[provider].geom;
    if let Some(state) = graph.state_mut::<State>(geom) {
        state.zones = Some(zones);
    }
}

/// The disk is gone.
pub fn remove(graph: &mut Graph, provider: ProviderId) {
    let geom = graph[provider].geom;
    graph.wither_geom(geom, block::BlockError::Gone);
    graph.settle();
}

/// A change reported by the layer below a disk: the disk is orphaned, resized or spoiled.
pub fn changed(graph: &mut Graph, provider: ProviderId, change: Change) {
    match change {
        Change::Gone => remove(graph, provider),
        Change::Resized { bytes } => {
            let sector = u64::from(graph[provider].sector_size.max(1));
            graph.resize_provider(provider, bytes / sector * sector);
            graph.settle();
        }
        Change::Medium => {
            graph.media_changed(provider);
            graph.settle();
        }
        // Attributes are always read from the medium, and data lost in a reset concerns only those
        // who wrote without a flush.
        _ => {}
    }
}

/// The medium under a disk.
pub fn medium(graph: &Graph, provider: ProviderId) -> Option<&dyn Medium> {
    graph.state::<State>(graph[provider].geom).map(|state| &*state.medium)
}

impl Class for Disk {
    fn name(&self) -> &'static str {
        self.0
    }

    fn taste(&self, _: &mut Graph, _: ProviderId) -> Taste {
        Taste::passed("")
    }

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        let geom = graph[provider].geom;
        let name = graph[provider].name.clone();
        let Some(state) = graph.state_mut::<State>(geom).filter(|_| change.opens()) else {
            return Ok(());
        };
        state.medium.open(change.write > 0).map_err(|error| GeomError::io(name, error))
    }

    fn attribute(&self, graph: &Graph, provider: ProviderId, name: &str) -> Option<Value> {
        let wanted = name.strip_prefix("GEOM::")?;
        let properties = medium(graph, provider)?.properties();
        let found = properties.into_iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| match value.parse() {
            Ok(number) if !matches!(wanted, "ident" | "descr" | "lunid" | "lunname") => {
                Value::Number(number)
            }
            _ => Value::Text(value),
        })
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        match object {
            Object::Provider(provider) => {
                let mut properties: Vec<_> =
                    medium(graph, provider).map(Medium::properties).unwrap_or_default();
                properties.reverse();
                properties
            }
            Object::Geom(_) | Object::Consumer(_) => Vec::new(),
        }
    }
}

impl Requests for Disk {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        let geom = graph[provider].geom;
        let state = graph.state_mut::<State>(geom).ok_or(block::BlockError::Gone)?;
        match io {
            Io::Read { offset, to } => state.medium.read(offset, to),
            Io::Write { offset, from } => state.medium.write(offset, from),
            Io::Delete { offset, length } => state.medium.delete(offset, length),
            Io::Flush => state.medium.flush(),
        }
    }

    fn zone(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        command: Zone,
    ) -> Result<ZoneAnswer, block::BlockError> {
        let geom = graph[provider].geom;
        let state = graph.state_mut::<State>(geom).ok_or(block::BlockError::Gone)?;
        state.zones.as_mut().ok_or(block::BlockError::Unsupported)?.zone(command)
    }

    fn route(&self, _: &mut Graph, _: ProviderId, _: bool) -> Result<Option<Route>, GeomError> {
        Ok(Some(Route::Disk))
    }
}

/// A disk in memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Sector size, bytes.
    pub sector_size: u32,
    /// Its serial number.
    pub serial: String,
}

impl Memory {
    /// `bytes` zeros in sectors of 512 bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], sector_size: 512, serial: String::new() }
    }
}

impl Medium for Memory {
    fn shape(&self) -> Shape {
        Shape {
            media_size: self.bytes.len() as u64,
            sector_size: self.sector_size,
            stripe_size: 0,
            stripe_offset: 0,
        }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), block::BlockError> {
        let from = self.bytes.get(offset as usize..).and_then(|from| from.get(..to.len()));
        to.copy_from_slice(from.ok_or(block::BlockError::OutOfRange)?);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), block::BlockError> {
        let to = self.bytes.get_mut(offset as usize..).and_then(|to| to.get_mut(..from.len()));
        to.ok_or(block::BlockError::OutOfRange)?.copy_from_slice(from);
        Ok(())
    }

    fn delete(&mut self, offset: u64, length: u64) -> Result<(), block::BlockError> {
        let to = self.bytes.get_mut(offset as usize..).and_then(|to| to.get_mut(..length as usize));
        to.ok_or(block::BlockError::OutOfRange)?.fill(0);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), block::BlockError> {
        Ok(())
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        let mut properties = vec![("type", "memory".to_string())];
        if !self.serial.is_empty() {
            properties.push(("ident", self.serial.clone()));
        }
        properties
    }
}
