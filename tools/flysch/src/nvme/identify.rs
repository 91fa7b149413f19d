//! `flysch nvme list`, `id-ctrl`, `id-ns`, `list-ns`, `ns-descs` and `list-ctrl`.

use flysch_nvme::AdminCommand;
use flysch_wire::nvme::identify::{ALL_NAMESPACES, descriptors, ids};
use flysch_wire::nvme::{Cns, IdentifyController, IdentifyNamespace, LbaFormat, Value as Field};
use serde_json::{Map, Value, json};

use super::{Session, hex, le16, le32, text};
use crate::failure::Failure;
use crate::number::parse_number;

/// The namespace to ask about.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Namespace {
    /// The namespace (that of the target's disk).
    #[arg(long, short, value_name = "ID")]
    pub(super) namespace_id: Option<u32>,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ListArguments {
    /// Also those that are not attached.
    #[arg(long, short)]
    all: bool,
    /// Start with this one.
    #[arg(long, short, value_name = "ID", default_value = "1")]
    namespace_id: u32,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ControllersArguments {
    /// Only those to which this namespace is attached.
    #[arg(long, short, value_name = "ID")]
    namespace_id: Option<u32>,
    /// Start with this one.
    #[arg(long, short, value_name = "ID", default_value = "0", value_parser = controller_id)]
    cntid: u16,
}

fn controller_id(text: &str) -> Result<u16, String> {
    parse_number(text)?
        .try_into()
        .map_err(|_| format!("`{text}` is not a controller id: it must be 0 to 65535"))
}

impl Session<'_> {
    /// The selected namespace: the one named, otherwise that of the disk.
    ///
    /// # Errors
    /// There is no such namespace.
    pub(super) fn meant(&mut self, named: Namespace) -> Result<u32, Failure> {
        let Some(id) = named.namespace_id else { return Ok(self.control.namespace()) };
        let is_known = self.control.device().namespaces.iter().any(|space| space.id == id);
        if is_known || id == ALL_NAMESPACES {
            return Ok(id);
        }
        // What is not attached is all zero (3.2.1.5 of 2.0); ids that cannot be are refused.
        let command = AdminCommand::identify(Cns::Namespace, id);
        let reply = self.control.admin(command)?;
        let data = IdentifyNamespace::parse(&reply.data);
        if super::is_success(&reply) && data.is_ok_and(|data| data.nsze != 0) {
            return Ok(id);
        }
        let active: Vec<String> =
            self.control.device().namespaces.iter().map(|space| space.id.to_string()).collect();
        let active = if active.is_empty() { "none".into() } else { active.join(", ") };
        Err(Failure::failed(format!("namespace {id} is not active; active: {active}")))
    }

    pub(super) fn identify_controller(&mut self) -> Result<IdentifyController, Failure> {
        let bytes = self.identify(Cns::Controller, 0)?;
        IdentifyController::parse(&bytes).map_err(Failure::failed)
    }

    pub(super) fn identify_namespace(&mut self, id: u32) -> Result<IdentifyNamespace, Failure> {
        let bytes = self.identify(Cns::Namespace, id)?;
        IdentifyNamespace::parse(&bytes).map_err(Failure::failed)
    }

    /// The namespace in `named`, or all of them without one.
    pub(super) fn meant_or_all(&self, named: Namespace) -> u32 {
        named.namespace_id.unwrap_or(ALL_NAMESPACES)
    }
}

