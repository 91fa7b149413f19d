//! Builds tables and blocks from the results of a scan, step by step.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use flysch_api::flash::Flash;
use flysch_wire::jffs2::{ByteOrder, Dirent, Header, Inode, ROOT_INO, Xattr, Xref};

use super::copies::Ranks;
use super::medium::{Marker, Medium};
use super::space::{Blocks, Kind, Raw, State};
use super::tables::{
    Directory, InodeState, KIND_DIRECTORY, Name, Tables, XattrState, XrefState, hash, more,
};
use crate::found::{Address, DirentRef, Found, NodeRef, Wrong, XattrRef};
use crate::index::written_by_mkfs;
use crate::node;

/// A node whose position in its block is not known yet; `of` is its owner and tag.
fn raw(kind: Kind, of: (u32, u32), len: u32, live: bool) -> Raw {
    Raw { at: 0, len, kind, is_dead: !live, owner: of.0, tag: of.1 }
}

/// The result.
pub(super) struct Built {
    pub(super) tables: Tables,
    pub(super) blocks: Blocks,
    /// See [`Found::may_miss_nodes`].
    pub(super) may_miss_nodes: bool,
    /// Names that would give a directory a second name.
    pub(super) doubles: Vec<(u32, Name)>,
    /// Torn nodes, the last ones of their blocks.
    pub(super) cut_off: Vec<u64>,
    /// See [`Found::torn_xattrs`].
    pub(super) torn_xattrs: Vec<XattrRef>,
    /// Blocks with something in their frozen pages that is not a valid node.
    pub(super) wrong: BTreeSet<u32>,
}

/// Suspicions about blocks before anything is known of their nodes.
pub(super) struct Suspects {
    /// Something at their end may be torn.
    pub(super) torn: BTreeSet<u32>,
    /// Their last page is not firm, although power was not lost in it.
    pub(super) worn: BTreeSet<u32>,
}

/// As the scan found it.
pub(super) struct Scanned;

/// Torn nodes are left out.
pub(super) struct Trimmed {
    /// The highest version of each inode, including directory entries and torn nodes.
    versions: BTreeMap<u32, u32>,
}

/// It is known which inodes exist, and by which names.
pub(super) struct Named {
    versions: BTreeMap<u32, u32>,
    doubles: Vec<(u32, Name)>,
}

/// Each node has its owner, or is invalid.
pub(super) struct Owned {
    doubles: Vec<(u32, Name)>,
}

/// What is being built. Each step uses the result of the previous one: [`trim`](Build::trim),
/// [`name`](Build::name), [`own`](Build::own), [`place`](Build::place).
pub(super) struct Build<'b, F, Step> {
    medium: &'b Medium<F>,
    order: ByteOrder,
    ranks: &'b Ranks,
    found: Found,
    tables: Tables,
    blocks: Blocks,
    raws: Vec<(Address, Raw)>,
    /// Blocks with something torn or damaged at their end. Nothing is written after it, because it
    /// would then no longer look torn.
    torn: BTreeSet<u32>,
    /// Blocks whose last page is not firm although power was not lost in it: a summary closes the
    /// block, and others have been written since.
    worn: BTreeSet<u32>,
    /// Nodes that were dropped because their data is torn.
    dropped: Vec<(u64, u32)>,
    step: Step,
}

impl<'b, F: Flash> Build<'b, F, Scanned> {
    pub(super) fn new(
        medium: &'b Medium<F>,
        order: ByteOrder,
        found: Found,
        ranks: &'b Ranks,
        suspects: Suspects,
    ) -> Self {
        let Suspects { mut torn, worn } = suspects;
        let geometry = *medium.geometry();
        let problems = found.problems.iter().map(|problem| geometry.block_of(problem.offset));
        torn.extend(problems);
        let xrefs = &found.xrefs;
        let inos = found.nodes.iter().map(|node| node.ino);
        let inos = inos.chain(found.dirents.iter().flat_map(|dirent| [dirent.pino, dirent.ino]));
        let inos = inos.chain(xrefs.iter().map(|xref| xref.ino));
        let xids = found.xattrs.iter().chain(&found.torn_xattrs).map(|xattr| xattr.xid);
        let xids = xids.chain(xrefs.iter().map(|xref| xref.xid));
        let tables = Tables {
            next_ino: inos.max().unwrap_or(0).max(ROOT_INO).saturating_add(1),
            next_xid: xids.max().unwrap_or(0).saturating_add(1),
            xseqno: xrefs.iter().map(|xref| xref.xseqno).max().unwrap_or(0) & !1,
            ..Tables::default()
        };
        let blocks = Blocks::new(geometry, geometry.erase_size);
        let (raws, dropped) = (vec![], vec![]);
        let step = Scanned;
        Self { medium, order, ranks, found, tables, blocks, raws, torn, worn, dropped, step }
    }

