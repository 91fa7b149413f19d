//! Runs the example commands of the README, which must end as shown.
//!
//! In a block fenced as `console`, a line that starts with `$ ` is a command, and what follows is
//! its output. Commands that start with `flysch` or `cargo run --release --` are run by the shell
//! in a folder of their own, from which the project's folders can be reached by the paths in the
//! README. They must succeed, unless the next command is `echo $?` and shows another status.
//!
//! `flysch` is the program built for the stories, and also stands in for `cargo run --release --`:
//! optimising everything again would take minutes and show nothing new about the examples.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::needs::Needs;
use crate::shell;
use crate::workspace::Workspace;

/// The folder of the program `flysch`.
const PROGRAM: &str = "tools/flysch";
/// How it is run from a checkout.
const BY_CARGO: &str = "cargo run --release -- ";

/// A command of the README.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    /// The line of the README, from 1.
    line: usize,
    /// What the user types.
    command: String,
    /// What it prints, as shown.
    output: Vec<String>,
    /// The status it must end with.
    status: i32,
}

/// Runs every example. Returns what had to be skipped because a tool is missing.
pub(crate) fn run(workspace: &Workspace, needs: &Needs) -> Result<Option<String>, String> {
    let examples = parse(&workspace.read("README.md")?);
    let (ours, others): (Vec<_>, Vec<_>) =
        examples.iter().partition(|example| is_ours(&example.command));
    if ours.is_empty() {
        return Err("README.md shows no command in a ```console block".into());
    }
    for example in others {
        println!("   not run here: {}", example.command);
    }
    build(workspace)?;
    let folder = scratch(workspace)?;
    let mut skipped = None;
    for example in ours {
        let needs_qemu = example.command.contains("@qemu");
        if let Some(lack) = needs.lacks(&["qemu"]).filter(|_| needs_qemu) {
            println!("   skipped: {}", example.command);
            skipped = Some(lack);
            continue;
        }
        try_out(workspace, needs, &folder, example)?;
    }
    Ok(skipped)
}

/// Builds the program with the features and the profile of the other steps.
fn build(workspace: &Workspace) -> Result<(), String> {
    let mut package = workspace.packages.iter().filter(|package| package.folder == PROGRAM);
    let tests = package.next().map(|package| package.tests.as_slice()).unwrap_or_default();
    // Cargo builds the programs of a package for its integration tests.
    let test = tests.first().ok_or_else(|| format!("{PROGRAM} has no integration test"))?;
    let mut command = shell::cargo(&workspace.root);
    command.args(["test", "--no-run", "--locked", "--workspace", "--test", test]);
    shell::run(&mut command)
}

fn try_out(
    workspace: &Workspace,
    needs: &Needs,
    folder: &Path,
    example: &Example,
) -> Result<(), String> {
    let command = as_installed(&example.command);
    println!("   $ {command}");
    let begin = Instant::now();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", workspace.target.join("debug").display());
    let output = shell::clean(Command::new("sh"))
        .args(["-c", &command])
        .current_dir(folder)
        .env("PATH", path)
        .envs(needs.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("sh: {e}"))?;
    let status = output.status.code().unwrap_or(-1);
    println!("     status {status} after {:.1} s", begin.elapsed().as_secs_f64());
    if status != example.status {
        return Err(format!(
            "README.md:{}: `{}` ended with status {status}, not {}\n{}{}",
            example.line,
            example.command,
            example.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        ));
    }
    if !example.output.is_empty() && output.stdout.is_empty() && output.stderr.is_empty() {
        let line = example.line;
        return Err(format!("README.md:{line}: `{}` printed nothing", example.command));
    }
    Ok(())
}

/// Makes an empty folder inside the project, with links to the project's own folders.
fn scratch(workspace: &Workspace) -> Result<std::path::PathBuf, String> {
    let folder = workspace.root.join("target/readme");
    let say = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(say)?;
    }
    std::fs::create_dir_all(&folder).map_err(say)?;
    for entry in std::fs::read_dir(&workspace.root).map_err(say)?.flatten() {
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        if entry.path().is_dir() && !hidden && name != "target" {
            std::os::unix::fs::symlink(entry.path(), folder.join(name)).map_err(say)?;
        }
    }
    Ok(folder)
}

/// The command as typed by someone who has `flysch` installed.
fn as_installed(command: &str) -> String {
    command.strip_prefix(BY_CARGO).map_or(command.to_owned(), |rest| format!("flysch {rest}"))
}

fn is_ours(command: &str) -> bool {
    command.starts_with("flysch ") || command.starts_with(BY_CARGO)
}

fn parse(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            inside = !inside && fence.trim() == "console";
        } else if !inside {
            continue;
        } else if let Some(command) = line.strip_prefix("$ ") {
            let command = command.trim().to_owned();
            examples.push(Example { line: number + 1, command, output: Vec::new(), status: 0 });
        } else if let Some(example) = examples.last_mut() {
            example.output.push(line.to_owned());
        }
    }
    let mut status = None;
    for example in examples.iter_mut().rev() {
        let shown = std::mem::take(&mut status);
        if example.command == "echo $?" {
            status = example.output.first().and_then(|line| line.trim().parse().ok());
        } else {
            example.status = shown.unwrap_or(0);
        }
    }
    examples.retain(|example| example.command != "echo $?");
    examples
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "\
# Title

```console
$ git clone somewhere
$ cargo run --release -- bench
depth  read
1      709
$ flysch devlist --on nonsense
flysch: unknown target
$ echo $?
2
```

```sh
$ flysch not an example
```

    $ flysch not fenced
";

    #[test]
    fn commands_their_output_and_status_are_read() {
        let examples = parse(README);
        let shown: Vec<_> = examples
            .iter()
            .map(|e| (e.line, e.command.as_str(), e.output.len(), e.status))
            .collect();
        assert_eq!(
            shown,
            [
                (4, "git clone somewhere", 0, 0),
                (5, "cargo run --release -- bench", 2, 0),
                (8, "flysch devlist --on nonsense", 1, 2),
            ]
        );
    }

    #[test]
    fn only_our_own_commands_are_run() {
        assert!(is_ours("flysch devlist") && is_ours("cargo run --release -- bench | head"));
        assert!(!is_ours("cargo xtask test") && !is_ours("git clone x"));
        assert_eq!(as_installed("cargo run --release -- bench | head"), "flysch bench | head");
        assert_eq!(as_installed("flysch devlist"), "flysch devlist");
    }
}
