use flysch_api::machine::{self, GuestMemory, Instant};
use flysch_bench::results::Incident;
use flysch_emmc::Timing;
use flysch_models::emmc::profile::{Dialect, Profile};
use flysch_models::emmc::{Emmc, WINDOW};
use flysch_models::faults::{Kind, Plan};
use flysch_models::machine::MixedModel as _;
use flysch_models::store::StoreError;
use flysch_models::ufs::Loss;
use flysch_vfio_user::{BARS, Function, Identity, Interrupts, Layout};
use flysch_wire::mmc::ext_csd::device_type::{DDR52, HS26, HS52, HS200};
use flysch_wire::mmc::{SECTOR, sd};

use super::Served;
use crate::error::TargetError;
use crate::image::Image;
use crate::target::EmmcTarget;
use crate::{emmc, incidents};

/// Intel's Elkhart Lake controller, which has a queueing engine: Linux's sdhci-pci infers that from
/// the ID alone, and uses the engine without checking that it exists.
const QUEUEING: u16 = 0x4B47;
/// Intel's Apollo Lake controller, which has none, and no enhanced strobe.
const PLAIN: u16 = 0x5ACC;

/// The eMMC model behind PCI, with an eMMC device or an SD card. Its registers are 8, 16, 32 and 64
/// bits wide.
#[derive(Debug)]
pub(super) struct EmmcFunction {
    model: Emmc,
    identity: machine::Identity,
    faults: &'static [Kind],
}

/// The controller that Linux should recognise. A controller for SD cards is one that it does not
/// know.
fn identity(target: &EmmcTarget) -> machine::Identity {
    let intel = |device| machine::Identity { vendor: 0x8086, device };
    match (target.profile.dialect, target.queue) {
        (Dialect::Sd { .. }, _) => emmc::PLAIN,
        (Dialect::Emmc, true) => intel(QUEUEING),
        (Dialect::Emmc, false) => intel(PLAIN),
    }
}

/// An SD card without faster access modes.
fn limited_modes(modes: u8, timing: Timing) -> u8 {
    let fast = match timing {
        Timing::Legacy => 0,
        Timing::HighSpeed => 1 << sd::HIGH_SPEED,
        Timing::Ddr50 => 1 << sd::HIGH_SPEED | 1 << sd::DDR50,
        Timing::Sdr50 => 1 << sd::HIGH_SPEED | 1 << sd::DDR50 | 1 << sd::SDR50,
        _ => u8::MAX,
    };
    modes & (fast | 1)
}

/// A device without faster timings.
fn limited(profile: Profile, timing: Timing) -> Profile {
    if let Dialect::Sd { modes } = profile.dialect {
        let dialect = Dialect::Sd { modes: limited_modes(modes, timing) };
        return Profile { dialect, ..profile };
    }
    let slower = match timing {
        Timing::Legacy => 0,
        Timing::HighSpeed => HS26 | HS52,
        Timing::Ddr52 => HS26 | HS52 | DDR52,
        Timing::Hs200 => HS26 | HS52 | DDR52 | HS200,
        _ => u8::MAX,
    };
    let strobe = profile.strobe && timing == Timing::Hs400Es;
    Profile { device_type: profile.device_type & slower, strobe, ..profile }
}

/// The eMMC model of `target`; with `queue=off` its controller has no queueing engine, with
/// `timing=` the device has no faster timing.
pub(super) fn open(target: &EmmcTarget) -> Result<EmmcFunction, TargetError> {
    if matches!(target.profile.dialect, Dialect::Sd { .. }) && target.block_size != SECTOR {
        return Err(TargetError::CardBlocks);
    }
    let image =
        target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
    let mut config = emmc::model_config(target, image.as_ref().map(|image| image.bytes))?;
    config.engine = target.queue;
    config.profile = limited(config.profile, target.timing);
    config.faults = target.faults.clone();
    config.volatile_cache = true;
    let model = Emmc::new(config, GuestMemory::default())?;
    if let Some(made) = image.and_then(|image| image.made) {
        made.keep();
    }
    let faults = target.profile.dialect.faults();
    Ok(EmmcFunction { model, identity: identity(target), faults })
}

impl Interrupts for EmmcFunction {
    fn line(&self) -> bool {
        self.model.line()
    }
}

impl Function for EmmcFunction {
    fn layout(&self) -> Layout {
        let mut bars = [0; BARS];
        bars[0] = WINDOW;
        let identity = Identity {
            vendor: self.identity.vendor,
            device: self.identity.device,
            subsystem_vendor: 0x1AF4,
            subsystem: 0x1100,
            class: 0x08_0501,
            revision: 0,
        };
        Layout { identity, bars, vectors: 0, vector_bar: 0 }
    }

    fn read(&mut self, _bar: u8, offset: u32, to: &mut [u8], now: Instant) {
        let value = match to.len() {
            4 => self.model.read32(offset, now).into(),
            width => self.model.read_mixed(offset, width as u8, now),
        };
        to.copy_from_slice(&value.to_le_bytes()[..to.len()]);
    }

    fn write(&mut self, _bar: u8, offset: u32, from: &[u8], now: Instant) {
        let mut value = [0; 8];
        value[..from.len()].copy_from_slice(from);
        let value = u64::from_le_bytes(value);
        match from.len() {
            4 => self.model.write32(offset, value as u32, now),
            width => self.model.write_mixed(offset, width as u8, value, now),
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

impl Served for EmmcFunction {
    fn fault_kinds(&self) -> &'static [Kind] {
        self.faults
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
        incidents::of_emmc(&self.model)
    }

    fn failure(&self) -> Option<String> {
        self.model.store_failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux starts to queue on Elkhart Lake's ID whatever the registers say, and each request
    /// times out if there is no engine.
    #[test]
    fn a_controller_without_an_engine_is_another_one() {
        for (queue, device) in [(true, 0x4B47), (false, 0x5ACC)] {
            let target = EmmcTarget { queue, size: Some(16 << 20), ..EmmcTarget::default() };
            assert_eq!(open(&target).unwrap().layout().identity.device, device);
        }
    }
}
