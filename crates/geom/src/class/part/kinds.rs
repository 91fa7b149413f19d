//! The purposes of partitions: their names in `gpart`, and what each scheme writes for them.

use alloc::format;
use alloc::string::{String, ToString};

use flysch_wire::geom::gpt::Guid;
use flysch_wire::geom::{disklabel, disklabel64, mbr};

use super::Scheme;

macro_rules! guids {
    ($($name:literal => $guid:literal),* $(,)?) => {
        /// GPT partition types that have a name.
        const GUIDS: &[(&str, Guid)] = &[$(($name, Guid::constant($guid))),*];
    };
}

guids! {
    "apple-apfs" => "7c3457ef-0000-11aa-aa11-00306543ecac",
    "apple-boot" => "426f6f74-0000-11aa-aa11-00306543ecac",
    "apple-core-storage" => "53746f72-6167-11aa-aa11-00306543ecac",
    "apple-hfs" => "48465300-0000-11aa-aa11-00306543ecac",
    "apple-label" => "4c616265-6c00-11aa-aa11-00306543ecac",
    "apple-raid" => "52414944-0000-11aa-aa22-00306543ecac",
    "apple-raid-offline" => "52414944-5f4f-11aa-aa22-00306543ecac",
    "apple-tv-recovery" => "5265636f-7665-11aa-aa11-00306543ecac",
    "apple-ufs" => "55465300-0000-11aa-aa11-00306543ecac",
    "apple-zfs" => "6a898cc3-1dd2-11b2-99a6-080020736631",
    "bios-boot" => "21686148-6449-6e6f-744e-656564454649",
    "chromeos-firmware" => "cab6e88e-abf3-4102-a07a-d4bb9be3c1d3",
    "chromeos-kernel" => "fe3a2a5d-4f32-41a7-b725-accc3285a309",
    "chromeos-reserved" => "2e0a753d-9e48-43b0-8337-b15192cb1b5e",
    "chromeos-root" => "3cb8e202-3b7e-47dd-8a3c-7ff2a13cfcec",
    "dragonfly-ccd" => "dbd5211b-1ca5-11dc-8817-01301bb8a9f5",
    "dragonfly-hammer" => "61dc63ac-6e38-11dc-8513-01301bb8a9f5",
    "dragonfly-hammer2" => "5cbb9ad1-862d-11dc-a94d-01301bb8a9f5",
    "dragonfly-label32" => "9d087404-1ca5-11dc-8817-01301bb8a9f5",
    "dragonfly-label64" => "3d48ce54-1d16-11dc-8696-01301bb8a9f5",
    "dragonfly-legacy" => "bd215ab2-1d16-11dc-8696-01301bb8a9f5",
    "dragonfly-swap" => "9d58fdbd-1ca5-11dc-8817-01301bb8a9f5",
    "dragonfly-ufs" => "9d94ce7c-1ca5-11dc-8817-01301bb8a9f5",
    "dragonfly-vinum" => "9dd4478f-1ca5-11dc-8817-01301bb8a9f5",
    "efi" => "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
    "freebsd" => "516e7cb4-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-boot" => "83bd6b9d-7f41-11dc-be0b-001560b84f0f",
    "freebsd-nandfs" => "74ba7dd9-a689-11e1-bd04-00e081286acf",
    "freebsd-swap" => "516e7cb5-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-ufs" => "516e7cb6-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-vinum" => "516e7cb8-6ecf-11d6-8ff8-00022d09712b",
    "freebsd-zfs" => "516e7cba-6ecf-11d6-8ff8-00022d09712b",
    "hifive-bbl" => "2e54b353-1271-4842-806f-e436d6af6985",
    "hifive-fsbl" => "5b193300-fc78-40cd-8002-e86c45580b47",
    "linux-data" => "0fc63daf-8483-4772-8e79-3d69d8477de4",
    "linux-lvm" => "e6d6d379-f507-44c2-a23c-238f2a3df928",
    "linux-raid" => "a19d880f-05fc-4d3b-a006-743f0f84911e",
    "linux-swap" => "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f",
    "mbr" => "024dee41-33e7-11d3-9d69-0008c781f39f",
    "ms-basic-data" => "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7",
    "ms-ldm-data" => "af9b60a0-1431-4f62-bc68-3311714a69ad",
    "ms-ldm-metadata" => "5808c8aa-7e8f-42e0-85d2-e1e90434cfb3",
    "ms-recovery" => "de94bba4-06d1-4d40-a16a-bfd50179d6ac",
    "ms-reserved" => "e3c9e316-0b5c-4db8-817d-f92df00215ae",
    "ms-spaces" => "e75caf8f-f680-4cee-afa3-b001e56efc2d",
    "netbsd-ccd" => "2db519c4-b10f-11dc-b99b-0019d1879648",
    "netbsd-cgd" => "2db519ec-b10f-11dc-b99b-0019d1879648",
    "netbsd-ffs" => "49f48d5a-b10e-11dc-b99b-0019d1879648",
    "netbsd-lfs" => "49f48d82-b10e-11dc-b99b-0019d1879648",
    "netbsd-raid" => "49f48daa-b10e-11dc-b99b-0019d1879648",
    "netbsd-swap" => "49f48d32-b10e-11dc-b99b-0019d1879648",
    "openbsd-data" => "824cc7a0-36a8-11e3-890a-952519ad3f61",
    "prep-boot" => "9e1a2d38-c612-4316-aa26-8b49521e5a8b",
    "solaris-altsec" => "6a9283a5-1dd2-11b2-99a6-080020736631",
    "solaris-backup" => "6a8b642b-1dd2-11b2-99a6-080020736631",
    "solaris-boot" => "6a82cb45-1dd2-11b2-99a6-080020736631",
    "solaris-home" => "6a90ba39-1dd2-11b2-99a6-080020736631",
    "solaris-reserved" => "6a945a3b-1dd2-11b2-99a6-080020736631",
    "solaris-root" => "6a85cf4d-1dd2-11b2-99a6-080020736631",
    "solaris-swap" => "6a87c46f-1dd2-11b2-99a6-080020736631",
    "solaris-var" => "6a8ef2e9-1dd2-11b2-99a6-080020736631",
    "u-boot-env" => "3de21764-95bd-54bd-a5c3-4abe786f38a8",
    "vmware-reserved" => "9198effc-31c0-11db-8f78-000c2911d1b8",
    "vmware-vmfs" => "aa31e02a-400f-11db-9590-000c2911d1b8",
    "vmware-vmkdiag" => "9d275380-40ad-11db-bf97-000c2911d1b8",
    "vmware-vsanhdr" => "381cfccc-7288-11e0-92ee-000c2911d0b2",
    "xbootldr" => "bc13c2ff-59e6-4262-a352-b275fd6f7172",
}

