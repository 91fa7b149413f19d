//! Where the time goes: link, front end, firmware, NAND array, write buffer.
//!
//! Theory. Every resource that can be busy is a *timeline*: the instant from which it is free. A
//! command reserves its turn on each resource it passes, in the order in which it gets there; its
//! latency follows. The resources, in the order a read meets them:
//!
//! 1. front end: one command at a time, once a hibernated link is back;
//! 2. firmware: a latency with a little spread, any number at once; plus the look-up of the
//!    physical address unless read-ahead already has the data;
//! 3. planes: tR each; a die that is programming is suspended first;
//! 4. channels: page register to controller;
//! 5. lanes to the host: set-up per command, then data at the rate of gear and lane count.
//!
//! A write passes 1 and 2, waits for room in the write buffer, takes the *other* direction of the
//! link and is answered when its data has arrived. The buffer drains in the background: a die takes
//! a program unit (TLC: three pages on every plane at once; SLC mode, for WriteBooster: one) over
//! its channel into its cache register while it still programs the one before.
//!
//! A resource is entered when the command actually arrives there (an event of the model), unless
//! the arrival order cannot differ from the reservation order. All instants here are nanoseconds.

pub(crate) mod cache;
pub mod energy;
pub mod timing;

use alloc::vec;
use alloc::vec::Vec;

use crate::random::Random;
use energy::{Consumption, Energy, Meter};
use timing::{READ_AHEAD_MAX_PAGES, Timing};

/// Number of streams followed for read-ahead at once.
const STREAMS: usize = 16;
/// How often one program operation is suspended for reads before it is allowed to finish. Without a
/// bound, a stream of reads would starve the write buffer forever.
const SUSPENDS_MAX: u8 = 8;
/// Number of program units a die holds: one programming, one in its cache register.
const DIE_DEPTH: usize = 2;

/// The cost of the link to the host. Its two directions carry data at the same time, unless it is
/// [half duplex](Media::set_half_duplex).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Per command whose data goes to the host or that has none, nanoseconds.
    pub(crate) setup_to_host_ns: u64,
    /// Per command whose data goes to the device, nanoseconds.
    pub(crate) setup_to_device_ns: u64,
    /// Picoseconds per byte of data to the host.
    pub(crate) to_host_ps: u64,
    /// Picoseconds per byte of data to the device.
    pub(crate) to_device_ps: u64,
}

/// When the data of a read is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The first page can be sent.
    pub(crate) first: u64,
    /// The last page is in the controller.
    pub(crate) last: u64,
}

/// What a read covers, in device byte addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// End of the logical unit: nothing beyond it is read ahead.
    pub(crate) limit: u64,
}

/// Where a program unit comes from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Write buffer to TLC.
    Tlc,
    /// Write buffer to the SLC area.
    Slc,
    /// SLC area to TLC.
    Flush,
}

/// A program operation that has been started: its die and when it is expected to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) die: u16,
    pub(crate) end: u64,
}

/// What a die has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) bytes: u64,
    pub(crate) kind: Program,
}

/// A busy-until instant that remembers one gap before its last reservation, so that a short use
/// that is ready now need not wait behind one that is ready later.
#[derive(Clone, Copy, Debug, Default)]
struct Timeline {
    hole_start: u64,
    hole_end: u64,
    free: u64,
}

impl Timeline {
    /// Reserves `ns` at the first opportunity from `at` on; returns the end.
    #[inline]
    fn reserve(&mut self, at: u64, ns: u64) -> u64 {
        let in_hole = self.hole_start.max(at);
        if in_hole + ns <= self.hole_end {
            self.hole_start = in_hole + ns;
            return in_hole + ns;
        }
        let start = self.free.max(at);
        if start > self.free {
            (self.hole_start, self.hole_end) = (self.free, start);
        }
        self.free = start + ns;
        self.free
    }
}

/// A program unit held by a die: when it is expected to end, and how often reads suspended it.
#[derive(Clone, Copy, Debug)]
struct Held {
    end: u64,
    unit: Unit,
    suspends: u8,
}

/// A die's program side.
#[derive(Clone, Copy, Debug)]
struct Die {
    /// The units it holds, the first `held` of them, oldest first.
    units: [Held; DIE_DEPTH],
    held: usize,
    /// No program operation starts before this.
    blocked: u64,
    /// Bytes programmed into the open block of every plane.
    filled: u64,
}

impl Die {
    const IDLE: Self = Self {
        units: [Held { end: 0, unit: Unit { bytes: 0, kind: Program::Tlc }, suspends: 0 };
            DIE_DEPTH],
        held: 0,
        blocked: 0,
        filled: 0,
    };

