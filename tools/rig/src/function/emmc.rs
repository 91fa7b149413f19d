use flysch_api::machine::{GuestMemory, Instant};
use flysch_bench::results::Incident;
use flysch_emmc::Timing;
use flysch_models::emmc::profile::Profile;
use flysch_models::emmc::{Emmc, WINDOW};
use flysch_models::faults::{Kind, Plan};
use flysch_models::machine::MixedModel as _;
use flysch_models::store::StoreError;
use flysch_models::ufs::Loss;
use flysch_vfio_user::{BARS, Function, Identity, Interrupts, Layout};
use flysch_wire::mmc::ext_csd::device_type::{DDR52, HS26, HS52, HS200};

use super::Served;
use crate::error::Error;
use crate::image::Image;
use crate::target::EmmcTarget;
use crate::{emmc, incidents};

/// Intel's Elkhart Lake controller: Linux's sdhci-pci looks for a queueing engine behind some ids
/// of Intel's alone, and drives everything else of class 0805 without one.
const IDENTITY: Identity = Identity {
    vendor: 0x8086,
    device: 0x4B47,
    subsystem_vendor: 0x1AF4,
    subsystem: 0x1100,
    class: 0x08_0501,
    revision: 0,
};

/// The eMMC model behind PCI. Its registers are 8, 16, 32 and 64 bits wide.
#[derive(Debug)]
pub(super) struct EmmcFunction(Emmc);

/// A device that knows no faster timing.
fn limited(profile: Profile, timing: Timing) -> Profile {
    let slower = match timing {
        Timing::Legacy => 0,
        Timing::HighSpeed => HS26 | HS52,
        Timing::Ddr52 => HS26 | HS52 | DDR52,
        Timing::Hs200 => HS26 | HS52 | DDR52 | HS200,
        Timing::Hs400 | Timing::Hs400Es => u8::MAX,
    };
    let strobe = profile.strobe && timing == Timing::Hs400Es;
    Profile { device_type: profile.device_type & slower, strobe, ..profile }
}

/// The eMMC model of `target`; with `queue=off` its controller has no queueing engine, with
/// `timing=` the device no faster timing.
pub(super) fn open(target: &EmmcTarget) -> Result<EmmcFunction, Error> {
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
    Ok(EmmcFunction(model))
}

impl Interrupts for EmmcFunction {
    fn line(&self) -> bool {
        self.0.line()
    }
}

impl Function for EmmcFunction {
    fn layout(&self) -> Layout {
        let mut bars = [0; BARS];
        bars[0] = WINDOW;
        Layout { identity: IDENTITY, bars, vectors: 0, vector_bar: 0 }
    }

    fn read(&mut self, _bar: u8, offset: u32, to: &mut [u8], now: Instant) {
        let value = match to.len() {
            4 => self.0.read32(offset, now).into(),
            width => self.0.read_mixed(offset, width as u8, now),
        };
        to.copy_from_slice(&value.to_le_bytes()[..to.len()]);
    }

    fn write(&mut self, _bar: u8, offset: u32, from: &[u8], now: Instant) {
        let mut value = [0; 8];
        value[..from.len()].copy_from_slice(from);
        let value = u64::from_le_bytes(value);
        match from.len() {
            4 => self.0.write32(offset, value as u32, now),
            width => self.0.write_mixed(offset, width as u8, value, now),
        }
    }

    fn advance(&mut self, now: Instant) {
        self.0.advance(now);
    }

    fn next_event(&self) -> Option<Instant> {
        self.0.next_event()
    }

    fn reset(&mut self, now: Instant) {
        self.0.reset(now);
    }

    fn memory(&mut self) -> &mut GuestMemory {
        self.0.memory_mut()
    }
}

impl Served for EmmcFunction {
    fn fault_kinds(&self) -> &'static [Kind] {
        &Kind::EMMC
    }

    fn arm(&mut self, plan: Plan) {
        self.0.arm_faults(plan);
    }

    fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.0.cut_power()
    }

    fn restore_power(&mut self) {
        self.0.restore_power();
    }

    fn reset_device(&mut self) -> bool {
        false
    }

    fn incidents(&self) -> Vec<Incident> {
        incidents::of_emmc(&self.0)
    }

    fn failure(&self) -> Option<String> {
        self.0.store_failure()
    }
}
