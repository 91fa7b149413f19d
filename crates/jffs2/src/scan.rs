//! One pass over the flash: uses summaries where blocks have them, and otherwise goes from node to
//! node.
//!
//! Theory. A node is recognised if the checksum of its header is right, and used if that of its
//! fixed part is. After anything else the scan continues at the next 4-byte boundary, as in Linux,
//! so that damage costs only what it hits. Where possible, the scan derives from the bytes what was
//! damaged: a file that lost a node must not show zeros in its place.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash::{Flash, FlashError, FlashGeometry, OobMode};
use flysch_wire::jffs2::{
    ByteOrder, Compatibility, Dirent, Header, Inode, Jffs2NodeError as NodeError, NodeType,
    Summary, SummaryEntry, SummaryTrailer, Xattr, Xref, crc32, oob_cleanmarker, padded,
};

use crate::found::{
    Address, BlockFound, DirentRef, Found, NodeRef, Problem, Wrong, XattrRef, XrefRef,
};
use crate::stamp::Stamp;

/// Longest node that is read across the end of a block.
const CROSSING_MAX: u32 = 128 << 10;

/// Smallest image that is suspected of being truncated, bytes.
const CUT_OFF_MIN: u64 = 64 << 10;

/// Whether summaries may be used instead of the nodes they list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summaries {
    /// Trust them if their checksums are right: fast.
    Use,
    /// Read every node: thorough.
    Verify,
}

/// Scans `flash`. Errors in the pages `torn`, given as byte ranges, come from writes that a power
/// cut interrupted.
///
/// # Errors
/// If the flash refuses altogether; blocks that cannot be read are skipped.
pub(crate) fn scan<F: Flash>(
    flash: &F,
    order: ByteOrder,
    summaries: Summaries,
    torn: &[Range<u64>],
) -> Result<Found, FlashError> {
    let geometry = *flash.geometry();
    let largest = (0..geometry.blocks().min(1)).map(|b| geometry.block_len(b)).max().unwrap_or(0);
    let mut buffer = vec![0; largest as usize];
    let mut scanner = Scanner {
        flash,
        order,
        summaries,
        torn,
        after_erased: false,
        listed: vec![],
        block: 0,
        found: Found::default(),
    };
    let mut resume = 0;
    scanner.found.blocks = vec![BlockFound::default(); geometry.blocks() as usize];
    for block in 0..geometry.blocks() {
        scanner.block = block as usize;
        if flash.is_bad(block)? {
            scanner.found.space.bad_blocks += 1;
            scanner.facts().is_bad = true;
            continue;
        }
        let base = geometry.block_start(block);
        let bytes = &mut buffer[..geometry.block_len(block) as usize];
        if summaries == Summaries::Use && resume <= base && scanner.by_summary(base, bytes)? {
            continue;
        }
        let may_trust = summaries == Summaries::Use && resume <= base;
        if may_trust && is_marked_empty(flash, base, order) {
            scanner.found.space.erased += bytes.len() as u64;
            continue;
        }
        match flash.read(base, bytes) {
            // Bits beyond repair show in the checksums of the nodes they are in.
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => {}
            Err(error @ FlashError::Os(_)) => {
                scanner.problem(base, Wrong::Unreadable(error));
                scanner.facts().end = geometry.block_len(block);
                continue;
            }
            Err(other) => return Err(other),
        }
        resume = scanner.walk(base, bytes, resume.max(base) - base);
    }
    let mut found = scanner.found;
    found.may_miss_nodes |= ends_abruptly(flash)?;
    found.may_miss_nodes |= found.problems_dropped != 0
        || found.problems.iter().any(|problem| !matches!(problem.wrong, Wrong::Unfinished { .. }));
    Ok(found)
}

/// Bytes to examine on both sides of the end if there are no pages: more than any write buffer has.
pub(crate) const BYTES: u32 = 1024;

