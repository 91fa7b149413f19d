//! What takes the device long: formats and sanitize operations.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::identify::ALL_NAMESPACES;
use flysch_wire::nvme::{LogId, Sqe, Status};

use super::Nvme;
use super::clock::Event;
use super::namespace::{FORMATS, WriteProtect};
use super::task::TaskRef;

/// What a format takes, nanoseconds: at least, and for each GiB.
const FORMAT_NS: u64 = 100_000_000;
const FORMAT_GIB_NS: u64 = 1_000_000;
/// What a sanitize operation takes, nanoseconds: at least, and for each GiB.
const SANITIZE_NS: u64 = 500_000_000;
const SANITIZE_GIB_NS: u64 = 5_000_000;
/// Type of the event that tells of the end of a sanitize operation, and which one it is.
const COMMAND_SET_EVENT: u8 = 6;
const SANITIZED: u8 = 1;
/// Bytes of the sanitize status log.
const SANITIZE_LOG: usize = 512;
/// SPROG of no operation.
const DONE: u16 = u16::MAX;
/// SSTAT: completed, in progress; all data has been erased since.
const COMPLETED: u16 = 1;
const IN_PROGRESS: u16 = 2;
const ERASED: u16 = 1 << 8;

#[derive(Clone, Copy, Debug)]
enum Job {
    /// The namespaces of these bits, by index, into this format, for this command.
    Format {
        spaces: u32,
        format: u8,
        task: TaskRef,
    },
    Sanitize,
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    jobs: Vec<(u32, Job)>,
    next: u32,
    /// When the sanitize operation began and ends.
    span: (u64, u64),
}

/// What sanitize operations have done.
#[derive(Debug, Default)]
pub(super) struct Sanitized {
    status: u16,
    command: u32,
}

impl Sanitized {
    /// Whether one is under way.
    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.status & 7 == IN_PROGRESS
    }

    pub(super) fn page(&self, upkeep: &Upkeep, now: u64) -> Vec<u8> {
        let mut page = vec![0; SANITIZE_LOG];
        let (start, end) = upkeep.span;
        let progress = match self.is_under_way() {
            true => ((now - start) * 0x1_0000 / (end - start).max(1)).min(0xFFFE) as u16,
            false => DONE,
        };
        page[0..2].copy_from_slice(&progress.to_le_bytes());
        page[2..4].copy_from_slice(&self.status.to_le_bytes());
        page[4..8].copy_from_slice(&self.command.to_le_bytes());
        // Nobody knows how long one will take.
        page[8..32].fill(0xFF);
        page
    }
}

impl Nvme {
    fn begin(&mut self, nanos: u64, job: Job) {
        let upkeep = &mut self.device.upkeep;
        upkeep.next = upkeep.next.wrapping_add(1);
        let number = upkeep.next;
        upkeep.jobs.push((number, job));
        upkeep.span = (self.clock.nanos(), self.clock.nanos() + nanos);
        self.clock.after(nanos, Event::Upkeep { number });
    }

    /// Format NVM: begins; the command ends with it.
    pub(super) fn begin_format(&mut self, index: u16, command: &Sqe) -> Result<(), Status> {
        let cdw10 = command.cdw10[0];
        let (format, erase) = ((cdw10 & 0xF) as u8, cdw10 >> 9 & 7);
        if usize::from(format) >= FORMATS.len() || cdw10 >> 4 & 0x1F != 0 || cdw10 >> 12 & 3 != 0 {
            return Err(Status::Format);
        }
        if erase > 2 {
            return Err(Status::InvalidField);
        }
        let spaces: u32 = match command.nsid {
            ALL_NAMESPACES => {
                let all = self.device.spaces.iter().flatten();
                all.fold(0, |bits, space| bits | 1 << (space.id - 1))
            }
            id => 1 << self.namespace_of(id)?,
        };
        let mut bytes = 0;
        for space in self.device.spaces.iter().flatten() {
            if spaces >> (space.id - 1) & 1 == 0 {
                continue;
            }
            if space.is_formatting {
                return Err(Status::FormatInProgress);
            }
            if space.protect != WriteProtect::None {
                return Err(Status::WriteProtected);
            }
            bytes += space.size;
        }
        for space in self.device.spaces.iter_mut().flatten() {
            space.is_formatting |= spaces >> (space.id - 1) & 1 != 0;
        }
        let task = self.tasks.name(index);
        let nanos = FORMAT_NS + (bytes >> 30) * FORMAT_GIB_NS;
        self.begin(nanos, Job::Format { spaces, format, task });
        Ok(())
    }

    /// Sanitize: begins, and goes on over resets.
    pub(super) fn begin_sanitize(&mut self, command: &Sqe) -> Result<u32, Status> {
        let action = command.cdw10[0] & 7;
        match action {
            // Exit failure mode: there is none.
            1 => return Ok(0),
            2..=4 => {}
            _ => return Err(Status::InvalidField),
        }
        let mut spaces = self.device.spaces.iter().flatten();
        if spaces.any(|space| space.protect != WriteProtect::None) {
            return Err(Status::WriteProtected);
        }
        self.device.sanitized.status = IN_PROGRESS;
        self.device.sanitized.command = command.cdw10[0];
        let nanos = SANITIZE_NS + (self.device.capacity >> 30) * SANITIZE_GIB_NS;
        self.begin(nanos, Job::Sanitize);
        Ok(0)
    }

    /// A format or a sanitize operation ends.
    pub(super) fn upkeep_done(&mut self, number: u32) {
        let jobs = &mut self.device.upkeep.jobs;
        let Some(at) = jobs.iter().position(|(of, _)| *of == number) else { return };
        let (_, job) = jobs.swap_remove(at);
        match job {
            Job::Sanitize => {
                for index in 0..self.device.spaces.len() as u8 {
                    self.erase(index, None);
                }
                self.device.sanitized.status = COMPLETED | ERASED;
                self.tell(COMMAND_SET_EVENT, SANITIZED, LogId::Sanitize);
            }
            Job::Format { spaces, format, task } => {
                for index in (0..self.device.spaces.len() as u8).filter(|n| spaces >> n & 1 != 0) {
                    self.erase(index, Some(format));
                    self.namespace_changed(u32::from(index) + 1);
                }
                if self.tasks.is_current(task) {
                    self.finish(task.index, 0, 0);
                }
            }
        }
    }

    /// Everything in a namespace is gone.
    fn erase(&mut self, index: u8, format: Option<u8>) {
        let device = &mut self.device;
        let Some(Some(space)) = device.spaces.get_mut(usize::from(index)) else { return };
        device.cache.discarded(index, 0, space.size);
        let format = format.unwrap_or(space.format);
        space.erase(format);
        space.is_formatting = false;
    }
}
