//! Future events of a controller.

use super::task::TaskRef;

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The firmware has a command and determines what it needs.
    Accepted(TaskRef),
    /// The first data of a read is ready to be sent.
    Ready(TaskRef),
    /// The data of a write, this many bytes, is in the write buffer.
    Arrived(TaskRef, u32),
    /// A command ends.
    Complete(TaskRef),
    /// A die may have finished programming.
    Die(u16),
    /// CSTS.RDY follows CC.EN.
    Follows { epoch: u32, ready: bool },
    /// The shutdown is complete.
    ShutDown { epoch: u32 },
    /// A format or a sanitize operation ends.
    Upkeep { number: u32 },
    /// New firmware runs.
    Activated { epoch: u32 },
}

/// The present of a controller, and its future events.
pub(super) type Clock = crate::events::Clock<Event>;
