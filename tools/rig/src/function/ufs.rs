use flysch_api::machine::{GuestMemory, Instant};
use flysch_bench::results::Incident;
use flysch_models::faults::{Kind, Plan};
use flysch_models::store::StoreError;
use flysch_models::ufs::{Loss, Ufs};
use flysch_vfio_user::{BARS, Identity, Layout};

use super::{Pci, PciFunction, Served};
use crate::error::TargetError;
use crate::image::Image;
use crate::target::UfsTarget;
use crate::{incidents, ufs};

/// Bytes of BAR 0: registers, queue configuration at 0x400, run-time registers from 0x1000 on.
const WINDOW: u32 = 16 << 10;

/// QEMU's own UFS controller. Linux's ufshcd-pci has known these IDs since 6.11 and takes the
/// locations of the run-time registers from the registers that contain them, which the model has
/// too.
const IDENTITY: Identity = Identity {
    vendor: 0x1B36,
    device: 0x0013,
    subsystem_vendor: 0x1AF4,
    subsystem: 0x1100,
    class: 0x01_0901,
    revision: 0,
};

/// The UFS model of `target`. Without `mcq=` its controller has only the single doorbell.
pub(super) fn open(target: &UfsTarget) -> Result<Ufs, TargetError> {
    let image =
        target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
    let mut config = ufs::model_config(target, image.as_ref().map(|image| image.bytes))?;
    config.queues = target.mcq.map_or(0, u32::from);
    config.faults = target.faults.clone();
    config.volatile_cache = true;
    // Messages would go past the bus's own interrupts, and no driver on PCI asks for them.
    config.event_interrupts = false;
    let model = Ufs::new(config, GuestMemory::default())?;
    if let Some(made) = image.and_then(|image| image.made) {
        made.keep();
    }
    Ok(model)
}

impl Pci for Ufs {
    fn layout(&self) -> Layout {
        let mut bars = [0; BARS];
        bars[0] = WINDOW;
        Layout { identity: IDENTITY, bars, vectors: 0, vector_bar: 0 }
    }

    fn line(&self) -> bool {
        self.interrupt()
    }

    fn take_vector(&mut self) -> Option<u16> {
        None
    }

    fn memory_mut(&mut self) -> &mut GuestMemory {
        Self::memory_mut(self)
    }

    fn reset(&mut self, now: Instant) {
        Self::reset(self, now);
    }
}

impl Served for PciFunction<Ufs> {
    fn fault_kinds(&self) -> &'static [Kind] {
        &Kind::UFS
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
        self.model.reset_hardware();
        true
    }

    fn incidents(&self) -> Vec<Incident> {
        incidents::of_model(&self.model)
    }

    fn failure(&self) -> Option<String> {
        self.model.store_failure()
    }
}
