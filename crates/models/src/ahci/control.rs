//! Commands without data on the medium: carried out when they are answered.

use alloc::vec::Vec;

use flysch_api::machine::GuestMemory;
use flysch_wire::ata::command::{feature, power, sanitize, sata_feature, send};
use flysch_wire::ata::{H2d, Opcode, SECTOR, dsm};

use super::clock::{Clock, Event};
use super::command::{aborted, fault};
use super::device::{Device, PowerMode, Sanitize};
use super::flow::{Good, is_pio};
use super::list::{Fail, Task};
use super::security::Words;
use super::transfer::{Failed, Parts, gather, give};
use crate::faults::Injector;

/// What a sanitize operation takes, nanoseconds: at least, and for each GiB.
const SANITIZE_NS: u64 = 500_000_000;
const SANITIZE_GIB_NS: u64 = 5_000_000;
/// A pass of an overwrite, nanoseconds for each GiB.
const OVERWRITE_GIB_NS: u64 = 2_000_000_000;
/// Most blocks of ranges of one trim.
const TRIM_BLOCKS: u16 = 8;

/// What a command gives besides registers.
pub(super) type Given = (Good, Vec<u8>);

impl Device {
    /// Carries out a command without data on the medium.
    pub(super) fn carry_out(
        &mut self,
        memory: &GuestMemory,
        task: &Task,
        clock: &mut Clock,
        faults: &mut Injector,
    ) -> Result<Good, Failed> {
        if self.is_packet() {
            return self.carry_out_packet(memory, task);
        }
        let opcode = Opcode::from_bits(task.fis.command);
        let mut sent = [0; TRIM_BLOCKS as usize * SECTOR];
        let bytes = sent_bytes(opcode, &task.fis).unwrap_or(0);
        let sent = sent.get_mut(..bytes).ok_or(aborted())?;
        gather(Parts::new(memory, task, bytes as u64), sent)?;
        let (mut good, data) = match opcode {
            Opcode::Sanitize => {
                let (of, now) = ((self.size, self.security.is_locked()), clock.nanos());
                if let Some(nanos) = self.sanitize.command(&task.fis, of, now)? {
                    let (seat, number) = (self.backend.seat, self.sanitize.number);
                    clock.after(nanos, Event::Sanitized { seat, number });
                }
                (self.sanitize.status(now), Vec::new())
            }
            _ => {
                let no_log = faults.is_active() && self.loses_log(&task.fis, faults, clock.now());
                self.control((opcode, &task.fis), sent, (no_log, clock.nanos()))?
            }
        };
        if !data.is_empty() {
            good.moved = give(memory, task, &data)?;
            good.pio = (is_pio(task.fis.command) || opcode == Opcode::Smart).then_some(512);
        } else {
            good.moved = bytes as u32;
        }
        Ok(good)
    }