    fn last_end(&self) -> u64 {
        self.units[..self.held].last().map_or(0, |held| held.end)
    }

    /// When a read that could start at `start` may start. A program operation in progress is
    /// suspended for it, but only a limited number of times; after that the read waits for its end.
    #[inline]
    fn make_way(&mut self, mut start: u64, timing: &Timing) -> u64 {
        for at in 0..self.held {
            let held = &mut self.units[at];
            if held.end <= start {
                continue;
            }
            if held.suspends == SUSPENDS_MAX {
                start = held.end;
                continue;
            }
            held.suspends += 1;
            let pause = timing.suspend_ns + timing.read_ns;
            self.units[at..self.held].iter_mut().for_each(|held| held.end += pause);
            return start + timing.suspend_ns;
        }
        start
    }
}

/// A plane: when it can read, and its position. Consecutive pages go to consecutive channels, then
/// dies, then planes.
#[derive(Clone, Copy, Debug)]
struct Plane {
    free: u64,
    die: u16,
    channel: u16,
}

impl Plane {
    fn all(timing: &Timing) -> Vec<Self> {
        let dies = timing.channels * timing.dies_per_channel;
        let plane = |spot| {
            let die = spot % dies;
            Self { free: 0, die: die as u16, channel: (die % timing.channels) as u16 }
        };
        (0..dies * timing.planes_per_die).map(plane).collect()
    }
}

/// A sequential stream and the pages read ahead for it.
#[derive(Clone, Debug)]
struct Stream {
    /// Address that the stream reads next.
    next: u64,
    /// End of the read-ahead.
    ahead: u64,
    /// When each of those pages is ready, by page number modulo the window.
    ready: [u64; READ_AHEAD_MAX_PAGES as usize],
}

/// All timelines of a device.
#[derive(Debug)]
pub(crate) struct Media {
    timing: Timing,
    random: Random,
    link: Link,
    /// Data goes in one direction at a time.
    is_half_duplex: bool,
    channel_ps: u64,
    front_end: u64,
    last_used: u64,
    to_host: u64,
    to_device: u64,
    planes: Vec<Plane>,
    channels: Vec<Timeline>,
    dies: Vec<Die>,
    next_die: usize,
    streams: Vec<Stream>,
    /// `next` of each stream again, packed together: every read searches this.
    stream_next: [u64; STREAMS],
    victim: usize,
    buffer_used: u64,
    /// Bytes in the buffer that no die has taken yet, for TLC and for the SLC area.
    pending: u64,
    pending_slc: u64,
    /// Bytes that have ever arrived, and that have ever been programmed from the buffer.
    arrived_total: u64,
    programmed_total: u64,
    since_checkpoint: u64,
    since_patrol: u64,
    /// Auto-hibern8: idle time before it and exit latency, 0 if off.
    hibern8_after: u64,
    hibern8_exit: u64,
    /// The current state, as known to the meter.
    hibern8_level: usize,
    meter: Meter,
}

impl Media {
    pub(crate) fn new(timing: Timing, consumption: Consumption, seed: u64) -> Self {
        let dies = (timing.channels * timing.dies_per_channel) as usize;
        let stream = Stream { next: u64::MAX, ahead: 0, ready: [0; READ_AHEAD_MAX_PAGES as usize] };
        Self {
            random: Random::new(seed),
            link: Link {
                setup_to_host_ns: timing.transfer_setup_ns,
                setup_to_device_ns: timing.transfer_setup_ns,
                ..Link::default()
            },
            is_half_duplex: false,
            channel_ps: 1_000_000 / timing.channel_rate.max(1),
            front_end: 0,
            last_used: 0,
            to_host: 0,
            to_device: 0,
            planes: Plane::all(&timing),
            channels: vec![Timeline::default(); timing.channels as usize],
            dies: vec![Die::IDLE; dies],
            next_die: 0,
            streams: vec![stream; STREAMS],
            stream_next: [u64::MAX; STREAMS],
            victim: 0,
            buffer_used: 0,
            pending: 0,
            pending_slc: 0,
            arrived_total: 0,
            programmed_total: 0,
            since_checkpoint: 0,
            since_patrol: 0,
            hibern8_after: 0,
            hibern8_exit: 0,
            hibern8_level: 0,
            meter: Meter::new(consumption),
            timing,
        }
    }

    /// The device loses its power and gets it back: everything starts anew except its meter.
    pub(crate) fn restart(&mut self, timing: Timing, seed: u64) {
        let meter = self.meter.clone();
        *self = Self { meter, ..Self::new(timing, self.meter.consumption, seed) };
    }

