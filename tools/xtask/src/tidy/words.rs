//! Words that must not appear in the project.

use super::Finding;

/// A word, and why it must not appear in a file under version control.
struct Banned {
    word: &'static str,
    reason: &'static str,
}

/// The words are assembled from parts so that this file may contain them.
const BANNED: [Banned; 10] = [
    Banned { word: concat!("/wo", "rk/"), reason: "a path of one machine" },
    Banned { word: concat!("/ro", "ot/."), reason: "a path of one machine" },
    Banned { word: concat!("/ho", "me/"), reason: "a path of one machine" },
    Banned { word: concat!("/tmp/tar", "get"), reason: "a path of one machine" },
    Banned { word: concat!("crates", ".io"), reason: "a registry's host" },
    Banned { word: concat!("pypi", ".org"), reason: "a registry's host" },
    Banned { word: concat!("TO", "DO"), reason: "a left-over: do it or write it down in docs" },
    Banned { word: concat!("FIX", "ME"), reason: "a left-over: mend it or say what is wrong" },
    Banned { word: concat!("XX", "X:"), reason: "a left-over" },
    Banned { word: concat!("<<<<", "<<<"), reason: "a merge that was not finished" },
];

/// Files whose words are not our own.
const FOREIGN: [&str; 3] = ["Cargo.lock", "LICENSE-", "tests/data/"];

/// Every banned word in a file.
pub(crate) fn check(file: &str, text: &str) -> Vec<Finding> {
    let name = file.rsplit('/').next().unwrap_or(file);
    if FOREIGN.iter().any(|foreign| name.starts_with(foreign) || file.starts_with(foreign)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for banned in BANNED.iter().filter(|banned| line.contains(banned.word)) {
            findings.push(Finding {
                rule: "word",
                file: file.into(),
                line: number + 1,
                item: banned.word.into(),
                value: 1,
                message: format!("`{}`: {}", banned.word, banned.reason),
            });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_banned_word_is_found_and_foreign_files_are_left_alone() {
        for banned in &BANNED {
            let text = format!("fine\nsome {} here\n", banned.word);
            let findings = check("docs/a.md", &text);
            assert_eq!(findings.len(), 1, "{}", banned.word);
            assert_eq!((findings[0].line, findings[0].rule), (2, "word"));
            assert!(check("fuzz/Cargo.lock", &text).is_empty());
        }
        assert!(check("docs/a.md", "the workload roots for home").is_empty());
    }
}
