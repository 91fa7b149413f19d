//! Formats of older BIOSes, which are only read: Promise, NVIDIA, Silicon Image, JMicron. Levels
//! and rules are those of `graid`.
//!
//! Each disk describes itself and the volumes it is part of: only all disks together give the
//! whole. A two-byte magic number counts only with a correct checksum.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::geom::{jmicron, nvidia, promise, sii, text};

use super::array::{Array, Level, Member, MemberState, Parity, Part, PartState, RaidVolume};
use super::format::{Format, Found, Refused, Wire};
use crate::graph::Graph;
use crate::object::ProviderId;

const SECTOR: u64 = 512;

/// A format.
#[derive(Debug)]
pub(super) struct Old {
    name: &'static str,
    read: fn(&mut Disk<'_>) -> Result<Option<Vec<Said>>, String>,
    /// Number of bits of its generations, which wrap around.
    generation_bits: u32,
}

/// Promise's format, also used by ATI.
pub(super) static PROMISE: Old = Old { name: "Promise", read: promise, generation_bits: 16 };
/// NVIDIA's format, without generations.
pub(super) static NVIDIA: Old = Old { name: "NVIDIA", read: nvidia, generation_bits: 32 };
/// Silicon Image's format.
pub(super) static SII: Old = Old { name: "SiI", read: sii, generation_bits: 32 };
/// JMicron's format, without generations.
pub(super) static JMICRON: Old = Old { name: "JMicron", read: jmicron, generation_bits: 32 };

/// What a disk records about a volume that it is part of.
#[derive(Clone, Debug)]
pub struct Said {
    /// The geom's name.
    set: String,
    /// Distinguishes the volumes of a set.
    key: Vec<u8>,
    generation: u32,
    name: String,
    level: Result<Level, String>,
    strip: u64,
    /// Size of the volume in bytes; `None` for the sum of its parts.
    media_size: Option<u64>,
    /// The volume's members: the identity and state of each.
    slots: Vec<(Vec<u8>, PartState)>,
    /// The same for the disk itself.
    own: (Vec<u8>, PartState),
    /// Offset and size of its part, bytes.
    place: (u64, u64),
    /// If one disk records this, disks that do not record it hold no data.
    is_newest: bool,
}

/// A disk being examined.
struct Disk<'g> {
    graph: &'g mut Graph,
    provider: ProviderId,
    size: u64,
}

impl Disk<'_> {
    /// The bytes that begin `sectors` sectors before the end.
    fn tail(&mut self, sectors: u64, len: usize) -> Option<Vec<u8>> {
        let at = (self.size / SECTOR).checked_sub(sectors)? * SECTOR;
        let mut bytes = vec![0; len];
        self.graph.peek(self.provider, at, &mut bytes).ok().map(|()| bytes)
    }
}

fn name_of(field: &[u8]) -> String {
    let name = text(field).unwrap_or_default().trim();
    name.chars().filter(|it| !it.is_control()).collect()
}

fn spare() -> String {
    "it is a spare disk, which holds nothing".into()
}

fn bytes(sectors: u64) -> Result<u64, String> {
    sectors.checked_mul(SECTOR).ok_or_else(|| "it is too large".to_string())
}

