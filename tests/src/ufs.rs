//! The UFS driver on the UFS model: a machine, a host, plain reads and writes.

use flysch_api::command::{Command, Direction, Ended, Ordering, Outcome, Port as _, Scsi, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, DmaSlice, Identity, Instant, Machine};
use flysch_models::machine::{Inline, Mode};
use flysch_models::ufs::{Config, Ufs};
use flysch_ufs::{Host, Options, Port};

/// The model under a virtual clock.
pub type Model = Inline<Ufs>;

/// DMA memory of a test machine: the driver's part first, then buffers.
const DRIVER: usize = 1 << 20;
const BUFFERS: usize = 16 << 20;
const ADDRESS: u64 = 0x1_0000_0000;

/// A modelled machine in its power-on state.
pub fn machine(config: Config) -> Model {
    let memory = DmaRegion::zeroed(DRIVER + BUFFERS, ADDRESS);
    let ufs = Ufs::new(config, memory.clone()).expect("a sensible configuration");
    Inline::new(ufs, memory, Identity::default(), Mode::Virtual)
}

/// A host that is up.
pub fn host(machine: &Model, options: Options) -> Host<Model> {
    let memory = machine.memory().carve(0, DRIVER);
    let mut host = Host::new(machine.clone(), memory, options).expect("options that fit");
    host.bring_up(machine).expect("bring-up");
    host
}

/// The ports of a host that is up.
pub fn ports(machine: &Model, options: Options) -> Vec<Port<Model>> {
    host(machine, options).into_ports()
}

/// The buffer number `n` of 256 KiB.
pub fn buffer(machine: &impl Machine, n: usize, len: u32) -> DmaSlice {
    machine.memory().slice(DRIVER + n * (256 << 10), len)
}

/// Fills a buffer with bytes that depend on `seed`.
pub fn fill(machine: &impl Machine, slice: DmaSlice, seed: u64) {
    let bytes: Vec<u8> = pattern(seed).take(slice.len as usize).collect();
    let at = machine.memory().offset_of(slice.address, bytes.len()).expect("a buffer");
    machine.memory().write(at, &bytes);
}

/// Whether a buffer holds what [`fill`] put there.
pub fn holds(machine: &impl Machine, slice: DmaSlice, seed: u64) -> bool {
    let mut bytes = vec![0; slice.len as usize];
    let at = machine.memory().offset_of(slice.address, bytes.len()).expect("a buffer");
    machine.memory().read(at, &mut bytes);
    bytes.into_iter().eq(pattern(seed).take(slice.len as usize))
}

fn pattern(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    core::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
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

/// Starts one command and waits for its end.
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

/// The same command once more, for a test that tries it again.
pub fn again(command: &Command<Scsi>) -> Command<Scsi> {
    let Command { unit, payload, direction, data, ordering, deadline, .. } = *command;
    let token = Token::new(command.token.number());
    Command { unit, payload, direction, data, ordering, deadline, token }
}

/// Starts one command and waits; a unit attention is taken note of and the command tried again.
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
