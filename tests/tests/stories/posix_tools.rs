//! File system exercisers of other projects on writable mounts.
//!
//! fsx (Apple, FreeBSD: one file, every way of changing it), fsstress (SGI, LTP: many processes,
//! every call) and integck (mtd-utils: everything written is there after a remount) are not in
//! Debian, so this runs if `FLYSCH_POSIX_TOOLS` names a folder with these programs;
//! `FLYSCH_POSIX_OPERATIONS` sets the length (20 000 operations each by default). How to build
//! them: docs/image-mount.md.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, RwLock};

use flysch_fuse::{FuseOptions, Shared};
use flysch_tests::command::{flysch, run_in};
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

/// Mounts `fs`, runs both exercisers on it, and unmounts.
fn exercise(fs: &Shared) {
    let (Some(fsx), Some(fsstress)) = (tool("fsx"), tool("fsstress")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    std::fs::create_dir(&at).unwrap();
    let options =
        FuseOptions { source: "exercise".into(), threads: 2, trusted: true, write_through: false };
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
    let found = Path::new("/dev/fuse").exists() && crate::image_common::is_root();
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

/// integck remounts with mount(2), which cannot start a FUSE file system: when preloaded, this runs
/// `$REMOUNT` instead. Remounting a mounted file system changes nothing.
const SHIM: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <sys/mount.h>
int mount(const char *source, const char *at, const char *type, unsigned long flags,
          const void *data)
{
    if (!(flags & MS_REMOUNT) && system(getenv("REMOUNT"))) {
        errno = EIO;
        return -1;
    }
    return 0;
}
"#;

/// Waits until the last mount ends, then mounts again.
const REMOUNT: &str = r#"#!/bin/sh
unset LD_PRELOAD
cd "$FOLDER" || exit 1
while [ -f process ] && kill -0 "$(cat process)" 2>/dev/null; do sleep 0.02; done
setsid "$FLYSCH" image mount --rw $MOUNT mount >>log 2>&1 </dev/null &
echo $! >process
echo mounted >>mounts
while kill -0 "$(cat process)" 2>/dev/null; do
    grep -q " $FOLDER/mount fuse" /proc/mounts && exit 0
    sleep 0.02
done
exit 1
"#;

/// Lets integck write, remount and compare on the mount of `mount`, repeatedly, for about the
/// wanted number of operations.
fn check_integrity(mount: &str, image: Option<usize>) {
    /// Approximate number of writing calls in one repetition.
    const CHANGES: u64 = 6000;
    let Some(integck) = tool("integck") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::create_dir(path.join("mount")).unwrap();
    if let Some(size) = image {
        std::fs::write(path.join("image"), vec![0xFF; size]).unwrap();
    }
    std::fs::write(path.join("shim.c"), SHIM).unwrap();
    run(Command::new("cc").args(["-shared", "-fPIC", "-o", "shim", "shim.c"]).current_dir(path));
    std::fs::write(path.join("remount"), REMOUNT).unwrap();
    run(Command::new("chmod").arg("+x").arg(path.join("remount")));
    let command = |program: &Path| {
        let mut command = Command::new(program);
        command.env("FOLDER", path).env("FLYSCH", flysch().get_program()).env("MOUNT", mount);
        command
    };
    run(&mut command(&path.join("remount")));
    let repeat = operations().div_ceil(CHANGES).to_string();
    run(command(&integck)
        .env("REMOUNT", path.join("remount"))
        .env("LD_PRELOAD", path.join("shim"))
        .args(["-n", &repeat])
        .arg(path.join("mount")));
    run(Command::new("umount").arg(path.join("mount")));
    let checked = run_in("image check image", path);
    assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
    let mounts = std::fs::read_to_string(path.join("mounts")).unwrap().lines().count();
    println!("integck on {mount}: {repeat} repetitions, {mounts} mounts");
    assert!(mounts > 1);
}

#[test]
fn integck_finds_everything_after_remounts() {
    if !has_fuse() {
        return;
    }
    let chip = "nand,profile=MT29F2G08ABAEA,blocks=256,image=image";
    check_integrity(chip, None);
    check_integrity(&format!("{chip},fs=jffs2"), None);
    check_integrity("--erase-size 64K image", Some(24 << 20));
}
