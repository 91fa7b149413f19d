//! Controllers of this machine, in words.

use flysch_vfio::{Function, Machine, Signals};

/// What was opened, and how it is used.
pub(crate) fn description(machine: &Machine) -> String {
    let Function { address, vendor, device, .. } = machine.function();
    let kind = machine.function().kind();
    let signals = match machine.signals() {
        Signals::Messages => "MSI-X",
        Signals::Line => "interrupt line",
        Signals::Polled => "polled",
    };
    let pages = if machine.has_huge_pages() { ", huge pages" } else { "" };
    let registers = if machine.has_mapped_registers() { "" } else { ", registers not mapped" };
    format!("{kind} {vendor:04x}:{device:04x} at {address}, {signals}{pages}{registers}")
}
