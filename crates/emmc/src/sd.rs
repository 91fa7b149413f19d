//! SD cards: where their identification, registers and timing differ from those of eMMC.

use crate::Cause;
use crate::bus::Response;
use crate::card::Card;
use crate::channel::Run;
use crate::device::{CardFacts, Timing};
use crate::timing::Speed;
use flysch_api::machine::Machine;
use flysch_script::Replay;
use flysch_wire::mmc::Csd;
use flysch_wire::mmc::command::CommandIndex;
use flysch_wire::mmc::sd::{self, Scr};
use flysch_wire::mmc::sdhci::Capabilities;

/// Clock before and with high speed, Hz.
const CLOCKS: (u32, u32) = (25_000_000, 50_000_000);
/// Class 10: CMD6.
const SWITCH_CLASS: u16 = 1 << 10;

impl<M: Machine> Card<M> {
    /// CMD55 and an application command.
    fn application(&mut self, index: u8, argument: u32, response: Response) -> Run<u32> {
        let address = self.address();
        self.channel.must(CommandIndex::AppCmd, address)?;
        let [answer, ..] =
            self.channel.command(CommandIndex::from_bits(index), argument, response)?;
        Ok(answer)
    }

    /// Takes over CSD and reads SCR; the card is selected.
    pub(crate) fn read_sd_registers(&mut self, csd: u128) -> Run<()> {
        let csd = Csd::parse_sd(csd);
        if csd.sd_sectors() == 0 {
            return Err(Cause::Answer("capacity").into());
        }
        self.channel.must(CommandIndex::SetBlocklen, 512)?;
        let scr = self.read_scr()?;
        self.channel.effect(|_| {
            self.device.scr = Scr::parse(&scr);
            self.device.csd = csd;
            self.device.sectors = csd.sd_sectors();
        });
        Ok(())
    }

    /// ACMD51.
    fn read_scr(&mut self) -> Run<[u8; Scr::LENGTH]> {
        let address = self.address();
        self.channel.must(CommandIndex::AppCmd, address)?;
        let index = CommandIndex::from_bits(sd::SEND_SCR);
        if let Err(error) = self.fetch((index, 0), (Scr::LENGTH as u16, 1))? {
            return Err(Cause::Bus(index, error).into());
        }
        let scr = self.channel.once(|channel| {
            let mut bytes = [0; Scr::LENGTH];
            channel.layout.scratch.read(0, &mut bytes);
            u64::from_be_bytes(bytes)
        });
        Ok(scr.to_be_bytes())
    }

    /// CMD6 of SD: the supported functions of group 1, and the one that is, or would be, active.
    fn switch_function(&mut self, argument: u32) -> Run<(u16, u8)> {
        let fetched =
            self.fetch((CommandIndex::Switch, argument), (sd::SWITCH_STATUS as u16, 1))?;
        if let Err(error) = fetched {
            return Err(Cause::Bus(CommandIndex::Switch, error).into());
        }
        let told = self.channel.once(|channel| {
            let mut status = [0; sd::SWITCH_STATUS];
            channel.layout.scratch.read(0, &mut status);
            u64::from(sd::access_modes(&status)) << 8 | u64::from(sd::access_mode_of(&status))
        });
        Ok(((told >> 8) as u16, told as u8))
    }
}

/// Of SD cards.
impl Speed {
    /// Whether 1.8 V is of use: the controller has a mode of UHS-I, which is trusted.
    pub(crate) fn wants_uhs(&self, caps: &Capabilities) -> bool {
        self.fastest >= Timing::Ddr50 && (caps.sdr50() || caps.sdr104() || caps.ddr50())
    }

    /// The fastest trusted timing that card, controller and lines support.
    pub(crate) fn best_of_sd<M: Machine>(&self, card: &Card<M>) -> Timing {
        let (CardFacts { access_modes, low_voltage, lines, .. }, caps) =
            (&card.device, &card.channel.capabilities);
        let has = |function: u8| access_modes >> function & 1 != 0;
        let uhs = *low_voltage && *lines == 4;
        self.fastest_of(|timing| match timing {
            Timing::Legacy => true,
            Timing::HighSpeed => has(sd::HIGH_SPEED) && caps.high_speed(),
            Timing::Ddr50 => uhs && has(sd::DDR50) && caps.ddr50(),
            Timing::Sdr50 => uhs && has(sd::SDR50) && (caps.sdr50() || caps.sdr104()),
            Timing::Sdr104 => uhs && has(sd::SDR104) && caps.sdr104(),
            _ => false,
        })
    }

    /// Uses four lines, and the fastest timing that card and controller support.
    pub(crate) fn speed_up_sd<M: Machine>(&self, card: &mut Card<M>) -> Run<()> {
        card.set_clock(CLOCKS.0)?;
        if card.device.scr.four_lines {
            card.application(sd::SET_BUS_WIDTH, sd::FOUR_LINES, Response::Short)?;
            card.set_host_lines(4);
        }
        let wanted = self.fastest >= Timing::HighSpeed;
        if !wanted || card.device.scr.version < 1 || card.device.csd.classes & SWITCH_CLASS == 0 {
            return Ok(());
        }
        let (modes, _) = card.switch_function(sd::access_mode(false, sd::SWITCH_NONE))?;
        card.channel.effect(|_| card.device.access_modes = modes);
        let timing = self.best_of_sd(card);
        let (function, clock) = match timing {
            Timing::HighSpeed => (sd::HIGH_SPEED, CLOCKS.1),
            Timing::Ddr50 => (sd::DDR50, timing.clock()),
            Timing::Sdr50 => (sd::SDR50, timing.clock()),
            Timing::Sdr104 => (sd::SDR104, timing.clock()),
            _ => return Ok(()),
        };
        let (_, now) = card.switch_function(sd::access_mode(true, function))?;
        if now != function {
            return Err(Cause::Switch(0).into());
        }
        card.set_host_timing(timing)?;
        card.set_clock(clock)?;
        if timing.is_tuned() || timing == Timing::Sdr50 && card.channel.capabilities.tune_sdr50() {
            card.tune()?;
        }
        // Does the card report the same as before?
        let known = card.device.scr;
        if Scr::parse(&card.read_scr()?) != known {
            return Err(Cause::Timing.into());
        }
        Ok(())
    }
}