    /// Leaves out what was being written when power was cut.
    pub(super) fn trim(mut self) -> Build<'b, F, Trimmed> {
        let versions = self.versions();
        self.drop_torn();
        self.drop_behind();
        self.next(|Scanned| Trimmed { versions })
    }

    /// The highest version of each inode, including directory entries and torn nodes.
    fn versions(&self) -> BTreeMap<u32, u32> {
        let mut versions = BTreeMap::new();
        let nodes = self.found.nodes.iter().map(|node| (node.ino, node.version));
        let dirents = self.found.dirents.iter().map(|dirent| (dirent.pino, dirent.version));
        for (ino, version) in nodes.chain(dirents) {
            let highest = versions.entry(ino).or_insert(version);
            *highest = version.max(*highest);
        }
        versions
    }

    /// Power may have been cut in the page of a block that was written last: nodes in it with
    /// damaged data never existed.
    fn drop_torn(&mut self) {
        let geometry = self.blocks.geometry;
        let unit = u64::from(geometry.write_size.max(1));
        let mut last: Vec<u64> = vec![u64::MAX; geometry.blocks() as usize];
        let every = self.found.nodes.iter().map(|node| node.address);
        for address in every.chain(self.found.xattrs.iter().map(|xattr| xattr.address)) {
            let at = &mut last[geometry.block_of(address.offset()) as usize];
            *at = if *at == u64::MAX { address.offset() } else { (*at).max(address.offset()) };
        }
        let found = &mut self.found;
        let is_last = |address: Address, len: u32| {
            let block = geometry.block_of(address.offset()) as usize;
            let end = geometry.block_start(block as u32) + u64::from(found.blocks[block].written);
            let page = end.saturating_sub(1) / unit * unit;
            address.offset() == last[block] || address.offset() + u64::from(len) > page
        };
        let (flash, order) = (self.medium, self.order);
        let read = |address: Address, len: u32| {
            let mut bytes = vec![0; len as usize];
            node::read(flash, address.offset(), &mut bytes).ok().map(|()| bytes)
        };
        let is_good = |node: &NodeRef| {
            let Some(bytes) = read(node.address, node.total_len) else { return true };
            Inode::parse(&bytes, order).is_ok_and(|inode| inode.data(&bytes).is_ok())
        };
        let blocks_len = geometry.erase_size;
        let mut ends: Vec<(u64, u32)> = vec![];
        let nodes = core::mem::take(&mut found.nodes);
        let (kept, torn): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| {
            !is_last(node.address, node.total_len) || node.total_len > blocks_len || is_good(node)
        });
        let xattrs = core::mem::take(&mut found.xattrs);
        let kept_xattrs: Vec<_> = xattrs
            .into_iter()
            .filter(|xattr| {
                if !is_last(xattr.address, xattr.total_len) || xattr.total_len > blocks_len {
                    return true;
                }
                let Some(bytes) = read(xattr.address, xattr.total_len) else { return true };
                let good = Xattr::parse(&bytes, order)
                    .is_ok_and(|parsed| parsed.name_and_value(&bytes).is_ok());
                if !good {
                    ends.push((xattr.address.offset(), xattr.total_len));
                    found.torn_xattrs.push(*xattr);
                }
                good
            })
            .collect();
        self.torn.extend(ends.iter().map(|(offset, _)| geometry.block_of(*offset)));
        self.dropped = ends;
        for node in torn {
            let offset = node.address.offset();
            self.dropped.push((offset, node.total_len));
            let block = geometry.block_of(offset);
            self.torn.insert(block);
            let start = (offset - geometry.block_start(block)) as u32;
            let facts = &mut found.blocks[block as usize];
            let end = start.saturating_add(node.total_len).next_multiple_of(4);
            facts.end = facts.end.max(end).min(geometry.block_len(block));
        }
        found.nodes = kept;
        found.xattrs = kept_xattrs;
    }

    /// In a page that is not firm, only what comes before the first error ever existed. So files
    /// have no gaps, and what belongs together is complete or was not started.
    fn drop_behind(&mut self) {
        let geometry = self.blocks.geometry;
        for page in self.medium.frozen_pages() {
            let problems = self.found.problems.iter().filter_map(|problem| match problem.wrong {
                Wrong::Unfinished { len } => Some((problem.offset, len)),
                _ => None,
            });
            let dropped = self.dropped.iter().map(|(offset, len)| (*offset, u64::from(*len)));
            let block = geometry.block_of(page.start);
            if self.worn.contains(&block) {
                continue;
            }
            let is_inside = |(offset, len): &(u64, u64)| {
                geometry.block_of(*offset) == block && offset.saturating_add(*len) > page.start
            };
            let wrong = problems.chain(dropped).filter(is_inside).map(|(offset, _)| offset);
            let Some(first) = wrong.min() else { continue };
            let end = geometry.block_start(block) + u64::from(geometry.block_len(block));
            let is_kept = |address: Address| !(first..end).contains(&address.offset());
            let found = &mut self.found;
            found.nodes.retain(|node| is_kept(node.address));
            found.dirents.retain(|dirent| is_kept(dirent.address));
            found.xattrs.retain(|xattr| is_kept(xattr.address));
            found.xrefs.retain(|xref| is_kept(xref.address));
        }
    }
}

