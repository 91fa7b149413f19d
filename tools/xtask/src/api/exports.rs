//! What is reachable in a crate from outside, by the names that reach it.

use std::collections::{BTreeMap, BTreeSet};

use super::items::{Item, Leaf, Line, items};
use super::tokens::trees;

/// A module: its content, by name.
#[derive(Debug, Default)]
struct Module {
    /// Its submodules, and whether they are public.
    modules: BTreeMap<String, bool>,
    named: BTreeMap<String, Entry>,
    uses: Vec<(bool, Leaf)>,
}

#[derive(Debug)]
struct Entry {
    is_public: bool,
    lines: Vec<Line>,
}

/// A crate: its modules by path.
#[derive(Debug)]
pub(super) struct Exports {
    modules: BTreeMap<Vec<String>, Module>,
}

/// The files of a crate, and the `impl`s that wait until all files are read.
struct Source<'r> {
    read: &'r dyn Fn(&str) -> Option<String>,
    impls: Vec<Impl>,
}

/// An `impl`: the module it is in, its type, its lines.
struct Impl {
    module: Vec<String>,
    of: String,
    lines: Vec<Line>,
}

/// Maximum number of `use`s that may lead to a name.
const DEPTH: u32 = 6;

impl Exports {
    /// Reads a crate from its root file; `read` returns the text of one of its files.
    ///
    /// # Errors
    /// A module without a file.
    pub(super) fn read(root: &str, read: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let text = read(root).ok_or_else(|| format!("{root}: cannot be read"))?;
        let mut exports = Self { modules: BTreeMap::new() };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut source = Source { read: &read, impls: Vec::new() };
        exports.add(&[], items(&trees(&text)), folder, &mut source)?;
        for Impl { module, of, lines } in source.impls {
            exports.attach(&module, &of, lines);
        }
        Ok(exports)
    }

    fn add(
        &mut self,
        path: &[String],
        items: Vec<Item>,
        folder: &str,
        source: &mut Source<'_>,
    ) -> Result<(), String> {
        self.modules.entry(path.to_vec()).or_default();
        for item in items {
            let module = self.modules.get_mut(path).expect("it was just made");
            match item {
                Item::Module { name, is_public, items: inline, file } => {
                    module.modules.insert(name.clone(), is_public);
                    let below = format!("{folder}/{name}");
                    let inline = match inline {
                        Some(items) => items,
                        None => {
                            let places = match file {
                                Some(file) => vec![format!("{folder}/{file}")],
                                None => vec![format!("{below}.rs"), format!("{below}/mod.rs")],
                            };
                            let text = places.iter().find_map(|place| (source.read)(place));
                            let text =
                                text.ok_or_else(|| format!("no {}", places.join(", no ")))?;
                            super::items::items(&trees(&text))
                        }
                    };
                    let path = [path, std::slice::from_ref(&name)].concat();
                    self.add(&path, inline, &below, source)?;
                }
                Item::Use { is_public, leaves } => {
                    module.uses.extend(leaves.into_iter().map(|leaf| (is_public, leaf)));
                }
                Item::Named(named) => {
                    let entry = Entry { is_public: named.is_public, lines: named.lines };
                    // For items that exist under alternative conditions, the lines of all
                    // alternatives count.
                    match module.named.get_mut(&named.name) {
                        Some(known) => known.lines.extend(entry.lines),
                        None => drop(module.named.insert(named.name, entry)),
                    }
                }
                Item::Impl { of, lines } => {
                    source.impls.push(Impl { module: path.to_vec(), of, lines });
                }
            }
        }
        Ok(())
    }

    /// Adds the lines of an `impl` to its type.
    fn attach(&mut self, module: &[String], of: &str, lines: Vec<Line>) {
        let found = self.find(module, of, DEPTH).or_else(|| {
            let mut homes = self.modules.iter().filter(|(_, it)| it.named.contains_key(of));
            homes.next().map(|(path, _)| path.clone()).filter(|_| homes.next().is_none())
        });
        // If it is not found, it is a type of another crate, whose own record does not have it.
        let home = found.and_then(|path| self.modules.get_mut(&path));
        if let Some(entry) = home.and_then(|home| home.named.get_mut(of)) {
            entry.lines.extend(lines);
        }
    }

