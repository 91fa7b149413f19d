//! SCSI commands passed through by a user: sent to a port that is otherwise idle.

use flysch_api::command::{Cdb, Command, Direction, Ended, Failure, NotStarted, Ordering};
use flysch_api::command::{Port, Scsi, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion};

/// A command to a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScsiCommand {
    /// The unit: the eight bytes of its logical unit number as a big-endian number.
    pub unit: u64,
    /// The command descriptor block.
    pub cdb: [u8; 16],
    /// Its data.
    pub data: ScsiData,
    /// Its time-out, milliseconds.
    pub timeout_ms: u32,
    /// Whether it is ordered after everything before it and before everything after it.
    pub ordered: bool,
}

/// Data of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScsiData {
    /// None.
    #[default]
    None,
    /// At most this many bytes from the device.
    In(u32),
    /// These bytes to the device.
    Out(Vec<u8>),
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiReply {
    /// The outcome in short.
    pub ended: Ended,
    /// Status, sense data, residual.
    pub failure: Failure<Scsi>,
    /// Data from the device.
    pub data: Vec<u8>,
}

/// Executes a command through `port`, with its data in `memory`, which is reserved for it.
///
/// # Errors
/// The port did not accept it: too much data is [`NotStarted::Unsupported`].
pub fn scsi_command<P: Port<Protocol = Scsi>, C: Clock>(
    port: &mut P,
    clock: &C,
    memory: &DmaRegion,
    command: &ScsiCommand,
) -> Result<ScsiReply, NotStarted> {
    let (direction, length) = match &command.data {
        ScsiData::None => (Direction::None, 0),
        ScsiData::In(length) => (Direction::FromDevice, *length as usize),
        ScsiData::Out(bytes) => (Direction::ToDevice, bytes.len()),
    };
    if length > memory.len().min(port.limits().transfer_max as usize) {
        return Err(NotStarted::Unsupported);
    }
    match &command.data {
        ScsiData::Out(bytes) => memory.write(0, bytes),
        _ => memory.fill(0, length, 0),
    }
    let data = match length {
        0 => Data::NONE,
        length => Data::One(memory.slice(0, length as u32)),
    };
    let put = Command {
        unit: command.unit,
        payload: Cdb(command.cdb),
        direction: if length == 0 { Direction::None } else { direction },
        data,
        crypto: None,
        ordering: if command.ordered { Ordering::Ordered } else { Ordering::Simple },
        deadline: clock.now().after_nanos(u64::from(command.timeout_ms) * 1_000_000),
        token: Token::new(u32::MAX),
    };
    let ended = flysch_cam::run(port, clock, put)?.ended;
    let failure = if ended == Ended::Good { Failure::default() } else { port.failure() };
    let came = match direction {
        Direction::FromDevice => length.saturating_sub(failure.residual as usize),
        _ => 0,
    };
    let mut data = vec![0; came];
    memory.read(0, &mut data);
    Ok(ScsiReply { ended, failure, data })
}
