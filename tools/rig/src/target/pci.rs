//! Controllers of this machine, through VFIO.

use flysch_ahci::LinkPower;
use flysch_emmc::{CardKind, Timing};
use flysch_target::{Key, Kind, key};
use flysch_vfio::{Access, Address};

use super::ParseError;
use super::ahci::{Drive, KIND, LINK_POWER, drive, link_power};
use super::emmc::{SD_TIMINGS, TIMINGS, emmc_timing, partition, sd_timing};
use super::pairs::{Pairs, on_off};

const WAIT: Key = key(
    "wait",
    "interrupt|poll|adaptive",
    "sleep until the device interrupts, poll all the time, or poll for 50 us and then sleep, as \
     long as answers come within that (interrupt)",
);

const ACCESS: Key = key(
    "access",
    "auto|group|iommufd",
    "by its IOMMU group in a container, or by its own file with iommufd (auto: what is available)",
);

/// A UFS host controller.
pub(super) const UFS: Kind = Kind {
    name: "ufs@pci:ADDRESS",
    help: "a UFS host controller of this machine, by its PCI address; see `flysch pci`",
    keys: &[
        key("lu", "0..31", "the logical unit that is the disk (0)"),
        key("mcq", "1..31", "number of multi-circular queues (single doorbell)"),
        key("gear", "1..5", "highest high-speed gear of the link (the device's)"),
        WAIT,
        ACCESS,
    ],
};

/// An NVMe controller.
pub(super) const NVME: Kind = Kind {
    name: "nvme@pci:ADDRESS",
    help: "an NVMe controller of this machine, by its PCI address; see `flysch pci`",
    keys: &[
        key("ns", "NUMBER", "the namespace that is the disk (1)"),
        key("queues", "1..31", "number of I/O queue pairs (1)"),
        WAIT,
        ACCESS,
    ],
};

/// A SATA host bus adapter.
pub(super) const AHCI: Kind = Kind {
    name: "ahci@pci:ADDRESS",
    help: "a disk at a SATA host bus adapter of this machine, by its PCI address; see `flysch pci`",
    keys: &[
        KIND,
        key("port", "0..31", "the disk's port (0)"),
        key("ncq", "on|off", "native command queueing (on)"),
        key("speed", "1..3", "fastest link: 1.5, 3 or 6 Gb/s (3)"),
        LINK_POWER,
        WAIT,
        ACCESS,
    ],
};

/// An SD host controller with an eMMC device.
pub(super) const EMMC: Kind = Kind {
    name: "emmc@pci:ADDRESS",
    help: "an eMMC device at an SD host controller of this machine, by its PCI address",
    keys: &[
        key("partition", PARTITIONS, "the partition that is the disk (user)"),
        key("timing", TIMINGS, "the fastest bus timing to try (hs400es)"),
        key("queue", "on|off", "command queueing, if device and controller support it (on)"),
        key("dma", "on|off", "data by ADMA2; off: through the buffer port (on)"),
        WAIT,
        ACCESS,
    ],
};

/// An SD host controller with an SD card.
pub(super) const SD: Kind = Kind {
    name: "sd@pci:ADDRESS",
    help: "an SD card at an SD host controller of this machine, by its PCI address",
    keys: &[
        key("timing", SD_TIMINGS, "the fastest bus timing to try (sdr104)"),
        key("dma", "on|off", "data by ADMA2; off: through the buffer port (on)"),
        WAIT,
        ACCESS,
    ],
};

const PARTITIONS: &str = "user|boot0|boot1|gp1|gp2|gp3|gp4";

/// How completions are noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PciWait {
    /// The device interrupts, and the thread sleeps until then.
    #[default]
    Interrupt,
    /// The thread polls all the time.
    Poll,
    /// The thread polls for a while, if the device completes that soon, and then sleeps.
    Adaptive,
}

/// The address of a controller, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciPlace {
    /// Its address.
    pub address: Address,
    /// How completions are noticed.
    pub wait: PciWait,
    /// How it is opened.
    pub access: Access,
}

/// Settings of a UFS host controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UfsPciTarget {
    /// The controller.
    pub place: PciPlace,
    /// The logical unit that is the disk.
    pub lu: u8,
    /// Queues in MCQ mode; `None` is the single doorbell.
    pub mcq: Option<u8>,
    /// Highest gear.
    pub gear: Option<u8>,
}

