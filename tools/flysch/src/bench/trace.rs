//! `flysch bench trace`: recordings of Linux's own tools as I/Os with their four areas.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};

use flysch_bench::import::{self, Driver, ImportError, Joined, Summary, Told, Trace};
use flysch_study::equal::{DEVICE_US, PUBLISHED_PERCENT, ahead_percent};
use serde_json::{Value, json};

use super::files::Page;
use crate::failure::Failure;
use crate::file::{Named, spare_inputs};
use crate::output::Output;

/// Options of `flysch bench trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Reconstruct I/Os with their four areas from a trace of Linux's storage stack.
    Import(Import),
    /// Compare UFS and NVMe as Micron's white paper does, from traces of both.
    Ratio(Ratio),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads blktrace's files, and the text of ftrace (also Android's), of `trace-cmd report` and of `perf
script`; docs/trace.md says which events belong to which area.
Examples:
  flysch bench trace import trace.txt
  flysch bench trace import sda.blktrace.* --json
  flysch bench trace import trace.txt --html areas.html --perfetto areas.perfetto-trace")]
struct Import {
    /// Files of one recording; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The rate of the recording's clock, if its times are ticks (`trace_clock` x86-tsc).
    #[arg(long, value_name = "NUMBER")]
    ticks_per_second: Option<f64>,
    /// Write a page for the browser; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write every I/O as a Perfetto trace; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each file is one recording of one of the white paper's jobs: 4 KiB or 128 KiB, reads or writes, one
thread or more; the job is determined from the file. Files of the same job are combined.
Example:
  flysch bench trace ratio --ufs ufs-*.txt --nvme nvme-*.txt")]
struct Ratio {
    /// Recordings on UFS.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    ufs: Vec<PathBuf>,
    /// Recordings on NVMe.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    nvme: Vec<PathBuf>,
    /// The rate of the recordings' clock, if their times are ticks.
    #[arg(long, value_name = "NUMBER")]
    ticks_per_second: Option<f64>,
}

/// Reads traces.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Import(import) => import.run(output),
        Verb::Ratio(ratio) => ratio.run(output),
    }
}

/// The I/Os of some files together.
fn read(files: &[PathBuf], ticks_per_second: Option<f64>) -> Result<(Joined, Told), Failure> {
    let mut trace = Trace::new();
    for path in files {
        let failed = |error: ImportError| Failure::of(path.display(), error);
        if path.as_os_str() == "-" {
            trace.read(&mut std::io::stdin().lock()).map_err(failed)?;
            continue;
        }
        let file = File::open(path).map_err(|error| failed(error.into()))?;
        trace.read(&mut BufReader::with_capacity(1 << 16, file)).map_err(failed)?;
    }
    let name = files.first().map_or(Path::new(""), PathBuf::as_path);
    trace.join(ticks_per_second).map_err(|error| Failure::of(name.display(), error))
}

impl Import {
    fn run(&self, output: &mut Output) -> Result<(), Failure> {
        let mut outputs = [&self.html, &self.perfetto].into_iter().flatten();
        outputs.try_for_each(|path| spare_inputs(path, &self.files))?;
        let page = self.html.as_deref().map(|path| Page::open(path, output)).transpose()?;
        let perfetto = self.perfetto.as_deref().map(|path| Named::open(path, output));
        let perfetto = perfetto.transpose()?;
        let (joined, told) = read(&self.files, self.ticks_per_second)?;
        let summary = import::summarise(&joined, told);
        if let Some(page) = page {
            let command: Vec<String> = std::env::args().collect();
            page.finish(&import::page(&summary, &command.join(" ")))?;
        }
        if let Some(mut file) = perfetto {
            file.write(|file| {
                import::write_perfetto(file, &joined)?;
                file.flush()
            })?;
            file.finish()?;
        }
        match output.json() {
            true => output.value(&summary)?,
            false => output.line(import::render(&summary).trim_end())?,
        }
        output.finish()
    }
}

/// The white paper's jobs, in its order, as far as a trace identifies them: operation and bytes.
const JOBS: [(&str, &str, u64); 4] = [
    ("128 KiB write", "write", 128 << 10),
    ("128 KiB read", "read", 128 << 10),
    ("4 KiB write", "write", 4 << 10),
    ("4 KiB read", "read", 4 << 10),
];

