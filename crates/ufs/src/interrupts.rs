//! How a lane learns of completions and errors: by an interrupt of its own, by the line that all
//! share, or by polling; and what it does with the errors that it finds.

use crate::options::{Aggregation, UfsOptions};
use crate::queue::Queue;
use crate::shared::{Shared, Signals};
use flysch_api::machine::Registers;
use flysch_wire::ufs::registers::{HCS, Hcs, IE, IS, Interrupts, PowerModeStatus};
use flysch_wire::ufs::utrd::Ocs;

/// Causes of completions, which lanes clear.
pub(crate) const COMPLETIONS: Interrupts =
    Interrupts::new().with_utrcs(true).with_cqes(true).with_iages(true);

/// Causes of trouble, which lanes clear and report to the host.
pub(crate) const ERRORS: Interrupts = Interrupts::FATAL.union(Interrupts::new().with_ue(true));

/// Ends of hibernation requests.
const HIBERNATION: Interrupts = Interrupts::new().with_uhes(true).with_uhxs(true);

/// The value of IE when completions raise the line. The host polls for the end of its own work.
pub(crate) const ENABLED: Interrupts = COMPLETIONS.union(ERRORS);

/// One lane's interrupts.
#[derive(Debug)]
pub(crate) struct LaneInterrupts {
    /// Whether completions raise one now, and whether only until the next one.
    on: bool,
    armed: bool,
    signals: Signals,
    /// The requested aggregation where several completions are reported together, and what restarts
    /// the count.
    aggregation: Option<Aggregation>,
    count: Option<u32>,
    /// The first lane, which has the line where queues have messages.
    first: bool,
    /// It is the only lane.
    alone: bool,
}

impl LaneInterrupts {
    pub(crate) fn new(options: &UfsOptions, index: usize, lanes: usize) -> Self {
        Self {
            on: options.interrupts,
            armed: false,
            signals: Signals::default(),
            aggregation: options.aggregation,
            count: None,
            first: index == 0,
            alone: lanes == 1,
        }
    }

    /// Takes over how the controller, which is up again, reports completions.
    pub(crate) fn restart(&mut self, signals: Signals) {
        self.signals = signals;
        let wanted = self.aggregation.filter(|_| signals.aggregated);
        self.count = wanted.map(|aggregation| aggregation.control().into_bits());
    }

    #[inline]
    pub(crate) fn are_on(&self) -> bool {
        self.on
    }

    #[inline]
    pub(crate) fn are_armed(&self) -> bool {
        self.armed
    }

    /// Whether no other lane clears the status this lane waits for, as lanes that share the line
    /// do.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.signals.messages || self.alone
    }

    /// Whether the line is for errors only, and this lane has to check it.
    pub(crate) fn have_line_for_errors(&self) -> bool {
        self.on && self.signals.messages && self.first
    }

    /// Clears what raised the interrupt, before the completions that it announced are looked for.
    pub(crate) fn acknowledge(&self, registers: &impl Registers, queue: &Queue, shared: &Shared) {
        if self.signals.messages {
            return queue.acknowledge(registers, self.count);
        }
        let status = Interrupts::from_bits(registers.read32(IS));
        if status.intersects(ENABLED) {
            queue.acknowledge(registers, self.count);
            report_errors(registers, shared, status);
            registers.write32(IS, status.into_bits() & COMPLETIONS.into_bits());
        }
    }

    /// Switches them on until the next [`disarm`](Self::disarm), for a caller that polls.
    pub(crate) fn arm(&mut self, registers: &impl Registers, queue: &Queue) {
        if !self.on {
            (self.on, self.armed) = (true, true);
            self.enable(true, registers, queue);
        }
    }

    #[cold]
    pub(crate) fn disarm(&mut self, registers: &impl Registers, queue: &Queue) {
        (self.on, self.armed) = (false, false);
        self.enable(false, registers, queue);
    }

    fn enable(&self, on: bool, registers: &impl Registers, queue: &Queue) {
        let (causes, mine) = match queue {
            Queue::Mcq(queue) if self.signals.messages => {
                queue.enable(on, registers);
                (ERRORS, self.first)
            }
            // Another lane may be waiting for the line.
            _ => (ENABLED, on || self.alone),
        };
        if mine {
            registers.write32(IE, if on { causes.into_bits() } else { 0 });
        }
    }
}

/// Checks for errors only; with `by_itself` also for a link that failed to hibernate by itself.
pub(crate) fn look_for_errors(registers: &impl Registers, shared: &Shared, by_itself: bool) {
    let status = Interrupts::from_bits(registers.read32(IS));
    report_errors(registers, shared, status);
    if by_itself && status.intersects(HIBERNATION) {
        report_hibernation(registers, shared, status);
    }
}

fn report_errors(registers: &impl Registers, shared: &Shared, status: Interrupts) {
    if status.intersects(ERRORS) {
        let errors = status.into_bits() & ERRORS.into_bits();
        registers.write32(IS, errors);
        shared.orders.report(errors);
    }
}

/// The link tried to hibernate or to wake by itself, since the host hibernates it only when no lane
/// has commands in flight. Tells the host if that went wrong.
#[cold]
fn report_hibernation(registers: &impl Registers, shared: &Shared, status: Interrupts) {
    let upmcrs = Hcs::from_bits(registers.read32(HCS)).upmcrs();
    if matches!(upmcrs, PowerModeStatus::Ok | PowerModeStatus::Local) {
        let events = status.into_bits() & HIBERNATION.into_bits();
        registers.write32(IS, events);
    } else {
        shared.orders.report(status.into_bits() & HIBERNATION.into_bits());
    }
}

/// The controller ended a command with a status that means a problem of the controller, the link or
/// the device. No abort was requested.
#[cold]
pub(crate) fn report_status(shared: &Shared, ocs: u8) {
    let none = Interrupts::new();
    let cause = match Ocs::from_bits(ocs) {
        Ocs::DeviceFatalError => none.with_dfes(true),
        Ocs::FatalError => none.with_hcfes(true),
        _ => none.with_ue(true),
    };
    shared.orders.report(cause.into_bits());
}
