//! The journal: which LEBs were written since the last commit, and what is in them.
//!
//! The log names the LEBs: a commit start node, then a reference node for each LEB before it is
//! used (a bud). The nodes of all buds, sorted by sequence number, are the changes in the order
//! they were made. After an unclean stop the log, and the last bud of each journal head, may end in
//! a write that was cut short: unreadable bytes there, and incomplete groups of nodes, count as
//! never written.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{
    BLOCK_SIZE, BranchFormat, Group, HEADER_SIZE, Header, JOURNAL_HEADS, Key, Layout, Master,
    MasterFlags, NODE_ALIGNMENT, Node, NodeError, NodeKind, Superblock, align8,
};

use crate::access::{Access, Cause, Fault, Held, Scratch, finding};
use crate::auth::{Auth, Digest, Hasher};
use crate::location::Location;
use crate::scan::{Item, Scan};
use crate::store::{Store, field};

/// A LEB of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bud {
    /// Which LEB.
    pub lnum: u32,
    /// Where the journal's part of it begins.
    pub start: u32,
    /// Journal head: 0 garbage collection, 1 base, 2 data.
    pub head: u32,
}

/// The change that one node of the journal makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// An inode node; the file's size.
    Inode { size: u64 },
    /// An inode node without links: the file is gone.
    Unlinked,
    /// A data node; where its bytes end in the file.
    Data { end: u64 },
    /// An entry node: the name, and whether it is gone.
    Name { name: Box<[u8]>, gone: bool },
    /// A truncation node.
    Truncate { old_size: u64, new_size: u64 },
}

/// One node of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) sequence: u64,
    pub(crate) key: Key,
    pub(crate) at: Location,
    pub(crate) change: Change,
}

/// The journal head of garbage collection.
const GC_HEAD: u32 = 0;

/// The log could not be followed; the buds are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLost;

/// The log as one read showed it.
#[derive(Clone, Debug)]
pub(crate) struct FoundLog {
    /// The LEBs of the journal.
    pub(crate) buds: Vec<Bud>,
    /// End of everything written: LEB and offset.
    pub(crate) head: (u32, u32),
    /// End of the last node, in the same LEB.
    pub(crate) end: u32,
    /// Commit start and references, each one once.
    pub(crate) nodes: Vec<u8>,
    /// The highest sequence number.
    pub(crate) sequence: u64,
    /// The end of the log, which may have been cut short.
    pub(crate) tail: Option<Held>,
    /// If authenticated: the hashes over commit start and references, up to that of each bud.
    pub(crate) hashes: Vec<Hasher>,
    /// If authenticated: the hash over all of them.
    pub(crate) hasher: Option<Hasher>,
}

/// What one read of the journal showed. A page whose write was cut short near its end may read
/// differently the next time, so writing relies on this and does not read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The log; `None` if it cannot be followed.
    pub(crate) log: Option<FoundLog>,
    pub(crate) buds: SeenBuds,
}

/// What one read of the buds showed besides their nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenBuds {
    /// Where each one ends.
    pub(crate) ends: Vec<BudEnd>,
    /// The highest sequence number.
    pub(crate) sequence: u64,
    /// The highest inode number in any node.
    pub(crate) inode: u64,
}

/// Where a bud ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudEnd {
    /// End of the last node that counts, or of everything written if not torn.
    pub(crate) at: u32,
    /// Something follows that is not a node, or nodes that do not count.
    pub(crate) is_torn: bool,
    /// Nothing was written to a later bud of its head, so its end may have been cut short even if
    /// it reads well.
    pub(crate) is_last: bool,
}

impl SeenBuds {
    fn note(&mut self, header: Header, bytes: &[u8], format: BranchFormat) {
        self.sequence = self.sequence.max(header.sequence);
        let inode = match Node::decode(header, bytes, format) {
            Ok(Node::Inode(node)) => node.key.inode().into(),
            Ok(Node::Data(node)) => node.key.inode().into(),
            Ok(Node::Entry(node)) => node.inode.max(node.key.inode().into()),
            _ => 0,
        };
        self.inode = self.inode.max(inode);
    }
}

