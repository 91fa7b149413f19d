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

/// A file of 64 KiB with stamped blocks, two bits of which are flipped: in bytes 9000 and 30000.
fn with_flipped_bits(folder: &Path) -> String {
    let path = folder.join("disk").display().to_string();
    let target = format!("--on=file:{path},size=64k");
    good(&[&target, "--rw=write", "--verify=crc32c"]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9000] ^= 0x10;
    bytes[30000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_flipped_bit_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let target = format!("--on=file:{}", with_flipped_bits(folder.path()));
    let output = flysch(&[&target, "--rw=read", "--verify=crc32c"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let words = "verify of the block at offset 8192: 1 bit is flipped, in byte 808 (offset 9000)";
    assert!(text.contains(words), "{text}");
    assert!(text.contains("2 blocks are NOT AS WRITTEN"), "{text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("offset 9000"), "{errors}");
}

/// `error`, `total_err` and `first_error` of the only job, and the requests that were done.
fn errors_of(results: &Value) -> [Option<i64>; 4] {
    let job = &results["jobs"][0];
    let number = |name: &str| job[name].as_i64();
    let done = job["read"]["total_ios"].as_i64();
    [number("error"), number("total_err"), number("first_error"), done]
}

#[test]
fn tolerated_errors_are_told_as_fio_tells_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_flipped_bits(folder.path());
    let target = format!("--on=file:{path}");
    for (tolerated, expected) in [
        ("none", None),
        ("verify", Some([Some(84), Some(2), Some(84), Some(16)])),
        ("all", Some([Some(84), Some(2), Some(84), Some(16)])),
    ] {
        let tolerance = format!("--continue_on_error={tolerated}");
        let ours = flysch(&["--json", &target, "--rw=read", "--verify=crc32c", &tolerance]);
        let seen = errors_of(&serde_json::from_slice(&ours.stdout).unwrap());
        let is_tolerated = expected.is_some();
        assert_eq!(ours.status.code(), Some(i32::from(!is_tolerated)), "{tolerated}");
        match expected {
            Some(expected) => assert_eq!(seen, expected, "{tolerated}"),
            None => assert_eq!((seen[0], seen[1], seen[2]), (Some(84), None, None)),
        }
        let fio = Command::new("fio")
            .args(["--name=job", "--size=64k", "--rw=read", "--verify=crc32c"])
            .args(["--output-format=json", &format!("--filename={path}"), &tolerance])
            .output();
        let Ok(fio) = fio else {
            eprintln!("skipped: fio is not installed (apt install fio)");
            continue;
        };
        assert_eq!(fio.status.code(), ours.status.code(), "{tolerated}");
        let text = String::from_utf8_lossy(&fio.stdout).into_owned();
        let theirs = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        let theirs = errors_of(&theirs);
        assert_eq!(theirs[..3], seen[..3], "{tolerated}: {text}");
    }
}

#[test]
fn faults_and_what_was_done_about_them_are_in_every_result() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report").display().to_string();
    // Counted from the open disk: bring-up takes none of them away.
    let target = "--on=ufs,size=64M,clock=virtual,faults=timeout:n5+transient:n50+uic:n9";
    let job = ["--rw=randread", "--iodepth=4", "--number_ios=200", "--report", &report];
    let text = good(&[&[target], &job[..]].concat());
    assert!(text.contains("injected  timeout 1, transient 1, uic 1\n"), "{text}");
    let line = |who: &str| text.lines().find(|line| line.starts_with(&format!("  {who} ")));
    assert!(line("disk").is_some_and(|line| line.contains("retries")), "{text}");
    assert!(line("driver").is_some_and(|line| line.contains("overdue 1")), "{text}");
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("<td>timeout</td><td>1</td>"));
    let results = json(&[&[target], &job[..]].concat());
    let incidents = &results["flysch"]["targets"][0]["incidents"];
    assert_eq!(incidents["injected"]["timeout"], 1, "{incidents}");
    assert!(incidents["driver"]["overdue"].as_u64() > Some(0), "{incidents}");
    // A loss of power costs what was not flushed.
    let target = "--on=ufs,size=64M,clock=virtual,faults=power:n100";
    let text = good(&[target, "--rw=randwrite", "--iodepth=8", "--number_ios=300"]);
    assert!(text.contains("  power     blocks lost "), "{text}");
    let clean = good(&["--on=ufs,size=64M,clock=virtual", "--rw=read", "--number_ios=5"]);
    assert!(!clean.contains("went wrong"), "{clean}");
}

#[test]
fn workers_that_report_apart_are_also_told_together() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report").display().to_string();
    let text = good(&[
        "--on=ufs,clock=virtual",
        "--rw=read",
        "--bs=1m",
        "--numjobs=4",
        "--size=16m",
        "--report",
        &report,
    ]);
    assert_eq!(text.matches("64 requests, 64 MiB").count(), 1, "{text}");
    assert_eq!(text.matches("16 requests, 16 MiB").count(), 4, "{text}");
    assert!(text.contains("job: read, 1m, queue depth 1, 4 workers"), "{text}");
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("<td>1</td><td>4</td>"), "depth and workers of the only row");
    assert_eq!(page.matches("<td>4</td>").count(), 1);
}

