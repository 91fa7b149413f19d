//! One client: the execution of its commands.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use flysch_api::machine::{GuestMemory, Instant};
use flysch_export::{Channel, Ended};
use rustix::event::PollFlags;

use crate::config::{self, Config};
use crate::irq::{Line, Vectors};
use crate::memory::{self, Files, Range, Refused};
use crate::wire::{Command, Errno, HEADER_BYTES, Header, Malformed, Request, Write, irq, region};
use crate::{BARS, Function, Layout, VECTORS_MAX};

/// The text of the reply to VERSION. QEMU accepts none that is longer than its own (200 bytes).
const VERSION_TEXT: &str = concat!(
    r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":65536,"#,
    r#""write_multiple":true}}"#,
    "\0"
);

/// Device flags: it can be reset, it is PCI.
const DEVICE_FLAGS: u32 = 3;
/// Region flags: it can be read and written.
const REGION_FLAGS: u32 = 3;
/// The offset of region `n` in a file of all regions: VFIO's layout.
const REGION_SHIFT: u32 = 40;

/// The counts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads of registers: the client waits for each.
    pub reads: u64,
    /// Writes of registers.
    pub writes: u64,
    /// How often the client received an interrupt that it has to unmask.
    pub unmasks: u64,
    /// Ranges of memory mapped.
    pub maps: u64,
    /// Resets of the function.
    pub resets: u64,
    /// Commands refused.
    pub refused: u64,
}

/// One client, for users with their own loop; [`Server`](crate::Server) is such a loop.
#[derive(Debug)]
pub struct Session {
    channel: Channel<Header, HEADER_BYTES>,
    layout: Layout,
    bars: [u32; BARS],
    config: Config,
    line: Line,
    vectors: Vectors,
    table: Vec<u8>,
    files: Files,
    /// The guest's memory while bus mastering is disabled and the function must not access it.
    withheld: Option<GuestMemory>,
    is_agreed: bool,
    pub(crate) counts: Counts,
    /// The latest refusal worth reporting.
    refusal: Option<&'static str>,
}

/// The answer to a command.
enum Reply {
    Empty,
    Bytes(Vec<u8>),
}

/// A range of vectors of an interrupt.
#[derive(Clone, Copy, Debug)]
struct IrqRange {
    index: u32,
    start: u32,
    count: u32,
}

type Answer = Result<Reply, Refused>;

const INVALID: Refused = Refused(Errno::Invalid, "");

impl Session {
    /// A client on a connected socket. The function has no memory until the client provides some.
    ///
    /// # Errors
    /// The socket cannot be set up.
    pub fn new(
        socket: UnixStream,
        function: &mut (impl Function + ?Sized),
    ) -> std::io::Result<Self> {
        let layout = function.layout();
        let vectors = layout.vectors.min(VECTORS_MAX);
        let mut bars = layout.bars;
        if vectors > 0 {
            bars[usize::from(layout.vector_bar) % BARS] = config::vector_bar_bytes(vectors);
        }
        *function.memory() = GuestMemory::default();
        Ok(Self {
            channel: Channel::new(socket)?,
            layout: Layout { vectors, ..layout },
            bars,
            config: Config::new(&layout, &bars),
            line: Line::default(),
            vectors: Vectors::new(vectors),
            table: vec![0; usize::from(vectors) * config::VECTOR_BYTES as usize],
            files: Files::default(),
            withheld: Some(GuestMemory::default()),
            is_agreed: false,
            counts: Counts::default(),
            refusal: None,
        })
    }

    /// What to wait for: the socket with its events, and another descriptor.
    pub(crate) fn descriptors(&self) -> (BorrowedFd<'_>, PollFlags, Option<BorrowedFd<'_>>) {
        let flags = if self.channel.is_behind() { PollFlags::OUT } else { PollFlags::IN };
        (self.channel.socket(), flags, self.line.unmask_descriptor())
    }

    /// When it has to be served even without input.
    pub(crate) fn again(&self) -> Option<Instant> {
        self.line.again()
    }

