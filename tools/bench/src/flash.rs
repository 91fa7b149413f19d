//! Raw flash and the file systems on it: what UBIFS and JFFS2 cost compared with the chip itself.
//!
//! | module | what it does |
//! |---|---|
//! | [`target`], [`chip`] | the chip |
//! | [`meter`] | attribution of time: file system, UBI, MTD, chip |
//! | [`stack`] | file systems put together on a chip |
//! | [`plan`], [`run`](mod@run) | what is measured, and how |
//! | [`results`] | the results, as table, JSON and page |
//! | [`published`] | what others measured |

mod buffer;
pub mod chip;
pub mod meter;
pub mod plan;
pub mod published;
mod report;
pub mod results;
pub mod run;
pub mod stack;
pub mod target;

#[cfg(test)]
mod tests;

use self::meter::Meter;
use self::plan::{Plan, Test};
use self::results::{Row, SubjectResults, TargetResults};
use self::run::Runner;
use self::stack::{FigureError, Stacks, Subject};
use self::target::FlashTarget;

pub use self::report::render;

/// Runs everything on one chip. `tell` is called before each test.
///
/// # Errors
/// In words: what should not have happened, and where. A chip that is too small for a test is not
/// an error; the test's row has no value.
pub fn run(
    name: &str,
    target: &FlashTarget,
    subjects: &[Subject],
    plan: &Plan,
    tell: &mut dyn FnMut(Subject, Test),
) -> Result<TargetResults, String> {
    let mut results = Vec::new();
    for &subject in subjects {
        let stacks = Stacks::new(target, Meter::new(target.time));
        let runner = Runner { plan, stacks, subject };
        let mut rows = Vec::new();
        for (test, outcome) in runner.run(&mut |test| tell(subject, test)) {
            let (value, reading) = match outcome {
                Ok((value, reading)) => (Some(value), reading),
                Err(FigureError::NoSpace) => (None, Default::default()),
                Err(error) => {
                    let (subject, test) = (subject.name(), plan.name(test));
                    return Err(format!("{name}: {subject}: {test}: {error}"));
                }
            };
            let published = published::published(subject, test).filter(|_| target.is_published);
            rows.push(Row::new(plan, test, value, published, &reading));
        }
        results.push(SubjectResults { name: subject.name(), rows });
    }
    Ok(TargetResults {
        target: name.to_string(),
        description: target.description(),
        clock: target.time.name(),
        page_size: target.program_size(),
        subjects: results,
    })
}
