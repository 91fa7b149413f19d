//! Long operations: formats and sanitize operations.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::identify::ALL_NAMESPACES;
use flysch_wire::nvme::{LogId, Sqe, Status};

use super::Nvme;
use super::clock::{Clock, Event};
use super::config::NAMESPACES_MAX;
use super::namespace::{FORMATS, WriteProtect};
use super::spaces::Namespaces;
use super::task::TaskRef;

/// Duration of a format, nanoseconds: the minimum, and per GiB.
const FORMAT_NS: u64 = 100_000_000;
const FORMAT_GIB_NS: u64 = 1_000_000;
/// Duration of a sanitize operation, nanoseconds: the minimum, and per GiB.
const SANITIZE_NS: u64 = 500_000_000;
const SANITIZE_GIB_NS: u64 = 5_000_000;
/// Type and information of the event that reports the end of a sanitize operation.
const COMMAND_SET_EVENT: u8 = 6;
const SANITIZED: u8 = 1;
/// Length of the sanitize status log, bytes.
const SANITIZE_LOG: usize = 512;
/// SPROG without an operation in progress.
const DONE: u16 = u16::MAX;
/// SSTAT: completed, in progress, all data erased since.
const COMPLETED: u16 = 1;
const IN_PROGRESS: u16 = 2;
const ERASED: u16 = 1 << 8;

/// An operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Formats the namespaces of these bits, by index, to this format, for this command.
    Format {
        spaces: u32,
        format: u8,
        task: TaskRef,
    },
    Sanitize,
}

/// Formats and sanitize operations: those in progress, and the last sanitize operation's result.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    jobs: Vec<(u32, Job)>,
    next: u32,
    /// When the most recent operation began, and when it ends.
    span: (u64, u64),
    /// SSTAT of the last sanitize operation, and CDW10 of its command.
    status: u16,
    command: u32,
}

impl Upkeep {
    /// Whether a sanitize operation is in progress.
    #[inline]
    pub(super) fn is_sanitizing(&self) -> bool {
        self.status & 7 == IN_PROGRESS
    }

    /// The sanitize status log.
    pub(super) fn page(&self, now: u64) -> Vec<u8> {
        let mut page = vec![0; SANITIZE_LOG];
        let (start, end) = self.span;
        let progress = match self.is_sanitizing() {
            true => ((now - start) * 0x1_0000 / (end - start).max(1)).min(0xFFFE) as u16,
            false => DONE,
        };
        page[0..2].copy_from_slice(&progress.to_le_bytes());
        page[2..4].copy_from_slice(&self.status.to_le_bytes());
        page[4..8].copy_from_slice(&self.command.to_le_bytes());
        // The duration of future ones is unknown.
        page[8..32].fill(0xFF);
        page
    }

    fn begin(&mut self, clock: &mut Clock, nanos: u64, job: Job) {
        self.next = self.next.wrapping_add(1);
        self.jobs.push((self.next, job));
        self.span = (clock.nanos(), clock.nanos() + nanos);
        clock.after(nanos, Event::Upkeep { number: self.next });
    }

    /// Begins a Format NVM; the command in `task` ends with it.
    pub(super) fn begin_format(
        &mut self,
        clock: &mut Clock,
        spaces: &mut Namespaces,
        (task, command): (TaskRef, &Sqe),
    ) -> Result<(), Status> {
        let cdw10 = command.cdw10[0];
        let (format, erase) = ((cdw10 & 0xF) as u8, cdw10 >> 9 & 7);
        if usize::from(format) >= FORMATS.len() || cdw10 >> 4 & 0x1F != 0 || cdw10 >> 12 & 3 != 0 {
            return Err(Status::Format);
        }
        if erase > 2 {
            return Err(Status::InvalidField);
        }
        let meant: u32 = match command.nsid {
            ALL_NAMESPACES => spaces.iter().fold(0, |bits, space| bits | 1 << space.index()),
            id => 1 << spaces.attached(id)?.index(),
        };
        let mut bytes = 0;
        for space in spaces.iter().filter(|space| meant >> space.index() & 1 != 0) {
            if space.is_formatting {
                return Err(Status::FormatInProgress);
            }
            if space.protect != WriteProtect::None {
                return Err(Status::WriteProtected);
            }
            bytes += space.size;
        }
        for space in spaces.iter_mut() {
            space.is_formatting |= meant >> space.index() & 1 != 0;
        }
        let nanos = FORMAT_NS + (bytes >> 30) * FORMAT_GIB_NS;
        self.begin(clock, nanos, Job::Format { spaces: meant, format, task });
        Ok(())
    }

