//! `cd`: optical drives behind a SATA port.
//!
//! A packet device speaks SCSI inside ATA: every command is PACKET with a command descriptor block
//! as its packet. [`Packets`] is a SCSI port over an ATA port, so the disk above it, its retries
//! and the meaning of sense data are the same as for every other SCSI unit. [`attach`] finds out
//! which medium there is, in the order of CAM's `cd`: INQUIRY, TEST UNIT READY past the unit
//! attentions, READ CAPACITY.

use alloc::vec::Vec;

use flysch_api::command::{
    Ata, AtaProtocol, AtaStatus, Cdb, Command, Declined, Direction, Ended, Failure, Limits,
    Ordering, Outcome, Port, Scsi, ScsiStatus, SenseBytes, Taskfile, Token,
};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, Instant};
use flysch_wire::ata::Opcode;
use flysch_wire::scsi::Status;
use flysch_wire::scsi::capacity::Capacity10;
use flysch_wire::scsi::luns::LogicalUnitNumber;

use crate::disk::Shape;
use crate::error::CamError;
use crate::family::{Action, Family, POLL_READY_MS, POLL_READY_TRIES};

/// CAM's name for such a unit.
pub const NAME: &str = "cd";
/// Scratch memory that [`attach`] and [`toc`] need, bytes.
pub const SCRATCH_BYTES: usize = TOC_MAX as usize;

/// The only unit.
const UNIT: LogicalUnitNumber = LogicalUnitNumber([0; 8]);
/// Peripheral device type of an optical drive (SPC-5 table 55).
const OPTICAL: u8 = 5;
/// Operation codes (MMC-6).
const TEST_UNIT_READY: u8 = 0x00;
const INQUIRY: u8 = 0x12;
const START_STOP_UNIT: u8 = 0x1B;
const READ_CAPACITY: u8 = 0x25;
const READ_TOC: u8 = 0x43;
/// Time limit of one query, ms: a drive first has to spin up.
const TIMEOUT_MS: u64 = 30_000;
/// Bytes of standard INQUIRY data to request.
const INQUIRY_BYTES: u8 = 36;
/// Longest table of contents: 100 tracks and a header.
const TOC_MAX: u16 = 4 + 100 * TRACK as u16;
/// Bytes per track in the table of contents.
const TRACK: usize = 8;
/// Maximum number of consecutive unit attentions.
const ATTENTIONS_MAX: u32 = 16;

/// A port that carries SCSI to the packet device at an ATA port.
#[derive(Debug)]
pub struct Packets<P> {
    port: P,
}

impl<P> Packets<P> {
    /// Creates it over this port.
    pub const fn new(port: P) -> Self {
        Self { port }
    }

    /// The port underneath.
    pub const fn ata(&self) -> &P {
        &self.port
    }

    /// The port underneath, mutable.
    pub const fn ata_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<P: Port<Protocol = Ata>> Port for Packets<P> {
    type Protocol = Scsi;

    fn limits(&self) -> &Limits {
        self.port.limits()
    }

    fn memory(&self) -> &DmaRegion {
        self.port.memory()
    }

    #[inline]
    fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        let Command { unit, payload, direction, data, crypto, ordering, deadline, token } = command;
        let payload = Taskfile {
            command: Opcode::Packet.into_bits(),
            protocol: AtaProtocol::Packet(payload.0),
            ..Taskfile::default()
        };
        let command = Command { unit, payload, direction, data, crypto, ordering, deadline, token };
        self.port.start(command, now)
    }

