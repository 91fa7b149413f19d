use std::path::PathBuf;

use flysch_emmc::CardKind;
use flysch_vfio::Address;

use crate::image::ImageError;

/// Why a stack could not be opened. Every message is one line that names the object, the cause and,
/// if there is one, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The file of a `file:` target cannot be a disk.
    #[error(transparent)]
    File(#[from] flysch_bench::file::OpenError),
    /// The file of a `file:` target is shorter than requested.
    #[error("{}: has {has} bytes, but `size=` asks for {needed}", path.display())]
    FileTooSmall {
        /// The file.
        path: PathBuf,
        /// Its length.
        has: u64,
        /// The requested length.
        needed: u64,
    },
    /// The object of a `linux:` target cannot be a disk.
    #[error(transparent)]
    Linux(#[from] flysch_linux::disk::DiskError),
    /// The image of a modelled logical unit cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The image could not be opened for the model.
    #[error(transparent)]
    Store(#[from] flysch_models::store::StoreError),
    /// The requested model is impossible.
    #[error(transparent)]
    Model(#[from] flysch_models::ufs::ConfigError),
    /// The requested NVMe model is impossible.
    #[error(transparent)]
    NvmeModel(#[from] flysch_models::nvme::ConfigError),
    /// The requested AHCI model is impossible.
    #[error(transparent)]
    AhciModel(#[from] flysch_models::ahci::ConfigError),
    /// The requested eMMC model is impossible.
    #[error(transparent)]
    EmmcModel(#[from] flysch_models::emmc::ConfigError),
    /// A guest drives a card itself, and a card has one size of sectors.
    #[error(
        "a guest sees the card itself, whose sectors have 512 bytes by its standard: leave \
         `block=` out"
    )]
    CardBlocks,
    /// The key of the modelled RPMB cannot be used.
    #[error("{}: no RPMB key: {cause}", path.display())]
    RpmbKey {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The key for encrypting the disk's data cannot be obtained.
    #[error("{}: no key: {cause}", path.display())]
    CryptoKey {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The model's thread could not be started.
    #[error("no thread for the model: {0}")]
    Thread(std::io::Error),
    /// QEMU could not be started.
    #[error(transparent)]
    Qemu(#[from] flysch_qemu::QemuError),
    /// The PCI function could not be opened.
    #[error(transparent)]
    Pci(#[from] flysch_vfio::VfioError),
    /// The host controller could not be brought up.
    #[error("UFS host: {0}")]
    Host(#[from] flysch_ufs::UfsError),
    /// The NVMe controller could not be brought up.
    #[error("NVMe controller: {0}")]
    Nvme(#[from] flysch_nvme::NvmeError),
    /// The SATA host bus adapter or its port could not be brought up.
    #[error("SATA host bus adapter: {0}")]
    Ahci(#[from] flysch_ahci::AhciError),
    /// There is no device at the port.
    #[error("there is no device at port {port} of the SATA host bus adapter")]
    NoDevice {
        /// The port.
        port: u8,
    },
    /// There is no device at this port of a multiplier.
    #[error("there is no device at port {device} of the port multiplier at SATA port {port}")]
    NoDeviceBehind {
        /// The port of the HBA.
        port: u8,
        /// The port of the multiplier.
        device: u8,
    },
    /// Disks of a rig go to ports, not behind a port multiplier.
    #[error("`pmp=`: the disks of a rig have ports of their own: leave it out")]
    Multiplied,
    /// The SD host controller or its card could not be brought up.
    #[error("eMMC host: {0}")]
    Emmc(#[from] flysch_emmc::EmmcError),
    /// The card is of the other kind.
    #[error("{address} has {}", match found {
        CardKind::Emmc => format!("an eMMC device and no SD card; use `emmc@pci:{address}`"),
        CardKind::Sd => format!("an SD card and no eMMC device; use `sd@pci:{address}`"),
    })]
    OtherCard {
        /// The controller.
        address: Address,
        /// What is present.
        found: CardKind,
    },
    /// The controller has no such namespace.
    #[error("the controller has no active namespace {namespace}; it has {present}")]
    NoNamespace {
        /// The requested namespace.
        namespace: u32,
        /// The existing ones.
        present: String,
    },
    /// The namespace cannot be a disk.
    #[error("namespace {namespace} is of command set {set}, which has no blocks of a disk")]
    CommandSet {
        /// Its ID.
        namespace: u32,
        /// The command set.
        set: u8,
    },
    /// The logical unit could not be opened.
    #[error(transparent)]
    Disk(#[from] flysch_cam::CamError),
    /// The device has no such logical unit.
    #[error("the device has no logical unit {lun}; it has {present}")]
    NoUnit {
        /// The requested unit.
        lun: u8,
        /// The existing ones.
        present: String,
    },
}
