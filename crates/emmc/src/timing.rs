//! The clock, the data lines and the timing of the bus, from identification up to HS400, and the
//! search for the sampling point.

use crate::bus::{Moves, Request, Response, Way};
use crate::card::Card;
use crate::channel::{Channel, MS, Run};
use crate::device::{CardKind, Timing};
use crate::error::BusError;
use crate::history::ErrorKind;
use crate::quirks::HostQuirk;
use crate::{Cause, EmmcError};
use flysch_api::machine::{Instant, Machine};
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::mmc::command::{CommandIndex, SwitchArgument, TUNING_BLOCK};
use flysch_wire::mmc::ext_csd::{self, bus_width, device_type, hs_timing};
use flysch_wire::mmc::sd;
use flysch_wire::mmc::sdhci::{self as reg, Clock, Control, Control2, auto, uhs};

/// Time for the clock to become stable, ms (Linux: 150).
const CLOCK_MS: u32 = 150;
/// Time for a tuning block to arrive, ms (Linux: 50).
const TUNING_MS: u32 = 50;
/// Maximum number of tuning blocks (SDHCI 2.2.24: 40).
const TUNING_BLOCKS: u32 = 40;
/// Where Intel's controllers have the switch for enhanced strobe.
const INTEL_STROBE: u32 = 0x78;
/// Errors of the sampling point in a row before the bus steps down, and the time within which they
/// count as being in a row, nanoseconds.
const SAMPLING_MAX: u32 = 3;
const SAMPLING_NANOS: u64 = 1_000 * MS;
const SDR50: u64 = Timing::Sdr50 as u64;
const SDR104: u64 = Timing::Sdr104 as u64;
const HS200: u64 = Timing::Hs200 as u64;
const HS400: u64 = Timing::Hs400 as u64;

impl<M: Machine> Channel<M> {
    /// The base clock, Hz.
    pub(crate) fn base_clock(&self) -> u32 {
        let told = self.capabilities.base_mhz();
        u32::from(if told != 0 { told } else { self.options.base_mhz }) * 1_000_000
    }
}

impl<M: Machine> Card<M> {
    /// Runs the card's clock at `hertz` or the next lower step; 0 stops it.
    pub(crate) fn set_clock(&mut self, hertz: u32) -> Run<()> {
        let off = Clock::new().with_card(true).into_bits();
        self.channel.modify(reg::CLOCK, |clock| clock & !off);
        self.channel.effect(|_| self.device.clock = 0);
        if hertz == 0 {
            return Ok(());
        }
        let (base, ten_bits) =
            (self.channel.base_clock(), self.channel.version >= reg::version::V3);
        let division = division(base, hertz, ten_bits);
        self.channel.modify(reg::CLOCK, |clock| {
            let clock = Clock::from_bits(clock).with_division(division).with_internal(true);
            clock.with_timeout(Clock::TIMEOUT_MAX).into_bits()
        });
        let stable = Clock::new().with_stable(true).into_bits();
        self.channel.until(("CLOCK", reg::CLOCK), stable, stable, CLOCK_MS)??;
        if self.channel.version >= reg::version::V4_1 {
            let pll = Clock::new().with_pll(true).into_bits();
            self.channel.modify(reg::CLOCK, |clock| clock | pll);
            self.channel.until(("CLOCK", reg::CLOCK), stable, stable, CLOCK_MS)??;
        }
        self.channel.modify(reg::CLOCK, |clock| clock | off);
        self.channel.effect(|_| {
            self.device.clock = base / (2 * u32::from(division)).max(1);
        });
        Ok(())
    }

