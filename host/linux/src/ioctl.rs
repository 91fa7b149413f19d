//! The kernel's MTD calls (`include/uapi/mtd/mtd-abi.h`): numbers, structures, and the only
//! function that makes them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The letter of MTD's calls.
const LETTER: u32 = b'M' as u32;
const WRITE: u32 = 1;
const READ: u32 = 2;

/// The number of a call: direction, size of the structure, letter, number.
const fn number<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | LETTER << 8 | number
}

/// A structure that one MTD call reads or fills. Implemented only for the ones below, all of which
/// consist of integers: any bytes are valid.
pub(crate) trait Call: Default {
    /// The number of the call.
    const NUMBER: u32;
}

/// `struct mtd_info_user`: properties of a device.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Info {
    pub(crate) kind: u8,
    pub(crate) flags: u32,
    pub(crate) size: u32,
    pub(crate) erase_size: u32,
    pub(crate) write_size: u32,
    pub(crate) oob_size: u32,
    pub(crate) padding: u64,
}

/// `struct erase_info_user64`: a range to erase.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Erase {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// `struct mtd_oob_buf64`: read out-of-band bytes of the pages from `start` on.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ReadOob {
    pub(crate) start: u64,
    pub(crate) padding: u32,
    pub(crate) len: u32,
    pub(crate) buffer: u64,
}

/// `struct mtd_read_req`: read data and out-of-band bytes, with the number of corrected bits.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Read {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) oob_len: u64,
    pub(crate) data: u64,
    pub(crate) oob: u64,
    pub(crate) mode: u8,
    pub(crate) padding: [u8; 7],
    pub(crate) uncorrectable: u32,
    pub(crate) corrected: u32,
    pub(crate) worst: u32,
}

/// `struct mtd_write_req`: program data and out-of-band bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Write {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) oob_len: u64,
    pub(crate) data: u64,
    pub(crate) oob: u64,
    pub(crate) mode: u8,
    pub(crate) padding: [u8; 7],
}

/// `struct mtd_ecc_stats`: counters since the device was registered.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Counters {
    pub(crate) corrected: u32,
    pub(crate) failed: u32,
    pub(crate) bad_blocks: u32,
    pub(crate) table_blocks: u32,
}

/// `struct nand_ecclayout_user`: where the free out-of-band bytes are, for kernels that cannot
/// return them in order.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Layout {
    pub(crate) ecc_len: u32,
    pub(crate) ecc_places: [u32; 64],
    pub(crate) available: u32,
    /// Offset and length of each free stretch.
    pub(crate) free: [[u32; 2]; 8],
}

impl Default for Layout {
    fn default() -> Self {
        Self { ecc_len: 0, ecc_places: [0; 64], available: 0, free: [[0; 2]; 8] }
    }
}

/// `__kernel_loff_t`: is the block at this offset bad?
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct IsBad(pub(crate) i64);

/// `__kernel_loff_t`: mark the block at this offset bad.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct MarkBad(pub(crate) i64);

impl Call for Info {
    const NUMBER: u32 = number::<Self>(READ, 1);
}
impl Call for IsBad {
    const NUMBER: u32 = number::<Self>(WRITE, 11);
}
impl Call for MarkBad {
    const NUMBER: u32 = number::<Self>(WRITE, 12);
}
impl Call for Layout {
    const NUMBER: u32 = number::<Self>(READ, 17);
}
impl Call for Counters {
    const NUMBER: u32 = number::<Self>(READ, 18);
}
impl Call for Erase {
    const NUMBER: u32 = number::<Self>(WRITE, 20);
}
impl Call for ReadOob {
    const NUMBER: u32 = number::<Self>(READ | WRITE, 22);
}
impl Call for Write {
    const NUMBER: u32 = number::<Self>(READ | WRITE, 24);
}
impl Call for Read {
    const NUMBER: u32 = number::<Self>(READ | WRITE, 26);
}

