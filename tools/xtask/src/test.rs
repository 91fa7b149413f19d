//! `cargo xtask test`: everything that must hold, step by step, with a table at the end.

#[cfg(test)]
mod tests;

use std::process::Command;
use std::time::Instant;

use crate::needs::{BARE_TARGET, Needs, SMALL_TARGET};
use crate::spent::Spent;
use crate::workspace::Workspace;
use crate::{Failure, Report, api, layers, readme, shell, tidy};

/// One step: its name, what it needs, what it does.
struct Step {
    name: &'static str,
    /// Tools it cannot run without.
    needs: &'static [&'static str],
    run: fn(&Context<'_>) -> Result<Outcome, String>,
}

/// How a step that did not fail has ended.
enum Outcome {
    Passed,
    /// A part of it could not be run, with the reason.
    Skipped(String),
}

struct Context<'a> {
    workspace: &'a Workspace,
    needs: &'a Needs,
}

/// In this order: the quickest and most often failing first.
const STEPS: [Step; 17] = [
    Step { name: "format", needs: &["rustfmt"], run: format },
    Step { name: "layers", needs: &[], run: |c| verdict(layers::check(c.workspace)?) },
    Step { name: "tidy", needs: &[], run: |c| verdict(tidy::check(c.workspace)?) },
    Step { name: "api", needs: &[], run: |c| verdict(api::check(c.workspace)?) },
    Step { name: "clippy", needs: &["clippy"], run: clippy },
    Step { name: "no-std", needs: &[BARE_TARGET, SMALL_TARGET], run: no_std },
    Step { name: "doc", needs: &[], run: doc },
    Step { name: "deny", needs: &["cargo-deny"], run: deny },
    Step { name: "package", needs: &[], run: package },
    Step { name: "unit", needs: &[], run: unit },
    Step { name: "stories", needs: &[], run: stories },
    Step { name: "python", needs: &["python3"], run: python },
    Step { name: "cost", needs: &["valgrind"], run: cost },
    Step { name: "qemu", needs: &["qemu"], run: qemu },
    Step { name: "bare-metal", needs: &["qemu", BARE_TARGET], run: bare_metal },
    Step { name: "fuzz", needs: &[], run: fuzz },
    Step { name: "readme", needs: &[], run: readme_examples },
];

/// The drivers for C run without a system, too.
const C_DRIVERS: &str = "bindings/c-drivers";
/// The Linux guest: `cargo xtask lab` builds it and runs its tests.
const LAB: &str = "flysch-lab";
/// Counts the instructions of the hot paths.
const COST: &str = "flysch-cost";
/// The test program that needs QEMU.
const QEMU: &str = "qemu";
/// The test program of the stories.
const STORIES: &str = "stories";
/// The module of the QEMU stories that boots the example without a system.
const BARE_METAL: &str = "bare_metal::";

/// Runs the steps asked for.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<(), Failure> {
    let options = Options::parse(options)?;
    if options.list {
        STEPS.iter().for_each(|step| println!("{}", step.name));
        return Ok(());
    }
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    let begin = Instant::now();
    println!("== tools");
    let needs = Needs::meet(workspace, options.install);
    let context = Context { workspace, needs: &needs };
    let mut lines = Vec::new();
    let mut failures = 0;
    for step in STEPS.iter().filter(|step| options.wants(step.name)) {
        println!("== {}", step.name);
        let started = Spent::so_far(begin);
        let result = match needs.lacks(step.needs) {
            Some(lack) => Ok(Outcome::Skipped(lack)),
            None => (step.run)(&context),
        };
        let (word, remark) = match result {
            Ok(Outcome::Passed) => ("passed", String::new()),
            Ok(Outcome::Skipped(lack)) => {
                failures += usize::from(strict);
                ("SKIPPED", lack)
            }
            Err(why) => {
                failures += 1;
                println!("{why}");
                ("FAILED", why.lines().next().unwrap_or_default().to_owned())
            }
        };
        let spent = Spent::so_far(begin).since(started);
        println!("   {}: {word} after {}", step.name, spent.seconds());
        lines.push(format!("{:<12} {word:<8} {spent}  {remark}", step.name));
    }
    println!("\n{:<12} {:<8} {:>8} {:>10}", "step", "result", "time", "processor");
    lines.iter().for_each(|line| println!("{}", line.trim_end()));
    println!("{:<12} {:<8} {}", "all", "", Spent::so_far(begin));
    if failures == 0 {
        return Ok(());
    }
    let strictly = if strict { " (with CI=true a skipped step is a failure)" } else { "" };
    Err(Failure::Findings(vec![format!("{failures} of {} steps failed{strictly}", lines.len())]))
}

