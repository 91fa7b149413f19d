//! SCSI commands: which unit, whether now, what will happen; and the carrying out of all that are
//! neither reads nor writes.

use flysch_wire::scsi::cdb::{Buffer, BufferMode, ByteCheck, StartStop, Transfer, Verify};
use flysch_wire::scsi::unmap::{self, UnmapRange};
use flysch_wire::scsi::{AdditionalSense, Cdb, SenseKey, Status};
use flysch_wire::ufs::descriptor::ProvisioningType;
use flysch_wire::ufs::query::FlagId;
use flysch_wire::ufs::upiu::Wlun;
use flysch_wire::ufs::utrd::Ocs;

use super::descriptors::VENDOR;
use super::device::BUFFER;
use super::inject::cdb_of;
use super::lu::Unit;
use super::rpmb::Segment;
use super::sense::Sense;
use super::task::Work;
use super::upkeep::Stale;
use super::{Ufs, power, transfer};

/// Most ranges of one UNMAP.
pub(super) const UNMAP_RANGES_MAX: usize = 64;

/// What carrying out a command gave.
pub(super) enum Reply {
    /// Nothing to send.
    Done,
    /// So many bytes of the scratch buffer go to the host.
    Send(usize),
    /// So many bytes were taken from the host.
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

const INVALID_OPCODE: Sense = Sense::illegal(AdditionalSense::InvalidOperationCode);
const OUT_OF_RANGE: Sense = Sense::illegal(AdditionalSense::LbaOutOfRange);
const NO_SUCH_UNIT: Sense = Sense::illegal(AdditionalSense::LogicalUnitNotSupported);
const PROTECTED: Sense = Sense::new(SenseKey::DataProtect, AdditionalSense::WriteProtected);
const INTERNAL: Sense = Sense::new(SenseKey::HardwareError, AdditionalSense::InternalTargetFailure);

impl Ufs {
    /// What the command in task `index` will do.
    #[inline]
    pub(super) fn decide(&mut self, index: u16, cdb: &Cdb) -> Work {
        let lun = self.tasks.get(index).lun;
        let work = match cdb {
            Cdb::Read10(t) | Cdb::Read16(t) | Cdb::Read6(t) => self.decide_read(lun, t),
            Cdb::Write10(t) | Cdb::Write16(t) | Cdb::Write6(t) => self.decide_write(lun, t),
            other => self.decide_other(lun, other),
        };
        let work = work.unwrap_or_else(Work::Fail);
        if self.faults.is_active() {
            return self.fault_in_command(index, &work).unwrap_or(work);
        }
        work
    }

    #[inline]
    fn decide_read(&mut self, lun: u8, transfer: &Transfer) -> Result<Work, Sense> {
        self.gate(lun)?;
        let number = match Wlun::from_bits(lun) {
            Wlun::Boot => self.device.boot_unit().ok_or(NO_SUCH_UNIT)?,
            _ => lun,
        };
        let unit = self.device.unit(number).ok_or(INVALID_OPCODE)?;
        let (offset, len) = range(unit, transfer, self.device.transfer_max)?;
        if len == 0 {
            return Ok(Work::Status(Status::Good));
        }
        Ok(Work::Read { unit: number, offset, len })
    }

    #[inline]
    fn decide_write(&mut self, lun: u8, transfer: &Transfer) -> Result<Work, Sense> {
        self.gate(lun)?;
        let unit = self.device.unit(lun).ok_or(INVALID_OPCODE)?;
        let (offset, len) = range(unit, transfer, self.device.transfer_max)?;
        if let Some(refusal) = unit.write_refusal(&self.device.parameters) {
            return Err(refusal);
        }
        if self.device.protection.covers(lun, transfer.lba, transfer.blocks.into()) {
            return Err(PROTECTED);
        }
        if len == 0 {
            return Ok(Work::Status(Status::Good));
        }
        Ok(Work::Write { unit: lun, offset, len, force: transfer.flags.fua() })
    }

    /// Whether the unit takes ordinary commands now.
    #[inline]
    fn gate(&mut self, lun: u8) -> Result<(), Sense> {
        let attention = self.device.attention(lun).ok_or(NO_SUCH_UNIT)?;
        if let Some(attention) = attention.take() {
            return Err(attention);
        }
        match self.device.not_ready(self.now.nanos()) {
            // A host boots before it initialises the device.
            Some(sense) if Wlun::from_bits(lun) != Wlun::Boot => Err(sense),
            _ => Ok(()),
        }
    }

