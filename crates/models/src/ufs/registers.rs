//! Register values of the core block, and how the controller notifies the host: the interrupt line
//! and messages.

use flysch_api::machine::GuestMemory;
use flysch_wire::ufs::registers::{
    self as reg, Ahit, Cap, Config as McqMode, Hcs, Interrupts, McqCap, McqConfig, Ver,
};

use super::agenda::{Agenda, Event};
use super::aggregation::{Aggregator, Counted};
use super::config::Config;
use super::mcq;
use crate::machine::MESSAGES;

/// Number of READY TO TRANSFER requests that the controller holds.
const RTT: u8 = 2;

/// Register values of the core block.
#[derive(Debug)]
pub(super) struct Registers {
    pub(super) cap: Cap,
    pub(super) mcqcap: McqCap,
    pub(super) ver: Ver,
    pub(super) slots: u32,
    pub(super) task_slots: u32,
    pub(super) is: Interrupts,
    pub(super) ie: Interrupts,
    pub(super) hcs: Hcs,
    /// HCE: as written; `enabled` once initialisation is done.
    pub(super) enable: bool,
    pub(super) enabled: bool,
    pub(super) ahit: Ahit,
    pub(super) uec: [u32; 5],
    pub(super) aggregation: Aggregator,
    pub(super) utrlba: u64,
    pub(super) utrldbr: u32,
    /// Doorbell bits whose descriptors have not been fetched yet.
    pub(super) unfetched: u32,
    pub(super) utrlrsr: bool,
    pub(super) utrlcnr: u32,
    pub(super) utmrlba: u64,
    pub(super) utmrldbr: u32,
    pub(super) utmrlrsr: bool,
    pub(super) uic_command: u32,
    pub(super) uic_arguments: [u32; 3],
    pub(super) mode: McqMode,
    pub(super) mcqconfig: McqConfig,
    pub(super) esiba: u64,
    /// The controller has event-specific interrupts.
    pub(super) has_messages: bool,
    pub(super) told: Told,
}

/// Notifications to the host, and those it masked; survives resets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Number of activations of the line.
    raised: u64,
    /// Number of completions posted while the host had masked the interrupt.
    pub(super) silent: u64,
    /// Messages sent and not yet taken, one bit for each vector, and their total number.
    messages: u64,
    messages_sent: u64,
}

impl Told {
    /// Number of interrupts so far: activations of the line, and messages.
    pub(super) fn interrupts(&self) -> u64 {
        self.raised + self.messages_sent
    }

    /// The vectors of the messages since the last call, one bit each.
    #[inline]
    pub(super) fn take_messages(&mut self) -> u64 {
        core::mem::take(&mut self.messages)
    }
}

impl Registers {
    pub(super) fn new(config: &Config) -> Self {
        let commands = if config.queues > 0 { config.active_commands } else { config.slots };
        let cap = Cap::from_bits(commands - 1)
            .with_nortt(RTT - 1)
            .with_nutmrs((config.task_slots - 1) as u8)
            .with_autoh8(true)
            .with_ehslutrds(config.host_version.into_bits() >= Ver::V4_0.into_bits())
            .with_addressing_64bit(true)
            .with_oodds(true)
            .with_cs(config.crypto_slots > 0)
            .with_lsdbs(!config.legacy_doorbell)
            .with_mcqs(config.queues > 0);
        let mcqcap = match config.queues {
            0 => McqCap::new(),
            queues => McqCap::new()
                .with_maxq((queues - 1) as u8)
                .with_rrp(true)
                .with_miag(queues as u8)
                .with_qcfgptr((mcq::BANK / reg::mcq::BANK_UNIT) as u8),
        };
        let slots = if config.legacy_doorbell { config.slots } else { 0 };
        let has_messages = config.event_interrupts && config.queues > 0;
        let fixed = (cap, mcqcap, config.host_version);
        Self { has_messages, ..Self::power_on(fixed, (slots, config.task_slots)) }
    }

