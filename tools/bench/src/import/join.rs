//! Joins events into I/Os: each system call with the bios it made and the requests they became;
//! bios without a call - the journal's, the page cache's - are separate I/Os.
//!
//! A bio is identified by disk and first sector from the block layer's queue to its completion, a
//! request likewise, a command by the driver's tag. Missing information is not guessed: it is
//! counted as lost.

use std::collections::{BTreeMap, HashMap, VecDeque};

use flysch_api::block::Operation;

use super::event::{DiskNumber, Event, Names, Run, What};

/// Maximum number of open I/Os; older ones are given up. Real queues are far shorter.
const OPEN_MAX: usize = 1 << 16;
/// Maximum bios per request; more than Linux joins.
const BIOS_MAX: usize = 1 << 10;
/// Calls that submit several I/Os, each of which counts separately.
const SUBMITTING: [&str; 2] = ["io_uring_enter", "io_submit"];

/// One I/O: when it passed each point, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Io {
    /// The disk.
    pub disk: (u32, u32),
    /// The operation.
    pub operation: Operation,
    /// The first sector of 512 bytes.
    pub sector: u64,
    /// Total bytes of all its bios.
    pub bytes: u64,
    /// The thread that made it.
    pub thread: u32,
    /// The number of the system call's name, if it was made in one.
    pub call: Option<u16>,
    /// The driver whose events belong to it.
    pub driver: Driver,
    /// Start of the system call.
    pub enter: Option<u64>,
    /// The block layer was handed the first bio.
    pub queue: u64,
    /// A request was allocated.
    pub request: Option<u64>,
    /// A scheduler received it.
    pub insert: Option<u64>,
    /// The driver received it.
    pub issue: u64,
    /// The last event before the doorbell.
    pub sent: u64,
    /// The interrupt that brought the last completion.
    pub interrupt: Option<u64>,
    /// The driver saw the last completion.
    pub done: u64,
    /// The block layer ended the last request.
    pub complete: u64,
    /// The system call ended, after that.
    pub exit: Option<u64>,
    /// Whether it failed.
    pub failed: bool,
    /// Bios and parts that are not complete yet.
    parts: u32,
}

/// The layer whose events report when a command was sent and completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// None: only the block layer.
    #[default]
    Block,
    /// SCSI's middle layer.
    Scsi,
    /// `ufshcd`.
    Ufs,
    /// `nvme`.
    Nvme,
    /// `mmc`.
    Mmc,
}

impl Io {
    /// The end of area 3.
    pub fn seen(&self) -> u64 {
        self.interrupt.unwrap_or(self.done)
    }

    /// The end of the I/O.
    pub fn end(&self) -> u64 {
        self.exit.unwrap_or(self.complete)
    }

    /// The start of the I/O.
    pub fn start(&self) -> u64 {
        self.enter.unwrap_or(self.queue)
    }
}

/// Events that could not be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Loss {
    /// Bios that never became a request, or whose request was never issued or completed.
    pub unfinished: u64,
    /// Requests issued before the recording started, or with unseen bios.
    pub unknown_requests: u64,
    /// Completions of unknown requests.
    pub unknown_completions: u64,
    /// Completions without their own interrupt: polled, or found by an earlier one.
    pub without_interrupt: u64,
    /// I/Os that continued after the system call had returned (readahead, write-back).
    pub after_the_call: u64,
}

/// All I/Os, and information about them.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// In order of completion.
    pub ios: Vec<Io>,
    /// Events that could not be joined.
    pub loss: Loss,
    names: Names,
}

impl Joined {
    /// The name of a system call.
    pub fn call_name(&self, number: u16) -> &str {
        self.names.name(number)
    }
}

/// The key of a driver's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tag {
    Ufs(u32, u32),
    Nvme(u32, u32, u32),
}

#[derive(Clone, Debug, Default)]
struct Request {
    /// The I/Os of its bios.
    ios: Vec<usize>,
    sectors: u32,
    left: u32,
    issue: Option<u64>,
    sent: u64,
    driver: Driver,
    done: Option<u64>,
    interrupt: Option<u64>,
}

/// A system call of a thread, in progress.
#[derive(Clone, Copy, Debug)]
struct Call {
    name: u16,
    enter: u64,
    io: Option<usize>,
    submits: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    /// The start of the last interrupt, and whether it has ended.
    interrupt: Option<(u64, bool)>,
    /// The request issued last: the following driver events belong to it.
    issued: Option<(DiskNumber, u64)>,
    /// A command that NVMe set up, and whose request is issued next.
    set_up: Option<Tag>,
}

