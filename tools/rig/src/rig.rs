//! Rigs: several disks on several controllers and what stands on them, as one TOML file says.
//!
//! [`RigFile`] is the file, parsed and checked; [`OpenRig`] its disks. Modelled controllers of a
//! rig have one memory and one time, so that one thread drives all of them.

mod file;
mod lane;
mod open;
mod plug;
mod reader;

pub use file::{Controller, Disk, Event, Geom, RigFile};
pub use lane::{CONTROL, Control, DiskLane, StackClock};
pub use open::{OpenDisk, OpenRig, RigClock, RigError, Source};
pub use plug::{News, PlugError};
pub use reader::FileError;
