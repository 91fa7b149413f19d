//! Writing DDF. A disk holds everything twice, after each of its two headers: while one copy is
//! written it is marked as such, and the other one is trusted, both here and by mdadm.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_wire::geom::ddf::{
    self, CRC_AT, Configuration, Guid, Header, NO_DISK, NOWHERE, PHYSICAL_RECORDS, Physical,
    VIRTUAL_RECORDS, Virtual, physical_kind, physical_state,
};

use super::{Conf, Ddf, Home, Joined, SECTOR, Sum, array_of, name_of};
use crate::class::raid::array::{Array, Level, Member, MemberState, Part, PartState, RaidVolume};
use crate::class::raid::format::{Making, Wanted, Wire, Writes, Writing};
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::object::ProviderId;

/// Bytes at the end of each disk that hold no data.
const RESERVED: u64 = 32 << 20;
/// Bytes from the primary header to the end of the disk.
const PRIMARY: u64 = 16 << 20;
/// Members are multiples of 1 MiB, in sectors.
const GRAIN: u64 = 2048;

fn conf(array: &Array) -> &Conf {
    match &array.wire {
        Wire::Ddf(conf) => conf,
        Wire::Intel(_) | Wire::Old(_) => unreachable!("arrays keep their format"),
    }
}

fn conf_mut(array: &mut Array) -> &mut Conf {
    match &mut array.wire {
        Wire::Ddf(conf) => conf,
        Wire::Intel(_) | Wire::Old(_) => unreachable!("arrays keep their format"),
    }
}

/// An identifier made from a random number.
fn guid(random: u64) -> Guid {
    let mut guid = *b"FLYSCH  0000000000000000";
    guid[8..].copy_from_slice(format!("{random:016X}").as_bytes());
    guid
}

fn seal(record: &mut [u8], sum: Sum) {
    let sum = sum.of(record);
    record[CRC_AT..CRC_AT + 4].copy_from_slice(&sum);
}

/// The reference number computed from an identity.
fn reference(id: &[u8]) -> u32 {
    id.first_chunk().map_or(NO_DISK, |bytes| u32::from_be_bytes(*bytes))
}

/// Where a new disk has its headers and its workspace, and the number of sectors before them.
fn home(id: &[u8], size: u64) -> (Home, u64) {
    let sectors = size / SECTOR;
    let front = sectors - RESERVED / SECTOR;
    let reference = reference(id);
    // The same disk always has the same identifier.
    let known_by = u64::from(crc32fast::hash(&size.to_le_bytes())) << 32 | u64::from(reference);
    let data = ddf::disk_data(guid(known_by), reference).to_vec();
    let places = [sectors - PRIMARY / SECTOR, front, front];
    (Home { data, others: Vec::new(), places, anchor: sectors - 1 }, front)
}

/// The identifier in a disk's own data.
fn guid_of(home: &Home) -> Guid {
    *home.data[8..].first_chunk().expect("it is a sector")
}

impl Conf {
    fn entry(&mut self, number: usize) -> &mut [u8] {
        &mut self.disks[(number + 1) * Physical::LEN..][..Physical::LEN]
    }

    fn shown(&mut self, number: usize) -> &mut [u8] {
        &mut self.volumes[(number + 1) * Virtual::LEN..][..Virtual::LEN]
    }

    fn physical(&self, number: usize) -> Option<Physical> {
        self.physicals().find(|(other, _)| *other == number).map(|(_, entry)| entry)
    }

    /// Whether both copies of a disk's metadata are between its data and its anchor without
    /// overlapping.
    fn is_apart(&self, reference: u32, home: &Home) -> bool {
        let Some((_, disk)) = self.physicals().find(|(_, disk)| disk.reference == reference) else {
            // It is no longer a member, and nothing is written to it.
            return true;
        };
        let Header { controller, physical, virtuals, configurations, data, .. } = self.header;
        let sections = [controller, physical, virtuals, configurations, data];
        let ends = sections.map(|(first, count)| u64::from(first) + u64::from(count));
        let len = ends.into_iter().max().unwrap_or(1);
        let [primary, secondary, _] = home.places;
        let (low, high) = (primary.min(secondary), primary.max(secondary));
        let end = |start: u64| start.checked_add(len);
        disk.sectors <= low
            && end(low).is_some_and(|end| end <= high)
            && end(high).is_some_and(|end| end <= home.anchor)
            && sections.iter().all(|(first, _)| *first > 0)
    }

