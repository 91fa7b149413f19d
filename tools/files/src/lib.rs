//! Files that commands write.
//!
//! Three guarantees, kept in one place:
//!
//! - A regular file is atomically replaced by a complete one, or stays as it was. It keeps its mode
//!   and, where the system allows it, its owner.
//! - Anything else - a device, a pipe, a descriptor of this process - is written to and never
//!   replaced. A symbolic link remains one: its target is written.
//! - Nothing incomplete stays behind: not after an error, a full disk or Ctrl-C.
//!
//! [`Sink`] is an output named by the user. [`NewFile`] is a regular file among them, for code that
//! works on it by its path. [`Made`] is a file in use before it is complete, such as the image of a
//! modelled device; [`SocketFile`] is the file of a socket. No error names the temporary file.
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
pub use target::{is_same, is_standard_output};
