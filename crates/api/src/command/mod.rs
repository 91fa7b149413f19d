//! Commands in a device's own language, and the port of a host controller that carries them.
//!
//! A language is a type ([`Protocol`]): [`Scsi`], [`Ata`], [`Nvme`] and [`Mmc`], each with a
//! payload - what goes to the device - and a status - what it answers when something is wrong. A
//! [`Port`] names its protocol, so everything above it is made for that one language and nothing
//! is decided per command. Where a person waits and the language is known at run time only,
//! [`PassThrough`] is the one enum over all of them.
//!
//! A port is what CAM calls a SIM: it only wraps commands and unwraps answers. What to ask, how
//! often to try again and what an error means is the business of the layer above. What the port
//! owes in return is that every command it took ends exactly once, whatever happens to the device:
//! that is why the deadline travels with the command and recovery lives in the driver. The
//! [`Token`] carries that promise in its type: it can be moved and not copied.
//!
//! A command that ended well costs its caller an [`Outcome`] of 32 bytes. Status, residual and the
//! controller's own code are looked up by [`Port::failure`], only when it did not.

mod ata;
mod mmc;
mod nvme;
mod scsi;

pub use ata::{Ata, AtaProtocol, AtaStatus, Taskfile};
pub use mmc::{Mmc, MmcCommand, MmcResponse, MmcStatus};
pub use nvme::{Nvme, NvmeCommand, NvmeStatus};
pub use scsi::{Cdb, SENSE_MAX, Scsi, ScsiStatus, SenseBytes};

use core::fmt::Debug;

use crate::crypto::CryptoContext;
use crate::data::{BadData, Data, SegmentLimits};
use crate::machine::{DmaRegion, Instant};

/// A device's language.
pub trait Protocol: Copy + Debug + Eq + 'static {
    /// What goes to the device.
    type Payload: Copy + Debug + Eq;
    /// What the device says about a command that did not plainly end well. The default says
    /// nothing.
    type Status: Copy + Debug + Default + Eq;
}

/// Which way the data of a command goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// No data.
    #[default]
    None,
    /// Host memory to device.
    ToDevice,
    /// Device to host memory.
    FromDevice,
}

/// How the device may order a command against others of its unit: SCSI's task attributes (SAM-6
/// 8.9). Languages that know one kind only take [`Simple`](Self::Simple).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// As it likes.
    #[default]
    Simple,
    /// After everything before it, before everything after it.
    Ordered,
    /// Before everything waiting.
    HeadOfQueue,
}

/// The caller's name for a command: it goes down with the command and comes back with the outcome.
///
/// It can be moved but neither copied nor cloned. A port that keeps it in the command's slot and
/// moves it into the outcome cannot owe it twice: the compiler does not let it.
///
/// ```compile_fail,E0382
/// # use flysch_api::command::Token;
/// let token = Token::new(1);
/// let owed = token;
/// let again = token;
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Token(u32);

impl Token {
    /// A token of this number. Whoever makes two of one number has to tell them apart himself.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[inline]
    pub const fn number(&self) -> u32 {
        self.0
    }
}

/// One command to one unit.
#[derive(Debug, PartialEq, Eq)]
pub struct Command<P: Protocol> {
    /// The unit in the protocol's own numbers: a SCSI logical unit number (SAM-6 4.7, its eight
    /// bytes as a big-endian number), a SATA port behind a port multiplier, an NVMe namespace, an
    /// MMC partition (PARTITION_ACCESS).
    pub unit: u64,
    /// What goes to the device.
    pub payload: P::Payload,
    /// Which way the data goes.
    pub direction: Direction,
    /// The data; its length is the expected transfer length. Its owner leaves it, and the list
    /// that may name it, alone until the outcome came.
    pub data: Data,
    /// The key of the host controller that encrypts the data on its way; `None` leaves it as it
    /// is.
    pub crypto: Option<CryptoContext>,
    /// Ordering against other commands.
    pub ordering: Ordering,
    /// The instant after which the port stops waiting, aborts the command and recovers.
    pub deadline: Instant,
    /// The caller's name for it.
    pub token: Token,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Plainly well: good status, nothing missing.
    Good,
    /// The device answered, but not plainly well: [`Failure::status`] and [`Failure::residual`]
    /// say what.
    Answered,
    /// There is no such unit.
    NoUnit,
    /// The deadline passed; the command is certainly no longer in the device.
    TimedOut,
    /// Ended on request of the owner.
    Aborted,
    /// A reset ended it; it may or may not have been carried out.
    Reset,
    /// The host controller ended it for a reason of its own: [`Failure::code`].
    Host,
    /// The controller is out of order for good.
    Gone,
}

