//! `flysch ata info`, `identify` and `set-feature`.

use clap::ValueEnum;
use flysch_ahci::AtaCommand;
use flysch_wire::ata::command::{feature, sata_feature as sata_command};
use flysch_wire::ata::identify::{
    Text, additional, capability, sanitize, sata, sata_feature, sata_more, security, set82, set83,
    set84, set119,
};
use flysch_wire::ata::{Identify, Kind, Opcode};
use serde_json::{Map, Value, json};

use super::{Session, hex};
use crate::failure::Failure;
use crate::nvme::dump;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print the raw 512 bytes.
    #[arg(long)]
    raw: bool,
}

/// A feature that can be switched (SET FEATURES).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Feature {
    /// The volatile write cache.
    WriteCache,
    /// Read look-ahead.
    LookAhead,
    /// Link power management initiated by the device.
    Dipm,
    /// Device sleep.
    DevSleep,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct FeatureArguments {
    /// The feature.
    feature: Feature,
    /// On or off.
    switch: super::smart::Switch,
}

/// Whether a device has a feature.
type Has = fn(&Identify) -> bool;

/// Gigabits per second of a generation, in tenths.
const SPEEDS: [(u32, &str); 3] = [(15, "1.5 Gb/s"), (30, "3.0 Gb/s"), (60, "6.0 Gb/s")];

/// Editions of ATA by the bits of word 80.
const ATA: [&str; 16] = [
    "",
    "ATA-1",
    "ATA-2",
    "ATA-3",
    "ATA/ATAPI-4",
    "ATA/ATAPI-5",
    "ATA/ATAPI-6",
    "ATA/ATAPI-7",
    "ATA8-ACS",
    "ACS-2",
    "ACS-3",
    "ACS-4",
    "ACS-5",
    "ACS-6",
    "",
    "",
];

/// Editions of Serial ATA by the bits of word 222.
const SATA: [&str; 12] = [
    "ATA8-AST",
    "SATA 1.0a",
    "SATA II Ext",
    "SATA 2.5",
    "SATA 2.6",
    "SATA 3.0",
    "SATA 3.1",
    "SATA 3.2",
    "SATA 3.3",
    "SATA 3.4",
    "SATA 3.5",
    "SATA >3.5",
];

/// The name of the highest bit set.
fn highest(names: &'static [&'static str], word: u16) -> Option<&'static str> {
    let bit = u16::BITS.checked_sub(word.leading_zeros() + 1)?;
    names.get(bit as usize).copied().filter(|name| !name.is_empty())
}

fn versions(data: &Identify) -> (Option<String>, Option<&'static str>) {
    let [major, minor] = data.versions;
    let ata = if matches!(major, 0 | u16::MAX) { None } else { highest(&ATA, major) };
    let ata = ata.map(|name| match minor {
        0 | u16::MAX => format!("{name} (minor revision not indicated)"),
        minor => format!("{name} (minor revision {minor:#06x})"),
    });
    let serial = data.transport >> 12 == 1;
    (ata, if serial { highest(&SATA, data.transport & 0xFFF) } else { None })
}

/// The fastest supported speed and the negotiated one, by number.
fn speeds(data: &Identify) -> (Option<usize>, Option<usize>) {
    let most = (1..=3).rev().find(|n| data.sata >> n & 1 != 0);
    let now = usize::from(data.sata_more >> 1 & 7);
    (most, Some(now).filter(|n| (1..=3).contains(n)))
}

/// Bytes of a physical sector.
fn physical(data: &Identify) -> u64 {
    let logical = u64::from(data.sector_bytes());
    match data.sector_size & flysch_wire::ata::identify::sector::PHYSICAL {
        0 => logical,
        _ => logical << (data.sector_size & 0xF),
    }
}

/// What `info` shows of a drive, put into words once for people and for programs.
struct Facts {
    data: Identify,
    model: String,
    serial: String,
    firmware: String,
    /// Trim: supported, deterministic, zeros.
    trim: [bool; 3],
    is_disk: bool,
    has_smart: bool,
    smart_on: bool,
}

impl Facts {
    fn new(data: Identify) -> Self {
        let [model, serial, firmware] =
            [&data.model[..], &data.serial, &data.firmware].map(|text| Text(text).to_string());
        let trim = [
            data.has_trim(),
            data.additional & additional::DETERMINISTIC_AFTER_TRIM != 0,
            data.additional & additional::ZERO_AFTER_TRIM != 0,
        ];
        let (is_disk, has_smart) = (data.kind == Kind::Disk, data.supports82(set82::SMART));
        let smart_on = data.enabled[0] & set82::SMART != 0;
        Self { data, model, serial, firmware, trim, is_disk, has_smart, smart_on }
    }

