mod examples;

use std::process::Command;

use super::*;
use crate::workload::{BlockSize, Direction, Distribution, Mix, Order};

const ARTICLE: &str = "\
; four jobs
[global]
filename=/dev/da0
size=1G
time_based
runtime=60s
direct=1
ioengine=posixaio
group_reporting
stonewall

[seq_write]
rw=write
bs=128k
iodepth=4

[rand_read]
rw=randread
bs=4k
iodepth=32
";

fn parse(text: &str) -> Result<JobFile, JobError> {
    JobFile::parse(text, Path::new("test.fio"), &[])
}

fn one(options: &str) -> Result<Job, String> {
    let file = parse(&format!("[job]\n{options}\n")).map_err(|error| error.to_string())?;
    Ok(file.jobs.into_iter().next().unwrap())
}

fn settings(options: &str) -> Settings {
    one(options).unwrap().settings
}

#[test]
fn the_articles_jobs_are_understood() {
    let file = parse(ARTICLE).unwrap();
    assert_eq!(file.jobs.len(), 2);
    assert_eq!(file.stages().len(), 2);
    let ignored: Vec<&str> = file.ignored.keys().copied().collect();
    assert_eq!(ignored, ["direct", "filename", "ioengine"]);
    let workers = file.jobs[1].workers(4 << 30, 4096).unwrap();
    assert_eq!(workers.len(), 1);
    let worker = &workers[0];
    assert_eq!((worker.name.as_str(), worker.depth, worker.size), ("rand_read", 32, Some(1 << 30)));
    assert_eq!(worker.pattern_name(), "randread");
    assert_eq!(worker.runtime.map(|time| time.as_secs()), Some(60));
    assert!(worker.time_based && file.jobs[1].settings.group_reporting);
}

#[test]
fn options_given_beside_the_file_win() {
    let overrides = [("runtime".to_string(), Some("2".to_string()))];
    let file = JobFile::parse(ARTICLE, Path::new("a.fio"), &overrides).unwrap();
    for job in &file.jobs {
        assert_eq!(job.settings.workload.runtime.map(|time| time.as_secs()), Some(2));
    }
}

#[test]
fn synchronous_engines_keep_one_request_in_flight() {
    let depth = |options: &str, overrides: &Overrides| {
        let text = format!("[a]\niodepth=32\n{options}\n");
        let file = JobFile::parse(&text, Path::new("a.fio"), overrides).unwrap();
        (file.jobs[0].settings.workload.depth, file.notes.len())
    };
    assert_eq!(depth("", &[]), (1, 1));
    assert_eq!(depth("ioengine=psync", &[]), (1, 1));
    assert_eq!(depth("ioengine=io_uring", &[]), (32, 0));
    let meant = [("iodepth".to_string(), Some("8".to_string()))];
    assert_eq!(depth("", &meant), (8, 0));
    let job = &JobFile::of_options("a", &meant).unwrap().jobs[0];
    assert_eq!(job.settings.workload.depth, 8);
}

#[test]
fn unknown_options_are_named_with_line_and_neighbour() {
    let error = parse("[a]\nbs=4k\niodept=3\n").unwrap_err().to_string();
    assert_eq!(error, "test.fio:3: unknown option `iodept`; did you mean `iodepth`?");
    let error = parse("[a]\nxyzzyplugh=1\n").unwrap_err().to_string();
    assert_eq!(error, "test.fio:2: unknown option `xyzzyplugh`");
    let error = JobFile::of_options("a", &[("blok".into(), None)]).unwrap_err().to_string();
    assert!(error.starts_with("unknown option `blok`"), "{error}");
}

