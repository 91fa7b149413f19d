use std::path::PathBuf;

use flysch_ahci::LinkPower;
use flysch_models::ahci::profile::{Profile, SATA_SSD};
use flysch_models::faults::{self as fault, Plan};
use flysch_target::{Key, Kind, key};

use super::pairs::{Pairs, keys, not_real, on_off};
use super::{ClockKind, FaultsFrom, ParseError};

pub(super) const KIND: Key = key("kind", "disk|cd", "a disk, or a read-only optical drive (disk)");
pub(super) const LINK_POWER: Key = key(
    "link-power",
    "active|partial|slumber|devsleep",
    "how deep the link sleeps by itself (active)",
);

/// The model.
pub(super) const MODEL: Kind = Kind {
    name: "ahci",
    help: "a SATA host bus adapter and a disk at it, modelled in this process",
    keys: &[
        KIND,
        key("profile", "sata-ssd|sata2-ssd", "the disk's timing and link (sata-ssd)"),
        key("size", "BYTES", "size of the disk (4G, or that of the image)"),
        key("block", "512|4096", "bytes per logical sector (512)"),
        keys::IMAGE,
        key("port", "0..31", "the disk's port (0)"),
        key("pmp", "1..15", "a port multiplier at the port, with this many disks (none)"),
        key("device", "0..14", "which disk behind the multiplier is the disk (0)"),
        key("fbs", "on|off", "FIS-based switching: all disks have commands in flight at once (on)"),
        key("ncq", "on|off", "native command queueing (on)"),
        key("speed", "1..3", "fastest link: 1.5, 3 or 6 Gb/s (3)"),
        LINK_POWER,
        keys::CLOCK,
        keys::FAULTS,
        keys::FAULTS_FROM,
        keys::SEED,
    ],
};

/// QEMU's device.
pub(super) const QEMU: Kind = Kind {
    name: "ahci@qemu",
    help: "a disk at QEMU's AHCI device, in a QEMU started for it",
    keys: &[
        KIND,
        key("size", "BYTES", "size of the disk (1G, or that of the image)"),
        keys::RAW_IMAGE,
        key("port", "0..5", "the disk's port (0)"),
        key("ncq", "on|off", "native command queueing (on)"),
        keys::PROGRAM,
    ],
};

/// The kind of device at the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drive {
    /// A disk.
    #[default]
    Disk,
    /// An optical drive with a medium in it.
    Cd,
}

pub(super) fn drive(name: &str) -> Option<Drive> {
    match name {
        "disk" => Some(Drive::Disk),
        "cd" => Some(Drive::Cd),
        _ => None,
    }
}

/// A port multiplier between port and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiplierTarget {
    /// Disks behind it, 1 to 15.
    pub disks: u8,
    /// The index of the disk.
    pub device: u8,
    /// Whether the HBA supports FIS-based switching, so that all can have commands at once.
    pub fis_switching: bool,
}

/// Settings of the AHCI model.
#[derive(Clone, Debug, PartialEq)]
pub struct AhciTarget {
    /// The kind of device at the port.
    pub drive: Drive,
    /// The disk's timing and link.
    pub profile: Profile,
    /// Bytes of the disk.
    pub size: Option<u64>,
    /// Bytes per logical sector.
    pub block_size: u32,
    /// File that holds the disk's data.
    pub image: Option<PathBuf>,
    /// The port of the disk.
    pub port: u8,
    /// The multiplier there, if the disk is behind one.
    pub multiplier: Option<MultiplierTarget>,
    /// Native command queueing.
    pub queued: bool,
    /// Fastest link, 1 to 3; 0 is the fastest that both sides support.
    pub speed: u8,
    /// The deepest power state that the link enters by itself.
    pub link_power: LinkPower,
    /// The clock: virtual or hybrid.
    pub clock: ClockKind,
    /// The fault plan.
    pub faults: Plan,
    /// When its counts start.
    pub faults_from: FaultsFrom,
    /// Seed of everything random.
    pub seed: u64,
}

/// Settings of a disk on QEMU's AHCI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AhciQemuTarget {
    /// The kind of device at the port.
    pub drive: Drive,
    /// Bytes of the disk.
    pub size: Option<u64>,
    /// File that holds its data.
    pub image: Option<PathBuf>,
    /// The port of the disk.
    pub port: u8,
    /// Native command queueing.
    pub queued: bool,
    /// The QEMU to start.
    pub qemu: Option<PathBuf>,
}

impl Default for AhciTarget {
    fn default() -> Self {
        Self {
            drive: Drive::Disk,
            profile: SATA_SSD,
            size: None,
            block_size: 512,
            image: None,
            port: 0,
            multiplier: None,
            queued: true,
            speed: 0,
            link_power: LinkPower::Active,
            clock: ClockKind::default(),
            faults: Plan::none(),
            faults_from: FaultsFrom::default(),
            seed: 1,
        }
    }
}

pub(super) fn link_power(name: &str) -> Option<LinkPower> {
    match name {
        "active" => Some(LinkPower::Active),
        "partial" => Some(LinkPower::Partial),
        "slumber" => Some(LinkPower::Slumber),
        "devsleep" => Some(LinkPower::DevSleep),
        _ => None,
    }
}

