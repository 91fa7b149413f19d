//! `flysch bench`: workloads on targets, measured.

mod files;
mod flash;
mod iosched;
mod options;
mod profiles;
mod study;
mod trace;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::RangedU64ValueParser;
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{self, Demand, PlayError, PlayOptions};
use flysch_bench::published::{Column, Origin};
use flysch_bench::results::{Energy, Incident, Results, TargetResults};
use flysch_bench::{csv, fio_json, report, text};
use flysch_rig::{ClockKind, Needs, Target};

use crate::failure::Failure;
use crate::file::{Named, spare_inputs};
use crate::geom::{Disk, On, Watched};
use crate::output::Output;
use crate::progress::Progress;
use files::{Page, Traces};
use options::JobOptions;

/// Records that a trace keeps per lane and stage by default.
const TRACE_RECORDS: usize = 1 << 18;

/// Options of `flysch bench`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Without job files and job options: prints the queue-depth table of the four classic fio jobs.
With job options: runs one job. With job files: runs their jobs; options override theirs.
Examples:
  flysch bench
  flysch bench --on ufs --on ufs,mcq=4 --rw=randread --bs=4k --iodepth=32 --runtime=1
  flysch bench jobs.fio --on ufs@qemu --runtime=2 --json
  flysch bench --on rig.toml:mirror/gm0 --rw=randwrite --iodepth=32 --runtime=1
  flysch bench --on rig.toml:mirror/gm0 --rw=randrw --runtime=60 --stats-socket sock
  flysch bench flash --html flash.html
  flysch bench profiles
  flysch bench study --html study.html")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    /// fio job files.
    #[arg(value_name = "JOBFILE")]
    files: Vec<PathBuf>,
    /// What to run on: a target, or RIG:PROVIDER of a rig; several are compared. `flysch targets`
    /// lists the kinds.
    #[arg(long, value_name = "TARGET", default_value = "ufs")]
    on: Vec<String>,
    /// The clock of modelled targets: sets `clock=` for all of them.
    #[arg(long, value_name = "CLOCK", value_parser = parse_clock)]
    clock: Option<ClockKind>,
    /// Run only this section of the job files; may be given more than once.
    #[arg(long, value_name = "NAME", requires = "files")]
    section: Vec<String>,
    /// Seed of everything random in the workloads.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Write the results as comma-separated values; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the report, a page for the browser, into this folder; `-` is standard output.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write every request to FILE.blktrace.N and FILE.perfetto-trace.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How many requests each lane's trace keeps per stage; it keeps the last ones.
    #[arg(long, value_name = "NUMBER", default_value_t = TRACE_RECORDS)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    trace_records: usize,
    /// Put an I/O scheduler in front of every lane: `default`, or rules such as
    /// `read-latency=2000,delete-depth=1`; see docs/cam.md.
    #[arg(long, value_name = "RULES")]
    iosched: Option<iosched::Chosen>,
    /// Create a socket for `flysch gstat`, which shows what the providers of a rig do meanwhile.
    #[arg(long, value_name = "PATH")]
    stats_socket: Option<PathBuf>,
    #[command(flatten)]
    jobs: JobOptions,
}

/// Measurements other than workloads on a disk.
#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Measure UBIFS and JFFS2 on raw flash, compared with the chip itself.
    Flash(flash::Arguments),
    /// Measure every profile of every model against published figures.
    Profiles(profiles::Arguments),
    /// Compare UFS, NVMe, eMMC and SATA: areas, energy, equal devices, a day of phone use.
    Study(study::Arguments),
    /// Read traces of Linux's own stack: its I/Os with the four areas.
    Trace(trace::Arguments),
}

fn parse_clock(text: &str) -> Result<ClockKind, String> {
    match text {
        "virtual" => Ok(ClockKind::Virtual),
        "hybrid" => Ok(ClockKind::Hybrid),
        "real" => Ok(ClockKind::Real),
        _ => Err("use virtual, hybrid or real".to_owned()),
    }
}

