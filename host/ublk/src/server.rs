//! The disk, for `flysch-export`'s loop.

use std::io;
use std::time::{Duration, Instant};

use flysch_api::block::BlockError as Failure;
use flysch_api::machine::DmaRegion;
use flysch_export::{Counts, Door, Handle, Job, Kind, Range, Terms, Transfer};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::claim::Claim;
use crate::control::{Control, answer};
use crate::error::UblkError;
use crate::limits::{Disk, Settings};
use crate::queues::{Came, Queues};
use crate::uapi::{Descriptor, FORCE_UNIT_ACCESS, operation};

/// Maximum bytes of a request.
const BUFFER_MAX: usize = 256 << 10;
/// Minimum: a page.
const BUFFER_MIN: usize = 4096;
/// Memory of all tags together, unless they have the minimum.
const BUFFERS: usize = 64 << 20;
/// Memory for other purposes: partial blocks, zeroes.
const OTHERS: usize = 8 << 20;

/// Why the disk is gone.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The server ends.
    #[error("the server is ending")]
    Stopped,
    /// Somebody else stopped it.
    #[error("another program stopped it")]
    Taken,
    /// The kernel did not start it.
    #[error("the kernel did not start it: {0}")]
    NotStarted(io::Error),
    /// The kernel refused one of its commands.
    #[error("the kernel did not take a command: {0}")]
    Refused(io::Error),
}

/// Events: [`Connected`](flysch_export::Event::Connected) when the disk exists, with its path, and
/// [`Gone`](flysch_export::Event::Gone).
pub type Event = flysch_export::Event<Ended>;

/// A request in progress.
#[derive(Debug)]
pub struct Call {
    index: usize,
    place: usize,
}

impl Transfer for Call {
    fn gather(
        &self,
        from: u64,
        memory: &DmaRegion,
        to: usize,
        length: usize,
    ) -> Result<(), Failure> {
        memory.copy_from(to, memory, self.place + from as usize, length);
        Ok(())
    }

    fn scatter(
        &mut self,
        to: u64,
        memory: &DmaRegion,
        from: usize,
        length: usize,
    ) -> Result<(), Failure> {
        memory.copy_from(self.place + to as usize, memory, from, length);
        Ok(())
    }

    fn place(&self) -> Option<usize> {
        Some(self.place)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The kernel reads the partition table.
    Starting,
    Live,
    /// The kernel writes back its cache, and removes the disk.
    Stopping,
    Stopped,
}

/// Maximum bytes of a request if this many tags share this much memory.
fn buffer_for(memory: usize, tags: usize) -> usize {
    let most = (BUFFERS / tags.max(1)).min(memory.saturating_sub(OTHERS.min(memory / 2)) / tags);
    let most = most.clamp(BUFFER_MIN, BUFFER_MAX);
    1 << most.ilog2()
}

/// Preferred bytes of device memory for a server with these settings.
pub fn memory_for(settings: &Settings) -> usize {
    let tags = settings.tags();
    buffer_for(usize::MAX, tags) * tags + OTHERS
}

/// The server of one disk. It is created, run and closed by one thread.
#[derive(Debug)]
pub struct Server<'a, L> {
    control: &'a mut Control,
    claim: Claim,
    /// None when everything has ended.
    queues: Option<Queues>,
    disk: Disk,
    reserved: usize,
    handle: Handle,
    phase: Phase,
    /// Whether it should end, and the reason if it was not asked to.
    ends: bool,
    why: Option<Ended>,
    counts: Counts,
    log: L,
}

