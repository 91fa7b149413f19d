//! The sequence of requests of a workload: direction, offset and length of each.

mod map;
mod skew;
mod stretches;
mod strides;

use crate::random::{Permutation, Random, mix};
use crate::workload::{BlockSize, Direction, Distribution, Mix, Order, Workload};
use map::Map;
use skew::{Bell, Pareto, Zipf};
use stretches::Stretches;
use strides::Zones;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The direction.
    pub direction: Direction,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// Produces one [`Step`] after the other, without end.
#[derive(Debug)]
pub struct Pattern {
    mix: Mix,
    sizes: [Sizes; 3],
    random: Random,
    offset: u64,
    size: u64,
    unit: u32,
    /// By direction: its shortest request.
    mins: [u32; 3],
    /// By direction: what a position drawn independently of earlier ones is a multiple of.
    aligns: [u32; 3],
    walk: Walk,
    run: Run,
    trimmed: Option<Step>,
    zones: Option<Box<Zones>>,
    seed: u64,
    /// Passes of a sequence with gaps before its end.
    passes: u32,
}

/// The next request's position, in units from the start of the region.
#[derive(Debug)]
enum Walk {
    Sequential {
        gap: i64,
        position: [u64; 3],
        /// By direction: with less than this left a pass is over, and what is shorter than drawn is
        /// a multiple of it.
        steps: [u64; 3],
    },
    Permuted {
        order: Permutation,
        index: u64,
        units: u64,
        seed: u64,
    },
    Mapped(Map),
    /// Each direction goes by blocks of its own.
    Apart(Box<[(Map, u32); 3]>),
    Free,
    Zipf {
        zipf: Zipf,
        scatter: Permutation,
    },
    Pareto {
        pareto: Pareto,
        scatter: Permutation,
    },
    Bell {
        bell: Bell,
        scatter: Permutation,
    },
    Stretches(Stretches),
    Sequence {
        blocks: Vec<u64>,
        next: usize,
        base: u64,
        step: u64,
        units: u64,
    },
}

/// Sequential requests before the next random jump.
#[derive(Debug)]
struct Run {
    length: u32,
    left: u32,
    position: u64,
}

#[derive(Debug)]
enum Sizes {
    Fixed(u32),
    /// Multiples of the least, and the greatest itself.
    Range {
        min: u32,
        max: u32,
    },
    /// Sizes with the cumulative shares.
    Split(Vec<(u32, u32)>),
}

impl Sizes {
    fn new(size: &BlockSize) -> Self {
        match size {
            BlockSize::Fixed(bytes) => Self::Fixed(*bytes),
            &BlockSize::Range { min, max } => Self::Range { min, max },
            BlockSize::Split(parts) => {
                // As in fio each is a multiple of the smallest.
                let (mut sum, least) = (0, size.min().max(1));
                let sums = parts.iter().map(|&(bytes, share)| {
                    sum += share;
                    (bytes - bytes % least, sum)
                });
                Self::Split(sums.collect())
            }
        }
    }

    #[inline]
    fn pick(&self, random: &mut Random) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            // As fio: any number up to the greatest, rounded up.
            Self::Range { min, max } => {
                let drawn = random.below(u64::from(*max)) as u32 + 1;
                drawn.next_multiple_of(*min).min(*max)
            }
            Self::Split(parts) => {
                let total = parts.last().map_or(1, |&(_, sum)| sum);
                let drawn = random.below(u64::from(total.max(1))) as u32;
                let part = parts.iter().find(|&&(_, sum)| drawn < sum).or(parts.last());
                part.map_or(0, |&(bytes, _)| bytes)
            }
        }
    }
}

