//! One device: [`Flash`] and [`FlashMut`] over the kernel's calls.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};

use crate::facts::{EccCounters, Facts, is_mtd};
use crate::ioctl::{self, Counters, Erase, IsBad, Layout, MarkBad};

/// `MTD_OPS_PLACE_OOB` and `MTD_OPS_AUTO_OOB`.
const PLACE: u8 = 0;
const AUTO: u8 = 1;

/// How often an uncorrectable read is retried: cells near a threshold read differently each time,
/// and Linux's UBI retries as often.
const RETRIES: u32 = 3;

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reading.
    Read,
    /// Programming and erasing too.
    Write,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is not an MTD character device.
    #[error("is no MTD character device (such as /dev/mtd0)")]
    NotMtd,
    /// The operating system refused.
    #[error("cannot be opened: {0}")]
    Os(#[from] io::Error),
    /// It has erase blocks of several sizes.
    #[error("has {0} regions with erase blocks of different sizes, which is not supported")]
    EraseRegions(u32),
    /// It is to be written but cannot be.
    #[error("is write protected")]
    WriteProtected,
}

/// An MTD character device.
#[derive(Debug)]
pub struct MtdDevice {
    file: File,
    facts: Facts,
    access: Access,
    /// Whether the kernel supports `MEMREAD` for this device; determined by trying.
    has_read_call: AtomicBool,
}

impl MtdDevice {
    /// Opens the device file at `path`.
    ///
    /// # Errors
    /// It is not such a device, cannot be opened as requested, or has a geometry that
    /// [`FlashGeometry`] cannot represent.
    pub fn open(path: &Path, access: Access) -> Result<Self, OpenError> {
        // Looked at first: opening other devices can have effects.
        std::fs::metadata(path)?;
        if !is_mtd(path) {
            return Err(OpenError::NotMtd);
        }
        let write = access == Access::Write;
        let file = OpenOptions::new().read(true).write(write).open(path)?;
        let facts = Facts::read(&file)?;
        if facts.erase_regions > 1 {
            return Err(OpenError::EraseRegions(facts.erase_regions));
        }
        if write && !facts.writeable {
            return Err(OpenError::WriteProtected);
        }
        let has_read_call = AtomicBool::new(facts.geometry.kind.is_nand());
        Ok(Self { file, facts, access, has_read_call })
    }

    /// The kernel's information about the device.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The counts of the kernel's error correction so far.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn counters(&self) -> io::Result<EccCounters> {
        let (_, counters) = ioctl::ask(&self.file, Counters::default())?;
        let Counters { corrected, failed, bad_blocks, table_blocks } = counters;
        Ok(EccCounters { corrected, failed, bad_blocks, table_blocks })
    }

    fn read_once(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.read_by_call(offset, buffer).unwrap_or_else(|| self.read_plainly(offset, buffer))
    }

    /// Reads with `MEMREAD`; `None` if the kernel does not support it.
    fn read_by_call(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<Result<Corrected, FlashError>> {
        if !self.has_read_call.load(Ordering::Relaxed) {
            return None;
        }
        match ioctl::read(&self.file, offset, PLACE, buffer, &mut []) {
            Ok(done) if done.uncorrectable > 0 => Some(Err(FlashError::Uncorrectable {
                offset: self.first_bad_page(offset, buffer.len()),
            })),
            Ok(done) => Some(Ok(Corrected { bits: done.corrected, worst_step: done.worst })),
            Err(error) if is_unknown(&error) => {
                self.has_read_call.store(false, Ordering::Relaxed);
                None
            }
            Err(error) => Some(Err(os(&error))),
        }
    }

    /// The first uncorrectable page of a range, found by reading page by page.
    fn first_bad_page(&self, offset: u64, len: usize) -> u64 {
        let page = u64::from(self.facts.geometry.write_size);
        let mut buffer = vec![0; page as usize];
        let mut at = offset - offset % page;
        while at < offset + len as u64 {
            let done = ioctl::read(&self.file, at, PLACE, &mut buffer, &mut []);
            if done.is_ok_and(|done| done.uncorrectable > 0) {
                return at.max(offset);
            }
            at += page;
        }
        offset
    }

    /// Reads plainly. The kernel returns uncorrectable data; its counters reveal that, but include
    /// those of others who read at the same time.
    fn read_plainly(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let before = self.counters().unwrap_or_default();
        self.file.read_exact_at(buffer, offset).map_err(|error| os(&error))?;
        let after = self.counters().unwrap_or_default();
        if after.failed != before.failed {
            return Err(FlashError::Uncorrectable { offset });
        }
        let bits = after.corrected.wrapping_sub(before.corrected);
        // How they spread over the steps is not told: the worst is assumed.
        Ok(Corrected { bits, worst_step: bits.min(self.facts.geometry.ecc_strength) })
    }

    fn check_page(&self, offset: u64) -> Result<(), FlashError> {
        let geometry = &self.facts.geometry;
        geometry.check(offset, 1)?;
        if geometry.oob_size == 0 {
            return Err(FlashError::Unsupported);
        }
        if !offset.is_multiple_of(u64::from(geometry.write_size)) {
            return Err(FlashError::Misaligned);
        }
        Ok(())
    }

    fn check_oob(&self, offset: u64, mode: OobMode, len: usize) -> Result<u8, FlashError> {
        self.check_page(offset)?;
        let geometry = &self.facts.geometry;
        let (mode, available) = match mode {
            OobMode::Place => (PLACE, geometry.oob_size),
            OobMode::Auto => (AUTO, geometry.oob_available),
        };
        if len > available as usize { Err(FlashError::OutOfRange) } else { Ok(mode) }
    }

    /// Out-of-band bytes, with the calls of old kernels.
    fn read_oob_plainly(&self, offset: u64, mode: u8, buffer: &mut [u8]) -> Result<(), FlashError> {
        if mode == PLACE {
            return ioctl::read_oob(&self.file, offset, buffer).map_err(|error| os(&error));
        }
        let mut oob = vec![0; self.facts.geometry.oob_size as usize];
        ioctl::read_oob(&self.file, offset, &mut oob).map_err(|error| os(&error))?;
        let (_, layout) = ioctl::ask(&self.file, Layout::default()).map_err(|error| os(&error))?;
        let free = layout.free.iter().flat_map(|&[at, len]| at..at.saturating_add(len));
        let places = free.filter_map(|at| oob.get(at as usize));
        buffer.iter_mut().zip(places).for_each(|(byte, place)| *byte = *place);
        Ok(())
    }

    fn check_writing(&self) -> Result<(), FlashError> {
        if self.access == Access::Write { Ok(()) } else { Err(FlashError::WriteProtected) }
    }

    fn offset_of(&self, block: u32) -> Result<i64, FlashError> {
        self.facts.geometry.check_block(block)?;
        i64::try_from(self.facts.geometry.block_start(block)).map_err(|_| FlashError::OutOfRange)
    }
}

