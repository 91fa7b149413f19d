//! The threaded machine: the model in its own thread, in real or scaled time.
//!
//! Theory. The registers that a driver uses per command - the two doorbells, the completion queue's
//! head and tail, the interrupt status - are mirrored in atomics that both sides access without
//! waiting for each other. Each bit has one side that sets it and one that clears it: the host
//! rings UTRLDBR and the model clears it, the model raises IS and the host clears it. The model's
//! own IS is moved into the mirror after every step, so that an acknowledgement can never clear an
//! interrupt raised since. Every other register goes through a mailbox: the host thread posts a job
//! and waits for the answer. A host thread's doorbells are handled before its later jobs.
//!
//! Messages of event-specific interrupts set bits of another mirror, which are cleared by whoever
//! waits for their vectors.
//!
//! With nothing to do the model thread parks; a doorbell wakes it. Close to its next event it spins
//! instead, since sleeping is coarser than a flash read.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine, Registers, Wake};
use flysch_wire::ufs::registers as reg;

use super::Ufs;
use super::config::QUEUES_MAX;
use super::mcq::{QueueRegister, queue_register};
use crate::machine::{MESSAGES, Messages as _};
use crate::number::Number;

/// Idle time below which the model thread spins rather than parks, nanoseconds.
const SPIN_NS: u64 = 60_000;
/// Number of rounds in which the model thread looks for work before it parks.
const LINGER: u32 = 200;

/// A job for the model thread.
enum Job {
    Read(u32, SyncSender<u32>),
    Write(u32, u32, SyncSender<u32>),
    Call(Box<dyn FnOnce(&mut Ufs) + Send>),
}

/// The mirrored registers of one circular queue.
#[derive(Default)]
struct QueueMirror {
    sqtp: AtomicU32,
    sqhp: AtomicU32,
    cqhp: AtomicU32,
    cqtp: AtomicU32,
    cqis: AtomicU32,
}

struct Shared {
    memory: DmaRegion,
    identity: Identity,
    start: std::time::Instant,
    /// Model nanoseconds per real microsecond.
    pace: u64,
    /// UTRLDBR as the host reads it, and the bits rung since the model last looked.
    utrldbr: AtomicU32,
    rung: AtomicU32,
    is: AtomicU32,
    ie: AtomicU32,
    queues: Vec<QueueMirror>,
    /// Queues whose SQTP or CQHP was written since the model last looked.
    rung_queues: AtomicU32,
    done: Arc<[Number]>,
    vectors: u16,
    /// Vectors raised by messages that nobody has waited for yet, and vectors that messages may
    /// raise, one bit each.
    raised: AtomicU32,
    messaging: AtomicU32,
    /// Counts completions, so that a polling host is woken too.
    progress: AtomicU64,
    /// The model thread is parked, or about to park.
    parked: AtomicBool,
    /// Nothing will happen any more unless the host does something.
    idle: AtomicBool,
    stop: AtomicBool,
    jobs: Mutex<Sender<Job>>,
    /// Number of hosts that wait for an interrupt.
    waiters: Mutex<u32>,
    woken: Condvar,
}

/// Ends the thread with the last handle.
struct Guard {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    model: Thread,
}

/// A handle to a model in its own thread. Clones may go to other threads; the model ends with the
/// last of them.
#[derive(Clone)]
pub struct Threaded {
    guard: Arc<Guard>,
    /// The vectors that this handle waits for, one bit each.
    vectors: u32,
}

/// The vector that the line raises.
const LINE: u32 = 1;

impl fmt::Debug for Threaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threaded").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Takes the lock, even if a thread panicked while holding it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn now(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos().saturating_mul(u128::from(self.pace)) / 1000;
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The real time until `at`.
    fn until(&self, at: Instant) -> Duration {
        let nanos = at.nanos_since(self.now());
        Duration::from_nanos((u128::from(nanos) * 1000 / u128::from(self.pace)) as u64)
    }

    /// Whether one of `vectors` is active. Vectors raised by messages are consumed.
    fn take_interrupt(&self, vectors: u32) -> bool {
        let line = vectors & LINE != 0
            && self.is.load(Ordering::Acquire) & self.ie.load(Ordering::Acquire) != 0;
        self.raised.fetch_and(!vectors, Ordering::SeqCst) & vectors != 0 || line
    }

    /// Whether completions raise none of `vectors`.
    fn polls(&self, vectors: u32) -> bool {
        let line = vectors & LINE != 0 && self.ie.load(Ordering::SeqCst) & COMPLETION_CAUSES != 0;
        !line && self.messaging.load(Ordering::SeqCst) & vectors == 0
    }

    fn has_work(&self) -> bool {
        self.rung.load(Ordering::SeqCst) != 0 || self.rung_queues.load(Ordering::SeqCst) != 0
    }
}

