//! PCI functions as shown by Linux: their identity, their drivers, and the users of their disks.
//!
//! Everything is read below one folder ([`Tree::at`]), so that a tree of files can represent a
//! machine.

mod bind;
mod busy;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use bind::Change;
pub use busy::{Use, UseKind};

use crate::address::Address;
use crate::error::VfioError;

/// The driver that leaves a function to user space.
pub const VFIO_DRIVER: &str = "vfio-pci";
/// Drivers that do no DMA: their functions are no obstacle (drivers/vfio/group.c has the same
/// list).
const HARMLESS: [&str; 3] = [VFIO_DRIVER, "pci-stub", "pcieport"];

/// The file systems with information about PCI functions: `sys`, `proc` and `dev` of a machine.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

/// One PCI function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub address: Address,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// Its driver.
    pub driver: Option<String>,
    /// Its IOMMU group.
    pub group: Option<u32>,
    /// Whether that group is one without an IOMMU.
    pub is_unprotected: bool,
    /// The group's other members.
    pub members: Vec<Address>,
    /// Its disks' names.
    pub disks: Vec<String>,
    /// The uses of those.
    pub uses: Vec<Use>,
}

impl Function {
    /// Its description.
    pub fn kind(&self) -> &'static str {
        match self.class {
            0x01_0601 => "AHCI controller",
            0x01_0802 => "NVMe controller",
            0x01_0901 => "UFS host controller",
            0x08_0501 => "SD host controller",
            _ => match self.class >> 8 {
                0x0100 => "SCSI controller",
                0x0101 => "IDE controller",
                0x0104 => "RAID controller",
                0x0106 => "SATA controller",
                0x0200 => "network controller",
                0x0300 => "display controller",
                0x0600 => "host bridge",
                0x0601 => "ISA bridge",
                0x0604 => "PCI bridge",
                0x0C03 => "USB controller",
                0x0C05 => "SMBus controller",
                _ => "something else",
            },
        }
    }

    /// Whether it is a controller of disks or cards.
    pub fn is_storage(&self) -> bool {
        self.class >> 16 == 0x01 || self.class >> 8 == 0x0805
    }

    /// Whether it is a bus bridge, which stays with Linux.
    pub fn is_bridge(&self) -> bool {
        matches!(self.class >> 8, 0x0600 | 0x0604)
    }

    /// Whether it is bound to a user space driver.
    pub fn is_ours(&self) -> bool {
        self.driver.as_deref() == Some(VFIO_DRIVER)
    }

    /// Whether it may stay in a group that is used by another process.
    fn is_harmless(&self) -> bool {
        self.driver.as_deref().is_none_or(|driver| HARMLESS.contains(&driver))
    }

    /// Its description when it is an obstacle.
    fn named(&self) -> String {
        let Self { address, driver, .. } = self;
        format!("{address} ({})", driver.as_deref().unwrap_or("no driver"))
    }
}

impl Tree {
    /// This machine.
    pub fn system() -> Self {
        Self::at("/")
    }