#[test]
fn bad_values_are_named_with_line_and_choice() {
    for (options, words) in [
        ("rw=foo", "test.fio:2: option `rw`: `foo` is not one of read, write"),
        ("bs=4x", "use b, k, m, g, t or p"),
        ("bs=", "it needs a value"),
        ("bs", "it needs a value"),
        ("bs=0", "0 is not in the range 1"),
        ("bs=1k,2k,3k,4k", "more than three parts"),
        ("bsrange=4k", "not a range"),
        ("bsrange=8k-4k", "ends below its start"),
        ("bssplit=4k/60:8k/60", "120 %"),
        ("bssplit=4k/60:8k/30", "90 %"),
        ("iodepth=0", "0 is not in the range"),
        ("numjobs=100000", "not in the range"),
        ("size=120%", "100% is the most"),
        ("runtime=5parsec", "use us, ms, s, m, h or d"),
        ("runtime=0.5", "not one whole number"),
        ("bs=4k-16k", "not one whole number"),
        ("random_distribution=zipf:1.2:0.5", "has a centre"),
        ("filesize=4k-64k", "one size is enough"),
        ("BS=4k", "did you mean `bs`"),
        ("ioengine=libaoi", "did you mean `libaio`"),
        ("create_only=1", "leave the job out"),
        ("verify=sha3-521", "use crc32c, "),
        ("verify=null", "checks nothing"),
        ("verify_state_load=1", "verify_only=1 checks all"),
        ("verify=pattern\nverify_pattern=foo", "not a pattern like"),
        ("verify=pattern\nverify_pattern=0xff\"ab", "not a pattern like"),
        ("buffer_pattern=%o", "only verify_pattern takes"),
        ("buffer_pattern='/etc/hostname'", "the content of a file is not taken"),
        ("buffer_pattern=2147483648", "not in the range -2147483648 to 2147483647"),
        ("buffer_pattern=-2147483649", "write it as 0x..."),
        ("verify_pattern=%o%o%o%o%o%o%o%o%o", "72 bytes and 9 of %o; at most 512 and 8"),
        ("verify_interval=79", "79 is not in the range 80"),
        ("verify_offset=39", "39 is not in the range 40"),
        ("latency_percentile=101", "above 0 up to 100"),
        ("latency_percentile=0", "above 0 up to 100"),
        ("latency_target=5parsec", "not one whole number"),
        ("latency_target", "it needs a value"),
        ("latency_run=2", "neither 0 nor 1"),
        ("max_latency=1,2,3,4", "three parts"),
        ("steadystate=iops", "it needs a limit, as in iops:5%"),
        ("ss=foo:1", "not one of iops, iops_slope"),
        ("ss=iops:0\nss_dur=5", "not a number above 0"),
        ("ss=iops:nan%\nss_dur=5", "not a number above 0"),
        ("ss=bw:5%", "needs a steadystate_duration"),
        ("ss=bw:1m\nss_dur=5\nss_interval=10", "at least one check interval"),
        ("ss=bw:1m\nss_dur=1500ms", "whole seconds"),
        ("ss_interval=0", "0 is not in the range 1"),
        ("replay_align=3", "3 is not a power of two"),
        ("replay_time_scale=0", "0 is not in the range 1"),
        ("replay_skip=reads", "not one of read, write, trim, sync"),
        ("read_iolog=/nonexistent/log", "/nonexistent/log: No such file"),
        ("read_iolog=-", "standard input is not read"),
        ("merge_blktrace_file=x", "read_iolog takes several"),
        ("startdelay=5-1", "ends before it begins"),
        ("verify=pattern", "needs a verify_pattern"),
        ("ioengine=cpuio", "does no block I/O"),
        ("wait_for=nobody", "no job `nobody` before it"),
        ("exit_what=none", "not one of group, stonewall, all"),
        ("ignore_error=ENOENT,EWHAT", "`EWHAT` is not a known error"),
        ("zonemode=strided", "needs a zonesize"),
        ("zonemode=zoned", "not one of none, strided, zbd"),
        ("size=3z", "needs zonemode=zbd"),
        ("zonemode=zbd\nzoneskip=4k", "must be 0 for zonemode=zbd"),
        ("zonemode=zbd\nrw=trimwrite", "no trimwrite"),
        ("zonemode=zbd\nrw=write:4k", "no gaps"),
        ("zonemode=zbd\nwrite_zone_remainder=1\nverify=md5", "no header"),
        ("zone_reset_threshold=1.5", "between 0 and 1"),
        ("zone_reset_frequency=x", "between 0 and 1"),
        ("max_open_zones=5000", "4096"),
        ("size=xz", "not a number"),
        ("random_sequence_stride=1", "is for random_distribution=sequence"),
        ("random_distribution=sequence:1,two", "not the number of a block"),
        ("random_distribution=zoned:60/60:40/60", "more than 100"),
        ("size=3*", "is not a value that can be computed"),
        ("direct=1\nstonewall=2", "neither 0 nor 1"),
        ("exec_prerun=rm", "jobs cannot start programs"),
        ("percentage_random=50", "not supported"),
        ("rwmixread=70%", "it is a percentage as it is: write 70"),
        ("random_distribution=zipf:1.2,zipf:0.8", "a list by direction"),
        ("profile=tiobench", "write those into a job file"),
        ("random_distribution=zoned:50/50", "add up to 50"),
        ("rw=randread:8\nrw_sequencer=identical", "not supported"),
        ("rw=randread:4k", "without unit or sign"),
        ("rw=randwrite:-4", "without unit or sign"),
        ("rate=1m\nrate_iops=100", "exclude each other"),
        ("rate=1m\nrate_min=2m", "rate_min is more than rate"),
        ("rate_iops=1\nrate_iops_min=2", "rate_iops_min is more than rate_iops"),
        ("rw=randread\nrandom_distribution=zipf:1", "or is 1"),
        ("rw=write\nfsync=3\nfdatasync=4", "multiples of each other"),
        ("size=${FLYSCH_NO_SUCH_VARIABLE}", "FLYSCH_NO_SUCH_VARIABLE is not set"),
        ("[broken", "closing bracket"),
        ("two words", "not an option"),
    ] {
        let error = one(options).unwrap_err();
        assert!(error.contains(words), "{options}: {error}");
    }
    assert!(parse("bs=4k\n").unwrap_err().to_string().contains("in no [section]"));
    assert!(parse("[global]\nbs=4k\n").unwrap_err().to_string().contains("no job"));
    let error = JobFile::read(Path::new("/nonexistent.fio"), &[]).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent.fio: No such file"), "{error}");
}

