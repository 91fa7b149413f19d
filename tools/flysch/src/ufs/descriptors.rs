//! `flysch ufs descriptor`.

use flysch_rig::Control;
use flysch_ufs::{Operation, Output as Answer, Query};
use flysch_wire::ufs::descriptor::{DescriptorView, StringDescriptor, fields_of};
use flysch_wire::ufs::query::DescriptorId;
use serde_json::{Map, Value, json};

use super::find;
use crate::failure::Failure;
use crate::number::show_number;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Its name or number: device, configuration, unit, interconnect, string, geometry, power,
    /// health, file; without it, all that the device has are listed.
    id: Option<String>,
    /// Logical unit, string or part.
    #[arg(default_value = "0", value_parser = crate::number::parse_number)]
    index: u64,
    /// Print the bytes in hexadecimal instead of the fields.
    #[arg(long)]
    raw: bool,
}

pub(super) fn run(
    arguments: &Arguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let Some(given) = &arguments.id else { return list(control, output) };
    let id =
        find("descriptor", given, DescriptorId::ALL, DescriptorId::name, DescriptorId::into_bits)?;
    let index = u8::try_from(arguments.index)
        .map_err(|_| Failure::usage(format!("index {} is above 255", arguments.index)))?;
    let what = format!("{} descriptor {index}", id.name());
    let bytes = read(control, id, index).map_err(|failure| failure.on(&what))?;
    if arguments.raw {
        return show_bytes(&bytes, output);
    }
    let view = DescriptorView::new(&bytes).map_err(|e| Failure::of(&what, e))?;
    if id == DescriptorId::String {
        let text = StringDescriptor::parse(&bytes).map_err(|e| Failure::of(&what, e))?;
        let text = text.to_string();
        return match output.json() {
            true => output.value(&json!({ "index": index, "text": text })),
            false => output.line(text),
        };
    }
    let mut object = Map::new();
    let mut rows = Vec::new();
    for (field, content) in view.fields(fields_of(id, index)) {
        let offset = format!("{:#04x}", field.offset);
        let (shown, value) = match field.number(&bytes) {
            Some(number) => (show_number(number, usize::from(field.size)), json!(number)),
            None => (hex(content), json!(hex(content))),
        };
        object.insert(field.name.into(), value);
        rows.push(vec![offset, field.name.to_owned(), shown]);
    }
    if output.json() {
        return output.value(&Value::Object(object));
    }
    output.line(format!("{} descriptor, index {index}, {} bytes", id.name(), view.length()))?;
    output.table(&["at", "field", "value"], &rows)
}

/// Reads a descriptor as the device sends it.
pub(super) fn read(
    control: &mut dyn Control,
    id: DescriptorId,
    index: u8,
) -> Result<Vec<u8>, Failure> {
    let query = Query::read_descriptor(id).index(index);
    match control.operate(Operation::Query(query))? {
        Answer::Descriptor(bytes) => Ok(bytes.as_slice().to_vec()),
        _ => Ok(Vec::new()),
    }
}

/// The text of a string descriptor; empty if there is none.
pub(super) fn string(control: &mut dyn Control, index: u8) -> String {
    let bytes = read(control, DescriptorId::String, index).unwrap_or_default();
    StringDescriptor::parse(&bytes).map(|text| text.to_string()).unwrap_or_default()
}

fn list(control: &mut dyn Control, output: &mut Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut list = Vec::new();
    for id in DescriptorId::ALL {
        // Strings and units are many; their first stands for all.
        let index = match id {
            DescriptorId::String => control.device().descriptor.i_product_name,
            DescriptorId::Unit => {
                control.device().units.iter().flatten().map(|u| u.b_unit_index).next().unwrap_or(0)
            }
            _ => 0,
        };
        let (number, length) = (id.into_bits(), read(control, *id, index).map(|bytes| bytes.len()));
        let shown = match &length {
            Ok(length) => format!("{length} bytes"),
            Err(error) => error.to_string(),
        };
        list.push(json!({ "id": number, "name": id.name(), "length": length.ok() }));
        rows.push(vec![format!("{number:#04x}"), id.name().to_owned(), shown]);
    }
    if output.json() {
        return output.value(&list);
    }
    output.table(&["id", "descriptor", ""], &rows)
}

fn show_bytes(bytes: &[u8], output: &mut Output) -> Result<(), Failure> {
    if output.json() {
        return output.value(&json!({ "bytes": hex(bytes) }));
    }
    for (row, chunk) in bytes.chunks(16).enumerate() {
        output.line(format!("{:02x}: {}", row * 16, hex(chunk)))?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
