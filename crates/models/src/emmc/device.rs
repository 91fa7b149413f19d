//! A card with what is behind it: its flash, what a loss of power would do to it, and how long it
//! is busy.

use flysch_api::machine::{GuestMemory, Instant};
use flysch_wire::mmc::CardState;
use flysch_wire::mmc::command::CommandIndex;

use super::backend::Backend;
use super::card::{Answer, Busy, Card, Load};
use super::clock::{Clock, Event};
use super::config::Config;
use super::profile::level;
use super::sd::Sd;
use super::transfer::{Failed, List};
use crate::faults::{Injector, Kind};
use crate::media::cache::{Cache, Loss};
use crate::media::energy::Energy;
use crate::store::StoreError;

/// A card, its flash, and how it stands.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) card: Card,
    pub(super) backend: Backend,
    cache: Cache,
    /// What losses of power did.
    lost: Loss,
    /// When it finished a task, by its number; the first also a transfer of the host's own.
    done: [u64; 32],
    /// Number of what it is busy with: the ends of earlier ones are stale.
    busy_serial: u32,
}

impl Device {
    /// The device of `config`, whose stores it takes.
    pub(super) fn new(config: &mut Config) -> Self {
        Self {
            backend: Backend::new(&config.profile, config.seed),
            cache: Cache::new(config.volatile_cache),
            card: Card::new(config),
            lost: Loss::default(),
            done: [0; 32],
            busy_serial: 0,
        }
    }

    /// What losses of power did so far.
    pub(super) fn lost(&self) -> Loss {
        self.lost
    }

    /// What it took from its supply until `now`.
    pub(super) fn energy(&self, now: Instant) -> Energy {
        self.backend.energy(now.nanos())
    }

    /// When it finished the task of this number last.
    pub(super) fn done_at(&self, task: u16) -> Option<Instant> {
        let nanos = *self.done.get(usize::from(task))?;
        (nanos != 0).then_some(Instant::from_nanos(nanos))
    }

    /// It finishes a task at `now`.
    #[inline]
    pub(super) fn note_done(&mut self, task: u8, now: u64) {
        self.done[usize::from(task)] = now;
    }

    /// A command, whoever sends it, with a clock that `runs` or not.
    pub(super) fn execute(
        &mut self,
        (index, argument): (u8, u32),
        runs: bool,
        now: Instant,
        faults: &mut Injector,
    ) -> Option<Answer> {
        let fails = index == CommandIndex::Switch.into_bits()
            && faults.is_active()
            && self.card.state == CardState::Transfer
            && faults.fires(Kind::SwitchError, now, argument);
        let answer = self.card.command(index, argument, (now, fails));
        if let Some((part, offset, bytes)) = self.card.erased.take() {
            // What was erased does not come back with a loss of power.
            self.cache.discarded(part, offset, bytes);
        }
        if index == CommandIndex::SleepAwake.into_bits() {
            self.meter(runs, now.nanos());
        }
        answer
    }

    /// Tells the meter what state the card is in, with a clock that `runs` or not.
    pub(super) fn meter(&mut self, runs: bool, now: u64) {
        let level = match self.card.state {
            _ if !self.card.is_powered => level::OFF,
            CardState::Sleep => level::SLEEP,
            _ if !runs => level::STILL,
            _ => level::CLOCKED,
        };
        self.backend.enter(level, now);
    }

    /// The card loses its power for a moment, or sees RST_n: what was written is safe, everything
    /// else is not.
    pub(super) fn restart(&mut self, runs: bool, now: u64) {
        self.backend.forget_busy();
        self.busy_serial = self.busy_serial.wrapping_add(1);
        self.begin(runs, now);
    }

    /// Power comes back after [`cut_power`](Self::cut_power): the card is idle.
    pub(super) fn restore_power(&mut self, runs: bool, now: u64) {
        self.card.is_powered = true;
        self.begin(runs, now);
    }

    /// The card begins anew, as what was asked of it before makes it.
    fn begin(&mut self, runs: bool, now: u64) {
        self.card.ext_csd.take_firmware();
        self.card.take_partitions();
        self.card.power_on(now);
        self.meter(runs, now);
    }

    /// Power goes away: everything volatile is lost, unflushed writes may vanish.
    pub(super) fn cut_power(
        &mut self,
        now: u64,
        faults: &mut Injector,
    ) -> Result<Loss, StoreError> {
        self.card.power_on(now);
        self.card.rpmb.power_off();
        self.card.is_powered = false;
        self.meter(false, now);
        self.busy_serial = self.busy_serial.wrapping_add(1);
        self.backend.power_off();
        let loss = self.cache.lose(&mut self.card.parts, faults)?;
        self.lost.survived += loss.survived;
        self.lost.vanished += loss.vanished;
        self.lost.torn += loss.torn;
        Ok(loss)
    }

