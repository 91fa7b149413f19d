//! SCSI commands that are neither reads nor writes.

use flysch_wire::scsi::cdb::{Buffer, BufferMode};
use flysch_wire::scsi::unmap::{self, UnmapRange};
use flysch_wire::scsi::{AdditionalSense, Cdb, SenseKey};
use flysch_wire::ufs::descriptor::ProvisioningType;
use flysch_wire::ufs::query::FlagId;
use flysch_wire::ufs::upiu::Wlun;
use flysch_wire::ufs::utrd::Ocs;

use super::descriptors::VENDOR;
use super::device::{BUFFER, Device};
use super::exchange::Exchange;
use super::lu::Unit;
use super::rpmb::Segment;
use super::scsi::{NO_SUCH_UNIT, OUT_OF_RANGE, PROTECTED};
use super::scsi_data::Pages;
use super::sense::Sense;
use super::task::Task;
use super::transfer;
use super::upkeep::Stale;

/// Maximum number of ranges in one UNMAP.
pub(super) const UNMAP_RANGES_MAX: usize = 64;

/// The result of carrying out a command.
pub(super) enum Reply {
    /// Nothing to send.
    Done,
    /// This many bytes of the scratch buffer go to the host.
    Send(usize),
    /// This many bytes were taken from the host.
    Took(usize),
    /// Advanced RPMB: bytes moved, whether they go to the host, and the segment of the response.
    Segment(usize, bool, Segment),
}

/// Why a command could not be carried out.
pub(super) enum Stop {
    Sense(Sense),
    Transfer(Ocs),
}

impl From<Sense> for Stop {
    fn from(sense: Sense) -> Self {
        Self::Sense(sense)
    }
}

impl From<Ocs> for Stop {
    fn from(ocs: Ocs) -> Self {
        Self::Transfer(ocs)
    }
}

const INTERNAL: Sense = Sense::new(SenseKey::HardwareError, AdditionalSense::InternalTargetFailure);

/// A command being carried out.
pub(super) struct Control<'a> {
    pub(super) device: &'a mut Device,
    pub(super) x: &'a Exchange,
    index: u16,
    lun: u8,
}

impl Device {
    /// Carries out a command that was accepted as [`Work::Control`](super::task::Work::Control) and
    /// answers it; returns how it ends.
    pub(super) fn control(&mut self, index: u16, x: &Exchange) -> Ocs {
        let task = x.tasks.get(index);
        let cdb = task.cdb().expect("decided by its CDB");
        if task.crypto.is_some() && task.expected > 0 {
            // Its data does not consist of data units.
            return Ocs::GeneralCryptoError;
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let mut control = Control { device: &mut *self, x, index, lun: task.lun };
        let result = control.carry_out(&cdb, &mut scratch);
        let result = result.and_then(|reply| {
            if let Reply::Send(len) | Reply::Segment(len, true, _) = reply {
                let moved = len.min(task.expected as usize);
                transfer::scatter(&x.memory, task, &scratch[..moved])?;
            }
            Ok(reply)
        });
        self.scratch = scratch;
        match result {
            Ok(Reply::Done) => self.answer(index, x).good(0),
            Ok(Reply::Send(len) | Reply::Took(len)) => self.answer(index, x).good(len as u32),
            Ok(Reply::Segment(len, _, segment)) => {
                self.answer(index, x).segment(&segment, len as u32)
            }
            Err(Stop::Sense(sense)) => self.answer(index, x).fail(sense),
            Err(Stop::Transfer(ocs)) => ocs,
        }
    }
}

impl Control<'_> {
    pub(super) fn task(&self) -> &Task {
        self.x.tasks.get(self.index)
    }

