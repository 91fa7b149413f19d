//! Limits for instruction counts: a bound that preserves what was achieved, and a goal.

/// The goal of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// None in particular.
    None,
    /// At most this many instructions; it is met, and must stay met.
    Met(u64),
    /// At most this many instructions; it is not met yet.
    Missed(u64),
}

/// How many instructions a case may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Slightly above the count, so that no change increases it much unnoticed.
    pub bound: u64,
    /// The goal.
    pub goal: Goal,
}

impl Budget {
    /// Maximum instructions: a goal that has been met takes precedence over a higher bound.
    pub const fn limit(&self) -> u64 {
        match self.goal {
            Goal::Met(goal) if goal < self.bound => goal,
            _ => self.bound,
        }
    }

    /// Checks a count.
    ///
    /// # Errors
    /// Why it is wrong: it is too high, or so low that it meets a goal recorded as missed.
    pub fn judge(&self, count: u64) -> Result<(), String> {
        let limit = self.limit();
        match self.goal {
            Goal::Met(goal) if count > goal => {
                Err(format!("takes {count}, {limit} are allowed: its goal of {goal} is lost"))
            }
            _ if count > limit => Err(format!("takes {count}, {limit} are allowed")),
            Goal::Missed(goal) if count <= goal => {
                Err(format!("takes {count} and meets its goal of {goal}: say so in its row"))
            }
            _ => Ok(()),
        }
    }

    /// Count, limit and goal as cells of a table.
    pub fn cells(&self, count: u64) -> String {
        let goal = match self.goal {
            Goal::None => "-".into(),
            Goal::Met(goal) | Goal::Missed(goal) if count <= goal => goal.to_string(),
            Goal::Met(goal) | Goal::Missed(goal) => format!("{goal}, missed by {}", count - goal),
        };
        format!("{count} | {} | {goal}", self.limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{CASES, HEADING};

    #[test]
    fn a_goal_that_is_met_is_not_lost_below_the_bound() {
        let met = Budget { bound: 306, goal: Goal::Met(300) };
        assert_eq!((met.limit(), met.judge(300)), (300, Ok(())));
        assert!(met.judge(301).unwrap_err().contains("its goal of 300 is lost"));
        let easy = Budget { bound: 192, goal: Goal::Met(200) };
        assert_eq!((easy.limit(), easy.judge(192)), (192, Ok(())));
        assert_eq!(easy.judge(193), Err("takes 193, 192 are allowed".into()));
    }

    #[test]
    fn a_goal_that_is_missed_is_told_and_the_bound_holds() {
        let missed = Budget { bound: 323, goal: Goal::Missed(280) };
        assert_eq!((missed.limit(), missed.judge(323)), (323, Ok(())));
        assert_eq!(missed.cells(319), "319 | 323 | 280, missed by 39");
        assert_eq!(missed.judge(324), Err("takes 324, 323 are allowed".into()));
        // From then on it must be kept.
        assert!(missed.judge(280).unwrap_err().contains("meets its goal of 280"));
        let none = Budget { bound: 42, goal: Goal::None };
        assert_eq!((none.cells(39), none.judge(42)), ("39 | 42 | -".into(), Ok(())));
        assert!(none.judge(43).is_err());
    }

    /// docs/bench.md has the table that this program prints, with counts that are allowed.
    #[test]
    fn the_documentation_has_every_row() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.md");
        let text = std::fs::read_to_string(path).expect("docs/bench.md");
        let rows: Vec<&str> = text
            .split_once(HEADING)
            .expect("the table of instructions")
            .1
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with('|'))
            .collect();
        assert_eq!(rows.len(), CASES.len());
        for (row, case) in rows.into_iter().zip(CASES) {
            let count = row.split(" | ").nth(1).and_then(|count| count.parse().ok());
            let count = count.unwrap_or_else(|| panic!("{row}: no count"));
            assert_eq!(row, case.row(count));
            assert_eq!(case.budget.judge(count), Ok(()), "{row}");
        }
    }
}
