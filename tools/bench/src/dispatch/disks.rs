//! Disks that work on one request at a time, and their controllers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flysch_api::block::{BlockDevice, BlockGeometry, Completion, Refused, Request};
use flysch_api::data::SegmentLimits;
use flysch_api::machine::{DmaRegion, Instant};
use flysch_api::trace::Passage;

use super::channel::{Channel, lock};
use super::{CONTROLLERS, DISKS};

/// Requests of a path in flight.
const DEPTH: usize = 64;

/// A request that a disk works on.
#[derive(Debug)]
struct Work {
    token: u64,
    accepted: Instant,
    issued: Instant,
    done: Instant,
}

/// One path to a disk: its queue at the controller.
#[derive(Debug, Default)]
pub(super) struct Queue {
    work: VecDeque<Work>,
}

/// A controller: the queues of its paths. In the variant with queues it has one lock, like CAM's.
pub(super) type Controller = Arc<Mutex<Vec<Queue>>>;

/// The disks with their controllers, and the clock.
#[derive(Clone, Debug)]
pub(super) struct Bus {
    start: std::time::Instant,
    service: u64,
    /// When each disk will have finished its requests.
    free: Arc<Vec<AtomicU64>>,
    pub(super) controllers: Arc<Vec<Controller>>,
    memory: DmaRegion,
}

impl Bus {
    pub(super) fn new(service: Duration) -> Self {
        Self {
            start: std::time::Instant::now(),
            service: service.as_nanos() as u64,
            free: Arc::new((0..DISKS).map(|_| AtomicU64::new(0)).collect()),
            controllers: Arc::new((0..CONTROLLERS).map(|_| Controller::default()).collect()),
            memory: DmaRegion::zeroed(4096, 0),
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// The lane of a path to a disk. The two paths of a disk use different controllers.
    pub(super) fn lane(&self, path: usize, disk: usize) -> Lane {
        let number = (disk + path % 2) % CONTROLLERS;
        let controller = self.controllers[number].clone();
        let queue = {
            let mut queues = lock(&controller);
            queues.push(Queue::default());
            queues.len() - 1
        };
        let geometry = BlockGeometry {
            block_size: 512,
            blocks: 2048,
            transfer_max: 1 << 20,
            segments: SegmentLimits::NONE,
            queue_depth: DEPTH as u32,
            can_delete: false,
            read_only: false,
            crypto: false,
        };
        let at = Place { number, queue };
        Lane { bus: self.clone(), disk, at, geometry, over: Over::Itself(Queue::default()) }
    }

    /// When a disk finishes a request that it receives now.
    fn done(&self, disk: usize, now: Instant) -> Instant {
        let free = &self.free[disk];
        let done = free.load(Ordering::Relaxed).max(now.nanos()) + self.service;
        free.store(done, Ordering::Relaxed);
        Instant::from_nanos(done)
    }
}

impl Queue {
    fn put(&mut self, work: Work) -> Result<(), Refused> {
        if self.work.len() >= DEPTH {
            return Err(Refused::Full);
        }
        self.work.push_back(work);
        Ok(())
    }

    fn take(&mut self, now: Instant) -> Option<Completion> {
        let work = self.work.front()?;
        if work.done > now {
            return None;
        }
        let Work { token, accepted, issued, done } = self.work.pop_front()?;
        let passage = Passage { accepted, issued, device_done: Some(done), seen: now };
        Some(Completion { token, result: Ok(()), passage })
    }
}

/// What the controllers' threads found: completions, each with the location of its path.
pub(super) type Found = Arc<Mutex<Vec<VecDeque<Completion>>>>;

/// The location of a path: its controller, and its queue there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) number: usize,
    pub(super) queue: usize,
}

#[derive(Debug)]
enum Over {
    /// The lane has the path to itself.
    Itself(Queue),
    /// The controller owns it, under its lock; completions arrive through the controller's thread,
    /// by the number of the lane.
    Controller(Found, usize, Arc<Channel<()>>),
}

/// A lane of a path.
#[derive(Debug)]
pub(super) struct Lane {
    bus: Bus,
    disk: usize,
    pub(super) at: Place,
    geometry: BlockGeometry,
    over: Over,
}

impl Lane {
    /// From now on over the controller, whose thread waits at the bell.
    pub(super) fn share(&mut self, found: &Found, number: usize, bell: &Arc<Channel<()>>) {
        self.over = Over::Controller(found.clone(), number, bell.clone());
    }
}

/// All requests that a controller's paths have finished so far.
pub(super) fn collect(queues: &mut [Queue], now: Instant, mut to: impl FnMut(usize, Completion)) {
    for (number, queue) in queues.iter_mut().enumerate() {
        while let Some(completion) = queue.take(now) {
            to(number, completion);
        }
    }
}

/// When the first of a controller's requests finishes.
pub(super) fn next_done(queues: &[Queue]) -> Option<Instant> {
    queues.iter().filter_map(|queue| queue.work.front()).map(|work| work.done).min()
}

impl BlockDevice for Lane {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.bus.memory
    }

    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        let done = self.bus.done(self.disk, now);
        let Request { token, accepted, .. } = *request;
        let work = Work { token, accepted, issued: now, done };
        match &mut self.over {
            Over::Itself(queue) => queue.put(work),
            Over::Controller(_, _, bell) => {
                lock(&self.bus.controllers[self.at.number])[self.at.queue].put(work)?;
                bell.put(());
                Ok(())
            }
        }
    }

    fn ring(&mut self, _: Instant) {}

    fn poll(&mut self, now: Instant) -> Option<Completion> {
        match &mut self.over {
            Over::Itself(queue) => queue.take(now),
            Over::Controller(found, number, _) => lock(found)[*number].pop_front(),
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}
