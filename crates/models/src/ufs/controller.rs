//! The host controller: its registers and queues, and the descriptors it fetches and returns.

use alloc::sync::Arc;

use flysch_wire::ufs::registers::{self as reg, Hce, Interrupts};
use flysch_wire::ufs::upiu::EHS_LENGTH_OFFSET;
use flysch_wire::ufs::utrd::{CommandType, Ocs, UCD_ALIGNMENT, Utrd};

use super::config::Config;
use super::exchange::Exchange;
use super::link::LinkState;
use super::mcq::Queues;
use super::registers::Registers;
use super::task::State;
use super::{SLOTS, crypto, mcq};
use crate::faults::Kind;
use crate::number::Number;

/// Registers and queues.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) registers: Registers,
    pub(super) queues: Queues,
    /// When the device finished, by slot (single doorbell) or by queue and task tag.
    pub(super) done: Arc<[Number]>,
}

impl Controller {
    /// The controller of `config` after power-on.
    pub(super) fn new(config: &Config) -> Self {
        let queues = config.queues as usize;
        Self {
            registers: Registers::new(config),
            queues: Queues::new(queues),
            done: (0..SLOTS.max(queues << 8)).map(|_| Number::default()).collect(),
        }
    }

    /// Reads the register at `offset`.
    #[inline]
    pub(super) fn read(&mut self, offset: u32, x: &Exchange) -> u32 {
        match offset {
            reg::HCE => {
                let hce = Hce::new().with_hce(self.registers.enabled);
                hce.with_cge(x.crypto.enabled).into_bits()
            }
            reg::CCAP => x.crypto.capability(),
            reg::CRYPTOCAP..reg::CONFIG => x.crypto.capability_entry((offset - reg::CRYPTOCAP) / 4),
            crypto::REGISTER.. => x.crypto.read(offset),
            mcq::BANK.. => self.queues.read(offset),
            _ => self.registers.read(offset),
        }
    }

    /// Whether the controller can talk to the device. A hibernated link holds commands back; a link
    /// that is down fails them.
    #[inline]
    pub(super) fn may_fetch(&self, x: &Exchange) -> bool {
        x.link.state != LinkState::Hibernated && !self.registers.hcs.hei()
    }

    /// A descriptor was fetched for task `index`: checks it and fetches the request UPIU.
    ///
    /// # Errors
    /// How the task ends if it does not reach the device.
    #[inline]
    pub(super) fn take_descriptor(
        &self,
        index: u16,
        utrd: &Utrd,
        x: &mut Exchange,
    ) -> Result<(), Ocs> {
        let task = x.tasks.get_mut(index);
        task.state = State::Device;
        task.take_descriptor(utrd);
        // In multi-circular queue mode the low bits of the address have no meaning.
        let mask = if self.registers.mode.qt() { UCD_ALIGNMENT - 1 } else { 0 };
        task.ucd = utrd.ucd_base & !mask;
        let ucd = task.ucd;
        let wrong =
            utrd.header.ct() != CommandType::UfsStorage || !ucd.is_multiple_of(UCD_ALIGNMENT);
        let found = x.memory.read(ucd, &mut task.request);
        // Extra header segments must be as long as both headers say.
        let wrong = wrong || utrd.header.ehsl() != task.request[EHS_LENGTH_OFFSET];
        let refused = match found {
            Ok(()) if !wrong && !utrd.header.ce() => None,
            Ok(()) if !wrong => x.crypto.refusal(utrd.header.cci()),
            _ => Some(Ocs::InvalidCommandTableAttributes),
        };
        match refused {
            Some(ocs) => Err(ocs),
            None if x.link.state == LinkState::Up => Ok(()),
            None => Err(Ocs::PeerCommunicationFailure),
        }
    }

    /// HCE has come up: the controller takes UIC commands.
    pub(super) fn enabled(&mut self) {
        self.registers.enabled = true;
        self.registers.hcs.set_ucrdy(true);
    }

    /// Registers and queues as after power-on.
    pub(super) fn reset(&mut self) {
        self.registers.reset();
        self.queues.reset();
    }

    /// The link is lost: there is no device until it starts up again.
    pub(super) fn link_is_down(&mut self, x: &mut Exchange) {
        x.link.lose();
        let hcs = self.registers.hcs.with_dp(false).with_utrlrdy(false).with_utmrlrdy(false);
        self.registers.hcs = hcs;
    }

    /// A fatal error, chosen by a fault: the controller stops until it is reset.
    pub(super) fn raise_fatal(&mut self, x: &mut Exchange) -> Interrupts {
        let none = Interrupts::new();
        let causes = [
            none.with_dfes(true),
            none.with_hcfes(true),
            none.with_sbfes(true),
            none.with_utpes(true),
        ];
        let cause = causes[x.faults.choose(Kind::Fatal, causes.len() as u64) as usize];
        self.registers.hcs.set_dei(cause.dfes());
        self.registers.hcs.set_hei(true);
        cause
    }
}
