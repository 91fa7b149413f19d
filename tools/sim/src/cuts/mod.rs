//! Power cut at every program and erase of a workload, and again while what the cut left is mended.
//!
//! The workload runs once, on a chip model behind a [`Probe`]. At each program and erase the probe
//! forks the world, lets the power go in the fork during that operation, and hands the fork to a
//! recovery, which attaches, mounts, checks and compares with what is known of the workload at that
//! instant. So a workload of N operations costs N recoveries, not N runs. A recovery runs behind a
//! probe as well, when cuts within cuts are asked for.
//!
//! A cut is written as its operation, counted from 0 from the start of the workload, and a letter
//! for how it tears (half without one); cuts within cuts follow after a comma: `123h,4l`.

pub mod files;
pub mod probe;
pub mod stacks;
pub mod ubi;
pub mod workloads;

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::str::FromStr;

use flysch_models::flash::Tear;

use probe::{Chip, Hook, Probe};

/// Failures that are kept; more are only counted.
const FAILURES_KEPT: usize = 20;

/// One power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The operation, counted from 0 from the start of the workload or of the recovery.
    pub operation: u64,
    /// How it is torn.
    pub tear: Tear,
}

/// Power cuts, each within the recovery from the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutList(pub Vec<Cut>);

impl fmt::Display for CutList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cut) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}{}", cut.operation, cut.tear.letter())?;
        }
        Ok(())
    }
}

impl FromStr for CutList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let cut = |part: &str| {
            let problem = || format!("'{part}' is no cut; one looks like 123h");
            let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
            let operation = digits.parse().map_err(|_| problem())?;
            let tear = match &part[digits.len()..] {
                "" => Tear::Half,
                letter => letter.parse().map_err(str::to_string)?,
            };
            Ok(Cut { operation, tear })
        };
        text.split(',').map(cut).collect::<Result<_, String>>().map(Self)
    }
}

/// What is cut: a workload, and how to recover from a cut in it.
pub trait Scenario {
    /// The chip it runs on.
    type Chip: Chip;
    /// What is known of the workload while it runs.
    type Knowledge: Clone;

    /// The chip as the workload finds it, and what is known of it.
    ///
    /// # Errors
    /// When it can not be made.
    fn begin(&self) -> Result<(Self::Chip, Self::Knowledge), String>;

    /// Runs the workload; `knowledge` is right whenever the flash is called.
    ///
    /// # Errors
    /// When something fails that must not.
    fn run(
        &self,
        flash: Probe<Self::Chip>,
        knowledge: &Rc<RefCell<Self::Knowledge>>,
    ) -> Result<(), String>;

    /// What is worth telling of a run, at its end.
    fn remark(&self, knowledge: &Self::Knowledge) -> String {
        let _ = knowledge;
        String::new()
    }

    /// Attaches what a cut left, compares it with what is known, and goes on writing. Calls
    /// [`Probe::disarm`] before it goes on.
    ///
    /// # Errors
    /// What is wrong.
    fn recover(&self, flash: Probe<Self::Chip>, knowledge: &Self::Knowledge) -> Result<(), String>;
}

/// Which cuts are tried.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Cuts within each other: 1 or 2.
    pub depth: u32,
    /// The ways to tear.
    pub tears: Vec<Tear>,
    /// Every so many operations of the workload; 1: all.
    pub stride: u64,
    /// First operation that is cut.
    pub first: u64,
    /// Exactly these cuts.
    pub only: Option<CutList>,
    /// Decides what cuts leave in the cells; the chip's own seed when `None`.
    pub seed: Option<u64>,
    /// A mistake planted between the stack and the chip.
    pub mistake: Option<probe::Mistake>,
}

impl Default for Plan {
    /// Every operation, in every way that differs from its neighbours', not nested.
    fn default() -> Self {
        let tears = vec![Tear::Early, Tear::Half, Tear::Late, Tear::After];
        Self { depth: 1, tears, stride: 1, first: 0, only: None, seed: None, mistake: None }
    }
}

