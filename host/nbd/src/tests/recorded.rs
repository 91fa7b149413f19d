//! What five clients send to other servers, in order, and the required answers: the options of
//! qemu-io, nbdinfo, nbdcopy, fio and Linux, as recorded, and the kinds of request that followed.

use super::{BLOCK, Bench, Client, Form, SIZE, cmd, info, option, reply, string};

/// The data of an option about `name`, with the requested information.
fn wants(name: &str, kinds: &[u16]) -> Vec<u8> {
    let count = (kinds.len() as u16).to_be_bytes();
    let kinds = kinds.iter().flat_map(|kind| kind.to_be_bytes());
    string(name).into_iter().chain(count).chain(kinds).collect()
}

/// The data of an option about contexts.
fn context(queries: &[&str]) -> Vec<u8> {
    let queries: Vec<u8> = queries.iter().flat_map(|query| string(query)).collect();
    let count = u32::from(!queries.is_empty()).to_be_bytes();
    [string("disk"), count.to_vec(), queries].concat()
}

impl Client {
    /// Sends an option; returns the kinds of its answers.
    fn kinds(&mut self, option: u32, data: &[u8]) -> Vec<u32> {
        self.option(option, data).iter().map(|answer| answer.0).collect()
    }

    /// The first options of current QEMU and libnbd.
    fn begins_with_extended_headers(&mut self) {
        assert_eq!(self.kinds(option::EXTENDED_HEADERS, &[]), [reply::ACK]);
        self.form = Form::Extended;
        let set = self.kinds(option::SET_META_CONTEXT, &context(&["base:allocation"]));
        assert_eq!(set, [reply::META_CONTEXT, reply::ACK]);
    }

    fn goes(&mut self, kinds: &[u16]) {
        let answers = self.option(option::GO, &wants("disk", kinds));
        let (last, told) = answers.split_last().unwrap();
        assert_eq!(last.0, reply::ACK);
        // Each that was asked for, and size and flags, which are told unasked, once.
        let mut found: Vec<u16> =
            told.iter().map(|(_, data)| u16::from_be_bytes([data[0], data[1]])).collect();
        found.sort_unstable();
        let mut wanted = [&[info::EXPORT], kinds].concat();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    }

    fn works(&mut self, command: u16, flags: u16, range: (u64, u64), payload: &[u8]) -> Vec<u8> {
        let called = self.call(command, flags, range, payload);
        called.unwrap_or_else(|errno| panic!("{command} {flags} {range:?}: {errno}"))
    }

    fn says_goodbye(mut self, bench: &Bench) {
        self.ask(cmd::DISC, 0, (0, 0), &[]);
        bench.logged("Goodbye");
    }
}

/// One extent of this length and state, in a chunk of 64-bit lengths.
fn extent(length: u64) -> Vec<u8> {
    [&[0, 0, 0, 1, 0, 0, 0, 1][..], &length.to_be_bytes(), &[0; 8]].concat()
}

/// QEMU 11.1: qemu-io, qemu-img and `-blockdev driver=nbd`.
#[test]
fn qemu() {
    let bench = Bench::new(false);
    let mut client = bench.connect();
    client.begins_with_extended_headers();
    client.goes(&[info::BLOCK_SIZE]);
    client.works(cmd::WRITE, cmd::FUA, (0, 4096), &[7; 4096]);
    client.works(cmd::WRITE_ZEROES, cmd::FUA, (512, 512), &[]);
    client.works(cmd::WRITE_ZEROES, cmd::FUA | cmd::NO_HOLE, (1024, 512), &[]);
    client.works(cmd::TRIM, 0, (2048, 512), &[]);
    let status = client.works(cmd::BLOCK_STATUS, cmd::REQ_ONE, (0, SIZE), &[]);
    assert_eq!(status, extent(SIZE));
    client.works(cmd::FLUSH, 0, (0, 0), &[]);
    let read = client.works(cmd::READ, 0, (0, 2048), &[]);
    assert!(read[..512].iter().chain(&read[1536..]).all(|byte| *byte == 7));
    assert!(read[512..1536].iter().all(|byte| *byte == 0));
    client.says_goodbye(&bench);
}

