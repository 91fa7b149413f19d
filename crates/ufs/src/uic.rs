//! UIC commands: one at a time, through four registers.

use crate::Cause;
use crate::control::{Action, Answer, Core, MS, Wait, number};
use flysch_api::machine::{Instant, Machine};
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

    /// The event that says the command's effect is complete, where UCCS only says it was taken.
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

/// A UIC command under way.
#[derive(Debug)]
pub(crate) struct UicAction {
    command: UicCommand,
    phase: Phase,
    deadline: Instant,
}

/// What says the end of UIC work in IS.
const ENDS: Interrupts =
    Interrupts::new().with_uccs(true).with_upms(true).with_uhes(true).with_uhxs(true);

impl UicAction {
    pub(crate) fn advance<M: Machine>(&mut self, core: &mut Core<M>) -> Option<Answer> {
        loop {
            let next = match self.phase {
                Phase::Ready => self.issue(core),
                Phase::Answer => self.take_answer(core),
                Phase::Effect(event) => self.take_effect(core, event),
            };
            match next {
                Some(Ok(phase)) => self.phase = phase,
                Some(Err(answer)) => return Some(answer),
                None if core.now >= self.deadline => {
                    return Some(Answer::Failed(Cause::UicTimeout(self.command.opcode)));
                }
                None => {
                    core.look_again(self.deadline);
                    return None;
                }
            }
        }
    }

    fn issue<M: Machine>(&mut self, core: &Core<M>) -> Option<Result<Phase, Answer>> {
        let machine = &core.machine;
        if !Hcs::from_bits(machine.read32(HCS)).ucrdy() {
            return None;
        }
        machine.write32(IS, ENDS.into_bits());
        machine.write32(UCMDARG1, self.command.argument1);
        machine.write32(UCMDARG2, 0);
        machine.write32(UCMDARG3, self.command.value);
        machine.write32(UICCMD, self.command.opcode.into_bits().into());
        Some(Ok(Phase::Answer))
    }

    fn take_answer<M: Machine>(&mut self, core: &Core<M>) -> Option<Result<Phase, Answer>> {
        let machine = &core.machine;
        if !Interrupts::from_bits(machine.read32(IS)).uccs() {
            return None;
        }
        machine.write32(IS, Interrupts::new().with_uccs(true).into_bits());
        let result = UicArgument2::from_bits(machine.read32(UCMDARG2)).result();
        if result != UicResult::Success {
            return Some(Err(Answer::Failed(self.command.failure(result))));
        }
        if let Some(event) = self.command.final_event() {
            return Some(Ok(Phase::Effect(event)));
        }
        Some(Err(Answer::Value(machine.read32(UCMDARG3).into())))
    }

    fn take_effect<M: Machine>(
        &mut self,
        core: &Core<M>,
        event: Interrupts,
    ) -> Option<Result<Phase, Answer>> {
        if !Interrupts::from_bits(core.machine.read32(IS)).intersects(event) {
            return None;
        }
        core.machine.write32(IS, event.into_bits());
        Some(Err(match Hcs::from_bits(core.machine.read32(HCS)).upmcrs() {
            // Not Ok: that the other end has nothing to say does not mean that this end did it.
            PowerModeStatus::Local => Answer::Value(0),
            status => Answer::Failed(Cause::PowerMode(status)),
        }))
    }
}

impl<M: Machine> Core<M> {
    /// Sends a UIC command and waits for its effect; gives the attribute value.
    #[track_caller]
    pub(crate) fn uic(&mut self, command: UicCommand) -> Wait<Result<u32, Cause>> {
        let timeout = u64::from(self.options.timeouts.uic_ms) * MS;
        let answer = self.ask(|core| {
            Action::Uic(UicAction {
                command,
                phase: Phase::Ready,
                deadline: core.now.after_nanos(timeout),
            })
        })?;
        Ok(number(answer).map(|value| value as u32))
    }

    /// Reads an attribute of this end of the link.
    #[track_caller]
    pub(crate) fn dme_get(&mut self, attribute: UicAttribute) -> Wait<Result<u32, Cause>> {
        self.uic(UicCommand::attribute(UicOpcode::DmeGet, attribute, 0))
    }

    /// Reads an attribute of the device's end of the link.
    #[track_caller]
    pub(crate) fn dme_peer_get(&mut self, attribute: UicAttribute) -> Wait<Result<u32, Cause>> {
        self.uic(UicCommand::attribute(UicOpcode::DmePeerGet, attribute, 0))
    }

    /// Writes an attribute of this end of the link.
    #[track_caller]
    pub(crate) fn dme_set(
        &mut self,
        attribute: UicAttribute,
        value: u32,
    ) -> Wait<Result<u32, Cause>> {
        self.uic(UicCommand::attribute(UicOpcode::DmeSet, attribute, value))
    }

    /// Writes an attribute of the device's end of the link.
    #[track_caller]
    pub(crate) fn dme_peer_set(
        &mut self,
        attribute: UicAttribute,
        value: u32,
    ) -> Wait<Result<u32, Cause>> {
        self.uic(UicCommand::attribute(UicOpcode::DmePeerSet, attribute, value))
    }
}
