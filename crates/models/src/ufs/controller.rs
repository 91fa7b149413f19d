//! The register file: what reads answer, what writes set off, resets, the interrupt line.

use flysch_wire::ufs::registers::{
    self as reg, Ahit, Cap, Config as McqMode, Hce, Hcs, Interrupts, McqCap, McqConfig, Ver,
};

use super::aggregation::{Aggregator, Counted};
use super::config::Config;
use super::{Event, Ufs, crypto, mcq};
use crate::faults::Kind;
use crate::machine::MESSAGES;

/// How long HCE takes to come up, nanoseconds.
const ENABLE_NS: u64 = 50_000;
/// How long HCE shows one before it falls back, and how long it then takes.
const GLITCH_NS: u64 = 300_000;
/// READY TO TRANSFER requests the controller holds.
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
    /// Doorbell bits whose descriptor was not fetched yet.
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
    /// How often the line went up.
    pub(super) raised: u64,
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
            raised: 0,
        }
    }

    /// Everything but the capabilities as after power-on.
    fn reset(&mut self) {
        let capabilities = (self.cap, self.mcqcap, self.ver);
        let Self { has_messages, raised, .. } = *self;
        let fresh = Self::power_on(capabilities, (self.slots, self.task_slots));
        *self = Self { has_messages, raised, ..fresh };
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
        self.raised += u64::from(!was_up && self.interrupt());
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

impl Ufs {
    #[inline]
    pub(super) fn read_register(&mut self, offset: u32) -> u32 {
        let r = &mut self.registers;
        match offset {
            reg::IS => r.is.into_bits(),
            reg::UTRLDBR => r.utrldbr,
            reg::IE => r.ie.into_bits(),
            reg::UTRLCNR => r.utrlcnr,
            reg::CAP => r.cap.into_bits(),
            reg::MCQCAP => r.mcqcap.into_bits(),
            reg::VER => r.ver.into_bits(),
            reg::AHIT => r.ahit.into_bits(),
            reg::HCS => r.hcs.into_bits(),
            reg::HCE => Hce::new().with_hce(r.enabled).with_cge(self.crypto.enabled).into_bits(),
            reg::UECPA | reg::UECDL | reg::UECN | reg::UECT | reg::UECDME => {
                core::mem::take(&mut r.uec[(offset - reg::UECPA) as usize / 4])
            }
            reg::UTRIACR => r.aggregation.read(),
            reg::UTRLBA => low(r.utrlba),
            reg::UTRLBAU => high(r.utrlba),
            reg::UTRLRSR => u32::from(r.utrlrsr),
            reg::UTMRLBA => low(r.utmrlba),
            reg::UTMRLBAU => high(r.utmrlba),
            reg::UTMRLDBR => r.utmrldbr,
            reg::UTMRLRSR => u32::from(r.utmrlrsr),
            reg::UICCMD => r.uic_command,
            reg::UCMDARG1 | reg::UCMDARG2 | reg::UCMDARG3 => {
                r.uic_arguments[(offset - reg::UCMDARG1) as usize / 4]
            }
            reg::CONFIG => r.mode.into_bits(),
            reg::MCQCONFIG => r.mcqconfig.into_bits(),
            reg::ESILBA => low(r.esiba),
            reg::ESIUBA => high(r.esiba),
            reg::CCAP => self.crypto.capability(),
            reg::CRYPTOCAP..reg::CONFIG => {
                self.crypto.capability_entry((offset - reg::CRYPTOCAP) / 4)
            }
            crypto::REGISTER.. => self.crypto.read(offset),
            mcq::BANK.. => self.read_queue_register(offset),
            // Reserved registers of the window, and those that only take writes.
            _ => 0,
        }
    }

    #[inline]
    pub(super) fn write_register(&mut self, offset: u32, value: u32) {
        match offset {
            reg::UTRLDBR => return self.ring(value),
            reg::IS => {
                let is = self.registers.is.into_bits() & !value;
                self.registers.is = Interrupts::from_bits(is);
                return;
            }
            reg::UTRLCNR => {
                self.registers.utrlcnr &= !value;
                return;
            }
            // Hosts have been seen to put keys back before they set HCE.
            crypto::REGISTER.. => return self.crypto.write(offset, value),
            mcq::BANK.. => return self.write_queue_register(offset, value),
            reg::HCE => return self.write_enable(value),
            _ => {}
        }
        // Until HCE reads one, only HCE can be written (JESD223 5.3.4).
        if self.registers.enabled {
            self.write_core_register(offset, value);
        }
    }

    fn write_core_register(&mut self, offset: u32, value: u32) {
        let r = &mut self.registers;
        match offset {
            reg::IE => r.ie = Interrupts::from_bits(value),
            reg::AHIT => self.set_auto_hibern8(Ahit::from_bits(value)),
            reg::UTRIACR => r.aggregation.write(value),
            reg::UTRLBA => r.utrlba = with_low(r.utrlba, value, LIST_MASK),
            reg::UTRLBAU => r.utrlba = with_high(r.utrlba, value),
            reg::UTRLCLR => self.clear_slots(!value),
            reg::UTRLRSR => self.run_transfer_list(value & 1 != 0),
            reg::UTMRLBA => r.utmrlba = with_low(r.utmrlba, value, LIST_MASK),
            reg::UTMRLBAU => r.utmrlba = with_high(r.utmrlba, value),
            reg::UTMRLDBR => self.ring_task_management(value),
            reg::UTMRLCLR => self.clear_task_management(!value),
            reg::UTMRLRSR => r.utmrlrsr = value & 1 != 0,
            reg::UICCMD => self.start_uic(value),
            reg::UCMDARG1 | reg::UCMDARG2 | reg::UCMDARG3 => {
                r.uic_arguments[(offset - reg::UCMDARG1) as usize / 4] = value;
            }
            // The queue design cannot change under commands.
            reg::CONFIG if r.cap.mcqs() && self.tasks.held == 0 && r.utrldbr == 0 => {
                let mode = McqMode::from_bits(value & 3);
                r.mode = mode.with_esie(mode.esie() && r.has_messages);
            }
            reg::MCQCONFIG => r.mcqconfig = McqConfig::from_bits(value),
            reg::ESILBA => r.esiba = with_low(r.esiba, value, !3),
            reg::ESIUBA => r.esiba = with_high(r.esiba, value),
            _ => {}
        }
    }

    fn write_enable(&mut self, value: u32) {
        let value = Hce::from_bits(value);
        let enable = value.hce();
        self.crypto.enabled = enable && value.cge() && self.registers.cap.cs();
        if enable == self.registers.enable {
            return;
        }
        if !enable {
            self.crypto.clear();
        }
        self.reset_controller();
        self.registers.enable = enable;
        if enable {
            self.after(ENABLE_NS, Event::Enabled { epoch: self.epoch });
            if self.faults.is_active() && self.faults.fires(Kind::EnableGlitch, self.now, 0) {
                self.after(GLITCH_NS, Event::Glitch { epoch: self.epoch });
            }
        }
    }

    /// HCE falls back: what was written meanwhile is lost.
    pub(super) fn glitch(&mut self) {
        self.crypto.clear();
        self.reset_controller();
        self.registers.enable = true;
        self.after(GLITCH_NS, Event::Enabled { epoch: self.epoch });
    }

    /// HCE has come up: the controller takes UIC commands.
    pub(super) fn enabled(&mut self) {
        self.registers.enabled = true;
        self.registers.hcs.set_ucrdy(true);
    }

    /// Everything the controller holds is gone; the device notices when the link starts up again.
    pub(super) fn reset_controller(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.registers.reset();
        self.tasks.clear();
        self.device.forget_waiting();
        self.queues.iter_mut().for_each(mcq::Queue::reset);
        self.link.reset();
        self.media.set_link_rate(self.link.rate);
        self.media.set_auto_hibern8((0, 0), 0);
    }

    /// A regular command (UTRD.I = 0) has completed: counts it if aggregation is on.
    pub(super) fn aggregate(&mut self) {
        if !self.registers.aggregation.is_on() {
            return;
        }
        match self.registers.aggregation.count(self.now.nanos()) {
            Counted::Waits => {}
            Counted::Timer(until) => {
                self.at(until, Event::Aggregation { epoch: self.epoch, queue: None });
            }
            Counted::Interrupt => self.registers.raise(Interrupts::new().with_utrcs(true)),
        }
    }

    /// An aggregation timer has run out.
    pub(super) fn aggregation_expired(&mut self, queue: Option<u8>) {
        let now = self.now.nanos();
        match queue {
            Some(queue) => self.queue_aggregation_expired(queue.into(), now),
            None if self.registers.aggregation.expired(now) => {
                self.registers.raise(Interrupts::new().with_utrcs(true));
            }
            None => {}
        }
    }

    /// Writes the number of a vector to where the host takes messages.
    pub(super) fn send_message(&mut self, number: u8) {
        self.messages_sent += 1;
        if self.registers.esiba == MESSAGES {
            self.messages |= 1 << number;
        } else if self.memory.store32(self.registers.esiba, u32::from(number).to_le()).is_err() {
            self.bus_error();
        }
    }
}