/// How the positions of `workload` come about in a region of `size` bytes: `mins` are the shortest
/// requests by direction.
fn walk(workload: &Workload, (size, unit): (u64, u32), mins: [u32; 3], seed: u64) -> Walk {
    let units = size / u64::from(unit);
    let differs = workload.mix != Mix::TrimWrite && mins.iter().any(|min| *min != mins[0]);
    let same_size = workload.block_min() == workload.block_max();
    let is_free =
        workload.is_aligned_apart() || !matches!(workload.order, Order::Random { run: 0 | 1, .. });
    match &workload.order {
        &Order::Sequential { gap } => {
            let steps = Direction::ALL.map(|direction| {
                let size = &workload.block_size[direction.index()];
                let is_one = matches!(workload.mix, Mix::Only(_) | Mix::TrimWrite)
                    && size.min() == size.max();
                if is_one { 1 } else { u64::from(mins[direction.index()]) }
            });
            Walk::Sequential { gap, position: [0; 3], steps }
        }
        &Order::Random { distribution: Distribution::Zipf(theta), .. } => {
            Walk::Zipf { zipf: Zipf::new(units, theta), scatter: Permutation::new(units, seed) }
        }
        &Order::Random { distribution: Distribution::Pareto(power), .. } => Walk::Pareto {
            pareto: Pareto::new(units, power),
            scatter: Permutation::new(units, seed),
        },
        &Order::Random { distribution: Distribution::Normal(wider), .. } => {
            Walk::Bell { bell: Bell::new(units, wider), scatter: Permutation::new(units, seed) }
        }
        Order::Random { distribution: Distribution::Zoned(zones), .. } => {
            Walk::Stretches(Stretches::new(zones, size, unit))
        }
        Order::Random { distribution: Distribution::Sequence { blocks, stride }, .. } => {
            let step = if *stride { blocks.len() as u64 } else { 0 };
            Walk::Sequence { blocks: blocks.clone(), next: 0, base: 0, step, units }
        }
        Order::Random { .. } if is_free => Walk::Free,
        Order::Random { each_once: true, .. } if same_size => {
            Walk::Permuted { order: Permutation::new(units, seed), index: 0, units, seed }
        }
        Order::Random { each_once: true, .. } if differs => {
            Walk::Apart(Box::new(mins.map(|min| (Map::new(size / u64::from(min)), min))))
        }
        Order::Random { each_once: true, .. } => Walk::Mapped(Map::new(units)),
        Order::Random { .. } => Walk::Free,
    }
}

impl Pattern {
    /// The sequence of `workload` over the `size` bytes at `offset`, which must hold at least one
    /// of its longest requests, on a device that ends at `end`.
    pub fn new(workload: &Workload, (offset, size): (u64, u64), end: u64) -> Self {
        let widest = workload.align.into_iter().flatten().max();
        let unit = workload.block_min().max(widest.unwrap_or(0));
        let longest = workload.sizes_used().map(BlockSize::min).max().unwrap_or(0);
        let least = longest.max(unit);
        let zones = workload
            .strides
            .map(|strides| Box::new(Zones::new(strides, (offset, size), (end, least))));
        let size = zones.as_ref().map_or(size, |zones| zones.range());
        let units = size / u64::from(unit);
        let aligns = core::array::from_fn(|index| {
            workload.align[index].unwrap_or(workload.block_size[index].min())
        });
        let mins = Direction::ALL.map(|direction| match workload.mix.uses(direction) {
            true => workload.block_size[direction.index()].min(),
            // It has no requests.
            false => longest,
        });
        let run = match workload.order {
            Order::Random { run, .. } => run.max(1),
            Order::Sequential { .. } => 1,
        };
        let seed = mix(workload.seed);
        let walk = walk(workload, (size, unit), mins, seed);
        // What is drawn for a direction fits behind its own positions, and a sequence ends with
        // what is left.
        let is_whole = zones.is_none() && matches!(walk, Walk::Free);
        let is_whole = is_whole || matches!(walk, Walk::Sequential { .. });
        Self {
            mix: workload.mix,
            sizes: core::array::from_fn(|i| Sizes::new(&workload.block_size[i])),
            random: Random::new(seed),
            offset,
            size: if is_whole { size } else { units * u64::from(unit) },
            unit,
            mins,
            aligns,
            walk,
            run: Run { length: run, left: 0, position: 0 },
            trimmed: None,
            zones,
            seed,
            passes: u32::MAX,
        }
    }

