//! The former dispatch of requests: queues, and threads between them.
//!
//! Caller, `g_down`, a thread for the interrupts of each controller, `g_up`, caller: each waits for
//! the previous one. `g_down` takes the lock of the controller for each request, and the
//! controller's thread takes it for completions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use flysch_api::block::{BlockDevice, Completion, Request};
use flysch_api::machine::DmaRegion;
use flysch_geom::Way;

use super::channel::{Channel, lock};
use super::disks::{Bus, Found, Lane, Place, collect, next_done};

/// The threads, and the queues to and from them.
#[derive(Debug)]
pub(super) struct Queued {
    bytes: u64,
    memory: DmaRegion,
    is_over: Arc<AtomicBool>,
    down: Arc<Channel<Request>>,
    up: Arc<Channel<usize>>,
    done: Arc<Channel<Completion>>,
    /// Requests passed by `g_down` to a controller.
    issued: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Queued {
    pub(super) fn start(bus: &Bus, way: Way<Lane>) -> Self {
        let (plan, lanes) = way.into_parts();
        let found: Found = Arc::new(Mutex::new(Vec::new()));
        let mut places: Vec<Place> = Vec::new();
        let bells: Vec<Arc<Channel<()>>> = bus.controllers.iter().map(|_| Channel::new()).collect();
        let mut lanes: Vec<_> = lanes.into_iter().map(|(id, lane)| (id, Some(lane))).collect();
        for (number, (_, lane)) in lanes.iter_mut().enumerate() {
            let lane = lane.as_mut().expect("not taken yet");
            lane.share(&found, number, &bells[lane.at.number]);
            lock(&found).push(VecDeque::new());
            places.push(lane.at);
        }
        let take = |wanted| lanes.iter_mut().find(|(id, _)| *id == wanted)?.1.take();
        let way = Way::new(plan, take).expect("the same lanes");
        let (bytes, memory) = (way.geometry().bytes(), way.memory().clone());
        let mut this = Self {
            bytes,
            memory,
            is_over: Arc::default(),
            down: Channel::new(),
            up: Channel::new(),
            done: Channel::new(),
            issued: Arc::default(),
            threads: Vec::new(),
        };
        let way = Arc::new(Mutex::new(way));
        this.spawn_down(bus, &way);
        for (number, bell) in bells.iter().enumerate() {
            let lanes = places.iter().enumerate().filter(|(_, place)| place.number == number);
            let mut by_queue: Vec<(usize, usize)> =
                lanes.map(|(lane, place)| (place.queue, lane)).collect();
            by_queue.sort_unstable();
            let by_queue = by_queue.into_iter().map(|(_, lane)| lane).collect();
            this.spawn_controller(bus, (number, bell), by_queue, &found);
        }
        this.spawn_up(bus, &way);
        this
    }

    /// The thread that takes requests down, one after the other.
    fn spawn_down(&mut self, bus: &Bus, way: &Arc<Mutex<Way<Lane>>>) {
        let (bus, way) = (bus.clone(), way.clone());
        let (down, is_over) = (self.down.clone(), self.is_over.clone());
        let issued = self.issued.clone();
        self.threads.push(std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                for request in down.take(&is_over) {
                    while !is_over.load(Ordering::Acquire) {
                        let now = bus.now();
                        let mut way = lock(&way);
                        if way.submit(&request, now).is_ok() {
                            way.ring(now);
                            break;
                        }
                        drop(way);
                        std::thread::yield_now();
                    }
                    issued.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }

    /// The thread of a controller's interrupts.
    fn spawn_controller(
        &mut self,
        bus: &Bus,
        (number, bell): (usize, &Arc<Channel<()>>),
        lanes: Vec<usize>,
        found: &Found,
    ) {
        let (bus, bell, found) = (bus.clone(), bell.clone(), found.clone());
        let (up, is_over) = (self.up.clone(), self.is_over.clone());
        self.threads.push(std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                let mut came = Vec::new();
                let next = {
                    let mut queues = lock(&bus.controllers[number]);
                    collect(&mut queues, bus.now(), |queue, it| came.push((lanes[queue], it)));
                    next_done(&queues)
                };
                let count = came.len();
                for (lane, completion) in came {
                    lock(&found)[lane].push_back(completion);
                    up.put(lane);
                }
                match next {
                    _ if count > 0 => {}
                    // The interrupt comes when the disk has done it.
                    Some(_) => std::thread::yield_now(),
                    None => _ = bell.take(&is_over),
                }
            }
        }));
    }

    /// The thread that takes completions up, one after the other.
    fn spawn_up(&mut self, bus: &Bus, way: &Arc<Mutex<Way<Lane>>>) {
        let (bus, way) = (bus.clone(), way.clone());
        let (up, done, is_over) = (self.up.clone(), self.done.clone(), self.is_over.clone());
        self.threads.push(std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                for _ in up.take(&is_over) {
                    let now = bus.now();
                    while let Some(completion) = lock(&way).poll(now) {
                        done.put(completion);
                    }
                }
            }
        }));
    }

    /// Bytes of the provider.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn memory(&self) -> DmaRegion {
        self.memory.clone()
    }

    pub(super) fn submit(&mut self, request: Request) {
        self.down.put(request);
    }

    /// Waits for completions.
    pub(super) fn wait(&mut self) -> VecDeque<Completion> {
        self.done.take(&self.is_over)
    }

    /// Ends the threads. Returns the number of hand-overs between threads.
    pub(super) fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Release);
        // A thread counts what it has handed over behind that: all have to be at their ends.
        self.threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
        let handed = self.down.handed() + self.up.handed() + self.done.handed();
        handed + self.issued.load(Ordering::Acquire)
    }
}
