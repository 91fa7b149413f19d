//! A container with one IOMMU group: devices are opened through it, and it translates their
//! addresses.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use crate::address::Address;
use crate::error::VfioError;
use crate::info::Iommu;
use crate::memory::{Memory, lock_limit};
use crate::sysfs::{Function, Tree};
use crate::uapi;

/// A group of functions used exclusively by this process. Closing it ends all their DMA.
#[derive(Debug)]
pub(crate) struct Group {
    address: Address,
    group: OwnedFd,
    container: OwnedFd,
    iommu: Iommu,
}

impl Group {
    /// Opens the group of a ready function.
    pub(crate) fn open(tree: &Tree, function: &Function) -> Result<Self, VfioError> {
        let address = function.address;
        let number = function.group.ok_or(VfioError::NoIommu { address })?;
        let container = container(tree, address)?;
        let path = tree.vfio(&number.to_string());
        let group = open_file(&path).map_err(|cause| match cause.kind() {
            io::ErrorKind::ResourceBusy => VfioError::Busy { address, pid: tree.holder(function) },
            _ => file_error(tree, &path, address, cause),
        })?;
        let status = uapi::group_status(group.as_fd())
            .map_err(VfioError::system(address, "asking for its group's status"))?;
        if status.flags & uapi::GROUP_VIABLE == 0 {
            let others = function.members.iter().map(ToString::to_string).collect();
            return Err(VfioError::Shared { address, group: number, others });
        }
        let iommu = attach(address, group.as_fd(), container.as_fd())?;
        Ok(Self { address, group, container, iommu })
    }

    /// Opens the function itself.
    pub(crate) fn device(&self) -> Result<OwnedFd, VfioError> {
        let name = CString::new(self.address.to_string()).expect("hexadecimal");
        let address = self.address;
        uapi::device(self.group.as_fd(), &name).map_err(|cause| match cause.kind() {
            io::ErrorKind::ResourceBusy => VfioError::Busy { address, pid: None },
            _ => VfioError::System { address, what: "opening the device", cause },
        })
    }

    /// The addresses that it can translate.
    pub(crate) fn iommu(&self) -> &Iommu {
        &self.iommu
    }

    /// Maps memory for the devices of the group at `iova`.
    pub(crate) fn map(&self, memory: &Memory, iova: u64) -> Result<(), VfioError> {
        let (base, bytes) = (memory.base().as_ptr(), memory.len() as u64);
        // SAFETY: the memory is mapped for as long as `Memory` lives, whose owner takes it from the
        // devices first, and is only used as memory that is shared with them.
        let mapped = unsafe { uapi::map_dma(self.container.as_fd(), base, iova, bytes) };
        mapped.map_err(map_error(self.address, bytes))
    }

    /// Unmaps it.
    pub(crate) fn unmap(&self, iova: u64, bytes: u64) {
        // If that fails, the end of the container does it.
        let _ = uapi::unmap_dma(self.container.as_fd(), iova, bytes);
    }
}

pub(crate) fn open_file(path: &Path) -> io::Result<OwnedFd> {
    OpenOptions::new().read(true).write(true).open(path).map(Into::into)
}

/// Why a file of the kernel could not be opened.
pub(crate) fn file_error(
    tree: &Tree,
    path: &Path,
    address: Address,
    cause: io::Error,
) -> VfioError {
    let path = path.to_path_buf();
    match cause.kind() {
        io::ErrorKind::NotFound => VfioError::NoVfio { path, has_iommufd: tree.has_iommufd() },
        io::ErrorKind::PermissionDenied => VfioError::Permission { path },
        _ => VfioError::System { address, what: "opening its files in /dev/vfio", cause },
    }
}

/// Why memory could not be mapped for a device.
pub(crate) fn map_error(address: Address, bytes: u64) -> impl FnOnce(io::Error) -> VfioError {
    move |cause| match cause.kind() {
        io::ErrorKind::OutOfMemory => VfioError::Pin { bytes, limit: lock_limit(), cause },
        _ => VfioError::System { address, what: "mapping its DMA memory", cause },
    }
}

/// A new container, if the kernel supports everything used here.
fn container(tree: &Tree, address: Address) -> Result<OwnedFd, VfioError> {
    let path = tree.vfio("vfio");
    let container = open_file(&path).map_err(|cause| file_error(tree, &path, address, cause))?;
    let version = uapi::api_version(container.as_fd()).map_err(|cause| VfioError::Unsupported {
        what: format!("does not report its version: {cause}"),
    })?;
    if version != uapi::API_VERSION {
        return Err(VfioError::Unsupported { what: format!("is of version {version}, not 0") });
    }
    Ok(container)
}

/// Adds the group to the container and queries the capabilities of its IOMMU.
fn attach(
    address: Address,
    group: std::os::fd::BorrowedFd<'_>,
    container: std::os::fd::BorrowedFd<'_>,
) -> Result<Iommu, VfioError> {
    uapi::set_container(group, container)
        .map_err(VfioError::system(address, "putting its group into a container"))?;
    let has = |model: u32| uapi::has_extension(container, model).unwrap_or(false);
    let model = [uapi::TYPE1_V2, uapi::TYPE1].into_iter().find(|model| has(*model));
    let model = model.ok_or_else(|| VfioError::Unsupported {
        what: "has no type 1 IOMMU; `modprobe vfio_iommu_type1` loads it".into(),
    })?;
    uapi::set_iommu(container, model).map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => VfioError::Interrupts { address },
        _ => VfioError::System { address, what: "switching its IOMMU to type 1", cause },
    })?;
    let answer = uapi::iommu_info(container)
        .map_err(VfioError::system(address, "asking what its IOMMU can do"))?;
    let iommu = Iommu::parse(&answer).ok_or_else(|| VfioError::Unsupported {
        what: "gives an invalid answer about the IOMMU".into(),
    })?;
    if iommu.maps_left == Some(0) {
        let what =
            "allows no more memory to be mapped (dma_entry_limit of vfio_iommu_type1)".into();
        return Err(VfioError::Unsupported { what });
    }
    Ok(iommu)
}
