//! `flysch nvme get-feature` and `set-feature`.

use std::path::PathBuf;

use clap::ValueEnum;
use flysch_nvme::{AdminCommand, AdminData, AdminReply};
use flysch_wire::nvme::feature::{SAVE, Select, SupportedCapabilities, structure_bytes};
use flysch_wire::nvme::{AdminOpcode, FeatureId, Status};
use serde_json::{Value, json};

use super::identify::Namespace;
use super::{Session, dump, hex, le32};
use crate::failure::Failure;
use crate::number::parse_number;

/// Which value of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The current value.
    #[value(alias = "0")]
    Current,
    /// The value after a reset if none was saved.
    #[value(alias = "1")]
    Default,
    /// The saved value.
    #[value(alias = "2")]
    Saved,
    /// What can be done with the feature.
    #[value(alias = "3")]
    Supported,
}

impl Which {
    fn select(self) -> Select {
        match self {
            Self::Current => Select::Current,
            Self::Default => Select::Default,
            Self::Saved => Select::Saved,
            Self::Supported => Select::Supported,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::Default => "Default",
            Self::Saved => "Saved",
            Self::Supported => "Supported capabilities",
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct GetArguments {
    /// Feature identifier; default: all features of the controller.
    #[arg(long, short = 'f', value_name = "ID", value_parser = feature_id)]
    feature_id: Option<u8>,
    /// Which value to read.
    #[arg(long, short = 's', default_value = "current")]
    sel: Which,
    #[command(flatten)]
    namespace: Namespace,
    /// CDW11, for features that ask for it (which temperature, which vector).
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = word)]
    cdw11: u32,
    /// The value's fields in words.
    #[arg(long, short = 'H')]
    human_readable: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct SetArguments {
    /// Feature identifier.
    #[arg(long, short = 'f', value_name = "ID", value_parser = feature_id)]
    feature_id: u8,
    /// The new value, CDW11.
    #[arg(long, short = 'v', value_name = "NUMBER", value_parser = word)]
    #[arg(required_unless_present = "data")]
    value: Option<u32>,
    /// The data structure of a feature that has one.
    #[arg(long, short = 'd', value_name = "FILE")]
    pub(super) data: Option<PathBuf>,
    /// Keep it across resets and losses of power.
    #[arg(long)]
    save: bool,
    #[command(flatten)]
    namespace: Namespace,
}

fn feature_id(text: &str) -> Result<u8, String> {
    parse_number(text)?
        .try_into()
        .map_err(|_| format!("`{text}` is not a feature: it must be 0 to 255"))
}

/// A dword of a command.
pub(super) fn word(text: &str) -> Result<u32, String> {
    parse_number(text)?.try_into().map_err(|_| format!("`{text}` does not fit into 32 bits"))
}

/// Bytes of data a feature has besides its value (5.27.1).
fn data_length(id: u8, wide: bool) -> u32 {
    structure_bytes(FeatureId::from_bits(id), wide) as u32
}

/// What a controller reported about a feature.
struct Feature {
    id: u8,
    value: u32,
    data: Vec<u8>,
}

pub(super) fn get_feature(
    session: &mut Session<'_>,
    arguments: &GetArguments,
) -> Result<(), Failure> {
    let which = arguments.sel;
    let mut found = Vec::new();
    match arguments.feature_id {
        Some(id) => {
            let reply = session.admin(ask_for(id, arguments))?;
            found.push(feature(id, &reply));
        }
        None => {
            for id in 1..=u8::MAX {
                let reply = session.control.admin(ask_for(id, arguments))?;
                if Status::of_field(reply.status.status) == Status::Success {
                    found.push(feature(id, &reply));
                }
            }
        }
    }
    if session.output.json() {
        let one = |feature: &Feature| {
            json!({
                "feature": feature.id,
                "name": FeatureId::from_bits(feature.id).to_string(),
                "select": which.name(),
                "value": feature.value,
                "data": (!feature.data.is_empty()).then(|| hex(&feature.data)),
            })
        };
        let all: Vec<Value> = found.iter().map(one).collect();
        return session.output.value(&all);
    }
    let is_alone = found.len() == 1;
    found.iter().try_for_each(|feature| show(session, feature, arguments, is_alone))
}

fn show(
    session: &mut Session<'_>,
    feature: &Feature,
    arguments: &GetArguments,
    with_data: bool,
) -> Result<(), Failure> {
    let (id, value) = (feature.id, feature.value);
    let (name, which) = (FeatureId::from_bits(id), arguments.sel);
    let line = format!("get-feature:{id:#04x} ({name}), {} value:{value:#010x}", which.name());
    session.output.line(line)?;
    if which == Which::Supported {
        let can = SupportedCapabilities::from_bits(value);
        let words = [
            (can.saveable(), "Feature is saveable"),
            (can.per_namespace(), "Feature is namespace specific"),
            (can.changeable(), "Feature is changeable"),
        ];
        return words
            .into_iter()
            .filter(|(is, _)| *is)
            .try_for_each(|(_, words)| session.output.line(format!("  {words}")));
    }
    if arguments.human_readable {
        words(feature).into_iter().try_for_each(|line| session.output.line(format!("\t{line}")))
    } else if with_data && !feature.data.is_empty() {
        dump(&feature.data, session.output)
    } else {
        Ok(())
    }
}

fn ask_for(id: u8, arguments: &GetArguments) -> AdminCommand {
    let cdw10 = [u32::from(id) | arguments.sel.select().into_bits(), arguments.cdw11, 0, 0, 0, 0];
    let data = match data_length(id, arguments.cdw11 & 1 != 0) {
        // Capabilities come in the value alone.
        0 => AdminData::None,
        _ if arguments.sel == Which::Supported => AdminData::None,
        bytes => AdminData::In(bytes),
    };
    let nsid = arguments.namespace.namespace_id.unwrap_or(0);
    AdminCommand { nsid, cdw10, data, ..AdminCommand::new(AdminOpcode::GetFeatures) }
}

pub(super) fn set_feature(
    session: &mut Session<'_>,
    arguments: &SetArguments,
) -> Result<(), Failure> {
    let SetArguments { feature_id: id, value, save, namespace, data } = arguments;
    let (id, value, save) = (*id, value.unwrap_or(0), *save);
    let name = FeatureId::from_bits(id);
    let refuse = |why: String| {
        Err(Failure::usage(format!("feature {id:#04x} ({name}) cannot be set: {why}")))
    };
    let length = data_length(id, value & 1 != 0);
    let data = match (name, data) {
        (FeatureId::Queues, _) => return refuse("the driver's queues depend on it".into()),
        (FeatureId::HostMemory, _) => {
            return refuse("the memory is the driver's (`hmb=` of a target)".into());
        }
        (_, None) if length != 0 => {
            return refuse(format!("its value is a structure of {length} bytes (`--data`)"));
        }
        (_, None) => AdminData::None,
        (_, Some(_)) if length == 0 => return refuse("it has no structure".into()),
        (_, Some(path)) => {
            let bytes = std::fs::read(path);
            let bytes = bytes.map_err(|error| Failure::of(path.display(), error))?;
            if bytes.len() != length as usize {
                let has = bytes.len();
                return refuse(format!(
                    "{} has {has} bytes, but its structure {length}",
                    path.display()
                ));
            }
            AdminData::Out(bytes)
        }
    };
    let first = u32::from(id) | if save { SAVE } else { 0 };
    let nsid = namespace.namespace_id.unwrap_or(0);
    let cdw10 = [first, value, 0, 0, 0, 0];
    let command = AdminCommand::new(AdminOpcode::SetFeatures);
    session.admin(AdminCommand { nsid, cdw10, data, ..command })?;
    let told = json!({ "feature": id, "value": value, "save": save });
    let save = u8::from(save);
    let line = format!("set-feature:{id:#04x} ({name}), value:{value:#010x}, save:{save}");
    session.done(&told, &line)
}

fn feature(id: u8, reply: &AdminReply) -> Feature {
    Feature { id, value: reply.status.result, data: reply.data.clone() }
}

/// The fields of a value (5.27.1), in words.
fn words(feature: &Feature) -> Vec<String> {
    let value = feature.value;
    let on = |bit: u32| if value >> bit & 1 != 0 { "Enabled" } else { "Disabled" };
    match FeatureId::from_bits(feature.id) {
        FeatureId::Arbitration => vec![
            format!("High Priority Weight (HPW): {}", (value >> 24) + 1),
            format!("Medium Priority Weight (MPW): {}", (value >> 16 & 0xFF) + 1),
            format!("Low Priority Weight (LPW): {}", (value >> 8 & 0xFF) + 1),
            match value & 7 {
                7 => "Arbitration Burst (AB): no limit".to_owned(),
                burst => format!("Arbitration Burst (AB): {}", 1 << burst),
            },
        ],
        FeatureId::PowerManagement => vec![
            format!("Workload Hint (WH): {}", value >> 5 & 7),
            format!("Power State (PS): {}", value & 0x1F),
        ],
        FeatureId::Temperature => vec![
            format!("Threshold (TMPTH): {} C", i64::from(value & 0xFFFF) - 273),
            format!("Sensor (TMPSEL): {}", value >> 16 & 0xF),
            format!("Type (THSEL): {}", if value >> 20 & 3 == 0 { "over" } else { "under" }),
        ],
        FeatureId::ErrorRecovery => vec![
            format!("Deallocated block error (DULBE): {}", on(16)),
            format!("Time limited error recovery (TLER): {} ms", (value & 0xFFFF) * 100),
        ],
        FeatureId::WriteCache => vec![format!("Volatile Write Cache Enable (WCE): {}", on(0))],
        FeatureId::Queues => vec![
            format!("I/O Completion Queues (NCQA): {}", (value >> 16) + 1),
            format!("I/O Submission Queues (NSQA): {}", (value & 0xFFFF) + 1),
        ],
        FeatureId::Coalescing => vec![
            format!("Aggregation Time (TIME): {} us", (value >> 8 & 0xFF) * 100),
            format!("Aggregation Threshold (THR): {}", (value & 0xFF) + 1),
        ],
        FeatureId::VectorConfig => vec![
            format!("Coalescing Disable (CD): {}", value >> 16 & 1),
            format!("Interrupt Vector (IV): {}", value & 0xFFFF),
        ],
        FeatureId::Atomicity => vec![format!("Disable Normal (DN): {}", value & 1)],
        FeatureId::AsyncEvents => vec![
            format!("SMART critical warnings: {:#04x}", value & 0xFF),
            format!("Namespace attribute notices: {}", on(8)),
            format!("Firmware activation notices: {}", on(9)),
            format!("Telemetry log notices: {}", on(10)),
            format!("Asymmetric access notices: {}", on(11)),
        ],
        FeatureId::WriteProtect => {
            let state = match value & 7 {
                0 => "none",
                1 => "write protected",
                2 => "until the next power cycle",
                3 => "for ever",
                _ => "reserved",
            };
            vec![format!("Write Protection State: {state}")]
        }
        _ => words_of_structure(feature),
    }
}

/// The same for values that are data structures.
fn words_of_structure(feature: &Feature) -> Vec<String> {
    let value = feature.value;
    let on = if value & 1 != 0 { "Enabled" } else { "Disabled" };
    match FeatureId::from_bits(feature.id) {
        FeatureId::Apst => {
            let transition = |(state, entry): (usize, &[u8])| {
                let entry = le32(entry, 0);
                (entry != 0).then(|| {
                    format!("from state {state} to {} after {} ms", entry >> 3 & 0x1F, entry >> 8)
                })
            };
            let transitions = feature.data.chunks_exact(8).enumerate().filter_map(transition);
            let enabled = format!("Autonomous Power State Transition Enable (APSTE): {}", on);
            core::iter::once(enabled).chain(transitions).collect()
        }
        FeatureId::HostMemory => {
            let mut lines = vec![format!("Enable Host Memory (EHM): {}", on)];
            if let Some(size) = feature.data.get(..4) {
                lines.push(format!("Host Memory Buffer Size (HSIZE): {} pages", le32(size, 0)));
            }
            lines
        }
        FeatureId::Timestamp => {
            let mut bytes = [0; 8];
            bytes[..6].copy_from_slice(feature.data.get(..6).unwrap_or(&[0; 6]));
            vec![format!("Timestamp: {} ms", u64::from_le_bytes(bytes))]
        }
        _ => vec![format!("{value:#010x}")],
    }
}
