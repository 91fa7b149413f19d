//! `flysch-sim seeds`: many worlds, one seed each, and what happened in them.
#![forbid(unsafe_code)]

#[macro_use]
mod say;

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use flysch_sim::wear;

/// Whole stacks under one seed.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run worlds and check that every request ends exactly once and nothing flushed is lost.
    Seeds(Box<commands::Seeds>),
    /// Cut the power at every program and erase of a workload on raw flash, and see that nothing
    /// synced is lost.
    Cuts(Box<commands::Cuts>),
    /// Work with the results of `cuts --campaign`.
    #[command(subcommand)]
    Campaign(commands::Results),
    /// Write a NAND chip through UBI until it is worn out.
    Wear {
        /// Seed of the random numbers; the same seed gives the same run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Blocks of the chip.
        #[arg(long, default_value_t = 1000)]
        blocks: u32,
        /// Erases that each block endures.
        #[arg(long, default_value_t = 4500)]
        endurance: u32,
        /// Difference between erase counters at which LEBs are moved.
        #[arg(long, default_value_t = 256)]
        threshold: u32,
    },
}

fn main() -> ExitCode {
    let end = match Arguments::parse().task {
        Task::Seeds(seeds) => told(seeds.run()),
        Task::Cuts(cuts) => told(cuts.run()),
        Task::Campaign(results) => told(results.run()),
        Task::Wear { seed, blocks, endurance, threshold } => End::of(wear_out(&wear::Plan {
            seed,
            blocks,
            endurance,
            threshold,
            ..wear::Plan::default()
        })),
    };
    ExitCode::from(end as u8)
}

/// How the run ended; the number is the exit status of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All was well.
    Good = 0,
    /// Something was wrong.
    Wrong = 1,
    /// The task could not be carried out.
    Failed = 2,
    /// Ctrl-C interrupted the run.
    Stopped = 130,
}

impl End {
    fn of(good: bool) -> Self {
        if good { Self::Good } else { Self::Wrong }
    }
}

fn told(outcome: Result<End, String>) -> End {
    outcome.unwrap_or_else(|why| {
        eprintln!("flysch-sim: {why}");
        End::Failed
    })
}

fn wear_out(plan: &wear::Plan) -> bool {
    let report = match wear::run(plan) {
        Ok(report) => report,
        Err(why) => {
            say!("{why}");
            return false;
        }
    };
    let hours = |ns: u64| ns as f64 / 3.6e12;
    let done = report.statistics;
    let (time, busy) = (hours(report.time_ns), hours(report.busy_ns));
    say!("{time:.1} hours, the chip busy for {busy:.1}; {} LEBs changed", report.changes);
    say!("  {} erases, {} moves to level wear", done.erases, done.moves);
    say!("  {} moves for bit errors, {} writes recovered", done.scrubs, done.recovered_writes);
    say!("  {} tortures, {} power losses", done.tortures, report.power_losses);
    say!("  {} LEBs compared, none wrong", report.compared);
    let (least, most) = report.erases;
    say!("erase counters {least} to {most}, never more than {} apart", report.widest);
    let first = report.first_bad_ns.map_or("none".into(), |ns| format!("{:.1} h", hours(ns)));
    say!("{} bad blocks, the first after {first}", report.bad);
    match report.end {
        Some(why) => say!("the UBI device is read-only: {why}"),
        None => say!("the device takes changes"),
    }
    report.end.is_some() && report.widest <= plan.threshold + plan.threshold / 8
}
