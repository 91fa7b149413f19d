//! A worker on a disk with zones: writes go to write pointers, reads below them, full zones are
//! reset before they are written again.

use super::prepare::Region;
use crate::pattern::Step;
use crate::workload::{Direction, Order, Workload, ZonedMode};
use crate::zones::{Busy, Zones};

/// What becomes of a request that the workload wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is made, here.
    Go(Step),
    /// The zone that begins here and is so long is reset first.
    Reset((u64, u32)),
    /// Something has to come back before.
    Wait,
    /// It is none, nor is any after it.
    End,
}

/// How a worker uses zones.
#[derive(Debug)]
pub(super) struct Zoning {
    mode: ZonedMode,
    worker: u16,
    region: Region,
    /// Shortest request by direction, bytes.
    least: [u64; 3],
    /// Where each direction goes on, if its places follow each other.
    positions: Option<[u64; 3]>,
    /// Passes over the region that are left; none: as many as it takes.
    passes: Option<u32>,
    /// What is in a zone is to be read back: it is not reset.
    keeps: bool,
    /// Most zones that are written to at once, by all workers; 0: any number.
    limit: u32,
    /// Writes until the next reset that is due beyond the threshold.
    until_reset: u64,
    /// By which to ask how much is written in the region, once that has been asked.
    tally: Option<usize>,
    /// Zones that were reset.
    resets: u64,
}

impl Zoning {
    /// That of `job` in `region`, which is made of whole zones.
    pub(super) fn new(job: &Workload, worker: u16, region: Region, zones: &Zones) -> Option<Self> {
        let mode = job.zones?;
        let is_random = matches!(job.order, Order::Random { .. });
        let goes_on = job.time_based
            || job.requests_max.is_some()
            || job.io_size.is_some_and(|size| size > region.size);
        let device = if mode.ignore_limits { 0 } else { zones.open_max() };
        let limit = if mode.open_max > 0 { mode.open_max } else { device };
        let mut this = Self {
            mode,
            worker,
            region,
            least: Direction::ALL.map(|d| u64::from(job.block_size[d.index()].min())),
            positions: (!is_random).then_some([region.offset; 3]),
            passes: (!goes_on).then_some(job.loops.max(1)),
            keeps: job.verify.is_some(),
            limit,
            until_reset: 0,
            tally: None,
            resets: 0,
        };
        this.until_reset = this.writes_per_reset();
        Some(this)
    }

    /// Zones that were reset so far.
    pub(super) fn resets(&self) -> u64 {
        self.resets
    }

    /// Where a request goes that the workload wants at `step`.
    pub(super) fn choose(&mut self, zones: &mut Zones, mut step: Step) -> Choice {
        if let Some(positions) = self.positions {
            step.offset = positions[step.direction.index()];
            if step.offset >= self.region.offset + self.region.size {
                match self.next_pass() {
                    true => step.offset = self.region.offset,
                    false => return Choice::End,
                }
                self.go_on(step.direction, step.offset);
            }
        }
        match step.direction {
            Direction::Read => self.read(zones, step),
            Direction::Write => self.write(zones, step),
            Direction::Trim => self.trim(zones, step),
        }
    }

    /// Begins another pass over the region. Whether there is one.
    fn next_pass(&mut self) -> bool {
        let Some(passes) = &mut self.passes else { return true };
        *passes = passes.saturating_sub(1);
        *passes > 0
    }

    /// Requests of a direction go on at `offset`, if they follow each other.
    fn go_on(&mut self, direction: Direction, offset: u64) {
        if let Some(positions) = &mut self.positions {
            positions[direction.index()] = offset;
        }
    }

