//! The results of a scan of each kind of stack, in the terms of the table of devices.

use flysch_ahci::{Multiplier, Quirk};
use flysch_api::count::counted;
use flysch_cam::xpt::Description;
use flysch_cam::{Peripheral, Shape, nda};
use flysch_emmc::CardKind;
use flysch_nvme::Namespace;
use flysch_rig::{AhciControl, Stack, size};
use flysch_wire::ata::Kind;
use flysch_wire::ata::identify::Text;
use flysch_wire::ata::multiplier::CONTROL_PORT;
use flysch_wire::mmc::ext_csd::partition;
use serde_json::{Value, json};

/// What is on a bus.
#[derive(Debug)]
pub(crate) struct Found {
    /// The controller's driver, by FreeBSD's name.
    pub(crate) sim: &'static str,
    /// The units by number.
    pub(crate) units: Vec<FoundUnit>,
}

/// A unit.
#[derive(Debug)]
pub(crate) struct FoundUnit {
    /// For the table.
    pub(crate) known: Description,
    /// Its worldwide name.
    identifier: Identifier,
    /// Rotation rate as in VPD page B1h: 0 is unknown, 1 does not rotate.
    rotation: u16,
    /// Further details: in words, and for programs.
    pub(crate) more: (String, Value),
}

/// The worldwide name of a unit, by one of FreeBSD's two attributes.
#[derive(Clone, Debug, Default)]
enum Identifier {
    #[default]
    None,
    /// A number: NAA, EUI-64, NGUID.
    Id(String),
    /// Text: of a vendor, of T10.
    Name(String),
}

