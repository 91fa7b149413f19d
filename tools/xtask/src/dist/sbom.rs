//! Bills of materials, as CycloneDX 1.5 (<https://cyclonedx.org/docs/1.5/json/>): every linked
//! crate, with its licence and its checksum in `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::shell;

/// The version of `package` in the workspace at `sources`.
pub(super) fn version(sources: &Path, package: &str) -> Result<String, String> {
    let metadata = metadata(sources, &["--no-deps"])?;
    let packages = list(&metadata, "packages");
    let found = packages.iter().find(|found| found["name"] == package);
    let version = found.and_then(|found| found["version"].as_str());
    version.map(str::to_owned).ok_or_else(|| format!("there is no package {package}"))
}

/// The bill of materials of `package` built for `target`, made at `time`.
pub(super) fn of(
    sources: &Path,
    package: &str,
    target: &str,
    time: &str,
) -> Result<String, String> {
    let metadata = metadata(sources, &["--filter-platform", target])?;
    let lock = sources.join("Cargo.lock");
    let lock =
        std::fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let bill = bill(&metadata, &sums(&lock), package, time)?;
    serde_json::to_string_pretty(&bill).map(|text| text + "\n").map_err(|e| e.to_string())
}

pub(super) fn metadata(sources: &Path, options: &[&str]) -> Result<Value, String> {
    let mut cargo = shell::cargo(sources);
    cargo.args(["metadata", "--locked", "--format-version", "1"]).args(options);
    serde_json::from_str(&shell::output(&mut cargo)?).map_err(|e| format!("cargo metadata: {e}"))
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The SHA-256 of every package in a `Cargo.lock`, by name and version.
fn sums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_start_matches(" = ").trim_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    let sum = |block: &str| {
        let key = (field(block, "name")?, field(block, "version")?);
        Some((key, field(block, "checksum")?))
    };
    blocks.filter_map(sum).collect()
}

/// What each package links, by cargo's package ids.
pub(super) fn links(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let is_linked =
        |dependency: &&Value| list(dependency, "dep_kinds").iter().any(|one| one["kind"].is_null());
    let nodes = list(&metadata["resolve"], "nodes").iter();
    let below = |node| list(node, "deps").iter().filter(is_linked).map(|one| text(one, "pkg"));
    nodes.map(|node| (text(node, "id"), below(node).collect())).collect()
}

/// What `root` links, directly and indirectly, including itself.
pub(super) fn reached<'a>(
    links: &BTreeMap<&'a str, Vec<&'a str>>,
    root: &'a str,
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::from([root]);
    let mut ways = vec![root];
    while let Some(id) = ways.pop() {
        let below = links.get(id).into_iter().flatten();
        ways.extend(below.filter(|id| reached.insert(id)));
    }
    reached
}

/// The URL of a package: <https://github.com/package-url/purl-spec>.
fn purl(package: &Value) -> String {
    // `+` precedes the build part of a version, but has a meaning of its own in a URL.
    let version = text(package, "version").replace('+', "%2B");
    format!("pkg:cargo/{}@{version}", text(package, "name"))
}

/// A package as a component.
fn component(package: &Value, kind: &str, sums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": name,
        "version": version,
        "purl": purl(package),
    });
    // Licences were listed with slashes before there were licence expressions.
    if let Some(license) = package["license"].as_str() {
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if let Some(sum) = sums.get(&(name.to_owned(), version.to_owned())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if let Some(place) = package["repository"].as_str() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": place }]);
    }
    component
}

fn bill(
    metadata: &Value,
    sums: &BTreeMap<(String, String), String>,
    package: &str,
    time: &str,
) -> Result<Value, String> {
    let packages: BTreeMap<&str, &Value> =
        list(metadata, "packages").iter().map(|one| (text(one, "id"), one)).collect();
    let root = packages.values().find(|one| text(one, "name") == package);
    let root = *root.ok_or_else(|| format!("there is no package {package}"))?;
    let links = links(metadata);
    let reached = reached(&links, text(root, "id"));
    let named = |id: &&str| packages.get(id).map(|one| purl(one));
    let mut others: Vec<&Value> = reached
        .iter()
        .filter_map(|id| packages.get(id).copied())
        .filter(|one| *one != root)
        .collect();
    others.sort_by_key(|one| purl(one));
    let mut dependencies: Vec<(String, Vec<String>)> = vec![];
    for id in &reached {
        let Some(name) = named(id) else { return Err(format!("cargo reports nothing about {id}")) };
        let mut below: Vec<String> =
            links.get(id).into_iter().flatten().filter_map(named).collect();
        below.sort();
        below.dedup();
        dependencies.push((name, below));
    }
    dependencies.sort();
    let dependencies =
        dependencies.iter().map(|(name, on)| json!({ "ref": name, "dependsOn": on }));
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": time, "component": component(root, "application", sums) },
        "components": others.iter().map(|one| component(one, "library", sums)).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"version = 4

[[package]]
name = "tool"
version = "0.1.0"

[[package]]
name = "zstd"
version = "2.1.2+zstd.1.5.7"
source = "registry"
checksum = "abcd"
"#;

    fn package(id: &str, name: &str, version: &str) -> Value {
        json!({ "id": id, "name": name, "version": version, "license": "MIT/Apache-2.0" })
    }

    fn metadata() -> Value {
        let dep =
            |id: &str, kind: Option<&str>| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [
                package("1", "tool", "0.1.0"),
                package("2", "zstd", "2.1.2+zstd.1.5.7"),
                package("3", "only-in-tests", "1.0.0"),
                package("4", "beside", "1.0.0"),
            ],
            "resolve": { "nodes": [
                { "id": "1", "deps": [dep("2", None), dep("3", Some("dev"))] },
                { "id": "2", "deps": [] },
                { "id": "3", "deps": [] },
                { "id": "4", "deps": [dep("2", None)] },
            ] },
        })
    }

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        assert!(bill(&metadata(), &sums(LOCK), "no-such", "").is_err());
        let bill = bill(&metadata(), &sums(LOCK), "tool", "2026-01-01T00:00:00Z").expect("a bill");
        assert_eq!(bill["metadata"]["component"]["name"], "tool");
        let components = list(&bill, "components");
        assert_eq!(components.len(), 1, "{components:?}");
        assert_eq!(components[0]["purl"], "pkg:cargo/zstd@2.1.2%2Bzstd.1.5.7");
        assert_eq!(components[0]["hashes"][0]["content"], "abcd");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        let depends = &bill["dependencies"][0];
        assert_eq!(depends["ref"], "pkg:cargo/tool@0.1.0");
        assert_eq!(depends["dependsOn"], json!(["pkg:cargo/zstd@2.1.2%2Bzstd.1.5.7"]));
    }
}
