//! What can prevent the use of a device. Every message names the object, the cause and the remedy;
//! it is shown to the user unchanged.

use std::io;
use std::path::{Path, PathBuf};

use crate::address::Address;

/// Why a PCI function cannot be used, listed, bound or given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no PCI at all.
    #[error("{}: {cause}; PCI functions are found in sysfs, mounted on /sys", path.display())]
    NoSysfs {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it cannot be read.
        cause: io::Error,
    },
    /// There is no such function.
    #[error("{address}: there is no such PCI function; `flysch pci list --all` lists them")]
    NoFunction {
        /// The requested address.
        address: Address,
    },
    /// The function is of another kind.
    #[error("{address}: expected {wanted}, found {found} (class {class:06x})")]
    OtherClass {
        /// The function.
        address: Address,
        /// The requested kind.
        wanted: &'static str,
        /// The actual kind.
        found: &'static str,
        /// Its class code, 24 bits.
        class: u32,
    },
    /// It is bound to Linux's own driver.
    #[error("{address} is bound to Linux's driver `{driver}`{}: {remedy}", in_use(uses))]
    Bound {
        /// The function.
        address: Address,
        /// The driver.
        driver: String,
        /// The uses of its disks.
        uses: Vec<String>,
        /// The commands that free it.
        remedy: String,
    },
    /// It is bound to no driver, not even VFIO.
    #[error("{address} has no driver: `flysch pci bind {address}` gives it to vfio-pci")]
    Unbound {
        /// The function.
        address: Address,
    },
    /// It is already bound, or not bound to VFIO.
    #[error("{address} is not bound to vfio-pci but to {}", driver.as_deref().unwrap_or("nothing"))]
    NotOurs {
        /// The function.
        address: Address,
        /// Its driver.
        driver: Option<String>,
    },
    /// It is in use.
    #[error("{address} is in use ({}): {remedy}", uses.join(", "))]
    InUse {
        /// The function.
        address: Address,
        /// The uses of its disks.
        uses: Vec<String>,
        /// The commands that end them, and the option that skips the question.
        remedy: String,
    },
    /// Other functions share its IOMMU group.
    #[error(
        "{address} shares IOMMU group {group} with {}: a group has one owner; `flysch pci bind \
         --yes {address}` takes all of it from Linux", others.join(", ")
    )]
    Shared {
        /// The function.
        address: Address,
        /// The group.
        group: u32,
        /// The other members that are in the way, with their drivers.
        others: Vec<String>,
    },
    /// No IOMMU protects memory from it.
    #[error(
        "{address} is behind no IOMMU: switch it on in the firmware's set-up (VT-d, AMD-Vi, SMMU) \
         and start Linux with `intel_iommu=on`, or `iommu=on`"
    )]
    NoIommu {
        /// The function.
        address: Address,
    },
    /// VFIO without an IOMMU.
    #[error(
        "{address} is in VFIO's no-IOMMU mode, where it could write to all of this machine's \
         memory: Flysch refuses that; switch the IOMMU on"
    )]
    Unprotected {
        /// The function.
        address: Address,
    },
    /// The module is not loaded, or the kernel has none.
    #[error("{}: {}", path.display(), missing(path, *has_iommufd))]
    NoVfio {
        /// What is missing.
        path: PathBuf,
        /// Whether the kernel has iommufd instead.
        has_iommufd: bool,
    },
    /// The kernel has no files for single devices.
    #[error(
        "{address} has no file of its own in /dev/vfio/devices: this kernel was built without \
         CONFIG_VFIO_DEVICE_CDEV, or its iommufd is not loaded (`modprobe iommufd`); without \
         `access=iommufd` its group is used"
    )]
    NoOwnFile {
        /// The function.
        address: Address,
    },
    /// The kernel's VFIO has another interface.
    #[error("this kernel's VFIO {what}")]
    Unsupported {
        /// What is missing.
        what: String,
    },
    /// Only root, or the owner of the file, may open it.
    #[error("{}: permission denied; run as root, or as the owner of that file", path.display())]
    Permission {
        /// The file.
        path: PathBuf,
    },
    /// Another program uses the group.
    #[error("{address}: another program uses it{}", match pid {
        Some(pid) => format!(" (process {pid})"),
        None => String::new(),
    })]
    Busy {
        /// The function.
        address: Address,
        /// Its process, if it is visible.
        pid: Option<u32>,
    },
    /// The device's interrupts would not be checked.
    #[error(
        "{address}: the IOMMU does not check interrupts (no interrupt remapping), so the kernel \
         lets only root's `allow_unsafe_interrupts=1` of vfio_iommu_type1 (or iommufd) through; \
         switch remapping on in the firmware's set-up"
    )]
    Interrupts {
        /// The function.
        address: Address,
    },
    /// The kernel allows no more pinned memory.
    #[error(
        "cannot pin {bytes} bytes of memory for DMA: {cause}; the limit on locked memory is \
         {limit}, and `ulimit -l {}` as root raises it", bytes.div_ceil(1024)
    )]
    Pin {
        /// The requested amount.
        bytes: u64,
        /// `RLIMIT_MEMLOCK`, in words.
        limit: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// No addresses are left.
    #[error("the IOMMU has no range of {bytes} addresses in one piece{}", match highest {
        Some(highest) => format!(" up to {highest:#x}"),
        None => String::new(),
    })]
    NoRange {
        /// The requested amount.
        bytes: u64,
        /// The highest address that the device can use, if it cannot use all.
        highest: Option<u64>,
    },
    /// The device does not conform to its kind.
    #[error("{address}: {what}")]
    Device {
        /// The function.
        address: Address,
        /// The problem.
        what: String,
    },
    /// A change of driver did not happen.
    #[error("{address}: {what}; all is as it was")]
    NotBound {
        /// The function.
        address: Address,
        /// The problem.
        what: String,
    },
    /// The operating system refused something that normally works.
    #[error("{address}: {what}: {cause}")]
    System {
        /// The function.
        address: Address,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
}

impl VfioError {
    pub(crate) fn system(address: Address, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { address, what, cause }
    }
}

fn in_use(uses: &[String]) -> String {
    if uses.is_empty() { String::new() } else { format!(" and in use ({})", uses.join(", ")) }
}

fn missing(path: &Path, has_iommufd: bool) -> String {
    let module = if path.ends_with("vfio-pci") { "vfio-pci is not loaded" } else { "not there" };
    if path.ends_with("iommu") {
        return format!("{module}; `modprobe iommufd` loads it, if the kernel has CONFIG_IOMMUFD");
    }
    let hint = "`modprobe vfio-pci` loads VFIO";
    if has_iommufd {
        return format!(
            "{module}; {hint}, but a kernel that has /dev/iommu alone needs \
             CONFIG_VFIO_DEVICE_CDEV or CONFIG_IOMMUFD_VFIO_CONTAINER"
        );
    }
    format!("{module}; {hint}, if the kernel was built with CONFIG_VFIO_PCI")
}
