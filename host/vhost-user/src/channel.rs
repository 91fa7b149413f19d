//! The socket of one client: a message at a time, never blocking.
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

use crate::wire::{DESCRIPTORS_MAX, HEADER_BYTES, Header, Malformed};

/// Why a client is no more.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// It closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(std::io::Error),
    /// What it sent is no vhost-user.
    #[error("it sent {0}")]
    Malformed(#[from] Malformed),
    /// A file of its memory became shorter than what is mapped of it.
    #[error("its memory shrank while it was in use")]
    Torn,
    /// The server ends.
    #[error("the server ends")]
    Stopped,
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Self {
        Self::Broken(error.into())
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    head: [u8; HEADER_BYTES],
    header: Option<Header>,
    /// Bytes of the header, then of the body, that are here.
    got: usize,
    body: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// What could not be sent yet, and how much of it was.
    waiting: Vec<u8>,
    sent: usize,
}

impl Channel {
    pub(crate) fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            head: [0; HEADER_BYTES],
            header: None,
            got: 0,
            body: Vec::new(),
            descriptors: Vec::new(),
            waiting: Vec::new(),
            sent: 0,
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether an answer waits for room.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes in what has arrived; a whole message is in [`body`](Self::body) then.
    pub(crate) fn receive(&mut self) -> Result<Option<Header>, Ended> {
        if self.header.is_none() {
            let mut head = self.head;
            let whole = self.fill(&mut head);
            self.head = head;
            if !whole? {
                return Ok(None);
            }
            let header = Header::parse(&self.head)?;
            self.got = 0;
            self.body.clear();
            self.body.resize(header.size, 0);
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

    /// What stood behind the header received last.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// The descriptors that came with it.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
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
            if is_cut || self.descriptors.len() > DESCRIPTORS_MAX {
                return Err(Malformed("more descriptors than a message may have").into());
            }
            if message.bytes == 0 {
                return Err(Ended::Closed);
            }
            self.got += message.bytes;
        }
        Ok(true)
    }

    /// Answers `request`, with a descriptor if there is one; what does not fit is kept. An answer
    /// with a descriptor goes at once or not at all: its client waits for it, the socket is empty.
    pub(crate) fn reply(
        &mut self,
        request: u32,
        payload: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), Ended> {
        self.waiting.extend(Header::reply(request, payload.len()));
        self.waiting.extend(payload);
        let Some(descriptor) = descriptor else { return self.flush() };
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
    pub(crate) fn flush(&mut self) -> Result<(), Ended> {
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
