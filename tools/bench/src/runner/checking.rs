//! Verification inside a run: stamps on the way down, checks on the way up and at the end.

use std::collections::VecDeque;

use flysch_api::machine::Instant;

use super::worker::Worker;
use super::{Failure, RunError, Shared, Verified, dump};
use crate::random::mix;
use crate::verify::versions::{Versions, joined};
use crate::verify::{self, Form};
use crate::workload::{BlockSize, Direction, Fill, Mix, Verify};

/// Mismatches reported in words per worker; others are only counted.
const TOLD_MAX: usize = 8;
/// In the version table: written by a worker that does not verify.
const NOBODY: u16 = (1 << 15) - 1;
/// Units in the version table: 1 GiB of it.
const UNITS_MAX: u64 = 1 << 27;

/// What a worker needs to verify its data.
#[derive(Debug)]
pub(super) struct Checker {
    worker: u16,
    /// `None`: it does not verify, but others in the run do and must know what it overwrites.
    form: Option<Form>,
    unit: u32,
    /// Check what the workload itself reads, using only the headers.
    reads: bool,
    read_back: bool,
    next: u64,
    at_end: bool,
    began: Instant,
    behind: Option<Behind>,
    dump: Option<String>,
    result: Verified,
}

/// Recent writes to be read back before more is written.
#[derive(Debug)]
struct Behind {
    /// Writes before that happens.
    every: u32,
    /// How many are read back then.
    batch: u32,
    /// Writes since it last happened.
    writes: u32,
    /// How many are still to be read back now.
    left: u32,
    /// The ranges, oldest first.
    ranges: VecDeque<(u64, u32)>,
}

/// Number of ranges kept in the order of their writes; others are read back at the end.
const RANGES_MAX: usize = 1 << 20;

impl Behind {
    fn new(verify: &Verify, worker: &Worker<'_>, unit: u32) -> Option<Self> {
        let (every, batch) = (verify.backlog, verify.backlog_batch);
        if every == 0 || !verify.read_back || !worker.job.writes() {
            return None;
        }
        let units = usize::try_from((worker.region.end - worker.region.offset) / u64::from(unit))
            .unwrap_or(RANGES_MAX);
        let ranges = VecDeque::with_capacity(RANGES_MAX.min(units));
        let batch = if batch == 0 { every } else { batch };
        Some(Self { every, batch, writes: 0, left: 0, ranges })
    }
}

