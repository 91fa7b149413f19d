//! Intel's format (Intel Matrix Storage Manager), as `graid` and `mdadm` read and write it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_wire::geom::imsm::{
    self, Disk, Header, Map, MapState, Migration, NO_ADDRESS, NO_MEMBER, ORDINAL_DISK,
    ORDINAL_REBUILD, SIGNATURE, attributes, checksum, disk_status,
};
use flysch_wire::geom::text;

use super::array::{Array, Level, Member, MemberState, Parity, Part, PartState, RaidVolume};
use super::format::{Format, Found, Making, Refused, Wanted, Wire, Writes, Writing};
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::object::ProviderId;

/// The type of the format.
#[derive(Debug)]
pub struct Intel;

/// The format, an entry of [`FORMATS`](super::format::FORMATS).
pub static INTEL: Intel = Intel;

const SECTOR: u64 = 512;
/// Sectors at the end of each disk that mdadm keeps free: for metadata, and for stripes being
/// written.
const RESERVED: u64 = 2210 + 2048;
/// Sectors after the data of each member that belong to it (mdadm's dirty stripe region).
const DIRTY_STRIPES: u64 = 2048;
/// Sectors between two volumes, as Intel's option ROM leaves them.
const BETWEEN: u64 = 264 + 4096;
/// Members are multiples of 1 MiB, in sectors.
const GRAIN: u64 = 2048;
/// Maximum number of volumes on one set of disks.
const VOLUMES_MAX: usize = 2;
/// Maximum number of disks in a set.
const DISKS_MAX: usize = 6;

/// A volume, with its one or two maps and their ordinals.
#[derive(Clone, Debug)]
struct Record {
    volume: imsm::ImsmVolume,
    maps: Vec<(Map, Vec<u32>)>,
}

/// The complete metadata.
#[derive(Clone, Debug)]
pub struct Conf {
    header: Header,
    disks: Vec<Disk>,
    volumes: Vec<Record>,
}

/// The next `len` bytes from `at` on, if there are that many.
fn take<'b>(bytes: &'b [u8], at: &mut usize, len: usize) -> Result<&'b [u8], String> {
    let found = bytes.get(*at..).and_then(|rest| rest.get(..len));
    *at += len;
    found.ok_or_else(|| "its length is too small for what it holds".to_string())
}