    /// The lowest unused entry in the table of disks.
    fn free_entry(&self) -> Option<usize> {
        let count = self.disks.len() / Physical::LEN - 1;
        (0..count).find(|number| self.physicals().all(|(other, _)| other != *number))
    }

    /// Puts a disk into the table.
    fn put_disk(&mut self, number: usize, id: &[u8], size: u64, kind: u16) -> u64 {
        let (home, front) = home(id, size);
        let reference = reference(id);
        let physical = Physical {
            reference,
            kind: physical_kind::FORCED_GUID | kind,
            state: physical_state::ONLINE,
            sectors: front,
        };
        // It may have been another member before.
        let others =
            self.physicals().filter(|(other, it)| it.reference == reference && *other != number);
        for other in others.map(|(other, _)| other).collect::<Vec<_>>() {
            self.entry(other).fill(0xFF);
            let entries = self.entries.iter_mut().filter(|entry| **entry == Some(other));
            entries.for_each(|entry| *entry = None);
        }
        physical.emit(self.entry(number), Some(guid_of(&home)));
        self.homes.insert(reference, home);
        front * SECTOR
    }

    /// The records of a volume, in the order of its parts.
    fn records(&mut self, guid: Guid) -> Vec<&mut Joined> {
        let mut found: Vec<&mut Joined> =
            self.parts.iter_mut().filter(|part| part.configuration.guid == guid).collect();
        found.sort_by_key(|part| part.configuration.part);
        found
    }

    /// Sets the members of a volume, with the first sectors of their parts.
    fn set_members(&mut self, guid: Guid, members: &[(u32, u64)]) {
        let most = self.header.members_max;
        let mut members = members.iter();
        for joined in self.records(guid) {
            let count = usize::from(joined.configuration.members);
            let new: Vec<(u32, u64)> = members.by_ref().take(count).copied().collect();
            if joined.members == new {
                continue;
            }
            let sequence = joined.configuration.sequence.wrapping_add(1);
            joined.configuration.sequence = sequence;
            Configuration::set_sequence(&mut joined.record, sequence);
            for (number, member) in new.iter().enumerate() {
                Configuration::set_member(&mut joined.record, most, number as u16, *member);
            }
            joined.members = new;
        }
    }

    /// All sections of a disk, from the one after its header to its own data.
    fn sections(&self, reference: u32) -> Vec<(u32, Vec<u8>)> {
        let len = usize::from(self.header.configuration_len.max(1)) * ddf::SECTOR;
        let mut configurations =
            vec![0xFF; self.header.configurations.1 as usize * ddf::SECTOR / len * len];
        let home = self.homes.get(&reference);
        let others = home.into_iter().flat_map(|home| &home.others);
        let parts = self.parts.iter();
        let own = parts.filter(|part| part.members.iter().any(|(disk, _)| *disk == reference));
        let records = own.map(|part| &part.record).chain(others);
        for (place, record) in configurations.chunks_exact_mut(len).zip(records) {
            place.copy_from_slice(record);
            seal(place, self.sum);
        }
        let mut sections = vec![
            (self.header.controller.0, self.controller.clone()),
            (self.header.physical.0, self.disks.clone()),
            (self.header.virtuals.0, self.volumes.clone()),
            (self.header.configurations.0, configurations),
        ];
        if let Some(home) = home {
            sections.push((self.header.data.0, home.data.clone()));
        }
        for (_, section) in
            sections.iter_mut().filter(|(at, _)| *at != self.header.configurations.0)
        {
            if !section.is_empty() {
                seal(section, self.sum);
            }
        }
        sections.retain(|(_, section)| !section.is_empty());
        sections.sort_by_key(|(at, _)| *at);
        sections
    }
}