    /// NAA, OUI and the vendor's number of the world wide name; `None` without one.
    fn name(&self) -> Option<[u64; 3]> {
        let wwn = self.data.wwn;
        (wwn != 0).then_some([wwn >> 60, wwn >> 36 & 0xFF_FFFF, wwn & 0xF_FFFF_FFFF])
    }

    fn is_on(&self, bit: u16) -> bool {
        self.data.enabled[0] & bit != 0
    }

    fn sector(&self) -> u64 {
        self.data.sector_bytes().into()
    }

    /// As named by `smartctl --json`.
    fn value(&self) -> Value {
        let data = &self.data;
        let mut told = json!({
            "model_name": self.model,
            "serial_number": self.serial,
            "firmware_version": self.firmware,
            "smart_support": { "available": self.has_smart, "enabled": self.smart_on },
        });
        if let Some([naa, oui, id]) = self.name() {
            told["wwn"] = json!({ "naa": naa, "oui": oui, "id": id });
        }
        if self.is_disk {
            self.tell_disk(&mut told);
        }
        let (ata, serial_ata) = versions(data);
        if let Some(ata) = ata {
            let [major, minor] = data.versions;
            told["ata_version"] =
                json!({ "string": ata, "major_value": major, "minor_value": minor });
        }
        if let Some(name) = serial_ata {
            told["sata_version"] = json!({ "string": name, "value": data.transport & 0xFFF });
        }
        let speed = |n: usize, value: u16| {
            let (tenths, name) = SPEEDS[n - 1];
            json!({
                "sata_value": value,
                "string": name,
                "units_per_second": tenths,
                "bits_per_unit": 100_000_000,
            })
        };
        let (most, now) = speeds(data);
        if let Some(most) = most {
            told["interface_speed"] = json!({ "max": speed(most, data.sata & 0xFE) });
            if let Some(now) = now {
                told["interface_speed"]["current"] = speed(now, now as u16);
            }
        }
        for (name, bit) in
            [("read_lookahead", set82::LOOK_AHEAD), ("write_cache", set82::WRITE_CACHE)]
        {
            if data.supports82(bit) {
                told[name] = json!({ "enabled": self.is_on(bit) });
            }
        }
        told
    }

    fn tell_disk(&self, told: &mut Value) {
        let data = &self.data;
        let (blocks, sector) = (data.sectors(), self.sector());
        told["user_capacity"] = json!({ "blocks": blocks, "bytes": blocks.saturating_mul(sector) });
        told["logical_block_size"] = json!(sector);
        told["physical_block_size"] = json!(physical(data));
        if data.rotation != 0 {
            let turns = if data.rotation == 1 { 0 } else { data.rotation };
            told["rotation_rate"] = json!(turns);
        }
        let [supported, deterministic, zeroed] = self.trim;
        told["trim"] = match supported {
            true => json!({ "supported": true, "deterministic": deterministic, "zeroed": zeroed }),
            false => json!({ "supported": false }),
        };
        told["ata_security"] = super::security::state(data.security).1;
    }

    /// As printed by `smartctl -i`.
    fn rows(self) -> Vec<(&'static str, String)> {
        let name = self.name();
        let (sector, is_disk) = (self.sector(), self.is_disk);
        let (ata, serial_ata) = versions(&self.data);
        let (most, now) = speeds(&self.data);
        let word = |on: bool| if on { "Enabled" } else { "Disabled" }.to_owned();
        let states =
            [("Rd look-ahead is", set82::LOOK_AHEAD), ("Write cache is", set82::WRITE_CACHE)].map(
                |(name, bit)| match self.data.supports82(bit) {
                    true => (name, word(self.is_on(bit))),
                    false => (name, "Unavailable".into()),
                },
            );
        let Self { data, model, serial, firmware, trim, has_smart, smart_on, .. } = self;
        let mut rows = vec![
            ("Device Model", model),
            ("Serial Number", serial),
            ("Firmware Version", firmware),
        ];
        if let Some([naa, oui, id]) = name {
            rows.push(("LU WWN Device Id", format!("{naa:x} {oui:06x} {id:09x}")));
        }
        if is_disk {
            let bytes = data.sectors().saturating_mul(sector);
            let size = crate::nvme::decimal_size(bytes);
            rows.push(("User Capacity", format!("{bytes} bytes [{size}]")));
            let sizes = format!("{sector} bytes logical, {} bytes physical", physical(&data));
            rows.push(("Sector Sizes", sizes));
            let turns = match data.rotation {
                0 => "not reported".to_owned(),
                1 => "Solid State Device".to_owned(),
                turns => format!("{turns} rpm"),
            };
            rows.push(("Rotation Rate", turns));
            rows.push(("TRIM Command", trim_words(trim).to_owned()));
        }
        rows.push(("ATA Version is", ata.unwrap_or_else(|| "not reported".into())));
        let mut link = serial_ata.unwrap_or("not reported").to_owned();
        if let Some(most) = most {
            link += &format!(", {}", SPEEDS[most - 1].1);
        }
        if let Some(now) = now {
            link += &format!(" (current: {})", SPEEDS[now - 1].1);
        }
        rows.push(("SATA Version is", link));
        let state = if has_smart { word(smart_on) } else { "Unavailable".into() };
        rows.push(("SMART support is", state));
        rows.extend(states);
        if is_disk {
            rows.push(("ATA Security is", super::security::state(data.security).0));
        }
        rows
    }
}