impl Conf {
    /// Parses metadata whose checksum was correct.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let header = Header::parse(bytes).map_err(|error| error.to_string())?;
        let mut at = Header::LEN;
        let mut disks = Vec::new();
        for _ in 0..header.disks {
            let disk = Disk::parse(take(bytes, &mut at, Disk::LEN)?);
            disks.push(disk.map_err(|error| error.to_string())?);
        }
        let mut volumes = Vec::new();
        for _ in 0..header.volumes {
            let volume = imsm::ImsmVolume::parse(take(bytes, &mut at, imsm::ImsmVolume::LEN)?);
            let volume = volume.map_err(|error| error.to_string())?;
            let mut maps = Vec::new();
            for _ in 0..1 + usize::from(volume.migration.is_some()) {
                let map = Map::parse(take(bytes, &mut at, Map::LEN)?);
                let map = map.map_err(|error| error.to_string())?;
                let ordinals = take(bytes, &mut at, usize::from(map.members) * 4)?;
                let ordinals = ordinals.chunks_exact(4);
                let ordinals: Vec<u32> =
                    ordinals.map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]])).collect();
                let is_none = |ordinal: &&u32| (**ordinal & ORDINAL_DISK) as usize >= disks.len();
                if let Some(none) = ordinals.iter().find(is_none) {
                    let (number, all) = (none & ORDINAL_DISK, disks.len());
                    return Err(format!("a volume names disk {number} of {all}"));
                }
                maps.push((map, ordinals));
            }
            volumes.push(Record { volume, maps });
        }
        let log = usize::try_from(header.bad_blocks_len).unwrap_or(usize::MAX);
        if log > 0 {
            let log = take(bytes, &mut at, log)?;
            if log.get(4..8).is_none_or(|count| count != [0; 4]) {
                return Err("it has a log of bad blocks, which is not understood".into());
            }
        }
        if header.attributes & !attributes::KNOWN != 0 {
            let unknown = header.attributes & !attributes::KNOWN;
            return Err(format!("it has unknown attributes {unknown:#x}"));
        }
        Ok(Self { header, disks, volumes })
    }

    fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.header.len as usize];
        self.header.emit(&mut bytes);
        let mut at = Header::LEN;
        for disk in &self.disks {
            disk.emit(&mut bytes[at..]);
            at += Disk::LEN;
        }
        for record in &self.volumes {
            record.volume.emit(&mut bytes[at..]);
            at += imsm::ImsmVolume::LEN;
            for (map, ordinals) in &record.maps {
                map.emit(&mut bytes[at..]);
                at += Map::LEN;
                for ordinal in ordinals {
                    bytes[at..at + 4].copy_from_slice(&ordinal.to_le_bytes());
                    at += 4;
                }
            }
        }
        let sum = checksum(&bytes);
        bytes[0x20..0x24].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn len(&self) -> usize {
        let map = |(_, ordinals): &(Map, Vec<u32>)| Map::LEN + ordinals.len() * 4;
        let volume =
            |record: &Record| imsm::ImsmVolume::LEN + record.maps.iter().map(map).sum::<usize>();
        let volumes: usize = self.volumes.iter().map(volume).sum();
        Header::LEN + self.disks.len() * Disk::LEN + volumes
    }

    /// Updates length and version to match the contents.
    fn update(&mut self) {
        self.header.len = self.len() as u32;
        self.header.disks = self.disks.len() as u8;
        self.header.volumes = self.volumes.len() as u8;
        self.header.bad_blocks_len = 0;
        self.header.attributes &= !attributes::BAD_BLOCKS;
        let mut version = *b"1.0.00";
        for (number, record) in self.volumes.iter().enumerate() {
            let (map, _) = &record.maps[0];
            let wanted = match (map.level, map.members) {
                _ if self.header.attributes & attributes::LARGE_VOLUME != 0 => *b"1.3.00",
                (_, 5..) => *b"1.2.04",
                (5, _) => *b"1.2.02",
                (_, 3..) => *b"1.2.01",
                _ if number > 0 => *b"1.2.00",
                (1, _) => *b"1.1.00",
                _ => *b"1.0.00",
            };
            version = version.max(wanted);
        }
        self.header.version = self.header.version.max(version);
    }
}

/// Migration units, in bytes of a member: mdadm's and FreeBSD's, which differ unless strips are 128
/// KiB.
fn units(map: &Map) -> (u64, u64) {
    let (strip, domains) = (u64::from(map.strip) * SECTOR, u64::from(map.domains.max(1)));
    let mdadm = if map.members.is_multiple_of(map.domains.max(1)) { 128 << 10 } else { strip };
    (mdadm * domains, strip * domains)
}

/// The state of a member whose disk is present.
fn part_state(record: &Record, slot: usize, level: Level, disks: &[Disk]) -> (PartState, u64) {
    let (first, ordinals) = &record.maps[0];
    let is_new = ordinals[slot] & ORDINAL_REBUILD != 0;
    let dirty = record.volume.dirty & 1 != 0;
    let second = record.maps.get(1);
    let is_second =
        second.is_some_and(|(_, it)| it.get(slot).is_some_and(|o| o & ORDINAL_REBUILD != 0));
    let clean = if dirty && level != Level::Raid0 { PartState::Stale } else { PartState::Active };
    let state = match record.volume.migration {
        _ if is_new => PartState::New,
        None if first.state == MapState::Uninitialized => PartState::Uninitialized,
        None => clean,
        Some(Migration::Init | Migration::Rebuild) if is_second => PartState::Rebuild,
        Some(Migration::Verify | Migration::Repair) if is_second => PartState::Resync,
        // They are being made equal: the progress is ignored.
        Some(Migration::Init | Migration::Repair) if level != Level::Raid0 => PartState::Stale,
        Some(_) => clean,
    };
    let (mdadm, graid) = units(first);
    // The last writer is not recorded; FreeBSD leaves a mark of its own, which others preserve.
    let is_graids = disks.iter().any(|disk| disk.status & disk_status::ONLINE != 0);
    let unit = if is_graids { mdadm.min(graid) } else { mdadm };
    let done = match state {
        PartState::Rebuild if !dirty => record.volume.unit.saturating_mul(unit),
        _ => 0,
    };
    (state, done)
}

