//! Verification inside a run: stamps on the way down, checks on the way up and at the end.

use std::collections::VecDeque;

use flysch_api::machine::Instant;

use super::worker::Worker;
use super::{Failure, RunError, Shared, Verified, dump};
use crate::random::mix;
use crate::verify::versions::{Units, Versions, joined};
use crate::verify::{self, Form, Place};
use crate::workload::{BlockSize, Direction, Fill, Mix, Order, Verify, Workload};
use crate::zones::Zones;

/// Mismatches reported in words per worker; others are only counted.
const TOLD_MAX: usize = 8;
/// In the version table: written by a worker that does not verify.
const NOBODY: u16 = (1 << 15) - 1;
/// Blocks in the version table: 1 GiB of it.
const BLOCKS_MAX: u64 = 1 << 27;

/// What a worker needs to verify its data.
#[derive(Debug)]
pub(super) struct Checker {
    worker: u16,
    /// `None`: it does not verify, but others in the run do and must know what it overwrites.
    form: Option<Form>,
    units: Units,
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
    /// It happens when so many, or a multiple, have not been read back.
    every: u32,
    /// How many are read back then.
    batch: u32,
    /// How many are still to be read back now.
    left: u32,
    /// The ranges, oldest first.
    ranges: VecDeque<(u64, u32)>,
}

/// Number of ranges kept in the order of their writes; others are read back at the end.
const RANGES_MAX: usize = 1 << 20;

impl Behind {
    fn new(verify: &Verify, worker: &Worker<'_>, units: Units) -> Option<Self> {
        let (every, batch) = (verify.backlog, verify.backlog_batch);
        if every == 0 || !verify.read_back || !worker.job.writes() {
            return None;
        }
        let bytes = worker.region.end - worker.region.offset;
        let most = usize::try_from(bytes / u64::from(units.bytes)).unwrap_or(RANGES_MAX);
        let ranges = VecDeque::with_capacity(RANGES_MAX.min(most));
        let batch = if batch == 0 { every } else { batch };
        Some(Self { every, batch, left: 0, ranges })
    }
}

