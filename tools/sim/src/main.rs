//! `flysch-sim seeds`: many worlds, one seed each, and what happened in them.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use flysch_models::faults::{Kind, Plan};
use flysch_sim::path::{self, BUDGETS, Layer, Queue};
use flysch_sim::world::{self, Totals, Wish};

/// Whole stacks under one seed.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
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
