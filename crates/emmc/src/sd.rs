//! SD cards: what their identification, registers and timing have of their own.

use crate::bus::Response;
use crate::control::{Core, MS, Run};
use crate::device::{CardKind, Timing};
use crate::{Cause, quirks::CardQuirks};
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::mmc::command::{CommandIndex, OCR_POWERED_UP, OCR_SECTOR_MODE};
use flysch_wire::mmc::sd::{self, Scr};
use flysch_wire::mmc::{Cid, Csd};

/// Between two questions whether the card has powered up, nanoseconds.
const POWER_UP_REST: u64 = 10 * MS;
/// Clock before and with high speed, Hz.
const CLOCKS: (u32, u32) = (25_000_000, 50_000_000);
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
        let capacity = if second { sd::HCS } else { 0 };
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
            let argument = sd::VOLTAGES | capacity;
            let [ocr, ..] = self.command(index, argument, Response::Plain)?;
            if ocr & OCR_POWERED_UP != 0 {
                break ocr;
            }
            if self.once(|core| (core.now.nanos() >= until).into()) != 0 {
                return Err(Cause::Busy(CommandIndex::AppCmd).into());
            }
            self.sleep(POWER_UP_REST)?;
        };
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

    /// CSD and SCR; the card is selected.
    pub(crate) fn read_sd_registers(&mut self, csd: u128) -> Run<()> {
        let csd = Csd::parse_sd(csd);
        if csd.sd_sectors() == 0 {
            return Err(Cause::Answer("capacity").into());
        }
        self.must(CommandIndex::SetBlocklen, 512)?;
        let address = self.address();
        self.must(CommandIndex::AppCmd, address)?;
        let index = CommandIndex::from_bits(sd::SEND_SCR);
        if let Err(error) = self.fetch((index, 0), (Scr::LENGTH as u16, 1))? {
            return Err(Cause::Bus(index, error).into());
        }
        self.effect(|core| {
            let mut bytes = [0; Scr::LENGTH];
            core.layout.scratch.read(0, &mut bytes);
            core.device.scr = Scr::parse(&bytes);
            core.device.csd = csd;
            core.device.sectors = csd.sd_sectors();
        });
        Ok(())
    }

    /// Four lines, and high speed where the card has it.
    pub(crate) fn speed_up_sd(&mut self) -> Run<()> {
        self.set_clock(CLOCKS.0)?;
        if self.device.scr.four_lines {
            self.application(sd::SET_BUS_WIDTH, sd::FOUR_LINES, Response::Short)?;
            self.set_host_lines(4);
        }
        let wanted = self.options.timing >= Timing::HighSpeed && self.capabilities.high_speed();
        if !wanted || self.device.scr.version < 1 || self.device.csd.classes & SWITCH_CLASS == 0 {
            return Ok(());
        }
        let now = self.switch_function(sd::access_mode(false, sd::HIGH_SPEED))?;
        if now != sd::HIGH_SPEED {
            return Ok(());
        }
        let now = self.switch_function(sd::access_mode(true, sd::HIGH_SPEED))?;
        if now != sd::HIGH_SPEED {
            return Err(Cause::Switch(0).into());
        }
        self.set_host_timing(Timing::HighSpeed)?;
        self.set_clock(CLOCKS.1)
    }

    /// CMD6 of SD: the function of group 1 that is, or would be, in force.
    fn switch_function(&mut self, argument: u32) -> Run<u8> {
        let fetched =
            self.fetch((CommandIndex::Switch, argument), (sd::SWITCH_STATUS as u16, 1))?;
        if let Err(error) = fetched {
            return Err(Cause::Bus(CommandIndex::Switch, error).into());
        }
        let function = self.once(|core| {
            let mut status = [0; sd::SWITCH_STATUS];
            core.layout.scratch.read(0, &mut status);
            sd::access_mode_of(&status).into()
        });
        Ok(function as u8)
    }
}