/// Why a volume of `level` is not made on `count` disks.
fn cannot_have(level: Level, count: usize) -> String {
    format!("{} cannot have {}", level.name(), counted(count, "disk", "disks"))
}

fn level_of(map: &Map) -> Result<Level, String> {
    match (map.level, map.members) {
        (0, _) => Ok(Level::Raid0),
        (1, members) if map.domains == members || members <= 2 => Ok(Level::Raid1),
        (1 | 10, members) if map.domains == 2 && members % 2 == 0 => Ok(Level::Raid10),
        (5, _) => Ok(Level::Raid5(Parity::LeftAsymmetric)),
        (level, members) => Err(format!("level {level} with {members} members is unknown")),
    }
}

fn volume_of(record: &Record, disks: &[Disk]) -> Result<RaidVolume, String> {
    let (map, ordinals) = &record.maps[0];
    let name = text(&record.volume.name).map(str::trim).unwrap_or_default();
    let name: String = name.chars().filter(|it| !it.is_control()).collect();
    let (level, mut unsupported) = match level_of(map) {
        Ok(level) => (level, None),
        Err(why) => (Level::Raid0, Some(why)),
    };
    if let Some(kind @ (Migration::General | Migration::StateChange | Migration::Unknown(_))) =
        record.volume.migration
    {
        unsupported = Some(format!("a {kind} is under way; let it finish where it was begun"));
    }
    if record.maps.iter().any(|(other, _)| other.members != map.members) {
        unsupported = Some("the number of its members changes".into());
    }
    let bytes = |blocks: u64| blocks.checked_mul(SECTOR).ok_or("it is too large".to_string());
    let mut parts = Vec::new();
    for (slot, ordinal) in ordinals.iter().enumerate() {
        let member = (ordinal & ORDINAL_DISK) as usize;
        let (state, done) = match disks[member].status & disk_status::FAILED {
            0 => part_state(record, slot, level, disks),
            _ => (PartState::Failed, 0),
        };
        parts.push(Part {
            member,
            offset: bytes(map.start)?,
            size: bytes(map.blocks)?,
            state,
            done,
        });
    }
    Ok(RaidVolume {
        name,
        level,
        strip: u64::from(map.strip) * SECTOR,
        media_size: bytes(record.volume.blocks)?,
        parts,
        dirty: record.volume.dirty & 1 != 0,
        unsupported,
    })
}

fn array_of(conf: Conf) -> Result<Array, String> {
    let mut members = Vec::new();
    for disk in &conf.disks {
        let state = match (disk.status & disk_status::FAILED, disk.address) {
            (_, NO_ADDRESS) => MemberState::Missing,
            (0, _) => MemberState::Active,
            _ => MemberState::Failed,
        };
        let size = disk.blocks.checked_mul(SECTOR).ok_or("a disk is too large")?;
        members.push(Member { id: disk.serial.to_vec(), size, state });
    }
    let volumes = conf.volumes.iter().map(|record| volume_of(record, &conf.disks));
    let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
    let name = format!("Intel-{:08x}", conf.header.family);
    let generation = u64::from(conf.header.generation);
    let mut array = Array { name, generation, members, volumes, wire: Wire::Intel(Box::new(conf)) };
    // The metadata itself occupies space that the volume would need.
    for member in &mut array.members {
        member.size = member.size.saturating_sub(2 * SECTOR);
    }
    array.check()?;
    for member in &mut array.members {
        member.size += 2 * SECTOR;
    }
    Ok(array)
}

