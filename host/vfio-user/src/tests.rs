//! A client that sends raw messages to the server: what QEMU does, and what nobody should.

use std::collections::VecDeque;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use flysch_api::machine::{GuestMemory, Instant};
use flysch_random::XorShift64;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::{Event, Function, Handle, Identity, Interrupts, Layout, Server, Turn};

/// How long anything is waited for: no verdict depends on it, it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(600);
const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const DEVICE_INFO: u16 = 4;
const REGION_INFO: u16 = 5;
const IRQ_INFO: u16 = 7;
const SET_IRQS: u16 = 8;
const READ: u16 = 9;
const WRITE: u16 = 10;
const RESET: u16 = 13;
const MULTI: u16 = 15;

const INVALID: u32 = 22;

/// A function whose registers act on a test's behalf: 0 fetches 8 bytes from the address written
/// (readable at 16, or 0xEE at 24), 4 drives the line, 8 raises a vector.
#[derive(Default)]
struct Board {
    memory: GuestMemory,
    registers: Vec<u8>,
    line: bool,
    raised: VecDeque<u16>,
}

impl Board {
    fn new() -> Self {
        Self { registers: vec![0; 4096], ..Self::default() }
    }
}

impl Interrupts for Board {
    fn line(&self) -> bool {
        self.line
    }

    fn take_vector(&mut self) -> Option<u16> {
        self.raised.pop_front()
    }
}

impl Function for Board {
    fn layout(&self) -> Layout {
        let identity = Identity {
            vendor: 0x1234,
            device: 0x5678,
            subsystem_vendor: 0x9ABC,
            subsystem: 0xDEF0,
            class: 0x01_0802,
            revision: 3,
        };
        Layout { identity, bars: [4096, 0, 0, 0, 0, 0], vectors: 4, vector_bar: 4 }
    }

    fn read(&mut self, _bar: u8, offset: u32, to: &mut [u8], _now: Instant) {
        to.copy_from_slice(&self.registers[offset as usize..][..to.len()]);
    }

    fn write(&mut self, _bar: u8, offset: u32, from: &[u8], _now: Instant) {
        self.registers[offset as usize..][..from.len()].copy_from_slice(from);
        let Some(word) = from.first_chunk().map(|word| u32::from_le_bytes(*word)) else { return };
        match offset {
            0 => {
                let mut bytes = [0; 8];
                let found = self.memory.read(word.into(), &mut bytes).is_ok();
                self.registers[16..24].copy_from_slice(&bytes);
                self.registers[24] = if found { 0 } else { 0xEE };
            }
            4 => self.line = word & 1 != 0,
            8 => self.raised.push_back(word as u16),
            _ => {}
        }
    }

    fn advance(&mut self, _now: Instant) {}

    fn next_event(&self) -> Option<Instant> {
        None
    }

    fn reset(&mut self, _now: Instant) {
        self.registers.fill(0);
        self.line = false;
    }

    fn memory(&mut self) -> &mut GuestMemory {
        &mut self.memory
    }
}

