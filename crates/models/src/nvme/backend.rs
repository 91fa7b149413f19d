//! The back end: the flash behind its write buffer, and the commands that wait for either.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::clock::{Clock, Event};
use super::config::Config;
use super::profile::Profile;
use super::task::TaskRef;
use crate::media::{Media, Program};

/// A command whose data goes into the write buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) name: TaskRef,
    /// Length of the data, bytes.
    pub(super) len: u32,
    /// The data comes from the medium: nothing crosses the link.
    pub(super) is_copy: bool,
}

/// The controller state that decides what is programmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// It is shutting down: nothing may stay in the write buffer.
    pub(super) shuts: bool,
    /// It holds no commands: there is time to empty the SLC area.
    pub(super) is_idle: bool,
}

/// The flash, its write buffer, and the commands that wait for them.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) media: Media,
    profile: Profile,
    seed: u64,
    /// Writes waiting for room in the write buffer, in order.
    writes: VecDeque<Entry>,
    /// Commands waiting until this many bytes have been programmed.
    flushes: Vec<(TaskRef, u64)>,
    /// Number of bytes in the SLC area.
    slc_used: u64,
}

impl Backend {
    pub(super) fn new(config: &Config) -> Self {
        let (profile, commands) = (config.profile, usize::from(config.commands));
        let mut this = Self {
            media: Media::new(profile.timing, profile.energy, config.seed),
            profile,
            seed: config.seed,
            writes: VecDeque::with_capacity(commands),
            flushes: Vec::with_capacity(commands),
            slc_used: 0,
        };
        this.set_up();
        this
    }

    /// Sets link and look-up to the profile's values, as after a controller reset.
    pub(super) fn set_up(&mut self) {
        self.media.set_link(self.profile.link.times(&self.profile.timing));
        self.lend_memory(false);
    }

    /// Power is lost: everything volatile is gone.
    pub(super) fn lose_power(&mut self) {
        self.media.restart(self.profile.timing, self.seed);
        self.set_up();
        self.slc_used = 0;
    }

