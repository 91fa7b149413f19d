//! The back end of a card: flash behind a write buffer, and who waits for either.

use alloc::collections::VecDeque;

use super::clock::{Clock, Event};
use super::profile::Profile;
use crate::media::energy::Energy;
use crate::media::timing::Timing;
use crate::media::{Media, Ready, Span};

/// The flash, its write buffer, and who waits for them.
#[derive(Debug)]
pub(super) struct Backend {
    media: Media,
    timing: Timing,
    seed: u64,
    /// Tasks of the queue that wait for room in the write buffer, in order, and their bytes.
    writes: VecDeque<(u8, u64)>,
    /// Bytes of the host's own transfer, if it waits for room.
    transfer: Option<u64>,
    /// Tasks that end when what had arrived with their data is on the medium: a bit each, and how
    /// much that is.
    settling: u32,
    marks: [u64; 32],
    /// The card is busy until so much is on the medium.
    busy: Option<u64>,
}

impl Backend {
    pub(super) fn new(profile: &Profile, seed: u64) -> Self {
        Self {
            media: Media::new(profile.timing, profile.energy, seed),
            timing: profile.timing,
            seed,
            writes: VecDeque::with_capacity(32),
            transfer: None,
            settling: 0,
            marks: [0; 32],
            busy: None,
        }
    }

    /// Power is lost: everything volatile is gone, and nobody waits.
    pub(super) fn power_off(&mut self) {
        self.media.restart(self.timing, self.seed);
        self.forget_tasks();
        (self.transfer, self.busy) = (None, None);
    }

    /// What the card took from its supply until `now`.
    pub(super) fn energy(&self, now: u64) -> Energy {
        self.media.energy(now)
    }

    /// The card is in another state of its supply from `now` on.
    pub(super) fn enter(&mut self, level: usize, now: u64) {
        self.media.meter_mut().enter(level, now);
    }

    /// A command arrives at `now`: when the firmware has it.
    #[inline]
    pub(super) fn accept(&mut self, now: u64) -> u64 {
        self.media.accept(now, false)
    }

    /// A read starts at `at`: when its data is there.
    #[inline]
    pub(super) fn read(&mut self, span: Span, at: u64) -> Ready {
        self.media.read(span, at)
    }

    /// So many bytes cross the bus.
    #[inline]
    pub(super) fn crossed(&mut self, bytes: u64) {
        self.media.moved(bytes);
    }

    /// Whether the data of a task has room now; else the task waits for it.
    pub(super) fn admit_task(&mut self, number: u8, bytes: u64) -> bool {
        let has_room = self.writes.is_empty() && self.media.admit(bytes);
        if !has_room {
            self.writes.push_back((number, bytes));
        }
        has_room
    }

    /// The next task that waited and has room now.
    pub(super) fn next_task(&mut self) -> Option<u8> {
        let &(number, bytes) = self.writes.front()?;
        if !self.media.admit(bytes) {
            return None;
        }
        self.writes.pop_front();
        Some(number)
    }

    /// Whether the data of the host's own transfer has room now; else the transfer waits for it.
    pub(super) fn admit_transfer(&mut self, bytes: u64) -> bool {
        let has_room = self.media.admit(bytes);
        self.transfer = (!has_room).then_some(bytes);
        has_room
    }

    /// Whether the transfer waited and has room now.
    pub(super) fn transfer_has_room(&mut self) -> bool {
        let has_room = self.transfer.is_some_and(|bytes| self.media.admit(bytes));
        if has_room {
            self.transfer = None;
        }
        has_room
    }

    /// The transfer waits no longer.
    pub(super) fn forget_transfer(&mut self) {
        self.transfer = None;
    }

    /// The data of the transfer, so many bytes, does not come: it waits no longer, or its room is
    /// free again.
    pub(super) fn end_transfer(&mut self, bytes: u64) {
        if self.transfer.take().is_none() {
            self.media.release(bytes);
        }
    }

    /// Room for data that does not come is free again.
    pub(super) fn release(&mut self, bytes: u64) {
        self.media.release(bytes);
    }

    /// A task waits for nothing any more.
    #[inline]
    pub(super) fn forget_task(&mut self, number: u8) {
        self.settling &= !(1 << number);
        self.writes.retain(|&(other, _)| other != number);
    }