    pub(crate) fn take_refusal(&mut self) -> Option<&'static str> {
        self.refusal.take().filter(|words| !words.is_empty())
    }

    /// Serves up to `most` available commands. A client that sends without end does not keep the
    /// loop from other work.
    ///
    /// # Errors
    /// The client is gone, or its input is invalid: [`end`](Self::end) it.
    pub fn serve(
        &mut self,
        function: &mut (impl Function + ?Sized),
        now: impl Fn() -> Instant,
        most: usize,
    ) -> Result<(), Ended> {
        self.channel.flush()?;
        for _ in 0..most {
            if self.channel.is_behind() {
                break;
            }
            let Some(header) = self.channel.receive()? else { break };
            self.command(&header, function, now())?;
        }
        Ok(())
    }

    /// Delivers the function's interrupts to the client.
    pub fn interrupts(&mut self, function: &mut (impl Function + ?Sized), now: Instant) {
        self.line.set(function.line() && self.config.is_intx_on(), now);
        while let Some(vector) = function.take_vector() {
            self.vectors.raise(vector);
        }
    }

    pub(crate) fn unmask_signalled(&mut self, now: Instant) {
        self.line.unmask_signalled(now);
    }

    fn command(
        &mut self,
        header: &Header,
        function: &mut (impl Function + ?Sized),
        now: Instant,
    ) -> Result<(), Ended> {
        let descriptors = self.channel.take_descriptors();
        let body = std::mem::take(self.channel.body_mut());
        let request = Request::parse(header, &body)?;
        if self.is_agreed == matches!(request, Request::Version { .. }) {
            return Err(
                Malformed("a version that is not the first message, or a second one").into()
            );
        }
        let wants_data = matches!(
            header.command,
            Command::Version
                | Command::DeviceGetInfo
                | Command::RegionGetInfo
                | Command::IrqGetInfo
                | Command::RegionRead
        );
        if header.no_reply && wants_data {
            return Err(Malformed("a question that asks for no answer").into());
        }
        let answer = self.execute(request, &body, descriptors, (function, now));
        self.interrupts(function, now);
        *self.channel.body_mut() = body;
        if let Err(Refused(_, words)) = answer {
            self.counts.refused += 1;
            self.refusal = Some(words);
        }
        if header.no_reply || header.command == Command::RegionWriteMulti {
            return Ok(());
        }
        match answer {
            Ok(Reply::Empty) => self.channel.send(&header.reply(0), &[]),
            Ok(Reply::Bytes(bytes)) => self.channel.send(&header.reply(bytes.len()), &bytes),
            Err(Refused(errno, _)) => self.channel.send(&header.refusal(errno), &[]),
        }
    }

    fn execute<F: Function + ?Sized>(
        &mut self,
        request: Request<'_>,
        body: &[u8],
        mut descriptors: Vec<OwnedFd>,
        (function, now): (&mut F, Instant),
    ) -> Answer {
        match request {
            Request::Version { major: 0, .. } => {
                self.is_agreed = true;
                let mut bytes = vec![0; 4];
                bytes.extend_from_slice(VERSION_TEXT.as_bytes());
                Ok(Reply::Bytes(bytes))
            }
            Request::Version { .. } => {
                Err(Refused(Errno::NotSupported, "a different major version"))
            }
            Request::DeviceInfo => Ok(words(&[16, DEVICE_FLAGS, region::COUNT, irq::COUNT], &[])),
            Request::RegionInfo { index } => self.region_info(index),
            Request::IrqInfo { index } => self.irq_info(index),
            Request::SetIrqs { flags, index, start, count, bools } => {
                let vectors = IrqRange { index, start, count };
                self.set_irqs(flags, vectors, (bools, descriptors), now)
            }
            Request::RegionRead { offset, region, count } => {
                let mut bytes = body[..16].to_vec();
                bytes.resize(16 + count as usize, 0);
                self.read(function, (region, offset), &mut bytes[16..], now)?;
                Ok(Reply::Bytes(bytes))
            }
            Request::RegionWrite(write) => {
                self.write(function, write, now)?;
                Ok(Reply::Bytes(body[..16].to_vec()))
            }
            Request::RegionWriteMulti(writes) => {
                for write in Request::multi(writes) {
                    self.write(function, write, now)?;
                }
                Ok(Reply::Empty)
            }
            Request::DmaMap { readable: _, writable, offset, address, size } => {
                let range = Range { writable, offset, address, size };
                memory::check(&range)?;
                self.counts.maps += 1;
                // A range without a file is one that only the client's own processor sees, such
                // as ROM: for a device there is nothing.
                let Some(file) = descriptors.pop() else { return Ok(Reply::Empty) };
                let memory = self.withheld.as_mut().unwrap_or_else(|| function.memory());
                self.files.map(memory, range, &file)?;
                Ok(Reply::Empty)
            }
            Request::DmaUnmap { all, address, size } => {
                let memory = self.withheld.as_mut().unwrap_or_else(|| function.memory());
                // Never mapped is no mistake; a size of 0 would mean all there is.
                match (all, size) {
                    (true, _) => drop(memory.unmap(0, 0)),
                    (false, 0) => return Err(INVALID),
                    (false, _) => drop(memory.unmap(address, size)),
                }
                Ok(Reply::Bytes(body[..24].to_vec()))
            }
            Request::Reset => {
                self.reset(function, now);
                Ok(Reply::Empty)
            }
            Request::Unknown => Err(Refused(Errno::NotSupported, "")),
        }
    }

    fn region_info(&self, index: u32) -> Answer {
        let bytes = match index {
            0..=region::BAR_LAST => u64::from(self.bars[index as usize]),
            region::CONFIG => config::BYTES as u64,
            region::COUNT.. => return Err(INVALID),
            _ => 0,
        };
        let flags = if bytes > 0 { REGION_FLAGS } else { 0 };
        let offset = u64::from(index) << REGION_SHIFT;
        Ok(words(&[32, flags, index, 0], &[bytes, offset]))
    }

    fn irq_info(&self, index: u32) -> Answer {
        // INTx: eventfd, maskable, masks itself. Vectors: eventfd, their number may grow.
        let (flags, count) = match index {
            irq::INTX => (7, 1),
            irq::MSIX => (1, u32::from(self.layout.vectors)),
            irq::MSI => (1, 0),
            _ => return Err(INVALID),
        };
        Ok(words(&[16, flags, index, count], &[]))
    }

    fn set_irqs(
        &mut self,
        flags: u32,
        IrqRange { index, start, count }: IrqRange,
        (bools, mut descriptors): (&[u8], Vec<OwnedFd>),
        now: Instant,
    ) -> Answer {
        let kind = flags & (irq::DATA_NONE | irq::DATA_BOOL | irq::DATA_EVENTFD);
        let exist = match index {
            irq::INTX => 1,
            irq::MSIX => self.vectors.len() as u64,
            _ => return Err(INVALID),
        };
        let fits = u64::from(start) + u64::from(count) <= exist;
        let several = descriptors.len() != count as usize || kind != irq::DATA_EVENTFD;
        if !kind.is_power_of_two() || !fits || !descriptors.is_empty() && several {
            return Err(INVALID);
        }
        if kind == irq::DATA_NONE && count == 0 && flags & irq::TRIGGER != 0 {
            match index {
                irq::INTX => self.line.tear_down(),
                _ => self.vectors.tear_down(),
            }
            return Ok(Reply::Empty);
        }
        if index == irq::INTX && count == 1 {
            self.counts.unmasks += u64::from(flags & irq::UNMASK != 0);
            let acts = bools.first().is_none_or(|&byte| byte != 0);
            self.line.command(flags, acts, descriptors.pop(), now).map_err(|e| Refused(e, ""))?;
        } else if index == irq::MSIX {
            let range = (start as usize, count as usize);
            let done = self.vectors.command(flags, range, bools, descriptors);
            done.map_err(|e| Refused(e, ""))?;
        }
        Ok(Reply::Empty)
    }

    fn read(
        &mut self,
        function: &mut (impl Function + ?Sized),
        (region, offset): (u32, u64),
        to: &mut [u8],
        now: Instant,
    ) -> Result<(), Refused> {
        self.counts.reads += 1;
        match region {
            0..=region::BAR_LAST => {
                let offset = self.place(region, offset, to.len())?;
                match self.is_vector_bar(region) {
                    true => self.read_vectors(offset, to),
                    false => function.read(region as u8, offset, to, now),
                }
                Ok(())
            }
            region::CONFIG if self.config.read(offset, to, function.line()) => Ok(()),
            _ => Err(INVALID),
        }
    }

    fn write(
        &mut self,
        function: &mut (impl Function + ?Sized),
        write: Write<'_>,
        now: Instant,
    ) -> Result<(), Refused> {
        self.counts.writes += 1;
        match write.region {
            0..=region::BAR_LAST => {
                let offset = self.place(write.region, write.offset, write.data.len())?;
                match self.is_vector_bar(write.region) {
                    true => self.write_vectors(offset, write.data),
                    false => function.write(write.region as u8, offset, write.data, now),
                }
                Ok(())
            }
            region::CONFIG if self.config.write(write.offset, write.data) => {
                self.follow_bus_master(function);
                Ok(())
            }
            // There is no ROM: what sizes it writes to nothing.
            _ => Err(INVALID),
        }
    }

    /// The offset of a register access, if it is one.
    fn place(&self, region: u32, offset: u64, len: usize) -> Result<u32, Refused> {
        let bytes = u64::from(self.bars[region as usize]);
        let len = len as u64;
        let fits = offset.checked_add(len).is_some_and(|end| end <= bytes);
        let is_access = matches!(len, 1 | 2 | 4 | 8) && offset.is_multiple_of(len.min(4));
        if fits && is_access { Ok(offset as u32) } else { Err(INVALID) }
    }

    fn is_vector_bar(&self, region: u32) -> bool {
        self.layout.vectors > 0 && region == u32::from(self.layout.vector_bar)
    }

    /// The table is stored for clients that read it; masks and messages are the client's task.
    fn read_vectors(&self, offset: u32, to: &mut [u8]) {
        let pending = config::pending_at(self.layout.vectors) as usize;
        for (at, byte) in (offset as usize..).zip(to) {
            *byte = match at.checked_sub(pending) {
                Some(at) => self.vectors.pending_byte(at),
                None => self.table.get(at).copied().unwrap_or(0),
            };
        }
    }

    fn write_vectors(&mut self, offset: u32, from: &[u8]) {
        for (at, byte) in (offset as usize..).zip(from) {
            if let Some(place) = self.table.get_mut(at) {
                *place = *byte;
            }
        }
    }

    /// With bus mastering disabled, a function has no memory.
    fn follow_bus_master(&mut self, function: &mut (impl Function + ?Sized)) {
        match (self.config.is_bus_master(), self.withheld.take()) {
            (true, Some(memory)) => *function.memory() = memory,
            (false, None) => self.withheld = Some(std::mem::take(function.memory())),
            (_, withheld) => self.withheld = withheld,
        }
    }

    fn reset(&mut self, function: &mut (impl Function + ?Sized), now: Instant) {
        self.counts.resets += 1;
        function.reset(now);
        self.config.reset();
        self.vectors.reset();
        self.table.fill(0);
        self.follow_bus_master(function);
    }

    /// The client is gone, and so are its memory and its settings.
    pub fn end(self, function: &mut (impl Function + ?Sized), now: Instant) {
        *function.memory() = GuestMemory::default();
        function.reset(now);
    }
}

/// A reply of 32-bit words, followed by 64-bit ones.
fn words(small: &[u32], large: &[u64]) -> Reply {
    let mut bytes = Vec::with_capacity(4 * small.len() + 8 * large.len());
    small.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    large.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    Reply::Bytes(bytes)
}
