//! What a virtual machine monitor and its guest pass to the vhost-user server: messages, and the
//! contents of the rings.
//!
//! The first byte selects whether the bytes are sent as they are, in pieces, or are steps: a
//! message with its descriptors, bytes written into the guest's memory, or a chain of descriptors
//! offered on a running ring. All answers must be whole replies; whatever range a request names,
//! the disk, which checks it, must only get ranges it has; and the server must end.
#![no_main]

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use flysch_api::block::BlockGeometry;
use flysch_api::data::SegmentLimits;
use flysch_export::testing::{Disk, Ticks};
use flysch_export::{Door, Jobs};
use flysch_vhost_user::wire::{message, protocol};
use flysch_vhost_user::{Call, Event, Server};
use libfuzzer_sys::fuzz_target;
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Bytes of the guest's memory; the client calls its first byte `USER`.
const MEMORY: u64 = 1 << 16;
const USER: u64 = 0x7000_0000_0000;
/// Entries of the ring, and the addresses of its parts.
const SIZE: u16 = 16;
const DESC: u64 = 0x1000;
const AVAIL: u64 = 0x2000;
const USED: u64 = 0x3000;
/// Address of a chain's pieces unless the chain gives another.
const DATA: u64 = 0x4000;
/// Turns that suffice for everything that can be under way at once.
const TURNS: u32 = 1 << 16;

/// A listening socket, for the life of the process.
fn listener() -> &'static (UnixListener, PathBuf) {
    static LISTENER: std::sync::OnceLock<(UnixListener, PathBuf)> = std::sync::OnceLock::new();
    LISTENER.get_or_init(|| {
        let name = format!("flysch-fuzz-vhost-user-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        (UnixListener::bind(&path).expect("a socket to listen at"), path)
    })
}

struct Client {
    socket: UnixStream,
    memory: OwnedFd,
    event: OwnedFd,
    avail: u16,
}

impl Client {
    fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags);
    }

    fn message(&self, request: u32, flags: u32, payload: &[u8], files: &[BorrowedFd<'_>]) {
        let head = [request, flags | 1, payload.len() as u32].map(u32::to_le_bytes);
        self.send(&[head.as_flattened(), payload].concat(), files);
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let room = MEMORY.saturating_sub(at).min(bytes.len() as u64) as usize;
        let _ = rustix::io::pwrite(&self.memory, &bytes[..room], at);
    }

    /// Starts ring 0 with these features.
    fn start(&self, features: u64) {
        let longs = |longs: &[u64]| -> Vec<u8> {
            longs.iter().flat_map(|long| long.to_le_bytes()).collect()
        };
        let words = |a: u32, b: u32| [a, b].map(u32::to_le_bytes).as_flattened().to_vec();
        self.message(message::SET_FEATURES, 0, &longs(&[features]), &[]);
        let wanted = protocol::CONFIG | protocol::INFLIGHT_SHMFD | protocol::REPLY_ACK;
        self.message(message::SET_PROTOCOL_FEATURES, 0, &longs(&[wanted]), &[]);
        let table = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &longs(&[0, MEMORY, USER, 0])].concat();
        self.message(message::SET_MEM_TABLE, 0, &table, &[self.memory.as_fd()]);
        self.message(message::SET_VRING_NUM, 0, &words(0, u32::from(SIZE)), &[]);
        let addresses = longs(&[0, USER + DESC, USER + USED, USER + AVAIL, 0]);
        self.message(message::SET_VRING_ADDR, 0, &addresses, &[]);
        self.message(message::SET_VRING_ENABLE, 0, &words(0, 1), &[]);
        self.message(message::SET_VRING_KICK, 0, &[0; 8], &[self.event.as_fd()]);
    }

    /// Offers a chain of `pieces` of 4 bytes each: flags and shift of the length, length, place.
    /// The bytes at [`DATA`] are a request of this kind.
    fn offer(&mut self, kind: u8, sector: u8, pieces: &[u8]) {
        let head = self.avail % SIZE;
        let request = [&u32::from(kind).to_le_bytes()[..], &[0; 4], &[sector], &[0; 7]].concat();
        self.put(DATA, &request);
        for (index, piece) in pieces.chunks_exact(4).enumerate().take(usize::from(SIZE)) {
            let slot = (head + index as u16) % SIZE;
            let length = u32::from(piece[1]) << (piece[0] >> 4);
            let address = DATA + (u64::from(u16::from_le_bytes([piece[2], piece[3]])) << 4);
            let flags = u16::from(piece[0] & 7);
            let entry = [
                &address.to_le_bytes()[..],
                &length.to_le_bytes(),
                &flags.to_le_bytes(),
                &((slot + 1) % SIZE).to_le_bytes(),
            ];
            self.put(DESC + 16 * u64::from(slot), &entry.concat());
        }
        self.put(AVAIL + 4 + 2 * u64::from(self.avail % SIZE), &head.to_le_bytes());
        self.avail = self.avail.wrapping_add(1);
        self.put(AVAIL + 2, &self.avail.to_le_bytes());
    }

    /// Checks that the answers are whole replies.
    fn check_answers(&mut self) {
        let mut answers = vec![];
        self.socket.set_nonblocking(true).expect("a socket of ours");
        let mut piece = [0; 4096];
        while let Ok(len @ 1..) = self.socket.read(&mut piece) {
            answers.extend_from_slice(&piece[..len]);
        }
        let mut rest = &answers[..];
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("a word"));
            assert_eq!(word(4), 5, "the flags of an answer");
            rest = &rest[12 + word(8) as usize..];
        }
    }
}

