//! DDF (SNIA Common RAID Disk Data Format), big endian, as written by mdadm and RAID controllers.
//!
//! Each disk has the tables of all disks and volumes, but only the configurations of the volumes on
//! it: where a second level joins parts, all disks are needed.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::geom::ddf::{
    self, CRC_AT, Configuration, Guid, HEADER, Header, NO_DISK, NOWHERE, PHYSICAL_RECORDS,
    Physical, VIRTUAL_RECORDS, Virtual, physical_state,
};
use flysch_wire::geom::text;

use super::array::{Array, Level, Member, MemberState, Parity, Part, PartState, RaidVolume};
use super::format::{Format, Found, Refused, Wire, Writing};
use crate::graph::Graph;
use crate::object::ProviderId;

mod write;

/// The type of the format.
#[derive(Debug)]
pub struct Ddf;

/// The format, an entry of [`FORMATS`](super::format::FORMATS).
pub static DDF: Ddf = Ddf;

const SECTOR: u64 = ddf::SECTOR as u64;
/// Maximum sectors of a section: 4096 entries need 512, configurations of 64 volumes 455.
const SECTION_MAX: u32 = 4096;
/// Maximum number of configurations examined on one disk.
const CONFIGURATIONS_MAX: usize = 1024;

/// A part of a volume, with its members: the reference and the first sector of each.
#[derive(Clone, Debug)]
struct Joined {
    configuration: Configuration,
    members: Vec<(u32, u64)>,
    record: Vec<u8>,
}

/// What belongs to one disk.
#[derive(Clone, Debug)]
struct Home {
    data: Vec<u8>,
    /// Records among its configurations that do not describe volumes.
    others: Vec<Vec<u8>>,
    /// Sectors of the primary header, the secondary header and the workspace.
    places: [u64; 3],
    /// The sector of the anchor.
    anchor: u64,
}

/// How checksums are computed: the usual CRC-32, or without the initial and final inversion, as
/// mdadm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    Usual,
    Mdadm,
}

impl Sum {
    fn of(self, record: &[u8]) -> [u8; 4] {
        let (mut hasher, inversion) = match self {
            Self::Usual => (crc32fast::Hasher::new(), 0),
            Self::Mdadm => (crc32fast::Hasher::new_with_initial(u32::MAX), u32::MAX),
        };
        hasher.update(&record[..CRC_AT]);
        hasher.update(&[0xFF; 4]);
        hasher.update(&record[CRC_AT + 4..]);
        (hasher.finalize() ^ inversion).to_be_bytes()
    }
}

/// What one disk records, or all of them together.
#[derive(Clone, Debug)]
pub struct Conf {
    sum: Sum,
    /// The common part of the header: what is equal on all disks.
    head: Vec<u8>,
    header: Header,
    controller: Vec<u8>,
    /// The tables of disks and of volumes.
    disks: Vec<u8>,
    volumes: Vec<u8>,
    parts: Vec<Joined>,
    /// By the references of the disks.
    homes: BTreeMap<u32, Home>,
    /// For each member, its entry in the table of disks, if it has one.
    entries: Vec<Option<usize>>,
    /// For each volume, its entry in the table of volumes.
    shown: Vec<usize>,
}

impl Conf {
    /// The disks of the table, each with its index.
    fn physicals(&self) -> impl Iterator<Item = (usize, Physical)> {
        let entries = self.disks.chunks_exact(Physical::LEN).skip(1).enumerate();
        entries.filter_map(|(number, entry)| Some((number, Physical::parse(entry).ok()??)))
    }

    /// The volumes of the table, each with its index.
    fn virtuals(&self) -> impl Iterator<Item = (usize, Virtual)> {
        let entries = self.volumes.chunks_exact(Virtual::LEN).skip(1).enumerate();
        entries.filter_map(|(number, entry)| Some((number, Virtual::parse(entry).ok()??)))
    }
}

fn is_sound(record: &[u8]) -> bool {
    sum_of(record).is_some()
}

/// How the checksum of a record was computed, if it is correct.
fn sum_of(record: &[u8]) -> Option<Sum> {
    [Sum::Usual, Sum::Mdadm].into_iter().find(|sum| sum.of(record) == record[CRC_AT..CRC_AT + 4])
}

/// Reads the metadata of one disk.
struct Reader<'g> {
    graph: &'g mut Graph,
    provider: ProviderId,
    /// Sector of the header that is used.
    base: u64,
}

