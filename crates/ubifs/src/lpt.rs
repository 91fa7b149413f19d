//! The tree of LEB properties in memory, and how it is written to the flash.
//!
//! The tree's shape never changes, so it is held as one array per level. A commit appends the
//! changed nodes at `nhead`, children before parents; the small model writes all of them. The old
//! copy of a node becomes dirt in one of the tree's own LEBs, counted by `ltab`. A LEB with nothing
//! but dirt is free again once the commit that says so is complete.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::volume::Volume;
use flysch_wire::ubifs::lpt::{
    LebProperties, LptError, LptFormat, LptKind, LptPlace, Lsave, Ltab, Nnode, Pnode,
};
use flysch_wire::ubifs::{DATA_NODE_SIZE, INLINE_DATA_MAX, INODE_NODE_SIZE, LPT_FANOUT, Master};

use crate::access::{Access, Cause, Fault, Scratch};
use crate::auth::{Digest, HashAlgorithm, Hasher};
use crate::location::Location;

/// A node of the tree.
#[derive(Clone, Copy, Debug, Default)]
struct Cnode {
    /// `None`: never written, everything below is empty.
    place: Option<LptPlace>,
    dirty: bool,
}

/// One of the tree's own LEBs.
#[derive(Clone, Copy, Debug)]
struct TreeLeb {
    free: u32,
    dirty: u32,
    /// Not reusable until the commit is complete: the previous commit may need its content.
    held: bool,
}

/// A part of the tree to write.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Lsave,
    Ltab,
    Node { level: usize, at: usize },
}

/// Bytes for one of the tree's LEBs. If `offset` is 0 the LEB must be unmapped first.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) lnum: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: Vec<u8>,
}

/// None of the tree's LEBs is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeFull;

impl From<TreeFull> for flysch_api::vfs::FsError {
    fn from(TreeFull: TreeFull) -> Self {
        Self::NoSpace
    }
}

/// The tree of LEB properties.
#[derive(Clone, Debug)]
pub(crate) struct Lpt {
    format: LptFormat,
    /// Write unit, bytes.
    unit: u32,
    /// The properties in the tree on the flash, four per leaf.
    stored: Vec<LebProperties>,
    /// Leaves first, the root last.
    levels: Vec<Vec<Cnode>>,
    tree_lebs: Vec<TreeLeb>,
    /// Where the next write goes.
    head: LptPlace,
    ltab: Option<LptPlace>,
    lsave: Option<LptPlace>,
}

impl Lpt {
    /// A tree of empty LEBs, none of it written yet.
    pub(crate) fn new(format: LptFormat, unit: u32) -> Self {
        let empty = LebProperties { free: format.leb_size, dirty: 0, index: false };
        let pnodes = format.pnodes() as usize;
        let mut levels = alloc::vec![alloc::vec![Cnode::default(); pnodes]];
        for level in 1..=format.height {
            let nodes = pnodes.div_ceil(LPT_FANOUT.pow(level)).max(1);
            levels.push(alloc::vec![Cnode::default(); nodes]);
        }
        let free = TreeLeb { free: format.leb_size, dirty: 0, held: false };
        Self {
            format,
            unit,
            stored: alloc::vec![empty; pnodes * LPT_FANOUT],
            levels,
            tree_lebs: alloc::vec![free; format.lebs as usize],
            head: LptPlace { lnum: format.first, offset: 0 },
            ltab: None,
            lsave: None,
        }
    }

    /// Makes a tree that has not been written yet begin in the LEB after `lnum`, if `lnum` is one
    /// of its LEBs.
    pub(crate) fn begin_behind(&mut self, lnum: u32) {
        let (first, lebs) = (self.format.first, self.format.lebs);
        if (first..first + lebs).contains(&lnum) {
            self.head = LptPlace { lnum: first + (lnum - first + 1) % lebs, offset: 0 };
        }
    }

