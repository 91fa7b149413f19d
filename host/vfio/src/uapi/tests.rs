use super::*;

/// Numbers and lengths in `vfio.h`.
#[test]
fn numbers_and_lengths_are_those_of_the_kernel() {
    assert_eq!((GET_API_VERSION, IOMMU_UNMAP_DMA), (0x3B64, 0x3B72));
    assert_eq!((GROUP_GET_DEVICE_FD, DEVICE_SET_IRQS), (0x3B6A, 0x3B6E));
    assert_eq!(length::<GroupStatus>(), 8);
    assert_eq!(length::<DeviceInfo>(), 24);
    assert_eq!(length::<IrqInfo>(), 16);
    assert_eq!(length::<MapDma>(), 32);
    assert_eq!(length::<UnmapDma>(), 24);
    assert_eq!(irqs(0, 0, 0).argsz, 20);
    assert_eq!(core::mem::offset_of!(SetIrqs, data), 20);
    assert_eq!(core::mem::offset_of!(MapDma, iova), 16);
    assert_eq!(irqs(0, 0, 1000).count as usize, VECTORS_MAX);
}

/// A descriptor that is not VFIO's returns an error, and no call goes astray.
#[test]
fn other_files_refuse() {
    use std::os::fd::AsFd as _;
    let file = std::fs::File::open("/dev/null").unwrap();
    let fd = file.as_fd();
    assert!(api_version(fd).is_err() && has_extension(fd, TYPE1).is_err());
    assert!(group_status(fd).is_err() && device(fd, c"0000:00:00.0").is_err());
    assert!(device_info(fd).is_err() && region_info(fd, 0).is_err());
    assert!(set_eventfds(fd, IRQ_MSIX, &[]).is_err() && iommu_info(fd).is_err());
}