/// The state shared by the workers; gives each worker that needs one its checker.
pub(super) fn shared(
    workers: &mut [Worker<'_>],
    zones: Option<&Zones>,
) -> Result<Shared, RunError> {
    let length = workers.iter().map(|worker| worker.job.data_max()).max().unwrap_or(0);
    let units = workers.iter().map(|worker| units_of(worker.job)).collect::<Result<Vec<_>, _>>()?;
    let versions = versions(workers, &units, zones)?;
    let tracked = versions.is_some();
    for (worker, units) in workers.iter_mut().zip(units) {
        let verify = worker.job.verify;
        if verify.is_none() && !(tracked && worker.job.writes()) {
            continue;
        }
        let reads = checks_reads(worker.job);
        let read_back = worker.job.writes() && verify.is_some_and(|verify| verify.read_back);
        let behind = verify.and_then(|verify| Behind::new(&verify, worker, units));
        let checked = reads || read_back;
        worker.set_checker(Checker {
            worker: worker.id,
            form: verify.map(|verify| verify.form()),
            units,
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

/// Whether what the job itself reads is checked.
fn checks_reads(job: &Workload) -> bool {
    job.verify.is_some_and(|verify| verify.only || job.mix == Mix::Only(Direction::Read))
}

/// The units of a job's writes, by fio's rules; of the writes it would do, if it only reads.
fn units_of(job: &Workload) -> Result<Units, RunError> {
    let Some(verify) = &job.verify else { return Ok(Units { bytes: 1, run_on: false }) };
    let invalid = |what| Err(RunError::Invalid { job: job.name.clone(), what });
    let unit = unit_of(job, verify);
    // A request that is shorter has one unit.
    let reads = reads_of(job);
    let least = reads.iter().copied().fold(u64::from(unit), u64::min);
    if least < u64::from(verify.method.unit_min()) {
        let is_asked = verify.interval.is_some_and(|interval| interval <= unit);
        return invalid(match is_asked {
            true => "verify_interval is too short for a header and the checksum of the method",
            false => {
                "verify needs longer blocks: a header and the checksum of the method do not fit"
            }
        });
    }
    if !verify.form().fits(least) {
        return invalid(
            "verify_offset lets the header and its checksum overlap their old place, or end behind \
             the verify_interval",
        );
    }
    if reads.iter().any(|&length| length > unit.into() && length % u64::from(unit) != 0) {
        return invalid(
            "verify has headers at the multiples of the shortest write (or verify_interval) in \
             each request, and its reads are no such multiples: give bs the sizes of the writes",
        );
    }
    Ok(Units { bytes: unit, run_on: verify.form().runs_on(unit) })
}

/// Lengths whose common divisor divides those of all reads that are checked; none if none are.
fn reads_of(job: &Workload) -> Vec<u64> {
    if !checks_reads(job) {
        return Vec::new();
    }
    job.sizes_used().flat_map(lengths_of).collect()
}

/// Bytes per header: `verify_interval`, but no more than the shortest write, and, for a job that
/// reads as well, the shortest read; if that does not divide the writes, what does.
fn unit_of(job: &Workload, verify: &Verify) -> u32 {
    let [reads, writes] =
        [Direction::Read, Direction::Write].map(|direction| &job.block_size[direction.index()]);
    let (min, max) = (writes.min(), writes.max());
    let varies = (min < max).then_some(min);
    let wanted = verify.interval.or(varies).map(|wanted| match wanted > min {
        true => min,
        false if job.uses(Direction::Read) => wanted.min(reads.min()),
        false => wanted,
    });
    let unit = wanted.filter(|&unit| unit > 0 && min % unit == 0 && max % unit == 0);
    let unit = unit.map_or_else(|| gcd(min.into(), max.into()), u64::from);
    let lengths = if job.writes() { writes_of(job) } else { Vec::new() };
    lengths.into_iter().fold(unit, gcd) as u32
}

/// Lengths whose common divisor divides those of all writes of a job: what it trims before it
/// writes is as long.
fn writes_of(job: &Workload) -> Vec<u64> {
    let trims = job.mix == Mix::TrimWrite;
    let used = [Direction::Write, Direction::Trim];
    let used = used.into_iter().filter(|&it| it == Direction::Write || trims);
    used.flat_map(|direction| lengths_of(&job.block_size[direction.index()])).collect()
}

/// Bytes of a block in the version table: a common divisor of all places where units of verifying
/// writers begin, and of their lengths.
fn block_of(writers: &[(&Worker<'_>, Units)], zones: Option<&Zones>) -> u64 {
    writers.iter().fold(0, |block, (worker, units)| {
        let (job, region) = (worker.job, worker.region);
        let align = job.align.into_iter().flatten().map(u64::from);
        let strides = job.strides.map(|strides| strides.range.saturating_add(strides.skip));
        let zone = zones.filter(|_| job.zones.is_some()).map(Zones::size);
        // A sequence may end with a shorter request, and backwards it comes from the end.
        let (gap, size) = match job.order {
            Order::Sequential { gap } => (gap, region.size),
            Order::Random { .. } => (0, 0),
        };
        let more = [region.offset, units.bytes.into(), gap.unsigned_abs(), size].into_iter();
        let more = more.chain(align).chain(strides).chain(zone);
        more.chain(writes_of(job)).fold(block, gcd)
    })
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
fn versions(
    workers: &[Worker<'_>],
    units: &[Units],
    zones: Option<&Zones>,
) -> Result<Option<Versions>, RunError> {
    let is_writer = |w: &&Worker<'_>| w.job.writes() && w.job.verify.is_some();
    let writers = workers.iter().zip(units.iter().copied()).filter(|(w, _)| is_writer(w));
    let writers: Vec<(&Worker<'_>, Units)> = writers.collect();
    let Some((first, _)) = writers.first() else { return Ok(None) };
    let regions = writers.iter().map(|(worker, _)| worker.region);
    let ranges = joined(regions.map(|region| (region.offset, region.end - region.offset)));
    let bytes: u64 = ranges.iter().map(|(_, bytes)| bytes).sum();
    let block = block_of(&writers, zones);
    if bytes / block > BLOCKS_MAX {
        let what = "verify keeps 8 bytes per block (the common divisor of all offsets, block sizes \
                    and intervals) and would need over 1 GiB; use a smaller size or larger blocks";
        return Err(RunError::Invalid { job: first.job.name.clone(), what });
    }
    let name = first.job.name.bytes();
    let seed = name.fold(mix(first.job.seed), |seed, byte| mix(seed ^ u64::from(byte)));
    Ok(Some(Versions::new(&ranges, block as u32, seed)))
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
        let stamps = self.form.as_ref().filter(|_| is_write);
        let (worker, units) = match stamps {
            Some(_) => (self.worker, Some(self.units)),
            None => (NOBODY, None),
        };
        let version = versions.begin(worker, (offset, u64::from(length)), units);
        let Some(form) = stamps else { return false };
        let content = shared.scratch[..length as usize].chunks_exact_mut(self.units.bytes as usize);
        for (index, unit) in content.enumerate() {
            let place = self.place(offset, index);
            // The stamp of each unit differs by its offset; the payload seed does not need to.
            verify::stamp(unit, form, place, &version, now);
        }
        true
    }

    /// Where unit `index` of the request at offset `request` is.
    fn place(&self, request: u64, index: usize) -> Place {
        Place { offset: request + index as u64 * u64::from(self.units.bytes), request }
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
        let is_full = behind.ranges.len() == behind.ranges.capacity();
        if !is_full {
            behind.ranges.push_back(range);
        }
        // What is left of a batch goes on with whatever comes.
        if behind.left == 0
            && (is_full || behind.ranges.len().is_multiple_of(behind.every as usize))
        {
            behind.left = behind.batch;
        }
        behind.left > 0
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
            if versions.owes(self.worker, self.units, (offset, length.into())) {
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
        let range = versions.written_by(self.worker, self.units, (self.next, bytes_max));
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
        let form = self.form.as_ref()?;
        let mut first = None;
        let Shared { versions, scratch, .. } = shared;
        // A read that is shorter than a unit is one itself.
        let unit_len = self.units.bytes.min(length);
        let content = scratch[..length as usize].chunks_exact_mut(unit_len as usize);
        for (index, unit) in content.enumerate() {
            let place = self.place(offset, index);
            let range = (place.offset, u64::from(unit_len));
            let known = versions.as_mut().filter(|_| read_back);
            let mut expected = None;
            if let Some(versions) = known {
                let first = self.units.first(offset, place.offset);
                expected = versions.expected(first, range);
                // Another worker wrote it since, or is about to: that worker checks it. Nobody
                // checks what is left of a unit that was written over.
                if expected.is_none_or(|version| version.worker != self.worker) {
                    continue;
                }
                if self.behind.is_some() {
                    versions.checked(range.0, range.1);
                }
            }
            form.move_header(unit);
            match verify::check(unit, form, place, expected.as_ref()) {
                Ok(()) => self.result.bytes += range.1,
                Err(mismatch) => {
                    if self.result.first.len() < TOLD_MAX
                        && let Some(job) = &self.dump
                    {
                        let told = dump::write((job, place), unit, form, expected.as_ref());
                        self.result.dumped.extend(told);
                    }
                    self.result.mismatches += 1;
                    let failure = Failure::Verify { offset: place.offset, mismatch };
                    if self.result.first.len() < TOLD_MAX {
                        self.result.first.push(failure.to_string());
                    }
                    first = first.or(Some(failure));
                }
            }
        }
        first
    }

    pub(super) fn finish(self) -> Option<Verified> {
        self.form.map(|_| self.result)
    }
}
