//! Bring-up as a list of steps, in the order Linux has them.

use crate::bus::Response;
use crate::control::{Core, MS, Run, Stop, settled};
use crate::device::{CardKind, Device, Timing};
use crate::history::ErrorKind;
use crate::plain::Ways;
use crate::quirks::{CardQuirk, CardQuirks, HostQuirk};
use crate::table::Format;
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::mmc::command::{CommandIndex, OCR_POWERED_UP, OCR_SECTOR_MODE, OCR_VOLTAGES, rca};
use flysch_wire::mmc::ext_csd::{self, partition, power_off, revision};
use flysch_wire::mmc::sdhci::{self as reg, Clock, Control, Control2, dma, voltage};
use flysch_wire::mmc::{Cid, Csd};

/// Clocks that identification is tried with, Hz (Linux: the same four).
const IDENTIFY_CLOCKS: [u32; 4] = [400_000, 300_000, 200_000, 100_000];
/// Rest after power and after CMD0: 74 clocks and more, nanoseconds.
const SETTLE: u64 = MS;
/// Between two questions whether the card has powered up, nanoseconds (Linux: 10 ms).
const POWER_UP_REST: u64 = 10 * MS;
/// RST_n low, and the wait after it (6.15.4: 1 us and 200 us), nanoseconds.
const RST_N: (u64, u64) = (10_000, MS);
/// The cache to be switched on, ms at least (Linux: 1600).
const CACHE_MS: u32 = 1_600;
/// Bits of BKOPS_EN.
const AUTO_EN: u8 = 2;

/// One step of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
}

/// The steps in their order.
pub static STEPS: [Step; 6] = [
    Step { name: "controller", what: "reset, power, addresses, interrupts" },
    Step { name: "identify", what: "CMD0, CMD1 until powered up, CMD2, CMD3; else as an SD card" },
    Step { name: "registers", what: "CSD, select the card, EXT_CSD or SCR" },
    Step { name: "speed", what: "data lines and the fastest timing that works" },
    Step { name: "features", what: "erase groups, partition, power-off, HPI, cache" },
    Step { name: "queue", what: "command queueing in card and controller" },
];

/// The step after which a failure may be the timing's.
const SPEED: usize = 3;

/// A bring-up under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct BringUp {
    step: usize,
}

impl BringUp {
    pub(crate) fn step(&self) -> Option<&'static Step> {
        STEPS.get(self.step)
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        while let Some(step) = self.step() {
            let result = match self.step {
                0 => core.reset_controller(),
                1 => core.identify(),
                2 => core.read_registers(),
                3 => core.find_speed(),
                4 => core.set_features(),
                _ => core.begin_queueing(),
            };
            match result {
                Ok(()) => {
                    core.turn_page();
                    self.step += 1;
                }
                Err(Stop::Pending) => return Err(Stop::Pending),
                Err(Stop::Failed(error)) => {
                    let Some(slower) = core.slower(self.step, error) else {
                        return Err(Stop::Failed(named(step.name, error)));
                    };
                    core.drop_script();
                    core.errors.note(core.now, ErrorKind::StepDown, slower as u32);
                    core.fastest = slower;
                    self.step = 0;
                }
            }
        }
        Ok(())
    }
}

/// The failure of a step.
fn named(step: &'static str, error: Error) -> Error {
    match error {
        Error::Failed(cause) => Error::Step { step, cause },
        other => other,
    }
}

impl<M: Machine> Core<M> {
    /// The timing to go on with after a failure that may be the timing's own.
    fn slower(&self, step: usize, error: Error) -> Option<Timing> {
        let bus = matches!(
            error,
            Error::Failed(
                Cause::Bus(..) | Cause::Timing | Cause::Tuning | Cause::Switch(_) | Cause::Busy(_)
            )
        );
        if error == Error::Failed(Cause::Signal) {
            // Without 1.8 V there is nothing of UHS-I.
            return Some(Timing::HighSpeed);
        }
        // What the speed step aimed at: on the way there the timing is another.
        let aim = self.best_timing();
        aim.slower().filter(|_| bus && step >= SPEED)
    }