/// The parts of a level and the members of each, if this number of disks is possible.
fn shape(level: Level, count: usize) -> Option<(u8, u8, usize)> {
    match (level, count) {
        (Level::Raid0, 2..=16) => Some((0, 0, 1)),
        (Level::Raid1, 2) => Some((1, 0, 1)),
        (Level::Raid1, 3) => Some((1, 1, 1)),
        (Level::Raid10, 4..=14) if count.is_multiple_of(2) => Some((1, 0, count / 2)),
        _ => None,
    }
}

/// The members that hold volumes, or that could if there are none yet.
fn bearers(array: &Array) -> Vec<usize> {
    let parts = || array.volumes.iter().flat_map(|volume| &volume.parts);
    let is_one =
        |number: &usize| array.volumes.is_empty() || parts().any(|it| it.member == *number);
    (0..array.members.len()).filter(is_one).collect()
}

/// Where a new volume begins on each disk, and how many sectors are available for it.
fn room(array: &Array) -> (u64, u64) {
    let sizes = bearers(array).into_iter().map(|member| array.members[member].size / SECTOR);
    let least = sizes.min().unwrap_or(0);
    let ends = array.volumes.iter().flat_map(|volume| &volume.parts);
    let ends = ends.map(|part| (part.offset + part.size) / SECTOR);
    let start = ends.max().unwrap_or(0).next_multiple_of(GRAIN);
    (start, least.saturating_sub(start) / GRAIN * GRAIN)
}

/// Where the wanted volume begins on each disk, and its number of sectors there.
fn place(array: &Array, wanted: &Wanted<'_>) -> Result<(u64, u64), GeomError> {
    let wrong = |cause: String| GeomError::invalid(wanted.name, cause);
    let name = wanted.name;
    if !(1..=16).contains(&name.len()) || name.chars().any(|it| it.is_control() || it == '/') {
        return Err(wrong("a name must have 1 to 16 bytes".into()));
    }
    if array.volumes.iter().any(|volume| volume.name == name) {
        return Err(GeomError::new(Kind::Exists, name, "a volume of this name already exists"));
    }
    let strip = wanted.strip / SECTOR;
    let is_whole = wanted.strip.is_multiple_of(SECTOR) && strip.is_power_of_two();
    if !is_whole || !(8..=2048).contains(&strip) {
        return Err(wrong("a strip must have 4 KiB to 1 MiB, a power of two".into()));
    }
    let (start, most) = room(array);
    let blocks = match wanted.size {
        None => most,
        Some(size) if size.is_multiple_of(SECTOR) => size / SECTOR / GRAIN * GRAIN,
        Some(size) => return Err(wrong(format!("{size} bytes are not whole sectors"))),
    };
    if blocks == 0 || blocks > most {
        let (size, most) = (blocks * SECTOR, most * SECTOR);
        let cause = format!("{size} bytes of each disk are wanted, but {most} are free");
        return Err(GeomError::new(Kind::NoSpace, name, cause));
    }
    Ok((start, blocks))
}

impl Making for Ddf {
    fn room(&self, size: u64) -> u64 {
        size.saturating_sub(RESERVED)
    }

    fn create(&self, random: u64, disks: &[(Vec<u8>, u64)]) -> Result<Array, GeomError> {
        if disks.is_empty() || disks.len() > 15 {
            let cause = format!("has {} disks; it must have 1 to 15", disks.len());
            return Err(GeomError::invalid("the array", cause));
        }
        if disks.iter().any(|(_, size)| *size < 2 * RESERVED) {
            let cause = format!("one of its disks has less than {} MiB", (2 * RESERVED) >> 20);
            return Err(GeomError::new(Kind::NoSpace, "the array", cause));
        }
        let own = guid(random);
        let head = Header::anchor(own);
        let header = Header::parse(&head).expect("it is as it is read");
        let table = |magic, count: u32| {
            let mut bytes = vec![0; count as usize * ddf::SECTOR];
            ddf::begin_table(&mut bytes, magic, 15);
            bytes
        };
        let mut conf = Conf {
            sum: Sum::Mdadm,
            head: head.to_vec(),
            header,
            controller: ddf::controller(own, *b"flysch          ").to_vec(),
            disks: table(PHYSICAL_RECORDS, header.physical.1),
            volumes: table(VIRTUAL_RECORDS, header.virtuals.1),
            parts: Vec::new(),
            homes: BTreeMap::new(),
            entries: Vec::new(),
            shown: Vec::new(),
        };
        for (number, (id, size)) in disks.iter().enumerate() {
            conf.put_disk(number, id, *size, physical_kind::GLOBAL_SPARE);
        }
        ddf::set_count(&mut conf.disks, disks.len() as u16);
        array_of(name_of(&own), 0, conf).map_err(|why| GeomError::invalid("the array", why))
    }