impl Reader<'_> {
    fn sectors(&mut self, first: u64, count: u32) -> Result<Vec<u8>, String> {
        let at = first.checked_mul(SECTOR).ok_or("it leads outside of the disk")?;
        let mut bytes = vec![0; count as usize * ddf::SECTOR];
        let read = self.graph.peek(self.provider, at, &mut bytes);
        read.map_err(|error| error.to_string()).map(|()| bytes)
    }

    fn header(&mut self, at: u64, kind: u8, anchor: &Header) -> Result<Header, String> {
        let bytes = self.sectors(at, 1)?;
        let header = Header::parse(&bytes).map_err(|error| error.to_string())?;
        if !is_sound(&bytes) {
            return Err("its checksum is wrong".into());
        }
        let is_same = header.guid == anchor.guid
            && header.revision == anchor.revision
            && (header.primary, header.secondary) == (anchor.primary, anchor.secondary);
        match is_same && header.kind == kind {
            true => Ok(header),
            false => Err("it is not the one that the anchor names".into()),
        }
    }

    /// The header to use: the newer of the two, unless it was being written.
    fn choose(&mut self, anchor: &Header) -> Result<Header, String> {
        let primary = self.header(anchor.primary, 1, anchor);
        let secondary = match anchor.secondary {
            NOWHERE => Err("there is none".into()),
            at => self.header(at, 2, anchor),
        };
        let (header, base) = match (primary, secondary) {
            (Ok(first), Ok(second)) => {
                let rank = |header: &Header| (!header.open, header.sequence);
                match rank(&first) >= rank(&second) {
                    true => (first, anchor.primary),
                    false => (second, anchor.secondary),
                }
            }
            (Ok(first), Err(_)) => (first, anchor.primary),
            (Err(_), Ok(second)) => (second, anchor.secondary),
            (Err(why), Err(_)) => return Err(format!("neither header is sound; the first: {why}")),
        };
        self.base = base;
        Ok(header)
    }

    fn section(&mut self, (offset, len): (u32, u32), what: &str) -> Result<Vec<u8>, String> {
        if !(1..=SECTION_MAX).contains(&len) {
            return Err(format!("its {what} has {len} sectors"));
        }
        let first =
            self.base.checked_add(u64::from(offset)).ok_or("it leads outside of the disk")?;
        self.sectors(first, len).map_err(|why| format!("its {what}: {why}"))
    }

    /// A table with a checksum over all of it.
    fn table(&mut self, place: (u32, u32), magic: u32, what: &str) -> Result<Vec<u8>, String> {
        let bytes = self.section(place, what)?;
        match ddf::magic(&bytes) == Ok(magic) && is_sound(&bytes) {
            true => Ok(bytes),
            false => Err(format!("its {what} is not sound")),
        }
    }

    /// The configurations of volumes, and the other records among them.
    fn parts(&mut self, header: &Header) -> Result<(Vec<Joined>, Vec<Vec<u8>>), String> {
        let bytes = self.section(header.configurations, "configurations")?;
        let len = usize::from(header.configuration_len.max(1)) * ddf::SECTOR;
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        for record in bytes.chunks_exact(len).take(CONFIGURATIONS_MAX) {
            if ddf::magic(record) != Ok(ddf::CONFIGURATION) {
                if record.iter().any(|byte| *byte != 0xFF) {
                    others.push(record.to_vec());
                }
                continue;
            }
            if !is_sound(record) {
                return Err("the configuration of a volume has a wrong checksum".into());
            }
            let configuration = Configuration::parse(record).map_err(|error| error.to_string())?;
            let member = |number| Configuration::member(record, header.members_max, number);
            let members = (0..configuration.members).map(member).collect::<Result<Vec<_>, _>>();
            // No cause: the only possible error is a number beyond the table.
            let members = members.map_err(|_| "a volume has more members than fit".to_string())?;
            parts.push(Joined { configuration, members, record: record.to_vec() });
        }
        Ok((parts, others))
    }

    fn read(&mut self) -> Result<Option<Found>, String> {
        let there = &self.graph[self.provider];
        let (sectors, sector) = (there.media_size / SECTOR, u64::from(there.sector_size));
        if sectors < 4 || sector != SECTOR {
            return Ok(None);
        }
        let Ok(last) = self.sectors(sectors - 1, 1) else { return Ok(None) };
        if ddf::magic(&last) == Ok(HEADER.swap_bytes()) {
            return Err("it is little endian, which is not understood".into());
        }
        if ddf::magic(&last) != Ok(HEADER) {
            return Ok(None);
        }
        let anchor = Header::parse(&last).map_err(|error| error.to_string())?;
        let sum = sum_of(&last).ok_or("the checksum of its anchor is wrong")?;
        let header = self.choose(&anchor)?;
        let disks = self.table(header.physical, PHYSICAL_RECORDS, "table of disks")?;
        let volumes = self.table(header.virtuals, VIRTUAL_RECORDS, "table of volumes")?;
        let data = self.section((header.data.0, 1), "data of the disk")?;
        if !is_sound(&data) {
            return Err("the data of the disk are not sound".into());
        }
        let reference = ddf::reference(&data).map_err(|error| error.to_string())?;
        let (parts, others) = self.parts(&header)?;
        // It is not interpreted, but written back unchanged.
        let controller = self.section(header.controller, "data of the controller");
        let controller = controller.unwrap_or_default();
        let places = [anchor.primary, anchor.secondary, Header::workspace(&last)];
        let home = Home { data, others, places, anchor: sectors - 1 };
        let homes = BTreeMap::from([(reference, home)]);
        let (entries, shown) = (Vec::new(), Vec::new());
        let conf = Conf {
            sum,
            head: last,
            header,
            controller,
            disks,
            volumes,
            parts,
            homes,
            entries,
            shown,
        };
        if conf.physicals().all(|(_, disk)| disk.reference != reference) {
            return Err(format!("its table of disks has no disk {reference:08x}, which this is"));
        }
        let name = name_of(&header.guid);
        let array = array_of(name, u64::from(header.sequence), conf)?;
        array.check()?;
        Ok(Some(Found { array, id: reference.to_be_bytes().to_vec() }))
    }
}

