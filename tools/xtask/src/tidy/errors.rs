//! Errors keep their causes: a library returns a type with a `source`, not a sentence.

use super::rust::{Source, code_of, find_outside};
use super::{Finding, is_test_file};

/// What others build on. Tools talk to people, and may return the text they will print.
const FOLDERS: [&str; 2] = ["crates/", "host/"];

/// Where sentences are still returned, and the maximum number: it may only decrease.
const KNOWN: [(&str, usize); 1] = [("crates/geom/", 38)];

/// Number of sentences found in each of those folders.
#[derive(Default)]
pub(super) struct Known([usize; KNOWN.len()]);

impl Known {
    /// Checks a file.
    pub(super) fn check(&mut self, file: &str, text: &str, source: &Source) -> Vec<Finding> {
        if is_test_file(file) || !FOLDERS.iter().any(|folder| file.starts_with(folder)) {
            return vec![];
        }
        let code = code_of(text);
        let lines = sentences(&code).into_iter().map(|at| code[..at].matches('\n').count() + 1);
        let mut lines: Vec<usize> = lines.filter(|line| !source.is_test(*line)).collect();
        if let Some(place) = KNOWN.iter().position(|(folder, _)| file.starts_with(folder)) {
            self.0[place] += lines.len();
            lines.clear();
        }
        let message = "a sentence is given back as an error: make it a type that keeps its cause";
        let finding = |line| Finding {
            rule: "error-type",
            file: file.into(),
            line,
            item: String::new(),
            value: 1,
            message: message.into(),
        };
        lines.into_iter().map(finding).collect()
    }

    /// Folders with more of them than is known.
    pub(super) fn grown(&self) -> Vec<Finding> {
        let counted = KNOWN.iter().zip(self.0).filter(|((_, known), found)| found > known);
        let finding = |((folder, known), value): (&(&str, usize), usize)| Finding {
            rule: "error-type",
            file: (*folder).into(),
            line: 1,
            item: String::new(),
            value,
            message: format!(
                "{value} sentences are given back as errors, and {known} is the limit"
            ),
        };
        counted.map(finding).collect()
    }
}

/// Places of every `Result<_, String>`.
fn sentences(code: &str) -> Vec<usize> {
    let is_one = |at: usize| {
        let open = at + "Result<".len();
        let comma = find_outside(code, open, &[',', '>'])?;
        let end =
            find_outside(code, comma + 1, &['>']).filter(|_| code[comma..].starts_with(','))?;
        let error = code[comma + 1..end].trim().trim_end_matches(',');
        Some(error.rsplit("::").next() == Some("String"))
    };
    let places = code.match_indices("Result<").map(|(at, _)| at);
    places.filter(|at| is_one(*at).unwrap_or(false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> usize {
        Known::default().check(file, text, &Source::scan(text)).len()
    }

    #[test]
    fn a_sentence_as_an_error_is_found_in_libraries_alone() {
        let crates = "crates/x/src/lib.rs";
        assert_eq!(findings(crates, "fn f() -> Result<(), String> {}\n"), 1);
        assert_eq!(
            findings(crates, "fn f() -> Result<Vec<(u8, u8)>, alloc::string::String> {}"),
            1
        );
        assert_eq!(findings(crates, "fn f() -> Result<\n    Vec<u8>,\n    String,\n> {}\n"), 1);
        assert_eq!(findings("host/x/src/lib.rs", "type T = Result<u8, String>;\n"), 1);
        for kept in [
            "fn f() -> Result<String, Error> {}\n",
            "fn f() -> Result<Map<u8, String>, Error> {}\n",
            "fn f() -> io::Result<String> {}\n",
            "// Result<(), String>\n",
            "#[cfg(test)]\nmod tests {\n    fn f() -> Result<(), String> {}\n}\n",
        ] {
            assert_eq!(findings(crates, kept), 0, "{kept}");
        }
        let sentence = "fn f() -> Result<(), String> {}\n";
        for elsewhere in ["tools/x/src/lib.rs", "crates/x/src/tests.rs"] {
            assert_eq!(findings(elsewhere, sentence), 0, "{elsewhere}");
        }
    }

    #[test]
    fn what_is_known_may_not_grow() {
        let (folder, limit) = KNOWN[0];
        let text = "fn f() -> Result<(), String> {}\n".repeat(limit);
        let mut known = Known::default();
        let file = format!("{folder}src/lib.rs");
        assert!(known.check(&file, &text, &Source::scan(&text)).is_empty());
        assert!(known.grown().is_empty());
        let one = "fn f() -> Result<(), String> {}\n";
        assert!(known.check(&file, one, &Source::scan(one)).is_empty());
        assert_eq!(known.grown().len(), 1);
    }
}