impl<'b, F: Flash> Build<'b, F, Trimmed> {
    /// Determines which entry of each name is valid, and which inodes can be reached.
    pub(super) fn name(mut self) -> Build<'b, F, Named> {
        let doubles = self.names();
        self.next(|Trimmed { versions }| Named { versions, doubles })
    }

    /// Determines which entry of each name is valid, and which directories can be reached.
    fn names(&mut self) -> Vec<(u32, Name)> {
        let by_mkfs = written_by_mkfs(&self.found.dirents, &self.found.nodes);
        let rank = |dirent: &DirentRef| {
            self.ranks.of(dirent.address, (Dirent::LEN + usize::from(dirent.name_len)) as u32)
        };
        let mut dirents = core::mem::take(&mut self.found.dirents);
        let names = core::mem::take(&mut self.found.names);
        dirents.sort_by(|a, b| {
            let a_key = (a.pino, a.name(&names), Reverse(a.version));
            let b_key = (b.pino, b.name(&names), Reverse(b.version));
            // Of two with the same version the one that lies further back counts, as in Linux. Of
            // copies that garbage collection made the one with the least rank does, as of any other
            // node: what is dead is then all in one block.
            let by_place = match a.ino == b.ino {
                true => rank(a).cmp(&rank(b)),
                false => b.address.cmp(&a.address),
            };
            a_key.cmp(&b_key).then(by_place)
        });
        let newest = |at: usize| {
            at == 0
                || dirents[at - 1].pino != dirents[at].pino
                || dirents[at - 1].name(&names) != dirents[at].name(&names)
        };
        let count: Vec<bool> = (0..dirents.len()).map(newest).collect();
        let mut known: BTreeSet<u32> = self.found.nodes.iter().map(|node| node.ino).collect();
        known.extend(dirents.iter().zip(&count).filter(|(_, c)| **c).map(|(d, _)| d.pino));
        known.insert(ROOT_INO);
        let reached = BTreeMap::new();
        let mut tree = Tree { dirents: &dirents, names: &names, count, known, by_mkfs, reached };
        let (doubles, counting) = tree.walk(&mut self.tables.inodes);
        let first = doubles.iter().filter_map(|(_, double)| tree.reached_by(double.ino));
        let first = first.collect();
        let key = |dirent: &DirentRef| (dirent.pino, hash(dirent.name(&names)));
        let old = (0..).zip(&dirents).filter(|(at, it)| it.ino != 0 && !counting.contains(at));
        old.for_each(|(_, dirent)| more(&mut self.tables.old_names, key(dirent)));
        for (at, dirent) in dirents.iter().enumerate() {
            let highest = self.step.versions.get(&dirent.pino).copied().unwrap_or(0);
            let idle = dirent.ino == 0 && dirent.version < highest && self.is_idle(key(dirent));
            let live = counting.contains(&at) && !idle;
            if idle
                && let Some(state) = self.tables.inodes.get_mut(&dirent.pino)
                && let Some(directory) = &mut state.directory
                && directory.entry(dirent.name(&names)).is_some_and(|it| it.ino == 0)
            {
                directory.take(dirent.name(&names));
            }
            let kind = if dirent.ino == 0 { Kind::Removal } else { Kind::Dirent };
            let len = (Dirent::LEN + usize::from(dirent.name_len)) as u32;
            self.raws.push((dirent.address, raw(kind, key(dirent), len, live)));
        }
        self.resolve_doubles(doubles, first)
    }

    /// Whether removals of names with this directory and hash are no longer needed: the flash has
    /// no older entry that could be found in their place. They were dropped before this mount, but
    /// their block was not erased yet. If they were kept, they would fill the flash, in blocks
    /// without any dirt.
    fn is_idle(&self, key: (u32, u32)) -> bool {
        self.is_undamaged() && !self.tables.old_names.contains_key(&key)
    }

    /// If a directory has two names, the one whose entry was written earlier is removed. `first`
    /// are the names by which the tree has it.
    fn resolve_doubles(
        &mut self,
        doubles: Vec<(u32, Name)>,
        mut first: BTreeMap<u32, (u32, Name)>,
    ) -> Vec<(u32, Name)> {
        let (medium, order) = (self.medium, self.order);
        let time = |name: &Name| {
            let mut bytes = [0; Dirent::LEN];
            let read = node::read(medium, name.address.offset(), &mut bytes);
            let dirent = read.ok().and_then(|()| Dirent::parse(&bytes, order).ok());
            dirent.map_or(0, |dirent| dirent.mctime)
        };
        let mut losers = vec![];
        for (pino, name) in doubles {
            let ino = name.ino;
            let Some((other_pino, other)) = first.get(&ino) else {
                // The root needs no name.
                losers.push((pino, name));
                continue;
            };
            let newer = if *other_pino == pino {
                name.version > other.version
            } else {
                time(&name) > time(other)
            };
            if !newer {
                losers.push((pino, name));
                continue;
            }
            losers.extend(first.insert(ino, (pino, name)));
            if let Some(state) = self.tables.inodes.get_mut(&ino)
                && let Some(directory) = &mut state.directory
            {
                directory.parent = pino;
            }
        }
        losers
    }
}