/// The geom's name for a set of disks.
fn name_of(guid: &Guid) -> String {
    format!("DDF-{:08x}", crc32fast::hash(guid))
}

fn level_of(configuration: &Configuration) -> Result<Level, String> {
    let Configuration { level, qualifier, members, parts, .. } = *configuration;
    match (level, qualifier, members, parts) {
        (0, _, _, 0 | 1) => Ok(Level::Raid0),
        (1, _, _, 0 | 1) => Ok(Level::Raid1),
        (1, _, 2, _) => Ok(Level::Raid10),
        (5, 0, _, 0 | 1) => Ok(Level::Raid5(Parity::RightAsymmetric)),
        (5, 2, _, 0 | 1) => Ok(Level::Raid5(Parity::LeftAsymmetric)),
        (5, 3, _, 0 | 1) => Ok(Level::Raid5(Parity::LeftSymmetric)),
        (0x1F, _, _, 0 | 1) => Ok(Level::Concat),
        _ => Err(format!("level {level:#x} ({qualifier}) in {parts} parts is unknown")),
    }
}

fn array_of(name: String, generation: u64, mut conf: Conf) -> Result<Array, String> {
    let mut members: Vec<Member> = Vec::new();
    let physicals: Vec<(usize, Physical)> = conf.physicals().collect();
    conf.entries = physicals.iter().map(|(number, _)| Some(*number)).collect();
    for (_, disk) in &physicals {
        let size = disk.sectors.checked_mul(SECTOR).ok_or("a disk is too large")?;
        let has = |bit: u16| disk.state & bit != 0;
        let state = match (has(physical_state::MISSING), has(physical_state::FAILED)) {
            (true, _) => MemberState::Missing,
            (false, true) => MemberState::Failed,
            (false, false) if has(physical_state::ONLINE) => MemberState::Active,
            (false, false) => MemberState::Missing,
        };
        // A missing disk has missed writes: it no longer has a place when it returns.
        let is_away = state == MemberState::Missing;
        let id = if is_away { Vec::new() } else { disk.reference.to_be_bytes().to_vec() };
        members.push(Member { id, size, state });
    }
    // The parts of each volume in order; the newest of those that describe the same part.
    let mut newest: BTreeMap<Guid, BTreeMap<u8, &Joined>> = BTreeMap::new();
    for part in &conf.parts {
        let of = newest.entry(part.configuration.guid).or_default();
        let known = of.entry(part.configuration.part).or_insert(part);
        if known.configuration.sequence < part.configuration.sequence {
            *known = part;
        }
    }
    let (mut volumes, mut shown) = (Vec::new(), Vec::new());
    for (number, volume) in conf.virtuals() {
        let Some(parts) = newest.get(&volume.guid) else { continue };
        let made = volume_of((number, &volume), parts, (&physicals, &mut members))?;
        shown.extend(made.is_some().then_some(number));
        volumes.extend(made);
    }
    let parts = newest.into_values().flat_map(BTreeMap::into_values).cloned().collect();
    (conf.parts, conf.shown) = (parts, shown);
    conf.entries.resize(members.len(), None);
    Ok(Array { name, generation, members, volumes, wire: Wire::Ddf(Box::new(conf)) })
}