pub(super) fn info(session: &mut Session<'_>) -> Result<(), Failure> {
    let facts = Facts::new(session.identify()?);
    if session.output.json() {
        return session.output.value(&facts.value());
    }
    for (name, value) in facts.rows() {
        session.output.line(format!("{:<18}{value}", format!("{name}:")))?;
    }
    Ok(())
}

pub(super) fn show_identify(
    session: &mut Session<'_>,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let bytes = session.identify_bytes()?;
    if arguments.raw {
        return match session.output.json() {
            true => session.output.value(&json!({ "data": hex(&bytes) })),
            false => dump(&bytes, session.output),
        };
    }
    let data = Identify::parse(&bytes).map_err(Failure::failed)?;
    let features = features(&data);
    if session.output.json() {
        let one = |f: &Row| {
            let mut value = json!({ "supported": f.supported });
            if let Some(on) = f.enabled {
                value["enabled"] = json!(on);
            }
            if let Some(number) = f.value {
                value["value"] = json!(number);
            }
            (f.name.to_owned(), value)
        };
        let all: Map<String, Value> = features.iter().map(one).collect();
        return session.output.value(&json!({
            "model_name": Text(&data.model).to_string(),
            "serial_number": Text(&data.serial).to_string(),
            "firmware_version": Text(&data.firmware).to_string(),
            "lba_sectors": data.sectors_28,
            "lba48_sectors": data.sectors_48,
            "features": all,
        }));
    }
    let rows = [
        ("device model", Text(&data.model).to_string()),
        ("firmware revision", Text(&data.firmware).to_string()),
        ("serial number", Text(&data.serial).to_string()),
        ("WWN", format!("{:016x}", data.wwn)),
        ("sector size", format!("logical {}, physical {}", data.sector_bytes(), physical(&data))),
        ("LBA supported", format!("{} sectors", data.sectors_28)),
        ("LBA48 supported", format!("{} sectors", data.sectors_48)),
    ];
    for (name, value) in rows {
        session.output.line(format!("{name:<22}{value}"))?;
    }
    session.output.line("")?;
    let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
    let row = |f: &Row| {
        let enabled = f.enabled.map(yes).unwrap_or_default();
        let value = f.value.map(|number| number.to_string()).unwrap_or_default();
        vec![f.name.to_owned(), yes(f.supported), enabled, value]
    };
    let rows: Vec<_> = features.iter().map(row).collect();
    session.output.table(&["Feature", "Support", "Enabled", "Value"], &rows)
}

pub(super) fn set_feature(
    session: &mut Session<'_>,
    arguments: FeatureArguments,
) -> Result<(), Failure> {
    let FeatureArguments { feature: which, switch } = arguments;
    let on = switch == super::smart::Switch::On;
    let sata = if on { feature::SATA } else { feature::NO_SATA };
    let (name, has, what, count): (&str, Has, u16, u16) = match which {
        Feature::WriteCache => {
            let what = if on { feature::WRITE_CACHE } else { feature::NO_WRITE_CACHE };
            ("write cache", |data| data.supports82(set82::WRITE_CACHE), what, 0)
        }
        Feature::LookAhead => {
            let what = if on { feature::LOOK_AHEAD } else { feature::NO_LOOK_AHEAD };
            ("read look-ahead", |data| data.supports82(set82::LOOK_AHEAD), what, 0)
        }
        Feature::Dipm => (
            "device initiated power management",
            |data| data.sata_features & sata_feature::DIPM != 0,
            sata,
            sata_command::DIPM,
        ),
        Feature::DevSleep => (
            "device sleep",
            |data| data.sata_features & sata_feature::DEVSLEEP != 0,
            sata,
            sata_command::DEVSLEEP,
        ),
    };
    session.identify_with(name, has)?;
    let mut command = AtaCommand::new(Opcode::SetFeatures);
    (command.task.features, command.task.count) = (what, count);
    session.command(command)?;
    let word = if on { "enabled" } else { "disabled" };
    session.done(&json!({ "feature": name, "enabled": on }), &format!("{name} {word}"))
}

