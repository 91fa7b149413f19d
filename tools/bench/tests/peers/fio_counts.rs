//! The same jobs on fio and here, over a file: both do as many reads, writes and trims, and as many
//! bytes of each; sequences are the same request by request, and random requests have the same
//! lengths.

use std::path::Path;
use std::process::Command;

use flysch_bench::clock::RealClock;
use flysch_bench::file::{File, FileOptions};
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{PlayOptions, play};
use flysch_bench::results::DirectionResults;

/// Requests and bytes of reads, writes and trims.
type Counts = [(u64, u64); 3];

const SIZE: u64 = 1 << 20;

/// Jobs whose counts are the same whatever is random in them.
const JOBS: &[&str] = &[
    "rw=read\nsize=64k",
    "rw=randread\nsize=64k\nio_size=128k\nloops=4",
    "rw=randread\nsize=64k\nio_size=32k\nloops=4",
    "rw=write\nsize=64k\nio_size=96k\nloops=3",
    "rw=write\nsize=64k\nio_size=256k\nloops=3",
    "rw=write\nsize=64k\nio_size=256k\nloops=5",
    "rw=read\nsize=64k\nio_size=20k\nloops=3",
    "rw=write\nsize=64k\nnumber_ios=5\nloops=3",
    "rw=randread\nsize=64k\nnumber_ios=300\nloops=4",
    "rw=randread\nsize=64k\nnumber_ios=20\nio_size=128k",
    "rw=randread\nsize=64k\nnumber_ios=40\nio_size=128k",
    "rw=read:8k\nsize=1m",
    "rw=read:8k\noffset=64k\nsize=64k\nloops=2",
    "rw=write:112k\nbs=16k\nsize=1m\nio_size=64k\nloops=2",
    "rw=read:-8k\nsize=1m",
    "rw=read:-8k\noffset=64k\nsize=64k\nio_size=16k",
    "rw=randwrite\nsize=256k\nnumjobs=3\noffset_increment=256k",
    "rw=write\nsize=128k\nfsync=4",
    "rw=read\nsize=256k\nzonemode=strided\nzonesize=16k\nzoneskip=48k",
    "rw=write\nsize=64k\nbs=4k,8k",
    "rw=read\nsize=64k\n[b]\nstonewall\nrw=write\nsize=32k\n[c]\nwait_for=b\nrw=randread\nsize=16k",
    "rw=read\nsize=64k\nnew_group\n[b]\nnew_group\nrw=write\nsize=32k\nnumjobs=2",
    "rw=read\nsize=64k\nstartdelay=10ms-50ms\n[b]\nrw=read\nsize=32k",
    "rw=write\nsize=64k\nverify=crc32c\nverify_backlog=4\ndo_verify=0",
    "rw=randwrite\nsize=64k\nverify=sha1\nverify_async=2\nexperimental_verify=1",
    "rw=write\nsize=64k\nverify=md5\nverify_offset=200\nverify_interval=1024",
    // Sizes that are no multiple of the block size, and percentages, which are rounded.
    "rw=write\nbs=64k\nsize=1000k",
    "rw=write\nbs=48k\nsize=100%",
    "rw=read\nbs=64k\nsize=500k\nloops=3",
    "rw=read\nbs=12k\nsize=100k\nio_size=200k",
    "rw=randwrite\nbs=12k\nsize=100k",
    "rw=randwrite\nbs=12k\nsize=1m",
    "rw=randread\nbs=12k\nsize=100k\nloops=4",
    "rw=randread\nbs=12k\nsize=100k\nio_size=200k",
    "rw=randread\nbs=12k\nsize=100k\nnumber_ios=100",
    "rw=randread\nnorandommap\nbs=12k\nsize=100k",
    "rw=randread\nnorandommap\nsize=256k\nio_size=1m\nbs=16k\nba=4k",
    "rw=read\nsize=10%",
    "rw=read\noffset=33%\nsize=33%\nbs=32k",
    "rw=read\noffset=50%\nsize=100%",
    "rw=write\nsize=20%\nio_size=50%",
    "rw=write\nsize=50%\nio_size=10%",
    "rw=read\nfilesize=256k",
    "rw=read\nfilesize=256k\nsize=128k",
    "rw=read\nsize=64k\ntime_based",
    "rw=read:8k\nbs=12k\nsize=100k\nnumber_ios=5",
    "rw=read\nsize=64k\nio_size=0",
    "rw=read:64k\nsize=1m\nio_size=256k",
    "rw=rw:64k\nsize=1m\nrwmixread=100\nloops=2",
    "rw=rw:64k\nsize=1m\nrwmixread=0",
    // The last request goes beyond io_size.
    "rw=randwrite\nbs=64k\nsize=1m\nio_size=500k",
    "rw=randwrite\nbs=64k\nsize=1m\nio_size=30k",
    "rw=randwrite\nbs=64k\nsize=1m\nio_size=300k\nloops=3",
    "rw=randwrite\nbs=64k\nsize=1000k\nio_size=1500k",
    "rw=randread\nbs=64k\nsize=1000k\nio_size=990k",
    "rw=randread\nbs=64k\nsize=500k\nio_size=1200k",
    "rw=randread\nbs=64k\nsize=1m\nio_size=30k\nloops=2",
    // With gaps over the whole disk: from the start again, until as much is done as there is.
    "rw=read:4k\nsize=1m",
    "rw=write:4k",
    "rw=read:12k\nsize=1m",
    "rw=read:60k\nsize=1m",
    "rw=read:1m\nsize=1m",
    "rw=read:1m\nsize=64k",
    "rw=read:4k\nsize=1m\nloops=2",
    "rw=read:28k\nsize=1m\nnumber_ios=40",
    "rw=read:4k\nbs=12k\nsize=1m",
    "rw=read:4k\nbs=8k\nsize=1m",
    "rw=read:4k\nbs=8k\nsize=100k",
    "rw=read:4k\nbs=8k\noffset=512k",
    "rw=read:4k\noffset=512k\nsize=512k\nloops=3",
    // A kilo is what its option says, wherever in the section that stands.
    "size=640k\nbs=64k\nrw=write\nkb_base=1000",
    "kb_base=1000\nbs=4096\nsize=65536\nrw=read:8kib",
    // Sizes of a split are multiples of the smallest, and what is left is no request.
    "rw=write\nbssplit=8k/50:12k/50\nsize=1m",
    "rw=randread\nbssplit=8k/50:12k/50\nsize=1m",
    "rw=write\nbs=4k\nsize=10000",
    "rw=write\nbs=4k\nsize=65000",
    "rw=read\nbs=512\nsize=10000",
    "rw=write\nsize=128k\nfsync=8\nfdatasync=0",
    // On a disk without zones fio imagines some, as we do.
    "rw=write\nsize=256k\nzonemode=zbd\nzonesize=64k",
    "rw=write\nsize=256k\nzonemode=zbd\nzonesize=64k\nzonecapacity=48k",
    "rw=write\nsize=256k\nzonemode=zbd\nzonesize=64k\nzonecapacity=48k\nloops=3",
    "rw=write\nsize=256k\nio_size=1m\nzonemode=zbd\nzonesize=64k",
    "rw=randwrite\nsize=4z\noffset=2z\nzonemode=zbd\nzonesize=64k",
    "rw=randwrite\nsize=256k\nzonemode=zbd\nzonesize=64k\nmax_open_zones=2",
    "rw=randwrite\nsize=300k\noffset=10k\nzonemode=zbd\nzonesize=64k",
    "rw=randwrite\nsize=256k\nnumjobs=2\nzonemode=zbd\nzonesize=64k\nmax_open_zones=3\n\
     job_max_open_zones=1",
    "rw=write\nsize=256k\nzonemode=zbd\nzonesize=64k\nverify=crc32c",
    "rw=randwrite\nsize=256k\nzonemode=zbd\nzonesize=64k\nverify=crc32c",
    "rw=read\nsize=256k\nzonemode=zbd\nzonesize=64k\nread_beyond_wp=1",
    "rw=write\nsize=192k\nzonemode=zbd\nzonesize=64k\n[b]\nstonewall\nrw=read\nsize=256k\n\
     zonemode=zbd\nzonesize=64k",
    "rw=write\nsize=192k\nzonemode=zbd\nzonesize=64k\n[b]\nstonewall\nrw=randread\n\
     size=256k\nzonemode=zbd\nzonesize=64k",
    "rw=randwrite\nsize=256k\nio_size=1m\nzonemode=zbd\nzonesize=64k\n\
     zone_reset_threshold=0.5\nzone_reset_frequency=0.25",
    "rw=write\nsize=256k\nzonemode=zbd\nzonesize=64k\n[b]\nstonewall\nrw=randtrim\nbs=64k\n\
     size=256k\nzonemode=zbd\nzonesize=64k",
];