impl<'a, L: FnMut(&Event)> Server<'a, L> {
    /// Creates the disk, whose data lies in `memory`, that of the served device. The disk exists
    /// once `log` reports it, which is while the server runs. If something else ends the disk, the
    /// server is ended through `handle`.
    ///
    /// # Errors
    /// What prevents it; nothing is left then.
    pub fn new(
        control: &'a mut Control,
        disk: Disk,
        memory: DmaRegion,
        handle: Handle,
        log: L,
    ) -> Result<Self, UblkError> {
        if disk.shown() == 0 {
            return Err(UblkError::Empty(disk.size));
        }
        let tags = disk.settings.tags();
        let (have, buffer) = (memory.len(), buffer_for(memory.len(), tags));
        let block = disk.block_size as usize;
        let base = have.checked_sub(tags * buffer).map(|base| base / BUFFER_MIN * BUFFER_MIN);
        let base = base.filter(|base| *base >= block).ok_or(UblkError::NoMemory { have, tags })?;
        let claim = Claim::new(control, &disk, buffer as u32)?;
        let started = Queues::new(&claim.info, memory, base)
            .and_then(|queues| claim.start(control).map(|()| queues));
        let queues = match started {
            Ok(queues) => Some(queues),
            Err(error) => {
                if !claim.is_taken_over {
                    let _ = claim.delete(control);
                }
                return Err(error);
            }
        };
        Ok(Self {
            control,
            claim,
            queues,
            disk,
            reserved: have - base,
            handle,
            phase: Phase::Starting,
            ends: false,
            why: None,
            counts: Counts::default(),
            log,
        })
    }

    /// The terms for running the loop. There is no time limit for its end, because the kernel
    /// writes back its cache.
    pub fn terms(&self) -> Terms {
        Terms { reserved: self.reserved, farewell: None }
    }

    /// Removes the disk from the kernel, after the server has run; the reason for its end goes to
    /// the log.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn close(mut self) -> Result<(), UblkError> {
        let done = self.shut();
        let why = self.why.take().unwrap_or(Ended::Stopped);
        (self.log)(&Event::Gone(1, why, self.counts));
        done
    }

    /// Checks whether a start or a stop has ended. Returns whether it has.
    fn progress(&mut self) -> bool {
        match self.phase {
            Phase::Starting => match self.control.take_started().map(answer) {
                None => return false,
                Some(Ok(_)) => {
                    self.phase = Phase::Live;
                    let path = format!("/dev/ublkb{}", self.claim.info.device);
                    (self.log)(&Event::Connected(1, path));
                }
                Some(Err(cause)) => {
                    self.phase = Phase::Live;
                    self.end(Ended::NotStarted(cause));
                }
            },
            Phase::Stopping if self.control.has_stopped() => {
                self.phase = Phase::Stopped;
            }
            _ => return false,
        }
        true
    }

    /// The disk ends, for a reason of its own.
    fn end(&mut self, why: Ended) {
        if !self.ends {
            self.why = Some(why);
            self.handle.stop();
        }
    }

    /// The job of a request; otherwise an error number, if it can be answered at once.
    fn request(&self, wanted: &Descriptor) -> Result<(Kind, Range), Errno> {
        let kind = match wanted.operation as u8 {
            operation::READ => Kind::Read,
            operation::WRITE => Kind::Write,
            operation::FLUSH => {
                let range = Range { offset: 0, length: 0, force_unit_access: false };
                return Ok((Kind::Flush, range));
            }
            operation::DISCARD if self.disk.can_discard => Kind::Trim,
            operation::WRITE_ZEROES => Kind::Zeroes,
            _ => return Err(Errno::OPNOTSUPP),
        };
        if self.disk.read_only && kind != Kind::Read {
            return Err(Errno::ROFS);
        }
        let range = self.disk.range(wanted.first, wanted.sectors);
        let (offset, length) = range.ok_or(Errno::INVAL)?;
        let buffer = self.queues.as_ref().map_or(0, Queues::buffer);
        if matches!(kind, Kind::Read | Kind::Write) && length > buffer as u64 {
            return Err(Errno::INVAL);
        }
        let force_unit_access = wanted.operation & FORCE_UNIT_ACCESS != 0 && kind != Kind::Read;
        Ok((kind, Range { offset, length, force_unit_access }))
    }
}