#[test]
fn block_sizes_by_direction() {
    let sizes = |options: &str| settings(options).workload.block_size.map(|s| s.to_string());
    assert_eq!(sizes("bs=8k"), ["8k", "8k", "8k"]);
    assert_eq!(sizes("bs=8k,32k"), ["8k", "32k", "32k"]);
    assert_eq!(sizes("bs=8k,32k,"), ["8k", "32k", "4k"]);
    assert_eq!(sizes("bs=,8k"), ["4k", "8k", "8k"]);
    assert_eq!(sizes("bsrange=1k-4k,2k-8k"), ["1k-4k", "2k-8k", "2k-8k"]);
    let split = settings("bssplit=4k/10:64k/:32k/").workload.block_size[0].clone();
    assert_eq!(split, BlockSize::Split(vec![(4096, 10), (65_536, 45), (32_768, 45)]));
}

#[test]
fn patterns_and_their_modifiers() {
    let work = settings("rw=randrw:8\nrwmixwrite=30\nnorandommap").workload;
    assert_eq!(work.mix, Mix::ReadWrite { read_percent: 70 });
    let distribution = Distribution::Uniform;
    assert_eq!(work.order, Order::Random { each_once: false, distribution, run: 8 });
    let work = settings("rw=write:-8k").workload;
    assert_eq!(
        (work.mix, work.order),
        (Mix::Only(Direction::Write), Order::Sequential { gap: -8192 })
    );
    let work = settings("rw=randread\nrandom_distribution=zipf:1.2").workload;
    assert!(matches!(work.order, Order::Random { distribution: Distribution::Zipf(_), .. }));
}

#[test]
fn aliases_units_and_variables() {
    let settings =
        settings("readwrite=write\nblocksize=$pagesize\ntimeout=2m\nio_limit=50%\nsize=25%");
    assert_eq!(settings.workload.block_size[0], BlockSize::Fixed(4096));
    assert_eq!(settings.workload.runtime.map(|time| time.as_secs()), Some(120));
    let job =
        one("readwrite=write\nsize=25%\nio_limit=50%\nnumjobs=3\noffset_increment=25%").unwrap();
    let workers = job.workers(1 << 20, 4096).unwrap();
    let places: Vec<_> = workers.iter().map(|w| (w.offset, w.size, w.io_size)).collect();
    let quarter = 1 << 18;
    let expected = |i: u64| (i * quarter, Some(quarter), Some(quarter / 2));
    assert_eq!(places, [expected(0), expected(1), expected(2)]);
    assert_ne!(workers[0].seed, workers[1].seed);
    let job = one("numjobs=5\noffset_increment=25%").unwrap();
    assert!(job.workers(1 << 20, 4096).unwrap_err().contains("beyond the end"));
}

