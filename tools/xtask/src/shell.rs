//! Running other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The cargo that runs this task, in `folder`.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut command = clean(Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into())));
    command.current_dir(folder);
    command
}

/// The command without the variables that `cargo run` set for this program: they must not reach
/// other builds.
pub(crate) fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `command` with its output on this terminal.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let line = display(command);
    println!("   $ {line}");
    let status = command.stdin(Stdio::null()).status().map_err(|e| format!("{line}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}")) }
}

/// Runs `command` and returns what it wrote to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let line = display(command);
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{line}: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{line}: {}\n{}", output.status, said.trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{line}: {e}"))
}

/// The program called `name` on the search path.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn display(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
