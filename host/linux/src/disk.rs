//! Linux's own block layer as a device: a block device of this machine, or a file, through one of
//! the kernel's I/O interfaces - io_uring, the asynchronous I/O of `io_submit`, or plain `preadv2`
//! and `pwritev2`.
//!
//! [`open`] first examines the object: its blocks, and who else uses it. A block device that is
//! mounted, held or used for swap is never opened for writing. A [`Disk`] is one lane: a separate
//! ring or context on the common file. [`Waiting`] is the clock that drives lanes: it waits for the
//! kernel.
//!
//! Deadlines are the kernel's: its drivers end every request, if necessary with an error, and a
//! request in the kernel cannot be cancelled without its memory. Lanes therefore have none of their
//! own, and dropping a lane waits for its requests in flight.

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