    /// A machine whose `sys`, `proc` and `dev` are in `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn pci(&self, rest: &str) -> PathBuf {
        self.root.join("sys/bus/pci").join(rest)
    }

    fn folder(&self, address: Address) -> PathBuf {
        self.pci("devices").join(address.to_string())
    }

    /// VFIO's own file, or that of a group.
    pub(crate) fn vfio(&self, name: &str) -> PathBuf {
        self.root.join("dev/vfio").join(name)
    }

    /// The file of iommufd.
    pub(crate) fn iommufd(&self) -> PathBuf {
        self.root.join("dev/iommu")
    }

    /// Whether the kernel supports iommufd.
    pub(crate) fn has_iommufd(&self) -> bool {
        self.iommufd().exists()
    }

    /// Whether there are containers, and a file for the function's group.
    pub(crate) fn has_container(&self, function: &Function) -> bool {
        let has_group = |group: u32| self.vfio(&group.to_string()).exists();
        self.vfio("vfio").exists() && function.group.is_some_and(has_group)
    }

    /// The function's own file in VFIO, if the kernel creates them
    /// (Documentation/driver-api/vfio.rst: `vfio-dev/vfioN` in sysfs).
    pub(crate) fn device_file(&self, address: Address) -> Option<PathBuf> {
        let folder = fs::read_dir(self.folder(address).join("vfio-dev")).ok()?;
        let mut names = folder.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let name = names.find(|name| name.starts_with("vfio"))?;
        Some(self.vfio("devices").join(name)).filter(|path| path.exists())
    }

    pub(crate) fn proc(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// All functions, by address.
    ///
    /// # Errors
    /// [`VfioError::NoSysfs`] if there is no PCI tree.
    pub fn functions(&self) -> Result<Vec<Function>, VfioError> {
        let path = self.pci("devices");
        let failed = |cause| VfioError::NoSysfs { path: path.clone(), cause };
        let mut addresses: Vec<Address> = fs::read_dir(&path)
            .map_err(failed)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        addresses.sort_unstable();
        let users = busy::Users::read(self);
        // One that is pulled out meanwhile is not there.
        Ok(addresses.into_iter().filter_map(|one| self.describe(one, &users).ok()).collect())
    }

    /// One function.
    ///
    /// # Errors
    /// [`VfioError::NoFunction`] if it does not exist.
    pub fn function(&self, address: Address) -> Result<Function, VfioError> {
        self.describe(address, &busy::Users::read(self))
    }

    fn describe(&self, address: Address, users: &busy::Users) -> Result<Function, VfioError> {
        let folder = self.folder(address);
        let number = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        let missing = || VfioError::NoFunction { address };
        let group = folder.join("iommu_group");
        let members = fs::read_dir(group.join("devices")).into_iter().flatten();
        let members = members.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut members: Vec<Address> = members.filter(|member| *member != address).collect();
        members.sort_unstable();
        let name = fs::read_to_string(group.join("name")).unwrap_or_default();
        let (disks, uses) = users.of(&folder);
        Ok(Function {
            address,
            vendor: number("vendor").ok_or_else(missing)? as u16,
            device: number("device").ok_or_else(missing)? as u16,
            class: number("class").ok_or_else(missing)? & 0xFF_FFFF,
            driver: link_name(&folder.join("driver")),
            group: link_name(&group).and_then(|name| name.parse().ok()),
            is_unprotected: name.trim() == "vfio-noiommu",
            members,
            disks,
            uses,
        })
    }

    /// The function, if it can be opened from user space: it is bound to VFIO, and nothing in its
    /// group is an obstacle.
    ///
    /// # Errors
    /// What prevents it, with the commands that help.
    pub fn ready(&self, address: Address) -> Result<Function, VfioError> {
        let function = self.function(address)?;
        match &function.driver {
            Some(driver) if driver != VFIO_DRIVER => {
                let uses: Vec<String> = function.uses.iter().map(ToString::to_string).collect();
                let remedy = busy::remedy(&function.uses, &format!("flysch pci bind {address}"));
                return Err(VfioError::Bound { address, driver: driver.clone(), uses, remedy });
            }
            None => return Err(VfioError::Unbound { address }),
            Some(_) => {}
        }
        let group = function.group.ok_or(VfioError::NoIommu { address })?;
        if function.is_unprotected {
            return Err(VfioError::Unprotected { address });
        }
        let others = self.in_the_way(&function);
        if !others.is_empty() {
            let others = others.iter().map(Function::named).collect();
            return Err(VfioError::Shared { address, group, others });
        }
        Ok(function)
    }

    /// The members of a function's group that are driven by others.
    fn in_the_way(&self, function: &Function) -> Vec<Function> {
        let members = function.members.iter().filter_map(|member| self.function(*member).ok());
        members.filter(|member| !member.is_harmless()).collect()
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
    }
}

/// The last component of a link's target.
fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests;
