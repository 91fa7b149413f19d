//! Targets: `KIND[@WHERE][,key=value...]`, parsed into values and refused with a reason.
//!
//! The kinds and their keys are one table, [`KINDS`], from which parsing, error messages and the
//! help of the command are derived.

use std::path::Path;
use std::str::FromStr;

use flysch_bench::published::Origin;
use flysch_models::ufs::profile::{GALAXY_BOOK_S, OK3576};

mod ahci;
mod emmc;
mod error;
mod linux;
mod nvme;
mod pairs;
mod pci;
mod plain;
mod ufs;

pub use ahci::{AhciQemuTarget, AhciTarget, Drive, MultiplierTarget};
pub use emmc::{CardKind, CardQemuTarget, EmmcTarget};
pub use error::ParseError;
pub use flysch_target::{Key, Kind, PairError, did_you_mean};
pub use linux::LinuxTarget;
pub use nvme::{NvmeQemuTarget, NvmeTarget};
pub use pairs::{ClockKind, FaultsFrom};
pub use pci::{AhciPciTarget, CardPciTarget, NvmePciTarget, PciPlace, PciWait, UfsPciTarget};
pub use plain::{FileTarget, NullTarget};
pub use ufs::{CryptoTarget, QemuTarget, UfsTarget};

/// Every kind of target, in the order of the help.
pub const KINDS: [Kind; 18] = [
    ufs::MODEL,
    nvme::MODEL,
    emmc::MODEL,
    emmc::SD_MODEL,
    ahci::MODEL,
    ufs::QEMU,
    nvme::QEMU,
    emmc::QEMU,
    emmc::SD,
    ahci::QEMU,
    pci::UFS,
    pci::NVME,
    pci::AHCI,
    pci::EMMC,
    pci::SD,
    linux::LINUX,
    plain::FILE,
    plain::NULL,
];

/// A stack to open.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// The UFS model.
    Ufs(UfsTarget),
    /// The NVMe model.
    Nvme(NvmeTarget),
    /// The AHCI model.
    Ahci(AhciTarget),
    /// The eMMC model, with an eMMC device or an SD card.
    Emmc(EmmcTarget),
    /// QEMU's UFS device.
    UfsQemu(QemuTarget),
    /// QEMU's NVMe device.
    NvmeQemu(NvmeQemuTarget),
    /// A UFS host controller of this machine.
    UfsPci(UfsPciTarget),
    /// An NVMe controller of this machine.
    NvmePci(NvmePciTarget),
    /// A SATA host bus adapter of this machine.
    AhciPci(AhciPciTarget),
    /// An SD host controller of this machine, with an eMMC device or an SD card.
    CardPci(CardPciTarget),
    /// QEMU's AHCI device.
    AhciQemu(AhciQemuTarget),
    /// QEMU's eMMC device or SD card.
    CardQemu(CardQemuTarget),
    /// A block device or file through Linux's block layer.
    Linux(LinuxTarget),
    /// A file.
    File(FileTarget),
    /// The null device.
    Null(NullTarget),
}

impl Target {
    /// The file of this machine that holds its data; none if memory or a device does.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Ufs(ufs) => ufs.image.as_deref(),
            Self::Nvme(nvme) => nvme.image.as_deref(),
            Self::Ahci(ahci) => ahci.image.as_deref(),
            Self::Emmc(emmc) => emmc.image.as_deref(),
            Self::UfsQemu(qemu) => qemu.image.as_deref(),
            Self::NvmeQemu(qemu) => qemu.image.as_deref(),
            Self::AhciQemu(qemu) => qemu.image.as_deref(),
            Self::CardQemu(qemu) => qemu.image.as_deref(),
            Self::Linux(linux) => Some(&linux.path),
            Self::File(file) => Some(&file.path),
            Self::UfsPci(_) | Self::NvmePci(_) | Self::AhciPci(_) | Self::CardPci(_) => None,
            Self::Null(_) => None,
        }
    }

    /// Where figures of the modelled device were published.
    pub fn origin(&self) -> Option<Origin> {
        match self {
            Self::Ufs(ufs) if ufs.profile == GALAXY_BOOK_S => Some(Origin::GalaxyBookS),
            Self::Ufs(ufs) if ufs.profile == OK3576 => Some(Origin::Ok3576),
            _ => None,
        }
    }

    /// Whether it is a modelled UFS device alone, without a published host's software.
    pub fn is_bare(&self) -> bool {
        matches!(self, Self::Ufs(ufs) if ufs.software.is_none())
    }
}

impl FromStr for Target {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (kind, rest) = text.split_at(text.find(&[':', ','][..]).unwrap_or(text.len()));
        match kind {
            "ufs" => UfsTarget::parse(rest).map(Self::Ufs),
            "nvme" => NvmeTarget::parse(rest).map(Self::Nvme),
            "ahci" => AhciTarget::parse(rest).map(Self::Ahci),
            "ahci@qemu" => AhciQemuTarget::parse(rest).map(Self::AhciQemu),
            "ufs@qemu" => QemuTarget::parse(rest).map(Self::UfsQemu),
            "nvme@qemu" => NvmeQemuTarget::parse(rest).map(Self::NvmeQemu),
            "ufs@pci" => UfsPciTarget::parse(rest).map(Self::UfsPci),
            "nvme@pci" => NvmePciTarget::parse(rest).map(Self::NvmePci),
            "ahci@pci" => AhciPciTarget::parse(rest).map(Self::AhciPci),
            "emmc@pci" => CardPciTarget::parse_emmc(rest).map(Self::CardPci),
            "sd@pci" => CardPciTarget::parse_sd(rest).map(Self::CardPci),
            "emmc" => EmmcTarget::parse(rest).map(Self::Emmc),
            "sd" => EmmcTarget::parse_sd(rest).map(Self::Emmc),
            "emmc@qemu" => CardQemuTarget::parse_emmc(rest).map(Self::CardQemu),
            "sd@qemu" => CardQemuTarget::parse_sd(rest).map(Self::CardQemu),
            "null" => NullTarget::parse(rest).map(Self::Null),
            "linux" => LinuxTarget::parse(rest).map(Self::Linux),
            "file" => FileTarget::parse(rest).map(Self::File),
            _ => Err(ParseError::Kind { given: kind.into() }),
        }
    }
}

#[cfg(test)]
mod tests;
