use super::*;
use crate::clock::RealClock;
use crate::null::Null;
use std::path::Path;

fn played(text: &str) -> Result<Played, PlayError> {
    let file = JobFile::parse(text, Path::new("test.fio"), &[]).unwrap();
    let mut lanes = [Null::new(1 << 24, 64, 1 << 20), Null::new(1 << 24, 64, 1 << 20)];
    let options = PlayOptions { trace_records: 10, ..PlayOptions::default() };
    play(&mut lanes, &RealClock::new(), &file, options)
}

#[test]
fn groups_are_reported_as_fio_reports_them() {
    let text = "[global]\nsize=1m\n[a]\nnumjobs=3\n[b]\nstonewall\ngroup_reporting\nnumjobs=4\n\
                [c]\ngroup_reporting\n[d]\nnew_group\ngroup_reporting\n";
    let played = played(text).unwrap();
    let seen: Vec<_> = played
        .jobs
        .iter()
        .map(|job| (job.name.as_str(), job.group, job.workers, job.read.as_ref().unwrap().requests))
        .collect();
    let expected =
        [("a", 0, 1, 256), ("a", 0, 1, 256), ("a", 0, 1, 256), ("b", 1, 5, 1280), ("d", 2, 1, 256)];
    assert_eq!(seen, expected);
    assert_eq!(played.traces.len(), 4);
    let totals: Vec<_> = played
        .totals
        .iter()
        .map(|job| (job.name.as_str(), job.workers, job.read.as_ref().unwrap().requests))
        .collect();
    assert_eq!(totals, [("a", 3, 768)]);
}

#[test]
fn demand_is_that_of_the_widest_stage() {
    let text = "[a]\nioengine=libaio\nnumjobs=3\niodepth=4\nbs=6000\n[b]\nstonewall\nbs=1m\n";
    let file = JobFile::parse(text, Path::new("test.fio"), &[]).unwrap();
    let widest = Demand { workers: 3, depth: 12, memory: 1 << 20, writes: false, zones: false };
    assert_eq!(Demand::of(&file), widest);
    for (rw, writes) in [("randwrite", true), ("randtrim", true), ("randrw", true)] {
        let text = format!("[a]\nrw=read\n[b]\nrw={rw}\n");
        let file = JobFile::parse(&text, Path::new("test.fio"), &[]).unwrap();
        assert_eq!(Demand::of(&file).writes, writes, "{rw}");
    }
}

/// As in fio on a block device; the result says so.
#[test]
fn a_size_larger_than_the_device_is_as_much_as_there_is() {
    let played = played("[big]\nsize=1g\nbs=256k\n[some]\noffset=4m\nsize=16m\nbs=256k\n").unwrap();
    let seen = played.jobs.iter().map(|job| (job.size_cut, job.read.as_ref().unwrap().requests));
    let expected = [(Some((1 << 30, 16 << 20)), 64), (Some((16 << 20, 12 << 20)), 48)];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    let target = crate::results::TargetResults { jobs: played.jobs, ..Default::default() };
    let results = crate::results::Results { targets: vec![target], ..Default::default() };
    let text = crate::text::render(&results);
    assert!(
        text.contains("size 1 GiB is more than the device has there; the job used 16 MiB"),
        "{text}"
    );
}

#[test]
fn the_depth_table_has_all_cells() {
    let file = depth_table(4 << 30, Some(7));
    assert_eq!((file.jobs.len(), file.stages().len()), (24, 24));
    let workers = file.jobs[0].workers(4 << 30, 4096).unwrap();
    assert_eq!((workers[0].seed, workers[0].size), (7, Some(1 << 30)));
    let small = depth_table(1 << 20, None).jobs[23].workers(1 << 20, 4096).unwrap();
    assert_eq!((small[0].depth, small[0].size), (32, Some(1 << 20)));
}

/// What a job is refused for, before anything is done.
fn refused(options: &str) -> String {
    played(&format!("[a]\n{options}\n")).unwrap_err().to_string()
}

#[test]
fn strides_that_hold_no_request_are_refused() {
    for options in [
        "rw=randread\nzonemode=strided\nzonesize=2k\nsize=1m",
        "rw=randread\nzonemode=strided\nzonesize=64k\nzonerange=2k\nbs=4k",
        "rw=randrw\nzonemode=strided\nzonesize=64k\nzonerange=2k\nbs=1k,4k",
        "rw=randread\nzonemode=strided\nzonesize=2k\nrandom_distribution=zipf:1.2",
    ] {
        assert!(refused(options).contains("zonerange"), "{options}");
    }
    let odd = refused("rw=read\nzonemode=strided\nzonesize=1000\nzonerange=3000");
    assert!(odd.contains("zonerange with zoneskip 3000 is not a multiple"), "{odd}");
    // fio reads the same place again and again, and so do we.
    assert!(played("[a]\nzonemode=strided\nzonesize=64k\nzonerange=2k\nsize=1m\n").is_ok());
}

/// As in fio, which lists them with zeros.
#[test]
fn jobs_that_were_kept_from_starting_are_listed() {
    let text = "[global]\nsize=1m\n[a]\nexitall\nexit_what=all\n[b]\nstonewall\nnumjobs=2\n[c]\n\
                stonewall\nrw=write\n";
    let played = played(text).unwrap();
    let seen = played.jobs.iter().map(|job| {
        let requests: u64 = job.directions().map(|(_, it)| it.requests).sum();
        (job.name.as_str(), job.group, requests)
    });
    assert_eq!(seen.collect::<Vec<_>>(), [("a", 0, 256), ("b", 1, 0), ("b", 1, 0), ("c", 2, 0)]);
}

#[test]
fn gaps_between_blocks_of_the_device_are_refused_beforehand() {
    for gap in ["100", "-1000"] {
        let error = refused(&format!("rw=write:{gap}\nsize=1m"));
        assert!(error.contains("the gap behind the colon of rw,"), "{error}");
    }
    assert!(played("[a]\nrw=write:-1k\nsize=1m\n").is_ok());
}

#[test]
fn an_interval_too_short_for_a_header_is_named() {
    let job = "rw=write\nbs=1536\nsize=96k\nverify=sha512\nverify_interval=96";
    let error = refused(job);
    assert!(error.contains("verify_interval is too short"), "{error}");
}

/// As many as fio does at the end of passes and of the job.
#[test]
fn flushes_at_the_end_are_fios() {
    for (options, expected) in [
        ("end_fsync=1", 1),
        ("end_fsync=1\nloops=2", 2),
        ("end_fsync=1\nloops=5\niodepth=8\nioengine=libaio", 5),
        ("fsync=4\nend_fsync=1", 4),
        ("fsync=5\nend_fsync=1", 4),
        ("fsync_on_close=1\nloops=3\nverify=md5\ndo_verify=0", 3),
    ] {
        let played = played(&format!("[a]\nrw=write\nsize=64k\n{options}\n")).unwrap();
        let count = played.jobs[0].sync.as_ref().map(|sync| sync.count);
        assert_eq!(count, Some(expected), "{options}");
    }
}
