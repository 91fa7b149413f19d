//! A port with a small disk behind it. It carries out the commands a disk uses and lets a script
//! decide how each one ends.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::{BlockDevice, Completion, Operation, Request};
use flysch_api::command::{
    Command, Declined, Direction, Ended, Failure, Limits, NotStarted, Outcome, Port, Scsi,
    ScsiStatus, SenseBytes, Token,
};
use flysch_api::data::{Data, SegmentLimits, Walk};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant};

use crate::{Disk, DiskOptions, Shape};

/// Where the memory of the fake begins for the device.
pub(crate) const BASE: u64 = 0x1_0000;
/// Where the part of the memory that tests use for data begins.
pub(crate) const DATA: usize = 0x1000;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    /// Carried out.
    Good,
    /// Not carried out: CHECK CONDITION with this sense.
    Sense(u8, u8, u8),
    /// Carried out, and CHECK CONDITION with RECOVERED ERROR.
    Recovered,
    /// Not carried out: a deferred error of another command.
    Deferred(u8, u8, u8),
    /// Not carried out: this status, without sense data.
    Status(u8),
    /// Not carried out: another end.
    End(Ended),
    /// Carried out, but this many bytes short.
    Short(u32),
    /// Not ended until released.
    Hold,
}

/// The controller's own code with [`Ended::Host`].
pub(crate) const CODE: u32 = 5;

/// The segments the fake takes.
pub(crate) const SEGMENTS: SegmentLimits =
    SegmentLimits { count: 4, length: 1 << 20, alignment: 4, boundary: 0, inner: 1 };

/// The same command once more, for a port that remembers what it was given.
fn copy(command: &Command<Scsi>) -> Command<Scsi> {
    let Command { unit, payload, direction, data, crypto, ordering, deadline, .. } = *command;
    let token = Token::new(command.token.number());
    Command { unit, payload, direction, data, crypto, ordering, deadline, token }
}

pub(crate) struct Fake {
    limits: Limits,
    memory: DmaRegion,
    block_size: usize,
    pub(crate) blocks: BTreeMap<u64, Vec<u8>>,
    /// Fates of the next commands, in order of their start; when it is empty, all end well.
    pub(crate) script: VecDeque<Fate>,
    pub(crate) started: Vec<Command<Scsi>>,
    in_flight: VecDeque<(Command<Scsi>, Fate)>,
    failure: Failure<Scsi>,
    rung: usize,
    pub(crate) rings: usize,
    /// Why the next commands are not accepted.
    pub(crate) not_started: VecDeque<NotStarted>,
    /// Ends the youngest command first.
    pub(crate) backwards: bool,
    pub(crate) in_flight_max: usize,
}

impl Fake {
    pub(crate) fn new(slots: u32, transfer_max: u32, block_size: u32) -> Self {
        Self {
            limits: Limits { slots, transfer_max, segments: SEGMENTS, crypto: true },
            memory: DmaRegion::zeroed(4 << 20, BASE),
            block_size: block_size as usize,
            blocks: BTreeMap::new(),
            script: VecDeque::new(),
            started: Vec::new(),
            in_flight: VecDeque::new(),
            failure: Failure::default(),
            rung: 0,
            rings: 0,
            not_started: VecDeque::new(),
            backwards: false,
            in_flight_max: 0,
        }
    }

    /// Ends all held commands well.
    pub(crate) fn release(&mut self) {
        for (_, fate) in &mut self.in_flight {
            if *fate == Fate::Hold {
                *fate = Fate::Good;
            }
        }
    }

    /// Ends everything in flight this way.
    pub(crate) fn end_all(&mut self, ended: Ended) {
        for (_, fate) in &mut self.in_flight {
            *fate = Fate::End(ended);
        }
    }

    fn carry_out(&mut self, command: &Command<Scsi>) {
        let cdb = &command.payload.0;
        let be = |range: core::ops::Range<usize>| {
            cdb[range].iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte))
        };
        let ranges = command.data.ranges(&self.memory).map(|range| {
            let range = range.unwrap();
            (self.memory.offset_of(range.address, range.len as usize).unwrap(), range.len as usize)
        });
        let ranges: Vec<_> = ranges.collect();
        let mut bytes = Vec::new();
        for &(at, len) in &ranges {
            let mut part = vec![0; len];
            self.memory.read(at, &mut part);
            bytes.extend(part);
        }
        let (lba, count) = match cdb[0] {
            0x28 | 0x2A => (be(2..6), be(7..9)),
            0x88 | 0x8A => (be(2..10), be(10..14)),
            0x42 => {
                assert_eq!(bytes[0..4], [0, 22, 0, 16]);
                let lba = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
                let count = u32::from_be_bytes(bytes[16..20].try_into().unwrap());
                for lba in lba..lba + u64::from(count) {
                    self.blocks.remove(&lba);
                }
                return;
            }
            0x35 | 0x1B => return,
            other => panic!("unexpected operation code {other:#x}"),
        };
        assert_eq!(count as usize * self.block_size, bytes.len());
        for (lba, place) in (lba..lba + count).zip(bytes.chunks_mut(self.block_size)) {
            let block = self.blocks.entry(lba).or_insert(vec![0; self.block_size]);
            match command.direction {
                Direction::ToDevice => block.copy_from_slice(place),
                _ => place.copy_from_slice(block),
            }
        }
        let mut done = 0;
        for (at, len) in ranges.into_iter().filter(|_| command.direction == Direction::FromDevice) {
            self.memory.write(at, &bytes[done..done + len]);
            done += len;
        }
    }
}

