use super::*;
use crate::workload::{Fill, Stretch, StretchSize, Strides};

const RANDOM: Order =
    Order::Random { each_once: true, distribution: Distribution::Uniform, run: 1 };

fn workload(mix: Mix, order: Order, block_size: BlockSize) -> Workload {
    let block_size = [block_size.clone(), block_size.clone(), block_size];
    Workload { mix, order, block_size, fill: Fill::Zero, ..Workload::default() }
}

fn steps(workload: &Workload, offset: u64, size: u64, count: usize) -> Vec<Step> {
    let mut pattern = Pattern::new(workload, (offset, size), offset + size);
    (0..count).map(|_| pattern.step()).collect()
}

#[test]
fn sequential_goes_through_the_region_and_starts_over() {
    let order = Order::Sequential { gap: 0 };
    let job = workload(Mix::Only(Direction::Read), order, BlockSize::Fixed(4096));
    let offsets: Vec<u64> = steps(&job, 8192, 12_288, 4).iter().map(|s| s.offset).collect();
    assert_eq!(offsets, [8192, 12_288, 16_384, 8192]);
}

#[test]
fn sequential_skips_its_gap_forwards_and_backwards() {
    let order = Order::Sequential { gap: 4096 };
    let job = workload(Mix::Only(Direction::Read), order, BlockSize::Fixed(4096));
    let offsets: Vec<u64> = steps(&job, 0, 16_384, 3).iter().map(|s| s.offset).collect();
    assert_eq!(offsets, [0, 8192, 0]);
    let order = Order::Sequential { gap: -8192 };
    let job = workload(Mix::Only(Direction::Read), order, BlockSize::Fixed(4096));
    let offsets: Vec<u64> = steps(&job, 0, 16_384, 5).iter().map(|s| s.offset).collect();
    assert_eq!(offsets, [0, 12_288, 8192, 4096, 0]);
}

#[test]
fn mixed_sequential_keeps_a_position_per_direction() {
    let mix = Mix::ReadWrite { read_percent: 50 };
    let job = workload(mix, Order::Sequential { gap: 0 }, BlockSize::Fixed(512));
    let mut expected = [0u64; 3];
    for step in steps(&job, 0, 1 << 20, 1000) {
        let expected = &mut expected[step.direction.index()];
        assert_eq!(step.offset, *expected);
        *expected += 512;
    }
    assert!((400..600).contains(&(expected[0] / 512)), "{expected:?}");
}

/// Every pass covers each byte of the region exactly once, whatever the sizes.
#[test]
fn random_with_map_covers_each_block_once_per_pass() {
    let sizes = [
        BlockSize::Fixed(4096),
        BlockSize::Range { min: 4096, max: 65_536 },
        BlockSize::Split(vec![(4096, 60), (12_288, 30), (131_072, 10)]),
    ];
    for size in sizes {
        for region in [1u64 << 20, 67 * 4096, 131_072] {
            let job = workload(Mix::Only(Direction::Write), RANDOM, size.clone());
            let mut pattern = Pattern::new(&job, (0, region), region);
            for pass in 0..3 {
                let mut seen = vec![false; (region / 4096) as usize];
                let mut covered = 0;
                while covered < region {
                    let step = pattern.step();
                    for block in (step.offset..step.offset + u64::from(step.length)).step_by(4096) {
                        let twice = core::mem::replace(&mut seen[(block / 4096) as usize], true);
                        assert!(!twice, "block {block} twice in pass {pass}, {size:?}");
                    }
                    covered += u64::from(step.length);
                }
                assert_eq!(covered, region);
            }
        }
    }
}

#[test]
fn free_random_repeats_blocks_and_runs_follow_each_other() {
    let order = Order::Random { each_once: false, distribution: Distribution::Uniform, run: 4 };
    let job = workload(Mix::Only(Direction::Read), order, BlockSize::Fixed(4096));
    let all = steps(&job, 0, 1 << 30, 4000);
    let follows = all.windows(2).filter(|w| w[1].offset == w[0].offset + 4096).count();
    assert!((2990..=3010).contains(&follows), "{follows}");
}

