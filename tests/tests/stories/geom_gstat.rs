//! The activity of a workload on a rig, observed from outside while it runs.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use flysch_tests::command::{flysch, run_in};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const RIG: &str = "\
clock = \"virtual\"
[[controller]]
name = \"sata\"
target = \"ahci,profile=sata-ssd\"
disks = [\"ada0\", \"ada1\"]
[[disk]]
name = \"ada0\"
size = \"64M\"
[[disk]]
name = \"ada1\"
size = \"64M\"
[[geom]]
name = \"mirror/gm0\"
create = \"mirror label gm0 ada0 ada1\"
";

/// A workload on the mirror. It is ended on drop.
struct Bench {
    child: Option<Child>,
    socket: PathBuf,
}

impl Bench {
    fn start(folder: &Path, words: &str) -> Self {
        fs::write(folder.join("rig.toml"), RIG).unwrap();
        let words = format!("bench --json --on rig.toml:mirror/gm0 --stats-socket sock {words}");
        let mut command = flysch();
        command.args(words.split_whitespace()).current_dir(folder).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let socket = folder.join("sock");
        let start = Instant::now();
        while !socket.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "no socket");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child: Some(child), socket }
    }

    /// A socket exists a moment before it listens.
    fn connect(&self) -> UnixStream {
        let start = Instant::now();
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => return stream,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().unwrap());
        kill_process(pid, signal).expect("our own child can be signalled");
    }

    fn ended(mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn rate(counters: &Value, name: &str, kind: &str, what: &str) -> f64 {
    let mut all = counters["counters"].as_array().unwrap().iter();
    let found = all.find(|counter| counter["name"] == name).unwrap_or_else(|| panic!("{counters}"));
    found[kind][what].as_f64().unwrap_or_else(|| panic!("{found}"))
}

#[test]
fn what_a_workload_does_is_shown_by_gstat() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = "--rw=randrw --bs=4k --iodepth=8 --time_based=1 --runtime=100000";
    let mut bench = Bench::start(folder, words);
    let shown = run_in("gstat -b -I 500ms sock", folder);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    let heading = " L(q)  ops/s    r/s   kBps   ms/r    w/s   kBps   ms/w   %busy Name";
    assert_eq!(lines[1], heading);
    for name in ["mirror/gm0", "ada0", "ada1"] {
        let line = lines.iter().find(|line| line.ends_with(&format!("  {name}")));
        let line = line.unwrap_or_else(|| panic!("{}", shown.stdout));
        let columns: Vec<&str> = line.split_whitespace().collect();
        for rate in [1, 2, 3, 5, 6] {
            assert!(columns[rate].parse::<u64>().unwrap() > 0, "{line}");
        }
        assert_eq!((columns[4], columns[7]), ("-", "-"), "{line}");
        assert!(columns[0].parse::<u64>().unwrap() <= 8, "{line}");
        let busy: f64 = columns[8].parse().unwrap();
        assert!(busy > 0.0 && busy <= 100.0, "{line}");
    }
    let json = run_in("--json gstat -b -I 300ms sock", folder).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    for what in ["per_second", "kib_per_second"] {
        let writes = rate(&json, "mirror/gm0", "writes", what);
        assert!(writes > 0.0, "{json}");
        assert_eq!(rate(&json, "ada0", "writes", what), writes, "{json}");
        assert_eq!(rate(&json, "ada1", "writes", what), writes, "{json}");
        let (one, other) = (rate(&json, "ada0", "reads", what), rate(&json, "ada1", "reads", what));
        let reads = rate(&json, "mirror/gm0", "reads", what);
        assert!((one + other - reads).abs() < reads / 1e6, "{json}");
    }
    let csv = run_in("gstat -bC -I 50ms -f gm0 sock", folder).stdout;
    assert!(csv.starts_with("timestamp,name,q-depth,") && csv.contains(",mirror/gm0,"), "{csv}");
    let refused = run_in("geom --socket sock mirror status", folder);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("only answers `flysch gstat`"), "{}", refused.stderr);
    bench.signal(Signal::INT);
    assert_eq!(bench.ended().status.code(), Some(130));
    assert!(!folder.join("sock").exists());
    let gone = run_in("gstat -b sock", folder);
    assert_eq!(gone.status, 1);
    assert!(gone.stderr.contains("nobody listens"), "{}", gone.stderr);
}

/// Time is that of the models: whatever clients do, the figures are the same as without them.
#[test]
fn clients_that_hang_or_vanish_harm_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = "--rw=randrw --bs=4k --iodepth=8 --size=32M --io_size=256M --verify=crc32c";
    let bench = Bench::start(folder, words);
    let question = b"{\"statistics\":true}\n";
    let silent: Vec<UnixStream> = (0..4).map(|_| bench.connect()).collect();
    let mut half = bench.connect();
    half.write_all(&question[..9]).unwrap();
    let mut wrong = bench.connect();
    wrong.write_all(b"what?\n").unwrap();
    let mut answer = String::new();
    wrong.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("is not understood"), "{answer}");
    let mut deaf = bench.connect();
    deaf.write_all(question).unwrap();
    let mut asked = 0;
    while bench.socket.exists() {
        // A client that is gone before the answer comes.
        if let Ok(mut gone) = UnixStream::connect(&bench.socket) {
            let _ = gone.write_all(question);
        }
        asked += u32::from(run_in("gstat -b -I 10ms sock", folder).status == 0);
    }
    assert!(asked > 0);
    let ended = bench.ended();
    drop((silent, half, deaf));
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!folder.join("sock").exists());
    let watched: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let alone = run_in(&format!("bench --json --on rig.toml:mirror/gm0 {words}"), folder);
    let alone: Value = serde_json::from_str(&alone.stdout).unwrap();
    for kind in ["read", "write"] {
        let of = |it: &Value| it["jobs"][0][kind]["iops"].as_f64().unwrap();
        assert!(of(&alone) > 0.0 && of(&alone) == of(&watched), "{kind}");
    }
}

#[test]
fn sockets_of_workloads_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("rig.toml"), RIG).unwrap();
    fs::write(folder.join("file"), "").unwrap();
    let mistakes = [
        ("--on ufs --stats-socket sock", 2, "ufs: is no provider"),
        ("--on rig.toml:mirror/gm0 --stats-socket file", 1, "file"),
    ];
    for (words, status, part) in mistakes {
        let ran = run_in(&format!("bench {words}"), folder);
        assert_eq!(ran.status, status, "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(part) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    }
    assert!(!folder.join("sock").exists() && folder.join("file").exists());
}
