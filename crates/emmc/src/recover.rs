//! Recovery: find out what is wrong, do the least that helps, and end every command once.
//!
//! Theory. A lane that finds tasks overdue names them to the host as *victims*; an error interrupt
//! is reported. The ladder then climbs as far as it must:
//!
//! 1. **task**: the engine is halted, each victim is cleared in it and discarded in the card
//!    (CMD48), and everything else continues. One that completed after all counts as completed;
//! 2. **queue**: the engine is halted, cleared and switched off, the lines are reset, the card is
//!    stopped (CMD12), interrupted if it stays busy (HPI), told to discard everything (CMD48), and
//!    the engine starts anew. The task to blame - the engine reports which - ends with its error,
//!    all others with a reset;
//! 3. **sampling point**: after an error that a bad one can cause, it is searched for again; if
//!    several such errors come in a row, the bus steps down to the next slower timing, by way of 4;
//! 4. **card reset**: the controller is reset, which certainly ends everything; all lanes give back
//!    their commands, and bring-up runs again, up to [`RESETS`] times;
//! 5. **gone**.
//!
//! Without an engine the transfer that failed takes a shorter way: lines reset, CMD13 to find out
//! the card's state, CMD12 or HPI as that requires, then 3 and 4. Retries are up to the layer
//! above.

use crate::bus::Response;
use crate::card::{Card, RESET_MS};
use crate::channel::{Channel, MS, Run};
use crate::cmdq::TaskEngine;
use crate::control::Core;
use crate::error::BusError;
use crate::history::ErrorKind;
use crate::init::BringUp;
use crate::plain::Failed;
use crate::shared::{Blame, cause};
use crate::timing::Speed;
use crate::{Cause, EmmcError};
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::mmc::command::{CommandIndex, DISCARD_QUEUE, DISCARD_TASK, HPI};
use flysch_wire::mmc::cqhci::{CQCFG, CQCRA, CQIS, CQTERRI, Cqis, Cqterri};
use flysch_wire::mmc::ext_csd;
use flysch_wire::mmc::sdhci::{self as reg, Clock, Interrupts};
use flysch_wire::mmc::{CardState, CardStatus};

/// How often the card is brought up again before it counts as gone.
const RESETS: u8 = 5;
/// Wait before the second try of bring-up, nanoseconds; it doubles with every further try.
const REST: u64 = 100 * MS;
/// How long the card may be busy after CMD12, ms (Linux: 1 s).
const STOP_MS: u32 = 1_000;
/// Tries of a command that ends everything (Linux: 3).
const TRIES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Diagnose,
    Task,
    Queue,
    Plain,
    CardReset,
    /// Before the next try of bring-up.
    Rest,
    BringUp,
    Gone,
}

/// A recovery in progress.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    stage: Stage,
    resets: u8,
    bring_up: BringUp,
}

impl Recovery {
    /// Starts by finding out what is wrong.
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Diagnose, resets: 0, bring_up: BringUp::default() }
    }

    /// Starts with the card reset.
    pub(crate) fn reset() -> Self {
        Self { stage: Stage::CardReset, ..Self::new() }
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        loop {
            let Core { card, speed, engine, .. } = core;
            let next = match self.stage {
                Stage::Diagnose => Ok(diagnose(card, engine)),
                Stage::Task => discard_victims(card, engine),
                Stage::Queue => reset_queue(card, speed, engine),
                Stage::Plain => end_transfer(card, speed),
                Stage::CardReset => stop_all(&mut card.channel, engine),
                Stage::Rest => self.rest(&mut card.channel),
                Stage::BringUp => self.bring_up(core),
                Stage::Gone => {
                    let channel = &mut card.channel;
                    channel.effect(|channel| {
                        channel.errors.note(channel.script.now(), ErrorKind::Gone, 0);
                        channel.shared.orders.publish(Order::GONE);
                    });
                    channel.lanes_obey()?;
                    channel.script.turn_page();
                    return Err(EmmcError::Gone.into());
                }
            };
            let channel = &mut core.card.channel;
            let next = match settled(next)? {
                Ok(next) => {
                    channel.script.turn_page();
                    next
                }
                Err(error) => {
                    channel.drop_script();
                    let removed = error == EmmcError::Failed(Cause::Removed);
                    Some(if removed { Stage::Gone } else { Stage::CardReset })
                }
            };
            match next {
                Some(Stage::CardReset) if self.resets >= RESETS => self.stage = Stage::Gone,
                Some(stage) => self.stage = stage,
                None => return Ok(()),
            }
        }
    }

    /// Power may need a while to come back: every try waits longer.
    fn rest<M: Machine>(&self, channel: &mut Channel<M>) -> Run<Option<Stage>> {
        channel.sleep(REST << self.resets.saturating_sub(1).min(8))?;
        channel.note(ErrorKind::CardReset, self.resets.into());
        Ok(Some(Stage::BringUp))
    }

    fn bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Option<Stage>> {
        match settled(self.bring_up.run(core))? {
            Ok(()) => {
                core.shared().orders.take_causes();
                core.shared().orders.publish(0);
                Ok(None)
            }
            Err(error) => {
                core.card.channel.drop_script();
                self.resets += 1;
                self.bring_up = BringUp::default();
                let removed = matches!(error, EmmcError::Step { cause: Cause::Removed, .. });
                let more = self.resets < RESETS && !removed;
                Ok(Some(if more { Stage::Rest } else { Stage::Gone }))
            }
        }
    }
}

