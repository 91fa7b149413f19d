//! SD cards: what their identification, registers and timing have of their own.

use crate::bus::Response;
use crate::control::{Core, MS, Run};
use crate::device::{CardKind, Device, Timing};
use crate::{Cause, quirks::CardQuirks};
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::mmc::command::{CommandIndex, OCR_POWERED_UP, OCR_SECTOR_MODE};
use flysch_wire::mmc::sd::{self, Scr};
use flysch_wire::mmc::sdhci::{self as reg, Control2, Present};
use flysch_wire::mmc::{Cid, Csd};

/// Between two questions whether the card has powered up, nanoseconds.
const POWER_UP_REST: u64 = 10 * MS;
/// Clock before and with high speed, Hz.
const CLOCKS: (u32, u32) = (25_000_000, 50_000_000);
/// The clock stands still while the voltage changes (SD 4.2.4.2: 5 ms; Linux: 10 ms), nanoseconds.
const SIGNAL_REST: u64 = 10 * MS;
/// Levels of DAT3 to DAT0 of a card that holds its lines down, and of one that does not.
const DOWN: u8 = 0;
const UP: u8 = 0xF;
/// Class 10: CMD6.
const SWITCH_CLASS: u16 = 1 << 10;

impl<M: Machine> Core<M> {
    /// CMD55 and an application command.
    fn application(&mut self, index: u8, argument: u32, response: Response) -> Run<u32> {
        let address = self.address();
        self.must(CommandIndex::AppCmd, address)?;
        let [answer, ..] = self.command(CommandIndex::from_bits(index), argument, response)?;
        Ok(answer)
    }

    /// From no address to one (SD 4.2).
    pub(crate) fn identify_sd(&mut self) -> Run<()> {
        self.command(CommandIndex::GoIdleState, 0, Response::None)?;
        self.sleep(MS)?;
        // Cards before 2.00 do not know the question.
        let index = CommandIndex::from_bits(sd::SEND_IF_COND);
        let second = match self.try_command(index, sd::IF_COND, Response::Short)? {
            Ok([answer, ..]) if answer & 0xFFF == sd::IF_COND => true,
            Ok(_) => return Err(Cause::Answer("interface condition").into()),
            Err(_) => false,
        };
        let mut wanted = sd::VOLTAGES;
        if second {
            wanted |= sd::HCS;
        }
        if second && self.wants_uhs() {
            wanted |= sd::S18;
        }
        let until = self.once(|core| {
            let timeout = u64::from(core.options.timeouts.power_up_ms) * MS;
            core.now.after_nanos(timeout).nanos()
        });
        let ocr = loop {
            let asked = self.try_command(CommandIndex::AppCmd, 0, Response::Short)?;
            if asked.is_err() {
                return Err(Cause::NoCard.into());
            }
            let index = CommandIndex::from_bits(sd::SD_SEND_OP_COND);
            let [ocr, ..] = self.command(index, wanted, Response::Plain)?;
            if ocr & OCR_POWERED_UP != 0 {
                break ocr;
            }
            if self.once(|core| (core.now.nanos() >= until).into()) != 0 {
                return Err(Cause::Busy(CommandIndex::AppCmd).into());
            }
            self.sleep(POWER_UP_REST)?;
        };
        if ocr & wanted & sd::S18 != 0 {
            self.lower_voltage()?;
        }
        let cid = self.long(CommandIndex::AllSendCid, 0)?;
        let [answer, ..] = self.command(CommandIndex::SetRelativeAddr, 0, Response::Short)?;
        self.effect(|core| {
            let device = &mut core.device;
            device.kind = CardKind::Sd;
            device.cid = Cid::parse_sd(cid);
            device.quirks = CardQuirks::NONE.and(core.options.card_quirks);
            device.rca = (answer >> 16) as u16;
            device.sector_addressed = ocr & OCR_SECTOR_MODE != 0;
        });
        Ok(())
    }

    /// Whether 1.8 V is of use: the controller has a mode of UHS-I, and it is believed in.
    fn wants_uhs(&self) -> bool {
        let caps = &self.capabilities;
        self.fastest >= Timing::Ddr50 && (caps.sdr50() || caps.sdr104() || caps.ddr50())
    }

