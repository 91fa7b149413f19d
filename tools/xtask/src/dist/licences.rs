//! The licences of what is linked into a program: `LICENSE-THIRD-PARTY`, which travels with every
//! package. Each crate that is not ours is named with its licence expression and the texts found
//! in its sources; a text that many crates share stands in the file once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::sbom::{links, list, metadata, reached, text};
use crate::workspace::Workspace;

/// The name of the notice.
pub(super) const NOTICE: &str = "LICENSE-THIRD-PARTY";
/// The project's own licences, in the root and, as links, in the folder of each package.
pub(super) const OWN: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];
/// How names of files with licences begin, in lower case.
const NAMES: [&str; 6] = ["license", "licence", "unlicense", "copying", "copyright", "notice"];
/// How names of files end that only begin like those.
const OTHERS: [&str; 5] = [".rs", ".html", ".toml", ".json", ".c"];
/// Texts of alternatives that are not used: the crate, and the file in its sources.
const UNUSED: [(&str, &str); 1] = [("zstd-sys", "zstd/COPYING")];
/// Separates the texts.
const RULE: &str = "------------------------------------------------------------------------";

/// The head of the notice, before the list of crates.
const HEAD: &str = "\
Flysch itself is licensed under MIT or Apache-2.0, at your choice: LICENSE-MIT, LICENSE-APACHE.

This file names the software of others that is linked into it: each crate with its licence, and the
numbers of the texts, below the list, that its sources contain. Not from a crate are

Rust's standard library, MIT OR Apache-2.0, https://github.com/rust-lang/rust
    with parts under other licences: COPYRIGHT-library.html of the Rust release

musl, the C library, in statically linked programs only, MIT, https://musl.libc.org
    Copyright 2005-2020 Rich Felker and others; the text of the licence is that of LICENSE-MIT
";

/// The notice for `package` built for `target`.
pub(super) fn of(sources: &Path, package: &str, target: &str) -> Result<String, String> {
    notice(&metadata(sources, &["--filter-platform", target])?, package)
}

/// Published packages in whose folder a licence is missing, one line each.
pub(super) fn missing(workspace: &Workspace) -> Vec<String> {
    let published = workspace.packages.iter().filter(|package| package.is_published);
    let files = published.flat_map(|it| OWN.map(|name| format!("{}/{name}", it.folder)));
    let absent = files.filter(|file| !workspace.root.join(file).is_file());
    absent.map(|file| format!("{file} is missing: link it to the file in the root")).collect()
}

fn notice(metadata: &Value, package: &str) -> Result<String, String> {
    let packages = list(metadata, "packages");
    let root = packages.iter().find(|one| text(one, "name") == package);
    let root = root.ok_or_else(|| format!("there is no package {package}"))?;
    let links = links(metadata);
    let reached = reached(&links, text(root, "id"));
    let is_foreign = |one: &&Value| reached.contains(text(one, "id")) && !one["source"].is_null();
    let mut foreign: Vec<&Value> = packages.iter().filter(is_foreign).collect();
    foreign.sort_by_key(|one| (text(one, "name"), text(one, "version")));
    let (mut crates, mut texts) = (String::from(HEAD), Texts::default());
    for package in foreign {
        crates += "\n";
        crates += &entry(package, &mut texts)?;
    }
    for (number, text) in texts.all.iter().enumerate() {
        crates += &format!("\n{RULE}\nText {}\n{RULE}\n\n{text}\n", number + 1);
    }
    Ok(crates)
}

/// The texts so far, each with the number it is cited by, from 1.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    numbers: BTreeMap<String, usize>,
}

impl Texts {
    /// The number of a text; those that differ in their line breaks and indents only have one.
    fn number(&mut self, text: &str) -> usize {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        *self.numbers.entry(words).or_insert_with(|| {
            let lines = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
            self.all.push(lines.trim_matches('\n').to_owned());
            self.all.len()
        })
    }
}