#[test]
fn includes_are_relative_to_the_file_that_includes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("common.inc"), "bs=64k # shared\nioengine=libaio\niodepth=7\n").unwrap();
    std::fs::write(path("main.fio"), "[global]\nrw=randread\n[a]\ninclude common.inc\n").unwrap();
    // An included file continues the section it is included in.
    let error = JobFile::read(&path("main.fio"), &[]);
    let job = &error.unwrap().jobs[0];
    assert_eq!((job.settings.workload.depth, job.options["bs"].as_str()), (7, "64k"));
    std::fs::write(path("loop.fio"), "[a]\ninclude loop.fio\n").unwrap();
    let error = JobFile::read(&path("loop.fio"), &[]).unwrap_err().to_string();
    assert!(error.ends_with("includes itself"), "{error}");
    for n in 0..18 {
        let text = format!("include {}.inc\n", n + 1);
        std::fs::write(path(&format!("{n}.inc")), text).unwrap();
    }
    let error = JobFile::read(&path("0.inc"), &[]).unwrap_err().to_string();
    assert!(error.contains("more than 16 nested includes"), "{error}");
}

#[test]
fn latencies_and_steady_states() {
    let work = settings("latency_target=500\nlatency_window=2s\nlatency_percentile=99.9").workload;
    let target = work.latency.target.unwrap();
    assert_eq!((target.nanos, target.window_nanos), (500_000, 2_000_000_000));
    assert_eq!((target.percentile, target.goes_on), (99.9, false));
    assert_eq!(settings("latency_window=2s\nlatency_target=0").workload.latency.target, None);
    let work = settings("max_latency=5ms,10").workload;
    assert_eq!(work.latency.max_nanos, [5_000_000, 10_000, 10_000]);
    let of =
        |text: &str| settings(&format!("{text}\nss_dur=30\nss_ramp=1m")).workload.steady.unwrap();
    let steady = of("ss=iops_slope:0.3%");
    assert_eq!((steady.criterion_name(), steady.limit, steady.percent), ("iops_slope", 0.3, true));
    assert_eq!((steady.window_seconds, steady.ramp_seconds, steady.measurements()), (30, 60, 30));
    let steady = of("ss=bw:1m\nss_interval=10");
    assert_eq!((steady.criterion_name(), steady.limit, steady.percent), ("bw", 1048576.0, false));
    assert_eq!(steady.measurements(), 3);
    assert_eq!(of("steadystate=lat:5%").criterion_name(), "lat");
}

#[test]
fn workers_begin_somewhere_in_a_range() {
    let job = one("startdelay=5-10\nnumjobs=20").unwrap();
    let delays: Vec<u64> = job
        .workers(1 << 30, 512)
        .unwrap()
        .iter()
        .map(|worker| worker.start_delay.as_millis() as u64)
        .collect();
    assert!(delays.iter().all(|delay| (5_000..=10_000).contains(delay)), "{delays:?}");
    assert!(delays.iter().max().unwrap() - delays.iter().min().unwrap() > 1000, "{delays:?}");
    let job = one("startdelay=3").unwrap();
    assert_eq!(job.workers(1 << 30, 512).unwrap()[0].start_delay.as_secs(), 3);
}

#[test]
fn a_pattern_alone_verifies_header_and_pattern() {
    let method = |options: &str| settings(options).workload.verify.map(|verify| verify.method);
    let of_header = Some(crate::verify::Method::PatternHeader);
    assert_eq!(method("verify_pattern=0xaa"), of_header);
    assert_eq!(method("verify=meta\nverify_pattern=0xaa"), Some(crate::verify::Method::Meta));
    assert_eq!(method("verify_pattern=0xaa\nverify=0"), None);
    assert_eq!(method("verify=0\nverify_pattern=0xaa"), None);
    let longest = "ab".repeat(512);
    assert_eq!(method(&format!("verify_pattern=0x{longest}")), of_header);
    assert!(one(&format!("verify_pattern=0x{longest}ab")).is_err());
}

