//! Linux's own block layer as a device: a block device of this machine, or a file, through one of
//! the ways the kernel has for programs - io_uring, the asynchronous I/O of `io_submit`, or plain
//! `preadv2` and `pwritev2`.
//!
//! [`open`] looks at the object first: what its blocks are, and who else uses it. A block device
//! that is mounted, held or swapped on is never opened for writing. A [`Disk`] is one lane: a ring
//! or a context of its own on the common file. [`Waiting`] is the clock that drives lanes: where it
//! waits, it waits for the kernel.
//!
//! Deadlines are the kernel's: its drivers end every request, with an error at last, and a request
//! that the kernel has cannot be taken back without its memory. So lanes have none of their own,
//! and a lane that is dropped waits for what is under way.

mod aio;
mod clock;
mod error;
mod lane;
mod open;
mod sync;
mod uring;
mod usage;

pub use clock::Waiting;
pub use error::{DiskError, is_among_devices};
pub use lane::{Disk, Trouble};
pub use open::{Access, Engine, Facts, Object, Settings, open};
