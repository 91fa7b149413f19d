//! Other people's file system exercisers on mounts that can be changed.
//!
//! fsx (Apple, FreeBSD: one file, every way of changing it) and fsstress (SGI, LTP: many processes,
//! every call) are not in Debian, so this runs where `FLYSCH_POSIX_TOOLS` names a folder with the
//! two programs; `FLYSCH_POSIX_OPERATIONS` says how long (20 000 operations each by default).

mod image_common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, RwLock};

use flysch_fuse::{Options, Shared};
use flysch_tests::writable::{START, jffs2, ubifs};
use flysch_vfs::Memory;

fn tool(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FLYSCH_POSIX_TOOLS").map(PathBuf::from);
    let found = folder.map(|folder| folder.join(name)).filter(|tool| tool.exists());
    if found.is_none() {
        println!("skipped: FLYSCH_POSIX_TOOLS names no folder with {name}");
    }
    found
}

fn operations() -> u64 {
    let set = std::env::var("FLYSCH_POSIX_OPERATIONS");
    set.map_or(20_000, |number| number.parse().expect("a number of operations"))
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let end = |text: &str| text.lines().rev().take(30).collect::<Vec<_>>().join("\n");
    assert!(output.status.success(), "{command:?}: {}\n{}", end(&text), end(&errors));
}

/// Mounts `fs`, lets both exercisers at it, and unmounts.
fn exercise(fs: &Shared) {
    let (Some(fsx), Some(fsstress)) = (tool("fsx"), tool("fsstress")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    std::fs::create_dir(&at).unwrap();
    let options = Options { source: "exercise".into(), threads: 2, trusted: true };
    let mounted = flysch_fuse::mount_read_write(fs.clone(), &at, &options).unwrap();
    let operations = operations();
    run(Command::new(fsx)
        .args(["-q", "-q", "-S", "7", "-N", &operations.to_string(), "-P"])
        .arg(folder.path())
        .arg(at.join("fsx")));
    let stress = at.join("stress");
    std::fs::create_dir(&stress).unwrap();
    let each = (operations / 4).to_string();
    run(Command::new(fsstress).args(["-s", "7", "-c", "-p", "4", "-n", &each, "-d"]).arg(&stress));
    println!("fsx: {operations} operations, fsstress: 4 processes of {each} operations");
    mounted.unmount().unwrap();
    let report = flysch_vfs::verify(&*fs.read().unwrap());
    assert_eq!(report.violations, []);
    assert!(report.files > 3, "fsstress left {} files", report.files);
}

fn has_fuse() -> bool {
    let found = Path::new("/dev/fuse").exists() && image_common::is_root();
    if !found {
        println!("skipped: there is no /dev/fuse, or this is not root");
    }
    found
}

#[test]
fn memory_stands_the_exercisers() {
    if has_fuse() {
        exercise(&(Arc::new(RwLock::new(Memory::new(64 << 20, START))) as Shared));
    }
}

#[test]
fn ubifs_stands_the_exercisers() {
    if has_fuse() {
        exercise(&(Arc::new(RwLock::new(ubifs(1024))) as Shared));
    }
}

#[test]
fn jffs2_stands_the_exercisers() {
    if has_fuse() {
        exercise(&(Arc::new(RwLock::new(jffs2(1024))) as Shared));
    }
}