/// Reads the log from the last commit on, once.
pub(crate) fn read_log<V: Volume>(
    store: &Store<V>,
    master: &Master,
    findings: &mut Vec<Finding>,
) -> Result<FoundLog, LogLost> {
    let (access, layout) = (&store.access, &store.layout);
    let found = FoundLog {
        buds: Vec::new(),
        head: (master.log_lnum, 0),
        end: 0,
        nodes: Vec::new(),
        sequence: 0,
        tail: None,
        hashes: Vec::new(),
        hasher: access.verify.map(Hasher::new),
    };
    let dirty = master.flags.contains(MasterFlags::DIRTY);
    let journal = Journal::new(&store.superblock, dirty);
    let (start, known) = (None, BTreeSet::new());
    let mut log = Log { access, layout, master, journal, findings, start, known, found };
    let lebs = layout.log.end - layout.log.start;
    for step in 0..lebs {
        let from_first = (master.log_lnum - layout.log.start + step) % lebs;
        match log.leb(layout.log.start + from_first) {
            Ok(true) => {}
            Ok(false) => break,
            Err(fault) => {
                log.findings.push(fault.finding(Severity::Inconsistent));
                return Err(LogLost);
            }
        }
    }
    Ok(log.found)
}

struct Log<'l, V> {
    access: &'l Access<V>,
    layout: &'l Layout,
    master: &'l Master,
    journal: Journal,
    findings: &'l mut Vec<Finding>,
    /// Sequence number of the commit start node.
    start: Option<u64>,
    /// The LEBs of the buds found.
    known: BTreeSet<u32>,
    found: FoundLog,
}

impl<V: Volume> Log<'_, V> {
    /// Reads one LEB of the log; `false` ends the log.
    fn leb(&mut self, lnum: u32) -> Result<bool, Fault> {
        let access = self.access;
        let fault = |offset, kind: NodeKind, cause| Fault {
            structure: if kind == NodeKind::Reference { "reference node" } else { "log" },
            place: access.place(lnum, offset),
            cause,
        };
        let mut scratch = Scratch::new();
        let leb = access.leb(lnum, &mut scratch).map_err(|c| fault(0, NodeKind::CommitStart, c))?;
        let end = Scan::new(leb, 0).end();
        let (mut any, mut good, mut is_torn) = (false, 0, false);
        for item in Scan::new(leb, 0) {
            match item {
                Item::Node { offset, header, bytes } => {
                    if self.start.is_some_and(|start| header.sequence < start) {
                        break;
                    }
                    self.node(offset, header, bytes)
                        .map_err(|cause| fault(offset, header.kind, cause))?;
                    (any, good) = (true, offset + align8(header.length));
                }
                Item::Garbage { range, error } => {
                    // The last write may be torn, and the first one of a commit cut short.
                    let some = any || self.start.is_some();
                    let torn = self.journal.dirty && some;
                    if !torn || !self.journal.is_last_write(leb, range.0, end) {
                        return Err(fault(range.0, NodeKind::CommitStart, Cause::Node(error)));
                    }
                    let problem = format!("the last write was cut short ({error})");
                    let place = access.place(lnum, range.0);
                    self.findings.push(finding(Severity::Note, "log", problem, place));
                    is_torn = true;
                    break;
                }
            }
        }
        if self.start.is_none() {
            return Err(fault(0, NodeKind::CommitStart, Cause::Mismatch("commit start")));
        }
        if any || is_torn {
            self.end_at(lnum, leb, (good, end));
        }
        Ok(any && !is_torn)
    }

    /// Ends the log here, unless it continues in the next LEB.
    fn end_at(&mut self, lnum: u32, leb: &[u8], (good, end): (u32, u32)) {
        self.found.head = (lnum, end.max(good));
        self.found.end = good;
        let tail = self.journal.tail(lnum, leb, (good, end));
        self.found.tail = self.journal.dirty.then_some(tail);
    }

    fn node(&mut self, offset: u32, header: Header, bytes: &[u8]) -> Result<(), Cause> {
        let parsed = Node::decode(header, bytes, BranchFormat::default()).map_err(Cause::Node)?;
        let found = &mut self.found;
        found.sequence = found.sequence.max(header.sequence);
        let mut is_new = false;
        match (parsed, self.start) {
            (Node::CommitStart(start), None) => {
                if start.commit != self.master.commit || offset != 0 {
                    return Err(Cause::Mismatch("commit number"));
                }
                self.start = Some(header.sequence);
                is_new = true;
            }
            (Node::CommitStart(_), Some(_)) if offset == 0 => {}
            (Node::Reference(reference), Some(_)) => {
                if reference.head as usize >= JOURNAL_HEADS {
                    return Err(field("jhead"));
                }
                if !self.layout.holds(&self.layout.main, reference.lnum, reference.offset, 0) {
                    return Err(field("lnum"));
                }
                let bud =
                    Bud { lnum: reference.lnum, start: reference.offset, head: reference.head };
                // A commit repeats the references of the buds that stay open.
                is_new = self.known.insert(bud.lnum);
                if is_new {
                    found.buds.push(bud);
                }
            }
            (Node::Authentication(_), _) => {}
            _ => return Err(Cause::Mismatch("type for a log")),
        }
        if let (true, Some(hasher)) = (is_new, &mut found.hasher) {
            hasher.update(bytes);
            if header.kind == NodeKind::Reference {
                found.hashes.push(hasher.clone());
            }
        }
        if is_new {
            found.nodes.extend_from_slice(bytes);
            found.nodes.resize(found.nodes.len().next_multiple_of(NODE_ALIGNMENT as usize), 0);
        }
        Ok(())
    }
}