/// Jobs that do the same requests in the same order, on a disk of 16 MiB.
const SEQUENCES: &[&str] = &[
    "rw=read\nbs=64k\nsize=2m\nzonemode=strided\nzonesize=256k\nzonerange=1m\nzoneskip=512k",
    "rw=read\nbs=64k\nsize=4m\nzonemode=strided\nzonesize=1m\nzonerange=3m",
    "rw=write\nsize=160k\nzonemode=strided\nzonesize=40k\nzonerange=10k",
    "rw=read\nsize=256k\nzonemode=strided\nzonesize=64k\nzonerange=2k",
    "rw=read\noffset=1m\nsize=4m\nbs=16k\nzonemode=strided\nzonesize=128k\nzoneskip=1m",
    "rw=read:60k\nbs=8k\nsize=16m\nio_size=1m",
    "rw=write\nsize=128k\nfsync=8\nfdatasync=0",
    "rw=write\nsize=128k\nfsync=4",
    "rw=write\nsize=128k\nend_fsync=1\nfsync_on_close=0",
    // Offsets in percent are rounded up.
    "rw=read\noffset=33%\nsize=256k",
    "rw=read\noffset=33%\nsize=256k\nbs=48k",
    "rw=write\noffset=5k\noffset_increment=7%\nsize=256k",
];

