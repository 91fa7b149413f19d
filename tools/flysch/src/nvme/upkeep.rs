//! `flysch nvme format`, `sanitize`, `fw-download`, `fw-commit`, `reset` and `subsystem-reset`.

use std::path::PathBuf;

use clap::ValueEnum;
use flysch_nvme::{AdminCommand, AdminData, Operation};
use flysch_wire::nvme::log::sanitize;
use flysch_wire::nvme::{AdminOpcode, IdentifyNamespace, Status};
use serde_json::json;

use super::Session;
use super::identify::Namespace;
use super::logs::sanitize_words;
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::number::parse_number;
use crate::progress::Progress;

/// How long a format may take, ms (nvme-cli's own limit).
const FORMAT_MS: u32 = 600_000;
/// How long the activation of firmware may take, ms.
const COMMIT_MS: u32 = 120_000;
/// Interval at which the progress of long operations is polled, ms.
const LOOK_MS: u32 = 100;
/// Largest firmware image to send, bytes.
const IMAGE_MAX: usize = 256 << 20;
/// Most bytes of an image sent at once.
const PIECE: usize = 4096;

/// What a format does to user data (SES).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Erase {
    /// Nothing in particular: the content of the data afterwards is undefined.
    #[value(alias = "0")]
    None,
    /// All user data is erased.
    #[value(alias = "1")]
    User,
    /// The encryption key is deleted.
    #[value(alias = "2")]
    Crypto,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct FormatArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// Number of the LBA format (`id-ns` lists them); default: the one in use.
    #[arg(long, short = 'l', value_name = "NUMBER", conflicts_with = "block_size")]
    lbaf: Option<u8>,
    /// The format with blocks of this size and no metadata.
    #[arg(long, short = 'b', value_name = "BYTES", value_parser = block_size)]
    block_size: Option<u32>,
    /// What to do with the data.
    #[arg(long, short = 's', default_value = "none")]
    ses: Erase,
    #[command(flatten)]
    consent: Consent,
}

fn block_size(text: &str) -> Result<u32, String> {
    flysch_rig::size::parse(text)
        .filter(|bytes| bytes.is_power_of_two() && (512..=1 << 20).contains(bytes))
        .map(|bytes| bytes as u32)
        .ok_or_else(|| format!("`{text}` is not a size of a block, such as 512 or 4096"))
}