/// Settings of an NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmePciTarget {
    /// The controller.
    pub place: PciPlace,
    /// The namespace that is the disk.
    pub namespace: u32,
    /// I/O queue pairs.
    pub queues: u8,
}

/// Settings of a disk on a SATA host bus adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AhciPciTarget {
    /// The adapter.
    pub place: PciPlace,
    /// The kind of device at the port.
    pub drive: Drive,
    /// The port.
    pub port: u8,
    /// Native command queueing.
    pub queued: bool,
    /// Fastest link, 1 to 3; 0 is the fastest that both sides support.
    pub speed: u8,
    /// The deepest power state that the link enters by itself.
    pub link_power: LinkPower,
}

/// Settings of a card on an SD host controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardPciTarget {
    /// The controller.
    pub place: PciPlace,
    /// The required kind of card.
    pub kind: CardKind,
    /// PARTITION_ACCESS of the disk.
    pub partition: u8,
    /// The fastest timing to try.
    pub timing: Timing,
    /// Command queueing.
    pub queue: bool,
    /// Data by DMA.
    pub dma: bool,
}

impl UfsPciTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let (place, pairs) = split(&UFS, rest)?;
        Ok(Self {
            place,
            lu: pairs.within("lu", 0, 31)?.unwrap_or(0),
            mcq: pairs.within("mcq", 1, 31)?,
            gear: pairs.within("gear", 1, 5)?,
        })
    }
}

impl NvmePciTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let (place, pairs) = split(&NVME, rest)?;
        let namespace = |text: &str| text.parse().ok().filter(|id| *id > 0);
        Ok(Self {
            place,
            namespace: pairs.get("ns", namespace)?.unwrap_or(1),
            queues: pairs.within("queues", 1, 31)?.unwrap_or(1),
        })
    }
}

impl AhciPciTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let (place, pairs) = split(&AHCI, rest)?;
        Ok(Self {
            place,
            drive: pairs.get("kind", drive)?.unwrap_or_default(),
            port: pairs.within("port", 0, 31)?.unwrap_or(0),
            queued: pairs.get("ncq", on_off)?.unwrap_or(true),
            speed: pairs.within("speed", 1, 3)?.unwrap_or(0),
            link_power: pairs.get("link-power", link_power)?.unwrap_or_default(),
        })
    }
}

impl CardPciTarget {
    pub(super) fn parse_emmc(rest: &str) -> Result<Self, ParseError> {
        let (place, pairs) = split(&EMMC, rest)?;
        Ok(Self {
            place,
            kind: CardKind::Emmc,
            partition: pairs.get("partition", partition)?.unwrap_or_default(),
            timing: pairs.get("timing", emmc_timing)?.unwrap_or(Timing::Hs400Es),
            queue: pairs.get("queue", on_off)?.unwrap_or(true),
            dma: pairs.get("dma", on_off)?.unwrap_or(true),
        })
    }

    /// An SD card: no partitions, no queue.
    pub(super) fn parse_sd(rest: &str) -> Result<Self, ParseError> {
        let (place, pairs) = split(&SD, rest)?;
        Ok(Self {
            place,
            kind: CardKind::Sd,
            partition: 0,
            timing: pairs.get("timing", sd_timing)?.unwrap_or(Timing::Sdr104),
            queue: false,
            dma: pairs.get("dma", on_off)?.unwrap_or(true),
        })
    }
}

/// The address, and all pairs after it.
fn split<'a>(kind: &'static Kind, rest: &'a str) -> Result<(PciPlace, Pairs<'a>), ParseError> {
    let (address, pairs) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
    let address = address.strip_prefix(':').unwrap_or_default();
    let address = address
        .parse()
        .map_err(|cause| ParseError::Address { given: address.to_owned(), cause })?;
    let pairs = Pairs::parse(kind, pairs)?;
    let wait = pairs.get("wait", wait)?.unwrap_or_default();
    let access = pairs.get("access", access)?.unwrap_or_default();
    Ok((PciPlace { address, wait, access }, pairs))
}

fn wait(text: &str) -> Option<PciWait> {
    match text {
        "interrupt" => Some(PciWait::Interrupt),
        "poll" => Some(PciWait::Poll),
        "adaptive" => Some(PciWait::Adaptive),
        _ => None,
    }
}