/// This format's own part of an array.
fn conf(array: &Array) -> &Conf {
    match &array.wire {
        Wire::Intel(conf) => conf,
        Wire::Ddf(_) | Wire::Old(_) => unreachable!("arrays keep their format"),
    }
}

fn conf_mut(array: &mut Array) -> &mut Conf {
    match &mut array.wire {
        Wire::Intel(conf) => conf,
        Wire::Ddf(_) | Wire::Old(_) => unreachable!("arrays keep their format"),
    }
}

/// Position of the anchor of a disk.
fn anchor(size: u64) -> u64 {
    (size / SECTOR).saturating_sub(2) * SECTOR
}

/// The identities that a serial number may stand for: mdadm's, and FreeBSD's, which keeps blanks.
fn identities(serial: &str) -> [[u8; imsm::SERIAL_LEN]; 2] {
    let bytes = serial.as_bytes();
    let last = &bytes[bytes.len().saturating_sub(imsm::SERIAL_LEN)..];
    let mut raw = [0; imsm::SERIAL_LEN];
    raw[..last.len()].copy_from_slice(last);
    [imsm::serial(serial), raw]
}

fn serial(graph: &Graph, provider: ProviderId) -> Option<String> {
    graph.attribute(provider, "GEOM::ident")?.text()
}

impl Intel {
    /// The complete metadata, if the signature is present.
    fn bytes(&self, graph: &mut Graph, provider: ProviderId) -> Result<Option<Vec<u8>>, String> {
        let there = &graph[provider];
        let (size, sector) = (there.media_size, there.sector_size);
        let at = anchor(size);
        let mut bytes = vec![0; SECTOR as usize];
        if size < 4 * SECTOR || graph.peek(provider, at, &mut bytes).is_err() {
            return Ok(None);
        }
        if bytes[..SIGNATURE.len()] != SIGNATURE {
            return Ok(None);
        }
        if u64::from(sector) != SECTOR {
            return Err(format!("it lies on sectors of {sector} bytes; only 512 are understood"));
        }
        let header = Header::parse(&bytes).map_err(|error| error.to_string())?;
        let more = (u64::from(header.len).div_ceil(SECTOR) - 1) * SECTOR;
        let start = at.checked_sub(more).ok_or("it is longer than the disk")?;
        let mut rest = vec![0; more as usize];
        graph.peek(provider, start, &mut rest).map_err(|error| error.to_string())?;
        bytes.extend_from_slice(&rest);
        bytes.truncate(header.len as usize);
        Ok(Some(bytes))
    }
}

impl Format for Intel {
    fn name(&self) -> &'static str {
        "Intel"
    }

    fn read(&self, graph: &mut Graph, provider: ProviderId) -> Result<Option<Found>, Refused> {
        let bytes = (anchor(graph[provider].media_size), Header::LEN as u64);
        let refused = |why: String| Refused { why, bytes };
        let Some(whole) = self.bytes(graph, provider).map_err(refused)? else { return Ok(None) };
        let (sum, said) = (checksum(&whole), &whole[0x20..0x24]);
        if sum.to_le_bytes() != said {
            return Err(refused("its checksum is wrong".into()));
        }
        let conf = Conf::parse(&whole).map_err(refused)?;
        let Some(text) = serial(graph, provider) else {
            return Err(refused("the disk has no serial number to find it by".into()));
        };
        let known = identities(&text);
        let found = conf.disks.iter().find(|disk| known.contains(&disk.serial)).copied();
        let Some(disk) = found else {
            let there: Vec<String> = conf
                .disks
                .iter()
                .map(|disk| String::from_utf8_lossy(&disk.serial).trim_end_matches('\0').into())
                .collect();
            let all = there.join(", ");
            return Err(refused(format!("it is for disks {all}, and this one is {text}")));
        };
        let (blocks, size) = (disk.blocks, graph[provider].media_size / SECTOR);
        if blocks != size {
            return Err(refused(format!("it is for a disk of {blocks} sectors, this has {size}")));
        }
        if conf.volumes.is_empty() && disk.status & disk_status::SPARE != 0 {
            let why = "it is a spare disk: `raid rebuild` of an array takes it when it needs one";
            return Err(refused(why.into()));
        }
        let array = array_of(conf).map_err(refused)?;
        Ok(Some(Found { array, id: disk.serial.to_vec() }))
    }

    fn writing(&self) -> Option<&'static dyn Writing> {
        Some(&INTEL)
    }
}

