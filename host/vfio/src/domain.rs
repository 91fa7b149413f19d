//! The address translation of a device, whichever kernel interface is used: its group and a
//! container, or its own file and iommufd.

use std::os::fd::OwnedFd;

use crate::error::VfioError;
use crate::group::Group;
use crate::info::Iommu;
use crate::iommufd::Iommufd;
use crate::memory::Memory;
use crate::sysfs::{Function, Tree};

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Through its group if the kernel has groups and containers, otherwise through its own file.
    #[default]
    Auto,
    /// Through its group, in a container (`/dev/vfio/GROUP`, `/dev/vfio/vfio`).
    Group,
    /// Through its own file, with iommufd (`/dev/vfio/devices/vfioN`, `/dev/iommu`; Linux 6.6).
    Iommufd,
}

/// The address space of a device. Closing it ends all DMA.
#[derive(Debug)]
pub(crate) enum Domain {
    Group(Group),
    Iommufd(Iommufd),
}

impl Domain {
    /// Opens a ready function, and its address space, in which nothing is mapped yet.
    pub(crate) fn open(
        tree: &Tree,
        function: &Function,
        access: Access,
    ) -> Result<(Self, OwnedFd), VfioError> {
        let address = function.address;
        let own_file = tree.device_file(address);
        match (access, own_file) {
            (Access::Iommufd, None) => Err(VfioError::NoOwnFile { address }),
            (Access::Iommufd, Some(path)) => Self::by_own_file(tree, function, &path),
            (Access::Auto, Some(path)) if !tree.has_container(function) => {
                Self::by_own_file(tree, function, &path)
            }
            _ => {
                let group = Group::open(tree, function)?;
                let device = group.device()?;
                Ok((Self::Group(group), device))
            }
        }
    }

    fn by_own_file(
        tree: &Tree,
        function: &Function,
        path: &std::path::Path,
    ) -> Result<(Self, OwnedFd), VfioError> {
        let (iommufd, device) = Iommufd::open(tree, function, path)?;
        Ok((Self::Iommufd(iommufd), device))
    }

    pub(crate) fn access(&self) -> Access {
        match self {
            Self::Group(_) => Access::Group,
            Self::Iommufd(_) => Access::Iommufd,
        }
    }

    /// The addresses that can be translated.
    pub(crate) fn iommu(&self) -> &Iommu {
        match self {
            Self::Group(group) => group.iommu(),
            Self::Iommufd(iommufd) => iommufd.iommu(),
        }
    }

    /// Maps memory for the device at `iova`.
    pub(crate) fn map(&self, memory: &Memory, iova: u64) -> Result<(), VfioError> {
        match self {
            Self::Group(group) => group.map(memory, iova),
            Self::Iommufd(iommufd) => iommufd.map(memory, iova),
        }
    }

    /// Unmaps it.
    pub(crate) fn unmap(&self, iova: u64, bytes: u64) {
        match self {
            Self::Group(group) => group.unmap(iova, bytes),
            Self::Iommufd(iommufd) => iommufd.unmap(iova, bytes),
        }
    }
}