impl Guard {
    /// Tells the model thread that there is something to do.
    #[inline]
    fn wake(&self) {
        if self.shared.parked.swap(false, Ordering::SeqCst) {
            self.model.unpark();
        }
    }

    fn send(&self, job: Job) {
        self.shared.idle.store(false, Ordering::SeqCst);
        // The thread lives as long as this handle: sending cannot fail.
        let _ = lock(&self.shared.jobs).send(job);
        self.model.unpark();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.model.unpark();
        if let Some(thread) = lock(&self.thread).take() {
            // A model that panicked has reported that already.
            let _ = thread.join();
        }
    }
}

impl Threaded {
    /// Starts a thread for `model`, whose DMA memory is `memory`. Model time passes at `pace`
    /// thousandths of real time: 1000 is real time.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn start(
        model: Ufs,
        memory: DmaRegion,
        identity: Identity,
        pace: u32,
    ) -> std::io::Result<Self> {
        let (sender, jobs) = channel();
        let mut queues = Vec::new();
        queues.resize_with(QUEUES_MAX as usize, QueueMirror::default);
        let shared = Arc::new(Shared {
            memory,
            identity,
            start: std::time::Instant::now(),
            pace: u64::from(pace.max(1)),
            utrldbr: AtomicU32::new(0),
            rung: AtomicU32::new(0),
            is: AtomicU32::new(0),
            ie: AtomicU32::new(0),
            queues,
            rung_queues: AtomicU32::new(0),
            done: model.done_table(),
            vectors: model.vectors(),
            raised: AtomicU32::new(0),
            messaging: AtomicU32::new(0),
            progress: AtomicU64::new(0),
            parked: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            jobs: Mutex::new(sender),
            waiters: Mutex::new(0),
            woken: Condvar::new(),
        });
        let runner = Runner { shared: Arc::clone(&shared), model, jobs, doorbell: 0 };
        let thread = thread::Builder::new().name("ufs-model".into()).spawn(|| runner.run())?;
        let model = thread.thread().clone();
        let guard = Arc::new(Guard { shared, thread: Mutex::new(Some(thread)), model });
        Ok(Self { guard, vectors: u32::MAX })
    }

    /// Examines the model or changes it from outside, in its thread: statistics, power cuts.
    pub fn with_model<R: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Ufs) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = sync_channel(1);
        self.guard.send(Job::Call(Box::new(move |model| {
            let _ = answer.send(look(model));
        })));
        answered.recv().ok()
    }

    fn ask(&self, job: impl FnOnce(SyncSender<u32>) -> Job) -> u32 {
        let (answer, answered) = sync_channel(1);
        self.guard.send(job(answer));
        // No answer: the model has panicked; a bus without a device reads as ones.
        answered.recv().unwrap_or(u32::MAX)
    }
}

