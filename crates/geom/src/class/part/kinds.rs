//! What partitions are for: the names of `gpart`, and what the schemes write for them.

use alloc::format;
use alloc::string::{String, ToString};

use flysch_wire::geom::gpt::Guid;
use flysch_wire::geom::{disklabel, disklabel64, mbr};

use super::Scheme;

macro_rules! guids {
    ($($name:literal => $guid:literal),* $(,)?) => {
        /// Types of GPT partitions that have a name.
        const GUIDS: &[(&str, Guid)] = &[$(($name, Guid::constant($guid))),*];
    };
}

guids! {
    "efi" => "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
    "bios-boot" => "21686148-6449-6e6f-744e-656564454649",
    "mbr" => "024dee41-33e7-11d3-9d69-0008c781f39f",
    "freebsd" => "516e7cb4-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-swap" => "516e7cb5-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-ufs" => "516e7cb6-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-vinum" => "516e7cb8-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-zfs" => "516e7cba-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-boot" => "83bd6b9d-7f41-11dc-be0b-001560b84f0f",
    "ms-basic-data" => "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7",
    "ms-reserved" => "e3c9e316-0b5c-4db8-817d-f92df00215ae",
    "linux-data" => "0fc63daf-8483-4772-8e79-3d69d8477de4",
    "linux-swap" => "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f",
    "linux-raid" => "a19d880f-05fc-4d3b-a006-743f0f84911e",
    "linux-lvm" => "e6d6d379-f507-44c2-a23c-238f2a3df928",
    "prep-boot" => "9e1a2d38-c612-4316-aa26-8b49521e5a8b",
    "chromeos-kernel" => "fe3a2a5d-4f32-41a7-b725-accc3285a309",
}

/// What a partition is for, as its table says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// In a GPT.
    Guid(Guid),
    /// In a master or an extended boot record.
    Mbr(mbr::Kind),
    /// In a disklabel.
    Bsd(disklabel::Kind),
    /// In a 64-bit disklabel; what is `Other` there may have a GUID.
    Bsd64(disklabel64::Kind, Guid),
}

/// Types of FreeBSD that a 64-bit disklabel has GUIDs for.
const FREEBSD: [&str; 5] =
    ["freebsd-boot", "freebsd-swap", "freebsd-ufs", "freebsd-zfs", "freebsd-vinum"];

impl Type {
    /// Reads a name of `gpart`, or the scheme's own writing behind an exclamation mark.
    #[must_use]
    pub fn parse(scheme: Scheme, text: &str) -> Option<Self> {
        let raw = text.strip_prefix('!');
        match scheme {
            Scheme::Gpt => {
                if let Some(raw) = raw {
                    return raw.parse().ok().filter(|guid| *guid != Guid::ZERO).map(Self::Guid);
                }
                let known = GUIDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
                known.map(|(_, guid)| Self::Guid(*guid))
            }
            Scheme::Mbr | Scheme::Ebr => {
                let kinds = mbr::Kind::ALL.iter().copied();
                named(raw, text, kinds.map(|kind| (kind.name(), kind)), mbr::Kind::from_bits)
                    .filter(|kind| *kind != mbr::Kind::Unused)
                    .map(Self::Mbr)
            }
            Scheme::Bsd => {
                let kinds = disklabel::Kind::ALL.iter().copied();
                let pairs = kinds.map(|kind| (kind.name(), kind));
                named(raw, text, pairs, disklabel::Kind::from_bits)
                    .filter(|kind| *kind != disklabel::Kind::Unused)
                    .map(Self::Bsd)
            }
            Scheme::Bsd64 => Self::of_bsd64(raw, text),
        }
    }

    /// The same of a 64-bit disklabel: a GUID is its own writing, too.
    fn of_bsd64(raw: Option<&str>, text: &str) -> Option<Self> {
        use disklabel64::Kind;
        let guid = |guid: Guid| Self::Bsd64(Kind::Other, guid);
        if let Some(known) = raw.and_then(|raw| raw.parse().ok()) {
            return (known != Guid::ZERO).then(|| guid(known));
        }
        let is_it = |(name, _): &&(&str, Guid)| name.eq_ignore_ascii_case(text);
        let found = GUIDS.iter().find(is_it).filter(|(name, _)| FREEBSD.contains(name));
        if let Some((_, known)) = found {
            return Some(guid(*known));
        }
        let kinds = Kind::ALL.iter().copied().filter(|kind| *kind != Kind::Other);
        named(raw, text, kinds.map(|kind| (kind.name(), kind)), Kind::from_bits)
            .filter(|kind| *kind != Kind::Unused)
            .map(|kind| Self::Bsd64(kind, Guid::ZERO))
    }

    /// The name of `gpart`, or an exclamation mark and the scheme's own writing.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Guid(guid) => {
                let known = GUIDS.iter().find(|(_, known)| *known == guid);
                known.map_or_else(|| format!("!{guid}"), |(name, _)| (*name).into())
            }
            Self::Mbr(mbr::Kind::Unknown(bits)) => format!("!{bits}"),
            Self::Mbr(kind) => kind.name().into(),
            Self::Bsd(disklabel::Kind::Unknown(bits)) => format!("!{bits}"),
            Self::Bsd(kind) => kind.name().into(),
            Self::Bsd64(disklabel64::Kind::Other, guid) if guid != Guid::ZERO => {
                let mut known = GUIDS.iter().filter(|(name, _)| FREEBSD.contains(name));
                let known = known.find(|(_, known)| *known == guid);
                known.map_or_else(|| format!("!{guid}"), |(name, _)| (*name).into())
            }
            Self::Bsd64(disklabel64::Kind::Unknown(_) | disklabel64::Kind::Other, _) => {
                format!("!{}", self.raw())
            }
            Self::Bsd64(kind, _) => kind.name().into(),
        }
    }

    /// The scheme's own writing.
    #[must_use]
    pub fn raw(self) -> String {
        match self {
            Self::Guid(guid) => guid.to_string(),
            Self::Mbr(kind) => kind.into_bits().to_string(),
            Self::Bsd(kind) => kind.into_bits().to_string(),
            Self::Bsd64(kind, _) => kind.into_bits().to_string(),
        }
    }

    /// Whether it is a slice of FreeBSD, which is called `s`.
    #[must_use]
    pub fn is_slice(self) -> bool {
        matches!(self, Self::Guid(guid) if GUIDS[3].1 == guid)
    }

    /// Whether partitions of an extended boot record are inside.
    #[must_use]
    pub fn is_extended(self) -> bool {
        matches!(self, Self::Mbr(kind) if kind.is_extended())
    }
}

fn named<K>(
    raw: Option<&str>,
    text: &str,
    mut known: impl Iterator<Item = (&'static str, K)>,
    from_bits: fn(u8) -> K,
) -> Option<K> {
    match raw {
        Some(raw) => match raw.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok().map(from_bits),
            None => raw.parse().ok().map(from_bits),
        },
        None => known.find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, kind)| kind),
    }
}