pub(super) fn list(session: &mut Session<'_>) -> Result<(), Failure> {
    let controller = session.identify_controller()?;
    let spaces: Vec<(u32, IdentifyNamespace)> = (session.control.device().namespaces.iter())
        .map(|space| (space.id, space.data.clone()))
        .collect();
    let block = |data: &IdentifyNamespace| u64::from(data.block_size().unwrap_or(0));
    let [serial, model, revision] =
        [&controller.sn[..], &controller.mn, &controller.fr].map(|t| text(t).trim().to_owned());
    if session.output.json() {
        let one = |(id, data): &(u32, IdentifyNamespace)| {
            json!({
                "NameSpace": id,
                "Firmware": revision,
                "ModelNumber": model,
                "SerialNumber": serial,
                "UsedBytes": data.nuse.saturating_mul(block(data)),
                "MaximumLBA": data.nsze,
                "PhysicalSize": data.nsze.saturating_mul(block(data)),
                "SectorSize": block(data),
            })
        };
        return session.output.value(&json!({
            "Devices": spaces.iter().map(one).collect::<Vec<_>>()
        }));
    }
    let row = |(id, data): &(u32, IdentifyNamespace)| {
        let format = data.format(data.format_in_use()).unwrap_or_default();
        let [used, size] = [data.nuse, data.nsze].map(|n| n.saturating_mul(block(data)));
        let usage = format!("{} / {}", decimal_size(used), decimal_size(size));
        let format = format!("{} B + {} B", block(data), format.metadata);
        let names = [&serial, &model].map(|name| name.to_owned()).into_iter();
        names.chain([id.to_string(), usage, format, revision.clone()]).collect()
    };
    let rows: Vec<Vec<String>> = spaces.iter().map(row).collect();
    session.output.table(&["SN", "Model", "Namespace", "Usage", "Format", "FW Rev"], &rows)
}

pub(super) fn id_ctrl(session: &mut Session<'_>) -> Result<(), Failure> {
    let data = session.identify_controller()?;
    if session.output.json() {
        let mut all = Map::new();
        for (name, field) in data.fields() {
            let value = match (name, field) {
                ("psd", _) => continue,
                ("sn" | "mn" | "fr" | "subnqn", Field::Bytes(bytes)) => json!(text(bytes)),
                ("ieee", Field::Bytes(bytes)) => json!(oui(bytes)),
                ("fguid", Field::Bytes(bytes)) => json!(uuid(bytes)),
                (_, field) => plain(field),
            };
            all.insert(name.to_owned(), value);
        }
        let states = (0..data.power_states()).map(|n| power_json(data.power_state_bytes(n)));
        all.insert("psds".into(), states.collect());
        return session.output.value(&all);
    }
    session.output.line("NVME Identify Controller:")?;
    for (name, field) in data.fields() {
        let value = match (name, field) {
            ("psd", _) => continue,
            ("sn" | "mn" | "fr" | "subnqn", Field::Bytes(bytes)) => text(bytes),
            ("ieee", Field::Bytes(bytes)) => format!("{:06x}", oui(bytes)),
            ("fguid", Field::Bytes(bytes)) => uuid(bytes),
            (name, Field::Number(number, _)) if CONTROLLER_HEX.contains(&name) => hex_or_0(number),
            (_, Field::Number(number, _)) => number.to_string(),
            (_, Field::Bytes(bytes)) => hex(bytes),
        };
        session.output.line(format!("{name:<10}: {value}").trim_end())?;
    }
    for number in 0..data.power_states() {
        for line in power_lines(number, data.power_state_bytes(number)) {
            session.output.line(line)?;
        }
    }
    Ok(())
}

