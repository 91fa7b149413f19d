//! The back end of a device: flash behind a write buffer, and the commands that wait for either.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::clock::{Clock, Event};
use super::list::{Seat, TaskRef};
use super::profile::Profile;
use crate::media::{Media, Program};

/// The flash, its write buffer, and who waits for them.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) media: Media,
    profile: Profile,
    seed: u64,
    /// The device it is of.
    pub(super) seat: Seat,
    /// Writes that wait for room in the write buffer, in order, and their bytes.
    writes: VecDeque<(TaskRef, u32)>,
    /// Commands that wait until so many bytes were programmed.
    flushes: Vec<(TaskRef, u64)>,
    /// Bytes that lie in the SLC area.
    slc_used: u64,
}

impl Backend {
    pub(super) fn new(profile: Profile, seed: u64) -> Self {
        let mut media = Media::new(profile.timing, profile.energy, seed);
        media.set_half_duplex();
        Self {
            media,
            profile,
            seed,
            seat: 0,
            writes: VecDeque::with_capacity(32),
            flushes: Vec::with_capacity(32),
            slc_used: 0,
        }
    }

    /// Power came back: everything volatile is gone.
    pub(super) fn power_on(&mut self) {
        self.media.restart(self.profile.timing, self.seed);
        self.media.set_half_duplex();
        self.slc_used = 0;
    }

    /// Nothing waits any more.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.flushes.clear();
    }

    /// Nothing lies in the SLC area any more.
    pub(super) fn erase(&mut self) {
        self.slc_used = 0;
    }

    /// Whether a write of `len` bytes has room in the write buffer now; else it waits.
    pub(super) fn enter(&mut self, name: TaskRef, len: u32) -> bool {
        let has_room = self.writes.is_empty() && self.media.admit(len.into());
        if !has_room {
            self.writes.push_back((name, len));
        }
        has_room
    }

    /// The next write that waited and has room now.
    pub(super) fn admit(&mut self) -> Option<(TaskRef, u32)> {
        let &(_, len) = self.writes.front()?;
        if self.media.admit(len.into()) { self.writes.pop_front() } else { None }
    }

    /// So many bytes are in the write buffer.
    pub(super) fn arrived(&mut self, bytes: u64) {
        let slc = self.slc_used + bytes <= self.profile.slc_bytes;
        if slc {
            self.slc_used += bytes;
        }
        self.media.arrived(bytes, slc);
    }

    /// Keeps `name` until everything that has arrived is on the medium. The device is `idle` if it
    /// has no other command.
    pub(super) fn settle(&mut self, clock: &mut Clock, name: TaskRef, idle: bool) {
        self.flushes.push((name, self.media.arrived_total()));
        self.program(clock, idle);
        self.end_flushes(clock);
    }

    /// Starts as many program operations as there are data and dies; with nothing else to do, if it
    /// is `idle`, moves data from the SLC area to TLC.
    pub(super) fn program(&mut self, clock: &mut Clock, idle: bool) {
        let (now, seat) = (clock.nanos(), self.seat);
        // Nobody waits for more data to fill a program unit when a flush waits, or when a write
        // waits for the room of what lies there.
        let stalled = !self.writes.is_empty() && self.media.is_resting();
        let partial = stalled || !self.flushes.is_empty();
        while let Some(started) = self.media.program(now, partial) {
            clock.at(started.end, Event::Die(seat, started.die));
        }
        let limit = self.media.unit(Program::Flush);
        while self.slc_used > 0 && idle {
            let bytes = self.slc_used.min(limit);
            let Some(started) = self.media.flush_slc(now, bytes) else { return };
            self.slc_used -= bytes;
            clock.at(started.end, Event::Die(seat, started.die));
        }
    }

    /// A die may be done: whether it is, and its data on the medium.
    pub(super) fn die_done(&mut self, clock: &mut Clock, die: u16, idle: bool) -> bool {
        match self.media.programmed(die, clock.nanos()) {
            Ok(_) => {
                self.program(clock, idle);
                true
            }
            Err(end) => {
                clock.at(end, Event::Die(self.seat, die));
                false
            }
        }
    }

    /// Ends what waited for no more than what is on the medium.
    pub(super) fn end_flushes(&mut self, clock: &mut Clock) {
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
}

#[cfg(test)]
mod tests {
    use flysch_api::machine::Instant;

    use super::super::profile::SATA_SSD;
    use super::*;

    #[test]
    fn a_write_without_room_waits_and_a_flush_ends_when_all_is_programmed() {
        let (mut backend, mut clock) = (Backend::new(SATA_SSD, 1), Clock::with_capacity(32));
        let room = SATA_SSD.timing.write_buffer_bytes as u32;
        let name = |slot| TaskRef { port: 0, slot, seat: 0, generation: 0 };
        assert!(backend.enter(name(0), room));
        assert!(!backend.enter(name(1), 4096));
        assert_eq!(backend.admit(), None);
        backend.arrived(room.into());
        backend.settle(&mut clock, name(0), false);
        let (mut admitted, mut completed) = (Vec::new(), Vec::new());
        while let Some(event) = clock.take_due(Instant::NEVER) {
            match event {
                Event::Die(_, die) if backend.die_done(&mut clock, die, false) => {
                    admitted.extend(backend.admit());
                    backend.end_flushes(&mut clock);
                }
                Event::Complete(task) => completed.push(task.slot),
                _ => {}
            }
        }
        assert_eq!((admitted, completed), ([(name(1), 4096)].to_vec(), [0].to_vec()));
    }
}
