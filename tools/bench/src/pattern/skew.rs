//! Non-uniform random ranks: Zipf and Pareto.

use crate::random::Random;

/// Ranks `0..n` where rank k is drawn in proportion to 1 / (k + 1)^theta.
///
/// Rejection-inversion (Hörmann and Derflinger 1996): constant memory and time, exact.
#[derive(Debug)]
pub(super) struct Zipf {
    n: f64,
    theta: f64,
    low: f64,
    high: f64,
    cut: f64,
}

impl Zipf {
    pub(super) fn new(n: u64, theta: f64) -> Self {
        let n = n as f64;
        let low = integral(theta, 1.5) - 1.0;
        let high = integral(theta, n + 0.5);
        let cut = 2.0 - inverse(theta, integral(theta, 2.5) - 2f64.powf(-theta));
        Self { n, theta, low, high, cut }
    }

    /// The same over `n` ranks.
    pub(super) fn over(&self, n: u64) -> Self {
        Self::new(n, self.theta)
    }

    pub(super) fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.high + random.fraction() * (self.low - self.high);
            let x = inverse(self.theta, u);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            let enough = integral(self.theta, k + 0.5) - k.powf(-self.theta);
            if k - x <= self.cut || u >= enough {
                return k as u64 - 1;
            }
        }
    }
}

/// Integral of x^-theta.
fn integral(theta: f64, x: f64) -> f64 {
    let log = x.ln();
    let t = (1.0 - theta) * log;
    if t.abs() < 1e-8 { log * (1.0 + t / 2.0) } else { t.exp_m1() / t * log }
}

/// Inverse of [`integral`].
fn inverse(theta: f64, y: f64) -> f64 {
    let t = (y * (1.0 - theta)).max(-1.0);
    let factor = if t.abs() < 1e-8 { 1.0 - t / 2.0 } else { t.ln_1p() / t };
    (factor * y).exp()
}

/// Ranks `0..n` by a power of a uniform number, as fio's `pareto:h` does: the first fraction `h`
/// of the ranks gets the share `1 - h` of the draws.
#[derive(Debug)]
pub(super) struct Pareto {
    n: u64,
    power: f64,
}

impl Pareto {
    pub(super) fn new(n: u64, h: f64) -> Self {
        Self { n, power: h.ln() / (1.0 - h).ln() }
    }

    /// The same over `n` ranks.
    pub(super) fn over(&self, n: u64) -> Self {
        Self { n, power: self.power }
    }

    pub(super) fn sample(&self, random: &mut Random) -> u64 {
        ((self.n as f64 * random.fraction().powf(self.power)) as u64).min(self.n - 1)
    }
}

/// Ranks `0..n` on a bell curve, as fio's `normal:DEVIATION` draws them: the mean of twelve uniform
/// numbers, moved by up to half of the deviation, which is in percent of the ranks.
#[derive(Debug)]
pub(super) struct Bell {
    n: u64,
    deviation: f64,
}

impl Bell {
    pub(super) fn new(n: u64, percent: f64) -> Self {
        Self { n, deviation: (n as f64 * percent / 100.0).min(n as f64 / 2.0) }
    }

    /// The same over `n` ranks.
    pub(super) fn over(&self, n: u64) -> Self {
        Self { n, deviation: self.deviation * n as f64 / self.n as f64 }
    }

    pub(super) fn sample(&self, random: &mut Random) -> u64 {
        const DRAWS: u32 = 12;
        let sum: f64 = (0..DRAWS).map(|_| random.fraction()).sum();
        let mean = sum / f64::from(DRAWS) * self.n as f64;
        let moved = mean + (random.fraction() - 0.5) * self.deviation;
        (moved.max(0.0) as u64).min(self.n - 1)
    }
}
