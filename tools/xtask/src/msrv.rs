//! `cargo xtask msrv`: the oldest Rust that `rust-version` of `Cargo.toml` promises.
//!
//! Checks what others build on: every crate below the tools, with its tests, and the examples. It
//! is not a step of `cargo xtask test`, because that would compile everything twice.

use std::process::Command;

use crate::workspace::Workspace;
use crate::{Failure, shell};

/// Folders of the crates that others build on, and of what they copy.
const FOLDERS: [&str; 3] = ["crates/", "examples/", "host/"];

/// Checks those crates.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    let version = promised(&workspace.read("Cargo.toml")?);
    let version = version.ok_or_else(|| "Cargo.toml: no rust-version".to_owned())?;
    let listed = shell::output(Command::new("rustup").args(["toolchain", "list"]))?;
    if !listed.lines().any(|line| is_of(line, &version)) {
        let remedy = format!("rustup toolchain install {version} --profile minimal");
        return Err(format!("needs Rust {version}: {remedy}").into());
    }
    let mut check = shell::clean(Command::new("rustup"));
    check.current_dir(&workspace.root).args(["run", &version, "cargo", "check", "--locked"]);
    check.arg("--all-targets");
    let is_built_on = |folder: &str| FOLDERS.iter().any(|start| folder.starts_with(start));
    for package in workspace.packages.iter().filter(|package| is_built_on(&package.folder)) {
        check.args(["--package", &package.name]);
    }
    // Cargo sets these for the compiler that runs this task, which is not the one wanted.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        check.env_remove(name);
    }
    Ok(shell::run(&mut check)?)
}

/// The Rust version that a manifest promises.
pub(crate) fn promised(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "))?;
    Some(line.trim().trim_matches('"').to_owned())
}

/// Whether a line of `rustup toolchain list` names this version.
fn is_of(line: &str, version: &str) -> bool {
    let rest = line.strip_prefix(version);
    rest.is_some_and(|rest| rest.starts_with(['-', '.']) || rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_manifests_and_its_toolchain_is_known() {
        let manifest = "[workspace.package]\nedition = \"2024\"\nrust-version = \"1.90\"\n";
        assert_eq!(promised(manifest).as_deref(), Some("1.90"));
        assert_eq!(promised("rust-version.workspace = true\n"), None);
        assert!(is_of("1.90-x86_64-unknown-linux-gnu", "1.90"));
        assert!(!is_of("1.9-x86_64-unknown-linux-gnu", "1.90"));
        assert!(!is_of("stable-x86_64-unknown-linux-gnu (active)", "1.90"));
    }
}
