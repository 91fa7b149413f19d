//! A packet device: the SCSI commands of a CD drive that reads.

use alloc::vec::Vec;

use flysch_api::machine::GuestMemory;
use flysch_wire::ata::list::ACMD;
use flysch_wire::ata::registers::status;
use flysch_wire::ata::{Opcode, registers};

use super::command::aborted;
use super::device::{DISC_SECTOR, Device};
use super::flow::{Good, is_pio};
use super::list::{Fail, Task, Work};
use super::port::READY;
use super::transfer::{Failed, give};

/// Operation codes (SPC-4, MMC-5).
mod code {
    pub(super) const TEST_UNIT_READY: u8 = 0x00;
    pub(super) const REQUEST_SENSE: u8 = 0x03;
    pub(super) const INQUIRY: u8 = 0x12;
    pub(super) const START_STOP: u8 = 0x1B;
    pub(super) const PREVENT_ALLOW: u8 = 0x1E;
    pub(super) const READ_CAPACITY: u8 = 0x25;
    pub(super) const READ_10: u8 = 0x28;
    pub(super) const READ_TOC: u8 = 0x43;
    pub(super) const READ_12: u8 = 0xA8;
}

/// Sense: no such command, no such address, the medium failed.
const ILLEGAL: [u8; 3] = [5, 0x20, 0];
const OUT_OF_RANGE: [u8; 3] = [5, 0x21, 0];
const MEDIUM: [u8; 3] = [3, 0x11, 0];
/// No such field; the tray is open, or empty; it may not be opened.
const FIELD: [u8; 3] = [5, 0x24, 0];
const NO_MEDIUM: [u8; 3] = [2, 0x3A, 2];
const LOCKED: [u8; 3] = [5, 0x53, 2];
/// Unit attention: power came, the medium may be another.
const POWER_ON: [u8; 3] = [6, 0x29, 0];
const CHANGED: [u8; 3] = [6, 0x28, 0];
/// START STOP UNIT: LOEJ, START.
const LOAD_EJECT: u8 = 2;
const START: u8 = 1;
/// ADR and CONTROL of a data track, and the number of the place where the last one ends.
const DATA_TRACK: u8 = 0x14;
const LEAD_OUT: u8 = 0xAA;
/// Most sectors of one read: what one command moves of a disc.
const SECTORS_MAX: u32 = 8192;

/// Where a drive stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tray {
    is_open: bool,
    /// The medium may not be removed.
    is_locked: bool,
    /// What the next command is told instead of being carried out.
    attention: Option<[u8; 3]>,
}

impl Default for Tray {
    fn default() -> Self {
        Self { is_open: false, is_locked: false, attention: Some(POWER_ON) }
    }
}

impl Tray {
    /// An open tray stays open.
    pub(super) fn after_power_loss(self) -> Self {
        Self { is_open: self.is_open, ..Self::default() }
    }

    /// START STOP UNIT.
    fn start_stop(&mut self, bits: u8) -> Result<Vec<u8>, [u8; 3]> {
        if bits & LOAD_EJECT != 0 {
            let opens = bits & START == 0;
            if opens && self.is_locked {
                return Err(LOCKED);
            }
            if self.is_open && !opens {
                self.attention = Some(CHANGED);
            }
            self.is_open = opens;
        }
        Ok(Vec::new())
    }
}

/// What becomes of a command to a packet device.
pub(super) fn packet_work(opcode: Opcode) -> Result<Work, Fail> {
    match opcode {
        Opcode::Packet
        | Opcode::IdentifyPacket
        | Opcode::SetFeatures
        | Opcode::CheckPowerMode
        | Opcode::IdleImmediate => Ok(Work::Control),
        Opcode::Flush | Opcode::StandbyImmediate | Opcode::Sleep => Ok(Work::Flush),
        // IDENTIFY DEVICE and the like: the signature shows what it is.
        _ => Err(aborted()),
    }
}

