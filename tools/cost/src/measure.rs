//! Instructions of one case, counted by callgrind over runs of this program.
//!
//! Counted is what happens inside `measured_*`, without the controller: its register write
//! is toggled off again. Two runs of different length are compared, so what happens once does not
//! count.

use std::path::Path;
use std::process::Command;

use crate::path::Case;

const SHORT: u64 = 1_600;
const LONG: u64 = 9_600;

/// Instructions per read.
///
/// # Errors
/// Valgrind is missing, or what it said.
pub fn count(program: &Path, case: &Case) -> Result<u64, String> {
    let short = total(program, case, SHORT)?;
    let long = total(program, case, LONG)?;
    Ok((long - short) / (LONG - SHORT))
}

fn total(program: &Path, case: &Case, reads: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--toggle-collect=*measured_*", "--toggle-collect=*InstantMachine*ring_or_write*"])
        .arg(program)
        .args(["run", case.name, &reads.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install the Debian package valgrind"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("valgrind: {}", said.lines().last().unwrap_or("said nothing")))
}
