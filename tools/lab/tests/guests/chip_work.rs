//! Work for the chip: pages programmed and read, blocks erased, for the same calls on the same
//! flash, by Linux's UBIFS and JFFS2 and by ours.

use std::time::Duration;

use crate::common::lab;

const COUNT: &str = include_str!("chip_work/count.sh");

/// The work that one job caused for a chip.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Number of pages programmed.
    written: u64,
    /// Number of pages read.
    read: u64,
    /// Number of blocks erased.
    erased: u64,
}

/// How much more work ours may cause than the kernel's. Both vary by some pages from run to run:
/// timers write pending data.
const MORE: Work = Work { written: 24, read: 400, erased: 8 };

/// Known cases that exceed this: see docs/flash-work.md.
const KNOWN: [(&str, Work); 3] = [
    ("ubifs names", Work { written: 100, read: 800, erased: 8 }),
    ("jffs2 names", Work { written: 120, read: 400, erased: 8 }),
    ("jffs2 overwrites", Work { written: 200, read: 0, erased: 8 }),
];

fn compare(file_system: &str) {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    crate::common::put_command(share.path());
    crate::common::put_helper(share.path());
    let jobs = "random zeros files appends overwrites names";
    let script = format!("file_systems={file_system}\njobs='{jobs}'\n{COUNT}");
    let output = crate::common::run_for(&lab, &script, share.path(), Duration::from_secs(3000));
    println!("| job | Linux: programmed, read, erased | Flysch | \n|---|--:|--:|");
    for job in jobs.split(' ') {
        let [linux, ours] = ["linux", "flysch"].map(|who| {
            let start = format!("counted {file_system} {job} {who} ");
            let line = output.lines().find_map(|line| line.strip_prefix(&start));
            counts(line.unwrap_or_else(|| panic!("{start}: {output}")))
        });
        let name = format!("{file_system} {job}");
        println!("| {name} | {} | {} |", text(linux), text(ours));
        assert!(linux.written > 50, "{name}: nothing was counted");
        let more = KNOWN.iter().find(|it| it.0 == name).map_or(MORE, |it| it.1);
        let within = ours.written <= linux.written + more.written
            && ours.read <= linux.read + more.read
            && ours.erased <= linux.erased + more.erased;
        assert!(within, "{name}: Linux {linux:?}, ours {ours:?}");
    }
}

fn counts(line: &str) -> Work {
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    let [written, read, erased] = numbers[..] else { panic!("{line}") };
    Work { written, read, erased }
}

fn text(work: Work) -> String {
    format!("{}, {}, {}", work.written, work.read, work.erased)
}

#[test]
fn ubifs_makes_no_more_work_than_the_kernels() {
    compare("ubifs");
}

#[test]
fn jffs2_makes_no_more_work_than_the_kernels() {
    compare("jffs2");
}