    /// Reads the tree that `master` points to.
    pub(crate) fn read<V: Volume>(
        access: &Access<V>,
        (format, unit): (LptFormat, u32),
        master: &Master,
    ) -> Result<Self, Fault> {
        let mut lpt = Self::new(format, unit);
        lpt.head = LptPlace { lnum: master.nhead_lnum, offset: master.nhead_offs };
        lpt.ltab = Some(LptPlace { lnum: master.ltab_lnum, offset: master.ltab_offs });
        lpt.lsave =
            format.big.then_some(LptPlace { lnum: master.lsave_lnum, offset: master.lsave_offs });
        let top = lpt.levels.len() - 1;
        lpt.levels[top][0].place =
            Some(LptPlace { lnum: master.lpt_lnum, offset: master.lpt_offs });
        let reader = Reader { access, format };
        for level in (1..=top).rev() {
            for at in 0..lpt.levels[level].len() {
                let Some(place) = lpt.levels[level][at].place else { continue };
                let nnode = reader.node(LptKind::Nnode, place, Nnode::parse)?;
                let below = lpt.levels[level - 1].iter_mut().skip(at * LPT_FANOUT);
                for (cnode, child) in below.zip(nnode.children) {
                    cnode.place = child;
                }
            }
        }
        for (at, cnode) in lpt.levels[0].iter().enumerate() {
            let Some(place) = cnode.place else { continue };
            let pnode = reader.node(LptKind::Pnode, place, Pnode::parse)?;
            lpt.stored[at * LPT_FANOUT..][..LPT_FANOUT].copy_from_slice(&pnode.lebs);
        }
        let place = LptPlace { lnum: master.ltab_lnum, offset: master.ltab_offs };
        let entries: Vec<(u32, u32)> = reader.node(LptKind::Ltab, place, |bytes, format| {
            Ltab::parse(bytes, format).map(|ltab| ltab.entries().collect())
        })?;
        for (leb, (free, dirty)) in lpt.tree_lebs.iter_mut().zip(entries) {
            *leb = TreeLeb { free, dirty, held: false };
        }
        Ok(lpt)
    }

