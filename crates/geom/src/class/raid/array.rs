//! What the metadata of every format describes: disks, and the volumes on them.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::count::counted;

use super::format::Wire;

/// How data is distributed over the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In turn.
    Raid0,
    /// The same on all members.
    Raid1,
    /// In turn over pairs with equal contents: members 0 and 1, 2 and 3, ...
    Raid10,
    /// In turn, with one strip of parity in each row.
    Raid5(Parity),
    /// One member after the other.
    Concat,
}

/// Where the parity of a row is, and where its data begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// Parity on the first member in row 0, then on the next; data from the first member on.
    RightAsymmetric,
    /// Likewise; data from the member after the parity on.
    RightSymmetric,
    /// Parity on the last member in row 0, then on the one before; data from the first member on.
    LeftAsymmetric,
    /// Likewise; data from the member after the parity on.
    LeftSymmetric,
}

impl Level {
    /// The name that `graid` uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raid0 => "RAID0",
            Self::Raid1 => "RAID1",
            Self::Raid10 => "RAID1E-A",
            Self::Raid5(Parity::RightAsymmetric) => "RAID5-RA",
            Self::Raid5(Parity::RightSymmetric) => "RAID5-RS",
            Self::Raid5(Parity::LeftAsymmetric) => "RAID5-LA",
            Self::Raid5(Parity::LeftSymmetric) => "RAID5-LS",
            Self::Concat => "CONCAT",
        }
    }

    /// The name of the `graid` transformation.
    pub const fn transformation(self) -> &'static str {
        match self {
            Self::Raid0 => "RAID0",
            Self::Raid1 => "RAID1",
            Self::Raid10 => "RAID1E",
            Self::Raid5(_) => "RAID5",
            Self::Concat => "CONCAT",
        }
    }

    /// Whether a missing member can be rebuilt here.
    pub const fn is_rebuilt(self) -> bool {
        matches!(self, Self::Raid1 | Self::Raid10)
    }
}

/// The state of a member of a volume, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartState {
    /// Its disk is missing.
    None,
    /// Its disk failed.
    Failed,
    /// It holds no data yet.
    New,
    /// It is being rebuilt.
    Rebuild,
    /// It has never been made equal to the others.
    Uninitialized,
    /// After an unclean stop it may differ from the others.
    Stale,
    /// It is being made equal to the others.
    Resync,
    /// It holds all data.
    Active,
}

impl PartState {
    /// The name that `graid` uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Failed => "FAILED",
            Self::New => "NEW",
            Self::Rebuild => "REBUILD",
            Self::Uninitialized => "UNINITIALIZED",
            Self::Stale => "STALE",
            Self::Resync => "RESYNC",
            Self::Active => "ACTIVE",
        }
    }

    /// Whether changes are written to it.
    pub const fn is_written(self) -> bool {
        !matches!(self, Self::None | Self::Failed | Self::New)
    }
}

/// A member of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its disk, as an index of [`Array::members`].
    pub member: usize,
    /// First byte on that disk.
    pub offset: u64,
    /// Size on that disk, bytes.
    pub size: u64,
    /// Its state.
    pub state: PartState,
    /// Bytes rebuilt or made equal so far.
    pub done: u64,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct RaidVolume {
    /// Its name.
    pub name: String,
    /// How data is distributed over its members.
    pub level: Level,
    /// Size of a strip, bytes.
    pub strip: u64,
    /// Size of the volume, bytes.
    pub media_size: u64,
    /// Its members.
    pub parts: Vec<Part>,
    /// The disks record that writes are under way.
    pub dirty: bool,
    /// Why it is not offered although its disks are present.
    pub unsupported: Option<String>,
}

/// The states of volumes, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeState {
    /// Its disks are being looked for.
    Starting,
    /// Too many of its members are missing.
    Broken,
    /// Members are missing, but it can do without them.
    Degraded,
    /// All members are present, but not all hold all data.
    Suboptimal,
    /// All members hold all data.
    Optimal,
    /// Its layout is not supported.
    Unsupported,
}

impl VolumeState {
    /// The name that `graid` uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Broken => "BROKEN",
            Self::Degraded => "DEGRADED",
            Self::Suboptimal => "SUBOPTIMAL",
            Self::Optimal => "OPTIMAL",
            Self::Unsupported => "UNSUPPORTED",
        }
    }

    /// Whether it can be used.
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::Degraded | Self::Suboptimal | Self::Optimal)
    }
}

/// Where bytes of a volume are: the member and the byte of its part, for each copy; and how many
/// bytes follow there.
pub(super) type Place = (Vec<(usize, u64)>, u64);