/// Position in a block of the page that was written last. Without pages, the same length on both
/// sides of the end: relative to a block of UBI a write buffer may begin anywhere, and a write that
/// was interrupted early may read as erased.
pub(crate) fn last_page(geometry: &FlashGeometry, block: u32, written: u32) -> Range<u32> {
    let unit = geometry.write_size;
    let first = written.saturating_sub(1);
    let (start, end) = match unit {
        0 | 1 => (written.saturating_sub(BYTES), written.saturating_add(BYTES)),
        _ => (first / unit * unit, (first / unit * unit).saturating_add(unit)),
    };
    start..end.min(geometry.block_len(block))
}

/// Whether the block at `base` was completely erased, according to its out-of-band clean marker,
/// and not written since: blocks are filled from their first page on.
fn is_marked_empty<F: Flash>(flash: &F, base: u64, order: ByteOrder) -> bool {
    let geometry = flash.geometry();
    if !geometry.kind.is_nand() || geometry.oob_available < 8 {
        return false;
    }
    let mut marker = [0; 8];
    let is_read = flash.read_oob(base, OobMode::Auto, &mut marker).is_ok();
    if !is_read || marker != oob_cleanmarker(order) {
        return false;
    }
    let mut page = vec![0; geometry.write_size as usize];
    flash.read(base, &mut page).is_ok() && erased_len(&page) == page.len()
}

/// Whether the image of a flash ends with written bytes: it may have been truncated there. Tiny
/// handmade images are not suspected.
fn ends_abruptly<F: Flash>(flash: &F) -> Result<bool, FlashError> {
    let size = flash.geometry().size;
    let mut tail = [0xFF; 4];
    if size >= CUT_OFF_MIN {
        match flash.read(size - tail.len() as u64, &mut tail) {
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => {}
            Err(FlashError::Os(_)) => return Ok(true),
            Err(other) => return Err(other),
        }
    }
    Ok(tail != [0xFF; 4])
}

/// Whether all bits are set, without early exit.
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().fold(0xFF, |all, byte| all & byte) == 0xFF
}

/// Number of erased bytes at the start of `bytes`.
fn erased_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    for chunk in bytes.chunks(64) {
        if chunk.len() == 64 && is_blank(chunk) {
            len += 64;
            continue;
        }
        return len + chunk.iter().take_while(|&&byte| byte == 0xFF).count();
    }
    len
}

/// Bytes up to the last one that is not erased, rounded up to a 4-byte boundary.
fn written_len(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    while end >= 64 && is_blank(&bytes[end - 64..end]) {
        end -= 64;
    }
    let len = bytes[..end].iter().rposition(|&byte| byte != 0xFF).map_or(0, |last| last + 1);
    len.next_multiple_of(4).min(bytes.len())
}

struct Scanner<'f, F> {
    flash: &'f F,
    order: ByteOrder,
    summaries: Summaries,
    /// Pages known to be torn.
    torn: &'f [Range<u64>],
    /// An erased block without a clean marker was found, with nothing written since.
    after_erased: bool,
    /// Offsets in the block of the nodes that a summary must list.
    listed: Vec<u32>,
    /// The block being scanned.
    block: usize,
    found: Found,
}

