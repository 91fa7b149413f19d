//! The clock, the data lines and the timing of the bus, from what identification has up to HS400,
//! and finding the sampling point.

use crate::bus::{Moves, Request, Response, Way};
use crate::control::{Core, Run, settled};
use crate::device::{CardKind, Timing};
use crate::history::ErrorKind;
use crate::quirks::HostQuirk;
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::mmc::command::{CommandIndex, SwitchArgument, TUNING_BLOCK};
use flysch_wire::mmc::ext_csd::{self, bus_width, device_type, hs_timing};
use flysch_wire::mmc::sd;
use flysch_wire::mmc::sdhci::{self as reg, Clock, Control, Control2, auto, uhs};

/// The clock to become stable, ms (Linux: 150).
const CLOCK_MS: u32 = 150;
/// A tuning block to come, ms (Linux: 50).
const TUNING_MS: u32 = 50;
/// Tuning blocks at most (SDHCI 2.2.24: 40).
const TUNING_BLOCKS: u32 = 40;
/// Where Intel's controllers have the switch for enhanced strobe.
const INTEL_STROBE: u32 = 0x78;
const SDR50: u64 = Timing::Sdr50 as u64;
const SDR104: u64 = Timing::Sdr104 as u64;
const HS200: u64 = Timing::Hs200 as u64;
const HS400: u64 = Timing::Hs400 as u64;

impl<M: Machine> Core<M> {
    /// The base clock, Hz.
    pub(crate) fn base_clock(&self) -> u32 {
        let told = self.capabilities.base_mhz();
        u32::from(if told != 0 { told } else { self.options.base_mhz }) * 1_000_000
    }

    /// Runs the card's clock at `hertz` or the next lower step; 0 stops it.
    pub(crate) fn set_clock(&mut self, hertz: u32) -> Run<()> {
        let off = Clock::new().with_card(true).into_bits();
        self.modify(reg::CLOCK, |clock| clock & !off);
        self.effect(|core| core.device.clock = 0);
        if hertz == 0 {
            return Ok(());
        }
        let (base, ten_bits) = (self.base_clock(), self.version >= reg::version::V3);
        let division = division(base, hertz, ten_bits);
        self.modify(reg::CLOCK, |clock| {
            let clock = Clock::from_bits(clock).with_division(division).with_internal(true);
            clock.with_timeout(Clock::TIMEOUT_MAX).into_bits()
        });
        let stable = Clock::new().with_stable(true).into_bits();
        self.until(("CLOCK", reg::CLOCK), stable, stable, CLOCK_MS)??;
        if self.version >= reg::version::V4_1 {
            let pll = Clock::new().with_pll(true).into_bits();
            self.modify(reg::CLOCK, |clock| clock | pll);
            self.until(("CLOCK", reg::CLOCK), stable, stable, CLOCK_MS)??;
        }
        self.modify(reg::CLOCK, |clock| clock | off);
        self.effect(|core| {
            core.device.clock = base / (2 * u32::from(division)).max(1);
        });
        Ok(())
    }

    /// The controller's side of a timing, the clock off meanwhile.
    pub(crate) fn set_host_timing(&mut self, timing: Timing) -> Run<()> {
        self.set_clock(0)?;
        let mode = match timing {
            Timing::Legacy => uhs::SDR12,
            Timing::HighSpeed => uhs::SDR25,
            Timing::Ddr52 | Timing::Ddr50 => uhs::DDR50,
            Timing::Sdr50 => uhs::SDR50,
            Timing::Sdr104 | Timing::Hs200 => uhs::SDR104,
            Timing::Hs400 | Timing::Hs400Es => uhs::HS400,
        };
        self.modify(reg::CONTROL, |control| {
            Control::from_bits(control).with_high_speed(timing != Timing::Legacy).into_bits()
        });
        let low = timing >= Timing::Ddr52 || self.device.low_voltage;
        self.modify(reg::CONTROL2, |control| {
            Control2::from_bits(control).with_uhs(mode).with_signal_1_8(low).into_bits()
        });
        if self.quirks.has(HostQuirk::Intel) {
            let strobe = u32::from(timing == Timing::Hs400Es);
            self.modify(INTEL_STROBE, |value| value & !1 | strobe);
        }
        self.effect(|core| core.device.timing = timing);
        Ok(())
    }

    pub(crate) fn set_host_lines(&mut self, lines: u8) {
        self.modify(reg::CONTROL, |control| {
            let control = Control::from_bits(control).with_bus_4(lines == 4);
            control.with_bus_8(lines == 8).into_bits()
        });
        self.effect(|core| core.device.lines = lines);
    }