#[test]
fn a_report_speaks_of_published_figures_where_there_are_some() {
    let page = |words: &[&str]| {
        let report = ["--on=ufs,clock=virtual,size=16M", "--number_ios=20", "--report=-", "--json"];
        good(&[&report, words].concat())
    };
    let with = page(&["--rw=randread", "--bs=4k"]);
    assert!(with.contains("Dashed: published figures") && with.contains("FreeBSD, published"));
    let speaks = |page: &str| page.contains("ublished figures") || page.contains(", published");
    // No such block size, no such depth, more workers than were measured.
    for words in [
        &["--rw=randread", "--bs=8k"][..],
        &["--rw=randread", "--bs=4k", "--iodepth=5"],
        &["--rw=randread", "--bs=4k", "--numjobs=2", "--group_reporting"],
    ] {
        assert!(!speaks(&page(words)), "{words:?}");
    }
    // Devices nobody published such figures of.
    for target in ["null", "ufs,profile=generic", "ufs,profile=ok3576", "nvme"] {
        let words = ["--rw=randread", "--bs=4k", "--number_ios=20", "--report=-", "--json"];
        assert!(!speaks(&good(&[&["--on", target][..], &words].concat())), "{target}");
    }
}

/// The figures of the table are of the Galaxy Book S: beside any other device they are not told.
#[test]
fn the_depth_table_of_another_device_speaks_of_no_published_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (csv, report) = (path("a.csv"), path("report"));
    let target = "--on=ufs,profile=generic,clock=virtual,size=16M";
    let text = good(&[target, "--csv", &csv, "--report", &report]);
    assert!(text.contains(" depth      MiB/s"), "{text}");
    for words in ["published", "Galaxy Book S", "FreeBSD", "Linux"] {
        assert!(!text.contains(words), "{words}: {text}");
    }
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("Measured here.") && !page.contains("ublished figures"), "{page}");
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.starts_with("target,") && csv.contains(",published_unit,incidents\r\n"));
    for line in csv.lines().skip(1) {
        assert!(line.ends_with(",,,,"), "neither figures nor a unit nor incidents: {line}");
    }
    let results = json(&[target]);
    for job in results["jobs"].as_array().unwrap() {
        assert_eq!(job["flysch"].get("published"), None, "{}", job["jobname"]);
    }
}

#[test]
fn headings_of_the_report_stand_over_their_columns() {
    let page = good(&[
        "--on=ufs,clock=virtual,size=16M",
        "--rw=randread",
        "--number_ios=500",
        "--report=-",
    ]);
    let table = page.split("<table>").nth(1).unwrap();
    let cells = |from: &str, tag: &str| -> Vec<String> {
        let tag = format!("<{tag}");
        let parts = from.split(&tag).skip(1).filter(|part| part.starts_with([' ', '>']));
        let text = |part: &str| part.split_once('>').unwrap().1.split("</").next().unwrap().into();
        parts.map(text).collect()
    };
    let heading = cells(table.split("</thead>").next().unwrap(), "th");
    let row = cells(table.split("<tbody>").nth(1).unwrap(), "td");
    // The first cell of a row is its heading.
    let value = |name: &str| -> f64 {
        let place = heading.iter().position(|cell| cell == name).unwrap();
        row[place - 1].parse().unwrap()
    };
    let (p50, p99, p999) = (value("50 %"), value("99 %"), value("99.9 %"));
    assert!(p50 < p99 && p99 <= p999, "{p50} {p99} {p999}");
    assert!(value("device") > value("submission"));
    assert_eq!((value("depth"), value("workers")), (1.0, 1.0));
}

