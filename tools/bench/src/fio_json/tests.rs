use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::*;
use crate::clock::RealClock;
use crate::jobfile::JobFile;
use crate::null::Null;
use crate::results::About;
use crate::runner::{Assignment, RunOptions, run};

const JOBS: &str = "\
[global]
ioengine=null
size=32m
bs=4k
iodepth=8
[reads]
rw=randread
[both]
stonewall
description=reads and writes
rw=randrw
fsync=32
";

fn ours() -> Value {
    of_jobs(JOBS)
}

fn of_jobs(jobs: &str) -> Value {
    let file = JobFile::parse(jobs, std::path::Path::new("test.fio"), &[]).unwrap();
    let mut target = TargetResults { target: "null".into(), ..TargetResults::default() };
    for (group, job) in file.jobs.iter().enumerate() {
        let mut lanes = [Null::new(1 << 30, 64, 1 << 20)];
        let workload = job.workers(1 << 30, 512).unwrap().remove(0);
        let assignment = [Assignment::new(workload, 0)];
        let outcome =
            run(&mut lanes, &RealClock::new(), &assignment, RunOptions::default()).unwrap();
        let about = About {
            group: group as u32,
            options: job.options.clone(),
            description: job.settings.description.clone(),
            ..About::default()
        };
        let workers: Vec<_> = outcome.workers.iter().collect();
        target.jobs.push(JobResults::of(&assignment[0].workload, &workers, about));
    }
    let results = Results { targets: vec![target], version: "1".into(), ..Results::default() };
    let text = serde_json::to_string_pretty(&Document::new(&results, &file.global)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Every path of keys in `value`; elements of lists share one path.
fn paths(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}/{key}");
                all.insert(path.clone());
                paths(value, &path, all);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| paths(value, path, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_keys_are_fios_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.fio");
    std::fs::write(&path, JOBS).unwrap();
    let Ok(fio) = Command::new("fio").arg("--output-format=json").arg(&path).output() else {
        eprintln!("skipped: fio is not installed");
        return;
    };
    let theirs: Value = serde_json::from_slice(&fio.stdout).unwrap();
    let ours = ours();
    let (mut our_paths, mut their_paths) = (BTreeSet::new(), BTreeSet::new());
    paths(&ours, "", &mut our_paths);
    paths(&theirs, "", &mut their_paths);
    our_paths.retain(|path| !path.contains("/flysch"));
    // fio lists the devices below its files.
    their_paths.retain(|path| !path.starts_with("/disk_util"));
    let apart: Vec<_> = our_paths.symmetric_difference(&their_paths).collect();
    assert!(apart.is_empty(), "only in one of the two: {apart:?}");
    let kinds = |value: &Value| match value {
        Value::Number(_) => "number",
        Value::String(_) => "text",
        _ => "other",
    };
    for (mine, their) in
        ours["jobs"].as_array().unwrap().iter().zip(theirs["jobs"].as_array().unwrap())
    {
        for (key, value) in their.as_object().unwrap() {
            assert_eq!(kinds(&mine[key]), kinds(value), "{key}");
        }
        for direction in ["read", "write"] {
            // Both did all of their work, and the mixed job did it in the same proportions.
            let (a, b) = (&mine[direction]["total_ios"], &their[direction]["total_ios"]);
            let (a, b) = (a.as_u64().unwrap(), b.as_u64().unwrap());
            assert!(a.abs_diff(b) <= b / 20, "{direction}: {a} here, {b} there");
        }
        assert_eq!(mine["job options"], their["job options"]);
    }
    assert_eq!(ours["global options"], theirs["global options"]);
}

/// The results of a steady state and a latency target have fio's keys, too.
#[test]
fn ends_are_told_as_fio_tells_them() {
    const JOB: &str = "[a]\nioengine=null\nrw=randread\nsize=64m\nbs=4k\ntime_based\nruntime=10\n";
    let folder = tempfile::tempdir().unwrap();
    for (options, key) in [
        ("ss=iops:90%\nss_dur=2\nrate_iops=1000\n", "steadystate"),
        ("ss=bw_slope:90%\nss_dur=2\nrate_iops=1000\n", "steadystate"),
        ("latency_target=1s\nlatency_window=50ms\niodepth=8\n", "latency_target"),
    ] {
        let text = format!("{JOB}{options}");
        let path = folder.path().join("jobs.fio");
        std::fs::write(&path, &text).unwrap();
        let Ok(fio) = Command::new("fio").arg("--output-format=json").arg(&path).output() else {
            eprintln!("skipped: fio is not installed");
            return;
        };
        let theirs: Value = serde_json::from_slice(&fio.stdout).unwrap();
        let (ours, theirs) = (of_jobs(&text)["jobs"][0].clone(), theirs["jobs"][0].clone());
        let shape = |value: &Value| {
            let mut all = BTreeSet::new();
            paths(&value[key], "", &mut all);
            all
        };
        assert_eq!(shape(&ours), shape(&theirs), "{options}");
        for key in ["latency_target", "latency_window", "latency_percentile", "latency_depth"] {
            assert_eq!(ours[key].as_f64(), theirs[key].as_f64(), "{options}: {key}");
        }
        for key in ["ss", "duration", "attained"] {
            let (ours, theirs) = (&ours["steadystate"][key], &theirs["steadystate"][key]);
            assert_eq!(ours, theirs, "{options}: {key}");
        }
    }
}

#[test]
fn our_own_figures_are_in_their_own_object() {
    let ours = ours();
    let areas = &ours["jobs"][0]["flysch"]["areas"]["read"];
    for area in ["submission_ns", "device_ns", "completion_ns"] {
        assert_eq!(areas[area]["N"], 8192);
        assert!(areas[area]["percentile"]["99.900000"].is_u64());
    }
    let parts: f64 = ["submission_ns", "device_ns", "completion_ns"]
        .iter()
        .map(|area| areas[area]["mean"].as_f64().unwrap())
        .sum();
    let total = ours["jobs"][0]["read"]["lat_ns"]["mean"].as_f64().unwrap();
    assert!((parts / total - 1.0).abs() < 1e-6);
    let shares: f64 = ["latency_ns", "latency_us", "latency_ms"]
        .iter()
        .flat_map(|class| ours["jobs"][0][class].as_object().unwrap().values())
        .map(|share| share.as_f64().unwrap())
        .sum();
    assert!((shares - 100.0).abs() < 0.01, "{shares}");
}
