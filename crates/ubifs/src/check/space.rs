//! Checks LEB properties against the content of LEBs, and their sums against the master node.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::finding::Severity;
use flysch_api::volume::{LebState, Volume};
use flysch_wire::ubifs::lpt::LebProperties;
use flysch_wire::ubifs::{
    DATA_NODE_SIZE, Header, INLINE_DATA_MAX, INODE_NODE_SIZE, NodeKind, Superblock,
};

use super::Check;
use super::tree::Usage;
use crate::access::Scratch;
use crate::scan::{Item, Scan};

/// Least data that UBIFS writes to the flash (`MIN_WRITE_SZ`).
const WRITE_MIN: u32 = DATA_NODE_SIZE as u32 + 8;

/// Sums over the main area, as in the master node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    free: u64,
    dirty: u64,
    used: u64,
    dead: u64,
    dark: u64,
    empty_lebs: u32,
    idx_lebs: u32,
}

/// What a LEB actually holds.
struct Held {
    /// Where its erased end begins.
    end: u32,
    index: bool,
    nodes: u32,
}

impl<V: Volume> Check<'_, V> {
    /// Compares the properties of each LEB with its content.
    pub(super) fn space(&mut self, usage: &Usage, properties: Option<&[LebProperties]>) {
        let layout = &self.fs.store.layout;
        if let Some(properties) = properties {
            self.sums(properties);
        }
        // LEBs that the volume lacks have already been reported as such.
        let main = layout.main.start..layout.main.end.min(self.fs.store.access.lebs);
        for (at, lnum) in main.enumerate() {
            let known = properties.and_then(|properties| properties.get(at)).copied();
            let Some(held) = self.hold(lnum, known, usage) else { continue };
            if let (Some(known), false) = (known, usage.incomplete) {
                self.compare(lnum, known, &held, usage);
            }
        }
    }

    /// Scans a LEB. Reports garbage, unless nothing in the LEB is in use, and nodes in use that lie
    /// inside the padding or the length of another node, where a scan steps over them.
    fn hold(&mut self, lnum: u32, known: Option<LebProperties>, usage: &Usage) -> Option<Held> {
        let in_use = usage.nodes.get(&lnum).map_or(&[][..], Vec::as_slice);
        let store = &self.fs.store;
        let leb_size = store.layout.leb_size;
        let mut held = Held { end: 0, index: false, nodes: 0 };
        if store.access.volume.state(lnum) == LebState::Unmapped {
            return Some(held);
        }
        let mut scratch = Scratch::new();
        let leb = match store.access.leb(lnum, &mut scratch) {
            Ok(leb) => leb,
            Err(cause) => {
                self.tell(Severity::Lost, "LEB", format!("{cause}"), (lnum, 0));
                return None;
            }
        };
        let bud = self.fs.buds.iter().find(|bud| bud.lnum == lnum).map(|bud| bud.start);
        // Empty and freeable LEBs may hold leftovers of an unclean stop; opening has read the buds.
        let idle = known.is_some_and(|it| it.free + it.dirty == leb_size);
        let mut scan = Scan::new(leb, 0);
        let mut begins = Vec::new();
        for item in &mut scan {
            match item {
                Item::Node { offset, header, .. } => {
                    begins.push(offset);
                    held.index |= held.nodes == 0 && header.kind == NodeKind::Index;
                    held.nodes += 1;
                }
                Item::Garbage { range, error } => {
                    if !idle && bud.is_none_or(|start| range.0 < start) {
                        let length = range.1 - range.0;
                        let problem = format!("{length} bytes are not a node ({error})");
                        self.tell(Severity::Inconsistent, "LEB", problem, (lnum, range.0));
                    }
                }
            }
        }
        held.end = scan.end();
        let is_hidden = |offset: &u32| {
            begins.binary_search(offset).is_err()
                && leb.get(*offset as usize..).is_some_and(|rest| Header::check(rest).is_ok())
        };
        if !self.is_given_up(usage, lnum)
            && let Some(offset) = in_use.iter().copied().find(is_hidden)
        {
            let problem = String::from("a node in use lies inside another node");
            self.tell(Severity::Inconsistent, "LEB", problem, (lnum, offset));
        }
        Some(held)
    }

    fn compare(&mut self, lnum: u32, known: LebProperties, held: &Held, usage: &Usage) {
        if self.is_given_up(usage, lnum) {
            return;
        }
        let leb_size = self.fs.store.layout.leb_size;
        let used = usage.used.get(&lnum).copied().unwrap_or(0);
        let bud = self.fs.buds.iter().find(|bud| bud.lnum == lnum);
        let end = bud.map_or(held.end, |bud| bud.start);
        let (free, dirty) = (leb_size - end, end.saturating_sub(used));
        let all_free = known.free == leb_size || known.free + known.dirty == leb_size;
        let problem = if used > 0 && all_free {
            format!("no bytes in use, yet the index uses {used}")
        } else if all_free && !known.index {
            return;
        } else if known.index != (usage.index.contains_key(&lnum) || held.index && used == 0) {
            let (flag, holds) =
                if known.index { ("index", "no index nodes") } else { ("data", "index nodes") };
            format!("a LEB of {flag}, yet it holds {holds}")
        } else if known.index && known.free + known.dirty == free + dirty {
            // Index nodes are also written into gaps, so only the sum has to agree.
            return;
        } else if known.free != free || known.dirty != dirty {
            format!(
                "{} bytes free and {} dirty, yet {free} are free and {dirty} are not in use",
                known.free, known.dirty
            )
        } else {
            return;
        };
        self.tell(Severity::Inconsistent, "LEB properties", problem, (lnum, 0));
    }

    fn sums(&mut self, properties: &[LebProperties]) {
        let Some(chosen) = &self.fs.master else { return };
        let (master, at) = (chosen.master, (chosen.lnum, chosen.offset));
        let superblock = &self.fs.store.superblock;
        let mut sums = Sums::default();
        for leb in properties {
            add(&mut sums, leb, superblock);
        }
        let fields = [
            ("total_free", master.total_free, sums.free),
            ("total_dirty", master.total_dirty, sums.dirty),
            ("total_used", master.total_used, sums.used),
            ("total_dead", master.total_dead, sums.dead),
            ("total_dark", master.total_dark, sums.dark),
            ("empty_lebs", master.empty_lebs.into(), sums.empty_lebs.into()),
            ("idx_lebs", master.idx_lebs.into(), sums.idx_lebs.into()),
        ];
        for (field, stored, sum) in fields {
            if stored != sum {
                let problem =
                    format!("{field} is {stored}, but the LEB properties add up to {sum}");
                self.tell(Severity::Inconsistent, "master node", problem, at);
            }
        }
    }
}

/// Adds a LEB as `ubifs_change_lp` counts it.
fn add(sums: &mut Sums, leb: &LebProperties, superblock: &Superblock) {
    let unit = superblock.min_io_size;
    let dead_mark = WRITE_MIN.next_multiple_of(unit);
    let dark_mark = ((INODE_NODE_SIZE + INLINE_DATA_MAX) as u32).next_multiple_of(unit);
    sums.free += u64::from(leb.free);
    sums.dirty += u64::from(leb.dirty);
    sums.empty_lebs += u32::from(leb.free == superblock.leb_size);
    if leb.index {
        sums.idx_lebs += 1;
        return;
    }
    let space = leb.free + leb.dirty;
    sums.used += u64::from(superblock.leb_size - space);
    if space < dead_mark {
        sums.dead += u64::from(space);
    } else if space < dark_mark {
        sums.dark += u64::from(space);
    } else if space - dark_mark < WRITE_MIN {
        sums.dark += u64::from(space - WRITE_MIN);
    } else {
        sums.dark += u64::from(dark_mark);
    }
}