    /// CMD11 (SD 4.2.4.2): the card holds its lines down until the clock runs again at 1.8 V.
    fn lower_voltage(&mut self) -> Run<()> {
        let clock = self.once(|core| core.device.clock.into()) as u32;
        self.must(CommandIndex::VoltageSwitch, 0)?;
        if self.data_lines() != DOWN {
            return Err(Cause::Signal.into());
        }
        self.set_clock(0)?;
        self.modify(reg::CONTROL2, |control| {
            Control2::from_bits(control).with_signal_1_8(true).into_bits()
        });
        self.sleep(SIGNAL_REST)?;
        if !Control2::from_bits(self.read(reg::CONTROL2)).signal_1_8() {
            return Err(Cause::Signal.into());
        }
        self.set_clock(clock)?;
        self.sleep(MS)?;
        if self.data_lines() != UP {
            return Err(Cause::Signal.into());
        }
        self.effect(|core| core.device.low_voltage = true);
        Ok(())
    }

    /// Levels of DAT3 to DAT0.
    fn data_lines(&mut self) -> u8 {
        Present::from_bits(self.read(reg::PRESENT)).data()
    }

    /// CSD and SCR; the card is selected.
    pub(crate) fn read_sd_registers(&mut self, csd: u128) -> Run<()> {
        let csd = Csd::parse_sd(csd);
        if csd.sd_sectors() == 0 {
            return Err(Cause::Answer("capacity").into());
        }
        self.must(CommandIndex::SetBlocklen, 512)?;
        let scr = self.read_scr()?;
        self.effect(|core| {
            core.device.scr = Scr::parse(&scr);
            core.device.csd = csd;
            core.device.sectors = csd.sd_sectors();
        });
        Ok(())
    }

    /// ACMD51.
    fn read_scr(&mut self) -> Run<[u8; Scr::LENGTH]> {
        let address = self.address();
        self.must(CommandIndex::AppCmd, address)?;
        let index = CommandIndex::from_bits(sd::SEND_SCR);
        if let Err(error) = self.fetch((index, 0), (Scr::LENGTH as u16, 1))? {
            return Err(Cause::Bus(index, error).into());
        }
        let scr = self.once(|core| {
            let mut bytes = [0; Scr::LENGTH];
            core.layout.scratch.read(0, &mut bytes);
            u64::from_be_bytes(bytes)
        });
        Ok(scr.to_be_bytes())
    }

    /// The fastest timing that card, controller and lines have, and that is believed in.
    pub(crate) fn best_sd_timing(&self) -> Timing {
        let (Device { access_modes, low_voltage, lines, .. }, caps) =
            (&self.device, &self.capabilities);
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

    /// Four lines, and the fastest timing that card and controller have.
    pub(crate) fn speed_up_sd(&mut self) -> Run<()> {
        self.set_clock(CLOCKS.0)?;
        if self.device.scr.four_lines {
            self.application(sd::SET_BUS_WIDTH, sd::FOUR_LINES, Response::Short)?;
            self.set_host_lines(4);
        }
        let wanted = self.fastest >= Timing::HighSpeed;
        if !wanted || self.device.scr.version < 1 || self.device.csd.classes & SWITCH_CLASS == 0 {
            return Ok(());
        }
        let (modes, _) = self.switch_function(sd::access_mode(false, sd::SWITCH_NONE))?;
        self.effect(|core| core.device.access_modes = modes);
        let timing = self.best_sd_timing();
        let (function, clock) = match timing {
            Timing::HighSpeed => (sd::HIGH_SPEED, CLOCKS.1),
            Timing::Ddr50 => (sd::DDR50, timing.clock()),
            Timing::Sdr50 => (sd::SDR50, timing.clock()),
            Timing::Sdr104 => (sd::SDR104, timing.clock()),
            _ => return Ok(()),
        };
        let (_, now) = self.switch_function(sd::access_mode(true, function))?;
        if now != function {
            return Err(Cause::Switch(0).into());
        }
        self.set_host_timing(timing)?;
        self.set_clock(clock)?;
        if timing.is_tuned() || timing == Timing::Sdr50 && self.capabilities.tune_sdr50() {
            self.tune()?;
        }
        // Whether the card says what it said before.
        let known = self.device.scr;
        if Scr::parse(&self.read_scr()?) != known {
            return Err(Cause::Timing.into());
        }
        Ok(())
    }

    /// CMD6 of SD: the functions of group 1 there are, and the one that is, or would be, in force.
    fn switch_function(&mut self, argument: u32) -> Run<(u16, u8)> {
        let fetched =
            self.fetch((CommandIndex::Switch, argument), (sd::SWITCH_STATUS as u16, 1))?;
        if let Err(error) = fetched {
            return Err(Cause::Bus(CommandIndex::Switch, error).into());
        }
        let told = self.once(|core| {
            let mut status = [0; sd::SWITCH_STATUS];
            core.layout.scratch.read(0, &mut status);
            u64::from(sd::access_modes(&status)) << 8 | u64::from(sd::access_mode_of(&status))
        });
        Ok(((told >> 8) as u16, told as u8))
    }
}