impl Making for Intel {
    fn room(&self, size: u64) -> u64 {
        size.saturating_sub(4096)
    }

    fn create(&self, random: u64, disks: &[(Vec<u8>, u64)]) -> Result<Array, GeomError> {
        if disks.is_empty() || disks.len() > DISKS_MAX {
            let cause = format!("has {} disks; it must have 1 to {DISKS_MAX}", disks.len());
            return Err(GeomError::invalid("the array", cause));
        }
        let mut conf =
            Conf { header: Header::new(random as u32), disks: Vec::new(), volumes: Vec::new() };
        for (id, size) in disks {
            conf.disks.push(disk_of(id, *size));
        }
        conf.update();
        array_of(conf).map_err(|why| GeomError::invalid("the array", why))
    }

    fn add(&self, array: &mut Array, wanted: &Wanted<'_>) -> Result<(), GeomError> {
        let wrong = |cause: String| GeomError::invalid(wanted.name, cause);
        let (level, domains) = match wanted.level {
            Level::Raid0 => (0, 1),
            Level::Raid1 => (1, 2),
            Level::Raid10 => (1, 2),
            other => {
                let cause = format!("{} can only be read, not made", other.name());
                return Err(wrong(cause));
            }
        };
        let count = array.members.len();
        let fits = match wanted.level {
            Level::Raid0 => count >= 2,
            Level::Raid1 => count == 2,
            _ => count == 4,
        };
        if !fits {
            return Err(wrong(cannot_have(wanted.level, count)));
        }
        let name = wanted.name;
        if !(1..16).contains(&name.len()) || name.chars().any(|it| it.is_control() || it == '/') {
            return Err(wrong("a name must have 1 to 15 bytes".into()));
        }
        if array.volumes.iter().any(|volume| volume.name == name) {
            return Err(GeomError::new(Kind::Exists, name, "a volume of this name already exists"));
        }
        if array.volumes.len() >= VOLUMES_MAX {
            return Err(wrong(format!("the format holds {VOLUMES_MAX} volumes on a set of disks")));
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
        let data = match wanted.level {
            Level::Raid0 => count as u64,
            Level::Raid1 => 1,
            _ => count as u64 / 2,
        };
        let conf = conf_mut(array);
        conf.header.volumes_made = conf.header.volumes_made.wrapping_add(1);
        let mut wire_name = [0; 16];
        wire_name[..name.len()].copy_from_slice(name.as_bytes());
        let volume = imsm::ImsmVolume::new(wire_name, blocks * data, conf.header.volumes_made);
        let mut map = Map::new(level, count as u8, domains);
        (map.start, map.blocks) = (start, blocks + DIRTY_STRIPES);
        (map.strip, map.stripes) = (strip as u16, blocks / strip / u64::from(domains));
        let maps = vec![(map, (0..count as u32).collect())];
        if volume.blocks > u64::from(u32::MAX) {
            conf.header.attributes |= attributes::LARGE_VOLUME;
        }
        conf.volumes.push(Record { volume, maps });
        let record = &conf.volumes[conf.volumes.len() - 1];
        let made = volume_of(record, &conf.disks).map_err(wrong)?;
        conf.update();
        array.volumes.push(made);
        array.check().map_err(wrong)
    }

    fn delete(&self, array: &mut Array, volume: usize) {
        array.volumes.remove(volume);
        let conf = conf_mut(array);
        conf.volumes.remove(volume);
        conf.update();
    }

    fn replace(&self, array: &mut Array, member: usize, (id, size): (Vec<u8>, u64)) {
        conf_mut(array).disks[member] = disk_of(&id, size);
        array.members[member] = Member { id, size, state: MemberState::Active };
    }

    fn spare(
        &self,
        _: &mut Array,
        (id, size): (Vec<u8>, u64),
    ) -> Result<Option<Writes>, GeomError> {
        Ok(Some(Self::alone(&id, size)))
    }
}

impl Intel {
    /// Metadata of a single disk that waits to replace another one.
    fn alone(id: &[u8], size: u64) -> Writes {
        let mut disk = disk_of(id, size);
        disk.status = disk_status::SPARE;
        let mut header = Header::new(0);
        header.generation = 1;
        let mut conf = Conf { header, disks: vec![disk], volumes: Vec::new() };
        conf.update();
        let mut bytes = conf.emit();
        bytes.resize(SECTOR as usize, 0);
        vec![(anchor(size), bytes)]
    }
}

impl Writing for Intel {
    fn is_spare(&self, graph: &mut Graph, provider: ProviderId) -> bool {
        let Ok(Some(whole)) = self.bytes(graph, provider) else { return false };
        let Some(known) = serial(graph, provider).map(|text| identities(&text)) else {
            return false;
        };
        if checksum(&whole).to_le_bytes() != whole[0x20..0x24] {
            return false;
        }
        Conf::parse(&whole).is_ok_and(|conf| {
            let is_it =
                |disk: &Disk| known.contains(&disk.serial) && disk.status & disk_status::SPARE != 0;
            conf.volumes.is_empty() && conf.disks.iter().any(is_it)
        })
    }

