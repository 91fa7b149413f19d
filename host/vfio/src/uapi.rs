//! The kernel's VFIO calls (`include/uapi/linux/vfio.h`): numbers, structures, and the functions
//! that make them. Each structure is declared once; answers longer than a structure are parsed by
//! [`info`](crate::info).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) mod iommufd;

/// The interface version supported by all kernels (`VFIO_API_VERSION`).
pub(crate) const API_VERSION: i32 = 0;

/// Numbers of calls: `_IO(';', 100 + n)`, without direction or size.
const fn number(n: u32) -> u32 {
    (b';' as u32) << 8 | (100 + n)
}

const GET_API_VERSION: u32 = number(0);
const CHECK_EXTENSION: u32 = number(1);
const SET_IOMMU: u32 = number(2);
const GROUP_GET_STATUS: u32 = number(3);
const GROUP_SET_CONTAINER: u32 = number(4);
const GROUP_GET_DEVICE_FD: u32 = number(6);
const DEVICE_GET_INFO: u32 = number(7);
const DEVICE_GET_REGION_INFO: u32 = number(8);
const DEVICE_GET_IRQ_INFO: u32 = number(9);
const DEVICE_SET_IRQS: u32 = number(10);
const DEVICE_RESET: u32 = number(11);
const IOMMU_GET_INFO: u32 = number(12);
const IOMMU_MAP_DMA: u32 = number(13);
const IOMMU_UNMAP_DMA: u32 = number(14);

/// IOMMU models of a container (`VFIO_TYPE1_IOMMU`, `VFIO_TYPE1v2_IOMMU`).
pub(crate) const TYPE1: u32 = 1;
pub(crate) const TYPE1_V2: u32 = 3;

/// Regions of a PCI function: this many BARs, then its ROM, then its configuration space.
pub(crate) const BARS: u32 = 6;
pub(crate) const REGION_CONFIG: u32 = 7;

/// Interrupts of a PCI function: the line, MSI, MSI-X.
pub(crate) const IRQ_INTX: u32 = 0;
pub(crate) const IRQ_MSI: u32 = 1;
pub(crate) const IRQ_MSIX: u32 = 2;

/// Flags of [`DeviceInfo`]: it can be reset; it is a PCI function.
pub(crate) const DEVICE_RESETS: u32 = 1;
pub(crate) const DEVICE_IS_PCI: u32 = 2;

/// Flag of [`GroupStatus`]: every function of the group is bound to VFIO or to no driver.
pub(crate) const GROUP_VIABLE: u32 = 1;

/// Flag of [`IrqInfo`]: signals an eventfd.
pub(crate) const IRQ_EVENTFD: u32 = 1;

const SET_DATA_NONE: u32 = 1;
const SET_DATA_EVENTFD: u32 = 1 << 2;
const SET_ACTION_UNMASK: u32 = 1 << 4;
const SET_ACTION_TRIGGER: u32 = 1 << 5;

const DMA_READ: u32 = 1;
const DMA_WRITE: u32 = 2;

/// Maximum number of vectors set by one [`SetIrqs`].
pub(crate) const VECTORS_MAX: usize = 32;

/// A structure of integers that a call reads and fills; its first word is its length.
trait Call {
    const NUMBER: u32;
}

/// `struct vfio_group_status`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct GroupStatus {
    argsz: u32,
    pub(crate) flags: u32,
}

/// `struct vfio_device_info`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    argsz: u32,
    pub(crate) flags: u32,
    pub(crate) regions: u32,
    pub(crate) irqs: u32,
    cap_offset: u32,
    padding: u32,
}

/// `struct vfio_irq_info`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IrqInfo {
    argsz: u32,
    pub(crate) flags: u32,
    index: u32,
    pub(crate) count: u32,
}

/// `struct vfio_irq_set` with the maximum number of eventfds used here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct SetIrqs {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    data: [i32; VECTORS_MAX],
}