impl<F: Flash> Scanner<'_, F> {
    fn facts(&mut self) -> &mut BlockFound {
        &mut self.found.blocks[self.block]
    }

    fn problem(&mut self, offset: u64, wrong: Wrong) {
        self.found.problem(Problem { offset, wrong, ino: None, entry: None });
    }

    /// [`is_cut_off`](crate::node::is_cut_off); a node is damaged if the flash does not give what
    /// would tell.
    fn is_cut_off(&mut self, offset: u64, len: u64) -> bool {
        let verdict = crate::node::is_cut_off(self.flash, self.order, offset, len);
        verdict.unwrap_or_else(|error| {
            self.problem(offset, Wrong::Unreadable(error));
            false
        })
    }

    /// Whether any of these bytes are in a page known to be torn.
    fn is_torn(&self, offset: u64, len: u64) -> bool {
        self.torn.iter().any(|page| page.start < offset.saturating_add(len) && offset < page.end)
    }

    /// Takes the nodes of the block at `base` from its summary; returns whether it has a valid one.
    /// A summary says nothing about the nodes with which it was programmed: a block with a torn
    /// page is read node by node. `block` is scratch space with the length of the block.
    fn by_summary(&mut self, base: u64, block: &mut [u8]) -> Result<bool, FlashError> {
        if self.is_torn(base, block.len() as u64) {
            return Ok(false);
        }
        let Some(trailer_at) = block.len().checked_sub(SummaryTrailer::LEN) else {
            return Ok(false);
        };
        let (_, tail) = block.split_at_mut(trailer_at);
        if self.flash.read(base + trailer_at as u64, tail).is_err() {
            return Ok(false);
        }
        let Some(trailer) = SummaryTrailer::parse(tail, self.order) else { return Ok(false) };
        let start = trailer.offset as usize;
        if start > trailer_at || !start.is_multiple_of(4) {
            return Ok(false);
        }
        let node = &mut block[start..];
        if self.flash.read(base + start as u64, node).is_err() {
            return Ok(false);
        }
        let Ok(summary) = Summary::parse(node, self.order) else { return Ok(false) };
        let entries: Result<Vec<_>, _> = summary.entries(node, self.order).collect();
        let Ok(entries) = entries else { return Ok(false) };
        let is_possible = is_possible(&entries, summary.padded, start as u64);
        if is_possible {
            entries.iter().for_each(|entry| self.summary_entry(base, entry));
            self.found.space.summaries += 1;
            self.found.space.clean_markers += u32::from(summary.cleanmarker_len != 0);
            *self.facts() = BlockFound {
                is_bad: false,
                end: (trailer_at + SummaryTrailer::LEN) as u32,
                written: (trailer_at + SummaryTrailer::LEN) as u32,
                last: None,
                has_summary: true,
                cleanmarker_len: summary.cleanmarker_len,
                padded: summary.padded,
                stamp: None,
            };
            self.found.may_miss_nodes |= self.after_erased;
        }
        Ok(is_possible)
    }

    fn summary_entry(&mut self, base: u64, entry: &SummaryEntry<'_>) {
        let at = |offset: u32| Address::new(base + u64::from(offset));
        match *entry {
            SummaryEntry::Inode { ino, version, offset, total_len } => {
                self.found.nodes.push(NodeRef { ino, version, address: at(offset), total_len });
            }
            SummaryEntry::Dirent { offset, pino, version, ino, kind, name, .. } => {
                let address = at(offset);
                let dirent =
                    DirentRef { pino, version, ino, address, name_at: 0, name_len: 0, kind };
                self.found.dirent(dirent, name);
            }
            SummaryEntry::Xattr { xid, version, offset, total_len } => {
                self.found.xattrs.push(XattrRef { xid, version, address: at(offset), total_len });
            }
            SummaryEntry::Xref { offset } => {
                let mut node = [0; Xref::LEN];
                let offset = base + u64::from(offset);
                match self.flash.read(offset, &mut node) {
                    Ok(_) | Err(FlashError::Uncorrectable { .. }) => self.xref(offset, &node),
                    Err(error) => self.problem(offset, Wrong::Unreadable(error)),
                }
            }
        }
    }

    /// Goes from node to node through `bytes`, a block that starts at `base`; returns the earliest
    /// position at which the scan of the next block may begin.
    fn walk(&mut self, base: u64, bytes: &[u8], start: u64) -> u64 {
        let mut at = usize::try_from(start).unwrap_or(usize::MAX).min(bytes.len());
        self.listed.clear();
        let written = written_len(bytes) as u32;
        (self.facts().end, self.facts().written) = (written, written);
        if written > 0 {
            let page = last_page(self.flash.geometry(), self.block as u32, written);
            let page = bytes.get(page.start as usize..page.end as usize);
            self.facts().last = page.map(crc32);
        }
        if erased_len(bytes) == bytes.len() {
            self.found.space.erased += bytes.len() as u64;
            self.after_erased = true;
            return base + bytes.len() as u64;
        }
        self.found.may_miss_nodes |= self.after_erased;
        let mut garbage: Option<usize> = None;
        let mut resume = base + bytes.len() as u64;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if rest.starts_with(&[0xFF; 4]) {
                // A few ones may be part of garbage; they end it all the same.
                self.end_garbage(base, bytes, &mut garbage, at);
                let len = (erased_len(rest) & !3).max(4);
                self.found.space.erased += len.min(rest.len()) as u64;
                at += len;
                continue;
            }
            let offset = base + at as u64;
            let len = match Header::parse(rest, self.order) {
                Ok(header) => self.node(base, at, header, rest),
                Err(_) => headerless(rest, self.order).map(|header| {
                    let node = &rest[..rest.len().min(header.total_len as usize)];
                    self.bad_node(offset, node, Wrong::Header, header.node_type);
                    padded(header.total_len)
                }),
            };
            match len {
                Some(len) => {
                    self.end_garbage(base, bytes, &mut garbage, at);
                    // Every scan steps over the whole node, whatever of it was written.
                    let end = (at as u64 + len).min(bytes.len() as u64) as u32;
                    self.facts().end = self.facts().end.max(end);
                    resume = resume.max(offset + len);
                    at = usize::try_from(at as u64 + len).unwrap_or(usize::MAX);
                }
                None => {
                    garbage.get_or_insert(at);
                    at += 4;
                }
            }
        }
        self.end_garbage(base, bytes, &mut garbage, bytes.len());
        resume
    }

    /// Takes a node with a valid header; returns its length with padding, or `None` if it cannot
    /// have that length. `rest` reaches to the end of the block.
    fn node(&mut self, base: u64, at: usize, header: Header, rest: &[u8]) -> Option<u64> {
        let offset = base + at as u64;
        let total_len = header.total_len;
        if (total_len as usize) < Header::LEN {
            return None;
        }
        let mut crossing = vec![];
        let node = match rest.get(..total_len as usize) {
            Some(node) => node,
            None => {
                crossing = self.read_crossing(offset, total_len)?;
                self.problem(offset, Wrong::CrossesBlock);
                &crossing[..]
            }
        };
        if header.node_type == NodeType::SUMMARY && crossing.is_empty() {
            self.summary(base, at, node);
        } else if header.node_type.is_accurate() {
            self.accurate_node(offset, header, node);
            if is_listed(header.node_type) {
                self.listed.push(at as u32);
            }
        }
        Some(padded(total_len))
    }

    fn accurate_node(&mut self, offset: u64, header: Header, node: &[u8]) {
        let address = Address::new(offset);
        let total_len = header.total_len;
        match header.node_type {
            NodeType::INODE => match Inode::parse(node, self.order) {
                Ok(Inode { ino, version, .. }) => {
                    self.found.nodes.push(NodeRef { ino, version, address, total_len });
                }
                Err(error) => self.bad_node(offset, node, Wrong::Node(error), NodeType::INODE),
            },
            NodeType::DIRENT => self.dirent(offset, node),
            NodeType::XATTR => match Xattr::parse(node, self.order) {
                // Garbage collection may have been copying it: the good copy counts.
                Ok(xattr) if self.is_xattr_torn(offset, &xattr, node) => {
                    self.problem(offset, Wrong::Unfinished { len: node.len() as u64 });
                    let Xattr { xid, version, .. } = xattr;
                    self.found.torn_xattrs.push(XattrRef { xid, version, address, total_len });
                }
                Ok(Xattr { xid, version, .. }) => {
                    self.found.xattrs.push(XattrRef { xid, version, address, total_len });
                }
                Err(error) => self.bad_node(offset, node, Wrong::Node(error), NodeType::XATTR),
            },
            NodeType::XREF => self.xref(offset, node),
            NodeType::CLEANMARKER => {
                self.found.space.clean_markers += 1;
                let block_start = self.flash.geometry().block_start(self.block as u32);
                if offset == block_start {
                    self.facts().cleanmarker_len = total_len;
                }
            }
            NodeType::PADDING => {
                let facts = self.facts();
                facts.padded += padded(total_len) as u32;
                let stamp = Stamp::parse(node);
                facts.stamp = stamp.or(facts.stamp);
                self.found.stamps.extend(stamp.map(|stamp| (offset, stamp)));
            }
            other => match other.compatibility() {
                Compatibility::Incompatible => {
                    self.problem(offset, Wrong::Incompatible(other.0));
                    self.found.is_read_only = true;
                }
                Compatibility::ReadOnly => self.found.is_read_only = true,
                Compatibility::Copy => self.found.others.push((address, total_len)),
                Compatibility::Delete => {}
            },
        }
    }

    /// Whether the name and value of an attribute were not written completely.
    fn is_xattr_torn(&mut self, offset: u64, xattr: &Xattr, node: &[u8]) -> bool {
        let end = Xattr::LEN + usize::from(xattr.name_len) + 1 + usize::from(xattr.value_len);
        xattr.name_and_value(node).is_err()
            && (node.get(end - 1) == Some(&0xFF) || self.is_cut_off(offset, node.len() as u64))
    }

    fn dirent(&mut self, offset: u64, node: &[u8]) {
        let parsed = Dirent::parse(node, self.order);
        match parsed.and_then(|dirent| Ok((dirent, dirent.name(node)?))) {
            Ok((Dirent { pino, version, ino, kind, .. }, name)) => {
                let address = Address::new(offset);
                let dirent =
                    DirentRef { pino, version, ino, address, name_at: 0, name_len: 0, kind };
                self.found.dirent(dirent, name);
            }
            Err(error) => self.bad_node(offset, node, Wrong::Node(error), NodeType::DIRENT),
        }
    }

    fn xref(&mut self, offset: u64, node: &[u8]) {
        let address = Address::new(offset);
        match Xref::parse(node, self.order) {
            Ok(Xref { ino, xid, xseqno }) => {
                self.found.xrefs.push(XrefRef { ino, xid, xseqno, address });
            }
            Err(error) => self.bad_node(offset, node, Wrong::Node(error), NodeType::XREF),
        }
    }

    /// A summary found along the way: the nodes of its block are already known.
    fn summary(&mut self, base: u64, at: usize, node: &[u8]) {
        self.found.space.summaries += 1;
        let offset = base + at as u64;
        // Nothing can be written behind it.
        self.facts().end = (at + node.len()) as u32;
        if node.ends_with(&[0xFF; 4]) {
            // Its last word is never erased once it was written.
            self.problem(offset, Wrong::Unfinished { len: node.len() as u64 });
            return;
        }
        if self.summaries == Summaries::Use {
            return;
        }
        let entries = Summary::parse(node, self.order)
            .and_then(|summary| summary.entries(node, self.order).collect::<Result<Vec<_>, _>>());
        match entries {
            Err(error) => {
                let len = node.len() as u64;
                let wrong = if self.is_cut_off(offset, len) {
                    Wrong::Unfinished { len }
                } else {
                    Wrong::Summary(error)
                };
                self.problem(offset, wrong);
            }
            Ok(entries) => {
                let mut offsets: Vec<u32> = entries.iter().map(SummaryEntry::offset).collect();
                offsets.sort_unstable();
                // A damaged node is a finding of its own; one that a power cut left before others
                // went on in the block is not listed.
                let is_damaged = |o: &u32| {
                    self.found.problems.iter().rev().any(|p| p.offset == base + u64::from(*o))
                };
                let missing =
                    self.listed.iter().any(|o| offsets.binary_search(o).is_err() && !is_damaged(o));
                let extra =
                    offsets.iter().any(|o| self.listed.binary_search(o).is_err() && !is_damaged(o));
                if missing || extra {
                    self.problem(offset, Wrong::SummaryMismatch);
                }
            }
        }
    }

    /// Records a damaged node, with what its bytes say about its owner.
    fn bad_node(&mut self, offset: u64, node: &[u8], wrong: Wrong, kind: NodeType) {
        let mut problem = Problem { offset, wrong, ino: None, entry: None };
        let is_node = matches!(wrong, Wrong::Node(_) | Wrong::Header);
        let len = node.len() as u64;
        if is_unfinished(node, wrong, kind)
            || self.is_torn(offset, len)
            || (is_node && self.is_cut_off(offset, len))
        {
            problem.wrong = Wrong::Unfinished { len: node.len() as u64 };
            self.found.problem(problem);
            return;
        }
        if kind == NodeType::INODE {
            problem.ino = Inode::parse_unchecked(node, self.order).map(|inode| inode.ino);
        } else if kind == NodeType::DIRENT
            && let Some(dirent) = Dirent::parse_unchecked(node, self.order)
        {
            let name = node[Dirent::LEN..].iter().take(usize::from(dirent.nsize));
            problem.ino = Some(dirent.ino).filter(|&ino| ino != 0);
            problem.entry = Some((dirent.pino, name.copied().collect()));
        }
        self.found.problem(problem);
    }

    /// A node that extends beyond the end of its block, or of a truncated image. The block size is
    /// considered wrong only if the whole node is valid.
    fn read_crossing(&self, offset: u64, total_len: u32) -> Option<Vec<u8>> {
        if total_len > CROSSING_MAX {
            return None;
        }
        let mut node = vec![0; total_len as usize];
        if self.flash.read(offset, &mut node).is_err() {
            return None;
        }
        crate::node::is_whole(&node, self.order).then_some(node)
    }

    /// Ends a run of garbage at `end`; zeros are what Linux uses to fill gaps.
    fn end_garbage(&mut self, base: u64, bytes: &[u8], garbage: &mut Option<usize>, end: usize) {
        let Some(start) = garbage.take() else { return };
        let run = &bytes[start..end];
        if run.iter().all(|&byte| byte == 0) {
            return;
        }
        let offset = base + start as u64;
        if let Some((wrong, kind)) = self.cut_short(offset, run) {
            self.bad_node(offset, run, wrong, kind);
            return;
        }
        let is_last = erased_len(&bytes[end..]) == bytes.len() - end;
        let len = run.len() as u64;
        let is_torn = is_last || self.is_torn(offset, len) || self.is_begun(offset, run);
        let wrong = if is_torn { Wrong::Unfinished { len } } else { Wrong::Garbage { len } };
        self.problem(offset, wrong);
    }

    /// Whether the garbage `run` is the beginning of a node whose rest, in the next page, was not
    /// written: power failed between the two, and the next mount went on behind it.
    fn is_begun(&self, offset: u64, run: &[u8]) -> bool {
        let page = u64::from(self.flash.geometry().write_size.max(1));
        run.len() < Header::LEN
            && run.starts_with(&self.magic())
            && (offset + run.len() as u64).is_multiple_of(page)
    }

    /// Whether the garbage `run` is the beginning of a node for which the image has no room, and of
    /// which type. Without the whole header this is known only if the image ends within a block.
    fn cut_short(&self, offset: u64, run: &[u8]) -> Option<(Wrong, NodeType)> {
        let geometry = self.flash.geometry();
        if let Ok(header) = Header::parse(run, self.order) {
            let ends = offset + u64::from(header.total_len) > geometry.size;
            let wrong = Wrong::CutShort { len: Some(header.total_len) };
            return ends.then_some((wrong, header.node_type));
        }
        let ends = offset + run.len() as u64 == geometry.size
            && !geometry.size.is_multiple_of(geometry.erase_size.into())
            && run.len() < Header::LEN;
        let len = run.len().min(2);
        let is_header = ends && run[..len] == self.magic()[..len];
        is_header.then_some((Wrong::CutShort { len: None }, NodeType(0)))
    }

    /// The bytes with which every node begins.
    fn magic(&self) -> [u8; 2] {
        let mut header = [0; Header::LEN];
        Header { node_type: NodeType::INODE, total_len: 0 }.emit(self.order, &mut header);
        [header[0], header[1]]
    }
}

