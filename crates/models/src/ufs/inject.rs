//! Faults: where the fault plan acts on the controller and the device.

use flysch_wire::scsi::{AdditionalSense, SenseKey, Status};
use flysch_wire::ufs::registers::{Interrupts, PowerModeStatus, UecDl, UecDme, UecN, UecPa, UecT};
use flysch_wire::ufs::utrd::Ocs;

use super::agenda::Event;
use super::exchange::Exchange;
use super::pair::Pair;
use super::parameters::Reset;
use super::sense::Sense;
use super::task::{State, TaskRef, Work};
use crate::faults::Kind;
use crate::media::cache::Loss;
use crate::store::StoreError;

/// Delay of a late command, minimum and maximum, nanoseconds.
const LATE_MIN_NS: u64 = 1_000_000;
const LATE_MAX_NS: u64 = 400_000_000;
/// Time until power comes back late, minimum and maximum, nanoseconds.
const POWER_LATE_MIN_NS: u64 = 10_000_000;
const POWER_LATE_MAX_NS: u64 = 1_000_000_000;

/// Index of a layer's register in the block UECPA to UECDME.
const PA: usize = 0;
const DL: usize = 1;
const N: usize = 2;
const T: usize = 3;
const DME: usize = 4;

impl Pair {
    /// A command has reached the device: returns whether a fault prevents it from starting.
    pub(super) fn fault_at_start(&mut self, index: u16) -> bool {
        let tag = u32::from(self.exchange.tasks.get(index).tag);
        if self.exchange.fires(Kind::Uic, tag) {
            self.raise_uic_error();
        }
        if self.exchange.fires(Kind::LinkLoss, tag) {
            self.lose_link();
            return true;
        }
        if self.exchange.fires(Kind::Fatal, tag) {
            let cause = self.controller.raise_fatal(&mut self.exchange);
            self.swallow_all();
            self.controller.registers.raise(cause);
            return true;
        }
        if self.exchange.fires(Kind::LineReset, tag) {
            self.reset_line();
        }
        let x = &mut self.exchange;
        let media = &self.device.backend.media;
        let woken = x.tasks.held == 1 && media.is_auto_hibernated(x.now());
        if woken && x.fires(Kind::AutoHibern8, tag) {
            self.fail_to_wake();
            return true;
        }
        if self.fault_of_power(tag) {
            return true;
        }
        if self.exchange.fires(Kind::Stall, tag) {
            self.swallow_all();
            return true;
        }
        let swallowed = self.exchange.fires(Kind::Timeout, tag);
        if swallowed {
            self.exchange.tasks.get_mut(index).state = State::Swallowed;
        }
        swallowed
    }

    /// Cuts power if a fault demands it, and plans its return; returns whether it did.
    fn fault_of_power(&mut self, tag: u32) -> bool {
        let x = &mut self.exchange;
        let Some(kind) = Kind::POWER.into_iter().find(|&kind| x.fires(kind, tag)) else {
            return false;
        };
        // A store that fails here has failed every earlier write: the host knows.
        let _ = self.cut_power();
        match kind {
            Kind::PowerLoss => self.restore_power(),
            Kind::PowerLate => {
                let range = POWER_LATE_MAX_NS - POWER_LATE_MIN_NS;
                let late = POWER_LATE_MIN_NS + self.exchange.faults.choose(kind, range);
                self.exchange.agenda.after(late, Event::PowerBack);
            }
            _ => {}
        }
        true
    }

    /// LINERESET: both ends are at their lowest speed, at which commands continue.
    fn reset_line(&mut self) {
        self.exchange.link.fall_back();
        self.device.backend.media.set_link_rate(self.exchange.link.rate);
        let error = UecPa::new().with_err(true).with_generic(true);
        self.controller.registers.raise_uic(PA, error.into_bits(), Interrupts::new());
    }

    /// The link has hibernated by itself and a command should wake it: the link is lost.
    fn fail_to_wake(&mut self) {
        self.controller.link_is_down(&mut self.exchange);
        self.swallow_all();
        self.controller.registers.hcs.set_upmcrs(PowerModeStatus::FatalError);
        self.controller.registers.raise(Interrupts::new().with_uhxs(true));
    }

    /// A UIC error that the link recovers from by itself.
    fn raise_uic_error(&mut self) {
        let pa = UecPa::new().with_err(true);
        let dl = UecDl::new().with_err(true);
        let errors = [
            (PA, pa.with_lane_0(true).into_bits()),
            (PA, pa.with_generic(true).into_bits()),
            (DL, dl.with_nac_received(true).into_bits()),
            (DL, dl.with_tcx_replay_timer_expired(true).into_bits()),
            (DL, dl.with_crc_error(true).into_bits()),
            (N, UecN::new().with_err(true).with_bad_deviceid_enc(true).into_bits()),
            (T, UecT::new().with_err(true).with_e2e_credit_overflow(true).into_bits()),
            (DME, UecDme::new().with_err(true).with_generic(true).into_bits()),
        ];
        let chosen = self.exchange.faults.choose(Kind::Uic, errors.len() as u64);
        let (layer, bits) = errors[chosen as usize];
        self.controller.registers.raise_uic(layer, bits, Interrupts::new());
    }

