//! Every workload in every setting: a numbered list of worlds, run in parts, with a line for each.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use flysch_models::flash::Tear;
use flysch_models::random::Random;
use flysch_tests::shard::{Ledger, Shard};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::setting::{Bad, Cells, Gear, Part, Setting, User, Wear, World};
use super::workloads::WORKLOADS;
use super::{Plan, Report};

/// Number of seeds for each combination of the other coordinates.
pub const SEEDS: u64 = 20;
/// Determines the order of the list.
const ORDER: u64 = 0x5EED;

/// All worlds in order.
#[derive(Debug)]
pub struct Space {
    worlds: Vec<World>,
}

impl Space {
    /// All possible worlds.
    pub fn new() -> Self {
        let mut worlds = vec![];
        for setting in settings() {
            let fitting = WORKLOADS.iter().filter(|workload| workload.fits(&setting));
            worlds.extend(fitting.map(|workload| World { workload, setting }));
        }
        // Shuffled: every part of the list, and every shard, is a sample of the whole.
        let mut random = Random::new(ORDER);
        for left in (1..worlds.len()).rev() {
            worlds.swap(left, random.below(left as u64 + 1) as usize);
        }
        Self { worlds }
    }

    /// Number of worlds.
    pub fn len(&self) -> u64 {
        self.worlds.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.worlds.is_empty()
    }

    /// World `number`, from 0 to [`len`](Self::len) - 1.
    pub fn world(&self, number: u64) -> World {
        self.worlds[number as usize]
    }
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

fn settings() -> Vec<Setting> {
    let mut all: Vec<Setting> =
        (1..=SEEDS).map(|seed| Setting { seed, ..Setting::default() }).collect();
    fn each<T: Copy>(all: &[Setting], values: &[T], set: impl Fn(&mut Setting, T)) -> Vec<Setting> {
        let with = |setting: &Setting, value| {
            let mut setting = *setting;
            set(&mut setting, value);
            setting
        };
        all.iter()
            .flat_map(|one| values.iter().map(move |value| (one, *value)))
            .map(|(one, value)| with(one, value))
            .collect()
    }
    all = each(&all, Part::ALL, |setting, part| setting.part = part);
    all = each(&all, Bad::ALL, |setting, bad| setting.bad = bad);
    all = each(&all, Wear::ALL, |setting, wear| setting.wear = wear);
    all = each(&all, Cells::ALL, |setting, cells| setting.cells = cells);
    all = each(&all, User::ALL, |setting, user| setting.user = user);
    each(&all, Gear::ALL, |setting, gear| setting.gear = gear)
}

/// A restriction to some values of a coordinate: `chip=die4,bch*`.
#[derive(Clone, Debug)]
pub struct Only {
    place: usize,
    values: Vec<String>,
}

/// The names of the coordinates, in the order of a world's notation.
pub const COORDINATES: [&str; 8] =
    ["workload", "chip", "bad", "wear", "cells", "user", "device", "seed"];

impl FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || {
            let names = COORDINATES.join(", ");
            format!("'{text}' is not a choice; one is NAME=VALUE,VALUE... with a name of {names}")
        };
        let (name, values) = text.split_once('=').ok_or_else(problem)?;
        let place = COORDINATES.iter().position(|one| *one == name).ok_or_else(problem)?;
        Ok(Self { place, values: values.split(',').map(str::to_string).collect() })
    }
}

impl Only {
    fn has(&self, world: &str) -> bool {
        let value = world.split('/').nth(self.place).unwrap_or_default();
        self.values.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(start) => value.starts_with(start),
            None => value == wanted,
        })
    }
}

/// The number of cuts, and of those after which something was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Cuts tried.
    pub cuts: u64,
    /// Cuts after which something was wrong.
    pub wrong: u64,
}

/// A problem that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The cuts that lead to it; empty if it occurs without one.
    pub cut: String,
    /// The problem.
    pub problem: String,
    /// The command that reproduces it.
    pub again: String,
}

/// The result of a world: one line of the results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its coordinates.
    pub world: String,
    /// Its number.
    pub number: u64,
    /// Total number of worlds.
    pub of: u64,
    /// Number of points requested; 0 for all.
    pub points: u64,
    /// Nesting depth of cuts.
    pub depth: u32,
    /// Number of programs and erases of the workload.
    pub operations: u64,
    /// Counts by name of the tear.
    pub tears: BTreeMap<String, Tally>,
    /// The first problems found.
    pub findings: Vec<Finding>,
    /// Why there was nothing to cut: there were so many failures that the device takes no more
    /// writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

impl Line {
    /// All its cuts combined.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.tears.values().for_each(|tally| total.add(*tally));
        let without_cut = self.findings.iter().filter(|finding| finding.cut.is_empty());
        total.wrong += without_cut.count() as u64;
        total
    }

    /// The key, which must be unique within a file.
    pub fn key(&self) -> String {
        let tears: Vec<&str> = self.tears.keys().map(String::as_str).collect();
        key(&self.world, self.points, self.depth, &tears)
    }
}

