//! Heads and sectors per track, which `gpart` shows; FreeBSD's guess for disks that report neither.

use crate::graph::Graph;
use crate::object::ProviderId;

/// Heads and sectors per track: the disk's values, or else FreeBSD's guess.
pub(super) fn of(graph: &Graph, provider: ProviderId) -> (u32, u32) {
    let number = |name| graph.attribute(provider, name)?.number();
    let said = |name| number(name).and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0);
    match (said("GEOM::fwheads"), said("GEOM::fwsectors")) {
        (Some(heads), Some(sectors)) => (heads, sectors),
        _ => guess(graph[provider].sectors()),
    }
}

/// Heads and sectors per track for a disk of `blocks` sectors.
fn guess(blocks: u64) -> (u32, u32) {
    const SECTORS: [u32; 5] = [1, 9, 17, 33, 63];
    let (mut best, mut heads, mut sectors) = (0, 255, 63);
    for candidate in SECTORS {
        let (covered, with) = heads_for(blocks, candidate);
        let is_better = covered > best || covered == best && with > 1 && sectors == 1;
        if covered > 0 && is_better {
            (best, heads, sectors) = (covered, with, candidate);
        }
    }
    (heads, sectors)
}

/// The most sectors covered by up to 1023 cylinders with some number of heads, and that number.
fn heads_for(blocks: u64, sectors: u32) -> (u64, u32) {
    const HEADS: [u32; 7] = [1, 2, 16, 32, 64, 128, 255];
    let mut best = (0, 0);
    for heads in HEADS {
        let track = u64::from(heads) * u64::from(sectors);
        let cylinders = blocks / track;
        if cylinders < u64::from(heads) || cylinders < u64::from(sectors) {
            break;
        }
        let covered = cylinders * track;
        if cylinders <= 1023 && (covered > best.0 || covered == best.0 && best.1 == 1) {
            best = (covered, heads);
        }
    }
    best
}