/// The bytes are those that fio 3.33 wrote.
#[test]
fn patterns_are_fios() {
    let content = |pattern: &str| {
        let options = format!("verify=pattern\nverify_pattern={pattern}");
        let form = settings(&options).workload.verify.unwrap().form();
        let version = crate::verify::Version { run_seed: 0, sequence: 1, worker: 0 };
        let mut unit = [0; 512];
        let now = flysch_api::machine::Instant::START;
        crate::verify::stamp(&mut unit, &form, 8192, &version, now);
        unit.iter().take(20).map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    for (pattern, bytes) in [
        ("0xff%o\"abcd\"-12", "ff002000000000000061626364f4ffffffff0020"),
        ("-12", "f4fffffff4fffffff4fffffff4fffffff4ffffff"),
        ("%o", "0020000000000000002000000000000000200000"),
        ("1000", "e803e803e803e803e803e803e803e803e803e803"),
        ("0xaa555aa5", "aa555aa5aa555aa5aa555aa5aa555aa5aa555aa5"),
        ("\"ab\"0x0102", "6162010261620102616201026162010261620102"),
        ("70000", "7011017011017011017011017011017011017011"),
    ] {
        assert_eq!(content(pattern), bytes, "{pattern}");
    }
}

#[test]
fn a_log_stands_in_place_of_a_pattern() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a", "fio version 3 iolog\n0 x add\n5 x read 0 4096\n9 x read 4096 8192\n");
    write("b", "fio version 3 iolog\n5 x write 0 512\n9 y trim 0 65536\n");
    let options = format!("rw=randwrite\nread_iolog={}:{}\nnumjobs=3", path("a"), path("b"));
    let file = parse(&format!("[job]\n{options}\n")).unwrap();
    assert_eq!(file.notes.len(), 1, "{:?}", file.notes);
    assert!(file.notes[0].ends_with("its 2 disks are replayed on one"));
    let job = &file.jobs[0];
    let workers = job.workers(1 << 20, 512).unwrap();
    let lengths: Vec<usize> =
        workers.iter().map(|w| w.replay.as_ref().unwrap().entries[0].length as usize).collect();
    assert_eq!(lengths, [4096, 512, 4096]);
    let demand = crate::play::Demand::of(&file);
    assert!(demand.writes && workers[1].writes() && !workers[0].writes());
    assert_eq!((workers[0].block_max(), workers[0].pattern_name()), (8192, "replay"));
    let error = one(&format!("{options}\nverify=md5")).unwrap_err();
    assert!(error.contains("read_iolog replays what a log has"), "{error}");
}

/// Every name fio lists is known; nothing else is.
#[test]
fn the_table_of_options_is_fios() {
    let Ok(output) = Command::new("fio").arg("--cmdhelp=all").output() else {
        eprintln!("skipped: fio is not installed");
        return;
    };
    let listed = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split([' ', ':']).find(|word| !word.is_empty()))
        .collect();
    assert!(names.len() > 200);
    for name in &names {
        assert!(known::find(name).is_some(), "fio knows `{name}`");
    }
    // Aliases and the options of engines are listed elsewhere.
    for name in known::names().filter(|name| !names.contains(name)) {
        let help = Command::new("fio").arg(format!("--cmdhelp={name}")).output().unwrap();
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        let engine = text.contains("No such command")
            && known::find(name)
                .is_some_and(|(_, fate)| fate == Fate::Ignored("it tunes an engine of fio"));
        assert!(engine || !text.contains("No such command"), "`{name}` is not fio's: {text}");
    }
}