    /// Begins a sanitize operation, which continues across resets.
    pub(super) fn begin_sanitize(
        &mut self,
        clock: &mut Clock,
        spaces: &Namespaces,
        command: &Sqe,
    ) -> Result<(), Status> {
        let action = command.cdw10[0] & 7;
        match action {
            // Exit failure mode: there is none.
            1 => return Ok(()),
            2..=4 => {}
            _ => return Err(Status::InvalidField),
        }
        if spaces.iter().any(|space| space.protect != WriteProtect::None) {
            return Err(Status::WriteProtected);
        }
        (self.status, self.command) = (IN_PROGRESS, command.cdw10[0]);
        let nanos = SANITIZE_NS + (spaces.capacity >> 30) * SANITIZE_GIB_NS;
        self.begin(clock, nanos, Job::Sanitize);
        Ok(())
    }

    /// Ends the operation with this number and returns it. A sanitize operation has erased all
    /// `spaces`.
    pub(super) fn end(&mut self, number: u32, spaces: &mut Namespaces) -> Option<Job> {
        let at = self.jobs.iter().position(|(of, _)| *of == number)?;
        let (_, job) = self.jobs.swap_remove(at);
        if job == Job::Sanitize {
            (0..NAMESPACES_MAX as u8).for_each(|index| spaces.erase(index, None));
            self.status = COMPLETED | ERASED;
        }
        Some(job)
    }
}

impl Nvme {
    /// A format or a sanitize operation ends.
    pub(super) fn upkeep_done(&mut self, number: u32) {
        match self.device.upkeep.end(number, &mut self.device.spaces) {
            Some(Job::Sanitize) => self.tell(COMMAND_SET_EVENT, SANITIZED, LogId::Sanitize),
            Some(Job::Format { spaces, format, task }) => {
                for index in (0..NAMESPACES_MAX as u8).filter(|n| spaces >> n & 1 != 0) {
                    self.device.spaces.erase(index, Some(format));
                    self.namespace_changed(u32::from(index) + 1);
                }
                if self.tasks.is_current(task) {
                    self.finish(task.index, 0, 0);
                }
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use flysch_api::machine::Instant;

    use super::*;
    use crate::nvme::config::Config;

    #[test]
    fn a_format_is_alone_in_its_namespace_and_ends_once() {
        let mut spaces = Namespaces::new(Config::default());
        let (mut upkeep, mut clock) = (Upkeep::default(), Clock::with_capacity(4));
        let task = TaskRef { index: 3, generation: 0 };
        let command = Sqe { nsid: 1, ..Sqe::default() };
        let of = (task, &command);
        assert_eq!(upkeep.begin_format(&mut clock, &mut spaces, of), Ok(()));
        let again = upkeep.begin_format(&mut clock, &mut spaces, of);
        assert_eq!(again, Err(Status::FormatInProgress));
        let Some(Event::Upkeep { number }) = clock.take_due(Instant::NEVER) else {
            panic!("nothing ends")
        };
        // The default namespace of 4 GiB.
        assert_eq!(clock.nanos(), FORMAT_NS + 4 * FORMAT_GIB_NS);
        let job = Job::Format { spaces: 1, format: 0, task };
        assert_eq!(upkeep.end(number, &mut spaces), Some(job));
        assert_eq!(upkeep.end(number, &mut spaces), None);
    }

    #[test]
    fn a_sanitize_operation_tells_its_progress_and_erases() {
        let mut spaces = Namespaces::new(Config::default());
        let (mut upkeep, mut clock) = (Upkeep::default(), Clock::with_capacity(4));
        let mut command = Sqe::default();
        command.cdw10[0] = 2;
        assert_eq!(upkeep.begin_sanitize(&mut clock, &spaces, &command), Ok(()));
        let nanos = SANITIZE_NS + 4 * SANITIZE_GIB_NS;
        assert_eq!(upkeep.page(nanos / 2)[..2], [0, 0x80]);
        let marks = &mut spaces.attached_mut(1).unwrap().marks;
        assert!(marks.add(0, 4096));
        assert_eq!(upkeep.end(1, &mut spaces), Some(Job::Sanitize));
        assert!(!upkeep.is_sanitizing());
        assert!(!spaces.attached(1).unwrap().marks.has(0, 4096));
        assert_eq!(upkeep.page(nanos)[..4], [0xFF, 0xFF, 1, 1]);
    }
}