/// Whether a node was not written completely: everything from the wrong checksum on is still
/// erased.
fn is_unfinished(node: &[u8], wrong: Wrong, kind: NodeType) -> bool {
    let erased_from = match (wrong, kind) {
        // The checksum itself may be half written if enough erased bytes follow.
        (Wrong::Node(NodeError::NodeCrc), NodeType::INODE) if node.len() >= Inode::LEN + 4 => {
            Inode::LEN - 1
        }
        (Wrong::Node(NodeError::NodeCrc), NodeType::INODE) => Inode::LEN - 4,
        (Wrong::Node(NodeError::NodeCrc), NodeType::XATTR) => Xattr::LEN - 1,
        (Wrong::Node(NodeError::NodeCrc), NodeType::XREF) => Xref::LEN - 1,
        (Wrong::Node(NodeError::NodeCrc), _) => Dirent::LEN - 5,
        (Wrong::Node(NodeError::NameCrc), _) => node.len().saturating_sub(1),
        _ => return false,
    };
    node.get(erased_from..).is_some_and(|rest| erased_len(rest) == rest.len())
}

/// Whether a summary has an entry for nodes of this type.
fn is_listed(node_type: NodeType) -> bool {
    matches!(node_type, NodeType::INODE | NodeType::DIRENT | NodeType::XATTR | NodeType::XREF)
}

