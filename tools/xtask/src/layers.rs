//! Which crate may import which: the table in ARCHITECTURE.md is the law that manifests are checked
//! against. Within a crate, no module may use one that uses it, directly or through others.

mod modules;

use std::collections::BTreeMap;

use crate::Report;
use crate::workspace::{Package, Workspace};
use modules::Modules;

/// Crates that may contain unsafe code, with the folder it is confined to.
const UNSAFE: [(&str, &str); 4] = [
    ("api", "crates/api/src/machine/"),
    ("host/*", "host/"),
    ("bindings/c-drivers", "bindings/c-drivers/src/"),
    ("bindings/c-images", "bindings/c-images/src/"),
];

/// Checks every member against the table, and for the attributes its layer demands.
pub(crate) fn check(workspace: &Workspace) -> Result<Report, String> {
    let table = Table::parse(&workspace.read("ARCHITECTURE.md")?)?;
    let mut findings = table.judge(&workspace.packages);
    for package in &workspace.packages {
        findings.extend(check_attributes(workspace, package)?);
    }
    findings.extend(check_modules(workspace)?);
    let summary = format!(
        "layers: {} packages on {} levels, none with modules in a circle",
        workspace.packages.len(),
        table.rows.len()
    );
    Ok(Report { findings, summary })
}

fn check_modules(workspace: &Workspace) -> Result<Vec<String>, String> {
    let files = workspace.files()?;
    let mut findings = Vec::new();
    for Package { folder, .. } in &workspace.packages {
        let sources = format!("{folder}/src/");
        let is_source = |file: &&String| file.starts_with(&sources) && file.ends_with(".rs");
        let read = |file: &String| Ok((file.clone(), workspace.read(file)?));
        let files = files.iter().filter(is_source).map(read).collect::<Result<Vec<_>, String>>()?;
        findings.extend(judge_modules(folder, &Modules::read(folder, &files)));
    }
    Ok(findings)
}

/// The cycles of a crate's modules.
fn judge_modules(folder: &str, modules: &Modules) -> Vec<String> {
    let knots = modules.knots();
    let cycles = knots.iter().flat_map(|knot| modules.cycles(knot));
    cycles.map(|cycle| format!("layers: {folder}: in a circle {cycle}")).collect()
}

/// The table: one row per level.
#[derive(Debug)]
struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    level: u32,
    crates: Vec<String>,
    may_import: MayImport,
}

#[derive(Debug, Default, PartialEq)]
struct MayImport {
    everything: bool,
    levels: Vec<u32>,
    crates: Vec<String>,
}

impl Table {
    /// Reads the first Markdown table with the columns `level`, `crates` and `may import`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let columns = lines
            .by_ref()
            .find_map(|line| {
                let cells = cells(line)?;
                let place = |name| cells.iter().position(|cell| cell.eq_ignore_ascii_case(name));
                Some([place("level")?, place("crates")?, place("may import")?])
            })
            .ok_or("ARCHITECTURE.md has no table with columns `level`, `crates`, `may import`")?;
        let mut rows = Vec::new();
        for line in lines.skip(1) {
            let Some(cells) = cells(line) else { break };
            let [level, crates, may_import] =
                columns.map(|column| cells.get(column).copied().unwrap_or_default());
            let level = level.parse().map_err(|_| format!("`{level}` is not a level: {line}"))?;
            rows.push(Row {
                level,
                crates: quoted(crates),
                may_import: MayImport::parse(may_import)
                    .ok_or_else(|| format!("level {level}: `{may_import}` is not understood"))?,
            });
        }
        Ok(Self { rows })
    }

    fn judge(&self, packages: &[Package]) -> Vec<String> {
        let mut findings = Vec::new();
        let mut levels = BTreeMap::new();
        for package in packages {
            let name = short_name(&package.folder);
            match self.rows.iter().find(|row| row.crates.iter().any(|c| matches(c, name))) {
                Some(row) => drop(levels.insert(name, row)),
                None => findings
                    .push(format!("layers: `{name}` is in no row of the table in ARCHITECTURE.md")),
            }
        }
        for row in &self.rows {
            let absent = |c: &&String| !levels.keys().any(|name| matches(c, name));
            findings.extend(row.crates.iter().filter(absent).map(|c| {
                format!("layers: the table in ARCHITECTURE.md names `{c}`, which does not exist")
            }));
        }
        for package in packages {
            let name = short_name(&package.folder);
            let Some(row) = levels.get(name) else { continue };
            for (folder, kind) in &package.imports {
                let import = short_name(folder);
                let level = levels.get(import).map(|row| row.level);
                if !row.may_import.allows(import, level) {
                    findings.push(format!(
                        "layers: `{name}` (level {}) must not import `{import}`, \
                         yet its [{kind}] do",
                        row.level
                    ));
                }
            }
        }
        findings
    }
}