impl<'b, F: Flash> Build<'b, F, Named> {
    /// Assigns each node to its owner.
    pub(super) fn own(mut self) -> Build<'b, F, Owned> {
        self.nodes();
        self.xattrs();
        self.others();
        self.next(|Named { doubles, .. }| Owned { doubles })
    }

    fn nodes(&mut self) {
        let mut nodes = core::mem::take(&mut self.found.nodes);
        for node in self.ranks.drop_copies(self.medium, self.order, &mut nodes) {
            let of = (node.ino, node.version);
            self.raws.push((node.address, raw(Kind::Inode, of, node.total_len, false)));
        }
        for chunk in nodes.chunk_by(|a, b| a.ino == b.ino) {
            let ino = chunk[0].ino;
            let state = self.tables.inodes.get_mut(&ino);
            let live = state.is_some();
            if let Some(state) = state {
                state.nodes = chunk.to_vec();
            }
            for node in chunk {
                let NodeRef { address, total_len, version, .. } = *node;
                self.raws.push((address, raw(Kind::Inode, (ino, version), total_len, live)));
            }
        }
        for (ino, state) in &mut self.tables.inodes {
            state.version = self.step.versions.get(ino).copied().unwrap_or(0);
        }
    }

    fn xattrs(&mut self) {
        let mut xrefs = core::mem::take(&mut self.found.xrefs);
        let ranks = self.ranks;
        xrefs.sort_by_key(|xref| {
            let rank = ranks.of(xref.address, Xref::LEN as u32);
            (xref.ino, xref.xid, Reverse(xref.xseqno), rank)
        });
        let is_sure = self.is_undamaged();
        let tables = &mut self.tables;
        for chunk in xrefs.chunk_by(|a, b| (a.ino, a.xid) == (b.ino, b.xid)) {
            let key = (chunk[0].ino, chunk[0].xid);
            // As with names, removals alone say nothing.
            let is_idle = is_sure && chunk.iter().all(|xref| xref.xseqno & 1 != 0);
            for (at, xref) in chunk.iter().enumerate() {
                let is_removal = xref.xseqno & 1 != 0;
                let live = at == 0 && !is_idle && tables.inodes.contains_key(&xref.ino);
                let kind = if is_removal { Kind::XrefRemoval } else { Kind::Xref };
                if live {
                    let (xseqno, address) = (xref.xseqno, xref.address);
                    tables.xrefs.insert(key, XrefState { xseqno, address, is_removal });
                } else if !is_removal {
                    more(&mut tables.old_xrefs, key);
                }
                let raw = raw(kind, key, Xref::LEN as u32, live);
                self.raws.push((xref.address, raw));
            }
        }
        let mut xattrs = core::mem::take(&mut self.found.xattrs);
        xattrs.sort_by_key(|xattr| {
            let rank = self.ranks.of(xattr.address, xattr.total_len);
            (xattr.xid, Reverse(xattr.version), rank)
        });
        let mut users: BTreeMap<u32, u32> = BTreeMap::new();
        for ((_, xid), _) in self.tables.xrefs.iter().filter(|(_, xref)| !xref.is_removal) {
            *users.entry(*xid).or_default() += 1;
        }
        for xattr in xattrs {
            let xid = xattr.xid;
            // Only the newest node of an attribute counts.
            let inodes = users.remove(&xid).unwrap_or(0);
            if inodes > 0 {
                let (version, address, total_len) = (xattr.version, xattr.address, xattr.total_len);
                let state = XattrState { version, address, total_len, inodes };
                self.tables.xattrs.insert(xid, state);
            }
            let raw = raw(Kind::Xattr, (xid, xattr.version), xattr.total_len, inodes > 0);
            self.raws.push((xattr.address, raw));
        }
    }

    fn others(&mut self) {
        for (address, len) in core::mem::take(&mut self.found.others) {
            self.raws.push((address, raw(Kind::Other, (0, 0), len, true)));
        }
    }
}

