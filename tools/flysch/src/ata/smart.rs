//! `flysch ata health`, `attributes`, `capabilities`, `smart` and `error-log`.

use clap::ValueEnum;
use flysch_ahci::AtaCommand;
use flysch_wire::ata::Opcode;
use flysch_wire::ata::command::smart;
use flysch_wire::ata::identify::{set82, set84};
use flysch_wire::ata::log::address;
use flysch_wire::ata::smart::{Attribute, SmartData, attribute, self_test, thresholds};
use serde_json::{Value, json};

use super::self_test::status_words;
use super::{Session, le16, reading};
use crate::failure::Failure;

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct SwitchArguments {
    /// On or off.
    switch: Switch,
}

/// Names that smartctl gives to attributes if it does not know the drive.
const NAMES: [(u8, &str); 20] = [
    (1, "Raw_Read_Error_Rate"),
    (3, "Spin_Up_Time"),
    (4, "Start_Stop_Count"),
    (attribute::REALLOCATED, "Reallocated_Sector_Ct"),
    (7, "Seek_Error_Rate"),
    (attribute::POWER_ON_HOURS, "Power_On_Hours"),
    (10, "Spin_Retry_Count"),
    (attribute::POWER_CYCLES, "Power_Cycle_Count"),
    (184, "End-to-End_Error"),
    (attribute::UNCORRECTABLE, "Reported_Uncorrect"),
    (188, "Command_Timeout"),
    (190, "Airflow_Temperature_Cel"),
    (192, "Power-Off_Retract_Count"),
    (193, "Load_Cycle_Count"),
    (attribute::TEMPERATURE, "Temperature_Celsius"),
    (197, "Current_Pending_Sector"),
    (198, "Offline_Uncorrectable"),
    (attribute::CRC_ERRORS, "UDMA_CRC_Error_Count"),
    (attribute::WRITTEN, "Total_LBAs_Written"),
    (attribute::READ, "Total_LBAs_Read"),
];

fn name(id: u8) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == id).map_or("Unknown_Attribute", |(_, name)| name)
}

/// Flags of an attribute, and smartctl's letters for them.
const FLAGS: [(&str, char); 6] = [
    ("prefailure", 'P'),
    ("updated_online", 'O'),
    ("performance", 'S'),
    ("error_rate", 'R'),
    ("event_count", 'C'),
    ("auto_keep", 'K'),
];

/// Whether an attribute is at its threshold: now, in the past, or never.
fn when_failed(attribute: &Attribute, threshold: u8) -> &'static str {
    match threshold {
        0 => "",
        least if attribute.value <= least => "now",
        least if attribute.worst <= least => "past",
        _ => "",
    }
}

fn flag_letters(flags: u16) -> String {
    let letter = |(bit, (_, letter)): (usize, &(&str, char))| {
        if flags >> bit & 1 != 0 { *letter } else { '-' }
    };
    FLAGS.iter().enumerate().map(letter).collect()
}

/// SMART without data.
fn smart_command(what: u16, lba: u8) -> AtaCommand {
    let mut command = AtaCommand::new(Opcode::Smart);
    command.task.features = what;
    command.task.lba = smart::LBA | u64::from(lba);
    command
}

fn smart_page(session: &mut Session<'_>, what: u16, lba: u8) -> Result<Vec<u8>, Failure> {
    let data = session.identify_with("SMART", |data| data.supports82(set82::SMART))?;
    if data.enabled[0] & set82::SMART == 0 {
        return Err(Failure::failed("SMART is off: `smart on` switches it on"));
    }
    let mut command = reading(Opcode::Smart, flysch_wire::ata::SECTOR as u32);
    (command.task.features, command.task.lba) = (what, smart::LBA | u64::from(lba));
    command.task.count = 1;
    Ok(session.command(command)?.data)
}

pub(super) fn smart_data(session: &mut Session<'_>) -> Result<SmartData, Failure> {
    let page = smart_page(session, smart::READ_DATA, 0)?;
    SmartData::parse(&page).map_err(Failure::failed)
}