fn trim_words([supported, deterministic, zeroed]: [bool; 3]) -> &'static str {
    match (supported, deterministic, zeroed) {
        (false, ..) => "Unavailable",
        (true, true, true) => "Available, deterministic, zeroed",
        (true, true, false) => "Available, deterministic",
        (true, false, _) => "Available",
    }
}

/// One line of the feature table, as in camcontrol.
struct Row {
    name: &'static str,
    supported: bool,
    enabled: Option<bool>,
    value: Option<u64>,
}

fn features(data: &Identify) -> Vec<Row> {
    let plain = |name, supported| Row { name, supported, enabled: None, value: None };
    let valued = |name, supported: bool, value: u64| {
        let value = supported.then_some(value);
        Row { name, supported, enabled: None, value }
    };
    let switched = |name, word: usize, bit: u16| Row {
        name,
        supported: data.supported[word] & bit != 0,
        enabled: Some(data.enabled[word] & bit != 0),
        value: None,
    };
    let sata_switched = |name, bit: u16| Row {
        name,
        supported: data.sata_features & bit != 0,
        enabled: Some(data.sata_enabled & bit != 0),
        value: None,
    };
    let lock = |bit: u16| data.security & bit != 0;
    let cleans = |bit: u16| data.sanitize & sanitize::SUPPORTED != 0 && data.sanitize & bit != 0;
    let (most, now) = speeds(data);
    vec![
        plain("DMA", data.capabilities & capability::DMA != 0),
        valued("Native Command Queuing (NCQ)", data.has_ncq(), data.queue_depth.into()),
        plain("NCQ SEND/RECEIVE FPDMA QUEUED", data.sata_more & sata_more::SEND_RECEIVE != 0),
        plain("NCQ NON-DATA", data.sata_more & sata_more::NCQ_MANAGEMENT != 0),
        valued("SATA generation", most.is_some(), most.unwrap_or(0) as u64),
        valued("SATA generation in use", now.is_some(), now.unwrap_or(0) as u64),
        plain("host initiated power management", data.sata & sata::HOST_POWER != 0),
        sata_switched("device initiated power management", sata_feature::DIPM),
        sata_switched("device sleep", sata_feature::DEVSLEEP),
        switched("read ahead", 0, set82::LOOK_AHEAD),
        switched("write cache", 0, set82::WRITE_CACHE),
        switched("flush cache", 1, set83::FLUSH),
        switched("flush cache ext", 1, set83::FLUSH_EXT),
        switched("48-bit addresses", 1, set83::LBA48),
        switched("force unit access (FUA)", 2, set84::FUA),
        switched("SMART", 0, set82::SMART),
        switched("SMART error logging", 2, set84::ERROR_LOGGING),
        switched("SMART self-test", 2, set84::SELF_TEST),
        switched("general purpose logging", 2, set84::LOGS),
        switched("microcode download", 1, set83::MICROCODE),
        plain("microcode download in parts", data.more[0] & set119::MICROCODE_PARTS != 0),
        switched("security", 0, set82::SECURITY),
        Row {
            name: "security locked",
            supported: lock(security::SUPPORTED),
            enabled: Some(lock(security::LOCKED)),
            value: None,
        },
        Row {
            name: "security frozen",
            supported: lock(security::SUPPORTED),
            enabled: Some(lock(security::FROZEN)),
            value: None,
        },
        switched("host protected area (HPA)", 0, set82::HOST_PROTECTED_AREA),
        plain("accessible max address (AMA)", data.more[0] & set119::MAX_ADDRESS != 0),
        valued("data set management, TRIM", data.has_trim(), data.trim_blocks.into()),
        plain("sanitize: crypto scramble", cleans(sanitize::CRYPTO)),
        plain("sanitize: block erase", cleans(sanitize::BLOCK_ERASE)),
        plain("sanitize: overwrite", cleans(sanitize::OVERWRITE)),
        valued("zones", data.zoned != 0, data.zoned.into()),
    ]
}
