//! `cargo xtask bench --only exports`: our exports and QEMU's, with the same client, on a device
//! that does nothing and on a file in memory.
//!
//! NBD: fio's nbd engine over a UNIX socket, compared with qemu-nbd. vhost-user: `qemu-img bench`
//! with libblkio, if this qemu-img has it, compared with qemu-storage-daemon. Both servers run all
//! the time and are measured alternately, in reverse order in every second round, so that other
//! work on the machine affects both; the ratio is the median of the rounds' ratios.
//!
//! A second table shows how much of a device's own rate is passed on ([`own`]).
//!
//! `FLYSCH_ROUNDS` (5) is the number of rounds.

mod own;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::raw_flash::{Folder, build_flysch, folder};
use crate::shell;
use crate::workspace::Workspace;

/// Size of the file in memory, bytes.
const FILE: u64 = 256 << 20;
/// How long a server may take to become ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// Seconds that a job of fio takes.
const SECONDS: &str = "1";

#[derive(Clone, Copy)]
struct Job {
    block: u32,
    depth: u32,
    writes: bool,
}

const JOBS: [Job; 6] = [
    Job { block: 4096, depth: 1, writes: false },
    Job { block: 4096, depth: 1, writes: true },
    Job { block: 4096, depth: 32, writes: false },
    Job { block: 4096, depth: 32, writes: true },
    Job { block: 128 << 10, depth: 8, writes: false },
    Job { block: 128 << 10, depth: 8, writes: true },
];

impl Job {
    /// Bytes from one request to the next unless requests are random. Small requests leave gaps: a
    /// disk asked for neighbours reads their page of flash once, or several times if they happen to
    /// arrive apart.
    fn stride(self) -> u32 {
        match self.block {
            4096 => 17 * 4096,
            block => block,
        }
    }

    fn name(self) -> String {
        let kind = if self.writes { "write" } else { "read" };
        format!("{kind} {} KiB, depth {}", self.block >> 10, self.depth)
    }
}

/// One round of a job: requests per second, and the server's processor time for each, µs.
#[derive(Clone, Copy)]
struct Sample {
    rate: f64,
    cost: f64,
}

/// A server that runs until this is dropped.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a program that listens at `socket` and is ready once `ready` exists.
    fn start(command: &mut Command, socket: PathBuf, ready: &Path) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|e| format!("{name}: {e}"))?;
        let mut server = Self { child, socket };
        let begun = Instant::now();
        while !ready.exists() {
            let ended = server.child.try_wait().map_err(|e| e.to_string())?;
            if ended.is_some() || begun.elapsed() > PATIENCE {
                return Err(format!("{name} does not serve"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Its processor time so far, in ticks of `clock_ticks`: proc(5), the fields after the name.
    fn ticks(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        // utime and stime are fields 14 and 15; the first field here is the third.
        Ok(fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum())
    }
}

/// The protocol by which clients reach a server.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    Nbd,
    VhostUser,
}

impl Door {
    fn name(self) -> &'static str {
        match self {
            Self::Nbd => "NBD",
            Self::VhostUser => "vhost-user",
        }
    }
}

/// Measures everything; returns Markdown.
pub(super) fn measure(workspace: &Workspace, build: &[&str]) -> Result<String, String> {
    for tool in ["fio", "qemu-nbd", "qemu-storage-daemon", "qemu-img", "getconf"] {
        if shell::find(tool).is_none() {
            return Ok(format!("skipped: {tool} is missing (fio, qemu-utils)"));
        }
    }
    let flysch = build_flysch(workspace, build)?;
    let folder = Folder::new(folder()?);
    let rounds = std::env::var("FLYSCH_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: usize = rounds.unwrap_or(5).max(1);
    let ticks = shell::output(Command::new("getconf").arg("CLK_TCK"))?;
    let ticks: f64 = ticks.trim().parse().map_err(|_| "getconf CLK_TCK is not a number")?;
    let version = shell::output(Command::new("qemu-img").arg("--version"))?;
    let mut text = format!(
        "{rounds} rounds; {}\n\n\
         | door, device | job | ours, IOPS | QEMU's, IOPS | ratio (least, most) | ours, µs | QEMU's, µs |\n\
         |---|---|--:|--:|--:|--:|--:|\n",
        version.lines().next().unwrap_or_default()
    );
    let mut doors = vec![Door::Nbd];
    if has_libblkio(folder.path()) {
        doors.push(Door::VhostUser);
    } else {
        text.insert_str(0, "vhost-user skipped: this qemu-img has no virtio-blk-vhost-user; ");
    }
    let mut floors = vec![];
    for &door in &doors {
        for in_memory in [false, true] {
            let pair = start(&flysch, folder.path(), door, in_memory)?;
            for job in JOBS {
                let samples = ask(&pair, door, job, rounds, ticks)?;
                row(&mut text, door, in_memory, job, &samples);
                if !in_memory {
                    floors.push(median_and_span(samples.iter().map(|both| both[0].rate))[0]);
                }
            }
        }
    }
    text.push_str(own::HEADING);
    for (door, floors) in doors.into_iter().zip(floors.chunks(JOBS.len())) {
        text.push_str(&own::measure(&flysch, folder.path(), door, rounds, floors)?);
    }
    Ok(text)
}

/// Whether qemu-img supports vhost-user: if so, it complains about the missing socket.
fn has_libblkio(root: &Path) -> bool {
    let disk = format!("driver=virtio-blk-vhost-user,path={}/none,cache.direct=on", root.display());
    let said = Command::new("qemu-img").args(["info", "--image-opts", &disk]).output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stderr).contains("blkio_connect"))
}

