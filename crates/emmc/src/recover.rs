//! Recovery: find out what is wrong, do the least that helps, and end every command once.
//!
//! Theory. A lane that finds tasks overdue names them to the host as *victims*; an error interrupt
//! is reported. The ladder then climbs as far as it must:
//!
//! 1. **task**: the engine is halted, each victim is cleared in it and discarded in the card
//!    (CMD48), and everything else goes on. One that completed well after all counts as completed;
//! 2. **queue**: the engine is halted, cleared and switched off, the lines are reset, the card is
//!    stopped (CMD12), interrupted if it stays busy (HPI), told to discard everything (CMD48), and
//!    the engine starts anew. Who was to blame - the engine says which task - ends with what was
//!    said of it, everybody else with a reset;
//! 3. **sampling point**: after an error that a bad one can cause it is looked for again; if such
//!    errors come one after the other the bus steps down to the next slower timing, by way of 4;
//! 4. **card reset**: the controller is reset - which certainly ends everything -, all lanes give
//!    back what they had, and bring-up runs again, up to [`RESETS`] times;
//! 5. **gone**.
//!
//! Without an engine the transfer that failed takes a shorter way: lines reset, CMD13 to see where
//! the card is, CMD12 or HPI as that asks for, then 3 and 4. To try it again is the business of the
//! layer above.

use crate::bus::Response;
use crate::control::{Core, MS, Run, Stop, settled};
use crate::error::BusError;
use crate::history::ErrorKind;
use crate::init::BringUp;
use crate::plain::Failed;
use crate::shared::{Blame, cause};
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::mmc::command::{CommandIndex, DISCARD_QUEUE, DISCARD_TASK, HPI};
use flysch_wire::mmc::cqhci::{CQCFG, CQCRA, CQIS, CQTERRI, Cqis, Cqterri};
use flysch_wire::mmc::ext_csd;
use flysch_wire::mmc::sdhci::{self as reg, Clock, Interrupts};
use flysch_wire::mmc::{CardState, CardStatus};

/// How often the card is brought up again before it counts as gone.
const RESETS: u8 = 5;
/// Rest before the second try of bring-up, nanoseconds; it doubles with every one after.
const REST: u64 = 100 * MS;
/// Busy after CMD12, ms (Linux: 1 s).
const STOP_MS: u32 = 1_000;
/// Tries of a command that ends everything (Linux: 3).
const TRIES: usize = 3;
/// Errors of the sampling point in a row before the bus steps down, and within what time they
/// count as one after the other, nanoseconds.
const SAMPLING_MAX: u32 = 3;
const SAMPLING_NANOS: u64 = 1_000 * MS;

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

/// A recovery under way.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    stage: Stage,
    resets: u8,
    bring_up: BringUp,
}

