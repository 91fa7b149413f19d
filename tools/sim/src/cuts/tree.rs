//! Everything reachable in a file system, for comparison.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use flysch_api::vfs::{Attributes, FileKind, FileSystem, FsError, Inode, Timestamp};
use flysch_vfs::Memory;

/// Maximum size of an extended attribute, bytes.
const VALUE_MAX: usize = 65_536;

thread_local! {
    /// A buffer for an extended attribute: allocating one each time would take longer than the
    /// read.
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Everything about a file except its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub attributes: Attributes,
    pub content: Rc<Vec<u8>>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All files that have names, by inode number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub nodes: BTreeMap<u64, Node>,
    /// Directory and name, and what it names.
    pub names: BTreeMap<(u64, Vec<u8>), u64>,
}

impl Tree {
    /// Everything reachable. Unchanged content is shared with `before`.
    pub(super) fn of(fs: &dyn FileSystem, before: Option<&Self>) -> Result<Self, String> {
        let mut tree = Self::default();
        let root = fs.statistics().root;
        let mut left = vec![root];
        while let Some(inode) = left.pop() {
            if tree.nodes.contains_key(&inode.0) {
                continue;
            }
            let old = before.and_then(|tree| tree.nodes.get(&inode.0));
            let node = Node::of(fs, inode, old)
                .map_err(|error| format!("inode {inode} cannot be read: {error}"))?;
            let is_directory = node.attributes.kind == FileKind::Directory;
            tree.nodes.insert(inode.0, node);
            if is_directory {
                let listed = fs.list(inode, 0, &mut |entry| {
                    tree.names.insert((inode.0, entry.name.to_vec()), entry.inode.0);
                    left.push(entry.inode);
                    ControlFlow::Continue(())
                });
                listed.map_err(|error| format!("directory {inode} cannot be listed: {error}"))?;
            }
        }
        Ok(tree)
    }

    /// As [`of`](Self::of), with the file that has no name but is still open: until its removal is
    /// on the flash, the old name may show what has been written to it since.
    pub(super) fn modelled(
        model: &Memory,
        before: Option<&Self>,
        open: Option<Inode>,
    ) -> Result<Self, String> {
        let mut tree = Self::of(model, before)?;
        if let Some(Ok(node)) = open.map(|inode| Node::of(model, inode, None)) {
            tree.nodes.entry(node.attributes.inode.0).or_insert(node);
        }
        Ok(tree)
    }

    /// The first difference from `other`, in words; `None` if they are equal.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        if let Some((place, _)) = self.names.iter().find(|(at, it)| other.names.get(at) != Some(it))
        {
            return Some(format!("{} is gone or another", String::from_utf8_lossy(&place.1)));
        }
        if let Some(place) = other.names.keys().find(|place| !self.names.contains_key(*place)) {
            return Some(format!("{} has come up", String::from_utf8_lossy(&place.1)));
        }
        let nodes = self.nodes.iter().map(|(inode, node)| (inode, node, other.nodes.get(inode)));
        for (inode, one, two) in nodes {
            let Some(two) = two else { return Some(format!("inode {inode} is gone")) };
            if one.attributes != two.attributes {
                let (one, two) = (one.attributes, two.attributes);
                return Some(format!("inode {inode} was {one:?} and is {two:?}"));
            }
            let mut pairs = one.content.iter().zip(two.content.iter());
            if one.content != two.content
                && let Some(at) = pairs.position(|(one, two)| one != two)
            {
                return Some(format!("inode {inode} has another byte {at}"));
            }
            if one.xattrs != two.xattrs {
                return Some(format!("inode {inode} has other extended attributes"));
            }
        }
        (self != other).then(|| "something is another".to_string())
    }

    pub(super) fn names_of(&self, inode: u64) -> impl Iterator<Item = &(u64, Vec<u8>)> {
        self.names.iter().filter(move |(_, named)| **named == inode).map(|(name, _)| name)
    }
}

impl Node {
    fn of(fs: &dyn FileSystem, inode: Inode, before: Option<&Self>) -> Result<Self, FsError> {
        let mut attributes = fs.attributes(inode)?;
        // Not compared: the last access, and values that each format counts in its own way.
        attributes.accessed = Timestamp::default();
        attributes.blocks = 0;
        if attributes.kind == FileKind::Directory {
            // In JFFS2 they follow from the names, and from removals while these are kept.
            attributes.modified = Timestamp::default();
            attributes.changed = Timestamp::default();
        }
        let mut content = vec![];
        if matches!(attributes.kind, FileKind::Regular | FileKind::Symlink) {
            content.resize(attributes.size as usize, 0);
            let mut done = 0;
            while done < content.len() {
                match fs.read(inode, done as u64, &mut content[done..])? {
                    0 => return Err(FsError::Invalid("the file ends before its size")),
                    len => done += len,
                }
            }
        }
        let shared = before.map(|node| &node.content).filter(|old| ***old == content);
        let content = shared.cloned().unwrap_or_else(|| Rc::new(content));
        let mut names = vec![];
        fs.list_xattrs(inode, &mut |name| names.push(name.to_vec()))?;
        let mut xattrs = BTreeMap::new();
        for name in names {
            let value = VALUE.with_borrow_mut(|value| {
                value.resize(VALUE_MAX, 0);
                fs.read_xattr(inode, &name, value).map(|len| value[..len].to_vec())
            })?;
            xattrs.insert(name, value);
        }
        Ok(Self { attributes, content, xattrs })
    }
}