    /// A sequence ends after so many passes: with a request of no bytes. As in fio a pass is over
    /// when one of its directions is at the end, where not even its shortest request fits, and
    /// then, with gaps, all of them begin anew.
    pub fn end_after(&mut self, passes: u32) {
        self.passes = passes;
    }

    /// The next request.
    #[inline]
    pub fn step(&mut self) -> Step {
        self.step_or(|drawn| drawn)
    }

    /// The next request; of reads and writes in turn `choose` may change the drawn direction.
    #[inline]
    pub fn step_or(&mut self, choose: impl FnOnce(Direction) -> Direction) -> Step {
        let direction = match self.mix {
            Mix::Only(direction) => direction,
            Mix::ReadWrite { read_percent } => {
                let read = self.random.below(100) < u64::from(read_percent);
                choose(if read { Direction::Read } else { Direction::Write })
            }
            Mix::TrimWrite => match self.trimmed.take() {
                Some(trim) => return Step { direction: Direction::Write, ..trim },
                None => Direction::Trim,
            },
        };
        let wanted = self.sizes[direction.index()].pick(&mut self.random);
        let (offset, length) = match self.zones {
            None => {
                let (place, length) = self.place(direction, wanted);
                (self.offset + place, length)
            }
            Some(_) => self.place_in_zone(direction, wanted),
        };
        let step = Step { direction, offset, length };
        if self.mix == Mix::TrimWrite {
            self.trimmed = Some(step);
        }
        step
    }

    /// The position of the next request of up to `wanted` bytes, and its possible length.
    #[inline]
    fn place(&mut self, direction: Direction, wanted: u32) -> (u64, u32) {
        let unit = u64::from(self.unit);
        let place = match &mut self.walk {
            Walk::Sequential { gap, position, steps } => {
                let step = steps[direction.index()];
                if self.size.saturating_sub(position[direction.index()]) < step {
                    if self.passes != u32::MAX {
                        self.passes -= 1;
                        if self.passes == 0 {
                            return (0, 0);
                        }
                    }
                    if *gap > 0 {
                        *position = [0; 3];
                    }
                    position[direction.index()] = 0;
                }
                let position = &mut position[direction.index()];
                let place = *position;
                let left = self.size - place;
                let length = u64::from(wanted).min(left - left % step);
                *position = advance(place, length, *gap, self.size);
                return (place, length as u32);
            }
            Walk::Permuted { order, index, units, seed } => {
                if *index == *units {
                    *seed = mix(seed.wrapping_add(1));
                    *order = Permutation::new(*units, *seed);
                    *index = 0;
                }
                *index += 1;
                order.at(*index - 1) * unit
            }
            Walk::Mapped(map) => {
                let start = self.random.below(map.units());
                let (first, count) = map.take(start, u64::from(wanted.div_ceil(self.unit)));
                return (first * unit, wanted.min((count * unit) as u32));
            }
            Walk::Apart(maps) => {
                let (map, min) = &mut maps[direction.index()];
                let start = self.random.below(map.units());
                let (first, count) = map.take(start, u64::from(wanted.div_ceil(*min)));
                let min = u64::from(*min);
                return (first * min, wanted.min((count * min) as u32));
            }
            Walk::Free => return self.free_place(direction, wanted),
            Walk::Zipf { zipf, scatter } => scatter.at(zipf.sample(&mut self.random)) * unit,
            Walk::Pareto { pareto, scatter } => scatter.at(pareto.sample(&mut self.random)) * unit,
            Walk::Bell { bell, scatter } => scatter.at(bell.sample(&mut self.random)) * unit,
            Walk::Stretches(stretches) => stretches.pick(direction, &mut self.random) * unit,
            Walk::Sequence { blocks, next, base, step, units } => {
                let block = (blocks[*next] + *base) % *units;
                *next += 1;
                if *next == blocks.len() {
                    *next = 0;
                    *base = (*base + *step) % *units;
                }
                block * unit
            }
        };
        self.fit(direction, place, wanted)
    }

