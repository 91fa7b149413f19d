//! The items of a module: their names, their visibility, and the parts that users rely on.

use super::tokens::{Tree, line};

/// One item.
#[derive(Debug)]
pub(super) enum Item {
    /// A module; in a file of its own unless its items are given.
    Module { name: String, is_public: bool, items: Option<Vec<Item>>, file: Option<String> },
    /// The names that a `use` imports.
    Use { is_public: bool, leaves: Vec<Leaf> },
    /// Anything else with a name.
    Named(Named),
    /// Methods of a type, its own or those of a trait.
    Impl { of: String, lines: Vec<Line> },
}

/// One name that a `use` imports; `*` for all of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) path: Vec<String>,
    pub(super) name: String,
}

/// A function, type, trait, constant or macro.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) is_public: bool,
    pub(super) lines: Vec<Line>,
}

/// One line of a record: the text before and after the path of the item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) before: String,
    pub(super) behind: String,
}

impl Line {
    fn new(before: impl Into<String>, behind: impl Into<String>) -> Self {
        Self { before: before.into(), behind: behind.into() }
    }
}

/// The items in these trees, except tests.
pub(super) fn items(trees: &[Tree]) -> Vec<Item> {
    let mut reader = Reader { rest: trees };
    let mut items = Vec::new();
    while !reader.rest.is_empty() {
        items.extend(reader.item());
    }
    items
}

/// The attributes and visibility of an item.
#[derive(Default)]
struct Head {
    is_hidden: bool,
    is_public: bool,
    is_exhaustive: bool,
    is_exported: bool,
    derives: Vec<String>,
    path: Option<String>,
}

struct Reader<'t> {
    rest: &'t [Tree],
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Option<&'t Tree> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn starts_with(&self, word: &str) -> bool {
        self.rest.first().is_some_and(|it| it.is(word))
    }

    fn take(&mut self, word: &str) -> bool {
        let is_there = self.starts_with(word);
        if is_there {
            self.next();
        }
        is_there
    }

    /// Reads attributes and visibility.
    fn head(&mut self) -> Head {
        let mut head = Head { is_exhaustive: true, ..Head::default() };
        while self.take("#") {
            self.take("!");
            let Some(inner) = self.next().and_then(|tree| tree.group('[')) else { continue };
            let text = line(inner);
            head.is_hidden |= text.starts_with("cfg(test")
                || text.starts_with("cfg(all(test")
                || text.starts_with("doc(hidden");
            head.is_exhaustive &= !text.starts_with("non_exhaustive");
            head.is_exported |= text.starts_with("macro_export");
            if let [word, Tree::Group('(', derives)] = inner
                && word.is("derive")
            {
                let last = |path: &[Tree]| path.last().map(|it| line(std::slice::from_ref(it)));
                head.derives.extend(derives.split(|it| it.is(",")).filter_map(last));
            }
            if let [word, _, Tree::Word(path)] = inner
                && word.is("path")
            {
                head.path = Some(path.trim_matches('"').to_owned());
            }
        }
        if self.take("pub") {
            let is_limited = self.rest.first().is_some_and(|it| it.group('(').is_some());
            if is_limited {
                self.next();
            }
            head.is_public = !is_limited;
        }
        head
    }

    /// Reads up to a semicolon or a block, including the block.
    fn up_to_block(&mut self) -> (&'t [Tree], Option<&'t [Tree]>) {
        let ends = |tree: &Tree| tree.is(";") || tree.group('{').is_some();
        let at = self.rest.iter().position(ends).unwrap_or(self.rest.len());
        let (item, rest) = self.rest.split_at(at);
        self.rest = rest;
        (item, self.next().and_then(|tree| tree.group('{')))
    }

    /// Reads up to a semicolon.
    fn up_to_semicolon(&mut self) -> &'t [Tree] {
        let at = self.rest.iter().position(|it| it.is(";")).unwrap_or(self.rest.len());
        let (item, rest) = self.rest.split_at(at);
        self.rest = rest.get(1..).unwrap_or_default();
        item
    }

    fn item(&mut self) -> Option<Item> {
        let head = self.head();
        let named = |name: &str, lines| {
            Item::Named(Named { name: name.into(), is_public: head.is_public, lines })
        };
        let start = self.rest;
        let keyword = start.first()?.name().unwrap_or_default();
        let item = match keyword {
            _ if is_function(start) => {
                let (signature, _) = self.up_to_block();
                let (name, line) = function(signature)?;
                named(&name, vec![line])
            }
            "mod" => {
                let (item, block) = self.up_to_block();
                let name = item.get(1)?.name()?.to_owned();
                let (is_public, file) = (head.is_public, head.path.clone());
                Item::Module { name, is_public, items: block.map(items), file }
            }
            "use" => {
                let mut leaves = Vec::new();
                read_use(&self.up_to_semicolon()[1..], &[], &mut leaves);
                Item::Use { is_public: head.is_public, leaves }
            }
            "struct" | "union" => {
                let (item, block) = self.up_to_block();
                named(item.get(1)?.name()?, structure(&head, item, block))
            }
            "enum" => {
                let (item, block) = self.up_to_block();
                named(item.get(1)?.name()?, enumeration(&head, item, block?))
            }
            "trait" => {
                let (item, block) = self.up_to_block();
                named(item.get(1)?.name()?, contract(item, block?))
            }
            "unsafe" if start.get(1)?.is("trait") => {
                let (item, block) = self.up_to_block();
                named(item.get(2)?.name()?, contract(&item[1..], block?))
            }
            "impl" => {
                let (item, block) = self.up_to_block();
                implementation(&item[1..], block?)?
            }
            "type" | "const" | "static" => {
                let item = self.up_to_semicolon();
                let name = item.get(1)?.name()?;
                let behind = match keyword {
                    // A constant's value is not part of the contract, but what a type stands for
                    // is.
                    "type" => &item[2..],
                    _ => item[2..].split(|it| it.is("=")).next().unwrap_or_default(),
                };
                named(name, vec![Line::new(keyword, line(behind))])
            }
            "macro_rules" => {
                let (item, _) = self.up_to_block();
                let name = item.get(2)?.name()?.to_owned();
                let lines = vec![Line::new("macro", "")];
                Item::Named(Named { name, is_public: head.is_exported, lines })
            }
            _ => {
                let (item, block) = self.up_to_block();
                return declared(item, block).filter(|_| !head.is_hidden);
            }
        };
        (!head.is_hidden).then_some(item)
    }
}

