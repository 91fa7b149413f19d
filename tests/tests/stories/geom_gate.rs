//! `flysch geom gate` on servers of other projects: nbdkit and qemu-nbd.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flysch_tests::command::{Ran, lacks, run_in};

/// A server in the foreground; it is ended on drop.
struct Server(Child);

impl Server {
    fn start(folder: &Path, socket: &str, words: &str) -> Self {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let (this, start) = (Self(child), Instant::now());
        while !folder.join(socket).exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "{socket} does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        this
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nbdkit(folder: &Path, socket: &str, words: &str) -> Server {
    let path = folder.join(socket);
    Server::start(folder, socket, &format!("nbdkit -f -U {} {words}", path.display()))
}

fn script(folder: &Path, lines: &str) -> Ran {
    fs::write(folder.join("script"), lines).unwrap();
    run_in("geom --script script", folder)
}

#[test]
fn a_mirror_of_a_gate_of_each_server_is_what_they_kept() {
    if ["nbdkit", "qemu-nbd", "qemu-img"].into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::File::create(folder.join("raw")).unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "q.qcow2", "16M"])
        .current_dir(folder)
        .status();
    assert!(made.unwrap().success());
    let data: Vec<u8> =
        (0..3_000_320_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    let one = nbdkit(folder, "k.sock", "file raw");
    let q = folder.join("q.sock");
    let serve = format!("qemu-nbd -t -f qcow2 -x disk -k {} q.qcow2", q.display());
    let other = Server::start(folder, "q.sock", &serve);
    let rig = "[[geom]]\nname = \"k\"\ncreate = \"gate create -n k unix:k.sock\"\n\
        [[geom]]\nname = \"q\"\ncreate = \"gate create -n q -e disk unix:q.sock\"\n\
        [[geom]]\nname = \"mirror/gm\"\ncreate = \"mirror label gm k q\"\n";
    fs::write(folder.join("r.toml"), rig).unwrap();
    for words in [
        "part create -s gpt mirror/gm",
        "part add -t linux-data -l root mirror/gm",
        "copy data mirror/gmp1",
    ] {
        let ran = run_in(&format!("geom --rig r.toml {words}"), folder);
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
    }
    drop((one, other));
    // What the servers stored is read by other programs, without the servers.
    let convert = Command::new("qemu-img")
        .args(["convert", "-f", "qcow2", "-O", "raw", "q.qcow2", "q.raw"])
        .current_dir(folder)
        .status();
    assert!(convert.unwrap().success());
    let halves = ["raw", "q.raw"].map(|name| fs::read(folder.join(name)).unwrap());
    let body = (16 << 20) - 512;
    assert!(halves[0][..body] == halves[1][..body] && halves[0][40 * 512..][..data.len()] == data);
    // With one server gone the rig names the missing one.
    let _one = nbdkit(folder, "k2.sock", "file raw");
    let ran = script(folder, "gate create -n k unix:k2.sock\nmirror status -s\n");
    assert_eq!((ran.status, ran.stdout.contains("DEGRADED")), (0, true), "{}", ran.stdout);
    let ran = run_in("geom --rig r.toml tree", folder);
    assert!(
        ran.status == 1 && ran.stderr.contains("r.toml: line 3: unix:k.sock"),
        "{}",
        ran.stderr
    );
}

#[test]
fn servers_that_cannot_be_used_are_told_in_a_line() {
    if lacks("nbdkit") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("dir")).unwrap();
    fs::write(folder.join("file"), "x").unwrap();
    let _servers = [
        nbdkit(folder, "ro", "-r memory 1M"),
        nbdkit(folder, "old", "-o memory 1M"),
        nbdkit(folder, "odd", "memory 1048700"),
        nbdkit(folder, "bad", "--filter=error memory 1M error-rate=100%"),
        nbdkit(folder, "big", "--filter=blocksize-policy memory 1M blocksize-minimum=4096"),
    ];
    for (lines, status, part) in [
        ("gate create unix:nope", 1, "unix:nope: No such file"),
        ("gate create unix:file", 1, "unix:file: a file is not a socket"),
        ("gate create unix:dir", 1, "unix:dir: a folder is not a socket"),
        ("gate create tcp:127.0.0.1:1", 1, "is the server running?"),
        ("gate create unix:", 2, "is neither unix:PATH nor tcp:HOST:PORT"),
        ("gate create unix:old", 1, "the old NBD handshake"),
        ("gate create -o rw unix:ro", 1, "refuses writes"),
        ("gate create -n r unix:ro\nlabel label x r", 1, "r: the device is write protected"),
        ("gate create -s 512 unix:big", 2, "takes blocks of 4096"),
        ("gate create unix:odd", 0, "124 bytes at its end are left out"),
        ("gate create -n e unix:bad\ncopy e out", 1, "e: medium error"),
    ] {
        let ran = script(folder, lines);
        assert_eq!(ran.status, status, "{lines}: {}", ran.stderr);
        let is_one = ran.stderr.contains(part) && ran.stderr.lines().count() == 1;
        assert!(is_one, "{lines}: {}", ran.stderr);
        assert!(!folder.join("out").exists(), "{lines}");
    }
}
