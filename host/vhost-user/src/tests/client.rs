//! A client that sends raw messages.

use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use flysch_api::block::BlockDevice;
use flysch_export::Handle;
use flysch_export::testing::Ticks;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::disk;
use crate::server::{Event, Server};
use crate::wire::{feature, message, protocol};

/// How long anything is waited for: no verdict depends on it, it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(600);
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;
/// Bytes of the guest's memory. The client calls its first byte `USER`.
pub(super) const MEMORY: u64 = 1 << 20;
const USER: u64 = 0x7000_0000_0000;
const SIZE: u16 = 16;
const DESC: u64 = 0x1000;
const AVAIL: u64 = 0x2002;
const USED: u64 = 0x3000;
const HEADER: u64 = 0x4000;
const STATUS: u64 = 0x5000;
const TABLE: u64 = 0x8000;
const DATA: u64 = 0x10000;

/// A server in its own thread.
pub(super) struct Bench {
    path: PathBuf,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    log: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new(read_only: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = flysch_export::Server::new().unwrap();
        let handle = server.handle();
        let (sender, log) = channel();
        let thread = std::thread::spawn(move || {
            let mut disk = disk(read_only);
            let shown = crate::Disk::new(disk.geometry(), "name");
            let tell = |event: &Event| drop(sender.send(format!("{event:?}")));
            let mut client = Server::new(&listener, &shown, tell).unwrap();
            server.run(&mut client, &mut disk, &Ticks::default()).unwrap();
        });
        Self { path, handle, thread: Some(thread), log, _folder: folder }
    }

    /// Waits until this has been logged.
    pub(super) fn logged(&self, what: &str) {
        loop {
            let line = self.log.recv_timeout(PATIENCE).expect(what);
            if line.contains(what) {
                return;
            }
        }
    }

    /// A client that has sent nothing yet, unless there is one already.
    pub(super) fn connect(&self) -> Option<Client> {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memory = rustix::fs::memfd_create("guest", flags).unwrap();
        rustix::fs::ftruncate(&memory, MEMORY).unwrap();
        let fd = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (kick, call, error) = (fd(), fd(), fd());
        let client = Client { socket, memory, kick, call, error, features: 0, avail: 0, used: 0 };
        loop {
            let line = self.log.recv_timeout(PATIENCE).expect("it is taken or sent away");
            if line.contains("Connected") {
                return Some(client);
            }
            if line.contains("Busy") {
                return None;
            }
        }
    }

    /// A client with a running ring.
    pub(super) fn ready(&self, features: u64) -> Client {
        let mut client = self.connect().unwrap();
        client.features = features | feature::VERSION_1 | feature::PROTOCOL_FEATURES;
        let offered = client.ask(message::GET_FEATURES, &[]);
        let offered = u64::from_le_bytes(offered.try_into().unwrap());
        assert_eq!(client.features & !offered, 0, "offered");
        let features = client.features.to_le_bytes();
        client.tell(message::SET_FEATURES, &features, &[]);
        let wanted = (protocol::CONFIG | protocol::INFLIGHT_SHMFD).to_le_bytes();
        client.tell(message::SET_PROTOCOL_FEATURES, &wanted, &[]);
        let table = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &client.memory_region()[8..]].concat();
        client.tell(message::SET_MEM_TABLE, &table, &[&client.memory_file()]);
        client.start(0);
        client
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "the server ended well");
        }
    }
}

pub(super) struct Client {
    socket: UnixStream,
    memory: OwnedFd,
    kick: OwnedFd,
    call: OwnedFd,
    error: OwnedFd,
    features: u64,
    avail: u16,
    used: u16,
}