/// What became of a command. The driver saw the end at the `now` of the poll that gave it.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When the doorbell rang.
    pub issued: Instant,
    /// When the device finished, where known.
    pub device_done: Option<Instant>,
    /// The command's token.
    pub token: Token,
    /// How it ended.
    pub ended: Ended,
}

const _: () = assert!(size_of::<Outcome>() <= 32, "what ended well costs little");

/// More about a command that did not plainly end well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure<P: Protocol> {
    /// What the device said, if it was asked.
    pub status: P::Status,
    /// Bytes of the expected transfer that were not moved, as far as the device can be trusted.
    pub residual: u32,
    /// The host controller's own code, if it had one: the driver's crate gives it a name.
    pub code: u32,
}

/// Why [`Port::start`] did not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// No slot now, or recovery is under way.
    Full,
    /// This data cannot be moved by a command of this port.
    BadData(BadData),
    /// The port cannot carry such a command: a unit or a kind of payload beyond it.
    Unsupported,
    /// The controller is out of order for good.
    Gone,
}

/// A command that was not taken: it is still the caller's, and so is its token.
#[derive(Debug, PartialEq, Eq)]
pub struct Declined {
    /// Why.
    pub why: NotStarted,
    /// The command's token.
    pub token: Token,
}

/// What a port can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands in flight at once.
    pub slots: u32,
    /// Longest data transfer of one command, bytes. One range of this length always fits
    /// `segments`.
    pub transfer_max: u32,
    /// What the data may be made of.
    pub segments: SegmentLimits,
    /// Whether a command may name a key ([`Command::crypto`]).
    pub crypto: bool,
}

/// A host controller as the command layer sees it, one lane of it.
pub trait Port {
    /// The language it carries.
    type Protocol: Protocol;

    /// What the port can take.
    fn limits(&self) -> &Limits;

    /// The memory that command data, and lists of segments, must lie in.
    fn memory(&self) -> &DmaRegion;

    /// Takes a command. It may stay unissued until [`ring`](Self::ring).
    ///
    /// # Errors
    /// Why it was not taken.
    fn start(&mut self, command: Command<Self::Protocol>, now: Instant) -> Result<(), Declined>;

    /// Issues everything started since the last call: one doorbell for the batch.
    fn ring(&mut self, now: Instant);

    /// The next outcome, if there is one; recovers what missed its deadline. Call until `None`.
    fn poll(&mut self, now: Instant) -> Option<Outcome>;

    /// More about the outcome that [`poll`](Self::poll) gave last, if it was not
    /// [`Ended::Good`]. Ask before the next call of `start` or `poll`.
    fn failure(&self) -> Failure<Self::Protocol>;

    /// When the port wants to be polled even if no interrupt comes.
    fn poll_at(&self) -> Option<Instant>;
}

/// A command whose language is known at run time only: what a person passes through.
///
/// No layer matches on it per I/O; who has a port takes the command out in the port's language.
#[derive(Debug, PartialEq, Eq)]
pub enum PassThrough {
    /// To a SCSI device.
    Scsi(Command<Scsi>),
    /// To an ATA device.
    Ata(Command<Ata>),
    /// To an NVMe controller.
    Nvme(Command<Nvme>),
    /// To an MMC device.
    Mmc(Command<Mmc>),
}

/// The way out of [`PassThrough`] for one language.
macro_rules! language {
    ($protocol:ident) => {
        impl From<Command<$protocol>> for PassThrough {
            fn from(command: Command<$protocol>) -> Self {
                Self::$protocol(command)
            }
        }

        impl TryFrom<PassThrough> for Command<$protocol> {
            /// The command in the language it is in.
            type Error = PassThrough;

            fn try_from(command: PassThrough) -> Result<Self, PassThrough> {
                match command {
                    PassThrough::$protocol(command) => Ok(command),
                    other => Err(other),
                }
            }
        }
    };
}

language!(Scsi);
language!(Ata);
language!(Nvme);
language!(Mmc);

#[cfg(test)]
mod tests;