    /// The fastest timing that card, controller and lines have, and that is believed in.
    pub(crate) fn best_timing(&self) -> Timing {
        if self.device.kind == CardKind::Sd {
            return self.best_sd_timing();
        }
        let (types, caps) = (self.device.ext_csd.device_type(), &self.capabilities);
        let strobe = self.device.ext_csd.byte(ext_csd::STROBE_SUPPORT) != 0;
        let (wide, eight) = (self.device.lines >= 4, self.device.lines == 8);
        let hs200 = types & device_type::HS200 != 0 && caps.sdr104() && wide;
        let hs400 = types & device_type::HS400 != 0 && caps.hs400() && eight;
        let has = |timing| match timing {
            Timing::Hs400Es => hs400 && strobe && !self.quirks.has(HostQuirk::NoStrobe),
            Timing::Hs400 => hs400 && hs200,
            Timing::Hs200 => hs200,
            Timing::Ddr52 => types & device_type::DDR52 != 0 && caps.ddr50() && wide,
            Timing::HighSpeed => types & device_type::HS52 != 0 && caps.high_speed(),
            Timing::Legacy => true,
            Timing::Ddr50 | Timing::Sdr50 | Timing::Sdr104 => false,
        };
        self.fastest_of(has)
    }

    /// The fastest timing there is, of those that are believed in.
    pub(crate) fn fastest_of(&self, has: impl Fn(Timing) -> bool) -> Timing {
        let all = Timing::ALL.into_iter().rev();
        all.filter(|&timing| timing <= self.fastest).find(|&timing| has(timing)).unwrap_or_default()
    }

    /// The bus as fast as it goes. What does not work is tried slower by who calls.
    pub(crate) fn speed_up(&mut self) -> Run<()> {
        self.set_clock(Timing::Legacy.clock())?;
        self.widen()?;
        match self.best_timing() {
            Timing::HighSpeed => self.go_high_speed(Timing::HighSpeed.clock())?,
            Timing::Ddr52 => self.go_ddr52()?,
            Timing::Hs200 => self.go_hs200()?,
            Timing::Hs400 => {
                self.go_hs200()?;
                self.go_hs400()?;
            }
            Timing::Hs400Es => self.go_hs400_strobe()?,
            _ => {}
        }
        if !self.verify_bus()?? {
            return Err(Cause::Timing.into());
        }
        Ok(())
    }

    /// As many data lines as work: each width is tried, and the card's answer compared.
    fn widen(&mut self) -> Run<()> {
        let eight = self.capabilities.bus_8();
        for (lines, value) in [(8, bus_width::EIGHT), (4, bus_width::FOUR), (1, bus_width::ONE)] {
            if lines == 8 && !eight {
                continue;
            }
            match settled(self.switch(ext_csd::BUS_WIDTH, value))? {
                Ok(()) => {}
                Err(Error::Failed(Cause::Switch(_) | Cause::Status(..))) => continue,
                Err(error) => return Err(error.into()),
            }
            self.set_host_lines(lines);
            if self.verify_bus()?? {
                return Ok(());
            }
        }
        Err(Cause::Timing.into())
    }

    /// CMD6 that changes the timing: the card's answer to what comes after it has the new one, so
    /// the status is asked for only once the controller has followed.
    fn switch_timing(&mut self, index: u8, value: u8) -> Run<()> {
        let argument = SwitchArgument::write(index, value).into_bits();
        self.must(CommandIndex::Switch, argument)?;
        let timeout = self.switch_ms();
        if !self.until_not_busy(None, timeout)? {
            return Err(Cause::Busy(CommandIndex::Switch).into());
        }
        Ok(())
    }

    /// Whether the card took the switch before.
    fn check_switch(&mut self, index: u8) -> Run<()> {
        match self.status()? {
            Ok(status) if status.switch_error() => Err(Cause::Switch(index).into()),
            Ok(_) => Ok(()),
            Err(error) => Err(Cause::Bus(CommandIndex::SendStatus, error).into()),
        }
    }

    fn go_high_speed(&mut self, clock: u32) -> Run<()> {
        self.switch_timing(ext_csd::HS_TIMING, hs_timing::HIGH_SPEED)?;
        self.set_host_timing(Timing::HighSpeed)?;
        self.set_clock(clock)?;
        self.check_switch(ext_csd::HS_TIMING)
    }

    fn go_ddr52(&mut self) -> Run<()> {
        self.go_high_speed(Timing::HighSpeed.clock())?;
        let eight = self.device.lines == 8;
        let value = if eight { bus_width::EIGHT_DDR } else { bus_width::FOUR_DDR };
        self.switch_timing(ext_csd::BUS_WIDTH, value)?;
        self.set_host_timing(Timing::Ddr52)?;
        self.set_clock(Timing::Ddr52.clock())?;
        self.check_switch(ext_csd::BUS_WIDTH)
    }

    fn go_hs200(&mut self) -> Run<()> {
        self.switch_timing(ext_csd::HS_TIMING, hs_timing::HS200)?;
        self.set_host_timing(Timing::Hs200)?;
        self.set_clock(Timing::Hs200.clock())?;
        self.check_switch(ext_csd::HS_TIMING)?;
        self.tune()
    }

