//! `flysch serve` and `flysch serve-ctl`: their output, and what is left behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use flysch_tests::command::{flysch, run_in};
use rustix::process::{Pid, Signal, kill_process};

/// A server with its device ready, and the lines it prints from then on.
fn serve(folder: &Path) -> (Child, impl Iterator<Item = String>) {
    let (child, mut lines) = start("serve ufs,size=64M --socket vu.sock", folder);
    assert_eq!(lines.next().unwrap(), "ready control=vu.sock.ctl socket=vu.sock");
    (child, lines)
}

/// A command, and the lines it prints.
fn start(words: &str, folder: &Path) -> (Child, impl Iterator<Item = String>) {
    let mut child = flysch()
        .args(words.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    (child, lines)
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn every_order_is_answered_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut server, mut lines) = serve(folder);
    let order = |words: &str| {
        let ran = run_in(&format!("serve-ctl vu.sock {words}"), folder);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{words}");
        ran.stdout.trim_end().to_owned()
    };
    for (words, answer) in [
        ("status", "status incidents=none"),
        ("inject timeout:n100+ocs:n7", "done"),
        ("inject none", "done"),
        ("power-cut", "lost=0 survived=0 torn=0"),
        ("power-on", "done"),
        ("reset", "done"),
        ("remove", "done"),
        ("status --json", r#"{"event":"status","failure":null,"incidents":[]}"#),
        ("stop", "done"),
    ] {
        assert_eq!(order(words), answer, "{words}");
    }
    assert_eq!(lines.next().as_deref(), Some("ended incidents=none"));
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert_eq!(names(folder), 0, "the sockets are gone");
}

/// Each has its own sockets, orders and faults; they end together.
#[test]
fn one_process_serves_several_devices() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = "serve ufs,size=64M --socket a nvme,size=64M --socket b";
    let (mut server, mut lines) = start(words, folder);
    let mut next = |count| {
        let mut lines: Vec<_> = lines.by_ref().take(count).collect();
        lines.sort();
        lines
    };
    assert_eq!(next(2), ["ready control=a.ctl socket=a", "ready control=b.ctl socket=b"]);
    let order = |words: &str| run_in(&format!("serve-ctl {words}"), folder);
    assert_eq!(order("a reset").stdout, "done\n", "the UFS device has a line for it");
    assert!(order("b reset").stderr.contains("no reset line"), "the NVMe controller has none");
    assert_eq!(order("b stop").stdout, "done\n");
    assert_eq!(next(2), ["ended incidents=none socket=a", "ended incidents=none socket=b"]);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert_eq!(names(folder), 0, "the sockets are gone");
    for (words, status, says) in [
        ("ufs nvme --socket x", 2, "there are 2 TARGETs, but 1 of --socket"),
        ("ufs --socket x nvme --socket x", 2, "x is named twice"),
        ("ufs --socket x nvme --socket x.ctl", 2, "x.ctl is named twice"),
        ("ufs,size=64M --socket x nvme --socket nowhere/x", 1, "nowhere/x: No such file"),
        ("ufs,size=64M --socket x file:disk --socket y", 2, "file:disk: only a modelled device"),
    ] {
        let ran = run_in(&format!("serve {words}"), folder);
        assert_eq!(ran.status, status, "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{words}: {}", ran.stderr);
        assert_eq!(names(folder), 0, "{words}: nothing is left");
    }
}

#[test]
fn a_signal_ends_it_and_what_is_in_the_way_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = |words: &str, status: i32, says: &str| {
        let ran = run_in(words, folder);
        assert_eq!(ran.status, status, "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{words}: {}", ran.stderr);
    };
    refused("serve-ctl vu.sock status", 1, "is `flysch serve` running there?");
    refused("serve ufs@qemu --socket x", 2, "ufs@qemu: only a modelled device can be served");
    fs::write(folder.join("file"), "").unwrap();
    refused("serve ufs --socket file", 1, "exists and is not a socket");
    fs::remove_file(folder.join("file")).unwrap();
    let (mut server, _lines) = serve(folder);
    refused("serve ufs --socket vu.sock", 1, "vu.sock");
    refused("serve-ctl vu.sock inject nonsense", 2, "kinds are timeout");
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().code().is_some());
    assert_eq!(names(folder), 0, "the sockets are gone");
}

#[test]
fn a_guest_is_refused_devices_that_it_cannot_have() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run_in("lab linux --share nowhere -- true", folder.path());
    assert_eq!((ran.status, &ran.stderr[..]), (1, "flysch: --share nowhere: not a folder\n"));
    for (words, says) in [
        ("--on null", "null: only a modelled device can be served"),
        ("--on ufs,clock=virtual", "leave `clock=` out"),
        ("--on ufs@qemu --on nvme@qemu", "--on nvme@qemu: a guest can have only one of QEMU's own"),
        ("--memory 4G", "it must be 256M to 2047M"),
        ("--kernel 2.4", "possible values: release, backports"),
    ] {
        let ran = run_in(&format!("lab linux {words} -- true"), folder.path());
        assert_eq!(ran.status, 2, "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{words}: {}", ran.stderr);
    }
    assert_eq!(names(folder.path()), 0, "nothing was made");
}
