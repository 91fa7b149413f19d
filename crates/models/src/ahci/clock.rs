//! What will happen to an HBA and its devices.

use super::list::{Seat, TaskRef};

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The firmware has a command and looks at what it needs.
    Accepted(TaskRef),
    /// The first data of a read is ready to be sent.
    Ready(TaskRef),
    /// The data of a write, so many bytes, is in the write buffer.
    Arrived(TaskRef, u32),
    /// A command ends.
    Complete(TaskRef),
    /// A die of a device may be done programming.
    Die(Seat, u16),
    /// The HBA has reset itself.
    HbaReset,
    /// The BIOS gives the HBA up.
    Bios,
    /// A message to the enclosure has been sent.
    Message,
    /// A link comes up.
    Link { port: u8, epoch: u32 },
    /// A device is ready after a reset.
    Signature { port: u8, epoch: u32 },
    /// The link of a multiplier's device port comes up.
    FanLink { port: u8, fan: u8, epoch: u32 },
    /// The device there is ready after a reset.
    FanSignature { port: u8, fan: u8, epoch: u32 },
    /// A device that was pulled off is put back.
    PlugIn(Seat),
    /// A sanitize operation ends.
    Sanitized { seat: Seat, number: u32 },
}

/// The present of an HBA, and what will happen to it.
pub(super) type Clock = crate::events::Clock<Event>;