#[test]
fn split_and_range_keep_their_shares() {
    let split = BlockSize::Split(vec![(4096, 75), (65_536, 25)]);
    let job = workload(Mix::Only(Direction::Read), Order::Sequential { gap: 0 }, split);
    let long = steps(&job, 0, 1 << 40, 10_000).iter().filter(|s| s.length == 65_536).count();
    assert!((2_300..2_700).contains(&long), "{long}");
    let range = BlockSize::Range { min: 4096, max: 16_384 };
    let job = workload(Mix::Only(Direction::Read), Order::Sequential { gap: 0 }, range);
    for bytes in [4096, 8192, 12_288, 16_384] {
        let n = steps(&job, 0, 1 << 40, 8_000).iter().filter(|s| s.length == bytes).count();
        assert!((1_800..2_200).contains(&n), "{n} of {bytes}");
    }
}

#[test]
fn trimwrite_writes_what_it_trimmed() {
    let job = workload(Mix::TrimWrite, RANDOM, BlockSize::Fixed(4096));
    for pair in steps(&job, 0, 1 << 20, 200).chunks(2) {
        assert_eq!((pair[0].direction, pair[1].direction), (Direction::Trim, Direction::Write));
        assert_eq!(pair[0].offset, pair[1].offset);
    }
}

/// The most popular tenth of the blocks gets the share predicted by theory.
#[test]
fn zipf_pareto_and_normal_have_their_shape() {
    let share = |distribution| {
        let order = Order::Random { each_once: false, distribution, run: 1 };
        let job = workload(Mix::Only(Direction::Read), order, BlockSize::Fixed(4096));
        let mut hits = vec![0u32; 1000];
        steps(&job, 0, 4096 * 1000, 200_000)
            .iter()
            .for_each(|s| hits[(s.offset / 4096) as usize] += 1);
        hits.sort_unstable_by(|a, b| b.cmp(a));
        f64::from(hits[..100].iter().sum::<u32>()) / 200_000.0
    };
    for theta in [0.6, 1.0, 1.2] {
        let weight =
            |from: u32, to: u32| (from..=to).map(|k| f64::from(k).powf(-theta)).sum::<f64>();
        let expected = weight(1, 100) / weight(1, 1000);
        let seen = share(Distribution::Zipf(theta));
        assert!((seen - expected).abs() < 0.02, "zipf {theta}: {seen}, expected {expected}");
    }
    let seen = share(Distribution::Pareto(0.1));
    assert!((seen - 0.9).abs() < 0.02, "pareto: {seen}");
    // The mean of twelve even numbers has a standard deviation of a twelfth of their range.
    let seen = share(Distribution::Normal(0.0));
    assert!((seen - 0.4515).abs() < 0.02, "normal: {seen}");
    let seen = share(Distribution::Normal(50.0));
    // Moved by up to a quarter of the range: the curve is as flat as that stretch is wide.
    assert!((0.19..0.22).contains(&seen), "normal, wider: {seen}");
}

fn random(distribution: Distribution) -> Workload {
    let order = Order::Random { each_once: false, distribution, run: 1 };
    workload(Mix::Only(Direction::Read), order, BlockSize::Fixed(4096))
}

#[test]
fn stretches_get_their_shares() {
    let stretch = |share, size| Stretch { share, size: StretchSize::Percent(size) };
    let list = vec![stretch(50, 5), stretch(30, 15), stretch(20, 80)];
    let job = random(Distribution::Zoned([list.clone(), list.clone(), list]));
    let mut counts = [0_u32; 3];
    for step in steps(&job, 1 << 20, 4096 * 1000, 100_000) {
        let block = (step.offset - (1 << 20)) / 4096;
        counts[if block < 50 {
            0
        } else if block < 200 {
            1
        } else {
            2
        }] += 1;
    }
    for (count, expected) in counts.into_iter().zip([50_000, 30_000, 20_000_u32]) {
        assert!(count.abs_diff(expected) < 700, "{counts:?}");
    }
    // Absolute sizes: what is beyond the region is its end.
    let bytes = |share, size| Stretch { share, size: StretchSize::Bytes(size) };
    let list = vec![bytes(90, 8192), bytes(10, 1 << 40)];
    let job = random(Distribution::Zoned([list.clone(), list.clone(), list]));
    let few = steps(&job, 0, 4096 * 100, 10_000).iter().filter(|s| s.offset < 8192).count();
    assert!((8_800..9_200).contains(&few), "{few}");
}

