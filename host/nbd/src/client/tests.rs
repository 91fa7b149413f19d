//! The client against servers that send arbitrary data.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use flysch_random::SplitMix64;

use super::*;
use crate::wire::{SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

/// How long anything is waited for: no verdict depends on it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Big-endian fields in sequence.
macro_rules! bytes {
    ($($field:expr),* $(,)?) => {{
        let mut all: Vec<u8> = Vec::new();
        $(all.extend($field.to_be_bytes());)*
        all
    }};
}

fn greeting() -> Vec<u8> {
    bytes![INIT_PASSWD, OPTS_MAGIC, 3_u16]
}

fn answer(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut all = bytes![OPTION_REPLY_MAGIC, option, kind, data.len() as u32];
    all.extend(data);
    all
}

fn export(size: u64, flags: u16) -> Vec<u8> {
    answer(option::GO, reply::INFO, &bytes![info::EXPORT, size, flags])
}

/// The handshake of a server with an export of 1 MiB; its replies follow.
fn script(form: Form, replies: &[Vec<u8>]) -> Vec<u8> {
    let kind = if form == Form::Structured { reply::ACK } else { reply::ERR_UNSUP };
    let mut all = greeting();
    all.extend(answer(option::STRUCTURED_REPLY, kind, &[]));
    all.extend(export(1 << 20, transmission::HAS_FLAGS | transmission::SEND_TRIM));
    all.extend(answer(option::GO, reply::ACK, &[]));
    replies.iter().for_each(|reply| all.extend(reply));
    all
}

/// A client of a server that sends this, whatever it receives, and then nothing more.
fn connect(said: Vec<u8>) -> (Result<Client, ClientError>, JoinHandle<()>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let _ = theirs.write_all(&said);
        let _ = theirs.shutdown(Shutdown::Write);
        let _ = io::copy(&mut theirs, &mut io::sink());
    });
    (Client::agree(Socket::Unix(ours), "disk", PATIENCE), server)
}

fn refused(said: Vec<u8>) -> String {
    let (client, server) = connect(said);
    let error = client.expect_err("nobody is content with this");
    server.join().unwrap();
    error.to_string()
}

#[test]
fn a_handshake_that_cannot_be_is_refused_with_its_reason() {
    let structured = answer(option::STRUCTURED_REPLY, reply::ACK, &[]);
    let go = |parts: &[Vec<u8>]| [greeting(), structured.clone(), parts.concat()].concat();
    let blocks = |least: u32, best: u32, longest: u32| {
        go(&[answer(option::GO, reply::INFO, &bytes![info::BLOCK_SIZE, least, best, longest])])
    };
    for (said, what) in [
        (Vec::new(), "closed"),
        (b"SSH-2.0-OpenSSH_9\r\n".to_vec(), "not an NBD server"),
        (bytes![INIT_PASSWD, OLDSTYLE_MAGIC, 0_u64], "old NBD handshake"),
        (bytes![INIT_PASSWD, OPTS_MAGIC, 0_u16], "GO"),
        (greeting(), "closed"),
        ([greeting(), answer(option::LIST, reply::ACK, &[])].concat(), "does not"),
        ([greeting(), answer(option::STRUCTURED_REPLY, reply::ERR_TLS_REQD, &[])].concat(), "TLS"),
        ([greeting(), bytes![OPTION_REPLY_MAGIC, 8_u32, 1_u32, u32::MAX]].concat(), "64 KiB"),
        (go(&[answer(option::GO, reply::ERR_UNKNOWN, b"no")]), "no export `disk`"),
        (go(&[answer(option::GO, reply::ERR_SHUTDOWN, b"we\x1b are closing")]), "we are closing"),
        (go(&[answer(option::GO, reply::ERR_UNSUP, &[])]), "GO"),
        (go(&[answer(option::GO, reply::ACK, &[])]), "how large"),
        (go(&[export(0, 1), answer(option::GO, reply::ACK, &[])]), "is empty"),
        (go(&[export(u64::MAX, 1), answer(option::GO, reply::ACK, &[])]), "is empty"),
        (go(&[answer(option::GO, reply::INFO, &[0, 0, 1])]), "a wrong length"),
        (go(&vec![export(4096, 1); 80]), "never end"),
        (blocks(0, 4096, 1 << 20), "least 0"),
        (blocks(513, 4096, 1 << 20), "least 513"),
        (blocks(1 << 20, 1 << 20, 1 << 20), "least 1048576"),
        (blocks(4096, 512, 1 << 20), "best 512"),
        (blocks(4096, 4096, 512), "longest 512"),
    ] {
        let line = refused(said);
        assert!(line.contains(what), "{line:?}: {what}");
    }
}

fn request(command: u16, cookie: u64, length: u64) -> Request {
    Request { flags: 0, command, cookie, offset: 4096, length }
}

/// The results of a server's `replies` for a read of 1024 bytes at 4096, cookie 1, and a write,
/// cookie 2.
fn taken(form: Form, replies: &[Vec<u8>]) -> (Vec<Reply>, String) {
    let (client, server) = connect(script(form, replies));
    let mut client = client.unwrap();
    client.send(&request(command::READ, 1, 1024), &[]).unwrap();
    client.send(&request(command::WRITE, 2, 512), &[7; 512]).unwrap();
    let mut all = Vec::new();
    let end = loop {
        match client.take(Instant::now() + PATIENCE) {
            Ok(Some(reply)) => all.push(reply),
            Ok(None) => panic!("the server is silent"),
            Err(error) => break error.to_string(),
        }
    };
    drop(client);
    server.join().unwrap();
    (all, end)
}

fn simple(error: u32, cookie: u64, data: &[u8]) -> Vec<u8> {
    [bytes![SIMPLE_REPLY_MAGIC, error, cookie], data.to_vec()].concat()
}

