//! Known excesses: findings excused, each with a reason, as long as they do not grow.
//!
//! A line is `RULE FILE ITEM VALUE REASON...`, with `-` for an empty item; `#` starts a comment.

use super::Finding;

/// Maximum number of excuses in the file.
const ENTRIES_MAX: usize = 12;

struct Entry<'a> {
    rule: &'a str,
    file: &'a str,
    item: &'a str,
    value: usize,
    used: bool,
}

/// The findings that are not excused, and what is wrong with the excuses.
pub(crate) fn apply(ratchet: &str, findings: Vec<Finding>) -> Vec<String> {
    let mut left = Vec::new();
    let mut entries = Vec::new();
    let lines = ratchet.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    for line in lines {
        match parse(line) {
            Some(entry) => entries.push(entry),
            None => left.push(format!("tidy.ratchet: not `RULE FILE ITEM VALUE REASON`: {line}")),
        }
    }
    if entries.len() > ENTRIES_MAX {
        let n = entries.len();
        left.push(format!("tidy.ratchet: {n} excuses, and {ENTRIES_MAX} is the limit"));
    }
    for finding in findings {
        let item = if finding.item.is_empty() { "-" } else { &finding.item };
        let same =
            |e: &&mut Entry<'_>| e.rule == finding.rule && e.file == finding.file && e.item == item;
        match entries.iter_mut().find(same) {
            Some(entry) if finding.value <= entry.value => {
                entry.used |= finding.value == entry.value;
            }
            _ => left.push(format!(
                "{}:{}: {} [{}]",
                finding.file, finding.line, finding.message, finding.rule
            )),
        }
    }
    left.extend(entries.iter().filter(|entry| !entry.used).map(|e| {
        format!(
            "tidy.ratchet: {} {} {} is better now: tighten or remove it",
            e.rule, e.file, e.item
        )
    }));
    left
}

fn parse(line: &str) -> Option<Entry<'_>> {
    let mut words = line.split_whitespace();
    let [rule, file, item, value] = [(); 4].map(|()| words.next());
    words.next()?;
    Some(Entry { rule: rule?, file: file?, item: item?, value: value?.parse().ok()?, used: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(value: usize) -> Finding {
        Finding {
            rule: "function-lines",
            file: "a.rs".into(),
            line: 3,
            item: "f".into(),
            value,
            message: "too long".into(),
        }
    }

    #[test]
    fn an_excuse_covers_what_it_names_and_no_more() {
        let ratchet = "# known\nfunction-lines a.rs f 82 one state machine\n";
        assert_eq!(apply(ratchet, vec![finding(82)]), [""; 0]);
        assert_eq!(apply(ratchet, vec![finding(83)]).len(), 2, "grown");
        assert!(apply(ratchet, vec![finding(75)])[0].contains("tighten"));
        assert!(apply(ratchet, vec![])[0].contains("tighten"));
        assert_eq!(apply("", vec![finding(82)]).len(), 1);
        assert!(apply("function-lines a.rs f 82", vec![])[0].contains("REASON"));
    }

    #[test]
    fn the_list_of_excuses_stays_short() {
        let many = "function-lines a.rs f 82 reason\n".repeat(ENTRIES_MAX + 1);
        assert!(apply(&many, vec![]).iter().any(|line| line.contains("limit")));
    }
}
