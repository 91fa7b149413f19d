use super::*;

fn sample(target: &str, job: &str, depth: u32) -> Sample {
    Sample {
        target: target.into(),
        job: job.into(),
        pattern: if job.contains("rand") { "randread" } else { "read" }.into(),
        block_size: if job.contains("rand") { 4096 } else { 128 << 10 },
        depth,
        bytes_per_second: 1e9,
        requests_per_second: 1e5,
        percentiles: [90_000, 150_000, 1_200_000],
        areas: [300.0, 99_000.0, 700.0],
    }
}

fn page(samples: &[Sample]) -> String {
    let heading = Heading {
        title: "Title <1>".into(),
        created: "2026-01-01".into(),
        command: "flysch bench --on 'a&b'".into(),
    };
    render(&heading, samples)
}

#[test]
fn each_job_and_target_gets_its_charts() {
    let mut samples = Vec::new();
    for target in ["ufs", "ufs,mcq=2"] {
        for job in ["seq-read", "rand-read"] {
            samples.extend([1, 2, 4].map(|depth| sample(target, job, depth)));
        }
    }
    let page = page(&samples);
    for (kind, count) in [("throughput", 2), ("latency", 4), ("areas", 4), ("software", 4)] {
        assert_eq!(page.matches(&format!("class=\"chart\" id=\"{kind}-")).count(), count, "{kind}");
    }
    assert_eq!(page.matches("<caption>").count(), 2);
    assert!(page.contains("Software: 1.00 % of the time at depth 1, 1.00 % at depth 4."));
}

#[test]
fn published_figures_stand_beside_ours_with_the_difference() {
    let page = page(&[sample("ufs", "rand-read", 32)]);
    assert!(page.contains("series published-a") && page.contains("series published-b"));
    assert!(page.contains("114.2 (-12.4 %)"), "100 thousand against 114.2 thousand");
    let mut other = sample("ufs", "rand-read", 32);
    other.block_size = 8192;
    assert!(!super::tests::page(&[other]).contains("series published-a"));
}

#[test]
fn page_is_self_contained_and_escaped() {
    let page = page(&[sample("<script>", "rand-read", 1)]);
    assert!(page.contains("Title &lt;1&gt;") && page.contains("a&amp;b"));
    assert!(!page.contains("<script"));
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn equal_results_give_equal_pages_and_nothing_is_no_panic() {
    let samples = [sample("ufs", "rand-read", 1)];
    assert_eq!(page(&samples), page(&samples));
    page(&[]);
    let mut odd = sample("ufs", "rand-read", 0);
    (odd.areas, odd.percentiles, odd.requests_per_second) = ([0.0; 3], [0; 3], f64::NAN);
    page(&[odd]);
}

#[test]
fn a_failed_write_leaves_nothing() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let heading = Heading::default();
    let path = write(&folder.path().join("a/b"), &heading, &[]).expect("written");
    assert!(path.is_file());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    let in_the_way = folder.path().join("file");
    std::fs::write(&in_the_way, "x").unwrap();
    let error = write(&in_the_way, &heading, &[]).unwrap_err();
    assert!(error.to_string().contains("file/index.html"), "{error}");
}
