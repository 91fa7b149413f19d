//! `flysch-sim seeds`: many worlds, one seed each, and what happened in them.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use flysch_models::faults::{Kind, Plan};
use flysch_models::flash::Tear;
use flysch_sim::cuts::probe::Mistake;
use flysch_sim::cuts::workloads::{WORKLOADS, Workload};
use flysch_sim::cuts::{self, CutList};
use flysch_sim::path::{self, BUDGETS, Layer, Queue};
use flysch_sim::wear;
use flysch_sim::world::{self, Totals, Wish};

/// Whole stacks under one seed.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run worlds and check that every request ends exactly once and nothing flushed is lost.
    Seeds {
        /// First seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// How many seeds.
        #[arg(long, default_value_t = 200)]
        count: u64,
        /// Requests in each world.
        #[arg(long, default_value_t = 5000)]
        requests: u64,
        /// What goes wrong, instead of what the seed chooses, such as `timeout:0.001,power:n500`.
        #[arg(long)]
        faults: Option<Plan>,
    },
    /// Cut the power at every program and erase of a workload on raw flash, and see that nothing
    /// synced is lost.
    Cuts {
        /// Which workload; all without it.
        #[arg(long)]
        workload: Option<String>,
        /// Cuts within cuts: 1, or 2 to cut again at every operation of each recovery.
        #[arg(long, default_value_t = 1)]
        depth: u32,
        /// Exactly these cuts, such as `123h,4l`: again what failed.
        #[arg(long)]
        cut: Option<CutList>,
        /// Only every so many operations.
        #[arg(long, default_value_t = 1)]
        stride: u64,
        /// Ways to tear, letters of b(efore), e(arly), h(alf), l(ate), a(fter).
        #[arg(long, default_value = "ehla")]
        tears: String,
        /// Decides what cuts leave in the cells; several seeds are several throws of the dice.
        #[arg(long)]
        seed: Option<u64>,
        /// A mistake to plant between the stack and the chip, to see it found: reordered,
        /// skipped-sync, skipped-erase.
        #[arg(long)]
        plant: Option<Mistake>,
        /// The workloads and what they are.
        #[arg(long)]
        list: bool,
    },
    /// Write a NAND chip through UBI until it is worn out.
    Wear {
        /// Decides everything.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Blocks of the chip.
        #[arg(long, default_value_t = 1000)]
        blocks: u32,
        /// Erases that every block stands.
        #[arg(long, default_value_t = 4500)]
        endurance: u32,
        /// Difference of erase counters from which LEBs are moved.
        #[arg(long, default_value_t = 256)]
        threshold: u32,
    },
    /// Read 4 KiB again and again on a controller that costs nothing, to be run under callgrind.
    Path {
        /// How much of the stack.
        layer: Layer,
        /// Which queue design.
        queue: Queue,
        /// How many reads.
        count: u32,
    },
    /// Count the instructions of one 4 KiB read with callgrind; fails beyond the budget.
    Instructions,
}