    /// The controller as after power-on, and then as it is wanted.
    fn reset_controller(&mut self) -> Run<()> {
        self.effect(|core| {
            core.touched = true;
            core.asleep = false;
            core.queueing = false;
            core.bus.forget();
            let generation = core.device.generation + 1;
            core.device = Device { generation, lines: 1, ..Device::default() };
        });
        let all = Clock::new().with_reset_all(true).into_bits();
        self.write(reg::CLOCK, all);
        self.until(("CLOCK", reg::CLOCK), Clock::RESETS, 0, crate::card::RESET_MS)??;
        if let Some(base) = self.engine.base {
            self.write(base + flysch_wire::mmc::cqhci::CQCFG, 0);
        }
        let caps = self.capabilities;
        let volts = match (caps.v3_3(), caps.v3_0(), caps.v1_8()) {
            (true, ..) => voltage::V3_3,
            (_, true, _) => voltage::V3_0,
            (.., true) => voltage::V1_8,
            _ => return Err(Cause::Voltage.into()),
        };
        let select = match self.bus.format {
            Format::SHORT => dma::ADMA2_64,
            _ => dma::ADMA2,
        };
        let control = Control::new().with_voltage(volts).with_power(true).with_dma(select);
        // The reset took the power: for so long that a card that signals with 1.8 V forgets it.
        self.sleep(SETTLE)?;
        self.write(reg::CONTROL, control.into_bits());
        if self.bus.format == Format::WIDE {
            let wide = Control2::new().with_version_4(true).with_wide(true);
            self.write(reg::CONTROL2, wide.into_bits());
        }
        self.plain_interrupts();
        self.sleep(SETTLE)?;
        if self.quirks.has(HostQuirk::Intel) {
            let reset = Control::new().with_hardware_reset(true).into_bits();
            self.modify(reg::CONTROL, |control| control | reset);
            self.sleep(RST_N.0)?;
            self.modify(reg::CONTROL, |control| control & !reset);
            self.sleep(RST_N.1)?;
        }
        Ok(())
    }

