//! The calls of iommufd (`include/uapi/linux/iommufd.h`), and those of VFIO that connect a device's
//! own file with it.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use super::{Call, answer, ask, length, number};

/// Numbers of calls: `_IO(';', 0x80 + n)`.
const fn command(n: u32) -> u32 {
    (b';' as u32) << 8 | (0x80 + n)
}

const IOAS_ALLOC: u32 = command(1);
const IOAS_IOVA_RANGES: u32 = command(4);
const IOAS_MAP: u32 = command(5);
const IOAS_UNMAP: u32 = command(6);
const DEVICE_BIND_IOMMUFD: u32 = number(18);
const DEVICE_ATTACH_IOMMUFD_PT: u32 = number(19);

const MAP_FIXED_IOVA: u32 = 1;
const MAP_WRITEABLE: u32 = 1 << 1;
const MAP_READABLE: u32 = 1 << 2;

/// Maximum number of address ranges requested.
const RANGES_MAX: usize = 512;

/// `struct vfio_device_bind_iommufd` without the additions of newer kernels.
#[derive(Debug)]
#[repr(C)]
struct Bind {
    argsz: u32,
    flags: u32,
    iommufd: i32,
    out_devid: u32,
}

/// `struct vfio_device_attach_iommufd_pt`, likewise.
#[derive(Debug)]
#[repr(C)]
struct Attach {
    argsz: u32,
    flags: u32,
    pt_id: u32,
}

/// `struct iommu_ioas_alloc`.
#[derive(Debug)]
#[repr(C)]
struct Alloc {
    size: u32,
    flags: u32,
    out_ioas_id: u32,
}

/// `struct iommu_iova_range`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Range {
    start: u64,
    last: u64,
}

/// `struct iommu_ioas_iova_ranges`.
#[derive(Debug)]
#[repr(C)]
struct Ranges {
    size: u32,
    ioas_id: u32,
    num_iovas: u32,
    reserved: u32,
    allowed_iovas: u64,
    out_iova_alignment: u64,
}

/// `struct iommu_ioas_map`.
#[derive(Debug)]
#[repr(C)]
struct Map {
    size: u32,
    flags: u32,
    ioas_id: u32,
    reserved: u32,
    user_va: u64,
    length: u64,
    iova: u64,
}

/// `struct iommu_ioas_unmap`.
#[derive(Debug)]
#[repr(C)]
struct Unmap {
    size: u32,
    ioas_id: u32,
    iova: u64,
    length: u64,
}

impl Call for Bind {
    const NUMBER: u32 = DEVICE_BIND_IOMMUFD;
}
impl Call for Attach {
    const NUMBER: u32 = DEVICE_ATTACH_IOMMUFD_PT;
}
impl Call for Alloc {
    const NUMBER: u32 = IOAS_ALLOC;
}
impl Call for Unmap {
    const NUMBER: u32 = IOAS_UNMAP;
}

/// Binds the device to that iommufd; after that it can be queried.
pub(crate) fn bind(device: BorrowedFd<'_>, iommufd: BorrowedFd<'_>) -> io::Result<()> {
    let iommufd = iommufd.as_raw_fd();
    let mut bind = Bind { argsz: length::<Bind>(), flags: 0, iommufd, out_devid: 0 };
    ask(device, &mut bind).map(drop)
}

/// Attaches the device to that address space.
pub(crate) fn attach(device: BorrowedFd<'_>, space: u32) -> io::Result<()> {
    let mut attach = Attach { argsz: length::<Attach>(), flags: 0, pt_id: space };
    ask(device, &mut attach).map(drop)
}

/// A new address space.
pub(crate) fn new_space(iommufd: &OwnedFd) -> io::Result<u32> {
    let mut alloc = Alloc { size: length::<Alloc>(), flags: 0, out_ioas_id: 0 };
    ask(iommufd.as_fd(), &mut alloc)?;
    Ok(alloc.out_ioas_id)
}

