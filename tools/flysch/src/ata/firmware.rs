//! `flysch ata fwdownload` and `fwactivate`.

use std::path::PathBuf;

use flysch_ahci::{AtaCommand, AtaData};
use flysch_api::command::AtaProtocol;
use flysch_wire::ata::Opcode;
use flysch_wire::ata::command::microcode::{self, BLOCK};
use flysch_wire::ata::identify::{Text, set83, set119};
use serde_json::json;

use super::Session;
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::progress::Progress;

/// Largest firmware image that can be sent, in bytes: the offset is 16 bits of blocks.
const IMAGE_MAX: usize = BLOCK << 16;
/// Most bytes of an image sent at once.
const PIECE: usize = 4096;
/// How long the activation of firmware may take, ms (Linux's hdparm: 60 s).
const APPLY_MS: u32 = 120_000;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The maker's image for exactly this device.
    #[arg(long = "fw", short = 'f', value_name = "FILE")]
    pub(super) image: PathBuf,
    /// Keep it until `fwactivate`, a reset, or the next power-on.
    #[arg(long)]
    defer: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ActivateArguments {
    #[command(flatten)]
    consent: Consent,
}

/// The question asked before firmware changes.
const WARNING: &str = "Other firmware may keep the device from coming up again.";

pub(super) fn fwdownload(session: &mut Session<'_>, arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.image;
    let failed = |cause: String| Failure::of(path.display(), cause);
    let mut image = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    if image.is_empty() || image.len() > IMAGE_MAX {
        let bytes = image.len();
        return Err(failed(format!(
            "{bytes} bytes are not a firmware image: it must have 1 to {IMAGE_MAX}"
        )));
    }
    let data = session.identify_with("DOWNLOAD MICROCODE in parts", |data| {
        data.supports83(set83::MICROCODE) && data.more[0] & set119::MICROCODE_PARTS != 0
    })?;
    arguments.consent.ask(WARNING)?;
    let bytes = image.len();
    image.resize(bytes.next_multiple_of(BLOCK), 0);
    let [_, most] = data.microcode_blocks;
    let piece = match usize::from(most) * BLOCK {
        0 => PIECE,
        most => most.min(PIECE),
    };
    let what = if arguments.defer { microcode::DEFERRED } else { microcode::PARTS };
    let mut progress = Progress::bytes("sending", Some(image.len() as u64));
    let mut count = microcode::MORE;
    for (number, part) in image.chunks(piece).enumerate() {
        count = send_part(session, what, number * piece / BLOCK, part)?;
        progress.set((number * piece + part.len()) as u64);
    }
    drop(progress);
    if count & 0xFF == microcode::MORE {
        return Err(failed("the device waits for more of the image: it is incomplete".into()));
    }
    let state = if count & 0xFF == microcode::SAVED { "kept" } else { "in force" };
    tell_revision(session, bytes, state)
}

fn send_part(
    session: &mut Session<'_>,
    what: u16,
    offset: usize,
    part: &[u8],
) -> Result<u16, Failure> {
    let (blocks, offset) = ((part.len() / BLOCK) as u64, offset as u64);
    let mut command = AtaCommand::new(Opcode::DownloadMicrocode);
    command.task.protocol = AtaProtocol::Pio;
    command.task.features = what;
    command.task.count = (blocks & 0xFF) as u16;
    command.task.lba = blocks >> 8 | offset << 8;
    command.data = AtaData::Out(part.to_vec());
    command.timeout_ms = Some(APPLY_MS);
    Ok(session.command(command)?.count)
}

fn tell_revision(session: &mut Session<'_>, bytes: usize, state: &str) -> Result<(), Failure> {
    let firmware = Text(&session.identify()?.firmware).to_string();
    let told = json!({ "bytes": bytes, "state": state, "firmware_version": firmware });
    let line = format!("Firmware download success, {bytes} bytes, {state}; {firmware} runs");
    session.done(&told, &line)
}

pub(super) fn fwactivate(
    session: &mut Session<'_>,
    arguments: ActivateArguments,
) -> Result<(), Failure> {
    session.identify_with("DOWNLOAD MICROCODE", |data| data.supports83(set83::MICROCODE))?;
    arguments.consent.ask(WARNING)?;
    let mut command = AtaCommand::new(Opcode::DownloadMicrocode);
    command.task.features = microcode::ACTIVATE;
    command.timeout_ms = Some(APPLY_MS);
    session.command(command)?;
    let firmware = Text(&session.identify()?.firmware).to_string();
    session.done(&json!({ "firmware_version": firmware }), &format!("{firmware} runs"))
}
