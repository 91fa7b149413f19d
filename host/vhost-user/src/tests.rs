//! The server against arbitrary clients, over a disk that ends requests in any order.

mod client;

use flysch_api::block::BlockGeometry;
use flysch_api::data::SegmentLimits;
use flysch_export::testing::Disk;

use crate::wire::{feature, message, protocol};
use client::{Bench, Client, NEXT, WRITE};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;
/// A read of this block fails.
const BAD: u64 = 60;

fn disk(read_only: bool) -> Disk {
    let geometry = BlockGeometry {
        block_size: BLOCK as u32,
        blocks: BLOCKS,
        transfer_max: 2 * BLOCK as u32,
        segments: SegmentLimits::NONE,
        queue_depth: 8,
        can_delete: true,
        read_only,
        crypto: false,
    };
    let mut disk = Disk::new(geometry, 64 << 10, 0x11);
    disk.bad = Some(BAD * BLOCK);
    disk
}

/// Types of requests.
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const ZEROES: u32 = 13;

fn range(sector: u64, count: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &count.to_le_bytes(), &flags.to_le_bytes()].concat()
}

#[test]
fn every_request_does_what_it_says() {
    let bench = Bench::new(false);
    for features in [0, feature::RING_EVENT_IDX, feature::RING_INDIRECT_DESC] {
        let mut client = bench.ready(features | feature::FLUSH);
        assert_eq!(client.config(0, 8), (BLOCK * BLOCKS / 512).to_le_bytes());
        assert_eq!(client.config(20, 4), 4096_u32.to_le_bytes());
        let data: Vec<u8> = (0..20_480_u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(client.write(OUT, 16, &data), 0);
        assert_eq!(client.read(IN, 16, data.len()), (0, data.clone()));
        // Less than a block, cut where nobody would cut.
        assert_eq!(client.write(OUT, 17, &[5; 1536]), 0);
        let (status, read) = client.read(IN, 16, 4096);
        assert!(status == 0 && read[..512] == data[..512] && read[512..2048] == [5; 1536]);
        assert_eq!(read[2048..], data[2048..4096]);
        assert_eq!(client.write(FLUSH, 0, &[]), 0);
        assert_eq!(client.write(ZEROES, 0, &range(18, 3, 1)), 0);
        assert_eq!(client.read(IN, 18, 1536), (0, vec![0; 1536]));
        assert_eq!(client.write(DISCARD, 0, &range(20, 16, 0)), 0);
        let (_, read) = client.read(IN, 16, 16384);
        assert_eq!(read[2560..4096], data[2560..4096], "a part of a block stays");
        assert!(read[4096..8192].iter().all(|byte| *byte == 0xDE));
        let (status, id) = client.read(GET_ID, 0, 20);
        assert_eq!((status, &id[..5]), (0, &b"name\0"[..]));
        client.put_back();
    }
}

#[test]
fn what_cannot_be_done_has_its_status() {
    let bench = Bench::new(false);
    let mut client = bench.ready(0);
    let end = BLOCK * BLOCKS / 512;
    for (kind, sector, data, status) in [
        (OUT, end, vec![0; 512], 1),
        (OUT, end - 1, vec![0; 1024], 1),
        (OUT, u64::MAX, vec![0; 512], 1),
        (OUT, u64::MAX / 512 + 2, vec![0; 512], 1),
        (OUT, 0, vec![0; 100], 1),
        (DISCARD, 0, range(end, 1, 0), 1),
        (DISCARD, 0, range(0, u32::MAX, 0), 1),
        (DISCARD, 0, range(0, 8, 1), 2),
        (DISCARD, 0, [range(0, 8, 0), range(8, 8, 0)].concat(), 2),
        (ZEROES, 0, range(u64::MAX, 8, 0), 1),
        (ZEROES, 0, range(0, 8, 2), 2),
        (77, 0, vec![], 2),
    ] {
        assert_eq!(client.write(kind, sector, &data), status, "{kind} at {sector}");
    }
    assert_eq!(client.read(IN, BAD * 8, 4096).0, 1, "the medium");
    assert_eq!(client.read(IN, 0, 4096), (0, vec![0x11; 4096]));
    drop(client);
    drop(bench);
    let bench = Bench::new(true);
    let mut client = bench.ready(feature::RO);
    assert_eq!(client.write(OUT, 0, &[0; 512]), 1);
    assert_eq!(client.write(DISCARD, 0, &range(0, 8, 0)), 1);
    assert_eq!(client.read(IN, 0, 512), (0, vec![0x11; 512]));
    let offered = bench.connect().map(|mut client| client.ask(message::GET_FEATURES, &[]));
    assert!(offered.is_none(), "one client at a time");
}

/// Invalid messages: each ends its connection and nothing else.
#[test]
fn what_is_no_message_ends_the_connection_of_who_sent_it() {
    let bench = Bench::new(false);
    let header = |request: u32, flags: u32, size: u32| {
        [request, flags, size].map(u32::to_le_bytes).as_flattened().to_vec()
    };
    let sent = |request: u32, payload: &[u8]| {
        [header(request, 1, payload.len() as u32), payload.to_vec()].concat()
    };
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    for bytes in [
        header(message::GET_FEATURES, 2, 0),
        header(message::GET_FEATURES, 5, 0),
        header(message::SET_FEATURES, 1, u32::MAX),
        sent(99, &[]),
        sent(message::SET_FEATURES, &[0; 7]),
        sent(message::SET_FEATURES, &u64::MAX.to_le_bytes()),
        sent(message::SET_PROTOCOL_FEATURES, &u64::MAX.to_le_bytes()),
        sent(message::SET_MEM_TABLE, &words(&[1, 0])),
        sent(message::SET_MEM_TABLE, &[&words(&[1, 0])[..], &[0; 32]].concat()),
        sent(message::SET_MEM_TABLE, &words(&[u32::MAX, 0])),
        sent(message::ADD_MEM_REG, &[0; 40]),
        sent(message::REM_MEM_REG, &[0; 40]),
        sent(message::SET_VRING_NUM, &words(&[u32::MAX, 8])),
        sent(message::SET_VRING_ADDR, &words(&[0, 0])),
        sent(message::SET_VRING_KICK, &[0; 8]),
        sent(message::SET_VRING_KICK, &words(&[0x100, 0])),
        sent(message::SET_VRING_ENABLE, &words(&[16, 1])),
        sent(message::SET_INFLIGHT_FD, &[0; 24]),
        sent(message::GET_VRING_BASE, &words(&[400, 0])),
        sent(message::GET_CONFIG, &words(&[0, u32::MAX, 0])),
        sent(message::SET_CONFIG, &words(&[32, u32::MAX, 0])),
    ] {
        let mut client = bench.connect().unwrap();
        client.send_bytes(&bytes);
        assert!(client.is_closed(), "{bytes:?}");
        bench.logged("Gone");
    }
    // Who stops in the middle of one holds up nobody for longer than he stays.
    let mut client = bench.connect().unwrap();
    client.send_bytes(&[1, 0, 0]);
    drop(client);
    bench.logged("Closed");
    let mut client = bench.ready(0);
    assert_eq!(client.read(IN, 0, 512), (0, vec![0x11; 512]));
    // Descriptors that are none of ours: a pipe would block, a file might be anybody's.
    let (reads, _writes) = rustix::pipe::pipe().unwrap();
    client.tell(message::SET_VRING_CALL, &[0; 8], &[&reads]);
    assert!(client.is_closed());
}

/// Invalid rings: they stop, the client is notified, and nothing else happens.
#[test]
fn what_is_no_ring_stops() {
    let bench = Bench::new(false);
    type Spoil = (&'static str, fn(&mut Client));
    let broken: [Spoil; 9] = [
        ("a circle", |client| {
            client.descriptor(0, (0x4000, 16, NEXT, 1));
            client.descriptor(1, (0x4000, 16, NEXT, 0));
        }),
        ("memory that is none", |client| client.descriptor(0, (1 << 40, 16, 0, 0))),
        ("the last address", |client| client.descriptor(0, (u64::MAX - 3, 16, 0, 0))),
        ("beyond the end", |client| client.descriptor(0, (client::MEMORY - 8, 16, 0, 0))),
        ("the next nowhere", |client| client.descriptor(0, (0x4000, 16, NEXT, 999))),
        ("too long", |client| {
            for index in 0..8 {
                client.descriptor(index, (0, u32::MAX / 4, NEXT | WRITE, index + 1));
            }
        }),
        ("reads behind writes", |client| {
            client.descriptor(0, (0x4000, 16, NEXT | WRITE, 1));
            client.descriptor(1, (0x4000, 16, 0, 0));
        }),
        ("no status", |client| client.descriptor(0, (0x4000, 16, 0, 0))),
        ("no header", |client| client.descriptor(0, (0x4000, 16, WRITE, 0))),
    ];
    for (what, spoil) in broken {
        let mut client = bench.ready(0);
        spoil(&mut client);
        client.offer(0);
        client.await_error();
        bench.logged("it was stopped");
        assert_eq!(client.ask(message::GET_QUEUE_NUM, &[]).len(), 8, "{what}: it is still heard");
    }
    let mut client = bench.ready(0);
    client.skip(1000);
    client.await_error();
    drop(client);
    // Tables of tables.
    let mut client = bench.ready(feature::RING_INDIRECT_DESC);
    client.write_descriptor(0x6000, (0x6000, 16, client::INDIRECT, 0));
    client.descriptor(0, (0x6000, 16, client::INDIRECT, 0));
    client.offer(0);
    client.await_error();
    drop(client);
    let mut client = bench.ready(0);
    assert_eq!(client.read(IN, 0, 512), (0, vec![0x11; 512]));
}

#[test]
fn memory_that_shrinks_ends_its_own_connection() {
    let bench = Bench::new(false);
    let mut client = bench.ready(0);
    assert_eq!(client.read(IN, 0, 512).0, 0);
    client.shrink();
    client.kick();
    bench.logged("Torn");
    drop(client);
    let mut client = bench.ready(0);
    assert_eq!(client.read(IN, 0, 512), (0, vec![0x11; 512]));
}

/// The client loses its server and finds another one.
#[test]
fn what_was_under_way_is_done_by_the_next_server() {
    let bench = Bench::new(false);
    let mut client = bench.ready(0);
    let area = [0_u64.to_le_bytes().to_vec(), vec![0; 8], vec![1, 0, 16, 0], vec![0; 4]].concat();
    let (area, file) = client.ask_for_descriptor(message::GET_INFLIGHT_FD, &area);
    // As a server leaves it that took the chains 3 and 9 and was killed.
    let mut left = vec![0; 16 + 16 * 16];
    left[8..12].copy_from_slice(&[1, 0, 16, 0]);
    for (counter, head) in [(2_u8, 3_usize), (1, 9)] {
        left[16 + 16 * head] = 1;
        left[16 + 16 * head + 8] = counter;
    }
    rustix::io::pwrite(&file, &left, 0).unwrap();
    client.put_back();
    client.reset_ring();
    for (head, sector) in [(3, 0), (9, 8)] {
        client.request(head, (IN, sector), &[], 512);
        client.skip(1);
    }
    client.tell(message::SET_INFLIGHT_FD, &area, &[&file]);
    client.start(1234);
    let mut heads = [client.taken(), client.taken()];
    heads.sort_unstable();
    assert_eq!(heads, [3, 9]);
    assert_eq!(client.read(IN, 0, 512), (0, vec![0x11; 512]), "and it goes on behind them");
    let mut now = [0; 16 + 16 * 16];
    rustix::io::pread(&file, &mut now, 0).unwrap();
    assert!((0..16).all(|head| now[16 + 16 * head] == 0), "nothing is under way");
}

/// Inflight memory that is too small for the ring, once that runs.
#[test]
fn a_ring_that_runs_keeps_its_memory_for_requests_in_flight() {
    let bench = Bench::new(false);
    let mut client = bench.ready(0);
    let area = [5_u64.to_le_bytes(), [0; 8], [0; 8]].concat();
    let file = client.memory_file();
    client.tell(message::SET_INFLIGHT_FD, &area, &[&file]);
    assert!(client.is_closed());
    bench.logged("Gone");
    let mut client = bench.ready(0);
    client.put_back();
    client.tell(message::SET_INFLIGHT_FD, &area, &[&file]);
    client.reset_ring();
    client.start(0);
    assert!(client.is_closed(), "and one that begins finds it too small");
    bench.logged("Gone");
    let mut client = bench.ready(0);
    assert_eq!(client.read(IN, 0, 512), (0, vec![0x11; 512]));
}

#[test]
fn memory_comes_and_goes_in_regions_and_answers_are_given_where_wanted() {
    let bench = Bench::new(false);
    let mut client = bench.connect().unwrap();
    let wanted =
        (protocol::REPLY_ACK | protocol::CONFIG | protocol::CONFIGURE_MEM_SLOTS).to_le_bytes();
    client.tell(message::SET_PROTOCOL_FEATURES, &wanted, &[]);
    let memory = client.memory_region();
    assert_eq!(client.ask_acked(message::ADD_MEM_REG, &memory, true), 0);
    assert_eq!(client.ask_acked(message::REM_MEM_REG, &memory, false), 0);
    assert_eq!(client.ask_acked(message::ADD_MEM_REG, &memory, true), 0);
    // The write cache's switch, and nothing else.
    let config = |offset: u32, value: u8| {
        [[offset, 1, 0].map(u32::to_le_bytes).as_flattened(), &[value]].concat()
    };
    assert_eq!(client.config(32, 1), [1]);
    assert_eq!(client.ask_acked(message::SET_CONFIG, &config(32, 0), false), 0);
    assert_eq!(client.config(32, 1), [0]);
    assert_eq!(client.ask_acked(message::SET_CONFIG, &config(0, 9), false), 1);
    assert_eq!(client.ask_acked(message::SET_CONFIG, &config(32, 9), false), 1);
    // The same region twice.
    client.tell(message::ADD_MEM_REG, &memory, &[&client.memory_file()]);
    assert!(client.is_closed());
}
