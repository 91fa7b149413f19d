//! One client: its input, its pending output, and its limits.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use flysch_api::block::BlockError;
use flysch_api::machine::DmaRegion;
use flysch_export::{Counts, Job, Kind, Range, Transfer};

use crate::Export;
use crate::handshake::{ALLOCATION_ID, Handshake, Progress, Refusal};
use crate::tls::Stream;
use crate::wire::{EXTENDED_REQUEST_BYTES, Errno, Form, REQUEST_BYTES, Request, command as cmd};

/// Maximum number of requests of a client in progress.
const REQUESTS_MAX: u32 = 128;
/// Maximum bytes of their data; one request of maximum length is always accepted.
const BYTES_MAX: u64 = 64 << 20;
/// Bytes read from a socket at once; more than the longest option.
const READ: usize = 256 << 10;

/// Why a client is gone.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// It said goodbye, or gave up the handshake.
    #[error("it disconnected")]
    Goodbye,
    /// It closed the connection without saying goodbye.
    #[error("it closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// It sent an invalid request.
    #[error("it sent an invalid request")]
    NoRequest,
    /// A write that is too long to be read and discarded.
    #[error("it sent a write of {0} bytes, but {most} is the most", most = Export::LONGEST)]
    TooLong(u64),
    /// The handshake went wrong.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The server ends.
    #[error("the server is ending")]
    Stopped,
}

/// A client, by a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client(pub(crate) u64);

/// A request in progress: its owner, and its data.
#[derive(Debug)]
pub struct Call {
    pub(crate) client: Client,
    request: Request,
    /// The reply of a read, or the payload of a write; the data starts at `base`.
    bytes: Vec<u8>,
    base: usize,
}

impl Transfer for Call {
    fn gather(
        &self,
        from: u64,
        memory: &DmaRegion,
        to: usize,
        length: usize,
    ) -> Result<(), BlockError> {
        let from = self.base + from as usize;
        memory.write(to, &self.bytes[from..from + length]);
        Ok(())
    }

    fn scatter(
        &mut self,
        to: u64,
        memory: &DmaRegion,
        from: usize,
        length: usize,
    ) -> Result<(), BlockError> {
        let to = self.base + to as usize;
        memory.read(from, &mut self.bytes[to..to + length]);
        Ok(())
    }
}

/// A socket of either kind.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Makes it non-blocking.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_nonblocking(true),
            Self::Tcp(socket) => {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(to),
            Self::Tcp(socket) => socket.read(to),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(from),
            Self::Tcp(socket) => socket.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// Input not used yet. Its buffer is allocated once.
#[derive(Debug)]
struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn new() -> Self {
        Self { bytes: vec![0; READ].into_boxed_slice(), start: 0, end: 0 }
    }

    fn here(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `count` bytes, which are available, have been used.
    fn used(&mut self, count: usize) {
        self.start += count;
    }

    fn fill(&mut self, socket: &mut Stream<Socket>) -> io::Result<usize> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let read = socket.read(&mut self.bytes[self.end..])?;
        self.end += read;
        Ok(read)
    }
}

/// A write with an incomplete payload.
#[derive(Debug)]
struct Payload {
    request: Request,
    bytes: Vec<u8>,
    here: usize,
}

impl Payload {
    fn new(request: Request) -> Self {
        Self { bytes: vec![0; request.length as usize], request, here: 0 }
    }

    /// The room for the missing part.
    fn missing(&mut self) -> &mut [u8] {
        &mut self.bytes[self.here..]
    }
}

/// Its state.
#[derive(Debug)]
enum Phase {
    Options(Handshake),
    Requests { form: Form, tells_allocation: bool },
}

/// One client.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    socket: Stream<Socket>,
    phase: Phase,
    input: Input,
    payload: Option<Payload>,
    /// Pending answers, and how much of the first has been sent.
    output: VecDeque<Vec<u8>>,
    sent: usize,
    /// Bytes of `output`.
    owed: u64,
    under_way: u32,
    bytes_under_way: u64,
    /// No more is read: it ends when all answers have been sent.
    ending: Option<Ended>,
    /// It ends at once: nothing can be sent any more.
    is_broken: bool,
    pub(crate) counts: Counts,
}

