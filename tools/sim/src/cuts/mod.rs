//! Power cuts at every program and erase of a workload, and again during the recovery from each
//! cut.
//!
//! The workload runs once, on a chip model behind a [`Probe`]. At each program and erase the probe
//! forks the world, cuts the power in the fork during that operation, and passes the fork to a
//! recovery, which attaches, mounts, checks and compares with what is known of the workload at that
//! instant. So a workload of N operations costs N recoveries, not N runs. A recovery also runs
//! behind a probe if cuts within cuts are requested.
//!
//! A cut is written as the number of its operation, counted from 0 at the start of the workload,
//! and a letter for how it tears (half without one); cuts within cuts follow after a comma:
//! `123h,4l`.

pub mod campaign;
pub mod chip;
pub mod files;
pub mod mistakes;
pub mod probe;
pub mod report;
pub mod setting;
pub mod stacks;
mod steps;
mod tree;
pub mod ubi;
pub mod workloads;

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

pub use flysch_models::flash::{Cut, CutList};

use flysch_models::flash::Tear;
use flysch_models::random::Random;

use chip::Chip;
use probe::{Hook, Probe};

/// Maximum number of failures kept; further ones are only counted.
const FAILURES_KEPT: usize = 20;

/// A workload to cut, and the recovery from a cut in it.
pub trait Scenario {
    /// What is known of the workload while it runs.
    type Knowledge: Clone;

    /// The chip at the start of the workload, and what is known of it.
    ///
    /// # Errors
    /// If it cannot be made.
    fn begin(&self) -> Result<(Chip, Self::Knowledge), String>;

    /// Runs the workload; `knowledge` is correct whenever the flash is called.
    ///
    /// # Errors
    /// If something fails that must not.
    fn run(&self, flash: Probe, knowledge: &Rc<RefCell<Self::Knowledge>>) -> Result<(), String>;

    /// A remark about a run, at its end.
    fn remark(&self, knowledge: &Self::Knowledge) -> String {
        let _ = knowledge;
        String::new()
    }

    /// Attaches what a cut left, compares it with what is known, and continues writing. Calls
    /// [`Probe::disarm`] before it continues.
    ///
    /// # Errors
    /// What is wrong.
    fn recover(&self, flash: Probe, knowledge: &Self::Knowledge) -> Result<(), String>;
}

/// The cuts to try.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nesting depth of cuts: 1 or 2.
    pub depth: u32,
    /// The ways to tear.
    pub tears: Vec<Tear>,
    /// Number of operations of the workload to cut, evenly spread; `None` for all.
    pub points: Option<u64>,
    /// Within a recovery, the interval between cut operations; 1 for all.
    pub deep_stride: u64,
    /// Exactly these cuts only.
    pub only: Option<CutList>,
    /// Determines where between two others a point is.
    pub seed: u64,
    /// Operations that fail, counted from 0 at the start of the workload.
    pub failing: Vec<u64>,
    /// A mistake planted between the stack and the chip.
    pub mistake: Option<mistakes::Mistake>,
}

impl Default for Plan {
    /// Every operation, torn in every way that differs from its neighbours', not nested.
    fn default() -> Self {
        let tears = vec![Tear::Early, Tear::Half, Tear::Late, Tear::After];
        let failing = vec![];
        let (points, only, mistake) = (None, None, None);
        Self { depth: 1, tears, points, deep_stride: 1, only, seed: 1, failing, mistake }
    }
}

impl Plan {
    /// The operations to cut in a workload of `total`.
    fn spread(&self, total: u64) -> Vec<u64> {
        let points = self.points.unwrap_or(total).min(total);
        // In hundredths of a step: the points of one seed are between those of another.
        let offset = Random::new(self.seed ^ 0x0FF5E7).below(100);
        (0..points).map(|point| (point * 100 + offset) * total / (points * 100)).collect()
    }

    fn levels(&self) -> usize {
        self.only.as_ref().map_or(self.depth as usize, |list| list.0.len())
    }
}

/// A cut after which something was wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The cuts.
    pub cuts: CutList,
    /// What was wrong.
    pub problem: String,
}

/// The attempts and their results.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of programs and erases of the workload.
    pub operations: u64,
    /// Cuts tried, by depth.
    pub cuts: Vec<u64>,
    /// Cuts of the workload and of its recoveries, and those after which something was wrong, by
    /// the tear of the first one; in the order of [`Tear::ALL`].
    pub by_tear: [(u64, u64); Tear::ALL.len()],
    /// The first failures.
    pub failures: Vec<Failure>,
    /// Number of failures.
    pub failed: u64,
    /// The remark about the run.
    pub remark: String,
}

impl Report {
    /// Total number of cuts.
    pub fn tried(&self) -> u64 {
        self.cuts.iter().sum()
    }

    /// Counts a cut, with its depth.
    fn count(&mut self, cuts: &CutList) {
        let depth = cuts.0.len();
        self.cuts.resize(depth.max(self.cuts.len()), 0);
        self.cuts[depth - 1] += 1;
        self.by_tear[cuts.0[0].tear as usize].0 += 1;
    }