impl Registers for Threaded {
    fn read32(&self, offset: u32) -> u32 {
        let shared = &self.guard.shared;
        match offset {
            reg::UTRLDBR => return shared.utrldbr.load(Ordering::Acquire),
            reg::IS => return shared.is.load(Ordering::Acquire),
            reg::IE => return shared.ie.load(Ordering::Acquire),
            _ => {}
        }
        match queue_register(offset) {
            Some((queue, QueueRegister::Sqhp)) => shared.queues[queue].sqhp.load(Ordering::Acquire),
            Some((queue, QueueRegister::Cqtp)) => shared.queues[queue].cqtp.load(Ordering::Acquire),
            Some((queue, QueueRegister::Cqis)) => shared.queues[queue].cqis.load(Ordering::Acquire),
            _ => self.ask(|answer| Job::Read(offset, answer)),
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        let shared = &self.guard.shared;
        match offset {
            reg::UTRLDBR => {
                let new = value & !shared.utrldbr.fetch_or(value, Ordering::SeqCst);
                shared.rung.fetch_or(new, Ordering::SeqCst);
                return self.guard.wake();
            }
            reg::IS => {
                shared.is.fetch_and(!value, Ordering::SeqCst);
                return;
            }
            reg::IE => return shared.ie.store(value, Ordering::SeqCst),
            _ => {}
        }
        match queue_register(offset) {
            Some((queue, QueueRegister::Sqtp)) => {
                shared.queues[queue].sqtp.store(value, Ordering::SeqCst);
                shared.rung_queues.fetch_or(1 << queue, Ordering::SeqCst);
                self.guard.wake();
            }
            Some((queue, QueueRegister::Cqhp)) => {
                shared.queues[queue].cqhp.store(value, Ordering::SeqCst);
                shared.rung_queues.fetch_or(1 << queue, Ordering::SeqCst);
                self.guard.wake();
            }
            Some((queue, QueueRegister::Cqis)) => {
                shared.queues[queue].cqis.fetch_and(!value, Ordering::SeqCst);
            }
            _ => {
                self.ask(|answer| Job::Write(offset, value, answer));
            }
        }
    }

    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        super::device_done_in(&self.guard.shared.done, queue, slot)
    }
}

impl Clock for Threaded {
    fn now(&self) -> Instant {
        self.guard.shared.now()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        let shared = &self.guard.shared;
        let progress = shared.progress.load(Ordering::SeqCst);
        let mut waiters = lock(&shared.waiters);
        *waiters += 1;
        let wake = loop {
            if shared.take_interrupt(self.vectors) {
                break Wake::Interrupt;
            }
            if until.is_some_and(|until| until <= shared.now()) {
                break Wake::Deadline;
            }
            let polls = shared.polls(self.vectors);
            if polls && shared.progress.load(Ordering::SeqCst) != progress {
                break Wake::Deadline;
            }
            if until.is_none() && shared.idle.load(Ordering::SeqCst) && !shared.has_work() {
                break Wake::Idle;
            }
            let timeout = until.map_or(Duration::from_secs(1), |until| shared.until(until));
            let result = shared.woken.wait_timeout(waiters, timeout);
            waiters = result.unwrap_or_else(PoisonError::into_inner).0;
        };
        *waiters -= 1;
        wake
    }
}

/// UTRCS, CQES and IAGES: the causes that report completions.
const COMPLETION_CAUSES: u32 =
    reg::Interrupts::new().with_utrcs(true).with_cqes(true).with_iages(true).into_bits();

impl Machine for Threaded {
    fn memory(&self) -> &DmaRegion {
        &self.guard.shared.memory
    }

    fn identity(&self) -> Identity {
        self.guard.shared.identity
    }

    fn vectors(&self) -> u16 {
        self.guard.shared.vectors
    }

    fn messages(&self) -> Option<u64> {
        (self.vectors() > 1).then_some(MESSAGES)
    }

    fn on_vector(&self, vector: u16) -> Self {
        let vectors = if self.vectors() > 1 { 1 << vector } else { self.vectors };
        Self { guard: Arc::clone(&self.guard), vectors }
    }
}

/// The model thread.
struct Runner {
    shared: Arc<Shared>,
    model: Ufs,
    jobs: Receiver<Job>,
    /// UTRLDBR bits that the model has taken and not cleared yet.
    doorbell: u32,
}

impl Runner {
    fn run(mut self) {
        let mut quiet = 0;
        while !self.shared.stop.load(Ordering::SeqCst) {
            let worked = self.take_doorbells() | self.take_jobs();
            let now = self.shared.now();
            let due = self.model.next_event().is_some_and(|at| at <= now);
            self.model.advance(now);
            if worked || due {
                self.publish();
                quiet = 0;
            } else {
                quiet += 1;
                self.rest(quiet);
            }
        }
    }

    fn take_doorbells(&mut self) -> bool {
        let rung = self.shared.rung.swap(0, Ordering::SeqCst);
        if rung != 0 {
            self.doorbell |= rung;
            self.model.write32(reg::UTRLDBR, rung, self.shared.now());
        }
        let queues = self.shared.rung_queues.swap(0, Ordering::SeqCst);
        for queue in (0..QUEUES_MAX as usize).filter(|queue| queues >> queue & 1 != 0) {
            let mirror = &self.shared.queues[queue];
            let (head, tail) =
                (mirror.cqhp.load(Ordering::SeqCst), mirror.sqtp.load(Ordering::SeqCst));
            self.model.move_queue(queue, head, tail, self.shared.now());
        }
        rung != 0 || queues != 0
    }

