//! What a worker measures: five distributions per direction, queue depths, rates over time.

use flysch_api::trace::Stamps;

use crate::histogram::Histogram;
use crate::workload::Direction;

/// Everything measured about the requests of one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionStatistics {
    /// Area 2, from acceptance to the doorbell; fio's submission latency.
    pub submission: Histogram,
    /// Area 3, from the doorbell to the end of the device's work.
    pub device: Histogram,
    /// Area 4, from there to delivery.
    pub completion: Histogram,
    /// Areas 3 and 4: fio's completion latency.
    pub response: Histogram,
    /// The total: fio's latency.
    pub total: Histogram,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests that failed; they are in no histogram.
    pub failed: u64,
    /// Bandwidth of each sampling interval, KiB/s.
    pub bandwidth: Samples,
    /// Requests per second of each sampling interval.
    pub rate: Samples,
    sampled_bytes: u64,
    sampled_requests: u64,
}

impl DirectionStatistics {
    /// Adds one completed request of `bytes` bytes.
    #[inline]
    pub fn record(&mut self, stamps: &Stamps, bytes: u32) {
        let submission = stamps.submission_nanos();
        let device = stamps.device_nanos();
        let completion = stamps.completion_nanos();
        self.submission.record(submission);
        self.device.record(device);
        self.completion.record(completion);
        self.response.record(device + completion);
        self.total.record(submission + device + completion);
        self.bytes += u64::from(bytes);
    }

    /// Requests completed.
    pub fn requests(&self) -> u64 {
        self.total.count()
    }

    /// Closes a sampling interval of `nanos` nanoseconds.
    fn sample(&mut self, nanos: u64) {
        let per_second = 1e9 / nanos as f64;
        let bytes = self.bytes - self.sampled_bytes;
        let requests = self.requests() - self.sampled_requests;
        self.bandwidth.add(bytes as f64 * per_second / 1024.0);
        self.rate.add(requests as f64 * per_second);
        (self.sampled_bytes, self.sampled_requests) = (self.bytes, self.requests());
    }

    fn clear(&mut self) {
        for histogram in [
            &mut self.submission,
            &mut self.device,
            &mut self.completion,
            &mut self.response,
            &mut self.total,
        ] {
            histogram.clear();
        }
        (self.bytes, self.failed) = (0, 0);
        (self.bandwidth, self.rate) = (Samples::default(), Samples::default());
        (self.sampled_bytes, self.sampled_requests) = (0, 0);
    }

    fn merge(&mut self, other: &Self) {
        self.submission.merge(&other.submission);
        self.device.merge(&other.device);
        self.completion.merge(&other.completion);
        self.response.merge(&other.response);
        self.total.merge(&other.total);
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.bandwidth.merge(&other.bandwidth);
        self.rate.merge(&other.rate);
    }
}

/// Minimum, maximum, mean and deviation of a few values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Samples {
    /// Number of values.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    sum: f64,
    sum_of_squares: f64,
}

impl Samples {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += value;
        self.sum_of_squares += value * value;
    }

    /// Mean, 0 if there is no value.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// Standard deviation of the sample, 0 below two values.
    pub fn standard_deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let spread = self.sum_of_squares - self.sum * self.sum / self.count as f64;
        (spread.max(0.0) / (self.count - 1) as f64).sqrt()
    }

    /// Workers of a group run concurrently: their rates add up.
    fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let deviation = self.standard_deviation().hypot(other.standard_deviation());
        let (mean, count) = (self.mean() + other.mean(), self.count.min(other.count));
        self.min += other.min;
        self.max += other.max;
        self.count = count;
        self.sum = mean * count as f64;
        let spread = deviation * deviation * count.saturating_sub(1) as f64;
        self.sum_of_squares = spread + self.sum * mean;
    }
}

/// Everything one worker, or a group of workers, measured.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// By direction; `None` where the workload has none.
    pub directions: [Option<Box<DirectionStatistics>>; 3],
    /// Flushes, from acceptance to delivery.
    pub flush: Histogram,
    /// Requests by the number in flight when they were submitted: 1, 2, 4, 8, 16, 32, 64 and more
    /// (each up to the next).
    pub depth_levels: [u64; 7],
    /// Submission batches by length: 0, up to 4, 8, 16, 32, 64, more.
    pub submit_batches: [u64; 7],
    /// Completion batches by length, like `submit_batches`.
    pub complete_batches: [u64; 7],
    /// Length of the measurement, nanoseconds.
    pub runtime_nanos: u64,
}

impl Statistics {
    /// Room for the directions in `used`.
    pub fn new(used: impl Fn(Direction) -> bool) -> Self {
        let directions = Direction::ALL.map(|d| used(d).then(Box::default));
        Self { directions, ..Self::default() }
    }

    /// The statistics of `direction`, if it is used.
    pub fn direction(&self, direction: Direction) -> Option<&DirectionStatistics> {
        self.directions[direction.index()].as_deref()
    }

    /// The directions with completed or failed requests.
    pub fn used(&self) -> impl Iterator<Item = (Direction, &DirectionStatistics)> {
        let all = Direction::ALL.into_iter();
        let all = all.filter_map(|d| self.direction(d).map(|statistics| (d, statistics)));
        all.filter(|(_, statistics)| statistics.requests() + statistics.failed > 0)
    }

    /// Requests completed in all directions.
    pub fn requests(&self) -> u64 {
        self.used().map(|(_, d)| d.requests()).sum()
    }

    /// Forgets all measurements, keeping the memory: the ramp is over.
    pub fn clear(&mut self) {
        self.directions.iter_mut().flatten().for_each(|d| d.clear());
        self.flush.clear();
        (self.depth_levels, self.submit_batches) = ([0; 7], [0; 7]);
        (self.complete_batches, self.runtime_nanos) = ([0; 7], 0);
    }

    /// Closes a sampling interval of `nanos` nanoseconds.
    pub fn sample(&mut self, nanos: u64) {
        self.directions.iter_mut().flatten().for_each(|d| d.sample(nanos));
    }

    /// Adds the measurements of another worker of the same group.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.directions.iter_mut().zip(&other.directions) {
            match (mine.as_deref_mut(), theirs) {
                (Some(mine), Some(theirs)) => mine.merge(theirs),
                (None, Some(theirs)) => *mine = Some(theirs.clone()),
                (_, None) => {}
            }
        }
        self.flush.merge(&other.flush);
        let add = |mine: &mut [u64; 7], theirs: &[u64; 7]| {
            mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        };
        add(&mut self.depth_levels, &other.depth_levels);
        add(&mut self.submit_batches, &other.submit_batches);
        add(&mut self.complete_batches, &other.complete_batches);
        self.runtime_nanos = self.runtime_nanos.max(other.runtime_nanos);
    }

    /// Counts `requests` submitted at a depth of `in_flight`, including themselves.
    #[inline]
    pub(crate) fn at_depth(&mut self, in_flight: u32) {
        let level = in_flight.max(1).ilog2().min(6);
        self.depth_levels[level as usize] += 1;
    }
}

/// The index of a batch of `length` requests in the batch counters.
#[inline]
pub(crate) fn batch_level(length: u32) -> usize {
    match length {
        0 => 0,
        1..=4 => 1,
        5..=8 => 2,
        9..=16 => 3,
        17..=32 => 4,
        33..=64 => 5,
        _ => 6,
    }
}
