//! Latency histograms: log-linear bins, fixed memory, one increment per sample.
//!
//! Theory. A value belongs to the power of two that contains it, and each power of two is divided
//! into [`SUB_BINS`] equal bins, so a bin is never wider than 1/[`SUB_BINS`] of its value: below
//! [`SUB_BINS`] every value has its own bin, above it the error of a percentile is at most half a
//! bin, 0.4 %. HDR histograms use this layout. All histograms have the same bins, so merging is
//! adding. Sum and sum of squares are kept exactly beside the bins, so mean and standard deviation
//! have no rounding error from bins.

/// Bins per power of two.
pub const SUB_BINS: usize = 1 << SUB_BITS;

const SUB_BITS: u32 = 7;
/// Values of 2^44 ns (4.9 hours) and more share the last bin.
const VALUE_BITS: u32 = 44;
const BINS: usize = ((VALUE_BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// The percentiles that fio prints by default.
pub const DEFAULT_PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// A distribution of times in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    bins: Box<[u64; BINS]>,
    count: u64,
    sum: u64,
    sum_of_squares: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("mean", &self.mean())
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl Histogram {
    /// An empty histogram. This is the only allocation it ever makes.
    pub fn new() -> Self {
        let bins: Box<[u64]> = vec![0; BINS].into_boxed_slice();
        let bins = bins.try_into().unwrap_or_else(|_| unreachable!("made with BINS elements"));
        Self { bins, count: 0, sum: 0, sum_of_squares: 0, min: u64::MAX, max: 0 }
    }

    /// Adds one sample, nanoseconds.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.bins[bin_of(nanos)] += 1;
        self.count += 1;
        self.sum = self.sum.wrapping_add(nanos);
        self.sum_of_squares += u128::from(nanos) * u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Adds all samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.bins.iter_mut().zip(other.bins.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets all samples, keeping the memory.
    pub fn clear(&mut self) {
        self.bins.fill(0);
        (self.count, self.sum, self.sum_of_squares) = (0, 0, 0);
        (self.min, self.max) = (u64::MAX, 0);
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all samples, nanoseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Smallest sample, nanoseconds; 0 if there is none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// Largest sample, nanoseconds; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Arithmetic mean, nanoseconds; 0 if there is no sample.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Standard deviation of the sample (divisor n - 1), nanoseconds; 0 below two samples.
    pub fn standard_deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // n * sum(x^2) - sum(x)^2 in integers: no cancellation between large floats.
        let n = u128::from(self.count);
        let sum = u128::from(self.sum);
        let spread = n.saturating_mul(self.sum_of_squares).saturating_sub(sum.saturating_mul(sum));
        (spread as f64 / (n as f64 * (n - 1) as f64)).sqrt()
    }

    /// The value that `percent` of the samples do not exceed: the middle of its bin, limited to the
    /// range of actual samples. 0 if there is no sample.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let wanted = (percent.clamp(0.0, 100.0) / 100.0 * self.count as f64).ceil() as u64;
        let wanted = wanted.clamp(1, self.count);
        let mut seen = 0;
        for (index, &bin) in self.bins.iter().enumerate() {
            seen += bin;
            if seen >= wanted {
                return bin_middle(index).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// Samples below `nanos`, to the nearest bin.
    pub fn count_below(&self, nanos: u64) -> u64 {
        if nanos > self.max {
            return self.count;
        }
        self.bins[..bin_of(nanos)].iter().sum()
    }

    /// The bins that hold samples, as (middle of the bin in nanoseconds, samples).
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.bins.iter().enumerate().filter(|&(_, &n)| n > 0);
        filled.map(|(index, &n)| (bin_middle(index), n))
    }
}

/// The bin of a value: its power of two, then its top bits below the leading one.
#[inline]
fn bin_of(value: u64) -> usize {
    let value = value.min((1 << VALUE_BITS) - 1);
    let shift = (u64::BITS - SUB_BITS - 1).saturating_sub((value | 1).leading_zeros());
    let bin = ((shift as usize) << SUB_BITS) + (value >> shift) as usize;
    // Says what the arithmetic above guarantees, so that the array access needs no check.
    bin.min(BINS - 1)
}

/// Middle of bin `index`.
fn bin_middle(index: usize) -> u64 {
    let group = index >> SUB_BITS;
    if group <= 1 {
        return index as u64;
    }
    let shift = group - 1;
    let low = ((index - (shift << SUB_BITS)) as u64) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_value_is_within_half_a_bin_of_its_bins_middle() {
        for shift in 0..VALUE_BITS {
            for low in [0u64, 1, 2, 3, 63, 64, 127, 128, 129] {
                let value = ((1u64 << shift) + low).min((1 << VALUE_BITS) - 1);
                let middle = bin_middle(bin_of(value));
                let error = value.abs_diff(middle) as f64 / value as f64;
                assert!(error <= 1.0 / 256.0, "{value} is put at {middle}");
            }
        }
    }

    #[test]
    fn bins_are_ordered_and_all_reachable() {
        let mut last = None;
        for index in 0..BINS {
            let middle = bin_middle(index);
            assert_eq!(bin_of(middle), index);
            assert!(last.is_none_or(|last| middle > last));
            last = Some(middle);
        }
        assert_eq!(bin_of(u64::MAX), BINS - 1);
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        let empty = Histogram::new();
        assert_eq!((empty.min(), empty.max(), empty.percentile(99.0)), (0, 0, 0));
        assert_eq!((empty.mean(), empty.standard_deviation()), (0.0, 0.0));
    }

    proptest! {
        #[test]
        fn agrees_with_hdrhistogram(
            values in prop::collection::vec(1u64..10_000_000_000, 1..400),
            split in any::<prop::sample::Index>(),
        ) {
            let mut oracle = hdrhistogram::Histogram::<u64>::new(5).unwrap();
            let (mut ours, mut second) = (Histogram::new(), Histogram::new());
            let split = split.index(values.len());
            for (i, &value) in values.iter().enumerate() {
                oracle.record(value).unwrap();
                if i < split { ours.record(value) } else { second.record(value) }
            }
            ours.merge(&second);
            prop_assert_eq!(ours.count(), values.len() as u64);
            prop_assert_eq!(ours.min(), *values.iter().min().unwrap());
            prop_assert_eq!(ours.max(), *values.iter().max().unwrap());
            prop_assert!((ours.mean() / oracle.mean() - 1.0).abs() < 1e-4);
            for percent in DEFAULT_PERCENTILES {
                let a = ours.percentile(percent) as f64;
                let b = oracle.value_at_percentile(percent) as f64;
                prop_assert!((a / b - 1.0).abs() < 0.005, "p{}: {} against {}", percent, a, b);
            }
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
            let squares: f64 = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
            if values.len() > 1 {
                let expected = (squares / (values.len() - 1) as f64).sqrt();
                prop_assert!((ours.standard_deviation() - expected).abs() <= expected * 1e-6 + 1.0);
            }
        }
    }
}
