//! Which modules of a crate use which, judged by paths that begin with `crate` or `super`.
//!
//! A module here is a file or folder directly under `src`. The root itself (`lib.rs`, `main.rs`) is
//! not one: it names all of them, and what it defines or re-exports belongs to the crate. What it
//! re-exports (`pub use disk::Disk`) counts as the module it comes from. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{closing, code_of, find_outside, is_test_file, words_of};

/// The modules of one crate and where each first uses another.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// By the using and the used module: file and line of the first use.
    uses: BTreeMap<String, BTreeMap<String, (String, usize)>>,
}

/// One source file.
#[derive(Debug)]
struct Source {
    /// Relative to the root of the project.
    file: String,
    /// Names of the modules it is in, starting at the crate's root; empty for the root itself.
    path: Vec<String>,
    /// Its text with comments, literals and tests blanked out, so that positions stay the same.
    code: String,
}

impl Modules {
    /// Reads the files of a crate: their names relative to the root of the project, and their
    /// texts. `folder` is the crate's folder.
    pub(super) fn read(folder: &str, files: &[(String, String)]) -> Self {
        let sources = sources(folder, files);
        let is_root = |source: &&Source| source.path.is_empty();
        let known: BTreeSet<&str> =
            sources.iter().filter_map(|source| source.path.first()).map(String::as_str).collect();
        let mut passed_on = BTreeMap::new();
        for root in sources.iter().filter(is_root) {
            for path in uses_of_root(&root.code) {
                if let [module, .., name] = &path[..]
                    && known.contains(module.as_str())
                {
                    passed_on.insert(name.clone(), module.clone());
                }
            }
        }
        let mut modules = Self::default();
        for source in sources.iter().filter(|source| !is_root(source)) {
            let from = &source.path[0];
            for (place, name) in names_of_root(source) {
                let to =
                    if known.contains(name.as_str()) { Some(&name) } else { passed_on.get(&name) };
                let Some(to) = to.filter(|to| *to != from) else { continue };
                let line = source.code[..place].matches('\n').count() + 1;
                let at = || (source.file.clone(), line);
                modules.uses.entry(from.clone()).or_default().entry(to.clone()).or_insert_with(at);
            }
        }
        modules
    }

    /// Groups of modules that can all be reached from one another, sorted.
    pub(super) fn knots(&self) -> Vec<Vec<&str>> {
        let mut knots: Vec<Vec<&str>> = Vec::new();
        for from in self.uses.keys() {
            if knots.iter().flatten().any(|known| *known == from.as_str()) {
                continue;
            }
            let there = self.reached(from);
            let knot: Vec<&str> =
                there.into_iter().filter(|to| self.reached(to).contains(from.as_str())).collect();
            if !knot.is_empty() {
                knots.push(knot);
            }
        }
        knots
    }

    /// The modules that `from` reaches in one or more steps.
    fn reached<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(from) = open.pop() {
            let next = self.uses.get(from).into_iter().flat_map(BTreeMap::keys);
            open.extend(next.map(String::as_str).filter(|to| reached.insert(*to)));
        }
        reached
    }

    /// The shortest cycle through each module of a knot as text, each cycle once.
    pub(super) fn cycles(&self, knot: &[&str]) -> Vec<String> {
        let mut cycles: Vec<Vec<&str>> = Vec::new();
        for module in knot {
            let mut cycle = self.shortest(module);
            let least = (0..cycle.len()).min_by_key(|n| cycle[*n]).unwrap_or_default();
            cycle.rotate_left(least);
            if !cycles.contains(&cycle) {
                cycles.push(cycle);
            }
        }
        let told = |cycle: &Vec<&str>| {
            let next = cycle.iter().skip(1).chain(cycle.first());
            let steps: Vec<String> = cycle
                .iter()
                .zip(next)
                .map(|(from, to)| {
                    let (file, line) = &self.uses[*from][*to];
                    format!("`{from}` uses `{to}` ({file}:{line})")
                })
                .collect();
            steps.join(", ")
        };
        cycles.iter().map(told).collect()
    }

    /// The modules on a shortest path from a module of a knot back to itself.
    fn shortest<'a>(&'a self, start: &'a str) -> Vec<&'a str> {
        let mut ways = vec![vec![start]];
        let mut seen = BTreeSet::new();
        loop {
            let mut longer = Vec::new();
            for way in &ways {
                for to in self.uses.get(way[way.len() - 1]).into_iter().flat_map(BTreeMap::keys) {
                    if to == start {
                        return way.clone();
                    }
                    if seen.insert(to.as_str()) {
                        longer.push([&way[..], &[to.as_str()]].concat());
                    }
                }
            }
            assert!(!longer.is_empty(), "`{start}` is in a knot");
            ways = longer;
        }
    }
}

/// The sources of a crate without its tests, and without extra programs (`src/bin`).
fn sources(folder: &str, files: &[(String, String)]) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut tests: Vec<Vec<String>> = Vec::new();
    for (file, text) in files {
        let inside = file.strip_prefix(folder).and_then(|rest| rest.strip_prefix("/src/"));
        let Some(name) = inside.and_then(|inside| inside.strip_suffix(".rs")) else { continue };
        if name.starts_with("bin/") || is_test_file(file) {
            continue;
        }
        let mut path: Vec<String> = name.split('/').map(str::to_owned).collect();
        let is_root = ["lib", "main"].contains(&name);
        if is_root || path.last().is_some_and(|last| last == "mod") {
            path.pop();
        }
        let mut code = code_of(text);
        for (start, end) in test_items(&code) {
            let item = &code[start..end];
            if let Some(name) = item.strip_suffix(';').and_then(declared) {
                tests.push([&path[..], &[name.to_owned()]].concat());
            }
            let blank = |byte| if byte == b'\n' { '\n' } else { ' ' };
            let blank: String = item.bytes().map(blank).collect();
            code.replace_range(start..end, &blank);
        }
        sources.push(Source { file: file.clone(), path, code });
    }
    sources.retain(|source| !tests.iter().any(|test| source.path.starts_with(test)));
    sources
}