fn piece(done: bool, kind: u16, cookie: u64, body: &[u8]) -> Vec<u8> {
    let flags = if done { chunk::DONE } else { 0 };
    [bytes![STRUCTURED_REPLY_MAGIC, flags, kind, cookie, body.len() as u32], body.to_vec()].concat()
}

fn data(done: bool, offset: u64, bytes: &[u8]) -> Vec<u8> {
    piece(done, chunk::OFFSET_DATA, 1, &[bytes![offset], bytes.to_vec()].concat())
}

fn hole(done: bool, offset: u64, length: u32) -> Vec<u8> {
    piece(done, chunk::OFFSET_HOLE, 1, &bytes![offset, length])
}

#[test]
fn replies_come_in_any_order_and_in_pieces() {
    let whole = Reply { cookie: 1, result: Ok(vec![3; 1024]) };
    let written = Reply { cookie: 2, result: Ok(Vec::new()) };
    let (all, end) = taken(Form::Simple, &[simple(0, 2, &[]), simple(0, 1, &[3; 1024])]);
    assert_eq!((&all[..], &end[..]), (&[written, whole][..], "it closed the connection"));
    let mut mixed = vec![3; 512];
    mixed.extend([0; 256]);
    mixed.extend([4; 256]);
    let pieces = [
        data(false, 4096 + 768, &[4; 256]),
        simple(28, 2, &[]),
        data(false, 4096, &[3; 512]),
        hole(true, 4096 + 512, 256),
    ];
    let (all, _) = taken(Form::Structured, &pieces);
    let full = Reply { cookie: 2, result: Err(28) };
    assert_eq!(all, [full, Reply { cookie: 1, result: Ok(mixed) }]);
    // An error in the midst of it.
    let error = piece(false, chunk::IS_ERROR | 2, 1, &bytes![5_u32, 0_u16, 4096_u64]);
    let (all, _) = taken(Form::Structured, &[error, piece(true, chunk::NONE, 1, &[])]);
    assert_eq!(all, [Reply { cookie: 1, result: Err(5) }]);
}

#[test]
fn replies_that_cannot_be_end_the_connection_with_their_reason() {
    let tiny = (0..80).map(|at| data(false, 4096 + at * 2, &[1])).collect::<Vec<_>>();
    for (form, replies, what) in [
        (Form::Simple, vec![simple(0, 9, &[])], "0x9, which is not under way"),
        (Form::Simple, vec![simple(5, 1, &[]), simple(5, 1, &[])], "0x1, which is not under way"),
        (Form::Simple, vec![vec![0; 16]], "where a reply must begin"),
        (Form::Simple, vec![data(true, 4096, &[0; 1024])], "where a reply must begin"),
        (Form::Structured, vec![simple(0, 1, &[0; 1024])], "where a reply must begin"),
        (Form::Structured, vec![data(true, 4096, &[0; 1023])], "left out 1 byte of"),
        (Form::Structured, vec![piece(true, chunk::NONE, 1, &[])], "left out 1024 bytes"),
        (Form::Structured, vec![data(true, 4096, &[0; 1025])], "type 1 and 1033 bytes"),
        (Form::Structured, vec![data(true, 4097, &[0; 1024])], "not asked for"),
        (Form::Structured, vec![data(true, 4095, &[0; 8])], "not asked for"),
        (Form::Structured, vec![data(true, u64::MAX, &[0; 8])], "not asked for"),
        (
            Form::Structured,
            vec![data(false, 4096, &[0; 512]), hole(true, 4096 + 511, 9)],
            "or twice",
        ),
        (
            Form::Structured,
            vec![hole(false, 4096 + 511, 9), data(true, 4096, &[0; 512])],
            "or twice",
        ),
        (Form::Structured, vec![hole(true, 4096, 0)], "type 2 and 12 bytes"),
        (Form::Structured, vec![hole(true, 4096, u32::MAX)], "not asked for"),
        (Form::Structured, vec![piece(true, 5, 1, &[0; 12])], "type 5"),
        (Form::Structured, vec![piece(true, chunk::ERROR, 1, &[0; 6])], "type 32769"),
        (Form::Structured, vec![piece(false, chunk::NONE, 1, &[])], "type 0"),
        (Form::Structured, vec![piece(true, chunk::OFFSET_HOLE, 2, &[0; 12])], "type 2"),
        (
            Form::Structured,
            vec![bytes![STRUCTURED_REPLY_MAGIC, 1_u16, chunk::ERROR, 1_u64, u32::MAX]],
            "type 32769 and 4294967295 bytes",
        ),
        (Form::Structured, tiny, "more than 66 chunks"),
    ] {
        let (_, end) = taken(form, &replies);
        assert!(end.contains(what), "{end:?}: {what}");
    }
}

#[test]
fn random_bytes_never_panic_nor_take_memory() {
    let mut random = SplitMix64::new(1);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    let good = [
        data(false, 4096, &[3; 512]),
        simple(0, 2, &[]),
        hole(true, 4096 + 512, 512),
        piece(true, chunk::ERROR, 1, &[0, 0, 0, 5, 0, 1, 65]),
    ]
    .concat();
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..below(4) {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
        let mut replies = Replies::new(Form::Structured);
        replies.owe(&request(command::READ, 1, 1024));
        replies.owe(&request(command::WRITE, 2, 512));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let count = (1 + below(700)).min(rest.len());
            replies.room(700)[..count].copy_from_slice(&rest[..count]);
            replies.came(count);
            rest = &rest[count..];
            match replies.next() {
                Ok(Some(Reply { cookie: 1, result: Ok(data) })) => assert_eq!(data.len(), 1024),
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}
