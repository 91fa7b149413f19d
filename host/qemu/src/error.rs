//! What can go wrong before the machine runs. Every message names the object, the cause and the
//! remedy; it is shown to the user unchanged.

use std::path::PathBuf;
use std::{fmt, io};

use crate::version::Version;

/// The purpose of a QEMU, which determines the required release. Its text is the remedy if there is
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Its own devices other than eMMC; the newest of them, the UFS device, was added in 8.2.
    Devices,
    /// Its eMMC device: that with replay protected memory, which was added in 11.
    Emmc,
    /// Its client for devices served by other processes, which was added in 11.
    Client,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Devices => {
                "install QEMU 8.2 or newer: `apt install -t bookworm-backports qemu-system-x86` on \
                 Debian 12, `apt install qemu-system-x86` on later releases"
            }
            Self::Emmc | Self::Client => {
                "install QEMU 11 or newer: `apt install -t trixie-backports qemu-system-x86` on \
                 Debian 13, `apt install qemu-system-x86` on later releases"
            }
        })?;
        f.write_str(", or name another binary in FLYSCH_QEMU")
    }
}

/// Why one of QEMU's devices could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QemuError {
    /// The binary does not exist.
    #[error("QEMU: `{}` was not found; {need}", program.display())]
    NotFound {
        /// The purpose.
        need: Need,
        /// The name that was looked for.
        program: PathBuf,
    },
    /// The binary exists but does not run.
    #[error("QEMU: `{}` cannot be run: {cause}; {need}", program.display())]
    NotRunnable {
        /// The purpose.
        need: Need,
        /// The binary.
        program: PathBuf,
        /// The operating system's error, or what the program did instead.
        cause: String,
    },
    /// The binary is a QEMU older than the UFS device.
    #[error("QEMU {version} (`{}`) is too old; {need}", program.display())]
    TooOld {
        /// The purpose.
        need: Need,
        /// The binary.
        program: PathBuf,
        /// Its version.
        version: Version,
    },
    /// A QEMU that is too old for this device, or was built without it.
    #[error("QEMU {version} (`{}`) has no usable `{device}` device; {need}", program.display())]
    NoDevice {
        /// The purpose.
        need: Need,
        /// The device.
        device: &'static str,
        /// The binary.
        program: PathBuf,
        /// Its version.
        version: Version,
    },
    /// A QEMU without the client for devices served by other processes.
    #[error(
        "QEMU {version} (`{}`) does not support vfio-user; {}",
        program.display(),
        Need::Client
    )]
    NoClient {
        /// The binary.
        program: PathBuf,
        /// Its version.
        version: Version,
    },
    /// Nobody serves a device at the given socket.
    #[error("{}: no device is served there: {cause}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// QEMU ended or misbehaved while it was starting.
    #[error("QEMU {version} (`{}`) did not start: {cause}", program.display())]
    Start {
        /// The binary.
        program: PathBuf,
        /// Its version.
        version: Version,
        /// Its last output.
        cause: String,
    },
    /// An option is outside the device's range.
    #[error("{0}")]
    Option(String),
    /// An image file cannot back a logical unit.
    #[error("image `{}`: {fault}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// The problem.
        fault: ImageFault,
    },
    /// Shared memory is not available.
    #[error("cannot get {bytes} bytes of shared memory for {purpose}: {cause}")]
    Memory {
        /// The requested amount.
        bytes: u64,
        /// The purpose.
        purpose: &'static str,
        /// The operating system's error.
        cause: io::Error,
    },
    /// The operating system refused something that normally works.
    #[error("{what}: {cause}")]
    System {
        /// The operation.
        what: &'static str,
        /// The operating system's error.
        cause: io::Error,
    },
}

/// The problem with an image file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageFault {
    /// It does not exist and no size was given to create it with.
    #[error("does not exist; give a size to create it")]
    Missing,
    /// It is a directory, a pipe, a device ...
    #[error("is {0}, not a regular file")]
    NotAFile(&'static str),
    /// It has no write permission.
    #[error("is not writable ({0}); make it writable or use it read-only")]
    NotWritable(String),
    /// It is shorter than requested.
    #[error(
        "is too small: {length} bytes, {needed} needed; enlarge it with `truncate -s {needed}`"
    )]
    TooSmall {
        /// Its length, bytes.
        length: u64,
        /// The required length, bytes.
        needed: u64,
    },
    /// Its length is not a whole number of logical blocks.
    #[error("has {length} bytes, not a multiple of the {block}-byte logical block; give a size")]
    Ragged {
        /// Its length, bytes.
        length: u64,
        /// The logical block size, bytes.
        block: u64,
    },
    /// Another program uses it.
    #[error("is in use by another program (perhaps another QEMU)")]
    Busy,
    /// Any other error of the operating system.
    #[error("{0}")]
    Io(#[from] io::Error),
}