#[derive(Default)]
struct Joiner {
    open: BTreeMap<usize, Io>,
    next: usize,
    calls: HashMap<u32, Call>,
    /// Bios without a request, by sector; several may belong to one.
    bios: HashMap<(DiskNumber, u64), VecDeque<(usize, u32)>>,
    requests: HashMap<(DiskNumber, u64), Request>,
    /// The end sectors of waiting requests, to find the one that a bio joins.
    ends: HashMap<(DiskNumber, u64), u64>,
    tags: HashMap<Tag, (DiskNumber, u64)>,
    cpus: HashMap<u32, Cpu>,
    joined: Joined,
}

/// Joins events, which are in the order of time.
pub(super) fn join(events: &[Event], names: Names) -> Joined {
    let submitting: Vec<u16> = {
        let mut names = names.clone();
        SUBMITTING.map(|name| names.number(name)).to_vec()
    };
    let mut joiner = Joiner { joined: Joined { names, ..Joined::default() }, ..Joiner::default() };
    for event in events {
        joiner.take(event, &submitting);
    }
    joiner.finish()
}

impl Joiner {
    fn take(&mut self, event: &Event, submitting: &[u16]) {
        let Event { nanos, cpu, thread, what } = *event;
        match what {
            What::Enter(name) => {
                let submits = submitting.contains(&name);
                self.calls.insert(thread, Call { name, enter: nanos, io: None, submits });
                if self.calls.len() > OPEN_MAX {
                    self.calls.clear();
                }
            }
            What::Exit(name) => self.exit(thread, name, nanos),
            What::Queue(run) => self.queue(run, thread, nanos),
            What::Remap(run, disk, sector) => {
                if let Some(bios) = self.bios.remove(&(disk, sector)) {
                    self.bios.entry((run.disk, run.sector)).or_default().extend(bios);
                }
            }
            What::Split(run, next) => self.split(run, next),
            What::BackMerge(run) => self.merge(run, true),
            What::FrontMerge(run) => self.merge(run, false),
            What::Request(run) => self.request(run, nanos),
            What::Insert(run) => {
                self.request_at(run);
                self.mark(run, |io| {
                    io.insert.get_or_insert(nanos);
                });
            }
            What::Issue(run) => self.issue(run, cpu, nanos),
            What::Requeue(run) => {
                if let Some(request) = self.requests.get_mut(&(run.disk, run.sector)) {
                    request.issue = None;
                }
            }
            What::ScsiStart => self.sent(cpu, nanos, Driver::Scsi, None),
            What::MmcStart => self.sent(cpu, nanos, Driver::Mmc, None),
            What::UfsSend(queue, tag) => {
                self.sent(cpu, nanos, Driver::Ufs, Some(Tag::Ufs(queue, tag)));
            }
            What::NvmeSetup(controller, queue, command) => {
                self.cpu(cpu).set_up = Some(Tag::Nvme(controller, queue, command));
            }
            What::UfsDone(queue, tag) => self.done(Tag::Ufs(queue, tag), cpu, nanos),
            What::NvmeDone(controller, queue, command) => {
                self.done(Tag::Nvme(controller, queue, command), cpu, nanos);
            }
            What::ScsiDone | What::MmcDone => {}
            What::Complete(run, failed) => self.complete(run, failed, cpu, nanos),
            What::IrqEntry => self.cpu(cpu).interrupt = Some((nanos, false)),
            What::IrqExit => {
                if let Some((_, is_over)) = &mut self.cpu(cpu).interrupt {
                    *is_over = true;
                }
            }
        }
    }

    fn cpu(&mut self, number: u32) -> &mut Cpu {
        self.cpus.entry(number).or_default()
    }

    fn queue(&mut self, run: Run, thread: u32, nanos: u64) {
        let Some(operation) = run.operation.filter(|_| run.sectors > 0) else { return };
        let bytes = u64::from(run.sectors) * 512;
        let call = self.calls.get(&thread).copied();
        // A further bio of the same call belongs to the same I/O.
        let known = call.filter(|call| !call.submits).and_then(|call| call.io);
        let index = match known.and_then(|index| Some((index, self.open.get_mut(&index)?))) {
            Some((index, io)) if io.operation == operation && io.disk == run.disk => {
                io.parts += 1;
                io.bytes += bytes;
                index
            }
            _ => {
                let io = Io {
                    disk: run.disk,
                    operation,
                    sector: run.sector,
                    bytes,
                    thread,
                    call: call.map(|call| call.name),
                    driver: Driver::Block,
                    enter: call.map(|call| call.enter),
                    queue: nanos,
                    request: None,
                    insert: None,
                    issue: 0,
                    sent: 0,
                    interrupt: None,
                    done: 0,
                    complete: 0,
                    exit: None,
                    failed: false,
                    parts: 1,
                };
                let index = self.next;
                self.next += 1;
                self.open.insert(index, io);
                self.give_up();
                index
            }
        };
        if let Some(call) = self.calls.get_mut(&thread) {
            call.io = Some(index);
            if call.submits {
                // What the next one of this call begins with.
                call.enter = nanos;
            }
        }
        self.bios.entry((run.disk, run.sector)).or_default().push_back((index, run.sectors));
    }