/// Runs workloads.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.other {
        Some(Other::Flash(arguments)) => return flash::run(arguments, output),
        Some(Other::Profiles(arguments)) => return profiles::run(arguments, output),
        Some(Other::Study(arguments)) => return study::run(arguments, output),
        Some(Other::Trace(arguments)) => return trace::run(arguments, output),

        None => {}
    }
    let jobs = Jobs::of(arguments)?;
    let targets = targets(arguments)?;
    if targets.len() > 1 && jobs.file.as_ref().is_some_and(JobFile::writes_logs) {
        let why = "write_iolog writes the requests of one target: give --on once";
        return Err(Failure::usage(why));
    }
    check_null(&jobs, &targets)?;
    if let Some(csv) = &arguments.csv {
        if arguments.report.as_ref() == Some(csv) && !flysch_files::is_standard_output(csv) {
            let name = csv.display();
            return Err(Failure::usage(format!("{name} cannot be both --csv and --report")));
        }
        spare_inputs(csv, &arguments.files)?;
        targets.iter().try_for_each(|(_, on)| spare_inputs(csv, on.files()?))?;
    }
    let mut files = Files::open(arguments, output)?;
    let watched = watched(arguments, &targets)?;
    for (name, reason) in jobs.file.iter().flat_map(|file| &file.ignored) {
        eprintln!("flysch: option `{name}` has no meaning here: {reason}");
    }
    for note in jobs.file.iter().flat_map(|file| &file.notes) {
        eprintln!("flysch: {note}");
    }
    let mut results = Results {
        version: env!("CARGO_PKG_VERSION").to_string(),
        timestamp_ms: milliseconds_since_1970(),
        is_table: jobs.file.is_none(),
        targets: Vec::new(),
    };
    // A trace that cannot be written costs no results.
    let mut written = Ok(());
    for (index, (name, target)) in targets.iter().enumerate() {
        let (target_results, traces) =
            run_on((name, target), &jobs, (arguments, watched.as_ref()))?;
        results.targets.push(target_results);
        if let (Some(files), Ok(())) = (&mut files.traces, &written) {
            written = files.write((index, name), results.timestamp_ms, &traces, output);
        }
    }
    let written = written.and_then(|()| files.finish(&results));
    if output.json() {
        let global = jobs.file.map(|file| file.global).unwrap_or_default();
        output.value(&fio_json::Document::new(&results, &global))?;
    } else {
        output.line(text::render(&results).trim_end())?;
    }
    output.finish()?;
    written.and_then(|()| first_failure(&results))
}

/// What to run.
struct Jobs {
    /// `None`: the depth table, which depends on the device.
    file: Option<JobFile>,
}

impl Jobs {
    fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let mut options = arguments.jobs.list.clone();
        if options.is_empty() && arguments.files.is_empty() {
            return Ok(Self { file: None });
        }
        if let Some(seed) = arguments.seed {
            options.push(("randseed".to_string(), Some(seed.to_string())));
        }
        if arguments.files.is_empty() {
            let name = options.iter().find(|(name, _)| name == "name");
            let name = name.and_then(|(_, value)| value.clone());
            let name = name.unwrap_or_else(|| "job".to_string());
            let file = JobFile::of_options(&name, &options)?;
            return Ok(Self { file: Some(file) });
        }
        let wanted = &arguments.section;
        let (mut all, mut sections) = (JobFile::default(), Vec::new());
        for path in &arguments.files {
            let mut file = JobFile::read(path, &options)?;
            sections.extend(file.jobs.iter().map(|job| job.section.clone()));
            file.jobs.retain(|job| wanted.is_empty() || wanted.contains(&job.section));
            // Files given one after the other run one after the other.
            if let Some(first) = file.jobs.first_mut() {
                first.settings.stonewall = true;
            }
            all.jobs.append(&mut file.jobs);
            all.global.append(&mut file.global);
            all.ignored.append(&mut file.ignored);
            all.notes.append(&mut file.notes);
        }
        let absent = wanted.iter().find(|name| !sections.contains(name));
        absent.map_or(Ok(Self { file: Some(all) }), |name| {
            let there = sections.join(", ");
            Err(Failure::usage(format!("there is no section `{name}`, only {there}")))
        })
    }
}

