//! `flysch ufs attribute` and `flysch ufs flag`.

use clap::ValueEnum;
use flysch_rig::Control;
use flysch_ufs::{Operation, Query, UfsError};
use flysch_wire::ufs::query::{ATTRIBUTES, AttributeId, FLAGS, FlagId};
use serde_json::{Value, json};

use super::{find, number};
use crate::failure::Failure;
use crate::number::{parse_number, show_number};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct AttributeArguments {
    /// Its name, a unique part of it, or its number; without it, all are listed.
    id: Option<String>,
    /// The value to write.
    #[arg(value_parser = parse_number)]
    value: Option<u64>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
pub(super) struct FlagArguments {
    /// Its name, a unique part of it, or its number; without it, all are listed.
    id: Option<String>,
    /// What to do with it; without this, it is read.
    action: Option<FlagAction>,
    #[command(flatten)]
    place: Place,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FlagAction {
    Set,
    Clear,
    Toggle,
}

/// Which one, if there are several.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Place {
    /// For this logical unit or with this index.
    #[arg(long, default_value_t = 0)]
    index: u8,
    /// With this selector.
    #[arg(long, default_value_t = 0)]
    selector: u8,
    /// Confirm the write, which can never be repeated.
    #[arg(long)]
    irreversible: bool,
}

impl Place {
    fn of(self, query: Query) -> Query {
        let query = query.index(self.index).selector(self.selector);
        if self.irreversible { query.irreversible() } else { query }
    }
}

pub(super) fn run_attribute(
    arguments: &AttributeArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let Some(given) = &arguments.id else { return list_attributes(control, output) };
    let id = find("attribute", given, AttributeId::ALL, AttributeId::name, AttributeId::into_bits)?;
    let on = |error: UfsError| Failure::from(error).on(id.name());
    if let Some(value) = arguments.value {
        let write = arguments.place.of(Query::write_attribute(id, value));
        control.operate(Operation::Query(write)).map_err(on)?;
    }
    let is_readable = id.info().is_some_and(|info| info.access.read);
    let value = match arguments.value {
        // What can only be written is taken at its word.
        Some(written) if !is_readable => written,
        _ => number(control, arguments.place.of(Query::read_attribute(id))).map_err(on)?,
    };
    if output.json() {
        return output.value(&json!({ "name": id.name(), "id": id.into_bits(), "value": value }));
    }
    let width = id.info().map_or(1, |info| usize::from(info.width));
    output.line(format!("{} {}", id.name(), show_number(value, width)))
}

fn list_attributes(control: &mut dyn Control, output: &mut Output) -> Result<(), Failure> {
    let version = control.device().descriptor.w_spec_version;
    let mut rows = Vec::new();
    let mut list: Vec<Value> = Vec::new();
    for info in ATTRIBUTES {
        let (id, name) = (info.id, info.id.name());
        let is_known = info.since.is_in(version);
        let value = if is_known && info.access.read {
            number(control, Query::read_attribute(id)).ok()
        } else {
            None
        };
        let shown = match (is_known, value) {
            (false, _) => "newer than the device".into(),
            (true, Some(value)) => show_number(value, usize::from(info.width)),
            (true, None) => "-".into(),
        };
        let (number, access) = (format!("{:#04x}", id.into_bits()), info.access.to_string());
        let since = info.since.to_string();
        list.push(json!({
            "name": name, "id": id.into_bits(), "value": value, "access": access, "since": since,
        }));
        rows.push(vec![number, name.to_owned(), shown, access, since]);
    }
    if output.json() {
        return output.value(&list);
    }
    output.table(&["id", "attribute", "value", "access", "since"], &rows)
}

pub(super) fn run_flag(
    arguments: &FlagArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let Some(given) = &arguments.id else { return list_flags(control, output) };
    let id = find("flag", given, FlagId::ALL, FlagId::name, FlagId::into_bits)?;
    let on = |error: UfsError| Failure::from(error).on(id.name());
    let query = match arguments.action {
        None => None,
        Some(FlagAction::Set) => Some(Query::set_flag(id)),
        Some(FlagAction::Clear) => Some(Query::clear_flag(id)),
        Some(FlagAction::Toggle) => Some(Query::toggle_flag(id)),
    };
    if let Some(query) = query {
        control.operate(Operation::Query(arguments.place.of(query))).map_err(on)?;
    }
    let is_readable = id.info().is_some_and(|info| info.access.read);
    let value = match arguments.action {
        Some(action) if !is_readable => u64::from(matches!(action, FlagAction::Set)),
        _ => number(control, arguments.place.of(Query::read_flag(id))).map_err(on)?,
    };
    if output.json() {
        let value = value != 0;
        return output.value(&json!({ "name": id.name(), "id": id.into_bits(), "value": value }));
    }
    output.line(format!("{} {value}", id.name()))
}

fn list_flags(control: &mut dyn Control, output: &mut Output) -> Result<(), Failure> {
    let version = control.device().descriptor.w_spec_version;
    let mut rows = Vec::new();
    let mut list: Vec<Value> = Vec::new();
    for info in FLAGS {
        let (id, name) = (info.id, info.id.name());
        let is_known = info.since.is_in(version);
        let value = if is_known && info.access.read {
            number(control, Query::read_flag(id)).ok().map(|value| value != 0)
        } else {
            None
        };
        let shown = match (is_known, value) {
            (false, _) => "newer than the device".into(),
            (true, Some(value)) => u8::from(value).to_string(),
            (true, None) => "-".into(),
        };
        let (number, access) = (format!("{:#04x}", id.into_bits()), info.access.to_string());
        let since = info.since.to_string();
        list.push(json!({
            "name": name, "id": id.into_bits(), "value": value, "access": access, "since": since,
        }));
        rows.push(vec![number, name.to_owned(), shown, access, since]);
    }
    if output.json() {
        return output.value(&list);
    }
    output.table(&["id", "flag", "value", "access", "since"], &rows)
}