    /// Limits the number of open items.
    fn give_up(&mut self) {
        if self.open.len() > OPEN_MAX {
            self.joined.loss.unfinished += 1;
            self.open.pop_first();
        }
        if self.bios.len() > OPEN_MAX {
            self.bios.clear();
        }
        if self.requests.len() > OPEN_MAX {
            self.requests.clear();
            self.ends.clear();
        }
        if self.tags.len() > OPEN_MAX {
            self.tags.clear();
        }
    }

    /// The first part keeps its key, the rest is a separate bio.
    fn split(&mut self, run: Run, next: u64) {
        let Some(bios) = self.bios.get_mut(&(run.disk, run.sector)) else { return };
        let Some((index, sectors)) = bios.back_mut() else { return };
        let Some(rest) = sectors.checked_sub(run.sectors).filter(|rest| *rest > 0) else { return };
        let index = *index;
        *sectors = run.sectors;
        if let Some(io) = self.open.get_mut(&index) {
            io.parts += 1;
        }
        self.bios.entry((run.disk, next)).or_default().push_back((index, rest));
    }

    fn take_bio(&mut self, run: Run) -> Option<usize> {
        let key = (run.disk, run.sector);
        let bios = self.bios.get_mut(&key)?;
        let bio = bios.pop_front();
        if bios.is_empty() {
            self.bios.remove(&key);
        }
        bio.map(|(index, _)| index)
    }

    /// A bio joins the request that ends, or starts, where it starts, or ends.
    fn merge(&mut self, run: Run, is_back: bool) {
        let end = run.sector.wrapping_add(run.sectors.into());
        let start = match is_back {
            true => self.ends.get(&(run.disk, run.sector)).copied(),
            false => Some(end),
        };
        let request = start.and_then(|start| self.requests.remove(&(run.disk, start)));
        let (Some(start), Some(mut request)) = (start, request) else { return };
        let bio = if request.ios.len() < BIOS_MAX { self.take_bio(run) } else { None };
        let Some(index) = bio else {
            self.requests.insert((run.disk, start), request);
            return;
        };
        let old_end = start.wrapping_add(request.sectors.into());
        self.ends.remove(&(run.disk, old_end));
        request.ios.push(index);
        request.sectors = request.sectors.saturating_add(run.sectors);
        let start = if is_back { start } else { run.sector };
        self.ends.insert((run.disk, start.wrapping_add(request.sectors.into())), start);
        self.requests.insert((run.disk, start), request);
    }

    fn request(&mut self, run: Run, nanos: u64) {
        if run.sectors == 0 {
            return;
        }
        self.request_at(run);
        self.mark(run, |io| {
            io.request.get_or_insert(nanos);
        });
    }

    /// The request at a sector, made of the bio there if it is new.
    fn request_at(&mut self, run: Run) {
        let key = (run.disk, run.sector);
        if self.requests.get(&key).is_some_and(|request| request.done.is_none()) {
            return;
        }
        let bio = self.take_bio(run);
        let request =
            Request { ios: bio.into_iter().collect(), sectors: run.sectors, ..Request::default() };
        self.ends.insert((run.disk, run.sector.wrapping_add(run.sectors.into())), run.sector);
        self.requests.insert(key, request);
    }

    /// Updates all I/Os of a request.
    fn mark(&mut self, run: Run, mut what: impl FnMut(&mut Io)) {
        let Some(request) = self.requests.get(&(run.disk, run.sector)) else { return };
        for index in &request.ios {
            if let Some(io) = self.open.get_mut(index) {
                what(io);
            }
        }
    }

    fn issue(&mut self, run: Run, cpu: u32, nanos: u64) {
        self.request_at(run);
        let key = (run.disk, run.sector);
        let set_up = self.cpu(cpu).set_up.take();
        self.cpu(cpu).issued = Some(key);
        if let Some(request) = self.requests.get_mut(&key) {
            if request.ios.is_empty() && run.sectors > 0 {
                self.joined.loss.unknown_requests += 1;
            }
            request.left = run.sectors;
            request.sectors = run.sectors;
            request.issue = Some(nanos);
            request.sent = nanos;
            if let Some(tag) = set_up {
                request.driver = Driver::Nvme;
                self.tags.insert(tag, key);
            }
            // Nothing joins it any more.
            self.ends.remove(&(run.disk, run.sector.wrapping_add(run.sectors.into())));
        }
        self.mark(run, |io| {
            if io.issue == 0 {
                (io.issue, io.sent) = (nanos, nanos);
            }
        });
    }