    /// Carries out a command that takes `sent` from the host, at `now`; its log cannot be read if
    /// there is `no_log`.
    fn control(
        &mut self,
        (opcode, fis): (Opcode, &H2d),
        sent: &[u8],
        (no_log, now): (bool, u64),
    ) -> Result<Given, Fail> {
        let nothing = || Ok((Good::default(), Vec::new()));
        let when = |may: bool| if may { Ok((Good::default(), Vec::new())) } else { Err(aborted()) };
        let words = || Words::of(sent);
        let last = self.native_sectors() - 1;
        match opcode {
            Opcode::Identify => Ok((Good::default(), self.identify().to_bytes().to_vec())),
            Opcode::ReadLogExt | Opcode::ReadLogDmaExt if no_log => Err(aborted()),
            Opcode::ReadLogExt | Opcode::ReadLogDmaExt => {
                self.read_log(fis, now).map(|data| (Good::default(), data))
            }
            Opcode::SetFeatures => when(self.set_feature(fis)),
            Opcode::Smart => self.smart(fis, now),
            Opcode::DownloadMicrocode => self.download(fis, sent),
            Opcode::SetMaxExt => when(self.set_max(fis)),
            Opcode::MaxAddress => self.max_address(fis),
            Opcode::DataSetManagement => {
                self.trim(sent, fis.features & dsm::TRIM != 0).and_then(|()| nothing())
            }
            Opcode::SendFpdma => {
                let is_dsm = fis.count >> 8 & 0x1F == send::DATA_SET_MANAGEMENT >> 8;
                let trims = fis.auxiliary & send::TRIM != 0;
                when(is_dsm)?;
                self.trim(sent, trims).and_then(|()| nothing())
            }
            Opcode::CheckPowerMode => {
                let count = match self.power {
                    PowerMode::Standby | PowerMode::Sleep => power::STANDBY,
                    PowerMode::Idle => power::IDLE,
                    PowerMode::Active => power::ACTIVE,
                };
                Ok((Good { count, ..Good::default() }, Vec::new()))
            }
            Opcode::Idle | Opcode::IdleImmediate => {
                self.power = PowerMode::Idle;
                nothing()
            }
            Opcode::ReadNativeMaxExt => Ok((Good { lba: last, ..Good::default() }, Vec::new())),
            Opcode::ReadNativeMax => {
                let lba = last.min((1 << 28) - 1);
                Ok((Good { lba, ..Good::default() }, Vec::new()))
            }
            Opcode::Diagnostic => nothing(),
            Opcode::SecuritySetPassword => when(self.security.set_password(&words())),
            Opcode::SecurityUnlock => when(self.security.unlock(&words())),
            Opcode::SecurityDisablePassword => when(self.security.disable(&words())),
            Opcode::SecurityErasePrepare => when(self.security.prepare_erase()),
            Opcode::SecurityEraseUnit => {
                when(self.security.erase(&words()))?;
                self.erase([0; 4]);
                nothing()
            }
            Opcode::SecurityFreezeLock => when(self.security.freeze()),
            _ => Err(aborted()),
        }
    }

    /// The sanitize operation of this number ends.
    pub(super) fn sanitized(&mut self, number: u32) {
        if self.sanitize.is_under_way && self.sanitize.number == number {
            self.erase(self.sanitize.fill);
            (self.sanitize.is_under_way, self.sanitize.is_done) = (false, true);
        }
    }
}

/// Bytes that a command of this kind takes from the host.
fn sent_bytes(opcode: Opcode, fis: &H2d) -> Option<usize> {
    match opcode {
        Opcode::DataSetManagement => Some(usize::from(fis.count) * SECTOR),
        Opcode::DownloadMicrocode => Some(super::microcode::bytes(fis)),
        Opcode::SendFpdma => Some(usize::from(fis.features) * SECTOR),
        Opcode::SecuritySetPassword
        | Opcode::SecurityUnlock
        | Opcode::SecurityEraseUnit
        | Opcode::SecurityDisablePassword => Some(SECTOR),
        _ => None,
    }
}