/// `struct vfio_iommu_type1_dma_map`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct MapDma {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

/// `struct vfio_iommu_type1_dma_unmap`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct UnmapDma {
    argsz: u32,
    flags: u32,
    iova: u64,
    size: u64,
}

/// Buffer for an answer that contains capabilities: `struct vfio_region_info` and `struct
/// vfio_iommu_type1_info`.
#[repr(C, align(8))]
struct Room([u8; ROOM]);

/// The maximum length of an answer: some hundred ranges.
const ROOM: usize = 4096;

impl Call for GroupStatus {
    const NUMBER: u32 = GROUP_GET_STATUS;
}
impl Call for DeviceInfo {
    const NUMBER: u32 = DEVICE_GET_INFO;
}
impl Call for IrqInfo {
    const NUMBER: u32 = DEVICE_GET_IRQ_INFO;
}
impl Call for SetIrqs {
    const NUMBER: u32 = DEVICE_SET_IRQS;
}
impl Call for UnmapDma {
    const NUMBER: u32 = IOMMU_UNMAP_DMA;
}

const fn length<T>() -> u32 {
    size_of::<T>() as u32
}

/// Makes a call whose argument is a number.
fn plain(fd: BorrowedFd<'_>, number: u32, argument: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: the calls made with this take a number, or nothing, and no address.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), number as _, argument) })
}

/// Makes a call whose argument is a structure.
fn ask<T: Call>(fd: BorrowedFd<'_>, argument: &mut T) -> io::Result<i32> {
    let argument: *mut T = argument;
    // SAFETY: the kernel reads and writes as many bytes as the structure's first word says, which
    // is its own length, and it holds no addresses that the kernel follows now.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), T::NUMBER as _, argument) })
}

/// Makes a call that answers with a structure and capabilities; `words` is the structure from its
/// second word on.
fn ask_long(fd: BorrowedFd<'_>, number: u32, words: [u32; 2]) -> io::Result<Vec<u8>> {
    let mut room = Room([0; ROOM]);
    let head = [ROOM as u32, words[0], words[1]];
    for (at, word) in head.into_iter().enumerate() {
        room.0[4 * at..4 * at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let argument: *mut Room = &mut room;
    // SAFETY: the kernel writes at most as many bytes as the first word says, which is the room's
    // length.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), number as _, argument) })?;
    Ok(room.0.to_vec())
}

fn answer(value: i32) -> io::Result<i32> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// A descriptor returned by a call.
fn descriptor(value: i32) -> OwnedFd {
    // SAFETY: the kernel made the descriptor for this call, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(value) }
}

pub(crate) fn api_version(container: BorrowedFd<'_>) -> io::Result<i32> {
    plain(container, GET_API_VERSION, 0)
}

pub(crate) fn has_extension(container: BorrowedFd<'_>, extension: u32) -> io::Result<bool> {
    plain(container, CHECK_EXTENSION, extension.into()).map(|answer| answer > 0)
}

pub(crate) fn set_iommu(container: BorrowedFd<'_>, model: u32) -> io::Result<()> {
    plain(container, SET_IOMMU, model.into()).map(drop)
}

pub(crate) fn group_status(group: BorrowedFd<'_>) -> io::Result<GroupStatus> {
    let mut status = GroupStatus { argsz: length::<GroupStatus>(), flags: 0 };
    ask(group, &mut status)?;
    Ok(status)
}

pub(crate) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let number: libc::c_int = container.as_raw_fd();
    let argument: *const libc::c_int = &raw const number;
    // SAFETY: the kernel reads one int.
    answer(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_SET_CONTAINER as _, argument) }).map(drop)
}

/// The function of that name (`0000:00:12.5`).
pub(crate) fn device(group: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads a text that ends with a zero byte.
    let value = unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD as _, name.as_ptr()) };
    answer(value).map(descriptor)
}

