//! What will happen to a controller and its card.

use super::tasks::TaskRef;

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The clock of the card is stable.
    Stable { epoch: u32 },
    /// A reset of the controller is done.
    ResetDone { epoch: u32 },
    /// No response came.
    Silence { epoch: u32 },
    /// A command has crossed the line.
    Command { serial: u32 },
    /// Data was announced and did not come.
    DataSilence { serial: u32 },
    /// The data of a DMA transfer has crossed the bus.
    Data { serial: u32 },
    /// A block for the buffer port has crossed the bus.
    Block { serial: u32 },
    /// A block from the buffer port has.
    BlockSent { serial: u32 },
    /// The device is no longer busy.
    NotBusy { serial: u32 },
    /// The device has a task.
    Queued(TaskRef),
    /// A task is ready for the data lines.
    Ready(TaskRef),
    /// Its data has crossed the bus.
    Moved(TaskRef),
    /// A task ends late.
    Late(TaskRef),
    /// The direct command has crossed the line.
    Direct(TaskRef),
    /// A die may be done programming.
    Die(u16),
}

/// The present of a controller, and what will happen to it.
pub(super) type Clock = crate::events::Clock<Event>;