/// Refuses what no target of this kind can do: what is written to `null` is nowhere.
fn check_null(jobs: &Jobs, targets: &[(String, On)]) -> Result<(), Failure> {
    let is_null = |on: &On| matches!(on.target(), Some(Target::Null(_)));
    let Some((name, _)) = targets.iter().find(|(_, on)| is_null(on)) else { return Ok(()) };
    let jobs = jobs.file.iter().flat_map(|file| &file.jobs);
    let verified = jobs.filter(|job| job.settings.workload.verify.is_some_and(|it| it.read_back));
    verified.map(|job| &job.name).next().map_or(Ok(()), |job| {
        let why = format!("{name} keeps no data, so that {job} can verify none: leave verify out");
        Err(Failure::usage(why))
    })
}

fn targets(arguments: &Arguments) -> Result<Vec<(String, On)>, Failure> {
    let parse = |text: &String| {
        let mut on: On = text.parse().map_err(Failure::from)?;
        let On::Target(target) = &mut on else { return Ok((text.clone(), on)) };
        match (arguments.clock, &mut **target) {
            (Some(clock), Target::Ufs(ufs)) => ufs.clock = clock,
            (Some(ClockKind::Real), Target::Nvme(_)) => {
                let why = "the NVMe model has no thread of its own: --clock virtual or hybrid";
                return Err(Failure::usage(why));
            }
            (Some(ClockKind::Real), Target::Ahci(_)) => {
                let why = "the AHCI model has no thread of its own: --clock virtual or hybrid";
                return Err(Failure::usage(why));
            }
            (Some(clock), Target::Nvme(nvme)) => nvme.clock = clock,
            (Some(clock), Target::Ahci(ahci)) => ahci.clock = clock,
            (Some(ClockKind::Real), Target::Emmc(_)) => {
                let why = "the eMMC model has no thread of its own: --clock virtual or hybrid";
                return Err(Failure::usage(why));
            }
            (Some(clock), Target::Emmc(emmc)) => emmc.clock = clock,
            _ => {}
        }
        Ok((text.clone(), on))
    };
    arguments.on.iter().map(parse).collect()
}

/// The socket that answers queries about the workloads, if one is wanted.
fn watched(arguments: &Arguments, targets: &[(String, On)]) -> Result<Option<Watched>, Failure> {
    let Some(path) = &arguments.stats_socket else { return Ok(None) };
    if let Some((name, _)) = targets.iter().find(|(_, on)| on.target().is_some()) {
        let why = "is no provider, and only those are counted: --stats-socket takes \
                   --on RIG:PROVIDER";
        return Err(Failure::usage(format!("{name}: {why}")));
    }
    Watched::listen(path).map(Some)
}

/// Runs the jobs on one target.
fn run_on(
    (name, target): (&str, &On),
    jobs: &Jobs,
    (arguments, watched): (&Arguments, Option<&Watched>),
) -> Result<(TargetResults, Vec<flysch_bench::trace::ring::Ring>), Failure> {
    let table = play::depth_table(u64::MAX, arguments.seed);
    let demand = Demand::of(jobs.file.as_ref().unwrap_or(&table));
    let stack = Disk::open(target, &needs(target, &demand), arguments.clock);
    let mut stack = stack.map_err(|failure| failure.on(name))?;
    watched.into_iter().for_each(|watched| stack.watch(watched));
    let geometry = stack.geometry();
    let zones = if demand.zones { stack.zones().map_err(|why| why.on(name))? } else { None };
    let table = play::depth_table(geometry.bytes(), arguments.seed);
    let file = jobs.file.as_ref().unwrap_or(&table);
    let mut progress = Progress::share("running");
    let mut show = |fraction: f64| progress.set((fraction * 1000.0) as u64);
    let trace_records = if arguments.trace.is_some() { arguments.trace_records } else { 0 };
    let options = PlayOptions { trace_records, progress: Some(&mut show), zones };
    let (before, energy) = (stack.incidents(), stack.energy());
    let mut scheduled = Vec::new();
    let played = match arguments.iosched {
        None => stack.play(file, options),
        Some(rules) => {
            stack.visit(iosched::Scheduled { file, options, rules, incidents: &mut scheduled })
        }
    };
    drop(progress);
    let why = stack.failure();
    let mut incidents = Incident::between(&before, &stack.incidents());
    incidents.extend(scheduled.into_iter().filter(|incident| incident.count > 0));
    let mut played = played.map_err(|error| refused(name, &mut stack, error))?;
    // What kept the stack from its work says more than what a request was answered.
    if why.is_none() {
        stack.keep();
    }
    if let Some(why) = why {
        // Jobs that were told to go on have results all the same; the incidents say why.
        if played.jobs.iter().all(|job| job.failure.is_none() && job.failures == 0) {
            return Err(Failure::of(name, why));
        }
        let failed = played.jobs.iter_mut().filter(|job| job.failure.is_some());
        failed.for_each(|job| job.failure = Some(why.clone()));
    }
    let is_published = jobs.file.is_none() && target.origin() == Some(Origin::GalaxyBookS);
    for job in played.jobs.iter_mut().filter(|_| is_published) {
        let column = Column::from_job_name(&job.name);
        job.published = column.and_then(|column| column.published(job.iodepth));
    }
    let results = TargetResults {
        target: name.to_string(),
        description: stack.description().to_string(),
        clock: stack.clock_name().to_string(),
        block_size: geometry.block_size,
        bytes: geometry.bytes(),
        jobs: played.jobs,
        totals: played.totals,
        origin: target.origin(),
        is_bare: target.is_bare(),
        incidents,
        layers: stack.layers(),
        energy: energy.and_then(|before| Some(Energy::between(&before, &stack.energy()?))),
    };
    Ok((results, played.traces))
}

