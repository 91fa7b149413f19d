//! Commands in a device's own protocol, and the port of a host controller that carries them.
//!
//! A protocol is a type ([`Protocol`]): [`Scsi`], [`Ata`], [`Nvme`] and [`Mmc`]. Each has a
//! payload, which goes to the device, and a status, which the device returns when something is
//! wrong. A [`Port`] names its protocol, so everything above it is compiled for that one protocol
//! and decides nothing per command. Where a person issues commands and the protocol is known only
//! at run time, [`PassThrough`] is the one enum over all of them.
//!
//! A port is what CAM calls a SIM: it only wraps commands and unwraps answers. The layer above
//! decides which commands to send, how often to retry and what an error means. In return the port
//! guarantees that every command it accepted ends exactly once, whatever happens to the device.
//! That is why the deadline travels with the command and recovery is part of the driver. The type
//! of the [`Token`] expresses this guarantee: a token can be moved but not copied.
//!
//! A command that succeeded costs its caller an [`Outcome`] of 32 bytes. Status, residual and the
//! controller's own code are looked up by [`Port::failure`], and only if it did not succeed.

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

/// The protocol of a device.
pub trait Protocol: Copy + Debug + Eq + 'static {
    /// What goes to the device.
    type Payload: Copy + Debug + Eq;
    /// How the device describes a command that did not plainly succeed. The default describes
    /// nothing.
    type Status: Copy + Debug + Default + Eq;
}

/// Direction of the data of a command.
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

/// How the device may order a command relative to others of its unit: SCSI's task attributes (SAM-6
/// 8.9). Protocols with only one kind accept only [`Simple`](Self::Simple).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// In any order.
    #[default]
    Simple,
    /// After everything before it, before everything after it.
    Ordered,
    /// Before every waiting command.
    HeadOfQueue,
}

/// The caller's name for a command: it goes down with the command and comes back in the outcome.
///
/// It can be moved but neither copied nor cloned. A port that keeps it in the command's slot and
/// moves it into the outcome cannot report the same command twice: that would not compile.
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
    /// A token with this number. A caller that makes two with one number must tell them apart
    /// itself.
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
    /// The unit, in the numbers of the protocol: a SCSI logical unit number (SAM-6 4.7, its eight
    /// bytes as a big-endian number), a SATA port behind a port multiplier, an NVMe namespace, an
    /// MMC partition (PARTITION_ACCESS).
    pub unit: u64,
    /// What goes to the device.
    pub payload: P::Payload,
    /// Direction of the data.
    pub direction: Direction,
    /// The data; its length is the expected transfer length. Its owner must not touch it, or the
    /// list that may name it, until the outcome is delivered.
    pub data: Data,
    /// The key of the host controller that encrypts the data in transit; `None` leaves the data as
    /// it is.
    pub crypto: Option<CryptoContext>,
    /// Ordering relative to other commands.
    pub ordering: Ordering,
    /// The instant after which the port stops waiting, aborts the command and recovers.
    pub deadline: Instant,
    /// The caller's name for it.
    pub token: Token,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Plain success: good status, no bytes missing.
    Good,
    /// The device answered, but it was not plain success: [`Failure::status`] and
    /// [`Failure::residual`] give details.
    Answered,
    /// There is no such unit.
    NoUnit,
    /// The deadline passed; the command is certainly no longer in the device.
    TimedOut,
    /// Ended at the request of the owner.
    Aborted,
    /// A reset ended the command; the device may or may not have executed it.
    Reset,
    /// The host controller ended the command for a reason of its own: [`Failure::code`].
    Host,
    /// The controller has failed permanently.
    Gone,
}

/// The outcome of a command. The driver saw it end at the `now` of the poll that returned it.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When the doorbell rang.
    pub issued: Instant,
    /// When the device finished, if known.
    pub device_done: Option<Instant>,
    /// The command's token.
    pub token: Token,
    /// How the command ended.
    pub ended: Ended,
}

const _: () = assert!(size_of::<Outcome>() <= 32, "what ended well costs little");

/// Details of a command that did not plainly succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure<P: Protocol> {
    /// The status from the device, if there was one.
    pub status: P::Status,
    /// Bytes of the expected transfer that were not moved, as far as the device can be trusted.
    pub residual: u32,
    /// The host controller's own code, if it gave one; the driver's crate has a name for it.
    pub code: u32,
}

/// Why [`Port::start`] did not accept a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// No slot is free now, or recovery is under way.
    Full,
    /// No command of this port can move this data.
    BadData(BadData),
    /// The port cannot carry such a command: it does not support the unit or the kind of payload.
    Unsupported,
    /// The controller has failed permanently.
    Gone,
}

/// A command that was not accepted: it still belongs to the caller, and so does its token.
#[derive(Debug, PartialEq, Eq)]
pub struct Declined {
    /// The reason.
    pub why: NotStarted,
    /// The command's token.
    pub token: Token,
}

/// The limits of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands in flight at once.
    pub slots: u32,
    /// Longest data transfer of one command, bytes. One range of this length always fits
    /// `segments`.
    pub transfer_max: u32,
    /// The limits of the segments of the data.
    pub segments: SegmentLimits,
    /// Whether a command may name a key ([`Command::crypto`]).
    pub crypto: bool,
}

/// A host controller as the command layer sees it: one lane of it.
pub trait Port {
    /// The protocol it carries.
    type Protocol: Protocol;

    /// The limits of the port.
    fn limits(&self) -> &Limits;

    /// The memory in which command data, and lists of segments, must lie.
    fn memory(&self) -> &DmaRegion;

    /// Accepts a command. It may stay unissued until [`ring`](Self::ring).
    ///
    /// # Errors
    /// Why it was not accepted.
    fn start(&mut self, command: Command<Self::Protocol>, now: Instant) -> Result<(), Declined>;

    /// Issues everything started since the last call: one doorbell for the batch.
    fn ring(&mut self, now: Instant);

    /// The next outcome, if there is one; recovers commands that missed their deadline. Call until
    /// it returns `None`.
    fn poll(&mut self, now: Instant) -> Option<Outcome>;

    /// Details of the last outcome that [`poll`](Self::poll) returned, if it was not
    /// [`Ended::Good`]. Ask before the next call of `start` or `poll`.
    fn failure(&self) -> Failure<Self::Protocol>;

    /// When the port wants to be polled even if no interrupt comes.
    fn poll_at(&self) -> Option<Instant>;
}

/// A command whose protocol is known only at run time: one that a person passes through.
///
/// No layer matches on it per I/O: the owner of a port extracts the command in the port's protocol.
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

/// Extracts the command of one protocol from a [`PassThrough`].
macro_rules! language {
    ($protocol:ident) => {
        impl From<Command<$protocol>> for PassThrough {
            fn from(command: Command<$protocol>) -> Self {
                Self::$protocol(command)
            }
        }

        impl TryFrom<PassThrough> for Command<$protocol> {
            /// The command, if it is one of this protocol.
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