/// A crate: its name, its licence, its place, its authors, and the numbers of its texts.
fn entry(package: &Value, texts: &mut Texts) -> Result<String, String> {
    let name = text(package, "name");
    let license = package["license"].as_str().unwrap_or("licence as in its texts");
    let mut entry =
        format!("{name} {}, {}", text(package, "version"), license.replace('/', " OR "));
    if let Some(place) = package["repository"].as_str() {
        entry += &format!(", {place}");
    }
    entry += "\n";
    let manifest = Path::new(text(package, "manifest_path"));
    let folder = manifest.parent().unwrap_or(manifest);
    let mut numbers: Vec<usize> = vec![];
    for file in files(folder)? {
        let inside = file.strip_prefix(folder).unwrap_or(&file).to_string_lossy().into_owned();
        if !UNUSED.contains(&(name, &inside)) {
            numbers.push(texts.number(&String::from_utf8_lossy(&super::read(&file)?)));
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    if numbers.is_empty() {
        let authors: Vec<&str> =
            list(package, "authors").iter().filter_map(Value::as_str).collect();
        entry += &format!("    no text in its sources; authors: {}\n", authors.join(", "));
    } else {
        entry += &format!("    texts: {}\n", numbers.join(", "));
    }
    Ok(entry)
}

/// The files with licences in a folder and those below it, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = vec![];
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if entry.file_type().map_err(failed)?.is_dir() {
            found.extend(files(&entry.path())?);
        } else if NAMES.iter().any(|start| name.starts_with(start))
            && !OTHERS.iter().any(|end| name.ends_with(end))
        {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{empty, make, remove, write};
    use super::*;

    #[test]
    fn every_published_package_has_its_licences() {
        let workspace = Workspace::open().expect("a workspace");
        assert_eq!(missing(&workspace), Vec::<String>::new());
    }

    #[test]
    fn crates_are_named_with_their_texts_and_a_shared_text_stands_once() {
        let name = format!("flysch-xtask-licences-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        empty(&place).expect("a folder");
        let file = |path: &str, text: &str| {
            let file = place.join(path);
            make(file.parent().expect("a folder")).expect("a folder");
            write(&file, text.as_bytes()).expect("a file");
        };
        file("a/LICENSE-MIT", "Free,\nof charge\n");
        file("b/license.md", "  Free, of\r\ncharge");
        file("b/src/license.rs", "fn main() {}");
        file("zstd-sys/zstd/LICENSE", "Redistribution");
        file("zstd-sys/zstd/COPYING", "not ours to choose");
        make(&place.join("bare")).expect("a folder");
        let package = |name: &str, source: Option<&str>| {
            json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                "source": source, "authors": ["A. Author"],
                "manifest_path": place.join(name).join("Cargo.toml"),
            })
        };
        let names = ["a", "b", "bare", "zstd-sys"];
        let mut packages = vec![package("ours", None), package("beside", Some("registry"))];
        packages.extend(names.map(|name| package(name, Some("registry"))));
        let deps = names.map(|name| json!({ "pkg": name, "dep_kinds": [{ "kind": null }] }));
        let nodes = json!([{ "id": "ours", "deps": deps }]);
        let metadata = json!({ "packages": packages, "resolve": { "nodes": nodes } });
        assert!(notice(&metadata, "no-such").is_err());
        let notice = notice(&metadata, "ours").expect("a notice");
        remove(&place).expect("it can be removed");
        let list = notice.strip_prefix(HEAD).expect("the head comes first");
        let wanted = "
a 1.0.0, MIT OR Apache-2.0
    texts: 1

b 1.0.0, MIT OR Apache-2.0
    texts: 1

bare 1.0.0, MIT OR Apache-2.0
    no text in its sources; authors: A. Author

zstd-sys 1.0.0, MIT OR Apache-2.0
    texts: 2

";
        assert!(list.starts_with(wanted), "{list}");
        assert_eq!(list.matches("of charge").count(), 1, "{list}");
        assert!(list.ends_with("Redistribution\n") && !list.contains("choose"), "{list}");
    }
}
