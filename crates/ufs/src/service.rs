//! Small services of a device: its error history, its clock, the unit it boots from.

use crate::UfsError;
use crate::channel::Run;
use crate::device_quirks::DeviceQuirk;
use crate::exchange::{DATA_MAX, HostCommand, Moves};
use crate::management::Peer;
use crate::query::Query;
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::cdb::{Buffer, BufferMode, Transfer};
use flysch_wire::ufs::descriptor::{BootLunId, UnitDescriptor};
use flysch_wire::ufs::query::AttributeId;
use flysch_wire::ufs::upiu::Wlun;

/// Most data of one [`Operation::ReadErrorHistory`](crate::Operation::ReadErrorHistory) and of one
/// [`Operation::ReadBoot`](crate::Operation::ReadBoot), bytes.
pub const SERVICE_DATA_MAX: u32 = DATA_MAX;
/// End of the range that a READ BUFFER can address.
const BUFFER_END: u32 = 1 << 24;

impl<M: Machine> Peer<M> {
    /// Sends a command to `lun` that reads `length` bytes.
    fn read_in(&mut self, lun: u8, cdb: Cdb, length: u32) -> Run<Vec<u8>> {
        self.scsi(HostCommand {
            lun,
            cdb: cdb.to_bytes(),
            moves: Moves::In(length),
            segment: false,
            timeout_ms: self.channel.options.timeouts.service_ms,
        })??;
        Ok(self.take_data(length))
    }

    /// Reads a part of an error history buffer, or of the directory.
    pub(crate) fn read_error_history(&mut self, id: u8, offset: u32, length: u32) -> Run<Vec<u8>> {
        if !(1..=DATA_MAX).contains(&length) || offset >= BUFFER_END {
            return Err(UfsError::State("error history is read in parts of up to 32 KiB").into());
        }
        // What the device does not fill reads as zeros, not as what was there before.
        self.wipe_data();
        let mode = BufferMode::ErrorHistory;
        let buffer = Buffer { mode, mode_specific: 0, id, offset, length };
        self.read_in(self.device.first_unit(), Cdb::ReadBuffer(buffer), length)
    }

    /// Tells the device the time, nanoseconds since 1970-01-01.
    pub(crate) fn set_timestamp(&mut self, nanos: u64) -> Run<()> {
        if self.device.quirks.has(DeviceQuirk::NoTimestamp) {
            return Err(UfsError::Unsupported("qTimestamp").into());
        }
        self.checked_query(&Query::write_attribute(AttributeId::Timestamp, nanos))?;
        Ok(())
    }

    /// Selects the unit that BOOT stands for.
    pub(crate) fn set_boot_lun(&mut self, boot: BootLunId) -> Run<()> {
        const DISABLED: &str =
            "booting is not enabled in the configuration descriptor (bBootEnable)";
        const NO_UNIT: &str = "no logical unit has that bBootLunID";
        let id = boot.into_bits();
        if self.device.descriptor.b_boot_enable == 0 {
            return Err(UfsError::State(DISABLED).into());
        }
        let is_there = boot == BootLunId::NotBootable
            || self.device.units.iter().flatten().any(|unit| unit.b_boot_lun_id == id);
        if !is_there {
            return Err(UfsError::State(NO_UNIT).into());
        }
        self.checked_query(&Query::write_attribute(AttributeId::BootLunEn, id.into()))?;
        Ok(())
    }

    /// Reads blocks of the well-known unit BOOT.
    pub(crate) fn read_boot(&mut self, lba: u32, blocks: u16) -> Run<Vec<u8>> {
        const NONE: &str = "no boot unit is chosen (bBootLunEn is 0)";
        let id = self.read_attribute(AttributeId::BootLunEn)? as u8;
        let unit =
            self.device.units.iter().flatten().find(|unit| id != 0 && unit.b_boot_lun_id == id);
        let block = unit.and_then(UnitDescriptor::block_size).ok_or(UfsError::State(NONE))?;
        let length = block.saturating_mul(blocks.into());
        if !(1..=DATA_MAX).contains(&length) {
            return Err(UfsError::State("the boot unit is read in parts of up to 32 KiB").into());
        }
        let transfer = Transfer::new(lba.into(), blocks.into());
        self.read_in(Wlun::Boot.into_bits(), Cdb::Read10(transfer), length)
    }
}
