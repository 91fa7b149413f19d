//! Checks the tree of LEB properties itself.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use flysch_api::finding::Severity;
use flysch_api::volume::Volume;
use flysch_wire::ubifs::lpt::{
    LebProperties, LptError, LptFormat, LptKind, LptPlace, Lsave, Ltab, Nnode, Pnode,
};
use flysch_wire::ubifs::{LPT_FANOUT, Master};

use super::Check;
use crate::access::Scratch;
use crate::location::Location;
use crate::lpt::Lpt;

/// A walk over the tree.
struct Walk<'l, 'c, V> {
    check: &'l mut Check<'c, V>,
    format: LptFormat,
    /// Properties of the main area's LEBs.
    properties: Vec<LebProperties>,
    /// Bytes of nodes in use, by LEB of the tree.
    live: BTreeMap<u32, u32>,
    damaged: bool,
    visits: u64,
}

impl<V: Volume> Check<'_, V> {
    /// Walks the tree and its tables; `None` if not everything could be read.
    pub(super) fn lpt(&mut self) -> Option<Vec<LebProperties>> {
        let (fs, format) = (self.fs, self.fs.lpt?);
        let master = &fs.master.as_ref()?.master;
        if fs.superblock().leb_count > fs.store.access.lebs {
            // Already reported; the properties of so many LEBs could take any amount of memory.
            return None;
        }
        let empty = LebProperties { free: format.leb_size, dirty: 0, index: false };
        let properties = alloc::vec![empty; format.main_lebs as usize];
        let mut walk = Walk {
            check: self,
            format,
            properties,
            live: BTreeMap::new(),
            damaged: false,
            visits: 0,
        };
        let root = LptPlace { lnum: master.lpt_lnum, offset: master.lpt_offs };
        walk.nnode(root, format.height, (1, 0));
        walk.ltab(LptPlace { lnum: master.ltab_lnum, offset: master.ltab_offs });
        if format.big {
            walk.lsave(LptPlace { lnum: master.lsave_lnum, offset: master.lsave_offs });
        }
        walk.room(master);
        (!walk.damaged).then_some(walk.properties)
    }
}

impl<V: Volume> Walk<'_, '_, V> {
    /// Reads a node of the tree into its own buffer: these nodes are small.
    fn bytes(&mut self, kind: LptKind, place: LptPlace) -> Option<Vec<u8>> {
        let length = self.format.node_size(kind) as u32;
        let at = Location { lnum: place.lnum, offset: place.offset, length };
        let layout = &self.check.fs.store.layout;
        let mut scratch = Scratch::new();
        let found = if layout.lpt.contains(&place.lnum) {
            self.check.fs.store.access.bytes(at, &mut scratch)
        } else {
            Err(crate::access::Cause::Misplaced)
        };
        match found {
            Ok(bytes) => {
                *self.live.entry(place.lnum).or_default() += length;
                Some(bytes.into())
            }
            Err(cause) => {
                self.tell(kind, place, format!("{cause}"));
                None
            }
        }
    }

    fn tell(&mut self, kind: LptKind, place: LptPlace, problem: alloc::string::String) {
        let structure = match kind {
            LptKind::Pnode => "LPT pnode",
            LptKind::Nnode => "LPT nnode",
            LptKind::Ltab => "LPT ltab",
            LptKind::Lsave => "LPT lsave",
            LptKind::Unknown(_) => "LPT",
        };
        self.damaged = true;
        let at = (place.lnum, place.offset);
        self.check.tell(Severity::Inconsistent, structure, problem, at);
    }

    fn refuse<T>(&mut self, kind: LptKind, place: LptPlace, error: LptError) -> Option<T> {
        self.tell(kind, place, format!("{error}"));
        None
    }

