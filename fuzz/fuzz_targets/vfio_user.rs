//! What a virtual machine monitor sends to the vfio-user server.
//!
//! The first byte selects whether the bytes are sent as they are, or cut into messages with valid
//! headers: a command, a length and a body each, some with a descriptor. All answers must be whole
//! replies, and the server must end whatever it received.
#![no_main]

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use flysch_api::machine::{GuestMemory, Instant};
use flysch_vfio_user::{Function, Identity, Interrupts, Layout, Session};
use libfuzzer_sys::fuzz_target;
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// A function that reads and writes memory as requested, and drives its line.
#[derive(Default)]
struct Board {
    memory: GuestMemory,
    address: u64,
    line: bool,
    raised: Option<u16>,
}

impl Interrupts for Board {
    fn line(&self) -> bool {
        self.line
    }

    fn take_vector(&mut self) -> Option<u16> {
        self.raised.take()
    }
}

impl Function for Board {
    fn layout(&self) -> Layout {
        let identity = Identity {
            vendor: 1,
            device: 2,
            subsystem_vendor: 3,
            subsystem: 4,
            class: 5,
            revision: 6,
        };
        Layout { identity, bars: [4096, 0, 0, 0, 0, 0], vectors: 3, vector_bar: 2 }
    }

    fn read(&mut self, _bar: u8, offset: u32, to: &mut [u8], _now: Instant) {
        assert!(offset as usize + to.len() <= 4096);
        let _ = self.memory.read(self.address, to);
    }

    fn write(&mut self, _bar: u8, offset: u32, from: &[u8], _now: Instant) {
        assert!(offset as usize + from.len() <= 4096);
        self.address = from.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let _ = self.memory.write(self.address, from);
        self.line = offset & 4 != 0;
        self.raised = Some(offset as u16);
    }

    fn advance(&mut self, _now: Instant) {}

    fn next_event(&self) -> Option<Instant> {
        None
    }

    fn reset(&mut self, _now: Instant) {
        self.line = false;
    }

    fn memory(&mut self) -> &mut GuestMemory {
        &mut self.memory
    }
}

fn send(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let slices = [IoSlice::new(bytes)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::sendmsg(socket, &slices, &mut ancillary, flags);
}

fn header(command: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes[2] = command;
    bytes[4..8].copy_from_slice(&(16 + len as u32).to_le_bytes());
    bytes
}

/// Checks that the answers are whole replies.
fn check_answers(socket: &mut UnixStream) {
    let mut answers = vec![];
    socket.set_nonblocking(true).expect("a socket of ours");
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = socket.read(&mut piece) {
        answers.extend_from_slice(&piece[..len]);
    }
    let mut rest = &answers[..];
    while !rest.is_empty() {
        let size = u32::from_le_bytes(rest[4..8].try_into().expect("4 bytes")) as usize;
        assert!(size >= 16 && size <= rest.len(), "a reply of {size} bytes");
        assert!(matches!(rest[8], 1 | 0x21));
        rest = &rest[size..];
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&mode, mut bytes)) = bytes.split_first() else { return };
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut board = Board::default();
    let mut session = Session::new(theirs, &mut board).expect("a session");
    let mut serve = |session: &mut Session| {
        let served = session.serve(&mut board, || Instant::START, 64).is_ok();
        session.interrupts(&mut board, Instant::START);
        served
    };
    if mode & 1 != 0 {
        for piece in bytes.chunks(usize::from(mode)) {
            send(&ours, piece, &[]);
            if !serve(&mut session) {
                break;
            }
        }
        return check_answers(&mut ours);
    }
    let create = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("guest", create).expect("a memfd");
    rustix::fs::ftruncate(&memory, 1 << 16).expect("its length");
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK).expect("its seal");
    let event: OwnedFd = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
    send(&ours, &[header(1, 4), vec![0; 4]].concat(), &[]);
    while let [command, len, rest @ ..] = bytes {
        let (body, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let message = [header(command & 0x3F, body.len()), body.to_vec()].concat();
        let descriptors: &[_] = match command >> 6 {
            1 => &[memory.as_fd()],
            2 => &[event.as_fd()],
            _ => &[],
        };
        send(&ours, &message, descriptors);
        if !serve(&mut session) {
            break;
        }
    }
    check_answers(&mut ours);
});
