//! Instructions of one case, counted by callgrind over runs of this program.
//!
//! Counted is what happens inside `measured_*`, without the controller: its register write
//! is toggled off again. Two runs of different length are compared, so what happens once does not
//! count.

use std::path::Path;
use std::process::Command;

/// What is counted: `PROGRAM run NAME COUNT` does it so many times.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its name for what is counted.
    pub name: &'a str,
    /// How often in the shorter run.
    pub short: u64,
    /// How often in the longer one.
    pub long: u64,
}

/// Instructions of doing it once.
///
/// # Errors
/// Valgrind is missing, or what it said.
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
