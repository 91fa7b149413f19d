//! Faults: where the fault plan meets the controller and the device.

use flysch_wire::scsi::{AdditionalSense, Cdb, SenseKey, Status};
use flysch_wire::ufs::registers::{Interrupts, PowerModeStatus, UecDl, UecDme, UecN, UecPa, UecT};
use flysch_wire::ufs::upiu::{CommandUpiu, TransactionCode, TransactionType};
use flysch_wire::ufs::utrd::Ocs;

use super::sense::Sense;
use super::task::{State, TaskRef, Work};
use super::{Event, Ufs};
use crate::faults::Kind;
use crate::media::cache::Loss;
use crate::store::StoreError;

/// How late a late command is, at least and at most, nanoseconds.
const LATE_MIN_NS: u64 = 1_000_000;
const LATE_MAX_NS: u64 = 400_000_000;
/// How long power that comes back late stays away, at least and at most, nanoseconds.
const POWER_LATE_MIN_NS: u64 = 10_000_000;
const POWER_LATE_MAX_NS: u64 = 1_000_000_000;

/// Index of a layer's register in the block UECPA to UECDME.
const PA: usize = 0;
const DL: usize = 1;
const N: usize = 2;
const T: usize = 3;
const DME: usize = 4;

impl Ufs {
    /// A command has reached the device: whether a fault keeps it from starting.
    pub(super) fn fault_at_start(&mut self, index: u16) -> bool {
        let (now, tag) = (self.now, u32::from(self.tasks.get(index).tag));
        if self.faults.fires(Kind::Uic, now, tag) {
            self.raise_uic_error();
        }
        if self.faults.fires(Kind::LinkLoss, now, tag) {
            self.lose_link();
            return true;
        }
        if self.faults.fires(Kind::Fatal, now, tag) {
            self.raise_fatal();
            return true;
        }
        if self.faults.fires(Kind::LineReset, now, tag) {
            self.reset_line();
        }
        let woken = self.tasks.held == 1 && self.media.is_auto_hibernated(now.nanos());
        if woken && self.faults.fires(Kind::AutoHibern8, now, tag) {
            self.fail_to_wake();
            return true;
        }
        if self.fault_of_power(tag) {
            return true;
        }
        if self.faults.fires(Kind::Stall, now, tag) {
            self.swallow_all();
            return true;
        }
        let swallowed = self.faults.fires(Kind::Timeout, now, tag);
        if swallowed {
            self.tasks.get_mut(index).state = State::Swallowed;
        }
        swallowed
    }

    /// Whether power goes away now, and for how long.
    fn fault_of_power(&mut self, tag: u32) -> bool {
        let now = self.now;
        let Some(kind) = Kind::POWER.into_iter().find(|&kind| self.faults.fires(kind, now, tag))
        else {
            return false;
        };
        // A store that fails here has failed every write before: the host knows.
        let _ = self.cut_power();
        match kind {
            Kind::PowerLoss => self.restore_power(),
            Kind::PowerLate => {
                let range = POWER_LATE_MAX_NS - POWER_LATE_MIN_NS;
                let late = POWER_LATE_MIN_NS + self.faults.choose(kind, range);
                self.after(late, Event::PowerBack);
            }
            _ => {}
        }
        true
    }

    /// LINERESET: both ends are in their lowest speed; commands go on in it.
    fn reset_line(&mut self) {
        self.link.fall_back();
        self.media.set_link_rate(self.link.rate);
        self.registers.uec[PA] |= UecPa::new().with_err(true).with_generic(true).into_bits();
        self.registers.raise(Interrupts::new().with_ue(true));
    }

    /// The link has hibernated by itself and a command should wake it: it is lost.
    fn fail_to_wake(&mut self) {
        self.link_is_down();
        self.swallow_all();
        self.registers.hcs.set_upmcrs(PowerModeStatus::FatalError);
        self.registers.raise(Interrupts::new().with_uhxs(true));
    }

    /// A command has run its course: whether a fault ends it otherwise.
    pub(super) fn fault_at_end(&mut self, name: TaskRef) -> bool {
        let (now, index) = (self.now, name.index);
        let tag = u32::from(self.tasks.get(index).tag);
        if !self.tasks.get(index).late && self.faults.fires(Kind::Late, now, tag) {
            self.tasks.get_mut(index).late = true;
            let more = self.faults.choose(Kind::Late, LATE_MAX_NS - LATE_MIN_NS);
            self.after(LATE_MIN_NS + more, Event::Complete(name));
            return true;
        }
        if self.faults.fires(Kind::BadOcs, now, tag) {
            const BAD: [Ocs; 7] = [
                Ocs::InvalidCommandTableAttributes,
                Ocs::InvalidPrdtAttributes,
                Ocs::MismatchDataBufferSize,
                Ocs::MismatchResponseUpiuSize,
                Ocs::PeerCommunicationFailure,
                Ocs::FatalError,
                Ocs::Invalid,
            ];
            let ocs = BAD[self.faults.choose(Kind::BadOcs, BAD.len() as u64) as usize];
            self.finish(index, ocs);
            return true;
        }
        false
    }