impl Device {
    /// What a packet gives.
    fn packet(&mut self, packet: &[u8; 12]) -> Result<Vec<u8>, [u8; 3]> {
        let be = |at: usize| {
            u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
        };
        let cut = |mut data: Vec<u8>, most: usize| {
            data.truncate(most);
            Ok(data)
        };
        let is_asking = matches!(packet[0], code::INQUIRY | code::REQUEST_SENSE);
        if let Some(attention) = self.tray.attention.take_if(|_| !is_asking) {
            return Err(attention);
        }
        let needs_medium = matches!(
            packet[0],
            code::TEST_UNIT_READY
                | code::READ_CAPACITY
                | code::READ_10
                | code::READ_12
                | code::READ_TOC
        );
        if needs_medium && self.tray.is_open {
            return Err(NO_MEDIUM);
        }
        match packet[0] {
            code::TEST_UNIT_READY => Ok(Vec::new()),
            code::START_STOP => self.tray.start_stop(packet[4]),
            code::PREVENT_ALLOW => {
                self.tray.is_locked = packet[4] & 1 != 0;
                Ok(Vec::new())
            }
            code::READ_TOC if packet[1] & 2 == 0 && packet[2] & 0xF == 0 => {
                cut(contents(self.sectors()), usize::from(packet[7]) << 8 | usize::from(packet[8]))
            }
            code::READ_TOC => Err(FIELD),
            code::REQUEST_SENSE => {
                let [key, asc, ascq] = core::mem::take(&mut self.sense);
                let mut data = alloc::vec![0; 18];
                (data[0], data[2], data[7], data[12], data[13]) = (0x70, key, 10, asc, ascq);
                cut(data, packet[4].into())
            }
            code::INQUIRY => {
                let mut data = alloc::vec![0; 36];
                (data[0], data[1], data[2], data[3], data[4]) = (5, 0x80, 5, 0x21, 31);
                data[8..36].copy_from_slice(b"FLYSCH  DISC            1.0 ");
                cut(data, usize::from(packet[3]) << 8 | usize::from(packet[4]))
            }
            code::READ_CAPACITY => {
                let last = (self.sectors() - 1).min(u32::MAX.into()) as u32;
                let mut data = last.to_be_bytes().to_vec();
                data.extend_from_slice(&DISC_SECTOR.to_be_bytes());
                Ok(data)
            }
            code::READ_10 | code::READ_12 => {
                let count = match packet[0] {
                    code::READ_10 => u32::from(packet[7]) << 8 | u32::from(packet[8]),
                    _ => be(6),
                };
                self.read_disc(be(2).into(), count)
            }
            _ => Err(ILLEGAL),
        }
    }

    fn read_disc(&mut self, lba: u64, count: u32) -> Result<Vec<u8>, [u8; 3]> {
        if count > SECTORS_MAX || lba + u64::from(count) > self.sectors() {
            return Err(OUT_OF_RANGE);
        }
        let mut data = alloc::vec![0; (count * DISC_SECTOR) as usize];
        match self.store.get(lba << self.shift, &mut data) {
            Ok(()) => Ok(data),
            Err(_) => Err(MEDIUM),
        }
    }

    /// Carries out a command of a packet device.
    pub(super) fn carry_out_packet(
        &mut self,
        memory: &GuestMemory,
        task: &Task,
    ) -> Result<Good, Failed> {
        let opcode = Opcode::from_bits(task.fis.command);
        let mut packet = [0; 12];
        if opcode == Opcode::Packet {
            if !task.flags.atapi() {
                return Err(Failed::Told(aborted()));
            }
            memory.read(task.table + ACMD as u64, &mut packet)?;
        }
        let data = match opcode {
            Opcode::IdentifyPacket => self.identify().to_bytes().to_vec(),
            Opcode::Packet => match self.packet(&packet) {
                Ok(data) => data,
                Err(sense) => {
                    self.sense = sense;
                    // CHK, and the sense key in ERROR (ACS 7.21.6).
                    let error = sense[0] << 4 | registers::error::ABRT;
                    let status = READY | status::ERR;
                    return Err(Failed::Told(Fail { status, error, lba: 0 }));
                }
            },
            _ => Vec::new(),
        };
        let moved = if data.is_empty() { 0 } else { give(memory, task, &data)? };
        // Interrupt reason of the end (ACS 7.21.5): command complete, to the host.
        let pio = (is_pio(task.fis.command) || opcode == Opcode::IdentifyPacket).then_some(512);
        Ok(Good { lba: 0, count: 3, moved, pio })
    }
}

/// The table of contents: one track of data, in logical blocks.
fn contents(sectors: u64) -> Vec<u8> {
    let end = sectors.min(u32::MAX.into()) as u32;
    let mut data = alloc::vec![0, 18, 1, 1];
    for (number, lba) in [(1, 0), (LEAD_OUT, end)] {
        data.extend_from_slice(&[0, DATA_TRACK, number, 0]);
        data.extend_from_slice(&lba.to_be_bytes());
    }
    data
}
