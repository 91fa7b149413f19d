//! How much of a device's own rate an export passes on: the same jobs on the modelled UFS device in
//! real time, by our own runner and by a client of the export.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::{Door, FILE, JOBS, Job, SECONDS, Server, by_fio, by_qemu_img, median_and_span};
use crate::shell;

/// A model of a device that was measured in a machine on the market, in real time.
const DEVICE: &str = "ufs,profile=galaxy-book-s,clock=real,size=256M";

/// The rows for one kind of export, in Markdown.
pub(super) fn measure(
    flysch: &Path,
    root: &Path,
    door: Door,
    rounds: usize,
) -> Result<String, String> {
    let socket = root.join(format!("own.{}", door.name()));
    let mut export = Command::new(flysch);
    export.args(["export", DEVICE]);
    match door {
        Door::Nbd => export.arg("--nbd").arg(format!("unix:{}", socket.display())),
        Door::VhostUser => export.arg("--vhost-user").arg(&socket),
    };
    let server = Server::start(&mut export, socket.clone(), &socket)?;
    let mut text = String::new();
    for job in JOBS {
        let mut samples = vec![];
        for _ in 0..rounds {
            let alone = by_ourselves(flysch, door, job)?;
            let (through, _) = match door {
                Door::Nbd => by_fio(&server.socket, job)?,
                Door::VhostUser => by_qemu_img(&server.socket, job)?,
            };
            samples.push((alone, through));
        }
        let of = |value: fn(&(f64, f64)) -> f64| median_and_span(samples.iter().map(value));
        let [share, least, most] = of(|(alone, through)| through / alone);
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {share:.2} ({least:.2}, {most:.2}) |",
            door.name(),
            job.name(),
            of(|sample| sample.0)[0],
            of(|sample| sample.1)[0],
        );
    }
    Ok(text)
}

/// Requests per second of the device with `flysch bench`, in the access order of the export's
/// client.
fn by_ourselves(flysch: &Path, door: Door, job: Job) -> Result<f64, String> {
    let Job { block, depth, writes } = job;
    let order = if door == Door::Nbd { "rand" } else { "" };
    let kind = if writes { "write" } else { "read" };
    let mut bench = Command::new(flysch);
    bench.args(["bench", "--json", "--time_based", "--on", DEVICE]);
    bench.args([format!("--rw={order}{kind}"), format!("--bs={block}")]);
    bench.args([format!("--iodepth={depth}"), format!("--size={FILE}")]);
    let said = shell::output(bench.arg(format!("--runtime={SECONDS}")))?;
    let value: serde_json::Value =
        serde_json::from_str(&said).map_err(|e| format!("the JSON of flysch bench: {e}"))?;
    let rate = value["jobs"][0][kind]["iops"].as_f64().filter(|rate| *rate > 0.0);
    rate.ok_or_else(|| format!("flysch bench did nothing: {said}"))
}