fn promise(disk: &mut Disk<'_>) -> Result<Option<Vec<Said>>, String> {
    use promise::{Kind, Promise, flags, from_end};
    let mut all = Vec::new();
    for number in 0..promise::RECORDS_MAX {
        let Some(record) = disk.tail(from_end(number), promise::LEN) else { break };
        if !Promise::is_it(&record) {
            break;
        }
        let record = Promise::parse(&record).map_err(|error| error.to_string())?;
        all.push(record);
    }
    if all.is_empty() {
        return Ok(None);
    }
    // Records without a volume describe free space.
    all.retain(|record| record.own.flags & flags::ASSIGNED != 0);
    if all.is_empty() {
        return Err(spare());
    }
    let said = |record: Promise| -> Result<Said, String> {
        let count = usize::from(record.count);
        let level = match (record.kind, record.width) {
            _ if record.status & Promise::MIGRATING != 0 => {
                Err("its level or size is being changed; let that finish where it was begun".into())
            }
            _ if record.sector_size != 1 => {
                Err(format!("it has sectors of {} bytes", 512 * u32::from(record.sector_size)))
            }
            (Kind::Raid0, _) => Ok(Level::Raid0),
            (Kind::Raid1, 1) => Ok(Level::Raid1),
            (Kind::Raid1, _) => Ok(Level::Raid10),
            (Kind::Raid5, _) => Ok(Level::Raid5(Parity::LeftAsymmetric)),
            (Kind::Span | Kind::Jbod, _) => Ok(Level::Concat),
            (other, _) => Err(format!("level {other} is not supported")),
        };
        let state = |disk: &promise::Disk| match disk.flags {
            it if it & flags::DOWN != 0 => PartState::Failed,
            it if it & flags::REDIR != 0 => PartState::Rebuild,
            it if it & flags::ONLINE == 0 => PartState::New,
            _ if record.status & Promise::MARKED != 0 => PartState::Stale,
            _ => PartState::Active,
        };
        let disks = record.disks.iter().take(count);
        let slots = disks.map(|disk| (disk.id.to_le_bytes().to_vec(), state(disk))).collect();
        Ok(Said {
            set: "Promise".into(),
            key: record.volume.to_le_bytes().to_vec(),
            generation: u32::from(record.generation),
            name: name_of(&record.name),
            slots: in_pairs(slots, &level),
            level,
            strip: strip(SECTOR, record.strip_shift),
            media_size: Some(bytes(record.volume_sectors)?),
            own: (record.own.id.to_le_bytes().to_vec(), PartState::Active),
            place: (bytes(record.offset)?, bytes(record.sectors)?),
            is_newest: false,
        })
    };
    all.into_iter().map(said).collect::<Result<_, _>>().map(Some)
}

/// A strip of `unit` bytes shifted; 0 if that is not a valid size.
fn strip(unit: u64, shift: u8) -> u64 {
    unit.checked_shl(u32::from(shift)).filter(|strip| *strip <= 1 << 30).unwrap_or(0)
}

/// The members of two stripes with equal contents, arranged in pairs.
fn in_pairs<T: Clone>(slots: Vec<T>, level: &Result<Level, String>) -> Vec<T> {
    let half = slots.len() / 2;
    match level {
        Ok(Level::Raid10) if slots.len().is_multiple_of(2) => {
            (0..slots.len()).map(|at| slots[at % 2 * half + at / 2].clone()).collect()
        }
        _ => slots,
    }
}

