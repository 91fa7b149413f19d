//! What happened, as the kernel's trace points tell it.

use std::collections::HashMap;

use flysch_api::block::Operation;

/// A disk by its number: major and minor.
pub(super) type DiskNumber = (u32, u32);

/// One event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Event {
    /// When; ticks until the clock was applied.
    pub nanos: u64,
    /// On which processor.
    pub cpu: u32,
    /// Whose thread it interrupted or ran in.
    pub thread: u32,
    /// What.
    pub what: What,
}

/// A run of sectors of 512 bytes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The disk.
    pub disk: DiskNumber,
    /// The first.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
    /// What is done with them; `None` for what moves and gives back nothing.
    pub operation: Option<Operation>,
}

/// What an event tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    /// A system call begins, by its name's number.
    Enter(u16),
    /// It ends.
    Exit(u16),
    /// `block_bio_queue`: the block layer was handed a bio.
    Queue(Run),
    /// `block_bio_remap`: it is one of another disk now, from this disk and sector.
    Remap(Run, DiskNumber, u64),
    /// `block_split`: the part from this sector on is one of its own.
    Split(Run, u64),
    /// `block_bio_backmerge`: it joins the request before it.
    BackMerge(Run),
    /// `block_bio_frontmerge`: it joins the request behind it.
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

/// Names as small numbers; no more than fit.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<String, u16>,
    all: Vec<String>,
}

/// Most names of system calls.
const NAMES_MAX: usize = 1024;

impl Names {
    /// The number of a name; all that are too many have one.
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

/// What `rwbs` says that a request does: letters before `R`, `W`, `D` are flags.
pub(super) fn operation(rwbs: &str) -> Option<Operation> {
    let rest = rwbs.strip_prefix('F').unwrap_or(rwbs);
    match rest.as_bytes().first()? {
        b'R' => Some(Operation::Read),
        b'W' => Some(Operation::Write),
        b'D' => Some(Operation::Delete),
        _ => None,
    }
}
