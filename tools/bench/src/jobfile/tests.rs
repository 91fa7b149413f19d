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
        ("rw=foo", "test.fio:2: option `rw`: `foo` is none of read, write"),
        ("bs=4x", "unknown unit"),
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
        ("size=120%", "not a number"),
        ("runtime=5parsec", "unknown unit"),
        ("verify=sha3-521", "use crc32c, "),
        ("verify=sha256", "no checksum of it; use sha3-256"),
        ("verify=pattern", "needs a verify_pattern"),
        ("ioengine=cpuio", "does no block I/O"),
        ("wait_for=nobody", "no job `nobody` before it"),
        ("exit_what=none", "none of group, stonewall, all"),
        ("ignore_error=ENOENT,EWHAT", "`EWHAT` is no error"),
        ("zonemode=strided", "needs a zonesize"),
        ("zonemode=zbd", "zoned block devices"),
        ("random_sequence_stride=1", "is for random_distribution=sequence"),
        ("random_distribution=sequence:1,two", "not the number of a block"),
        ("random_distribution=zoned:60/60:40/60", "more than 100"),
        ("size=3*", "is not a value that can be computed"),
        ("direct=1\nstonewall=2", "neither 0 nor 1"),
        ("exec_prerun=rm", "jobs start no programs"),
        ("percentage_random=50", "not supported"),
        ("random_distribution=zoned:50/50", "add up to 50"),
        ("rw_sequencer=identical", "not supported"),
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
    let expected = |i: u64| (i * quarter, Some(quarter), Some(2 * quarter));
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
    assert!(error.contains("more than 16 includes"), "{error}");
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

/// What fio 3.33 says about job files, we say too: both take them or both do not.
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