    /// HS400 from a tuned HS200 (6.6.2.3): by way of high speed, where both edges are switched on.
    fn go_hs400(&mut self) -> Run<()> {
        self.set_clock(Timing::HighSpeed.clock())?;
        self.go_high_speed(Timing::HighSpeed.clock())?;
        self.switch_timing(ext_csd::BUS_WIDTH, bus_width::EIGHT_DDR)?;
        self.switch_timing(ext_csd::HS_TIMING, hs_timing::HS400)?;
        self.set_host_timing(Timing::Hs400)?;
        self.set_clock(Timing::Hs400.clock())?;
        self.check_switch(ext_csd::HS_TIMING)
    }

    /// HS400 with enhanced strobe (6.6.2.4): nothing is tuned.
    fn go_hs400_strobe(&mut self) -> Run<()> {
        self.go_high_speed(Timing::HighSpeed.clock())?;
        let value = bus_width::EIGHT_DDR | bus_width::STROBE;
        self.switch_timing(ext_csd::BUS_WIDTH, value)?;
        self.switch_timing(ext_csd::HS_TIMING, hs_timing::HS400)?;
        self.set_host_timing(Timing::Hs400Es)?;
        self.set_clock(Timing::Hs400Es.clock())?;
        self.check_switch(ext_csd::HS_TIMING)
    }

    /// Looks for the sampling point (SDHCI 2.2.24): tuning blocks until the controller is content.
    pub(crate) fn tune(&mut self) -> Run<()> {
        let (index, block) = match self.device.kind {
            CardKind::Sd => (CommandIndex::SdSendTuningBlock, sd::TUNING_BLOCK),
            CardKind::Emmc => {
                let block = TUNING_BLOCK[usize::from(self.device.lines == 8)];
                (CommandIndex::SendTuningBlock, block)
            }
        };
        self.modify(reg::CONTROL2, |control| {
            Control2::from_bits(control).with_tune(true).with_tuned(false).into_bits()
        });
        let data = Moves {
            read: true,
            block,
            blocks: 1,
            way: Way::Tuning,
            list: 0,
            auto: auto::NONE,
            count: 0,
        };
        let request = Request { index, argument: 0, response: Response::Short, data: Some(data) };
        for _ in 0..TUNING_BLOCKS {
            // A block that does not come is one more reason to go on.
            let reply = self.send(request, TUNING_MS)?;
            let control = Control2::from_bits(self.read(reg::CONTROL2));
            if !control.tune() {
                if control.tuned() {
                    return Ok(());
                }
                break;
            }
            if reply.is_err() {
                self.reset_lines()?;
            }
        }
        self.modify(reg::CONTROL2, |control| {
            Control2::from_bits(control).with_tune(false).with_tuned(false).into_bits()
        });
        self.reset_lines()?;
        Err(Cause::Tuning.into())
    }

    /// Looks for the sampling point again: from HS400 by way of HS200 (6.6.2.3).
    pub(crate) fn retune(&mut self) -> Run<()> {
        // On the way the timing is another.
        let timing = self.once(|core| core.device.timing as u64);
        let result = match timing {
            SDR104 | HS200 => settled(self.tune())?,
            SDR50 if self.capabilities.tune_sdr50() => settled(self.tune())?,
            HS400 => settled(self.retune_hs400())?,
            _ => return Ok(()),
        };
        self.effect(|core| {
            let found = result.is_ok().into();
            core.errors.note(core.now, ErrorKind::Retune, found);
        });
        result.map_err(Into::into)
    }

    fn retune_hs400(&mut self) -> Run<()> {
        self.set_clock(Timing::HighSpeed.clock())?;
        self.switch_timing(ext_csd::HS_TIMING, hs_timing::HIGH_SPEED)?;
        self.set_host_timing(Timing::Ddr52)?;
        self.set_clock(Timing::HighSpeed.clock())?;
        self.switch_timing(ext_csd::BUS_WIDTH, bus_width::EIGHT)?;
        self.set_host_timing(Timing::HighSpeed)?;
        self.set_clock(Timing::HighSpeed.clock())?;
        self.go_hs200()?;
        self.go_hs400()
    }
}

/// The divider: the base clock is divided by twice of it, by one if it is 0. Older controllers take
/// powers of two up to 128.
fn division(base: u32, hertz: u32, ten_bits: bool) -> u16 {
    if base <= hertz {
        return 0;
    }
    let needed = base.div_ceil(2 * hertz);
    let most = if ten_bits { 0x3FF } else { 0x80 };
    let division = if ten_bits { needed } else { needed.next_power_of_two() };
    division.min(most) as u16
}

#[cfg(test)]
mod tests;