struct Options {
    only: Vec<String>,
    skip: Vec<String>,
    list: bool,
    install: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { only: Vec::new(), skip: Vec::new(), list: false, install: true };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let list = match argument.as_str() {
                "--list" => {
                    options.list = true;
                    continue;
                }
                "--no-install" => {
                    options.install = false;
                    continue;
                }
                "--only" => &mut options.only,
                "--skip" => &mut options.skip,
                other => return Err(Failure::Usage(format!("unknown option `{other}`"))),
            };
            let name = arguments
                .next()
                .ok_or_else(|| Failure::Usage(format!("{argument} needs the name of a step")))?;
            if !STEPS.iter().any(|step| step.name == name) {
                let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
                let names = names.join(", ");
                return Err(Failure::Usage(format!("no step `{name}`; there are {names}")));
            }
            list.push(name.clone());
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|n| n == name);
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

impl Context<'_> {
    /// Cargo in the workspace, with the locations of the tools in its environment.
    fn cargo(&self, arguments: &[&str]) -> Command {
        self.cargo_in("", arguments)
    }

    fn cargo_in(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = shell::cargo(&self.workspace.root.join(folder));
        command.args(arguments);
        command.envs(self.needs.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Separate workspaces beside the main one.
    fn outer(&self) -> impl Iterator<Item = &'static str> {
        let exists = |folder: &&str| self.workspace.root.join(folder).join("Cargo.toml").is_file();
        ["fuzz", "examples/bare-metal"].into_iter().filter(exists)
    }

    /// Runs test programs: `targets` chooses them, `filter` the tests in them. The whole workspace
    /// is always named: with other packages selected, cargo would choose other features and rebuild
    /// everything for each step.
    fn run_tests(&self, targets: &[String], filter: &[&str]) -> Result<(), String> {
        let mut command = self.cargo(&["test", "--locked", "--no-fail-fast", "--workspace"]);
        command.args(targets).arg("--").args(filter);
        shell::run(&mut command)
    }

    /// The integration tests for which `wanted` returns true, as arguments of cargo.
    fn targets(&self, wanted: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let named = self.workspace.packages.iter().flat_map(|package| {
            package.tests.iter().filter(|test| wanted(&package.name, test)).cloned()
        });
        named.flat_map(|test| ["--test".to_owned(), test]).collect()
    }
}

fn verdict(report: Report) -> Result<Outcome, String> {
    println!("{}", report.summary);
    if report.findings.is_empty() {
        return Ok(Outcome::Passed);
    }
    Err(format!("{} findings\n{}", report.findings.len(), report.findings.join("\n")))
}

fn format(context: &Context<'_>) -> Result<Outcome, String> {
    shell::run(&mut context.cargo(&["fmt", "--all", "--check"]))?;
    for folder in context.outer() {
        shell::run(&mut context.cargo_in(folder, &["fmt", "--all", "--check"]))?;
    }
    Ok(Outcome::Passed)
}

fn clippy(context: &Context<'_>) -> Result<Outcome, String> {
    let all = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    shell::run(&mut context.cargo(&all))?;
    Ok(Outcome::Passed)
}

/// Each crate by itself, so that no other crate turns on its features.
fn no_std(context: &Context<'_>) -> Result<Outcome, String> {
    let is_for_firmware = |folder: &str| folder.starts_with("crates/") || folder == C_DRIVERS;
    for package in context.workspace.packages.iter().filter(|p| is_for_firmware(&p.folder)) {
        let mut command = context.cargo(&["check", "--locked", "--no-default-features"]);
        command.args(["--target", BARE_TARGET, "--target", SMALL_TARGET]);
        shell::run(command.args(["--package", &package.name]))?;
    }
    Ok(Outcome::Passed)
}

fn doc(context: &Context<'_>) -> Result<Outcome, String> {
    let mut command = context.cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
    shell::run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::Passed)
}

/// Two versions of an indirect dependency deserve a warning, but not in every run.
const CARGO_DENY: [&str; 8] =
    ["deny", "--locked", "--log-level", "error", "check", "bans", "licenses", "sources"];

/// Licences, sources and duplicates. Advisories change independently of us, so they do not test a
/// change.
fn deny(context: &Context<'_>) -> Result<Outcome, String> {
    shell::run(&mut context.cargo(&CARGO_DENY))?;
    Ok(Outcome::Passed)
}

