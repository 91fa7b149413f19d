//! Controllers of this machine: how they are opened, and their descriptions.

use flysch_vfio::{Access, Controller, Function, Machine, Signals, VfioOptions};

use crate::error::TargetError;
use crate::target::{PciPlace, PciWait};

/// Opens the controller at that address, with this many bytes of memory, and `vectors` useful
/// vectors if it may interrupt.
pub(crate) fn open(
    place: &PciPlace,
    controller: Controller,
    memory: usize,
    vectors: u16,
) -> Result<Machine, TargetError> {
    Ok(Machine::open(&VfioOptions {
        address: place.address,
        controller,
        memory_bytes: memory as u64,
        vectors: if place.wait == PciWait::Poll { 0 } else { vectors },
        looks: place.wait == PciWait::Adaptive,
        access: place.access,
    })?)
}

/// What was opened, and how it is used.
pub(crate) fn description(machine: &Machine) -> String {
    let Function { address, vendor, device, .. } = machine.function();
    let kind = machine.function().kind();
    let signals = match machine.signals() {
        Signals::MsiX => "MSI-X",
        Signals::Msi => "MSI",
        Signals::Line => "interrupt line",
        Signals::Polled => "polled",
    };
    let looks = if machine.spin().is_some() { " after looking" } else { "" };
    let access = if machine.access() == Access::Iommufd { ", iommufd" } else { "" };
    let pages = if machine.has_huge_pages() { ", huge pages" } else { "" };
    let registers = if machine.has_mapped_registers() { "" } else { ", registers not mapped" };
    format!(
        "{kind} {vendor:04x}:{device:04x} at {address}, {signals}{looks}{access}{pages}{registers}"
    )
}
