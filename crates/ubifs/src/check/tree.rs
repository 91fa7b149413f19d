//! Checks the committed index against the nodes it leads to.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::finding::{Finding, Severity};
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{Branch, Index as IndexNode, Key, KeyKind, Node, NodeKind, align8};

use super::Check;
use crate::access::{Cause, Fault, Scratch};
use crate::index::{Visit, location};
use crate::location::Location;
use crate::overlay::Overlay;

/// How the index uses the main area.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Bytes in use, by LEB.
    pub(super) used: BTreeMap<u32, u32>,
    /// Where the nodes in use begin, by LEB.
    pub(super) nodes: BTreeMap<u32, Vec<u32>>,
    /// LEBs that hold index nodes in use.
    pub(super) index: BTreeMap<u32, u32>,
    /// LEBs with nodes in use that the journal has not replaced.
    live: BTreeSet<u32>,
    /// Bytes of index nodes.
    pub(super) index_size: u64,
    /// A part of the index could not be read.
    pub(super) incomplete: bool,
}

/// The kind of node a key leads to.
pub(super) fn kind_of(key: Key) -> Option<NodeKind> {
    Some(match key.kind() {
        KeyKind::Inode => NodeKind::Inode,
        KeyKind::Data => NodeKind::Data,
        KeyKind::Entry => NodeKind::Entry,
        KeyKind::XattrEntry => NodeKind::XattrEntry,
        KeyKind::Unknown(_) => return None,
    })
}

struct Leaves<'l, 'c, V> {
    check: &'l Check<'c, V>,
    usage: Usage,
    /// What is wrong with nodes that the journal replaced, and their LEBs.
    replaced: Vec<(u32, Finding)>,
    scratch: Scratch,
}

impl<V: Volume> Visit for Leaves<'_, '_, V> {
    fn node(&mut self, at: Location, _node: &IndexNode<'_>) -> ControlFlow<()> {
        let size = align8(at.length);
        *self.usage.used.entry(at.lnum).or_default() += size;
        self.usage.nodes.entry(at.lnum).or_default().push(at.offset);
        *self.usage.index.entry(at.lnum).or_default() += size;
        self.usage.index_size += u64::from(size);
        self.usage.live.insert(at.lnum);
        ControlFlow::Continue(())
    }

    fn leaf(&mut self, branch: &Branch<'_>, from: Location) -> ControlFlow<()> {
        *self.usage.used.entry(branch.lnum).or_default() += align8(branch.length);
        self.usage.nodes.entry(branch.lnum).or_default().push(branch.offset);
        let overlay = &self.check.fs.store.overlay;
        // Of two names with the same hash, either may be the one that changed.
        let is_renamed = !overlay.names_of(branch.key).is_empty();
        let is_moved = overlay.is_gone(branch.key) || overlay.get(branch.key).is_some();
        if !is_moved && !is_renamed {
            self.usage.live.insert(branch.lnum);
        }
        // The nodes a file still has are checked with it; this leaves those the journal replaced.
        if let (true, Err(fault)) = (is_moved, self.verify(branch)) {
            let mut found = fault.finding_of(Severity::Inconsistent, branch.key.inode());
            found.problem = format!(
                "{} (key {}, from the index node at LEB {} offset {})",
                fault.cause, branch.key, from.lnum, from.offset
            );
            self.replaced.push((branch.lnum, found));
        }
        ControlFlow::Continue(())
    }

    fn lost(&mut self, _fault: Fault, _first: Key, _last: Key) -> ControlFlow<()> {
        // Opening has reported it.
        self.usage.incomplete = true;
        ControlFlow::Continue(())
    }
}

impl<V: Volume> Leaves<'_, '_, V> {
    /// Verifies that a branch leads to a node with its key.
    fn verify(&mut self, branch: &Branch<'_>) -> Result<(), Fault> {
        let store = &self.check.fs.store;
        let at = location(branch);
        let Some(kind) = kind_of(branch.key) else { return Ok(()) };
        let key = match store.node(at, kind, &mut self.scratch)? {
            Node::Inode(node) => node.key,
            Node::Data(node) => node.key,
            Node::Entry(node) => node.key,
            _ => branch.key,
        };
        if key == branch.key {
            Ok(())
        } else {
            Err(store.fault(at, kind, Cause::Mismatch("key for its branch")))
        }
    }
}

impl<V: Volume> Check<'_, V> {
    /// Whether everything in a LEB has gone out of use since the commit: garbage collection moved
    /// it, or the journal replaced it. Such a LEB may be emptied, and reused for anything, even by
    /// a commit that was not completed; what the last commit says about it is then outdated.
    pub(super) fn is_given_up(&self, usage: &Usage, lnum: u32) -> bool {
        let written = self.fs.is_unclean() || !self.fs.store.overlay.is_empty();
        written && !usage.live.contains(&lnum)
    }

    /// Follows every branch of the committed index.
    pub(super) fn tree(&mut self) -> Usage {
        let fs = self.fs;
        let Some(index) = &fs.store.index else {
            return Usage { incomplete: true, ..Usage::default() };
        };
        let (usage, scratch) = (Usage::default(), Scratch::new());
        let mut leaves = Leaves { check: self, usage, replaced: Vec::new(), scratch };
        let place = (&fs.store.access, &fs.store.layout);
        let all = (Key::MIN, Key::MAX);
        let _ = index.walk(place, &Overlay::default(), all, &mut leaves);
        let Leaves { usage, mut replaced, .. } = leaves;
        replaced.retain(|(lnum, _)| !self.is_given_up(&usage, *lnum));
        self.findings.extend(replaced.into_iter().map(|(_, found)| found));
        self.index_size(&usage);
        usage
    }

    fn index_size(&mut self, usage: &Usage) {
        let Some(chosen) = &self.fs.master else { return };
        let stored = chosen.master.index_size;
        if !usage.incomplete && usage.index_size != stored {
            let problem =
                format!("index_size is {stored}, but the index nodes take {}", usage.index_size);
            let at = (chosen.lnum, chosen.offset);
            self.tell(Severity::Inconsistent, "master node", problem, at);
        }
    }
}
