//! `flysch lab linux`: the guest as a command.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{command, labs};
use crate::served::qemu_11;

fn lab_linux(words: &[&str]) -> Command {
    let mut lab = Command::new(command());
    lab.env("FLYSCH_QEMU", qemu_11()).args(["lab", "linux"]).args(words).stdin(Stdio::null());
    lab
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Faults come from inside, data stays, and the script's status is the command's.
#[test]
fn a_script_runs_on_models_and_has_faults_done_to_one() {
    if labs().is_empty() {
        return;
    }
    let script = r#"
        for t in /sys/block/sd*/device/timeout; do echo 3 > $t; done
        yes flysch | head -c 1M > /tmp/data
        dd if=/tmp/data of=/dev/sda bs=64k oflag=direct conv=fsync status=none
        echo "disks $(ls /dev/sda /dev/nvme0n1 | wc -l)"
        dmesg -C
        flysch-ctl 0 inject lost-interrupt:n1+timeout:n2 || exit 4
        dd if=/dev/sda bs=64k count=16 iflag=direct status=none | cmp - /tmp/data && echo same
        flysch-ctl 0 status
        dmesg | grep -q . && echo "Linux noticed"
        flysch-ctl 1 power-cut
        flysch-ctl 2 status
        exit 7"#;
    for kernel in ["release", "backports"] {
        let words = ["--on", "ufs,size=64M", "--on", "nvme,size=64M", "--kernel", kernel];
        let output = lab_linux(&words).args(["--script", "-"]).stdin(Stdio::piped()).spawn();
        let mut lab = output.unwrap();
        std::io::Write::write_all(&mut lab.stdin.take().unwrap(), script.as_bytes()).unwrap();
        let status = lab.wait().unwrap();
        assert_eq!(status.code(), Some(7), "{kernel}");
    }
    let words = ["--on", "ufs,size=64M", "--on", "nvme,size=64M", "--", script];
    let output = lab_linux(&words).output().unwrap();
    let text = said(&output);
    for part in ["disks 2", "same", "timeout", "Linux noticed", "survived", "from 0 to 1"] {
        assert!(text.contains(part), "no `{part}`: {text}");
    }
}

/// One of QEMU's own devices, with a persistent image.
#[test]
fn a_device_of_qemu_keeps_its_image() {
    if labs().is_empty() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let target = format!("nvme@qemu,size=64M,image={}", image.display());
    let script = "echo kept | dd of=/dev/nvme0n1 bs=512 conv=sync,fsync status=none";
    let output = lab_linux(&["--on", &target, "--", script]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(std::fs::read(image).unwrap().starts_with(b"kept\n"));
}

/// However the command ends, QEMU and the sockets end with it.
#[test]
fn killed_it_leaves_no_guest_behind() {
    if labs().is_empty() {
        return;
    }
    for signal in ["TERM", "KILL"] {
        let share = tempfile::tempdir().unwrap();
        let mark = share.path().display().to_string();
        let script = "touch /share/runs; sleep 1000";
        let words = ["--on", "ufs,size=64M", "--share", &mark, "--", script];
        let mut lab = lab_linux(&words).spawn().unwrap();
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(120);
            while !is_so() {
                assert!(Instant::now() < deadline, "{what}");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        until("the guest does not run", &|| share.path().join("runs").exists());
        let kill = Command::new("kill").args(["-s", signal, &lab.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let status = lab.wait().unwrap();
        assert_eq!(status.code(), if signal == "TERM" { Some(130) } else { None });
        until("QEMU is still there", &|| !is_running(&mark));
    }
}

/// Whether a process has this in its command line.
fn is_running(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).any(
        |words| {
            let words = String::from_utf8_lossy(&words).into_owned();
            words.contains("virtfs") && words.contains(mark)
        },
    )
}