    fn ring(&mut self, now: Instant) {
        self.port.ring(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        self.port.poll(now)
    }

    fn failure(&self) -> Failure<Scsi> {
        let Failure { status, residual, code } = self.port.failure();
        Failure { status: status_of(&status), residual, code }
    }

    fn poll_at(&self) -> Option<Instant> {
        self.port.poll_at()
    }
}

/// CHECK CONDITION if CHK is set, with the sense data that the driver fetched; without sense data
/// the sense key, which is in bits 7:4 of ERROR (ACS-3 7.18.6).
fn status_of(status: &AtaStatus) -> ScsiStatus {
    if !status.is_error() {
        return ScsiStatus::default();
    }
    let [key, asc, ascq] = match status.sense {
        [0, 0, 0] => [status.error >> 4, 0, 0],
        sense => sense,
    };
    // Fixed format, current (SPC-5 4.4.3).
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, key, 10, asc, ascq);
    let status = Status::CheckCondition.into_bits();
    ScsiStatus { status, sense: SenseBytes::new(&sense) }
}

/// A drive with a medium in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Vendor, product and revision from INQUIRY, padded with spaces.
    pub name: [u8; 28],
    /// Number of blocks of the medium.
    pub blocks: u64,
    /// Bytes per block.
    pub block_size: u32,
    /// Unit attentions met on the way: 28/00 means a different medium.
    pub attentions: u32,
}

impl Drive {
    /// The properties that a [`Disk`](crate::Disk) needs: the unit is write protected.
    pub const fn shape(&self) -> Shape {
        Shape {
            unit: 0,
            block_size: self.block_size,
            blocks: self.blocks,
            transfer_blocks_max: 0,
            delete_blocks_max: 0,
            write_cache: false,
            force_unit_access: false,
            write_protected: true,
        }
    }
}

/// One track of the table of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// Its number; AAh is the end of the last track.
    pub number: u8,
    /// ADR and CONTROL: bit 2 means data.
    pub control: u8,
    /// Its first block.
    pub lba: u32,
}

/// Finds out what is in the drive behind `port`, which must not carry other commands meanwhile.
///
/// # Errors
/// [`CamError::NoMedium`] for an empty or open drive, [`CamError::NotADisk`] for another kind of
/// device, [`CamError::Command`], [`CamError::NotStarted`], [`CamError::Scratch`].
pub fn attach<P: Port<Protocol = Scsi>, C: Clock>(
    port: &mut P,
    clock: &C,
    scratch: &DmaRegion,
) -> Result<Drive, CamError> {
    let mut asking = Asking::new(port, clock, scratch)?;
    let mut cdb = [0; 16];
    (cdb[0], cdb[4]) = (INQUIRY, INQUIRY_BYTES);
    let inquiry = asking.ask("INQUIRY", cdb, INQUIRY_BYTES.into())?;
    if inquiry[0] & 0x1F != OPTICAL {
        return Err(CamError::NotADisk { unit: UNIT.to_bits() });
    }
    let mut name = [0; 28];
    name.copy_from_slice(&inquiry[8..36]);
    asking.ready()?;
    let mut cdb = [0; 16];
    cdb[0] = READ_CAPACITY;
    let bytes = asking.ask("READ CAPACITY(10)", cdb, Capacity10::LENGTH as u32)?;
    let mut answer = [0; Capacity10::LENGTH];
    answer.copy_from_slice(&bytes);
    let capacity = Capacity10::parse(&answer);
    let blocks = u64::from(capacity.last_lba) + 1;
    Ok(Drive { name, blocks, block_size: capacity.block_length, attentions: asking.attentions })
}

/// The table of contents: tracks, and the end of the last one (READ TOC/PMA/ATIP, format 0).
///
/// # Errors
/// As [`attach`].
pub fn toc<P: Port<Protocol = Scsi>, C: Clock>(
    port: &mut P,
    clock: &C,
    scratch: &DmaRegion,
) -> Result<Vec<Track>, CamError> {
    let mut asking = Asking::new(port, clock, scratch)?;
    let mut cdb = [0; 16];
    cdb[0] = READ_TOC;
    cdb[7..9].copy_from_slice(&TOC_MAX.to_be_bytes());
    let bytes = asking.ask("READ TOC", cdb, TOC_MAX.into())?;
    let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) + 2;
    let rows = bytes.get(4..length).unwrap_or_default().chunks_exact(TRACK);
    Ok(rows
        .map(|row| Track {
            number: row[2],
            control: row[1],
            lba: u32::from_be_bytes([row[4], row[5], row[6], row[7]]),
        })
        .collect())
}