/// The state shared by the workers; gives each worker that needs one its checker.
pub(super) fn shared(workers: &mut [Worker<'_>]) -> Result<Shared, RunError> {
    let length = workers.iter().map(|worker| worker.job.data_max()).max().unwrap_or(0);
    let unit = unit_of(workers)?;
    let versions = versions(workers, unit)?;
    let tracked = versions.is_some();
    for worker in workers.iter_mut() {
        let verify = worker.job.verify;
        if verify.is_none() && !(tracked && worker.job.writes()) {
            continue;
        }
        let only_reads = worker.job.mix == Mix::Only(Direction::Read);
        let reads = verify.is_some_and(|verify| verify.only || only_reads);
        let read_back = worker.job.writes() && verify.is_some_and(|verify| verify.read_back);
        let behind = verify.and_then(|verify| Behind::new(&verify, worker, unit));
        let checked = reads || read_back;
        worker.set_checker(Checker {
            worker: worker.id,
            form: verify.map(|verify| verify.form()),
            unit,
            reads,
            read_back,
            next: 0,
            at_end: false,
            began: Instant::START,
            behind,
            dump: verify.filter(|verify| verify.dump).map(|_| worker.job.name.clone()),
            result: Verified { checked, ..Verified::default() },
        });
    }
    let scratch = vec![0; length as usize];
    Ok(Shared { versions, scratch, writing: false, turn: 0, zones: None })
}

/// Bytes per header: a common divisor of all offsets and lengths of the verifying workers.
fn unit_of(workers: &[Worker<'_>]) -> Result<u32, RunError> {
    let mut unit = 0;
    for worker in workers.iter().filter(|worker| worker.job.verify.is_some()) {
        let Some(verify) = worker.job.verify else { continue };
        unit = gcd(unit, worker.region.offset);
        let intervals = verify.interval.map(u64::from).into_iter();
        let lengths = worker.job.sizes_used().flat_map(lengths_of);
        let align = worker.job.align.into_iter().flatten().map(u64::from);
        let strides = worker.job.strides.map(|strides| strides.range.saturating_add(strides.skip));
        unit = intervals.chain(lengths).chain(align).chain(strides).fold(unit, gcd);
        let unit_min = verify.method.unit_min();
        if unit < u64::from(unit_min) {
            let what = match verify.interval.is_some_and(|interval| interval < unit_min) {
                true => "verify_interval is too short for a header and the checksum of the method",
                false => "verify needs offsets and block sizes with a larger common divisor",
            };
            return Err(RunError::Invalid { job: worker.job.name.clone(), what });
        }
        if !verify.form().fits(unit) {
            let what = "verify_offset lets the header and its checksum overlap their old place, or \
                        end behind the verify_interval";
            return Err(RunError::Invalid { job: worker.job.name.clone(), what });
        }
    }
    Ok(u32::try_from(unit).unwrap_or(u32::MAX))
}

/// Lengths whose common divisor divides every length that `size` can produce.
fn lengths_of(size: &BlockSize) -> Vec<u64> {
    match size {
        BlockSize::Fixed(bytes) => vec![u64::from(*bytes)],
        BlockSize::Range { min, max } => vec![u64::from(*min), u64::from(*max)],
        BlockSize::Split(parts) => parts.iter().map(|&(bytes, _)| u64::from(bytes)).collect(),
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The version table of everything that verifying writers may write, if there are any.
fn versions(workers: &[Worker<'_>], unit: u32) -> Result<Option<Versions>, RunError> {
    let is_writer = |w: &&Worker<'_>| w.job.writes() && w.job.verify.is_some();
    let Some(first) = workers.iter().find(is_writer) else { return Ok(None) };
    let regions = workers.iter().filter(is_writer).map(|w| w.region);
    let ranges = joined(regions.map(|region| (region.offset, region.end - region.offset)));
    let bytes: u64 = ranges.iter().map(|(_, bytes)| bytes).sum();
    if bytes / u64::from(unit) > UNITS_MAX {
        let what = "verify keeps 8 bytes per unit and would need over 1 GiB; use a smaller size \
                    or a larger verify_interval";
        return Err(RunError::Invalid { job: first.job.name.clone(), what });
    }
    let name = first.job.name.bytes();
    let seed = name.fold(mix(first.job.seed), |seed, byte| mix(seed ^ u64::from(byte)));
    Ok(Some(Versions::new(&ranges, unit, seed)))
}

/// Fills a write buffer according to `fill`, with random bytes from `seed`.
pub(super) fn fill_buffer(fill: &Fill, buffer: &mut [u8], seed: u64) {
    match fill {
        Fill::Random | Fill::Refill => verify::fill(buffer, seed),
        Fill::Zero => buffer.fill(0),
        Fill::Pattern(pattern) => {
            buffer.iter_mut().zip(pattern.iter().cycle()).for_each(|(to, from)| *to = *from);
        }
    }
}

/// Whether a write to any byte of the range is in flight.
pub(super) fn is_busy(shared: &Shared, offset: u64, length: u32) -> bool {
    shared.versions.as_ref().is_some_and(|v| v.is_busy(offset, u64::from(length)))
}

impl Checker {
    /// A write or trim of this range is about to be issued; the content of a write is left in the
    /// scratch buffer if it carries stamps. Returns whether it does.
    pub(super) fn before_write(
        &self,
        shared: &mut Shared,
        (offset, length): (u64, u32),
        is_write: bool,
        now: Instant,
    ) -> bool {
        let Some(versions) = &mut shared.versions else { return false };
        let stamps = self.form.filter(|_| is_write);
        let worker = if stamps.is_some() { self.worker } else { NOBODY };
        let version = versions.begin(worker, offset, u64::from(length));
        let Some(form) = stamps else { return false };
        let content = shared.scratch[..length as usize].chunks_exact_mut(self.unit as usize);
        for (index, unit) in content.enumerate() {
            let offset = offset + index as u64 * u64::from(self.unit);
            // The stamp of each unit differs by its offset; the payload seed does not need to.
            verify::stamp(unit, &form, offset, &version, now);
        }
        true
    }

    /// A write or trim of this range completed; `keep`: its content is now known.
    pub(super) fn after_write(
        &self,
        shared: &mut Shared,
        (offset, length): (u64, u32),
        keep: bool,
    ) {
        let Some(versions) = &mut shared.versions else { return };
        if keep && self.form.is_some() {
            versions.finish(offset, u64::from(length));
        } else {
            versions.forget(offset, u64::from(length));
        }
    }

    /// A range has been written. Returns whether it is time to read some of the recent writes back.
    pub(super) fn is_far_behind(&mut self, range: (u64, u32)) -> bool {
        let Some(behind) = &mut self.behind else { return false };
        if behind.ranges.len() < behind.ranges.capacity() {
            behind.ranges.push_back(range);
        }
        behind.writes += 1;
        if behind.writes < behind.every {
            return false;
        }
        (behind.writes, behind.left) = (0, behind.batch);
        true
    }

    /// The next of the ranges to read back before more is written.
    pub(super) fn next_behind(&mut self, shared: &Shared) -> Option<(u64, u32)> {
        let (behind, versions) = (self.behind.as_mut()?, shared.versions.as_ref()?);
        while behind.left > 0 {
            let &(offset, length) = behind.ranges.front()?;
            if versions.is_busy(offset, length.into()) {
                return None;
            }
            behind.ranges.pop_front();
            if versions.owes(self.worker, offset, length.into()) {
                behind.left -= 1;
                return Some((offset, length));
            }
        }
        None
    }

    /// Whether all of them were read.
    pub(super) fn has_caught_up(&self) -> bool {
        self.behind.as_ref().is_none_or(|behind| behind.left == 0 || behind.ranges.is_empty())
    }

    /// Whether data read by the workload is checked.
    pub(super) fn checks_reads(&self) -> bool {
        self.reads
    }

    /// Starts the read-back, if there is one.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        (self.began, self.next, self.at_end) = (now, 0, false);
        self.read_back
    }

    /// Ends the read-back early.
    pub(super) fn stop(&mut self) {
        self.at_end = true;
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at_end
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.result.nanos = now.nanos_since(self.began);
    }

    /// The next range to read back.
    pub(super) fn next_range(&mut self, shared: &Shared, bytes_max: u32) -> Option<(u64, u32)> {
        let versions = shared.versions.as_ref().filter(|_| !self.at_end && !shared.writing)?;
        let range = versions.written_by(self.worker, self.next, bytes_max);
        match range {
            Some((offset, length)) => self.next = offset + u64::from(length),
            None => self.at_end = true,
        }
        range
    }

    /// Checks the data read into the scratch buffer. Returns the first mismatch, if there is one.
    pub(super) fn check(
        &mut self,
        shared: &mut Shared,
        (offset, length): (u64, u32),
        read_back: bool,
    ) -> Option<Failure> {
        let form = self.form?;
        let mut first = None;
        let Shared { versions, scratch, .. } = shared;
        let content = scratch[..length as usize].chunks_exact_mut(self.unit as usize);
        for (index, unit) in content.enumerate() {
            let offset = offset + index as u64 * u64::from(self.unit);
            let expected = versions.as_ref().and_then(|v| v.expected(offset));
            // Another worker wrote it since, or is about to: that worker checks it.
            if read_back && expected.is_none_or(|version| version.worker != self.worker) {
                continue;
            }
            form.move_header(unit);
            let expected = expected.filter(|_| read_back);
            match verify::check(unit, &form, offset, expected.as_ref()) {
                Ok(()) => self.result.bytes += u64::from(self.unit),
                Err(mismatch) => {
                    if self.result.first.len() < TOLD_MAX
                        && let Some(job) = &self.dump
                    {
                        let told = dump::write((job, offset), unit, &form, expected.as_ref());
                        self.result.dumped.extend(told);
                    }
                    self.result.mismatches += 1;
                    let failure = Failure::Verify { offset, mismatch };
                    if self.result.first.len() < TOLD_MAX {
                        self.result.first.push(failure.to_string());
                    }
                    first = first.or(Some(failure));
                }
            }
        }
        if let (true, Some(_), Some(versions)) = (read_back, &self.behind, versions) {
            versions.checked(offset, length.into());
        }
        first
    }

    pub(super) fn finish(self) -> Option<Verified> {
        self.form.map(|_| self.result)
    }
}
