//! A client: one connection to an export of another server.
//!
//! Fixed newstyle, `GO`, structured replies if the server supports them. Everything that the server
//! sends is checked against the requests, and bounded; anything invalid ends the connection,
//! because the position in the stream is then unknown. Nothing here waits longer than it is told
//! to.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::connection::Socket;
use crate::wire::{
    CLIENT_NO_ZEROES, FIXED_NEWSTYLE, Fields, Form, INIT_PASSWD, OLDSTYLE_MAGIC,
    OPTION_REPLY_MAGIC, OPTS_MAGIC, Request, command, info, option, reply, transmission,
};
use replies::Replies;
pub use replies::{Reply, Violation};

mod replies;

/// Longest read or write requested, bytes, whatever the server would accept.
pub const LONGEST: u32 = 1 << 20;
/// Longest trim, bytes: lengths have 32 bits.
pub const TRIM_LONGEST: u32 = 1 << 30;
/// Bytes read from the socket at once.
const GULP: usize = 256 << 10;
/// Maximum number of answers to one option, and their maximum length, bytes.
const ANSWERS_MAX: u32 = 64;
const ANSWER_MAX: u32 = 64 << 10;
/// Largest block size that a server may require, bytes (`doc/proto.md`, "Block size constraints").
const BLOCK_MAX: u32 = 64 << 10;

/// Why there is no connection, or no longer one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("{0}: nobody serves there; is the server running?")]
    Connect(io::Error),
    /// It is not a socket.
    #[error("{0} is not a socket; name the socket that the server listens on")]
    NoSocket(&'static str),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// It closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// It did not finish the handshake.
    #[error("it did not finish the handshake in {} s", .0.as_secs())]
    Slow(Duration),
    /// The server speaks another protocol.
    #[error("it is not an NBD server: it begins with {0:#018x}")]
    NotNbd(u64),
    /// It does not support options.
    #[error("it speaks the old NBD handshake, without options; a newer server is needed")]
    OldStyle,
    /// It does not support the option `GO`.
    #[error("it does not support the option GO; a newer server is needed")]
    NoGo,
    /// It requires encryption.
    #[error(
        "it requires TLS, which is not supported here; let it serve without TLS, or through a \
         tunnel"
    )]
    Tls,
    /// It has no such export.
    #[error("it has no export `{0}`; name one of its exports with -e")]
    NoExport(String),
    /// It refused for another reason: its error number, and its message.
    #[error("it refused (error {0:#x}): {1}")]
    Refused(u32, String),
    /// Its handshake is invalid.
    #[error("its handshake is invalid: {0}")]
    Nonsense(&'static str),
    /// Its block sizes are invalid: minimum, preferred, maximum.
    #[error("its block sizes are impossible: least {0}, best {1}, longest {2}")]
    Blocks(u32, u32, u32),
    /// An invalid reply.
    #[error("it broke the protocol: {0}")]
    Violation(#[from] Violation),
}

/// A server's description of its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Bytes.
    pub size: u64,
    /// [`transmission`] flags.
    pub flags: u16,
    /// Minimum length of a request, and alignment of offset and length; 1 if it does not say.
    pub block_least: u32,
    /// Maximum length of reads and writes; at most [`LONGEST`].
    pub longest: u32,
}

impl Remote {
    /// Whether it has this [`transmission`] flag.
    #[must_use]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & transmission::HAS_FLAGS != 0 && self.flags & flag != 0
    }

    fn set_blocks(&mut self, (least, best, longest): (u32, u32, u32)) -> Result<(), ClientError> {
        let is_sane = least.is_power_of_two()
            && least <= BLOCK_MAX
            && best.is_power_of_two()
            && best >= least
            && longest >= least;
        if !is_sane {
            return Err(ClientError::Blocks(least, best, longest));
        }
        (self.block_least, self.longest) = (least, longest.min(LONGEST) / least * least);
        Ok(())
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    remote: Remote,
    replies: Replies,
    /// Bytes for the server, and how many have been sent.
    out: Vec<u8>,
    gone: usize,
}

