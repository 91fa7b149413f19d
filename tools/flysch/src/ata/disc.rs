//! `flysch ata eject`, `load` and `toc`.

use flysch_ahci::{AtaCommand, AtaReply};
use flysch_wire::ata::Kind;
use serde_json::{Value, json};

use super::{Session, words};
use crate::failure::Failure;

/// Operation codes (MMC-6).
const START_STOP_UNIT: u8 = 0x1B;
const READ_TOC: u8 = 0x43;
/// Longest table of contents: 100 tracks and a header.
const TOC_BYTES: u16 = 804;
/// Sense keys, as ERROR has them in bits 7:4.
const NOT_READY: u8 = 2;
const UNIT_ATTENTION: u8 = 6;
/// Maximum number of consecutive unit attentions.
const ATTENTIONS_MAX: u32 = 16;

/// A packet that must succeed; unit attentions are retried.
fn send_packet(
    session: &mut Session<'_>,
    name: &str,
    packet: [u8; 16],
    bytes: u32,
) -> Result<AtaReply, Failure> {
    if session.control.device().is_none_or(|device| device.identify.kind != Kind::Packet) {
        return Err(Failure::failed("the device is not an optical drive"));
    }
    for _ in 0..ATTENTIONS_MAX {
        let reply = session.control.command(AtaCommand::packet(packet, bytes))?;
        if !reply.status.is_error() {
            return Ok(reply);
        }
        match reply.status.error >> 4 {
            UNIT_ATTENTION => {}
            NOT_READY => return Err(Failure::failed("there is no medium in the drive")),
            _ => return Err(Failure::failed(format!("{name}: {}", words(&reply.status)))),
        }
    }
    Err(Failure::failed(format!("{name}: unit attentions without end")))
}

/// Opens the tray, or closes it (START STOP UNIT).
pub(super) fn tray(session: &mut Session<'_>, in_: bool) -> Result<(), Failure> {
    let mut packet = [0; 16];
    (packet[0], packet[4]) = (START_STOP_UNIT, 2 | u8::from(in_));
    send_packet(session, "START STOP UNIT", packet, 0)?;
    let word = if in_ { "loaded" } else { "ejected" };
    session.done(&json!({ "medium": word }), &format!("the medium is {word}"))
}

/// The table of contents (READ TOC, format 0).
pub(super) fn toc(session: &mut Session<'_>) -> Result<(), Failure> {
    let mut packet = [0; 16];
    packet[0] = READ_TOC;
    packet[7..9].copy_from_slice(&TOC_BYTES.to_be_bytes());
    let data = send_packet(session, "READ TOC", packet, TOC_BYTES.into())?.data;
    let length = usize::from(u16::from_be_bytes([data[0], data[1]])) + 2;
    let tracks: Vec<(u8, u8, u32)> = (data.get(4..length).unwrap_or_default())
        .chunks_exact(8)
        .map(|row| (row[2], row[1], u32::from_be_bytes([row[4], row[5], row[6], row[7]])))
        .collect();
    let is_data = |control: u8| control & 4 != 0;
    if session.output.json() {
        let one = |&(number, control, lba): &(u8, u8, u32)| {
            let data = is_data(control);
            json!({ "track": number, "data": data, "lba": lba })
        };
        let all: Vec<Value> = tracks.iter().map(one).collect();
        return session.output.value(&json!({ "tracks": all }));
    }
    let row = |&(number, control, lba): &(u8, u8, u32)| {
        let name = if number == 0xAA { "end".into() } else { number.to_string() };
        let kind = if is_data(control) { "data" } else { "audio" };
        vec![name, kind.to_owned(), lba.to_string()]
    };
    let rows: Vec<_> = tracks.iter().map(row).collect();
    session.output.table(&["Track", "Type", "LBA"], &rows)
}
