//! Finds the controller on the PCI bus: configuration mechanism 1 (PCI 3.0, 3.2.2.3.2), one memory
//! BAR below 4 GiB, bus mastering.

use flysch_api::machine::Identity;

use crate::Controller;
use crate::qtest::{Broken, Link};

/// The controller's slot on QEMU's command line.
pub(crate) const SLOT: u32 = 4;
/// Address of its registers: free in a q35 machine with at most 2 GiB below 4 GiB.
const BASE: u32 = 0xE000_0000;

/// Offset of BAR 2 in the register window.
pub(crate) const SECOND: u32 = 0x1000_0000;
/// Its address.
const SECOND_BASE: u32 = BASE + (16 << 20);

const CONFIG_ADDRESS: u16 = 0xCF8;
const CONFIG_DATA: u16 = 0xCFC;
const CONFIG_ENABLE: u32 = 1 << 31;

const ID: u32 = 0x00;
const COMMAND: u32 = 0x04;
const CLASS: u32 = 0x08;
const BAR0: u32 = 0x10;
const BAR2: u32 = 0x18;
/// The BAR of AHCI's registers (AHCI 2.1.11).
const BAR5: u32 = 0x24;
/// Bits 2:1 of a BAR that is the lower half of one of 64 bits.
const BAR_64_BIT: u32 = 2 << 1;
const COMMAND_MEMORY: u32 = 1 << 1;
const COMMAND_BUS_MASTER: u32 = 1 << 2;
/// Mass storage, UFS, UFSHCI (PCI Code and ID Assignment 1.2).
const CLASS_UFSHCI: u32 = 0x01_0901;
/// Mass storage, non-volatile memory, NVMe.
const CLASS_NVME: u32 = 0x01_0802;
/// Mass storage, Serial ATA, AHCI.
const CLASS_AHCI: u32 = 0x01_0601;
/// Base system peripheral, SD host controller, with DMA.
const CLASS_SDHCI: u32 = 0x08_0501;

/// The location of the controller's registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) base: u32,
    pub(crate) length: u32,
    /// Address and length of BAR 2, the controller memory of NVMe; in the register window it lies
    /// at [`SECOND`].
    pub(crate) second: Option<(u32, u32)>,
    pub(crate) identity: Identity,
}

/// Why there is no window.
#[derive(Debug)]
pub(crate) enum Fault {
    Link(Broken),
    Device(String),
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::Link(broken)
    }
}

/// Makes the controller's registers accessible and enables bus mastering.
pub(crate) fn attach(link: &mut Link, controller: Controller) -> Result<Window, Fault> {
    let (expected, register, name) = match controller {
        Controller::Ufs => (CLASS_UFSHCI, BAR0, "a UFS host controller"),
        Controller::Nvme(_) => (CLASS_NVME, BAR0, "an NVMe controller"),
        Controller::Ahci => (CLASS_AHCI, BAR5, "an AHCI host bus adapter"),
        Controller::Emmc { .. } | Controller::Sd => (CLASS_SDHCI, BAR0, "an SD host controller"),
    };
    // Everything that reaches the I/O APIC is reported as a line of its own.
    link.call(format_args!("irq_intercept_in ioapic"))?;
    let id = read(link, ID)?;
    let class = read(link, CLASS)? >> 8;
    if class != expected {
        return Err(Fault::Device(format!(
            "PCI slot {SLOT} holds {id:#010x} of class {class:#08x}, not {name}"
        )));
    }
    write(link, register, u32::MAX)?;
    let bar = read(link, register)?;
    let length = (!(bar & !0xF)).wrapping_add(1);
    if length == 0 || length > 1 << 24 {
        return Err(Fault::Device(format!("its register window has a length of {length:#x}")));
    }
    write(link, register, BASE)?;
    if bar & BAR_64_BIT != 0 {
        write(link, register + 4, 0)?;
    }
    let second = match controller {
        Controller::Nvme(_) => attach_second(link)?,
        _ => None,
    };
    write(link, COMMAND, COMMAND_MEMORY | COMMAND_BUS_MASTER)?;
    Ok(Window {
        base: BASE,
        length,
        second,
        identity: Identity { vendor: id as u16, device: (id >> 16) as u16 },
    })
}

/// Assigns an address to BAR 2, if there is one.
fn attach_second(link: &mut Link) -> Result<Option<(u32, u32)>, Fault> {
    write(link, BAR2, u32::MAX)?;
    let bar = read(link, BAR2)?;
    let length = (!(bar & !0xF)).wrapping_add(1);
    if bar == 0 || length > 1 << 28 {
        return Ok(None);
    }
    write(link, BAR2, SECOND_BASE)?;
    if bar & BAR_64_BIT != 0 {
        write(link, BAR2 + 4, 0)?;
    }
    Ok(Some((SECOND_BASE, length)))
}

fn select(link: &mut Link, register: u32) -> Result<(), Broken> {
    let address = CONFIG_ENABLE | SLOT << 11 | register;
    link.post(format_args!("outl {CONFIG_ADDRESS:#x} {address:#x}"))
}

fn read(link: &mut Link, register: u32) -> Result<u32, Broken> {
    select(link, register)?;
    Ok(link.call(format_args!("inl {CONFIG_DATA:#x}"))? as u32)
}

fn write(link: &mut Link, register: u32, value: u32) -> Result<(), Broken> {
    select(link, register)?;
    link.post(format_args!("outl {CONFIG_DATA:#x} {value:#x}"))
}
