use flysch_api::machine::{GuestMemory, Instant};
use flysch_bench::results::Incident;
use flysch_models::ahci::Ahci;
use flysch_models::faults::{Kind, Plan};
use flysch_models::store::StoreError;
use flysch_models::ufs::Loss;
use flysch_vfio_user::{BARS, Identity, Layout};
use flysch_wire::ata::registers::{PORTS_MAX, port_base};

use super::{Pci, PciFunction, Served};
use crate::error::TargetError;
use crate::image::Image;
use crate::target::AhciTarget;
use crate::{ahci, incidents};

/// The BAR of the registers (AHCI 2.1.11).
const ABAR: usize = 5;
/// Its bytes: registers of the HBA and of as many ports as there can be.
const WINDOW: u32 = port_base(PORTS_MAX as u8).next_power_of_two();

/// Drivers recognise an AHCI controller by its class. The IDs belong to nobody: for those of real
/// controllers Linux has quirks.
const IDENTITY: Identity = Identity {
    vendor: 0x1B36,
    device: 0x0F2A,
    subsystem_vendor: 0x1AF4,
    subsystem: 0x1100,
    class: 0x01_0601,
    revision: 0,
};

/// The AHCI model of `target`.
pub(super) fn open(target: &AhciTarget) -> Result<Ahci, TargetError> {
    let image =
        target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
    let mut config = ahci::model_config(target, image.as_ref().map(|image| image.bytes))?;
    config.faults = target.faults.clone();
    config.volatile_cache = true;
    let model = Ahci::new(config, GuestMemory::default())?;
    if let Some(made) = image.and_then(|image| image.made) {
        made.keep();
    }
    Ok(model)
}

impl Pci for Ahci {
    fn layout(&self) -> Layout {
        let mut bars = [0; BARS];
        bars[ABAR] = WINDOW;
        Layout { identity: IDENTITY, bars, vectors: 0, vector_bar: 0 }
    }

    fn line(&self) -> bool {
        Self::line(self)
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

impl Served for PciFunction<Ahci> {
    fn fault_kinds(&self) -> &'static [Kind] {
        &Kind::AHCI
    }

    fn arm(&mut self, plan: Plan) {
        self.model.arm_faults(plan);
    }

    fn cut_power(&mut self) -> Result<Loss, StoreError> {
        let mut all = Loss::default();
        for port in 0..self.model.ports() {
            let loss = self.model.cut_power(port)?;
            all.survived += loss.survived;
            all.vanished += loss.vanished;
            all.torn += loss.torn;
        }
        Ok(all)
    }

    fn restore_power(&mut self) {
        (0..self.model.ports()).for_each(|port| self.model.restore_power(port));
    }

    fn reset_device(&mut self) -> bool {
        false
    }

    fn incidents(&self) -> Vec<Incident> {
        incidents::of_ahci(&self.model)
    }

    fn failure(&self) -> Option<String> {
        self.model.store_failure()
    }
}