/// nbdinfo 1.22: what it shows of an export, its map, and its list.
#[test]
fn nbdinfo() {
    let bench = Bench::new(false);
    let mut client = bench.connect();
    client.begins_with_extended_headers();
    let all = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
    for _ in 0..2 {
        assert_eq!(client.kinds(option::INFO, &wants("disk", &all)).len(), 5);
    }
    let list = client.kinds(option::LIST_META_CONTEXT, &context(&[]));
    assert_eq!(list, [reply::META_CONTEXT, reply::ACK]);
    client.goes(&[info::BLOCK_SIZE, info::NAME, info::DESCRIPTION]);
    assert_eq!(client.works(cmd::READ, 0, (0, 8192), &[]).len(), 8192);
    assert_eq!(client.works(cmd::BLOCK_STATUS, 0, (0, SIZE), &[]), extent(SIZE));
    client.says_goodbye(&bench);
    let mut client = bench.connect();
    assert_eq!(client.kinds(option::LIST, &[]), [reply::SERVER, reply::ACK]);
    assert_eq!(client.kinds(option::ABORT, &[]), [reply::ACK]);
    bench.logged("Goodbye");
}

/// nbdcopy 1.22: two connections, because a flush on one covers both.
#[test]
fn nbdcopy() {
    let bench = Bench::new(false);
    let mut clients = [bench.connect(), bench.connect()];
    for client in &mut clients {
        client.begins_with_extended_headers();
        client.goes(&[info::BLOCK_SIZE]);
    }
    let [one, other] = &mut clients;
    // Reads and zeroes as long as the disk is, and payloads that are announced (flag 32).
    one.works(cmd::WRITE_ZEROES, 0, (0, SIZE), &[]);
    one.works(cmd::WRITE, cmd::PAYLOAD_LEN, (0, 65536), &[1; 65536]);
    other.works(cmd::WRITE, cmd::PAYLOAD_LEN, (65536, 65536), &[2; 65536]);
    one.works(cmd::FLUSH, 0, (0, 0), &[]);
    // But for the block that cannot be read.
    let read = other.works(cmd::READ, 0, (0, 245_760), &[]);
    assert!(read[..65536].iter().all(|byte| *byte == 1));
    assert!(read[65536..131_072].iter().all(|byte| *byte == 2));
    assert!(read[131_072..].iter().all(|byte| *byte == 0));
    clients.into_iter().for_each(|client| client.says_goodbye(&bench));
}

/// fio 3.33, with a libnbd that does not support extended headers: structured replies, two
/// connections, 256 reads in flight.
#[test]
fn fio() {
    let bench = Bench::new(false);
    for _ in 0..2 {
        let mut client = bench.connect();
        assert_eq!(client.kinds(option::STRUCTURED_REPLY, &[]), [reply::ACK]);
        client.form = Form::Structured;
        client.goes(&[]);
        for at in 0..256_u64 {
            client.ask(cmd::READ, 0, (at % 60 * 4096, 4096), &[]);
        }
        for _ in 0..256 {
            assert_eq!(client.answer(|_| 4096).1.map(|data| data.len()), Ok(4096));
        }
        client.says_goodbye(&bench);
    }
}

/// Linux through nbd-client 3.26, which connects by `GO` without a query or in the old way; the
/// kernel supports only simple replies, and uses the block size configured by hand.
#[test]
fn linux() {
    let bench = Bench::new(false);
    for is_old in [false, true] {
        let mut client = bench.connect();
        if is_old {
            client.put(&super::wire::OPTS_MAGIC.to_be_bytes());
            client.put(&[0, 0, 0, 1, 0, 0, 0, 4]);
            client.put(b"disk");
            assert_eq!(client.take(10)[..8], SIZE.to_be_bytes());
        } else {
            client.goes(&[]);
        }
        client.works(cmd::WRITE, 0, (BLOCK, BLOCK), &[3; BLOCK as usize]);
        client.works(cmd::WRITE, cmd::FUA, (2 * BLOCK, BLOCK), &[4; BLOCK as usize]);
        client.works(cmd::WRITE_ZEROES, 0, (0, BLOCK), &[]);
        client.works(cmd::WRITE_ZEROES, cmd::NO_HOLE, (3 * BLOCK, BLOCK), &[]);
        client.works(cmd::TRIM, 0, (5 * BLOCK, BLOCK), &[]);
        client.works(cmd::FLUSH, 0, (0, 0), &[]);
        let read = client.works(cmd::READ, 0, (0, 4 * BLOCK), &[]);
        let bytes: Vec<u8> =
            read.chunks(BLOCK as usize).map(|block| block[BLOCK as usize - 1]).collect();
        assert_eq!(bytes, [0, 3, 4, 0]);
        client.says_goodbye(&bench);
    }
}
