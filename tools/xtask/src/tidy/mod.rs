//! Budgets of the code: lengths, widths, parameters, words.
//!
//! A limit exceeded is a finding. `tools/xtask/tidy.ratchet` may excuse a few known ones, each with
//! its reason; it can only get smaller.

mod causes;
mod errors;
mod generators;
mod manifests;
mod objects;
mod ratchet;
mod rust;
mod words;

use crate::Report;
use crate::workspace::Workspace;

pub(crate) use rust::{closing, code_of, find_outside, words as words_of};

/// Lines of one function; 40 is the wish.
const FUNCTION_LINES: Limit = Limit { rule: "function-lines", wish: 40, limit: 70 };
/// Lines of one file without its tests; 300 is the wish.
const FILE_LINES: Limit = Limit { rule: "file-lines", wish: 300, limit: 800 };
/// Parameters of one function, without `self`; those of trait methods count where they are
/// declared.
const PARAMETERS: Limit = Limit { rule: "parameters", wish: 5, limit: 5 };
/// Methods of one trait.
const TRAIT_METHODS: Limit = Limit { rule: "trait-methods", wish: 7, limit: 7 };
/// Characters in one line, except for tables in documentation and links.
const COLUMNS: Limit = Limit { rule: "columns", wish: 100, limit: 100 };

const RATCHET: &str = "tools/xtask/tidy.ratchet";

struct Limit {
    rule: &'static str,
    wish: usize,
    limit: usize,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    rule: &'static str,
    file: String,
    line: usize,
    /// The function, trait or word concerned, or empty.
    item: String,
    /// The count; 1 for rules that do not count.
    value: usize,
    message: String,
}

/// Checks every file under version control.
pub(crate) fn check(workspace: &Workspace) -> Result<Report, String> {
    let mut findings = Vec::new();
    let mut figures = Figures::default();
    let mut sentences = errors::Known::default();
    let mut causes = causes::Known::default();
    let mut objects = objects::Objects::default();
    let promised = crate::msrv::promised(&workspace.read("Cargo.toml")?).unwrap_or_default();
    for file in workspace.files()? {
        let Ok(text) = workspace.read(&file) else { continue };
        findings.extend(words::check(&file, &text));
        findings.extend(manifests::check(&file, &text, &promised));
        if file.ends_with(".rs") {
            findings.extend(check_rust(&file, &text, &mut figures));
            let source = rust::Source::scan(&text);
            findings.extend(sentences.check(&file, &text, &source));
            findings.extend(causes.check(&file, &text, &source));
            findings.extend(generators::check(&file, &text));
            if !is_test_file(&file) {
                objects.add(&file, &source);
            }
        }
    }
    findings.extend(sentences.grown());
    findings.extend(causes.grown());
    findings.extend(objects.findings());
    let ratchet = workspace.read(RATCHET).unwrap_or_default();
    let findings = ratchet::apply(&ratchet, findings);
    let summary = format!("{}\ntidy: {}", figures.summary(), objects.summary());
    Ok(Report { findings, summary })
}

fn check_rust(file: &str, text: &str, figures: &mut Figures) -> Vec<Finding> {
    let source = rust::Source::scan(text);
    let mut findings = check_columns(file, text);
    if is_test_file(file) {
        return findings;
    }
    let mut judge = |limit: &Limit, line: usize, item: &str, value: usize, what: &str| {
        if value > limit.limit {
            findings.push(Finding {
                rule: limit.rule,
                file: file.into(),
                line,
                item: item.into(),
                value,
                message: format!("{what}: {value}, and {} is the limit", limit.limit),
            });
        }
    };
    let lines = text.lines().count() - source.test_lines();
    judge(&FILE_LINES, 1, "", lines, "lines of the file without its tests");
    for function in source.functions.iter().filter(|f| !source.is_test(f.line)) {
        let name = &function.name;
        judge(&FUNCTION_LINES, function.line, name, function.lines, &format!("lines of `{name}`"));
        let what = format!("parameters of `{name}`");
        if !source.is_trait_impl(function.line) {
            judge(&PARAMETERS, function.line, name, function.parameters, &what);
        }
        figures.functions.push((function.lines, format!("{file}: {name}")));
    }
    for (line, name, methods) in &source.traits {
        judge(&TRAIT_METHODS, *line, name, *methods, &format!("methods of trait `{name}`"));
    }
    figures.files.push((lines, file.into()));
    let mut refuse = |rule, line, message: &str| {
        let message = message.into();
        findings.push(Finding {
            rule,
            file: file.into(),
            line,
            item: String::new(),
            value: 1,
            message,
        });
    };
    if let Some((first, _)) = source.tests.first().filter(|_| lines > FILE_LINES.wish) {
        refuse("inline-tests", *first, "tests of a file over 300 lines go to a file of their own");
    }
    for line in source.glob_imports.iter().filter(|line| !source.is_test(**line)) {
        refuse("glob-import", *line, "`use super::*` outside of tests");
    }
    findings
}