    /// No task waits any more.
    pub(super) fn forget_tasks(&mut self) {
        self.settling = 0;
        self.writes.clear();
    }

    /// So many bytes are in the write buffer.
    #[inline]
    pub(super) fn arrived(&mut self, bytes: u64) {
        self.media.arrived(bytes, false);
    }

    /// Bytes that ever arrived.
    pub(super) fn arrived_total(&self) -> u64 {
        self.media.arrived_total()
    }

    /// Bytes that ever reached the medium.
    pub(super) fn programmed_total(&self) -> u64 {
        self.media.programmed_total()
    }

    /// A task waits until everything that has arrived is on the medium.
    pub(super) fn settle(&mut self, number: u8) {
        self.settling |= 1 << number;
        self.marks[usize::from(number)] = self.media.arrived_total();
    }

    /// The tasks that waited for no more than what is on the medium, a bit each.
    #[inline]
    pub(super) fn settled(&self) -> u32 {
        let programmed = self.media.programmed_total();
        let (mut left, mut settled) = (self.settling, 0);
        while left != 0 {
            let number = left.trailing_zeros();
            left &= left - 1;
            settled |= u32::from(self.marks[number as usize] <= programmed) << number;
        }
        settled
    }

    /// The card is busy until everything that has arrived is on the medium.
    pub(super) fn keep_busy(&mut self) {
        self.busy = Some(self.media.arrived_total());
    }

    /// The card is not busy with the medium, or no longer.
    pub(super) fn forget_busy(&mut self) {
        self.busy = None;
    }

    /// Whether the card was busy with no more than what is on the medium.
    pub(super) fn ends_busy(&self) -> bool {
        self.busy.is_some_and(|mark| mark <= self.media.programmed_total())
    }

    /// Starts as many program operations as there are data and dies.
    #[inline]
    pub(super) fn program(&mut self, clock: &mut Clock) {
        let now = clock.nanos();
        // Nobody waits for more data to fill a program unit when somebody waits for what is there.
        let waits = self.busy.is_some()
            || self.transfer.is_some()
            || self.settling != 0
            || !self.writes.is_empty();
        while let Some(started) = self.media.program(now, waits) {
            clock.at(started.end, Event::Die(started.die));
        }
    }

    /// A die may be done: whether it is, and its data on the medium.
    pub(super) fn die_done(&mut self, clock: &mut Clock, die: u16) -> bool {
        match self.media.programmed(die, clock.nanos()) {
            Ok(_) => {
                self.program(clock);
                true
            }
            Err(end) => {
                clock.at(end, Event::Die(die));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use flysch_api::machine::Instant;

    use super::super::profile::HS400;
    use super::*;

    #[test]
    fn a_write_without_room_waits_and_what_settles_ends_when_all_is_programmed() {
        let (mut backend, mut clock) = (Backend::new(&HS400, 1), Clock::with_capacity(32));
        let room = HS400.timing.write_buffer_bytes;
        assert!(backend.admit_task(0, room));
        assert!(!backend.admit_task(1, 4096) && !backend.admit_transfer(512));
        assert_eq!((backend.next_task(), backend.transfer_has_room()), (None, false));
        backend.arrived(room);
        backend.settle(0);
        backend.keep_busy();
        backend.program(&mut clock);
        assert!(backend.settled() == 0 && !backend.ends_busy());
        let (mut admitted, mut ends) = (Vec::new(), 0);
        while let Some(event) = clock.take_due(Instant::NEVER) {
            let Event::Die(die) = event else { panic!("{event:?}") };
            if backend.die_done(&mut clock, die) {
                admitted.extend(backend.next_task());
                ends += u32::from(backend.transfer_has_room());
            }
        }
        assert_eq!((admitted, ends), ([1].to_vec(), 1));
        assert!(backend.settled() == 1 && backend.ends_busy());
    }

    #[test]
    fn room_comes_back_unless_the_transfer_only_waited_for_it() {
        let mut backend = Backend::new(&HS400, 1);
        let room = HS400.timing.write_buffer_bytes;
        assert!(backend.admit_transfer(room));
        assert!(!backend.admit_task(3, 512), "no room");
        backend.forget_task(3);
        backend.end_transfer(room);
        assert!(backend.admit_task(3, room));
        assert!(!backend.admit_transfer(512));
        backend.end_transfer(512);
        assert!(!backend.admit_transfer(512), "the task still has all of it");
    }
}