    fn decide_other(&mut self, lun: u8, cdb: &Cdb) -> Result<Work, Sense> {
        // These answer whatever state the unit is in, even one that is not there (SPC-6 6.7).
        if matches!(cdb, Cdb::Inquiry { .. } | Cdb::RequestSense { .. }) {
            return Ok(Work::Control);
        }
        if matches!(cdb, Cdb::ReportLuns { .. }) {
            self.device.attention(lun).ok_or(NO_SUCH_UNIT)?;
            return Ok(Work::Control);
        }
        if let Cdb::StartStopUnit(command) = cdb {
            return self.decide_start_stop(lun, command);
        }
        self.gate(lun)?;
        match Wlun::from_bits(lun) {
            Wlun::Unknown(_) => self.decide_for_unit(lun, cdb),
            Wlun::Rpmb => match cdb {
                Cdb::TestUnitReady | Cdb::SecurityProtocolIn(_) | Cdb::SecurityProtocolOut(_) => {
                    Ok(Work::Control)
                }
                _ => Err(INVALID_OPCODE),
            },
            Wlun::UfsDevice => match cdb {
                Cdb::TestUnitReady
                | Cdb::FormatUnit { .. }
                | Cdb::SendDiagnostic { .. }
                | Cdb::ReadBuffer(_)
                | Cdb::WriteBuffer(_) => Ok(Work::Control),
                _ => Err(INVALID_OPCODE),
            },
            Wlun::Boot => match cdb {
                Cdb::TestUnitReady if self.device.boot_unit().is_some() => Ok(Work::Control),
                Cdb::TestUnitReady => Err(NO_SUCH_UNIT),
                _ => Err(INVALID_OPCODE),
            },
            Wlun::ReportLuns => match cdb {
                Cdb::TestUnitReady => Ok(Work::Control),
                _ => Err(INVALID_OPCODE),
            },
        }
    }

    fn decide_for_unit(&mut self, lun: u8, cdb: &Cdb) -> Result<Work, Sense> {
        let unit = self.device.unit(lun).ok_or(NO_SUCH_UNIT)?;
        match cdb {
            Cdb::SynchronizeCache10(range) | Cdb::SynchronizeCache16(range) => {
                if !unit.has(range.lba, range.blocks) {
                    return Err(OUT_OF_RANGE);
                }
                Ok(Work::Flush { unit: lun })
            }
            Cdb::PreFetch10(range) | Cdb::PreFetch16(range) => {
                if !unit.has(range.lba, range.blocks) {
                    return Err(OUT_OF_RANGE);
                }
                Ok(Work::Status(Status::ConditionMet))
            }
            Cdb::Verify10(verify) => decide_verify(unit, verify),
            Cdb::Unmap { anchor, .. } => {
                if unit.provisioning == ProvisioningType::Full {
                    return Err(INVALID_OPCODE);
                }
                if *anchor {
                    return Err(Sense::field(1));
                }
                unit.write_refusal(&self.device.parameters).map_or(Ok(Work::Control), Err)
            }
            Cdb::FormatUnit { .. } => {
                unit.write_refusal(&self.device.parameters).map_or(Ok(Work::Control), Err)
            }
            Cdb::SecurityProtocolIn(_) | Cdb::SecurityProtocolOut(_) | Cdb::Unknown(_) => {
                Err(INVALID_OPCODE)
            }
            _ => Ok(Work::Control),
        }
    }

    /// START STOP UNIT to UFS DEVICE changes the power mode, to a unit it changes nothing.
    fn decide_start_stop(&mut self, lun: u8, command: &StartStop) -> Result<Work, Sense> {
        if Wlun::from_bits(lun) != Wlun::UfsDevice {
            self.gate(lun)?;
            return match self.device.unit(lun) {
                Some(_) => Ok(Work::Status(Status::Good)),
                None => Err(INVALID_OPCODE),
            };
        }
        // Accepted in every power mode, but not before initialisation.
        if let Some(attention) = self.device.attention(lun).and_then(Option::take) {
            return Err(attention);
        }
        self.device.initialising(self.now.nanos()).map_or(Ok(()), Err)?;
        let mode = power::mode_of(command.power_condition).ok_or(Sense::field(4))?;
        Ok(Work::Power { mode })
    }