fn is_function(trees: &[Tree]) -> bool {
    let is_qualifier = |tree: &Tree| {
        let known = ["const", "async", "unsafe", "extern"].iter().any(|word| tree.is(word));
        known || matches!(tree, Tree::Word(word) if word.starts_with('"'))
    };
    trees.iter().find(|tree| !is_qualifier(tree)).is_some_and(|tree| tree.is("fn"))
}

/// The type that one of our macros declares; its lines are the entries in the macro.
fn declared(item: &[Tree], block: Option<&[Tree]>) -> Option<Item> {
    let block = block.filter(|_| item.last().is_some_and(|it| it.is("!")))?;
    let at = block.iter().position(|it| it.is("pub"))?;
    let kind = block.get(at + 1)?.name().filter(|it| matches!(*it, "enum" | "struct"))?;
    let name = block.get(at + 2)?.name()?.to_owned();
    let body = block.iter().rev().find_map(|it| it.group('{'))?;
    let mut lines = vec![Line::new(kind, "")];
    for entry in body.split(|it| it.is(",") || it.is(";")) {
        let entry = without_attributes(entry);
        let is_text = |it: &Tree| matches!(it, Tree::Word(word) if word.starts_with('"'));
        let words: Vec<Tree> = entry.iter().filter(|it| !is_text(it)).cloned().collect();
        if let Some(first) = words.first().and_then(Tree::name) {
            let separator = if kind == "enum" { "::" } else { "." };
            let rest = line(&words[1..]);
            let rest = rest.trim_end_matches(['=', '>', ' ']);
            lines.push(Line::new("", format!("{separator}{first}{rest}")));
        }
    }
    Some(Item::Named(Named { name, is_public: true, lines }))
}

fn without_attributes(mut trees: &[Tree]) -> &[Tree] {
    while let [hash, Tree::Group('[', _), rest @ ..] = trees
        && hash.is("#")
    {
        trees = rest;
    }
    trees
}