pub(super) fn smart_log(session: &mut Session<'_>, log: u8) -> Result<Vec<u8>, Failure> {
    smart_page(session, smart::READ_LOG, log)
}

pub(super) fn switch_smart(
    session: &mut Session<'_>,
    arguments: SwitchArguments,
) -> Result<(), Failure> {
    session.identify_with("SMART", |data| data.supports82(set82::SMART))?;
    let on = arguments.switch == Switch::On;
    let command = smart_command(if on { smart::ENABLE } else { smart::DISABLE }, 0);
    session.command(command)?;
    let word = if on { "Enabled" } else { "Disabled" };
    session.done(&json!({ "smart_enabled": on }), &format!("SMART {word}."))
}

pub(super) fn health(session: &mut Session<'_>) -> Result<(), Failure> {
    let data = session.identify_with("SMART", |data| data.supports82(set82::SMART))?;
    if data.enabled[0] & set82::SMART == 0 {
        return Err(Failure::failed("SMART is off: `smart on` switches it on"));
    }
    let command = smart_command(smart::RETURN_STATUS, 0);
    let lba = session.command(command)?.status.lba & 0xFF_FF00;
    let passed = match lba {
        smart::LBA => true,
        smart::EXCEEDED => false,
        other => {
            return Err(Failure::failed(format!("the status is invalid ({other:#x})")));
        }
    };
    let word = if passed { "PASSED" } else { "FAILED!" };
    session.done(
        &json!({ "smart_status": { "passed": passed } }),
        &format!("SMART overall-health session-assessment test result: {word}"),
    )?;
    // The answer is the status, too, as smartctl has it.
    if passed { Ok(()) } else { Err(Failure::Status { status: 1, line: None }) }
}

pub(super) fn attributes(session: &mut Session<'_>) -> Result<(), Failure> {
    let page = smart_page(session, smart::READ_DATA, 0)?;
    let data = SmartData::parse(&page).map_err(Failure::failed)?;
    let limits = smart_page(session, smart::READ_THRESHOLDS, 0)?;
    let limit = |id| thresholds(&limits).find(|(of, _)| *of == id).map_or(0, |(_, t)| t);
    let there = data.attributes.iter().filter(|attribute| attribute.id != 0);
    if session.output.json() {
        let one = |a: &Attribute| {
            let least = limit(a.id);
            let mut flags = json!({
                "value": a.flags, "string": format!("{} ", flag_letters(a.flags))
            });
            for (bit, (name, _)) in FLAGS.iter().enumerate() {
                flags[*name] = json!(a.flags >> bit & 1 != 0);
            }
            json!({
                "id": a.id,
                "name": name(a.id),
                "value": a.value,
                "worst": a.worst,
                "thresh": least,
                "when_failed": when_failed(a, least),
                "flags": flags,
                "raw": { "value": a.raw, "string": a.raw.to_string() },
            })
        };
        let table: Vec<Value> = there.map(one).collect();
        let mut told = json!({
            "ata_smart_attributes": { "revision": le16(&page, 0), "table": table }
        });
        if let Some(hours) = data.get(attribute::POWER_ON_HOURS) {
            told["power_on_time"] = json!({ "hours": hours.raw });
        }
        if let Some(cycles) = data.get(attribute::POWER_CYCLES) {
            told["power_cycle_count"] = json!(cycles.raw);
        }
        return session.output.value(&told);
    }
    let row = |a: &Attribute| {
        let least = limit(a.id);
        let failed = match when_failed(a, least) {
            "" => "-",
            "now" => "NOW",
            _ => "Past",
        };
        let number = |n: u8| format!("{n:03}");
        let [value, worst, least] = [a.value, a.worst, least].map(number);
        let name = format!("{} {}", a.id, name(a.id));
        let flags = flag_letters(a.flags);
        vec![name, flags, value, worst, least, failed.to_owned(), a.raw.to_string()]
    };
    let rows: Vec<_> = there.map(row).collect();
    let heading = ["ID# ATTRIBUTE_NAME", "FLAGS", "VALUE", "WORST", "THRESH", "FAIL", "RAW_VALUE"];
    session.output.table(&heading, &rows)
}