/// Whether a block can hold what its summary says: all nodes side by side before the summary, which
/// begins at `end`, and besides them this many bytes of padding nodes. Otherwise a small summary
/// could name the same long node again and again, and each time it would be read.
fn is_possible(entries: &[SummaryEntry<'_>], padding: u32, end: u64) -> bool {
    // With the least length that such a node has.
    let place = |entry: &SummaryEntry<'_>| match *entry {
        SummaryEntry::Inode { offset, total_len, .. } => (offset, total_len, Inode::LEN),
        SummaryEntry::Xattr { offset, total_len, .. } => (offset, total_len, Xattr::LEN),
        SummaryEntry::Dirent { offset, total_len, name, .. } => {
            (offset, total_len, Dirent::LEN + name.len())
        }
        SummaryEntry::Xref { offset } => (offset, Xref::LEN as u32, Xref::LEN),
    };
    // In the order in which the nodes were written, but nothing demands that.
    let mut places: Vec<_> = entries.iter().map(place).collect();
    places.sort_unstable();
    let (mut at, mut taken) = (0, u64::from(padding));
    for (offset, len, least) in places {
        let (offset, space) = (u64::from(offset), padded(len));
        if offset < at || !offset.is_multiple_of(4) || (len as usize) < least {
            return false;
        }
        at = offset + space;
        taken += space;
    }
    at <= end && taken <= end
}