/// A volume, if all of its parts are known.
fn volume_of(
    (number, volume): (usize, &Virtual),
    joined: &BTreeMap<u8, &Joined>,
    (physicals, members): (&[(usize, Physical)], &mut Vec<Member>),
) -> Result<Option<RaidVolume>, String> {
    let Some(first) = joined.values().next().map(|part| part.configuration) else {
        return Ok(None);
    };
    let name = text(&volume.name).unwrap_or_default().trim_matches(['\u{FF}', ' ']);
    let name: String = name.chars().filter(|it| !it.is_control()).collect();
    let name = if name.is_empty() { format!("volume{number}") } else { name };
    let (level, mut unsupported) = match level_of(&first) {
        Ok(level) => (level, None),
        Err(why) => (Level::Raid0, Some(why)),
    };
    if volume.state & Virtual::MORPHING != 0 {
        unsupported =
            Some("its level or size is being changed; let that finish where it was begun".into());
    }
    if level == Level::Raid10 && joined.len() != usize::from(first.parts) {
        return Ok(None);
    }
    let differs = volume.state & Virtual::INCONSISTENT != 0
        || volume.initialization & Virtual::INITIALIZED == 0;
    let bytes = |blocks: u64| blocks.checked_mul(SECTOR).ok_or("a volume is too large");
    let mut parts = Vec::new();
    for joined in joined.values() {
        for &(reference, start) in &joined.members {
            let known = physicals.iter().position(|(_, disk)| disk.reference == reference);
            let member = known.filter(|_| reference != NO_DISK).unwrap_or_else(|| {
                let (id, state) = (Vec::new(), MemberState::Missing);
                members.push(Member { id, size: u64::MAX, state });
                members.len() - 1
            });
            let rebuilt =
                physicals.get(member).map_or(0, |it| it.1.state) & physical_state::REBUILDING;
            let state = match level {
                _ if rebuilt != 0 => PartState::Rebuild,
                Level::Raid0 | Level::Concat => PartState::Active,
                _ if differs => PartState::Stale,
                _ => PartState::Active,
            };
            let (offset, size) = (bytes(start)?, bytes(joined.configuration.blocks)?);
            parts.push(Part { member, offset, size, state, done: 0 });
        }
    }
    Ok(Some(RaidVolume {
        name,
        level,
        strip: SECTOR
            .checked_shl(u32::from(first.strip_shift))
            .filter(|it| *it <= 1 << 30)
            .unwrap_or(0),
        media_size: bytes(first.volume_blocks)?,
        parts,
        dirty: differs,
        unsupported,
    }))
}

impl Format for Ddf {
    fn name(&self) -> &'static str {
        "DDF"
    }

    fn read(&self, graph: &mut Graph, provider: ProviderId) -> Result<Option<Found>, Refused> {
        let bytes = (graph[provider].last_sector(), SECTOR);
        let read = Reader { graph, provider, base: 0 }.read();
        read.map_err(|why| Refused { why, bytes })
    }

    fn gather(&self, newest: &Array, all: &[Found]) -> Result<Array, String> {
        let Wire::Ddf(conf) = &newest.wire else { return Ok(newest.clone()) };
        let mut conf: Conf = (**conf).clone();
        for found in all {
            let Wire::Ddf(other) = &found.array.wire else { continue };
            // What a disk records about volumes that are in no table is obsolete.
            let known = newest.member(&found.id).map(|member| newest.members[member].state);
            if known == Some(MemberState::Active) {
                conf.parts.extend(other.parts.iter().cloned());
            }
            for (reference, home) in &other.homes {
                conf.homes.entry(*reference).or_insert_with(|| home.clone());
            }
        }
        let array = array_of(newest.name.clone(), newest.generation, conf)?;
        array.check().map(|()| array)
    }

    fn said(&self, array: &Array, found: &Found) -> Array {
        // One disk does not know all of a volume in several parts.
        let Wire::Ddf(conf) = &array.wire else { return found.array.clone() };
        let all = array_of(array.name.clone(), array.generation, (**conf).clone());
        all.unwrap_or_else(|_| found.array.clone())
    }

    fn writing(&self) -> Option<&'static dyn Writing> {
        Some(&DDF)
    }
}
