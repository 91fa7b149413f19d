//! A protocol and the device in one loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Wall};

use flysch_api::block::BlockDevice;
use flysch_api::machine::{Clock, Wake};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::jobs::{Job, Jobs, Transfer};

/// Maximum time to wait for the device between two checks of the clients.
const GLANCE: Duration = Duration::from_micros(20);
/// How long clients may take to read their last answers when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// A protocol: clients on one side, jobs for the device on the other.
pub trait Door {
    /// The protocol's side of a request: its owner, and the location of its data.
    type Transfer: Transfer;

    /// Receives clients' requests and passes them to `add`; `block` is the device's block size in
    /// bytes. Returns whether there were any.
    fn receive(&mut self, block: u64, add: impl FnMut(Job<Self::Transfer>)) -> bool;

    /// A job is done.
    fn finish(&mut self, job: Job<Self::Transfer>);

    /// Sends pending answers, and releases clients that are finished. Returns whether anything
    /// happened.
    fn send(&mut self) -> bool;

    /// The server ends: no more requests are accepted, requests in progress are still answered.
    /// Called in every iteration from then on.
    fn stop(&mut self);

    /// Whether no client is left; called only after [`stop`](Self::stop).
    fn is_over(&self) -> bool;

    /// About to sleep until [`watch`](Self::watch) reports something: returns whether there is
    /// really nothing to do.
    fn rest(&mut self) -> bool {
        true
    }

    /// What wakes a sleeping server, and when it has to check its clients again in any case.
    fn watch<'a>(&'a self, polls: &mut Vec<PollFd<'a>>) -> Option<Wall>;
}

/// A door's requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes at the end of the device's memory reserved for the door: see [`Transfer::place`].
    pub reserved: usize,
    /// How long clients may take to read their last answers when the server ends; `None` is
    /// unlimited.
    pub farewell: Option<Duration>,
}

impl Default for Terms {
    /// No memory, and five seconds.
    fn default() -> Self {
        Self { reserved: 0, farewell: Some(FAREWELL) }
    }
}

/// Ends a server from other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl Handle {
    /// Makes the server finish requests in progress and end; may be called from anywhere, including
    /// threads of signal handlers.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

/// The loop.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
}

impl Server {
    /// A server that can be ended.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        Ok(Self { handle: Handle { wake, stop: Arc::default() } })
    }

    /// A handle for ending it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves `device` through `door` until it is ended. Answered writes are only as durable as
    /// clients requested: flush the device if they have to be.
    ///
    /// # Errors
    /// The operating system no longer lets it wait.
    pub fn run<D: BlockDevice, C: Clock, P: Door>(
        &self,
        door: &mut P,
        device: &mut D,
        clock: &C,
    ) -> io::Result<()> {
        self.run_on(&Terms::default(), door, device, clock)
    }

    /// Like [`run`](Self::run), with the door's requirements.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on<D: BlockDevice, C: Clock, P: Door>(
        &self,
        terms: &Terms,
        door: &mut P,
        device: &mut D,
        clock: &C,
    ) -> io::Result<()> {
        let mut jobs = Jobs::new(device, clock, terms.reserved);
        let block = jobs.block();
        let mut stopping = false;
        let mut ends: Option<Wall> = None;
        loop {
            if !stopping && self.handle.stop.load(Ordering::SeqCst) {
                stopping = true;
                ends = terms.farewell.map(|time| Wall::now() + time);
                door.stop();
            }
            let mut moved = door.receive(block, |job| jobs.add(job));
            moved |= jobs.advance(|job| door.finish(job));
            moved |= door.send();
            if stopping {
                door.stop();
                door.send();
                let is_late = ends.is_some_and(|ends| Wall::now() > ends);
                if (door.is_over() && jobs.is_idle()) || is_late {
                    return Ok(());
                }
            }
            if moved {
                continue;
            }
            match jobs.is_idle() {
                true if door.rest() => self.sleep(door, ends)?,
                true => {}
                false => wait_for_device(&mut jobs, door),
            }
        }
    }

    /// Sleeps until a client sends something, or for a limited time.
    fn sleep<P: Door>(&self, door: &P, ends: Option<Wall>) -> io::Result<()> {
        let mut polls = vec![PollFd::new(&*self.handle.wake, PollFlags::IN)];
        let deadline = door.watch(&mut polls);
        let until = deadline.into_iter().chain(ends).min();
        let left = until.map(|until| {
            // A little more: what is looked at then shall be over.
            let left = until.saturating_duration_since(Wall::now()) + Duration::from_millis(1);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match rustix::event::poll(&mut polls, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = rustix::io::read(&*self.handle.wake, &mut [0_u8; 8]);
        Ok(())
    }
}

/// Waits for the device for a moment; ends requests in progress if it can never answer.
fn wait_for_device<D: BlockDevice, C: Clock, P: Door>(
    jobs: &mut Jobs<'_, D, C, P::Transfer>,
    door: &mut P,
) {
    let clock = jobs.clock();
    let soon = clock.now() + GLANCE;
    let asked = jobs.poll_at();
    let until = asked.map_or(soon, |asked| asked.min(soon));
    let woke = clock.wait(Some(until));
    if woke == Wake::Idle && asked.is_none() && !jobs.is_waiting() {
        jobs.give_up(|job| door.finish(job));
    }
}