impl<L> Server<'_, L> {
    /// Ends the disk in the kernel, in whatever state it is.
    fn shut(&mut self) -> Result<(), UblkError> {
        let Some(mut queues) = self.queues.take() else { return Ok(()) };
        let is_starting = self.phase == Phase::Starting;
        if self.phase != Phase::Stopped {
            self.abandon(&mut queues);
        }
        drop(queues);
        // A start that waits keeps the device; it ends with this process.
        if is_starting { Ok(()) } else { self.claim.delete(self.control) }
    }

    /// Ends the disk without the device behind it: all requests fail.
    fn abandon(&mut self, queues: &mut Queues) {
        if self.phase != Phase::Stopping && self.control.stop(self.claim.info.device).is_err() {
            return;
        }
        // Tags that nobody answers any more keep the kernel waiting: each has one answer to come.
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && !(self.control.has_stopped() && queues.waiting() == 0) {
            while let Some((index, came)) = queues.next() {
                if let Came::Request(_) = came {
                    queues.answer(index, -Errno::IO.raw_os_error());
                }
            }
            queues.flush();
            self.control.wait();
        }
        self.phase = Phase::Stopped;
    }
}

/// Linux's error number for the result (its table of block layer states).
fn errno(error: Failure) -> Errno {
    match error {
        Failure::Medium(_) => Errno::NODATA,
        Failure::Unsupported => Errno::OPNOTSUPP,
        Failure::TimedOut => Errno::TIMEDOUT,
        _ => Errno::IO,
    }
}

impl<L: FnMut(&Event)> Door for Server<'_, L> {
    type Transfer = Call;

    fn receive(&mut self, block: u64, mut add: impl FnMut(Job<Call>)) -> bool {
        let mut moved = self.progress();
        while let Some((index, came)) = self.queues.as_mut().and_then(Queues::next) {
            moved = true;
            match came {
                Came::Request(wanted) => match self.request(&wanted) {
                    Ok((kind, range)) => {
                        let place = self.queues.as_ref().map_or(0, |queues| queues.place(index));
                        add(Job::new(Call { index, place }, kind, range, block));
                    }
                    Err(errno) => {
                        self.counts.failed += 1;
                        if let Some(queues) = &mut self.queues {
                            queues.answer(index, -errno.raw_os_error());
                        }
                    }
                },
                Came::Ended => self.end(Ended::Taken),
                Came::Refused(error) => {
                    self.end(Ended::Refused(io::Error::from_raw_os_error(-error)));
                }
            }
        }
        moved
    }

    fn finish(&mut self, job: Job<Call>) {
        let length = job.range().length;
        let result = match job.failed {
            Some(error) => {
                self.counts.failed += 1;
                -errno(error).raw_os_error()
            }
            None => {
                self.counts.done(job.kind(), length);
                // Longer than an `i32` are only those whose length nobody asks for.
                if matches!(job.kind(), Kind::Read | Kind::Write) { length as i32 } else { 0 }
            }
        };
        if let Some(queues) = &mut self.queues {
            queues.answer(job.transfer.index, result);
        }
    }

    fn send(&mut self) -> bool {
        self.queues.as_mut().is_some_and(Queues::flush)
    }

    fn stop(&mut self) {
        self.ends = true;
        if self.phase == Phase::Live {
            match self.control.stop(self.claim.info.device) {
                Ok(()) => self.phase = Phase::Stopping,
                Err(cause) => self.why = Some(Ended::Refused(cause)),
            }
        }
    }

    fn is_over(&self) -> bool {
        let waiting = self.queues.as_ref().map_or(0, Queues::waiting);
        let is_refused = matches!(self.why, Some(Ended::Refused(_)));
        (self.phase == Phase::Stopped && waiting == 0) || is_refused
    }

    fn rest(&mut self) -> bool {
        self.queues.as_mut().is_none_or(Queues::is_quiet)
    }

    fn watch<'a>(&'a self, polls: &mut Vec<PollFd<'a>>) -> Option<Instant> {
        polls.push(PollFd::from_borrowed_fd(self.control.descriptor(), PollFlags::IN));
        if let Some(queues) = &self.queues {
            polls.push(PollFd::from_borrowed_fd(queues.descriptor(), PollFlags::IN));
        }
        None
    }
}

impl<L> Drop for Server<'_, L> {
    fn drop(&mut self) {
        let _ = self.shut();
    }
}

#[cfg(test)]
mod tests;