/// Starts our server and QEMU's.
fn start(flysch: &Path, root: &Path, door: Door, in_memory: bool) -> Result<[Server; 2], String> {
    let file = |who: &str| -> Result<PathBuf, String> {
        let path = root.join(format!("{who}.img"));
        // Written completely, so that no page is allocated during a job.
        std::fs::write(&path, vec![1; FILE as usize])
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    };
    let sockets = ["ours", "theirs"].map(|who| root.join(format!("{who}.{in_memory}")));
    let mut ours = Command::new(flysch);
    ours.arg("export");
    match in_memory {
        true => ours.arg(format!("file:{}", file("ours")?.display())),
        false => ours.arg("null"),
    };
    let node = match in_memory {
        true => vec!["driver=file".into(), format!("filename={}", file("theirs")?.display())],
        false => vec!["driver=null-co".into(), format!("size={}", 1_u64 << 40)],
    };
    let pid = root.join(format!("{in_memory}.pid"));
    let _ = std::fs::remove_file(&pid);
    let path = sockets[1].display();
    let mut theirs;
    match door {
        Door::Nbd => {
            ours.arg("--nbd").arg(format!("unix:{}", sockets[0].display()));
            let file: Vec<String> = node.iter().map(|option| format!("file.{option}")).collect();
            let image = format!("driver=raw,{}", file.join(","));
            theirs = Command::new("qemu-nbd");
            theirs.args(["--persistent", "--shared=4", "--cache=writeback", "--image-opts"]);
            theirs.args(["--socket", &path.to_string(), &image, "--pid-file"]).arg(&pid);
        }
        Door::VhostUser => {
            ours.arg("--vhost-user").arg(&sockets[0]);
            let device = format!("node-name=f,{}", node.join(","));
            let export = format!(
                "type=vhost-user-blk,id=e,node-name=f,addr.type=unix,addr.path={path},writable=on"
            );
            theirs = Command::new("qemu-storage-daemon");
            theirs.args(["--blockdev", &device, "--export", &export, "--pidfile"]).arg(&pid);
        }
    }
    let [our_socket, their_socket] = sockets;
    let ready = our_socket.clone();
    Ok([
        Server::start(&mut ours, our_socket, &ready)?,
        Server::start(&mut theirs, their_socket, &pid)?,
    ])
}