impl Identifier {
    /// That number, unless it is all zeros.
    fn number(bytes: &[u8]) -> Self {
        match bytes.iter().all(|byte| *byte == 0) {
            true => Self::None,
            false => Self::Id(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// The content of a designator of VPD page 83h.
    fn designator(bytes: &[u8]) -> Self {
        let is_words = |text: &str| !text.chars().any(char::is_control);
        match std::str::from_utf8(bytes) {
            Ok(text) if is_words(text) => Self::Name(text.trim().to_owned()),
            _ => Self::number(bytes),
        }
    }

    fn property(&self) -> Option<(&'static str, String)> {
        match self {
            Self::None => None,
            Self::Id(text) => Some(("lunid", text.clone())),
            Self::Name(text) => Some(("lunname", text.clone())),
        }
    }
}

/// A disk's description besides its size, as FreeBSD's drivers pass it to GEOM.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskFacts {
    /// Serial number; empty if it has none.
    pub(crate) serial: String,
    /// Identifier of the logical unit; empty if it has none.
    identifier: Identifier,
    rotation: u16,
    /// Heads and sectors per track; 0 if a driver has none.
    geometry: (u32, u32),
}

impl DiskFacts {
    /// With the names and in the order of `geom disk list`.
    pub(crate) fn properties(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        all.extend(self.identifier.property());
        if !self.serial.is_empty() {
            all.push(("ident", self.serial.clone()));
        }
        let rotation = match self.rotation {
            0 => "unknown".into(),
            1 => "0".into(),
            turns @ 0x401..=0xFFFE => turns.to_string(),
            _ => "invalid".into(),
        };
        let (heads, sectors) = self.geometry;
        all.extend([
            ("rotationrate", rotation),
            ("fwsectors", sectors.to_string()),
            ("fwheads", heads.to_string()),
        ]);
        all
    }
}

/// Heads and sectors per track that FreeBSD's driver of this name assigns to a disk.
fn geometry_of(driver: Option<&str>, bytes: u64) -> (u32, u32) {
    match driver {
        Some("da" | "cd") if bytes > 1 << 30 => (255, 63),
        Some("da" | "cd") => (64, 32),
        Some("ada") => (16, 63),
        _ => (0, 0),
    }
}

/// What is behind a stack; `None` if it has no command layer.
pub(crate) fn describe(stack: &mut Stack) -> Option<Found> {
    let shape = shape_of_disk(stack);
    if let Some(control) = stack.control() {
        let units = control.peripherals().iter().map(scsi).collect();
        return Some(Found { sim: "ufshci", units });
    }
    if let Some(control) = stack.nvme() {
        let device = control.device();
        let unit = |space| namespace(device, space);
        return Some(Found { sim: "nvme", units: device.namespaces.iter().map(unit).collect() });
    }
    if let Some(control) = stack.ahci() {
        return Some(Found { sim: "ahcich", units: at_port(control, shape) });
    }
    let control = stack.emmc()?;
    Some(Found { sim: "sdhci_slot", units: vec![card(control.device(), shape)] })
}

/// Description of a stack's unit, the first one if none is named: its serial number from VPD page
/// 80h, IDENTIFY or the CID.
pub(crate) fn facts_of(stack: &mut Stack, number: Option<u64>) -> DiskFacts {
    let target = stack.ahci().map_or(0, |control| u32::from(control.devices().unit));
    let units = describe(stack).map(|found| found.units).unwrap_or_default();
    let is_it = |unit: &FoundUnit| {
        unit.known.target == target && number.is_none_or(|number| unit.known.lun == number)
    };
    let facts = |unit: FoundUnit| DiskFacts {
        geometry: geometry_of(unit.known.driver, unit.known.bytes),
        serial: unit.known.serial,
        identifier: unit.identifier,
        rotation: unit.rotation,
    };
    units.into_iter().find(is_it).map(facts).unwrap_or_default()
}

/// What the block layer sees of a stack's disk.
#[derive(Clone, Copy, Debug)]
struct DiskShape {
    block_size: u32,
    blocks: u64,
    can_delete: bool,
    read_only: bool,
}

fn shape_of_disk(stack: &Stack) -> DiskShape {
    let geometry = stack.geometry();
    DiskShape {
        block_size: geometry.block_size,
        blocks: geometry.blocks,
        can_delete: geometry.can_delete,
        read_only: geometry.read_only,
    }
}

/// Bytes as text if they are text, otherwise in hexadecimal.
pub(crate) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.trim().to_owned(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn yes(is: bool, what: &'static str) -> Option<String> {
    is.then(|| what.to_owned())
}

/// Size and abilities of a disk; `delete` is its protocol's word for that.
fn about(shape: &Shape, delete: &'static str) -> Vec<String> {
    let mut parts = vec![size_of(shape.blocks, shape.block_size)];
    parts.extend(yes(shape.write_cache, "write cache"));
    parts.extend(yes(shape.force_unit_access, "FUA"));
    parts.extend(yes(shape.delete_blocks_max > 0, delete));
    parts.extend(yes(shape.write_protected, "write protected"));
    parts
}

fn size_of(blocks: u64, block_size: u32) -> String {
    let bytes = blocks.saturating_mul(block_size.into());
    format!("{} ({blocks} blocks of {block_size})", size::display(bytes))
}

/// A SCSI unit.
fn scsi(unit: &Peripheral) -> FoundUnit {
    let inquiry = &unit.inquiry;
    let shape = unit.shape().ok();
    let mut parts = shape.as_ref().map(|shape| about(shape, "UNMAP")).unwrap_or_default();
    if let Some(serial) = &unit.serial_number {
        parts.push(format!("serial {}", text(serial)));
    }
    if let Some(identifier) = &unit.identifier {
        parts.push(format!("id {}", text(identifier)));
    }
    parts.extend(yes(!unit.ready, "not ready"));
    let value = json!({
        "lun": unit.lun.to_ufs(),
        "vendor": inquiry.vendor.to_string(),
        "product": inquiry.product.to_string(),
        "revision": inquiry.revision.to_string(),
        "serial": unit.serial_number.as_deref().map(text),
        "identifier": unit.identifier.as_deref().map(text),
        "ready": unit.ready,
        "block_size": shape.map(|shape| shape.block_size),
        "blocks": shape.map(|shape| shape.blocks),
        "write_cache": shape.map(|shape| shape.write_cache),
        "force_unit_access": shape.map(|shape| shape.force_unit_access),
        "unmap": shape.map(|shape| shape.delete_blocks_max > 0),
        "write_protected": shape.map(|shape| shape.write_protected),
    });
    let words = unit.to_string();
    let known = Description {
        target: 0,
        lun: unit.lun.to_ufs().map_or(unit.lun.to_bits(), u64::from),
        text: words[1..words.len() - 1].to_owned(),
        serial: unit.serial_number.as_deref().map(text).unwrap_or_default(),
        driver: shape.is_some().then_some("da"),
        bytes: shape.map_or(0, |shape| shape.blocks * u64::from(shape.block_size)),
        physical_path: None,
    };
    let identifier = unit.identifier.as_deref().map(Identifier::designator).unwrap_or_default();
    let rotation = unit.characteristics.as_ref().map_or(0, |page| page.rotation_rate);
    FoundUnit { known, identifier, rotation, more: (parts.join(", "), value) }
}

/// A namespace.
fn namespace(device: &flysch_nvme::NvmeFacts, space: &Namespace) -> FoundUnit {
    let controller = &device.controller;
    let speaks = space.command_set == 0;
    let shape = speaks.then(|| nda::shape(space.id, controller, &space.data).ok()).flatten();
    let (model, revision) = (text(&controller.mn), text(&controller.fr));
    let serial = text(&controller.sn);
    let parts = shape.map(|shape| about(&shape, "deallocate")).into_iter().flatten();
    let parts: Vec<String> = parts.chain([format!("serial {serial}")]).collect();
    let value = json!({
        "lun": space.id,
        "product": model,
        "revision": revision,
        "serial": serial,
        "block_size": shape.map(|shape| shape.block_size),
        "blocks": shape.map(|shape| shape.blocks),
        "write_cache": shape.map(|shape| shape.write_cache),
        "force_unit_access": shape.map(|shape| shape.force_unit_access),
        "deallocate": shape.map(|shape| shape.delete_blocks_max > 0),
        "write_protected": shape.map(|shape| shape.write_protected),
    });
    let known = Description {
        target: 0,
        lun: space.id.into(),
        text: format!("{model} {revision}"),
        serial,
        driver: shape.map(|_| "nda"),
        bytes: shape.map_or(0, |shape| shape.blocks * u64::from(shape.block_size)),
        physical_path: None,
    };
    let identifier = match Identifier::number(&space.data.nguid) {
        Identifier::None => Identifier::number(&space.data.eui64),
        known => known,
    };
    FoundUnit { known, identifier, rotation: 1, more: (parts.join(", "), value) }
}

/// What is at a SATA port: a device, or the devices behind a port multiplier and the multiplier
/// itself, which is target 15 as in FreeBSD.
fn at_port(control: &dyn AhciControl, shape: DiskShape) -> Vec<FoundUnit> {
    let Some(multiplier) = control.devices().multiplier else {
        return control.device().map(|device| ata(device, 0, shape)).into_iter().collect();
    };
    let behind = (0..multiplier.ports).filter_map(|target| {
        let device = control.devices().at(target)?;
        let trims = device.identify.has_trim() && !device.quirks.has(Quirk::NoTrim);
        let shape = DiskShape {
            block_size: device.identify.sector_bytes(),
            blocks: device.identify.sectors(),
            can_delete: trims,
            read_only: false,
        };
        Some(ata(device, target.into(), shape))
    });
    behind.chain([multiplied(multiplier)]).collect()
}

/// A port multiplier.
fn multiplied(multiplier: &Multiplier) -> FoundUnit {
    let switching = if multiplier.fis_switching { "FIS-based" } else { "command-based" };
    let ports = counted(multiplier.ports, "port", "ports");
    let mut parts = vec![ports.to_string(), format!("{switching} switching")];
    parts.extend(yes(multiplier.notifies, "notification"));
    let failures = multiplier.failures.iter().enumerate();
    let failures = failures.filter_map(|(port, error)| error.map(|error| (port, error)));
    parts.extend(failures.clone().map(|(port, error)| format!("port {port}: {error}")));
    let failures: Vec<Value> =
        failures.map(|(port, error)| json!({ "port": port, "error": error.to_string() })).collect();
    let value = json!({
        "lun": 0,
        "product": format!("{:08x}", multiplier.product),
        "revision": format!("{:04x}", multiplier.revision),
        "ports": multiplier.ports,
        "fis_switching": multiplier.fis_switching,
        "notification": multiplier.notifies,
        "failures": failures,
    });
    let known = Description {
        target: CONTROL_PORT.into(),
        lun: 0,
        text: multiplier.to_string(),
        serial: String::new(),
        driver: Some("pmp"),
        bytes: 0,
        physical_path: None,
    };
    let identifier = Identifier::None;
    FoundUnit { known, identifier, rotation: 0, more: (parts.join(", "), value) }
}

/// A SATA device at a port, or at a port of a multiplier.
fn ata(device: &flysch_ahci::AtaFacts, target: u32, shape: DiskShape) -> FoundUnit {
    let identify = &device.identify;
    let words = |bytes: &[u8]| Text(bytes).to_string();
    let (model, revision) = (words(&identify.model), words(&identify.firmware));
    let serial = words(&identify.serial);
    let is_disk = identify.kind == Kind::Disk;
    let DiskShape { block_size, blocks, can_delete, read_only } = shape;
    let mut parts = vec![size_of(blocks, block_size)];
    parts.extend(yes(identify.has_write_cache(), "write cache"));
    parts.extend(yes(device.queued, "NCQ"));
    parts.extend(yes(can_delete, "TRIM"));
    parts.push(format!("serial {serial}"));
    let value = json!({
        "lun": 0,
        "product": model,
        "revision": revision,
        "serial": serial,
        "block_size": block_size,
        "blocks": blocks,
        "write_cache": identify.has_write_cache(),
        "queued": device.queued,
        "trim": can_delete,
        "write_protected": read_only,
    });
    let known = Description {
        target,
        lun: 0,
        text: format!("{model} {revision}"),
        serial,
        driver: Some(if is_disk { "ada" } else { "cd" }),
        bytes: if is_disk { blocks * u64::from(block_size) } else { 0 },
        physical_path: None,
    };
    let identifier = Identifier::number(&identify.wwn.to_be_bytes());
    let rotation = identify.rotation;
    FoundUnit { known, identifier, rotation, more: (parts.join(", "), value) }
}

/// An eMMC device or an SD card, all its partitions one unit.
fn card(device: &flysch_emmc::CardFacts, shape: DiskShape) -> FoundUnit {
    let name = match device.kind {
        CardKind::Emmc => "MMCHC",
        CardKind::Sd => "SDHC",
    };
    let cid = &device.cid;
    let product = text(cid.product.trim_ascii_end());
    let product = product.trim_end_matches('\0');
    let (major, minor) = (cid.revision >> 4, cid.revision & 0xF);
    let serial = format!("{:08X}", cid.serial);
    let bytes = device.sectors * 512;
    let mut parts = vec![size_of(device.sectors, 512)];
    parts.extend(yes(device.cache, "write cache"));
    parts.extend(yes(shape.can_delete, "TRIM"));
    let named = [(partition::BOOT0, "boot0"), (partition::BOOT1, "boot1")];
    let mut partitions = Vec::new();
    for (number, name) in named {
        let sectors = device.partition_sectors(number);
        if sectors > 0 {
            parts.push(format!("{name} {}", size::display(sectors * 512)));
            partitions.push(json!({ "name": name, "bytes": sectors * 512 }));
        }
    }
    parts.push(format!("serial {serial}"));
    let text = format!("{name} {product} {major}.{minor} SN {serial}");
    let value = json!({
        "lun": 0,
        "product": product,
        "revision": format!("{major}.{minor}"),
        "serial": serial,
        "block_size": 512,
        "blocks": device.sectors,
        "write_cache": device.cache,
        "trim": shape.can_delete,
        "partitions": partitions,
        "write_protected": shape.read_only,
    });
    let known = Description {
        target: 0,
        lun: 0,
        text,
        serial,
        driver: Some("sdda"),
        bytes,
        physical_path: None,
    };
    FoundUnit { known, identifier: Identifier::None, rotation: 1, more: (parts.join(", "), value) }
}