pub(crate) fn device_info(device: BorrowedFd<'_>) -> io::Result<DeviceInfo> {
    let mut info = DeviceInfo {
        argsz: length::<DeviceInfo>(),
        flags: 0,
        regions: 0,
        irqs: 0,
        cap_offset: 0,
        padding: 0,
    };
    ask(device, &mut info)?;
    Ok(info)
}

/// `struct vfio_region_info` and its capabilities, as bytes.
pub(crate) fn region_info(device: BorrowedFd<'_>, index: u32) -> io::Result<Vec<u8>> {
    ask_long(device, DEVICE_GET_REGION_INFO, [0, index])
}

pub(crate) fn irq_info(device: BorrowedFd<'_>, index: u32) -> io::Result<IrqInfo> {
    let mut info = IrqInfo { argsz: length::<IrqInfo>(), flags: 0, index, count: 0 };
    ask(device, &mut info)?;
    Ok(info)
}

pub(crate) fn reset(device: BorrowedFd<'_>) -> io::Result<()> {
    plain(device, DEVICE_RESET, 0).map(drop)
}

/// Makes the interrupts of `index`, from the first one on, signal these eventfds, at most
/// [`VECTORS_MAX`]; further ones of the index are disabled. Returns the possible number if it is
/// not this one; nothing has changed then. 0 is success.
pub(crate) fn set_eventfds(
    device: BorrowedFd<'_>,
    index: u32,
    events: &[OwnedFd],
) -> io::Result<usize> {
    let mut set = irqs(SET_DATA_EVENTFD | SET_ACTION_TRIGGER, index, events.len());
    for (place, event) in set.data.iter_mut().zip(events) {
        *place = event.as_raw_fd();
    }
    set.argsz += 4 * set.count;
    ask(device, &mut set).map(|fewer| fewer as usize)
}

/// Disables all interrupts of `index`.
pub(crate) fn clear_eventfds(device: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    ask(device, &mut irqs(SET_DATA_NONE | SET_ACTION_TRIGGER, index, 0)).map(drop)
}

/// Unmasks the line, which VFIO masks at each interrupt.
pub(crate) fn unmask_line(device: BorrowedFd<'_>) -> io::Result<()> {
    ask(device, &mut irqs(SET_DATA_NONE | SET_ACTION_UNMASK, IRQ_INTX, 1)).map(drop)
}

/// Without data: 20 bytes.
fn irqs(flags: u32, index: u32, count: usize) -> SetIrqs {
    let argsz = length::<SetIrqs>() - length::<[i32; VECTORS_MAX]>();
    let count = count.min(VECTORS_MAX) as u32;
    SetIrqs { argsz, flags, index, start: 0, count, data: [-1; VECTORS_MAX] }
}

/// `struct vfio_iommu_type1_info` and its capabilities, as bytes.
pub(crate) fn iommu_info(container: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    ask_long(container, IOMMU_GET_INFO, [0, 0])
}

/// Lets the devices of a container read and write `size` bytes of this process's memory.
///
/// # Safety
/// The memory is mapped and used only as memory shared with devices.
pub(crate) unsafe fn map_dma(
    container: BorrowedFd<'_>,
    vaddr: *const u8,
    iova: u64,
    size: u64,
) -> io::Result<()> {
    let flags = DMA_READ | DMA_WRITE;
    let vaddr = vaddr.addr() as u64;
    let mut map = MapDma { argsz: length::<MapDma>(), flags, vaddr, iova, size };
    let argument: *mut MapDma = &mut map;
    // SAFETY: the structure is as long as its first word says; the caller answers for the memory.
    answer(unsafe { libc::ioctl(container.as_raw_fd(), IOMMU_MAP_DMA as _, argument) }).map(drop)
}

pub(crate) fn unmap_dma(container: BorrowedFd<'_>, iova: u64, size: u64) -> io::Result<()> {
    ask(container, &mut UnmapDma { argsz: length::<UnmapDma>(), flags: 0, iova, size }).map(drop)
}

#[cfg(test)]
mod tests;