/// The context for accepting requests.
pub(crate) struct Context<'a> {
    pub(crate) export: &'a Export,
    /// Bytes of a block.
    pub(crate) block: u64,
    /// No more requests are accepted.
    pub(crate) is_stopping: bool,
}

impl Connection {
    pub(crate) fn new(client: Client, socket: Socket) -> Self {
        let mut greeting = Vec::new();
        let phase = Phase::Options(Handshake::new(&mut greeting));
        let mut connection = Self {
            client,
            socket: Stream::new(socket),
            phase,
            input: Input::new(),
            payload: None,
            output: VecDeque::new(),
            sent: 0,
            owed: 0,
            under_way: 0,
            bytes_under_way: 0,
            ending: None,
            is_broken: false,
            counts: Counts::default(),
        };
        connection.put(greeting);
        connection
    }

    /// The socket, for waiting.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket.socket
    }

    /// Whether more input is accepted now.
    pub(crate) fn wants_input(&self) -> bool {
        let has_room = self.under_way < REQUESTS_MAX && self.bytes_under_way < BYTES_MAX;
        self.ending.is_none() && has_room && self.owed < BYTES_MAX
    }

    /// Whether there is something to send.
    pub(crate) fn wants_output(&self) -> bool {
        !self.output.is_empty() || self.socket.is_behind()
    }

    /// Its deadline for the handshake.
    pub(crate) fn deadline(&self) -> Option<std::time::Instant> {
        match &self.phase {
            Phase::Options(handshake) => Some(handshake.deadline()),
            Phase::Requests { .. } => None,
        }
    }

    /// Accepts no more requests; requests in progress are answered.
    pub(crate) fn end(&mut self, why: Ended) {
        self.ending.get_or_insert(why);
    }

    /// Ends at once. Requests in progress are executed, but not answered.
    pub(crate) fn break_off(&mut self, why: Ended) {
        self.output.clear();
        self.is_broken = true;
        self.end(why);
    }

    /// Whether all answers have been sent and no more requests will come.
    pub(crate) fn is_over(&self) -> bool {
        let has_all = self.under_way == 0 && !self.wants_output();
        self.is_broken || (self.ending.is_some() && has_all)
    }

    /// Why it has ended.
    pub(crate) fn why(&mut self) -> Ended {
        self.ending.take().unwrap_or(Ended::Closed)
    }

    /// Processes input and passes its jobs to `add`. Returns whether there was any.
    pub(crate) fn receive(
        &mut self,
        context: &Context<'_>,
        mut add: impl FnMut(Job<Call>),
    ) -> Result<bool, Ended> {
        let mut moved = false;
        while self.wants_input() {
            if self.take_one(context, &mut add)? {
                moved = true;
                continue;
            }
            match self.fill() {
                Ok(0) if !moved && self.is_between() => return Err(Ended::Closed),
                Ok(0) => {
                    // It may have sent all it wants and still wait for answers.
                    self.end(Ended::Closed);
                    return Ok(true);
                }
                Ok(_) => moved = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Phase::Options(handshake) = &self.phase
            && std::time::Instant::now() > handshake.deadline()
        {
            return Err(Refusal::Slow.into());
        }
        Ok(moved)
    }

    /// Whether nothing is in progress or incomplete.
    fn is_between(&self) -> bool {
        self.under_way == 0 && self.output.is_empty()
    }

    /// Reads from the socket: into an expected payload, otherwise into the input buffer.
    fn fill(&mut self) -> io::Result<usize> {
        let Some(payload) = &mut self.payload else { return self.input.fill(&mut self.socket) };
        let read = self.socket.read(payload.missing())?;
        payload.here += read;
        Ok(read)
    }

    /// Takes one message, if it is complete. Returns whether it was.
    fn take_one(
        &mut self,
        context: &Context<'_>,
        add: &mut impl FnMut(Job<Call>),
    ) -> Result<bool, Ended> {
        let form = match &mut self.phase {
            Phase::Options(handshake) => {
                let mut answer = Vec::new();
                let (used, progress) =
                    handshake.advance(self.input.here(), context.export, &mut answer)?;
                self.input.used(used);
                let (form, tells) = (handshake.form(), handshake.tells_allocation());
                self.put(answer);
                match progress {
                    Progress::More => return Ok(used > 0),
                    Progress::Aborted => self.end(Ended::Goodbye),
                    Progress::Encrypts => self.encrypt(context)?,
                    Progress::Ready => {
                        self.phase = Phase::Requests { form, tells_allocation: tells };
                    }
                }
                return Ok(true);
            }
            Phase::Requests { form, .. } => *form,
        };
        if let Some(payload) = &mut self.payload {
            let here = self.input.here();
            let room = payload.missing();
            let count = room.len().min(here.len());
            room[..count].copy_from_slice(&here[..count]);
            payload.here += count;
            self.input.used(count);
        }
        if let Some(payload) = self.payload.take_if(|payload| payload.missing().is_empty()) {
            self.start(payload.request, payload.bytes, context, add);
            return Ok(true);
        }
        if self.payload.is_some() {
            return Ok(false);
        }
        let is_extended = form == Form::Extended;
        let head = if is_extended { EXTENDED_REQUEST_BYTES } else { REQUEST_BYTES };
        let Some(bytes) = self.input.here().get(..head) else { return Ok(false) };
        let request = Request::parse(bytes, is_extended).ok_or(Ended::NoRequest)?;
        self.input.used(head);
        let announces = is_extended && request.flags & cmd::PAYLOAD_LEN != 0;
        match request.command {
            // With extended headers a client must announce the payload; QEMU 10's does not.
            cmd::WRITE => {
                if request.length > u64::from(Export::LONGEST) {
                    return Err(Ended::TooLong(request.length));
                }
                self.payload = Some(Payload::new(request));
            }
            // A payload of a command that has none: where the next request begins is not known.
            _ if announces && request.length > 0 => return Err(Ended::NoRequest),
            cmd::DISC => self.end(Ended::Goodbye),
            _ => self.start(request, Vec::new(), context, add),
        }
        Ok(true)
    }

    /// TLS was agreed on, and follows.
    fn encrypt(&mut self, context: &Context<'_>) -> Result<(), Ended> {
        // What is here already was sent before anything was encrypted: it might be somebody
        // else's.
        if !self.input.here().is_empty() {
            return Err(Refusal::Unencrypted.into());
        }
        self.send()?;
        if self.wants_output() {
            return Err(Refusal::Slow.into());
        }
        if let Some(tls) = &context.export.tls {
            self.socket.encrypt(tls.begin()?);
        }
        Ok(())
    }

    /// Starts the job of a request, or answers that it is refused.
    fn start(
        &mut self,
        request: Request,
        payload: Vec<u8>,
        context: &Context<'_>,
        add: &mut impl FnMut(Job<Call>),
    ) {
        let Phase::Requests { form, tells_allocation } = self.phase else { return };
        if let Err((errno, line)) = check(&request, context, tells_allocation) {
            self.counts.failed += 1;
            return self.put(form.failed(&request, errno, line));
        }
        let kind = match request.command {
            cmd::READ => Kind::Read,
            cmd::WRITE => Kind::Write,
            cmd::WRITE_ZEROES => Kind::Zeroes,
            cmd::TRIM => Kind::Trim,
            cmd::FLUSH => Kind::Flush,
            cmd::BLOCK_STATUS => {
                return self.put(form.extent(&request, ALLOCATION_ID, request.length, 0));
            }
            _ => return self.put(form.done(&request)),
        };
        let bytes = match kind {
            Kind::Read => (vec![0; form.read_head() + request.length as usize], form.read_head()),
            _ => (payload, 0),
        };
        self.under_way += 1;
        self.bytes_under_way += bytes.0.len() as u64;
        // Where and how long means nothing to a flush.
        let (offset, length) = match kind {
            Kind::Flush => (0, 0),
            _ => (request.offset, request.length),
        };
        let force_unit_access = request.flags & cmd::FUA != 0;
        let (bytes, base) = bytes;
        let call = Call { client: self.client, request, bytes, base };
        add(Job::new(call, kind, Range { offset, length, force_unit_access }, context.block));
    }

    /// A job of it is done.
    pub(crate) fn finish(&mut self, job: Job<Call>) {
        let (kind, failed) = (job.kind(), job.failed);
        let Call { request, mut bytes, .. } = job.transfer;
        self.under_way -= 1;
        self.bytes_under_way -= bytes.len() as u64;
        let Phase::Requests { form, .. } = self.phase else { return };
        if let Some(error) = failed {
            self.counts.failed += 1;
            return self.put(form.failed(&request, errno(error, &request), &error.to_string()));
        }
        self.counts.done(kind, request.length);
        if kind == Kind::Read {
            form.finish_read(&request, &mut bytes);
            return self.put(bytes);
        }
        self.put(form.done(&request));
    }

    fn put(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.owed += bytes.len() as u64;
            self.output.push_back(bytes);
        }
    }

    /// Sends as much as there is room for. Returns whether anything was sent.
    pub(crate) fn send(&mut self) -> Result<bool, Ended> {
        let mut moved = false;
        while let Some(first) = self.output.front() {
            match self.socket.write(&first[self.sent..]) {
                Ok(0) => return Err(Ended::Closed),
                Ok(count) => {
                    moved = true;
                    self.sent += count;
                    self.owed -= count as u64;
                    if self.sent == first.len() {
                        self.output.pop_front();
                        self.sent = 0;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.socket.flush()?;
        if self.ending.is_some() && self.under_way == 0 && self.output.is_empty() {
            self.socket.close();
        }
        Ok(moved)
    }
}

/// Whether a request is possible at all.
fn check(
    request: &Request,
    context: &Context<'_>,
    tells_allocation: bool,
) -> Result<(), (Errno, &'static str)> {
    let export = context.export;
    let (writes, allowed) = match request.command {
        cmd::READ => (false, cmd::DF),
        cmd::WRITE => (true, cmd::FUA | cmd::PAYLOAD_LEN),
        cmd::WRITE_ZEROES => (true, cmd::FUA | cmd::NO_HOLE | cmd::FAST_ZERO),
        cmd::TRIM => (true, cmd::FUA),
        cmd::FLUSH | cmd::CACHE => (false, 0),
        cmd::BLOCK_STATUS => (false, cmd::REQ_ONE),
        _ => return Err((Errno::Inval, "this command is not known")),
    };
    // Clients may say of anything that it shall be safe when answered (doc/proto.md, "FUA").
    if request.flags & !(allowed | cmd::FUA) != 0 {
        return Err((Errno::Inval, "this flag has no meaning for this command"));
    }
    if context.is_stopping {
        return Err((Errno::Shutdown, "the server is about to end"));
    }
    if writes && export.read_only {
        return Err((Errno::Perm, "the export is read only"));
    }
    if request.command == cmd::FLUSH {
        return Ok(());
    }
    let beyond = if writes { Errno::NoSpc } else { Errno::Inval };
    if request.offset > export.size || request.length > export.size - request.offset {
        return Err((beyond, "the range is outside of the export"));
    }
    if request.length == 0 {
        return Err((Errno::Inval, "the request has no bytes"));
    }
    match request.command {
        cmd::READ if request.length > u64::from(Export::LONGEST) => {
            Err((Errno::Overflow, "the read is too long"))
        }
        cmd::WRITE_ZEROES if request.flags & cmd::FAST_ZERO != 0 => {
            Err((Errno::NotSup, "zeroes are not faster than writes here"))
        }
        cmd::TRIM if !export.can_trim => Err((Errno::NotSup, "the device cannot trim")),
        cmd::BLOCK_STATUS if !tells_allocation => Err((Errno::Inval, "no context was agreed on")),
        _ => Ok(()),
    }
}

/// The NBD error for an error of the device.
fn errno(error: BlockError, request: &Request) -> Errno {
    match error {
        BlockError::OutOfRange if request.command == cmd::READ => Errno::Inval,
        BlockError::OutOfRange => Errno::NoSpc,
        BlockError::WriteProtected => Errno::Perm,
        BlockError::Unsupported => Errno::NotSup,
        _ => Errno::Io,
    }
}