    /// The link is lost: commands in the device are never answered.
    pub(super) fn lose_link(&mut self) {
        self.controller.link_is_down(&mut self.exchange);
        self.swallow_all();
        let lost = UecDl::new().with_err(true).with_pa_init_error(true).into_bits();
        self.controller.registers.raise_uic(DL, lost, Interrupts::new().with_ulls(true));
    }

    fn swallow_all(&mut self) {
        self.exchange.tasks.swallow_all();
        self.device.forget_waiting();
    }

    /// Power is lost: everything volatile is lost, unflushed writes may vanish or tear.
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub(super) fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.lose_link();
        self.device.power_off(&self.exchange);
        self.exchange.agenda.forget_device();
        self.device.lose_writes(&mut self.exchange.faults)
    }

    /// Power comes back after [`cut_power`](Self::cut_power): a new configuration descriptor takes
    /// effect now.
    pub(super) fn restore_power(&mut self) {
        self.device.power_on(self.exchange.now());
        self.device.meter_state(&self.exchange);
    }

    /// RST_n: the device starts afresh and the link goes down; buffered writes survive.
    pub(super) fn reset_hardware(&mut self) {
        self.lose_link();
        self.reset_device(Reset::PowerOn);
    }
}

/// What a fault does to a command that has run its course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upset {
    /// It ends later.
    Late,
    /// It ends with this status.
    Ends(Ocs),
}

impl Exchange {
    /// A command has run its course: returns whether a fault changes its end.
    pub(super) fn fault_at_end(&mut self, name: TaskRef) -> Option<Upset> {
        let task = self.tasks.get(name.index);
        let (late, tag) = (task.late, u32::from(task.tag));
        if !late && self.fires(Kind::Late, tag) {
            self.tasks.get_mut(name.index).late = true;
            let more = self.faults.choose(Kind::Late, LATE_MAX_NS - LATE_MIN_NS);
            self.agenda.after(LATE_MIN_NS + more, Event::Complete(name));
            return Some(Upset::Late);
        }
        if self.fires(Kind::BadOcs, tag) {
            const BAD: [Ocs; 7] = [
                Ocs::InvalidCommandTableAttributes,
                Ocs::InvalidPrdtAttributes,
                Ocs::MismatchDataBufferSize,
                Ocs::MismatchResponseUpiuSize,
                Ocs::PeerCommunicationFailure,
                Ocs::FatalError,
                Ocs::Invalid,
            ];
            let chosen = self.faults.choose(Kind::BadOcs, BAD.len() as u64);
            return Some(Upset::Ends(BAD[chosen as usize]));
        }
        None
    }

    /// The sense data or status that a fault gives the command instead of its result. Blocks of its
    /// unit have `1 << block_shift` bytes.
    pub(super) fn fault_in_command(
        &mut self,
        index: u16,
        work: &Work,
        block_shift: impl Fn(u8) -> Option<u32>,
    ) -> Option<Work> {
        let tag = u32::from(self.tasks.get(index).tag);
        if self.fires(Kind::Transient, tag) {
            const PASSING: [Work; 6] = [
                Work::Status(Status::Busy),
                Work::Status(Status::TaskSetFull),
                Work::Fail(Sense::attention(AdditionalSense::DeviceInternalReset)),
                Work::Fail(Sense::attention(AdditionalSense::ParametersChanged)),
                Work::Fail(Sense::new(
                    SenseKey::AbortedCommand,
                    AdditionalSense::ProtocolServiceCrcError,
                )),
                Work::Fail(Sense::new(
                    SenseKey::HardwareError,
                    AdditionalSense::InternalTargetFailure,
                )),
            ];
            let chosen = self.faults.choose(Kind::Transient, PASSING.len() as u64);
            return Some(PASSING[chosen as usize]);
        }
        let (unit, offset, len, additional) = match *work {
            Work::Read { unit, offset, len } => {
                (unit, offset, len, AdditionalSense::UnrecoveredReadError)
            }
            Work::Write { unit, offset, len, .. } => {
                (unit, offset, len, AdditionalSense::WriteError)
            }
            _ => return None,
        };
        if matches!(work, Work::Read { .. }) && self.fires(Kind::ShortRead, tag) {
            self.tasks.get_mut(index).bare_residual = true;
            return Some(Work::Read { unit, offset, len: len / 2 });
        }
        let shift = block_shift(unit)?;
        let (first, blocks) = (offset >> shift, u64::from(len >> shift));
        let bad = self.faults.bad_block(first..first + blocks, self.agenda.instant(), tag);
        let bad = bad.or_else(|| {
            let fires = self.fires(Kind::Medium, tag);
            fires.then(|| first + self.faults.choose(Kind::Medium, blocks))
        })?;
        Some(Work::Fail(Sense::medium(additional, bad)))
    }
}
