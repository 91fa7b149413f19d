//! What a format of metadata must be able to do.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::array::{Array, Level};
use super::{ddf, intel, old};
use crate::error::Error;
use crate::graph::Graph;
use crate::object::ProviderId;

/// What a format keeps of an array besides what all formats have.
#[derive(Clone, Debug)]
pub enum Wire {
    /// Intel's.
    Intel(Box<intel::Conf>),
    /// DDF's.
    Ddf(Box<ddf::Conf>),
    /// Of the formats that are only read: what each disk says.
    Old(Vec<old::Said>),
}

/// Metadata on a disk.
#[derive(Clone, Debug)]
pub struct Found {
    /// What it says.
    pub array: Array,
    /// What the disk is known by.
    pub id: Vec<u8>,
}

/// Metadata is there, and it is not followed.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Why.
    pub why: String,
    /// First byte and number of the bytes that say so.
    pub bytes: (u64, u64),
}

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// How bytes lie on the members.
    pub level: Level,
    /// Bytes of each member that are used; all if none are said.
    pub size: Option<u64>,
    /// Bytes of a strip.
    pub strip: u64,
}

/// Bytes, and where they are written; in order, each flushed before the next.
pub type Writes = Vec<(u64, Vec<u8>)>;

/// A format.
pub trait Format: Sync + fmt::Debug {
    /// Its name, as `graid` says it.
    fn name(&self) -> &'static str;

    /// Reads the metadata of a disk.
    ///
    /// # Errors
    /// Why it is not followed.
    fn read(&self, graph: &mut Graph, provider: ProviderId) -> Result<Option<Found>, Refused>;

    /// What all disks say together: what the newest one says, unless each only knows of its own
    /// part.
    ///
    /// # Errors
    /// What is wrong with it.
    fn gather(&self, newest: &Array, all: &[Found]) -> Result<Array, String> {
        let _ = all;
        Ok(newest.clone())
    }

    /// What a disk says of an array that runs already, of which nothing was written since it was
    /// last here.
    fn said(&self, array: &Array, found: &Found) -> Array {
        let _ = array;
        found.array.clone()
    }

    /// Whether no disk alone tells what there is: the array starts when everything was tasted, and
    /// once more with a disk that comes later, as long as nobody uses it.
    fn is_gathered(&self) -> bool {
        false
    }

    /// How it is written, if it is.
    fn writing(&self) -> Option<&'static dyn Writing> {
        None
    }
}

/// How arrays are made, and changed.
pub trait Making {
    /// An array of these disks, each with its size, without volumes.
    ///
    /// # Errors
    /// What cannot be.
    fn create(&self, random: u64, disks: &[(Vec<u8>, u64)]) -> Result<Array, Error>;

    /// Bytes that volumes can use of a disk of this size.
    fn room(&self, size: u64) -> u64;

    /// Adds a volume over all disks of an array.
    ///
    /// # Errors
    /// What cannot be.
    fn add(&self, array: &mut Array, wanted: &Wanted<'_>) -> Result<(), Error>;

    /// Takes a volume away.
    fn delete(&self, array: &mut Array, volume: usize);

    /// Another disk takes the place of a member.
    fn replace(&self, array: &mut Array, member: usize, disk: (Vec<u8>, u64));

    /// A disk becomes a spare: of this array, of which it is the last member then, or of any, by
    /// what is written on it.
    ///
    /// # Errors
    /// Why it cannot.
    fn spare(&self, array: &mut Array, disk: (Vec<u8>, u64)) -> Result<Option<Writes>, Error>;
}

/// A format that is written too.
pub trait Writing: Format + Making {
    /// What a disk would be known by.
    ///
    /// # Errors
    /// That it has no serial number, or cannot be in an array of this format.
    fn identity(&self, graph: &Graph, provider: ProviderId) -> Result<Vec<u8>, Error>;

    /// Why an array is not written, though its format is.
    fn objection(&self, array: &Array) -> Option<String> {
        let _ = array;
        None
    }

    /// Whether a disk is a spare of any array.
    fn is_spare(&self, graph: &mut Graph, provider: ProviderId) -> bool {
        let _ = (graph, provider);
        false
    }

    /// Whether the disk of a member has metadata that only a write that was cut can have left, and
    /// would be a member by its identity.
    fn is_torn(&self, graph: &mut Graph, provider: ProviderId, array: &Array) -> bool;

    /// Puts the states into what is written, with the next generation.
    fn advance(&self, array: &mut Array);

    /// What is written on a member.
    fn emit(&self, array: &Array, member: usize) -> Writes;

    /// What is written on a disk of this size so that it has no metadata any more.
    fn erase(&self, size: u64) -> Writes;
}

/// All formats, in the order in which they are asked.
pub const FORMATS: [&dyn Format; 6] =
    [&intel::INTEL, &ddf::DDF, &old::PROMISE, &old::NVIDIA, &old::SII, &old::JMICRON];