impl Plan {
    /// The ways in which `operation` is cut, `depth` cuts deep.
    fn tears(&self, depth: usize, operation: u64) -> Vec<Tear> {
        if let Some(list) = &self.only {
            let cut = list.0.get(depth).filter(|cut| cut.operation == operation);
            return cut.map(|cut| cut.tear).into_iter().collect();
        }
        let is_chosen =
            operation >= self.first && (operation - self.first).is_multiple_of(self.stride);
        match (depth, is_chosen) {
            (0, false) => vec![],
            (0, true) => self.tears.clone(),
            // Within a recovery every operation, in turns of the ways.
            _ => vec![self.tears[operation as usize % self.tears.len()]],
        }
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

/// What was tried and what came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Programs and erases of the workload.
    pub operations: u64,
    /// Cuts tried by how deep they are.
    pub cuts: Vec<u64>,
    /// The first failures.
    pub failures: Vec<Failure>,
    /// All failures.
    pub failed: u64,
    /// What is worth telling of the run.
    pub remark: String,
}

impl Report {
    /// All cuts.
    pub fn tried(&self) -> u64 {
        self.cuts.iter().sum()
    }

    fn fail(&mut self, cuts: &CutList, problem: String) {
        self.failed += 1;
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

/// Runs `scenario` and cuts as planned.
///
/// # Errors
/// When the workload fails without a cut.
pub fn explore<S: Scenario + 'static>(scenario: &Rc<S>, plan: &Plan) -> Result<Report, String> {
    let (mut chip, knowledge) = scenario.begin()?;
    if let Some(seed) = plan.seed {
        chip.reseed(seed);
    }
    let start = chip.operations();
    let knowledge = Rc::new(RefCell::new(knowledge));
    let report = Rc::new(RefCell::new(Report::default()));
    let cutter = Cutter {
        scenario: scenario.clone(),
        plan: plan.clone(),
        report: report.clone(),
        knowledge: knowledge.clone(),
        cuts: CutList::default(),
        start,
    };
    let probe = Probe::new(chip, Some(Rc::new(cutter)), plan.mistake);
    let outcome = scenario.run(probe.clone(), &knowledge);
    let operations = probe.with(|chip| chip.operations()) - start;
    let mut report = report.borrow().clone();
    report.operations = operations;
    report.remark = scenario.remark(&knowledge.borrow());
    match outcome {
        Err(problem) if plan.mistake.is_none() => Err(problem),
        Err(problem) => {
            report.fail(&CutList::default(), problem);
            Ok(report)
        }
        Ok(()) => Ok(report),
    }
}

/// Takes forks and sees what becomes of them.
struct Cutter<S: Scenario> {
    scenario: Rc<S>,
    plan: Plan,
    report: Rc<RefCell<Report>>,
    knowledge: Rc<RefCell<S::Knowledge>>,
    /// The cuts that led here.
    cuts: CutList,
    /// Operations of the chip before.
    start: u64,
}

impl<S: Scenario + 'static> Hook<S::Chip> for Cutter<S> {
    fn tears(&self, operation: u64) -> Vec<Tear> {
        self.plan.tears(self.cuts.0.len(), operation - self.start)
    }

    fn forked(&self, operation: u64, tear: Tear, mut chip: S::Chip) {
        let depth = self.cuts.0.len();
        let mut cuts = self.cuts.clone();
        cuts.0.push(Cut { operation: operation - self.start, tear });
        {
            let mut report = self.report.borrow_mut();
            if report.cuts.len() <= depth {
                report.cuts.resize(depth + 1, 0);
            }
            report.cuts[depth] += 1;
        }
        chip.power_on();
        let start = chip.operations();
        let knowledge = Rc::new(RefCell::new(self.knowledge.borrow().clone()));
        let deeper = (depth + 1 < self.plan.levels()).then(|| {
            let cutter = Self {
                scenario: self.scenario.clone(),
                plan: self.plan.clone(),
                report: self.report.clone(),
                knowledge: knowledge.clone(),
                cuts: cuts.clone(),
                start,
            };
            Rc::new(cutter) as Rc<dyn Hook<S::Chip>>
        });
        let probe = Probe::new(chip, deeper, None);
        let knowledge = knowledge.borrow().clone();
        let recover = AssertUnwindSafe(|| self.scenario.recover(probe, &knowledge));
        let outcome = catch_unwind(recover).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panic: {}", text.unwrap_or("without a word")))
        });
        if let Err(problem) = outcome {
            self.report.borrow_mut().fail(&cuts, problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_lists_are_read_as_they_are_written() {
        for text in ["0b", "123h,4l", "7e,7a,7b"] {
            assert_eq!(text.parse::<CutList>().unwrap().to_string(), text);
        }
        assert_eq!("12,3".parse::<CutList>().unwrap().to_string(), "12h,3h");
        for text in ["", "h", "12x", "12h,", "1 2h", "12hh"] {
            assert!(text.parse::<CutList>().is_err(), "{text}");
        }
    }
}
