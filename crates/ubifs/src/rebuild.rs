//! Replaces unreadable parts of the index with what the nodes themselves say.
//!
//! Every node carries its key and a sequence number, so the main area without an index still shows
//! what was there: the newest node of each key counts, deletions included. This is only second
//! best, because garbage collection may have dropped the record of a deletion and left the deleted
//! node.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::volume::{LebState, Volume};
use flysch_wire::ubifs::{BLOCK_SIZE, Key};

use crate::access::{Scratch, finding};
use crate::replay::{Bud, Change, Entry, damaged_data, entry};
use crate::scan::{Item, Scan};
use crate::store::Store;

/// Key ranges that the index does not reach.
pub(crate) type Lost = Vec<(Key, Key)>;

/// Widens ranges to whole files, so that deletions and truncations can be judged.
pub(crate) fn whole_files(lost: &mut Lost) {
    for (first, last) in lost.iter_mut() {
        *first = Key::inode_node(first.inode());
        *last = Key::last_of(last.inode());
    }
    lost.sort();
    lost.dedup_by(|next, kept| {
        let joined = next.0 <= kept.1;
        if joined {
            kept.1 = kept.1.max(next.1);
        }
        joined
    });
}

/// Collects the nodes of the lost ranges from the main area, except those of buds, which replay
/// reads.
pub(crate) fn collect<V: Volume>(
    store: &Store<V>,
    lost: &[(Key, Key)],
    buds: &[Bud],
    findings: &mut Vec<Finding>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut scratch = Scratch::new();
    for lnum in store.layout.main.start..store.layout.main.end.min(store.access.lebs) {
        if store.access.volume.state(lnum) == LebState::Unmapped {
            continue;
        }
        let Ok(leb) = store.access.leb(lnum, &mut scratch) else { continue };
        let bud = buds.iter().find(|bud| bud.lnum == lnum).map_or(u32::MAX, |bud| bud.start);
        for item in Scan::new(leb, 0) {
            let found = match item {
                Item::Node { offset, header, bytes } if offset < bud => {
                    entry(lnum, offset, header, bytes, store.format()).ok().flatten()
                }
                Item::Garbage { range, .. } if range.0 < bud => damaged_data(lnum, range.0, leb),
                _ => None,
            };
            entries.extend(found.filter(|found| is_wanted(found, lost)));
        }
    }
    drop_truncated(&mut entries);
    let ranges = counted(lost.len(), "lost range", "lost ranges");
    let (one, many) = (format!("node of {ranges} was"), format!("nodes of {ranges} were"));
    let problem = format!("{} collected", counted(entries.len(), &one, &many));
    findings.push(finding(Severity::Note, "index", problem, Place::default()));
    entries
}

/// Drops blocks beyond the end of their file that are older than its newest inode node: they were
/// truncated. (An inode node is never written before the data that it counts.)
fn drop_truncated(entries: &mut Vec<Entry>) {
    let mut newest: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for entry in entries.iter() {
        if let Change::Inode { size } = entry.change {
            let known = newest.entry(entry.key.inode()).or_default();
            *known = (*known).max((entry.sequence, size));
        }
    }
    entries.retain(|entry| {
        let start = u64::from(entry.key.value()) * u64::from(BLOCK_SIZE);
        let known = newest.get(&entry.key.inode());
        let is_cut =
            known.is_some_and(|&(sequence, end)| entry.sequence < sequence && start >= end);
        !(matches!(entry.change, Change::Data { .. }) && is_cut)
    });
}

fn is_wanted(entry: &Entry, lost: &[(Key, Key)]) -> bool {
    let key = match entry.change {
        // Ranges are whole files: a truncation belongs to its inode.
        Change::Truncate { .. } => Key::inode_node(entry.key.inode()),
        _ => entry.key,
    };
    let at = lost.partition_point(|(first, _)| *first <= key);
    at > 0 && lost[at - 1].1 >= key
}