    /// How the table of the tree's own LEBs, or the place of the next write, contradicts where the
    /// nodes in use lie; `None` if neither does.
    ///
    /// A commit writes where these say that nothing is in use, and recovery erases it. A byte that
    /// is neither in use nor counted as free or dirty is only wasted.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let mut live = alloc::vec![(0_u32, 0_u32); self.tree_lebs.len()];
        for (place, size) in self.places() {
            let (bytes, end) = &mut live[(place.lnum - self.format.first) as usize];
            *bytes = bytes.saturating_add(size);
            *end = (*end).max(place.offset.saturating_add(size));
        }
        let lebs = (self.format.first..).zip(self.tree_lebs.iter().zip(live));
        for (lnum, (leb, (bytes, end))) in lebs {
            let written = self.format.leb_size - leb.free;
            if end > written || bytes.saturating_add(leb.dirty) > written {
                return Some(format!(
                    "LEB {lnum}: {} bytes free and {} dirty, but {bytes} are in use, up to offset \
                     {end}",
                    leb.free, leb.dirty
                ));
            }
            if lnum == self.head.lnum && end > self.head.offset {
                return Some(format!(
                    "LEB {lnum}: writing continues at offset {}, but bytes up to {end} are in use",
                    self.head.offset
                ));
            }
        }
        None
    }

    /// Place and size of everything in use.
    fn places(&self) -> impl Iterator<Item = (LptPlace, u32)> + '_ {
        let nodes = self.levels.iter().enumerate().flat_map(|(level, cnodes)| {
            let size = self.node_size(level);
            cnodes.iter().filter_map(|cnode| cnode.place).map(move |place| (place, size))
        });
        let ltab = self.ltab.map(|place| (place, self.format.ltab_size as u32));
        let lsave = self.lsave.map(|place| (place, self.format.lsave_size as u32));
        nodes.chain(ltab).chain(lsave)
    }

    /// Size of the nodes of a level, bytes.
    fn node_size(&self, level: usize) -> u32 {
        (if level == 0 { self.format.pnode_size } else { self.format.nnode_size }) as u32
    }

    /// Extends the tree: the main area has grown by empty LEBs.
    pub(crate) fn grow(&mut self, format: LptFormat) {
        let empty = LebProperties { free: format.leb_size, dirty: 0, index: false };
        let pnodes = format.pnodes() as usize;
        self.format = format;
        self.stored.resize(pnodes * LPT_FANOUT, empty);
        for (level, cnodes) in self.levels.iter_mut().enumerate() {
            let nodes = pnodes.div_ceil(LPT_FANOUT.pow(level as u32)).max(1);
            cnodes.resize(nodes, Cnode::default());
        }
    }

    /// Hash over all leaves ever written, in order.
    pub(crate) fn hash(&self, algorithm: HashAlgorithm) -> Digest {
        let mut hasher = Hasher::new(algorithm);
        let mut bytes = alloc::vec![0; self.format.pnode_size];
        let written = self.levels[0].iter().enumerate().filter(|(_, cnode)| cnode.place.is_some());
        for (at, _) in written {
            bytes.fill(0);
            self.pnode(at).emit(&self.format, &mut bytes);
            hasher.update(&bytes);
        }
        hasher.finish()
    }

    /// Properties of the main area's LEBs as stored.
    pub(crate) fn properties(&self) -> &[LebProperties] {
        &self.stored[..self.format.main_lebs as usize]
    }

    /// The tree's empty LEBs; after an unclean stop they may still be mapped.
    pub(crate) fn idle_lebs(&self) -> impl Iterator<Item = u32> + '_ {
        let idle = |leb: &TreeLeb| leb.free == self.format.leb_size;
        (self.format.first..).zip(&self.tree_lebs).filter(move |it| idle(it.1)).map(|it| it.0)
    }

    /// Whether it is the big model.
    #[cfg(test)]
    pub(crate) fn is_big(&self) -> bool {
        self.format.big
    }

    /// Where the next write goes.
    pub(crate) fn head(&self) -> LptPlace {
        self.head
    }

    /// Bytes written in each of the tree's LEBs.
    pub(crate) fn written(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let leb_size = self.format.leb_size;
        (self.format.first..)
            .zip(&self.tree_lebs)
            .map(move |(lnum, leb)| (lnum, leb_size - leb.free))
    }

    /// Updates the properties; returns what to write, in this order.
    pub(crate) fn commit(
        &mut self,
        properties: &[LebProperties],
        interesting: &[u32],
    ) -> Result<Vec<Piece>, TreeFull> {
        self.release_dirty_lebs();
        self.take_over(properties);
        self.collect_dirty_leb();
        self.close_dirt();
        let slots = self.slots();
        let (places, pieces) = self.lay_out(&slots)?;
        for (slot, place) in slots.iter().zip(&places) {
            match *slot {
                Slot::Lsave => self.lsave = Some(*place),
                Slot::Ltab => self.ltab = Some(*place),
                Slot::Node { level, at } => {
                    self.levels[level][at] = Cnode { place: Some(*place), dirty: false };
                }
            }
        }
        Ok(self.fill(&slots, &places, pieces, interesting))
    }

    /// Ends the commit; the LEBs returned can be unmapped.
    pub(crate) fn finish(&mut self) -> Vec<u32> {
        let mut freed = Vec::new();
        for (lnum, leb) in (self.format.first..).zip(&mut self.tree_lebs) {
            if leb.held {
                leb.held = false;
                freed.push(lnum);
            }
        }
        freed
    }

    /// Stores the tree's places in a master node.
    pub(crate) fn fill_master(&self, master: &mut Master) {
        let none = LptPlace { lnum: 0, offset: 0 };
        let root = self.levels.last().and_then(|top| top[0].place).unwrap_or(none);
        let (ltab, lsave) = (self.ltab.unwrap_or(none), self.lsave.unwrap_or(none));
        (master.lpt_lnum, master.lpt_offs) = (root.lnum, root.offset);
        (master.nhead_lnum, master.nhead_offs) = (self.head.lnum, self.head.offset);
        (master.ltab_lnum, master.ltab_offs) = (ltab.lnum, ltab.offset);
        (master.lsave_lnum, master.lsave_offs) = (lsave.lnum, lsave.offset);
    }

    /// Frees the LEBs with nothing but dirt: they count as free in this commit and can be used
    /// after it.
    fn release_dirty_lebs(&mut self) {
        let head = self.head.lnum;
        let leb_size = self.format.leb_size;
        for (lnum, leb) in (self.format.first..).zip(&mut self.tree_lebs) {
            if lnum != head && leb.dirty > 0 && leb.free + leb.dirty == leb_size {
                *leb = TreeLeb { free: leb_size, dirty: 0, held: true };
            }
        }
    }

    /// Takes the new properties and marks the leaves that change.
    fn take_over(&mut self, properties: &[LebProperties]) {
        for (at, new) in properties.chunks(LPT_FANOUT).enumerate() {
            let old = &mut self.stored[at * LPT_FANOUT..][..new.len()];
            if *old != *new {
                old.copy_from_slice(new);
                self.levels[0][at].dirty = true;
            }
        }
        let all = !self.format.big || self.ltab.is_none();
        if all {
            self.levels.iter_mut().flatten().for_each(|cnode| cnode.dirty = true);
        }
    }

    /// If few LEBs are free, marks the nodes of one LEB to be moved, so that only dirt is left in
    /// it.
    fn collect_dirty_leb(&mut self) {
        let leb_size = self.format.leb_size;
        let free = self.tree_lebs.iter().filter(|leb| leb.free == leb_size).count();
        if !self.format.big || free > self.tree_lebs.len() / 2 {
            return;
        }
        let head = self.head.lnum;
        let lebs = (self.format.first..).zip(&self.tree_lebs);
        let candidates = lebs.filter(|(lnum, leb)| *lnum != head && leb.dirty > 0);
        let Some((victim, _)) = candidates.max_by_key(|(_, leb)| leb.dirty) else { return };
        for cnode in self.levels.iter_mut().flatten() {
            cnode.dirty |= cnode.place.is_some_and(|place| place.lnum == victim);
        }
    }

    /// Marks the parents of changed nodes, and counts the old copies as dirt.
    fn close_dirt(&mut self) {
        for level in 0..self.levels.len() - 1 {
            let (below, above) = self.levels.split_at_mut(level + 1);
            for (at, cnode) in below[level].iter().enumerate() {
                above[0][at / LPT_FANOUT].dirty |= cnode.dirty;
            }
        }
        // The root is always written: the master node needs one.
        let top = self.levels.len() - 1;
        self.levels[top][0].dirty = true;
        let mut left = Vec::new();
        for (level, cnodes) in self.levels.iter().enumerate() {
            let size = self.node_size(level);
            let places = cnodes.iter().filter(|cnode| cnode.dirty).filter_map(|it| it.place);
            left.extend(places.map(|place| (place, size)));
        }
        left.extend(self.ltab.map(|place| (place, self.format.ltab_size as u32)));
        left.extend(self.lsave.map(|place| (place, self.format.lsave_size as u32)));
        for (place, size) in left {
            self.tree_lebs[(place.lnum - self.format.first) as usize].dirty += size;
        }
    }

    /// Everything to be written, in the order of writing.
    fn slots(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (level, cnodes) in self.levels.iter().enumerate() {
            let dirty = cnodes.iter().enumerate().filter(|(_, cnode)| cnode.dirty);
            slots.extend(dirty.map(|(at, _)| Slot::Node { level, at }));
        }
        if self.format.big {
            slots.push(Slot::Lsave);
        }
        slots.push(Slot::Ltab);
        slots
    }

    fn size(&self, slot: &Slot) -> u32 {
        match *slot {
            Slot::Lsave => self.format.lsave_size as u32,
            Slot::Ltab => self.format.ltab_size as u32,
            Slot::Node { level, .. } => self.node_size(level),
        }
    }

    /// Assigns each slot its place; returns the places, and zeroed pieces of the right size.
    fn lay_out(&mut self, slots: &[Slot]) -> Result<(Vec<LptPlace>, Vec<Piece>), TreeFull> {
        let mut places = Vec::with_capacity(slots.len());
        let mut pieces = Vec::new();
        let (mut lnum, mut start) = (self.head.lnum, self.head.offset);
        let mut end = start;
        for slot in slots {
            let size = self.size(slot);
            if end + size > self.format.leb_size {
                pieces.extend(self.close(lnum, start, end));
                lnum = self.next_free(lnum).ok_or(TreeFull)?;
                (start, end) = (0, 0);
            }
            places.push(LptPlace { lnum, offset: end });
            end += size;
        }
        pieces.extend(self.close(lnum, start, end));
        self.head = LptPlace { lnum, offset: end.next_multiple_of(self.unit) };
        Ok((places, pieces))
    }

    /// Ends writing to one of the tree's LEBs.
    fn close(&mut self, lnum: u32, start: u32, end: u32) -> Option<Piece> {
        let aligned = end.next_multiple_of(self.unit);
        let leb = &mut self.tree_lebs[(lnum - self.format.first) as usize];
        leb.free = self.format.leb_size - aligned;
        leb.dirty += aligned - end;
        let bytes = alloc::vec![0xff; (aligned - start) as usize];
        (aligned > start).then_some(Piece { lnum, offset: start, bytes })
    }

    fn next_free(&self, behind: u32) -> Option<u32> {
        let lebs = self.format.lebs;
        let after = |step| (behind - self.format.first + step) % lebs;
        let is_free = |at: &u32| {
            let leb = &self.tree_lebs[*at as usize];
            leb.free == self.format.leb_size && !leb.held
        };
        (1..lebs).map(after).find(is_free).map(|at| self.format.first + at)
    }

    /// Emits everything into the pieces.
    fn fill(
        &self,
        slots: &[Slot],
        places: &[LptPlace],
        mut pieces: Vec<Piece>,
        interesting: &[u32],
    ) -> Vec<Piece> {
        for (slot, place) in slots.iter().zip(places) {
            let holds = |piece: &&mut Piece| {
                let end = piece.offset as usize + piece.bytes.len();
                piece.lnum == place.lnum
                    && (piece.offset as usize..end).contains(&(place.offset as usize))
            };
            let piece = pieces.iter_mut().find(holds).expect("each place lies in a piece");
            let out = &mut piece.bytes[(place.offset - piece.offset) as usize..];
            match *slot {
                Slot::Lsave => {
                    let rest = core::iter::repeat(self.format.main_first);
                    Lsave::emit(interesting.iter().copied().chain(rest), &self.format, out);
                }
                Slot::Ltab => {
                    let entries = self.tree_lebs.iter().map(|leb| (leb.free, leb.dirty));
                    Ltab::emit(entries, &self.format, out);
                }
                Slot::Node { level: 0, at } => self.pnode(at).emit(&self.format, out),
                Slot::Node { level, at } => self.nnode(level, at).emit(&self.format, out),
            }
        }
        pieces
    }

    fn pnode(&self, at: usize) -> Pnode {
        let mut lebs = [LebProperties::default(); LPT_FANOUT];
        lebs.copy_from_slice(&self.stored[at * LPT_FANOUT..][..LPT_FANOUT]);
        Pnode { number: if self.format.big { at as u32 } else { 0 }, lebs }
    }

    fn nnode(&self, level: usize, at: usize) -> Nnode {
        let mut children = [None; LPT_FANOUT];
        let below = self.levels[level - 1].iter().skip(at * LPT_FANOUT);
        for (child, cnode) in children.iter_mut().zip(below) {
            *child = cnode.place;
        }
        let number = if self.format.big { self.number(level, at) } else { 0 };
        Nnode { number, children }
    }

    /// Number of an inner node, computed from the root down.
    fn number(&self, level: usize, at: usize) -> u32 {
        let mut number = 1;
        for above in (level + 1..=self.format.height as usize).rev() {
            let child = at >> (2 * (above - level - 1)) & (LPT_FANOUT - 1);
            number = self.format.nnode_number(number, above as u32, child as u32);
        }
        number
    }
}

