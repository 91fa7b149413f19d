//! Rules for `Cargo.toml`: the oldest supported Rust is promised in one place.

use super::Finding;
use crate::msrv;

/// The manifest that promises it.
const ROOT: &str = "Cargo.toml";

/// Examples are copied out of the workspace, and there is nothing to inherit where they go.
const EXAMPLES: &str = "examples/";

/// Checks a manifest; `promised` is the version in the root manifest. A separate workspace or an
/// example cannot inherit it, so it must state the same version.
pub(super) fn check(file: &str, text: &str, promised: &str) -> Vec<Finding> {
    if file == ROOT || !file.ends_with("/Cargo.toml") {
        return vec![];
    }
    let is_own = file.starts_with(EXAMPLES) || text.lines().any(|line| line == "[workspace]");
    let is_inherited = text.lines().any(|line| line == "rust-version.workspace = true");
    let said = msrv::promised(text);
    let message = match said {
        Some(version) if is_own && version != promised => {
            format!("rust-version is {version}, and {ROOT} promises {promised}")
        }
        None if is_own && is_inherited => "it is copied, and then inherits nothing".into(),
        None if is_own || is_inherited => return vec![],
        Some(_) if is_own => return vec![],
        _ => "a member says `rust-version.workspace = true`".into(),
    };
    let line = text.lines().position(|line| line.starts_with("rust-version")).map_or(1, |n| n + 1);
    let item = String::new();
    vec![Finding { rule: "rust-version", file: file.into(), line, item, value: 1, message }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_rust_is_promised_once() {
        let findings = |file: &str, text: &str| check(file, text, "1.90").len();
        let member = "crates/x/Cargo.toml";
        assert_eq!(findings(member, "[package]\nrust-version.workspace = true\n"), 0);
        assert_eq!(findings(member, "[package]\nrust-version = \"1.90\"\n"), 1);
        assert_eq!(findings(member, "[package]\nname = \"x\"\n"), 1);
        let own = "examples/x/Cargo.toml";
        assert_eq!(findings(own, "[workspace]\nrust-version = \"1.90\"\n"), 0);
        assert_eq!(findings(own, "[workspace]\n"), 0);
        assert_eq!(findings(own, "[workspace]\nrust-version = \"1.91\"\n"), 1);
        assert_eq!(findings(own, "[package]\nrust-version = \"1.90\"\n"), 0);
        assert_eq!(findings(own, "[package]\nrust-version = \"1.91\"\n"), 1);
        assert_eq!(findings(own, "[package]\nrust-version.workspace = true\n"), 1);
        assert_eq!(findings("Cargo.toml", "rust-version = \"1.90\"\n"), 0);
    }
}