    fn take_jobs(&mut self) -> bool {
        let mut worked = false;
        while let Ok(job) = self.jobs.try_recv() {
            worked = true;
            // Doorbells rung before the job was posted come first.
            self.take_doorbells();
            let now = self.shared.now();
            match job {
                Job::Call(look) => look(&mut self.model),
                Job::Read(offset, answer) => {
                    let value = self.model.read32(offset, now);
                    let _ = answer.send(value);
                }
                Job::Write(offset, value, answer) => {
                    self.model.write32(offset, value, now);
                    if offset == reg::HCE {
                        self.forget();
                    }
                    if let Some((queue, cqhp, sqtp)) = self.model.queues().configured(offset) {
                        self.shared.queues[queue].cqhp.store(cqhp, Ordering::SeqCst);
                        self.shared.queues[queue].sqtp.store(sqtp, Ordering::SeqCst);
                    }
                    self.publish();
                    let _ = answer.send(0);
                }
            }
        }
        worked
    }

    /// A controller reset empties the mirrors.
    fn forget(&mut self) {
        self.doorbell = 0;
        let Shared { utrldbr, is, ie, rung, raised, .. } = &*self.shared;
        for register in [utrldbr, is, ie, rung, raised] {
            register.store(0, Ordering::SeqCst);
        }
        for queue in &self.shared.queues {
            for register in [&queue.sqtp, &queue.sqhp, &queue.cqhp, &queue.cqtp, &queue.cqis] {
                register.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Moves the model's results to the mirrors and wakes waiting hosts.
    fn publish(&mut self) {
        let shared = &self.shared;
        let now = shared.now();
        let cleared = self.doorbell & !self.model.read32(reg::UTRLDBR, now);
        self.doorbell &= !cleared;
        let mut progress = cleared != 0;
        if self.model.uses_queues() {
            let count = self.model.queues().len();
            for (number, mirror) in shared.queues.iter().enumerate().take(count) {
                let (sqhp, cqtp, cqis) = self.model.queues_mut().take_state(number);
                mirror.sqhp.store(sqhp, Ordering::Release);
                progress |= mirror.cqtp.swap(cqtp, Ordering::SeqCst) != cqtp;
                mirror.cqis.fetch_or(cqis, Ordering::SeqCst);
            }
        }
        let raised = self.model.read32(reg::IS, now);
        self.model.write32(reg::IS, raised, now);
        let messages = self.model.take_messages() as u32;
        shared.raised.fetch_or(messages, Ordering::SeqCst);
        shared.messaging.store(self.model.messaging_queues(), Ordering::SeqCst);
        shared.utrldbr.fetch_and(!cleared, Ordering::SeqCst);
        shared.is.fetch_or(raised, Ordering::SeqCst);
        if progress {
            shared.progress.fetch_add(1, Ordering::SeqCst);
        }
        if progress || raised != 0 || messages != 0 {
            self.notify();
        }
    }

    fn notify(&self) {
        if *lock(&self.shared.waiters) > 0 {
            self.shared.woken.notify_all();
        }
    }

    /// Nothing to do: spins close to the next event, otherwise parks.
    fn rest(&mut self, quiet: u32) {
        let next = self.model.next_event();
        let pause = next.map(|at| self.shared.until(at));
        if quiet < LINGER || pause.is_some_and(|pause| pause < Duration::from_nanos(SPIN_NS)) {
            thread::yield_now();
            return;
        }
        if next.is_none() && !self.shared.idle.swap(true, Ordering::SeqCst) {
            self.notify();
        }
        self.shared.parked.store(true, Ordering::SeqCst);
        // A host that rang before it saw `parked` is noticed here.
        if !self.shared.has_work() && !self.shared.stop.load(Ordering::SeqCst) {
            match pause {
                Some(pause) => thread::park_timeout(pause - Duration::from_nanos(SPIN_NS)),
                None => thread::park(),
            }
        }
        self.shared.parked.store(false, Ordering::SeqCst);
        self.shared.idle.store(false, Ordering::SeqCst);
    }
}
