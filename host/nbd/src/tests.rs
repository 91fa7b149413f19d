//! The server against arbitrary clients, over a disk that ends requests in any order.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use flysch_api::block::{BlockDevice, BlockGeometry};
use flysch_api::data::SegmentLimits;
use flysch_export::Handle;
use flysch_export::testing::{Disk, Ticks};
use flysch_random::SplitMix64;

use crate::wire::{self, Errno, Fields, Form, command as cmd, info, option, reply};
use crate::{Event, Export, Listener, Server, Tls};

mod recorded;

/// How long anything is waited for: no verdict depends on it, it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(600);
const BLOCK: u64 = 512;
const BLOCKS: u64 = 512;
const SIZE: u64 = BLOCK * BLOCKS;
/// A read of this block fails.
const BAD: u64 = 500;

fn disk(read_only: bool) -> Disk {
    let geometry = BlockGeometry {
        block_size: BLOCK as u32,
        blocks: BLOCKS,
        transfer_max: 2048,
        segments: SegmentLimits::NONE,
        queue_depth: 8,
        can_delete: true,
        read_only,
        crypto: false,
    };
    let mut disk = Disk::new(geometry, 16 << 10, 0);
    disk.bad = Some(BAD * BLOCK);
    disk
}

/// A server in its own thread; the final content of its disk is its result.
struct Bench {
    path: PathBuf,
    handle: Handle,
    thread: Option<JoinHandle<Vec<u8>>>,
    log: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(read_only: bool) -> Self {
        Self::with_tls(read_only, None)
    }

    fn with_tls(read_only: bool, tls: Option<Tls>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::Unix(UnixListener::bind(&path).unwrap());
        let server = flysch_export::Server::new().unwrap();
        let handle = server.handle();
        let (sender, log) = channel();
        let thread = std::thread::spawn(move || {
            let mut disk = disk(read_only);
            let export = Export::new(disk.geometry(), "disk", "a disk");
            let export = Export { tls, ..export };
            let tell = |event: &Event| drop(sender.send(format!("{event:?}")));
            let clock = Ticks::default();
            let listeners = [listener];
            let mut clients = Server::new(&listeners, &export, tell).unwrap();
            server.run(&mut clients, &mut disk, &clock).unwrap();
            disk.content
        });
        Self { path, handle, thread: Some(thread), log, _folder: folder }
    }

    /// Waits until this has been logged.
    fn logged(&self, what: &str) {
        loop {
            let line = self.log.recv_timeout(PATIENCE).expect(what);
            if line.contains(what) {
                return;
            }
        }
    }

    fn connect(&self) -> Client {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { socket, form: Form::Simple, cookie: 0 };
        let greeting = client.take(18);
        assert_eq!(greeting[..8], wire::INIT_PASSWD.to_be_bytes());
        assert_eq!(greeting[8..16], wire::OPTS_MAGIC.to_be_bytes());
        assert_eq!(greeting[16..], [0, 3]);
        client.put(&3_u32.to_be_bytes());
        client
    }

    /// A client that has negotiated `form`.
    fn client(&self, form: Form) -> Client {
        let mut client = self.connect();
        let wanted = match form {
            Form::Simple => None,
            Form::Structured => Some(option::STRUCTURED_REPLY),
            Form::Extended => Some(option::EXTENDED_HEADERS),
        };
        if let Some(wanted) = wanted {
            assert_eq!(client.option(wanted, &[]), [(reply::ACK, vec![])]);
        }
        client.form = form;
        let answers = client.option(option::GO, &go("disk"));
        assert_eq!(answers.last().unwrap().0, reply::ACK);
        client
    }

