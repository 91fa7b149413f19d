//! `cargo xtask bench`: measures every figure of docs/bench.md and prints it as Markdown.

mod exports;
mod guest;
mod image_create;
mod mount;
mod raw_flash;
mod trees;

use std::process::Command;
use std::time::Instant;

use crate::workspace::Workspace;
use crate::{Failure, shell};

/// One figure: its name, and how it is measured.
struct Figure {
    name: &'static str,
    title: &'static str,
    /// Arguments of cargo.
    command: &'static [&'static str],
    /// Turns what the command prints into text for docs/bench.md.
    show: fn(&Workspace, &[&str]) -> Result<String, String>,
}

const FIGURES: [Figure; 14] = [
    Figure {
        name: "instructions",
        title: "Instructions per 4 KiB read",
        command: &["run", "--quiet", "--profile=dist", "--package", "flysch-cost"],
        show: as_printed,
    },
    Figure {
        name: "files",
        title: "Instructions per 4 KiB of a file",
        command: &[
            "run",
            "--quiet",
            "--profile=dist",
            "--package",
            "flysch-cost",
            "--example",
            "files",
        ],
        show: as_printed,
    },
    Figure {
        name: "dispatch",
        title: "Requests by calls, against queues and threads",
        command: &[
            "run",
            "--quiet",
            "--profile=dist",
            "--package",
            "flysch-bench",
            "--example",
            "dispatch",
        ],
        show: as_printed,
    },
    Figure {
        name: "runner",
        title: "Time per I/O of the workload runner, against fio's null engine",
        command: &[
            "test",
            "--quiet",
            "--profile=dist",
            "--package",
            "flysch-bench",
            "--test",
            "peers",
            "against_fio::a_third_of_fios_time_per_request_at_most",
            "--",
            "--exact",
            "--ignored",
            "--nocapture",
        ],
        show: as_printed,
    },
    Figure {
        name: "linux",
        title: "Instructions and processor time of a request through io_uring, beside fio",
        command: &[
            "test",
            "--quiet",
            "--profile=dist",
            "--package",
            "flysch-bench",
            "--test",
            "peers",
            "linux_against_fio::costs_per_request",
            "--",
            "--exact",
            "--ignored",
            "--nocapture",
        ],
        show: as_printed,
    },
    Figure {
        name: "simulated",
        title: "Simulated I/Os per second of wall time, whole stack, depth 32, virtual clock",
        command: &[
            "run",
            "--quiet",
            "--profile=dist",
            "--",
            "bench",
            "--on=ufs,clock=virtual",
            "--rw=randread",
            "--bs=4k",
            "--iodepth=32",
            "--size=1G",
            "--norandommap",
        ],
        show: per_second,
    },
    Figure {
        name: "seeds",
        title: "Seeds of the fault plan",
        command: &["run", "--quiet", "--profile=dist", "--package", "flysch-sim", "--", "seeds"],
        show: as_printed,
    },
    Figure {
        name: "table",
        title: "Queue depths on the model",
        command: &["run", "--quiet", "--profile=dist", "--", "bench"],
        show: as_printed,
    },
    Figure {
        name: "raw-flash",
        title: "Raw flash: extraction, opening and mounts",
        command: &["build", "--quiet", "--profile=dist", "--package", "flysch-cli"],
        show: raw_flash::measure,
    },
    Figure {
        name: "image-create",
        title: "Raw flash: images made",
        command: &["build", "--quiet", "--profile=dist", "--package", "flysch-cli"],
        show: image_create::measure,
    },
    Figure {
        name: "mount",
        title: "Raw flash: mounts that can be changed, against the directory they lie in",
        command: &["build", "--quiet", "--profile=dist", "--package", "flysch-cli"],
        show: mount::measure,
    },
    Figure {
        name: "against-linux",
        title: "Our drivers through VFIO, against Linux's own, in one guest",
        command: &["build", "--quiet", "--profile=dist", "--package", "flysch-cli"],
        show: guest::against_linux,
    },
    Figure {
        name: "exports",
        title: "Our exports, against QEMU's, in one run",
        command: &["build", "--quiet", "--profile=dist", "--package", "flysch-cli"],
        show: exports::measure,
    },
    Figure {
        name: "exports-guest",
        title: "Disks of Linux that our exports serve, beside qemu-nbd's and the kernel's own",
        command: &["build", "--quiet", "--profile=dist", "--package", "flysch-cli"],
        show: guest::exports,
    },
];

/// Requests of the shorter and the longer run, whose difference is measured.
const REQUESTS: [u64; 2] = [1_000_000, 6_000_000];
/// Runs of each; the fastest one counts.
const RUNS: usize = 3;

/// Measures the requested figures.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<(), Failure> {
    let only = match options {
        [] => None,
        [list] if list == "--list" => {
            FIGURES.iter().for_each(|figure| println!("{:<14} {}", figure.name, figure.title));
            return Ok(());
        }
        [only, name] if only == "--only" => Some(name),
        [other, ..] => return Err(Failure::Usage(format!("unknown option `{other}`"))),
    };
    let wanted = |figure: &&Figure| only.is_none_or(|name| name == figure.name);
    let figures: Vec<&Figure> = FIGURES.iter().filter(wanted).collect();
    if figures.is_empty() {
        let names = FIGURES.each_ref().map(|figure| figure.name).join(", ");
        return Err(Failure::Usage(format!("there is no such figure; there are: {names}")));
    }
    for figure in figures {
        let measured = (figure.show)(workspace, figure.command)?;
        println!("## {}\n\n    cargo {}\n", figure.title, figure.command.join(" "));
        match measured.starts_with('|') || measured.contains("\n|") {
            true => println!("{}\n", measured.trim_end()),
            false => println!("```\n{}\n```\n", measured.trim_end()),
        }
    }
    Ok(())
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = shell::cargo(&workspace.root);
    command.args(arguments);
    command
}

fn as_printed(workspace: &Workspace, arguments: &[&str]) -> Result<String, String> {
    shell::output(&mut cargo(workspace, arguments))
}

/// Requests per second of wall time, from the difference between a long and a short run, so that
/// starting the program and creating its device do not count.
fn per_second(workspace: &Workspace, arguments: &[&str]) -> Result<String, String> {
    let mut seconds = [f64::MAX; 2];
    for _ in 0..RUNS {
        for (best, requests) in seconds.iter_mut().zip(REQUESTS) {
            let mut command = cargo(workspace, arguments);
            command.arg(format!("--number_ios={requests}")).arg("--loops=100");
            let begun = Instant::now();
            shell::output(&mut command)?;
            *best = best.min(begun.elapsed().as_secs_f64());
        }
    }
    let requests = REQUESTS[1] - REQUESTS[0];
    let rate = requests as f64 / (seconds[1] - seconds[0]).max(1e-9);
    Ok(format!("{:.2} million simulated I/Os per second of wall time", rate / 1e6))
}