impl MayImport {
    /// Reads `nothing`, `all`, `level 0`, a crate in backticks, or several separated by commas.
    /// Anything after a dash, a parenthesis or a semicolon is an explanation and is ignored.
    fn parse(text: &str) -> Option<Self> {
        let end = [" - ", " – ", "(", ";"].iter().filter_map(|mark| text.find(mark)).min();
        let text = &text[..end.unwrap_or(text.len())];
        let mut may = Self { crates: quoted(text), ..Self::default() };
        let words: Vec<&str> =
            text.split([' ', ',']).filter(|word| !word.is_empty() && !word.contains('`')).collect();
        may.everything = words.contains(&"all") || words.contains(&"everything");
        may.levels = words.iter().filter_map(|word| word.parse().ok()).collect();
        let nothing = words.contains(&"nothing");
        let something = may.everything || !may.levels.is_empty() || !may.crates.is_empty();
        (nothing != something).then_some(may)
    }

    fn allows(&self, import: &str, level: Option<u32>) -> bool {
        self.everything
            || level.is_some_and(|level| self.levels.contains(&level))
            || self.crates.iter().any(|c| matches(c, import))
    }
}

/// Layers below the tools compile without std, and unsafe code is forbidden outside the places
/// named.
fn check_attributes(workspace: &Workspace, package: &Package) -> Result<Vec<String>, String> {
    let name = short_name(&package.folder);
    let mut findings = Vec::new();
    for root in ["lib.rs", "main.rs"] {
        let file = format!("{}/src/{root}", package.folder);
        if !workspace.root.join(&file).is_file() {
            continue;
        }
        let text = workspace.read(&file)?;
        let has = |attribute: &str| {
            text.lines().any(|line| line.starts_with("#![") && line.contains(attribute))
        };
        if package.folder.starts_with("crates/") && !has("no_std") {
            findings.push(format!("layers: {file} does not say #![no_std]"));
        }
        match UNSAFE.iter().find(|(crates, _)| matches(crates, name)) {
            None if !has("forbid(unsafe_code)") => {
                findings.push(format!("layers: {file} does not say #![forbid(unsafe_code)]"));
            }
            None => {}
            Some((_, inside)) => findings.extend(unsafe_outside(workspace, package, inside)?),
        }
    }
    Ok(findings)
}

/// Files of `package` outside `inside` that contain unsafe code.
fn unsafe_outside(
    workspace: &Workspace,
    package: &Package,
    inside: &str,
) -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    for file in workspace.files()? {
        let ours = file.starts_with(&package.folder) && file.ends_with(".rs");
        if !ours || file.starts_with(inside) {
            continue;
        }
        let code = crate::tidy::code_of(&workspace.read(&file)?);
        if code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe") {
            findings.push(format!("layers: {file} has unsafe code, which belongs in {inside}"));
        }
    }
    Ok(findings)
}

/// The name used in the table: `crates/ufs` is `ufs`; any other folder is named in full.
fn short_name(folder: &str) -> &str {
    folder.strip_prefix("crates/").unwrap_or(folder)
}