    fn fail(&mut self, cuts: &CutList, problem: String) {
        self.failed += 1;
        if let Some(first) = cuts.0.first() {
            self.by_tear[first.tear as usize].1 += 1;
        }
        if self.failures.len() < FAILURES_KEPT {
            self.failures.push(Failure { cuts: cuts.clone(), problem });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations, {} cuts", self.operations, self.tried())?;
        for (depth, count) in self.cuts.iter().enumerate().filter(|_| self.cuts.len() > 1) {
            write!(f, "{} {count} at depth {}", if depth == 0 { ":" } else { "," }, depth + 1)?;
        }
        write!(f, ", {} failures", self.failed)?;
        let comma = if self.remark.is_empty() { "" } else { ", " };
        write!(f, "{comma}{}", self.remark)
    }
}

/// Runs `scenario` with cuts as planned.
///
/// # Errors
/// If the workload fails without a cut.
pub fn explore<S: Scenario + 'static>(scenario: &Rc<S>, plan: &Plan) -> Result<Report, String> {
    let (mut chip, knowledge) = scenario.begin()?;
    let start = chip.operations();
    plan.failing.iter().for_each(|number| chip.power_mut().fail_at(start + number));
    let report = Rc::new(RefCell::new(Report::default()));
    let mistake = plan.mistake.filter(|mistake| !mistake.is_of_recovery());
    let mut points = vec![];
    if plan.only.is_none() {
        // Once without a cut, to learn its length.
        let probe = Probe::new(chip.clone(), None, mistake);
        let outcome = scenario.run(probe.clone(), &Rc::new(RefCell::new(knowledge.clone())));
        match outcome {
            Err(problem) if mistake.is_none() => return Err(problem),
            _ => points = plan.spread(probe.with(Chip::operations) - start),
        }
    }
    let knowledge = Rc::new(RefCell::new(knowledge));
    let cutter = Cutter {
        scenario: scenario.clone(),
        plan: plan.clone(),
        points,
        report: report.clone(),
        knowledge: knowledge.clone(),
        cuts: CutList::default(),
        start,
    };
    let probe = Probe::new(chip, Some(Rc::new(cutter)), mistake);
    let outcome = scenario.run(probe.clone(), &knowledge);
    let mut report = report.borrow().clone();
    report.operations = probe.with(Chip::operations) - start;
    report.remark = scenario.remark(&knowledge.borrow());
    match outcome {
        Err(problem) if mistake.is_none() => Err(problem),
        Err(problem) => {
            report.fail(&CutList::default(), problem);
            Ok(report)
        }
        Ok(()) => Ok(report),
    }
}

/// Does `work`; a panic counts as a problem.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a word")))
    })
}

/// Receives forks and recovers them.
struct Cutter<S: Scenario> {
    scenario: Rc<S>,
    plan: Plan,
    /// Operations of the workload to cut, in order.
    points: Vec<u64>,
    report: Rc<RefCell<Report>>,
    knowledge: Rc<RefCell<S::Knowledge>>,
    /// The cuts that led here.
    cuts: CutList,
    /// Number of operations of the chip before.
    start: u64,
}

impl<S: Scenario + 'static> Hook for Cutter<S> {
    fn wants(&self, operations: Range<u64>) -> bool {
        let (first, end) = (operations.start - self.start, operations.end - self.start);
        let depth = self.cuts.0.len();
        match &self.plan.only {
            Some(list) => {
                list.0.get(depth).is_some_and(|cut| (first..end).contains(&cut.operation))
            }
            None if depth == 0 => {
                let next = self.points.partition_point(|point| *point < first);
                self.points.get(next).is_some_and(|point| *point < end)
            }
            None => true,
        }
    }

    fn tears(&self, operation: u64) -> Vec<Tear> {
        if !self.wants(operation..operation + 1) {
            return vec![];
        }
        let operation = operation - self.start;
        let depth = self.cuts.0.len();
        let Plan { tears, only, deep_stride, seed, .. } = &self.plan;
        match only {
            Some(list) => vec![list.0[depth].tear],
            None if depth == 0 => tears.clone(),
            // Within a recovery the ways are used in turn.
            None => {
                let turn = operation + seed + self.cuts.0[0].operation;
                let is_chosen = turn.is_multiple_of((*deep_stride).max(1));
                let tear = tears[(turn / deep_stride.max(&1)) as usize % tears.len()];
                if is_chosen { vec![tear] } else { vec![] }
            }
        }
    }

    fn forked(&self, operation: u64, tear: Tear, mut chip: Chip) {
        let depth = self.cuts.0.len();
        let mut cuts = self.cuts.clone();
        cuts.0.push(Cut { operation: operation - self.start, tear });
        self.report.borrow_mut().count(&cuts);
        chip.power_mut().on();
        let start = chip.operations();
        let knowledge = Rc::new(RefCell::new(self.knowledge.borrow().clone()));
        let deeper = (depth + 1 < self.plan.levels()).then(|| {
            let cutter = Self {
                scenario: self.scenario.clone(),
                plan: self.plan.clone(),
                points: vec![],
                report: self.report.clone(),
                knowledge: knowledge.clone(),
                cuts: cuts.clone(),
                start,
            };
            Rc::new(cutter) as Rc<dyn Hook>
        });
        let mistake = self.plan.mistake.filter(|mistake| mistake.is_of_recovery());
        let probe = Probe::new(chip, deeper, mistake);
        let knowledge = knowledge.borrow().clone();
        let outcome = guarded(|| self.scenario.recover(probe, &knowledge));
        if let Err(problem) = outcome {
            self.report.borrow_mut().fail(&cuts, problem);
        }
    }
}

#[cfg(test)]
mod tests;