    /// Ends the server; returns the content of the disk.
    fn end(mut self) -> Vec<u8> {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap()
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

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// The data of `GO` and `INFO`, with all kinds of information.
fn go(name: &str) -> Vec<u8> {
    [string(name), vec![0, 3, 0, 1, 0, 2, 0, 3]].concat()
}

struct Client {
    socket: UnixStream,
    form: Form,
    cookie: u64,
}

impl Client {
    fn put(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Sends an option and reads its answers, up to the final one.
    fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.put(&wire::OPTS_MAGIC.to_be_bytes());
        self.put(&option.to_be_bytes());
        self.put(&(data.len() as u32).to_be_bytes());
        self.put(data);
        let mut answers = Vec::new();
        loop {
            let head = self.take(20);
            let mut fields = Fields(&head);
            assert_eq!(fields.u64(), Some(wire::OPTION_REPLY_MAGIC));
            assert_eq!(fields.u32(), Some(option));
            let (kind, length) = (fields.u32().unwrap(), fields.u32().unwrap());
            answers.push((kind, self.take(length as usize)));
            if kind == reply::ACK || kind >> 31 == 1 {
                return answers;
            }
        }
    }

    fn ask(&mut self, command: u16, flags: u16, range: (u64, u64), payload: &[u8]) -> u64 {
        let (offset, length) = range;
        self.cookie += 1;
        let is_write = self.form == Form::Extended && command == cmd::WRITE;
        let flags = flags | if is_write { cmd::PAYLOAD_LEN } else { 0 };
        let request = wire::Request { flags, command, cookie: self.cookie, offset, length };
        let mut bytes = Vec::new();
        request.emit(self.form == Form::Extended, &mut bytes);
        bytes.extend(payload);
        self.put(&bytes);
        self.cookie
    }

    /// The next answer: its cookie, and its data or error. `length` gives the length requested by a
    /// cookie.
    fn answer(&mut self, length: impl Fn(u64) -> usize) -> (u64, Result<Vec<u8>, u32>) {
        let magic = self.take(4);
        if magic == wire::SIMPLE_REPLY_MAGIC.to_be_bytes() {
            assert_ne!(self.form, Form::Extended);
            let head = self.take(12);
            let mut fields = Fields(&head);
            let (error, cookie) = (fields.u32().unwrap(), fields.u64().unwrap());
            let data = match (error, self.form) {
                (0, Form::Simple) => Ok(self.take(length(cookie))),
                (0, _) => Ok(Vec::new()),
                _ => Err(error),
            };
            return (cookie, data);
        }
        let is_extended = self.form == Form::Extended;
        let head = self.take(if is_extended { 28 } else { 16 });
        let mut fields = Fields(&head);
        assert_eq!(fields.u16(), Some(wire::chunk::DONE));
        let kind = fields.u16().unwrap();
        let cookie = fields.u64().unwrap();
        let count = match is_extended {
            true => fields.u64().and_then(|_| fields.u64()).unwrap(),
            false => u64::from(fields.u32().unwrap()),
        };
        let body = self.take(count as usize);
        match kind {
            wire::chunk::OFFSET_DATA => (cookie, Ok(body[8..].to_vec())),
            wire::chunk::ERROR => {
                let line = Fields(&body[4..]).u16().unwrap();
                assert_eq!(usize::from(line), body.len() - 6, "a line of text");
                (cookie, Err(Fields(&body).u32().unwrap()))
            }
            _ => (cookie, Ok(body)),
        }
    }

    /// Sends a request and waits for the answer.
    fn call(&mut self, command: u16, flags: u16, range: (u64, u64), payload: &[u8]) -> Called {
        let cookie = self.ask(command, flags, range, payload);
        let is_read = command == cmd::READ;
        let (answered, result) = self.answer(|_| if is_read { range.1 as usize } else { 0 });
        assert_eq!(answered, cookie);
        result
    }
}

type Called = Result<Vec<u8>, u32>;

#[test]
fn who_must_encrypt_gets_nothing_before() {
    let bench = Bench::with_tls(false, Some(Tls::empty(true)));
    let mut client = bench.connect();
    for wanted in [option::LIST, option::GO, option::STRUCTURED_REPLY, 99] {
        let answers = client.option(wanted, &go("disk"));
        assert_eq!(answers.last().unwrap().0, reply::ERR_TLS_REQD, "{wanted}");
    }
    assert_eq!(client.option(option::STARTTLS, &[1])[0].0, reply::ERR_INVALID);
    assert_eq!(client.option(option::STARTTLS, &[]), [(reply::ACK, vec![])]);
    // Now only TLS is understood.
    client.put(&wire::OPTS_MAGIC.to_be_bytes());
    client.put(&[0; 64]);
    bench.logged("TLS");
    // The old way has no answer that refuses.
    let mut client = bench.connect();
    client.put(&wire::OPTS_MAGIC.to_be_bytes());
    client.put(&[0, 0, 0, 1, 0, 0, 0, 0]);
    bench.logged("NoExport");
    // Somebody in between has added an option in the clear.
    let mut client = bench.connect();
    let option = |option: u32| {
        [&wire::OPTS_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &[0; 4]].concat()
    };
    client.put(&[option(option::STARTTLS), option(option::LIST)].concat());
    bench.logged("Unencrypted");
    drop(bench);
    let bench = Bench::with_tls(false, Some(Tls::empty(false)));
    let mut client = bench.client(Form::Extended);
    assert!(client.call(cmd::READ, 0, (0, 512), &[]).is_ok(), "who need not may");
}

const FORMS: [Form; 3] = [Form::Simple, Form::Structured, Form::Extended];

#[test]
fn every_option_has_its_answer() {
    let bench = Bench::new(false);
    let mut client = bench.connect();
    let kinds = |answers: Vec<(u32, Vec<u8>)>| answers.iter().map(|one| one.0).collect::<Vec<_>>();
    assert_eq!(kinds(client.option(option::LIST, &[])), [reply::SERVER, reply::ACK]);
    assert_eq!(kinds(client.option(option::LIST, &[1])), [reply::ERR_INVALID]);
    assert_eq!(kinds(client.option(option::STARTTLS, &[])), [reply::ERR_UNSUP]);
    assert_eq!(kinds(client.option(77, &[1, 2, 3])), [reply::ERR_UNSUP]);
    let infos = [reply::INFO; 4].into_iter().chain([reply::ACK]).collect::<Vec<_>>();
    assert_eq!(kinds(client.option(option::INFO, &go("disk"))), infos);
    assert_eq!(kinds(client.option(option::INFO, &go(""))), infos);
    assert_eq!(kinds(client.option(option::GO, &go("other"))), [reply::ERR_UNKNOWN]);
    assert_eq!(kinds(client.option(option::GO, &[0, 0])), [reply::ERR_INVALID]);
    let context = |queries: &[&str]| {
        let count = (queries.len() as u32).to_be_bytes().to_vec();
        let queries = queries.iter().map(|query| string(query));
        std::iter::once(string("disk")).chain([count]).chain(queries).collect::<Vec<_>>().concat()
    };
    let set = option::SET_META_CONTEXT;
    let allocation = context(&["qemu:x", "base:allocation"]);
    assert_eq!(kinds(client.option(set, &allocation)), [reply::ERR_INVALID], "not in simple form");
    assert_eq!(kinds(client.option(option::STRUCTURED_REPLY, &[])), [reply::ACK]);
    let list = option::LIST_META_CONTEXT;
    assert_eq!(kinds(client.option(list, &context(&[]))), [reply::META_CONTEXT, reply::ACK]);
    assert_eq!(kinds(client.option(list, &context(&["base:"]))).len(), 2);
    assert_eq!(kinds(client.option(set, &context(&["base:"]))), [reply::ACK]);
    assert_eq!(kinds(client.option(set, &allocation)), [reply::META_CONTEXT, reply::ACK]);
    let mut short = allocation.clone();
    short.pop();
    assert_eq!(kinds(client.option(set, &short)), [reply::ERR_INVALID]);
    assert_eq!(kinds(client.option(option::ABORT, &[])), [reply::ACK]);
    bench.logged("Goodbye");
    // The old way in.
    for (flags, zeroes) in [(1_u32, 124), (3, 0)] {
        let mut client = bench.connect();
        let socket = UnixStream::connect(&bench.path).unwrap();
        client.socket = socket;
        client.take(18);
        client.put(&flags.to_be_bytes());
        client.put(&wire::OPTS_MAGIC.to_be_bytes());
        client.put(&[0, 0, 0, 1, 0, 0, 0, 4]);
        client.put(b"disk");
        let told = client.take(10 + zeroes);
        assert_eq!(told[..8], SIZE.to_be_bytes());
        assert_eq!(client.call(cmd::READ, 0, (3, 5), &[]), Ok(vec![0; 5]));
        assert_eq!(client.call(cmd::BLOCK_STATUS, 0, (0, 8), &[]), Err(Errno::Inval as u32));
    }
}

/// Three clients write at random into separate bytes of shared blocks.
#[test]
fn parts_of_shared_blocks_are_changed_by_many_at_once_and_nothing_is_lost() {
    let bench = Bench::new(false);
    let threads = FORMS.into_iter().enumerate().map(|(number, form)| {
        let mut client = bench.client(form);
        std::thread::spawn(move || {
            let mut random = SplitMix64::new(number as u64 + 1);
            // Every third stretch of 700 bytes.
            let mut mine = vec![None; SIZE as usize];
            for round in 0..120_u64 {
                let mut asked = std::collections::BTreeMap::new();
                let mut writes = 0;
                for _ in 0..1 + random.modulo(12) {
                    let stretch = random.modulo(110) * 3 + number as u64;
                    let start = stretch * 700 + random.modulo(700);
                    let length = 1 + random.modulo(stretch * 700 + 700 - start);
                    if asked.values().any(|(at, long, _)| start < at + long && *at < start + length)
                    {
                        continue;
                    }
                    let range = start as usize..(start + length) as usize;
                    let byte = (round + start) as u8;
                    let flags = if random.modulo(4) == 0 { cmd::FUA } else { 0 };
                    let (cookie, expected) = match random.modulo(3) {
                        0 => {
                            let payload = vec![byte; length as usize];
                            mine[range].fill(Some(byte));
                            let cookie = client.ask(cmd::WRITE, flags, (start, length), &payload);
                            (cookie, None)
                        }
                        1 => {
                            mine[range].fill(Some(0));
                            (client.ask(cmd::WRITE_ZEROES, flags, (start, length), &[]), None)
                        }
                        _ => {
                            let expected = mine[range].to_vec();
                            (client.ask(cmd::READ, cmd::DF, (start, length), &[]), Some(expected))
                        }
                    };
                    writes += u64::from(expected.is_none());
                    asked.insert(cookie, (start, length, expected));
                }
                for _ in 0..asked.len() {
                    let length = |cookie: u64| match &asked[&cookie] {
                        (_, length, Some(_)) => *length as usize,
                        _ => 0,
                    };
                    let (cookie, result) = client.answer(length);
                    let (start, _, expected) = asked.remove(&cookie).expect("answered once");
                    let got = result.unwrap();
                    for (at, (got, known)) in
                        got.iter().zip(expected.unwrap_or_default()).enumerate()
                    {
                        assert!(known.is_none_or(|known| known == *got), "{start} + {at}");
                    }
                }
                if writes > 0 {
                    assert_eq!(client.call(cmd::FLUSH, 0, (0, 0), &[]), Ok(vec![]));
                }
            }
            mine
        })
    });
    let all: Vec<_> = threads.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect();
    let content = bench.end();
    for mine in all {
        for (at, known) in mine.iter().enumerate() {
            assert!(known.is_none_or(|known| known == content[at]), "byte {at}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_an_error_and_the_next_request_is_served() {
    let bench = Bench::new(false);
    for form in FORMS {
        let mut client = bench.client(form);
        let mut refused = |command, flags, range: (u64, u64), payload: &[u8], errno: Errno| {
            let called = client.call(command, flags, range, payload);
            assert_eq!(called, Err(errno as u32), "{form:?} {command} {flags} {range:?}");
            assert_eq!(client.call(cmd::READ, 0, (0, 1), &[]).map(|data| data.len()), Ok(1));
        };
        refused(cmd::READ, 0, (SIZE, 1), &[], Errno::Inval);
        refused(cmd::READ, 0, (SIZE - 1, 2), &[], Errno::Inval);
        refused(cmd::READ, 0, (u64::MAX, u64::from(u32::MAX)), &[], Errno::Inval);
        refused(cmd::READ, 0, (0, 0), &[], Errno::Inval);
        refused(cmd::READ, cmd::NO_HOLE, (0, 1), &[], Errno::Inval);
        refused(cmd::READ, 0, (BAD * BLOCK + 3, 5), &[], Errno::Io);
        refused(cmd::READ, 0, ((BAD - 20) * BLOCK, 30 * BLOCK), &[], Errno::Io);
        refused(cmd::WRITE, 0, (SIZE - 1, 2), &[1, 2], Errno::NoSpc);
        // The part of a block that cannot be read cannot be changed.
        refused(cmd::WRITE, 0, (BAD * BLOCK + 3, 2), &[1, 2], Errno::Io);
        refused(cmd::WRITE_ZEROES, cmd::FAST_ZERO, (0, 512), &[], Errno::NotSup);
        refused(cmd::TRIM, cmd::NO_HOLE, (0, 512), &[], Errno::Inval);
        refused(cmd::BLOCK_STATUS, 0, (0, 512), &[], Errno::Inval);
        refused(99, 0, (0, 512), &[], Errno::Inval);
    }
    let read_only = Bench::new(true);
    let mut client = read_only.client(Form::Extended);
    for (command, payload) in
        [(cmd::WRITE, &[1, 2][..]), (cmd::TRIM, &[]), (cmd::WRITE_ZEROES, &[])]
    {
        let called = client.call(command, 0, (0, 2), payload);
        assert_eq!(called, Err(Errno::Perm as u32));
    }
    assert_eq!(client.call(cmd::FLUSH, 0, (0, 0), &[]), Ok(vec![]));
}

/// QEMU 10 sends such writes although extended headers ask for the flag.
#[test]
fn a_write_that_does_not_announce_its_payload_is_taken() {
    let bench = Bench::new(false);
    let mut client = bench.client(Form::Extended);
    let request = wire::Request { flags: 0, command: cmd::WRITE, cookie: 9, offset: 5, length: 3 };
    let mut bytes = Vec::new();
    request.emit(true, &mut bytes);
    bytes.extend(b"abc");
    client.put(&bytes);
    assert_eq!(client.answer(|_| 0), (9, Ok(Vec::new())));
    assert_eq!(client.call(cmd::READ, 0, (5, 3), &[]), Ok(b"abc".to_vec()));
}

#[test]
fn trims_leave_what_is_no_whole_block_alone() {
    let bench = Bench::new(false);
    let mut client = bench.client(Form::Structured);
    let ones = vec![1; 4 * BLOCK as usize];
    client.call(cmd::WRITE, 0, (0, 4 * BLOCK), &ones).unwrap();
    client.call(cmd::TRIM, cmd::FUA, (100, 3 * BLOCK), &[]).unwrap();
    client.call(cmd::TRIM, 0, (3 * BLOCK + 1, 100), &[]).unwrap();
    let content = bench.end();
    let whole = BLOCK as usize..3 * BLOCK as usize;
    assert!(content[whole.clone()].iter().all(|byte| *byte == 0xDE));
    assert!(
        content[..whole.start].iter().chain(&content[whole.end..whole.end + 512]).all(|b| *b == 1)
    );
}

#[test]
fn clients_that_lie_stall_or_vanish_end_nothing_but_themselves() {
    let bench = Bench::new(false);
    let mut good = bench.client(Form::Structured);
    good.call(cmd::WRITE, 0, (7, 3), b"abc").unwrap();
    let sent = |client: &mut Client, bytes: &[u8], why: &str| {
        let _ = client.socket.write_all(bytes);
        bench.logged(why);
    };
    let magic = wire::OPTS_MAGIC.to_be_bytes();
    sent(&mut bench.connect(), b"GET / HTTP/1.1\r\n\r\n", "NoOption");
    sent(&mut bench.connect(), &[&magic[..], &[0, 0, 0, 7, 0, 2, 0, 0]].concat(), "TooLong");
    let lists = [&magic[..], &[0, 0, 0, 3, 0, 0, 0, 0]].concat().repeat(65);
    sent(&mut bench.connect(), &lists, "TooMany");
    sent(&mut bench.connect(), &[&magic[..], &[0, 0, 0, 1, 0, 0, 0, 1], b"x"].concat(), "NoExport");
    sent(&mut bench.client(Form::Extended), &[0x55; 32], "NoRequest");
    let mut long = Vec::new();
    let request =
        wire::Request { flags: 0, command: cmd::WRITE, cookie: 1, offset: 0, length: 33 << 20 };
    request.emit(false, &mut long);
    sent(&mut bench.client(Form::Simple), &long, "TooLong");
    // In the middle of a payload.
    let mut client = bench.client(Form::Simple);
    client.ask(cmd::WRITE, 0, (0, 4096), &[9; 100]);
    drop(client);
    bench.logged("Gone");
    // Asks for much, reads nothing, and goes.
    let mut client = bench.client(Form::Structured);
    client.socket.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let request =
        wire::Request { flags: 0, command: cmd::READ, cookie: 1, offset: 0, length: 99999 };
    request.emit(false, &mut bytes);
    let mut random = SplitMix64::new(3);
    for _ in 0..20_000 {
        if client.socket.write(&bytes).is_err() {
            break;
        }
    }
    assert_eq!(good.call(cmd::READ, 0, (7, 3), &[]).as_deref(), Ok(&b"abc"[..]));
    drop(client);
    bench.logged("Gone");
    // Anything at all, in the place of options and of requests.
    for round in 0..200 {
        let mut client = match round % 4 {
            0 => bench.connect(),
            at => bench.client(FORMS[at - 1]),
        };
        for _ in 0..1 + random.modulo(20) {
            let mut bytes = Vec::new();
            let request = wire::Request {
                flags: random.modulo(1 << 7) as u16,
                // Nothing that changes the disk.
                command: [cmd::READ, cmd::FLUSH, 5, 7, 8, 99][random.modulo(6) as usize],
                cookie: random.modulo(9),
                offset: random.modulo(SIZE + 5) << random.modulo(40),
                length: random.modulo(70_000),
            };
            request.emit(random.modulo(2) == 0, &mut bytes);
            if round % 4 == 0 {
                bytes.splice(..8, magic);
                bytes[8..11].fill(0);
            }
            let cut = random.modulo(4) == 0;
            let count = if cut { random.modulo(bytes.len() as u64) as usize } else { bytes.len() };
            let _ = client.socket.write_all(&bytes[..count]);
        }
        drop(client);
    }
    assert_eq!(good.call(cmd::READ, 0, (7, 3), &[]).as_deref(), Ok(&b"abc"[..]));
    let content = bench.end();
    assert_eq!(&content[7..10], b"abc");
    assert!(content[10..].iter().all(|byte| *byte == 0), "half a write was not done");
}

#[test]
fn who_waits_when_the_server_ends_gets_an_answer() {
    let bench = Bench::new(false);
    let mut client = bench.client(Form::Simple);
    let asked: Vec<u64> =
        (0..50).map(|at| client.ask(cmd::WRITE, 0, (at * 600, 3), b"end")).collect();
    let first = client.answer(|_| 0);
    assert!(first.1.is_ok());
    bench.handle.stop();
    let mut done = usize::from(first.1.is_ok());
    for _ in 1..asked.len() {
        match client.answer(|_| 0).1 {
            Ok(_) => done += 1,
            Err(error) => assert_eq!(error, Errno::Shutdown as u32),
        }
    }
    assert_eq!(client.socket.read(&mut [0]).unwrap(), 0, "and then the end");
    let content = bench.end();
    let written = (0..50).filter(|at| content[at * 600..].starts_with(b"end")).count();
    assert_eq!(written, done, "done is what was said to be done");
}