/// Finds out what is wrong, and at which stage to enter.
fn diagnose<M: Machine>(card: &mut Card<M>, engine: &TaskEngine) -> Option<Stage> {
    let causes = card.channel.once(|channel| {
        let mut causes = channel.shared.orders.take_causes();
        let status = channel.machine.read32(reg::STATUS);
        if status == u32::MAX || causes & cause::REMOVED != 0 {
            channel.errors.note(channel.script.now(), ErrorKind::Removed, status);
            return u64::from(cause::REMOVED);
        }
        if engine.runs && channel.has_failed() {
            causes |= cause::ERROR;
        }
        u64::from(causes)
    }) as u32;
    if causes & cause::REMOVED != 0 {
        return Some(Stage::Gone);
    }
    if causes & cause::LOST != 0 {
        return Some(Stage::CardReset);
    }
    if card.channel.plain.failed.is_some() {
        return Some(Stage::Plain);
    }
    let queueing = card.device.queue_depth != 0;
    if queueing && causes & cause::ERROR != 0 {
        return Some(Stage::Queue);
    }
    (queueing && card.channel.shared.victims() != 0).then_some(Stage::Task)
}

/// Gives an order and waits until every lane has obeyed.
fn obey<M: Machine>(channel: &mut Channel<M>, flags: u32) -> Run<()> {
    channel.order(flags);
    channel.lanes_obey()?;
    Ok(())
}

/// Removes every victim from engine and card, and leaves everything else.
fn discard_victims<M: Machine>(card: &mut Card<M>, engine: &mut TaskEngine) -> Run<Option<Stage>> {
    let channel = &mut card.channel;
    obey(channel, Order::PAUSE)?;
    // The last task on the bus may have failed: that must not be cleared here.
    if engine.halt(channel)?.is_err() || channel.once(|channel| channel.has_failed().into()) != 0 {
        return Ok(Some(Stage::Queue));
    }
    if engine.release(channel)?.is_err() {
        return Ok(Some(Stage::Queue));
    }
    // So the lanes have taken in what had ended by now.
    obey(channel, Order::PAUSE)?;
    let victims = channel.once(|channel| channel.shared.victims().into()) as u32;
    let status = match card.status()? {
        Ok(status) => status,
        Err(_) => return Ok(Some(Stage::Queue)),
    };
    if !status.is_ready() {
        return Ok(Some(Stage::Queue));
    }
    let channel = &mut card.channel;
    for task in (0..32).filter(|task| victims >> task & 1 != 0) {
        channel.note(ErrorKind::Overdue, task);
        if engine.clear_task(channel, task)?.is_err() {
            return Ok(Some(Stage::Queue));
        }
        let argument = DISCARD_TASK | task << 16;
        if settled(channel.must(CommandIndex::CmdqTaskMgmt, argument))?.is_err() {
            return Ok(Some(Stage::Queue));
        }
        channel.note(ErrorKind::TaskDiscarded, task);
    }
    channel.effect(|channel| {
        channel.shared.set_blame(Blame { tasks: victims, ..Blame::default() });
        channel.shared.orders.publish(Order::PAUSE | Order::OWN);
    });
    channel.lanes_obey()?;
    engine.give_bus(card);
    Ok(None)
}

