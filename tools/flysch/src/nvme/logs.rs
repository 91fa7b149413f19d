//! `flysch nvme smart-log`, `error-log`, `fw-log`, `effects-log`, `changed-ns-list-log`,
//! `sanitize-log`, `supported-log-pages` and `get-log`.

use std::io::Write as _;
use std::path::PathBuf;

use flysch_wire::nvme::identify::{ALL_NAMESPACES, ids};
use flysch_wire::nvme::log::{
    CHANGED_LENGTH, EFFECTS_LENGTH, ERROR_ENTRY, ErrorEntry, FirmwareSlots, SanitizeStatus, Smart,
    sanitize,
};
use flysch_wire::nvme::{AdminOpcode, LogId, NvmOpcode, Status};
use serde_json::{Map, Value, json};

use super::identify::{Namespace, decimal_size};
use super::{Session, dump, hex, le16, le32, text};
use crate::failure::Failure;
use crate::file::Named;
use crate::number::parse_number;

/// Bytes of a data unit of the SMART log.
const DATA_UNIT: u128 = 512_000;
/// Zero degrees Celsius in the kelvin of the log.
const ZERO_CELSIUS: i32 = 273;
/// Bytes requested at once.
const PIECE: u32 = 4096;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ErrorArguments {
    /// This many entries, newest first.
    #[arg(long, short = 'e', value_name = "COUNT", default_value = "64")]
    log_entries: u32,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct RawArguments {
    /// Log page identifier.
    #[arg(long, short = 'i', value_name = "ID", value_parser = log_id)]
    log_id: u8,
    /// Bytes.
    #[arg(long, short = 'l', value_name = "BYTES", default_value = "512", value_parser = length)]
    log_len: u32,
    /// The first byte.
    #[arg(long, short = 'o', value_name = "BYTES", default_value = "0", value_parser = offset)]
    lpo: u64,
    #[command(flatten)]
    namespace: Namespace,
    /// Write the bytes to this file, `-` for standard output.
    #[arg(long, short = 'b', value_name = "FILE")]
    raw: Option<PathBuf>,
}

fn log_id(text: &str) -> Result<u8, String> {
    parse_number(text)?
        .try_into()
        .map_err(|_| format!("`{text}` is not a log page: it must be 0 to 255"))
}

/// Longest log page to read, bytes.
const LOG_MAX: u64 = 16 << 20;

fn length(text: &str) -> Result<u32, String> {
    match parse_number(text)? {
        bytes @ 4..=LOG_MAX if bytes.is_multiple_of(4) => Ok(bytes as u32),
        _ => Err(format!(
            "`{text}` bytes of a log page: it must be a multiple of 4, up to {LOG_MAX}"
        )),
    }
}

fn offset(text: &str) -> Result<u64, String> {
    let offset = parse_number(text)?;
    let aligned = offset.is_multiple_of(4).then_some(offset);
    aligned
        .ok_or_else(|| format!("`{text}` is not a place in a log page: it must be a multiple of 4"))
}

pub(super) fn smart_log(session: &mut Session<'_>) -> Result<(), Failure> {
    let bytes = session.log(LogId::Smart.into_bits(), ALL_NAMESPACES, (0, 512))?;
    let smart = Smart::parse(&bytes).map_err(Failure::failed)?;
    if session.output.json() {
        return session.output.value(&smart_values(&smart));
    }
    session.output.line("Smart Log for NVME namespace-id:ffffffff")?;
    print_rows(session, &smart_rows(&smart))
}

/// Names and values, one per line.
fn print_rows(session: &mut Session<'_>, rows: &[(String, String)]) -> Result<(), Failure> {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().try_for_each(|(name, value)| {
        let gap = width - name.chars().count();
        session.output.line(format!("{name}{:gap$} : {value}", ""))
    })
}

