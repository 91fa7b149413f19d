use super::*;
use crate::published::{Column, DEPTHS, Origin};
use crate::results::Percentile;

fn latency(mean: f64) -> Latency {
    let point = |percent: f64| Percentile { percent, nanos: (mean * percent / 50.0) as u64 };
    let percentiles = [50.0, 99.0, 99.9].map(point).to_vec();
    Latency { count: 10, min: 1, max: mean as u64 * 3, mean, stddev: 1.0, percentiles }
}

fn direction(iops: f64, block: u32) -> DirectionResults {
    let areas = Areas {
        file_system: None,
        submission: latency(350.0),
        device: latency(140_000.0),
        completion: latency(900.0),
        software_percent: 0.88,
    };
    let lat = latency(141_250.0);
    let bandwidth = iops * f64::from(block);
    DirectionResults {
        requests: 10,
        bytes: 10 << 20,
        iops,
        bandwidth,
        lat,
        areas,
        ..Default::default()
    }
}

fn job(name: &str, depth: u32, iops: f64) -> JobResults {
    let block = if name.starts_with("seq") { 131_072 } else { 4096 };
    let (rw, bs) = ("randread".to_string(), "4k".to_string());
    JobResults {
        name: name.to_string(),
        rw,
        bs,
        iodepth: depth,
        workers: 1,
        runtime_nanos: 2_345_000_000,
        read: Some(direction(iops, block)),
        ..Default::default()
    }
}

fn target(name: &str, jobs: Vec<JobResults>) -> TargetResults {
    let (description, clock) = ("a model".to_string(), "hybrid".to_string());
    TargetResults {
        target: name.to_string(),
        description,
        clock,
        block_size: 4096,
        bytes: 4 << 30,
        jobs,
        ..Default::default()
    }
}

fn depth_table(origin: Option<Origin>, is_bare: bool) -> String {
    let jobs = DEPTHS.iter().flat_map(|&depth| {
        Column::ALL.map(|column| job(column.job_name(), depth, f64::from(depth) * 1000.0))
    });
    let results = Results {
        is_table: true,
        targets: vec![TargetResults { origin, is_bare, ..target("ufs", jobs.collect()) }],
        ..Default::default()
    };
    render(&results)
}

#[test]
fn the_depth_table_has_every_cell_beside_what_was_published() {
    let text = depth_table(Some(Origin::GalaxyBookS), true);
    let row = "    32       4000       4000       32.0       32.0  \
               |   1361    556  114.2  106.6  |   1355    553  142.0  120.0";
    assert!(text.contains(row), "{text}");
    assert!(text.contains("rand read qd 32     350 ns   350 ns   693 ns   699 ns"), "{text}");
    // 32 in flight, 142 000 a second: 225 us each, of which the device took 140.
    let row = "rand read qd 32          140 us       1.25 us        140 us       85.4 us";
    assert!(text.contains(row), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 140 && !line.ends_with(' ')), "{text}");
}

#[test]
fn what_was_published_of_another_device_is_not_in_the_table() {
    for origin in [None, Some(Origin::Ok3576)] {
        let text = depth_table(origin, true);
        let row = "    32       4000       4000       32.0       32.0\n";
        assert!(text.contains(row), "{text}");
        for words in ["published", "FreeBSD", "Linux", "Whose time"] {
            assert!(!text.contains(words), "{words}: {text}");
        }
    }
    // With a published host in front the device is told, and nothing taken from its time.
    let text = depth_table(Some(Origin::GalaxyBookS), false);
    assert!(text.contains("published: Galaxy Book S") && !text.contains("Whose time"), "{text}");
}

#[test]
fn a_job_says_rate_areas_and_what_was_verified() {
    let mut job = job("a", 8, 114_200.0);
    let verified = crate::results::VerifyResults {
        method: "crc32c".into(),
        bytes: 1 << 30,
        checked: true,
        ..Default::default()
    };
    job.verified = Some(verified);
    let results = Results { targets: vec![target("ufs", vec![job])], ..Default::default() };
    let text = render(&results);
    for words in [
        "ufs: a model, 4 GiB in blocks of 4096 bytes, hybrid clock",
        "a: randread, 4k, queue depth 8\n",
        "read   114.2k IOPS   446.1 MiB/s (467.8 MB/s)   10 requests, 10 MiB in 2.345 s",
        "    device          140 us    140 us    277 us    280 us    420 us",
        "software 0.88 % of the time",
        "verify 1 GiB (1073741824 bytes) verified with crc32c, all as written",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains("Side by side"));
}

#[test]
fn asked_percentiles_failures_and_what_was_not_checked_are_told() {
    let told = |change: &dyn Fn(&mut JobResults)| {
        let mut job = job("a", 8, 1000.0);
        change(&mut job);
        render(&Results { targets: vec![target("ufs", vec![job])], ..Default::default() })
    };
    let text = told(&|job| {
        job.percentiles = vec![50.0, 99.99];
        let lat = &mut job.read.as_mut().unwrap().lat;
        lat.percentiles = vec![Percentile { percent: 99.99, nanos: 777_000 }];
    });
    assert!(text.contains("mean       p50    p99.99       max\n"), "{text}");
    let all = text.lines().find(|line| line.starts_with("    all ")).unwrap();
    let cells: Vec<&str> = all.split_whitespace().collect();
    assert_eq!(cells[..6], ["all", "141", "us", "-", "777", "us"], "{all}");
    let verified = |mismatches, checked| {
        told(&|job| {
            let method = "md5".to_string();
            let verified =
                crate::results::VerifyResults { method, mismatches, checked, ..Default::default() };
            job.verified = Some(verified);
            job.failures = mismatches;
        })
    };
    assert!(verified(1, true).contains("1 block is NOT AS WRITTEN"));
    assert!(verified(1, true).contains("failed 1 request; "));
    assert!(verified(2, true).contains("2 blocks are NOT AS WRITTEN"));
    assert!(verified(0, false).contains("nothing read back (do_verify=0)"));
}

#[test]
fn targets_stand_side_by_side_with_ratios() {
    let both = |iops| vec![job("a", 8, iops), job("b", 8, 1000.0)];
    let targets = vec![target("ufs", both(100_000.0)), target("ufs,mcq=4", both(125_000.0))];
    let text = render(&Results { targets, ..Default::default() });
    let row = text.lines().find(|line| line.starts_with("a read")).unwrap();
    assert!(row.contains("100.0k (1.00x)") && row.contains("125.0k (1.25x)"), "{text}");
}

#[test]
fn short_times_no_requests_and_long_lists_are_told() {
    let render = |job: JobResults| {
        let targets = vec![target("file", vec![job])];
        super::render(&Results { targets, ..Default::default() })
    };
    let mut short = job("short", 1, 1000.0);
    short.runtime_nanos = 312_000;
    let text = render(short);
    assert!(text.contains("10 MiB in 312 us"), "{text}");
    let idle = JobResults { name: "idle".to_string(), ..Default::default() };
    let text = render(idle);
    assert!(text.contains("  no I/O\n"), "{text}");
    let mut wrong = job("wrong", 1, 1000.0);
    let first = vec!["one".to_string(); 8];
    let verified = VerifyResults { checked: true, mismatches: 16, first, ..Default::default() };
    wrong.verified = Some(verified);
    let text = render(wrong);
    assert!(text.contains("         and 8 more, which are not listed\n"), "{text}");
}