/// The name in a `mod NAME` at the end of an item.
fn declared(item: &str) -> Option<&str> {
    let (before, name) = item.trim_end().rsplit_once(' ')?;
    before.trim_end().ends_with("mod").then_some(name)
}

/// The ranges of items for tests, including their attributes.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]").map(|at| from + at) {
        from = item_end(code, at);
        items.push((at, from));
    }
    items
}

/// The end of the item whose first attribute is at `at`.
fn item_end(code: &str, mut at: usize) -> usize {
    let after = |at: usize| code.len() - code[at..].trim_start().len();
    while code[at..].starts_with("#[") {
        at = after(find_outside(code, at + 2, &[']']).map_or(code.len(), |end| end + 1));
    }
    let is_visibility = |word: &&str| ["pub", "crate", "super", "in"].contains(word);
    let mut first = words_of(&code[at..]).map(|(_, word)| word).filter(|word| !is_visibility(word));
    let stops: &[char] = match (first.next(), first.next()) {
        (Some("use" | "static" | "type" | "extern"), _) => &[';'],
        (Some("const"), second) if second != Some("fn") => &[';'],
        (Some("mod" | "fn" | "const" | "unsafe" | "impl" | "struct" | "enum" | "trait"), _) => {
            &['{', ';']
        }
        // A field, a field's value, a match arm, or a statement.
        _ => &['{', ';', ','],
    };
    let line = code[at..].find('\n').map_or(code.len(), |end| at + end);
    let Some(end) = find_outside(code, at, stops) else { return line };
    if !code[end..].starts_with('{') {
        return end + 1;
    }
    closing(code, end).map_or(line, |end| end + 1)
}

/// The paths that the root uses, starting at the crate's root.
fn uses_of_root(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (place, word) in words_of(code) {
        if word == "use" {
            let own = |name: &String| ["crate", "self"].contains(&name.as_str());
            paths.extend(tree(&code[place + word.len()..]).into_iter().map(|mut path| {
                path.drain(..usize::from(path.first().is_some_and(own)));
                path
            }));
        }
    }
    paths
}

/// The names at the crate's root that a source uses, and where.
fn names_of_root(source: &Source) -> Vec<(usize, String)> {
    let code = &source.code;
    let inline = inline_modules(code);
    let mut names = Vec::new();
    let mut end = 0;
    for (place, word) in words_of(code) {
        let is_begin = !code[..place].trim_end().ends_with("::");
        let is_path = code[place + word.len()..].trim_start().starts_with("::");
        if !["crate", "super"].contains(&word) || !is_begin || !is_path || place < end {
            continue;
        }
        end = place + word.len();
        let depth = inline.iter().filter(|(open, close)| (*open..*close).contains(&place)).count();
        for path in tree(&code[place..]) {
            let supers = path.iter().take_while(|part| *part == "super").count();
            let rest = match supers {
                0 => &path[1..],
                n if n == source.path.len() + depth => &path[n..],
                _ => continue,
            };
            names.extend(rest.first().map(|name| (place, name.clone())));
        }
    }
    names
}

/// The ranges of modules written inline in their parent.
fn inline_modules(code: &str) -> Vec<(usize, usize)> {
    let modules = words_of(code).filter(|(_, word)| *word == "mod").filter_map(|(place, _)| {
        let open = find_outside(code, place, &['{', ';'])?;
        let is_inline = code[open..].starts_with('{');
        is_inline.then(|| closing(code, open)).flatten().map(|end| (open, end))
    });
    modules.collect()
}

/// Every path in the tree of paths at the start of `text`: one, unless it has groups in braces.
/// `a as b` gives `a::b`.
fn tree(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    branch(text, &[], &mut paths);
    paths
}

/// Reads one branch after `prefix`; returns its length in bytes.
fn branch(text: &str, prefix: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let skip = |at: usize| text.len() - text[at..].trim_start().len();
    let mut path = prefix.to_vec();
    let mut at = skip(0);
    loop {
        if text[at..].starts_with('{') {
            at = skip(at + 1);
            while at < text.len() && !text[at..].starts_with('}') {
                let long = branch(&text[at..], &path, paths);
                at = skip(at + long);
                match text[at..].chars().next() {
                    Some(',') => at = skip(at + 1),
                    Some('}') => {}
                    _ => return text.len(),
                }
            }
            return at + 1;
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '*';
        let long = text[at..].find(|c| !is_name(c)).unwrap_or(text.len() - at);
        if long > 0 {
            path.push(text[at..at + long].to_owned());
        }
        at += long;
        let next = skip(at);
        let goes_on = text[next..]
            .strip_prefix("::")
            .map(str::trim_start)
            .is_some_and(|rest| rest.starts_with(|c| is_name(c) || c == '{'));
        if long == 0 || !goes_on {
            if let Some(other) = text[next..].strip_prefix("as ") {
                let long = other.find(|c| !is_name(c)).unwrap_or(other.len());
                path.push(other[..long].to_owned());
                at = next + "as ".len() + long;
            }
            if !path.is_empty() {
                paths.push(path);
            }
            return at;
        }
        at = skip(next + 2);
    }
}

#[cfg(test)]
mod tests;
