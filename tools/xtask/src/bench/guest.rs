//! Figures from the lab's guest, measured by tests that are run by name.
//!
//! `FLYSCH_ROUNDS` (3) is the number of runs of each job.

use super::raw_flash::build_flysch;
use crate::shell;
use crate::workspace::Workspace;

/// Our drivers through VFIO and Linux's own, on the same kinds of controllers in one guest.
pub(super) fn against_linux(workspace: &Workspace, build: &[&str]) -> Result<String, String> {
    measure(workspace, build, "vfio::figure::against_linux")
}

/// Linux block devices served by our exports, beside those of qemu-nbd and of the kernel.
pub(super) fn exports(workspace: &Workspace, build: &[&str]) -> Result<String, String> {
    measure(workspace, build, "exports::rates::beside_the_kernels_and_qemus")
}

/// Runs the guest; returns Markdown, or why there is none.
fn measure(workspace: &Workspace, build: &[&str], name: &str) -> Result<String, String> {
    let flysch = build_flysch(workspace, build)?;
    // For the whole workspace, as the other tests are built.
    let test = ["test", "--quiet", "--workspace", "--test", "guests", "--", name];
    let mut figure = super::cargo(workspace, &test);
    figure.args(["--exact", "--ignored", "--nocapture"]);
    let said = shell::output(figure.env("FLYSCH_COMMAND", flysch))?;
    let table: Vec<&str> = said.lines().filter(|line| line.starts_with('|')).collect();
    Ok(if table.is_empty() { said } else { table.join("\n") })
}
