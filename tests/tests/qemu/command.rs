//! The command on QEMU's device, both releases: everything works, and no QEMU is left behind.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use flysch_tests::command::{Ran, flysch, ran};
use flysch_tests::qemu::releases;
use flysch_tests::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};

/// Runs the command with `QEMU` in its words replaced by this release's target.
fn run(words: &str, program: &Path) -> Ran {
    let words = words.split_whitespace();
    let words = words.map(|w| w.replace("QEMU", &format!("ufs@qemu,qemu={}", program.display())));
    ran(flysch().args(words).stdin(Stdio::null()).output().unwrap())
}

/// Process ids of all QEMUs started by `parent`.
fn qemus_of(parent: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|t| fs::read_to_string(t.path().join("children")).ok());
    children
        .flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
        .collect()
}

fn is_alive(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until something other than zeros has been written to the image at `path`.
fn wait_for_writes(path: &Path) {
    wait_until("the image is written", || {
        fs::read(path).is_ok_and(|content| content.iter().any(|byte| *byte != 0))
    });
}

#[test]
fn a_killed_qemu_is_told_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for release in releases() {
        let (image, program) = (folder.path().join(release.name), release.program.display());
        let target = format!("ufs@qemu,size=1M,image={},qemu={program}", image.display());
        // Longer than any machine needs for its first write.
        let child = flysch()
            .args(["bench", "--on", &target, "--rw=randwrite", "--runtime=20m", "--time_based"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for_writes(&image);
        for qemu in qemus_of(child.id()) {
            kill_process(Pid::from_raw(qemu).unwrap(), Signal::KILL).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("QEMU ended (signal: 9"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn every_command_works_on_both_releases() {
    for release in releases() {
        let works = |words: &str, part: &str| {
            let ran = run(words, &release.program);
            assert_eq!(ran.status, 0, "{} {words}: {}", release.name, ran.stderr);
            assert!(ran.stdout.contains(part), "{} {words}: {}", release.name, ran.stdout);
        };
        works("devlist --on QEMU", "<QEMU QEMU HARDDISK");
        works("devlist -vv --on QEMU,mcq=2", "1 GiB");
        works("ufs info --on QEMU", "QEMU UFS");
        works("ufs lu --on QEMU,size=64M", "64 MiB");
        works("ufs descriptor unit --on QEMU", "qLogicalBlockCount");
        works("ufs attribute bActiveICCLevel 2 --on QEMU", "0x02");
        works("ufs attribute --on QEMU", "bRefClkFreq");
        works("ufs flag --on QEMU", "fDeviceInit");
        works("ufs power ssu sleep --on QEMU", "link");
        works("ufs errors --on QEMU", "no errors");
        if release.is_11 {
            works("ufs wb on --on QEMU", "on");
        } else {
            let ran =
                run("ufs attribute bWriteBoosterBufferResizeHint --on QEMU", &release.program);
            assert_eq!(ran.status, 2, "{}", ran.stderr);
            assert!(
                ran.stderr.contains("4.1") && ran.stderr.contains("not sent"),
                "{}",
                ran.stderr
            );
        }
    }
}

#[test]
fn services_it_does_not_have_are_told_in_one_line() {
    for release in releases() {
        let old = !release.is_11;
        for (words, status, part) in [
            ("ufs rpmb", 1, "replay protected memory is not supported"),
            ("ufs ffu", 1, "field firmware update is not supported"),
            ("ufs purge start --yes", 1, "purge is not supported"),
            ("ufs refresh start", 1, "refresh is not supported"),
            ("ufs history", 1, "INVALID COMMAND OPERATION CODE"),
            ("ufs bootlun set a --yes", 1, "bBootEnable"),
        ] {
            let ran = run(&format!("{words} --on QEMU"), &release.program);
            assert_eq!(ran.status, status, "{} {words}: {}", release.name, ran.stderr);
            assert!(ran.stderr.contains(part), "{} {words}: {}", release.name, ran.stderr);
            assert_eq!(ran.stderr.lines().count(), 1, "{} {words}: {}", release.name, ran.stderr);
        }
        // QEMU 11 accepts the time, QEMU 10 does not know the attribute.
        let ran = run("ufs timestamp 1 --on QEMU", &release.program);
        assert_eq!(ran.status, i32::from(old), "{}: {}", release.name, ran.stderr);
    }
}

#[test]
fn copies_are_verified_in_both_queue_modes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::write(
        &data,
        (0..5_000_003_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    for release in releases() {
        for mcq in ["", ",mcq=3"] {
            let image = folder.path().join("unit.img");
            let target = format!("QEMU{mcq},size=16M,image={}", image.display());
            let words = format!("copy {} {target} --seek 777 --verify", data.display());
            let ran = run(&words, &release.program);
            assert_eq!(ran.status, 0, "{} {words}: {}", release.name, ran.stderr);
            let (image, data) = (fs::read(&image).unwrap(), fs::read(&data).unwrap());
            assert!(image[777..777 + data.len()] == data, "{} {words}", release.name);
        }
    }
}

#[test]
fn a_qemu_that_is_not_there_is_said_with_the_remedy() {
    for (program, part) in [("/nonexistent/qemu", "was not found"), ("/bin/true", "not QEMU")] {
        let ran = run("devlist --on QEMU", Path::new(program));
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(part) && ran.stderr.contains("apt install"), "{}", ran.stderr);
    }
}

#[test]
fn ctrl_c_ends_qemu_too() {
    let folder = tempfile::tempdir().unwrap();
    for release in releases() {
        let (image, program) = (folder.path().join(release.name), release.program.display());
        let target = format!("ufs@qemu,size=16M,image={},qemu={program}", image.display());
        let mut child = flysch()
            .args(["copy", "-", &target])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The copy waits for more; what it has received so far goes to the device.
        stdin.write_all(&[7; 8 << 20]).unwrap();
        wait_for_writes(&image);
        let qemus = qemus_of(child.id());
        assert!(qemus.iter().any(|qemu| is_alive(*qemu)), "{qemus:?}");
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{}", release.name);
        wait_until("QEMU ends", || qemus.iter().all(|qemu| !is_alive(*qemu)));
    }
}