/// What reading buds needs to know about the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Journal {
    pub(crate) format: BranchFormat,
    /// The file system was not cleanly unmounted.
    pub(crate) dirty: bool,
    /// Most bytes written at once; power loss damages no more than this.
    pub(crate) write_size: u32,
    /// Whether a single write never crosses a multiple of `write_size`. On NOR it may: the chip
    /// counts from the start of the block, and a LEB begins after two headers.
    pub(crate) is_aligned: bool,
    /// Writes begin and end at multiples of this.
    pub(crate) unit: u32,
}

impl Journal {
    /// NAND is written page by page. The size of a NOR chip's write buffer is not in the image; 1
    /// KiB is the largest of any chip in the field.
    pub(crate) fn new(superblock: &Superblock, dirty: bool) -> Self {
        let nor = superblock.min_io_size <= NODE_ALIGNMENT;
        let write_size = if nor { 1024 } else { superblock.min_io_size };
        let unit = superblock.min_io_size.max(NODE_ALIGNMENT);
        Self { format: superblock.branch_format(), dirty, write_size, is_aligned: !nor, unit }
    }

    /// The earliest start of a write that contains the byte before `end`.
    fn write_start(&self, end: u32) -> u32 {
        let size = self.write_size;
        if self.is_aligned { end.saturating_sub(1) / size * size } else { end.saturating_sub(size) }
    }

    /// The latest end of a write that contains the byte at `at`.
    fn write_end(&self, at: u64) -> u64 {
        let size = u64::from(self.write_size);
        if self.is_aligned { (at + 1).next_multiple_of(size) } else { at + size }
    }

    /// What may have been written last in a LEB, as read: from the write in which the good nodes
    /// end to the one after everything written.
    fn tail(&self, lnum: u32, leb: &[u8], (good, end): (u32, u32)) -> Held {
        let size = self.write_size;
        let start = self.write_start(good);
        let stop = u64::from(end.max(good)).next_multiple_of(size.into()) + u64::from(size);
        let stop = stop.min(leb.len() as u64) as usize;
        Held { lnum, offset: start, bytes: leb[start as usize..stop].into() }
    }