fn nvidia(disk: &mut Disk<'_>) -> Result<Option<Vec<Said>>, String> {
    use nvidia::{Kind, Nvidia, State};
    let Some(sector) = disk.tail(nvidia::FROM_END, 512) else { return Ok(None) };
    if !sector.starts_with(&nvidia::MAGIC) {
        return Ok(None);
    }
    let record = Nvidia::parse(&sector).map_err(|error| error.to_string())?;
    let width = record.width;
    // Disks beyond the last one that the level has a place for are spares.
    let (level, count) = match record.kind {
        Kind::Raid0 => (Ok(Level::Raid0), width),
        Kind::Raid1 => (Ok(Level::Raid1), width.saturating_mul(2)),
        Kind::Raid01 => (Ok(Level::Raid10), width.saturating_mul(2)),
        Kind::Raid5 => (Ok(Level::Raid5(Parity::LeftAsymmetric)), width.saturating_add(1)),
        Kind::Raid5Symmetric => (Ok(Level::Raid5(Parity::LeftSymmetric)), width.saturating_add(1)),
        Kind::Concat => (Ok(Level::Concat), record.disks),
        other => (Err(format!("level {other} is not supported")), record.disks),
    };
    let level = match (record.state, record.sector_size) {
        (State::Upgrade | State::Unknown(_), _) => Err(format!(
            "a change ({}) is under way; let it finish where it was begun",
            record.state
        )),
        (_, size) if u64::from(size) != SECTOR => Err(format!("it has sectors of {size} bytes")),
        _ => level,
    };
    if record.disks < count {
        let (kind, disks) = (record.kind, record.disks);
        return Err(format!("a volume of level {kind} and width {width} has {disks} disks"));
    }
    if record.disk >= count {
        return Err(spare());
    }
    let state = match record.state {
        State::Rebuild if record.disk_status & Nvidia::REBUILT != 0 => PartState::Rebuild,
        State::Sync | State::Init => PartState::Stale,
        _ => PartState::Active,
    };
    let slots = (0..count).map(|number| (vec![number], PartState::Active)).collect();
    let id: String = record.id.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    let behind = if record.kind == Kind::Concat { sii::RESERVED } else { nvidia::FROM_END };
    Ok(Some(vec![Said {
        set: format!("NVIDIA-{id}"),
        key: Vec::new(),
        generation: 0,
        name: name_of(&record.name),
        slots: in_pairs(slots, &level),
        level,
        strip: bytes(u64::from(record.strip))?,
        media_size: Some(bytes(u64::from(record.sectors))?),
        own: (vec![record.disk], state),
        place: (0, disk.size.saturating_sub(behind * SECTOR)),
        is_newest: false,
    }]))
}

fn sii(disk: &mut Disk<'_>) -> Result<Option<Vec<Said>>, String> {
    use sii::{DiskStatus, Kind, Sii};
    let Some(sector) = disk.tail(sii::FROM_END, 512) else { return Ok(None) };
    let Ok(record) = Sii::parse(&sector) else { return Ok(None) };
    let wide = u16::from(record.raid0_disks);
    let (level, count, slot) = match record.kind {
        Kind::Spare => return Err(spare()),
        Kind::Raid0 => (Ok(Level::Raid0), wide, record.disk),
        Kind::Raid1 => (Ok(Level::Raid1), u16::from(record.raid1_disks), record.disk),
        Kind::Raid10 if record.raid1_disks == 2 => {
            let slot = record.raid1_ident.saturating_mul(2).saturating_add(record.raid0_ident);
            (Ok(Level::Raid10), wide * 2, slot)
        }
        Kind::Concat => (Ok(Level::Concat), wide, record.disk),
        Kind::Jbod => (Ok(Level::Concat), 1, 0),
        // FreeBSD and dmraid disagree on the position of the parity.
        Kind::Raid5 => (Err("where the parity of its RAID5 lies is not known".into()), wide, 0),
        other => (Err(format!("level {other} is not supported")), 1, 0),
    };
    if !(1..=16).contains(&count) || u16::from(slot) >= count {
        return Err(format!("it is disk {slot} of {count}"));
    }
    let state = match record.disk_status {
        DiskStatus::Current if record.raid_status == Sii::ONLINE => PartState::Stale,
        DiskStatus::Current => PartState::Active,
        DiskStatus::Rebuild => PartState::Rebuild,
        _ => PartState::Failed,
    };
    let made: String = record.made.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    // The location of the first disk distinguishes volumes created in the same second.
    let id = |slot: u8| vec![slot, record.location];
    Ok(Some(vec![Said {
        set: format!("SiI-{made}"),
        key: vec![record.location],
        generation: record.generation,
        name: name_of(&record.name),
        slots: (0..count as u8).map(|slot| (id(slot), PartState::Active)).collect(),
        level,
        strip: bytes(u64::from(record.strip))?,
        media_size: Some(bytes(record.sectors)?),
        own: (id(slot), state),
        place: (0, disk.size.saturating_sub(sii::RESERVED * SECTOR)),
        is_newest: false,
    }]))
}