pub(super) fn error_log(
    session: &mut Session<'_>,
    arguments: ErrorArguments,
) -> Result<(), Failure> {
    let kept = u32::from(session.identify_controller()?.elpe) + 1;
    let count = arguments.log_entries.min(kept);
    let bytes = count * ERROR_ENTRY as u32;
    let bytes = whole_log(session, LogId::Errors.into_bits(), ALL_NAMESPACES, (0, bytes))?;
    let entries = bytes.chunks_exact(ERROR_ENTRY).map(ErrorEntry::parse);
    let entries = entries.collect::<Result<Vec<_>, _>>().map_err(Failure::failed)?;
    if session.output.json() {
        let one = |entry: &ErrorEntry| {
            json!({
                "error_count": entry.count,
                "sqid": entry.sq,
                "cmdid": entry.cid,
                "status_field": entry.status >> 1,
                "phase_tag": entry.status & 1,
                "parm_error_location": entry.location,
                "lba": entry.lba,
                "nsid": entry.nsid,
                "vs": entry.vendor_page,
                "trtype": entry.transport,
                "cs": entry.command_specific,
                "trtype_spec_info": entry.transport_specific,
            })
        };
        let all: Vec<Value> = entries.iter().map(one).collect();
        return session.output.value(&json!({ "errors": all }));
    }
    // An entry that was never written says nothing, and there are many of those.
    let written: Vec<&ErrorEntry> = entries.iter().filter(|entry| entry.count != 0).collect();
    session.output.line(format!("Error Log Entries: {} of {kept}", written.len()))?;
    for (number, entry) in written.into_iter().enumerate() {
        session.output.line(".................")?;
        session.output.line(format!(" Entry[{number:2}]"))?;
        session.output.line(".................")?;
        let field = entry.status >> 1;
        let rows = [
            ("error_count", entry.count.to_string()),
            ("sqid", entry.sq.to_string()),
            ("cmdid", format!("{:#x}", entry.cid)),
            ("status_field", format!("{field:#x} ({})", Status::of_field(field))),
            ("phase_tag", (entry.status & 1).to_string()),
            ("parm_err_loc", format!("{:#x}", entry.location)),
            ("lba", format!("{:#x}", entry.lba)),
            ("nsid", format!("{:#x}", entry.nsid)),
            ("vs", entry.vendor_page.to_string()),
            ("trtype", entry.transport.to_string()),
            ("cs", format!("{:#x}", entry.command_specific)),
            ("trtype_spec_info", format!("{:#x}", entry.transport_specific)),
        ];
        print_rows(session, &rows.map(|(name, value)| (name.to_owned(), value)))?;
    }
    Ok(())
}

pub(super) fn fw_log(session: &mut Session<'_>) -> Result<(), Failure> {
    let bytes = session.log(LogId::Firmware.into_bits(), ALL_NAMESPACES, (0, 512))?;
    let slots = FirmwareSlots::parse(&bytes).map_err(Failure::failed)?;
    let revisions = slots.revisions.chunks_exact(8).enumerate();
    let revisions = revisions.filter(|(_, revision)| revision.iter().any(|&byte| byte != 0));
    if session.output.json() {
        let slot = |(n, revision): (usize, &[u8])| {
            let revision = text(revision);
            json!({ "slot": n + 1, "revision": revision.trim() })
        };
        return session.output.value(&json!({
            "afi": slots.active,
            "active_slot": slots.active & 7,
            "next_slot": slots.active >> 4 & 7,
            "slots": revisions.map(slot).collect::<Vec<_>>(),
        }));
    }
    session.output.line("Firmware Log:")?;
    session.output.line(format!("afi  : {:#x}", slots.active))?;
    for (number, revision) in revisions {
        let value = u64::from_le_bytes(revision.try_into().unwrap_or_default());
        let line = format!("frs{} : {value:#018x} ({})", number + 1, text(revision).trim());
        session.output.line(line)?;
    }
    Ok(())
}