    /// The meter at the supply, for states that the surrounding model enters.
    pub(crate) fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// A copy of the meter.
    pub(crate) fn clone_meter(&self) -> Meter {
        self.meter.clone()
    }

    /// The energy that the device has taken until `now`.
    pub(crate) fn energy(&self, now: u64) -> Energy {
        if !self.is_auto_hibernated(now) {
            return self.meter.read(now);
        }
        let mut meter = self.meter.clone();
        meter.slept(self.hibern8_level, self.last_used + self.hibern8_after, now);
        meter.read(now)
    }

    /// This many bytes crossed a link that is not the media's own.
    #[inline]
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.meter.done.bytes += bytes;
    }

    /// Sets the raw rate of one direction of the link, all lanes together, in bytes per
    /// millisecond.
    pub(crate) fn set_link_rate(&mut self, bytes_per_ms: u64) {
        let useful = bytes_per_ms * self.timing.link_efficiency_permille / 1000;
        let byte_ps = 1_000_000_000 / useful.max(1);
        (self.link.to_host_ps, self.link.to_device_ps) = (byte_ps, byte_ps);
    }

    /// Sets the cost of a link whose two directions differ.
    pub(crate) fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    /// Makes the link half duplex (SATA).
    pub(crate) fn set_half_duplex(&mut self) {
        self.is_half_duplex = true;
    }

    /// Sets the time of a physical address look-up.
    pub(crate) fn set_lookup(&mut self, nanos: u64) {
        self.timing.lookup_ns = nanos;
    }

    /// A command arrives at `now`, the only one in the device if it is `alone`: returns when the
    /// firmware has it. A link that hibernated by itself comes back first.
    #[inline]
    pub(crate) fn accept(&mut self, now: u64, alone: bool) -> u64 {
        let wakes = alone && self.is_auto_hibernated(now);
        let exit = if wakes { self.hibern8_exit } else { 0 };
        if wakes {
            self.meter.slept(self.hibern8_level, self.last_used + self.hibern8_after, now);
        }
        self.meter.done.commands += 1;
        self.rests(now);
        let start = self.front_end.max(now + exit);
        self.front_end = start + self.timing.command_ns;
        let spread = self.random.below(self.timing.firmware_jitter_ns);
        self.front_end + self.timing.firmware_ns + spread
    }

    /// A command came or ended at `now`: the link's idle time does not begin before this.
    #[inline]
    pub(crate) fn rests(&mut self, now: u64) {
        self.last_used = self.last_used.max(now);
    }

    /// A read starts at `at`: returns when its data is available.
    #[inline]
    pub(crate) fn read(&mut self, span: Span, at: u64) -> Ready {
        match self.stream_next.iter().position(|&next| next == span.address) {
            Some(index) => self.read_stream(index, span, at),
            None => {
                self.follow(span.address + span.len);
                self.read_array(span.address, span.len, at + self.timing.lookup_ns)
            }
        }
    }

    /// Remembers that a stream may continue at `next`.
    #[inline]
    fn follow(&mut self, next: u64) {
        let victim = self.victim;
        self.victim = (victim + 1) % STREAMS;
        self.stream_next[victim] = next;
        self.streams[victim].next = next;
        self.streams[victim].ahead = 0;
    }

    #[inline]
    fn read_array(&mut self, address: u64, len: u64, at: u64) -> Ready {
        let shift = self.timing.page_bytes.trailing_zeros();
        let mut ready = Ready { first: u64::MAX, last: 0 };
        let (mut from, end) = (address, address + len);
        while from < end {
            let to = (((from >> shift) + 1) << shift).min(end);
            let there = self.read_page(from >> shift, to - from, at);
            ready.first = ready.first.min(there);
            ready.last = ready.last.max(there);
            from = to;
        }
        ready
    }

    fn read_stream(&mut self, index: usize, span: Span, at: u64) -> Ready {
        let page_bytes = u64::from(self.timing.page_bytes);
        let mut ready = Ready { first: u64::MAX, last: 0 };
        let stop = span.address + span.len;
        let window = self.timing.read_ahead_bytes.min(READ_AHEAD_MAX_PAGES * page_bytes / 2);
        let ahead_end = (stop + window).min(span.limit).max(stop);
        for page in span.address / page_bytes..ahead_end.div_ceil(page_bytes) {
            let cell = (page % READ_AHEAD_MAX_PAGES) as usize;
            let there = if page * page_bytes < self.streams[index].ahead {
                self.streams[index].ready[cell]
            } else {
                self.read_page(page, page_bytes, at)
            };
            self.streams[index].ready[cell] = there;
            if page * page_bytes < stop {
                ready.first = ready.first.min(there.max(at));
                ready.last = ready.last.max(there.max(at));
            }
        }
        let stream = &mut self.streams[index];
        stream.ahead = stream.ahead.max(ahead_end.next_multiple_of(page_bytes));
        stream.next = stop;
        self.stream_next[index] = stop;
        ready
    }

    /// Reads `bytes` of one page from `at` on; returns when they are in the controller.
    #[inline]
    fn read_page(&mut self, page: u64, bytes: u64, at: u64) -> u64 {
        // 32 bits suffice for the page numbers of the largest device, and divide faster.
        let spot = page as u32 % self.planes.len() as u32;
        let plane = &mut self.planes[spot as usize];
        let die = &mut self.dies[usize::from(plane.die)];
        let start = die.make_way(plane.free.max(at), &self.timing);
        let sensed = start + self.timing.read_ns;
        plane.free = sensed;
        self.meter.done.reads += 1;
        let channel = usize::from(plane.channel);
        self.patrol(bytes, sensed);
        self.channels[channel].reserve(sensed, bytes * self.channel_ps / 1000)
    }

    /// Counts reads of the array and stops the array when the patrol is due.
    #[inline]
    fn patrol(&mut self, bytes: u64, at: u64) {
        let patrol = self.timing.patrol;
        if patrol.every_bytes == 0 {
            return;
        }
        self.since_patrol += bytes;
        if self.since_patrol >= patrol.every_bytes {
            self.since_patrol = 0;
            self.planes.iter_mut().for_each(|plane| plane.free = plane.free.max(at) + patrol.ns);
        }
    }

    /// Sends `bytes` to the host as they become ready, the first at `ready.first`; returns the end.
    #[inline]
    pub(crate) fn send(&mut self, ready: Ready, bytes: u64) -> u64 {
        self.meter.done.bytes += bytes;
        let other = if self.is_half_duplex { self.to_device } else { 0 };
        let start = self.to_host.max(ready.first).max(other);
        let page = bytes.min(u64::from(self.timing.page_bytes));
        let streamed = start + self.link.setup_to_host_ns + bytes * self.link.to_host_ps / 1000;
        self.to_host = streamed.max(ready.last + page * self.link.to_host_ps / 1000);
        if self.is_half_duplex {
            self.to_device = self.to_host;
        }
        self.to_host
    }

    /// Whether the write buffer has room for `bytes` now; if so, takes it. A command larger than
    /// the buffer waits until the buffer is empty.
    #[inline]
    pub(crate) fn admit(&mut self, bytes: u64) -> bool {
        let room = self.buffer_used + bytes <= self.timing.write_buffer_bytes;
        if !room && self.buffer_used != 0 {
            return false;
        }
        self.buffer_used += bytes;
        true
    }

    /// Returns room that was taken for data that never came.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.buffer_used -= bytes;
    }

    /// Whether no die is programming.
    pub(crate) fn is_resting(&self) -> bool {
        self.dies.iter().all(|die| die.held == 0)
    }

    /// Receives `bytes` from the host from `at` on; returns the end.
    #[inline]
    pub(crate) fn receive(&mut self, at: u64, bytes: u64) -> u64 {
        self.meter.done.bytes += bytes;
        let other = if self.is_half_duplex { self.to_host } else { 0 };
        let start = self.to_device.max(at).max(other);
        let setup = self.link.setup_to_device_ns;
        self.to_device = start + setup + bytes * self.link.to_device_ps / 1000;
        if self.is_half_duplex {
            self.to_host = self.to_device;
        }
        self.to_device
    }

    /// A command without data passes: returns when it is answered.
    #[inline]
    pub(crate) fn answer(&mut self, at: u64) -> u64 {
        at + self.link.setup_to_host_ns
    }

    /// Admitted bytes have arrived and wait to be programmed.
    #[inline]
    pub(crate) fn arrived(&mut self, bytes: u64, slc: bool) {
        self.arrived_total += bytes;
        if slc {
            self.pending_slc += bytes;
        } else {
            self.pending += bytes;
        }
    }

    /// Bytes that have ever arrived in the write buffer.
    pub(crate) fn arrived_total(&self) -> u64 {
        self.arrived_total
    }

    /// Bytes that have ever moved from the write buffer to the medium.
    pub(crate) fn programmed_total(&self) -> u64 {
        self.programmed_total
    }

    /// Lets the link hibernate by itself after `after_ns` without a command (0: never), with an
    /// exit latency of `exit_ns`; meanwhile the device is in state `level`.
    pub(crate) fn set_auto_hibern8(&mut self, (after_ns, exit_ns): (u64, u64), level: usize) {
        (self.hibern8_after, self.hibern8_exit) = (after_ns, exit_ns);
        self.hibern8_level = level;
    }

    /// When the link hibernates by itself if no command comes; later than `now`.
    pub(crate) fn auto_hibern8_at(&self, now: u64) -> Option<u64> {
        let at = self.last_used + self.hibern8_after;
        (self.hibern8_after != 0).then_some(at.max(now + 1))
    }

    /// Whether the link is hibernated by itself at `now`.
    pub(crate) fn is_auto_hibernated(&self, now: u64) -> bool {
        self.hibern8_after != 0 && now.saturating_sub(self.last_used) >= self.hibern8_after
    }

    /// Number of bytes that a die programs at once.
    pub(crate) fn unit(&self, kind: Program) -> u64 {
        let row = u64::from(self.timing.planes_per_die) * u64::from(self.timing.page_bytes);
        match kind {
            Program::Slc => row,
            Program::Tlc | Program::Flush => 3 * row,
        }
    }

    /// Starts the next program operation if there is data and a free die. `partial` also accepts
    /// less than a full unit (a flush).
    pub(crate) fn program(&mut self, now: u64, partial: bool) -> Option<Started> {
        for (kind, pending) in [(Program::Slc, self.pending_slc), (Program::Tlc, self.pending)] {
            let bytes = pending.min(self.unit(kind));
            if bytes == 0 || (bytes < self.unit(kind) && !partial) {
                continue;
            }
            let started = self.start_program(now, kind, bytes)?;
            match kind {
                Program::Slc => self.pending_slc -= bytes,
                Program::Tlc | Program::Flush => self.pending -= bytes,
            }
            return Some(started);
        }
        None
    }

    /// Starts moving `bytes` (at most a unit) from the SLC area to TLC if a die is idle.
    pub(crate) fn flush_slc(&mut self, now: u64, bytes: u64) -> Option<Started> {
        let die = self.next_die;
        if self.dies[die].held > 0 {
            return None;
        }
        self.start_program(now + self.timing.read_ns, Program::Flush, bytes)
    }

    fn start_program(&mut self, now: u64, kind: Program, bytes: u64) -> Option<Started> {
        let index = self.next_die;
        if self.dies[index].held >= DIE_DEPTH {
            return None;
        }
        self.next_die = (index + 1) % self.dies.len();
        let channel = index % self.channels.len();
        let loaded = self.channels[channel].reserve(now, bytes * self.channel_ps / 1000);
        self.checkpoint(bytes, loaded);
        let die = &mut self.dies[index];
        let mut start = loaded.max(die.last_end()).max(die.blocked);
        die.filled += bytes;
        if die.filled >= self.timing.block_bytes * u64::from(self.timing.planes_per_die) {
            die.filled = 0;
            start += self.timing.erase_ns;
            self.meter.done.erases += 1;
        }
        let (counter, ns) = match kind {
            Program::Slc => (&mut self.meter.done.programs_slc, self.timing.program_slc_ns),
            Program::Tlc | Program::Flush => {
                (&mut self.meter.done.programs, self.timing.program_ns)
            }
        };
        *counter += 1;
        let end = start + ns;
        die.units[die.held] = Held { end, unit: Unit { bytes, kind }, suspends: 0 };
        die.held += 1;
        Some(Started { die: index as u16, end })
    }

    /// Counts programmed bytes and stops the array when a checkpoint is due.
    fn checkpoint(&mut self, bytes: u64, at: u64) {
        let checkpoint = self.timing.checkpoint;
        if checkpoint.every_bytes == 0 {
            return;
        }
        self.since_checkpoint += bytes;
        if self.since_checkpoint >= checkpoint.every_bytes {
            self.since_checkpoint = 0;
            for die in &mut self.dies {
                die.blocked = die.last_end().max(at) + checkpoint.ns;
            }
        }
    }

    /// Die `die` was expected to finish its oldest unit at `now`.
    ///
    /// # Errors
    /// The new time at which it will finish, if reads suspended it meanwhile.
    pub(crate) fn programmed(&mut self, die: u16, now: u64) -> Result<Unit, u64> {
        let die = &mut self.dies[usize::from(die)];
        let Held { end, unit, .. } = die.units[0];
        if end > now {
            return Err(end);
        }
        die.units.copy_within(1.., 0);
        die.held -= 1;
        if unit.kind != Program::Flush {
            self.buffer_used -= unit.bytes;
            self.programmed_total += unit.bytes;
        }
        Ok(unit)
    }
}

#[cfg(test)]
mod tests;