fn disk() -> Disk {
    let geometry = BlockGeometry {
        block_size: 4096,
        blocks: 16,
        transfer_max: 8192,
        segments: SegmentLimits::NONE,
        queue_depth: 8,
        can_delete: true,
        read_only: false,
        crypto: false,
    };
    Disk::new(geometry, 64 << 10, 0x11)
}

/// Serves until nothing is under way: requests are received, executed and answered.
fn serve<L: FnMut(&Event)>(door: &mut Server<'_, L>, jobs: &mut Jobs<'_, Disk, Ticks, Call>) {
    let block = jobs.block();
    for turn in 0..TURNS {
        // A server that has slept polls its socket.
        door.rest();
        let mut moved = door.receive(block, |job| jobs.add(job));
        moved |= jobs.advance(|job| door.finish(job));
        moved |= door.send();
        if !moved && jobs.is_idle() {
            return;
        }
        assert!(turn + 1 < TURNS, "it has no end");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&mode, mut bytes)) = bytes.split_first() else { return };
    let (listener, path) = listener();
    let mut disk = disk();
    let shown =
        flysch_vhost_user::Disk::new(flysch_api::block::BlockDevice::geometry(&disk), "fuzzed");
    let clock = Ticks::default();
    let mut jobs = Jobs::new(&mut disk, &clock, 0);
    let mut door = Server::new(listener, &shown, |_: &Event| ()).expect("a server");
    let memory = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&memory, MEMORY).expect("its length");
    let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
    let socket = UnixStream::connect(path).expect("a connection");
    let mut client = Client { socket, memory, event, avail: 0 };
    serve(&mut door, &mut jobs);
    if mode & 1 != 0 {
        for piece in bytes.chunks(usize::from(mode)) {
            client.send(piece, &[]);
            serve(&mut door, &mut jobs);
        }
        return client.check_answers();
    }
    // Event index, indirect descriptors, flush; bits 32 and 30 are always offered.
    let features = u64::from(mode >> 1 & 3) << 28 | u64::from(mode >> 3 & 1) << 9;
    client.start(features | 1 << 32 | 1 << 30);
    while let [what, len, rest @ ..] = bytes {
        let (body, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        match (what >> 6, body) {
            (0, [kind, sector, pieces @ ..]) => client.offer(*kind, *sector, pieces),
            (1, [low, high, content @ ..]) => {
                client.put(u64::from(u16::from_le_bytes([*low, *high])), content);
            }
            (two_or_three, body) => {
                let files = [client.memory.as_fd(), client.event.as_fd()];
                let files: &[_] = match two_or_three {
                    2 => &[],
                    _ if body.len() > 16 => &files[..1],
                    _ => &files[1..],
                };
                let request = u32::from(what & 0x3F);
                client.message(request, u32::from(len & 8), body, files);
            }
        }
        serve(&mut door, &mut jobs);
    }
    drop(jobs);
    client.check_answers();
});
