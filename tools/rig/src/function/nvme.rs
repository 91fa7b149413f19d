use flysch_api::machine::{GuestMemory, Instant};
use flysch_bench::results::Incident;
use flysch_models::faults::{Kind, Plan};
use flysch_models::machine::Messages as _;
use flysch_models::nvme::config::QUEUES_MAX;
use flysch_models::nvme::{CMB_OFFSET, Nvme, VENDOR};
use flysch_models::store::StoreError;
use flysch_models::ufs::Loss;
use flysch_vfio_user::{BARS, Identity, Layout};
use flysch_wire::nvme::registers::DOORBELLS;

use super::{Pci, PciFunction, Served};
use crate::error::TargetError;
use crate::image::Image;
use crate::target::NvmeTarget;
use crate::{incidents, nvme};

/// Bytes of BAR 0: registers, and from 0x1000 on the doorbells of all possible queue pairs, at the
/// widest stride.
const WINDOW: u32 =
    (DOORBELLS + 2 * (QUEUES_MAX as u32 + 1) * (4 << STRIDE_MAX)).next_power_of_two();
/// Maximum of CAP.DSTRD.
const STRIDE_MAX: u32 = 3;

/// The BAR of the vectors.
const VECTOR_BAR: u8 = 4;

/// Drivers recognise an NVMe controller by its class. The device ID belongs to nobody: for QEMU's
/// (0010) Linux has a quirk that distrusts its identifiers.
const IDENTITY: Identity = Identity {
    vendor: VENDOR,
    device: 0x0F1E,
    subsystem_vendor: 0x1AF4,
    subsystem: 0x1100,
    class: 0x01_0802,
    revision: 0,
};

/// The NVMe model of `target`.
pub(super) fn open(target: &NvmeTarget) -> Result<Nvme, TargetError> {
    let image =
        target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
    let mut config = nvme::model_config(target, image.as_ref().map(|image| image.bytes))?;
    config.faults = target.faults.clone();
    config.volatile_cache = true;
    let model = Nvme::new(config, GuestMemory::default())?;
    if let Some(made) = image.and_then(|image| image.made) {
        made.keep();
    }
    Ok(model)
}

impl Pci for Nvme {
    fn layout(&self) -> Layout {
        let mut bars = [0; BARS];
        bars[0] = match self.controller_memory() {
            0 => WINDOW,
            bytes => (CMB_OFFSET + bytes).next_power_of_two(),
        };
        // One vector is the line.
        let vectors = Some(self.vectors()).filter(|&vectors| vectors > 1).unwrap_or(0);
        Layout { identity: IDENTITY, bars, vectors, vector_bar: VECTOR_BAR }
    }

    fn line(&self) -> bool {
        Self::line(self)
    }

    fn take_vector(&mut self) -> Option<u16> {
        Self::take_vector(self)
    }

    fn memory_mut(&mut self) -> &mut GuestMemory {
        Self::memory_mut(self)
    }

    fn reset(&mut self, now: Instant) {
        Self::reset(self, now);
    }
}

impl Served for PciFunction<Nvme> {
    fn fault_kinds(&self) -> &'static [Kind] {
        &Kind::NVME
    }

    fn arm(&mut self, plan: Plan) {
        self.model.arm_faults(plan);
    }

    fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.model.cut_power()
    }

    fn restore_power(&mut self) {
        self.model.restore_power();
    }

    fn reset_device(&mut self) -> bool {
        false
    }

    fn incidents(&self) -> Vec<Incident> {
        incidents::of_nvme(&self.model)
    }

    fn failure(&self) -> Option<String> {
        self.model.store_failure()
    }
}