    /// Up to `wanted` bytes at `place`, as far as there are so many: as in fio a request is shorter
    /// in steps of the shortest of its direction, and nearer if that does not fit either.
    fn fit(&self, direction: Direction, place: u64, wanted: u32) -> (u64, u32) {
        let left = self.size - place;
        if u64::from(wanted) <= left {
            return (place, wanted);
        }
        let min = u64::from(self.mins[direction.index()]);
        if left >= min {
            return (place, (left - left % min) as u32);
        }
        let last = self.size.saturating_sub(min);
        (last - last % u64::from(self.unit), min as u32)
    }

    /// The same with strides, as an offset on the device.
    fn place_in_zone(&mut self, direction: Direction, wanted: u32) -> (u64, u32) {
        let Some(mut zones) = self.zones.take() else { return (0, 0) };
        if zones.moves() {
            self.begin_zone(zones.range());
        }
        let (place, length) = match &mut self.walk {
            Walk::Sequential { gap, position, .. } => {
                // As in fio what begins in the zone is not cut short at its end, and a zone
                // that is shorter than what is transferred in it begins anew.
                if zones.is_round() {
                    *position = [0; 3];
                }
                let place = Some(position[direction.index()]).filter(|&at| at < zones.range());
                let mut place = place.unwrap_or(0);
                if !zones.holds(place, wanted) {
                    zones.rewind();
                    (*position, place) = ([0; 3], 0);
                }
                position[direction.index()] = advance(place, wanted.into(), *gap, zones.range());
                (place, wanted)
            }
            _ => self.place(direction, wanted),
        };
        zones.count(length);
        let offset = zones.at() + place;
        self.zones = Some(zones);
        (offset, length)
    }

    /// Begins with a zone of `range` bytes: what was visited in another does not count.
    fn begin_zone(&mut self, range: u64) {
        let all = range / u64::from(self.unit);
        let is_other = self.size != all * u64::from(self.unit);
        match &mut self.walk {
            Walk::Sequential { position, .. } => {
                *position = [0; 3];
                return;
            }
            Walk::Permuted { order, index, units, seed } => {
                *seed = mix(seed.wrapping_add(1));
                (*order, *index, *units) = (Permutation::new(all, *seed), 0, all);
            }
            Walk::Mapped(map) => map.begin(all),
            Walk::Apart(maps) => {
                maps.iter_mut().for_each(|(map, min)| map.begin(range / u64::from(*min)));
            }
            Walk::Free => self.run.left = 0,
            Walk::Zipf { zipf, scatter } if is_other => {
                (*zipf, *scatter) = (zipf.over(all), Permutation::new(all, self.seed));
            }
            Walk::Pareto { pareto, scatter } if is_other => {
                (*pareto, *scatter) = (pareto.over(all), Permutation::new(all, self.seed));
            }
            Walk::Bell { bell, scatter } if is_other => {
                (*bell, *scatter) = (bell.over(all), Permutation::new(all, self.seed));
            }
            Walk::Stretches(stretches) => stretches.limit(all),
            Walk::Sequence { units, .. } => *units = all,
            Walk::Zipf { .. } | Walk::Pareto { .. } | Walk::Bell { .. } => {}
        }
        self.size = all * u64::from(self.unit);
    }

    /// A position drawn independently of earlier ones, or the continuation of a run.
    fn free_place(&mut self, direction: Direction, wanted: u32) -> (u64, u32) {
        if self.run.left == 0 || self.run.position >= self.size {
            let align = u64::from(self.aligns[direction.index()]);
            let places = self.size.saturating_sub(wanted.into()) / align + 1;
            self.run.position = self.random.below(places) * align;
            self.run.left = self.run.length;
        }
        let (place, length) = self.fit(direction, self.run.position, wanted);
        self.run.position = place + u64::from(length);
        self.run.left -= 1;
        (place, length)
    }
}

/// The sequential position after `length` bytes at `place`, wrapped into the region.
fn advance(place: u64, length: u64, gap: i64, size: u64) -> u64 {
    let end = place + length;
    if gap == 0 {
        return end;
    }
    let next = i128::from(end) + i128::from(gap);
    if next < 0 { size.saturating_sub(length) } else { next.min(i128::from(size)) as u64 }
}

#[cfg(test)]
mod tests;