/// Runs a job on both alternately: returns our sample and QEMU's for each round.
fn ask(
    pair: &[Server; 2],
    door: Door,
    job: Job,
    rounds: usize,
    ticks: f64,
) -> Result<Vec<[Sample; 2]>, String> {
    let mut samples = vec![];
    for round in 0..rounds {
        let mut both = [Sample { rate: 0.0, cost: 0.0 }; 2];
        for which in [round % 2, 1 - round % 2] {
            let server = &pair[which];
            let before = server.ticks()?;
            let (rate, requests) = match door {
                Door::Nbd => by_fio(&server.socket, job)?,
                Door::VhostUser => by_qemu_img(&server.socket, job)?,
            };
            let spent = (server.ticks()? - before) as f64 / ticks;
            both[which] = Sample { rate, cost: spent * 1e6 / requests };
        }
        samples.push(both);
    }
    Ok(samples)
}

/// Requests per second, and their number.
fn by_fio(socket: &Path, Job { block, depth, writes }: Job) -> Result<(f64, f64), String> {
    let kind = if writes { "randwrite" } else { "randread" };
    let mut fio = Command::new("fio");
    fio.args(["--name=b", "--ioengine=nbd", "--time_based", "--output-format=json"]);
    fio.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()));
    fio.args([format!("--runtime={SECONDS}"), format!("--size={FILE}")]);
    fio.args([format!("--bs={block}"), format!("--iodepth={depth}"), format!("--rw={kind}")]);
    let said = shell::output(&mut fio)?;
    // fio prints other lines before its JSON.
    let json = said.find('{').map_or("", |at| &said[at..]);
    let value: serde_json::Value =
        serde_json::from_str(json).map_err(|e| format!("fio's JSON: {e}"))?;
    let done = &value["jobs"][0][if writes { "write" } else { "read" }];
    match (done["iops"].as_f64(), done["total_ios"].as_f64()) {
        (Some(rate), Some(requests)) if requests > 0.0 => Ok((rate, requests)),
        _ => Err(format!("fio did nothing: {said}")),
    }
}

/// As [`by_fio`], but [`Job::stride`] by stride, wrapping around, because that is what this program
/// can do.
fn by_qemu_img(socket: &Path, job: Job) -> Result<(f64, f64), String> {
    let Job { block, depth, writes } = job;
    // About a second each.
    let count = match (block, depth) {
        (4096, 1) => 30_000,
        (4096, _) => 120_000,
        _ => 15_000,
    };
    let disk = format!("driver=virtio-blk-vhost-user,path={},cache.direct=on", socket.display());
    let mut bench = Command::new("qemu-img");
    bench.args(["bench", "-t", "none", "--image-opts"]);
    if writes {
        bench.arg("-w");
    }
    for (option, value) in [("-c", count), ("-d", depth), ("-s", block), ("-S", job.stride())] {
        bench.args([option, &value.to_string()]);
    }
    let said = shell::output(bench.arg(&disk))?;
    let seconds = said.split_once("completed in ").and_then(|(_, rest)| rest.split(' ').next());
    let seconds: f64 = seconds
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("qemu-img does not report how long it took: {said}"))?;
    Ok((f64::from(count) / seconds.max(1e-9), f64::from(count)))
}

/// The median, the smallest and the largest value.
fn median_and_span(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    [all[all.len() / 2], all[0], all[all.len() - 1]]
}

fn row(text: &mut String, door: Door, in_memory: bool, job: Job, samples: &[[Sample; 2]]) {
    let of = |value: fn(&[Sample; 2]) -> f64| median_and_span(samples.iter().map(value));
    let [ratio, least, most] = of(|both| both[0].rate / both[1].rate);
    let _ = writeln!(
        text,
        "| {}, {} | {} | {:.0} | {:.0} | {ratio:.2} ({least:.2}, {most:.2}) | {:.1} | {:.1} |",
        door.name(),
        if in_memory { "memory" } else { "null" },
        job.name(),
        of(|both| both[0].rate)[0],
        of(|both| both[1].rate)[0],
        of(|both| both[0].cost)[0],
        of(|both| both[1].cost)[0],
    );
}