/// Usable addresses, first and last, and their alignment.
pub(crate) fn ranges(iommufd: &OwnedFd, space: u32) -> io::Result<(Vec<(u64, u64)>, u64)> {
    let mut room = [Range::default(); RANGES_MAX];
    let mut call = Ranges {
        size: length::<Ranges>(),
        ioas_id: space,
        num_iovas: RANGES_MAX as u32,
        reserved: 0,
        allowed_iovas: room.as_mut_ptr().expose_provenance() as u64,
        out_iova_alignment: 0,
    };
    let argument: *mut Ranges = &mut call;
    // SAFETY: the structure is as long as its first word says, and the kernel writes at most as
    // many ranges as the structure says there is room for.
    answer(unsafe { libc::ioctl(iommufd.as_raw_fd(), IOAS_IOVA_RANGES as _, argument) })?;
    let count = (call.num_iovas as usize).min(RANGES_MAX);
    let ranges = room[..count].iter().map(|range| (range.start, range.last)).collect();
    Ok((ranges, call.out_iova_alignment))
}

/// Lets the devices of an address space read and write `length` bytes of this process's memory.
///
/// # Safety
/// The memory is mapped and used only as memory shared with devices.
pub(crate) unsafe fn map(
    iommufd: &OwnedFd,
    space: u32,
    address: *const u8,
    iova: u64,
    bytes: u64,
) -> io::Result<()> {
    let mut call = Map {
        size: length::<Map>(),
        flags: MAP_FIXED_IOVA | MAP_WRITEABLE | MAP_READABLE,
        ioas_id: space,
        reserved: 0,
        user_va: address.addr() as u64,
        length: bytes,
        iova,
    };
    let argument: *mut Map = &mut call;
    // SAFETY: the structure is as long as its first word says; the caller answers for the memory.
    answer(unsafe { libc::ioctl(iommufd.as_raw_fd(), IOAS_MAP as _, argument) }).map(drop)
}

pub(crate) fn unmap(iommufd: &OwnedFd, space: u32, iova: u64, bytes: u64) -> io::Result<()> {
    let size = length::<Unmap>();
    ask(iommufd.as_fd(), &mut Unmap { size, ioas_id: space, iova, length: bytes }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Numbers, lengths and offsets as a C compiler computes them from `iommufd.h` and `vfio.h` of
    /// Linux 6.12.
    #[test]
    fn numbers_and_lengths_are_those_of_the_kernel() {
        assert_eq!((IOAS_ALLOC, IOAS_IOVA_RANGES), (0x3B81, 0x3B84));
        assert_eq!((IOAS_MAP, IOAS_UNMAP), (0x3B85, 0x3B86));
        assert_eq!((DEVICE_BIND_IOMMUFD, DEVICE_ATTACH_IOMMUFD_PT), (0x3B76, 0x3B77));
        assert_eq!((length::<Bind>(), length::<Attach>(), length::<Alloc>()), (16, 12, 12));
        assert_eq!((length::<Range>(), length::<Ranges>()), (16, 32));
        assert_eq!((length::<Map>(), length::<Unmap>()), (40, 24));
        assert_eq!((offset_of!(Bind, iommufd), offset_of!(Attach, pt_id)), (8, 8));
        assert_eq!((offset_of!(Ranges, num_iovas), offset_of!(Ranges, allowed_iovas)), (8, 16));
        assert_eq!(offset_of!(Ranges, out_iova_alignment), 24);
        assert_eq!((offset_of!(Map, ioas_id), offset_of!(Map, user_va)), (8, 16));
        assert_eq!((offset_of!(Map, length), offset_of!(Map, iova)), (24, 32));
        assert_eq!((offset_of!(Unmap, iova), offset_of!(Unmap, length)), (8, 16));
    }

    /// A descriptor that is not an iommufd returns an error.
    #[test]
    fn other_files_refuse() {
        let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        assert!(new_space(&file).is_err() && ranges(&file, 0).is_err());
        assert!(bind(file.as_fd(), file.as_fd()).is_err() && attach(file.as_fd(), 1).is_err());
        assert!(unmap(&file, 1, 0, 4096).is_err());
    }
}