/// Determines who is to blame, as the controller reports it.
fn find_blame<M: Machine>(channel: &mut Channel<M>) -> Blame {
    channel.effect(|channel| {
        let base = channel.engine.base.unwrap_or(0);
        let status = channel.machine.read32(reg::STATUS);
        let told = Cqis::from_bits(channel.machine.read32(base + CQIS));
        let error = Cqterri::from_bits(channel.machine.read32(base + CQTERRI));
        let mut blame = Blame { tasks: 0, code: status & Interrupts::ERRORS, status: 0 };
        if error.command_valid() {
            blame.tasks |= 1 << error.command_task();
        }
        if error.data_valid() {
            blame.tasks |= 1 << error.data_task();
        }
        if told.response_error() {
            let response = channel.machine.read32(base + CQCRA);
            blame.status = CardStatus::from_bits(response).errors().into_bits();
            blame.code |= BusError::STATUS.0;
            channel.errors.note(channel.script.now(), ErrorKind::Status, response);
        }
        if blame.code & Interrupts::ERRORS != 0 {
            channel.errors.note(channel.script.now(), ErrorKind::Bus, blame.code);
        }
        let victims = channel.shared.victims();
        if victims != 0 {
            channel.errors.note(channel.script.now(), ErrorKind::Overdue, victims.trailing_zeros());
        }
        if blame.tasks == 0 && blame.code != 0 {
            // It must have been one of them: all of them have failed once.
            blame.tasks = u32::MAX;
            blame.code |= BusError::TASK.0;
        }
        channel.shared.set_blame(blame);
    });
    channel.shared.blame()
}

/// Clears engine and card of everything; the engine starts anew.
fn reset_queue<M: Machine>(
    card: &mut Card<M>,
    speed: &mut Speed,
    engine: &mut TaskEngine,
) -> Run<Option<Stage>> {
    let channel = &mut card.channel;
    obey(channel, Order::PAUSE)?;
    let blame = find_blame(channel);
    let halted = engine.release(channel)?.is_ok();
    if halted {
        // What ended before the halt counts: the lanes take it in before the engine forgets.
        obey(channel, Order::PAUSE | Order::STOP)?;
    }
    engine.stop(channel)?;
    channel.reset_lines()?;
    if !halted {
        obey(channel, Order::PAUSE | Order::STOP)?;
    }
    if !card.stop_transfer()? || !discard_all(&mut card.channel)? {
        return Ok(Some(Stage::CardReset));
    }
    if !speed.mend(card, BusError(blame.code))? {
        return Ok(Some(Stage::CardReset));
    }
    engine.restart(card);
    card.channel.effect(|channel| {
        channel.shared.orders.take_causes();
        channel.shared.orders.publish(0);
    });
    Ok(None)
}