pub(super) fn effects_log(session: &mut Session<'_>) -> Result<(), Failure> {
    let bytes = session.log(LogId::Effects.into_bits(), 0, (0, EFFECTS_LENGTH as u32))?;
    let of = |at: usize| (0..256).map(move |n| (n as u8, at + 4 * n));
    let known = |(n, at): (u8, usize)| Some((n, le32(&bytes, at))).filter(|(_, e)| e & 1 != 0);
    let admin: Vec<(u8, u32)> = of(0).filter_map(known).collect();
    let nvm: Vec<(u8, u32)> = of(1024).filter_map(known).collect();
    let admin_name = |opcode| AdminOpcode::from_bits(opcode).to_string();
    let nvm_name = |opcode| NvmOpcode::from_bits(opcode).to_string();
    if session.output.json() {
        let list = |all: &[(u8, u32)], name: &dyn Fn(u8) -> String| -> Vec<Value> {
            let one = |&(opcode, effects): &(u8, u32)| {
                json!({
                    "opcode": opcode, "command": name(opcode),
                    "effects": effects, "what": effects_of(effects),
                })
            };
            all.iter().map(one).collect()
        };
        return session.output.value(&json!({
            "admin_cmd_set": list(&admin, &admin_name),
            "io_cmd_set": list(&nvm, &nvm_name),
        }));
    }
    let rows = |all: &[(u8, u32)], name: &dyn Fn(u8) -> String| -> Vec<Vec<String>> {
        let one = |&(opcode, effects): &(u8, u32)| {
            let what = effects_of(effects).join(", ");
            vec![format!("{opcode:#04x}"), name(opcode), format!("{effects:08x}"), what]
        };
        all.iter().map(one).collect()
    };
    let heading = ["Opcode", "Command", "Effects", "What"];
    session.output.line("Admin commands")?;
    session.output.table(&heading, &rows(&admin, &admin_name))?;
    session.output.line("\nI/O commands")?;
    session.output.table(&heading, &rows(&nvm, &nvm_name))
}

pub(super) fn changed_ns_list_log(session: &mut Session<'_>) -> Result<(), Failure> {
    let id = LogId::ChangedNamespaces.into_bits();
    let bytes = session.log(id, ALL_NAMESPACES, (0, CHANGED_LENGTH as u32))?;
    let changed: Vec<u32> = ids(&bytes).collect();
    let too_many = changed.first() == Some(&ALL_NAMESPACES);
    if session.output.json() {
        let changed = if too_many { &[][..] } else { &changed };
        return session.output.value(&json!({ "changed": changed, "too_many": too_many }));
    }
    match changed.as_slice() {
        _ if too_many => session.output.line("more namespaces changed than the log can name"),
        [] => session.output.line("no namespace changed since this was asked last"),
        some => some
            .iter()
            .enumerate()
            .try_for_each(|(number, id)| session.output.line(format!("[{number:4}]:{id:#x}"))),
    }
}

/// The state of the last sanitize operation.
pub(super) fn sanitize_status(session: &mut Session<'_>) -> Result<SanitizeStatus, Failure> {
    let bytes = session.log(LogId::Sanitize.into_bits(), ALL_NAMESPACES, (0, 512))?;
    SanitizeStatus::parse(&bytes).map_err(Failure::failed)
}

pub(super) fn sanitize_log(session: &mut Session<'_>) -> Result<(), Failure> {
    let status = sanitize_status(session)?;
    let times = [
        ("time_over_write", "Estimated Time For Overwrite", status.overwrite),
        ("time_block_erase", "Estimated Time For Block Erase", status.block_erase),
        ("time_crypto_erase", "Estimated Time For Crypto Erase", status.crypto_erase),
        (
            "time_over_write_no_dealloc",
            "Estimated Time For Overwrite (No-Deallocate)",
            status.overwrite_kept,
        ),
        (
            "time_block_erase_no_dealloc",
            "Estimated Time For Block Erase (No-Deallocate)",
            status.block_erase_kept,
        ),
        (
            "time_crypto_erase_no_dealloc",
            "Estimated Time For Crypto Erase (No-Deallocate)",
            status.crypto_erase_kept,
        ),
    ];
    let known = |seconds: u32| Some(seconds).filter(|&seconds| seconds != u32::MAX);
    if session.output.json() {
        let mut all = Map::new();
        all.insert("sprog".into(), json!(status.progress));
        all.insert(
            "sstat".into(),
            json!({
                "global_erased": status.status >> 8 & 1,
                "no_cmplted_passes": status.status >> 3 & 0x1F,
                "status": sanitize_words(status.status),
            }),
        );
        all.insert("cdw10_info".into(), json!(status.cdw10));
        let seconds = |(name, _, time): (&str, &str, u32)| (name.to_owned(), json!(known(time)));
        all.extend(times.map(seconds));
        return session.output.value(&all);
    }
    let state = format!("{:#x} ({})", status.status, sanitize_words(status.status));
    let progress = match status.status & 7 {
        sanitize::RUNS => {
            format!("{} ({} %)", status.progress, (u32::from(status.progress) * 100) >> 16)
        }
        _ => status.progress.to_string(),
    };
    let mut rows = vec![
        ("Sanitize Progress (SPROG)".to_owned(), progress),
        ("Sanitize Status (SSTAT)".to_owned(), state),
        ("Sanitize Command Dword 10 (SCDW10)".to_owned(), format!("{:#x}", status.cdw10)),
    ];
    rows.extend(times.map(|(_, name, seconds)| {
        let time = known(seconds).map_or("not reported".into(), |s| format!("{s} s"));
        (name.to_owned(), time)
    }));
    print_rows(session, &rows)
}