/// One protocol's figures of one job.
struct Figures {
    job: usize,
    threads: u64,
    ios: u64,
    /// Areas 1, 2, 4 and all, medians, microseconds.
    areas_us: [f64; 3],
    software_us: f64,
    all_us: f64,
    software_percent: f64,
}

impl Figures {
    /// Figures of the application's I/Os in a recording.
    fn of(summary: &Summary, driver: Driver) -> Option<Self> {
        let is_its = |group: &&import::Group| {
            group.driver == driver
                && group.call.is_some()
                && JOBS.iter().any(|job| (job.1, job.2) == (&group.operation[..], group.bytes))
        };
        let group = summary.groups.iter().find(is_its)?;
        let job = JOBS.iter().position(|job| (job.1, job.2) == (&group.operation, group.bytes))?;
        let median = |place: usize| group.area(place).map_or(0.0, |it| it.p50_ns as f64 / 1e3);
        Some(Self {
            job,
            threads: group.threads,
            ios: group.ios,
            areas_us: [0, 1, 3].map(median),
            software_us: median(4),
            all_us: median(5),
            software_percent: group.software_percent,
        })
    }
}

impl Ratio {
    fn run(&self, output: &mut Output) -> Result<(), Failure> {
        let ufs = self.figures(&self.ufs, Driver::Ufs)?;
        let nvme = self.figures(&self.nvme, Driver::Nvme)?;
        let mut values = Vec::new();
        for ufs in &ufs {
            let same = |it: &&Figures| it.job == ufs.job && (it.threads > 1) == (ufs.threads > 1);
            values.extend(nvme.iter().find(same).map(|nvme| beside(ufs, nvme)));
        }
        if values.is_empty() {
            return Err(Failure::failed("no job was recorded on both UFS and NVMe"));
        }
        values.sort_by_key(|value| (value["job_number"].as_u64(), value["threads"].as_u64()));
        if output.json() {
            output.value(&values)?;
            return output.finish();
        }
        let heading = [
            "job",
            "threads",
            "UFS: 1, 2, 4, us",
            "software",
            "NVMe: 1, 2, 4, us",
            "software",
            "NVMe ahead",
            "paper",
        ];
        let rows: Vec<Vec<String>> = values.iter().map(row).collect();
        output.table(&heading, &rows)?;
        output.line(
            "medians; ahead: with both protocols' software on the paper's assumed device \
             (125, 104, 12.5, 16.6 us)",
        )?;
        output.finish()
    }

    fn figures(&self, files: &[PathBuf], driver: Driver) -> Result<Vec<Figures>, Failure> {
        let mut all = Vec::new();
        for path in files {
            let (joined, told) = read(std::slice::from_ref(path), self.ticks_per_second)?;
            let summary = import::summarise(&joined, told);
            let figures = Figures::of(&summary, driver).ok_or_else(|| {
                let why = "has no reads or writes of 4 or 128 KiB by system calls on that protocol";
                Failure::of(path.display(), why)
            })?;
            all.push(figures);
        }
        Ok(all)
    }
}

fn beside(ufs: &Figures, nvme: &Figures) -> Value {
    let side = |figures: &Figures| {
        json!({
            "ios": figures.ios,
            "areas_us": figures.areas_us,
            "software_us": figures.software_us,
            "all_us": figures.all_us,
            "software_percent": figures.software_percent,
        })
    };
    let ahead = ahead_percent(DEVICE_US[ufs.job], [ufs.software_us, nvme.software_us]);
    json!({
        "job": JOBS[ufs.job].0,
        "job_number": ufs.job,
        "threads": ufs.threads,
        "ufs": side(ufs),
        "nvme": side(nvme),
        "nvme_ahead_percent": ahead,
        "published_percent": PUBLISHED_PERCENT[ufs.job],
    })
}

fn row(value: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let areas = |side: &str| {
        let areas = value[side]["areas_us"].as_array().into_iter().flatten();
        areas.map(|area| format!("{:.0}", number(area))).collect::<Vec<_>>().join(" ")
    };
    let software = |side: &str| format!("{:.0} %", number(&value[side]["software_percent"]));
    vec![
        value["job"].as_str().unwrap_or_default().into(),
        value["threads"].to_string(),
        areas("ufs"),
        software("ufs"),
        areas("nvme"),
        software("nvme"),
        format!("{:.0} %", number(&value["nvme_ahead_percent"])),
        format!("{:.0} %", number(&value["published_percent"])),
    ]
}
