//! Requests that prefer some stretches of the region.

use crate::random::Random;
use crate::workload::{Direction, Stretch, StretchSize};

/// The stretches of each direction, in units of the shortest request.
#[derive(Debug)]
pub(super) struct Stretches {
    parts: [Vec<Part>; 3],
    /// Units of the region; the device may end before it.
    units: u64,
}

/// A stretch: the cumulative share, its first unit and its number of units.
#[derive(Clone, Copy, Debug)]
struct Part {
    until: u32,
    first: u64,
    units: u64,
}

impl Stretches {
    /// The stretches `zones` of a region of `size` bytes. Whatever lies beyond its end is cut off;
    /// a stretch of which nothing is left becomes its last unit.
    pub(super) fn new(zones: &[Vec<Stretch>; 3], size: u64, unit: u32) -> Self {
        let all = (size / u64::from(unit)).max(1);
        let place = |zones: &Vec<Stretch>| {
            let (mut start, mut until, mut percent) = (0_u64, 0, 0);
            let part = |zone: &Stretch| {
                let end = match zone.size {
                    StretchSize::Percent(more) => {
                        percent += more;
                        (u128::from(all) * u128::from(percent) / 100) as u64
                    }
                    StretchSize::Bytes(bytes) => start.saturating_add(bytes / u64::from(unit)),
                };
                let (first, end) = (start.min(all - 1), end.min(all));
                start = end;
                until += zone.share;
                Part { until, first, units: end.saturating_sub(first).max(1) }
            };
            zones.iter().map(part).collect()
        };
        Self { parts: [place(&zones[0]), place(&zones[1]), place(&zones[2])], units: all }
    }

    /// From now on only the first `units` are there: those behind fold onto them.
    pub(super) fn limit(&mut self, units: u64) {
        self.units = units;
    }

    /// A unit for the next request.
    pub(super) fn pick(&self, direction: Direction, random: &mut Random) -> u64 {
        let parts = &self.parts[direction.index()];
        let total = parts.last().map_or(1, |part| part.until.max(1));
        let drawn = random.below(u64::from(total)) as u32;
        let part = parts.iter().find(|part| drawn < part.until).or(parts.last());
        part.map_or(0, |part| (part.first + random.below(part.units)) % self.units)
    }
}