    /// It is busy from now on; whether it is ready again at once.
    pub(super) fn become_busy(
        &mut self,
        busy: Busy,
        clock: &mut Clock,
        faults: &mut Injector,
    ) -> bool {
        if busy == Busy::None {
            // Whatever it is busy with goes on.
            return false;
        }
        let stuck = faults.is_active() && faults.fires(Kind::BusyStuck, clock.now(), 0);
        self.backend.forget_busy();
        self.busy_serial = self.busy_serial.wrapping_add(1);
        let serial = self.busy_serial;
        match busy {
            _ if stuck => self.card.is_busy = true,
            Busy::None | Busy::Interrupted => {}
            Busy::For(nanos) => {
                self.card.is_busy = true;
                clock.after(nanos, Event::NotBusy { serial });
            }
            Busy::Medium => {
                self.card.is_busy = true;
                self.backend.keep_busy();
                self.backend.program(clock);
                return self.backend.ends_busy();
            }
        }
        false
    }

    /// Whether what it was busy with is still the same.
    pub(super) fn is_busy_with(&self, serial: u32) -> bool {
        serial == self.busy_serial
    }

    /// HPI: whatever it is busy with ends now.
    pub(super) fn interrupt(&mut self) {
        self.busy_serial = self.busy_serial.wrapping_add(1);
    }

    /// It is ready again.
    pub(super) fn ready_again(&mut self) {
        self.backend.forget_busy();
        self.card.is_busy = false;
    }

    /// A die may be done: whether it is, and its data on the medium.
    pub(super) fn die_done(&mut self, clock: &mut Clock, die: u16) -> bool {
        let is_done = self.backend.die_done(clock, die);
        if is_done {
            self.cache.programmed(self.backend.programmed_total());
        }
        is_done
    }

    /// Moves data between the host's memory and what it is of.
    #[inline]
    pub(super) fn transfer(
        &mut self,
        memory: &GuestMemory,
        (read, load): (bool, Load),
        list: List,
        bytes: u64,
    ) -> Result<(), Failed> {
        let Load::Sectors { part, offset, .. } = load else {
            let mut data = alloc::vec![0; bytes as usize];
            if read {
                self.give(load, 0, &mut data)?;
                return list.scatter(memory, &data);
            }
            list.gather(memory, &mut data)?;
            return self.take(load, 0, &data);
        };
        if !read {
            self.keep_old(part, offset, bytes)?;
        }
        let parts = &mut self.card.parts;
        if read {
            let store = parts.store(part).ok_or(Failed::Store)?;
            return list.copy((memory, true), bytes, |done, (region, at), len| {
                store.read(offset + done, region, at, len)
            });
        }
        let store = parts.store_to_write(part, bytes).ok_or(Failed::Store)?;
        list.copy((memory, false), bytes, |done, (region, at), len| {
            store.write(offset + done, region, at, len)
        })
    }

    /// What a power loss would bring back is kept.
    fn keep_old(&mut self, part: u8, offset: u64, bytes: u64) -> Result<(), StoreError> {
        if !self.cache.is_enabled() {
            return Ok(());
        }
        // The write counts as arrived right after this.
        let mark = self.backend.arrived_total() + bytes;
        let shift = self.card.ext_csd.grain_shift();
        // What comes through the buffer port comes in parts: a sector is kept with its first.
        let first = offset.next_multiple_of(1 << shift);
        let rest = (offset + bytes).saturating_sub(first);
        let Some(store) = self.card.parts.store(part) else { return Ok(()) };
        self.cache.keep((part, shift), store, (first, rest), mark)
    }

    /// Gives data to the host from `done` on.
    pub(super) fn give(&mut self, load: Load, done: u64, data: &mut [u8]) -> Result<(), Failed> {
        let from = match load {
            Load::Sectors { part, offset, .. } => {
                let store = self.card.parts.store(part).ok_or(Failed::Store)?;
                return Ok(store.get(offset + done, data)?);
            }
            Load::ExtCsd => self.card.ext_csd.bytes().to_vec(),
            Load::Protection(group) => self.card.protection.bits(group).to_be_bytes().to_vec(),
            Load::ProtectionTypes(group) => {
                self.card.protection.types(group).to_be_bytes().to_vec()
            }
            Load::Rpmb(_) => self.card.rpmb.read(data.len() / 512),
            Load::Message => self.card.sd.as_ref().map_or(&[][..], Sd::message).to_vec(),
            Load::Tuning | Load::Firmware => return Ok(()),
        };
        let len = data.len().min(from.len());
        data[..len].copy_from_slice(&from[..len]);
        Ok(())
    }

    /// Takes data from the host from `done` on.
    pub(super) fn take(&mut self, load: Load, done: u64, data: &[u8]) -> Result<(), Failed> {
        match load {
            Load::Sectors { part, offset, .. } => {
                let (at, len) = (offset + done, data.len() as u64);
                let kept = self.keep_old(part, at, len);
                let store = self.card.parts.store_to_write(part, len);
                let put = store.map(|store| store.put(at, data));
                kept?;
                put.ok_or(Failed::Store)??;
            }
            Load::Rpmb(reliable) => self.card.rpmb.write(data, reliable),
            Load::Firmware => self.card.ext_csd.firmware_came((data.len() / 512) as u32),
            _ => {}
        }
        Ok(())
    }
}