    fn identity(&self, graph: &Graph, provider: ProviderId) -> Result<Vec<u8>, GeomError> {
        let there = &graph[provider];
        if u64::from(there.sector_size) != SECTOR {
            return Err(GeomError::invalid(
                &there.name,
                "Intel's format needs sectors of 512 bytes",
            ));
        }
        let text = serial(graph, provider);
        let identity = text.map(|text| imsm::serial(&text)).filter(|it| it[0] != 0);
        let missing = || GeomError::invalid(&there.name, "has no serial number, and needs one");
        identity.map(|it| it.to_vec()).ok_or_else(missing)
    }

    fn is_torn(&self, graph: &mut Graph, provider: ProviderId, array: &Array) -> bool {
        let Ok(Some(whole)) = self.bytes(graph, provider) else { return false };
        let Ok(header) = Header::parse(&whole) else { return false };
        let is_cut = checksum(&whole).to_le_bytes() != whole[0x20..0x24];
        is_cut && header.family == conf(array).header.family
    }

    fn advance(&self, array: &mut Array) {
        array.generation = u64::from((array.generation as u32).wrapping_add(1));
        let Array { members, volumes, wire, generation, .. } = array;
        let Wire::Intel(conf) = wire else { return };
        conf.header.generation = *generation as u32;
        if conf.header.original_family == 0 {
            conf.header.original_family = conf.header.family;
        }
        for (member, disk) in members.iter_mut().zip(&mut conf.disks) {
            disk.status &= !disk_status::ONLINE;
            match member.state {
                MemberState::Active => {
                    disk.status &= !(disk_status::FAILED | disk_status::SPARE);
                    disk.status |= disk_status::CONFIGURED;
                }
                MemberState::Failed => disk.status |= disk_status::FAILED,
                MemberState::Missing => {
                    disk.mark_missing();
                    member.id = disk.serial.to_vec();
                }
            }
        }
        for (volume, record) in volumes.iter().zip(&mut conf.volumes) {
            if volume.unsupported.is_none() {
                advance(volume, record);
            }
        }
        conf.update();
    }

