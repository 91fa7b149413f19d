//! What can prevent a disk of the kernel. Every message names the object, the cause and the remedy;
//! it is shown to the user unchanged.

use std::io;

/// Why there is no disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UblkError {
    /// The driver is not loaded, or the kernel has none.
    #[error(
        "/dev/ublk-control: {0}; ublk is Linux's module ublk_drv: `modprobe ublk_drv` \
         (CONFIG_BLK_DEV_UBLK, Linux 6.5 or later)"
    )]
    NoDriver(io::Error),
    /// Access to it is denied.
    #[error("/dev/ublk-control: {0}; only root can make disks of ublk")]
    Forbidden(io::Error),
    /// The driver is too old.
    #[error("/dev/ublk-control: {0}; this kernel's ublk is too old: Linux 6.5 or later has it")]
    TooOld(io::Error),
    /// The kernel has no io_uring, or denies it.
    #[error(
        "io_uring: {0}; ublk needs it (CONFIG_IO_URING, `sysctl kernel.io_uring_disabled`, and \
         enough locked memory: `ulimit -l`)"
    )]
    NoRing(io::Error),
    /// The number belongs to another server.
    #[error("/dev/ublkb{id} is served by process {process}: end it, or take another number")]
    InUse {
        /// The device's number.
        id: u32,
        /// The server.
        process: i32,
    },
    /// The number belongs to a device that is not ours to delete.
    #[error("ublk device {0} is another program's: delete it there, or take another number")]
    NotOurs(u32),
    /// Its server was killed, and its requests wait for one.
    #[error(
        "/dev/ublkb{0} waits for its server, which was killed: use --ublk-recover to take its place"
    )]
    Waits(u32),
    /// It waits for a server of another disk.
    #[error(
        "/dev/ublkb{id} waits for a server with the disk, queues and depth that it had ({what}): \
         export that, or take another number"
    )]
    OtherShape {
        /// The device's number.
        id: u32,
        /// The difference.
        what: String,
    },
    /// Block sizes that no kernel supports.
    #[error("the disk has {0} bytes, less than one block of ublk")]
    Empty(u64),
    /// The device's memory has no room for the requests' data.
    #[error("{have} bytes of device memory are too few for {tags} requests: use a lower depth")]
    NoMemory {
        /// The available memory.
        have: usize,
        /// Simultaneous requests.
        tags: usize,
    },
    /// A step failed.
    #[error("ublk: {step}: {cause}")]
    Failed {
        /// The step.
        step: &'static str,
        /// The cause.
        cause: io::Error,
    },
}

impl UblkError {
    pub(crate) fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Failed { step, cause }
    }
}
