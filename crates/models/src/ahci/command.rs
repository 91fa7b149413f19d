//! What a command means: the device decides when it arrives.

use flysch_wire::ata::command::device;
use flysch_wire::ata::registers::{error, status};
use flysch_wire::ata::{H2d, Opcode, log};

use super::device::Device;
use super::list::{Fail, Work};
use super::packet::packet_work;
use super::port::READY;

/// Whether a command is queued.
pub(super) fn is_queued(command: u8) -> bool {
    use Opcode::{NcqNonData, ReadFpdma, ReceiveFpdma, SendFpdma, WriteFpdma};
    matches!(
        Opcode::from_bits(command),
        ReadFpdma | WriteFpdma | NcqNonData | SendFpdma | ReceiveFpdma
    )
}

/// The device does not do it.
pub(super) const fn aborted() -> Fail {
    Fail { status: READY | status::ERR, error: error::ABRT, lba: 0 }
}

/// There is no such address.
const fn not_found(lba: u64) -> Fail {
    Fail { status: READY | status::ERR, error: error::IDNF, lba }
}

/// The data cannot be read.
pub(super) const fn unreadable(lba: u64) -> Fail {
    Fail { status: READY | status::ERR, error: error::UNC, lba }
}

/// The device failed.
pub(super) const fn fault() -> Fail {
    Fail { status: READY | status::DF | status::ERR, error: error::ABRT, lba: 0 }
}

/// Sectors of a count: 0 stands for the most.
fn sectors(count: u16, is_48: bool) -> u64 {
    match (count, is_48) {
        (0, true) => 1 << 16,
        (count, true) => count.into(),
        (count, false) if count & 0xFF == 0 => 1 << 8,
        (count, false) => (count & 0xFF).into(),
    }
}

/// LBA of a command with addresses of 28 bits.
fn lba28(fis: &H2d) -> u64 {
    fis.lba & 0xFF_FFFF | u64::from(fis.device & 0xF) << 24
}

impl Device {
    /// Bytes of the medium that a command names.
    fn extent(&self, lba: u64, sectors: u64) -> Result<(u64, u32), Fail> {
        if lba > self.sectors() || sectors > self.sectors() - lba {
            return Err(not_found(lba.max(self.sectors())));
        }
        // At most 65536 sectors of 4096 bytes.
        Ok((lba << self.shift, (sectors << self.shift) as u32))
    }

    /// Whether the device takes a command now.
    fn admit(&self, opcode: Opcode, fis: &H2d) -> Result<(), Fail> {
        let reads_error_log = matches!(opcode, Opcode::ReadLogExt | Opcode::ReadLogDmaExt)
            && log::of_lba(fis.lba).0 == log::address::NCQ_ERROR;
        let is_queued = is_queued(fis.command);
        let is_medium = is_queued || touches_medium(opcode);
        let refused = self.ncq_error.is_some() && !reads_error_log
            || is_medium && (self.security.is_locked() || self.sanitize.is_under_way)
            || is_queued && !self.queues()
            || is_48(opcode) && !self.has_lba48();
        if refused { Err(aborted()) } else { Ok(()) }
    }

    /// What becomes of a command.
    pub(super) fn decide(&self, fis: &H2d) -> Result<Work, Fail> {
        use Opcode as O;
        let opcode = Opcode::from_bits(fis.command);
        if self.is_packet() {
            return packet_work(opcode);
        }
        self.admit(opcode, fis)?;
        let lba = if is_48(opcode) { fis.lba } else { lba28(fis) };
        let extent = || self.extent(lba, sectors(fis.count, is_48(opcode)));
        match opcode {
            O::ReadFpdma | O::WriteFpdma => {
                if fis.device & device::LBA == 0 {
                    return Err(aborted());
                }
                let (offset, len) = self.extent(fis.lba, sectors(fis.features, true))?;
                let force = fis.device & device::FUA != 0;
                Ok(match opcode {
                    O::ReadFpdma => Work::Read { offset, len },
                    _ => Work::Write { offset, len, force },
                })
            }
            O::ReadDmaExt | O::ReadDma | O::ReadSectorsExt | O::ReadSectors => {
                extent().map(|(offset, len)| Work::Read { offset, len })
            }
            O::WriteDmaExt | O::WriteDma | O::WriteSectorsExt | O::WriteSectors => {
                extent().map(|(offset, len)| Work::Write { offset, len, force: false })
            }
            O::WriteDmaFuaExt => {
                extent().map(|(offset, len)| Work::Write { offset, len, force: true })
            }
            O::ReadVerify | O::ReadVerifyExt => {
                extent().map(|(offset, len)| Work::Verify { offset, len })
            }
            O::FlushExt if !self.has_lba48() => Err(aborted()),
            O::Flush | O::FlushExt | O::StandbyImmediate | O::Standby | O::Sleep => Ok(Work::Flush),
            O::SendFpdma if self.queues_trim() => Ok(Work::Control),
            O::DataSetManagement
            | O::Identify
            | O::Smart
            | O::SetFeatures
            | O::Sanitize
            | O::CheckPowerMode
            | O::Idle
            | O::IdleImmediate
            | O::Diagnostic
            | O::ReadNativeMax
            | O::SecuritySetPassword
            | O::SecurityUnlock
            | O::SecurityErasePrepare
            | O::SecurityEraseUnit
            | O::SecurityFreezeLock
            | O::SecurityDisablePassword
            | O::DownloadMicrocode => Ok(Work::Control),
            O::ReadLogExt
            | O::ReadLogDmaExt
            | O::ReadNativeMaxExt
            | O::SetMaxExt
            | O::MaxAddress
                if self.has_lba48() =>
            {
                Ok(Work::Control)
            }
            _ => Err(aborted()),
        }
    }
}

/// Whether a transfer has an address of 48 bits.
fn is_48(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::ReadDmaExt
            | O::WriteDmaExt
            | O::WriteDmaFuaExt
            | O::ReadSectorsExt
            | O::WriteSectorsExt
            | O::ReadVerifyExt
    )
}

fn touches_medium(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::ReadDma
            | O::ReadDmaExt
            | O::ReadSectors
            | O::ReadSectorsExt
            | O::ReadVerify
            | O::ReadVerifyExt
            | O::WriteDma
            | O::WriteDmaExt
            | O::WriteDmaFuaExt
            | O::WriteSectors
            | O::WriteSectorsExt
            | O::DataSetManagement
            | O::Flush
            | O::FlushExt
    )
}