    fn read(&mut self, zones: &mut Zones, mut step: Step) -> Choice {
        let origin = zones.index(step.offset);
        let least = self.least[Direction::Read.index()];
        if self.mode.read_beyond_wp && zones.states[origin].is_usable {
            let end = zones.start(origin) + zones.size();
            step.length = u64::from(step.length).min(end - step.offset) as u32;
            self.go_on(step.direction, step.offset + u64::from(step.length));
            return Choice::Go(step);
        }
        let mut index = origin;
        let is_random = self.positions.is_none();
        let mut valid = zones.states[index].valid();
        let is_beyond = !is_random && step.offset + least > zones.start(index) + valid;
        if valid < least || is_beyond {
            match self.find(zones, origin, least) {
                Some(found) => index = found,
                None => return self.nothing_to_read(zones, step, least),
            }
            valid = zones.states[index].valid();
            step.offset = if is_random { step.offset } else { zones.start(index) };
        }
        if zones.states[index].busy == Busy::Resetting {
            return Choice::Wait;
        }
        let (start, length) = (zones.start(index), u64::from(step.length));
        if valid <= length {
            step.offset = start;
        } else if is_random {
            let within = (step.offset - zones.start(origin)) % (valid - length + 1);
            step.offset = start + within / least * least;
        }
        let length = length.min(start + valid - step.offset);
        step.length = (length / least * least) as u32;
        let end = step.offset + u64::from(step.length);
        let is_last = end + least > start + valid;
        self.go_on(step.direction, if is_last { start + zones.size() } else { end });
        Choice::Go(step)
    }

    /// No zone from here on has anything to read: from the start again, or the end.
    fn nothing_to_read(&mut self, zones: &mut Zones, step: Step, least: u64) -> Choice {
        let mut all = zones.range(self.region.offset, self.region.size);
        let has_some = all.any(|index| zones.states[index].valid() >= least);
        if !has_some || self.positions.is_none() || !self.next_pass() {
            return Choice::End;
        }
        self.go_on(step.direction, self.region.offset);
        self.read(zones, Step { offset: self.region.offset, ..step })
    }

    /// The nearest zone other than `origin` with so many bytes to read; only behind it if places
    /// follow each other.
    fn find(&self, zones: &Zones, origin: usize, least: u64) -> Option<usize> {
        let all = zones.range(self.region.offset, self.region.size);
        let has_some = |index: &usize| zones.states[*index].valid() >= least;
        let behind = (origin + 1..all.end).find(has_some);
        if self.positions.is_some() {
            return behind;
        }
        let before = (all.start..origin.min(all.end)).rev().find(has_some);
        match (before, behind) {
            (Some(before), Some(behind)) if origin - before < behind - origin => Some(before),
            (before, behind) => behind.or(before),
        }
    }

    fn write(&mut self, zones: &mut Zones, mut step: Step) -> Choice {
        let wanted = zones.index(step.offset);
        let Some(index) = self.target(zones, wanted) else {
            return self.wait_or_end(zones);
        };
        let state = zones.states[index];
        if state.busy != Busy::No {
            return Choice::Wait;
        }
        let is_spent = state.written() > 0 && (state.is_stale || state.room() < self.rest_min());
        if (is_spent || self.is_reset_due(zones, index))
            && let Some(choice) = self.reset(zones, index)
        {
            return choice;
        }
        let least = self.least[Direction::Write.index()];
        let state = &mut zones.states[index];
        state.is_stale = false;
        let mut length = u64::from(step.length).min(state.room());
        if !self.mode.write_remainder || length > least {
            length = length / least * least;
        }
        let at = zones.write(index, length);
        let is_last = zones.states[index].room() < self.rest_min();
        (step.offset, step.length) = (zones.start(index) + at, length as u32);
        let next = if is_last { zones.start(index + 1) } else { step.offset + length };
        self.go_on(step.direction, next);
        Choice::Go(step)
    }

    /// The least that is worth writing to what is left of a zone, bytes.
    fn rest_min(&self) -> u64 {
        if self.mode.write_remainder { 1 } else { self.least[Direction::Write.index()] }
    }

    /// A zone that can be written to: the one that is wanted if it can, else one that is written to
    /// already, else the next.
    fn target(&self, zones: &mut Zones, wanted: usize) -> Option<usize> {
        if self.takes(zones, wanted) {
            return Some(wanted);
        }
        let all = zones.range(self.region.offset, self.region.size);
        let least = self.rest_min();
        let has_room = |index: &usize| all.contains(index) && zones.states[*index].room() >= least;
        let open = zones.targets.iter().map(|target| target.0 as usize).filter(has_room);
        let count = open.clone().count();
        if count > 0 {
            let part = wanted.saturating_sub(all.start) * count / all.len();
            let mut open = open;
            return open.nth(part.min(count - 1));
        }
        let mut around = (wanted + 1..all.end).chain(all.start..wanted.min(all.end));
        around.find(|index| self.takes(zones, *index))
    }