/// A partition type, in the form that its table uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// In a GPT.
    Guid(Guid),
    /// In a master or an extended boot record.
    Mbr(mbr::Kind),
    /// In a disklabel.
    Bsd(disklabel::Kind),
    /// In a 64-bit disklabel; a type `Other` may have a GUID.
    Bsd64(disklabel64::Kind, Guid),
}

/// The type `freebsd`.
const FREEBSD_SLICE: Guid = Guid::constant("516e7cb4-6ecf-11d6-8ff8-00022d09712b");
/// FreeBSD's types for which a 64-bit disklabel uses GUIDs.
const FREEBSD: [&str; 5] =
    ["freebsd-boot", "freebsd-swap", "freebsd-ufs", "freebsd-zfs", "freebsd-vinum"];

impl Type {
    /// Parses a name of `gpart`, or the scheme's own notation after an exclamation mark.
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

    /// The same for a 64-bit disklabel, whose own notation includes GUIDs.
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

    /// The name of `gpart`, or an exclamation mark and the scheme's own notation.
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

    /// The scheme's own notation.
    #[must_use]
    pub fn raw(self) -> String {
        match self {
            Self::Guid(guid) => guid.to_string(),
            Self::Mbr(kind) => kind.into_bits().to_string(),
            Self::Bsd(kind) => kind.into_bits().to_string(),
            Self::Bsd64(kind, _) => kind.into_bits().to_string(),
        }
    }

    /// Whether it is a FreeBSD slice, whose suffix is `s`.
    #[must_use]
    pub fn is_slice(self) -> bool {
        matches!(self, Self::Guid(guid) if guid == FREEBSD_SLICE)
    }

    /// Whether it contains the partitions of an extended boot record.
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