fn jmicron(disk: &mut Disk<'_>) -> Result<Option<Vec<Said>>, String> {
    use jmicron::{DISK_MASK, JMicron, Kind, flags};
    let Some(sector) = disk.tail(jmicron::FROM_END, 512) else { return Ok(None) };
    let Ok(record) = JMicron::parse(&sector) else { return Ok(None) };
    let own = record.disk & DISK_MASK;
    let disks: Vec<u32> = record.disks.iter().copied().take_while(|id| *id != 0).collect();
    if disks.iter().all(|id| id & DISK_MASK != own) {
        let is_spare = record.spares.iter().any(|id| *id != 0 && id & DISK_MASK == own);
        let why = if is_spare { spare() } else { format!("its list has no disk {own:08x}") };
        return Err(why);
    }
    let level = match record.kind {
        Kind::Raid0 => Ok(Level::Raid0),
        Kind::Raid1 => Ok(Level::Raid1),
        Kind::Raid01 => Ok(Level::Raid10),
        Kind::Concat => Ok(Level::Concat),
        Kind::Raid5 => Ok(Level::Raid5(Parity::LeftAsymmetric)),
        other @ Kind::Unknown(_) => Err(format!("level {other} is not supported")),
    };
    let size = bytes(record.sectors)?;
    let count = disks.len() as u64;
    let data = match record.kind {
        Kind::Raid0 => Some(count),
        Kind::Raid01 => Some(count / 2),
        Kind::Concat => None,
        Kind::Raid5 => Some(count - 1),
        _ => Some(1),
    };
    let media_size = data.map(|data| size.checked_mul(data).ok_or("it is too large"));
    let is_equal = record.flags & flags::UNSYNC == 0;
    let id = |id: u32| (id & DISK_MASK).to_le_bytes().to_vec();
    Ok(Some(vec![Said {
        set: format!("JMicron-{:08x}", record.set()),
        key: Vec::new(),
        generation: 0,
        name: name_of(&record.name),
        slots: disks.iter().map(|disk| (id(*disk), PartState::Active)).collect(),
        level,
        strip: strip(1024, record.strip_shift),
        media_size: media_size.transpose()?,
        own: (id(own), if is_equal { PartState::Active } else { PartState::Stale }),
        place: (bytes(u64::from(record.offset) * 16)?, size),
        is_newest: record.flags & flags::BAD_SECTORS != 0,
    }]))
}

/// A disk: its identity, its size, and what it records.
type Known<'a> = (&'a [u8], u64, &'a [Said]);

/// The state of a member, according to the newest disk and its own disk.
fn state_of(
    level: Option<Level>,
    newest: &Said,
    slot: usize,
    own: &Said,
    marks: bool,
) -> PartState {
    let mut state = newest.slots[slot].1.min(own.own.1);
    if own.generation != newest.generation {
        state = state.min(PartState::Stale);
    }
    if marks && !own.is_newest {
        state = state.min(PartState::New);
    }
    match level {
        // There is nothing from which it could differ.
        Some(Level::Raid0 | Level::Concat) if state > PartState::Rebuild => PartState::Active,
        _ => state,
    }
}

/// The member for a disk; one is added for a missing disk.
fn member_of(members: &mut Vec<Member>, id: &[u8], size: u64) -> usize {
    members.iter().position(|member| member.id == id).unwrap_or_else(|| {
        members.push(Member { id: id.to_vec(), size, state: MemberState::Active });
        members.len() - 1
    })
}

