//! A protocol and the device in one loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Wall};

use flysch_api::block::Device;
use flysch_api::machine::{Clock, Wake};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::jobs::{Job, Jobs, Transfer};

/// Longest time the device is waited for between two looks at the clients.
const GLANCE: Duration = Duration::from_micros(20);
/// How long clients may take over their last answers when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// A protocol: clients on one side, jobs for the device on the other.
pub trait Door {
    /// A request's own side: whose it is, and where its data lies.
    type Transfer: Transfer;

    /// Takes what clients want and gives it to `add`; `block` is the bytes of a block of the
    /// device. Whether anything came.
    fn receive(&mut self, block: u64, add: impl FnMut(Job<Self::Transfer>)) -> bool;

    /// A job is over.
    fn finish(&mut self, job: Job<Self::Transfer>);

    /// Sends what clients are owed, and lets those go that are through. Whether anything moved.
    fn send(&mut self) -> bool;

    /// The server ends: no more is taken, what is under way is still answered. Called at every
    /// turn from then on.
    fn stop(&mut self);

    /// Whether nobody is left; asked only after [`stop`](Self::stop).
    fn is_over(&self) -> bool;

    /// About to sleep until something of [`watch`](Self::watch) stirs: whether there is nothing
    /// to do after all.
    fn rest(&mut self) -> bool {
        true
    }

    /// What wakes a sleeping server, and when it has to look at its clients again, whatever
    /// happens.
    fn watch<'a>(&'a self, polls: &mut Vec<PollFd<'a>>) -> Option<Wall>;
}

/// What a door wants of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes at the end of the device's memory that are the door's own: see [`Transfer::place`].
    pub reserved: usize,
    /// How long clients may take over their last answers when the server ends; `None` as long as
    /// it takes.
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
    /// Has the server finish what is under way and end; from anywhere, signal handlers' threads
    /// included.
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
    /// One that can be ended.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        Ok(Self { handle: Handle { wake, stop: Arc::default() } })
    }

    /// A handle to end it by.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves `device` through `door` until it is ended. What was answered is not safer afterwards
    /// than clients asked for: flush the device if it shall be.
    ///
    /// # Errors
    /// The operating system no longer lets it wait.
    pub fn run<D: Device, C: Clock, P: Door>(
        &self,
        door: &mut P,
        device: &mut D,
        clock: &C,
    ) -> io::Result<()> {
        self.run_on(&Terms::default(), door, device, clock)
    }

    /// As [`run`](Self::run), on the door's own terms.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on<D: Device, C: Clock, P: Door>(
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

    /// Sleeps until something comes from a client, or a time is up.
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

/// Waits for the device for a moment; ends what is under way if nothing can come of it.
fn wait_for_device<D: Device, C: Clock, P: Door>(
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
