//! Targets as devices of a machine that boots an operating system of its own.

use flysch_files::Made;

use crate::error::Error;
use crate::target::Target;
use crate::{ahci, emmc, nvme, ufs};

/// One of QEMU's own devices.
#[derive(Debug)]
pub struct GuestDevice {
    /// What makes it.
    pub options: flysch_qemu::Options,
    made: Option<Made>,
}

impl GuestDevice {
    /// The machine runs: an image that was made for the device stays.
    pub fn keep(self) {
        if let Some(made) = self.made {
            made.keep();
        }
    }
}

/// What the guest's memory is, says the guest: the device's own share of it means nothing.
const MEMORY: u64 = 1 << 20;

/// The device that `target` describes, with its image; `None` for a target that is no device of
/// QEMU's.
///
/// # Errors
/// The image cannot be as asked for.
pub fn guest_device(target: &Target) -> Result<Option<GuestDevice>, Error> {
    let (options, made) = match target {
        Target::UfsQemu(target) => ufs::qemu_options(target, MEMORY)?,
        Target::NvmeQemu(target) => nvme::qemu_options(target, MEMORY)?,
        Target::AhciQemu(target) => ahci::qemu_options(target, MEMORY)?,
        Target::CardQemu(target) => emmc::qemu_options(target, MEMORY)?,
        _ => return Ok(None),
    };
    Ok(Some(GuestDevice { options, made }))
}