    /// Whether garbage at `start`, in a LEB erased from `end` on, can be the last write, cut short.
    fn is_last_write(&self, leb: &[u8], start: u32, end: u32) -> bool {
        let length = match Header::parse(&leb[start as usize..]) {
            // A whole header gives the node's length.
            Ok(header) => header.length,
            Err(NodeError::Magic(_)) => 1,
            // The header may extend into the torn page.
            Err(_) => HEADER_SIZE as u32,
        };
        let last = u64::from(start) + u64::from(length.max(1)) - 1;
        u64::from(end) <= self.write_end(last)
    }
}

/// The nodes of all buds, in the order they were written, and what else that read showed.
pub(crate) struct ReadBuds {
    pub(crate) entries: Vec<Entry>,
    pub(crate) seen: SeenBuds,
    /// The ends that may have been cut short.
    pub(crate) held: Vec<Held>,
    /// If authenticated: the first authentication node, or the first node after the last one, that
    /// is not as it was signed.
    pub(crate) forged: Option<Place>,
}

impl ReadBuds {
    fn forge(&mut self, place: Place) {
        self.forged.get_or_insert(place);
    }
}

/// Reads every bud, once.
pub(crate) fn read_buds<V: Volume>(
    access: &Access<V>,
    journal: &Journal,
    (buds, auth): (&[Bud], Option<(&mut Auth, &[Hasher])>),
    findings: &mut Vec<Finding>,
) -> ReadBuds {
    let mut read =
        ReadBuds { entries: Vec::new(), seen: SeenBuds::default(), held: Vec::new(), forged: None };
    let mut auth = auth;
    for ((at, bud), last) in buds.iter().enumerate().zip(last_of_heads(access, buds)) {
        let may_be_torn = journal.dirty && last;
        let grouped = bud.head != GC_HEAD;
        let part = Part { lnum: bud.lnum, start: bud.start, last, may_be_torn, grouped };
        let proving = auth.as_mut().and_then(|(auth, hashes)| {
            hashes.get(at).map(|hash| Proving { auth, hasher: hash.clone(), pending: Vec::new() })
        });
        let end = read_part(access, journal, (part, proving), (&mut read, findings));
        read.seen.ends.push(end);
    }
    read.entries.sort_by_key(|entry| entry.sequence);
    read
}

/// For each bud whether nothing was written to a later one of its head.
fn last_of_heads<V: Volume>(access: &Access<V>, buds: &[Bud]) -> Vec<bool> {
    let mut is_last = [true; JOURNAL_HEADS];
    let mut last = Vec::with_capacity(buds.len());
    for bud in buds.iter().rev() {
        // The log has no others.
        let Some(of_head) = is_last.get_mut(bud.head as usize) else {
            last.push(true);
            continue;
        };
        last.push(*of_head);
        *of_head &= !is_written(access, bud);
    }
    last.reverse();
    last
}

/// Whether anything was written to a bud.
fn is_written<V: Volume>(access: &Access<V>, bud: &Bud) -> bool {
    let start = Location { lnum: bud.lnum, offset: bud.start, length: 4 };
    let mut scratch = Scratch::new();
    access.bytes(start, &mut scratch).is_ok_and(|bytes| bytes != [0xff; 4])
}

/// A part of a LEB to read nodes from.
#[derive(Clone, Copy)]
struct Part {
    lnum: u32,
    start: u32,
    /// It is the last bud of its head.
    last: bool,
    /// The last write may have been cut short.
    may_be_torn: bool,
    /// Groups of nodes were written whole. (Garbage collection moves single nodes, unchanged.)
    grouped: bool,
}

