//! Events, as reported by the kernel's trace points.

use std::collections::HashMap;

use flysch_api::block::Operation;

/// A disk by its number: major and minor.
pub(super) type DiskNumber = (u32, u32);

/// One event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Event {
    /// Time; in ticks until the clock is applied.
    pub nanos: u64,
    /// On which processor.
    pub cpu: u32,
    /// The thread that it ran in or interrupted.
    pub thread: u32,
    /// The kind of event.
    pub what: What,
}

/// A range of 512-byte sectors of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The disk.
    pub disk: DiskNumber,
    /// The first.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
    /// The operation; `None` if it neither moves nor frees anything.
    pub operation: Option<Operation>,
}

/// The kinds of event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    /// A system call starts, by the number of its name.
    Enter(u16),
    /// It ends.
    Exit(u16),
    /// `block_bio_queue`: the block layer received a bio.
    Queue(Run),
    /// `block_bio_remap`: it now belongs to another disk, from this disk and sector.
    Remap(Run, DiskNumber, u64),
    /// `block_split`: the part from this sector on is a separate bio.
    Split(Run, u64),
    /// `block_bio_backmerge`: it is appended to the request before it.
    BackMerge(Run),
    /// `block_bio_frontmerge`: it is prepended to the request behind it.
    FrontMerge(Run),
    /// `block_getrq`: there is a request for it.
    Request(Run),
    /// `block_rq_insert`: a scheduler has it.
    Insert(Run),
    /// `block_rq_issue`: the driver has it.
    Issue(Run),
    /// `block_rq_requeue`: the driver gave it back.
    Requeue(Run),
    /// `block_rq_complete`; whether with an error.
    Complete(Run, bool),
    /// `scsi_dispatch_cmd_start`.
    ScsiStart,
    /// `scsi_dispatch_cmd_done`: the tag of a host.
    ScsiDone,
    /// `ufshcd_command` before the doorbell: queue and tag.
    UfsSend(u32, u32),
    /// `ufshcd_command` at the completion.
    UfsDone(u32, u32),
    /// `nvme_setup_cmd`: controller, queue, command.
    NvmeSetup(u32, u32, u32),
    /// `nvme_complete_rq`.
    NvmeDone(u32, u32, u32),
    /// `mmc_request_start` of a data command.
    MmcStart,
    /// `mmc_request_done`.
    MmcDone,
    /// `irq_handler_entry`.
    IrqEntry,
    /// `irq_handler_exit`.
    IrqExit,
}

/// Names as small numbers, up to a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<String, u16>,
    all: Vec<String>,
}

/// Maximum number of system call names.
const NAMES_MAX: usize = 1024;

impl Names {
    /// The number of a name; all names beyond the limit share one.
    pub(super) fn number(&mut self, name: &str) -> u16 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.all.len() >= NAMES_MAX {
            return NAMES_MAX as u16 - 1;
        }
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.all.len() as u16 - 1);
        self.all.len() as u16 - 1
    }

    pub(super) fn name(&self, number: u16) -> &str {
        self.all.get(usize::from(number)).map_or("", String::as_str)
    }
}

/// The operation of a request according to `rwbs`: letters before `R`, `W`, `D` are flags.
pub(super) fn operation(rwbs: &str) -> Option<Operation> {
    let rest = rwbs.strip_prefix('F').unwrap_or(rwbs);
    match rest.as_bytes().first()? {
        b'R' => Some(Operation::Read),
        b'W' => Some(Operation::Write),
        b'D' => Some(Operation::Delete),
        _ => None,
    }
}