#[test]
fn sequences_repeat_or_move_on() {
    let blocks = |stride| {
        let job = random(Distribution::Sequence { blocks: vec![2, 0, 1], stride });
        let steps = steps(&job, 0, 4096 * 7, 9);
        steps.iter().map(|step| step.offset / 4096).collect::<Vec<_>>()
    };
    assert_eq!(blocks(false), [2, 0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(blocks(true), [2, 0, 1, 5, 3, 4, 1, 6, 0]);
}

#[test]
fn strides_leave_gaps() {
    let strides = Some(Strides { size: 8192, range: 16_384, skip: 32_768 });
    let read =
        workload(Mix::Only(Direction::Read), Order::Sequential { gap: 0 }, BlockSize::Fixed(4096));
    let job = Workload { strides, ..read };
    let seen: Vec<u64> = steps(&job, 4096, 100_000, 7).iter().map(|step| step.offset).collect();
    let (second, third) = (4096 + 49_152, 4096);
    assert_eq!(seen, [4096, 8192, second, second + 4096, third, 8192, second]);
    // At random: within the zone.
    let job = Workload { strides, ..random(Distribution::Uniform) };
    for pair in steps(&job, 0, 200_000, 100).chunks(4) {
        let zones: Vec<u64> = pair.iter().map(|step| step.offset / 49_152).collect();
        assert!(zones[0] == zones[1] && zones[2] == zones[3] && zones[1] != zones[2], "{zones:?}");
    }
}

/// Whatever the order, requests have lengths of their own direction; each block of each direction
/// comes once in a pass of it.
#[test]
fn mixed_directions_keep_their_own_sizes() {
    let mix = Mix::ReadWrite { read_percent: 50 };
    let free = Order::Random { each_once: false, distribution: Distribution::Uniform, run: 3 };
    let zipf = Order::Random { each_once: true, distribution: Distribution::Zipf(1.2), run: 1 };
    for order in [RANDOM, free, zipf, Order::Sequential { gap: 0 }] {
        let mut job = workload(mix, order.clone(), BlockSize::Fixed(4096));
        job.block_size[1] = BlockSize::Fixed(65_536);
        let mut seen = [vec![], vec![]];
        // 16 blocks of writes, and some more.
        for step in steps(&job, 0, 16 * 65_536 + 8192, 30) {
            let index = step.direction.index();
            assert_eq!(step.length, [4096, 65_536][index], "{order:?}");
            assert!(step.offset + u64::from(step.length) <= 16 * 65_536 + 8192);
            seen[index].push(step.offset);
        }
        if order == RANDOM {
            seen[1].truncate(16);
            seen[1].sort_unstable();
            assert!(seen[1].windows(2).all(|pair| pair[0] < pair[1]));
        }
        job.block_size[0] = BlockSize::Range { min: 1024, max: 4096 };
        job.block_size[1] = BlockSize::Range { min: 8192, max: 16_384 };
        for step in steps(&job, 0, 67 * 1024, 500) {
            let min = [1024, 8192][step.direction.index()];
            assert!(step.length >= min && step.length % min == 0, "{step:?} {order:?}");
            assert!(step.offset + u64::from(step.length) <= 67 * 1024, "{step:?} {order:?}");
        }
    }
}

/// As in fio any alignment other than that of the blocks excludes the map.
#[test]
fn an_alignment_of_its_own_lets_blocks_repeat() {
    for align in [4096, 16_384] {
        let job = workload(Mix::Only(Direction::Read), RANDOM, BlockSize::Fixed(8192));
        let job = Workload { align: [Some(align); 3], ..job };
        let offsets: Vec<u64> = steps(&job, 0, 1 << 18, 200).iter().map(|it| it.offset).collect();
        assert!(offsets.iter().all(|offset| offset % u64::from(align) == 0));
        let odd = offsets.iter().any(|offset| offset % 8192 != 0);
        assert_eq!(odd, align < 8192);
        let mut first: Vec<u64> = offsets[..32].to_vec();
        first.sort_unstable();
        first.dedup();
        assert!(first.len() < 32, "none repeats");
    }
    let job = workload(Mix::Only(Direction::Read), RANDOM, BlockSize::Fixed(8192));
    let same = Workload { align: [Some(8192); 3], ..job.clone() };
    assert_eq!(steps(&job, 0, 1 << 18, 32), steps(&same, 0, 1 << 18, 32));
}

/// The device ends within the last zone, and the region is only how much is transferred.
#[test]
fn strides_go_to_the_end_of_the_device() {
    let strides = Some(Strides { size: 8192, range: 16_384, skip: 4096 });
    let distributions =
        [
            Distribution::Uniform,
            Distribution::Zipf(1.2),
            Distribution::Pareto(0.2),
            Distribution::Normal(10.0),
            Distribution::Zoned([const { Vec::new() }; 3].map(|_: Vec<Stretch>| {
                vec![Stretch { share: 100, size: StretchSize::Percent(100) }]
            })),
            Distribution::Sequence { blocks: vec![3, 0, 1, 2], stride: false },
        ];
    let orders = distributions.into_iter().flat_map(|distribution| {
        let once = matches!(distribution, Distribution::Uniform);
        [once, false].map(|each_once| Order::Random {
            each_once,
            distribution: distribution.clone(),
            run: 1,
        })
    });
    for order in orders.chain([Order::Sequential { gap: 0 }]) {
        for size in [BlockSize::Fixed(4096), BlockSize::Range { min: 2048, max: 4096 }] {
            let job = workload(Mix::Only(Direction::Read), order.clone(), size);
            let job = Workload { strides, ..job };
            // Zones at 0, 20480 and 40960; of the last one 6144 bytes are there.
            let mut pattern = Pattern::new(&job, (0, 30_000), 40_960 + 6144);
            let mut zones = [0; 3];
            for _ in 0..600 {
                let step = pattern.step();
                let (zone, place) = (step.offset / 20_480, step.offset % 20_480);
                zones[zone as usize] += step.length;
                assert!(place < 16_384, "{step:?} between zones: {job:?}");
                let end = step.offset + u64::from(step.length);
                assert!(end <= 40_960 + 6144, "{step:?} behind the end: {job:?}");
            }
            assert!(zones.iter().all(|&bytes| bytes > 100_000), "{zones:?} {job:?}");
        }
    }
}

/// A zone shorter than what is transferred in it is gone through again, each block once.
#[test]
fn strides_visit_each_block_of_a_zone_once() {
    let strides = Some(Strides { size: 24_576, range: 16_384, skip: 0 });
    let job = workload(Mix::Only(Direction::Read), RANDOM, BlockSize::Fixed(4096));
    let job = Workload { strides, ..job };
    let mut pattern = Pattern::new(&job, (0, 1 << 20), 1 << 20);
    for zone in 0..64 {
        let mut seen: Vec<u64> = (0..6).map(|_| pattern.step().offset).collect();
        assert!(seen.iter().all(|offset| offset / 16_384 == zone), "{zone}: {seen:?}");
        seen[..4].sort_unstable();
        assert!(seen[..4].windows(2).all(|pair| pair[0] < pair[1]), "{zone}: {seen:?}");
    }
}

#[test]
fn seeds_make_the_sequence() {
    let job = workload(Mix::Only(Direction::Read), RANDOM, BlockSize::Fixed(4096));
    let other = Workload { seed: 5, ..job.clone() };
    assert_eq!(steps(&job, 0, 1 << 24, 50), steps(&job, 0, 1 << 24, 50));
    assert_ne!(steps(&job, 0, 1 << 24, 50), steps(&other, 0, 1 << 24, 50));
}
