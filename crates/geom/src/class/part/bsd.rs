//! The BSD disklabel: up to 20 partitions, one sector.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_wire::geom::disklabel::{self, Disklabel, PARTITIONS_MAX, PARTITIONS_MIN, RAW, SECTOR};
use flysch_wire::geom::gpt::Guid;

use super::{Detail, Partition, Probe, Scheme, Step, Table, Type, geometry};
use crate::error::GeomError;
use crate::graph::Graph;
use crate::object::ProviderId;

/// Bytes at the start of a disk that boot code and the label share.
const BOOT_AREA: usize = 8192;

/// Looks for a label in sector 1.
pub(super) fn probe(graph: &mut Graph, provider: ProviderId) -> Probe {
    let there = &graph[provider];
    let (sector, sectors) = (there.sector_size, there.sectors());
    if sectors < 2 {
        return Probe::None("too small for a disklabel".into());
    }
    let at = SECTOR * u64::from(sector);
    let mut bytes = vec![0; sector as usize];
    if let Err(error) = graph.peek(provider, at, &mut bytes) {
        return Probe::None(error.cause);
    }
    let label = match Disklabel::parse(&bytes) {
        Ok(label) => label,
        Err(_) if !bytes.starts_with(&disklabel::MAGIC.to_le_bytes()) => {
            return Probe::None("no disklabel in sector 1".into());
        }
        Err(error) => {
            return Probe::Bad(format!("a disklabel that is not sound: {error}"), at, 512);
        }
    };
    if label.sector_size != sector {
        let other = label.sector_size;
        return Probe::Bad(format!("a disklabel for sectors of {other} bytes"), at, 512);
    }
    let raw = label.partitions[RAW];
    let base = u64::from(raw.offset);
    let mut partitions = Vec::new();
    for (place, partition) in label.partitions[..label.count].iter().enumerate() {
        if place == RAW || partition.size == 0 {
            continue;
        }
        let Some(start) = u64::from(partition.offset).checked_sub(base) else {
            let text = format!("a disklabel whose partition {} starts before `c`", place + 1);
            return Probe::Bad(text, at, 512);
        };
        partitions.push(Partition {
            index: place as u32 + 1,
            start,
            end: start + u64::from(partition.size) - 1,
            data: start,
            kind: Type::Bsd(partition.kind),
            label: "".into(),
            attributes: 0,
            unique: Guid::ZERO,
        });
    }
    let table = Table {
        scheme: Scheme::Bsd,
        partitions,
        first: 0,
        last: sectors.min(u64::from(u32::MAX)) - 1,
        entries: label.count as u32,
        heads: label.tracks.max(1),
        sectors: label.sectors.max(1),
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: Detail::Bsd { sector: bytes, base, boot: Vec::new() },
    };
    Probe::Found(Box::new(table), at, Disklabel::len(label.count) as u64)
}

/// A new label.
pub(super) fn create(
    graph: &mut Graph,
    provider: ProviderId,
    entries: Option<u32>,
) -> Result<Table, GeomError> {
    let there = &graph[provider];
    let (sector, sectors) = (there.sector_size, there.sectors());
    let entries = entries.unwrap_or(PARTITIONS_MIN as u32);
    if !(PARTITIONS_MIN as u32..=PARTITIONS_MAX as u32).contains(&entries) {
        let cause =
            format!("a disklabel must have {PARTITIONS_MIN} to {PARTITIONS_MAX} partitions");
        return Err(GeomError::invalid(&there.name, cause));
    }
    if sectors < 16 {
        let sectors = counted(sectors, "sector", "sectors");
        let cause = format!("has {sectors}, too few for a disklabel");
        return Err(GeomError::new(crate::Kind::NoSpace, &there.name, cause));
    }
    let (heads, track) = geometry::of(graph, provider);
    Ok(Table {
        scheme: Scheme::Bsd,
        partitions: Vec::new(),
        first: 0,
        last: sectors.min(u64::from(u32::MAX)) - 1,
        entries,
        heads,
        sectors: track,
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: Detail::Bsd { sector: vec![0; sector as usize], base: 0, boot: Vec::new() },
    })
}

/// Puts boot code into the sectors around the label, and into the rest of the label's own sector:
/// bytes of the code that coincide with the label are left out. `sector` is the label's.
///
/// # Errors
/// If the code is too long; the error gives the available bytes.
pub(super) fn put_boot_code(
    (sector, boot): (&mut [u8], &mut Vec<u8>),
    entries: u32,
    code: &[u8],
) -> Result<(), usize> {
    let room = BOOT_AREA.max(2 * sector.len());
    if code.len() > room {
        return Err(room);
    }
    let mut all = code.to_vec();
    all.resize(room, 0);
    let label = Disklabel::len(entries as usize).min(sector.len());
    let behind = sector.len() + label..2 * sector.len();
    sector[label..].copy_from_slice(&all[behind]);
    *boot = all;
    Ok(())
}

/// The label is one sector, so it is either the old or the new one. New boot code is written first.
pub(super) fn steps(table: &Table, old: &[u8], (base, boot): (u64, &[u8])) -> Vec<Step> {
    let mut bytes = old.to_vec();
    let mut partitions = [disklabel::Partition::UNUSED; PARTITIONS_MAX];
    let before = Disklabel::parse(old).ok();
    let total = (table.last + 1) as u32;
    partitions[RAW] =
        disklabel::Partition { size: total, offset: base as u32, ..disklabel::Partition::UNUSED };
    for partition in &table.partitions {
        let place = partition.index as usize - 1;
        let Type::Bsd(kind) = partition.kind else { continue };
        let Some(out) = partitions.get_mut(place) else { continue };
        let kept = before.map_or(disklabel::Partition::UNUSED, |label| label.partitions[place]);
        *out = disklabel::Partition {
            size: partition.length() as u32,
            offset: (partition.start + base) as u32,
            kind,
            ..kept
        };
    }
    let cylinder = table.heads.saturating_mul(table.sectors).max(1);
    let label = Disklabel {
        sector_size: old.len() as u32,
        sectors: table.sectors,
        tracks: table.heads,
        cylinders: total / cylinder,
        total,
        count: table.entries as usize,
        partitions,
    };
    label.emit(&mut bytes);
    let mut steps = Vec::new();
    if let (Some(front), Some(behind)) = (boot.get(..old.len()), boot.get(2 * old.len()..)) {
        steps.push(Step::Write(0, front.to_vec()));
        if !behind.is_empty() {
            steps.push(Step::Write(2 * old.len() as u64, behind.to_vec()));
        }
        steps.push(Step::Flush);
    }
    steps.extend([Step::Write(SECTOR * old.len() as u64, bytes), Step::Flush]);
    steps
}
