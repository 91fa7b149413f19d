//! A device opened through its own file, and its iommufd address space.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use crate::address::Address;
use crate::error::VfioError;
use crate::group::{file_error, map_error, open_file};
use crate::info::Iommu;
use crate::memory::Memory;
use crate::sysfs::{Function, Tree};
use crate::uapi::iommufd as uapi;

/// The address space of one device. Closing it and the device ends all DMA.
#[derive(Debug)]
pub(crate) struct Iommufd {
    address: Address,
    iommufd: OwnedFd,
    space: u32,
    iommu: Iommu,
}

impl Iommufd {
    /// Opens the device at `path`, and gives it a new address space.
    pub(crate) fn open(
        tree: &Tree,
        function: &Function,
        path: &Path,
    ) -> Result<(Self, OwnedFd), VfioError> {
        let address = function.address;
        let open =
            |path: &Path| open_file(path).map_err(|cause| file_error(tree, path, address, cause));
        let iommufd = open(&tree.iommufd())?;
        let device = open(path)?;
        if let Err(cause) = uapi::bind(device.as_fd(), iommufd.as_fd()) {
            // What this process has of it is not who is in the way.
            drop(device);
            return Err(bind_error(tree, function, cause));
        }
        let failed = |what| VfioError::system(address, what);
        let space = uapi::new_space(&iommufd).map_err(failed("making an address space"))?;
        uapi::attach(device.as_fd(), space).map_err(failed("attaching it to an address space"))?;
        // After attaching: the device's own limits are in them.
        let (ranges, alignment) =
            uapi::ranges(&iommufd, space).map_err(failed("asking which addresses it can use"))?;
        let iommu = Iommu { page_sizes: alignment, ranges, maps_left: None };
        Ok((Self { address, iommufd, space, iommu }, device))
    }

    pub(crate) fn iommu(&self) -> &Iommu {
        &self.iommu
    }

    pub(crate) fn map(&self, memory: &Memory, iova: u64) -> Result<(), VfioError> {
        let (base, bytes) = (memory.base().as_ptr(), memory.len() as u64);
        // SAFETY: the memory is mapped for as long as `Memory` lives, whose owner takes it from the
        // device first, and is only used as memory that is shared with it.
        let mapped = unsafe { uapi::map(&self.iommufd, self.space, base, iova, bytes) };
        mapped.map_err(map_error(self.address, bytes))
    }

    pub(crate) fn unmap(&self, iova: u64, bytes: u64) {
        // If that fails, the end of the iommufd does it.
        let _ = uapi::unmap(&self.iommufd, self.space, iova, bytes);
    }
}

/// Why the device could not be bound to the iommufd.
fn bind_error(tree: &Tree, function: &Function, cause: io::Error) -> VfioError {
    let address = function.address;
    match (cause.kind(), tree.holder(function)) {
        (io::ErrorKind::PermissionDenied, _) => VfioError::Interrupts { address },
        // Held by its group, and opened twice: the kernel has a code for each.
        (io::ErrorKind::ResourceBusy, pid) | (io::ErrorKind::InvalidInput, pid @ Some(_)) => {
            VfioError::Busy { address, pid }
        }
        (io::ErrorKind::InvalidInput, None) => {
            let what = "binding it to an iommufd, unless another program has it";
            VfioError::System { address, what, cause }
        }
        _ => VfioError::System { address, what: "binding it to an iommufd", cause },
    }
}