    /// Sets the controller's side of a timing, with the clock off.
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
        self.channel.modify(reg::CONTROL, |control| {
            Control::from_bits(control).with_high_speed(timing != Timing::Legacy).into_bits()
        });
        let low = timing >= Timing::Ddr52 || self.device.low_voltage;
        self.channel.modify(reg::CONTROL2, |control| {
            Control2::from_bits(control).with_uhs(mode).with_signal_1_8(low).into_bits()
        });
        if self.channel.quirks.has(HostQuirk::Intel) {
            let strobe = u32::from(timing == Timing::Hs400Es);
            self.channel.modify(INTEL_STROBE, |value| value & !1 | strobe);
        }
        self.channel.effect(|_| self.device.timing = timing);
        Ok(())
    }

    pub(crate) fn set_host_lines(&mut self, lines: u8) {
        self.channel.modify(reg::CONTROL, |control| {
            let control = Control::from_bits(control).with_bus_4(lines == 4);
            control.with_bus_8(lines == 8).into_bits()
        });
        self.channel.effect(|_| self.device.lines = lines);
    }

    /// Uses as many data lines as work: tries each width, and compares the card's answer.
    fn widen(&mut self) -> Run<()> {
        let eight = self.channel.capabilities.bus_8();
        for (lines, value) in [(8, bus_width::EIGHT), (4, bus_width::FOUR), (1, bus_width::ONE)] {
            if lines == 8 && !eight {
                continue;
            }
            match settled(self.switch(ext_csd::BUS_WIDTH, value))? {
                Ok(()) => {}
                Err(EmmcError::Failed(Cause::Switch(_) | Cause::Status(..))) => continue,
                Err(error) => return Err(error.into()),
            }
            self.set_host_lines(lines);
            if self.verify_bus()?? {
                return Ok(());
            }
        }
        Err(Cause::Timing.into())
    }

    /// Searches for the sampling point (SDHCI 2.2.24): reads tuning blocks until the controller has
    /// found it.
    pub(crate) fn tune(&mut self) -> Run<()> {
        let (index, block) = match self.device.kind {
            CardKind::Sd => (CommandIndex::SdSendTuningBlock, sd::TUNING_BLOCK),
            CardKind::Emmc => {
                let block = TUNING_BLOCK[usize::from(self.device.lines == 8)];
                (CommandIndex::SendTuningBlock, block)
            }
        };
        self.channel.modify(reg::CONTROL2, |control| {
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
            // A block that does not arrive is one more reason to continue.
            let reply = self.channel.send(request, TUNING_MS)?;
            let control = Control2::from_bits(self.channel.read(reg::CONTROL2));
            if !control.tune() {
                if control.tuned() {
                    return Ok(());
                }
                break;
            }
            if reply.is_err() {
                self.channel.reset_lines()?;
            }
        }
        self.channel.modify(reg::CONTROL2, |control| {
            Control2::from_bits(control).with_tune(false).with_tuned(false).into_bits()
        });
        self.channel.reset_lines()?;
        Err(Cause::Tuning.into())
    }

    /// Searches for the sampling point again: from HS400 by way of HS200 (6.6.2.3).
    pub(crate) fn retune(&mut self) -> Run<()> {
        // On the way the timing is another.
        let timing = self.channel.once(|_| self.device.timing as u64);
        let result = match timing {
            SDR104 | HS200 => settled(self.tune())?,
            SDR50 if self.channel.capabilities.tune_sdr50() => settled(self.tune())?,
            HS400 => settled(retune_hs400(self))?,
            _ => return Ok(()),
        };
        self.channel.effect(|channel| {
            let found = result.is_ok().into();
            channel.errors.note(channel.script.now(), ErrorKind::Retune, found);
        });
        result.map_err(Into::into)
    }
}

/// Sends a CMD6 that changes the timing: the card answers what follows with the new one, so its
/// status is read only after the controller has changed too.
fn switch_timing<M: Machine>(card: &mut Card<M>, index: u8, value: u8) -> Run<()> {
    let argument = SwitchArgument::write(index, value).into_bits();
    card.channel.must(CommandIndex::Switch, argument)?;
    let timeout = card.switch_ms();
    if !card.channel.until_not_busy(None, timeout)? {
        return Err(Cause::Busy(CommandIndex::Switch).into());
    }
    Ok(())
}

/// Checks whether the card has accepted the preceding switch.
fn check_switch<M: Machine>(card: &mut Card<M>, index: u8) -> Run<()> {
    match card.status()? {
        Ok(status) if status.switch_error() => Err(Cause::Switch(index).into()),
        Ok(_) => Ok(()),
        Err(error) => Err(Cause::Bus(CommandIndex::SendStatus, error).into()),
    }
}