    /// Whether a zone is written to from now on, or already.
    fn takes(&self, zones: &mut Zones, index: usize) -> bool {
        let state = &zones.states[index];
        let is_full = state.room() < self.rest_min();
        if !state.is_usable || (self.keeps && is_full) {
            return false;
        }
        if self.limit == 0 {
            return true;
        }
        if zones.is_target(index) {
            return !is_full || state.busy == Busy::No;
        }
        let own = zones.targets.iter().filter(|target| target.1 == self.worker).count();
        let is_allowed = self.mode.job_open_max == 0 || own < self.mode.job_open_max as usize;
        if !is_allowed || zones.targets.len() >= self.limit as usize {
            return false;
        }
        zones.targets.push((index as u32, self.worker));
        true
    }

    /// Nothing can be written now: until something comes back, or for good.
    fn wait_or_end(&self, zones: &Zones) -> Choice {
        let mut all = zones.states.iter();
        if all.any(|state| state.busy != Busy::No) { Choice::Wait } else { Choice::End }
    }

    /// Writes between resets beyond the threshold; 0: there are none.
    fn writes_per_reset(&self) -> u64 {
        let frequency = self.mode.reset_frequency;
        if frequency > 0.0 { (1.0 / frequency).round().max(1.0) as u64 } else { 0 }
    }

    /// Whether so much is written that a zone is reset now and then, and it is time.
    fn is_reset_due(&mut self, zones: &mut Zones, index: usize) -> bool {
        if self.until_reset == 0 || self.keeps || zones.states[index].written() == 0 {
            return false;
        }
        let (offset, size) = (self.region.offset, self.region.size);
        let tally = *self.tally.get_or_insert_with(|| zones.tally(offset, size));
        if (zones.tallied(tally) as f64) < self.region.size as f64 * self.mode.reset_threshold {
            return false;
        }
        self.until_reset -= 1;
        if self.until_reset > 0 {
            return false;
        }
        self.until_reset = self.writes_per_reset();
        true
    }

    /// Empties a zone, which stays one that is written to: with a command if the disk has zones.
    fn reset(&mut self, zones: &mut Zones, index: usize) -> Option<Choice> {
        if zones.is_real() {
            zones.states[index].busy = Busy::Resetting;
            return Some(Choice::Reset((zones.start(index), zones.size() as u32)));
        }
        let target = zones.targets.iter().copied().find(|it| it.0 as usize == index);
        zones.empty(index);
        zones.targets.extend(target);
        self.resets += 1;
        None
    }

    fn trim(&mut self, zones: &mut Zones, mut step: Step) -> Choice {
        let mut index = zones.index(step.offset);
        if self.positions.is_none() && zones.states[index].written() == 0 {
            let all = zones.range(self.region.offset, self.region.size);
            let is_written = |index: &usize| zones.states[*index].written() > 0;
            let near = all.filter(is_written).min_by_key(|other| other.abs_diff(index));
            match near {
                Some(near) => index = near,
                None => return self.wait_or_end(zones),
            }
        }
        if zones.states[index].busy != Busy::No {
            return Choice::Wait;
        }
        zones.states[index].busy = Busy::Resetting;
        (step.offset, step.length) = (zones.start(index), zones.size() as u32);
        self.go_on(step.direction, zones.start(index + 1));
        Choice::Go(step)
    }

    /// A write or a reset that begins at `offset` has ended.
    pub(super) fn ended(&mut self, zones: &mut Zones, is_write: bool, end: (u64, bool)) {
        let (offset, is_good) = end;
        let index = zones.index(offset);
        match (is_write, is_good) {
            (true, _) => zones.wrote(index, self.rest_min(), is_good),
            (false, true) => {
                zones.empty(index);
                self.resets += 1;
            }
            // It is no use trying again: the zone is left alone.
            (false, false) => {
                let state = &mut zones.states[index];
                (state.busy, state.is_usable) = (Busy::No, false);
                zones.leave(index);
            }
        }
    }
}
