//! `flysch ata statistics`, `log-directory` and `get-log`.

use std::io::Write as _;
use std::path::PathBuf;

use flysch_api::count::counted;
use flysch_wire::ata::identify::set84;
use flysch_wire::ata::log::{self, STATISTICS, Statistic, address};
use flysch_wire::ata::{Opcode, SECTOR};
use serde_json::{Value, json};

use super::passthru::byte;
use super::{Session, le16, reading};
use crate::failure::Failure;
use crate::file::Named;
use crate::nvme::dump;

/// Most pages read at once.
const PAGES_MAX: u16 = 8;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct RawArguments {
    /// The log's address.
    #[arg(long, short = 'a', value_name = "ADDRESS", value_parser = byte)]
    address: u8,
    /// The first page.
    #[arg(long, short = 'p', value_name = "NUMBER", default_value = "0")]
    page: u16,
    /// Pages of 512 bytes, up to 8.
    #[arg(long, short = 'n', value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=8))]
    count: u16,
    /// Write the bytes to this file, `-` for standard output.
    #[arg(long, short = 'b', value_name = "FILE")]
    raw: Option<PathBuf>,
}

/// Names that smartctl gives to logs.
const NAMES: [(u8, &str); 11] = [
    (address::DIRECTORY, "Log Directory"),
    (address::ERRORS, "Summary SMART error log"),
    (address::EXTENDED_ERRORS, "Ext. Comprehensive SMART error log"),
    (address::STATISTICS, "Device Statistics log"),
    (address::SELF_TESTS, "SMART self-test log"),
    (0x07, "Extended self-test log"),
    (address::NCQ_ERROR, "NCQ Command Error log"),
    (0x11, "SATA Phy Event Counters log"),
    (address::NCQ_NON_DATA, "SATA NCQ Non-Data log"),
    (address::NCQ_SEND_RECEIVE, "SATA NCQ Send and Receive log"),
    (address::IDENTIFY, "IDENTIFY DEVICE data log"),
];

fn name(address: u8) -> &'static str {
    let known = NAMES.iter().find(|(of, _)| *of == address);
    known.map_or("Reserved or vendor's", |(_, name)| name)
}

/// Names of the pages of the device statistics log.
fn page_name(page: u8) -> &'static str {
    match page {
        0 => "List of supported log pages",
        1 => "General Statistics",
        2 => "Free-Fall Statistics",
        3 => "Rotating Media Statistics",
        4 => "General Errors Statistics",
        5 => "Temperature Statistics",
        6 => "Transport Statistics",
        7 => "Solid State Device Statistics",
        _ => "Unknown Statistics",
    }
}

/// Pages of a log (READ LOG EXT).
fn read_pages(
    session: &mut Session<'_>,
    address: u8,
    first: u16,
    count: u16,
) -> Result<Vec<u8>, Failure> {
    session.identify_with("general purpose logging", |data| data.supports84(set84::LOGS))?;
    let mut command = reading(Opcode::ReadLogExt, u32::from(count) * SECTOR as u32);
    (command.task.lba, command.task.count) = (log::lba(address, first), count);
    Ok(session.command(command)?.data)
}

/// Pages of a log, according to the directory.
fn page_count(session: &mut Session<'_>, of: u8) -> Result<u16, Failure> {
    let directory = read_pages(session, address::DIRECTORY, 0, 1)?;
    Ok(if of == 0 { 1 } else { le16(&directory, 2 * usize::from(of)) })
}

pub(super) fn log_directory(session: &mut Session<'_>) -> Result<(), Failure> {
    let directory = read_pages(session, address::DIRECTORY, 0, 1)?;
    let pages = |of: u8| if of == 0 { 1 } else { le16(&directory, 2 * usize::from(of)) };
    let there: Vec<(u8, u16)> =
        (0..=255).map(|of| (of, pages(of))).filter(|(_, pages)| *pages != 0).collect();
    if session.output.json() {
        let one = |&(of, pages): &(u8, u16)| {
            let name = name(of);
            json!({ "address": of, "name": name, "gp_sectors": pages })
        };
        let table: Vec<Value> = there.iter().map(one).collect();
        return session.output.value(&json!({ "ata_log_directory": {
            "gp_dir_version": le16(&directory, 0), "table": table
        } }));
    }
    let row = |&(of, pages): &(u8, u16)| {
        vec![format!("{of:#04x}"), pages.to_string(), name(of).to_owned()]
    };
    let rows: Vec<_> = there.iter().map(row).collect();
    session.output.table(&["Address", "Size", "Description"], &rows)
}

pub(super) fn statistics(session: &mut Session<'_>) -> Result<(), Failure> {
    if page_count(session, address::STATISTICS)? == 0 {
        return Err(Failure::failed("the device has no device statistics log"));
    }
    let list = read_pages(session, address::STATISTICS, 0, 1)?;
    let count = usize::from(list[8]).min(SECTOR - 9);
    let mut pages = Vec::new();
    for &number in list[9..9 + count].iter().filter(|number| **number != 0) {
        pages.push((number, read_pages(session, address::STATISTICS, number.into(), 1)?));
    }
    let of_page = |number: u8| STATISTICS.iter().filter(move |s| s.page == number);
    if session.output.json() {
        let one = |(statistic, value): (&Statistic, u64)| {
            json!({
                "offset": statistic.at,
                "name": statistic.name,
                "size": statistic.bytes,
                "value": value,
            })
        };
        let page = |(number, bytes): &(u8, Vec<u8>)| {
            let there = of_page(*number).filter_map(|s| Some((s, s.of(bytes)?)));
            let table: Vec<Value> = there.map(one).collect();
            json!({
                "number": number,
                "name": page_name(*number),
                "revision": le16(bytes, 0),
                "table": table,
            })
        };
        let pages: Vec<Value> = pages.iter().map(page).collect();
        return session.output.value(&json!({ "ata_device_statistics": { "pages": pages } }));
    }
    let mut rows = Vec::new();
    for (number, bytes) in &pages {
        for statistic in of_page(*number) {
            if let Some(value) = statistic.of(bytes) {
                let at = [format!("{number:#04x}"), format!("{:#05x}", statistic.at)];
                let told = [value.to_string(), statistic.name.to_owned()];
                rows.push(at.into_iter().chain(told).collect());
            }
        }
    }
    session.output.table(&["Page", "Offset", "Value", "Description"], &rows)
}

pub(super) fn get_log(session: &mut Session<'_>, arguments: &RawArguments) -> Result<(), Failure> {
    let RawArguments { address, page, count, ref raw } = *arguments;
    debug_assert!(count <= PAGES_MAX);
    let there = page_count(session, address)?;
    if u32::from(page) + u32::from(count) > u32::from(there) {
        let line = format!("log {address:#04x} has {}", counted(there, "page", "pages"));
        return Err(Failure::failed(line));
    }
    let bytes = read_pages(session, address, page, count)?;
    if let Some(path) = raw {
        let mut file = Named::open(path, session.output)?;
        file.write(|to| to.write_all(&bytes))?;
        return file.finish();
    }
    if session.output.json() {
        let data = super::hex(&bytes);
        return session.output.value(&json!({ "address": address, "page": page, "data": data }));
    }
    dump(&bytes, session.output)
}
