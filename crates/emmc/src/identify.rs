//! Identification: from power-on to a card with an address, eMMC or SD.

use crate::bus::Response;
use crate::card::Card;
use crate::channel::{Channel, MS, Run};
use crate::device::CardKind;
use crate::quirks::CardQuirks;
use crate::{Cause, EmmcError};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::mmc::Cid;
use flysch_wire::mmc::command::{CommandIndex, OCR_POWERED_UP, OCR_SECTOR_MODE, OCR_VOLTAGES, rca};
use flysch_wire::mmc::sd;
use flysch_wire::mmc::sdhci::{self as reg, Control2, Present};

/// Clocks at which identification is tried, Hz (Linux: the same four).
const IDENTIFY_CLOCKS: [u32; 4] = [400_000, 300_000, 200_000, 100_000];
/// Wait after CMD0: at least 74 clocks, nanoseconds.
const SETTLE: u64 = MS;
/// Interval between two queries whether the card has powered up, nanoseconds (Linux: 10 ms).
const POWER_UP_REST: u64 = 10 * MS;
/// How long the clock stops while the voltage changes (SD 4.2.4.2: 5 ms; Linux: 10 ms),
/// nanoseconds.
const SIGNAL_REST: u64 = 10 * MS;
/// Levels of DAT3 to DAT0 when the card holds its lines low, and when it does not.
const DOWN: u8 = 0;
const UP: u8 = 0xF;

/// How a card is identified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identification {
    /// An SD card is asked for 1.8 V.
    pub(crate) wants_uhs: bool,
}