/// Loads the medium, or ejects it (START STOP UNIT, LOEJ).
///
/// # Errors
/// As [`attach`].
pub fn load<P: Port<Protocol = Scsi>, C: Clock>(
    port: &mut P,
    clock: &C,
    scratch: &DmaRegion,
    in_: bool,
) -> Result<(), CamError> {
    let mut asking = Asking::new(port, clock, scratch)?;
    let mut cdb = [0; 16];
    (cdb[0], cdb[4]) = (START_STOP_UNIT, 2 | u8::from(in_));
    asking.ask("START STOP UNIT", cdb, 0).map(drop)
}

/// How queries are sent to the drive.
struct Asking<'a, P, C> {
    port: &'a mut P,
    clock: &'a C,
    scratch: &'a DmaRegion,
    token: u32,
    attentions: u32,
}

impl<'a, P: Port<Protocol = Scsi>, C: Clock> Asking<'a, P, C> {
    fn new(port: &'a mut P, clock: &'a C, scratch: &'a DmaRegion) -> Result<Self, CamError> {
        if scratch.len() < SCRATCH_BYTES {
            return Err(CamError::Scratch { needed: SCRATCH_BYTES, got: scratch.len() });
        }
        Ok(Self { port, clock, scratch, token: 0, attentions: 0 })
    }

    /// Repeats TEST UNIT READY until the unit is ready.
    fn ready(&mut self) -> Result<(), CamError> {
        let mut cdb = [0; 16];
        cdb[0] = TEST_UNIT_READY;
        self.ask("TEST UNIT READY", cdb, 0).map(drop)
    }

    /// Sends one query; it is repeated after unit attentions, and while a drive becomes ready.
    fn ask(&mut self, name: &'static str, cdb: [u8; 16], bytes: u32) -> Result<Vec<u8>, CamError> {
        let mut polls = 0;
        loop {
            let (ended, failure) = self.once(name, cdb, bytes)?;
            if ended == Ended::Good {
                break;
            }
            let verdict = Scsi::verdict(ended, &failure, false);
            match verdict.action {
                // A short answer is accepted as it is.
                Action::Succeed => break,
                Action::Requeue if self.attentions < ATTENTIONS_MAX => self.attentions += 1,
                Action::PollReady if polls < POLL_READY_TRIES => {
                    polls += 1;
                    let next = self.clock.now().after_nanos(u64::from(POLL_READY_MS) * 1_000_000);
                    while self.clock.now() < next {
                        self.clock.wait(Some(next));
                    }
                }
                _ => {
                    let error = CamError::command(name, UNIT, ended, &failure);
                    return Err(match error {
                        // Medium not present: the tray is open (02) or closed (01).
                        CamError::Command { sense: Some((2, 0x3A, _)), .. } => CamError::NoMedium,
                        error => error,
                    });
                }
            }
        }
        let mut answer = alloc::vec![0; bytes as usize];
        self.scratch.read(0, &mut answer);
        Ok(answer)
    }

    fn once(
        &mut self,
        name: &'static str,
        cdb: [u8; 16],
        bytes: u32,
    ) -> Result<(Ended, Failure<Scsi>), CamError> {
        self.scratch.fill(0, SCRATCH_BYTES, 0);
        self.token = self.token.wrapping_add(1);
        let (direction, data) = match bytes {
            0 => (Direction::None, Data::NONE),
            bytes => (Direction::FromDevice, Data::One(self.scratch.slice(0, bytes))),
        };
        let command = Command {
            unit: UNIT.to_bits(),
            payload: Cdb(cdb),
            direction,
            data,
            crypto: None,
            ordering: Ordering::Simple,
            deadline: self.clock.now().after_nanos(TIMEOUT_MS * 1_000_000),
            token: Token::new(self.token),
        };
        let outcome = crate::run(self.port, self.clock, command)
            .map_err(|why| CamError::NotStarted(name, why))?;
        Ok((outcome.ended, self.port.failure()))
    }
}