fn go_high_speed<M: Machine>(card: &mut Card<M>, clock: u32) -> Run<()> {
    switch_timing(card, ext_csd::HS_TIMING, hs_timing::HIGH_SPEED)?;
    card.set_host_timing(Timing::HighSpeed)?;
    card.set_clock(clock)?;
    check_switch(card, ext_csd::HS_TIMING)
}

fn go_ddr52<M: Machine>(card: &mut Card<M>) -> Run<()> {
    go_high_speed(card, Timing::HighSpeed.clock())?;
    let eight = card.device.lines == 8;
    let value = if eight { bus_width::EIGHT_DDR } else { bus_width::FOUR_DDR };
    switch_timing(card, ext_csd::BUS_WIDTH, value)?;
    card.set_host_timing(Timing::Ddr52)?;
    card.set_clock(Timing::Ddr52.clock())?;
    check_switch(card, ext_csd::BUS_WIDTH)
}

fn go_hs200<M: Machine>(card: &mut Card<M>) -> Run<()> {
    switch_timing(card, ext_csd::HS_TIMING, hs_timing::HS200)?;
    card.set_host_timing(Timing::Hs200)?;
    card.set_clock(Timing::Hs200.clock())?;
    check_switch(card, ext_csd::HS_TIMING)?;
    card.tune()
}

/// HS400 from a tuned HS200 (6.6.2.3): by way of high speed, where both edges are switched on.
fn go_hs400<M: Machine>(card: &mut Card<M>) -> Run<()> {
    card.set_clock(Timing::HighSpeed.clock())?;
    go_high_speed(card, Timing::HighSpeed.clock())?;
    switch_timing(card, ext_csd::BUS_WIDTH, bus_width::EIGHT_DDR)?;
    switch_timing(card, ext_csd::HS_TIMING, hs_timing::HS400)?;
    card.set_host_timing(Timing::Hs400)?;
    card.set_clock(Timing::Hs400.clock())?;
    check_switch(card, ext_csd::HS_TIMING)
}

fn retune_hs400<M: Machine>(card: &mut Card<M>) -> Run<()> {
    card.set_clock(Timing::HighSpeed.clock())?;
    switch_timing(card, ext_csd::HS_TIMING, hs_timing::HIGH_SPEED)?;
    card.set_host_timing(Timing::Ddr52)?;
    card.set_clock(Timing::HighSpeed.clock())?;
    switch_timing(card, ext_csd::BUS_WIDTH, bus_width::EIGHT)?;
    card.set_host_timing(Timing::HighSpeed)?;
    card.set_clock(Timing::HighSpeed.clock())?;
    go_hs200(card)?;
    go_hs400(card)
}

/// HS400 with enhanced strobe (6.6.2.4): nothing is tuned.
fn go_hs400_strobe<M: Machine>(card: &mut Card<M>) -> Run<()> {
    go_high_speed(card, Timing::HighSpeed.clock())?;
    let value = bus_width::EIGHT_DDR | bus_width::STROBE;
    switch_timing(card, ext_csd::BUS_WIDTH, value)?;
    switch_timing(card, ext_csd::HS_TIMING, hs_timing::HS400)?;
    card.set_host_timing(Timing::Hs400Es)?;
    card.set_clock(Timing::Hs400Es.clock())?;
    check_switch(card, ext_csd::HS_TIMING)
}

/// How fast the bus may be.
#[derive(Debug)]
pub(crate) struct Speed {
    /// The fastest timing that is still trusted.
    pub(crate) fastest: Timing,
    /// When the last error of the sampling point was, and how many have come in a row.
    sampling: (Instant, u32),
}

impl Speed {
    pub(crate) fn new(fastest: Timing) -> Self {
        Self { fastest, sampling: (Instant::START, 0) }
    }