/// Reads the nodes of a bud; returns where it ends.
fn read_part<V: Volume>(
    access: &Access<V>,
    journal: &Journal,
    (part, mut proving): (Part, Option<Proving<'_>>),
    (read, findings): (&mut ReadBuds, &mut Vec<Finding>),
) -> BudEnd {
    let mut scratch = Scratch::new();
    let mut found: Vec<(Group, Option<Entry>)> = Vec::new();
    let leb = match access.leb(part.lnum, &mut scratch) {
        Ok(leb) => leb,
        Err(cause) => {
            let place = access.place(part.lnum, part.start);
            findings.push(finding(Severity::Lost, "journal", format!("{cause}"), place));
            return BudEnd { at: access.leb_size, is_torn: false, is_last: part.last };
        }
    };
    let end = Scan::new(leb, part.start).end();
    // Ends of the last node, and of the last one outside an incomplete group.
    let (mut behind, mut good, mut is_torn) = (part.start, part.start, false);
    // Number of nodes that an authentication node covers.
    let mut covered = 0;
    for item in Scan::new(leb, part.start) {
        match item {
            Item::Node { offset, header, bytes } => {
                read.seen.note(header, bytes, journal.format);
                behind = offset + align8(header.length);
                match judge(&mut proving, part, (offset, header, bytes)) {
                    Verdict::Counts => (good, covered) = (behind, found.len()),
                    Verdict::Waits => {}
                    Verdict::Forged => read.forge(access.place(part.lnum, offset)),
                }
                match entry(part.lnum, offset, header, bytes, journal.format) {
                    Ok(entry) => found.push((header.group, entry)),
                    Err(cause) => {
                        let structure = header.kind.name();
                        let place = access.place(part.lnum, offset);
                        findings.push(Fault { structure, place, cause }.finding(Severity::Lost));
                    }
                }
            }
            Item::Garbage { range, error } => {
                is_torn = true;
                let place = access.place(part.lnum, range.0);
                if part.may_be_torn && journal.is_last_write(leb, range.0, end) {
                    let problem = format!("the last write was cut short ({error})");
                    findings.push(finding(Severity::Note, "journal", problem, place));
                    break;
                }
                let problem = format!("{} bytes are not a node ({error})", range.1 - range.0);
                findings.push(finding(Severity::Lost, "journal", problem, place));
                let damaged = damaged_data(part.lnum, range.0, leb);
                found.extend(damaged.map(|entry| (Group::None, Some(entry))));
            }
        }
    }
    if proving.is_none() {
        drop_incomplete_group(access, part, &mut found, findings);
    } else if good < behind {
        found.truncate(covered);
        drop_unauthenticated(access, (part, good), (read, findings));
    }
    if part.may_be_torn {
        read.held.push(journal.tail(part.lnum, leb, (good, end)));
    }
    read.entries.extend(found.into_iter().filter_map(|(_, entry)| entry));
    let end = end.max(behind);
    is_torn |= good < behind || !end.is_multiple_of(journal.unit);
    let at = if is_torn { good } else { end }.min(access.leb_size);
    BudEnd { at, is_torn, is_last: part.last }
}

/// Authenticates the nodes of a bud.
struct Proving<'a> {
    auth: &'a mut Auth,
    hasher: Hasher,
    /// Nodes that no authentication node covers yet.
    pending: Vec<(Location, Digest)>,
}

/// What authentication says about a node of a bud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It counts, with everything before it.
    Counts,
    /// It counts if a later one does.
    Waits,
    /// An authentication node that does not match what precedes it.
    Forged,
}

fn judge(
    proving: &mut Option<Proving<'_>>,
    part: Part,
    (offset, header, bytes): (u32, Header, &[u8]),
) -> Verdict {
    let Some(Proving { auth, hasher, pending }) = proving else {
        let more = part.grouped && header.group == Group::More;
        return if more { Verdict::Waits } else { Verdict::Counts };
    };
    if header.kind != NodeKind::Authentication {
        hasher.update(bytes);
        let at = Location { lnum: part.lnum, offset, length: header.length };
        pending.push((at, auth.hash(bytes)));
        return Verdict::Waits;
    }
    if !auth.vouches(hasher, bytes) {
        return Verdict::Forged;
    }
    pending.drain(..).for_each(|(at, hash)| auth.know(at, hash));
    Verdict::Counts
}

/// Drops unauthenticated nodes at the end of a head's last bud; in any other bud they are forged.
fn drop_unauthenticated<V: Volume>(
    access: &Access<V>,
    (part, good): (Part, u32),
    (read, findings): (&mut ReadBuds, &mut Vec<Finding>),
) {
    let place = access.place(part.lnum, good);
    if !part.last {
        read.forge(place);
    }
    let problem = String::from("nodes that nothing authenticates are dropped");
    findings.push(finding(Severity::Note, "journal", problem, place));
}