/// Splits at commas outside angle brackets.
fn by_commas(trees: &[Tree]) -> Vec<&[Tree]> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, tree) in trees.iter().enumerate() {
        let is_arrow = at > 0 && (trees[at - 1].is("-") || trees[at - 1].is("="));
        match tree {
            Tree::Word(word) if word == "<" => depth += 1,
            Tree::Word(word) if word == ">" && !is_arrow => depth -= 1,
            Tree::Word(word) if word == "," && depth == 0 => {
                parts.push(&trees[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&trees[from..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// A function: its name, and the types of its parameters, whose names do not matter.
fn function(signature: &[Tree]) -> Option<(String, Line)> {
    let at = signature.iter().position(|it| it.is("fn"))?;
    let name = signature.get(at + 1)?.name()?.to_owned();
    let mut behind = Vec::new();
    for tree in &signature[at + 2..] {
        match tree {
            Tree::Group('(', parameters) if !behind.iter().any(is_parameters) => {
                behind.push(Tree::Group('(', types(parameters)));
            }
            other => behind.push(other.clone()),
        }
    }
    let qualifiers = line(&signature[..=at]);
    Some((name, Line::new(qualifiers, line(&behind))))
}

fn is_parameters(tree: &Tree) -> bool {
    tree.group('(').is_some()
}

fn types(parameters: &[Tree]) -> Vec<Tree> {
    let mut out = Vec::new();
    for part in by_commas(parameters) {
        let part = without_attributes(part);
        let is_self = part.iter().take(4).any(|it| it.is("self"));
        let colon = part.iter().position(|it| it.is(":")).filter(|_| !is_self);
        if !out.is_empty() {
            out.push(Tree::Word(",".into()));
        }
        out.extend_from_slice(&part[colon.map_or(0, |at| at + 1)..]);
    }
    out
}

/// If all fields are public they form a contract as a whole: with one more, nobody could construct
/// the type.
fn fields(block: &[Tree], separator: &str) -> (Vec<Line>, bool) {
    let (mut lines, mut are_all_public) = (Vec::new(), true);
    for (number, part) in by_commas(block).into_iter().enumerate() {
        let mut reader = Reader { rest: part };
        let head = reader.head();
        are_all_public &= head.is_public;
        if !head.is_public {
            continue;
        }
        let is_named = reader.rest.get(1).is_some_and(|it| it.is(":"))
            && !reader.rest.get(2).is_some_and(|it| it.is(":"));
        let text = match is_named {
            true => line(reader.rest),
            false => format!("{number}: {}", line(reader.rest)),
        };
        lines.push(Line::new("", format!("{separator}{text}")));
    }
    (lines, are_all_public)
}

fn derived(head: &Head) -> impl Iterator<Item = Line> {
    head.derives.iter().map(|name| Line::new(format!("impl {name} for"), ""))
}

fn structure(head: &Head, item: &[Tree], block: Option<&[Tree]>) -> Vec<Line> {
    let tuple = item.iter().find_map(|it| it.group('('));
    let generics: Vec<Tree> =
        item[2..].iter().filter(|it| it.group('(').is_none()).cloned().collect();
    let (mut lines, are_all_public) = fields(block.or(tuple).unwrap_or_default(), ".");
    let mut behind = line(&generics);
    if are_all_public && head.is_exhaustive {
        behind += &format!(" with {} fields, all public", lines.len());
    }
    lines.insert(0, Line::new(line(&item[..1]), behind));
    lines.extend(derived(head));
    lines
}

fn enumeration(head: &Head, item: &[Tree], block: &[Tree]) -> Vec<Line> {
    let variants = by_commas(block);
    let mut behind = line(&item[2..]);
    if head.is_exhaustive {
        behind += &format!(" with {} variants, all known", variants.len());
    }
    let mut lines = vec![Line::new("enum", behind)];
    for variant in variants {
        let variant = without_attributes(variant);
        let mut trees: Vec<Tree> = Vec::new();
        for tree in variant {
            match tree {
                Tree::Group(open, inner) => {
                    let parts = by_commas(inner).into_iter().map(without_attributes);
                    let parts = parts.collect::<Vec<_>>().join(&Tree::Word(",".into()));
                    trees.push(Tree::Group(*open, parts));
                }
                other => trees.push(other.clone()),
            }
        }
        lines.push(Line::new("", format!("::{}", line(&trees))));
    }
    lines.extend(derived(head));
    lines
}

fn contract(item: &[Tree], block: &[Tree]) -> Vec<Line> {
    let (mut lines, mut required) = (Vec::new(), 0);
    let mut reader = Reader { rest: block };
    while !reader.rest.is_empty() {
        let head = reader.head();
        let (entry, body) = reader.up_to_block();
        let is_given = body.is_some() || entry.iter().any(|it| it.is("="));
        required += usize::from(!is_given);
        let word = if is_given { "provided " } else { "" };
        if head.is_hidden || entry.is_empty() {
            continue;
        }
        match function(entry) {
            Some((name, it)) => {
                let behind = format!("::{name}{}", it.behind);
                lines.push(Line::new(format!("{word}{}", it.before), behind));
            }
            None => {
                let name = line(&entry[1..]);
                lines.push(Line::new(format!("{word}{}", line(&entry[..1])), format!("::{name}")));
            }
        }
    }
    let behind = format!("{} with {required} required", line(&item[2..]));
    lines.insert(0, Line::new("trait", behind));
    lines
}

/// Splits off the generic parameters that `trees` starts with.
fn behind_generics(trees: &[Tree]) -> (&[Tree], &[Tree]) {
    if !trees.first().is_some_and(|it| it.is("<")) {
        return (&[], trees);
    }
    let mut depth = 0;
    for (at, tree) in trees.iter().enumerate() {
        let is_arrow = at > 0 && (trees[at - 1].is("-") || trees[at - 1].is("="));
        depth += i32::from(tree.is("<")) - i32::from(tree.is(">") && !is_arrow);
        if depth == 0 {
            return trees.split_at(at + 1);
        }
    }
    (&[], trees)
}

fn implementation(header: &[Tree], block: &[Tree]) -> Option<Item> {
    let (generics, header) = behind_generics(header);
    let is_for = |(at, tree): (usize, &Tree)| {
        tree.is("for") && !header.get(at + 1).is_some_and(|it| it.is("<"))
    };
    let split = header.iter().enumerate().position(is_for);
    let of_type = &header[split.map_or(0, |at| at + 1)..];
    let name_of = |trees: &[Tree]| {
        let end = trees.iter().position(|it| it.is("<") || it.is("where")).unwrap_or(trees.len());
        trees[..end].iter().rev().find_map(Tree::name).map(str::to_owned)
    };
    let of = name_of(of_type)?;
    if let Some(at) = split {
        let own = line(of_type);
        let own = own.strip_prefix(&of).unwrap_or(&own);
        let before = format!("impl{} {} for", line(generics), line(&header[..at]));
        return Some(Item::Impl { of, lines: vec![Line::new(before, own)] });
    }
    let mut lines = Vec::new();
    let mut reader = Reader { rest: block };
    while !reader.rest.is_empty() {
        let head = reader.head();
        let (is_public, is_hidden) = (head.is_public, head.is_hidden);
        if reader.starts_with("const") && !is_function(reader.rest) {
            let entry = reader.up_to_semicolon().split(|it| it.is("=")).next().unwrap_or_default();
            if is_public && !is_hidden {
                lines.push(Line::new("const", format!("::{}", line(&entry[1..]))));
            }
            continue;
        }
        let (entry, _) = reader.up_to_block();
        if let Some((name, it)) = function(entry).filter(|_| is_public && !is_hidden) {
            let generics = if generics.is_empty() { String::new() } else { line(generics) };
            let before = format!("{} {generics}", it.before);
            lines.push(Line::new(before.trim_end(), format!("::{name}{}", it.behind)));
        }
    }
    Some(Item::Impl { of, lines })
}

fn read_use(trees: &[Tree], prefix: &[String], leaves: &mut Vec<Leaf>) {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        match tree {
            Tree::Word(word) if word == ":" => {}
            Tree::Group('{', inner) => {
                inner.split(|it| it.is(",")).for_each(|part| read_use(part, &path, leaves));
                return;
            }
            Tree::Word(word) if word == "as" => {
                let name = trees.get(at + 1).and_then(Tree::name).unwrap_or("_").to_owned();
                leaves.push(Leaf { path, name });
                return;
            }
            Tree::Word(word) => path.push(word.clone()),
            Tree::Group(..) => return,
        }
        at += 1;
    }
    if path.len() > prefix.len() && path.last().is_some_and(|it| it == "self") {
        path.pop();
    }
    if let Some(name) = path.last().cloned().filter(|_| !trees.is_empty()) {
        leaves.push(Leaf { path, name });
    }
}
