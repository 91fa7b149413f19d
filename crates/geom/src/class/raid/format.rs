//! The interface of a metadata format.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::array::{Array, Level};
use super::{ddf, intel, old};
use crate::error::GeomError;
use crate::graph::Graph;
use crate::object::ProviderId;

/// What a format keeps of an array beyond what all formats have.
#[derive(Clone, Debug)]
pub enum Wire {
    /// Intel's.
    Intel(Box<intel::Conf>),
    /// DDF's.
    Ddf(Box<ddf::Conf>),
    /// For formats that are only read: what each disk records.
    Old(Vec<old::Said>),
}

/// Metadata on a disk.
#[derive(Clone, Debug)]
pub struct Found {
    /// The array it describes.
    pub array: Array,
    /// The identity of the disk.
    pub id: Vec<u8>,
}

/// Metadata that is present but not followed.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Why.
    pub why: String,
    /// Offset and length of the bytes that were the reason.
    pub bytes: (u64, u64),
}

/// The volume to be made.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// How data is distributed over the members.
    pub level: Level,
    /// Bytes to use of each member; `None` for all.
    pub size: Option<u64>,
    /// Size of a strip, bytes.
    pub strip: u64,
}

/// Bytes and the offset to write them to; in order, with a flush after each.
pub type Writes = Vec<(u64, Vec<u8>)>;

/// A format.
pub trait Format: Sync + fmt::Debug {
    /// Its name, as in `graid`.
    fn name(&self) -> &'static str;

    /// Reads the metadata of a disk.
    ///
    /// # Errors
    /// Why the metadata is not followed.
    fn read(&self, graph: &mut Graph, provider: ProviderId) -> Result<Option<Found>, Refused>;

    /// The array that all disks describe together: that of the newest one, unless each knows only
    /// its own part.
    ///
    /// # Errors
    /// What is wrong with it.
    fn gather(&self, newest: &Array, all: &[Found]) -> Result<Array, String> {
        let _ = all;
        Ok(newest.clone())
    }

    /// The array as described by a disk that joins a running array which has not been written since
    /// the disk left.
    fn said(&self, array: &Array, found: &Found) -> Array {
        let _ = array;
        found.array.clone()
    }

    /// Whether no single disk describes the whole array: then it starts when everything has been
    /// tasted, and starts again with a disk that comes later, as long as it is not in use.
    fn is_gathered(&self) -> bool {
        false
    }

    /// How it is written, if it can be.
    fn writing(&self) -> Option<&'static dyn Writing> {
        None
    }
}

/// Making and changing arrays.
pub trait Making {
    /// An array of these disks, each with its size, without volumes.
    ///
    /// # Errors
    /// If such an array is impossible.
    fn create(&self, random: u64, disks: &[(Vec<u8>, u64)]) -> Result<Array, GeomError>;

    /// Bytes of a disk of this size that are available to volumes.
    fn room(&self, size: u64) -> u64;

    /// Adds a volume over all disks of an array.
    ///
    /// # Errors
    /// If such a volume is impossible.
    fn add(&self, array: &mut Array, wanted: &Wanted<'_>) -> Result<(), GeomError>;

    /// Removes a volume.
    fn delete(&self, array: &mut Array, volume: usize);

    /// Replaces a member by another disk.
    fn replace(&self, array: &mut Array, member: usize, disk: (Vec<u8>, u64));

    /// Makes a disk a spare: of this array, as its last member, or of any array, by what is written
    /// to it.
    ///
    /// # Errors
    /// If that is impossible.
    fn spare(&self, array: &mut Array, disk: (Vec<u8>, u64)) -> Result<Option<Writes>, GeomError>;
}

/// A format that can be written.
pub trait Writing: Format + Making {
    /// The identity that a disk would have.
    ///
    /// # Errors
    /// If it has no serial number, or cannot be part of an array of this format.
    fn identity(&self, graph: &Graph, provider: ProviderId) -> Result<Vec<u8>, GeomError>;

    /// Why this array is not written although its format can be.
    fn objection(&self, array: &Array) -> Option<String> {
        let _ = array;
        None
    }

    /// Whether a disk is a spare of any array.
    fn is_spare(&self, graph: &mut Graph, provider: ProviderId) -> bool {
        let _ = (graph, provider);
        false
    }

    /// Whether the disk of a member has metadata that only an interrupted write can have left, and
    /// would be a member by its identity.
    fn is_torn(&self, graph: &mut Graph, provider: ProviderId, array: &Array) -> bool;

    /// Records the current states for the next write, with the next generation.
    fn advance(&self, array: &mut Array);

    /// What to write to a member.
    fn emit(&self, array: &Array, member: usize) -> Writes;

    /// What to write to a disk of this size to remove its metadata.
    fn erase(&self, size: u64) -> Writes;
}

/// All formats, in the order in which they are tried.
pub const FORMATS: [&dyn Format; 6] =
    [&intel::INTEL, &ddf::DDF, &old::PROMISE, &old::NVIDIA, &old::SII, &old::JMICRON];