impl Client {
    /// Connects to a socket of this machine and negotiates `export`; an empty name is the server's
    /// default. `patience` is how long the server may take.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn unix(path: &Path, export: &str, patience: Duration) -> Result<Self, ClientError> {
        let connect = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(socket)
        };
        let socket = connect().map_err(|error| match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => ClientError::NoSocket("a folder"),
            Ok(there) if !there.file_type().is_socket() => ClientError::NoSocket("a file"),
            _ => ClientError::Connect(error),
        })?;
        let socket = UnixStream::from(socket);
        Self::agree(Socket::Unix(socket), export, patience)
    }

    /// The same over TCP, `HOST:PORT`.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn tcp(address: &str, export: &str, patience: Duration) -> Result<Self, ClientError> {
        let all = address.to_socket_addrs().map_err(ClientError::Connect)?;
        let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
        for one in all {
            match TcpStream::connect_timeout(&one, patience) {
                Ok(socket) => return Self::agree(Socket::Tcp(socket), export, patience),
                Err(error) => failure = error,
            }
        }
        Err(ClientError::Connect(failure))
    }

    fn agree(socket: Socket, export: &str, patience: Duration) -> Result<Self, ClientError> {
        socket.prepare().map_err(ClientError::Io)?;
        let mut talk = Talk { socket, until: Instant::now() + patience, patience };
        let (remote, form) = talk.agree(export)?;
        let replies = Replies::new(form);
        Ok(Self { socket: talk.socket, remote, replies, out: Vec::new(), gone: 0 })
    }

    /// The server's description of its export.
    #[must_use]
    pub const fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Whether something waits to be sent: no further request should be submitted.
    #[must_use]
    pub const fn is_sending(&self) -> bool {
        self.gone < self.out.len()
    }

    /// Sends a request; `payload` is the data to write. The request's cookie must not be in use.
    ///
    /// # Errors
    /// The socket failed.
    pub fn send(&mut self, request: &Request, payload: &[u8]) -> Result<(), ClientError> {
        self.replies.owe(request);
        if !self.is_sending() {
            self.out.clear();
            self.gone = 0;
        }
        request.emit(false, &mut self.out);
        self.out.extend(payload);
        self.put()
    }

    /// Sends as much as there is room for.
    fn put(&mut self) -> Result<(), ClientError> {
        while self.is_sending() {
            match self.socket.write(&self.out[self.gone..]) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => self.gone += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(())
    }

    /// The next reply, if one arrives by then.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn take(&mut self, until: Instant) -> Result<Option<Reply>, ClientError> {
        loop {
            if let Some(reply) = self.replies.next()? {
                return Ok(Some(reply));
            }
            self.put()?;
            match self.socket.read(self.replies.room(GULP)) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => self.replies.came(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let wants = self.is_sending();
                    if !wait(&self.socket, (true, wants), until).map_err(ClientError::Io)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(lost(error)),
            }
        }
    }
}

impl Drop for Client {
    /// Says goodbye, if there is room for it.
    fn drop(&mut self) {
        if !self.is_sending() {
            let (flags, command, cookie) = (0, command::DISC, 0);
            let mut bytes = Vec::new();
            Request { flags, command, cookie, offset: 0, length: 0 }.emit(false, &mut bytes);
            let _ = self.socket.write(&bytes);
        }
    }
}

/// A server that dies is gone, whatever the system calls it.
fn lost(error: io::Error) -> ClientError {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ClientError::Closed,
        _ => ClientError::Io(error),
    }
}