impl Tally {
    /// Adds the counts of another.
    pub fn add(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.wrong += other.wrong;
    }
}

fn key(world: &str, points: u64, depth: u32, tears: &[&str]) -> String {
    let mut tears = tears.to_vec();
    tears.sort_unstable();
    format!("{world} {points} {depth} {}", tears.join(","))
}

/// The worlds to run, and how.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The part of the list.
    pub shard: Shard,
    /// Restrictions on coordinates.
    pub only: Vec<Only>,
    /// Maximum number of worlds; `None` for all.
    pub worlds: Option<usize>,
    /// The cuts in each world.
    pub plan: Plan,
    /// Number of threads.
    pub jobs: usize,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Number of worlds run.
    pub worlds: u64,
    /// Number of worlds that were already in the file.
    pub skipped: u64,
    /// Cuts.
    pub total: Tally,
    /// Whether it was interrupted.
    pub stopped: bool,
}

impl Campaign {
    fn key(&self, world: &str) -> String {
        let tears: Vec<String> = self.plan.tears.iter().map(Tear::to_string).collect();
        let tears: Vec<&str> = tears.iter().map(String::as_str).collect();
        key(world, self.plan.points.unwrap_or(0), self.plan.depth, &tears)
    }

    /// The numbers of the worlds to run.
    pub fn chosen(&self, space: &Space) -> Vec<u64> {
        let wanted = |number: &u64| {
            let world = space.world(*number).to_string();
            self.only.iter().all(|only| only.has(&world))
        };
        let mine = (0..space.len()).filter(|number| self.shard.has(*number));
        mine.filter(wanted).take(self.worlds.unwrap_or(usize::MAX)).collect()
    }

    /// Runs one world.
    pub fn one(&self, space: &Space, number: u64) -> Line {
        let World { workload, setting } = space.world(number);
        let world = space.world(number).to_string();
        let mut line = Line {
            number,
            of: space.len(),
            points: self.plan.points.unwrap_or(0),
            depth: self.plan.depth,
            operations: 0,
            tears: self.plan.tears.iter().map(|t| (t.to_string(), Tally::default())).collect(),
            findings: vec![],
            ended: None,
            world,
        };
        match super::guarded(|| workload.run(&setting, &self.plan)) {
            Ok(report) => fill(&mut line, &report),
            Err(why) if setting.is_failing() && is_worn_out(&why) => line.ended = Some(why),
            Err(problem) => {
                let again = format!("flysch-sim cuts --world {}", line.world);
                line.findings.push(Finding { cut: String::new(), problem, again });
            }
        }
        line
    }

    /// Runs the worlds that are not yet in the file. `told` is called for each, in any order;
    /// `stop` ends the run after those in progress.
    ///
    /// # Errors
    /// If the results cannot be written.
    pub fn run(
        &self,
        space: &Space,
        (ledger, stop): (Option<&Ledger>, &AtomicBool),
        told: &(dyn Fn(&Line) + Sync),
    ) -> Result<Outcome, String> {
        let chosen = self.chosen(space);
        let is_done = |number: &u64| {
            let world = space.world(*number).to_string();
            ledger.is_some_and(|ledger| ledger.has(&self.key(&world)))
        };
        let left: Vec<u64> = chosen.iter().copied().filter(|number| !is_done(number)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut outcome = Outcome::default();
            while !stop.load(Ordering::Relaxed) {
                let Some(number) = left.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let line = self.one(space, *number);
                if let Some(ledger) = ledger {
                    let text = serde_json::to_string(&line).map_err(|e| e.to_string())?;
                    ledger.add(&text)?;
                }
                outcome.worlds += 1;
                outcome.total.add(line.total());
                told(&line);
            }
            Ok::<Outcome, String>(outcome)
        };
        let mut all = Outcome { skipped: (chosen.len() - left.len()) as u64, ..Outcome::default() };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                // No cause: the panic has been printed.
                let one = thread.join().map_err(|_| "a thread of the campaign panicked")??;
                all.worlds += one.worlds;
                all.total.add(one.total);
            }
            Ok::<(), String>(())
        })?;
        all.stopped = all.worlds < left.len() as u64;
        Ok(all)
    }
}

/// Whether the message of a device means that its reserve is used up.
fn is_worn_out(why: &str) -> bool {
    why.contains("no reserved block is left")
}

fn fill(line: &mut Line, report: &Report) {
    line.operations = report.operations;
    for (tear, (cuts, wrong)) in Tear::ALL.into_iter().zip(report.by_tear) {
        if let Some(tally) = line.tears.get_mut(&tear.to_string()) {
            *tally = Tally { cuts, wrong };
        }
    }
    line.findings = report
        .failures
        .iter()
        .map(|failure| Finding {
            cut: failure.cuts.to_string(),
            problem: failure.problem.clone(),
            again: format!("flysch-sim cuts --world {} --cut {}", line.world, failure.cuts),
        })
        .collect();
}

/// The key of a line of the results, for [`Ledger::open`].
pub fn key_of(value: &Value) -> Option<String> {
    Line::deserialize(value).ok().map(|line| line.key())
}

#[cfg(test)]
mod tests;
