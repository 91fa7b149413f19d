use super::*;
use crate::results::{Areas, Latency, Percentile};

fn latency(mean: f64) -> Latency {
    let percentiles = [(50.0, 90_000), (99.0, 150_000), (99.9, 1_200_000)];
    let percentiles = percentiles.map(|(percent, nanos)| Percentile { percent, nanos });
    Latency { count: 10, mean, percentiles: percentiles.into(), ..Latency::default() }
}

fn job(name: &str, depth: u32) -> JobResults {
    let is_random = name.contains("rand");
    let direction = DirectionResults {
        iops: 1e5,
        bandwidth: 1e9,
        lat: latency(100_000.0),
        areas: Areas {
            file_system: None,
            submission: latency(300.0),
            device: latency(99_000.0),
            completion: latency(700.0),
            software_percent: 1.0,
        },
        ..DirectionResults::default()
    };
    JobResults {
        name: name.into(),
        rw: if is_random { "randread" } else { "read" }.into(),
        block_bytes: if is_random { 4096 } else { 128 << 10 },
        iodepth: depth,
        read: Some(direction),
        ..JobResults::default()
    }
}

/// Targets called `ufs...` are the model of the Galaxy Book S.
fn results(targets: &[&str], jobs: &[JobResults]) -> Results {
    let target = |name: &&str| TargetResults {
        target: name.to_string(),
        origin: name.starts_with("ufs").then_some(Origin::GalaxyBookS),
        jobs: jobs.to_vec(),
        ..TargetResults::default()
    };
    Results { targets: targets.iter().map(target).collect(), ..Results::default() }
}

fn page(targets: &[&str], jobs: &[JobResults]) -> String {
    render(&results(targets, jobs), "flysch bench --on 'a&b'")
}

#[test]
fn each_job_and_target_gets_its_charts() {
    let jobs: Vec<JobResults> =
        [1, 2, 4].iter().flat_map(|d| [job("seq_read", *d), job("rand_read", *d)]).collect();
    let page = page(&["ufs", "ufs,mcq=2"], &jobs);
    for (kind, count) in [("throughput", 2), ("latency", 4), ("areas", 4), ("software", 4)] {
        assert_eq!(page.matches(&format!("class=\"chart\" id=\"{kind}-")).count(), count, "{kind}");
    }
    assert_eq!(page.matches("<caption>").count(), 2);
    assert!(page.contains("Software: 1.00 % of the time at depth 1, 1.00 % at depth 4."));
}

#[test]
fn published_figures_stand_beside_ours_with_the_difference() {
    let known = page(&["ufs"], &[job("rand_read", 32)]);
    assert!(known.contains("series published-a") && known.contains("series published-b"));
    assert!(known.contains("114.2 (-12.4 %)"), "100 thousand against 114.2 thousand");
    let mut other = job("rand_read", 32);
    other.block_bytes = 8192;
    assert!(!page(&["ufs"], &[other]).contains("series published-a"));
}

#[test]
fn what_was_published_stands_only_beside_the_device_it_is_of() {
    let jobs = [job("rand_read", 32)];
    // The style of such lines is in every page.
    let speaks = |page: &str| {
        ["published figures", ", published", "series published"]
            .iter()
            .any(|words| page.contains(words))
    };
    let without = page(&["null"], &jobs);
    assert!(!speaks(&without) && without.contains("Measured here."), "{without}");
    let both = page(&["null", "ufs"], &jobs);
    assert!(both.contains("Dashed: published figures") && both.contains("series published-a"));
    let rows: Vec<&str> = both.lines().filter(|line| line.contains("<td>32</td>")).collect();
    let [null, ufs] = rows[..] else { panic!("{rows:?}") };
    assert!(null.ends_with("<td>-</td><td>-</td></tr>"), "{null}");
    assert!(ufs.contains("114.2 (-12.4 %)"), "{ufs}");
    // The board's figures are of its own runs of 1 MiB.
    let mut large = job("seq_read", 1);
    large.block_bytes = 1 << 20;
    let mut results = results(&["board"], &[large]);
    results.targets[0].origin = Some(Origin::Ok3576);
    assert!(render(&results, "").contains("OK3576-C, published"));
    results.targets[0].origin = Some(Origin::GalaxyBookS);
    assert!(!speaks(&render(&results, "")));
}

#[test]
fn each_direction_of_a_mixed_job_is_told_apart() {
    let mut mixed = job("mixed_rand", 4);
    mixed.write = mixed.read.clone();
    let page = page(&["ufs"], &[mixed]);
    assert!(page.contains("mixed_rand read ·") && page.contains("mixed_rand write ·"));
}

#[test]
fn page_is_self_contained_and_escaped() {
    let page = page(&["<script>"], &[job("rand<i>", 1)]);
    assert!(page.contains("rand&lt;i&gt;") && page.contains("a&amp;b"));
    assert!(!page.contains("<script") && !page.contains("<i>"));
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn equal_results_give_equal_pages_and_nothing_is_no_panic() {
    let jobs = [job("rand_read", 1)];
    assert_eq!(page(&["ufs"], &jobs), page(&["ufs"], &jobs));
    page(&[], &[]);
    page(&["ufs"], &[]);
    let mut odd = job("rand_read", 0);
    let read = DirectionResults { iops: f64::NAN, bandwidth: f64::INFINITY, ..Default::default() };
    odd.read = Some(read);
    page(&["ufs"], &[odd]);
}
