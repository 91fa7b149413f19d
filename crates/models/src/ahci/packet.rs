//! A packet device: the SCSI commands of a CD drive that reads.

use alloc::vec::Vec;

use flysch_wire::ata::list::ACMD;
use flysch_wire::ata::registers::status;
use flysch_wire::ata::{Opcode, registers};

use super::Ahci;
use super::command::aborted;
use super::device::{DISC_SECTOR, Device};
use super::flow::{Good, is_pio};
use super::list::{Fail, Task, Work};
use super::port::READY;
use super::transfer::Failed;

/// Operation codes (SPC-4, MMC-5).
mod code {
    pub(super) const TEST_UNIT_READY: u8 = 0x00;
    pub(super) const REQUEST_SENSE: u8 = 0x03;
    pub(super) const INQUIRY: u8 = 0x12;
    pub(super) const START_STOP: u8 = 0x1B;
    pub(super) const PREVENT_ALLOW: u8 = 0x1E;
    pub(super) const READ_CAPACITY: u8 = 0x25;
    pub(super) const READ_10: u8 = 0x28;
    pub(super) const READ_12: u8 = 0xA8;
}

/// Sense: no such command, no such address, the medium failed.
const ILLEGAL: [u8; 3] = [5, 0x20, 0];
const OUT_OF_RANGE: [u8; 3] = [5, 0x21, 0];
const MEDIUM: [u8; 3] = [3, 0x11, 0];
/// Most sectors of one read: what one command moves of a disc.
const SECTORS_MAX: u32 = 8192;

impl Device {
    /// What becomes of a command to a packet device.
    pub(super) fn packet_work(&self, opcode: Opcode) -> Result<Work, Fail> {
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

    /// What a packet gives.
    fn packet(&mut self, packet: &[u8; 12]) -> Result<Vec<u8>, [u8; 3]> {
        let be = |at: usize| {
            u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
        };
        let cut = |mut data: Vec<u8>, most: usize| {
            data.truncate(most);
            Ok(data)
        };
        match packet[0] {
            code::TEST_UNIT_READY | code::START_STOP | code::PREVENT_ALLOW => Ok(Vec::new()),
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
                let lba = u64::from(be(2));
                if count > SECTORS_MAX || lba + u64::from(count) > self.sectors() {
                    return Err(OUT_OF_RANGE);
                }
                let mut data = alloc::vec![0; (count * DISC_SECTOR) as usize];
                match self.store.get(lba << self.shift, &mut data) {
                    Ok(()) => Ok(data),
                    Err(_) => Err(MEDIUM),
                }
            }
            _ => Err(ILLEGAL),
        }
    }
}

impl Ahci {
    pub(super) fn carry_out_packet(
        &mut self,
        port: u8,
        task: &Task,
    ) -> Result<Result<Good, Fail>, Failed> {
        let opcode = Opcode::from_bits(task.fis.command);
        let mut packet = [0; 12];
        if opcode == Opcode::Packet {
            if !task.flags.atapi() {
                return Ok(Err(aborted()));
            }
            self.memory.read(task.table + ACMD as u64, &mut packet)?;
        }
        let Some(device) = self.device_mut(port) else { return Ok(Err(aborted())) };
        let data = match opcode {
            Opcode::IdentifyPacket => device.identify().to_bytes().to_vec(),
            Opcode::Packet => match device.packet(&packet) {
                Ok(data) => data,
                Err(sense) => {
                    device.sense = sense;
                    // CHK, and the sense key in ERROR (ACS 7.21.6).
                    let error = sense[0] << 4 | registers::error::ABRT;
                    return Ok(Err(Fail { status: READY | status::ERR, error, lba: 0 }));
                }
            },
            _ => Vec::new(),
        };
        let moved = if data.is_empty() { 0 } else { self.give(task, &data)? };
        // Interrupt reason of the end (ACS 7.21.5): command complete, to the host.
        let pio = (is_pio(task.fis.command) || opcode == Opcode::IdentifyPacket).then_some(512);
        Ok(Ok(Good { lba: 0, count: 3, moved, pio }))
    }
}
