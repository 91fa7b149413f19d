//! Commands in a device's own language, and the port of a host controller that carries them.
//!
//! A [`Port`] is what CAM calls a SIM: it only wraps commands and unwraps answers. What to ask,
//! how often to try again and what an error means is the business of the layer above. What the
//! port owes in return is that every command it took ends exactly once, whatever happens to the
//! device: that is why the deadline travels with the command and recovery lives in the driver.

use crate::machine::{DmaRegion, DmaSlice, Instant};

/// Which way the data of a command goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    #[default]
    None,
    /// Host memory to device.
    ToDevice,
    /// Device to host memory.
    FromDevice,
}

/// SCSI task attribute (SAM-5 8.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskAttribute {
    /// The device orders it as it likes.
    #[default]
    Simple,
    /// After everything before it, before everything after it.
    Ordered,
    /// Before everything waiting.
    HeadOfQueue,
}

/// One SCSI command to one logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Logical unit in the one-byte form the transport uses. For UFS: 0..=31, or a well-known
    /// unit with bit 7 set (0xD0 the device, 0xC4 RPMB, 0xB0 boot, 0x81 REPORT LUNS).
    pub lun: u8,
    /// The command descriptor block, zero padded.
    pub cdb: [u8; 16],
    /// Which way the data goes.
    pub direction: Direction,
    /// The data, empty if there is none. Its length is the expected transfer length.
    pub data: DmaSlice,
    /// Ordering against other commands.
    pub attribute: TaskAttribute,
    /// The instant after which the port stops waiting, aborts the command and recovers.
    pub deadline: Instant,
    /// The caller's name for it; comes back in the [`Outcome`].
    pub token: u32,
}

/// Sense data as the transport delivered it: at most 18 bytes in UFS (JESD220 10.7.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenseBytes {
    /// The bytes; beyond `len` they are zero.
    pub bytes: [u8; 18],
    /// How many of them the device sent.
    pub len: u8,
}

impl SenseBytes {
    /// What the device sent.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(self.bytes.len())]
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The device answered with this SCSI status (SAM-5 5.3.1).
    Status(u8),
    /// There is no such logical unit.
    NoLogicalUnit,
    /// The deadline passed; the command is certainly no longer in the device.
    TimedOut,
    /// Ended on request of the owner.
    Aborted,
    /// A reset ended it; it may or may not have been carried out.
    Reset,
    /// The host controller ended it with this overall command status.
    Host(u8),
    /// The controller is out of order for good.
    Gone,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The command's token.
    pub token: u32,
    /// How it ended.
    pub ended: Ended,
    /// Bytes of the expected transfer that were not moved, as far as the device can be trusted.
    pub residual: u32,
    /// Sense data, if the device sent any.
    pub sense: SenseBytes,
    /// When the doorbell rang.
    pub issued: Instant,
    /// When the device finished, where known.
    pub device_done: Option<Instant>,
    /// When the driver saw the end.
    pub seen: Instant,
}

/// Why [`Port::start`] did not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// No slot now, or recovery is under way; the command is still the caller's.
    Full,
    /// The data is too long, not aligned or not in DMA memory.
    BadData,
    /// The controller is out of order for good.
    Gone,
}

/// What a port can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands in flight at once.
    pub slots: u32,
    /// Longest data transfer of one command, bytes.
    pub transfer_max: u32,
    /// Alignment of data addresses and lengths, bytes.
    pub alignment: u32,
}

/// A host controller as the command layer sees it, one lane of it.
pub trait Port {
    /// What the port can take.
    fn limits(&self) -> &Limits;

    /// The memory that command data must lie in.
    fn memory(&self) -> &DmaRegion;

    /// Takes a command. It may stay unissued until [`ring`](Self::ring).
    ///
    /// # Errors
    /// Why it was not taken; the command is still the caller's.
    fn start(&mut self, command: &Command, now: Instant) -> Result<(), NotStarted>;

    /// Issues everything started since the last call: one doorbell for the batch.
    fn ring(&mut self, now: Instant);

    /// The next outcome, if there is one; recovers what missed its deadline. Call until `None`.
    fn poll(&mut self, now: Instant) -> Option<Outcome>;

    /// When the port wants to be polled even if no interrupt comes.
    fn poll_at(&self) -> Option<Instant>;
}
