//! Examines the content of each LEB.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use flysch_api::volume::{LebState, Volume, VolumeMut};
use flysch_wire::ubifs::{Header, Key, NodeKind, align8};

use super::NewState;
use crate::access::Scratch;
use crate::location::Location;
use crate::open::Ubifs;
use crate::overlay::Overlay;
use crate::scan::{Item, Scan};
use crate::write::buffered::{Buffered, pad};
use crate::write::gaps::fill;

/// What a LEB of the main area holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// Where its erased end begins.
    pub(super) end: u32,
    /// It holds index nodes.
    pub(super) index: bool,
    /// Some bytes are no node or belong to a dropped one, or the last write may be torn.
    pub(super) rewrite: bool,
}

/// Start of a node, and its aligned end.
pub(super) type Extent = (u32, u32);

/// The nodes that are kept, by LEB, in order of their offsets.
pub(super) fn kept_nodes(kept: &Overlay) -> BTreeMap<u32, Vec<Extent>> {
    let mut nodes: BTreeMap<u32, Vec<Extent>> = BTreeMap::new();
    let mut add = |at: Location| {
        let end = at.offset.saturating_add(align8(at.length));
        nodes.entry(at.lnum).or_default().push((at.offset, end));
    };
    kept.nodes(Key::MIN, Key::MAX).for_each(|(_, at)| add(at));
    for key in kept.name_keys() {
        kept.names_of(key).iter().filter_map(|change| change.location).for_each(&mut add);
    }
    nodes.values_mut().for_each(|nodes| nodes.sort_unstable());
    nodes
}

/// Examines every LEB: returns the highest sequence number and, for the main area, what each LEB
/// holds, with its new content where it must be rewritten.
pub(super) fn survey<V: VolumeMut>(
    fs: &Ubifs<Buffered<V>>,
    state: &NewState,
    kept: &BTreeMap<u32, Vec<Extent>>,
) -> (u64, Vec<(Held, Vec<u8>)>) {
    let access = &fs.store.access;
    let dropped: BTreeSet<(u32, u32)> =
        state.dropped.iter().map(|at| (at.lnum, at.offset)).collect();
    let mut sequence = fs.master.as_ref().map_or(0, |chosen| chosen.sequence);
    let mut all = Vec::new();
    for lnum in 0..fs.store.superblock.leb_count {
        let is_main = fs.store.layout.main.contains(&lnum);
        let mut held = Held::default();
        let mut content = Vec::new();
        let mut scratch = Scratch::new();
        if access.volume.state(lnum) != LebState::Unmapped {
            if let Ok(leb) = access.leb(lnum, &mut scratch) {
                // The last write to the journal may have been cut short, yet look erased.
                held.rewrite = fs.is_unclean() && fs.buds.iter().any(|bud| bud.lnum == lnum);
                let kept = kept.get(&lnum).map_or(&[][..], Vec::as_slice);
                let last = look((lnum, leb), (kept, &dropped), &mut held, &mut content);
                sequence = sequence.max(last);
                if held.rewrite {
                    content.truncate(held.end as usize);
                    pad(&mut content, access.volume.unit as usize);
                } else {
                    content = Vec::new();
                }
            } else {
                held.end = access.leb_size;
            }
        }
        if is_main {
            all.push((held, content));
        }
    }
    (sequence, all)
}

/// Examines one LEB; `content` becomes what it should hold.
///
/// The nodes kept are proven by what leads to them. The nodes a scan finds are not: a node's length
/// or padding may be wrong under a correct checksum. So a node that is kept is never cleared, and a
/// LEB in which the scan steps over one gets new padding.
fn look(
    (lnum, leb): (u32, &[u8]),
    (kept, dropped): (&[Extent], &BTreeSet<(u32, u32)>),
    held: &mut Held,
    content: &mut Vec<u8>,
) -> u64 {
    let sequence_at =
        |&(start, _): &Extent| Header::parse(&leb[start as usize..]).map_or(0, |it| it.sequence);
    let mut sequence = kept.iter().map(sequence_at).max().unwrap_or(0);
    let (mut met, mut bad) = (0, false);
    let mut solid = kept.to_vec();
    let mut scan = Scan::new(leb, 0);
    for item in &mut scan {
        let Item::Node { offset, header, .. } = item else {
            bad = true;
            continue;
        };
        sequence = sequence.max(header.sequence);
        let end = (offset + align8(header.length)).min(leb.len() as u32);
        let next = kept.partition_point(|node| node.1 <= offset);
        match kept.get(next) {
            Some(&(start, _)) if start == offset => met += 1,
            Some(&(start, _)) if start < end => bad = true,
            _ if dropped.contains(&(lnum, offset)) => bad = true,
            _ => {
                held.index |= header.kind == NodeKind::Index;
                solid.push((offset, end));
            }
        }
    }
    held.rewrite |= bad || met < kept.len();
    held.end = scan.end();
    if held.rewrite {
        solid.sort_unstable();
        *content = leb.into();
        held.end = 0;
        for (start, end) in solid {
            if start > held.end {
                fill(&mut content[held.end as usize..start as usize]);
            }
            held.end = held.end.max(end.min(leb.len() as u32));
        }
    }
    sequence
}