impl MultiplierTarget {
    fn parse(pairs: &Pairs<'_>) -> Result<Option<Self>, ParseError> {
        let disks = pairs.within("pmp", 1, 15)?;
        let device = pairs.within("device", 0, 14)?;
        let fis_switching = pairs.get("fbs", on_off)?;
        let Some(disks) = disks else {
            let alone = [("device", device.map(u8::into)), ("fbs", fis_switching.map(u32::from))];
            return match alone.into_iter().find_map(|(key, given)| Some((key, given?))) {
                None => Ok(None),
                Some((key, given)) => {
                    Err(ParseError::value(key, given, "a port multiplier, as with `pmp=5`"))
                }
            };
        };
        let device = device.unwrap_or(0);
        if device >= disks {
            return Err(ParseError::value(
                "device",
                device,
                format!("0..{}, one of the disks of `pmp={disks}`", disks - 1),
            ));
        }
        Ok(Some(Self { disks, device, fis_switching: fis_switching.unwrap_or(true) }))
    }
}

impl AhciTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&MODEL, rest)?;
        let default = Self::default();
        let profile = |name: &str| Profile::by_name(name).copied();
        let drive = pairs.get("kind", drive)?.unwrap_or_default();
        let multiplier = MultiplierTarget::parse(&pairs)?;
        if multiplier.is_some() && drive == Drive::Cd {
            return Err(ParseError::value(
                "kind",
                "cd",
                "disk where `pmp=` makes a port multiplier",
            ));
        }
        Ok(Self {
            drive,
            multiplier,
            profile: pairs.get("profile", profile)?.unwrap_or(default.profile),
            size: pairs.size()?,
            block_size: pairs.block_size(default.block_size)?,
            image: pairs.path("image")?,
            port: pairs.within("port", 0, 31)?.unwrap_or(default.port),
            queued: pairs.get("ncq", on_off)?.unwrap_or(default.queued),
            speed: pairs.within("speed", 1, 3)?.unwrap_or(default.speed),
            link_power: pairs.get("link-power", link_power)?.unwrap_or(default.link_power),
            clock: pairs.get("clock", not_real)?.unwrap_or_default(),
            faults: pairs.faults(&fault::Kind::AHCI)?,
            faults_from: pairs.faults_from()?,
            seed: pairs.seed()?,
        })
    }
}

impl AhciQemuTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&QEMU, rest)?;
        Ok(Self {
            drive: pairs.get("kind", drive)?.unwrap_or_default(),
            size: pairs.size()?,
            image: pairs.path("image")?,
            port: pairs.within("port", 0, 5)?.unwrap_or(0),
            queued: pairs.get("ncq", on_off)?.unwrap_or(true),
            qemu: pairs.path("qemu")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn refusal(text: &str) -> String {
        text.parse::<Target>().expect_err(text).to_string()
    }

    #[test]
    fn every_key_is_read_and_what_makes_no_sense_refused() {
        assert_eq!("ahci".parse(), Ok(Target::Ahci(AhciTarget::default())));
        let text = "ahci,kind=cd,profile=sata2-ssd,size=64M,block=4096,image=a.img,port=7,\
                    ncq=off,speed=1,link-power=devsleep,clock=virtual,\
                    faults=detach:n3,faults-from=power,seed=9";
        let expected = AhciTarget {
            drive: Drive::Cd,
            profile: *Profile::by_name("sata2-ssd").unwrap(),
            size: Some(64 << 20),
            block_size: 4096,
            image: Some("a.img".into()),
            port: 7,
            multiplier: None,
            queued: false,
            speed: 1,
            link_power: LinkPower::DevSleep,
            clock: ClockKind::Virtual,
            faults: "detach:n3".parse().unwrap(),
            faults_from: FaultsFrom::Power,
            seed: 9,
        };
        assert_eq!(text.parse(), Ok(Target::Ahci(expected)));
        let text = "ahci@qemu,kind=cd,size=64M,image=c.img,port=5,ncq=off,qemu=/opt/qemu";
        let expected = AhciQemuTarget {
            drive: Drive::Cd,
            size: Some(64 << 20),
            image: Some("c.img".into()),
            port: 5,
            queued: false,
            qemu: Some("/opt/qemu".into()),
        };
        assert_eq!(text.parse(), Ok(Target::AhciQemu(expected)));
        let behind = |text: &str| match text.parse() {
            Ok(Target::Ahci(AhciTarget { multiplier, .. })) => multiplier,
            other => panic!("{other:?}"),
        };
        let multiplier = MultiplierTarget { disks: 5, device: 0, fis_switching: true };
        assert_eq!(behind("ahci,pmp=5"), Some(multiplier));
        let other = MultiplierTarget { device: 4, fis_switching: false, ..multiplier };
        assert_eq!(behind("ahci,pmp=5,device=4,fbs=off"), Some(other));
        assert!(refusal("ahci,pmp=16").contains("1..15"));
        assert!(refusal("ahci,pmp=2,device=2").contains("0..1"));
        assert!(refusal("ahci,device=2").contains("pmp=5"));
        assert!(refusal("ahci,fbs=off").contains("pmp=5"));
        assert!(refusal("ahci,pmp=2,kind=cd").contains("kind=cd"));
        assert!(refusal("ahci,port=32").contains("0..31"));
        assert!(refusal("ahci@qemu,port=6").contains("0..5"));
        assert!(refusal("ahci,clock=real").contains("virtual|hybrid"));
        assert!(refusal("ahci,faults=uic:n1").contains("unknown kind of fault"));
        assert!(refusal("ahci,link-power=slumbr").contains("did you mean `slumber`?"));
        assert!(refusal("ahc,port=1").contains("did you mean `ahci`?"));
    }
}