    fn pages(&self) -> Pages<'_> {
        Pages { device: &*self.device, lun: self.lun }
    }

    fn carry_out(&mut self, cdb: &Cdb, data: &mut [u8]) -> Result<Reply, Stop> {
        let lun = self.lun;
        match *cdb {
            Cdb::TestUnitReady => Ok(Reply::Done),
            Cdb::RequestSense { desc, allocation_length } => {
                if desc {
                    return Err(Sense::field(1).into());
                }
                let len = self.request_sense(data);
                Ok(Reply::Send(len.min(allocation_length.into())))
            }
            Cdb::Inquiry { page, allocation_length } => {
                let len = match page {
                    None => self.pages().inquiry(data),
                    Some(page) => self.pages().vital_product_data(page, data)?,
                };
                Ok(Reply::Send(len.min(allocation_length.into())))
            }
            Cdb::ReportLuns { select, allocation_length } => {
                let len = self.pages().report_luns(select, allocation_length, data)?;
                Ok(Reply::Send(len.min(allocation_length as usize)))
            }
            Cdb::ReadCapacity10 => Ok(Reply::Send(self.pages().capacity_10(data))),
            Cdb::ReadCapacity16 { allocation_length } => {
                let len = self.pages().capacity_16(data);
                Ok(Reply::Send(len.min(allocation_length as usize)))
            }
            Cdb::ModeSense6(sense) => Ok(Reply::Send(self.pages().mode_sense(&sense, true, data)?)),
            Cdb::ModeSense10(sense) => {
                Ok(Reply::Send(self.pages().mode_sense(&sense, false, data)?))
            }
            Cdb::ModeSelect6(select) | Cdb::ModeSelect10(select) => {
                let len = usize::from(select.parameter_list_length);
                self.take(len, data)?;
                let six = matches!(cdb, Cdb::ModeSelect6(_));
                self.device.units.mode_select(lun, &select, six, &data[..len])?;
                Ok(Reply::Took(len))
            }
            Cdb::Unmap { parameter_list_length, .. } => {
                self.unmap(usize::from(parameter_list_length), data)
            }
            Cdb::FormatUnit { parameters: 0 } => self.format(),
            Cdb::SendDiagnostic { parameter_list_length: 0, .. } => Ok(Reply::Done),
            Cdb::SecurityProtocolIn(command) => self.security_in(&command, data),
            Cdb::SecurityProtocolOut(command) => self.security_out(&command, data),
            Cdb::ReadBuffer(command) => self.read_buffer(&command, data),
            Cdb::WriteBuffer(command) => self.write_buffer(&command, data),
            _ => Err(Sense::field(1).into()),
        }
    }

    fn read_buffer(&mut self, command: &Buffer, data: &mut [u8]) -> Result<Reply, Stop> {
        let (at, len) = (command.offset as usize, command.length as usize);
        let room = len.min(data.len());
        match command.mode {
            BufferMode::Data if command.id == 0 => {
                let at = at.min(BUFFER);
                let len = (BUFFER - at).min(len);
                data[..len].copy_from_slice(&self.device.buffer[at..][..len]);
                Ok(Reply::Send(len))
            }
            BufferMode::ErrorHistory => {
                let journal = &self.device.journal;
                let read = journal.read(command.id, at, VENDOR, &mut data[..room]);
                read.map(Reply::Send).ok_or(Sense::field(2).into())
            }
            _ => Err(Sense::field(1).into()),
        }
    }

    fn write_buffer(&mut self, command: &Buffer, data: &mut [u8]) -> Result<Reply, Stop> {
        let (at, len) = (command.offset as usize, command.length as usize);
        match command.mode {
            BufferMode::Data if command.id == 0 => {
                if at + len > BUFFER {
                    return Err(Sense::field(6).into());
                }
                self.take(len, data)?;
                self.device.buffer[at..][..len].copy_from_slice(&data[..len]);
            }
            BufferMode::DownloadDeferred if self.device.build.services => {
                if self.device.parameters.flag(FlagId::PermanentlyDisableFwUpdate, 0) {
                    return Err(PROTECTED.into());
                }
                self.take(len, data)?;
                if !self.device.firmware.take(command.offset, &data[..len]) {
                    return Err(Sense::illegal(AdditionalSense::CommandSequenceError).into());
                }
            }
            _ => return Err(Sense::field(1).into()),
        }
        Ok(Reply::Took(len))
    }

    /// Takes `len` bytes from the host into `data`.
    pub(super) fn take(&self, len: usize, data: &mut [u8]) -> Result<(), Stop> {
        let task = self.task();
        if len > data.len() || len > task.expected as usize {
            return Err(Sense::illegal(AdditionalSense::ParameterListLengthError).into());
        }
        transfer::gather(&self.x.memory, task, &mut data[..len])?;
        Ok(())
    }

    /// The pending unit attention, or nothing.
    fn request_sense(&mut self, data: &mut [u8]) -> usize {
        let none = Sense::new(SenseKey::NoSense, AdditionalSense::None);
        let sense = match self.device.units.attention(self.lun) {
            Some(attention) => attention.take().unwrap_or(none),
            None => NO_SUCH_UNIT,
        };
        let fixed = sense.to_fixed();
        data[..fixed.len()].copy_from_slice(&fixed);
        fixed.len()
    }

    fn unmap(&mut self, len: usize, data: &mut [u8]) -> Result<Reply, Stop> {
        if len == 0 {
            return Ok(Reply::Done);
        }
        self.take(len, data)?;
        let wrong = Sense::illegal(AdditionalSense::InvalidFieldInParameterList);
        let mut ranges = [UnmapRange::default(); UNMAP_RANGES_MAX];
        let mut count = 0;
        for range in unmap::parse(&data[..len]).map_err(|_| wrong)? {
            *ranges.get_mut(count).ok_or(wrong)? = range;
            count += 1;
        }
        let (device, lun) = (&mut *self.device, self.lun);
        let unit = device.units.get(lun).ok_or(NO_SUCH_UNIT)?;
        if !ranges[..count].iter().all(|range| unit.has(range.lba, range.blocks)) {
            return Err(OUT_OF_RANGE.into());
        }
        let closed = |r: &UnmapRange| device.units.protection.covers(lun, r.lba, r.blocks.into());
        if ranges[..count].iter().any(closed) {
            return Err(PROTECTED.into());
        }
        let readable = unit.provisioning == ProvisioningType::ThinDiscard;
        let shift = unit.block_shift;
        for range in &ranges[..count] {
            let offset = range.lba << shift;
            let bytes = u64::from(range.blocks) << shift;
            device.backend.cache.discarded(lun, offset, bytes);
            if readable && bytes > 0 {
                device.upkeep.unmapped_readable(&mut device.units, (lun, offset, bytes));
            } else if let Some(unit) = device.units.get_mut(lun) {
                unit.store.discard(offset, bytes).map_err(|_| INTERNAL)?;
                device.upkeep.hid(bytes);
            }
        }
        Ok(Reply::Took(len))
    }

    /// FORMAT UNIT: formats one unit, or all of them if addressed to UFS DEVICE.
    fn format(&mut self) -> Result<Reply, Stop> {
        let (device, lun) = (&mut *self.device, self.lun);
        let all = Wlun::from_bits(lun) == Wlun::UfsDevice;
        let refused = |unit: &Unit| unit.write_refusal(&device.parameters);
        if all && let Some(sense) = device.units.list.iter().flatten().find_map(refused) {
            return Err(sense.into());
        }
        let meant = |number: u8| all || number == lun;
        let closed = |(number, unit): (u8, &Option<Unit>)| {
            let blocks = unit.as_ref().map_or(0, |unit| unit.blocks);
            meant(number) && device.units.protection.covers(number, 0, blocks)
        };
        if (0..).zip(&device.units.list).any(closed) {
            return Err(PROTECTED.into());
        }
        for (number, unit) in (0..).zip(&mut device.units.list) {
            if let Some(unit) = unit.as_mut().filter(|_| meant(number)) {
                device.backend.cache.discarded(number, 0, unit.size);
                device.upkeep.written(Stale { unit: number, offset: 0, len: unit.size });
                device.upkeep.hid(unit.size);
                unit.store.discard(0, unit.size).map_err(|_| INTERNAL)?;
            }
        }
        Ok(Reply::Done)
    }
}
