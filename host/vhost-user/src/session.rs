//! One client: its messages and its rings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use flysch_export::{Channel, Counts, Job, Kind};
use rustix::event::{PollFd, PollFlags};

use crate::ended::Ended;
use crate::inflight::{self, Inflight};
use crate::memory::{Memory, REGIONS_MAX};
use crate::request::{Ask, Call, Disk, QUEUES, Status, bytes_of, put_id, read};
use crate::ring::{Agreed, Broken, Chain, ENTRIES_MAX, Ring, Segment};
use crate::wire::{
    Fields, HEADER_BYTES, Header, InflightArea, Malformed, Region, RingAddress, feature, message,
    protocol,
};

/// Maximum number of requests in flight.
const REQUESTS_MAX: usize = 1024;
/// In the number of a ring that is sent with a descriptor: there is none.
const NO_DESCRIPTOR: u64 = 1 << 8;

const PROTOCOL: u64 = protocol::MQ
    | protocol::REPLY_ACK
    | protocol::CONFIG
    | protocol::INFLIGHT_SHMFD
    | protocol::CONFIGURE_MEM_SLOTS;

/// A ring with its descriptors, running or not.
#[derive(Debug)]
struct Queue {
    size: u16,
    address: Option<RingAddress>,
    next_avail: u16,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    is_enabled: bool,
    ring: Option<Ring>,
    /// Heads left by the previous server; the next to take is the last.
    left_over: Vec<u16>,
    in_flight: u16,
    asks_for_kicks: bool,
}

impl Queue {
    const fn new() -> Self {
        Self {
            size: 0,
            address: None,
            next_avail: 0,
            kick: None,
            call: None,
            error: None,
            is_enabled: false,
            ring: None,
            left_over: Vec::new(),
            in_flight: 0,
            asks_for_kicks: false,
        }
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) number: u64,
    channel: Channel<Header, HEADER_BYTES>,
    features: u64,
    protocol: u64,
    memory: Memory,
    queues: [Queue; QUEUES as usize],
    inflight: Option<Inflight>,
    /// The ring whose base is to be returned when none of its requests is in flight.
    stopping: Option<u16>,
    write_back: bool,
    under_way: usize,
    /// The ring at which the next check starts.
    first: usize,
    chain: Chain,
    /// Unused vectors for segments.
    spare: Vec<Vec<Segment>>,
    pub(crate) counts: Counts,
}

/// An operation that fails, or ends the connection.
enum Trouble {
    /// Reported to the client, if it asked for that.
    Refused,
    Ended(Ended),
}

impl From<Malformed> for Trouble {
    fn from(malformed: Malformed) -> Self {
        Self::Ended(malformed.into())
    }
}