impl Sanitize {
    /// Carries out SANITIZE DEVICE at `now`, on a device of so many bytes that is locked or not:
    /// how long an operation takes that it begins, nanoseconds.
    fn command(
        &mut self,
        fis: &H2d,
        (size, is_locked): (u64, bool),
        now: u64,
    ) -> Result<Option<u64>, Fail> {
        let may = !self.is_under_way && !self.is_frozen && !is_locked;
        // COUNT 3:0 passes, 0 is 16; COUNT 7: each pass writes what the one before did not.
        let passes = match fis.count & 0xF {
            0 => 16,
            count => u64::from(count),
        };
        let mut fill = [0; 4];
        let mut gib_ns = SANITIZE_GIB_NS;
        let begin = match (fis.features, fis.lba) {
            (sanitize::STATUS, _) => return Ok(None),
            (sanitize::FREEZE_LOCK, sanitize::FREEZE_LOCK_LBA) if !self.is_under_way => {
                self.is_frozen = true;
                return Ok(None);
            }
            (sanitize::CRYPTO, sanitize::CRYPTO_LBA)
            | (sanitize::BLOCK_ERASE, sanitize::BLOCK_ERASE_LBA) => may,
            (sanitize::OVERWRITE, lba) if lba >> 32 << 32 == sanitize::OVERWRITE_LBA => {
                let inverted = fis.count & sanitize::INVERT != 0 && passes.is_multiple_of(2);
                let pattern = if inverted { !lba as u32 } else { lba as u32 };
                (fill, gib_ns) = (pattern.to_le_bytes(), passes * OVERWRITE_GIB_NS);
                may
            }
            _ => false,
        };
        if !begin {
            return Err(aborted());
        }
        let nanos = SANITIZE_NS + (size >> 30) * gib_ns;
        *self = Self {
            is_under_way: true,
            number: self.number.wrapping_add(1),
            start: now,
            end: now + nanos,
            fill,
            ..Self::default()
        };
        Ok(Some(nanos))
    }

    /// The registers of its status (ACS 7.36.4).
    fn status(&self, now: u64) -> Good {
        let count = if self.is_done { sanitize::COMPLETED } else { 0 }
            | if self.is_under_way { sanitize::IN_PROGRESS } else { 0 }
            | if self.is_frozen { sanitize::FROZEN } else { 0 };
        let progress = match self.is_under_way {
            true => ((now - self.start) * 0x1_0000 / (self.end - self.start).max(1)).min(0xFFFE),
            false => 0xFFFF,
        };
        Good { lba: progress, count, ..Good::default() }
    }
}

impl Device {
    /// SET FEATURES; whether there is such a one.
    fn set_feature(&mut self, fis: &H2d) -> bool {
        match (fis.features & 0xFF, fis.count & 0xFF) {
            (feature::WRITE_CACHE, _) => self.write_cache = true,
            (feature::NO_WRITE_CACHE, _) => self.write_cache = false,
            (feature::LOOK_AHEAD, _) => self.look_ahead = true,
            (feature::NO_LOOK_AHEAD, _) => self.look_ahead = false,
            (feature::TRANSFER_MODE, mode) => {
                if let 0x40..=0x46 = mode {
                    self.udma = Some(mode as u8 & 7);
                }
                return matches!(mode, 0..=0xC | 0x20..=0x22 | 0x40..=0x46);
            }
            (feature::SATA, sata_feature::DIPM) => self.dipm = true,
            (feature::NO_SATA, sata_feature::DIPM) => self.dipm = false,
            (feature::SATA, sata_feature::DEVSLEEP) if self.can_sleep() => self.sleeps = true,
            (feature::NO_SATA, sata_feature::DEVSLEEP) if self.can_sleep() => self.sleeps = false,
            _ => return false,
        }
        true
    }

    /// Ranges read as zeros from now on, whatever happens. All are looked at before the first is.
    fn trim(&mut self, blocks: &[u8], trims: bool) -> Result<(), Fail> {
        if blocks.is_empty() || !trims {
            return Err(aborted());
        }
        let sectors = self.sectors();
        if dsm::ranges(blocks).any(|(lba, count)| lba > sectors || u64::from(count) > sectors - lba)
        {
            return Err(aborted());
        }
        for (lba, count) in dsm::ranges(blocks) {
            let (offset, len) = (lba << self.shift, u64::from(count) << self.shift);
            let discarded = self.store.discard(offset, len);
            self.cache.discarded(0, offset, len);
            discarded.map_err(|_| fault())?;
        }
        Ok(())
    }

    /// Everything is gone, and reads as this pattern.
    fn erase(&mut self, pattern: [u8; 4]) {
        self.cache.discarded(0, 0, self.size);
        // A store that fails tells when it is read.
        let _ = self.store.fill(self.size, pattern);
        self.backend.erase();
    }
}
