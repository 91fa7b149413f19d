//! Your own port under the command layer: a disk over a controller for which Flysch has no driver.
//!
//! ```console
//! $ cargo run -p flysch-examples --example own_port
//! ```
//!
//! A port takes SCSI commands and reports how they ended. The command layer finds units, splits
//! requests, keeps deadlines, retries and interprets sense data. This port executes commands at
//! once, in memory.

use std::collections::VecDeque;
use std::error::Error;

use flysch_api::block::{BlockDevice, Operation, Request};
use flysch_api::command::{
    Command, Declined, Ended, Failure, Limits, NotStarted, Outcome, Port, Scsi, ScsiStatus,
    SenseBytes, Token,
};
use flysch_api::data::{Data, SegmentLimits};
use flysch_api::machine::{Clock, DmaRegion, Instant, Wake};
use flysch_cam::{Disk, scan};

const BLOCK: usize = 512;
const BLOCKS: u32 = 2048;

/// How a command ended: with success, or with a sense key and an additional sense code.
type End = Result<(), (u8, u8)>;

/// A disk in memory that speaks SCSI.
struct RamPort {
    limits: Limits,
    memory: DmaRegion,
    medium: Vec<u8>,
    /// Completions that have not been polled yet.
    ended: VecDeque<(Token, Instant, End)>,
    failure: Failure<Scsi>,
}

impl RamPort {
    fn new() -> Self {
        let segments = SegmentLimits::NONE;
        Self {
            limits: Limits { slots: 8, transfer_max: 64 << 10, segments, crypto: false },
            memory: DmaRegion::zeroed(1 << 20, 0x1_0000),
            medium: vec![0; BLOCK * BLOCKS as usize],
            ended: VecDeque::new(),
            failure: Failure::default(),
        }
    }

    /// Executes a command.
    fn carry_out(&mut self, command: &Command<Scsi>) -> End {
        const ILLEGAL_REQUEST: u8 = 5;
        let cdb = command.payload.0;
        if command.unit != 0 {
            return Err((ILLEGAL_REQUEST, 0x25)); // LOGICAL UNIT NOT SUPPORTED
        }
        match cdb[0] {
            0x00 | 0x35 => {} // TEST UNIT READY, SYNCHRONIZE CACHE
            0x12 if cdb[1] == 0 => {
                // INQUIRY: a direct-access device that conforms to SPC-3.
                let mut answer = *b"\0\0\x05\x02\x1f\0\0\x02Example RAM disk        1.0 ";
                answer[4] = answer.len() as u8 - 5;
                self.answer(command, &answer);
            }
            0x25 => {
                // READ CAPACITY(10): the last block, and the block length.
                let mut answer = [0; 8];
                answer[..4].copy_from_slice(&(BLOCKS - 1).to_be_bytes());
                answer[4..].copy_from_slice(&(BLOCK as u32).to_be_bytes());
                self.answer(command, &answer);
            }
            0xA0 => self.answer(command, &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            0x28 | 0x2A => {
                let lba = u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]]) as usize;
                let start = lba * BLOCK;
                let end = start + command.data.len() as usize;
                let Some(place) = self.medium.get_mut(start..end) else {
                    return Err((ILLEGAL_REQUEST, 0x21)); // LOGICAL BLOCK ADDRESS OUT OF RANGE
                };
                let mut rest = place;
                for range in command.data.ranges(&self.memory) {
                    let range = range.expect("`start` has looked at it");
                    let len = range.len as usize;
                    let at = self.memory.offset_of(range.address, len).expect("likewise");
                    let (now, later) = rest.split_at_mut(len);
                    match cdb[0] {
                        0x28 => self.memory.write(at, now),
                        _ => self.memory.read(at, now),
                    }
                    rest = later;
                }
            }
            _ => return Err((ILLEGAL_REQUEST, 0x20)), // INVALID COMMAND OPERATION CODE
        }
        Ok(())
    }

    /// As much of a response as fits.
    fn answer(&self, command: &Command<Scsi>, bytes: &[u8]) {
        let Data::One(room) = command.data else { return };
        let len = bytes.len().min(room.len as usize);
        if let Ok(at) = self.memory.offset_of(room.address, len) {
            self.memory.write(at, &bytes[..len]);
        }
    }
}

impl Port for RamPort {
    type Protocol = Scsi;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        let is_full = self.ended.len() >= self.limits.slots as usize;
        let is_ours = command.data.ranges(&self.memory).all(|range| {
            range.is_ok_and(|r| self.memory.offset_of(r.address, r.len as usize).is_ok())
        });
        if is_full || !is_ours {
            let why = if is_full { NotStarted::Full } else { NotStarted::Unsupported };
            return Err(Declined { why, token: command.token });
        }
        let how = self.carry_out(&command);
        self.ended.push_back((command.token, now, how));
        Ok(())
    }

    fn ring(&mut self, _now: Instant) {}

    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        let (token, issued, how) = self.ended.pop_front()?;
        self.failure = Failure::default();
        if let Err((key, asc)) = how {
            // CHECK CONDITION, with fixed-format sense data.
            let mut sense = [0; 18];
            (sense[0], sense[2], sense[7], sense[12]) = (0x70, key, 10, asc);
            self.failure.status = ScsiStatus { status: 2, sense: SenseBytes::new(&sense) };
        }
        let ended = if how.is_ok() { Ended::Good } else { Ended::Answered };
        Some(Outcome { issued, device_done: Some(now), token, ended })
    }

    fn failure(&self) -> Failure<Scsi> {
        self.failure
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

/// A clock that stands still: nothing here has to wait.
struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Instant {
        Instant::START
    }

    fn wait(&self, _until: Option<Instant>) -> Wake {
        Wake::Idle
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut port = RamPort::new();
    let scratch = port.memory.carve(0, 64 << 10);
    let units = scan(&mut port, &NoTime, &scratch)?;
    let unit = units.first().ok_or("there is no unit")?;
    println!("{unit}");

    let data = port.memory.slice(64 << 10, BLOCK as u32);
    let memory = port.memory.clone();
    let mut disk = Disk::new(port, unit.shape()?, scratch, &flysch_cam::DiskOptions::default())?;
    memory.write(64 << 10, &[0xC3; BLOCK]);
    for (token, operation) in [(1, Operation::Write), (2, Operation::Read)] {
        let request = Request {
            operation,
            force_unit_access: false,
            offset: 3 * BLOCK as u64,
            length: BLOCK as u64,
            data: Data::One(data),
            crypto: None,
            token,
            accepted: NoTime.now(),
        };
        disk.submit(&request, NoTime.now()).map_err(|refused| format!("{refused:?}"))?;
        disk.ring(NoTime.now());
        let completion = disk.poll(NoTime.now()).ok_or("nothing has ended")?;
        completion.result?;
        memory.fill(64 << 10, BLOCK, 0);
    }
    assert_eq!(disk.port().medium[3 * BLOCK..4 * BLOCK], [0xC3; BLOCK]);
    Ok(())
}