impl RaidVolume {
    /// Its state.
    pub fn state(&self) -> VolumeState {
        use PartState::{Active, Failed, Resync, Stale};
        use VolumeState::{Broken, Degraded, Optimal, Suboptimal, Unsupported};
        if self.unsupported.is_some() {
            return Unsupported;
        }
        let all = |ok: &dyn Fn(PartState) -> bool| self.parts.iter().all(|part| ok(part.state));
        if all(&|state| state == Active) {
            return Optimal;
        }
        let is_there = |state| matches!(state, Active | Stale | Resync);
        match self.level {
            Level::Raid0 | Level::Concat => {
                if all(&|state| matches!(state, Active | Failed)) {
                    Suboptimal
                } else {
                    Broken
                }
            }
            Level::Raid5(_) => {
                let away = self.parts.iter().filter(|part| !is_there(part.state)).count();
                let is_clean = !self.dirty;
                match away {
                    0 => Suboptimal,
                    // With a member missing, parity that may be wrong is worthless.
                    1 if is_clean => Degraded,
                    _ => Broken,
                }
            }
            Level::Raid1 | Level::Raid10 => {
                let mut groups = self.groups();
                if !groups.all(|group| group.iter().any(|part| part.state == Active)) {
                    return Broken;
                }
                if all(&is_there) { Suboptimal } else { Degraded }
            }
        }
    }

    /// The groups of members with equal contents, for levels with copies.
    fn groups(&self) -> impl Iterator<Item = &[Part]> {
        let size = if self.level == Level::Raid10 { 2 } else { self.parts.len().max(1) };
        self.parts.chunks(size)
    }

    /// The other members with the same contents as this one.
    pub(super) fn mates(&self, slot: usize) -> Vec<usize> {
        match self.level {
            Level::Raid1 => (0..self.parts.len()).filter(|other| *other != slot).collect(),
            Level::Raid10 => vec![slot ^ 1],
            Level::Raid0 | Level::Raid5(_) | Level::Concat => Vec::new(),
        }
    }

    /// If no member is known to be right, one of each group that may differ is trusted: the one
    /// whose state according to the disks is best, and the first among equals.
    pub(super) fn believe(&mut self) {
        if !self.level.is_rebuilt() {
            return;
        }
        let size = if self.level == Level::Raid10 { 2 } else { self.parts.len().max(1) };
        for group in self.parts.chunks_mut(size) {
            if group.iter().any(|part| part.state == PartState::Active) {
                continue;
            }
            let rank = |part: &Part| (part.state, part.done);
            let best = group.iter().map(rank).max();
            let best = group.iter_mut().find(|part| Some(rank(part)) == best);
            if let Some(best) = best.filter(|part| part.state >= PartState::Uninitialized) {
                best.state = PartState::Active;
            }
        }
        // A member that was never made equal is treated as one that may differ.
        for part in &mut self.parts {
            if part.state == PartState::Uninitialized {
                part.state = PartState::Stale;
            }
        }
    }

    /// Bytes that the volume uses of each member; for [`Level::Concat`] it is the size of the part.
    pub fn used(&self) -> u64 {
        let count = self.parts.len().max(1) as u64;
        let rows = |data: u64| {
            let row = self.strip.max(1).saturating_mul(data.max(1));
            self.media_size.div_ceil(row).saturating_mul(self.strip)
        };
        match self.level {
            Level::Raid0 => rows(count),
            Level::Raid1 => self.media_size,
            Level::Raid10 => rows(count / 2),
            Level::Raid5(_) => rows(count - 1),
            Level::Concat => 0,
        }
    }

    /// Where a byte is.
    pub(super) fn place(&self, offset: u64) -> Option<Place> {
        let (count, strip) = (self.parts.len() as u64, self.strip.max(1));
        let (number, inside) = (offset / strip, offset % strip);
        let room = strip - inside;
        Some(match self.level {
            Level::Raid0 => {
                let at = number / count * strip + inside;
                (vec![((number % count) as usize, at)], room)
            }
            Level::Raid1 => {
                ((0..self.parts.len()).map(|slot| (slot, offset)).collect(), u64::MAX - offset)
            }
            Level::Raid10 => {
                let first = number * 2;
                let at = first / count * strip + inside;
                let slot = (first % count) as usize;
                (vec![(slot, at), (slot + 1, at)], room)
            }
            Level::Raid5(parity) => {
                let row = number / (count - 1);
                let slot = parity.data(row, number % (count - 1), count);
                (vec![(slot as usize, row * strip + inside)], room)
            }
            Level::Concat => {
                let mut start = 0;
                let found = self.parts.iter().position(|part| {
                    let is_in = offset - start < part.size;
                    start += if is_in { 0 } else { part.size };
                    is_in
                })?;
                (vec![(found, offset - start)], self.parts[found].size - (offset - start))
            }
        })
    }
}

