//! What fio writes where nothing is verified, we write.

use std::path::Path;
use std::process::Command;

use flysch_bench::clock::RealClock;
use flysch_bench::file::{File, FileOptions};
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{PlayOptions, play};

const SIZE: usize = 256 << 10;
/// What the disk contains before.
const OLD: u8 = 0x55;

/// The content of the disk after the options of a `[global]` and of a job, by fio and by us; `None`
/// without fio.
fn contents(global: &str, job: &str) -> Option<[Vec<u8>; 2]> {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let text = format!(
        "[global]\nioengine=psync\nbs=4k\nsize=256k\nfilename={}\n{global}\n[a]\n{job}\n",
        disk.display()
    );
    std::fs::write(&disk, vec![OLD; SIZE]).unwrap();
    let jobs = folder.path().join("jobs.fio");
    std::fs::write(&jobs, &text).unwrap();
    match Command::new("fio").current_dir(folder.path()).arg(&jobs).output() {
        Ok(output) => assert!(output.status.success(), "{text}: {output:?}"),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "fio: {error}");
            eprintln!("skipped: fio: {error}");
            return None;
        }
    }
    let theirs = std::fs::read(&disk).unwrap();
    std::fs::write(&disk, vec![OLD; SIZE]).unwrap();
    let file = JobFile::parse(&text, Path::new("jobs.fio"), &[]).unwrap();
    let clock = RealClock::new();
    let options = FileOptions { block_size: 512, create_size: None, memory_len: 1 << 20 };
    let mut lanes = [File::open(&disk, options, clock.clone()).unwrap()];
    let played = play(&mut lanes, &clock, &file, PlayOptions::default()).unwrap();
    assert_eq!(played.jobs[0].failure, None, "{text}");
    Some([theirs, std::fs::read(&disk).unwrap()])
}

#[test]
fn the_options_of_buffers_come_before_each_other_as_in_fio() {
    for (global, job, first) in [
        ("zero_buffers=1", "", Some(0)),
        ("zero_buffers=1", "zero_buffers=0", None),
        ("refill_buffers=1", "refill_buffers=0\nzero_buffers=1", Some(0)),
        ("zero_buffers=1", "refill_buffers=1", Some(0)),
        ("buffer_pattern=0xaa", "zero_buffers=1", Some(0xaa)),
        ("zero_buffers=1", "buffer_pattern=0xaa01", Some(0xaa)),
        ("buffer_pattern=0xaa", "refill_buffers=1", Some(0xaa)),
        ("buffer_pattern=-300", "", Some(0xd4)),
        ("buffer_pattern=2147483647", "", Some(0xff)),
        ("buffer_pattern=0xabc", "", Some(0xa)),
    ] {
        let Some([theirs, ours]) = contents(global, &format!("rw=write\n{job}")) else { return };
        match first {
            Some(first) => assert!(theirs == ours && ours[0] == first, "{global} {job}"),
            None => {
                let is_random = |it: &[u8]| it.iter().filter(|&&byte| byte == 0).count() < SIZE / 8;
                assert!(is_random(&theirs) && is_random(&ours), "{global} {job}");
            }
        }
    }
}

/// What a read left in a buffer is not written.
#[test]
fn writes_between_reads_write_what_they_should() {
    for (fill, rw) in [
        ("buffer_pattern=0xaa", "rw"),
        ("buffer_pattern=0xaa", "randrw"),
        ("buffer_pattern=0xaa\niodepth=4\nioengine=libaio", "randrw"),
        ("buffer_pattern=0xaa\nbs=8k,4k", "randrw"),
        ("buffer_pattern=0xaa\nrate_iops=1000000", "rw"),
    ] {
        // Nothing that is read is the pattern, because each place comes once.
        let Some(both) = contents("", &format!("rw={rw}\n{fill}")) else { return };
        for content in both {
            let blocks = content.chunks(4096).map(|block| {
                assert!(block.iter().all(|byte| *byte == block[0]), "{fill}");
                block[0]
            });
            let new =
                blocks.inspect(|byte| assert!([OLD, 0xaa].contains(byte))).filter(|it| *it != OLD);
            // Of 64 requests, or of 43, half are writes.
            let count = new.count();
            assert!(count >= 12, "{fill}: {count}");
        }
    }
}