pub(super) fn id_ns(session: &mut Session<'_>, named: Namespace) -> Result<(), Failure> {
    let id = session.meant(named)?;
    let data = session.identify_namespace(id)?;
    let formats = (0..=data.nlbaf.min(15)).filter_map(|n| Some((n, data.format(n)?)));
    if session.output.json() {
        let fields = data.fields().filter(|(name, _)| *name != "lbaf");
        let mut all: Map<_, _> =
            fields.map(|(name, field)| (name.to_owned(), plain(field))).collect();
        let format = |(_, f): (u8, LbaFormat)| {
            let LbaFormat { metadata, shift, performance } = f;
            json!({ "ms": metadata, "ds": shift, "rp": performance })
        };
        all.insert("lbafs".into(), formats.map(format).collect());
        return session.output.value(&all);
    }
    session.output.line(format!("NVME Identify Namespace {id}:"))?;
    for (name, field) in data.fields() {
        let value = match field {
            _ if name == "lbaf" => continue,
            Field::Number(number, _) if NAMESPACE_HEX.contains(&name) => hex_or_0(number),
            Field::Number(number, _) => number.to_string(),
            Field::Bytes(bytes) => hex(bytes),
        };
        session.output.line(format!("{name:<8}: {value}"))?;
    }
    for (number, format) in formats {
        let used = if number == data.format_in_use() { "(in use)" } else { "" };
        let performance = hex_or_0(format.performance.into());
        let line = format!(
            "lbaf {number:2} : ms:{:<3} lbads:{:<2} rp:{performance} {used}",
            format.metadata, format.shift
        );
        session.output.line(line.trim_end())?;
    }
    Ok(())
}

pub(super) fn list_ns(session: &mut Session<'_>, arguments: ListArguments) -> Result<(), Failure> {
    let cns = if arguments.all { Cns::AllocatedList } else { Cns::ActiveList };
    let bytes = session.identify(cns, arguments.namespace_id.saturating_sub(1))?;
    let found: Vec<u32> = ids(&bytes).collect();
    if session.output.json() {
        let list: Vec<Value> = found.iter().map(|id| json!({ "nsid": id })).collect();
        return session.output.value(&json!({ "nsid_list": list }));
    }
    for (number, id) in found.iter().enumerate() {
        session.output.line(format!("[{number:4}]:{id:#x}"))?;
    }
    Ok(())
}

pub(super) fn ns_descs(session: &mut Session<'_>, named: Namespace) -> Result<(), Failure> {
    let id = session.meant(named)?;
    let bytes = session.identify(Cns::Descriptors, id)?;
    let mut at = 0;
    let mut list = Vec::new();
    let mut lines = Vec::new();
    for descriptor in descriptors(&bytes) {
        let (kind, length) = (descriptor.kind, descriptor.id.len());
        let (name, value) = match (kind, descriptor.id) {
            (1, id) => ("eui64", hex(id)),
            (2, id) => ("nguid", hex(id)),
            (3, id) if id.len() == 16 => ("uuid", uuid(id)),
            (4, [set]) => ("csi", set.to_string()),
            (_, id) => ("unknown", hex(id)),
        };
        lines.push(format!("{name:<8}: {value}"));
        list.push(json!({
            "loc": at, "nidt": kind, "nidl": length, "type": name, name: value,
        }));
        at += 4 + length;
    }
    if session.output.json() {
        return session.output.value(&json!({ "ns-descs": list }));
    }
    session.output.line(format!("NVME Namespace Identification Descriptors NS {id}:"))?;
    lines.into_iter().try_for_each(|line| session.output.line(line))
}

pub(super) fn list_ctrl(
    session: &mut Session<'_>,
    arguments: ControllersArguments,
) -> Result<(), Failure> {
    let ControllersArguments { namespace_id, cntid } = arguments;
    let cns = namespace_id.map_or(Cns::Controllers, |_| Cns::AttachedControllers);
    let mut command = AdminCommand::identify(cns, namespace_id.unwrap_or(0));
    command.cdw10[0] |= u32::from(cntid) << 16;
    let bytes = session.admin(command)?.data;
    let count = usize::from(le16(&bytes, 0)).min(bytes.len() / 2 - 1);
    let found: Vec<u16> = (0..count).map(|n| le16(&bytes, 2 + 2 * n)).collect();
    if session.output.json() {
        let list: Vec<Value> = found.iter().map(|id| json!({ "ctrl_id": id })).collect();
        return session.output.value(&json!({ "num_ctrl": count, "ctrl_list": list }));
    }
    session.output.line(format!("num of ctrls present: {count}"))?;
    for (number, id) in found.iter().enumerate() {
        session.output.line(format!("[{number:4}]:{id:#x}"))?;
    }
    Ok(())
}