    /// The registers after power-on, with these capabilities and numbers of slots.
    fn power_on((cap, mcqcap, ver): (Cap, McqCap, Ver), (slots, task_slots): (u32, u32)) -> Self {
        Self {
            cap,
            mcqcap,
            ver,
            slots,
            task_slots,
            is: Interrupts::new(),
            ie: Interrupts::new(),
            hcs: Hcs::new(),
            enable: false,
            enabled: false,
            ahit: Ahit::new(),
            uec: [0; 5],
            aggregation: Aggregator::default(),
            utrlba: 0,
            utrldbr: 0,
            unfetched: 0,
            utrlrsr: false,
            utrlcnr: 0,
            utmrlba: 0,
            utmrldbr: 0,
            utmrlrsr: false,
            uic_command: 0,
            uic_arguments: [0; 3],
            mode: McqMode::new(),
            mcqconfig: McqConfig::new().with_active_commands(cap.active_commands_max()),
            esiba: 0,
            has_messages: false,
            told: Told::default(),
        }
    }

    /// Resets everything except the capabilities to the state after power-on.
    pub(super) fn reset(&mut self) {
        let capabilities = (self.cap, self.mcqcap, self.ver);
        let Self { has_messages, told, .. } = *self;
        let fresh = Self::power_on(capabilities, (self.slots, self.task_slots));
        *self = Self { has_messages, told, ..fresh };
    }

    #[inline]
    pub(super) fn interrupt(&self) -> bool {
        self.is.intersects(self.ie)
    }

    /// Sets interrupt causes.
    #[inline]
    pub(super) fn raise(&mut self, causes: Interrupts) {
        let was_up = self.interrupt();
        self.is = self.is.union(causes);
        self.told.raised += u64::from(!was_up && self.interrupt());
    }

    /// IS is written: the causes in `mask` are acknowledged.
    #[inline]
    pub(super) fn acknowledge(&mut self, mask: u32) {
        self.is = Interrupts::from_bits(self.is.into_bits() & !mask);
    }

    /// The controller could not access memory that it was pointed to: fatal.
    pub(super) fn bus_error(&mut self) {
        self.hcs.set_hei(true);
        self.raise(Interrupts::new().with_sbfes(true));
    }

    /// Causes an error of a UIC layer, whose register is number `layer` from UECPA on.
    pub(super) fn raise_uic(&mut self, layer: usize, bits: u32, with: Interrupts) {
        self.uec[layer] |= bits;
        self.raise(with.with_ue(true));
    }

    /// Writes the number of a vector to the host's message address.
    pub(super) fn send_message(&mut self, number: u8, memory: &GuestMemory) {
        self.told.messages_sent += 1;
        if self.esiba == MESSAGES {
            self.told.messages |= 1 << number;
        } else if memory.store32(self.esiba, u32::from(number).to_le()).is_err() {
            self.bus_error();
        }
    }

    /// A regular command (UTRD.I = 0) has completed: counts it if aggregation is on.
    pub(super) fn aggregate(&mut self, agenda: &mut Agenda) {
        if !self.aggregation.is_on() {
            return;
        }
        match self.aggregation.count(agenda.now()) {
            Counted::Waits => {}
            Counted::Timer(until) => {
                agenda.at(until, Event::Aggregation { epoch: agenda.epoch(), queue: None });
            }
            Counted::Interrupt => self.raise(Interrupts::new().with_utrcs(true)),
        }
    }

    /// The aggregation timer of the single doorbell has expired.
    pub(super) fn aggregation_expired(&mut self, now: u64) {
        if self.aggregation.expired(now) {
            self.raise(Interrupts::new().with_utrcs(true));
        }
    }