    /// Carries out a command that was let through as [`Work::Control`] and answers it.
    pub(super) fn control(&mut self, index: u16) {
        let task = self.tasks.get(index);
        let Some(cdb) = cdb_of(&task.request) else { return };
        if task.crypto.is_some() && task.expected > 0 {
            // Its data is no data units.
            return self.finish(index, Ocs::GeneralCryptoError);
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let result = self.carry_out(index, &cdb, &mut scratch);
        let result = result.and_then(|reply| {
            if let Reply::Send(len) | Reply::Segment(len, true, _) = reply {
                let task = self.tasks.get(index);
                let moved = len.min(task.expected as usize);
                transfer::scatter(&self.memory, task, &scratch[..moved])?;
            }
            Ok(reply)
        });
        self.scratch = scratch;
        match result {
            Ok(Reply::Done) => self.respond(index, Status::Good, None, 0),
            Ok(Reply::Send(len) | Reply::Took(len)) => {
                self.respond(index, Status::Good, None, len as u32);
            }
            Ok(Reply::Segment(len, _, segment)) => {
                self.respond_with_segment(index, &segment, len as u32);
            }
            Err(Stop::Sense(sense)) => self.fail(index, sense),
            Err(Stop::Transfer(ocs)) => self.finish(index, ocs),
        }
    }

    fn carry_out(&mut self, index: u16, cdb: &Cdb, data: &mut [u8]) -> Result<Reply, Stop> {
        let lun = self.tasks.get(index).lun;
        match *cdb {
            Cdb::TestUnitReady => Ok(Reply::Done),
            Cdb::RequestSense { desc, allocation_length } => {
                if desc {
                    return Err(Sense::field(1).into());
                }
                let len = self.request_sense(lun, data);
                Ok(Reply::Send(len.min(allocation_length.into())))
            }
            Cdb::Inquiry { page, allocation_length } => {
                let len = match page {
                    None => self.device.inquiry(lun, data),
                    Some(page) => self.device.vital_product_data(lun, page, data)?,
                };
                Ok(Reply::Send(len.min(allocation_length.into())))
            }
            Cdb::ReportLuns { select, allocation_length } => {
                let len = self.device.report_luns(select, allocation_length, data)?;
                Ok(Reply::Send(len.min(allocation_length as usize)))
            }
            Cdb::ReadCapacity10 => Ok(Reply::Send(self.device.capacity_10(lun, data))),
            Cdb::ReadCapacity16 { allocation_length } => {
                let len = self.device.capacity_16(lun, data);
                Ok(Reply::Send(len.min(allocation_length as usize)))
            }
            Cdb::ModeSense6(sense) => {
                Ok(Reply::Send(self.device.mode_sense(lun, &sense, true, data)?))
            }
            Cdb::ModeSense10(sense) => {
                Ok(Reply::Send(self.device.mode_sense(lun, &sense, false, data)?))
            }
            Cdb::ModeSelect6(select) | Cdb::ModeSelect10(select) => {
                let len = usize::from(select.parameter_list_length);
                self.take(index, len, data)?;
                let six = matches!(cdb, Cdb::ModeSelect6(_));
                self.device.mode_select(lun, &select, six, &data[..len])?;
                Ok(Reply::Took(len))
            }
            Cdb::Unmap { parameter_list_length, .. } => {
                self.unmap(index, lun, usize::from(parameter_list_length), data)
            }
            Cdb::FormatUnit { parameters: 0 } => self.format(lun),
            Cdb::SendDiagnostic { parameter_list_length: 0, .. } => Ok(Reply::Done),
            Cdb::SecurityProtocolIn(command) => self.security_in(index, &command, data),
            Cdb::SecurityProtocolOut(command) => self.security_out(index, &command, data),
            Cdb::ReadBuffer(command) => self.read_buffer(&command, data),
            Cdb::WriteBuffer(command) => self.write_buffer(index, &command, data),
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

    fn write_buffer(
        &mut self,
        index: u16,
        command: &Buffer,
        data: &mut [u8],
    ) -> Result<Reply, Stop> {
        let (at, len) = (command.offset as usize, command.length as usize);
        match command.mode {
            BufferMode::Data if command.id == 0 => {
                if at + len > BUFFER {
                    return Err(Sense::field(6).into());
                }
                self.take(index, len, data)?;
                self.device.buffer[at..][..len].copy_from_slice(&data[..len]);
            }
            BufferMode::DownloadDeferred if self.device.services => {
                if self.device.parameters.flag(FlagId::PermanentlyDisableFwUpdate, 0) {
                    return Err(PROTECTED.into());
                }
                self.take(index, len, data)?;
                if !self.device.firmware.take(command.offset, &data[..len]) {
                    return Err(Sense::illegal(AdditionalSense::CommandSequenceError).into());
                }
            }
            _ => return Err(Sense::field(1).into()),
        }
        Ok(Reply::Took(len))
    }

    /// Takes `len` bytes from the host into `data`.
    pub(super) fn take(&mut self, index: u16, len: usize, data: &mut [u8]) -> Result<(), Stop> {
        let task = self.tasks.get(index);
        if len > data.len() || len > task.expected as usize {
            return Err(Sense::illegal(AdditionalSense::ParameterListLengthError).into());
        }
        transfer::gather(&self.memory, task, &mut data[..len])?;
        Ok(())
    }

    /// The unit attention that waits, or nothing.
    fn request_sense(&mut self, lun: u8, data: &mut [u8]) -> usize {
        let none = Sense::new(SenseKey::NoSense, AdditionalSense::None);
        let sense = match self.device.attention(lun) {
            Some(attention) => attention.take().unwrap_or(none),
            None => NO_SUCH_UNIT,
        };
        let fixed = sense.to_fixed();
        data[..fixed.len()].copy_from_slice(&fixed);
        fixed.len()
    }

    fn unmap(&mut self, index: u16, lun: u8, len: usize, data: &mut [u8]) -> Result<Reply, Stop> {
        if len == 0 {
            return Ok(Reply::Done);
        }
        self.take(index, len, data)?;
        let wrong = Sense::illegal(AdditionalSense::InvalidFieldInParameterList);
        let mut ranges = [UnmapRange::default(); UNMAP_RANGES_MAX];
        let mut count = 0;
        for range in unmap::parse(&data[..len]).map_err(|_| wrong)? {
            *ranges.get_mut(count).ok_or(wrong)? = range;
            count += 1;
        }
        let device = &mut self.device;
        let unit = device.units[usize::from(lun)].as_mut().ok_or(NO_SUCH_UNIT)?;
        if !ranges[..count].iter().all(|range| unit.has(range.lba, range.blocks)) {
            return Err(OUT_OF_RANGE.into());
        }
        let closed = |r: &UnmapRange| device.protection.covers(lun, r.lba, r.blocks.into());
        if ranges[..count].iter().any(closed) {
            return Err(PROTECTED.into());
        }
        let readable = unit.provisioning == ProvisioningType::ThinDiscard;
        let shift = unit.block_shift;
        for range in &ranges[..count] {
            let offset = range.lba << shift;
            let bytes = u64::from(range.blocks) << shift;
            device.cache.discarded(lun, offset, bytes);
            if readable && bytes > 0 {
                device.unmapped(lun, offset, bytes);
            } else if let Some(unit) = device.unit_mut(lun) {
                unit.store.discard(offset, bytes).map_err(|_| INTERNAL)?;
                device.upkeep.hid(bytes);
            }
        }
        Ok(Reply::Took(len))
    }

    /// FORMAT UNIT: of one unit, or of all when it goes to UFS DEVICE.
    fn format(&mut self, lun: u8) -> Result<Reply, Stop> {
        let all = Wlun::from_bits(lun) == Wlun::UfsDevice;
        let device = &mut self.device;
        let refused = |unit: &Unit| unit.write_refusal(&device.parameters);
        if all && let Some(sense) = device.units.iter().flatten().find_map(refused) {
            return Err(sense.into());
        }
        let meant = |number: u8| all || number == lun;
        let closed = |(number, unit): (u8, &Option<Unit>)| {
            let blocks = unit.as_ref().map_or(0, |unit| unit.blocks);
            meant(number) && device.protection.covers(number, 0, blocks)
        };
        if (0..).zip(&device.units).any(closed) {
            return Err(PROTECTED.into());
        }
        for (number, unit) in (0..).zip(&mut device.units) {
            if let Some(unit) = unit.as_mut().filter(|_| meant(number)) {
                device.cache.discarded(number, 0, unit.size);
                device.upkeep.written(Stale { unit: number, offset: 0, len: unit.size });
                device.upkeep.hid(unit.size);
                unit.store.discard(0, unit.size).map_err(|_| INTERNAL)?;
            }
        }
        Ok(Reply::Done)
    }
}

/// Bytes that a transfer covers, checked.
#[inline]
fn range(unit: &Unit, transfer: &Transfer, max: u32) -> Result<(u64, u32), Sense> {
    if !unit.has(transfer.lba, transfer.blocks) {
        return Err(OUT_OF_RANGE);
    }
    if transfer.flags.protect() != 0 {
        return Err(Sense::field(1));
    }
    let bytes = u64::from(transfer.blocks) << unit.block_shift;
    if bytes > u64::from(max) {
        return Err(Sense::field(7));
    }
    Ok((transfer.lba << unit.block_shift, bytes as u32))
}

/// VERIFY reads the medium and moves no data; comparing is not for UFS (JESD220 11.3.14).
fn decide_verify(unit: &Unit, verify: &Verify) -> Result<Work, Sense> {
    if verify.bytchk != ByteCheck::Medium {
        return Err(Sense::field(1));
    }
    if !unit.has(verify.lba.into(), verify.blocks.into()) {
        return Err(OUT_OF_RANGE);
    }
    Ok(Work::Status(Status::Good))
}
