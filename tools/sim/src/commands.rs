//! `flysch-sim cuts`, `campaign` and `seeds`.

use std::fs::File;
use std::io::{BufReader, IsTerminal as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use clap::{Args, Subcommand};
use flysch_models::faults::{Kind, Plan as Faults};
use flysch_models::flash::Tear;
use flysch_sim::cuts::campaign::{self, Campaign, Only, Space};
use flysch_sim::cuts::mistakes::Mistake;
use flysch_sim::cuts::report::Merged;
use flysch_sim::cuts::setting::World;
use flysch_sim::cuts::workloads::{WORKLOADS, Workload};
use flysch_sim::cuts::{self, CutList};
use flysch_sim::stack::On;
use flysch_sim::witness::Outcomes;
use flysch_sim::world::{self, Totals, Wish};
use flysch_tests::shard::{Ledger, Shard};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::End;

/// Options of `cuts`.
#[derive(Args)]
pub(crate) struct Cuts {
    /// Workload to run; without this option all of them, each on its usual chips.
    #[arg(long, conflicts_with_all = ["world", "campaign"])]
    workload: Option<String>,
    /// Run exactly this world, such as `ubifs/die4/bad0/new/unstable/tool/plain/1`: workload, chip,
    /// bad blocks, age, torn cells, user, device, seed.
    #[arg(long, conflicts_with = "campaign")]
    world: Option<World>,
    /// Run a campaign: every workload on every chip in every way, as a numbered list of worlds.
    #[arg(long)]
    campaign: bool,
    /// Cuts within cuts: 1, or 2 to cut again during each recovery.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    depth: u32,
    /// Within a recovery, cut only at every Nth operation.
    #[arg(long, default_value_t = 1)]
    deep_stride: u64,
    /// Make exactly these cuts, such as `123h,4l`, to repeat a failure.
    #[arg(long, conflicts_with = "campaign")]
    cut: Option<CutList>,
    /// Cut only at this many operations of each workload, evenly spread; without this option at
    /// all of them.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    points: Option<u64>,
    /// Ways to tear an operation, as letters: b(efore), e(arly), h(alf), l(ate), a(fter).
    #[arg(long, default_value = "ehla")]
    tears: String,
    /// Seed that decides what a cut leaves in the cells; other seeds give other outcomes.
    #[arg(long, conflicts_with_all = ["world", "campaign"])]
    seed: Option<u64>,
    /// A mistake to plant, to check that it is found: reordered, skipped-sync, skipped-erase,
    /// second-look, late-move, lost-tail, old-fastmap.
    #[arg(long)]
    plant: Option<Mistake>,
    /// List the workloads with descriptions; with --campaign, the worlds that would be run.
    #[arg(long)]
    list: bool,
    /// Run only the worlds of a campaign whose number is I modulo N.
    #[arg(long, value_name = "I/N", default_value_t, requires = "campaign")]
    shard: Shard,
    /// Run only these worlds of a campaign, such as `chip=die*,nor` (may be repeated); the names
    /// are workload, chip, bad, wear, cells, user, device, seed.
    #[arg(long, value_name = "NAME=VALUES", requires = "campaign")]
    only: Vec<Only>,
    /// Run at most this many worlds of a campaign.
    #[arg(long, requires = "campaign")]
    worlds: Option<usize>,
    /// File for the results of a campaign, one line of JSON for each world; worlds already in it
    /// are skipped.
    #[arg(long, value_name = "FILE", requires = "campaign")]
    out: Option<PathBuf>,
    /// Threads of a campaign; without this option one per processor.
    #[arg(long, requires = "campaign")]
    jobs: Option<usize>,
}

/// What to do with the results of campaigns.
#[derive(Subcommand)]
pub(crate) enum Results {
    /// Merge results: what was tried, what failed, and what share of the campaign that is. Exits
    /// with status 1 when something failed.
    Report {
        /// Files written by `cuts --campaign --out`.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Options of `seeds`.
#[derive(Args)]
pub(crate) struct Seeds {
    /// Stack of the worlds: ufs, nvme, ahci, pmp (SATA behind a multiplier), emmc or sd.
    #[arg(long, value_name = "STACK", default_value_t)]
    on: On,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 200)]
    count: u64,
    /// Requests in each world.
    #[arg(long, default_value_t = 5000)]
    requests: u64,
    /// Bytes per block, 512 or 4096, of the disks and of the requests. Without it requests are
    /// multiples of 4096, also on eMMC devices and cards, which have sectors of 512.
    #[arg(long, value_parser = block)]
    block: Option<u32>,
    /// Faults to inject instead of those the seed chooses, such as `timeout:0.001,power:n500`.
    #[arg(long)]
    faults: Option<Given>,
    /// Run only seeds that are I modulo N.
    #[arg(long, value_name = "I/N", default_value_t)]
    shard: Shard,
    /// File for results, one line of JSON for each seed; seeds already in it are skipped.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `--block`.
fn block(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err("a block must have 512 or 4096 bytes".into()),
    }
}

/// A plan of faults, and its text as given.
#[derive(Clone)]
struct Given {
    text: String,
    plan: Faults,
}

impl std::str::FromStr for Given {
    type Err = <Faults as std::str::FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { text: text.to_owned(), plan: text.parse()? })
    }
}