impl From<Ended> for Trouble {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl Session {
    pub(crate) fn new(number: u64, socket: UnixStream) -> std::io::Result<Self> {
        Ok(Self {
            number,
            channel: Channel::new(socket)?,
            features: 0,
            protocol: 0,
            memory: Memory::default(),
            queues: [const { Queue::new() }; QUEUES as usize],
            inflight: None,
            stopping: None,
            write_back: true,
            under_way: 0,
            first: 0,
            chain: Chain::default(),
            spare: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// What wakes a sleeping server.
    pub(crate) fn watch<'a>(&'a self, polls: &mut Vec<PollFd<'a>>) {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.channel.is_behind());
        polls.push(PollFd::from_borrowed_fd(self.channel.socket(), flags));
        let runs = |queue: &&Queue| queue.ring.is_some() && queue.is_enabled;
        let running = self.queues.iter().filter(runs);
        let kicks = running.filter_map(|queue| queue.kick.as_ref());
        polls.extend(kicks.map(|kick| PollFd::new(kick, PollFlags::IN)));
    }

    fn is_torn(&self) -> bool {
        self.memory.is_torn() || self.inflight.as_ref().is_some_and(Inflight::is_torn)
    }

    /// Processes the available messages. Returns whether there were any.
    pub(crate) fn messages(&mut self, disk: &Disk) -> Result<bool, Ended> {
        if self.is_torn() {
            return Err(Ended::Torn);
        }
        let mut moved = false;
        loop {
            self.channel.flush()?;
            // A client that awaits an answer says nothing; one that does so nevertheless waits.
            if self.channel.is_behind() || self.stopping.is_some() {
                return Ok(moved);
            }
            let Some(header) = self.channel.receive()? else { return Ok(moved) };
            moved = true;
            self.message(header, disk)?;
        }
    }

    fn message(&mut self, header: Header, disk: &Disk) -> Result<(), Ended> {
        let payload = self.channel.body_mut().clone();
        let descriptors = self.channel.take_descriptors();
        let done = match self.ask(header, &payload, disk) {
            Ok(true) => return Ok(()),
            Ok(false) => self.tell(header, &payload, descriptors, disk),
            Err(ended) => Err(ended),
        };
        let is_refused = match done {
            Ok(()) => false,
            Err(Trouble::Refused) => true,
            Err(Trouble::Ended(ended)) => return Err(ended),
        };
        if header.needs_reply && self.protocol & protocol::REPLY_ACK != 0 {
            return self.reply(header.request, &u64::from(is_refused).to_le_bytes());
        }
        Ok(())
    }

    fn reply(&mut self, request: u32, payload: &[u8]) -> Result<(), Ended> {
        Ok(self.channel.send(&Header::reply(request, payload.len()), payload)?)
    }

    /// Messages with a specific answer; returns whether it was one.
    fn ask(&mut self, header: Header, payload: &[u8], disk: &Disk) -> Result<bool, Trouble> {
        let mut fields = Fields(payload);
        let number = match header.request {
            message::GET_FEATURES => disk.features(),
            message::GET_PROTOCOL_FEATURES => PROTOCOL,
            message::GET_QUEUE_NUM => u64::from(QUEUES),
            message::GET_MAX_MEM_SLOTS => REGIONS_MAX as u64,
            message::GET_VRING_BASE => {
                let index = fields.u32()?;
                let queue = self.queue(index)?;
                // What was left over begins when the next one runs, by the memory for it.
                queue.left_over.clear();
                self.stopping = Some(index as u16);
                self.answer_base()?;
                return Ok(true);
            }
            message::GET_CONFIG => {
                let (offset, size) = (fields.u32()? as usize, fields.u32()? as usize);
                let config = disk.config(self.write_back);
                let mut answer = payload[..12.min(payload.len())].to_vec();
                if size > 256 || offset > 256 || answer.len() < 12 {
                    return Err(Malformed(
                        "a question for configuration space that does not exist",
                    )
                    .into());
                }
                let byte = |at: usize| config.get(at).copied().unwrap_or(0);
                answer.extend((offset..offset + size).map(byte));
                self.reply(header.request, &answer)?;
                return Ok(true);
            }
            message::GET_INFLIGHT_FD => {
                let area = InflightArea::parse(payload)?;
                let made = inflight::make(area).filter(|_| area.queues <= QUEUES);
                let none = InflightArea { size: 0, ..area };
                let (area, file) = made.map_or((none, None), |(area, file)| (area, Some(file)));
                let answer = area.emit();
                let head = Header::reply(header.request, answer.len());
                match file {
                    Some(file) => self.channel.send_descriptor(&head, &answer, file.as_fd()),
                    None => self.channel.send(&head, &answer),
                }
                .map_err(Ended::from)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.reply(header.request, &number.to_le_bytes())?;
        Ok(true)
    }

    /// Messages that are answered only on request.
    fn tell(
        &mut self,
        header: Header,
        payload: &[u8],
        descriptors: Vec<OwnedFd>,
        disk: &Disk,
    ) -> Result<(), Trouble> {
        let mut fields = Fields(payload);
        match header.request {
            message::SET_OWNER | message::RESET_OWNER => {}
            message::SET_FEATURES => {
                let features = fields.u64()?;
                if features & !disk.features() != 0 {
                    return Err(Malformed("features that were not offered").into());
                }
                self.features = features;
            }
            message::SET_PROTOCOL_FEATURES => {
                self.protocol = fields.u64()?;
                if self.protocol & !PROTOCOL != 0 {
                    return Err(Malformed("protocol features that were not offered").into());
                }
            }
            message::SET_CONFIG => self.set_config(&mut fields)?,
            message::SET_MEM_TABLE | message::ADD_MEM_REG | message::REM_MEM_REG => {
                self.set_memory(header.request, payload, &descriptors)?;
            }
            message::SET_INFLIGHT_FD => {
                let file =
                    descriptors.first().ok_or(Malformed("no descriptor where one is required"))?;
                let area = InflightArea::parse(payload)?;
                // A ring that runs was held against the memory it began with.
                if self.queues.iter().any(|queue| queue.ring.is_some()) {
                    return Err(
                        Malformed("different memory for the requests of a ring that runs").into()
                    );
                }
                self.inflight = Some(Inflight::open(&area, file)?);
            }
            message::SET_VRING_NUM => {
                let (index, size) = (fields.u32()?, fields.u32()?);
                let fits = size.is_power_of_two() && size <= u32::from(ENTRIES_MAX);
                self.idle_queue(index)?.size = if fits { size as u16 } else { 0 };
            }
            message::SET_VRING_BASE => {
                let (index, base) = (fields.u32()?, fields.u32()?);
                self.idle_queue(index)?.next_avail = base as u16;
            }
            message::SET_VRING_ADDR => {
                let (index, address) = RingAddress::parse(payload)?;
                self.queue(index)?.address = Some(address);
            }
            message::SET_VRING_ENABLE => {
                let (index, on) = (fields.u32()?, fields.u32()?);
                self.queue(index)?.is_enabled = on == 1;
            }
            message::SET_VRING_KICK | message::SET_VRING_CALL | message::SET_VRING_ERR => {
                self.set_descriptor(header.request, fields.u64()?, descriptors)?;
            }
            _ => return Err(Malformed("a message that is not known").into()),
        }
        Ok(())
    }

    fn queue(&mut self, index: u32) -> Result<&mut Queue, Malformed> {
        let queue = self.queues.get_mut(index as usize);
        queue.ok_or(Malformed("a message for a ring that does not exist"))
    }

    fn idle_queue(&mut self, index: u32) -> Result<&mut Queue, Malformed> {
        let queue = self.queue(index)?;
        match queue.ring {
            None => Ok(queue),
            Some(_) => Err(Malformed("a change of a ring that runs")),
        }
    }

    /// In the configuration space only the write cache switch can be written.
    fn set_config(&mut self, fields: &mut Fields<'_>) -> Result<(), Trouble> {
        let (offset, size, _flags) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let value = fields.bytes(size as usize)?;
        if (offset, size) != (Disk::WRITE_BACK, 1) || value[0] > 1 {
            return Err(Trouble::Refused);
        }
        self.write_back = value[0] == 1;
        Ok(())
    }

    fn set_memory(
        &mut self,
        request: u32,
        payload: &[u8],
        descriptors: &[OwnedFd],
    ) -> Result<(), Trouble> {
        let mut fields = Fields(payload);
        if request == message::SET_MEM_TABLE {
            let regions = Region::parse_table(payload)?;
            if regions.len() != descriptors.len() {
                return Err(Malformed("a memory table with fewer descriptors than regions").into());
            }
            self.memory.clear();
            for (region, file) in regions.into_iter().zip(descriptors) {
                self.memory.add(region, file)?;
            }
            return Ok(());
        }
        let _ = fields.u64()?;
        let region = Region::parse(&mut fields)?;
        if request == message::REM_MEM_REG {
            return Ok(self.memory.remove(&region)?);
        }
        let file = descriptors.first().ok_or(Malformed("no descriptor where one is required"))?;
        Ok(self.memory.add(region, file)?)
    }

    fn set_descriptor(
        &mut self,
        request: u32,
        number: u64,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(), Trouble> {
        let index = (number & 0xFF) as u32;
        let descriptor = match number & NO_DESCRIPTOR {
            0 => Some(descriptors.pop().ok_or(Malformed("no descriptor where one is required"))?),
            _ => None,
        };
        if let Some(descriptor) = &descriptor {
            prepare(descriptor.as_fd())?;
        }
        let queue = self.queue(index)?;
        match request {
            message::SET_VRING_CALL => {
                queue.call = descriptor;
                // What was given back meanwhile was told to nobody.
                queue.call.as_ref().filter(|_| queue.ring.is_some()).into_iter().for_each(signal);
            }
            message::SET_VRING_ERR => queue.error = descriptor,
            _ => {
                queue.kick = descriptor;
                self.start(index as u16)?;
            }
        }
        Ok(())
    }

    /// Starts a ring.
    fn start(&mut self, index: u16) -> Result<(), Trouble> {
        let agreed = Agreed {
            event_idx: self.features & feature::RING_EVENT_IDX != 0,
            indirect: self.features & feature::RING_INDIRECT_DESC != 0,
        };
        let queue = &mut self.queues[usize::from(index)];
        if queue.ring.is_some() {
            return Ok(());
        }
        let no_ring = || Malformed("the start of a ring that was not described");
        let RingAddress { desc, used, avail } = queue.address.ok_or_else(no_ring)?;
        if queue.size == 0 {
            return Err(no_ring().into());
        }
        let mut guest = [0; 3];
        for (to, user) in guest.iter_mut().zip([desc, avail, used]) {
            let address = self.memory.guest_address(user);
            *to = address.ok_or(Malformed("a ring that does not lie in memory"))?;
        }
        let memory = self.memory.guest();
        let ring = Ring::new(queue.size, guest, queue.next_avail, agreed, memory);
        let mut ring = ring.map_err(|broken| Malformed(broken.0))?;
        if let Some(inflight) = &mut self.inflight {
            let mut heads = inflight.resume(index, queue.size, ring.used_idx())?;
            // Whatever the client says: each chain was either given back or is in flight.
            ring.next_avail = match heads.len() {
                0 => ring.next_avail,
                count => ring.used_idx().wrapping_add(count as u16),
            };
            heads.reverse();
            queue.left_over = heads;
        }
        queue.is_enabled |= self.features & feature::PROTOCOL_FEATURES == 0;
        // As drivers find it: they kick until they are told not to.
        queue.asks_for_kicks = true;
        queue.ring = Some(ring);
        Ok(())
    }

    /// Answers `GET_VRING_BASE`, if none of the ring's requests is in flight any more.
    fn answer_base(&mut self) -> Result<(), Ended> {
        let Some(index) = self.stopping else { return Ok(()) };
        let queue = &mut self.queues[usize::from(index)];
        if queue.in_flight > 0 {
            return Ok(());
        }
        if let Some(ring) = queue.ring.take() {
            queue.next_avail = ring.next_avail;
        }
        queue.kick = None;
        queue.call = None;
        let mut answer = [0; 8];
        answer[..4].copy_from_slice(&u32::from(index).to_le_bytes());
        answer[4..].copy_from_slice(&u32::from(queue.next_avail).to_le_bytes());
        self.stopping = None;
        self.reply(message::GET_VRING_BASE, &answer)
    }

    /// Takes waiting requests from the rings. Returns whether there were any; invalid rings are
    /// reported to `trouble`.
    pub(crate) fn take(
        &mut self,
        disk: &Disk,
        block: u64,
        add: &mut impl FnMut(Job<Call>),
        mut trouble: impl FnMut(String),
    ) -> bool {
        let mut moved = false;
        for turn in 0..self.queues.len() {
            let index = (self.first + turn) % self.queues.len();
            match self.take_queue(index as u16, disk, block, add) {
                Ok(took) => moved |= took,
                Err(broken) => {
                    let queue = &mut self.queues[index];
                    queue.is_enabled = false;
                    queue.error.iter().for_each(signal);
                    trouble(format!("ring {index} has {}: it was stopped", broken.0));
                }
            }
        }
        self.first = (self.first + 1) % self.queues.len();
        moved
    }

    fn take_queue(
        &mut self,
        index: u16,
        disk: &Disk,
        block: u64,
        add: &mut impl FnMut(Job<Call>),
    ) -> Result<bool, Broken> {
        let mut moved = false;
        loop {
            let queue = &mut self.queues[usize::from(index)];
            let Some(ring) = queue.ring.as_mut().filter(|_| queue.is_enabled) else {
                return Ok(moved);
            };
            let is_stopping = self.stopping == Some(index);
            let is_full = queue.in_flight >= ring.size() || self.under_way >= REQUESTS_MAX;
            if is_stopping || is_full {
                return Ok(moved);
            }
            let memory = self.memory.guest();
            let head = if let Some(head) = queue.left_over.pop() {
                head
            } else if ring.waiting(memory)? > 0 {
                if queue.asks_for_kicks {
                    ring.ask_for_kicks(memory, false)?;
                    queue.asks_for_kicks = false;
                }
                let head = ring.head(memory)?;
                if let Some(inflight) = &mut self.inflight {
                    inflight.take(index, head);
                }
                head
            } else {
                return Ok(moved);
            };
            moved = true;
            self.begin((index, head), disk, block, add)?;
        }
    }

    /// Starts the request in a chain, or answers it.
    fn begin(
        &mut self,
        (index, head): (u16, u16),
        disk: &Disk,
        block: u64,
        add: &mut impl FnMut(Job<Call>),
    ) -> Result<(), Broken> {
        let queue = &mut self.queues[usize::from(index)];
        let Some(ring) = &mut queue.ring else { return Ok(()) };
        let memory = self.memory.guest();
        ring.chain(memory, head, &mut self.chain)?;
        let mut data = self.spare.pop().unwrap_or_default();
        let has_flush = self.features & feature::FLUSH != 0;
        let writes_are_safe = !has_flush || !self.write_back;
        let asked = read(disk, memory, &mut self.chain, &mut data, writes_are_safe);
        // No cause: the chain is too short, and that is what is said.
        let (status, ask) = asked.map_err(|_| Broken("a chain without header or status"))?;
        queue.in_flight += 1;
        self.under_way += 1;
        let memory = memory.clone();
        let call = Call { session: self.number, queue: index, head, status, memory, data };
        match ask {
            Ask::Device(kind, range) => add(Job::new(call, kind, range, block)),
            Ask::Id => {
                let written = put_id(&disk.name, &call.memory, &call.data);
                self.answer(call, Status::Ok, written)?;
            }
            Ask::Over(status) => {
                self.counts.failed += u64::from(status != Status::Ok);
                self.answer(call, status, 0)?;
            }
        }
        Ok(())
    }

    /// A job of it is done.
    pub(crate) fn finish(&mut self, job: Job<Call>) {
        let (kind, length) = (job.kind(), job.range().length);
        let status = match job.failed {
            None => {
                self.counts.done(kind, length);
                Status::Ok
            }
            Some(error) => {
                self.counts.failed += 1;
                Status::of(error)
            }
        };
        let written = if kind == Kind::Read && status == Status::Ok {
            bytes_of(&job.transfer.data) as u32
        } else {
            0
        };
        let index = usize::from(job.transfer.queue);
        if self.answer(job.transfer, status, written).is_err() {
            let queue = &mut self.queues[index];
            queue.is_enabled = false;
            queue.error.iter().for_each(signal);
        }
    }

    /// Returns a chain.
    fn answer(&mut self, call: Call, status: Status, written: u32) -> Result<(), Broken> {
        let Call { queue: index, head, status: at, data, .. } = call;
        self.spare.push(data);
        self.under_way -= 1;
        let queue = &mut self.queues[usize::from(index)];
        queue.in_flight -= 1;
        let Some(ring) = &mut queue.ring else { return Ok(()) };
        let memory = self.memory.guest();
        memory.write(at, &[status as u8])?;
        if let Some(inflight) = &self.inflight {
            inflight.before_giving_back(index, head);
        }
        ring.give_back(memory, head, written + 1)?;
        if let Some(inflight) = &self.inflight {
            inflight.given_back(index, head, ring.used_idx());
        }
        Ok(())
    }

    /// Notifies drivers of returned chains, and sends the client the answers that it waits for.
    pub(crate) fn send(&mut self) -> Result<(), Ended> {
        let memory = self.memory.guest();
        for queue in &mut self.queues {
            let Some(ring) = &mut queue.ring else { continue };
            if ring.must_tell(memory) == Ok(true) {
                queue.call.iter().for_each(signal);
            }
        }
        self.answer_base()
    }

    /// About to sleep: enables kicks, and checks once more whether nothing waits.
    pub(crate) fn rest(&mut self) -> bool {
        let memory = self.memory.guest();
        let mut nothing = !self.is_torn();
        for queue in self.queues.iter_mut().filter(|queue| queue.is_enabled) {
            let Some(ring) = &mut queue.ring else { continue };
            if let Some(kick) = &queue.kick {
                let _ = rustix::io::read(kick, &mut [0_u8; 8]);
            }
            if !queue.asks_for_kicks {
                queue.asks_for_kicks = ring.ask_for_kicks(memory, true).is_ok();
            }
            nothing &= ring.waiting(memory) == Ok(0);
        }
        nothing
    }
}

/// Accepts a descriptor only if it is an eventfd: neither reading nor writing one can block, once
/// it is non-blocking. Anything else might be served by a process that never answers.
fn prepare(descriptor: BorrowedFd<'_>) -> Result<(), Malformed> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let is_eventfd = std::fs::read_link(link)
        .is_ok_and(|target| target.to_string_lossy().starts_with("anon_inode:[eventfd"));
    let flags = rustix::fs::fcntl_getfl(descriptor);
    let set = flags.and_then(|flags| {
        rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)
    });
    match is_eventfd && set.is_ok() {
        true => Ok(()),
        false => Err(Malformed("a descriptor that is not an eventfd")),
    }
}

fn signal(descriptor: &OwnedFd) {
    // A counter that is full has been told.
    let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
}