    fn sent(&mut self, cpu: u32, nanos: u64, driver: Driver, tag: Option<Tag>) {
        let Some(key) = self.cpu(cpu).issued else { return };
        let Some(request) = self.requests.get_mut(&key).filter(|it| it.issue.is_some()) else {
            return;
        };
        if driver < request.driver {
            return;
        }
        let issue = request.issue;
        (request.driver, request.sent) = (driver, nanos);
        for index in &request.ios {
            // Of an I/O of several requests the first one counts.
            if let Some(io) = self.open.get_mut(index).filter(|io| Some(io.issue) == issue) {
                (io.sent, io.driver) = (nanos, driver);
            }
        }
        if let Some(tag) = tag {
            self.tags.insert(tag, key);
            self.cpu(cpu).issued = None;
        }
    }

    /// The driver saw a completion.
    fn done(&mut self, tag: Tag, cpu: u32, nanos: u64) {
        let Some(key) = self.tags.remove(&tag) else { return };
        let interrupt = self.interrupt(key, cpu);
        if let Some(request) = self.requests.get_mut(&key) {
            request.done = Some(nanos);
            request.interrupt = interrupt;
        }
    }

    /// The interrupt on this processor, if it came after the request was sent.
    fn interrupt(&mut self, key: (DiskNumber, u64), cpu: u32) -> Option<u64> {
        let sent = self.requests.get(&key)?.sent;
        let (entry, _) = self.cpu(cpu).interrupt?;
        (entry >= sent).then_some(entry)
    }

    fn complete(&mut self, run: Run, failed: bool, cpu: u32, nanos: u64) {
        if run.sectors == 0 {
            self.requests.remove(&(run.disk, run.sector));
            return;
        }
        let key = (run.disk, run.sector);
        let interrupt = self.interrupt(key, cpu);
        let Some(mut request) = self.requests.remove(&key) else {
            self.joined.loss.unknown_completions += 1;
            return;
        };
        if request.issue.is_none() {
            self.joined.loss.unknown_completions += 1;
            return;
        }
        request.left = request.left.saturating_sub(run.sectors);
        if request.left > 0 {
            // The rest goes on where this ends.
            let rest = (run.disk, run.sector.wrapping_add(run.sectors.into()));
            self.requests.insert(rest, request);
            return;
        }
        if request.done.is_none() {
            request.interrupt = interrupt;
        }
        let done = request.done.unwrap_or(nanos);
        if !request.ios.is_empty() && request.interrupt.is_none() {
            self.joined.loss.without_interrupt += 1;
        }
        for index in request.ios {
            let Some(io) = self.open.get_mut(&index) else { continue };
            io.failed |= failed;
            io.parts = io.parts.saturating_sub(1);
            if io.complete <= nanos {
                (io.interrupt, io.done, io.complete) = (request.interrupt, done, nanos);
            }
            io.driver = io.driver.max(request.driver);
            if io.parts == 0 && !self.is_in_its_call(index) {
                self.end(index);
            }
        }
    }

    /// Whether the call that made it has not returned and will end it.
    fn is_in_its_call(&self, index: usize) -> bool {
        let Some(io) = self.open.get(&index) else { return false };
        let call = self.calls.get(&io.thread);
        call.is_some_and(|call| call.io == Some(index) && !call.submits)
    }

    fn exit(&mut self, thread: u32, name: u16, nanos: u64) {
        let Some(call) = self.calls.remove(&thread).filter(|call| call.name == name) else {
            return;
        };
        let Some(index) = call.io.filter(|_| !call.submits) else { return };
        match self.open.get_mut(&index) {
            Some(io) if io.parts == 0 => {
                io.exit = Some(nanos);
                self.end(index);
            }
            Some(_) => self.joined.loss.after_the_call += 1,
            None => {}
        }
    }

    fn end(&mut self, index: usize) {
        if let Some(io) = self.open.remove(&index) {
            self.joined.ios.push(io);
        }
    }

    fn finish(mut self) -> Joined {
        for io in std::mem::take(&mut self.open).into_values() {
            // Complete, and in a call whose end was not recorded.
            match io.parts {
                0 => self.joined.ios.push(io),
                _ => self.joined.loss.unfinished += 1,
            }
        }
        self.joined
    }
}
