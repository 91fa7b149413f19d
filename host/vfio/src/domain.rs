//! What stands between a device and memory, whichever way the kernel is asked for it: by its group
//! and a container, or by its own file and iommufd.

use std::os::fd::OwnedFd;

use crate::error::Error;
use crate::group::Group;
use crate::info::Iommu;
use crate::iommufd::Iommufd;
use crate::memory::Memory;
use crate::sysfs::{Function, Tree};

/// The way a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// By its group where the kernel has groups and containers, else by its own file.
    #[default]
    Auto,
    /// By its group, in a container (`/dev/vfio/GROUP`, `/dev/vfio/vfio`).
    Group,
    /// By its own file, with iommufd (`/dev/vfio/devices/vfioN`, `/dev/iommu`; Linux 6.6).
    Iommufd,
}

/// The addresses a device sees. Closing it ends all DMA.
#[derive(Debug)]
pub(crate) enum Domain {
    Group(Group),
    Iommufd(Iommufd),
}

impl Domain {
    /// Opens a function that is ready, and its addresses, where nothing is mapped yet.
    pub(crate) fn open(
        tree: &Tree,
        function: &Function,
        access: Access,
    ) -> Result<(Self, OwnedFd), Error> {
        let address = function.address;
        let own_file = tree.device_file(address);
        match (access, own_file) {
            (Access::Iommufd, None) => Err(Error::NoOwnFile { address }),
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
    ) -> Result<(Self, OwnedFd), Error> {
        let (iommufd, device) = Iommufd::open(tree, function, path)?;
        Ok((Self::Iommufd(iommufd), device))
    }

    pub(crate) fn access(&self) -> Access {
        match self {
            Self::Group(_) => Access::Group,
            Self::Iommufd(_) => Access::Iommufd,
        }
    }

    /// What can be translated.
    pub(crate) fn iommu(&self) -> &Iommu {
        match self {
            Self::Group(group) => group.iommu(),
            Self::Iommufd(iommufd) => iommufd.iommu(),
        }
    }

    /// Shows memory to the device at `iova`.
    pub(crate) fn map(&self, memory: &Memory, iova: u64) -> Result<(), Error> {
        match self {
            Self::Group(group) => group.map(memory, iova),
            Self::Iommufd(iommufd) => iommufd.map(memory, iova),
        }
    }

    /// Takes it away again.
    pub(crate) fn unmap(&self, iova: u64, bytes: u64) {
        match self {
            Self::Group(group) => group.unmap(iova, bytes),
            Self::Iommufd(iommufd) => iommufd.unmap(iova, bytes),
        }
    }
}
