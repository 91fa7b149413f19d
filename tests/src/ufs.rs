//! The UFS driver on the UFS model: a machine, a host, plain reads and writes.

use crate::apart::Apart;
use flysch_api::command::{Command, Direction, Ended, Ordering, Outcome, Port as _, Scsi, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, DmaSlice, Identity, Instant, Machine};
use flysch_models::machine::{Inline, Mode};
use flysch_models::ufs::{Config, Ufs};
use flysch_random::XorShift64;
use flysch_ufs::{Host, Port, UfsOptions};

/// The model under a virtual clock, on a machine whose memory is not coherent: everything these
/// stories show also holds on such machines.
pub type Model = Apart<Inline<Ufs>>;

/// Unit of synchronisation, bytes. In the transfer request list of the single doorbell both sides
/// write adjacent entries of 32 bytes, so it cannot be larger.
const LINE: u32 = 32;

/// DMA memory of a test machine: the driver's part first, then buffers.
const DRIVER: usize = 1 << 20;
const BUFFERS: usize = 16 << 20;
const ADDRESS: u64 = 0x1_0000_0000;

/// A modelled machine in its power-on state.
pub fn machine(config: Config) -> Model {
    machine_with_lines(config, LINE)
}

/// As [`machine`], with cache lines of `line` bytes.
pub fn machine_with_lines(config: Config, line: u32) -> Model {
    let memory = DmaRegion::zeroed(DRIVER + BUFFERS, ADDRESS);
    let ufs = Ufs::new(config, memory.clone()).expect("a sensible configuration");
    Apart::new(Inline::new(ufs, memory, Identity::default(), Mode::Virtual), line)
}

/// A running host.
pub fn host(machine: &Model, options: UfsOptions) -> Host<Model> {
    let memory = machine.memory().carve(0, DRIVER);
    let mut host = Host::new(machine.clone(), memory, options).expect("options that fit");
    host.bring_up(machine).expect("bring-up");
    host
}

/// The ports of a running host.
pub fn ports(machine: &Model, options: UfsOptions) -> Vec<Port<Model>> {
    host(machine, options).into_ports()
}

/// Buffer number `n`, of 256 KiB.
pub fn buffer(machine: &impl Machine, n: usize, len: u32) -> DmaSlice {
    machine.memory().slice(DRIVER + n * (256 << 10), len)
}

/// A list of these ranges, in the last page of buffer `n`.
pub fn list(machine: &impl Machine, n: usize, ranges: &[DmaSlice]) -> Data {
    let at = DRIVER + (n + 1) * (256 << 10) - 4096;
    Data::list(machine.memory(), at, ranges).expect("room for the list")
}

/// `bytes` bytes in `count` segments of buffer `n`, with odd lengths, at odd offsets and out of
/// order, together with their list.
pub fn segments(machine: &impl Machine, n: usize, bytes: u32, count: u32) -> Data {
    let base = buffer(machine, n, 0).address;
    let mut left = bytes;
    let ranges = (0..count).map(|i| {
        let odd = bytes / count / 8 * (4 + 4 * (i * 7 % 3)) / 4 * 4;
        let len = if i + 1 == count { left } else { odd.clamp(4, left - 4 * (count - 1 - i)) };
        left -= len;
        // Places far enough apart for the longest, each with its own offset into its place.
        let place = u64::from(i * 5 % 131) * 1600 + u64::from(i % 8) * 4;
        DmaSlice { address: base + if i + 1 == count { 131 * 1600 } else { place }, len }
    });
    let ranges: Vec<_> = ranges.collect();
    list(machine, n, &ranges)
}

/// A range of this many bytes, of which only the length matters.
pub fn whole(bytes: u32) -> DmaSlice {
    DmaSlice { address: 0, len: bytes }
}

/// Fills a buffer with bytes that depend on `seed`.
pub fn fill(machine: &impl Machine, slice: DmaSlice, seed: u64) {
    fill_data(machine, &slice.into(), seed);
}

/// As [`fill`], for data of any shape.
pub fn fill_data(machine: &impl Machine, data: &Data, seed: u64) {
    let memory = machine.memory();
    let mut bytes = pattern(seed);
    for range in data.ranges(memory) {
        let range = range.expect("a list");
        let part: Vec<u8> = bytes.by_ref().take(range.len as usize).collect();
        let at = memory.offset_of(range.address, part.len()).expect("a buffer");
        memory.write(at, &part);
    }
}

/// Whether a buffer contains what [`fill`] put there.
pub fn holds(machine: &impl Machine, slice: DmaSlice, seed: u64) -> bool {
    data_holds(machine, &slice.into(), seed)
}

/// As [`holds`], for data of any shape.
pub fn data_holds(machine: &impl Machine, data: &Data, seed: u64) -> bool {
    let memory = machine.memory();
    let mut bytes = pattern(seed);
    data.ranges(memory).all(|range| {
        let range = range.expect("a list");
        let mut part = vec![0; range.len as usize];
        memory.read(memory.offset_of(range.address, part.len()).expect("a buffer"), &mut part);
        part.into_iter().eq(bytes.by_ref().take(range.len as usize))
    })
}

fn pattern(seed: u64) -> impl Iterator<Item = u8> {
    let mut random = XorShift64::new(seed);
    core::iter::repeat_with(move || random.bits() as u8)
}

fn command(
    opcode: u8,
    block: u32,
    blocks: u16,
    direction: Direction,
    data: DmaSlice,
) -> Command<Scsi> {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&block.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    Command {
        unit: 0,
        payload: cdb.into(),
        direction,
        data: Data::One(data),
        crypto: None,
        ordering: Ordering::Simple,
        deadline: Instant::NEVER,
        token: Token::new(block),
    }
}

/// READ(10) of logical unit 0; the token is the block.
pub fn read(block: u32, data: DmaSlice) -> Command<Scsi> {
    command(0x28, block, (data.len / 4096) as u16, Direction::FromDevice, data)
}

/// WRITE(10) of logical unit 0; the token is the block.
pub fn write(block: u32, data: DmaSlice) -> Command<Scsi> {
    command(0x2A, block, (data.len / 4096) as u16, Direction::ToDevice, data)
}

/// Starts one command and waits until it ends.
pub fn finish<M: Machine>(
    port: &mut Port<M>,
    clock: &impl Clock,
    command: Command<Scsi>,
) -> Outcome {
    port.start(command, clock.now()).expect("room for one command");
    port.ring(clock.now());
    wait(port, clock)
}

/// Waits for the next outcome.
pub fn wait<M: Machine>(port: &mut Port<M>, clock: &impl Clock) -> Outcome {
    loop {
        if let Some(outcome) = port.poll(clock.now()) {
            return outcome;
        }
        clock.wait(port.poll_at());
    }
}

/// The same command again, for a test that retries it.
pub fn again(command: &Command<Scsi>) -> Command<Scsi> {
    let Command { unit, payload, direction, data, crypto, ordering, deadline, .. } = *command;
    let token = Token::new(command.token.number());
    Command { unit, payload, direction, data, crypto, ordering, deadline, token }
}

/// Starts one command and waits; after a unit attention the command is retried.
pub fn done<M: Machine>(port: &mut Port<M>, clock: &impl Clock, command: Command<Scsi>) {
    for _ in 0..2 {
        let outcome = finish(port, clock, again(&command));
        if outcome.ended == Ended::Good {
            return;
        }
        let sense = port.failure().status.sense;
        assert_eq!(sense.as_slice()[2] & 0xF, 6, "{outcome:?}");
    }
    panic!("two unit attentions in a row");
}