/// A server in its own thread; it must end whatever the clients did.
struct Bench {
    path: PathBuf,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    log: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let server = Server::new(UnixListener::bind(&path).unwrap()).unwrap();
        let handle = server.handle();
        let (sender, log) = channel();
        let serve = move || {
            let tell = |event: &Event| drop(sender.send(format!("{event:?}")));
            server.run(&mut Board::new(), |_, _| Turn::Stop, tell).unwrap();
        };
        let thread = Some(std::thread::spawn(serve));
        Self { path, handle, thread, log, _folder: folder }
    }

    fn connect(&self) -> Client {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { socket, id: 7 }
    }

    /// A client after the handshake.
    fn client(&self) -> Client {
        let mut client = self.connect();
        client.ask(VERSION, &version()).unwrap();
        client
    }

    /// Waits until the log has a line with this text.
    fn logged(&self, words: &str) {
        loop {
            let line = self.log.recv_timeout(PATIENCE).expect(words);
            if line.contains(words) {
                return;
            }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.handle.wake();
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Client {
    socket: UnixStream,
    id: u16,
}

fn version() -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend_from_slice(b"{\"capabilities\":{\"max_msg_fds\":16,\"pgsizes\":4096}}\0");
    body
}

fn words(small: &[u32]) -> Vec<u8> {
    small.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn longs(large: &[u64]) -> Vec<u8> {
    large.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn header(id: u16, command: u16, len: usize, flags: u32) -> Vec<u8> {
    let mut bytes = vec![];
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&command.to_le_bytes());
    bytes.extend_from_slice(&words(&[16 + len as u32, flags, 0]));
    bytes
}

impl Client {
    fn send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(24))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let slices = [IoSlice::new(bytes)];
        // A server that closed the connection is what some tests are about.
        let _ = rustix::net::sendmsg(&self.socket, &slices, &mut ancillary, SendFlags::NOSIGNAL);
    }

    fn tell(&mut self, command: u16, body: &[u8], descriptors: &[BorrowedFd<'_>]) {
        self.id = self.id.wrapping_add(1);
        let mut bytes = header(self.id, command, body.len(), 0);
        bytes.extend_from_slice(body);
        self.send(&bytes, descriptors);
    }

    /// The reply to the last command: its body, or its error.
    fn reply(&mut self) -> Result<Vec<u8>, u32> {
        let mut head = [0; 16];
        self.socket.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!(u16::from_le_bytes([head[0], head[1]]), self.id);
        let mut body = vec![0; word(4) as usize - 16];
        self.socket.read_exact(&mut body).unwrap();
        match word(8) {
            1 => Ok(body),
            0x21 => Err(word(12)),
            other => panic!("flags {other:#x}"),
        }
    }

    fn ask(&mut self, command: u16, body: &[u8]) -> Result<Vec<u8>, u32> {
        self.tell(command, body, &[]);
        self.reply()
    }

    fn ask_with(
        &mut self,
        command: u16,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Vec<u8>, u32> {
        self.tell(command, body, descriptors);
        self.reply()
    }

    fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let body = [longs(&[offset]), words(&[region, count])].concat();
        self.ask(READ, &body).map(|body| body[16..].to_vec())
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), u32> {
        let head = [longs(&[offset]), words(&[region, data.len() as u32])].concat();
        self.ask(WRITE, &[head, data.to_vec()].concat()).map(drop)
    }

    fn map(
        &mut self,
        file: Option<&OwnedFd>,
        (offset, address, size): (u64, u64, u64),
    ) -> Result<(), u32> {
        let body = [words(&[32, 3]), longs(&[offset, address, size])].concat();
        let descriptors: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        self.ask_with(DMA_MAP, &body, &descriptors).map(drop)
    }

    fn unmap(&mut self, address: u64, size: u64) -> Result<(), u32> {
        let body = [words(&[24, 0]), longs(&[address, size])].concat();
        self.ask(DMA_UNMAP, &body).map(drop)
    }

    fn bus_master(&mut self, on: bool) {
        self.write(7, 4, &[if on { 6 } else { 2 }, 0]).unwrap();
    }

    /// What the function reads at `address`; `None` is a bus error.
    fn fetch(&mut self, address: u32) -> Option<u64> {
        self.write(0, 0, &address.to_le_bytes()).unwrap();
        let seen = self.read(0, 16, 8).unwrap();
        let failed = self.read(0, 24, 1).unwrap()[0] != 0;
        (!failed).then(|| u64::from_le_bytes(seen.try_into().unwrap()))
    }

    fn irqs(&mut self, flags: u32, range: [u32; 3], fds: &[BorrowedFd<'_>]) -> Result<(), u32> {
        let body = words(&[20, flags, range[0], range[1], range[2]]);
        self.ask_with(SET_IRQS, &body, fds).map(drop)
    }
}

fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("guest", flags).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

fn eventfd() -> OwnedFd {
    rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

/// How often it was signalled since the last call.
fn signals(descriptor: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(descriptor, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// Waits for a signal.
fn signalled(descriptor: &OwnedFd) -> u64 {
    let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&limit)).unwrap();
    signals(descriptor)
}

#[test]
fn the_function_is_told_as_vfio_has_it() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let reply = client.ask(VERSION, &version()).unwrap();
    assert_eq!(reply[..4], [0; 4]);
    let (end, text) = reply[4..].split_last().unwrap();
    assert_eq!(*end, 0);
    let text: serde_json::Value = serde_json::from_slice(text).unwrap();
    assert_eq!(text["capabilities"]["max_msg_fds"], 16);
    let info = client.ask(DEVICE_INFO, &words(&[16, 0, 0, 0])).unwrap();
    assert_eq!(info, words(&[16, 3, 9, 5]));
    for (region, flags, bytes) in [(0, 3, 4096), (1, 0, 0), (4, 3, 8192), (7, 3, 256), (8, 0, 0)] {
        let info = client.ask(REGION_INFO, &words(&[32, 0, region, 0, 0, 0, 0, 0])).unwrap();
        assert_eq!(info[..16], words(&[32, flags, region, 0]), "region {region}");
        assert_eq!(info[16..24], longs(&[bytes]), "region {region}");
    }
    let region = words(&[32, 0, 9, 0, 0, 0, 0, 0]);
    assert_eq!(client.ask(REGION_INFO, &region), Err(INVALID));
    let irq = |client: &mut Client, index| client.ask(IRQ_INFO, &words(&[16, 0, index, 0]));
    assert_eq!(irq(&mut client, 0).unwrap(), words(&[16, 7, 0, 1]));
    assert_eq!(irq(&mut client, 2).unwrap(), words(&[16, 1, 2, 4]));
    assert_eq!(irq(&mut client, 3), Err(INVALID));
    assert_eq!(client.ask(200, &[1, 2, 3]), Err(95), "unknown, and the stream goes on");
    let space = client.read(7, 0, 256).unwrap();
    assert_eq!(space[..4], [0x34, 0x12, 0x78, 0x56]);
    assert_eq!(space[8..12], [3, 0x02, 0x08, 0x01]);
    assert_eq!((space[0x3D], space[0x34], space[6]), (1, 0x40, 0x10));
    assert_eq!(space[0x40..0x4C], words(&[0x0003_0011, 4, 0x1004])[..]);
}

#[test]
fn configuration_space_takes_what_pci_has_it_take() {
    let bench = Bench::new();
    let mut client = bench.client();
    let mut after = |offset: u64, data: &[u8]| {
        client.write(7, offset, data).unwrap();
        client.read(7, offset, data.len() as u32).unwrap()
    };
    assert_eq!(after(0, &[0xFF; 4]), [0x34, 0x12, 0x78, 0x56], "ids are fixed");
    assert_eq!(after(0x10, &[0xFF; 4]), words(&[0xFFFF_F000]), "4 KiB of memory");
    assert_eq!(after(0x20, &[0xFF; 4]), words(&[0xFFFF_E000]), "8 KiB of vectors");
    assert_eq!(after(0x14, &[0xFF; 4]), [0; 4], "no BAR 1");
    assert_eq!(after(0x30, &[0xFF; 4]), [0; 4], "no ROM");
    assert_eq!(after(4, &[0xFF; 2]), [0x07, 0x05]);
    assert_eq!(after(0x3C, &[11, 9]), [11, 1]);
    assert_eq!(client.write(7, 254, &[0; 4]), Err(INVALID));
    assert_eq!(client.read(7, u64::MAX, 4), Err(INVALID));
    client.ask(RESET, &[]).unwrap();
    assert_eq!(client.read(7, 4, 2).unwrap(), [0, 0]);
    assert_eq!(client.read(7, 0x10, 4).unwrap(), [0; 4]);
}

#[test]
fn registers_are_reached_inside_their_bar_alone() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.write(0, 0x100, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(client.read(0, 0x104, 4).unwrap(), [5, 6, 7, 8]);
    assert_eq!(client.read(0, 0x107, 1).unwrap(), [8]);
    for (region, offset, count) in
        [(0, 4096, 4), (0, 4092, 8), (0, 2, 4), (0, 0, 3), (0, 0, 16), (0, 0, 0), (0, u64::MAX, 1)]
            .into_iter()
            .chain([(1, 0, 4), (6, 0, 4), (8, 0, 4), (9, 0, 4), (u32::MAX, 0, 4)])
    {
        assert_eq!(client.read(region, offset, count), Err(INVALID), "{region} {offset} {count}");
    }
    // Many writes in one message, which has no reply.
    let one =
        |offset: u64, value: u32| [longs(&[offset]), words(&[0, 4]), words(&[value, 0])].concat();
    let body = [longs(&[2]), one(0x200, 7), one(0x204, 8)].concat();
    client.tell(MULTI, &body, &[]);
    assert_eq!(client.read(0, 0x200, 8).unwrap(), words(&[7, 8]));
}

#[test]
fn memory_comes_and_goes() {
    let bench = Bench::new();
    let mut client = bench.client();
    let file = memory(1 << 20, SealFlags::SHRINK);
    rustix::io::pwrite(&file, &0x1122_u64.to_le_bytes(), 0x3000).unwrap();
    rustix::io::pwrite(&file, &[0xAA; 8], 0x4FFC).unwrap();
    client.map(Some(&file), (0x3000, 0x10_0000, 0x1000)).unwrap();
    assert_eq!(client.fetch(0x10_0000), None, "no bus master yet");
    client.bus_master(true);
    assert_eq!(client.fetch(0x10_0000), Some(0x1122));
    assert_eq!(client.fetch(0x10_0FFC), None, "half of it is nowhere");
    // A second range of the same file, right behind: one access may cross.
    client.map(Some(&file), (0x4000, 0x10_1000, 0x2000)).unwrap();
    assert_eq!(client.fetch(0x10_1FFC), Some(0xAAAA_AAAA_AAAA_AAAA));
    assert_eq!(client.map(Some(&file), (0, 0x10_1000, 0x1000)), Err(17), "taken");
    client.bus_master(false);
    assert_eq!(client.fetch(0x10_0000), None);
    client.bus_master(true);
    assert_eq!(client.fetch(0x10_0000), Some(0x1122));
    client.unmap(0x10_0000, 0x1000).unwrap();
    assert_eq!(client.fetch(0x10_0000), None);
    assert_eq!(client.fetch(0x10_1FFC), Some(0xAAAA_AAAA_AAAA_AAAA));
    // What QEMU does behind a virtual IOMMU: nothing there, up to the last address.
    client.unmap(0xFEF0_0000, 0xFFFF_FFFF_0110_0000).unwrap();
    let all = [words(&[24, 2]), longs(&[0, 0])].concat();
    client.ask(DMA_UNMAP, &all).unwrap();
    assert_eq!(client.fetch(0x10_1FFC), None);
    // ROM has no file: nothing for a device, and no mistake.
    client.map(None, (0, 0xFFFC_0000, 0x4_0000)).unwrap();
    assert_eq!(client.fetch(0xFFFC_0000), None);
}

#[test]
fn memory_that_could_harm_us_is_refused() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.bus_master(true);
    let open = memory(1 << 20, SealFlags::empty());
    assert_eq!(client.map(Some(&open), (0, 0, 4096)), Err(1), "it could shrink");
    bench.logged("memory-backend-memfd");
    let (pipe, _other) = std::io::pipe().unwrap();
    let pipe = OwnedFd::from(pipe);
    assert_eq!(client.map(Some(&pipe), (0, 0, 4096)), Err(1));
    let file = memory(1 << 20, SealFlags::SHRINK);
    for range in [
        (0, 0, 0),
        (1, 0, 4096),
        (0, 1, 4096),
        (0, 0, 4097),
        (0, 0, 2 << 20),
        (1 << 20, 0, 4096),
        (u64::MAX - 4095, 0, 4096),
        (0, u64::MAX - 4095, 8192),
        (0, 0, u64::MAX - 4095),
    ] {
        assert_eq!(client.map(Some(&file), range), Err(INVALID), "{range:x?}");
    }
    assert_eq!(client.unmap(0, 0), Err(INVALID));
    assert_eq!(client.fetch(0), None);
}

#[test]
fn the_line_is_a_level_with_a_mask() {
    let bench = Bench::new();
    let mut client = bench.client();
    let trigger = eventfd();
    client.irqs(0x24, [0, 0, 1], &[trigger.as_fd()]).unwrap();
    client.write(0, 4, &words(&[1])).unwrap();
    assert_eq!(signals(&trigger), 1, "it rises before the write is answered");
    assert_eq!(client.read(7, 6, 1).unwrap()[0] & 8, 8, "and stands in the status register");
    client.write(0, 4, &words(&[0])).unwrap();
    client.write(0, 4, &words(&[1])).unwrap();
    assert_eq!(signals(&trigger), 0, "masked since the first");
    client.irqs(0x11, [0, 0, 1], &[]).unwrap();
    assert_eq!(signals(&trigger), 1, "it rose meanwhile");
    // Unmasked while nothing changed: that was too early, or nobody looked; it comes again.
    client.irqs(0x11, [0, 0, 1], &[]).unwrap();
    assert_eq!(signalled(&trigger), 1);
    client.irqs(0x11, [0, 0, 1], &[]).unwrap();
    client.write(0, 4, &words(&[0])).unwrap();
    client.write(0, 4, &words(&[1])).unwrap();
    assert_eq!(signalled(&trigger), 1, "a new edge");
    client.irqs(0x21, [0, 0, 0], &[]).unwrap();
    client.irqs(0x11, [0, 0, 1], &[]).unwrap();
    assert_eq!(signals(&trigger), 0, "torn down");
    // An eventfd of the client unmasks as well (KVM's resample).
    let resample = eventfd();
    client.irqs(0x14, [0, 0, 1], &[resample.as_fd()]).unwrap();
    client.irqs(0x24, [0, 0, 1], &[trigger.as_fd()]).unwrap();
    assert_eq!(signalled(&trigger), 1, "the line is still up");
    rustix::io::write(&resample, &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(signalled(&trigger), 1);
    client.write(7, 4, &[0, 4]).unwrap();
    rustix::io::write(&resample, &1_u64.to_ne_bytes()).unwrap();
    client.write(7, 4, &[0, 4]).unwrap();
    assert_eq!(signals(&trigger), 0, "the driver has switched the line off");
}

#[test]
fn vectors_are_pending_until_somebody_takes_them() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.write(0, 8, &words(&[2])).unwrap();
    assert_eq!(client.read(4, 4096, 8).unwrap(), longs(&[4]));
    let triggers = [eventfd(), eventfd()];
    let descriptors = [triggers[0].as_fd(), triggers[1].as_fd()];
    client.irqs(0x24, [2, 0, 1], &[]).unwrap();
    client.irqs(0x24, [2, 1, 2], &descriptors).unwrap();
    assert_eq!((signals(&triggers[0]), signals(&triggers[1])), (0, 1));
    assert_eq!(client.read(4, 4096, 8).unwrap(), longs(&[0]));
    client.irqs(0x09, [2, 1, 1], &[]).unwrap();
    client.write(0, 8, &words(&[1])).unwrap();
    assert_eq!((signals(&triggers[0]), client.read(4, 4096, 1).unwrap()[0]), (0, 2));
    client.irqs(0x11, [2, 1, 1], &[]).unwrap();
    assert_eq!(signals(&triggers[0]), 1);
    client.write(0, 8, &words(&[99])).unwrap();
    client.irqs(0x21, [2, 1, 1], &[]).unwrap();
    assert_eq!(signals(&triggers[0]), 1, "a test trigger");
    for (flags, range, fds) in [
        (0x24, [2, 3, 2], &descriptors[..]),
        (0x24, [2, 0, 3], &descriptors),
        (0x24, [2, u32::MAX, 2], &descriptors),
        (0x24, [1, 0, 1], &descriptors[..1]),
        (0x24, [7, 0, 1], &descriptors[..1]),
        (0x21, [2, 0, 1], &descriptors[..1]),
        (0x25, [2, 0, 1], &descriptors[..1]),
        (0x3C, [2, 0, 1], &descriptors[..1]),
        (0x00, [0, 0, 1], &[]),
    ] {
        assert_eq!(client.irqs(flags, range, fds), Err(INVALID), "{flags:#x} {range:?}");
    }
}

/// Every one of these loses its connection, and nothing else happens.
#[test]
fn what_is_no_vfio_user_loses_its_connection() {
    let bench = Bench::new();
    let with =
        |command: u16, body: &[u8]| [header(1, command, body.len(), 0), body.to_vec()].concat();
    let text = |text: &[u8]| with(VERSION, &[&[0; 4], text].concat());
    let deep = [vec![b'['; 3000], vec![0]].concat();
    let first: Vec<Vec<u8>> = vec![
        with(DEVICE_INFO, &words(&[16, 0, 0, 0])),
        text(b"{}"),
        text(b"{\0"),
        text(b"\xFF\0"),
        text(&deep),
        text(&[b' '; 5000]),
        with(VERSION, &[0; 3]),
        [words(&[1 << 16, 15, 0, 0])].concat(),
        [words(&[1 << 16, u32::MAX, 0, 0])].concat(),
        header(1, VERSION, 4, 1),
        header(1, VERSION, 4, 15),
    ];
    let later: Vec<Vec<u8>> = vec![
        with(VERSION, &version()),
        with(DMA_MAP, &[0; 31]),
        with(DMA_MAP, &[0; 33]),
        with(DMA_MAP, &[0; 32]),
        with(DMA_UNMAP, &words(&[23, 0, 0, 0, 0, 0])),
        with(DEVICE_INFO, &[]),
        with(REGION_INFO, &words(&[16, 0, 0, 0])),
        with(IRQ_INFO, &[0; 16]),
        with(SET_IRQS, &words(&[20, 0x24, 0, 0])),
        with(SET_IRQS, &words(&[20, 0x22, 0, 0, 0xFFFF_FFFF])),
        with(READ, &[longs(&[0]), words(&[0, u32::MAX])].concat()),
        with(READ, &[0; 17]),
        with(WRITE, &[longs(&[0]), words(&[0, 4]), vec![0; 3]].concat()),
        with(WRITE, &[0; 8]),
        with(MULTI, &longs(&[201])),
        with(MULTI, &longs(&[u64::MAX])),
        with(MULTI, &[longs(&[2]), vec![0; 24]].concat()),
        with(RESET, &[0]),
        [header(1, READ, 16, 0x10), longs(&[0]), words(&[0, 4])].concat(),
    ];
    for (number, bytes) in first.iter().chain(&later).enumerate() {
        let mut client = bench.connect();
        if number >= first.len() {
            client.ask(VERSION, &version()).unwrap();
        }
        client.send(bytes, &[]);
        let mut rest = vec![];
        let _ = client.socket.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{number}: answered with {rest:?}");
        bench.logged("Gone");
    }
    // More descriptors than a message may have.
    let mut client = bench.client();
    let null = std::fs::File::open("/dev/null").unwrap();
    client.send(&header(1, RESET, 0, 0), &[null.as_fd(); 20]);
    assert_eq!(client.socket.read(&mut [0; 1]).unwrap_or(0), 0);
    bench.logged("Gone");
    assert_eq!(bench.client().read(7, 0, 2).unwrap(), [0x34, 0x12]);
}

#[test]
fn a_client_that_stops_in_the_middle_holds_nobody_up() {
    let bench = Bench::new();
    let mut client = bench.client();
    let bytes = [header(9, READ, 16, 0), longs(&[0]), words(&[7, 4])].concat();
    for piece in bytes.chunks(3) {
        (&client.socket).write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    client.id = 9;
    assert_eq!(client.reply().unwrap()[16..], [0x34, 0x12, 0x78, 0x56]);
    (&client.socket).write_all(&bytes[..20]).unwrap();
    // A second one is sent away while the first is there, and taken afterwards.
    let mut second = bench.connect();
    assert_eq!(second.socket.read(&mut [0; 1]).unwrap_or(0), 0);
    bench.logged("Busy");
    drop(client);
    bench.logged("Gone");
    assert!(bench.client().read(0, 0, 4).is_ok());
}

#[test]
fn a_client_that_reads_no_answers_fills_its_own_socket_only() {
    let bench = Bench::new();
    let client = bench.client();
    client.socket.set_nonblocking(true).unwrap();
    let bytes = [header(9, READ, 16, 0), longs(&[0]), words(&[7, 256])].concat();
    let mut sent = 0;
    for _ in 0..1_000_000 {
        match (&client.socket).write(&bytes[sent % bytes.len()..]) {
            Ok(now) => sent += now,
            Err(_) => break,
        }
    }
    assert!(sent < bytes.len() * 1_000_000, "the server takes without end");
    drop(client);
    bench.logged("Gone");
}

/// Messages of the right lengths with random content, and descriptors of all kinds with them.
#[test]
fn nonsense_harms_nothing() {
    let bench = Bench::new();
    let descriptors =
        [memory(1 << 16, SealFlags::SHRINK), eventfd(), memory(1 << 16, SealFlags::empty())];
    let mut random = XorShift64::from_state(0x1234_5678_9ABC_DEF1);
    let mut random = move |below: u64| random.modulo(below);
    for _ in 0..20 {
        let mut client = bench.client();
        for _ in 0..200 {
            let command = [2, 3, 4, 5, 7, 8, 9, 10, 13, 15, 16][random(11) as usize];
            let len = [32, 24, 16, 32, 16, 20, 16, 20, 0, 32, 5][random(11) as usize];
            let mut body: Vec<u8> = (0..len).map(|_| random(256) as u8).collect();
            // Small numbers reach further than random ones.
            for word in body.chunks_mut(4) {
                if random(2) == 0 {
                    word.fill(0);
                    word[0] = random(64) as u8;
                }
            }
            let with = &descriptors[random(3) as usize];
            let with: &[_] = if random(3) == 0 { &[with.as_fd()] } else { &[] };
            client.tell(command, &body, with);
        }
        drop(client);
        bench.logged("Gone");
    }
    assert_eq!(bench.client().read(7, 0, 2).unwrap(), [0x34, 0x12]);
}