    /// The module that defines what `module` knows as `name`, under that same name.
    fn find(&self, module: &[String], name: &str, depth: u32) -> Option<Vec<String>> {
        let own = self.modules.get(module)?;
        if own.named.contains_key(name) {
            return Some(module.to_vec());
        }
        let depth = depth.checked_sub(1)?;
        own.uses.iter().find_map(|(_, leaf)| {
            let is_it = leaf.name == name && leaf.path.last().is_some_and(|last| last == name);
            let (from, last) = self.resolve(module, &leaf.path, depth)?;
            (is_it || last == "*").then(|| self.find(&from, name, depth))?
        })
    }

    /// Resolves a path written in `module`: the module it leads to, and the last name; `None` if it
    /// leads out of the crate.
    fn resolve(
        &self,
        module: &[String],
        path: &[String],
        depth: u32,
    ) -> Option<(Vec<String>, String)> {
        let (last, before) = path.split_last()?;
        let mut at = module.to_vec();
        for (n, word) in before.iter().enumerate() {
            match word.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                name => {
                    let known = &self.modules.get(&at)?.modules;
                    if known.contains_key(name) {
                        at.push(name.to_owned());
                    } else {
                        // A module under the name given by a `use`.
                        let depth = depth.checked_sub(1)?;
                        let uses = &self.modules.get(&at)?.uses;
                        let (_, leaf) = uses.iter().find(|(_, leaf)| leaf.name == name)?;
                        let is_itself = n == 0 && leaf.path.first().is_some_and(|it| it == name);
                        let (from, last) =
                            (!is_itself).then(|| self.resolve(&at, &leaf.path, depth))??;
                        at = [&from[..], &[last]].concat();
                        self.modules.get(&at)?;
                    }
                }
            }
        }
        Some((at, last.clone()))
    }

    /// Every line of the record, sorted; `name` is the crate's.
    pub(super) fn lines(&self, name: &str) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        self.export(&[], name, DEPTH, &mut lines);
        lines
    }

    fn export(&self, module: &[String], prefix: &str, depth: u32, lines: &mut BTreeSet<String>) {
        let (Some(own), Some(depth)) = (self.modules.get(module), depth.checked_sub(1)) else {
            return;
        };
        for (name, entry) in own.named.iter().filter(|(_, entry)| entry.is_public) {
            entry.write(prefix, name, lines);
        }
        for (name, _) in own.modules.iter().filter(|(_, is_public)| **is_public) {
            let below = [module, std::slice::from_ref(name)].concat();
            self.export(&below, &format!("{prefix}::{name}"), depth, lines);
        }
        for (_, leaf) in own.uses.iter().filter(|(is_public, _)| *is_public) {
            self.export_use(module, leaf, (prefix, depth), lines);
        }
    }

    fn export_use(
        &self,
        module: &[String],
        leaf: &Leaf,
        (prefix, depth): (&str, u32),
        lines: &mut BTreeSet<String>,
    ) {
        let Some((from, last)) = self.resolve(module, &leaf.path, DEPTH) else {
            lines.insert(format!("use {prefix}::{} = {}", leaf.name, leaf.path.join("::")));
            return;
        };
        if last == "*" {
            return self.export(&from, prefix, depth, lines);
        }
        let below = [&from[..], std::slice::from_ref(&last)].concat();
        if self.modules.contains_key(&below) {
            return self.export(&below, &format!("{prefix}::{}", leaf.name), depth, lines);
        }
        let home = self.find(&from, &last, DEPTH).and_then(|home| self.modules.get(&home));
        match home.and_then(|home| home.named.get(&last)) {
            Some(entry) => entry.write(prefix, &leaf.name, lines),
            None => {
                lines.insert(format!("use {prefix}::{} = {}", leaf.name, leaf.path.join("::")));
            }
        }
    }
}

impl Entry {
    fn write(&self, prefix: &str, name: &str, lines: &mut BTreeSet<String>) {
        for Line { before, behind } in &self.lines {
            lines.insert(format!("{before} {prefix}::{name}{behind}").trim_start().to_owned());
        }
    }
}
