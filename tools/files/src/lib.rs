//! Files that a command writes.
//!
//! Three promises, kept in one place:
//!
//! - A regular file is replaced in one step, by a whole one, or stays as it was. It keeps its mode
//!   and, where the system allows it, its owner.
//! - What is no regular file - a device, a pipe, a descriptor of this process - is written to and
//!   never replaced. A symbolic link stays one: what it leads to is written.
//! - Nothing half-written stays behind: not after an error, a full disk or Ctrl-C.
//!
//! [`Sink`] is an output that the user named. [`NewFile`] is the plain file among them, for those
//! who work on it by its path. [`Made`] is a file that is used while it becomes what it should be,
//! such as the image of a modelled device;
//! [`SocketFile`] the file of a socket. No error names the temporary file.
#![forbid(unsafe_code)]

mod leftovers;
mod new;
mod sink;
mod socket;
mod target;

pub use leftovers::{Made, abandon};
pub use new::NewFile;
pub use sink::{Sink, make_folder, say};
pub use socket::{SocketError, SocketFile};
pub use target::is_standard_output;