    /// The sense or status a fault gives the command instead of what it asks for.
    pub(super) fn fault_in_command(&mut self, index: u16, work: &Work) -> Option<Work> {
        let (now, tag) = (self.now, u32::from(self.tasks.get(index).tag));
        if self.faults.fires(Kind::Transient, now, tag) {
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
            return Some(
                PASSING[self.faults.choose(Kind::Transient, PASSING.len() as u64) as usize],
            );
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
        if matches!(work, Work::Read { .. }) && self.faults.fires(Kind::ShortRead, now, tag) {
            self.tasks.get_mut(index).bare_residual = true;
            return Some(Work::Read { unit, offset, len: len / 2 });
        }
        let shift = self.device.unit(unit)?.block_shift;
        let (first, blocks) = (offset >> shift, u64::from(len >> shift));
        let bad = self.faults.bad_block(first..first + blocks, now, tag);
        let bad = bad.or_else(|| {
            let fires = self.faults.fires(Kind::Medium, now, tag);
            fires.then(|| first + self.faults.choose(Kind::Medium, blocks))
        })?;
        Some(Work::Fail(Sense::medium(additional, bad)))
    }

    /// Whether a fault keeps the completion's interrupt from being raised.
    pub(super) fn loses_interrupt(&mut self, tag: u8) -> bool {
        self.faults.is_active() && self.faults.fires(Kind::LostInterrupt, self.now, tag.into())
    }

    /// Whether a fault keeps the slot from being given back.
    pub(super) fn sticks(&mut self, index: u16) -> bool {
        if !self.faults.is_active() {
            return false;
        }
        let task = self.tasks.get(index);
        let (is_command, tag) = (is_command(&task.request), u32::from(task.tag));
        let sticks = is_command && self.faults.fires(Kind::StuckDoorbell, self.now, tag);
        if sticks {
            self.tasks.get_mut(index).state = State::Stuck;
        }
        sticks
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
        let (layer, bits) = errors[self.faults.choose(Kind::Uic, errors.len() as u64) as usize];
        self.registers.uec[layer] |= bits;
        self.registers.raise(Interrupts::new().with_ue(true));
    }

    /// The link is lost: what is in the device is never answered.
    pub fn lose_link(&mut self) {
        self.link_is_down();
        self.swallow_all();
        let lost = UecDl::new().with_err(true).with_pa_init_error(true);
        self.registers.uec[DL] |= lost.into_bits();
        self.registers.raise(Interrupts::new().with_ulls(true).with_ue(true));
    }

    /// A fatal error: the controller stops until it is reset.
    fn raise_fatal(&mut self) {
        let none = Interrupts::new();
        let causes = [
            none.with_dfes(true),
            none.with_hcfes(true),
            none.with_sbfes(true),
            none.with_utpes(true),
        ];
        let cause = causes[self.faults.choose(Kind::Fatal, causes.len() as u64) as usize];
        self.registers.hcs.set_dei(cause.dfes());
        self.registers.hcs.set_hei(true);
        self.swallow_all();
        self.registers.raise(cause);
    }

    fn swallow_all(&mut self) {
        self.tasks.swallow_all();
        self.device.forget_waiting();
    }

    /// Power goes away: everything volatile is lost, unflushed writes may vanish or tear.
    ///
    /// The controller keeps its power; it sees the link go down. Nothing works until
    /// [`restore_power`](Self::restore_power) and a new link start-up.
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.lose_link();
        self.device.power_off(self.now.nanos());
        self.media.restart(self.profile.timing, self.seed);
        self.media.set_link_rate(self.link.rate);
        self.meter_state();
        let of_device = |event: &Event| {
            matches!(
                event,
                Event::Die(_) | Event::Ready(_) | Event::Accepted(_) | Event::Arrived(..)
            )
        };
        self.events.retain(|event| !of_device(event));
        let loss = self.device.cache.lose(&mut self.device.units, &mut self.faults)?;
        self.lost.survived += loss.survived;
        self.lost.vanished += loss.vanished;
        self.lost.torn += loss.torn;
        Ok(loss)
    }

    /// Power comes back after [`cut_power`](Self::cut_power): a written configuration descriptor
    /// takes effect now.
    pub fn restore_power(&mut self) {
        self.device.power_on(self.now.nanos());
        self.meter_state();
    }

    /// RST_n: the device starts afresh and the link goes down; buffered writes survive.
    pub fn reset_hardware(&mut self) {
        self.lose_link();
        self.reset_device(super::parameters::Reset::PowerOn);
    }

    /// Ages the device: from now on it has `bytes` more of garbage to collect in the background, as
    /// if so much had been written.
    pub fn owe_background_work(&mut self, bytes: u64) {
        self.device.background.wrote(bytes);
        self.device.update_alert(self.now.nanos());
    }

    /// Sets the case temperature, °C: beyond the boundaries (85 and -25) exception events follow.
    pub fn set_temperature(&mut self, celsius: i16) {
        self.device.set_temperature(celsius, self.now.nanos());
    }

    /// Whether user data wants the room of the WriteBooster buffer: the device then recommends a
    /// smaller one.
    pub fn want_space(&mut self, wants: bool) {
        self.device.write_booster.want_space(wants);
        self.device.update_alert(self.now.nanos());
    }
}

fn is_command(request: &[u8; 32]) -> bool {
    TransactionType::from_bits(request[0]).code() == TransactionCode::Command
}

/// The CDB of a request that is a COMMAND.
pub(super) fn cdb_of(request: &[u8; 32]) -> Option<Cdb> {
    CommandUpiu::parse(request).ok().map(|unit| Cdb::parse(&unit.cdb))
}