/// Recognises an inode or directory entry node with a damaged header: the checksum of its fixed
/// part also covers the original header, which can be derived from the fields after it. The magic
/// number or the type must have survived.
fn headerless(bytes: &[u8], order: ByteOrder) -> Option<Header> {
    let words = bytes.first_chunk::<4>()?;
    for node_type in [NodeType::INODE, NodeType::DIRENT] {
        let mut expected = [0; Header::LEN];
        Header { node_type, total_len: 0 }.emit(order, &mut expected);
        if words[..2] != expected[..2] && words[2..] != expected[2..4] {
            continue;
        }
        let fixed_len = if node_type == NodeType::INODE { Inode::LEN } else { Dirent::LEN };
        let Some(fixed) = bytes.get(..fixed_len) else { continue };
        let (owner, payload) = if node_type == NodeType::INODE {
            let inode = Inode::parse_unchecked(fixed, order)?;
            (inode.ino, inode.csize)
        } else {
            let dirent = Dirent::parse_unchecked(fixed, order)?;
            (dirent.pino, u32::from(dirent.nsize))
        };
        // Behind any header the checksum of zeros is zero.
        if owner == 0 {
            continue;
        }
        let header = Header { node_type, total_len: (fixed_len as u32).checked_add(payload)? };
        let mut copy = [0; Inode::LEN];
        let copy = &mut copy[..fixed_len];
        copy.copy_from_slice(fixed);
        header.emit(order, copy);
        let good = if node_type == NodeType::INODE {
            Inode::parse(copy, order).is_ok()
        } else {
            Dirent::parse(copy, order).is_ok()
        };
        if good {
            return Some(header);
        }
    }
    None
}