/// Drops nodes at the end whose group is incomplete.
fn drop_incomplete_group<V: Volume>(
    access: &Access<V>,
    part: Part,
    found: &mut Vec<(Group, Option<Entry>)>,
    findings: &mut Vec<Finding>,
) {
    let mut dropped = 0;
    while part.may_be_torn && part.grouped && matches!(found.last(), Some((Group::More, _))) {
        found.pop();
        dropped += 1;
    }
    if dropped != 0 {
        let (one, many) = ("node of an incomplete group is", "nodes of an incomplete group are");
        let problem = format!("{} dropped", counted(dropped, one, many));
        let place = access.place(part.lnum, part.start);
        findings.push(finding(Severity::Note, "journal", problem, place));
    }
}

/// What a node changes; `None` if it changes nothing.
pub(crate) fn entry(
    lnum: u32,
    offset: u32,
    header: Header,
    bytes: &[u8],
    format: BranchFormat,
) -> Result<Option<Entry>, Cause> {
    let at = Location { lnum, offset, length: header.length };
    let (key, change) = match Node::decode(header, bytes, format).map_err(Cause::Node)? {
        Node::Inode(node) if node.key != Key::inode_node(node.key.inode()) => {
            return Err(field("key"));
        }
        Node::Inode(node) if node.links == 0 => (node.key, Change::Unlinked),
        Node::Inode(node) => (node.key, Change::Inode { size: node.size }),
        Node::Data(node) => {
            if node.key != Key::data(node.key.inode(), node.key.value()) {
                return Err(field("key"));
            }
            let start = u64::from(node.key.value()) * u64::from(BLOCK_SIZE);
            (node.key, Change::Data { end: start + u64::from(node.size) })
        }
        Node::Entry(node) => {
            if node.key != Key::any_entry(node.kind, node.key.inode(), node.key.value()) {
                return Err(field("key"));
            }
            if node.name.is_empty() {
                return Err(field("nlen"));
            }
            (node.key, Change::Name { name: node.name.into(), gone: node.inode == 0 })
        }
        Node::Truncation(node) => {
            if node.new_size > node.old_size {
                return Err(field("new_size"));
            }
            let (old_size, new_size) = (node.old_size, node.new_size);
            (Key::inode_node(node.inode), Change::Truncate { old_size, new_size })
        }
        Node::Authentication(_) | Node::Index(_) | Node::Padding(_) => return Ok(None),
        _ => return Err(Cause::Mismatch("type for a journal")),
    };
    Ok(Some(Entry { sequence: header.sequence, key, at, change }))
}

/// An entry for a data node with an intact header but a wrong checksum, so that reading the block
/// returns an error instead of a hole.
pub(crate) fn damaged_data(lnum: u32, offset: u32, leb: &[u8]) -> Option<Entry> {
    let bytes = &leb[offset as usize..];
    let header = Header::parse(bytes).ok().filter(|it| it.kind == NodeKind::Data)?;
    let at = Location { lnum, offset, length: header.length };
    let key = Key::parse(bytes.get(HEADER_SIZE..)?)?;
    let end = u64::from(key.value()) * u64::from(BLOCK_SIZE);
    let is_data = key == Key::data(key.inode(), key.value());
    is_data.then_some(Entry { sequence: header.sequence, key, at, change: Change::Data { end } })
}

/// Blocks of content that a truncation removes, first and last.
pub(crate) fn truncated_blocks(old_size: u64, new_size: u64) -> Option<(u32, u32)> {
    let block = u64::from(BLOCK_SIZE);
    let first = new_size.div_ceil(block);
    let behind = old_size.div_ceil(block);
    if first >= behind {
        return None;
    }
    let limit = u64::from(Key::VALUE_MAX);
    (first <= limit).then(|| (first as u32, (behind - 1).min(limit) as u32))
}

/// What to report about a log that could not be followed.
pub(crate) fn lost_log() -> String {
    String::from(
        "the journal cannot be followed; all nodes are collected from the main area instead",
    )
}