/// A flag set by Ctrl-C; a second Ctrl-C ends the program immediately.
fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    ctrlc::set_handler(move || {
        if set.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .map_err(|e| format!("cannot catch Ctrl-C: {e}"))?;
    Ok(stop)
}

/// A progress bar on a terminal, nothing elsewhere.
fn progress(len: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{bar:30} {human_pos}/{human_len} worlds, {msg}, {elapsed} elapsed, {eta} left";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}

impl Cuts {
    /// Runs.
    pub(crate) fn run(self) -> Result<End, String> {
        let tears: Result<Vec<Tear>, _> =
            self.tears.chars().map(|letter| letter.to_string().parse()).collect();
        let plan = cuts::Plan {
            depth: self.depth,
            deep_stride: self.deep_stride,
            tears: tears.map_err(str::to_string)?,
            points: self.points,
            only: self.cut.clone(),
            mistake: self.plant,
            ..cuts::Plan::default()
        };
        // Failures are reported at the end; a panic in a recovery needs no trace.
        std::panic::set_hook(Box::new(|_| {}));
        if self.campaign {
            return self.campaign(plan);
        }
        if self.list {
            WORKLOADS.iter().for_each(|one| say!("{:<20} {}", one.name, one.about));
            return Ok(End::Good);
        }
        some(&self.worlds()?, self.workload.is_some() || self.world.is_some(), &plan)
    }

    /// The worlds to cut if this is not a campaign.
    fn worlds(&self) -> Result<Vec<World>, String> {
        if let Some(world) = self.world {
            return Ok(vec![world]);
        }
        let chosen: Vec<&'static Workload> = match &self.workload {
            None => WORKLOADS.iter().collect(),
            Some(name) => {
                let one = Workload::named(name);
                vec![one.ok_or(format!("there is no workload '{name}'; --list names them"))?]
            }
        };
        let usual = |workload: &'static Workload| {
            workload.usual().map(move |setting| World { workload, setting })
        };
        let mut worlds: Vec<World> = chosen.into_iter().flat_map(usual).collect();
        let seed = self.seed.unwrap_or(1);
        worlds.iter_mut().for_each(|world| world.setting.seed = seed);
        Ok(worlds)
    }

    fn campaign(self, plan: cuts::Plan) -> Result<End, String> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.unwrap_or(jobs);
        let (shard, only, worlds) = (self.shard, self.only, self.worlds);
        let campaign = Campaign { shard, only, worlds, plan, jobs };
        let space = Space::new();
        let chosen = campaign.chosen(&space);
        let everywhere = Campaign { shard: Shard::default(), worlds: Some(1), ..campaign.clone() };
        if chosen.is_empty() && everywhere.chosen(&space).is_empty() {
            return Err("there is no such world; --campaign --list names all".into());
        }
        if self.list {
            for number in chosen {
                say!("{number:>7} {}", space.world(number));
            }
            return Ok(End::Good);
        }
        let ledger = self.out.as_deref().map(|path| Ledger::open(path, campaign::key_of));
        let ledger = ledger.transpose()?;
        let stop = stop_flag()?;
        let bar = progress(chosen.len() as u64);
        let total = Mutex::new(campaign::Tally::default());
        let told = |line: &campaign::Line| {
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            total.add(line.total());
            bar.inc(1);
            bar.set_message(format!("{} cuts, {} wrong", total.cuts, total.wrong));
            for finding in &line.findings {
                let (problem, again) = (&finding.problem, &finding.again);
                bar.suspend(|| say!("{problem}\n  again: {again}"));
            }
        };
        let begun = std::time::Instant::now();
        let outcome = campaign.run(&space, (ledger.as_ref(), &stop), &told)?;
        bar.finish_and_clear();
        let seconds = begun.elapsed().as_secs_f64();
        let campaign::Outcome { worlds, skipped, total, stopped } = outcome;
        let left_out = match skipped {
            0 => String::new(),
            count => format!(", {count} were done already"),
        };
        say!(
            "{worlds} of {} worlds{left_out}: {} cuts, {} wrong, {seconds:.0} s",
            space.len(),
            total.cuts,
            total.wrong
        );
        if stopped {
            say!("stopped; the same command continues{}", self.out.map_or(" with --out", |_| ""));
        }
        Ok(match (total.wrong, stopped) {
            (0, true) => End::Stopped,
            (wrong, _) => End::of(wrong == 0),
        })
    }
}

