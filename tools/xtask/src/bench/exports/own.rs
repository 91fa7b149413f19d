//! How much of a device's own rate an export passes on: the same jobs on the modelled UFS device in
//! real time, by our own runner and by a client of the export.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::{Door, FILE, JOBS, Job, SECONDS, Server, by_fio, by_qemu_img, median_and_span};
use crate::shell;

/// A model of a device that was measured in a machine on the market, in real time.
const DEVICE: &str = "ufs,profile=galaxy-book-s,clock=real,size=256M";

/// The heading of the rows of all doors.
pub(super) const HEADING: &str = "\n\
    | door | job | the device alone, IOPS | null through it | through it | share (least, most) | of \
    what the two allow |\n|---|---|--:|--:|--:|--:|--:|\n";

/// Returns the rows of one door, in Markdown. `floors` are the rates of the jobs through this door
/// on a device that does nothing.
pub(super) fn measure(
    flysch: &Path,
    root: &Path,
    door: Door,
    rounds: usize,
    floors: &[f64],
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
    for (job, &floor) in JOBS.into_iter().zip(floors) {
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
        let ([alone, ..], [through, ..]) = (of(|sample| sample.0), of(|sample| sample.1));
        // One request at a time waits for the protocol, then for the device.
        let allowed = match job.depth {
            1 => 1.0 / (1.0 / alone + 1.0 / floor),
            _ => alone.min(floor),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {alone:.0} | {floor:.0} | {through:.0} | {share:.2} ({least:.2}, \
             {most:.2}) | {:.2} |",
            door.name(),
            job.name(),
            through / allowed,
        );
    }
    Ok(text)
}

/// Requests per second of the device with `flysch bench`, in the access order of the export's
/// client.
fn by_ourselves(flysch: &Path, door: Door, job: Job) -> Result<f64, String> {
    let Job { block, depth, writes } = job;
    let kind = if writes { "write" } else { "read" };
    let order = match door {
        Door::Nbd => format!("rand{kind}"),
        Door::VhostUser => format!("{kind}:{}", job.stride() - block),
    };
    let mut bench = Command::new(flysch);
    bench.args(["bench", "--json", "--time_based", "--on", DEVICE]);
    bench.args([format!("--rw={order}"), format!("--bs={block}")]);
    bench.args([format!("--iodepth={depth}"), format!("--size={FILE}")]);
    let said = shell::output(bench.arg(format!("--runtime={SECONDS}")))?;
    let value: serde_json::Value =
        serde_json::from_str(&said).map_err(|e| format!("the JSON of flysch bench: {e}"))?;
    let rate = value["jobs"][0][kind]["iops"].as_f64().filter(|rate| *rate > 0.0);
    rate.ok_or_else(|| format!("flysch bench did nothing: {said}"))
}
