//! Linux as the client of our exports: its ublk, its NBD, its virtio disk.

use std::path::Path;
use std::time::{Duration, Instant};

use flysch_lab::{Job, Lab};

use crate::common::{keep, labs, put_command};

/// Runs a script that says `ok NAME` for each of `parts`.
fn run(lab: &Lab, share: &Path, script: &str, arguments: &[String], parts: &[&str]) {
    let started = Instant::now();
    let timeout = Duration::from_secs(900);
    let job =
        Job { timeout, memory_mib: 1536, processors: 2, arguments, ..Job::new(script, share) };
    let done = lab.run(&job).unwrap_or_else(|error| panic!("{:?}: {error}", lab.kernel()));
    println!("{:?}: {} s\n{}", lab.kernel(), started.elapsed().as_secs(), done.output);
    if done.status != 0 {
        keep(share);
        panic!("{:?}: status {}\n{}", lab.kernel(), done.status, done.console);
    }
    for part in parts {
        assert!(done.output.contains(&format!("ok {part}\n")), "no \"ok {part}\"");
    }
}

/// The server runs in the guest, as the driver is there.
#[test]
fn linux_has_our_disks_by_ublk() {
    for lab in labs() {
        let share = tempfile::tempdir().unwrap();
        put_command(share.path());
        let parts = ["module", "limits", "data", "end", "killed", "recovered", "clean"];
        run(&lab, share.path(), include_str!("exports/ublk.sh"), &[], &parts);
    }
}