#[test]
fn options_that_were_passed_over_are_heeded() {
    let text = good(&[
        "--on=ufs,clock=virtual,size=16M",
        "--rw=randread",
        "--number_ios=50",
        "--percentile_list=10:99.99",
    ]);
    assert!(text.contains("mean       p10    p99.99       max"), "{text}");
    let text = good(&["--on=ufs,size=16M", "--clock=real", "--rw=read", "--number_ios=5"]);
    assert!(text.contains("real clock"), "{text}");
    let text = good(&[
        "--on=ufs,clock=virtual,size=16M",
        "--rw=write",
        "--size=64k",
        "--verify=md5",
        "--do_verify=0",
    ]);
    assert!(text.contains("verify written with md5, nothing read back (do_verify=0)"), "{text}");
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

/// The model refuses a write that is not at a write pointer, and a read of a zone that has none is
/// no data.
#[test]
fn jobs_go_by_the_zones_of_a_namespace() {
    let on = ["--on", "nvme,size=32M,zones=1M,clock=virtual", "--zonemode=zbd"];
    let figures = |options: &[&str]| {
        let results = json(&[&on, options].concat());
        let job = &results["jobs"][0];
        assert_eq!(job["error"], 0, "{options:?}");
        ["read", "write", "trim"].map(|way| job[way]["io_bytes"].as_u64().unwrap() >> 20)
    };
    assert_eq!(
        figures(&["--rw=randwrite", "--bs=64k", "--iodepth=8", "--io_size=96m"]),
        [0, 96, 0]
    );
    assert_eq!(figures(&["--rw=write", "--bs=32k", "--iodepth=4", "--verify=crc32c"]), [0, 32, 0]);
    assert_eq!(figures(&["--rw=randwrite", "--bs=16k", "--verify=md5", "--size=8z"]), [0, 8, 0]);
    assert_eq!(figures(&["--rw=read", "--bs=64k"]), [0, 0, 0], "nothing was written");
    let many = ["--rw=randwrite", "--bs=16k", "--numjobs=3", "--max_open_zones=4"];
    let many = [&many[..], &["--group_reporting", "--size=4m", "--offset_increment=4m"]].concat();
    assert_eq!(figures(&many), [0, 12, 0]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gc.fio");
    let text = "[global]\nioengine=libaio\nzonemode=zbd\n[fill]\nrw=write\nbs=64k\n\
                [write]\nwait_for=fill\nrw=randwrite\nbs=64k\niodepth=4\nio_size=64m\nflow=16\n\
                [reset]\nwait_for=fill\nrw=randtrim\nbs=1m\nio_size=64m\nflow=1\n\
                [read]\nstonewall\nrw=randread\nbs=16k\nio_size=4m\n";
    std::fs::write(&file, text).unwrap();
    let results = json(&[&file.display().to_string(), on[0], on[1]]);
    let bytes =
        |job: usize, way: &str| results["jobs"][job][way]["io_bytes"].as_u64().unwrap() >> 20;
    assert!(results["jobs"].as_array().unwrap().iter().all(|job| job["error"] == 0));
    assert_eq!((bytes(0, "write"), bytes(1, "write"), bytes(3, "read")), (32, 64, 4));
    assert!(bytes(2, "trim") >= 32, "{}", bytes(2, "trim"));
    assert_eq!(results["jobs"][2]["zone_resets"], bytes(2, "trim"), "a MiB each");
    assert!(good(&[&on[..], &["--rw=write", "--loops=2"]].concat()).contains("zones  32 reset"));
}

#[test]
fn what_zones_cannot_be_is_one_line() {
    let zoned = "nvme,size=32M,zones=1M";
    for (target, options, line) in [
        ("nvme,size=32M", &["--rw=write"][..], "the disk has no zones: use `nvme,zones=64M`"),
        ("null", &["--zonesize=1000"], "a zone of 1000 with a capacity of 1000 is impossible"),
        (zoned, &["--rw=write", "--zonesize=2m"], "zonesize=2m, but the zones of the disk have 1m"),
        (
            zoned,
            &["--rw=write", "--bs=2m"],
            "a request is longer than what can be written to a zone",
        ),
        (zoned, &["--rw=trim"], "its block size must be the zonesize"),
        (zoned, &["--size=512k"], "do not hold one whole zone"),
        (zoned, &["--rw=write", "--job_max_open_zones=1"], "needs max_open_zones"),
    ] {
        let arguments = [&["--on", target, "--zonemode=zbd"], options].concat();
        let (status, words) = bad(&arguments);
        assert_eq!((status, words.lines().count()), (2, 1), "{words}");
        assert!(words.contains(line), "{words}");
    }
    // Who does not keep the rules writes nothing.
    let (_, words) = bad(&["--on", zoned, "--rw=write"]);
    assert!(words.contains("which only jobs with zonemode=zbd write"), "{words}");
    good(&["--on", "null", "--zonemode=zbd", "--zonesize=1m", "--rw=randwrite", "--size=8z"]);
}

#[test]
fn wrong_use_is_one_clear_line_and_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("bad.fio");
    std::fs::write(&job, "[a]\nbs=4k\niodept=3\n").unwrap();
    let job = job.display().to_string();
    for (arguments, words) in [
        (vec![job.as_str()], "bad.fio:3: unknown option `iodept`; did you mean `iodepth`?"),
        (vec!["--rw=foo"], "option `rw`: `foo` is not one of read, write"),
        (vec!["--on=floppy"], "floppy"),
        (vec!["--on=ufs,speed=9", "--rw=read"], "speed"),
        (vec!["--rw=read", "--offset=1t"], "is beyond the end of the device"),
        (vec!["--rw=read", "--parse-only"], "every job is checked before the first one runs"),
        (vec!["--output-format=json", "--rw=read"], "--json is fio's JSON"),
        (vec!["--rw=read", "--bs=1000"], "not a multiple of the device's block size"),
        (vec!["--rw=read", "--exec_prerun=ls"], "jobs cannot start programs"),
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
    assert!(errors.contains("/nonexistent/disk.img: does not exist"), "{errors}");
    let (status, errors) = bad(&["/nonexistent.fio"]);
    assert_eq!(status, 1);
    assert!(errors.contains("/nonexistent.fio: No such file"), "{errors}");
    let (status, errors) =
        bad(&["--on=null", "--rw=read", "--size=1m", "--csv=/nonexistent/a.csv"]);
    assert_eq!(status, 1, "{errors}");
    assert!(errors.contains("/nonexistent"), "{errors}");
}

#[test]
fn searches_and_logs_are_refused_with_one_line() {
    for (arguments, words) in [
        (&["--steadystate=iops"][..], "option `steadystate`: it needs a limit, as in iops:5%"),
        (&["--ss=bw:5%"], "steadystate needs a steadystate_duration"),
        (&["--latency_percentile=101"], "above 0 up to 100"),
        (&["--read_iolog=/nonexistent/log"], "/nonexistent/log: No such file"),
        (&["--read_iolog=/etc/passwd"], "neither a log"),
        (&["--verify_state_load=1"], "verify_only=1"),
        (&["--write_iolog=/nonexistent/log"], "/nonexistent/log: No such file"),
        (&["--write_iolog=log", "--on", "null"], "give --on once"),
        (&["--bs=512", "--on", "ufs,block=4096"], "take one that is, or a device with smaller"),
    ] {
        let mut all = vec!["--on", "null", "--rw=write", "--number_ios=4"];
        if arguments.contains(&"--bs=512") {
            all.drain(..2);
        }
        all.extend_from_slice(arguments);
        let (status, line) = bad(&all);
        let expected = if words.ends_with("No such file") { 1 } else { 2 };
        assert_eq!((status, line.lines().count()), (expected, 1), "{arguments:?}: {line}");
        assert!(line.contains(words), "{arguments:?}: {line}");
    }
}

#[test]
fn a_log_is_written_and_replayed_and_a_search_told() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log").display().to_string();
    let write = format!("--write_iolog={log}");
    good(&["--on", "null", "--rw=randrw", "--bs=4k", "--number_ios=50", "--size=1m", &write]);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.starts_with("fio version 3 iolog\n0 job.0.0 add\n"), "{text:.60}");
    let read = format!("--read_iolog={log}");
    let results = json(&["--on", "null", &read]);
    let job = &results["jobs"][0];
    let done = ["read", "write"].map(|direction| job[direction]["total_ios"].as_u64().unwrap());
    assert_eq!((done[0] + done[1], &job["flysch"]["rw"]), (50, &Value::from("replay")));
    let text = good(&[
        "--on=ufs",
        "--clock=virtual",
        "--rw=randread",
        "--bs=4k",
        "--iodepth=16",
        "--time_based",
        "--latency_target=1s",
        "--latency_window=2ms",
    ]);
    assert!(text.contains("latency target 1.00 s for 100.0 % of the requests"), "{text}");
    assert!(text.contains("queue depth 16\n"), "{text}");
    let text = good(&[
        "--on=ufs",
        "--clock=virtual",
        "--rw=randread",
        "--bs=4k",
        "--time_based",
        "--runtime=60",
        "--rate_iops=100",
        "--ss=iops:20%",
        "--ss_dur=3",
    ]);
    assert!(text.contains("steady state attained: iops "), "{text}");
}