/// Reads nodes of the tree.
struct Reader<'r, V> {
    access: &'r Access<V>,
    format: LptFormat,
}

impl<V: Volume> Reader<'_, V> {
    fn node<T>(
        &self,
        kind: LptKind,
        place: LptPlace,
        parse: impl FnOnce(&[u8], &LptFormat) -> Result<T, LptError>,
    ) -> Result<T, Fault> {
        let fault = |cause| Fault {
            structure: "LPT",
            place: self.access.place(place.lnum, place.offset),
            cause,
        };
        let area = self.format.first..self.format.first + self.format.lebs;
        if !area.contains(&place.lnum) {
            return Err(fault(Cause::Misplaced));
        }
        let length = self.format.node_size(kind) as u32;
        let at = Location { lnum: place.lnum, offset: place.offset, length };
        let mut scratch = Scratch::new();
        let bytes = self.access.bytes(at, &mut scratch).map_err(fault)?;
        parse(bytes, &self.format).map_err(|error| fault(Cause::Lpt(error)))
    }
}

/// The bytes of a data LEB's `space`, free and dirty, that cannot be counted on: dead (too little
/// for any node) and dark (too little for some).
pub(crate) fn unusable(space: u32, min_io: u32) -> (u32, u32) {
    /// Least data that UBIFS writes to the flash (`MIN_WRITE_SZ`).
    const WRITE_MIN: u32 = DATA_NODE_SIZE as u32 + 8;
    let dead_mark = WRITE_MIN.next_multiple_of(min_io);
    let dark_mark = ((INODE_NODE_SIZE + INLINE_DATA_MAX) as u32).next_multiple_of(min_io);
    if space < dead_mark {
        (space, 0)
    } else if space < dark_mark {
        (0, space)
    } else if space - dark_mark < WRITE_MIN {
        (0, space - WRITE_MIN)
    } else {
        (0, dark_mark)
    }
}