impl<F: Flash> Build<'_, F, Owned> {
    /// Assigns nodes to their blocks.
    pub(super) fn place(mut self) -> Built {
        let (cut_off, wrong) = (self.cut_off(), self.wrong_in_frozen());
        self.fill_blocks();
        let Self { tables, blocks, step: Owned { doubles }, .. } = self;
        let Found { may_miss_nodes, torn_xattrs, .. } = self.found;
        Built { tables, blocks, may_miss_nodes, doubles, cut_off, torn_xattrs, wrong }
    }

    /// Blocks with problems or dropped nodes in their frozen pages.
    fn wrong_in_frozen(&self) -> BTreeSet<u32> {
        let problems = self.found.problems.iter().map(|problem| match problem.wrong {
            Wrong::Unfinished { len } | Wrong::Garbage { len } => (problem.offset, len),
            _ => (problem.offset, Header::LEN as u64),
        });
        let dropped = self.dropped.iter().map(|(offset, len)| (*offset, u64::from(*len)));
        let all = problems.chain(dropped);
        let medium = self.medium;
        let frozen = all.filter(|(offset, len)| medium.is_frozen(*offset, *len as usize));
        frozen.map(|(offset, _)| medium.geometry().block_of(offset)).collect()
    }

    /// Torn nodes: those that were dropped, and others with an error after which nothing is
    /// written.
    fn cut_off(&self) -> Vec<u64> {
        let geometry = self.blocks.geometry;
        let (medium, order) = (self.medium, self.order);
        let is_last = |offset: &u64| {
            let block = geometry.block_of(*offset);
            let written = u64::from(self.found.blocks[block as usize].written);
            let mut bytes = [0; Header::LEN];
            let read = node::read(medium, *offset, &mut bytes);
            let header = read.ok().and_then(|()| Header::parse(&bytes, order).ok());
            let end = geometry.block_start(block) + written;
            header.is_some_and(|header| offset.saturating_add(header.total_len.into()) >= end)
        };
        let problems = self.found.problems.iter().map(|problem| problem.offset).filter(is_last);
        problems.chain(self.dropped.iter().map(|(offset, _)| *offset)).collect()
    }

    /// Assigns nodes to their blocks and states to blocks.
    fn fill_blocks(&mut self) {
        self.raws.sort_by_key(|(address, _)| *address);
        let blocks = &mut self.blocks;
        for (address, raw) in &self.raws {
            let (number, at) = blocks.place(*address);
            let geometry = blocks.geometry;
            let block = blocks.block(number);
            let fits = at.checked_add(raw.len).is_some_and(|end| end <= geometry.erase_size);
            // A summary may say what it likes; two nodes in one place are one too many.
            if fits && block.raws.last().is_none_or(|last| last.at < at) {
                block.summary_len += raw.summary_entry_len();
                block.used += if raw.is_dead { 0 } else { raw.space() };
                block.raws.push(Raw { at, ..*raw });
            }
        }
        for number in 0..self.blocks.blocks.len() as u32 {
            let state = self.block_state(number);
            if state == State::Closed {
                self.blocks.block(number).is_torn = self.torn.contains(&number);
                self.count_dead(number);
            }
            self.blocks.settle(number, state);
        }
        // Empty ones are taken first: what counts instead of the dead nodes in others may be in a
        // page that is not firm, and is not copied yet. Of these the one that was opened last is
        // most likely to hold nothing but copies.
        let Blocks { erasable, blocks, .. } = &mut self.blocks;
        erasable.make_contiguous().sort_by_key(|number| {
            let holds_nodes = !blocks[*number as usize].raws.is_empty();
            (holds_nodes, Reverse(self.ranks.opened(*number)))
        });
    }

    fn block_state(&mut self, number: u32) -> State {
        let facts = self.found.blocks[number as usize];
        let marker = self.medium.marker();
        let block = self.blocks.block(number);
        block.padded = facts.padded;
        block.end = facts.end;
        block.is_listed = facts.has_summary;
        if facts.is_bad {
            return State::Bad;
        }
        if block.used > 0 {
            return State::Closed;
        }
        let is_marked = match marker {
            Marker::Node(len) => {
                facts.cleanmarker_len == len && facts.end <= len.next_multiple_of(4)
            }
            Marker::Oob => facts.end == 0 && self.medium.has_oob_marker(number),
            // A LEB may be mapped and empty by a header that does not read the same each time: it
            // is given up before it is written to, which costs nothing where it is not mapped.
            // Elsewhere nobody could tell an interrupted erase, and Linux does not ask.
            Marker::None => false,
        };
        // One that does not read as erased each time is not erased, whatever its marker says.
        if is_marked && !self.torn.contains(&number) { State::Free } else { State::Erasable }
    }

    /// Counts the bytes of a closed block that collecting it would free.
    fn count_dead(&mut self, number: u32) {
        let geometry = self.blocks.geometry;
        let has_summary = self.found.blocks[number as usize].end == geometry.block_len(number);
        let marker_len = self.medium.marker_len();
        let block = self.blocks.block(number);
        let dead: u32 = block.raws.iter().filter(|raw| raw.is_dead).map(Raw::space).sum();
        let holds = block.end.saturating_sub(marker_len).saturating_sub(block.used);
        block.dead = if has_summary { dead + block.padded } else { holds.max(dead) };
        let tail = geometry.erase_size - block.end.min(geometry.erase_size);
        if tail > geometry.erase_size / 8 {
            block.dead += tail;
        }
    }
}