    fn emit(&self, array: &Array, member: usize) -> Writes {
        let mut bytes = conf(array).emit();
        let sectors = bytes.len().next_multiple_of(SECTOR as usize);
        bytes.resize(sectors, 0);
        let more = bytes.split_off(SECTOR as usize);
        let at = anchor(array.members[member].size);
        let mut writes = Writes::new();
        if !more.is_empty() {
            writes.push((at - more.len() as u64, more));
        }
        writes.push((at, bytes));
        writes
    }

    fn erase(&self, size: u64) -> Writes {
        vec![(anchor(size), vec![0; SECTOR as usize])]
    }
}

/// Where a new volume begins on each disk, and the number of sectors available for it: after the
/// existing volumes and everything that belongs to them.
fn room(array: &Array) -> (u64, u64) {
    let least = array.members.iter().map(|member| member.size / SECTOR).min().unwrap_or(0);
    let behind = array.volumes.iter().flat_map(|volume| {
        volume.parts.iter().map(|part| (part.offset + volume.used()) / SECTOR + BETWEEN)
    });
    let start = behind.max().map_or(0, |end| end.next_multiple_of(512));
    (start, least.saturating_sub(start + RESERVED) / GRAIN * GRAIN)
}

fn disk_of(id: &[u8], size: u64) -> Disk {
    let mut serial = [0; imsm::SERIAL_LEN];
    let len = id.len().min(serial.len());
    serial[..len].copy_from_slice(&id[..len]);
    Disk::new(serial, size / SECTOR, disk_status::CONFIGURED)
}

/// Updates a volume's record to its state.
fn advance(volume: &RaidVolume, record: &mut Record) {
    use PartState::{Active, Failed, New, None as Away, Rebuild, Resync, Stale, Uninitialized};
    let any = |state: PartState| volume.parts.iter().any(|part| part.state == state);
    let all = |state: PartState| volume.parts.iter().all(|part| part.state == state);
    let (map, ordinals) = &mut record.maps[0];
    let was_new = map.state == MapState::Uninitialized && record.volume.migration.is_none();
    record.volume.dirty = record.volume.dirty & !1 | u8::from(volume.dirty || any(Stale));
    let is_away = |part: &Part| matches!(part.state, Away | Failed | New);
    let redundant = volume.level != Level::Raid0;
    let whole = match volume.state() {
        _ if all(Uninitialized) || was_new && any(Stale) => MapState::Uninitialized,
        _ if !volume.parts.iter().any(is_away) => MapState::Normal,
        state if state.is_alive() && redundant => MapState::Degraded,
        _ => MapState::Failed,
    };
    let first_away = volume.parts.iter().position(|part| matches!(part.state, Away | Failed));
    map.failed = first_away.map_or(NO_MEMBER, |slot| slot as u8);
    for (ordinal, part) in ordinals.iter_mut().zip(&volume.parts) {
        *ordinal = part.member as u32 | if is_away(part) { ORDINAL_REBUILD } else { 0 };
    }
    map.state = whole;
    record.volume.migration = None;
    record.volume.unit = 0;
    let (mdadm, graid) = units(map);
    let mut second = (*map, ordinals.clone());
    record.maps.truncate(1);
    if any(Rebuild) {
        let rebuilt = volume.parts.iter().filter(|part| part.state == Rebuild);
        let done = rebuilt.map(|part| part.done).min().unwrap_or(0);
        record.volume.migration = Some(Migration::Rebuild);
        // An implementation that counts in other units must not continue beyond this point.
        record.volume.unit = done / mdadm.max(graid).max(1);
        second.0.state = MapState::Degraded;
        for (ordinal, part) in second.1.iter_mut().zip(&volume.parts) {
            *ordinal |= if part.state == Rebuild { ORDINAL_REBUILD } else { 0 };
        }
        record.maps.push(second);
    } else if any(Resync) {
        // From the start: how much is already equal is not recorded.
        record.volume.migration = Some(Migration::Repair);
        record.maps.push(second);
    } else {
        debug_assert!(all(Active) || !volume.parts.is_empty());
    }
}
