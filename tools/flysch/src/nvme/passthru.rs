//! `flysch nvme admin-passthru`.

use std::io::Write as _;
use std::path::PathBuf;

use flysch_nvme::{AdminCommand, AdminData};
use flysch_wire::nvme::{AdminOpcode, Status};
use serde_json::json;

use super::features::word;
use super::{Session, dump, hex};
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::file::Named;
use crate::number::parse_number;

/// Maximum data of a command, bytes: a page.
const DATA_MAX: usize = 4096;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// Opcode.
    #[arg(long, short = 'o', value_name = "NUMBER", value_parser = opcode)]
    opcode: u8,
    /// NSID.
    #[arg(long, short = 'n', value_name = "ID", default_value = "0", value_parser = word)]
    namespace_id: u32,
    /// CDW10.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = word)]
    cdw10: u32,
    /// CDW11.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = word)]
    cdw11: u32,
    /// CDW12.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = word)]
    cdw12: u32,
    /// CDW13.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = word)]
    cdw13: u32,
    /// CDW14.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = word)]
    cdw14: u32,
    /// CDW15.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = word)]
    cdw15: u32,
    /// Read this many bytes from the controller, up to 4096.
    #[arg(long, short = 'l', value_name = "BYTES", value_parser = data_length)]
    data_len: Option<u32>,
    /// Send the bytes of this file to the controller, up to 4096.
    #[arg(long, short = 'i', value_name = "FILE", conflicts_with = "data_len")]
    pub(super) input_file: Option<PathBuf>,
    /// Write received data to this file, `-` for standard output.
    #[arg(long, short = 'b', value_name = "FILE", requires = "data_len")]
    raw: Option<PathBuf>,
    /// Time-out, ms.
    #[arg(long, short = 't', value_name = "MS", value_parser = word)]
    timeout: Option<u32>,
    #[command(flatten)]
    consent: Consent,
}

fn opcode(text: &str) -> Result<u8, String> {
    parse_number(text)?
        .try_into()
        .map_err(|_| format!("`{text}` is not an opcode: it must be 0 to 255"))
}

fn data_length(text: &str) -> Result<u32, String> {
    match parse_number(text)? {
        bytes @ 1..=4096 => Ok(bytes as u32),
        _ => Err(format!("`{text}` bytes of data: it must be 1 to {DATA_MAX}")),
    }
}

/// Commands that only return information: all others need consent.
const HARMLESS: [AdminOpcode; 3] =
    [AdminOpcode::GetLogPage, AdminOpcode::Identify, AdminOpcode::GetFeatures];

pub(super) fn admin_passthru(
    session: &mut Session<'_>,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let a = arguments;
    let name = AdminOpcode::from_bits(a.opcode);
    if !HARMLESS.contains(&name) {
        a.consent.ask(&format!("{name} may change the controller or destroy data."))?;
    }
    let data = match (&a.input_file, a.data_len) {
        (Some(path), _) => {
            let bytes = std::fs::read(path);
            let bytes = bytes.map_err(|error| Failure::of(path.display(), error))?;
            if bytes.len() > DATA_MAX {
                let length = bytes.len();
                let why = format!("{length} bytes: a command takes at most {DATA_MAX}");
                return Err(Failure::usage(format!("{}: {why}", path.display())));
            }
            AdminData::Out(bytes)
        }
        (None, Some(bytes)) => AdminData::In(bytes),
        (None, None) => AdminData::None,
    };
    let reply = session.control.admin(AdminCommand {
        opcode: a.opcode,
        nsid: a.namespace_id,
        cdw10: [a.cdw10, a.cdw11, a.cdw12, a.cdw13, a.cdw14, a.cdw15],
        data,
        timeout_ms: a.timeout,
    })?;
    let (field, result) = (reply.status.status, reply.status.result);
    let status = Status::of_field(field);
    let bytes = if status == Status::Success { &reply.data[..] } else { &[] };
    if let Some(path) = a.raw.as_ref().filter(|_| status == Status::Success) {
        let mut file = Named::open(path, session.output)?;
        file.write(|to| to.write_all(bytes))?;
        file.finish()?;
    }
    if status != Status::Success {
        return Err(Failure::failed(format!("{name}: {status} ({field:#x})")));
    }
    if session.output.json() {
        let data = (!bytes.is_empty()).then(|| hex(bytes));
        let told = json!({ "opcode": a.opcode, "result": result, "data": data });
        return session.output.value(&told);
    }
    session.output.line(format!("Admin Command {name} is Success and result: {result:#010x}"))?;
    if bytes.is_empty() || a.raw.is_some() { Ok(()) } else { dump(bytes, session.output) }
}
