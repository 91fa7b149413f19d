//! The location of the project and its packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::shell;

/// The checkout this task runs in.
pub(crate) struct Workspace {
    /// The folder of the root manifest.
    pub(crate) root: PathBuf,
    /// Cargo's build folder.
    pub(crate) target: PathBuf,
    /// Every member package.
    pub(crate) packages: Vec<Package>,
}

/// One member of the workspace.
pub(crate) struct Package {
    /// Its name for cargo, such as `flysch-ufs`.
    pub(crate) name: String,
    /// Its folder relative to the root, such as `crates/ufs`.
    pub(crate) folder: String,
    /// Folders of the members it depends on, each with the kind of dependency.
    pub(crate) imports: Vec<(String, &'static str)>,
    /// Names of its integration tests.
    pub(crate) tests: Vec<String>,
    /// Whether it is published: every package without `publish = false`.
    pub(crate) is_published: bool,
}

impl Workspace {
    /// Asks cargo about the workspace that this program was built from.
    pub(crate) fn open() -> Result<Self, String> {
        let here = std::env::var_os("CARGO_MANIFEST_DIR")
            .ok_or("run this as `cargo xtask`, which knows where the project is")?;
        let root = Path::new(&here)
            .ancestors()
            .find(|folder| folder.join("Cargo.lock").is_file())
            .ok_or("no Cargo.lock above the folder of xtask")?
            .to_path_buf();
        let mut command = shell::cargo(&root);
        command.args(["metadata", "--no-deps", "--format-version", "1", "--locked"]);
        let text = shell::output(&mut command)?;
        let metadata: Value =
            serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))?;
        let packages = array(&metadata, "packages").map(|p| package(&root, p)).collect();
        Ok(Self { target: text_of(&metadata, "target_directory").into(), packages, root })
    }

    /// The files under version control, relative to the root, sorted.
    pub(crate) fn files(&self) -> Result<Vec<String>, String> {
        let mut command = Command::new("git");
        command.current_dir(&self.root).args(["ls-files", "-z"]);
        let listed = shell::output(&mut command)?;
        let exists = |file: &&str| self.root.join(file).is_file();
        Ok(listed.split_terminator('\0').filter(exists).map(str::to_owned).collect())
    }

    /// The text of a file, relative to the root.
    pub(crate) fn read(&self, file: &str) -> Result<String, String> {
        std::fs::read_to_string(self.root.join(file)).map_err(|e| format!("{file}: {e}"))
    }
}

fn package(root: &Path, value: &Value) -> Package {
    let folder = |path: &Path| match path.strip_prefix(root) {
        Ok(inside) => inside.to_string_lossy().into_owned(),
        Err(_) => path.to_string_lossy().into_owned(),
    };
    let manifest = Path::new(text_of(value, "manifest_path"));
    let imports = array(value, "dependencies").filter_map(|dependency| {
        let path = dependency.get("path")?.as_str()?;
        let kind = match dependency.get("kind").and_then(Value::as_str) {
            Some("dev") => "dev-dependencies",
            Some("build") => "build-dependencies",
            _ => "dependencies",
        };
        Some((folder(Path::new(path)), kind))
    });
    let is_test = |target: &&Value| array(target, "kind").any(|kind| kind == "test");
    Package {
        name: text_of(value, "name").to_owned(),
        folder: folder(manifest.parent().unwrap_or(root)),
        imports: imports.collect(),
        is_published: value.get("publish").is_none_or(Value::is_null),
        tests: array(value, "targets")
            .filter(is_test)
            .map(|target| text_of(target, "name").to_owned())
            .collect(),
    }
}

fn array<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
