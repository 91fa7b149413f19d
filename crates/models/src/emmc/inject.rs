//! Faults: where the fault plan meets the bus, the engine and the device.

use flysch_wire::mmc::cqhci::{DIRECT, Task as Descriptor};
use flysch_wire::mmc::sdhci::{Command, Interrupts};
use flysch_wire::mmc::{CardState, CardStatus};

use super::card::Load;
use super::engine::{State, TaskRef};
use super::{Emmc, Event};
use crate::faults::Kind;
use crate::media::cache::Loss;
use crate::store::StoreError;

/// How late a late command is, at least and at most, nanoseconds.
const LATE_MIN_NS: u64 = 1_000_000;
const LATE_MAX_NS: u64 = 400_000_000;

impl Emmc {
    /// What takes the device away altogether; whether it did.
    fn fault_of_power(&mut self, detail: u32) -> bool {
        let now = self.now;
        if self.faults.fires(Kind::Unplugged, now, detail) {
            self.unplug();
            return true;
        }
        if self.faults.fires(Kind::PowerGone, now, detail) {
            // The host of a store that fails here has seen every access fail before.
            let _ = self.cut_power();
            return true;
        }
        if self.faults.fires(Kind::PowerLoss, now, detail) {
            let _ = self.cut_power();
            self.restore_power();
            return true;
        }
        false
    }

    /// A task has reached the device: whether a fault keeps it from starting.
    pub(super) fn fault_at_start(&mut self, number: u8) -> bool {
        let (now, detail) = (self.now, u32::from(number));
        if self.fault_of_power(detail) {
            return true;
        }
        if self.faults.fires(Kind::Stall, now, detail) {
            self.swallow_tasks();
            return true;
        }
        if self.faults.fires(Kind::Timeout, now, detail) {
            self.card.tasks |= 1 << number & !(1 << DIRECT);
            self.swallow(number);
            return true;
        }
        false
    }

    /// A task that is never answered.
    fn swallow(&mut self, number: u8) {
        let task = &mut self.engine.tasks[usize::from(number)];
        task.state = State::Swallowed;
        task.generation = task.generation.wrapping_add(1);
    }

    /// No task in the device is ever answered.
    fn swallow_tasks(&mut self) {
        for number in 0..32 {
            let task = self.engine.tasks[usize::from(number)];
            let write = !Descriptor::from_bits(task.descriptor).read();
            if number != DIRECT && write && matches!(task.state, State::Ready | State::Moving) {
                let bytes = u64::from(Descriptor::from_bits(task.descriptor).blocks()) * 512;
                self.media.release(bytes);
            }
            if task.state != State::Free {
                self.swallow(number);
            }
        }
        self.engine.ready.clear();
        self.engine.writes.clear();
        self.engine.moving = None;
    }

    /// A task is about to be worked on: whether a fault ends it with an error of the device.
    pub(super) fn fault_in_task(&mut self, number: u8, (first, blocks): (u32, u32)) -> bool {
        let none = CardStatus::new();
        let (now, detail) = (self.now, u32::from(number));
        let range = u64::from(first)..u64::from(first) + u64::from(blocks);
        let bad = self.faults.bad_block(range, now, detail).is_some();
        let error = if bad || self.faults.fires(Kind::Medium, now, detail) {
            none.with_ecc_failed(true)
        } else if self.faults.fires(Kind::Transient, now, detail) {
            none.with_error(true)
        } else {
            return false;
        };
        self.response_error(number, 13, error.into_bits());
        true
    }

    /// A task's data is on the bus: whether a fault spoils it.
    pub(super) fn fault_on_bus(&mut self, number: u8) -> bool {
        let what = match self.spoilt(number.into()) {
            Some(what) => what,
            None if self.faults.fires(Kind::TaskError, self.now, number.into()) => {
                Interrupts::new().with_data_timeout(true)
            }
            None => return false,
        };
        self.data_error(number, what);
        true
    }

    /// What of data on the bus goes wrong.
    fn spoilt(&mut self, detail: u32) -> Option<Interrupts> {
        if self.faults.fires(Kind::BusCrc, self.now, detail) {
            return Some(Interrupts::new().with_data_crc(true));
        }
        if self.registers.needs_tuning() && self.faults.fires(Kind::TuningLoss, self.now, detail) {
            self.detuned = true;
            return Some(Interrupts::new().with_data_crc(true));
        }
        None
    }