    fn add(&self, array: &mut Array, wanted: &Wanted<'_>) -> Result<(), GeomError> {
        let wrong = |cause: String| GeomError::invalid(wanted.name, cause);
        let members = bearers(array);
        let count = members.len();
        let Some((level, qualifier, parts)) = shape(wanted.level, count) else {
            let disks = counted(count, "disk", "disks");
            return Err(wrong(format!("{} cannot have {disks}", wanted.level.name())));
        };
        let (start, blocks) = place(array, wanted)?;
        let (name, strip) = (wanted.name, wanted.strip / SECTOR);
        let data = match wanted.level {
            Level::Raid0 => count as u64,
            Level::Raid1 => 1,
            _ => count as u64 / 2,
        };
        let conf = conf_mut(array);
        let most = usize::from(u16::from_be_bytes([conf.head[132], conf.head[133]]));
        let entries = conf.volumes.len() / Virtual::LEN - 1;
        let free = (0..entries).find(|number| conf.virtuals().all(|(other, _)| other != *number));
        let Some(number) = free.filter(|_| conf.shown.len() < most) else {
            return Err(wrong("its tables are full".into()));
        };
        let seed = conf.virtuals().fold(u64::from(conf.header.sequence), |sum, (_, it)| {
            sum.wrapping_mul(31).wrapping_add(u64::from(crc32fast::hash(&it.guid)))
        });
        let own = u64::from(crc32fast::hash(&conf.header.guid)) << 32;
        let own = guid(own | u64::from(crc32fast::hash(&seed.to_le_bytes())));
        let mut wire_name = [0; 16];
        wire_name[..name.len()].copy_from_slice(name.as_bytes());
        let volume =
            Virtual { guid: own, state: 0, initialization: Virtual::INITIALIZED, name: wire_name };
        volume.emit(number as u16, conf.shown(number));
        let configuration = Configuration {
            guid: own,
            sequence: 0,
            members: (count / parts) as u16,
            strip_shift: strip.trailing_zeros() as u8,
            level,
            qualifier,
            parts: parts as u8,
            part: 0,
            blocks,
            volume_blocks: blocks * data,
        };
        let len = usize::from(conf.header.configuration_len) * ddf::SECTOR;
        for part in 0..parts as u8 {
            let configuration = Configuration { part, ..configuration };
            let mut record = vec![0; len];
            configuration.emit(&mut record, conf.header.members_max);
            conf.parts.push(Joined { configuration, members: Vec::new(), record });
        }
        conf.shown.push(number);
        let part = |member| Part {
            member,
            offset: start * SECTOR,
            size: blocks * SECTOR,
            state: PartState::Active,
            done: 0,
        };
        array.volumes.push(RaidVolume {
            name: name.into(),
            level: wanted.level,
            strip: wanted.strip,
            media_size: blocks * data * SECTOR,
            parts: members.into_iter().map(part).collect(),
            dirty: false,
            unsupported: None,
        });
        array.check().map_err(wrong)
    }

    fn delete(&self, array: &mut Array, volume: usize) {
        array.volumes.remove(volume);
        let conf = conf_mut(array);
        let number = conf.shown.remove(volume);
        let gone = conf.virtuals().find(|(other, _)| *other == number).map(|(_, it)| it.guid);
        conf.parts.retain(|part| Some(part.configuration.guid) != gone);
        conf.shown(number).fill(0xFF);
    }

    fn replace(&self, array: &mut Array, member: usize, (id, size): (Vec<u8>, u64)) {
        let conf = conf_mut(array);
        let entry = conf.entries[member].or_else(|| conf.free_entry());
        // If there are more members than entries, the table is full of missing members.
        let entry = entry.unwrap_or(0);
        conf.entries[member] = Some(entry);
        let size = conf.put_disk(entry, &id, size, physical_kind::ACTIVE);
        array.members[member] = Member { id, size, state: MemberState::Active };
    }

