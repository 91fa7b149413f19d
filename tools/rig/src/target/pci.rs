//! Controllers of this machine, through VFIO.

use flysch_vfio::Address;

use super::ParseError;
use super::pairs::{Kind, Pairs, key};

const WAIT: super::Key = key(
    "wait",
    "interrupt|poll",
    "sleep until the device interrupts, or look all the time (interrupt)",
);

/// A UFS host controller.
pub(super) const UFS: Kind = Kind {
    name: "ufs@pci:ADDRESS",
    help: "a UFS host controller of this machine, by its PCI address; see `flysch pci`",
    keys: &[
        key("lu", "0..31", "the logical unit that is the disk (0)"),
        key("mcq", "1..31", "multi-circular queues, this many (single doorbell)"),
        key("gear", "1..5", "highest high-speed gear of the link (the device's)"),
        WAIT,
    ],
};

/// An NVMe controller.
pub(super) const NVME: Kind = Kind {
    name: "nvme@pci:ADDRESS",
    help: "an NVMe controller of this machine, by its PCI address; see `flysch pci`",
    keys: &[
        key("ns", "NUMBER", "the namespace that is the disk (1)"),
        key("queues", "1..31", "I/O queue pairs, this many (1)"),
        WAIT,
    ],
};

/// How the end of a command is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PciWait {
    /// The device interrupts, and the thread sleeps until then.
    #[default]
    Interrupt,
    /// The thread looks all the time.
    Poll,
}

/// Settings of a UFS host controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UfsPciTarget {
    /// Where it is.
    pub address: Address,
    /// The logical unit that is the disk.
    pub lu: u8,
    /// Queues in MCQ mode; `None` is the single doorbell.
    pub mcq: Option<u8>,
    /// Highest gear.
    pub gear: Option<u8>,
    /// How the end of a command is noticed.
    pub wait: PciWait,
}

/// Settings of an NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmePciTarget {
    /// Where it is.
    pub address: Address,
    /// The namespace that is the disk.
    pub namespace: u32,
    /// I/O queue pairs.
    pub queues: u8,
    /// How the end of a command is noticed.
    pub wait: PciWait,
}

impl UfsPciTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let (address, pairs) = split(&UFS, rest)?;
        Ok(Self {
            address,
            lu: pairs.within("lu", 0, 31)?.unwrap_or(0),
            mcq: pairs.within("mcq", 1, 31)?,
            gear: pairs.within("gear", 1, 5)?,
            wait: wait(&pairs)?,
        })
    }
}

impl NvmePciTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let (address, pairs) = split(&NVME, rest)?;
        let namespace = |text: &str| text.parse().ok().filter(|id| *id > 0);
        Ok(Self {
            address,
            namespace: pairs.get("ns", namespace)?.unwrap_or(1),
            queues: pairs.within("queues", 1, 31)?.unwrap_or(1),
            wait: wait(&pairs)?,
        })
    }
}

/// The address, and the pairs behind it.
fn split<'a>(kind: &'static Kind, rest: &'a str) -> Result<(Address, Pairs<'a>), ParseError> {
    let (address, pairs) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
    let address = address.strip_prefix(':').unwrap_or_default();
    let address = address
        .parse()
        .map_err(|cause| ParseError::Address { given: address.to_owned(), cause })?;
    Ok((address, Pairs::parse(kind, pairs)?))
}

fn wait(pairs: &Pairs<'_>) -> Result<PciWait, ParseError> {
    let named = |text: &str| match text {
        "interrupt" => Some(PciWait::Interrupt),
        "poll" => Some(PciWait::Poll),
        _ => None,
    };
    Ok(pairs.get("wait", named)?.unwrap_or_default())
}
