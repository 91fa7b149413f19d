//! What can stand between us and a disk of the kernel. Every message names the object, the cause
//! and the remedy: these lines are shown to the user as they are.

use std::io;

/// Why there is no disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver is not loaded, or the kernel has none.
    #[error(
        "/dev/ublk-control: {0}; ublk is Linux's module ublk_drv: `modprobe ublk_drv` \
         (CONFIG_BLK_DEV_UBLK, Linux 6.5 or later)"
    )]
    NoDriver(io::Error),
    /// It may not be used.
    #[error("/dev/ublk-control: {0}; disks of ublk are made by root")]
    Forbidden(io::Error),
    /// The driver is there and too old.
    #[error("/dev/ublk-control: {0}; this kernel's ublk is too old: Linux 6.5 or later has it")]
    TooOld(io::Error),
    /// The kernel has no io_uring, or not for us.
    #[error(
        "io_uring: {0}; ublk needs it (CONFIG_IO_URING, `sysctl kernel.io_uring_disabled`, and \
         enough locked memory: `ulimit -l`)"
    )]
    NoRing(io::Error),
    /// The number is another server's.
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
    /// Its server was killed, and requests wait for one.
    #[error(
        "/dev/ublkb{0} waits for its server, which was killed: say --ublk-recover to take its \
         place"
    )]
    Waits(u32),
    /// It waits for a server of another disk.
    #[error(
        "/dev/ublkb{id} waits for a server whose disk, queues and depth are those it had ({what}): \
         export that, or take another number"
    )]
    OtherShape {
        /// The device's number.
        id: u32,
        /// What differs.
        what: String,
    },
    /// Blocks no kernel takes.
    #[error("the disk has {0} bytes, not one block that ublk could have")]
    Empty(u64),
    /// The device's memory has no room for the requests' data.
    #[error("{have} bytes of device memory are too few for {tags} requests: take a lower depth")]
    NoMemory {
        /// What there is.
        have: usize,
        /// Requests at a time.
        tags: usize,
    },
    /// A step failed.
    #[error("ublk: {step}: {cause}")]
    Failed {
        /// Which.
        step: &'static str,
        /// Why.
        cause: io::Error,
    },
}

impl Error {
    pub(crate) fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Failed { step, cause }
    }
}