    fn spare(
        &self,
        array: &mut Array,
        (id, size): (Vec<u8>, u64),
    ) -> Result<Option<Writes>, GeomError> {
        let name = array.name.clone();
        let full = || GeomError::new(Kind::NoSpace, name.clone(), "its table of disks is full");
        let conf = conf(array);
        let used = |number: usize| {
            array.volumes.iter().flat_map(|it| &it.parts).any(|part| part.member == number)
        };
        // Missing disks without volumes make room.
        let away =
            array.members.iter().zip(&conf.entries).enumerate().find(|(number, (member, _))| {
                member.state == MemberState::Missing && !used(*number)
            });
        let away = away.and_then(|(_, (_, entry))| *entry);
        let entry = conf.free_entry().or(away).ok_or_else(full)?;
        let conf = conf_mut(array);
        let taken = conf.entries.iter_mut().filter(|it| **it == Some(entry));
        taken.for_each(|it| *it = None);
        let size = conf.put_disk(entry, &id, size, physical_kind::GLOBAL_SPARE);
        conf.entries.push(Some(entry));
        array.members.push(Member { id, size, state: MemberState::Active });
        Ok(None)
    }
}

impl Writing for Ddf {
    fn identity(&self, graph: &Graph, provider: ProviderId) -> Result<Vec<u8>, GeomError> {
        let there = &graph[provider];
        if u64::from(there.sector_size) != SECTOR {
            return Err(GeomError::invalid(&there.name, "DDF needs sectors of 512 bytes"));
        }
        if there.media_size < 2 * RESERVED {
            let cause = format!("has less than {} MiB", (2 * RESERVED) >> 20);
            return Err(GeomError::new(Kind::NoSpace, &there.name, cause));
        }
        let text = graph.attribute(provider, "GEOM::ident").and_then(|value| value.text());
        let missing = || GeomError::invalid(&there.name, "has no serial number, and needs one");
        let text = text.ok_or_else(missing)?;
        // Neither zero nor all ones, which mean no disk.
        let reference = crc32fast::hash(text.as_bytes()).clamp(1, NO_DISK - 1);
        Ok(reference.to_be_bytes().to_vec())
    }

    fn objection(&self, array: &Array) -> Option<String> {
        let conf = conf(array);
        let has_two = |home: &Home| home.places[1] != NOWHERE;
        if !conf.homes.values().all(has_two) {
            return Some(
                "a disk has only one copy of its metadata: a power cut could leave none".into(),
            );
        }
        let is_apart = |(reference, home): (&u32, &Home)| conf.is_apart(*reference, home);
        if !conf.homes.iter().all(is_apart) {
            return Some("its metadata lies where data could be".into());
        }
        let is_small = conf.controller.len() != ddf::SECTOR || conf.header.configuration_len == 0;
        is_small.then(|| "its sections are not arranged as they are written here".into())
    }

    fn is_torn(&self, _: &mut Graph, _: ProviderId, _: &Array) -> bool {
        // A disk holds everything twice.
        false
    }