/// Fields of the controller that nvme-cli shows in hexadecimal.
const CONTROLLER_HEX: [&str; 19] = [
    "vid", "ssvid", "cntlid", "ver", "rtd3r", "rtd3e", "oaes", "ctratt", "oacs", "frmw", "lpa",
    "apsta", "sanicap", "sqes", "cqes", "oncs", "vwc", "sgls", "ocfs",
];
/// Fields of a namespace that it shows in hexadecimal.
const NAMESPACE_HEX: [&str; 4] = ["nsze", "ncap", "nuse", "flbas"];

/// A number in hexadecimal, except that nothing is plain 0.
fn hex_or_0(number: u128) -> String {
    if number == 0 { "0".into() } else { format!("{number:#x}") }
}

/// Values without a special format: numbers as numbers, those of 16 bytes as text because a reader
/// of JSON may not support such numbers, bytes in hexadecimal.
fn plain(field: Field<'_>) -> Value {
    match field {
        Field::Number(number, 16) => json!(number.to_string()),
        Field::Number(number, _) => json!(number as u64),
        Field::Bytes(bytes) => json!(hex(bytes)),
    }
}

/// The maker's IEEE number, which is stored with the low byte first.
fn oui(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

pub(super) fn uuid(bytes: &[u8]) -> String {
    let digits = hex(bytes);
    let part = |range: core::ops::Range<usize>| digits.get(range).unwrap_or_default();
    let parts = [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)];
    parts.join("-")
}

/// Bytes in powers of ten, as disks are sold.
pub(crate) fn decimal_size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1000.0 && unit + 1 < units.len() {
        (amount, unit) = (amount / 1000.0, unit + 1);
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{amount:.2} {}", units[unit]),
    }
}

/// A power state descriptor (figure 276 of 2.0), field by field.
fn power_json(state: &[u8]) -> Value {
    json!({
        "max_power": le16(state, 0),
        "flags": state[3],
        "entry_lat": le32(state, 4),
        "exit_lat": le32(state, 8),
        "read_tput": state[12] & 0x1F,
        "read_lat": state[13] & 0x1F,
        "write_tput": state[14] & 0x1F,
        "write_lat": state[15] & 0x1F,
        "idle_power": le16(state, 16),
        "idle_scale": state[18] >> 6,
        "active_power": le16(state, 20),
        "active_power_work": state[22] & 7,
        "active_scale": state[22] >> 6,
    })
}

/// The same in three lines.
fn power_lines(number: u8, state: &[u8]) -> [String; 3] {
    // Tenths of a milliwatt, or hundredths of a watt.
    let watts = |power: u16, unit: f64| format!("{:.4}W", f64::from(power) * unit);
    let maximum = watts(le16(state, 0), if state[3] & 1 != 0 { 0.0001 } else { 0.01 });
    let scaled = |power: u16, scale: u8| match scale {
        1 => watts(power, 0.0001),
        2 => watts(power, 0.01),
        _ => "-".into(),
    };
    let operational = if state[3] & 2 != 0 { "non-operational" } else { "operational" };
    let (entry, exit) = (le32(state, 4), le32(state, 8));
    let [rrt, rrl, rwt, rwl] = [12, 13, 14, 15].map(|at| state[at] & 0x1F);
    let idle = scaled(le16(state, 16), state[18] >> 6);
    let active = scaled(le16(state, 20), state[22] >> 6);
    let workload = match state[22] & 7 {
        0 => "-".to_owned(),
        number => number.to_string(),
    };
    [
        format!(
            "ps   {number:4} : mp:{maximum} {operational} enlat:{entry} exlat:{exit} rrt:{rrt} \
             rrl:{rrl}"
        ),
        format!("            rwt:{rwt} rwl:{rwl} idle_power:{idle} active_power:{active}"),
        format!("            active_power_workload:{workload}"),
    ]
}