/// Whether a name in the table, which may end in `/*`, stands for this crate.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(folder) => name.starts_with(folder),
        None => name == pattern,
    }
}

/// The cells of a Markdown table row.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// Everything between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHITECTURE: &str = "\
# Words

| word | meaning |
|---|---|
| Lane | what a thread owns |

| level | crates | may import |
|---|---|---|
| 0 | `wire`, `api` | nothing of ours |
| 1 | `ufs` `models` | level 0 only - never each other, except `models` on itself |
| 2 | `ubi` | level 0 |
| 3 | `ubifs` | `ubi`, level 0 |
| 4 | `host/*` | level 0 (a door knows contracts, not drivers) |
| 5 | `tools/*`, `tests` | all |

After the table.
";

    fn package(folder: &str, imports: &[&str]) -> Package {
        let import = |i: &&str| (i.to_string(), "dev-dependencies");
        Package {
            name: folder.into(),
            folder: folder.into(),
            imports: imports.iter().map(import).collect(),
            tests: Vec::new(),
            is_published: true,
        }
    }

    /// All crates of the table, importing only what they may.
    fn lawful() -> Vec<Package> {
        vec![
            package("crates/wire", &[]),
            package("crates/api", &[]),
            package("crates/ufs", &["crates/api", "crates/wire"]),
            package("crates/models", &["crates/api"]),
            package("crates/ubi", &["crates/wire"]),
            package("crates/ubifs", &["crates/ubi", "crates/api"]),
            package("host/qemu", &["crates/api"]),
            package("tools/rig", &["crates/ufs", "host/qemu"]),
            package("tests", &["tools/rig", "crates/models"]),
        ]
    }

    fn judge(packages: &[Package]) -> Vec<String> {
        Table::parse(ARCHITECTURE).unwrap().judge(packages)
    }

    #[test]
    fn lawful_workspace_has_no_findings() {
        assert_eq!(judge(&lawful()), Vec::<String>::new());
    }

    #[test]
    fn each_forbidden_import_is_found_even_among_dev_dependencies() {
        for (from, to) in [
            ("crates/wire", "crates/api"),
            ("crates/ufs", "crates/models"),
            ("crates/models", "crates/ufs"),
            ("crates/ubifs", "crates/ufs"),
            ("crates/ubi", "crates/ubifs"),
            ("host/qemu", "crates/ufs"),
            ("crates/ufs", "tools/rig"),
        ] {
            let mut packages = lawful();
            let guilty = packages.iter_mut().find(|p| p.folder == from).unwrap();
            guilty.imports.push((to.into(), "dev-dependencies"));
            let findings = judge(&packages);
            assert_eq!(findings.len(), 1, "{from} -> {to}: {findings:?}");
            assert!(findings[0].contains(short_name(from)) && findings[0].contains(short_name(to)));
        }
    }

    #[test]
    fn unknown_and_absent_crates_are_found() {
        let mut packages = lawful();
        packages.push(package("crates/nvme", &[]));
        packages.retain(|p| p.folder != "crates/ubifs");
        let findings = judge(&packages);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("`nvme`") && findings[1].contains("`ubifs`"));
    }

    #[test]
    fn a_circle_of_modules_is_found() {
        let file = |name: &str, text: &str| (format!("crates/x/src/{name}.rs"), text.to_owned());
        let files = [file("lib", ""), file("a", "use crate::b;"), file("b", "use crate::a;")];
        let circle = Modules::read("crates/x", &files);
        let none = Modules::read("crates/x", &files[..2]);
        let findings = judge_modules("crates/x", &circle);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("`a` uses `b` (crates/x/src/a.rs:1), `b` uses `a` "));
        assert_eq!(judge_modules("crates/x", &none), [""; 0]);
    }

    #[test]
    fn a_cell_that_says_nothing_clear_is_an_error() {
        assert!(MayImport::parse("whatever it likes").is_none());
        assert!(MayImport::parse("nothing, level 0").is_none());
        assert!(Table::parse("no table").is_err());
    }
}