pub(super) fn supported_log_pages(session: &mut Session<'_>) -> Result<(), Failure> {
    let bytes = session.log(LogId::Supported.into_bits(), 0, (0, 1024))?;
    let known = bytes.chunks_exact(4).enumerate().map(|(n, entry)| (n as u8, le32(entry, 0)));
    let known: Vec<(u8, u32)> = known.filter(|(_, supports)| supports & 1 != 0).collect();
    let name = |id: u8| LogId::from_bits(id).to_string();
    if session.output.json() {
        let one = |&(id, supports): &(u8, u32)| {
            let name = name(id);
            json!({ "lid": id, "name": name, "supports": supports })
        };
        let all: Vec<Value> = known.iter().map(one).collect();
        return session.output.value(&json!({ "supported_logs": all }));
    }
    known.iter().try_for_each(|&(id, supports)| {
        session.output.line(format!("LID {id:#04x} ({}), supports {supports:#x}", name(id)))
    })
}

pub(super) fn get_log(session: &mut Session<'_>, arguments: &RawArguments) -> Result<(), Failure> {
    let RawArguments { log_id, log_len, lpo, namespace, ref raw } = *arguments;
    let nsid = session.meant_or_all(namespace);
    let bytes = whole_log(session, log_id, nsid, (lpo, log_len))?;
    if let Some(path) = raw {
        let mut file = Named::open(path, session.output)?;
        file.write(|to| to.write_all(&bytes))?;
        return file.finish();
    }
    if session.output.json() {
        return session.output.value(&json!({
            "log_id": log_id, "nsid": nsid, "offset": lpo, "data": hex(&bytes),
        }));
    }
    session.output.line(format!("log-id:{log_id} namespace-id:{nsid:#x}"))?;
    dump(&bytes, session.output)
}

/// Any range of a log page, one memory page at a time.
fn whole_log(
    session: &mut Session<'_>,
    id: u8,
    nsid: u32,
    (offset, bytes): (u64, u32),
) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    while (all.len() as u32) < bytes {
        let piece = (bytes - all.len() as u32).min(PIECE);
        let at = offset.saturating_add(all.len() as u64);
        all.extend(session.log(id, nsid, (at, piece))?);
    }
    Ok(all)
}

/// The available temperature sensors: number and kelvin.
fn sensors(smart: &Smart) -> impl Iterator<Item = (usize, u16)> + '_ {
    let all = (0..8).map(|n| (n + 1, le16(&smart.sensors, 2 * n)));
    all.filter(|&(_, kelvin)| kelvin != 0)
}

/// The SMART log with nvme-cli's names.
fn smart_values(smart: &Smart) -> Map<String, Value> {
    let wide = |number: u128| json!(number.to_string());
    let mut all = Map::new();
    let mut row = |name: &str, value: Value| all.insert(name.to_owned(), value);
    row("critical_warning", json!(smart.critical_warning));
    row("temperature", json!(smart.temperature));
    row("avail_spare", json!(smart.spare));
    row("spare_thresh", json!(smart.spare_threshold));
    row("percent_used", json!(smart.used));
    row("endurance_grp_critical_warning_summary", json!(smart.endurance_warning));
    row("data_units_read", wide(smart.units_read));
    row("data_units_written", wide(smart.units_written));
    row("host_read_commands", wide(smart.reads));
    row("host_write_commands", wide(smart.writes));
    row("controller_busy_time", wide(smart.busy_minutes));
    row("power_cycles", wide(smart.power_cycles));
    row("power_on_hours", wide(smart.power_on_hours));
    row("unsafe_shutdowns", wide(smart.unsafe_shutdowns));
    row("media_errors", wide(smart.media_errors));
    row("num_err_log_entries", wide(smart.error_entries));
    row("warning_temp_time", json!(smart.warning_minutes));
    row("critical_comp_time", json!(smart.critical_minutes));
    for (number, kelvin) in sensors(smart) {
        row(&format!("temperature_sensor_{number}"), json!(kelvin));
    }
    row("thm_temp1_trans_count", json!(smart.light_throttles));
    row("thm_temp2_trans_count", json!(smart.heavy_throttles));
    row("thm_temp1_total_time", json!(smart.light_seconds));
    row("thm_temp2_total_time", json!(smart.heavy_seconds));
    all
}

