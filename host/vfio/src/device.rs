//! An opened PCI function: its registers, its configuration space, its reset.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::address::Address;
use crate::error::VfioError;
use crate::info::Region;
use crate::uapi;

/// Longest register window that is accepted.
const WINDOW_MAX: u64 = 1 << 24;

/// The command register and its bits (PCI 3.0, 6.2.2).
const COMMAND: u64 = 0x04;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_NO_INTX: u16 = 1 << 10;

/// Slot information of an SD host controller, in the configuration space of the device.
const SLOT_INFORMATION: u64 = 0x40;

/// The function's own file, and what is accessed through it.
#[derive(Debug)]
pub(crate) struct Device {
    /// Mappings are dropped before the file.
    areas: Vec<Area>,
    window: Region,
    config: Region,
    resets: bool,
    file: File,
}

/// A mapped part of the register window.
#[derive(Debug)]
struct Area {
    start: u32,
    len: u32,
    base: NonNull<u8>,
}

impl Device {
    /// Finds and maps what the kernel offers of the function. `bar` determines the BAR of its
    /// registers from the slot information of an SD host controller.
    pub(crate) fn new(
        address: Address,
        device: OwnedFd,
        bar: impl FnOnce(u8) -> u32,
    ) -> Result<Self, VfioError> {
        let wrong = |what: &str| VfioError::Device { address, what: what.to_owned() };
        let info = uapi::device_info(device.as_fd())
            .map_err(VfioError::system(address, "asking what it is"))?;
        if info.flags & uapi::DEVICE_IS_PCI == 0 || info.regions <= uapi::REGION_CONFIG {
            return Err(wrong("VFIO does not show it as a PCI function"));
        }
        let file = File::from(device);
        let region = |index| {
            let answer = uapi::region_info(file.as_fd(), index)
                .map_err(VfioError::system(address, "asking for its regions"))?;
            Region::parse(&answer)
                .ok_or_else(|| wrong("VFIO gives an invalid answer about its regions"))
        };
        let config = region(uapi::REGION_CONFIG)?;
        if config.size <= SLOT_INFORMATION {
            return Err(wrong("VFIO does not show its configuration space"));
        }
        let mut slots = [0];
        file.read_exact_at(&mut slots, config.offset + SLOT_INFORMATION)
            .map_err(VfioError::system(address, "reading its configuration space"))?;
        let bar = bar(slots[0]);
        let window = if bar < uapi::BARS { region(bar)? } else { Region::default() };
        if window.size == 0 || window.size > WINDOW_MAX {
            let bytes = window.size;
            return Err(wrong(&format!(
                "BAR {bar} has {bytes} bytes, so it is not a register window"
            )));
        }
        let areas = window.areas.iter().filter_map(|&area| Area::map(&file, &window, area));
        let areas = areas.collect();
        let resets = info.flags & uapi::DEVICE_RESETS != 0;
        Ok(Self { areas, window, config, resets, file })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether all registers are accessible without system calls.
    pub(crate) fn is_mapped(&self) -> bool {
        self.areas.iter().map(|area| u64::from(area.len)).sum::<u64>() == self.window.size
    }

    /// Resets the function, if it can be reset separately.
    pub(crate) fn reset(&self) {
        if self.resets {
            // What does not stop by this either has nothing mapped.
            let _ = uapi::reset(self.file.as_fd());
        }
    }

    /// Enables its registers and, with `master`, its memory access; with `line` it may raise its
    /// interrupt line.
    pub(crate) fn set_command(&self, master: bool, line: bool) -> io::Result<()> {
        let mut bytes = [0; 2];
        let at = self.config.offset + COMMAND;
        self.file.read_exact_at(&mut bytes, at)?;
        let mut command = u16::from_le_bytes(bytes) | COMMAND_MEMORY;
        for (bit, is_on) in [(COMMAND_BUS_MASTER, master), (COMMAND_NO_INTX, !line)] {
            command = if is_on { command | bit } else { command & !bit };
        }
        self.file.write_all_at(&command.to_le_bytes(), at)
    }

    /// The address of `width` bytes at `offset`, if they are mapped.
    #[inline]
    fn mapped(&self, offset: u32, width: u32) -> Option<NonNull<u8>> {
        for area in &self.areas {
            let at = offset.wrapping_sub(area.start);
            if at < area.len && offset.is_multiple_of(width) {
                // SAFETY: the offset is inside the mapping; areas are whole words long and begin at
                // pages, so an aligned access that begins inside ends inside.
                return Some(unsafe { area.base.add(at as usize) });
            }
        }
        None
    }

    /// Their offset in the device's file, if they are in the window.
    fn place(&self, offset: u32, width: u32) -> Option<u64> {
        let inside = offset.is_multiple_of(width) && u64::from(offset) < self.window.size;
        inside.then(|| self.window.offset + u64::from(offset))
    }

    /// Reads through the kernel: all ones if that fails.
    #[cold]
    fn read_slowly<const WIDTH: usize>(&self, offset: u32) -> [u8; WIDTH] {
        let mut bytes = [0xFF; WIDTH];
        if let Some(at) = self.place(offset, WIDTH as u32)
            && self.file.read_exact_at(&mut bytes, at).is_err()
        {
            bytes = [0xFF; WIDTH];
        }
        bytes
    }

    /// Writes through the kernel. A failing write has no effect, as on a bus.
    #[cold]
    fn write_slowly(&self, offset: u32, bytes: &[u8]) {
        if let Some(at) = self.place(offset, bytes.len() as u32) {
            let _ = self.file.write_all_at(bytes, at);
        }
    }
}

/// Accesses of one width: one bus access each, after earlier stores, and before later loads. PCI is
/// little endian.
macro_rules! registers {
    ($($read:ident, $write:ident, $word:ty, $atomic:ty;)*) => {
        impl Device {
            $(
                #[inline]
                pub(crate) fn $read(&self, offset: u32) -> $word {
                    let value = match self.mapped(offset, size_of::<$word>() as u32) {
                        // SAFETY: the place is inside a mapping of the device's registers, aligned,
                        // and the mapping lives as long as `self`.
                        Some(at) => unsafe { <$atomic>::from_ptr(at.as_ptr().cast()) }
                            .load(Ordering::Relaxed),
                        None => <$word>::from_ne_bytes(self.read_slowly(offset)),
                    };
                    after_read();
                    <$word>::from_le(value)
                }

                #[inline]
                pub(crate) fn $write(&self, offset: u32, value: $word) {
                    before_write();
                    match self.mapped(offset, size_of::<$word>() as u32) {
                        // SAFETY: as for reading.
                        Some(at) => unsafe { <$atomic>::from_ptr(at.as_ptr().cast()) }
                            .store(value.to_le(), Ordering::Relaxed),
                        None => self.write_slowly(offset, &value.to_le_bytes()),
                    }
                }
            )*
        }
    };
}

registers! {
    read8, write8, u8, AtomicU8;
    read16, write16, u16, AtomicU16;
    read32, write32, u32, AtomicU32;
    read64, write64, u64, AtomicU64;
}

/// Earlier stores to memory are visible to the device when it sees the following write. On x86
/// stores stay in order, as registers are uncached; elsewhere observers other than processors need
/// a barrier that reaches them.
#[inline(always)]
fn before_write() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes nothing.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    std::sync::atomic::fence(Ordering::SeqCst);
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Later loads from memory see what the device stored before it answered the read.
#[inline(always)]
fn after_read() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes nothing.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    std::sync::atomic::fence(Ordering::SeqCst);
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

impl Area {
    /// Maps a part of the window; `None` leaves it to system calls.
    fn map(device: &File, window: &Region, (start, len): (u64, u64)) -> Option<Self> {
        let offset = window.offset.checked_add(start)?;
        if len == 0
            || !start.is_multiple_of(rustix::param::page_size() as u64)
            || !len.is_multiple_of(8)
        {
            return None;
        }
        let (start, len) = (u32::try_from(start).ok()?, u32::try_from(len).ok()?);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            rustix::mm::mmap(null, len as usize, protection, MapFlags::SHARED, device, offset)
        };
        Some(Self { start, len, base: NonNull::new(base.ok()?.cast())? })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and is unmapped once; every access borrows the
        // device that owns it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len as usize) };
    }
}

// SAFETY: the mapping belongs to the process, not to a thread; registers are accessed by single
// accesses of their width.
unsafe impl Send for Area {}
// SAFETY: as for `Send`.
unsafe impl Sync for Area {}
