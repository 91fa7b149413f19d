//! The cost of a test step: elapsed time, and the processor time of its programs.

use std::fmt;
use std::time::{Duration, Instant};

/// Time since the start, and processor time of all programs that have ended since.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    time: Duration,
    /// None if the system does not report it.
    processor: Option<Duration>,
}

impl Spent {
    /// The time since `begin`, and the processor time so far.
    pub(crate) fn so_far(begin: Instant) -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self { time: begin.elapsed(), processor: children(&stat) }
    }

    /// What was spent since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let processor = self.processor.zip(earlier.processor).map(|(now, then)| now - then);
        Self { time: self.time - earlier.time, processor }
    }

    /// The elapsed time as text.
    pub(crate) fn seconds(self) -> String {
        seconds(self.time)
    }
}

/// Processor time of the children waited for, and of their children, which proc(5) gives in
/// hundredths of a second as fields 16 and 17; they are found from the parenthesis after the name.
fn children(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processor = self.processor.map_or("-".to_owned(), seconds);
        write!(f, "{:>8} {processor:>10}", seconds(self.time))
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_children() {
        let line = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 500 600 1234 66 20 0 1 0";
        assert_eq!(children(line), Some(Duration::from_secs(13)));
        assert_eq!(children("7 (a) S 1"), None);
        assert_eq!(children(""), None);
    }
}