/// The SMART log in lines.
fn smart_rows(smart: &Smart) -> Vec<(String, String)> {
    let units = |units: u128| {
        let bytes = units.saturating_mul(DATA_UNIT).min(u64::MAX.into()) as u64;
        format!("{units} ({})", decimal_size(bytes))
    };
    let celsius = |kelvin: u16| format!("{}°C ({kelvin} Kelvin)", i32::from(kelvin) - ZERO_CELSIUS);
    let warning = match smart.critical_warning {
        0 => "0".to_owned(),
        bits => format!("{bits:#x} ({})", warnings(bits).join(", ")),
    };
    let mut rows = vec![
        ("critical_warning", warning),
        ("temperature", celsius(smart.temperature)),
        ("available_spare", format!("{}%", smart.spare)),
        ("available_spare_threshold", format!("{}%", smart.spare_threshold)),
        ("percentage_used", format!("{}%", smart.used)),
        ("endurance group critical warning summary", smart.endurance_warning.to_string()),
        ("Data Units Read", units(smart.units_read)),
        ("Data Units Written", units(smart.units_written)),
        ("host_read_commands", smart.reads.to_string()),
        ("host_write_commands", smart.writes.to_string()),
        ("controller_busy_time", smart.busy_minutes.to_string()),
        ("power_cycles", smart.power_cycles.to_string()),
        ("power_on_hours", smart.power_on_hours.to_string()),
        ("unsafe_shutdowns", smart.unsafe_shutdowns.to_string()),
        ("media_errors", smart.media_errors.to_string()),
        ("num_err_log_entries", smart.error_entries.to_string()),
        ("Warning Temperature Time", smart.warning_minutes.to_string()),
        ("Critical Composite Temperature Time", smart.critical_minutes.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect::<Vec<_>>();
    rows.extend(
        sensors(smart).map(|(n, kelvin)| (format!("Temperature Sensor {n}"), celsius(kelvin))),
    );
    let throttled = [
        ("Thermal Management T1 Trans Count", smart.light_throttles),
        ("Thermal Management T2 Trans Count", smart.heavy_throttles),
        ("Thermal Management T1 Total Time", smart.light_seconds),
        ("Thermal Management T2 Total Time", smart.heavy_seconds),
    ];
    rows.extend(throttled.map(|(name, value)| (name.to_owned(), value.to_string())));
    rows
}

/// Critical warnings (5.16.1.3), in words.
fn warnings(bits: u8) -> Vec<&'static str> {
    let names = [
        "spare below its threshold",
        "temperature",
        "reliability degraded",
        "read only",
        "backup of the volatile memory failed",
        "persistent memory read only",
    ];
    names.into_iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, n)| n).collect()
}

/// What a command changes (5.16.1.6), in words.
fn effects_of(effects: u32) -> Vec<&'static str> {
    let names = [
        (1, "data"),
        (2, "capabilities of a namespace"),
        (3, "namespaces"),
        (4, "capabilities of the controller"),
        (19, "by UUID"),
    ];
    let changes = names.into_iter().filter(|(bit, _)| effects >> bit & 1 != 0).map(|(_, n)| n);
    let alone = match effects >> 16 & 7 {
        1 => Some("no other command to the namespace"),
        2 => Some("no other command at all"),
        _ => None,
    };
    changes.chain(alone).collect()
}

/// State of a sanitize operation in words.
pub(super) fn sanitize_words(status: u16) -> &'static str {
    match status & 7 {
        sanitize::NEVER => "never sanitized",
        sanitize::DONE => "the last sanitize operation ended well",
        sanitize::RUNS => "a sanitize operation runs",
        sanitize::FAILED => "the last sanitize operation failed",
        sanitize::DONE_DEALLOCATED => {
            "the last sanitize operation ended well and deallocated all blocks"
        }
        _ => "unknown",
    }
}