impl Parity {
    /// The member with strip `number` of a row.
    fn data(self, row: u64, number: u64, count: u64) -> u64 {
        let parity = match self {
            Self::RightAsymmetric | Self::RightSymmetric => row % count,
            Self::LeftAsymmetric | Self::LeftSymmetric => count - 1 - row % count,
        };
        match self {
            Self::RightAsymmetric | Self::LeftAsymmetric => number + u64::from(number >= parity),
            Self::RightSymmetric | Self::LeftSymmetric => (parity + 1 + number) % count,
        }
    }
}

/// The state of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It is used.
    Active,
    /// It failed.
    Failed,
    /// It is known to be missing.
    Missing,
}

/// A disk in the table.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its identity: the serial number, or the equivalent in its format.
    pub id: Vec<u8>,
    /// Its size, bytes.
    pub size: u64,
    /// Its state.
    pub state: MemberState,
}

/// Disks that belong together, and the volumes on them.
#[derive(Clone, Debug)]
pub struct Array {
    /// The geom's name: the format, and what distinguishes arrays.
    pub name: String,
    /// Raised with every write: the disk with the highest one is trusted.
    pub generation: u64,
    /// The disks.
    pub members: Vec<Member>,
    /// The volumes.
    pub volumes: Vec<RaidVolume>,
    /// The same in the representation of its format.
    pub wire: Wire,
}

impl Array {
    /// The disk with this identity.
    pub fn member(&self, id: &[u8]) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    /// A disk is missing or has failed: updates its parts.
    pub(super) fn lose(&mut self, member: usize, is_gone: bool) {
        self.members[member].state =
            if is_gone { MemberState::Missing } else { MemberState::Failed };
        self.each_part(member, |_, part| {
            part.state = if is_gone { PartState::None } else { PartState::Failed };
            part.done = 0;
        });
    }

    /// Calls `change` for each part on a disk.
    pub(super) fn each_part(&mut self, member: usize, mut change: impl FnMut(Level, &mut Part)) {
        for volume in &mut self.volumes {
            let level = volume.level;
            let parts = volume.parts.iter_mut().filter(|part| part.member == member);
            parts.for_each(|part| change(level, part));
        }
    }

    /// Whether all usable volumes stay usable without this disk, failed or gone.
    pub(super) fn can_lose(&self, member: usize, is_gone: bool) -> bool {
        let mut after = self.clone();
        after.lose(member, is_gone);
        let mut both = self.volumes.iter().zip(&after.volumes);
        both.all(|(before, after)| !before.state().is_alive() || after.state().is_alive())
    }

    /// Rejects an array with properties that no format permits.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), String> {
        use alloc::format;
        for volume in &self.volumes {
            let (name, count) = (&volume.name, volume.parts.len());
            let least = match volume.level {
                Level::Raid0 | Level::Concat => 1,
                Level::Raid1 => 1,
                Level::Raid10 => 4,
                Level::Raid5(_) => 3,
            };
            let is_odd = volume.level == Level::Raid10 && count % 2 != 0;
            if count < least || is_odd {
                let members = counted(count, "member", "members");
                return Err(format!("volume {name} cannot have {members}"));
            }
            if volume.strip == 0 && !matches!(volume.level, Level::Raid1 | Level::Concat) {
                return Err(format!("volume {name} has no strip size"));
            }
            if volume.media_size == 0 || !volume.media_size.is_multiple_of(512) {
                return Err(format!("volume {name} has an impossible size"));
            }
            let sum = volume.parts.iter().try_fold(0, |sum: u64, part| sum.checked_add(part.size));
            if volume.level == Level::Concat && sum.is_none_or(|sum| sum < volume.media_size) {
                return Err(format!("volume {name} is larger than its members"));
            }
            for (slot, part) in volume.parts.iter().enumerate() {
                let used = if volume.level == Level::Concat { part.size } else { volume.used() };
                let Some(member) = self.members.get(part.member) else {
                    return Err(format!("volume {name} names a disk that does not exist"));
                };
                if volume.parts[..slot].iter().any(|other| other.member == part.member) {
                    return Err(format!("volume {name} names a disk twice"));
                }
                if used > part.size {
                    return Err(format!("volume {name} is larger than its members"));
                }
                let end = part.offset.checked_add(used);
                if !part.offset.is_multiple_of(512) || end.is_none_or(|end| end > member.size) {
                    return Err(format!("volume {name} lies outside of its disks"));
                }
            }
        }
        self.check_overlaps()
    }

    fn check_overlaps(&self) -> Result<(), String> {
        let mut ranges = Vec::new();
        for volume in &self.volumes {
            for part in &volume.parts {
                let used = if volume.level == Level::Concat { part.size } else { volume.used() };
                ranges.push((part.member, part.offset, part.offset + used, &volume.name));
            }
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            if pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2 {
                let (one, other) = (pair[0].3, pair[1].3);
                return Err(alloc::format!("volumes {one} and {other} overlap"));
            }
        }
        Ok(())
    }
}