/// What a sanitize operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Leave the failure state of an operation.
    #[value(name = "exit-failure", alias = "1")]
    ExitFailure,
    /// Erase all blocks.
    #[value(name = "start-block-erase", alias = "2")]
    BlockErase,
    /// Write a pattern over all blocks.
    #[value(name = "start-overwrite", alias = "3")]
    Overwrite,
    /// Delete the keys.
    #[value(name = "start-crypto-erase", alias = "4")]
    CryptoErase,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct SanitizeArguments {
    /// What to do.
    #[arg(long, short = 'a', value_name = "ACTION")]
    sanact: Action,
    /// Allow the namespaces to be used after a failure.
    #[arg(long)]
    ause: bool,
    /// Passes of an overwrite, 1 to 16.
    #[arg(long, value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=16))]
    owpass: u8,
    /// The pattern of an overwrite.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = super::features::word)]
    ovrpat: u32,
    /// Leave the blocks allocated.
    #[arg(long, short = 'd')]
    no_dealloc: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct DownloadArguments {
    /// The maker's image for exactly this controller.
    #[arg(long = "fw", short = 'f', value_name = "FILE")]
    pub(super) image: PathBuf,
}

/// When firmware becomes active (CA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Commit {
    /// The image replaces that of the slot; nothing else changes.
    #[value(alias = "0")]
    Replace,
    /// The image replaces that of the slot, which runs after the next reset.
    #[value(name = "replace-activate", alias = "1")]
    ReplaceActivate,
    /// The slot runs after the next reset.
    #[value(alias = "2")]
    Activate,
    /// The slot is activated at once.
    #[value(name = "activate-now", alias = "3")]
    ActivateNow,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct CommitArguments {
    /// The slot, 1 to 7; 0 leaves the choice to the controller.
    #[arg(long, short = 's', default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
    slot: u8,
    /// What to do.
    #[arg(long, short = 'a', default_value = "replace")]
    action: Commit,
    #[command(flatten)]
    consent: Consent,
}

pub(super) fn format(
    session: &mut Session<'_>,
    arguments: &FormatArguments,
) -> Result<(), Failure> {
    let id = session.meant(arguments.namespace)?;
    let data = session.identify_namespace(id)?;
    let lbaf = chosen(&data, arguments)?;
    let format = data.format(lbaf).unwrap_or_default();
    arguments.consent.ask(&format!(
        "A format of namespace {id} removes all of its data ({} blocks).",
        data.nsze
    ))?;
    let first = u32::from(lbaf) | (arguments.ses as u32) << 9;
    let cdw10 = [first, 0, 0, 0, 0, 0];
    let timeout_ms = Some(FORMAT_MS);
    let command = AdminCommand::new(AdminOpcode::FormatNvm);
    session.admin(AdminCommand { nsid: id, cdw10, timeout_ms, ..command })?;
    session.control.operate(Operation::Rescan)?;
    let block = 1_u64 << format.shift;
    let told = json!({ "nsid": id, "lbaf": lbaf, "block_size": block });
    session.done(&told, &format!("Success formatting namespace:{id:x}, blocks of {block} bytes"))
}

pub(super) fn sanitize(
    session: &mut Session<'_>,
    arguments: &SanitizeArguments,
) -> Result<(), Failure> {
    let action = arguments.sanact;
    if action != Action::ExitFailure {
        let what = "A sanitize operation removes the data of all namespaces for ever and \
                    cannot be stopped.";
        arguments.consent.ask(what)?;
    }
    let passes = u32::from(arguments.owpass) & 0xF;
    let cdw10 = [
        (action as u32 + 1)
            | u32::from(arguments.ause) << 3
            | passes << 4
            | u32::from(arguments.no_dealloc) << 9,
        arguments.ovrpat,
        0,
        0,
        0,
        0,
    ];
    session.admin(AdminCommand { cdw10, ..AdminCommand::new(AdminOpcode::Sanitize) })?;
    let mut progress = Progress::share("sanitizing");
    let status = loop {
        let status = super::logs::sanitize_status(session)?;
        if status.status & 7 != sanitize::RUNS {
            break status.status;
        }
        progress.set((u64::from(status.progress) * 1000) >> 16);
        session.control.rest(LOOK_MS);
    };
    drop(progress);
    let words = sanitize_words(status);
    match status & 7 {
        sanitize::FAILED => Err(Failure::failed(words)),
        _ => session.done(&json!({ "sstat": status, "status": words }), words),
    }
}

pub(super) fn fw_download(
    session: &mut Session<'_>,
    arguments: &DownloadArguments,
) -> Result<(), Failure> {
    let path = &arguments.image;
    let failed = |cause: String| Failure::of(path.display(), cause);
    let image = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    if image.is_empty() || !image.len().is_multiple_of(4) || image.len() > IMAGE_MAX {
        let bytes = image.len();
        return Err(failed(format!(
            "{bytes} bytes are not a firmware image: it must have a multiple of 4, up to \
             {IMAGE_MAX}"
        )));
    }
    let mut progress = Progress::bytes("sending", Some(image.len() as u64));
    for (number, piece) in image.chunks(PIECE).enumerate() {
        let (dwords, at) = (piece.len() as u32 / 4, (number * PIECE / 4) as u32);
        let cdw10 = [dwords - 1, at, 0, 0, 0, 0];
        let data = AdminData::Out(piece.to_vec());
        let command = AdminCommand::new(AdminOpcode::FirmwareDownload);
        session.admin(AdminCommand { cdw10, data, ..command })?;
        progress.set((number * PIECE + piece.len()) as u64);
    }
    drop(progress);
    let bytes = image.len();
    session.done(&json!({ "bytes": bytes }), &format!("Firmware download success, {bytes} bytes"))
}

pub(super) fn fw_commit(
    session: &mut Session<'_>,
    arguments: &CommitArguments,
) -> Result<(), Failure> {
    let CommitArguments { slot, action, consent } = *arguments;
    consent.ask("Other firmware may keep the controller from coming up again.")?;
    let cdw10 = [u32::from(slot) | (action as u32) << 3, 0, 0, 0, 0, 0];
    let command = AdminCommand::new(AdminOpcode::FirmwareCommit);
    let reply =
        session.control.admin(AdminCommand { cdw10, timeout_ms: Some(COMMIT_MS), ..command })?;
    let field = reply.status.status;
    // Three statuses say that all went well and a reset of some kind is left.
    let needs = match Status::of_field(field) {
        Status::Success => None,
        Status::FirmwareReset => Some("a conventional reset"),
        Status::FirmwareSubsystemReset => Some("a subsystem reset"),
        Status::FirmwareControllerReset => Some("a controller reset"),
        status => {
            return Err(Failure::failed(format!("firmware commit: {status} ({field:#x})")));
        }
    };
    let told = json!({ "slot": slot, "action": action as u8, "needs": needs });
    let until = match (needs, action) {
        (Some(reset), _) => format!("; it runs after {reset}"),
        (None, Commit::ReplaceActivate | Commit::Activate) => {
            "; it runs after the next reset".to_owned()
        }
        _ => String::new(),
    };
    session.done(
        &told,
        &format!("Success committing firmware action:{} slot:{slot}{until}", action as u8),
    )
}

pub(super) fn reset(session: &mut Session<'_>, subsystem: bool) -> Result<(), Failure> {
    let (operation, what) = match subsystem {
        true => (Operation::SubsystemReset, "subsystem"),
        false => (Operation::Reset, "controller"),
    };
    session.control.operate(operation)?;
    session.done(&json!({ "reset": what }), &format!("the {what} was reset and is up again"))
}

/// The number of the requested format.
fn chosen(data: &IdentifyNamespace, arguments: &FormatArguments) -> Result<u8, Failure> {
    let shift_of = |n: u8| data.format(n).filter(|format| format.shift >= 9);
    let there = || (0..=data.nlbaf.min(15)).filter_map(|n| Some((n, shift_of(n)?)));
    let list = || {
        let one = |(n, format): (u8, flysch_wire::nvme::LbaFormat)| match format.metadata {
            0 => format!("{n}: {} bytes", 1_u64 << format.shift),
            more => format!("{n}: {} + {more} bytes", 1_u64 << format.shift),
        };
        there().map(one).collect::<Vec<_>>().join(", ")
    };
    match (arguments.lbaf, arguments.block_size) {
        (Some(number), _) if there().any(|(n, _)| n == number) => Ok(number),
        (Some(number), _) => {
            Err(Failure::usage(format!("there is no LBA format {number}; there are {}", list())))
        }
        (None, None) => Ok(data.format_in_use()),
        (None, Some(bytes)) => there()
            .find(|(_, format)| format.metadata == 0 && 1_u64 << format.shift == u64::from(bytes))
            .map(|(number, _)| number)
            .ok_or_else(|| {
                Failure::usage(format!(
                    "no format has blocks of {bytes} bytes; there are {}",
                    list()
                ))
            }),
    }
}

/// A controller's id, as the namespace commands take it.
pub(super) fn id(text: &str) -> Result<u16, String> {
    parse_number(text)?.try_into().map_err(|_| format!("`{text}` is not a controller id"))
}
