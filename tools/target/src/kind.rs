//! Kinds of targets and their keys.

use std::fmt::Write as _;

/// One kind of target.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// How it is written, without keys.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// The keys it takes.
    pub keys: &'static [Key],
}

/// One key of a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value looks like.
    pub value: &'static str,
    /// What it does, and what holds without it.
    pub help: &'static str,
}

/// A key.
pub const fn key(name: &'static str, value: &'static str, help: &'static str) -> Key {
    Key { name, value, help }
}

/// The keys of these kinds for the help of a command, a line each. What all kinds have alike stands
/// once; another key begins with the name of its kind.
pub fn help(kinds: &[&Kind]) -> String {
    let mut lines: Vec<(String, &str)> = Vec::new();
    for kind in kinds {
        for key in kind.keys {
            let is_common = kinds.iter().all(|kind| kind.keys.contains(key));
            let whose = if is_common { String::new() } else { format!("{}: ", kind.name) };
            let line = (format!("{whose}{}={}", key.name, key.value), key.help);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, help) in lines {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {name:width$}  {help}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Key = key("seed", "NUMBER", "seed (1)");
    const PLAIN: Kind = Kind { name: "plain", help: "", keys: &[SEED] };
    const RICH: Kind =
        Kind { name: "rich", help: "", keys: &[SEED, key("mode", "slow|fast", "how (slow)")] };

    #[test]
    fn the_help_has_every_key_once() {
        let wanted = "\n  seed=NUMBER           seed (1)\n  rich: mode=slow|fast  how (slow)";
        assert_eq!(help(&[&PLAIN, &RICH]), wanted);
    }
}