fn volume_of(
    said: &[(usize, &Said)],
    disks: &[Known<'_>],
    members: &mut Vec<Member>,
    bits: u32,
) -> RaidVolume {
    // Generations wrap around: one is newer if it is less than half the range ahead.
    let ahead = |one: u32, other: u32| one.wrapping_sub(other) << (32 - bits);
    let newer = |one: &Said, other: &Said| {
        let by = ahead(one.generation, other.generation);
        by != 0 && by < 1 << 31
    };
    let first = said[0].1;
    let newest = said.iter().fold(first, |best, (_, it)| if newer(it, best) { it } else { best });
    let marks = said.iter().any(|(_, it)| it.is_newest);
    let level = newest.level.as_ref().ok().copied();
    let mut parts = Vec::new();
    for (slot, (id, _)) in newest.slots.iter().enumerate() {
        let found = said.iter().find(|(_, it)| it.own.0 == *id);
        let part = match found {
            Some(&(disk, own)) => {
                let (known_by, size, _) = disks[disk];
                let member = member_of(members, known_by, size);
                let (offset, size) = own.place;
                let state = state_of(level, newest, slot, own, marks);
                Part { member, offset, size, state, done: 0 }
            }
            None => {
                let member = member_of(members, id, u64::MAX);
                let (offset, size) = newest.place;
                // The size of the part on a missing disk is unknown.
                let is_joined = level == Some(Level::Concat);
                let size = if is_joined { newest.media_size.unwrap_or(0) } else { size };
                Part { member, offset, size, state: PartState::None, done: 0 }
            }
        };
        parts.push(part);
    }
    let sum = || parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.size));
    let media_size = newest.media_size.unwrap_or_else(sum);
    let dirty = parts.iter().any(|part| part.state == PartState::Stale);
    RaidVolume {
        name: newest.name.clone(),
        level: level.unwrap_or(Level::Raid0),
        strip: if level.is_some() { newest.strip } else { newest.strip.max(SECTOR) },
        media_size,
        parts,
        dirty,
        unsupported: newest.level.as_ref().err().cloned(),
    }
}

impl Old {
    /// What these disks describe together.
    fn array_of(&self, set: &str, disks: &[Known<'_>]) -> Result<Array, String> {
        let mut groups: BTreeMap<&[u8], Vec<(usize, &Said)>> = BTreeMap::new();
        for (number, (_, _, said)) in disks.iter().enumerate() {
            for said in *said {
                groups.entry(&said.key).or_default().push((number, said));
            }
        }
        let (mut members, mut volumes) = (Vec::new(), Vec::new());
        for said in groups.values() {
            let mut volume = volume_of(said, disks, &mut members, self.generation_bits);
            if volume.name.is_empty() {
                volume.name = format!("volume{}", volumes.len());
            }
            volumes.push(volume);
        }
        let generation = disks.iter().flat_map(|disk| disk.2).map(|said| said.generation).max();
        let generation = u64::from(generation.unwrap_or(0));
        let said = disks.iter().flat_map(|disk| disk.2.iter().cloned()).collect();
        let array = Array { name: set.into(), generation, members, volumes, wire: Wire::Old(said) };
        array.check().map(|()| array)
    }
}

impl Format for Old {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, graph: &mut Graph, provider: ProviderId) -> Result<Option<Found>, Refused> {
        let there = &graph[provider];
        let (size, sector) = (there.media_size, u64::from(there.sector_size));
        let refused = |why: String| Refused { why, bytes: (size.saturating_sub(sector), sector) };
        if sector != SECTOR {
            return Ok(None);
        }
        let said = (self.read)(&mut Disk { graph, provider, size }).map_err(refused)?;
        let Some(said) = said else { return Ok(None) };
        let id = said[0].own.0.clone();
        let array = self.array_of(&said[0].set, &[(&id, size, &said)]).map_err(refused)?;
        Ok(Some(Found { array, id }))
    }

    fn gather(&self, newest: &Array, all: &[Found]) -> Result<Array, String> {
        let mut disks: Vec<Known<'_>> = Vec::new();
        for found in all {
            let Wire::Old(said) = &found.array.wire else { continue };
            let size = found.array.member(&found.id).map(|at| found.array.members[at].size);
            if disks.iter().all(|(id, ..)| *id != found.id) {
                disks.push((&found.id, size.unwrap_or(0), said));
            }
        }
        self.array_of(&newest.name, &disks)
    }

    fn is_gathered(&self) -> bool {
        true
    }
}
