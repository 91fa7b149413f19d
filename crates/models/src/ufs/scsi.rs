//! SCSI commands: the unit, whether it is ready, and what will happen.

use flysch_wire::scsi::cdb::{ByteCheck, StartStop, Transfer, Verify};
use flysch_wire::scsi::{AdditionalSense, Cdb, SenseKey, Status};
use flysch_wire::ufs::descriptor::ProvisioningType;
use flysch_wire::ufs::upiu::Wlun;

use super::device::Device;
use super::lu::Unit;
use super::power;
use super::sense::Sense;
use super::task::Work;

const INVALID_OPCODE: Sense = Sense::illegal(AdditionalSense::InvalidOperationCode);
pub(super) const OUT_OF_RANGE: Sense = Sense::illegal(AdditionalSense::LbaOutOfRange);
pub(super) const NO_SUCH_UNIT: Sense = Sense::illegal(AdditionalSense::LogicalUnitNotSupported);
pub(super) const PROTECTED: Sense =
    Sense::new(SenseKey::DataProtect, AdditionalSense::WriteProtected);

/// A command on its way to a logical unit, and its time.
pub(super) struct Nexus<'a> {
    device: &'a mut Device,
    lun: u8,
    now: u64,
}

impl<'a> Nexus<'a> {
    /// The way to unit `lun` at nanosecond `now`.
    #[inline]
    pub(super) fn new(device: &'a mut Device, lun: u8, now: u64) -> Self {
        Self { device, lun, now }
    }

    /// What the command will do.
    ///
    /// # Errors
    /// Why the unit refuses it.
    #[inline]
    pub(super) fn decide(self, cdb: &Cdb) -> Result<Work, Sense> {
        match cdb {
            Cdb::Read10(t) | Cdb::Read16(t) | Cdb::Read6(t) => self.read(t),
            Cdb::Write10(t) | Cdb::Write16(t) | Cdb::Write6(t) => self.write(t),
            other => self.other(other),
        }
    }

    #[inline]
    fn read(mut self, transfer: &Transfer) -> Result<Work, Sense> {
        self.gate()?;
        let number = match Wlun::from_bits(self.lun) {
            Wlun::Boot => self.boot_unit().ok_or(NO_SUCH_UNIT)?,
            _ => self.lun,
        };
        let unit = self.device.units.get(number).ok_or(INVALID_OPCODE)?;
        let (offset, len) = range(unit, transfer, self.device.build.transfer_max)?;
        if len == 0 {
            return Ok(Work::Status(Status::Good));
        }
        Ok(Work::Read { unit: number, offset, len })
    }

    #[inline]
    fn write(mut self, transfer: &Transfer) -> Result<Work, Sense> {
        self.gate()?;
        let unit = self.device.units.get(self.lun).ok_or(INVALID_OPCODE)?;
        let (offset, len) = range(unit, transfer, self.device.build.transfer_max)?;
        if let Some(refusal) = unit.write_refusal(&self.device.parameters) {
            return Err(refusal);
        }
        if self.device.units.protection.covers(self.lun, transfer.lba, transfer.blocks.into()) {
            return Err(PROTECTED);
        }
        if len == 0 {
            return Ok(Work::Status(Status::Good));
        }
        Ok(Work::Write { unit: self.lun, offset, len, force: transfer.flags.fua() })
    }

    fn boot_unit(&self) -> Option<u8> {
        let Device { units, parameters, provisions, .. } = &*self.device;
        units.boot_unit(parameters, &provisions.current)
    }

    /// Whether the unit accepts ordinary commands now.
    #[inline]
    fn gate(&mut self) -> Result<(), Sense> {
        let attention = self.device.units.attention(self.lun).ok_or(NO_SUCH_UNIT)?;
        if let Some(attention) = attention.take() {
            return Err(attention);
        }
        match self.device.not_ready(self.now) {
            // A host boots before it initialises the device.
            Some(sense) if Wlun::from_bits(self.lun) != Wlun::Boot => Err(sense),
            _ => Ok(()),
        }
    }

    fn other(mut self, cdb: &Cdb) -> Result<Work, Sense> {
        // These are answered in any state of the unit, even if it does not exist (SPC-6 6.7).
        if matches!(cdb, Cdb::Inquiry { .. } | Cdb::RequestSense { .. }) {
            return Ok(Work::Control);
        }
        if matches!(cdb, Cdb::ReportLuns { .. }) {
            self.device.units.attention(self.lun).ok_or(NO_SUCH_UNIT)?;
            return Ok(Work::Control);
        }
        if let Cdb::StartStopUnit(command) = cdb {
            return self.start_stop(command);
        }
        self.gate()?;
        match Wlun::from_bits(self.lun) {
            Wlun::Unknown(_) => self.of_unit(cdb),
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
                Cdb::TestUnitReady if self.boot_unit().is_some() => Ok(Work::Control),
                Cdb::TestUnitReady => Err(NO_SUCH_UNIT),
                _ => Err(INVALID_OPCODE),
            },
            Wlun::ReportLuns => match cdb {
                Cdb::TestUnitReady => Ok(Work::Control),
                _ => Err(INVALID_OPCODE),
            },
        }
    }

    fn of_unit(self, cdb: &Cdb) -> Result<Work, Sense> {
        let unit = self.device.units.get(self.lun).ok_or(NO_SUCH_UNIT)?;
        match cdb {
            Cdb::SynchronizeCache10(range) | Cdb::SynchronizeCache16(range) => {
                if !unit.has(range.lba, range.blocks) {
                    return Err(OUT_OF_RANGE);
                }
                Ok(Work::Flush { unit: self.lun })
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

    /// START STOP UNIT to UFS DEVICE changes the power mode; to a unit it has no effect.
    fn start_stop(mut self, command: &StartStop) -> Result<Work, Sense> {
        if Wlun::from_bits(self.lun) != Wlun::UfsDevice {
            self.gate()?;
            return match self.device.units.get(self.lun) {
                Some(_) => Ok(Work::Status(Status::Good)),
                None => Err(INVALID_OPCODE),
            };
        }
        // Accepted in every power mode, but not before initialisation.
        if let Some(attention) = self.device.units.attention(self.lun).and_then(Option::take) {
            return Err(attention);
        }
        self.device.initialising(self.now).map_or(Ok(()), Err)?;
        let mode = power::mode_of(command.power_condition).ok_or(Sense::field(4))?;
        Ok(Work::Power { mode })
    }
}

/// The bytes that a transfer covers, checked.
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

/// VERIFY reads the medium and moves no data; comparing is not part of UFS (JESD220 11.3.14).
fn decide_verify(unit: &Unit, verify: &Verify) -> Result<Work, Sense> {
    if verify.bytchk != ByteCheck::Medium {
        return Err(Sense::field(1));
    }
    if !unit.has(verify.lba.into(), verify.blocks.into()) {
        return Err(OUT_OF_RANGE);
    }
    Ok(Work::Status(Status::Good))
}
