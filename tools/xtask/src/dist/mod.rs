//! `cargo xtask dist`: packages for people who do not build from source - a static program, a
//! Debian package, a Python wheel, each with its licences; their bills of materials, and checksums
//! of all of it.
//!
//! Everything is built from the last commit, in a folder of its own, with every path that could get
//! into a file replaced: the same commit gives the same bytes wherever it is built with the same
//! tools. `--check` builds it twice, in folders with names of different lengths, and compares.

mod build;
mod licences;
mod sbom;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;
use crate::{Failure, shell};

/// Where the packages are placed, below cargo's build folder.
const FOLDER: &str = "packages";
/// The target of the static program.
const STATIC: &str = "x86_64-unknown-linux-musl";
/// The target of the Python module: a shared library needs a C library.
const SHARED: &str = "x86_64-unknown-linux-gnu";
/// Checksums of everything, for `sha256sum --check`.
const SUMS: &str = "SHA256SUMS";

/// A program required for packaging, and how to get it.
struct Tool {
    program: &'static str,
    remedy: &'static str,
}

const TOOLS: [Tool; 6] = [
    Tool { program: "git", remedy: "apt-get install git" },
    Tool { program: "rustup", remedy: "https://rustup.rs" },
    Tool { program: "musl-gcc", remedy: "apt-get install musl-tools" },
    Tool { program: "cargo-deb", remedy: "cargo install --locked cargo-deb" },
    Tool { program: "maturin", remedy: "pip install 'maturin>=1.16,<2'" },
    Tool { program: "mmdebstrap", remedy: "apt-get install mmdebstrap, or --no-trial" },
];

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// Whether to build twice and compare.
    check: bool,
    /// Whether to install and use the packages in a clean tree.
    trial: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut options = Self { check: false, trial: true };
        for word in words {
            match word.as_str() {
                "--check" => options.check = true,
                "--no-trial" => options.trial = false,
                other => return Err(Failure::Usage(format!("unknown option `{other}`"))),
            }
        }
        Ok(options)
    }
}

/// The commit being packaged.
struct Commit {
    /// Its full name.
    name: String,
    /// When it was made: seconds since 1970, and as CycloneDX writes times.
    seconds: String,
    time: String,
}

impl Commit {
    fn last(workspace: &Workspace) -> Result<Self, String> {
        let say = |format: &str| {
            let mut git = Command::new("git");
            git.current_dir(&workspace.root).env("TZ", "UTC");
            git.args(["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", format]);
            Ok::<_, String>(shell::output(&mut git)?.trim().to_owned())
        };
        Ok(Self {
            name: say("--format=%H")?,
            seconds: say("--format=%ct")?,
            time: say("--format=%cd")?,
        })
    }
}

/// Makes the packages.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<(), Failure> {
    let options = Options::parse(options)?;
    let mut missing = missing(workspace, &options);
    missing.extend(licences::missing(workspace));
    if !missing.is_empty() {
        return Err(Failure::Findings(missing));
    }
    let mut status = Command::new("git");
    status.current_dir(&workspace.root).args(["status", "--porcelain"]);
    if !shell::output(&mut status)?.is_empty() {
        println!("   the last commit is packed: what has changed since is not in it");
    }
    let commit = Commit::last(workspace)?;
    let (folder, scratch) = (workspace.target.join(FOLDER), workspace.target.join("packing"));
    empty(&folder)?;
    empty(&scratch)?;
    build::all(workspace, &commit, &scratch.join("once"), &folder)?;
    if options.check {
        let (again, second) = (scratch.join("another-time"), scratch.join("second"));
        empty(&second)?;
        build::all(workspace, &commit, &again, &second)?;
        same(&folder, &second)?;
        println!("   built twice, in folders of different names: the same bytes");
    }
    if options.trial {
        trial::all(workspace, &folder, &scratch.join("trial"))?;
    }
    remove(&scratch)?;
    println!("   {} of {}:", folder.display(), commit.name);
    print!("{}", shell::output(Command::new("ls").args(["-l"]).arg(&folder))?);
    Ok(())
}

/// What must be installed first, one line each.
fn missing(workspace: &Workspace, options: &Options) -> Vec<String> {
    let wanted = |tool: &&Tool| options.trial || tool.program != "mmdebstrap";
    let absent = |tool: &&Tool| shell::find(tool.program).is_none();
    let tools = TOOLS.iter().filter(wanted).filter(absent);
    let mut lines: Vec<String> =
        tools.map(|tool| format!("needs {}: {}", tool.program, tool.remedy)).collect();
    let mut list = Command::new("rustup");
    list.current_dir(&workspace.root).args(["target", "list", "--installed"]);
    let installed = shell::output(&mut list).unwrap_or_default();
    for target in [STATIC, SHARED] {
        if !installed.lines().any(|line| line == target) {
            lines.push(format!("needs {target}: rustup target add {target}"));
        }
    }
    lines
}

/// Checks that two folders hold the same files.
fn same(one: &Path, other: &Path) -> Result<(), Failure> {
    let (names, others) = (names(one)?, names(other)?);
    if names != others {
        let findings = format!("the second build has other files: {names:?} and {others:?}");
        return Err(findings.into());
    }
    let mut findings = vec![];
    for name in &names {
        if read(&one.join(name))? != read(&other.join(name))? {
            findings.push(format!(
                "{name} differs between two builds: {} and {}",
                one.join(name).display(),
                other.join(name).display()
            ));
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(Failure::Findings(findings)) }
}

/// The files of a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut names = vec![];
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The only file of a folder whose name ends in `end`.
fn ending(folder: &Path, end: &str) -> Result<PathBuf, String> {
    let mut named = names(folder)?.into_iter().filter(|name| name.ends_with(end));
    match (named.next(), named.next()) {
        (Some(name), None) => Ok(folder.join(name)),
        (None, _) => Err(format!("{}: there is no file *{end}", folder.display())),
        (Some(_), Some(_)) => Err(format!("{}: there are several files *{end}", folder.display())),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn write(file: &Path, content: &[u8]) -> Result<(), String> {
    fs::write(file, content).map_err(|error| format!("{}: {error}", file.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to).map(drop);
    copied.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// A folder with nothing in it.
fn empty(folder: &Path) -> Result<(), String> {
    remove(folder)?;
    make(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_are_known_or_refused() {
        let parse = |text: &str| Options::parse(&words(text));
        assert!(matches!(parse(""), Ok(Options { check: false, trial: true })));
        let both = parse("--check --no-trial");
        assert!(matches!(both, Ok(Options { check: true, trial: false })));
        assert!(matches!(parse("--chek"), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_file_that_differs_is_named() {
        let place = std::env::temp_dir().join(format!("flysch-xtask-dist-{}", std::process::id()));
        let [one, other] = ["one", "other"].map(|name| place.join(name));
        for folder in [&one, &other] {
            empty(folder).expect("a folder");
            write(&folder.join("a"), b"same").expect("a file");
            write(&folder.join("b"), b"same").expect("a file");
        }
        assert!(same(&one, &other).is_ok());
        write(&other.join("b"), b"Same").expect("a file");
        let Err(Failure::Findings(findings)) = same(&one, &other) else { panic!("they differ") };
        assert!(findings.len() == 1 && findings[0].starts_with("b differs"), "{findings:?}");
        write(&other.join("c"), b"").expect("a file");
        assert!(same(&one, &other).is_err(), "one has more files");
        remove(&place).expect("it can be removed");
    }
}
