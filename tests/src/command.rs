//! The `flysch` command as a user runs it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Map, Value};

/// The command, built like the tests.
///
/// # Panics
/// If it does not build.
pub fn flysch() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Command::new(PROGRAM.get_or_init(build))
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    // TARGET/PROFILE/deps/TEST
    let profile = test.ancestors().nth(2).expect("tests lie two folders deep");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    // As the tests were built, for the whole workspace and with its development dependencies:
    // otherwise cargo would choose other features and build everything a second time. Cargo builds
    // a package's programs for its integration tests; `bench` is one of the command's.
    cargo.args(["test", "--no-run", "--quiet", "--workspace", "--test", "bench"]);
    cargo.arg("--target-dir").arg(profile.parent().expect("a profile lies in a target folder"));
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(name) => {
            cargo.args(["--profile", name]);
        }
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
    assert!(status.success(), "the command does not build");
    profile.join("flysch")
}

/// Whether a program that a test needs is missing on this machine; prints a message, and fails if
/// nothing may be skipped (`CI=true`).
///
/// # Panics
/// If it is missing and nothing may be skipped.
pub fn lacks(program: &str) -> bool {
    let is_missing = Command::new(program).arg("-V").output().is_err();
    if is_missing {
        let line = format!("skipped: {program} is not installed");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{line}");
        eprintln!("{line}");
    }
    is_missing
}

/// The result of a run of the command.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its exit status.
    pub status: i32,
    /// What it printed.
    pub stdout: String,
    /// Its messages on standard error.
    pub stderr: String,
}

/// Runs the command with words, separated at spaces as by a shell.
///
/// # Panics
/// If it cannot be run, is killed, or prints something other than text.
pub fn run(words: &str) -> Ran {
    run_in(words, std::env::temp_dir())
}

/// Runs the command in `folder`.
///
/// # Panics
/// As [`run`].
pub fn run_in(words: &str, folder: impl Into<PathBuf>) -> Ran {
    let mut command = flysch();
    command.args(words.split_whitespace()).current_dir(folder.into()).stdin(Stdio::null());
    ran(command.output().expect("the command runs"))
}

/// The output of a finished run.
///
/// # Panics
/// If it was killed or is not text.
pub fn ran(output: Output) -> Ran {
    Ran {
        status: output.status.code().expect("the command ended by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// Everything that another program reports must be in our output and equal, except the fields of an
/// object selected by `is_left_out`. `place` is the position in the whole.
///
/// # Panics
/// If something is missing or differs.
#[track_caller]
pub fn assert_holds(
    ours: &Value,
    theirs: &Value,
    place: &str,
    is_left_out: &dyn Fn(&Map<String, Value>, &str) -> bool,
) {
    match theirs {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !is_left_out(fields, name)) {
                assert_holds(&ours[name], value, &format!("{place}/{name}"), is_left_out);
            }
        }
        Value::Array(parts) => {
            let count = ours.as_array().map(Vec::len);
            assert_eq!(Some(parts.len()), count, "{place}");
            for (number, value) in parts.iter().enumerate() {
                assert_holds(&ours[number], value, &format!("{place}[{number}]"), is_left_out);
            }
        }
        value => assert_eq!(value, ours, "{place}"),
    }
}