/// CMD48 for everything.
fn discard_all<M: Machine>(channel: &mut Channel<M>) -> Run<bool> {
    for _ in 0..TRIES {
        if settled(channel.must(CommandIndex::CmdqTaskMgmt, DISCARD_QUEUE))?.is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Deals with the transfer that failed without an engine.
fn end_transfer<M: Machine>(card: &mut Card<M>, speed: &mut Speed) -> Run<Option<Stage>> {
    let channel = &mut card.channel;
    let Some(Failed { error, .. }) = channel.plain.failed else { return Ok(None) };
    channel.effect(|channel| match channel.plain.failed.map_or(0, |failed| failed.status) {
        0 if error == BusError::SILENT => {
            channel.errors.note(channel.script.now(), ErrorKind::Overdue, 0);
        }
        0 => channel.errors.note(channel.script.now(), ErrorKind::Bus, error.0),
        status => channel.errors.note(channel.script.now(), ErrorKind::Status, status),
    });
    channel.reset_lines()?;
    let Ok(answer) = card.status_again()? else { return Ok(Some(Stage::CardReset)) };
    card.channel.effect(|channel| {
        let told = answer.errors().into_bits();
        if let Some(failed) = &mut channel.plain.failed
            && failed.status == 0
        {
            failed.status = told;
        }
    });
    let calm = match answer.state() {
        CardState::Transfer if answer.ready_for_data() => true,
        CardState::SendingData | CardState::ReceiveData => card.stop_transfer()?,
        CardState::Programming | CardState::Transfer => card.calm()?,
        _ => false,
    };
    let well = calm && speed.mend(card, error)?;
    Ok(if well { None } else { Some(Stage::CardReset) })
}

/// Resets the controller, and has the lanes give back everything.
fn stop_all<M: Machine>(channel: &mut Channel<M>, engine: &mut TaskEngine) -> Run<Option<Stage>> {
    obey(channel, Order::PAUSE)?;
    if let Some(base) = channel.engine.base {
        channel.write(base + CQCFG, 0);
    }
    let all = Clock::new().with_reset_all(true).into_bits();
    channel.write(reg::CLOCK, all);
    match channel.until(("CLOCK", reg::CLOCK), Clock::RESETS, 0, RESET_MS)? {
        Ok(_) => {}
        // Its DMA cannot be stopped: nothing may be given back as if it could.
        Err(_) => return Ok(Some(Stage::Gone)),
    }
    channel.effect(|channel| {
        channel.errors.note(channel.script.now(), ErrorKind::CardReset, 0);
        engine.runs = false;
        channel.bus.forget();
        if let Some(Failed { slot, error, status }) = channel.plain.failed.take() {
            let tasks = 1 << (slot % 32);
            channel.shared.set_blame(Blame { tasks, code: error.0, status });
        }
        channel.shared.orders.publish(Order::PAUSE | Order::STOP);
    });
    channel.lanes_obey()?;
    channel.effect(|channel| channel.shared.set_blame(Blame::default()));
    Ok(Some(Stage::BringUp))
}

/// Bringing the card back into its transfer state.
impl<M: Machine> Card<M> {
    /// CMD13; if its answer was corrupted, once more.
    fn status_again(&mut self) -> Run<Result<CardStatus, BusError>> {
        match self.status()? {
            Ok(status) => Ok(Ok(status)),
            Err(_) => self.status(),
        }
    }

    /// CMD12, and HPI if the card stays busy; `false` if nothing brings it back.
    fn stop_transfer(&mut self) -> Run<bool> {
        self.channel.note(ErrorKind::Stop, 0);
        // A card that was not sending or receiving does not answer it.
        let _ = self.channel.try_command(CommandIndex::StopTransmission, 0, Response::Short)?;
        self.calm()
    }

    /// Waits until the card is ready, with the high priority interrupt if necessary.
    pub(crate) fn calm(&mut self) -> Run<bool> {
        for attempt in 0..2 {
            if self.channel.until_not_busy(None, STOP_MS)? {
                match self.status_again()? {
                    Ok(status) if status.is_ready() => return Ok(true),
                    Ok(status) if status.state() != CardState::Programming => {
                        let stop = CommandIndex::StopTransmission;
                        let _ = self.channel.try_command(stop, 0, Response::Short)?;
                    }
                    Ok(_) => {}
                    Err(_) => return Ok(false),
                }
            }
            if attempt == 0 && !self.interrupt()? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// HPI (6.6.23): ends what the card is busy with. `false` without it.
    pub(crate) fn interrupt(&mut self) -> Run<bool> {
        let Some(by_stop) = self.device.hpi() else { return Ok(false) };
        let index = if by_stop { CommandIndex::StopTransmission } else { CommandIndex::SendStatus };
        let argument = self.address() | HPI;
        let _ = self.channel.try_command(index, argument, Response::Short)?;
        self.channel.note(ErrorKind::Hpi, 0);
        let told = self.device.ext_csd.byte(ext_csd::OUT_OF_INTERRUPT_TIME);
        let timeout = (u32::from(told) * 10).max(100);
        Ok(self.channel.until_not_busy(None, timeout)?)
    }
}