/// What fio 3.33 says about job files, we say too: both accept them or both do not.
#[test]
fn fio_takes_what_we_take() {
    if Command::new("fio").arg("--version").output().is_err() {
        eprintln!("skipped: fio is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (index, (text, good)) in [
        (ARTICLE, true),
        ("[a]\nrw=randrw\nbssplit=4k/10:64k/50:32k/40\nsize=1m\nrwmixread=30\n", true),
        ("[a]\nbsrange=1k-4k,2k-8k\nsize=1m\nloops=2\n", true),
        ("[a]\nsize=1m\nrandom_distribution=zipf:1.1\nrw=randread:4\nrate_iops=100,50\n", true),
        ("[a]\nsize=1m\nthinktime=5ms\nthinktime_blocks=3\npercentile_list=50:99\n", true),
        ("[a]\nsize=1m\niodept=4\n", false),
        ("[a]\nsize=1m\nrw=foo\n", false),
        ("[a]\nsize=${FLYSCH_NO_SUCH_VARIABLE}\n", false),
        ("[a]\nsize=1m\niodepth=0\n", false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(format!("{index}.fio"));
        let text = text.replace("ioengine=posixaio", "ioengine=null");
        std::fs::write(&path, text.replace("[a]\n", "[a]\nioengine=null\n")).unwrap();
        let fio = Command::new("fio").arg("--parse-only").arg(&path).output().unwrap();
        let ours = JobFile::read(&path, &[]);
        assert_eq!((fio.status.success(), ours.is_ok()), (good, good), "{text}: {ours:?}");
    }
}

/// As in fio, whose seeds have the number of the thread in them.
#[test]
fn each_worker_of_a_file_has_random_numbers_of_its_own() {
    for seed in ["", "randseed=7\n", "randrepeat=0\n"] {
        let text = format!(
            "[global]\nrw=randwrite\nstartdelay=0-1h\n{seed}[a]\nnumjobs=2\n[b]\n[c]\nstonewall\n"
        );
        let file = parse(&text).unwrap();
        let workers = file.jobs.iter().flat_map(|job| job.workers(1 << 30, 512).unwrap());
        let workers: Vec<_> = workers.collect();
        let mut seeds: Vec<u64> = workers.iter().map(|worker| worker.seed).collect();
        let mut delays: Vec<_> = workers.iter().map(|worker| worker.start_delay).collect();
        // The first is what it was given, so that runs of one job can be repeated.
        if !seed.contains("repeat") {
            assert_eq!(seeds[0], if seed.is_empty() { 0x89 } else { 7 });
            let again = parse(&text).unwrap();
            let again = again.jobs.iter().flat_map(|job| job.workers(1 << 30, 512).unwrap());
            assert_eq!(again.map(|worker| worker.seed).collect::<Vec<_>>(), seeds);
        }
        seeds.sort_unstable();
        seeds.dedup();
        delays.sort_unstable();
        delays.dedup();
        assert_eq!((seeds.len(), delays.len()), (4, 4), "{seed}");
    }
}

#[test]
fn fill_device_does_not_go_beyond_a_size() {
    let size = |options: &str| one(options).unwrap().workers(1 << 30, 512).unwrap()[0].size;
    assert_eq!(size("size=1m\nfill_device=1"), Some(1 << 20));
    assert_eq!(size("fill_device=1\nsize=1m"), Some(1 << 20));
    assert_eq!(size("filesize=2m\nfill_device"), Some(2 << 20));
    assert_eq!(size("fill_device=1"), Some(1 << 30));
}

#[test]
fn zones_without_a_zonemode_are_refused() {
    for options in ["zonesize=64k", "zoneskip=64k", "zonerange=1m", "zonemode=none\nzonesize=4k"] {
        assert!(one(options).unwrap_err().contains("need a zonemode"), "{options}");
    }
    assert!(one("zonesize=0\nzoneskip=0").is_ok());
}

/// The result of each is what fio 3.33 does with it.
#[test]
fn bssplit_comes_before_bsrange_and_that_before_bs() {
    let split = BlockSize::Split(vec![(4096, 50), (16_384, 50)]);
    let range = BlockSize::Range { min: 1024, max: 4096 };
    for (options, expected) in [
        ("bs=8k\nbsrange=1k-4k", &range),
        ("bsrange=1k-4k\nbs=8k", &range),
        ("bssplit=4k/50:16k/50\nbs=8k", &split),
        ("bssplit=4k/50:16k/50\nbsrange=1k-2k", &split),
        ("bs=8k\nbs=16k", &BlockSize::Fixed(16_384)),
    ] {
        assert_eq!(settings(options).workload.block_size[0], *expected, "{options}");
    }
    let some = settings("bsrange=1k-4k,\nbs=8k").workload.block_size;
    assert_eq!(some, [range, BlockSize::Fixed(8192), BlockSize::Fixed(8192)]);
    // What is given beside a job file is meant.
    let overrides = [("bs".to_string(), Some("8k".to_string()))];
    let text = "[a]\nbssplit=4k/50:16k/50\nbsrange=1k-4k\n";
    let file = JobFile::parse(text, Path::new("a.fio"), &overrides).unwrap();
    assert_eq!(file.jobs[0].settings.workload.block_size[1], BlockSize::Fixed(8192));
}

#[test]
fn more_buffers_than_memory_are_refused() {
    let error = parse("[a]\nioengine=libaio\niodepth=32768\nbs=1g\nnumjobs=4\n").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("a: iodepth=32768 x bs=1g x numjobs=4 are"), "{error}");
    // All that run at the same time count.
    let jobs: String = (0..400).map(|n| format!("[{n}]\nbs=1g\n")).collect();
    assert!(parse(&jobs).unwrap_err().to_string().contains("buffers"));
    let one = [("bs", "1m"), ("iodepth", "2")]
        .map(|(name, value)| (name.to_string(), Some(value.to_string())));
    assert!(JobFile::of_options("a", &one).is_ok());
    let error = one_error("steadystate=iops:5%\nsteadystate_duration=18446744073");
    assert!(error.contains("is not in the range"), "{error}");
}

fn one_error(options: &str) -> String {
    one(options).unwrap_err()
}

#[test]
fn writes_of_another_kind_are_refused() {
    for option in ["sg_write_mode=write_same", "sg_write_mode=verify", "write_mode=zeroes"] {
        assert!(one_error(option).contains("of one range each"), "{option}");
    }
    assert!(one("sg_write_mode=write\nwrite_mode=write").is_ok());
}

/// fio does the same with them as without.
#[test]
fn options_that_change_nothing_are_taken() {
    for options in [
        "percentage_random=100",
        "percentage_random=100,100,100",
        "rw=randread\nrw_sequencer=identical",
        "rw=rw\nrw_sequencer=identical",
        "rw=read:8k\nrw_sequencer=identical",
    ] {
        assert!(one(options).is_ok(), "{options}: {:?}", one(options).err());
    }
    for (options, why) in [
        ("percentage_random=100,0", "not Flysch's"),
        ("percentage_random=100,100,100,100", "not Flysch's"),
        ("rw=randread:4\nrw_sequencer=identical", "not supported"),
        ("rw_sequencer=other", "is not one of sequential, identical"),
    ] {
        assert!(one_error(options).contains(why), "{options}");
    }
}

#[test]
fn files_are_read_whatever_their_form() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let read = |path: &Path| JobFile::read(path, &[]).map_err(|error| error.to_string());
    let bom = write("bom.fio", b"\xef\xbb\xbf[a]\nrw=read\n");
    assert_eq!(read(&bom).unwrap().jobs[0].name, "a");
    write("part.inc", b"[a]\nrw=write\n");
    let tab = write("tab.fio", b"include\tpart.inc\n");
    assert_eq!(read(&tab).unwrap().jobs.len(), 1);
    for (name, text, expected) in [
        ("latin.fio", b"[a]\n; gr\xfc\xdfe\n".as_slice(), ": is not text: line 2 is not UTF-8"),
        ("nul.fio", b"[a]\nrw=re\0ad\n", ":2: the control character \\u{0} is not"),
        ("self.fio", b"[a]\ninclude self.fio\n", ":2: `"),
    ] {
        let error = read(&write(name, text)).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\0'), "{error}");
        assert!(error.matches(name).count() <= 2, "{error}");
    }
    write("b.inc", b"include a.inc\n");
    let error = read(&write("a.inc", b"include b.inc\n")).unwrap_err();
    assert!(error.contains("includes itself"), "{error}");
}

#[test]
fn a_name_beside_a_job_file_is_refused() {
    let overrides = [("name".to_string(), Some("foo".to_string()))];
    let error = JobFile::parse(ARTICLE, Path::new("a.fio"), &overrides).unwrap_err().to_string();
    assert!(error.contains("--section"), "{error}");
}

#[test]
fn options_of_the_program_fio_are_told_apart() {
    for (option, there) in [("parse-only", "checked before"), ("output-format=json", "--json")] {
        let error = one_error(option);
        assert!(error.contains("program fio") && error.contains(there), "{error}");
    }
    assert!(known::of_fio_itself().all(|name| known::find(name).is_none()));
}

#[test]
fn sections_whose_names_begin_with_global_are_global_as_in_fio() {
    let file = parse("[globalx]\nsize=100k\nkb_base=1000\n[a]\nnrfiles=4\nrw=read\n").unwrap();
    assert_eq!(file.jobs.len(), 1);
    assert_eq!(file.jobs[0].settings.size, Some(Amount::Bytes(100_000)), "wherever kb_base stands");
    assert!(file.notes.iter().any(|note| note.contains("its 4 files are one target")));
}