/// Why no job ran, or the rest of them did not.
fn refused(name: &str, stack: &mut Disk, error: PlayError) -> Failure {
    use flysch_bench::runner::RunError;
    if let Some(why) = stack.failure() {
        return Failure::of(name, why);
    }
    match error {
        PlayError::Run(RunError::Stalled { .. } | RunError::Log { .. }) => Failure::of(name, error),
        PlayError::Run(RunError::ReadOnly { job })
            if stack.zones().is_ok_and(|zones| zones.is_some()) =>
        {
            Failure::usage(format!(
                "{name}: {job} writes, but the disk has zones, which only jobs with zonemode=zbd \
                 write"
            ))
        }
        refused => Failure::usage(format!("{name}: {refused}")),
    }
}

/// The maximum number of lanes of a provider of a rig: as many as all of its disks have.
const RIG_LANES: u8 = 31;

/// Lanes, slots and buffers for `demand`.
fn needs(on: &On, demand: &Demand) -> Needs {
    match on {
        On::Target(target) => Needs::of(target, demand),
        On::Provider(..) => Needs::with_queues(RIG_LANES, demand),
    }
}

/// The files that the user wants.
struct Files {
    csv: Option<Named>,
    report: Option<Page>,
    traces: Option<Traces>,
}

impl Files {
    /// Opens them before anything runs, so that errors are reported early.
    fn open(arguments: &Arguments, output: &mut Output) -> Result<Self, Failure> {
        Ok(Self {
            csv: arguments.csv.as_deref().map(|path| Named::open(path, output)).transpose()?,
            report: match &arguments.report {
                Some(folder) => Some(Page::in_folder(folder, output)?),
                None => None,
            },
            traces: arguments.trace.as_deref().map(Traces::new).transpose()?,
        })
    }

    fn finish(mut self, results: &Results) -> Result<(), Failure> {
        if let Some(csv) = &mut self.csv {
            csv.write(|file| csv::write(file, results))?;
        }
        if let Some(page) = self.report {
            let command: Vec<String> = std::env::args().collect();
            if let Some(path) = page.finish(&report::render(results, &command.join(" ")))? {
                eprintln!("flysch: report in {}", path.display());
            }
        }
        self.csv.map_or(Ok(()), Named::finish)?;
        self.traces.map_or(Ok(()), Traces::finish)
    }
}

fn milliseconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// A failed job makes the command fail, after all output has been written.
fn first_failure(results: &Results) -> Result<(), Failure> {
    for target in &results.targets {
        for job in &target.jobs {
            if let Some(cause) = &job.failure {
                let (target, name) = (&target.target, &job.name);
                return Err(Failure::failed(format!("{target}: job {name}: {cause}")));
            }
        }
    }
    Ok(())
}
