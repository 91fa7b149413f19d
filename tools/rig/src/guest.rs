//! Targets as devices of a machine that boots its own operating system.

use flysch_files::Made;

use crate::error::TargetError;
use crate::target::Target;
use crate::{ahci, emmc, nvme, ufs};

/// One of QEMU's own devices.
#[derive(Debug)]
pub struct GuestDevice {
    /// Its QEMU options.
    pub options: flysch_qemu::QemuOptions,
    made: Option<Made>,
}

impl GuestDevice {
    /// The machine runs: an image created for the device is kept.
    pub fn keep(self) {
        if let Some(made) = self.made {
            made.keep();
        }
    }
}

/// The guest determines its own memory: the device's share of it is irrelevant.
const MEMORY: u64 = 1 << 20;

/// The device described by `target`, with its image; `None` if the target is not one of QEMU's
/// devices.
///
/// # Errors
/// The requested image is impossible.
pub fn guest_device(target: &Target) -> Result<Option<GuestDevice>, TargetError> {
    let (options, made) = match target {
        Target::UfsQemu(target) => ufs::qemu_options(target, MEMORY)?,
        Target::NvmeQemu(target) => nvme::qemu_options(target, MEMORY)?,
        Target::AhciQemu(target) => ahci::qemu_options(target, MEMORY)?,
        Target::CardQemu(target) => emmc::qemu_options(target, MEMORY)?,
        _ => return Ok(None),
    };
    Ok(Some(GuestDevice { options, made }))
}