/// The requests of a log as either program writes it: what, where, how long.
fn requests(log: &Path) -> Vec<(String, u64, u64)> {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let requests = lines.filter_map(|fields| match fields[..] {
        // fio writes where the file was when it was flushed.
        [_, _, "sync", ..] => Some(("sync".to_string(), 0, 0)),
        [_, _, what, offset, length] => {
            Some((what.to_string(), offset.parse().unwrap(), length.parse().unwrap()))
        }
        _ => None,
    });
    requests.collect()
}

/// The requests of a job on fio and here, over a file of 16 MiB; none without fio.
fn both(job: &str) -> Option<[Vec<(String, u64, u64)>; 2]> {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    let text = |log: &Path| {
        let (disk, log) = (disk.display(), log.display());
        format!("[global]\nioengine=psync\nfilename={disk}\nwrite_iolog={log}\n[a]\n{job}\n")
    };
    let logs = ["theirs", "ours"].map(|name| folder.path().join(name));
    fio(folder.path(), &text(&logs[0]))?;
    ours(&disk, &text(&logs[1]));
    Some(logs.map(|log| requests(&log)))
}

/// Jobs whose requests have the same lengths by direction, wherever they are; on 16 MiB.
const LENGTHS: &[&str] = &[
    "rw=randrw\nbs=4k,64k\nsize=16m",
    "rw=rw\nbs=4k,64k\nsize=4m",
    "rw=randrw\nbsrange=1k-4k,8k-16k\nsize=8m",
    "rw=randread\nbs=8k\nba=4k\nsize=1m",
    "rw=randwrite\nbsrange=1k-4k\nbs=8k\nsize=2m",
    "rw=randwrite\nbssplit=4k/50:16k/50\nbs=8k\nsize=4m",
    "rw=randread\nzonemode=strided\nzonesize=256k\nzonerange=1m\nzoneskip=2m\nbs=16k\nsize=1m",
];

#[test]
fn requests_have_the_same_lengths() {
    for job in LENGTHS {
        let Some([theirs, ours]) = both(job) else { return };
        let lengths = |requests: &[(String, u64, u64)]| {
            let all = requests.iter().map(|(what, _, length)| (what.clone(), *length));
            all.collect::<std::collections::BTreeSet<_>>()
        };
        assert!(
            theirs.len() > 40 && lengths(&theirs) == lengths(&ours),
            "{job}: {:?}, {:?}",
            lengths(&theirs),
            lengths(&ours)
        );
    }
}

/// What is left at the end of a sequence is no request if none is so short.
#[test]
fn a_sequence_of_lengths_ends_where_none_fits() {
    for (job, least) in [
        ("rw=write\nbsrange=8k-12k\nsize=1m", 8 << 10),
        ("rw=read\nbsrange=3k-10k\nsize=1m", 3 << 10),
        ("rw=write\nbssplit=12k/50:24k/50\nsize=1m\nloops=2", 12 << 10),
    ] {
        let Some(both) = both(job) else { return };
        for requests in both {
            let moved = requests.iter().filter(|(what, ..)| what != "open" && what != "close");
            let (mut end, mut ends) = (0, vec![]);
            for &(_, offset, length) in moved {
                assert!(length >= least, "{job}: {length}");
                if offset == 0 {
                    ends.push(end);
                }
                end = offset + length;
            }
            ends.push(end);
            assert!(ends[1..].iter().all(|end| (1 << 20) - end < least), "{job}: {ends:?}");
        }
    }
}