impl Client {
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        // The server may be gone before all is sent.
        let _ = rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL);
    }

    /// Sends a message with descriptors.
    pub(super) fn tell(&mut self, request: u32, payload: &[u8], files: &[&OwnedFd]) {
        self.tell_with(request, 1, payload, files);
    }

    fn tell_with(&mut self, request: u32, flags: u32, payload: &[u8], files: &[&OwnedFd]) {
        let head = [request, flags, payload.len() as u32].map(u32::to_le_bytes);
        let bytes = [head.as_flattened(), payload].concat();
        let files: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        }
        let slices = [IoSlice::new(&bytes)];
        rustix::net::sendmsg(&self.socket, &slices, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }

    /// Sends a request and reads the answer.
    pub(super) fn ask(&mut self, request: u32, payload: &[u8]) -> Vec<u8> {
        self.tell(request, payload, &[]);
        self.answer(request)
    }

    fn answer(&mut self, request: u32) -> Vec<u8> {
        let mut head = [0; 12];
        self.socket.read_exact(&mut head).unwrap();
        let words = head.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        let words: Vec<u32> = words.collect();
        assert_eq!(words[..2], [request, 5]);
        let mut payload = vec![0; words[2] as usize];
        self.socket.read_exact(&mut payload).unwrap();
        payload
    }

    /// Asks for an acknowledgement; returns its value.
    pub(super) fn ask_acked(&mut self, request: u32, payload: &[u8], with_memory: bool) -> u64 {
        let file = self.memory_file();
        let files: &[&OwnedFd] = if with_memory { &[&file] } else { &[] };
        self.tell_with(request, 9, payload, files);
        u64::from_le_bytes(self.answer(request).try_into().unwrap())
    }

    /// Sends a request and reads an answer with a descriptor.
    pub(super) fn ask_for_descriptor(
        &mut self,
        request: u32,
        payload: &[u8],
    ) -> (Vec<u8>, OwnedFd) {
        self.tell(request, payload, &[]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 12 + 24];
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::WAITALL;
        rustix::net::recvmsg(&self.socket, &mut slices, &mut ancillary, flags).unwrap();
        let mut files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        (bytes[12..].to_vec(), files.next().expect("a descriptor"))
    }

    pub(super) fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 64]), Ok(0) | Err(_))
    }

    pub(super) fn config(&mut self, offset: u32, size: u32) -> Vec<u8> {
        let head = [offset, size, 0].map(u32::to_le_bytes);
        let answer = self.ask(message::GET_CONFIG, &[head.as_flattened(), &[0; 8]].concat());
        answer[12..].to_vec()
    }

    pub(super) fn memory_file(&self) -> OwnedFd {
        self.memory.try_clone().unwrap()
    }

    /// The payload of `ADD_MEM_REG`.
    pub(super) fn memory_region(&self) -> Vec<u8> {
        [0, 0, MEMORY, USER, 0].into_iter().flat_map(u64::to_le_bytes).collect()
    }

    pub(super) fn shrink(&mut self) {
        rustix::fs::ftruncate(&self.memory, 0).unwrap();
    }

    /// Starts the ring from this index on.
    pub(super) fn start(&mut self, base: u32) {
        let words = |words: [u32; 2]| words.map(u32::to_le_bytes).as_flattened().to_vec();
        self.tell(message::SET_VRING_NUM, &words([0, u32::from(SIZE)]), &[]);
        self.tell(message::SET_VRING_BASE, &words([0, base]), &[]);
        let addresses = [0, USER + DESC, USER + USED, USER + AVAIL, 0];
        let addresses: Vec<u8> = addresses.into_iter().flat_map(u64::to_le_bytes).collect();
        self.tell(message::SET_VRING_ADDR, &addresses, &[]);
        let files = [&self.call, &self.error, &self.kick].map(|file| file.try_clone().unwrap());
        self.tell(message::SET_VRING_CALL, &[0; 8], &[&files[0]]);
        self.tell(message::SET_VRING_ERR, &[0; 8], &[&files[1]]);
        self.tell(message::SET_VRING_KICK, &[0; 8], &[&files[2]]);
        self.tell(message::SET_VRING_ENABLE, &words([0, 1]), &[]);
    }

    /// Stops the ring: none of its requests is in flight then.
    pub(super) fn put_back(&mut self) {
        let base = self.ask(message::GET_VRING_BASE, &[0; 8]);
        assert_eq!(base[4..6], self.avail.to_le_bytes());
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        assert_eq!(rustix::io::pwrite(&self.memory, bytes, at), Ok(bytes.len()));
    }

    fn get<const LEN: usize>(&self, at: u64) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        assert_eq!(rustix::io::pread(&self.memory, &mut bytes, at), Ok(LEN));
        bytes
    }

    /// Writes a descriptor of the ring: address, length, flags, next.
    pub(super) fn descriptor(&mut self, index: u16, what: (u64, u32, u16, u16)) {
        self.write_descriptor(DESC + 16 * u64::from(index), what);
    }

    pub(super) fn write_descriptor(&mut self, place: u64, what: (u64, u32, u16, u16)) {
        let (at, length, flags, next) = what;
        self.put(place, &at.to_le_bytes());
        self.put(place + 8, &length.to_le_bytes());
        self.put(place + 12, &[flags.to_le_bytes(), next.to_le_bytes()].concat());
    }

    /// Makes a chain available, and kicks.
    pub(super) fn offer(&mut self, head: u16) {
        self.put(AVAIL + 4 + 2 * u64::from(self.avail % SIZE), &head.to_le_bytes());
        self.skip(1);
        self.kick();
    }

    /// Increments the available index.
    pub(super) fn skip(&mut self, count: u16) {
        self.avail = self.avail.wrapping_add(count);
        self.put(AVAIL + 2, &self.avail.to_le_bytes());
        if count > 1 {
            self.kick();
        }
    }

    pub(super) fn kick(&mut self) {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
    }

    pub(super) fn await_error(&mut self) {
        await_event(&self.error);
    }

    /// An empty ring, as after a reset.
    pub(super) fn reset_ring(&mut self) {
        (self.avail, self.used) = (0, 0);
        self.put(AVAIL, &[0; 4]);
        self.put(USED, &[0; 4]);
    }

    /// Puts a request into the chain `head`, divided at odd places.
    pub(super) fn request(&mut self, head: u16, what: (u32, u64), out: &[u8], room: u32) {
        let (kind, sector) = what;
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.put(HEADER, &header);
        self.put(DATA, out);
        self.put(STATUS, &[0xFF]);
        let half = out.len() as u32 / 2 + 1;
        let mut parts = vec![(HEADER, 9, 0), (HEADER + 9, 7, 0)];
        if !out.is_empty() {
            parts.extend([(DATA, half, 0), (DATA + u64::from(half), out.len() as u32 - half, 0)]);
        }
        if room > 0 {
            parts.extend([(DATA, 3, WRITE), (DATA + 3, room - 3, WRITE)]);
        }
        parts.push((STATUS, 1, WRITE));
        let count = parts.len();
        let is_indirect = self.features & feature::RING_INDIRECT_DESC != 0;
        for (index, (at, length, flags)) in parts.into_iter().enumerate() {
            let next = if index + 1 < count { NEXT } else { 0 };
            // A direct chain goes through the ring from its head on, round the end.
            let (place, following) = match is_indirect {
                true => (TABLE + 16 * index as u64, index as u16 + 1),
                false => {
                    let slot = |step: usize| (head + step as u16) % SIZE;
                    (DESC + 16 * u64::from(slot(index)), slot(index + 1))
                }
            };
            self.write_descriptor(place, (at, length, flags | next, following));
        }
        if is_indirect {
            self.descriptor(head, (TABLE, 16 * count as u32, INDIRECT, 0));
        }
    }

    /// Waits for a chain to come back; returns its head.
    pub(super) fn taken(&mut self) -> u16 {
        // Whoever wants to be told at the next one says so, and looks again.
        self.put(AVAIL + 4 + 2 * u64::from(SIZE), &self.used.to_le_bytes());
        while u16::from_le_bytes(self.get(USED + 2)) == self.used {
            await_event(&self.call);
        }
        let place = USED + 4 + 8 * u64::from(self.used % SIZE);
        self.used = self.used.wrapping_add(1);
        u16::from_le_bytes(self.get(place))
    }

    /// Writes data; returns the status.
    pub(super) fn write(&mut self, kind: u32, sector: u64, out: &[u8]) -> u8 {
        self.request(2, (kind, sector), out, 0);
        self.offer(2);
        assert_eq!(self.taken(), 2);
        self.get::<1>(STATUS)[0]
    }

    /// Reads data.
    pub(super) fn read(&mut self, kind: u32, sector: u64, count: usize) -> (u8, Vec<u8>) {
        self.request(13, (kind, sector), &[], count as u32);
        self.offer(13);
        assert_eq!(self.taken(), 13);
        let mut bytes = vec![0; count];
        assert_eq!(rustix::io::pread(&self.memory, &mut bytes, DATA), Ok(count));
        (self.get::<1>(STATUS)[0], bytes)
    }
}

/// Waits for an event. The server has made the descriptor non-blocking.
fn await_event(event: &OwnedFd) {
    let mut polls = [PollFd::new(event, PollFlags::IN)];
    let left = rustix::event::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut polls, Some(&left)), Ok(1), "it is told");
    rustix::io::read(event, &mut [0; 8]).unwrap();
}