    /// The fastest trusted timing that card, controller and lines support.
    pub(crate) fn best<M: Machine>(&self, card: &Card<M>) -> Timing {
        if card.device.kind == CardKind::Sd {
            return self.best_of_sd(card);
        }
        let (types, caps) = (card.device.ext_csd.device_type(), &card.channel.capabilities);
        let strobe = card.device.ext_csd.byte(ext_csd::STROBE_SUPPORT) != 0;
        let (wide, eight) = (card.device.lines >= 4, card.device.lines == 8);
        let hs200 = types & device_type::HS200 != 0 && caps.sdr104() && wide;
        let hs400 = types & device_type::HS400 != 0 && caps.hs400() && eight;
        let has = |timing| match timing {
            Timing::Hs400Es => hs400 && strobe && !card.channel.quirks.has(HostQuirk::NoStrobe),
            Timing::Hs400 => hs400 && hs200,
            Timing::Hs200 => hs200,
            Timing::Ddr52 => types & device_type::DDR52 != 0 && caps.ddr50() && wide,
            Timing::HighSpeed => types & device_type::HS52 != 0 && caps.high_speed(),
            Timing::Legacy => true,
            Timing::Ddr50 | Timing::Sdr50 | Timing::Sdr104 => false,
        };
        self.fastest_of(has)
    }

    /// The fastest trusted timing of those that `has` accepts.
    pub(crate) fn fastest_of(&self, has: impl Fn(Timing) -> bool) -> Timing {
        let all = Timing::ALL.into_iter().rev();
        all.filter(|&timing| timing <= self.fastest).find(|&timing| has(timing)).unwrap_or_default()
    }

    /// Makes the bus of an eMMC device as fast as possible. If that does not work, the caller tries
    /// a slower timing.
    pub(crate) fn speed_up<M: Machine>(&self, card: &mut Card<M>) -> Run<()> {
        card.set_clock(Timing::Legacy.clock())?;
        card.widen()?;
        match self.best(card) {
            Timing::HighSpeed => go_high_speed(card, Timing::HighSpeed.clock())?,
            Timing::Ddr52 => go_ddr52(card)?,
            Timing::Hs200 => go_hs200(card)?,
            Timing::Hs400 => {
                go_hs200(card)?;
                go_hs400(card)?;
            }
            Timing::Hs400Es => go_hs400_strobe(card)?,
            _ => {}
        }
        if !card.verify_bus()?? {
            return Err(Cause::Timing.into());
        }
        Ok(())
    }

    /// The timing to continue with after a failure of a bring-up step that the timing itself may
    /// have caused.
    pub(crate) fn after<M: Machine>(&self, card: &Card<M>, error: EmmcError) -> Option<Timing> {
        let bus = matches!(
            error,
            EmmcError::Failed(
                Cause::Bus(..) | Cause::Timing | Cause::Tuning | Cause::Switch(_) | Cause::Busy(_)
            )
        );
        // What the speed step aims at: on the way there the timing is another.
        self.best(card).slower().filter(|_| bus)
    }

    /// Steps down to this timing.
    pub(crate) fn step_down_to<M: Machine>(&mut self, channel: &mut Channel<M>, slower: Timing) {
        channel.errors.note(channel.script.now(), ErrorKind::StepDown, slower as u32);
        self.fastest = slower;
    }

    /// After an error that a bad sampling point can cause: looks for the sampling point again, and
    /// steps down if that was done too often. Whether nothing more is to be done; otherwise the
    /// card has to be reset.
    pub(crate) fn mend<M: Machine>(&mut self, card: &mut Card<M>, error: BusError) -> Run<bool> {
        if !error.may_be_sampling() {
            return Ok(true);
        }
        let often = card.channel.once(|channel| {
            let together = channel.script.now() < self.sampling.0.after_nanos(SAMPLING_NANOS);
            let count = if together { self.sampling.1 + 1 } else { 1 };
            self.sampling = (channel.script.now(), count);
            (count >= SAMPLING_MAX).into()
        }) != 0;
        if !often && settled(card.retune())?.is_ok() {
            return Ok(true);
        }
        let slower = self.best(card).slower();
        let has_slower = card.channel.once(|channel| {
            self.sampling.1 = 0;
            if let Some(slower) = slower {
                self.step_down_to(channel, slower);
            }
            slower.is_some().into()
        }) != 0;
        Ok(!has_slower && often)
    }
}

/// The divider: the base clock is divided by twice this value, or by one if it is 0. Older
/// controllers accept powers of two up to 128.
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