fn access(text: &str) -> Option<Access> {
    match text {
        "auto" => Some(Access::Auto),
        "group" => Some(Access::Group),
        "iommufd" => Some(Access::Iommufd),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn refusal(text: &str) -> String {
        text.parse::<Target>().expect_err(text).to_string()
    }

    fn place(address: &str) -> PciPlace {
        let address = address.parse().unwrap();
        PciPlace { address, wait: PciWait::Interrupt, access: Access::Auto }
    }

    #[test]
    fn bare_addresses_have_their_defaults() {
        let ahci = AhciPciTarget {
            place: place("0000:00:1f.2"),
            drive: Drive::Disk,
            port: 0,
            queued: true,
            speed: 0,
            link_power: LinkPower::Active,
        };
        assert_eq!("ahci@pci:00:1f.2".parse(), Ok(Target::AhciPci(ahci)));
        let emmc = CardPciTarget {
            place: place("0000:00:1a.0"),
            kind: CardKind::Emmc,
            partition: 0,
            timing: Timing::Hs400Es,
            queue: true,
            dma: true,
        };
        let timing = Timing::Sdr104;
        let sd = CardPciTarget { kind: CardKind::Sd, timing, queue: false, ..emmc.clone() };
        assert_eq!("emmc@pci:00:1a.0".parse(), Ok(Target::CardPci(emmc)));
        assert_eq!("sd@pci:00:1a.0".parse(), Ok(Target::CardPci(sd)));
    }

    #[test]
    fn every_key_is_read() {
        let polled = |address, access| {
            let wait = PciWait::Poll;
            PciPlace { wait, access, ..place(address) }
        };
        let text = "ufs@pci:0000:00:12.5,lu=2,mcq=4,gear=3,wait=poll,access=group";
        let place = polled("00:12.5", Access::Group);
        let expected = UfsPciTarget { place, lu: 2, mcq: Some(4), gear: Some(3) };
        assert_eq!(text.parse(), Ok(Target::UfsPci(expected)));
        let text = "nvme@pci:00:12.5,ns=300,queues=3,wait=poll,access=iommufd";
        let place = polled("00:12.5", Access::Iommufd);
        let expected = NvmePciTarget { place, namespace: 300, queues: 3 };
        assert_eq!(text.parse(), Ok(Target::NvmePci(expected)));
        let text = "ahci@pci:00:12.5,kind=cd,port=5,ncq=off,speed=2,link-power=slumber,wait=poll";
        let place = polled("00:12.5", Access::Auto);
        let expected = AhciPciTarget {
            place,
            drive: Drive::Cd,
            port: 5,
            queued: false,
            speed: 2,
            link_power: LinkPower::Slumber,
        };
        assert_eq!(text.parse(), Ok(Target::AhciPci(expected)));
        let text = "emmc@pci:00:12.5,partition=gp4,timing=hs200,queue=off,dma=off,wait=adaptive";
        let expected = CardPciTarget {
            place: PciPlace { wait: PciWait::Adaptive, ..place },
            kind: CardKind::Emmc,
            partition: 7,
            timing: Timing::Hs200,
            queue: false,
            dma: false,
        };
        assert_eq!(text.parse(), Ok(Target::CardPci(expected)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for kind in ["ufs", "nvme", "ahci", "emmc", "sd"] {
            for rest in ["", ":", ":00:20.0", ",wait=poll", ":sda"] {
                let error = refusal(&format!("{kind}@pci{rest}"));
                assert!(error.contains("DOMAIN:BUS:DEVICE.FUNCTION"), "{kind}{rest}: {error}");
            }
            assert!(refusal(&format!("{kind}@pci:00:12.5,wait=often")).contains("interrupt|poll|"));
            let error = refusal(&format!("{kind}@pci:00:12.5,access=iommu"));
            assert!(error.contains("did you mean `iommufd`?"), "{error}");
        }
        assert!(refusal("nvme@pci:00:12.5,ns=0").contains("a number"));
        assert!(refusal("nvme@pci:00:12.5,mcq=2").contains("has no key `mcq`"));
        assert!(refusal("ahci@pci:00:12.5,port=32").contains("0..31"));
        assert!(refusal("emmc@pci:00:12.5,partition=rpmb").contains("user|boot0"));
        assert!(refusal("sd@pci:00:12.5,timing=hs400").contains("sdr104"));
        assert!(refusal("sd@pci:00:12.5,queue=on").contains("has no key `queue`"));
    }
}