    /// A task is about to end: whether a fault keeps it from that.
    pub(super) fn fault_at_end(&mut self, name: TaskRef) -> bool {
        let (now, detail) = (self.now, u32::from(name.number));
        if self.faults.fires(Kind::StuckDoorbell, now, detail) {
            self.swallow(name.number);
            return true;
        }
        let task = &mut self.engine.tasks[usize::from(name.number)];
        if core::mem::replace(&mut task.late, true) {
            return false;
        }
        let late = self.faults.fires(Kind::Late, now, detail);
        if late {
            let more = self.faults.choose(Kind::Late, LATE_MAX_NS - LATE_MIN_NS);
            self.after(LATE_MIN_NS + more, Event::Late(name));
        }
        late
    }

    /// A command of the host's own has crossed the line: whether a fault spoils it.
    pub(super) fn fault_in_command(&mut self, mode: Command) -> bool {
        let (now, detail) = (self.now, u32::from(mode.index()));
        if self.fault_of_power(detail) {
            self.silence();
            return true;
        }
        // Identification is left alone: what it would show is a card that is not there.
        if self.card.state != CardState::Transfer {
            return false;
        }
        if self.faults.fires(Kind::Timeout, now, detail) {
            self.silence();
            return true;
        }
        if !mode.data() && self.faults.fires(Kind::BusCrc, now, detail) {
            self.registers.raise(Interrupts::new().with_command_crc(true));
            return true;
        }
        false
    }

    /// Data of the host's own command is on the bus: whether a fault spoils it.
    pub(super) fn fault_in_data(&mut self) -> bool {
        let Some(transfer) = &self.transfer else { return false };
        let Load::Sectors { offset, .. } = transfer.phase.load else {
            let spoilt = self.spoilt(0);
            return spoilt.map(|what| self.fail_data(what)).is_some();
        };
        let first = offset / 512;
        let range = first..first + u64::from(transfer.blocks);
        if let Some(what) = self.spoilt(0) {
            self.fail_data(what);
            return true;
        }
        let now = self.now;
        let bad = self.faults.bad_block(range, now, 0).is_some();
        let none = CardStatus::new();
        let error = if bad || self.faults.fires(Kind::Medium, now, 0) {
            none.with_ecc_failed(true)
        } else if self.faults.fires(Kind::Transient, now, 0) {
            none.with_error(true)
        } else {
            if self.faults.fires(Kind::Stall, now, 0) {
                self.stop_transfer();
                return true;
            }
            return false;
        };
        // The device stops sending, or does not accept: what the host sees is data that ends.
        self.card.fail(error);
        self.fail_data(Interrupts::new().with_data_timeout(true));
        true
    }

    /// Power of the device goes away: everything volatile is lost, unflushed writes may vanish.
    /// The controller keeps its power. Nothing answers until
    /// [`restore_power`](Self::restore_power).
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.swallow_tasks();
        self.stop_transfer();
        self.card.power_on(self.now.nanos());
        self.card.rpmb.power_off();
        self.card.is_powered = false;
        self.meter_state();
        (self.busy_mark, self.detuned) = (None, false);
        self.busy_serial = self.busy_serial.wrapping_add(1);
        self.media.restart(self.profile.timing, self.seed);
        self.events.retain(|event| !matches!(event, Event::Die(_)));
        let loss = self.cache.lose(&mut self.card.parts, &mut self.faults)?;
        self.lost.survived += loss.survived;
        self.lost.vanished += loss.vanished;
        self.lost.torn += loss.torn;
        Ok(loss)
    }

    /// Power comes back after [`cut_power`](Self::cut_power): the card is idle.
    pub fn restore_power(&mut self) {
        self.card.is_powered = true;
        self.card.take_firmware();
        self.card.take_partitions();
        self.card.power_on(self.now.nanos());
        self.meter_state();
    }

    /// The controller is pulled out: its registers read as ones from now on.
    pub fn unplug(&mut self) {
        let _ = self.cut_power();
        self.registers.is_gone = true;
    }

    /// It is put back, and has power.
    pub fn plug(&mut self) {
        self.registers.is_gone = false;
        self.registers.power_on();
        self.engine.reset();
        self.restore_power();
    }
}