fn main() -> ExitCode {
    let good = match Arguments::parse().task {
        Task::Seeds { first, count, requests, faults } => seeds(first, count, requests, faults),
        Task::Cuts { list: true, .. } => {
            WORKLOADS.iter().for_each(|one| println!("{:<20} {}", one.name, one.about));
            true
        }
        Task::Cuts { workload, depth, cut, stride, tears, seed, plant, .. } => {
            let tears: Result<Vec<Tear>, _> =
                tears.chars().map(|letter| letter.to_string().parse()).collect();
            let plan = tears.map(|tears| cuts::Plan {
                depth,
                tears,
                stride: stride.max(1),
                only: cut,
                seed,
                mistake: plant,
                ..cuts::Plan::default()
            });
            plan.map_err(str::to_string)
                .and_then(|plan| power_cuts(workload, &plan))
                .unwrap_or_else(|why| {
                    eprintln!("flysch-sim: {why}");
                    false
                })
        }
        Task::Wear { seed, blocks, endurance, threshold } => {
            wear_out(&wear::Plan { seed, blocks, endurance, threshold, ..wear::Plan::default() })
        }
        Task::Path { layer, queue, count } => {
            path::run(layer, queue, count);
            true
        }
        Task::Instructions => instructions().unwrap_or_else(|why| {
            eprintln!("flysch-sim: {why}");
            false
        }),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn seeds(first: u64, count: u64, requests: u64, faults: Option<Plan>) -> bool {
    let mut totals = Totals::default();
    let mut good = true;
    for seed in first..first.saturating_add(count) {
        let wish = Wish { seed, requests, plan: faults.clone(), mistake: None };
        match world::run(&wish) {
            Ok(one) => totals.add(&one),
            Err(violation) => {
                good = false;
                println!("seed {seed}: {violation}");
                println!(
                    "  again: flysch-sim seeds --first {seed} --count 1 --requests {requests}"
                );
            }
        }
    }
    print(&totals);
    good
}

/// Cuts one workload or all; says whether all was well.
fn power_cuts(workload: Option<String>, plan: &cuts::Plan) -> Result<bool, String> {
    let is_named = workload.is_some();
    let chosen: Vec<Workload> = match workload {
        None => WORKLOADS.to_vec(),
        Some(name) => {
            let one = Workload::named(&name);
            vec![one.ok_or(format!("there is no workload '{name}'; --list names them"))?]
        }
    };
    // What goes wrong is told at the end; a panic of a recovery needs no trace.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut tried, mut good) = (0, true);
    for one in chosen {
        let depth = if one.is_small || is_named { plan.depth } else { plan.depth.min(1) };
        let start = std::time::Instant::now();
        let report = match (one.run)(&cuts::Plan { depth, ..plan.clone() }) {
            Ok(report) => report,
            Err(why) => {
                println!("{:<20} failed without a cut: {why}", one.name);
                good = false;
                continue;
            }
        };
        println!("{:<20} {report}, {:.1} s", one.name, start.elapsed().as_secs_f64());
        for cuts::Failure { cuts, problem } in &report.failures {
            println!("  {problem}");
            let seed = plan.seed.map_or(String::new(), |seed| format!(" --seed {seed}"));
            println!("    again: flysch-sim cuts --workload {} --cut {cuts}{seed}", one.name);
        }
        tried += report.tried();
        good &= report.failed == 0;
    }
    println!("{tried} cuts tried");
    Ok(good)
}

fn wear_out(plan: &wear::Plan) -> bool {
    let report = match wear::run(plan) {
        Ok(report) => report,
        Err(why) => {
            println!("{why}");
            return false;
        }
    };
    let hours = |ns: u64| ns as f64 / 3.6e12;
    let done = report.statistics;
    let (time, busy) = (hours(report.time_ns), hours(report.busy_ns));
    println!("{time:.1} hours, the chip busy for {busy:.1}; {} LEBs changed", report.changes);
    println!("  {} erases, {} moves to level wear", done.erases, done.moves);
    println!("  {} moves for bit errors, {} writes recovered", done.scrubs, done.recovered_writes);
    println!("  {} tortures, {} power losses", done.tortures, report.power_losses);
    println!("  {} LEBs compared, none wrong", report.compared);
    let (least, most) = report.erases;
    println!("erase counters {least} to {most}, never more than {} apart", report.widest);
    let first = report.first_bad_ns.map_or("none".into(), |ns| format!("{:.1} h", hours(ns)));
    println!("{} bad blocks, the first after {first}", report.bad);
    match report.end {
        Some(why) => println!("{why}"),
        None => println!("the device takes changes"),
    }
    report.end.is_some() && report.widest <= plan.threshold + plan.threshold / 8
}

fn instructions() -> Result<bool, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    println!("| 4 KiB read | queue | instructions | budget |\n|---|---|--:|--:|");
    let mut good = true;
    for (layer, queue, budget) in BUDGETS {
        let count = path::count(&program, layer, queue)?;
        good &= count <= budget;
        println!("| {layer:?} | {queue:?} | {count} | {budget} |");
    }
    Ok(good)
}

fn print(totals: &Totals) {
    let Totals { worlds, requests, failed, commands, compared, nanos, .. } = totals;
    let ended: u64 = requests.iter().sum();
    let faults: u64 = totals.faults.iter().sum();
    println!("{worlds} worlds, {ended} requests ended, each once; {failed} of them with an error");
    let [reads, writes, flushes, deletes] = requests;
    println!("  {reads} reads, {writes} writes, {flushes} flushes, {deletes} deletions");
    println!("  {commands} commands, {} MiB compared", compared >> 20);
    println!("  {} s of virtual time", nanos / 1_000_000_000);
    println!("{faults} faults");
    for (kind, count) in Kind::ALL.iter().zip(totals.faults) {
        println!("  {count:>7} {kind}");
    }
}
