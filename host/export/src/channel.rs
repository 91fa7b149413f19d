//! A socket on which messages come, each with its descriptors: one at a time, never blocking.
//!
//! A message may come in any pieces, and a client may stop in the middle: what is there is kept,
//! and the loop goes on. No further message is taken while an answer still waits for room in the
//! socket, so what is kept is bounded by one message each way.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};

/// Most descriptors that any protocol's messages may have.
const DESCRIPTORS_MAX: usize = 16;

/// What is wrong with the bytes of a client: after this its stream means nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Why a client is no more.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// It closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(std::io::Error),
    /// What it sent is nothing that its protocol knows.
    #[error("it sent {0}")]
    Malformed(#[from] Malformed),
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Self {
        Self::Broken(error.into())
    }
}

/// What every message of a protocol begins with: `BYTES` bytes.
pub trait Header<const BYTES: usize>: Sized {
    /// Most descriptors with one message, at most 16.
    const DESCRIPTORS_MAX: usize;

    /// Reads one of a client.
    ///
    /// # Errors
    /// It is none that could be followed by more messages.
    fn parse(bytes: &[u8; BYTES]) -> Result<Self, Malformed>;

    /// Bytes that follow it: their number is bounded by what `parse` takes.
    fn body_bytes(&self) -> usize;
}

/// A connection whose messages begin with `H`.
#[derive(Debug)]
pub struct Channel<H, const BYTES: usize> {
    socket: UnixStream,
    head: [u8; BYTES],
    header: Option<H>,
    /// Bytes of the header, then of the body, that are here.
    got: usize,
    body: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// What could not be sent yet, and how much of it was.
    waiting: Vec<u8>,
    sent: usize,
}

impl<H: Header<BYTES>, const BYTES: usize> Channel<H, BYTES> {
    /// Takes a socket, which does not block from now on.
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

    /// What wakes who waits for its messages, or for room.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether an answer waits for room.
    pub fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes in what has arrived; a whole message is in [`body_mut`](Self::body_mut) then.
    ///
    /// # Errors
    /// The client is no more.
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

    /// What stood behind the header received last. Its memory is used again.
    pub fn body_mut(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }

    /// The descriptors that came with it.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Fills `to` from `got` on; whether it is full.
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

    /// Sends a header and what follows; keeps what does not fit.
    ///
    /// # Errors
    /// The client is no more.
    pub fn send(&mut self, header: &[u8; BYTES], body: &[u8]) -> Result<(), Ended> {
        self.waiting.extend_from_slice(header);
        self.waiting.extend_from_slice(body);
        self.flush()
    }

    /// As [`send`](Self::send), with a descriptor: that goes at once or not at all, as its client
    /// waits for it and the socket is empty.
    ///
    /// # Errors
    /// The client is no more, or there is no room after all.
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

    /// Sends what is kept, as far as there is room.
    ///
    /// # Errors
    /// The client is no more.
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