    /// Reads a register; 0 for reserved and write-only registers of the window.
    #[inline]
    pub(super) fn read(&mut self, offset: u32) -> u32 {
        match offset {
            reg::IS => self.is.into_bits(),
            reg::UTRLDBR => self.utrldbr,
            reg::IE => self.ie.into_bits(),
            reg::UTRLCNR => self.utrlcnr,
            reg::CAP => self.cap.into_bits(),
            reg::MCQCAP => self.mcqcap.into_bits(),
            reg::VER => self.ver.into_bits(),
            reg::AHIT => self.ahit.into_bits(),
            reg::HCS => self.hcs.into_bits(),
            reg::UECPA | reg::UECDL | reg::UECN | reg::UECT | reg::UECDME => {
                core::mem::take(&mut self.uec[(offset - reg::UECPA) as usize / 4])
            }
            reg::UTRIACR => self.aggregation.read(),
            reg::UTRLBA => low(self.utrlba),
            reg::UTRLBAU => high(self.utrlba),
            reg::UTRLRSR => u32::from(self.utrlrsr),
            reg::UTMRLBA => low(self.utmrlba),
            reg::UTMRLBAU => high(self.utmrlba),
            reg::UTMRLDBR => self.utmrldbr,
            reg::UTMRLRSR => u32::from(self.utmrlrsr),
            reg::UICCMD => self.uic_command,
            reg::UCMDARG1 | reg::UCMDARG2 | reg::UCMDARG3 => {
                self.uic_arguments[(offset - reg::UCMDARG1) as usize / 4]
            }
            reg::CONFIG => self.mode.into_bits(),
            reg::MCQCONFIG => self.mcqconfig.into_bits(),
            reg::ESILBA => low(self.esiba),
            reg::ESIUBA => high(self.esiba),
            _ => 0,
        }
    }

    /// Writes a register that only stores its value. `busy`: commands are held.
    pub(super) fn write(&mut self, offset: u32, value: u32, busy: bool) {
        match offset {
            reg::IE => self.ie = Interrupts::from_bits(value),
            reg::UTRIACR => self.aggregation.write(value),
            reg::UTRLBA => self.utrlba = with_low(self.utrlba, value, LIST_MASK),
            reg::UTRLBAU => self.utrlba = with_high(self.utrlba, value),
            reg::UTMRLBA => self.utmrlba = with_low(self.utmrlba, value, LIST_MASK),
            reg::UTMRLBAU => self.utmrlba = with_high(self.utmrlba, value),
            reg::UTMRLCLR => self.utmrldbr &= value,
            reg::UTMRLRSR => self.utmrlrsr = value & 1 != 0,
            reg::UCMDARG1 | reg::UCMDARG2 | reg::UCMDARG3 => {
                self.uic_arguments[(offset - reg::UCMDARG1) as usize / 4] = value;
            }
            // The queue design cannot change while there are commands.
            reg::CONFIG if self.cap.mcqs() && !busy && self.utrldbr == 0 => {
                let mode = McqMode::from_bits(value & 3);
                self.mode = mode.with_esie(mode.esie() && self.has_messages);
            }
            reg::MCQCONFIG => self.mcqconfig = McqConfig::from_bits(value),
            reg::ESILBA => self.esiba = with_low(self.esiba, value, !3),
            reg::ESIUBA => self.esiba = with_high(self.esiba, value),
            _ => {}
        }
    }
}

fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

fn with_low(value: u64, low: u32, mask: u32) -> u64 {
    value & !0xFFFF_FFFF | u64::from(low & mask)
}

fn with_high(value: u64, high: u32) -> u64 {
    value & 0xFFFF_FFFF | u64::from(high) << 32
}

/// The lists are aligned to 1 KiB: the low address bits do not exist.
const LIST_MASK: u32 = !(reg::LIST_ALIGNMENT as u32 - 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        Registers::new(&Config::default())
    }

    #[test]
    fn the_line_counts_when_it_goes_up_and_a_reset_keeps_the_count() {
        let mut registers = registers();
        let done = Interrupts::new().with_utrcs(true);
        registers.raise(done);
        assert_eq!((registers.interrupt(), registers.told.interrupts()), (false, 0), "masked");
        registers.ie = done;
        registers.raise(Interrupts::new().with_ue(true));
        registers.acknowledge(u32::MAX);
        registers.raise(done);
        registers.raise(done);
        assert_eq!((registers.interrupt(), registers.told.interrupts()), (true, 1));
        registers.reset();
        assert_eq!((registers.interrupt(), registers.told.interrupts()), (false, 1));
    }

    #[test]
    fn lists_are_aligned_and_the_queue_design_does_not_change_under_commands() {
        let mut registers = registers();
        registers.write(reg::UTRLBA, 0xFFFF_FFFF, false);
        registers.write(reg::UTRLBAU, 0x12, false);
        assert_eq!(registers.utrlba, 0x12_FFFF_FC00);
        registers.write(reg::CONFIG, 1, true);
        assert!(!registers.mode.qt());
        registers.write(reg::CONFIG, 1, false);
        assert!(registers.mode.qt());
    }
}