/// Waits until the socket can be read or written; false if that is not possible by `until`.
fn wait(socket: &Socket, (reads, writes): (bool, bool), until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    let mut wanted = PollFlags::empty();
    wanted.set(PollFlags::IN, reads);
    wanted.set(PollFlags::OUT, writes);
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut all = [PollFd::from_borrowed_fd(socket.as_fd(), wanted)];
    match rustix::event::poll(&mut all, Some(&timeout)) {
        Ok(0) => Ok(false),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The handshake, and its deadline.
struct Talk {
    socket: Socket,
    until: Instant,
    patience: Duration,
}

/// An answer to an option.
struct Answer {
    kind: u32,
    data: Vec<u8>,
}

impl Talk {
    fn get<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, mut to: &mut [u8]) -> Result<(), ClientError> {
        while !to.is_empty() {
            match self.socket.read(to) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => to = &mut to[count..],
                Err(error) => self.pass(error, false)?,
            }
        }
        Ok(())
    }

    fn put(&mut self, mut from: &[u8]) -> Result<(), ClientError> {
        while !from.is_empty() {
            match self.socket.write(from) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => from = &from[count..],
                Err(error) => self.pass(error, true)?,
            }
        }
        Ok(())
    }

    /// Waits, if that is all that is needed.
    fn pass(&mut self, error: io::Error, writes: bool) -> Result<(), ClientError> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock => {
                let ready = wait(&self.socket, (!writes, writes), self.until);
                match ready.map_err(ClientError::Io)? {
                    true => Ok(()),
                    false => Err(ClientError::Slow(self.patience)),
                }
            }
            _ => Err(lost(error)),
        }
    }

    fn agree(&mut self, export: &str) -> Result<(Remote, Form), ClientError> {
        let magic = u64::from_be_bytes(self.get()?);
        if magic != INIT_PASSWD {
            return Err(ClientError::NotNbd(magic));
        }
        match u64::from_be_bytes(self.get()?) {
            OPTS_MAGIC => {}
            OLDSTYLE_MAGIC => return Err(ClientError::OldStyle),
            _ => return Err(ClientError::Nonsense("its style is unknown")),
        }
        let flags = u16::from_be_bytes(self.get()?);
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(ClientError::NoGo);
        }
        let flags = u32::from(flags) & (u32::from(FIXED_NEWSTYLE) | CLIENT_NO_ZEROES);
        self.put(&flags.to_be_bytes())?;
        self.ask(option::STRUCTURED_REPLY, &[])?;
        let form = match self.answer(option::STRUCTURED_REPLY)?.kind {
            reply::ACK => Form::Structured,
            reply::ERR_TLS_REQD => return Err(ClientError::Tls),
            kind if kind >> 31 == 1 => Form::Simple,
            _ => {
                return Err(ClientError::Nonsense(
                    "it neither accepts nor refuses structured replies",
                ));
            }
        };
        Ok((self.go(export)?, form))
    }

    fn ask(&mut self, option: u32, data: &[u8]) -> Result<(), ClientError> {
        let mut out = Vec::with_capacity(16 + data.len());
        out.extend(OPTS_MAGIC.to_be_bytes());
        out.extend(option.to_be_bytes());
        out.extend((data.len() as u32).to_be_bytes());
        out.extend(data);
        self.put(&out)
    }

    fn answer(&mut self, wanted: u32) -> Result<Answer, ClientError> {
        let head: [u8; 20] = self.get()?;
        let mut fields = Fields(&head);
        let (magic, option) = (fields.u64(), fields.u32());
        if magic != Some(OPTION_REPLY_MAGIC) || option != Some(wanted) {
            return Err(ClientError::Nonsense("it does not answer the option that was sent"));
        }
        let (kind, length) = (fields.u32().unwrap_or(0), fields.u32().unwrap_or(0));
        if length > ANSWER_MAX {
            return Err(ClientError::Nonsense("an answer to an option is longer than 64 KiB"));
        }
        let mut data = vec![0; length as usize];
        self.fill(&mut data)?;
        Ok(Answer { kind, data })
    }

    fn go(&mut self, export: &str) -> Result<Remote, ClientError> {
        let mut data = Vec::new();
        data.extend((export.len() as u32).to_be_bytes());
        data.extend(export.as_bytes());
        data.extend(1_u16.to_be_bytes());
        data.extend(info::BLOCK_SIZE.to_be_bytes());
        self.ask(option::GO, &data)?;
        let mut told: Option<(u64, u16)> = None;
        let mut remote = Remote { size: 0, flags: 0, block_least: 1, longest: LONGEST };
        for _ in 0..ANSWERS_MAX {
            let Answer { kind, data } = self.answer(option::GO)?;
            let mut fields = Fields(&data);
            match kind {
                reply::INFO => match (fields.u16(), data.len()) {
                    (Some(info::EXPORT), 12) => told = fields.u64().zip(fields.u16()),
                    (Some(info::BLOCK_SIZE), 14) => {
                        let mut next = || fields.u32().unwrap_or(0);
                        remote.set_blocks((next(), next(), next()))?;
                    }
                    (Some(info::EXPORT | info::BLOCK_SIZE), _) | (None, _) => {
                        return Err(ClientError::Nonsense("its information has a wrong length"));
                    }
                    _ => {}
                },
                reply::ACK => {
                    let missing = ClientError::Nonsense("it does not say how large the export is");
                    (remote.size, remote.flags) = told.ok_or(missing)?;
                    if remote.size == 0 || remote.size > i64::MAX as u64 {
                        let what = "its export is empty, or impossibly large";
                        return Err(ClientError::Nonsense(what));
                    }
                    return Ok(remote);
                }
                reply::ERR_UNSUP => return Err(ClientError::NoGo),
                reply::ERR_TLS_REQD => return Err(ClientError::Tls),
                reply::ERR_UNKNOWN => return Err(ClientError::NoExport(export.to_owned())),
                _ => return Err(ClientError::Refused(kind, visible(&data))),
            }
        }
        Err(ClientError::Nonsense("its answers to GO never end"))
    }
}

/// A server's message, as one line for a terminal.
fn visible(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    if text.is_empty() { "it does not say why".into() } else { text }
}

#[cfg(test)]
mod tests;
