//! Errors keep their causes: dropping one needs a reason.

use super::rust::Source;
use super::{Finding, code_of, is_test_file};

/// Folders in which errors are passed on.
const FOLDERS: [&str; 4] = ["crates/", "host/", "tools/", "bindings/"];
/// Models of devices answer with a status of their protocol, which has no room for a cause.
const DEVICES: &str = "crates/models/";
/// The code that drops a cause.
const DROPS: &str = "map_err(|_|";
/// Conversions whose error says no more than the value, which the reader of the message can see.
const SAYS_NOTHING: [&str; 6] =
    ["::try_from(", ".try_into()", ".parse()", ".parse::<", "from_str_radix(", "try_from)"];
/// The start of a comment that says why there is no cause.
const EXCUSE: &str = "// No cause:";
/// Where causes are still dropped without a reason, and the maximum number: it may only decrease.
const KNOWN: [(&str, usize); 1] = [("tools/lab/", 1)];

/// Number found in each of those folders.
#[derive(Default)]
pub(super) struct Known([usize; KNOWN.len()]);

impl Known {
    /// Checks a file.
    pub(super) fn check(&mut self, file: &str, text: &str, source: &Source) -> Vec<Finding> {
        let is_meant = FOLDERS.iter().any(|folder| file.starts_with(folder));
        if !is_meant || is_test_file(file) || file.starts_with(DEVICES) {
            return vec![];
        }
        let mut lines = dropped(text);
        lines.retain(|line| !source.is_test(*line));
        if let Some(place) = KNOWN.iter().position(|(folder, _)| file.starts_with(folder)) {
            self.0[place] += lines.len();
            lines.clear();
        }
        let message = format!("the cause is dropped: keep it, or say why in a comment `{EXCUSE}`");
        let finding = |line| Finding {
            rule: "lost-cause",
            file: file.into(),
            line,
            item: String::new(),
            value: 1,
            message: message.clone(),
        };
        lines.into_iter().map(finding).collect()
    }

    /// Folders with more of them than is known.
    pub(super) fn grown(&self) -> Vec<Finding> {
        let counted = KNOWN.iter().zip(self.0).filter(|((_, known), found)| found > known);
        let finding = |((folder, known), value): (&(&str, usize), usize)| Finding {
            rule: "lost-cause",
            file: (*folder).into(),
            line: 1,
            item: String::new(),
            value,
            message: format!("{value} causes are dropped without a word, and {known} is the limit"),
        };
        counted.map(finding).collect()
    }
}

/// The lines, counted from 1, that drop a cause without an excuse.
fn dropped(text: &str) -> Vec<usize> {
    let code = code_of(text);
    let lines: Vec<&str> = text.lines().collect();
    let place = |(at, _): (usize, &str)| {
        let begin = code[..at].rfind([';', '{', '}']).map_or(0, |end| end + 1);
        let statement = &code[begin..at];
        let says_nothing = SAYS_NOTHING.iter().any(|known| statement.contains(known));
        let line_of = |at: usize| code[..at].matches('\n').count();
        let first = line_of(begin + (statement.len() - statement.trim_start().len()));
        let last = line_of(at);
        let excused = lines[first.saturating_sub(1)..=last].iter().any(|l| l.contains(EXCUSE));
        (!says_nothing && !excused).then_some(last + 1)
    };
    code.match_indices(DROPS).filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> usize {
        Known::default().check(file, text, &Source::scan(text)).len()
    }

    #[test]
    fn a_cause_that_is_dropped_is_found_unless_there_is_none_or_it_is_said() {
        let lost = "fn f() {\n    let a = read(x).map_err(|_| Error::Short)?;\n}\n";
        assert_eq!(findings("crates/x/src/lib.rs", lost), 1);
        assert_eq!(findings("tools/x/src/lib.rs", lost), 1);
        let chained = "fn f() {\n    read(x)\n        .map_err(|_| Error::Short)\n}\n";
        assert_eq!(findings("host/x/src/lib.rs", chained), 1);
        for kept in [
            "fn f() {\n    u32::try_from(x).map_err(|_| Error::Large)?;\n}\n",
            "fn f() {\n    text\n        .parse()\n        .map_err(|_| no(text))\n}\n",
            "fn f() {\n    // No cause: full is full.\n    push(x).map_err(|_| Full)?;\n}\n",
            "fn f() {\n    push(x)\n        // No cause: full.\n        .map_err(|_| Full)\n}\n",
            "fn f() {\n    read(x).map_err(|error| Error::Read(error))?;\n}\n",
            "#[cfg(test)]\nmod tests {\n    fn f() {\n        r().map_err(|_| ())\n    }\n}\n",
        ] {
            assert_eq!(findings("crates/x/src/lib.rs", kept), 0, "{kept}");
        }
        assert_eq!(findings("crates/models/src/lib.rs", lost), 0);
        assert_eq!(findings("crates/x/src/tests.rs", lost), 0);
    }

    #[test]
    fn the_excuse_of_one_does_not_excuse_the_next() {
        let text = "fn f() {\n    // No cause: full.\n    push(x).map_err(|_| Full)?;\n    \
                    let y = 1;\n    push(y).map_err(|_| Full)?;\n}\n";
        assert_eq!(dropped(text), [5]);
    }

    #[test]
    fn what_is_known_may_not_grow() {
        let mut known = Known::default();
        for (folder, limit) in KNOWN {
            let text = "fn f() {\n    read(x).map_err(|_| Short)?;\n}\n".repeat(limit);
            let file = format!("{folder}src/lib.rs");
            assert!(known.check(&file, &text, &Source::scan(&text)).is_empty());
        }
        assert!(known.grown().is_empty());
        let one = "fn f() {\n    read(x).map_err(|_| Short)?;\n}\n";
        let file = format!("{}src/lib.rs", KNOWN[0].0);
        assert!(known.check(&file, one, &Source::scan(one)).is_empty());
        assert_eq!(known.grown().len(), 1);
    }
}
