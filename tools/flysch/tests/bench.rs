//! `flysch bench` as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn flysch(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flysch"));
    command.arg("bench").args(arguments).output().unwrap()
}

fn good(arguments: &[&str]) -> String {
    let output = flysch(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend_from_slice(arguments);
    serde_json::from_str(&good(&all)).unwrap()
}

/// Status and the one line on standard error.
fn bad(arguments: &[&str]) -> (i32, String) {
    let output = flysch(arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() != Some(0), "{arguments:?} was taken");
    (output.status.code().unwrap(), errors)
}

fn data(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    path.display().to_string()
}

fn job_files() -> Vec<String> {
    let folder = std::fs::read_dir(data("")).unwrap();
    let mut files: Vec<String> =
        folder.map(|entry| data(entry.unwrap().file_name().to_str().unwrap())).collect();
    files.sort();
    assert_eq!(files.len(), 2);
    files
}

#[test]
fn the_articles_job_files_run_unchanged_and_shortened() {
    for file in job_files() {
        let results =
            json(&[&file, "--on", "ufs", "--runtime=20ms", "--time_based", "--clock=virtual"]);
        for job in results["jobs"].as_array().unwrap() {
            assert_eq!(job["error"], 0);
            let done = job["read"]["total_ios"].as_u64().unwrap()
                + job["write"]["total_ios"].as_u64().unwrap();
            assert!(done > 0, "{}", job["jobname"]);
            // The last requests of 1 MiB come in up to 30 ms after the time is up.
            let runtime = job["job_runtime"].as_u64().unwrap();
            assert!((20..60).contains(&runtime), "{}: {runtime} ms", job["jobname"]);
        }
        let ignored =
            String::from_utf8(flysch(&[&file, "--on=null", "--runtime=1ms"]).stderr).unwrap();
        for name in ["filename", "direct"] {
            assert_eq!(ignored.matches(&format!("option `{name}` has no meaning")).count(), 1);
        }
    }
}

#[test]
fn the_depth_table_has_its_cells_and_areas() {
    let text = good(&["--clock=virtual"]);
    let row = |depth: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(depth)).unwrap();
        let cells = line.split_whitespace().skip(1).take(4);
        cells.map(|cell| cell.parse().unwrap()).collect::<Vec<f64>>()
    };
    let (first, last) = (row("1"), row("32"));
    assert!(first.iter().zip(&last).all(|(a, b)| *a > 0.0 && *b > 0.0), "{text}");
    assert!(last[2] > 5.0 * first[2], "random reads do not scale with depth\n{text}");
    assert!(text.contains("rand write qd 32"), "{text}");
}

#[test]
fn everything_written_is_verified_on_model_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file:{},size=8M", folder.path().join("disk.img").display());
    for target in ["ufs", "ufs,mcq=2", &file] {
        // Three workers overwrite each other's blocks: each block counts once, for its last write.
        let options = ["--rw=randwrite", "--bs=4k", "--size=8m", "--iodepth=16", "--loops=2"];
        let mut all = vec!["--on", target, "--verify=crc32c", "--numjobs=3", "--group_reporting"];
        all.extend_from_slice(&options);
        let results = json(&all);
        let verify = &results["jobs"][0]["flysch"]["verify"];
        assert_eq!((&verify["bytes"], &verify["mismatches"]), (&(8 << 20).into(), &0.into()));
    }
}

#[test]
fn targets_are_compared_and_files_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (csv, report, trace) = (path("a.csv"), path("report"), path("tr"));
    let text = good(&[
        "--on=ufs",
        "--on=ufs,mcq=2",
        "--rw=randread",
        "--iodepth=8",
        "--number_ios=500",
        "--size=64m",
        "--csv",
        &csv,
        "--report",
        &report,
        "--trace",
        &trace,
    ]);
    assert!(text.contains("Side by side") && text.contains("(1.00x)"), "{text}");
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 3);
    assert!(std::fs::metadata(folder.path().join("report/index.html")).unwrap().len() > 1000);
    for name in ["tr.blktrace.0", "tr.perfetto-trace", "tr-2.blktrace.0", "tr-2.perfetto-trace"] {
        assert!(std::fs::metadata(path(name)).unwrap().len() > 500 * 48, "{name}");
    }
}

#[test]
fn wrong_use_is_one_clear_line_and_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("bad.fio");
    std::fs::write(&job, "[a]\nbs=4k\niodept=3\n").unwrap();
    let job = job.display().to_string();
    for (arguments, words) in [
        (vec![job.as_str()], "bad.fio:3: unknown option `iodept`; did you mean `iodepth`?"),
        (vec!["--rw=foo"], "option `rw`: `foo` is none of read, write"),
        (vec!["--on=floppy"], "floppy"),
        (vec!["--on=ufs,speed=9", "--rw=read"], "speed"),
        (vec!["/nonexistent.fio"], "/nonexistent.fio: No such file"),
        (vec!["--rw=read", "--size=1t"], "end beyond the device"),
        (vec!["--rw=read", "--bs=1000"], "not a multiple of the device's block size"),
        (vec!["--rw=read", "--exec_prerun=ls"], "jobs start no programs"),
    ] {
        let (status, errors) = bad(&arguments);
        assert_eq!(status, 2, "{arguments:?}: {errors}");
        assert!(errors.contains(words) && errors.trim_end().lines().count() == 1, "{errors}");
    }
}

#[test]
fn failures_are_one_clear_line_and_status_1() {
    let (status, errors) = bad(&["--on=file:/nonexistent/disk.img", "--rw=read"]);
    assert_eq!(status, 1);
    assert!(errors.contains("/nonexistent/disk.img: No such file"), "{errors}");
    let (status, errors) =
        bad(&["--on=null", "--rw=read", "--size=1m", "--csv=/nonexistent/a.csv"]);
    assert_eq!(status, 1, "{errors}");
    assert!(errors.contains("/nonexistent"), "{errors}");
}