impl Recovery {
    /// Starts by finding out.
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Diagnose, resets: 0, bring_up: BringUp::default() }
    }

    /// Starts with the card reset.
    pub(crate) fn reset() -> Self {
        Self { stage: Stage::CardReset, ..Self::new() }
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        loop {
            let next = match self.stage {
                Stage::Diagnose => Ok(core.diagnose()),
                Stage::Task => core.discard_victims(),
                Stage::Queue => core.reset_queue(),
                Stage::Plain => core.end_transfer(),
                Stage::CardReset => core.stop_all(),
                Stage::Rest => core.rest(self.resets),
                Stage::BringUp => self.bring_up(core),
                Stage::Gone => {
                    core.effect(|core| {
                        core.errors.note(core.now, ErrorKind::Gone, 0);
                        core.shared.orders.publish(Order::GONE);
                    });
                    core.lanes_obey()?;
                    core.turn_page();
                    return Err(Stop::Failed(Error::Gone));
                }
            };
            let next = match next {
                Ok(next) => {
                    core.turn_page();
                    next
                }
                Err(Stop::Pending) => return Err(Stop::Pending),
                Err(Stop::Failed(error)) => {
                    core.drop_script();
                    let removed = error == Error::Failed(Cause::Removed);
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

    fn bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Option<Stage>> {
        match self.bring_up.run(core) {
            Ok(()) => {
                core.shared.orders.take_causes();
                core.shared.orders.publish(0);
                Ok(None)
            }
            Err(Stop::Pending) => Err(Stop::Pending),
            Err(Stop::Failed(error)) => {
                core.drop_script();
                self.resets += 1;
                self.bring_up = BringUp::default();
                let removed = matches!(error, Error::Step { cause: Cause::Removed, .. });
                let more = self.resets < RESETS && !removed;
                Ok(Some(if more { Stage::Rest } else { Stage::Gone }))
            }
        }
    }
}

impl<M: Machine> Core<M> {
    fn diagnose(&mut self) -> Option<Stage> {
        let causes = self.once(|core| {
            let mut causes = core.shared.orders.take_causes();
            let status = core.machine.read32(reg::STATUS);
            if status == u32::MAX || causes & cause::REMOVED != 0 {
                core.errors.note(core.now, ErrorKind::Removed, status);
                return u64::from(cause::REMOVED);
            }
            if core.queueing && core.has_failed() {
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
        if self.plain.failed.is_some() {
            return Some(Stage::Plain);
        }
        let queueing = self.device.queue_depth != 0;
        if queueing && causes & cause::ERROR != 0 {
            return Some(Stage::Queue);
        }
        (queueing && self.shared.victims() != 0).then_some(Stage::Task)
    }

    /// Takes every victim out of engine and card, and leaves everything else.
    fn discard_victims(&mut self) -> Run<Option<Stage>> {
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
        // The last task on the bus may have failed: that is not to be cleared away here.
        if self.halt()?.is_err() || self.once(|core| core.has_failed().into()) != 0 {
            return Ok(Some(Stage::Queue));
        }
        if self.halt_engine()?.is_err() {
            return Ok(Some(Stage::Queue));
        }
        // What had ended by now the lanes have taken in.
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
        let victims = self.once(|core| core.shared.victims().into()) as u32;
        let status = match self.status()? {
            Ok(status) => status,
            Err(_) => return Ok(Some(Stage::Queue)),
        };
        if !status.is_ready() {
            return Ok(Some(Stage::Queue));
        }
        for task in (0..32).filter(|task| victims >> task & 1 != 0) {
            self.effect(|core| core.errors.note(core.now, ErrorKind::Overdue, task));
            if self.clear_task(task)?.is_err() {
                return Ok(Some(Stage::Queue));
            }
            let argument = DISCARD_TASK | task << 16;
            if settled(self.must(CommandIndex::CmdqTaskMgmt, argument))?.is_err() {
                return Ok(Some(Stage::Queue));
            }
            self.effect(|core| core.errors.note(core.now, ErrorKind::TaskDiscarded, task));
        }
        self.effect(|core| {
            core.shared.set_blame(Blame { tasks: victims, ..Blame::default() });
            core.shared.orders.publish(Order::PAUSE | Order::OWN);
        });
        self.lanes_obey()?;
        self.give_bus();
        Ok(None)
    }

    /// Who is to blame, as the controller tells it.
    fn blame(&mut self) -> Blame {
        self.effect(|core| {
            let base = core.engine.base.unwrap_or(0);
            let status = core.machine.read32(reg::STATUS);
            let told = Cqis::from_bits(core.machine.read32(base + CQIS));
            let error = Cqterri::from_bits(core.machine.read32(base + CQTERRI));
            let mut blame = Blame { tasks: 0, code: status & Interrupts::ERRORS, status: 0 };
            if error.command_valid() {
                blame.tasks |= 1 << error.command_task();
            }
            if error.data_valid() {
                blame.tasks |= 1 << error.data_task();
            }
            if told.response_error() {
                let response = core.machine.read32(base + CQCRA);
                blame.status = CardStatus::from_bits(response).errors().into_bits();
                blame.code |= BusError::STATUS.0;
                core.errors.note(core.now, ErrorKind::Status, response);
            }
            if blame.code & Interrupts::ERRORS != 0 {
                core.errors.note(core.now, ErrorKind::Bus, blame.code);
            }
            let victims = core.shared.victims();
            if victims != 0 {
                core.errors.note(core.now, ErrorKind::Overdue, victims.trailing_zeros());
            }
            if blame.tasks == 0 && blame.code != 0 {
                // Somebody it was: all of them have failed once.
                blame.tasks = u32::MAX;
                blame.code |= BusError::TASK.0;
            }
            core.shared.set_blame(blame);
        });
        self.shared.blame()
    }

    /// Everything out of engine and card; the engine starts anew.
    fn reset_queue(&mut self) -> Run<Option<Stage>> {
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
        let blame = self.blame();
        let halted = self.halt_engine()?.is_ok();
        if halted {
            // What ended before the halt counts: the lanes take it in before the engine forgets.
            self.effect(|core| core.shared.orders.publish(Order::PAUSE | Order::STOP));
            self.lanes_obey()?;
        }
        self.stop_engine()?;
        self.reset_lines()?;
        if !halted {
            self.effect(|core| core.shared.orders.publish(Order::PAUSE | Order::STOP));
            self.lanes_obey()?;
        }
        if !self.stop_card()? || !self.discard_all()? {
            return Ok(Some(Stage::CardReset));
        }
        if let Some(stage) = self.mend_sampling(BusError(blame.code))? {
            return Ok(Some(stage));
        }
        self.restart_engine()?;
        self.effect(|core| {
            core.shared.orders.take_causes();
            core.shared.orders.publish(0);
        });
        Ok(None)
    }

    /// A command of the host's own failed on the bus: brings the card back, and mends the sampling
    /// point. `false` if only a reset of the card helps.
    pub(crate) fn end_disturbed(&mut self, error: BusError) -> Run<bool> {
        self.effect(|core| core.errors.note(core.now, ErrorKind::Bus, error.0));
        Ok(self.calm()? && self.mend_sampling(error)?.is_none())
    }

    /// CMD13; if its answer was spoilt, once more.
    fn status_again(&mut self) -> Run<Result<CardStatus, BusError>> {
        match self.status()? {
            Ok(status) => Ok(Ok(status)),
            Err(_) => self.status(),
        }
    }

    /// CMD12, and HPI if the card stays busy; `false` if nothing brings it back.
    fn stop_card(&mut self) -> Run<bool> {
        self.effect(|core| core.errors.note(core.now, ErrorKind::Stop, 0));
        // A card that was not sending or receiving does not answer it.
        let _ = self.try_command(CommandIndex::StopTransmission, 0, Response::Short)?;
        self.calm()
    }

    /// Waits until the card is ready, with the high priority interrupt if it has to be.
    fn calm(&mut self) -> Run<bool> {
        for attempt in 0..2 {
            if self.until_not_busy(None, STOP_MS)? {
                match self.status_again()? {
                    Ok(status) if status.is_ready() => return Ok(true),
                    Ok(status) if status.state() != CardState::Programming => {
                        let stop = CommandIndex::StopTransmission;
                        let _ = self.try_command(stop, 0, Response::Short)?;
                    }
                    Ok(_) => {}
                    Err(_) => return Ok(false),
                }
            }
            if attempt == 0 && !self.interrupt_card()? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// HPI (6.6.23): ends what the card is busy with. `false` without it.
    pub(crate) fn interrupt_card(&mut self) -> Run<bool> {
        let Some(by_stop) = self.device.hpi() else { return Ok(false) };
        let index = if by_stop { CommandIndex::StopTransmission } else { CommandIndex::SendStatus };
        let argument = self.address() | HPI;
        let _ = self.try_command(index, argument, Response::Short)?;
        self.effect(|core| core.errors.note(core.now, ErrorKind::Hpi, 0));
        let told = self.device.ext_csd.byte(ext_csd::OUT_OF_INTERRUPT_TIME);
        let timeout = (u32::from(told) * 10).max(100);
        Ok(self.until_not_busy(None, timeout)?)
    }

    /// CMD48 for everything.
    fn discard_all(&mut self) -> Run<bool> {
        for _ in 0..TRIES {
            let index = CommandIndex::CmdqTaskMgmt;
            if settled(self.must(index, DISCARD_QUEUE))?.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// After an error that a bad sampling point can cause: looks for it again, and steps down if
    /// that was done too often.
    fn mend_sampling(&mut self, error: BusError) -> Run<Option<Stage>> {
        if !error.may_be_sampling() {
            return Ok(None);
        }
        let often = self.once(|core| {
            let together = core.now < core.sampling.0.after_nanos(SAMPLING_NANOS);
            let count = if together { core.sampling.1 + 1 } else { 1 };
            core.sampling = (core.now, count);
            (count >= SAMPLING_MAX).into()
        }) != 0;
        if !often && settled(self.retune())?.is_ok() {
            return Ok(None);
        }
        let slower = self.once(|core| {
            core.sampling.1 = 0;
            let aim = core.best_timing();
            match aim.slower() {
                Some(slower) => {
                    core.errors.note(core.now, ErrorKind::StepDown, slower as u32);
                    core.fastest = slower;
                    1
                }
                None => 0,
            }
        }) != 0;
        Ok((slower || !often).then_some(Stage::CardReset))
    }

    /// The transfer that failed without an engine.
    fn end_transfer(&mut self) -> Run<Option<Stage>> {
        let Some(Failed { error, .. }) = self.plain.failed else { return Ok(None) };
        self.effect(|core| match core.plain.failed.map_or(0, |failed| failed.status) {
            0 if error == BusError::SILENT => {
                core.errors.note(core.now, ErrorKind::Overdue, 0);
            }
            0 => core.errors.note(core.now, ErrorKind::Bus, error.0),
            status => core.errors.note(core.now, ErrorKind::Status, status),
        });
        self.reset_lines()?;
        let Ok(answer) = self.status_again()? else { return Ok(Some(Stage::CardReset)) };
        self.effect(|core| {
            let told = answer.errors().into_bits();
            if let Some(failed) = &mut core.plain.failed
                && failed.status == 0
            {
                failed.status = told;
            }
        });
        let calm = match answer.state() {
            CardState::Transfer if answer.ready_for_data() => true,
            CardState::SendingData | CardState::ReceiveData => self.stop_card()?,
            CardState::Programming | CardState::Transfer => self.calm()?,
            _ => false,
        };
        if !calm {
            return Ok(Some(Stage::CardReset));
        }
        self.mend_sampling(error)
    }

    /// The controller is reset, and lanes give back everything.
    fn stop_all(&mut self) -> Run<Option<Stage>> {
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
        if let Some(base) = self.engine.base {
            self.write(base + CQCFG, 0);
        }
        let all = Clock::new().with_reset_all(true).into_bits();
        self.write(reg::CLOCK, all);
        match self.until(("CLOCK", reg::CLOCK), Clock::RESETS, 0, crate::card::RESET_MS)? {
            Ok(_) => {}
            // Its DMA cannot be stopped: nothing may be handed back as if it could.
            Err(_) => return Ok(Some(Stage::Gone)),
        }
        self.effect(|core| {
            core.errors.note(core.now, ErrorKind::CardReset, 0);
            core.queueing = false;
            core.bus.forget();
            if let Some(Failed { slot, error, status }) = core.plain.failed.take() {
                let tasks = 1 << (slot % 32);
                core.shared.set_blame(Blame { tasks, code: error.0, status });
            }
            core.shared.orders.publish(Order::PAUSE | Order::STOP);
        });
        self.lanes_obey()?;
        self.effect(|core| core.shared.set_blame(Blame::default()));
        Ok(Some(Stage::BringUp))
    }

    fn rest(&mut self, resets: u8) -> Run<Option<Stage>> {
        self.sleep(REST << resets.saturating_sub(1).min(8))?;
        self.effect(|core| core.errors.note(core.now, ErrorKind::CardReset, resets.into()));
        Ok(Some(Stage::BringUp))
    }
}