#[test]
fn both_do_the_same_sequences() {
    for job in SEQUENCES {
        let Some([theirs, ours]) = both(job) else { return };
        assert!(theirs.len() > 4, "{job}: {}", theirs.len());
        let differs = theirs.iter().zip(&ours).position(|(theirs, ours)| theirs != ours);
        let differs = differs.map(|at| (at, &theirs[at], &ours[at]));
        assert_eq!((differs, theirs.len()), (None, ours.len()), "{job}");
    }
}

fn fio(folder: &Path, text: &str) -> Option<Vec<Counts>> {
    let jobs = folder.join("jobs.fio");
    std::fs::write(&jobs, text).unwrap();
    let output =
        Command::new("fio").current_dir(folder).arg("--output-format=json").arg(&jobs).output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "fio: {error}");
            eprintln!("skipped: fio: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}: {errors}");
    let out = String::from_utf8(output.stdout).unwrap();
    let json = &out[out.find('{').unwrap()..];
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    let counts = |job: &serde_json::Value| {
        ["read", "write", "trim"].map(|direction| {
            let figure = |name: &str| job[direction][name].as_u64().unwrap();
            (figure("total_ios"), figure("io_bytes"))
        })
    };
    Some(value["jobs"].as_array().unwrap().iter().map(counts).collect())
}

fn ours(path: &Path, text: &str) -> Vec<Counts> {
    let clock = RealClock::new();
    let options = FileOptions { block_size: 512, create_size: None, memory_len: 1 << 20 };
    let mut lanes = [File::open(path, options, clock.clone()).unwrap()];
    let file = JobFile::parse(text, Path::new("jobs.fio"), &[]).unwrap();
    let played = play(&mut lanes, &clock, &file, PlayOptions::default()).unwrap();
    let counts = |direction: &Option<DirectionResults>| {
        direction.as_ref().map_or((0, 0), |it| (it.requests, it.bytes))
    };
    let jobs = played.jobs.iter().inspect(|job| assert_eq!(job.failure, None, "{text}"));
    // fio's reads have those of the verification among them; here they are told apart.
    let job = |job: &flysch_bench::results::JobResults| {
        let verified = job.verified.as_ref().map_or(0, |it| it.bytes);
        let mut all = [&job.read, &job.write, &job.trim].map(counts);
        all[0] = (all[0].0 + verified / 4096, all[0].1 + verified);
        all
    };
    jobs.map(job).collect()
}

#[test]
fn both_do_the_same_requests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![0; SIZE as usize]).unwrap();
    let global = format!("[global]\nioengine=psync\nfilename={}\n[a]\n", path.display());
    for job in JOBS {
        let text = format!("{global}{job}\n");
        let Some(theirs) = fio(folder.path(), &text) else { return };
        assert_eq!(ours(&path, &text), theirs, "{job}");
    }
}

/// A pass of a mixed sequence with gaps is over when one direction is at the end; which it is, and
/// how far the other has come, is random.
#[test]
fn mixed_sequences_with_gaps_end() {
    for (job, loops) in [("rw=rw:64k\nsize=4m", 1), ("rw=rw:64k\nsize=4m\nloops=3", 3)] {
        let Some(both) = both(job) else { return };
        for requests in both {
            let count = |what: &str| requests.iter().filter(|(is, ..)| is == what).count();
            let (reads, writes) = (count("read"), count("write"));
            // 61 places with distances of 68 KiB.
            let most = requests.iter().map(|(_, offset, _)| offset / (68 << 10)).max();
            assert_eq!(most, Some(60), "{job}");
            assert!(reads.max(writes) >= 61, "{job}: {reads}, {writes}");
            assert!(reads + writes > 90 * loops && reads + writes < 122 * loops, "{job}");
        }
    }
}

#[test]
fn mixes_have_the_same_shares() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![0; SIZE as usize]).unwrap();
    let global = format!("[global]\nioengine=psync\nfilename={}\n[a]\n", path.display());
    for (percent, job) in [
        (30, "rw=randrw\nnorandommap\nsize=1m\nio_size=8m\nrwmixread=30"),
        (80, "rw=rw\nsize=1m\nloops=8\nrwmixread=80"),
    ] {
        let text = format!("{global}{job}\n");
        let Some(theirs) = fio(folder.path(), &text) else { return };
        let ours = ours(&path, &text);
        let all = |counts: &Counts| counts[0].0 + counts[1].0;
        assert_eq!(all(&ours[0]), all(&theirs[0]), "{job}");
        // Six standard deviations of that many draws.
        let count = all(&ours[0]) as f64;
        let share = f64::from(percent) / 100.0;
        let limit = 6.0 * (count * share * (1.0 - share)).sqrt();
        for reads in [ours[0][0].0, theirs[0][0].0] {
            assert!((reads as f64 - count * share).abs() < limit, "{job}: {reads} of {count}");
        }
    }
}