fn os(error: &io::Error) -> FlashError {
    FlashError::Os(error.raw_os_error().unwrap_or(0))
}

/// Whether the kernel, or this device's driver, does not support a call.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS))
}

/// The meaning of a failed change: `failed` if the chip reported it.
fn change_failed(error: &io::Error, failed: FlashError) -> FlashError {
    match error.raw_os_error() {
        Some(libc::EIO) => failed,
        Some(libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF) => FlashError::WriteProtected,
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => FlashError::Unsupported,
        _ => os(error),
    }
}

impl Flash for MtdDevice {
    fn geometry(&self) -> &FlashGeometry {
        &self.facts.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.facts.geometry.check(offset, buffer.len())?;
        if buffer.is_empty() {
            return Ok(Corrected::NONE);
        }
        let mut outcome = self.read_once(offset, buffer);
        for _ in 0..RETRIES {
            if !matches!(outcome, Err(FlashError::Uncorrectable { .. })) {
                break;
            }
            outcome = self.read_once(offset, buffer);
        }
        outcome
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        let mode = self.check_oob(offset, mode, buffer.len())?;
        if buffer.is_empty() {
            return Ok(Corrected::NONE);
        }
        if self.has_read_call.load(Ordering::Relaxed) {
            match ioctl::read(&self.file, offset, mode, &mut [], buffer) {
                Ok(_) => return Ok(Corrected::NONE),
                Err(error) if is_unknown(&error) => {
                    self.has_read_call.store(false, Ordering::Relaxed);
                }
                Err(error) => return Err(os(&error)),
            }
        }
        self.read_oob_plainly(offset, mode, buffer).map(|()| Corrected::NONE)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        let offset = self.offset_of(block)?;
        match ioctl::ask(&self.file, IsBad(offset)) {
            Ok((answer, _)) => Ok(answer != 0),
            Err(error) if is_unknown(&error) => Ok(false),
            Err(error) => Err(os(&error)),
        }
    }
}

impl FlashMut for MtdDevice {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.check_writing()?;
        let geometry = &self.facts.geometry;
        geometry.check(offset, data.len())?;
        let unit = u64::from(geometry.sub_page_size);
        if !offset.is_multiple_of(unit) || !(data.len() as u64).is_multiple_of(unit) {
            return Err(FlashError::Misaligned);
        }
        self.file
            .write_all_at(data, offset)
            .map_err(|error| change_failed(&error, FlashError::ProgramFailed { offset }))
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.check_writing()?;
        let mode = self.check_oob(offset, mode, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        ioctl::write_oob(&self.file, offset, mode, data)
            .map_err(|error| change_failed(&error, FlashError::ProgramFailed { offset }))
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.check_writing()?;
        if self.is_bad(block)? {
            return Err(FlashError::BadBlock { block });
        }
        if !self.facts.needs_erase {
            // RAM: nothing clears it but writing.
            let erased = vec![0xFF; self.facts.geometry.block_len(block) as usize];
            return self.program(self.facts.geometry.block_start(block), &erased);
        }
        let start = self.facts.geometry.block_start(block);
        let len = u64::from(self.facts.geometry.block_len(block));
        ioctl::ask(&self.file, Erase { start, len })
            .map(drop)
            .map_err(|error| change_failed(&error, FlashError::EraseFailed { block }))
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.check_writing()?;
        let offset = self.offset_of(block)?;
        if !self.facts.geometry.kind.is_nand() {
            return Err(FlashError::Unsupported);
        }
        ioctl::ask(&self.file, MarkBad(offset))
            .map(drop)
            .map_err(|error| change_failed(&error, FlashError::EraseFailed { block }))
    }
}