    /// Checks an inner node, which should have this `number`, above the leaves from `first` on.
    fn nnode(&mut self, place: LptPlace, level: u32, (number, first): (u32, u32)) {
        // Each inner node exists once; more visits mean a cycle.
        self.visits += 1;
        if self.visits > 2 * u64::from(self.format.pnodes()) + u64::from(self.format.height) {
            return;
        }
        let Some(bytes) = self.bytes(LptKind::Nnode, place) else { return };
        let nnode = match Nnode::parse(&bytes, &self.format) {
            Ok(nnode) => nnode,
            Err(error) => {
                self.refuse::<()>(LptKind::Nnode, place, error);
                return;
            }
        };
        if self.format.big && nnode.number != number {
            let problem = format!("number {} where {number} is expected", nnode.number);
            self.tell(LptKind::Nnode, place, problem);
        }
        let leaves = (LPT_FANOUT as u32).pow(level - 1);
        for (at, child) in (0..).zip(nnode.children) {
            let start = first.saturating_add(leaves.saturating_mul(at));
            let (Some(child), true) = (child, start < self.format.pnodes()) else { continue };
            if level > 1 {
                let number = self.format.nnode_number(number, level, at);
                self.nnode(child, level - 1, (number, start));
            } else {
                self.pnode(child, start);
            }
        }
    }

    fn pnode(&mut self, place: LptPlace, number: u32) {
        let Some(bytes) = self.bytes(LptKind::Pnode, place) else { return };
        let pnode = match Pnode::parse(&bytes, &self.format) {
            Ok(pnode) => pnode,
            Err(error) => {
                self.refuse::<()>(LptKind::Pnode, place, error);
                return;
            }
        };
        if self.format.big && pnode.number != number {
            let problem = format!("number {} where {number} is expected", pnode.number);
            self.tell(LptKind::Pnode, place, problem);
        }
        let first = number as usize * LPT_FANOUT;
        for (slot, found) in self.properties.iter_mut().skip(first).zip(pnode.lebs) {
            *slot = found;
        }
    }

    /// Checks the table of the tree's own LEBs against their content.
    fn ltab(&mut self, place: LptPlace) {
        let Some(bytes) = self.bytes(LptKind::Ltab, place) else { return };
        let format = self.format;
        let entries: Vec<(u32, u32)> = match Ltab::parse(&bytes, &format) {
            Ok(ltab) => ltab.entries().collect(),
            Err(error) => {
                self.refuse::<()>(LptKind::Ltab, place, error);
                return;
            }
        };
        if format.big {
            // Opening checked its place in the master node; only its size matters here.
            let master = self.check.fs.master.as_ref().map(|chosen| chosen.master);
            let lnum = master.map_or(format.first, |master| master.lsave_lnum);
            *self.live.entry(lnum).or_default() += format.lsave_size as u32;
        }
        // An unclean stop may leave a half-written commit of this tree.
        if self.damaged || self.check.fs.is_unclean() {
            return;
        }
        for (lnum, (free, dirty)) in (format.first..).zip(entries) {
            let mut scratch = Scratch::new();
            let Ok(leb) = self.check.fs.store.access.leb(lnum, &mut scratch) else { continue };
            let written = leb.iter().rposition(|&byte| byte != 0xff).map_or(0, |at| at as u32 + 1);
            let live = self.live.get(&lnum).copied().unwrap_or(0);
            // A LEB without live nodes may still await unmapping.
            let idle = live == 0 && free + dirty == format.leb_size;
            let used = format.leb_size - free;
            if idle || used >= written && used == live + dirty {
                continue;
            }
            let problem = format!(
                "LEB {lnum}: {free} bytes free and {dirty} dirty, but {} are erased and {live} in \
                 use",
                format.leb_size - written
            );
            self.tell(LptKind::Ltab, place, problem);
        }
    }

    /// Checks what a mount for writing does not accept, whether or not the stop was clean.
    fn room(&mut self, master: &Master) {
        let store = &self.check.fs.store;
        let unit = store.superblock.min_io_size;
        if !self.damaged
            && let Ok(lpt) = Lpt::read(&store.access, (self.format, unit), master)
            && let Some(problem) = lpt.contradiction()
        {
            let place = LptPlace { lnum: master.ltab_lnum, offset: master.ltab_offs };
            self.tell(LptKind::Ltab, place, problem);
        }
    }

    fn lsave(&mut self, place: LptPlace) {
        let Some(bytes) = self.bytes(LptKind::Lsave, place) else { return };
        if let Err(error) = Lsave::parse(&bytes, &self.format) {
            self.refuse::<()>(LptKind::Lsave, place, error);
        }
    }
}