/// Runs these worlds with cuts.
fn some(worlds: &[World], is_named: bool, plan: &cuts::Plan) -> Result<End, String> {
    let (mut tried, mut good) = (0, true);
    for world in worlds {
        let World { workload, setting } = world;
        let depth = if workload.is_small || is_named { plan.depth } else { plan.depth.min(1) };
        let name = format!("{}, {}", workload.name, setting.part.name());
        let begun = std::time::Instant::now();
        let report = match workload.run(setting, &cuts::Plan { depth, ..plan.clone() }) {
            Ok(report) => report,
            Err(why) => {
                say!("{name:<26} failed without a cut: {why}");
                good = false;
                continue;
            }
        };
        say!("{name:<26} {report}, {:.1} s", begun.elapsed().as_secs_f64());
        for cuts::Failure { cuts, problem } in &report.failures {
            say!("  {problem}");
            say!("    again: flysch-sim cuts --world {world} --cut {cuts}");
        }
        tried += report.tried();
        good &= report.failed == 0;
    }
    say!("{tried} cuts tried");
    Ok(End::of(good))
}

impl Results {
    /// Merges the results and prints the report.
    pub(crate) fn run(self) -> Result<End, String> {
        let Self::Report { files, json } = self;
        let mut merged = Merged::default();
        for path in files {
            let name = path.display();
            let file = File::open(&path).map_err(|e| format!("{name}: cannot open: {e}"))?;
            merged.take(BufReader::new(file)).map_err(|e| format!("{name}: cannot read: {e}"))?;
        }
        match json {
            true => say!("{}", serde_json::to_string(&merged).map_err(|e| e.to_string())?),
            false => say!("{}", merged.to_string().trim_end_matches('\n')),
        }
        Ok(End::of(merged.is_good()))
    }
}