    /// From no address to one: an eMMC device answers CMD1, an SD card does not.
    fn identify(&mut self) -> Run<()> {
        let mut last = Error::Failed(Cause::NoCard);
        for clock in IDENTIFY_CLOCKS {
            self.set_clock(clock)?;
            self.sleep(SETTLE)?;
            self.command(CommandIndex::GoIdleState, 0, Response::None)?;
            self.sleep(SETTLE)?;
            let found = settled(self.identify_at_clock())?;
            match found {
                Ok(()) => return Ok(()),
                Err(error @ Error::Failed(Cause::Signal)) => return Err(error.into()),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn identify_at_clock(&mut self) -> Run<()> {
        let first = self.try_command(CommandIndex::SendOpCond, 0, Response::Plain)?;
        let Ok([ocr, ..]) = first else {
            return self.identify_sd();
        };
        let volts = ocr & OCR_VOLTAGES;
        if volts == 0 {
            return Err(Cause::Voltage.into());
        }
        let argument = volts | OCR_SECTOR_MODE;
        let ocr = self.power_up(argument)?;
        let cid = self.long(CommandIndex::AllSendCid, 0)?;
        self.effect(|core| {
            let device = &mut core.device;
            device.kind = CardKind::Emmc;
            device.cid = Cid::parse(cid);
            device.quirks = CardQuirks::find(&device.cid).and(core.options.card_quirks);
            device.rca = 1;
            device.sector_addressed = ocr & OCR_SECTOR_MODE != 0;
        });
        self.must(CommandIndex::SetRelativeAddr, rca(1)).map(|_| ())
    }

    /// CMD1 until the card is powered up.
    fn power_up(&mut self, argument: u32) -> Run<u32> {
        let until = self.once(|core| {
            let timeout = u64::from(core.options.timeouts.power_up_ms) * MS;
            core.now.after_nanos(timeout).nanos()
        });
        loop {
            let [ocr, ..] = self.command(CommandIndex::SendOpCond, argument, Response::Plain)?;
            if ocr & OCR_POWERED_UP != 0 {
                return Ok(ocr);
            }
            if self.once(|core| (core.now.nanos() >= until).into()) != 0 {
                return Err(Cause::Busy(CommandIndex::SendOpCond).into());
            }
            self.sleep(POWER_UP_REST)?;
        }
    }

    /// What the card says about itself.
    fn read_registers(&mut self) -> Run<()> {
        let address = self.address();
        let csd = self.long(CommandIndex::SendCsd, address)?;
        self.must(CommandIndex::SelectCard, address)?;
        if self.device.kind == CardKind::Sd {
            return self.read_sd_registers(csd);
        }
        self.read_ext_csd()?;
        let told = self.once(|core| {
            let device = &mut core.device;
            device.csd = Csd::parse(csd);
            let sectors = device.ext_csd.sectors();
            // Devices up to 2 GB may tell their size in the CSD alone.
            device.sectors = if sectors != 0 { sectors } else { device.csd.sectors() };
            // Beyond 2 GiB only sectors can be addressed.
            device.sector_addressed |= device.sectors > 2 << (30 - 9);
            device.sectors
        });
        if told == 0 {
            return Err(Cause::Answer("capacity").into());
        }
        Ok(())
    }

    fn find_speed(&mut self) -> Run<()> {
        match self.device.kind {
            CardKind::Emmc => self.speed_up(),
            CardKind::Sd => self.speed_up_sd(),
        }
    }

    fn set_features(&mut self) -> Run<()> {
        let wanted = self.options.partition;
        if self.device.kind == CardKind::Emmc {
            self.set_emmc_features()?;
        }
        if wanted == partition::RPMB || self.device.partition_sectors(wanted) == 0 {
            return Err(Cause::NoPartition(wanted).into());
        }
        if wanted != partition::USER {
            self.select_partition(wanted)?;
        }
        self.effect(|core| {
            core.device.partition = wanted;
            core.plain.ways = core.ways();
        });
        Ok(())
    }

    fn set_emmc_features(&mut self) -> Run<()> {
        let old = self.once(|core| core.device.ext_csd.revision().into()) as u8;
        self.switch(ext_csd::ERASE_GROUP_DEF, 1)?;
        if old >= revision::V4_5 {
            self.switch(ext_csd::POWER_OFF_NOTIFICATION, power_off::ON)?;
        }
        if self.device.hpi().is_some() {
            self.switch(ext_csd::HPI_MGMT, 1)?;
        }
        let flushes = !self.device.quirks.has(CardQuirk::NoFlush);
        let cache = self.device.ext_csd.cache_kib() != 0 && flushes && self.options.cache;
        if cache {
            let timeout = self.switch_ms().max(CACHE_MS);
            self.switch_for(ext_csd::CACHE_CTRL, 1, (None, timeout))?;
        }
        if let Some(on) = self.options.auto_bkops
            && old >= revision::V5_1
            && self.device.ext_csd.0[ext_csd::BKOPS_SUPPORT] & 1 != 0
        {
            self.switch(ext_csd::BKOPS_EN, if on { AUTO_EN } else { 0 })?;
        }
        // What was switched on shows, and sizes of partitions depend on the erase groups.
        self.read_ext_csd()?;
        self.effect(|core| core.device.cache = cache);
        Ok(())
    }

    /// How transfers of one command at a time are moved.
    pub(crate) fn ways(&self) -> Ways {
        let auto = !self.quirks.has(HostQuirk::NoAutoCmd23) && self.version >= reg::version::V3;
        let reliable = match self.device.ext_csd.has_enhanced_reliable_write() {
            true => 0,
            false => self.device.ext_csd.byte(ext_csd::REL_WR_SEC_C).max(1),
        };
        Ways {
            rca: self.device.rca,
            block_count: self.device.has_block_count(),
            auto_cmd23: auto,
            way: self.way(),
            reliable,
        }
    }

    /// PARTITION_CONFIG: which partition commands reach. Boot bits stay as they are.
    pub(crate) fn select_partition(&mut self, access: u8) -> Run<()> {
        let config = self.device.ext_csd.byte(ext_csd::PARTITION_CONFIG);
        let value = config & !partition::MASK | access & partition::MASK;
        let told = self.device.ext_csd.partition_switch_ms();
        let timeout = told.max(self.switch_ms());
        self.switch_for(ext_csd::PARTITION_CONFIG, value, (None, timeout))
    }
}
