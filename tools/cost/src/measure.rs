//! Instructions of one case, counted by callgrind over runs of this program.
//!
//! Only what happens inside `measured_*` is counted, without the controller, whose register write
//! turns counting off. Two runs of different length are compared, so that one-time costs do not
//! count.

use std::path::Path;
use std::process::Command;

/// What to count: `PROGRAM run NAME COUNT` does it COUNT times.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its name for the case.
    pub name: &'a str,
    /// Repetitions in the shorter run.
    pub short: u64,
    /// Repetitions in the longer run.
    pub long: u64,
}

/// Instructions per repetition.
///
/// # Errors
/// Valgrind is missing or has failed.
pub fn count(run: &Run<'_>) -> Result<u64, String> {
    Ok((total(run, run.long)? - total(run, run.short)?) / (run.long - run.short))
}

fn total(run: &Run<'_>, count: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--toggle-collect=*measured_*", "--toggle-collect=*InstantMachine*ring_or_write*"])
        .arg(run.program)
        .args(["run", run.name, &count.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install the Debian package valgrind"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .filter(|_| output.status.success())
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("valgrind: {}", said.lines().last().unwrap_or("said nothing")))
}