impl Seeds {
    /// Identifies a line of results: stack and block size, seed and requests.
    fn key(
        (on, block): (impl std::fmt::Display, Option<impl std::fmt::Display>),
        (seed, requests): (impl std::fmt::Display, impl std::fmt::Display),
    ) -> String {
        let block = block.map(|bytes| format!(" in {bytes}")).unwrap_or_default();
        format!("{on}{block} {seed} {requests}")
    }

    /// Runs every seed.
    pub(crate) fn run(self) -> Result<End, String> {
        let key = |value: &Value| {
            let (seed, requests) = (value.get("seed")?, value.get("requests")?);
            // Lines written before stacks could be chosen are for UFS.
            let on = value.get("on").and_then(Value::as_str).unwrap_or(On::Ufs.name());
            let block = value.get("block").and_then(Value::as_u64);
            Some(Self::key((on, block), (seed, requests)))
        };
        let ledger = self.out.as_deref().map(|path| Ledger::open(path, key)).transpose()?;
        let stop = stop_flag()?;
        let mut totals = Totals::default();
        let mut good = true;
        let Self { on, requests, block, .. } = self;
        let name = |seed| Self::key((on, block), (seed, requests));
        for seed in self.first..self.first.saturating_add(self.count) {
            let is_done = ledger.as_ref().is_some_and(|ledger| ledger.has(&name(seed)));
            if !self.shard.has(seed) || is_done {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                say!("stopped before seed {seed}");
                print(on, &totals);
                return Ok(if good { End::Stopped } else { End::Wrong });
            }
            let plan = self.faults.as_ref().map(|given| given.plan.clone());
            let outcome = world::run(&Wish { on, seed, requests, block, plan, mistake: None });
            let mut line = json!({ "on": on.name(), "seed": seed, "requests": requests });
            if let Some(block) = block {
                line["block"] = block.into();
            }
            match outcome {
                Ok(one) => {
                    line["ended"] = one.requests.iter().sum::<u64>().into();
                    line["failed"] = one.failed.into();
                    line["faults"] = one.faults.iter().sum::<u64>().into();
                    totals.add(&one);
                }
                Err(violation) => {
                    good = false;
                    let faults = self.faults.as_ref();
                    let faults = faults.map(|given| format!(" --faults {}", given.text));
                    let faults = faults.unwrap_or_default();
                    let block = block.map(|bytes| format!(" --block {bytes}")).unwrap_or_default();
                    let wish = format!("--count 1 --requests {requests}{block}{faults}");
                    let again = format!("flysch-sim seeds --on {on} --first {seed} {wish}");
                    say!("seed {seed}: {violation}\n  again: {again}");
                    line["violation"] = violation.to_string().into();
                    line["again"] = again.into();
                }
            }
            if let Some(ledger) = &ledger {
                ledger.add(&line.to_string())?;
            }
        }
        print(on, &totals);
        Ok(End::of(good))
    }
}

fn print(on: On, totals: &Totals) {
    let Totals { worlds, requests, failed, outcomes, compared, nanos, .. } = totals;
    let ended: u64 = requests.iter().sum();
    let faults: u64 = totals.faults.iter().sum();
    say!("{worlds} worlds, {ended} requests ended, each once; {failed} of them with an error");
    let [reads, writes, flushes, deletes] = requests;
    say!("  {reads} reads, {writes} writes, {flushes} flushes, {deletes} deletions");
    let Outcomes { started, good, answered, driver, gone } = outcomes;
    say!("  {started} commands ended, each once: {good} well, {answered} as the device answered,");
    say!("  {driver} by the driver, {gone} when the controller was gone");
    say!("  {} MiB compared", compared >> 20);
    say!("  {} s of virtual time", nanos / 1_000_000_000);
    say!("{faults} faults");
    let known = Kind::ALL.iter().zip(totals.faults).filter(|(kind, _)| on.kinds().contains(kind));
    for (kind, count) in known {
        say!("  {count:>7} {kind}");
    }
}
