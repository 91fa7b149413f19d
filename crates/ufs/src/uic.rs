//! UIC commands: one at a time, through four registers.

use crate::Cause;
use flysch_api::machine::{Instant, Registers};
use flysch_wire::ufs::registers::{
    HCS, Hcs, IS, Interrupts, PowerModeStatus, UCMDARG1, UCMDARG2, UCMDARG3, UICCMD,
};
use flysch_wire::ufs::uic::{UicArgument1, UicArgument2, UicAttribute, UicOpcode, UicResult};

/// One UIC command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UicCommand {
    pub(crate) opcode: UicOpcode,
    pub(crate) argument1: u32,
    pub(crate) value: u32,
}

impl UicCommand {
    pub(crate) const fn control(opcode: UicOpcode) -> Self {
        Self { opcode, argument1: 0, value: 0 }
    }

    pub(crate) fn attribute(opcode: UicOpcode, attribute: UicAttribute, value: u32) -> Self {
        let argument1 = UicArgument1::new().with_mib_attribute(attribute).into_bits();
        Self { opcode, argument1, value }
    }

    /// The event that signals that the command's effect is complete, if UCCS signals only that it
    /// was accepted.
    fn final_event(self) -> Option<Interrupts> {
        let sets_mode = self.opcode == UicOpcode::DmeSet
            && UicArgument1::from_bits(self.argument1).mib_attribute() == UicAttribute::PaPwrmode;
        match self.opcode {
            UicOpcode::DmeHibernateEnter => Some(Interrupts::new().with_uhes(true)),
            UicOpcode::DmeHibernateExit => Some(Interrupts::new().with_uhxs(true)),
            _ if sets_mode => Some(Interrupts::new().with_upms(true)),
            _ => None,
        }
    }

    fn failure(self, result: UicResult) -> Cause {
        match self.opcode {
            UicOpcode::DmeGet
            | UicOpcode::DmeSet
            | UicOpcode::DmePeerGet
            | UicOpcode::DmePeerSet => {
                Cause::Dme(UicArgument1::from_bits(self.argument1).mib_attribute(), result)
            }
            opcode => Cause::Uic(opcode, result),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The controller must be ready for a command.
    Ready,
    /// The command must be answered.
    Answer,
    /// The effect must be complete.
    Effect(Interrupts),
}

/// A UIC command in progress.
#[derive(Debug)]
pub(crate) struct UicAction {
    command: UicCommand,
    phase: Phase,
    deadline: Instant,
}

/// The bits of IS that signal the end of UIC work.
const ENDS: Interrupts =
    Interrupts::new().with_uccs(true).with_upms(true).with_uhes(true).with_uhxs(true);

impl UicAction {
    pub(crate) fn new(command: UicCommand, deadline: Instant) -> Self {
        Self { command, phase: Phase::Ready, deadline }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Makes as much progress as possible now; returns the attribute's value, or why there is none.
    pub(crate) fn advance(
        &mut self,
        registers: &impl Registers,
        now: Instant,
    ) -> Option<Result<u32, Cause>> {
        loop {
            let next = match self.phase {
                Phase::Ready => self.issue(registers),
                Phase::Answer => self.take_answer(registers),
                Phase::Effect(event) => take_effect(registers, event),
            };
            match next {
                Some(Ok(phase)) => self.phase = phase,
                Some(Err(answer)) => return Some(answer),
                None if now >= self.deadline => {
                    return Some(Err(Cause::UicTimeout(self.command.opcode)));
                }
                None => return None,
            }
        }
    }

    fn issue(&self, registers: &impl Registers) -> Option<Next> {
        if !Hcs::from_bits(registers.read32(HCS)).ucrdy() {
            return None;
        }
        registers.write32(IS, ENDS.into_bits());
        registers.write32(UCMDARG1, self.command.argument1);
        registers.write32(UCMDARG2, 0);
        registers.write32(UCMDARG3, self.command.value);
        registers.write32(UICCMD, self.command.opcode.into_bits().into());
        Some(Ok(Phase::Answer))
    }

    fn take_answer(&self, registers: &impl Registers) -> Option<Next> {
        if !Interrupts::from_bits(registers.read32(IS)).uccs() {
            return None;
        }
        registers.write32(IS, Interrupts::new().with_uccs(true).into_bits());
        let result = UicArgument2::from_bits(registers.read32(UCMDARG2)).result();
        if result != UicResult::Success {
            return Some(Err(Err(self.command.failure(result))));
        }
        if let Some(event) = self.command.final_event() {
            return Some(Ok(Phase::Effect(event)));
        }
        Some(Err(Ok(registers.read32(UCMDARG3))))
    }
}

/// The next phase, or how the command ended.
type Next = Result<Phase, Result<u32, Cause>>;

fn take_effect(registers: &impl Registers, event: Interrupts) -> Option<Next> {
    if !Interrupts::from_bits(registers.read32(IS)).intersects(event) {
        return None;
    }
    registers.write32(IS, event.into_bits());
    Some(Err(match Hcs::from_bits(registers.read32(HCS)).upmcrs() {
        // Not Ok: that the other end reports nothing does not mean that this end succeeded.
        PowerModeStatus::Local => Ok(0),
        status => Err(Cause::PowerMode(status)),
    }))
}