/// Makes the call for `argument`; returns the kernel's result besides the structure.
///
/// # Safety
/// Addresses in `argument` must be zero or those of buffers with the lengths given beside them,
/// which nobody else uses until this returns.
unsafe fn call<T: Call>(file: &File, argument: &mut T) -> io::Result<i32> {
    let argument: *mut T = argument;
    loop {
        // SAFETY: the structure is of the size that is part of the call's number, and lives to the
        // end of the call; the caller answers for the buffers it names.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), T::NUMBER as _, argument) };
        if answer >= 0 {
            return Ok(answer);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Queries a structure that contains no addresses.
pub(crate) fn ask<T: Call + Plain>(file: &File, mut argument: T) -> io::Result<(i32, T)> {
    // SAFETY: `Plain` structures hold no addresses.
    let answer = unsafe { call(file, &mut argument) }?;
    Ok((answer, argument))
}

/// Structures without addresses.
pub(crate) trait Plain {}
impl Plain for Info {}
impl Plain for IsBad {}
impl Plain for MarkBad {}
impl Plain for Layout {}
impl Plain for Counters {}
impl Plain for Erase {}

fn address(buffer: &mut [u8]) -> u64 {
    if buffer.is_empty() { 0 } else { buffer.as_mut_ptr().addr() as u64 }
}

/// Reads data and out-of-band bytes of the pages from `start` on, `MTD_OPS_*` in `mode`. Bit errors
/// are not failures: the counters in the result contain them.
pub(crate) fn read(
    file: &File,
    start: u64,
    mode: u8,
    data: &mut [u8],
    oob: &mut [u8],
) -> io::Result<Read> {
    let mut request = Read {
        start,
        len: data.len() as u64,
        oob_len: oob.len() as u64,
        data: address(data),
        oob: address(oob),
        mode,
        ..Read::default()
    };
    // SAFETY: both buffers are borrowed mutably until the call returns, and as long as is said.
    let result = unsafe { call(file, &mut request) };
    // The kernel tells bit errors by an error number, and fills buffers and counters all the same.
    match result.map_err(|error| (error.raw_os_error(), error)) {
        Ok(_) => {}
        Err((Some(libc::EUCLEAN), _)) => request.corrected = request.corrected.max(1),
        Err((Some(libc::EBADMSG), _)) => request.uncorrectable = request.uncorrectable.max(1),
        Err((_, error)) => return Err(error),
    }
    Ok(request)
}

/// Reads raw out-of-band bytes of one page.
pub(crate) fn read_oob(file: &File, start: u64, oob: &mut [u8]) -> io::Result<()> {
    let len = u32::try_from(oob.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut request = ReadOob { start, padding: 0, len, buffer: address(oob) };
    // SAFETY: the buffer is borrowed mutably until the call returns, and as long as is said.
    unsafe { call(file, &mut request) }.map(drop)
}

/// Programs out-of-band bytes of one page, `MTD_OPS_*` in `mode`.
pub(crate) fn write_oob(file: &File, start: u64, mode: u8, oob: &[u8]) -> io::Result<()> {
    let mut request = Write {
        start,
        oob_len: oob.len() as u64,
        oob: oob.as_ptr().addr() as u64,
        mode,
        ..Write::default()
    };
    // SAFETY: the kernel only reads the buffer, which is borrowed until the call returns and as
    // long as is said.
    unsafe { call(file, &mut request) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers in `mtd-abi.h` on a 64-bit machine.
    #[test]
    fn numbers_are_those_of_the_kernel() {
        assert_eq!(Info::NUMBER, 0x8020_4D01);
        assert_eq!(IsBad::NUMBER, 0x4008_4D0B);
        assert_eq!(MarkBad::NUMBER, 0x4008_4D0C);
        assert_eq!(Layout::NUMBER, 0x8148_4D11);
        assert_eq!(Counters::NUMBER, 0x8010_4D12);
        assert_eq!(Erase::NUMBER, 0x4010_4D14);
        assert_eq!(ReadOob::NUMBER, 0xC018_4D16);
        assert_eq!(Write::NUMBER, 0xC030_4D18);
        assert_eq!(Read::NUMBER, 0xC040_4D1A);
    }

    #[test]
    fn a_file_that_is_no_device_refuses() {
        let file = tempfile::tempfile().unwrap();
        let error = ask(&file, Info::default()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