    /// Forgets all waiting commands.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.flushes.clear();
    }

    /// Forgets the task in entry `index`.
    pub(super) fn forget(&mut self, index: u16) {
        self.writes.retain(|write| write.name.index != index);
        self.flushes.retain(|(name, _)| name.index != index);
    }

    /// The host has lent memory, or has taken it back: only with it does a drive without memory of
    /// its own look up addresses as fast as its profile says.
    pub(super) fn lend_memory(&mut self, is_lent: bool) {
        let missing = self.profile.host_memory.map_or(0, |memory| memory.missing_ns);
        let lookup = self.profile.timing.lookup_ns;
        self.media.set_lookup(if is_lent { lookup } else { lookup + missing });
    }

    /// Whether everything is on the medium.
    pub(super) fn is_safe(&self) -> bool {
        self.media.programmed_total() == self.media.arrived_total()
    }

    /// Moves the data of a write into the write buffer once there is room.
    #[inline]
    pub(super) fn enter(&mut self, clock: &mut Clock, entry: Entry, demand: Demand) {
        if !self.writes.is_empty() || !self.media.admit(u64::from(entry.len)) {
            self.writes.push_back(entry);
            self.program(clock, demand);
        } else {
            self.fill(clock, entry);
        }
    }

    /// Sends data for which there is room on its way.
    #[inline]
    fn fill(&mut self, clock: &mut Clock, Entry { name, len, is_copy }: Entry) {
        let now = clock.nanos();
        let end = if is_copy { now } else { self.media.receive(now, u64::from(len)) };
        clock.at(end, Event::Arrived(name, len));
    }

    /// This many bytes are in the write buffer.
    #[inline]
    pub(super) fn arrived(&mut self, clock: &mut Clock, bytes: u64, demand: Demand) {
        let slc = self.slc_used + bytes <= self.profile.slc_bytes;
        if slc {
            self.slc_used += bytes;
        }
        self.media.arrived(bytes, slc);
        self.program(clock, demand);
    }

    /// Frees the room of this many bytes, whose command was taken away meanwhile.
    pub(super) fn release(&mut self, clock: &mut Clock, bytes: u64) {
        self.media.release(bytes);
        self.admit(clock);
    }

    /// Lets waiting writes send their data as far as there is room.
    fn admit(&mut self, clock: &mut Clock) {
        while let Some(&entry) = self.writes.front() {
            if !self.media.admit(u64::from(entry.len)) {
                break;
            }
            self.writes.pop_front();
            self.fill(clock, entry);
        }
    }

    /// Keeps `name` until everything that has arrived is on the medium.
    pub(super) fn settle(&mut self, clock: &mut Clock, name: TaskRef, demand: Demand) {
        self.flushes.push((name, self.media.arrived_total()));
        self.program(clock, demand);
        self.end_flushes(clock);
    }

    /// Ends the commands that waited for the medium, as far as it has got.
    fn end_flushes(&mut self, clock: &mut Clock) {
        let programmed = self.media.programmed_total();
        let mut at = 0;
        while at < self.flushes.len() {
            if self.flushes[at].1 > programmed {
                at += 1;
                continue;
            }
            let (name, _) = self.flushes.remove(at);
            let end = self.media.answer(clock.nanos());
            clock.at(end, Event::Complete(name));
        }
    }

    /// Starts as many program operations as there are data and free dies; with nothing else to do,
    /// moves data from the SLC area to TLC.
    pub(super) fn program(&mut self, clock: &mut Clock, demand: Demand) {
        let now = clock.nanos();
        // There is no waiting for more data to fill a program unit if a flush is pending, or if a
        // write waits for the room that this data occupies.
        let stalled = !self.writes.is_empty() && self.media.is_resting();
        let partial = stalled || demand.shuts || !self.flushes.is_empty();
        while let Some(started) = self.media.program(now, partial) {
            clock.at(started.end, Event::Die(started.die));
        }
        let limit = self.media.unit(Program::Flush);
        while self.slc_used > 0 && demand.is_idle {
            let bytes = self.slc_used.min(limit);
            let Some(started) = self.media.flush_slc(now, bytes) else { return };
            self.slc_used -= bytes;
            clock.at(started.end, Event::Die(started.die));
        }
    }

    /// A die may be done: returns whether it is, and its data on the medium.
    pub(super) fn die_done(&mut self, clock: &mut Clock, die: u16, demand: Demand) -> bool {
        if let Err(end) = self.media.programmed(die, clock.nanos()) {
            clock.at(end, Event::Die(die));
            return false;
        }
        self.program(clock, demand);
        self.admit(clock);
        self.end_flushes(clock);
        true
    }
}

#[cfg(test)]
mod tests {
    use flysch_api::machine::Instant;

    use super::*;

    const BUSY: Demand = Demand { shuts: false, is_idle: false };

    #[test]
    fn a_write_without_room_waits_and_a_flush_ends_when_all_is_programmed() {
        let (mut backend, mut clock) = (Backend::new(&Config::default()), Clock::with_capacity(32));
        let room = backend.profile.timing.write_buffer_bytes as u32;
        let entry = |index| Entry {
            name: TaskRef { index, generation: 0 },
            len: room,
            is_copy: index == 2,
        };
        (0..3).for_each(|index| backend.enter(&mut clock, entry(index), BUSY));
        assert_eq!(backend.writes.len(), 2);
        backend.forget(1);
        let (mut arrived, mut completed) = (Vec::new(), Vec::new());
        while let Some(event) = clock.take_due(Instant::NEVER) {
            match event {
                Event::Arrived(name, len) => {
                    arrived.push(name.index);
                    backend.arrived(&mut clock, len.into(), BUSY);
                    backend.settle(&mut clock, name, BUSY);
                }
                Event::Complete(name) => completed.push(name.index),
                Event::Die(die) => _ = backend.die_done(&mut clock, die, BUSY),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((arrived, completed), ([0, 2].to_vec(), [0, 2].to_vec()));
        assert!(backend.is_safe());
    }
}
