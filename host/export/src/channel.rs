//! A socket for messages with descriptors: one message at a time, never blocking.
//!
//! A message may arrive in any pieces, and a client may stop in the middle: the pieces are kept,
//! and the loop continues. No further message is accepted while an answer still waits for room in
//! the socket, so the buffers are bounded by one message in each direction.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};

/// Maximum number of descriptors with a message of any protocol.
const DESCRIPTORS_MAX: usize = 16;

/// The error in a client's bytes: after this its stream has no meaning any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Why a client is gone.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// It closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(std::io::Error),
    /// It violated its protocol.
    #[error("it sent {0}")]
    Malformed(#[from] Malformed),
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Self {
        Self::Broken(error.into())
    }
}

/// The start of every message of a protocol: `BYTES` bytes.
pub trait Header<const BYTES: usize>: Sized {
    /// Maximum number of descriptors with one message, at most 16.
    const DESCRIPTORS_MAX: usize;

    /// Parses a client's header.
    ///
    /// # Errors
    /// It is invalid, so that no further message can be found.
    fn parse(bytes: &[u8; BYTES]) -> Result<Self, Malformed>;

    /// Number of bytes that follow it, which `parse` limits.
    fn body_bytes(&self) -> usize;
}

/// A connection whose messages start with `H`.
#[derive(Debug)]
pub struct Channel<H, const BYTES: usize> {
    socket: UnixStream,
    head: [u8; BYTES],
    header: Option<H>,
    /// Received bytes of the header, then of the body.
    got: usize,
    body: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// Unsent bytes, and how many of them have been sent.
    waiting: Vec<u8>,
    sent: usize,
}

impl<H: Header<BYTES>, const BYTES: usize> Channel<H, BYTES> {
    /// Takes a socket, which is non-blocking from now on.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new(socket: UnixStream) -> std::io::Result<Self> {
        const { assert!(H::DESCRIPTORS_MAX <= DESCRIPTORS_MAX) };
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            head: [0; BYTES],
            header: None,
            got: 0,
            body: Vec::new(),
            descriptors: Vec::new(),
            waiting: Vec::new(),
            sent: 0,
        })
    }

    /// What wakes a loop that waits for its messages, or for room.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether an answer waits for room.
    pub fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Receives available bytes; a complete message is then in [`body_mut`](Self::body_mut).
    ///
    /// # Errors
    /// The client is gone.
    pub fn receive(&mut self) -> Result<Option<H>, Ended> {
        if self.header.is_none() {
            let mut head = self.head;
            let whole = self.fill(&mut head);
            self.head = head;
            if !whole? {
                return Ok(None);
            }
            let header = H::parse(&self.head)?;
            self.got = 0;
            self.body.clear();
            self.body.resize(header.body_bytes(), 0);
            self.header = Some(header);
        }
        let mut body = std::mem::take(&mut self.body);
        let whole = self.fill(&mut body);
        self.body = body;
        if !whole? {
            return Ok(None);
        }
        self.got = 0;
        Ok(self.header.take())
    }

    /// The body of the message received last. Its memory will be reused.
    pub fn body_mut(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }

    /// The descriptors that came with it.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Fills `to` from `got` on; returns whether it is full.
    fn fill(&mut self, to: &mut [u8]) -> Result<bool, Ended> {
        while self.got < to.len() {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut slices = [IoSliceMut::new(&mut to[self.got..])];
            let message = match recvmsg(&self.socket, &mut slices, &mut ancillary, flags) {
                Ok(message) => message,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    self.descriptors.extend(descriptors);
                }
            }
            let is_cut = message.flags.contains(ReturnFlags::CTRUNC);
            if is_cut || self.descriptors.len() > H::DESCRIPTORS_MAX {
                return Err(Malformed("more descriptors than a message may have").into());
            }
            if message.bytes == 0 {
                return Err(Ended::Closed);
            }
            self.got += message.bytes;
        }
        Ok(true)
    }

    /// Sends a header and its body; keeps what does not fit.
    ///
    /// # Errors
    /// The client is gone.
    pub fn send(&mut self, header: &[u8; BYTES], body: &[u8]) -> Result<(), Ended> {
        self.waiting.extend_from_slice(header);
        self.waiting.extend_from_slice(body);
        self.flush()
    }

    /// Like [`send`](Self::send), with a descriptor: it is sent at once or not at all, because its
    /// client waits for it and the socket is empty.
    ///
    /// # Errors
    /// The client is gone, or there is no room after all.
    pub fn send_descriptor(
        &mut self,
        header: &[u8; BYTES],
        body: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), Ended> {
        self.waiting.extend_from_slice(header);
        self.waiting.extend_from_slice(body);
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let slices = [IoSlice::new(&self.waiting)];
        self.sent = sendmsg(&self.socket, &slices, &mut ancillary, flags)?;
        self.flush()
    }

    /// Sends kept bytes, as far as there is room.
    ///
    /// # Errors
    /// The client is gone.
    pub fn flush(&mut self) -> Result<(), Ended> {
        while self.sent < self.waiting.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.waiting[self.sent..], flags) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.waiting.clear();
        self.sent = 0;
        Ok(())
    }
}