impl<'b, F, Step> Build<'b, F, Step> {
    fn next<Next>(self, step: impl FnOnce(Step) -> Next) -> Build<'b, F, Next> {
        let Self { medium, order, ranks, found, tables, blocks, raws, torn, worn, dropped, .. } =
            self;
        let step = step(self.step);
        Build { medium, order, ranks, found, tables, blocks, raws, torn, worn, dropped, step }
    }

    /// Something damaged may be an older entry than any that was found.
    fn is_undamaged(&self) -> bool {
        self.found.problems.is_empty() && self.found.problems_dropped == 0
    }
}

/// The entries on the flash as a tree.
struct Tree<'d> {
    /// By directory and name, newest first for each name.
    dirents: &'d [DirentRef],
    names: &'d [u8],
    /// Which of them are the newest of their name.
    count: Vec<bool>,
    /// Inodes with a node, or with entries.
    known: BTreeSet<u32>,
    by_mkfs: Option<Address>,
    /// The entry by which each directory was reached first.
    reached: BTreeMap<u32, usize>,
}

impl Tree<'_> {
    fn has_entries(&self, ino: u32) -> bool {
        let start = self.dirents.partition_point(|dirent| dirent.pino < ino);
        self.dirents.get(start).is_some_and(|dirent| dirent.pino == ino)
    }

    fn name(&self, at: usize) -> Name {
        let dirent = &self.dirents[at];
        Name {
            name: dirent.name(self.names).into(),
            ino: dirent.ino,
            version: dirent.version,
            address: dirent.address,
            kind: dirent.kind,
            by_mkfs: Some(dirent.address) <= self.by_mkfs,
        }
    }

    /// The parent and the entry by which a directory was reached first, by its number.
    fn reached_by(&self, ino: u32) -> Option<(u32, (u32, Name))> {
        let at = *self.reached.get(&ino)?;
        Some((ino, (self.dirents[at].pino, self.name(at))))
    }

    /// Marks the inodes that can be reached from the root; returns names that would give a
    /// directory a second name, and the numbers of the valid entries.
    fn walk(
        &mut self,
        inodes: &mut BTreeMap<u32, InodeState>,
    ) -> (Vec<(u32, Name)>, BTreeSet<usize>) {
        let mut doubles = vec![];
        let mut counting = BTreeSet::new();
        let mut root = InodeState::default();
        root.directory = Some(Directory::below(0));
        root.names = 1;
        inodes.insert(ROOT_INO, root);
        let mut open = vec![ROOT_INO];
        while let Some(pino) = open.pop() {
            let start = self.dirents.partition_point(|dirent| dirent.pino < pino);
            let own = self.dirents[start..].iter().take_while(|dirent| dirent.pino == pino);
            for (at, dirent) in (start..).zip(own) {
                if !self.count[at] || (dirent.ino != 0 && !self.known.contains(&dirent.ino)) {
                    continue;
                }
                counting.insert(at);
                let name = self.name(at);
                // Whatever an entry says, its inode's mode tells whether it is a directory.
                let is_named_directory = dirent.kind == KIND_DIRECTORY;
                if dirent.ino != 0 && (is_named_directory || self.has_entries(dirent.ino)) {
                    let is_known =
                        inodes.get(&dirent.ino).is_some_and(|state| state.directory.is_some());
                    if is_known && is_named_directory {
                        doubles.push((pino, name.clone()));
                    } else if !is_known {
                        let state = inodes.entry(dirent.ino).or_default();
                        state.directory = Some(Directory::below(pino));
                        self.reached.insert(dirent.ino, at);
                        open.push(dirent.ino);
                    }
                }
                if dirent.ino != 0 {
                    inodes.entry(dirent.ino).or_default().names += 1;
                }
                if let Some(directory) =
                    inodes.get_mut(&pino).and_then(|state| state.directory.as_deref_mut())
                {
                    directory.put(name);
                }
            }
        }
        (doubles, counting)
    }
}