fn check_columns(file: &str, text: &str) -> Vec<Finding> {
    let excepted = |line: &str| {
        let comment = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        comment.starts_with('|') || line.contains("://")
    };
    text.lines()
        .enumerate()
        .filter(|(_, line)| !excepted(line))
        .map(|(number, line)| (number + 1, line.chars().count()))
        .filter(|(_, columns)| *columns > COLUMNS.limit)
        .map(|(line, value)| Finding {
            rule: COLUMNS.rule,
            file: file.into(),
            line,
            item: String::new(),
            value,
            message: format!("line of {value} characters, and {} is the limit", COLUMNS.limit),
        })
        .collect()
}

/// Whether a file contains only tests, which may be as long as their cases need.
pub(crate) fn is_test_file(file: &str) -> bool {
    let parts: Vec<&str> = file.split('/').collect();
    let name = parts.last().copied().unwrap_or_default();
    let folder = &parts[..parts.len() - 1];
    name == "tests.rs" || name.ends_with("_tests.rs") || folder.contains(&"tests")
}

/// Sizes seen on the way, for the summary.
#[derive(Default)]
struct Figures {
    functions: Vec<(usize, String)>,
    files: Vec<(usize, String)>,
}

impl Figures {
    fn summary(mut self) -> String {
        let describe = |sizes: &mut Vec<(usize, String)>, limit: &Limit, what: &str| {
            sizes.sort();
            let Some((longest, name)) = sizes.last() else { return format!("no {what}") };
            let over = sizes.iter().filter(|(lines, _)| *lines > limit.wish).count();
            let median = sizes[sizes.len() / 2].0;
            format!(
                "{} {what}, median {median} lines, {over} over the wished {}, longest {longest} \
                 ({name})",
                sizes.len(),
                limit.wish
            )
        };
        let files = describe(&mut self.files, &FILE_LINES, "files");
        let functions = describe(&mut self.functions, &FUNCTION_LINES, "functions");
        format!("tidy: {files}\ntidy: {functions}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, text: &str) -> Vec<&'static str> {
        check_rust(file, text, &mut Figures::default()).iter().map(|f| f.rule).collect()
    }

    /// The canary: every rule fires on a file that just breaks it, and not on one that just keeps
    /// it.
    #[test]
    fn each_broken_budget_is_found() {
        let function =
            |lines: usize| format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines));
        let tests = "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
        let methods = |n: usize| format!("trait T {{\n{}}}\n", "    fn m(&self);\n".repeat(n));
        let cases = [
            ("function-lines", function(68), function(69)),
            ("file-lines", "// a line\n".repeat(800), "// a line\n".repeat(801)),
            (
                "parameters",
                "fn f(&self, a: A<B, C>, b: fn(u8, u8) -> u8, c: (u8, u8), d: D, e: E) {}".into(),
                "fn f(a: A, b: B, c: C, d: D, e: E, f: F) {}".into(),
            ),
            ("trait-methods", methods(7), methods(8)),
            ("columns", "x".repeat(100), "x".repeat(101)),
            ("glob-import", tests.into(), "use super::*;\n".into()),
            (
                "inline-tests",
                format!("{}{tests}", "// a line\n".repeat(300)),
                format!("{}{tests}", "// a line\n".repeat(301)),
            ),
        ];
        for (rule, kept, broken) in cases {
            assert_eq!(rules("crates/x/src/lib.rs", &kept), [""; 0], "{rule} fires too early");
            assert_eq!(rules("crates/x/src/lib.rs", &broken), [rule], "{rule} does not fire");
        }
    }

    #[test]
    fn test_code_has_no_length_limit_but_a_width() {
        let long =
            format!("fn long() {{\n{}}}\n{}\n", "    work();\n".repeat(900), "x".repeat(101));
        for file in ["tests/tests/a.rs", "crates/x/src/y/tests.rs", "crates/x/src/y_tests.rs"] {
            assert_eq!(rules(file, &long), ["columns"]);
        }
    }
}