    fn advance(&self, array: &mut Array) {
        array.generation = u64::from((array.generation as u32).wrapping_add(1));
        let Array { members, volumes, wire, generation, .. } = array;
        let Wire::Ddf(conf) = wire else { return };
        conf.header.sequence = *generation as u32;
        let states = |member: usize| {
            let parts = volumes.iter().flat_map(|volume| &volume.parts);
            parts.filter(move |part| part.member == member).map(|part| part.state)
        };
        for (number, member) in members.iter_mut().enumerate() {
            let Some(entry) = conf.entries[number] else { continue };
            let Some(mut physical) = conf.physical(entry) else { continue };
            let is_used = states(number).next().is_some();
            physical.state &= !(physical_state::ONLINE
                | physical_state::FAILED
                | physical_state::REBUILDING
                | physical_state::MISSING);
            let mut is_new =
                states(number).any(|state| matches!(state, PartState::New | PartState::Rebuild));
            is_new &= member.state == MemberState::Active;
            physical.state |= match member.state {
                MemberState::Active if is_new => {
                    physical_state::ONLINE | physical_state::REBUILDING
                }
                MemberState::Active => physical_state::ONLINE,
                MemberState::Failed => physical_state::ONLINE | physical_state::FAILED,
                MemberState::Missing => {
                    member.id = Vec::new();
                    physical_state::FAILED | physical_state::MISSING
                }
            };
            let spare = physical_kind::GLOBAL_SPARE | physical_kind::SPARE;
            let has_spare = physical.kind & spare != 0;
            physical.kind &= !(physical_kind::ACTIVE | if is_used { spare } else { 0 });
            physical.kind |= match (is_used, has_spare) {
                (true, _) => physical_kind::ACTIVE,
                (false, false) => physical_kind::GLOBAL_SPARE,
                (false, true) => 0,
            };
            physical.emit(conf.entry(entry), None);
        }
        let references: Vec<Option<u32>> =
            conf.entries.iter().map(|entry| Some(conf.physical((*entry)?)?.reference)).collect();
        for (at, volume) in volumes.iter().enumerate() {
            if volume.unsupported.is_some() {
                continue;
            }
            let number = conf.shown[at];
            let Some((_, shown)) = conf.virtuals().find(|(other, _)| *other == number) else {
                continue;
            };
            let (state, initialization) = told(volume, &shown);
            Virtual::set_state(conf.shown(number), state, initialization);
            let part =
                |part: &Part| (references[part.member].unwrap_or(NO_DISK), part.offset / SECTOR);
            let parts: Vec<(u32, u64)> = volume.parts.iter().map(part).collect();
            conf.set_members(shown.guid, &parts);
        }
        let (disks, shown) = (conf.physicals().count(), conf.virtuals().count());
        ddf::set_count(&mut conf.disks, disks as u16);
        ddf::set_count(&mut conf.volumes, shown as u16);
    }

    fn emit(&self, array: &Array, member: usize) -> Writes {
        let conf = conf(array);
        let entry = conf.entries[member].and_then(|entry| conf.physical(entry));
        let Some(reference) = entry.map(|entry| entry.reference) else { return Writes::new() };
        let Some(home) = conf.homes.get(&reference) else { return Writes::new() };
        let head = |kind: u8, sequence: u32, open: u8| {
            let mut bytes = conf.head.clone();
            Header::set_places(&mut bytes, home.places);
            Header::set_kind(&mut bytes, kind, sequence, open);
            seal(&mut bytes, conf.sum);
            bytes
        };
        let mut writes = Writes::new();
        for (kind, place) in [(1, home.places[0]), (2, home.places[1])] {
            let at = place * SECTOR;
            // While this copy is open, everybody considers it older than the other one.
            writes.push((at, head(kind, 0, 1)));
            for (first, bytes) in conf.sections(reference) {
                writes.push((at + u64::from(first) * SECTOR, bytes));
            }
            writes.push((at, head(kind, conf.header.sequence, 0)));
        }
        writes.push((home.anchor * SECTOR, head(0, u32::MAX, 0xFF)));
        writes
    }

    fn erase(&self, size: u64) -> Writes {
        // Nothing refers to the rest then.
        vec![((size / SECTOR).saturating_sub(1) * SECTOR, vec![0; ddf::SECTOR])]
    }
}

/// The state of a volume, as in the table.
fn told(volume: &RaidVolume, before: &Virtual) -> (u8, u8) {
    use crate::class::raid::array::VolumeState::{Broken, Degraded};
    let differs = volume.dirty
        || volume.parts.iter().any(|it| matches!(it.state, PartState::Stale | PartState::Resync));
    let low = match volume.state() {
        Broken => 4,
        Degraded => 1,
        _ => 0,
    };
    let kept = before.state & !(7 | Virtual::INCONSISTENT);
    let was_made_equal = before.initialization & Virtual::INITIALIZED != 0;
    let initialization = if was_made_equal || !differs { Virtual::INITIALIZED } else { 0 };
    (kept | low | if differs { Virtual::INCONSISTENT } else { 0 }, initialization)
}
