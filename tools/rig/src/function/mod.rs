//! Models as PCI functions, for clients of `flysch-vfio-user`.

use flysch_api::machine::{GuestMemory, Instant};
use flysch_bench::results::Incident;
use flysch_models::faults::{Kind, Plan};
use flysch_models::machine::Model;
use flysch_models::store::StoreError;
use flysch_models::ufs::Loss;
use flysch_vfio_user::{Function, Interrupts, Layout};

use crate::error::TargetError;
use crate::target::Target;

mod ahci;
mod emmc;
mod nvme;
mod ufs;

/// A served modelled device, and the actions on it.
pub trait Served: Function + Send {
    /// The fault kinds of the device.
    fn fault_kinds(&self) -> &'static [Kind];
    /// Injects these faults from now on.
    fn arm(&mut self, plan: Plan);
    /// Cuts the device's power.
    ///
    /// # Errors
    /// A backing file could not be brought into the resulting state.
    fn cut_power(&mut self) -> Result<Loss, StoreError>;
    /// Restores power.
    fn restore_power(&mut self);
    /// Asserts the device's own reset line. `false` if it has none.
    fn reset_device(&mut self) -> bool;
    /// Faults that happened, and the effects of losses of power on writes.
    fn incidents(&self) -> Vec<Incident>;
    /// Why this machine could not store or return the device's data.
    fn failure(&self) -> Option<String>;
}

/// Creates the device described by `target`. Its time is real time; fault counts start at power-on;
/// its cache is volatile, so that power can be cut at any time. `None` if the target is not a
/// modelled device.
///
/// # Errors
/// The requested image or model is impossible.
pub fn serve(target: &Target) -> Result<Option<Box<dyn Served>>, TargetError> {
    Ok(Some(match target {
        Target::Ufs(target) => Box::new(PciFunction { model: ufs::open(target)? }),
        Target::Ahci(target) => Box::new(PciFunction { model: ahci::open(target)? }),
        Target::Nvme(target) => Box::new(PciFunction { model: nvme::open(target)? }),
        Target::Emmc(target) => Box::new(emmc::open(target)?),
        _ => return Ok(None),
    }))
}

/// A model that can be a PCI function.
trait Pci: Model + Send {
    fn layout(&self) -> Layout;
    fn line(&self) -> bool;
    fn take_vector(&mut self) -> Option<u16>;
    fn memory_mut(&mut self) -> &mut GuestMemory;
    fn reset(&mut self, now: Instant);
}

/// A model behind PCI: its registers are one BAR, 32 bits wide.
#[derive(Debug)]
struct PciFunction<M> {
    model: M,
}

impl<M: Pci> Interrupts for PciFunction<M> {
    fn line(&self) -> bool {
        self.model.line()
    }

    fn take_vector(&mut self) -> Option<u16> {
        self.model.take_vector()
    }
}

impl<M: Pci> Function for PciFunction<M> {
    fn layout(&self) -> Layout {
        self.model.layout()
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