impl Port for Fake {
    type Protocol = Scsi;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        let why = if let Some(answer) = self.not_started.pop_front() {
            Some(answer)
        } else if self.in_flight.len() >= self.limits.slots as usize {
            Some(NotStarted::Full)
        } else {
            let nobody = self.memory.carve(0, 0);
            let walk = Walk::new(SEGMENTS, self.limits.transfer_max, &self.memory, &nobody);
            walk.run(&command.data, |_, _| {}).err().map(NotStarted::BadData)
        };
        if let Some(why) = why {
            return Err(Declined { why, token: command.token });
        }
        assert!(command.deadline > now);
        assert!(self.in_flight.iter().all(|(c, _)| c.token != command.token));
        let fate = self.script.pop_front().unwrap_or(Fate::Good);
        self.started.push(copy(&command));
        self.in_flight.push_back((command, fate));
        self.in_flight_max = self.in_flight_max.max(self.in_flight.len());
        Ok(())
    }

    fn ring(&mut self, _now: Instant) {
        self.rung = self.in_flight.len();
        self.rings += 1;
    }

    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        let rung = self.in_flight.iter().take(self.rung);
        let ready = |(_, (_, fate)): &(usize, &(Command<Scsi>, Fate))| *fate != Fate::Hold;
        let found = if self.backwards {
            rung.enumerate().rfind(ready).map(|(i, _)| i)
        } else {
            rung.enumerate().find(ready).map(|(i, _)| i)
        };
        let (command, fate) = self.in_flight.remove(found?)?;
        self.rung -= 1;
        let mut ended = Ended::Answered;
        let check = |code, key, asc, ascq| {
            let mut bytes = [0; 18];
            (bytes[0], bytes[2], bytes[7], bytes[12], bytes[13]) = (code, key, 10, asc, ascq);
            let status = ScsiStatus { status: 2, sense: SenseBytes::new(&bytes) };
            Failure { status, ..Failure::default() }
        };
        self.failure = match fate {
            Fate::Good => {
                self.carry_out(&command);
                ended = Ended::Good;
                Failure::default()
            }
            Fate::Recovered => {
                self.carry_out(&command);
                check(0x70, 1, 0x18, 0)
            }
            Fate::Short(residual) => {
                self.carry_out(&command);
                Failure { residual, ..Failure::default() }
            }
            Fate::Sense(key, asc, ascq) => check(0x70, key, asc, ascq),
            Fate::Deferred(key, asc, ascq) => check(0x71, key, asc, ascq),
            Fate::Status(status) => {
                let status = ScsiStatus { status, ..ScsiStatus::default() };
                Failure { status, ..Failure::default() }
            }
            Fate::End(end) => {
                ended = end;
                Failure { code: CODE, residual: command.data.len(), ..Failure::default() }
            }
            Fate::Hold => unreachable!(),
        };
        let issued = Instant::from_nanos(100);
        Some(Outcome { issued, device_done: Some(now), token: command.token, ended })
    }

    fn failure(&self) -> Failure<Scsi> {
        self.failure
    }

    fn poll_at(&self) -> Option<Instant> {
        self.in_flight.front().map(|(command, _)| command.deadline)
    }
}

pub(crate) const SHAPE: Shape = Shape {
    unit: 3 << 48,
    block_size: 4096,
    blocks: 1 << 20,
    transfer_blocks_max: 0,
    delete_blocks_max: 1000,
    write_cache: true,
    force_unit_access: true,
    write_protected: false,
};

/// A disk with this many slots, at most 16 KiB per command.
pub(crate) fn disk(slots: u32) -> Disk<Fake> {
    shaped(SHAPE, slots, 16384, &DiskOptions::default())
}

pub(crate) fn shaped(
    shape: Shape,
    slots: u32,
    transfer_max: u32,
    options: &DiskOptions,
) -> Disk<Fake> {
    let port = Fake::new(slots, transfer_max, shape.block_size);
    let scratch = port.memory.carve(0, DATA);
    Disk::new(port, shape, scratch, options).unwrap()
}

/// A request over `blocks` blocks of 4096 bytes at block `lba`; its data is at the beginning of
/// the data memory.
pub(crate) fn request(operation: Operation, lba: u64, blocks: u64, token: u64) -> Request {
    let data = matches!(operation, Operation::Read | Operation::Write);
    Request {
        operation,
        force_unit_access: false,
        offset: lba * 4096,
        length: blocks * 4096,
        data: Data::One(DmaSlice {
            address: BASE + DATA as u64,
            len: if data { blocks as u32 * 4096 } else { 0 },
        }),
        crypto: None,
        token,
        accepted: Instant::from_nanos(50),
    }
}

pub(crate) fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

/// Submits, rings, and polls until nothing is owed any more; time moves on as the disk asks.
pub(crate) fn carry_through(disk: &mut Disk<Fake>, requests: &[Request]) -> Vec<Completion> {
    let mut now = at(1);
    for request in requests {
        disk.submit(request, now).unwrap();
    }
    disk.ring(now);
    let mut done = Vec::new();
    for _ in 0..10_000 {
        while let Some(completion) = disk.poll(now) {
            done.push(completion);
        }
        if done.len() == requests.len() {
            assert_eq!(disk.poll(now), None);
            assert!(disk.queue.is_quiet() && disk.queue.started == 0);
            return done;
        }
        now = disk.poll_at().expect("somebody owes something").max(now.after_nanos(1));
    }
    panic!("{} of {} requests ended", done.len(), requests.len());
}

/// One request's result.
pub(crate) fn result(
    disk: &mut Disk<Fake>,
    request: Request,
) -> Result<(), flysch_api::block::BlockError> {
    carry_through(disk, &[request])[0].result
}
