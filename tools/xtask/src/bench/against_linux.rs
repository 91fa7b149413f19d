//! `cargo xtask bench --only against-linux`: our drivers through VFIO and Linux's own, on
//! controllers of the same kinds in one guest of the lab.
//!
//! `FLYSCH_ROUNDS` (3) says how often each stack does each job.

use super::raw_flash::build_flysch;
use crate::shell;
use crate::workspace::Workspace;

const FIGURE: [&str; 11] = [
    "test",
    "--quiet",
    "--package",
    "flysch-lab",
    "--test",
    "guests",
    "--",
    "vfio::figure::against_linux",
    "--exact",
    "--ignored",
    "--nocapture",
];

/// Runs the guest; the answer is Markdown, or why there is none.
pub(super) fn measure(workspace: &Workspace, build: &[&str]) -> Result<String, String> {
    let flysch = build_flysch(workspace, build)?;
    let mut figure = super::cargo(workspace, &FIGURE);
    let said = shell::output(figure.env("FLYSCH_COMMAND", flysch))?;
    let table: Vec<&str> = said.lines().filter(|line| line.starts_with('|')).collect();
    Ok(if table.is_empty() { said } else { table.join("\n") })
}