impl Identification {
    /// From power-on to an address: an eMMC device answers CMD1, an SD card does not.
    pub(crate) fn run<M: Machine>(&self, card: &mut Card<M>) -> Run<()> {
        let mut last = EmmcError::Failed(Cause::NoCard);
        for clock in IDENTIFY_CLOCKS {
            card.set_clock(clock)?;
            card.channel.sleep(SETTLE)?;
            card.channel.command(CommandIndex::GoIdleState, 0, Response::None)?;
            card.channel.sleep(SETTLE)?;
            let found = settled(self.at_clock(card))?;
            match found {
                Ok(()) => return Ok(()),
                Err(error @ EmmcError::Failed(Cause::Signal)) => return Err(error.into()),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn at_clock<M: Machine>(&self, card: &mut Card<M>) -> Run<()> {
        let first = card.channel.try_command(CommandIndex::SendOpCond, 0, Response::Plain)?;
        let Ok([ocr, ..]) = first else {
            return self.sd(card);
        };
        let volts = ocr & OCR_VOLTAGES;
        if volts == 0 {
            return Err(Cause::Voltage.into());
        }
        let argument = volts | OCR_SECTOR_MODE;
        let ocr = power_up(&mut card.channel, argument)?;
        let cid = card.channel.long(CommandIndex::AllSendCid, 0)?;
        card.channel.effect(|channel| {
            let device = &mut card.device;
            device.kind = CardKind::Emmc;
            device.cid = Cid::parse(cid);
            device.quirks = CardQuirks::find(&device.cid).and(channel.options.card_quirks);
            device.rca = 1;
            device.sector_addressed = ocr & OCR_SECTOR_MODE != 0;
        });
        card.channel.must(CommandIndex::SetRelativeAddr, rca(1)).map(|_| ())
    }

    /// An SD card (SD 4.2).
    fn sd<M: Machine>(&self, card: &mut Card<M>) -> Run<()> {
        card.channel.command(CommandIndex::GoIdleState, 0, Response::None)?;
        card.channel.sleep(MS)?;
        // Cards before 2.00 do not know this command.
        let index = CommandIndex::from_bits(sd::SEND_IF_COND);
        let second = match card.channel.try_command(index, sd::IF_COND, Response::Short)? {
            Ok([answer, ..]) if answer & 0xFFF == sd::IF_COND => true,
            Ok(_) => return Err(Cause::Answer("interface condition").into()),
            Err(_) => false,
        };
        let mut wanted = sd::VOLTAGES;
        if second {
            wanted |= sd::HCS;
        }
        if second && self.wants_uhs {
            wanted |= sd::S18;
        }
        let until = card.channel.once(|channel| {
            let timeout = u64::from(channel.options.timeouts.power_up_ms) * MS;
            channel.script.now().after_nanos(timeout).nanos()
        });
        let ocr = loop {
            let asked = card.channel.try_command(CommandIndex::AppCmd, 0, Response::Short)?;
            if asked.is_err() {
                return Err(Cause::NoCard.into());
            }
            let index = CommandIndex::from_bits(sd::SD_SEND_OP_COND);
            let [ocr, ..] = card.channel.command(index, wanted, Response::Plain)?;
            if ocr & OCR_POWERED_UP != 0 {
                break ocr;
            }
            if card.channel.once(|channel| (channel.script.now().nanos() >= until).into()) != 0 {
                return Err(Cause::Busy(CommandIndex::AppCmd).into());
            }
            card.channel.sleep(POWER_UP_REST)?;
        };
        if ocr & wanted & sd::S18 != 0 {
            lower_voltage(card)?;
        }
        let cid = card.channel.long(CommandIndex::AllSendCid, 0)?;
        let [answer, ..] =
            card.channel.command(CommandIndex::SetRelativeAddr, 0, Response::Short)?;
        card.channel.effect(|channel| {
            let device = &mut card.device;
            device.kind = CardKind::Sd;
            device.cid = Cid::parse_sd(cid);
            device.quirks = CardQuirks::NONE.and(channel.options.card_quirks);
            device.rca = (answer >> 16) as u16;
            device.sector_addressed = ocr & OCR_SECTOR_MODE != 0;
        });
        Ok(())
    }
}

/// Repeats CMD1 until the card has powered up.
fn power_up<M: Machine>(channel: &mut Channel<M>, argument: u32) -> Run<u32> {
    let until = channel.once(|channel| {
        let timeout = u64::from(channel.options.timeouts.power_up_ms) * MS;
        channel.script.now().after_nanos(timeout).nanos()
    });
    loop {
        let [ocr, ..] = channel.command(CommandIndex::SendOpCond, argument, Response::Plain)?;
        if ocr & OCR_POWERED_UP != 0 {
            return Ok(ocr);
        }
        if channel.once(|channel| (channel.script.now().nanos() >= until).into()) != 0 {
            return Err(Cause::Busy(CommandIndex::SendOpCond).into());
        }
        channel.sleep(POWER_UP_REST)?;
    }
}

/// CMD11 (SD 4.2.4.2): the card holds its lines low until the clock runs again at 1.8 V.
fn lower_voltage<M: Machine>(card: &mut Card<M>) -> Run<()> {
    let clock = card.channel.once(|_| card.device.clock.into()) as u32;
    card.channel.must(CommandIndex::VoltageSwitch, 0)?;
    if data_lines(&mut card.channel) != DOWN {
        return Err(Cause::Signal.into());
    }
    card.set_clock(0)?;
    card.channel.modify(reg::CONTROL2, |control| {
        Control2::from_bits(control).with_signal_1_8(true).into_bits()
    });
    card.channel.sleep(SIGNAL_REST)?;
    if !Control2::from_bits(card.channel.read(reg::CONTROL2)).signal_1_8() {
        return Err(Cause::Signal.into());
    }
    card.set_clock(clock)?;
    card.channel.sleep(MS)?;
    if data_lines(&mut card.channel) != UP {
        return Err(Cause::Signal.into());
    }
    card.channel.effect(|_| card.device.low_voltage = true);
    Ok(())
}

/// Levels of DAT3 to DAT0.
fn data_lines<M: Machine>(channel: &mut Channel<M>) -> u8 {
    Present::from_bits(channel.read(reg::PRESENT)).data()
}
