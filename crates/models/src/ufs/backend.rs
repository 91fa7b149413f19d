//! The back end: the medium with its write buffer, what a power loss would destroy in it, the
//! WriteBooster buffer, and the commands that wait for any of them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flysch_wire::ufs::query::CurrentPowerMode;

use super::agenda::{Agenda, Event};
use super::config::Config;
use super::exchange::Exchange;
use super::power::{self, Background};
use super::task::{TaskRef, Tasks, Work};
use super::writebooster::WriteBooster;
use crate::media::cache::Cache;
use crate::media::timing::Timing;
use crate::media::{Media, Program};

/// A command that waits until everything written before it is on the medium.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: TaskRef,
    /// Number of bytes that had arrived when it began to wait.
    watermark: u64,
}

/// Medium, buffers, and the commands that wait for them.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) media: Media,
    pub(super) cache: Cache,
    pub(super) write_booster: WriteBooster,
    pub(super) background: Background,
    timing: Timing,
    seed: u64,
    /// Writes waiting for room in the write buffer, in order.
    writes: VecDeque<TaskRef>,
    flushes: Vec<Waiting>,
    /// An [`Event::Idle`] is scheduled.
    idle_awaited: bool,
}

impl Backend {
    /// The empty back end of a new device.
    pub(super) fn new(config: &Config, write_booster: WriteBooster) -> Self {
        let profile = &config.profile;
        Self {
            media: Media::new(profile.timing, profile.energy, config.seed),
            cache: Cache::new(config.volatile_cache || config.faults.cuts_power()),
            write_booster,
            background: Background::default(),
            timing: profile.timing,
            seed: config.seed,
            writes: VecDeque::new(),
            flushes: Vec::new(),
            idle_awaited: false,
        }
    }

    /// Power is lost: the medium starts anew.
    pub(super) fn lose_power(&mut self) {
        self.media.restart(self.timing, self.seed);
    }

    /// Ends the command in task `index` after the duration of a command without data.
    pub(super) fn answer_later(&mut self, index: u16, accepted: u64, x: &mut Exchange) {
        let end = self.media.answer(accepted);
        x.agenda.at(end, Event::Complete(x.tasks.name(index)));
    }

    /// The firmware takes up a write: its data comes once there is room for it. Returns whether
    /// there is none, and the buffer must be emptied.
    pub(super) fn take_write(&mut self, name: TaskRef, len: u32, x: &mut Exchange) -> bool {
        let waits = !self.writes.is_empty() || !self.media.admit(u64::from(len));
        if waits {
            self.writes.push_back(name);
        } else {
            self.receive(name, len, x);
        }
        waits
    }

    #[inline]
    fn receive(&mut self, name: TaskRef, len: u32, x: &mut Exchange) {
        let end = self.media.receive(x.now(), u64::from(len));
        x.agenda.at(end, Event::Arrived(name, len));
    }

    /// Lets waiting writes send their data as far as there is room.
    pub(super) fn admit_writes(&mut self, x: &mut Exchange) {
        while let Some(&name) = self.writes.front() {
            let Work::Write { len, .. } = x.tasks.get(name.index).work else { break };
            if !self.media.admit(u64::from(len)) {
                break;
            }
            self.writes.pop_front();
            self.receive(name, len, x);
        }
    }

    /// Keeps `name` until everything that has arrived is on the medium.
    pub(super) fn wait_for_medium(&mut self, name: TaskRef) {
        let watermark = self.media.arrived_total();
        self.flushes.push(Waiting { task: name, watermark });
    }

    /// Ends the commands that waited for the medium, as far as it has got; the device is in power
    /// mode `from`.
    pub(super) fn end_flushes(&mut self, from: CurrentPowerMode, x: &mut Exchange) {
        let programmed = self.media.programmed_total();
        let mut at = 0;
        while at < self.flushes.len() {
            if self.flushes[at].watermark > programmed {
                at += 1;
                continue;
            }
            let name = self.flushes.remove(at).task;
            let change = match x.tasks.get(name.index).work {
                Work::Power { mode } => power::change_ns(from, mode),
                _ => 0,
            };
            let end = self.media.answer(x.now()) + change;
            x.agenda.at(end, Event::Complete(name));
        }
    }

    /// Starts as many program operations as there are data and free dies; with nothing else to do,
    /// moves data from the WriteBooster buffer to TLC. Returns whether any was moved.
    #[inline]
    pub(super) fn program(&mut self, x: &mut Exchange) -> bool {
        let now = x.now();
        // There is no waiting for more data to fill a program unit if a flush is pending, or if a
        // write waits for the room that this data occupies.
        let stalled = !self.writes.is_empty() && self.media.is_resting();
        let partial = stalled || !self.flushes.is_empty();
        while let Some(started) = self.media.program(now, partial) {
            x.agenda.at(started.end, Event::Die(started.die));
        }
        let hibernated = x.is_hibernated(&self.media);
        let limit = self.media.unit(Program::Flush);
        let mut moved = false;
        while let Some((buffer, bytes)) = self.write_booster.to_flush(hibernated, limit) {
            let Some(started) = self.media.flush_slc(now, bytes) else { return moved };
            self.write_booster.moved(buffer, bytes);
            moved = true;
            x.agenda.at(started.end, Event::Die(started.die));
        }
        if !hibernated && !self.idle_awaited && self.write_booster.waits_for_hibernate() {
            self.await_idle(&mut x.agenda);
        }
        moved
    }

    /// Schedules another look for when auto-hibern8 would begin.
    fn await_idle(&mut self, agenda: &mut Agenda) {
        if let Some(at) = self.media.auto_hibern8_at(agenda.now()) {
            self.idle_awaited = true;
            agenda.at(at, Event::Idle);
        }
    }

    /// Auto-hibern8 may have begun: no further look is scheduled.
    pub(super) fn is_idle(&mut self) {
        self.idle_awaited = false;
    }

    /// A die was expected to finish its oldest unit. Returns whether it has.
    pub(super) fn die_done(&mut self, die: u16, x: &mut Exchange) -> bool {
        if let Err(end) = self.media.programmed(die, x.now()) {
            x.agenda.at(end, Event::Die(die));
            return false;
        }
        self.cache.programmed(self.media.programmed_total());
        true
    }

    /// Forgets a waiting command.
    pub(super) fn forget(&mut self, name: TaskRef) {
        self.writes.retain(|task| *task != name);
        self.flushes.retain(|waiting| waiting.task != name);
    }

    /// Forgets every waiting command that is no longer in the device.
    pub(super) fn forget_stale(&mut self, tasks: &Tasks) {
        self.writes.retain(|task| tasks.is_current(*task));
        self.flushes.retain(|waiting| tasks.is_current(waiting.task));
    }

    /// Forgets all waiting commands.
    pub(super) fn forget_waiting(&mut self) {
        self.writes.clear();
        self.flushes.clear();
    }
}