pub(super) fn capabilities(session: &mut Session<'_>) -> Result<(), Failure> {
    let gp_logging = session.identify()?.supports84(set84::LOGS);
    let data = smart_data(session)?;
    let test = status_words(data.self_test);
    let collected = match data.offline & 0x7F {
        0 => "was never started",
        2 => "was completed without error",
        3 => "is in progress",
        4 => "was suspended by an interrupting command from host",
        5 => "was aborted by an interrupting command from host",
        6 => "was aborted by the device with a fatal error",
        _ => "is in a vendor specific state",
    };
    if session.output.json() {
        let mut status = json!({ "value": data.self_test, "string": test });
        match data.self_test >> 4 {
            self_test::GOOD => status["passed"] = json!(true),
            3..=8 => status["passed"] = json!(false),
            self_test::RUNS => {
                status["remaining_percent"] = json!((data.self_test & 0xF) * 10);
            }
            _ => {}
        }
        let bit = |n: u8| data.offline_capability >> n & 1 != 0;
        return session.output.value(&json!({ "ata_smart_data": {
            "offline_data_collection": {
                "status": { "value": data.offline, "string": collected },
                "completion_seconds": data.offline_seconds,
            },
            "self_test": {
                "status": status,
                "polling_minutes": { "short": data.minutes[0], "extended": data.minutes[1] },
            },
            "capabilities": {
                "values": [data.offline_capability, data.capability],
                "exec_offline_immediate_supported": bit(0),
                "offline_is_aborted_upon_new_cmd": bit(2),
                "offline_surface_scan_supported": bit(3),
                "self_tests_supported": bit(4),
                "conveyance_self_test_supported": bit(5),
                "selective_self_test_supported": bit(6),
                "attribute_autosave_enabled": data.capability >> 1 & 1 != 0,
                "error_logging_supported": data.error_logging & 1 != 0,
                "gp_logging_supported": gp_logging,
            },
        } }));
    }
    let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
    let rows = [
        ("Offline data collection", collected.to_owned()),
        ("Self-test execution status", test),
        ("Seconds of an offline data collection", data.offline_seconds.to_string()),
        ("Offline immediate", yes(data.offline_capability & 1 != 0)),
        ("Self-tests", yes(data.offline_capability >> 4 & 1 != 0)),
        ("Conveyance session-test", yes(data.offline_capability >> 5 & 1 != 0)),
        ("Selective session-test", yes(data.offline_capability >> 6 & 1 != 0)),
        ("Minutes of a short session-test", data.minutes[0].to_string()),
        ("Minutes of an extended session-test", data.minutes[1].to_string()),
        ("Saves attributes by itself", yes(data.capability >> 1 & 1 != 0)),
        ("Error logging", yes(data.error_logging & 1 != 0)),
        ("General purpose logging", yes(gp_logging)),
    ];
    let rows: Vec<_> = rows.map(|(what, is)| vec![what.to_owned(), is]).to_vec();
    session.output.table(&["capability", "value"], &rows)
}

/// The summary of errors (ACS-3 A.13), which keeps five of them.
pub(super) fn error_log(session: &mut Session<'_>) -> Result<(), Failure> {
    let page = smart_log(session, address::ERRORS)?;
    let (revision, count) = (page[0], le16(&page, 452));
    if session.output.json() {
        return session.output.value(&json!({
            "ata_smart_error_log": { "summary": { "revision": revision, "count": count } }
        }));
    }
    match count {
        0 => session.output.line("No Errors Logged"),
        count => session
            .output
            .line(format!("ATA Error Count: {count} (`get-log -a 3` has them as bytes)")),
    }
}
