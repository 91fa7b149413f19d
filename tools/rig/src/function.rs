//! The UFS model as a PCI function, for clients of `flysch-vfio-user`.

use flysch_api::machine::{GuestMemory, Instant};
use flysch_bench::results::Incident;
use flysch_models::faults::Plan;
use flysch_models::store::StoreError;
use flysch_models::ufs::{Loss, Ufs as Model};
use flysch_vfio_user::{BARS, Function, Identity, Interrupts, Layout};

use crate::error::Error;
use crate::image::Image;
use crate::target::UfsTarget;
use crate::{incidents, ufs};

/// Bytes of BAR 0: registers, queue configuration at 0x400, run-time registers from 0x1000 on.
const WINDOW: u32 = 16 << 10;

/// QEMU's own UFS controller. Linux's ufshcd-pci knows it by these since 6.11 and takes the places
/// of the run-time registers from the registers that tell them, as the model does.
const IDENTITY: Identity = Identity {
    vendor: 0x1B36,
    device: 0x0013,
    subsystem_vendor: 0x1AF4,
    subsystem: 0x1100,
    class: 0x01_0901,
    revision: 0,
};

/// The UFS model behind PCI. Without `mcq=` its controller has the single doorbell alone.
#[derive(Debug)]
pub struct UfsFunction {
    model: Model,
}

impl UfsFunction {
    /// Makes the device that `target` describes. Its time is real time; its faults count from
    /// power on; its cache is volatile, so that power can be cut at any time.
    ///
    /// # Errors
    /// The image or the model cannot be as asked for.
    pub fn open(target: &UfsTarget) -> Result<Self, Error> {
        let image =
            target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
        let mut config = ufs::model_config(target, image.as_ref().map(|image| image.bytes))?;
        config.queues = target.mcq.map_or(0, u32::from);
        config.faults = target.faults.clone();
        config.volatile_cache = true;
        // Messages would go past the bus's own interrupts, and no driver on PCI asks for them.
        config.event_interrupts = false;
        let model = Model::new(config, GuestMemory::default())?;
        if let Some(made) = image.and_then(|image| image.made) {
            made.keep();
        }
        Ok(Self { model })
    }

    /// From now on this goes wrong.
    pub fn arm(&mut self, plan: Plan) {
        self.model.arm_faults(plan);
    }

    /// The device loses its power.
    ///
    /// # Errors
    /// A backing file could not be put into the state that leaves.
    pub fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.model.cut_power()
    }

    /// Power is back.
    pub fn restore_power(&mut self) {
        self.model.restore_power();
    }

    /// The device's reset line.
    pub fn reset_device(&mut self) {
        self.model.reset_hardware();
    }

    /// Faults that happened, and what losses of power did to writes.
    pub fn incidents(&self) -> Vec<Incident> {
        incidents::of_model(&self.model)
    }

    /// Why this machine could not keep or give the device's data.
    pub fn failure(&self) -> Option<String> {
        self.model.store_failure()
    }
}

impl Interrupts for UfsFunction {
    fn line(&self) -> bool {
        self.model.interrupt()
    }
}

impl Function for UfsFunction {
    fn layout(&self) -> Layout {
        let mut bars = [0; BARS];
        bars[0] = WINDOW;
        Layout { identity: IDENTITY, bars, vectors: 0, vector_bar: 0 }
    }

    fn read(&mut self, _bar: u8, offset: u32, to: &mut [u8], now: Instant) {
        // The registers are 32 bits wide: a narrow read gives its part, a wide one is two.
        for (number, part) in to.chunks_mut(4).enumerate() {
            let at = offset + 4 * number as u32;
            let bytes = self.model.read32(at & !3, now).to_le_bytes();
            let first = (at & 3) as usize;
            part.copy_from_slice(&bytes[first..first + part.len()]);
        }
    }

    fn write(&mut self, _bar: u8, offset: u32, from: &[u8], now: Instant) {
        // A narrow write has no meaning to registers of 32 bits and vanishes.
        for (number, word) in from.as_chunks::<4>().0.iter().enumerate() {
            let at = offset + 4 * number as u32;
            self.model.write32(at, u32::from_le_bytes(*word), now);
        }
    }

    fn advance(&mut self, now: Instant) {
        self.model.advance(now);
    }

    fn next_event(&self) -> Option<Instant> {
        self.model.next_event()
    }

    fn reset(&mut self, now: Instant) {
        self.model.reset(now);
    }

    fn memory(&mut self) -> &mut GuestMemory {
        self.model.memory_mut()
    }
}
