//! Random numbers come from `flysch-random`, whose sequences are tested and recorded.

use super::rust::code_of;
use super::{Finding, is_test_file};

/// Where the generators are.
const HOME: &str = "crates/random/";
/// Files with a generator of their own, and the reason.
const KNOWN: [(&str, &str); 5] = [
    ("crates/api/src/data/tests.rs", "level 0 imports nothing of ours"),
    ("crates/api/src/machine/allocator.rs", "level 0 imports nothing of ours"),
    ("crates/compress/src/tests.rs", "level 0 imports nothing of ours"),
    ("crates/jffs2/src/write/space.rs", "which block is collected is part of recorded cut lists"),
    ("crates/ubifs/src/write/numbers.rs", "cookies are part of recorded flash contents"),
];
/// Multipliers of linear congruential generators: Knuth's, Numerical Recipes', the C standard's.
const FACTORS: [&str; 3] = ["6364136223846793005", "1664525", "1103515245"];
/// The first shift in each of Marsaglia's generators, after the variable.
const SHIFTS: [&str; 2] = ["<< 13;", ">> 12;"];

/// Checks a file.
pub(super) fn check(file: &str, text: &str) -> Vec<Finding> {
    if file.starts_with(HOME) {
        return vec![];
    }
    let code = code_of(text);
    let lines = code.lines().enumerate().filter(|(_, line)| is_generator(line));
    let lines: Vec<usize> = lines.map(|(at, _)| at + 1).collect();
    let known = KNOWN.iter().find(|(known, _)| *known == file);
    let finding = |line, message: String| Finding {
        rule: "generator",
        file: file.into(),
        line,
        item: String::new(),
        value: 1,
        message,
    };
    match (known, lines.first()) {
        (Some(_), Some(_)) | (None, None) => vec![],
        (None, Some(_)) => {
            let what = if is_test_file(file) { "a test's" } else { "a" };
            let message = format!("{what} generator of its own: take one of `flysch-random`");
            lines.into_iter().map(|line| finding(line, message.clone())).collect()
        }
        (Some((_, reason)), None) => {
            vec![finding(1, format!("has no generator any more, remove its excuse ({reason})"))]
        }
    }
}

fn is_generator(line: &str) -> bool {
    let plain = line.replace('_', "");
    let shifts = line.contains("^=") && SHIFTS.iter().any(|shift| line.contains(shift));
    shifts || FACTORS.iter().any(|factor| plain.contains(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_are_found_where_they_do_not_belong() {
        let lcg = "fn f(x: u64) -> u64 {\n    x.wrapping_mul(6_364_136_223_846_793_005)\n}\n";
        let shifts = "fn f(mut x: u64) {\n    x ^= x << 13;\n    x ^= x >> 7;\n}\n";
        for text in [lcg, shifts] {
            assert_eq!(check("crates/x/src/lib.rs", text).len(), 1, "{text}");
            assert_eq!(check("tests/tests/a.rs", text)[0].line, 2, "{text}");
            assert_eq!(check("crates/random/src/lib.rs", text), []);
            assert_eq!(check(KNOWN[0].0, text), []);
        }
        assert!(check(KNOWN[0].0, "")[0].message.contains("remove its excuse"));
        for other in ["const FLAG: u32 = 1 << 13;\n", "// x ^= x << 13;\n", "x ^= x << 3;\n"] {
            assert_eq!(check("crates/x/src/lib.rs", other), []);
        }
    }
}
