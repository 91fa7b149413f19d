//! Bring-up as a list of steps, in the same order as in Linux.

use crate::card::{Card, RESET_MS};
use crate::channel::{Channel, MS, Run};
use crate::control::Core;
use crate::device::{CardFacts, CardKind, Timing};
use crate::identify::Identification;
use crate::plain::Ways;
use crate::quirks::{CardQuirk, HostQuirk};
use crate::table::Format;
use crate::{Cause, EmmcError};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::mmc::Csd;
use flysch_wire::mmc::command::CommandIndex;
use flysch_wire::mmc::cqhci::CQCFG;
use flysch_wire::mmc::ext_csd::{self, partition, power_off, revision};
use flysch_wire::mmc::sdhci::{self as reg, Clock, Control, Control2, dma, voltage};

/// Wait after power-on and after CMD0: at least 74 clocks, nanoseconds.
const SETTLE: u64 = MS;
/// RST_n low, and the wait after it (6.15.4: 1 us and 200 us), nanoseconds.
const RST_N: (u64, u64) = (10_000, MS);
/// Minimum time limit for switching the cache on, ms (Linux: 1600).
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

/// The steps in order.
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

/// A bring-up in progress.
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
            let Core { card, speed, engine, .. } = core;
            let result = match self.step {
                0 => core.reset_controller(),
                1 => {
                    let wants_uhs = speed.wants_uhs(&card.channel.capabilities);
                    Identification { wants_uhs }.run(card)
                }
                2 => card.read_registers(),
                3 => match card.device.kind {
                    CardKind::Emmc => speed.speed_up(card),
                    CardKind::Sd => speed.speed_up_sd(card),
                },
                4 => card.set_features(),
                _ => engine.begin(card),
            };
            match settled(result)? {
                Ok(()) => {
                    core.card.channel.script.turn_page();
                    self.step += 1;
                }
                Err(error) => {
                    let Some(slower) = self.slower(core, error) else {
                        return Err(named(step.name, error).into());
                    };
                    core.card.channel.drop_script();
                    core.speed.step_down_to(&mut core.card.channel, slower);
                    self.step = 0;
                }
            }
        }
        Ok(())
    }

    /// The timing to continue with after a failure that the timing itself may have caused.
    fn slower<M: Machine>(&self, core: &Core<M>, error: EmmcError) -> Option<Timing> {
        if error == EmmcError::Failed(Cause::Signal) {
            // Without 1.8 V nothing of UHS-I works.
            return Some(Timing::HighSpeed);
        }
        if self.step < SPEED { None } else { core.speed.after(&core.card, error) }
    }
}

/// The failure of a step.
fn named(step: &'static str, error: EmmcError) -> EmmcError {
    match error {
        EmmcError::Failed(cause) => EmmcError::Step { step, cause },
        other => other,
    }
}

impl<M: Machine> Core<M> {
    /// The controller as after power-on, and what is known of the card forgotten.
    fn reset_controller(&mut self) -> Run<()> {
        let Self { card: Card { channel, device }, engine, touched, asleep, .. } = self;
        channel.effect(|channel| {
            *touched = true;
            *asleep = false;
            engine.runs = false;
            channel.bus.forget();
            let generation = device.generation + 1;
            *device = CardFacts { generation, lines: 1, ..CardFacts::default() };
        });
        channel.set_up()
    }
}

impl<M: Machine> Channel<M> {
    /// Resets the controller and sets it up: power, addresses, interrupts.
    fn set_up(&mut self) -> Run<()> {
        let all = Clock::new().with_reset_all(true).into_bits();
        self.write(reg::CLOCK, all);
        self.until(("CLOCK", reg::CLOCK), Clock::RESETS, 0, RESET_MS)??;
        if let Some(base) = self.engine.base {
            self.write(base + CQCFG, 0);
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
        // The reset removed the power: long enough for a card that signals at 1.8 V to forget that.
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
}

impl<M: Machine> Card<M> {
    /// Reads what the card says about itself.
    fn read_registers(&mut self) -> Run<()> {
        let address = self.address();
        let csd = self.channel.long(CommandIndex::SendCsd, address)?;
        self.channel.must(CommandIndex::SelectCard, address)?;
        if self.device.kind == CardKind::Sd {
            return self.read_sd_registers(csd);
        }
        self.read_ext_csd()?;
        let told = self.channel.once(|_| {
            let device = &mut self.device;
            device.csd = Csd::parse(csd);
            let sectors = device.ext_csd.sectors();
            // Devices up to 2 GB may have their size in the CSD alone.
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

    fn set_features(&mut self) -> Run<()> {
        let wanted = self.channel.options.partition;
        if self.device.kind == CardKind::Emmc {
            self.set_emmc_features()?;
        }
        if wanted == partition::RPMB || self.device.partition_sectors(wanted) == 0 {
            return Err(Cause::NoPartition(wanted).into());
        }
        if wanted != partition::USER {
            self.select_partition(wanted)?;
        }
        self.channel.effect(|channel| {
            self.device.partition = wanted;
            channel.plain.ways = ways(channel, &self.device);
        });
        Ok(())
    }

    fn set_emmc_features(&mut self) -> Run<()> {
        let old = self.channel.once(|_| self.device.ext_csd.revision().into()) as u8;
        self.switch(ext_csd::ERASE_GROUP_DEF, 1)?;
        if old >= revision::V4_5 {
            self.switch(ext_csd::POWER_OFF_NOTIFICATION, power_off::ON)?;
        }
        if self.device.hpi().is_some() {
            self.switch(ext_csd::HPI_MGMT, 1)?;
        }
        let flushes = !self.device.quirks.has(CardQuirk::NoFlush);
        let cache = self.device.ext_csd.cache_kib() != 0 && flushes && self.channel.options.cache;
        if cache {
            let timeout = self.switch_ms().max(CACHE_MS);
            self.switch_for(ext_csd::CACHE_CTRL, 1, (None, timeout))?;
        }
        if let Some(on) = self.channel.options.auto_bkops
            && old >= revision::V5_1
            && self.device.ext_csd.0[ext_csd::BKOPS_SUPPORT] & 1 != 0
        {
            self.switch(ext_csd::BKOPS_EN, if on { AUTO_EN } else { 0 })?;
        }
        // It shows what was switched on, and sizes of partitions depend on the erase groups.
        self.read_ext_csd()?;
        self.channel.effect(|_| self.device.cache = cache);
        Ok(())
    }

    /// PARTITION_CONFIG: selects the partition that commands address. Boot bits stay as they are.
    pub(crate) fn select_partition(&mut self, access: u8) -> Run<()> {
        let config = self.device.ext_csd.byte(ext_csd::PARTITION_CONFIG);
        let value = config & !partition::MASK | access & partition::MASK;
        let told = self.device.ext_csd.partition_switch_ms();
        let timeout = told.max(self.switch_ms());
        self.switch_for(ext_csd::PARTITION_CONFIG, value, (None, timeout))
    }
}

/// How transfers of one command at a time are moved.
fn ways<M: Machine>(channel: &Channel<M>, device: &CardFacts) -> Ways {
    let auto = !channel.quirks.has(HostQuirk::NoAutoCmd23) && channel.version >= reg::version::V3;
    let reliable = match device.ext_csd.has_enhanced_reliable_write() {
        true => 0,
        false => device.ext_csd.byte(ext_csd::REL_WR_SEC_C).max(1),
    };
    Ways {
        rca: device.rca,
        block_count: device.has_block_count(),
        auto_cmd23: auto,
        way: channel.way(),
        reliable,
    }
}
