//! Rigs: several disks on several controllers and what stands on them, described by a TOML file.
//!
//! [`RigFile`] is the parsed and checked file; [`OpenRig`] its disks. Modelled controllers of a rig
//! share one memory and one clock, so that one thread drives all of them.

mod file;
mod lane;
mod open;
mod plug;
mod reader;

pub use file::{Controller, Disk, Event, Geom, ReadError, RigFile};
pub use lane::{CONTROL, Control, DiskLane, StackClock};
pub use open::{OpenDisk, OpenRig, RigClock, RigError, Source};
pub use plug::{News, PlugError};
pub use reader::FileError;