/// Checks that everything published could be: manifests, files, versions of dependencies. The
/// packages are not built, because other steps build the crates.
fn package(context: &Context<'_>) -> Result<Outcome, String> {
    let mut command = context.cargo(&["package", "--locked", "--quiet", "--workspace"]);
    command.args(["--no-verify", "--allow-dirty"]);
    for own in context.workspace.packages.iter().filter(|package| !package.is_published) {
        command.args(["--exclude", &own.name]);
    }
    shell::run(&mut command)?;
    Ok(Outcome::Passed)
}

/// Everything inside the crates.
fn unit(context: &Context<'_>) -> Result<Outcome, String> {
    context.run_tests(&["--lib".into(), "--bins".into()], &[])?;
    shell::run(&mut context.cargo(&[
        "test",
        "--locked",
        "--workspace",
        "--doc",
        "--no-fail-fast",
    ]))?;
    Ok(Outcome::Passed)
}

/// Everything across the crates that needs neither QEMU nor a guest.
fn stories(context: &Context<'_>) -> Result<Outcome, String> {
    let targets = context.targets(|package, test| package != LAB && test != QEMU);
    context.run_tests(&targets, &[])?;
    Ok(context.needs.lacks_peers().map_or(Outcome::Passed, Outcome::Skipped))
}

/// The Python package from the sources: puts together what `maturin` would put into a wheel.
fn python(context: &Context<'_>) -> Result<Outcome, String> {
    let sources = context.workspace.root.join("bindings/python");
    // Together with a test that is already built, so that the features are those of the earlier
    // steps.
    let build = ["build", "--locked", "--workspace", "--lib", "--test", STORIES];
    shell::run(&mut context.cargo(&build))?;
    let (place, built) = (context.workspace.target.join("python"), "debug/lib_flysch.so");
    let package = place.join("flysch");
    std::fs::create_dir_all(&package).map_err(|e| format!("{}: {e}", package.display()))?;
    let copy = |from: std::path::PathBuf, name: &str| {
        let copied = std::fs::copy(&from, package.join(name));
        copied.map(drop).map_err(|e| format!("{}: {e}", from.display()))
    };
    copy(sources.join("python/flysch/__init__.py"), "__init__.py")?;
    copy(context.workspace.target.join(built), "_flysch.abi3.so")?;
    let mut tests = Command::new("python3");
    tests.current_dir(&context.workspace.root).env("PYTHONPATH", place);
    shell::run(tests.args(["-W", "error", "bindings/python/tests/test_flysch.py"]))?;
    Ok(Outcome::Passed)
}

fn qemu(context: &Context<'_>) -> Result<Outcome, String> {
    let targets = context.targets(|_, test| test == QEMU);
    context.run_tests(&targets, &["--skip", BARE_METAL])?;
    Ok(context.needs.lacks(&["qemu-11"]).map_or(Outcome::Passed, Outcome::Skipped))
}

/// Checks that the hot paths keep their instruction budgets, in the profile used for measurements.
fn cost(context: &Context<'_>) -> Result<Outcome, String> {
    let count = ["run", "--locked", "--quiet", "--profile=dist", "--package", COST];
    // An incremental build divides a crate differently and so inlines differently: the counts here
    // must be comparable with everybody else's.
    shell::run(context.cargo(&count).env("CARGO_INCREMENTAL", "0"))?;
    Ok(Outcome::Passed)
}

fn bare_metal(context: &Context<'_>) -> Result<Outcome, String> {
    let folder = "examples/bare-metal";
    if context.outer().any(|outer| outer == folder) {
        let clippy = ["clippy", "--locked", "--release", "--", "-D", "warnings"];
        shell::run(&mut context.cargo_in(folder, &clippy))?;
    }
    context.run_tests(&context.targets(|_, test| test == QEMU), &[BARE_METAL])?;
    Ok(Outcome::Passed)
}

/// Checks that the fuzz targets compile, which needs neither a nightly compiler nor a C++ library.
fn fuzz(context: &Context<'_>) -> Result<Outcome, String> {
    if context.outer().any(|outer| outer == "fuzz") {
        let mut command = context.cargo_in("fuzz", &["check", "--locked", "--all-targets"]);
        shell::run(command.env("CUSTOM_LIBFUZZER_PATH", "/dev/null"))?;
    }
    Ok(Outcome::Passed)
}

fn readme_examples(context: &Context<'_>) -> Result<Outcome, String> {
    let skipped = readme::run(context.workspace, context.needs)?;
    Ok(skipped.map_or(Outcome::Passed, Outcome::Skipped))
}
