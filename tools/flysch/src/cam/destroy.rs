//! Verbs that remove data or lock it: format, sanitize, security.

use clap::ValueEnum;
use flysch_ahci::{AtaCommand, AtaData, AtaReply};
use flysch_api::command::{AtaProtocol, Taskfile};
use flysch_rig::ScsiData;
use flysch_wire::ata::command::{device, sanitize};
use flysch_wire::ata::{Opcode, SECTOR};
use flysch_wire::scsi::Cdb;
use serde_json::json;

use super::Device;
use super::session::{Language, Session, is_good, sense};
use crate::confirm::{Consent, done};
use crate::failure::Failure;

/// How long a format may take, milliseconds (camcontrol's three hours).
const FORMAT_TIMEOUT_MS: u32 = 3 * 3600 * 1000;
/// How often the progress of a sanitize operation is polled before it is given up, and the pause
/// before each poll, milliseconds.
const POLLS_MAX: u32 = 1 << 20;
const POLL_MS: u32 = 1_000;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct FormatArguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// Print nothing.
    #[arg(short = 'q')]
    quiet: bool,
    /// Only report whether a format is in progress.
    #[arg(short = 'r')]
    report: bool,
    #[command(flatten)]
    consent: Consent,
}

/// How to sanitize a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Overwrite everything.
    Overwrite,
    /// Erase everything.
    Block,
    /// Discard the encryption key.
    Crypto,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct SanitizeArguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// The method.
    #[arg(short = 'a', value_name = "ACTION", required_unless_present = "report")]
    action: Option<Action>,
    /// Only report whether an operation is in progress.
    #[arg(short = 'r')]
    report: bool,
    /// Print nothing.
    #[arg(short = 'q')]
    quiet: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
#[group(id = "act", multiple = false)]
struct Act {
    /// Disable security with this password.
    #[arg(short = 'd', value_name = "PASSWORD")]
    disable: Option<String>,
    /// Erase everything with this password.
    #[arg(short = 'e', value_name = "PASSWORD")]
    erase: Option<String>,
    /// Erase everything, enhanced, with this password.
    #[arg(short = 'E', value_name = "PASSWORD")]
    erase_enhanced: Option<String>,
    /// Allow no changes until the next power-on.
    #[arg(short = 'f')]
    freeze: bool,
    /// Unlock with this password.
    #[arg(short = 'k', value_name = "PASSWORD")]
    unlock: Option<String>,
    /// Set this password.
    #[arg(short = 's', value_name = "PASSWORD")]
    set: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct SecurityArguments {
    #[command(flatten)]
    pub(super) device: Device,
    #[command(flatten)]
    act: Act,
    /// Whose password: `user` or `master`.
    #[arg(short = 'U', value_name = "USER", default_value = "user")]
    #[arg(value_parser = ["user", "master"])]
    user: String,
    /// The master password's capability: `high` or `maximum`.
    #[arg(short = 'l', value_name = "LEVEL", default_value = "high")]
    #[arg(value_parser = ["high", "maximum"])]
    level: String,
    #[command(flatten)]
    consent: Consent,
}

/// Shows the device and what is about to happen to it, and asks for consent.
fn warn(session: &Session<'_>, consent: Consent) -> Result<(), Failure> {
    let (pass, text) = (session.pass(), &session.unit.description.text);
    consent.ask(&format!("You are about to REMOVE ALL DATA from {pass}: <{text}>."))
}

pub(super) fn format(
    session: &mut Session<'_>,
    arguments: &FormatArguments,
) -> Result<(), Failure> {
    if session.language() != Language::Scsi {
        let hint = "`sanitize` removes data of ATA devices, `flysch nvme format` formats";
        return Err(session.speaks_not("SCSI", Some(hint)));
    }
    if arguments.report {
        let reply = session.try_scsi(Cdb::TestUnitReady.to_bytes(), ScsiData::None, 5_000)?;
        let is_busy = !is_good(&reply)
            && sense(&reply)
                .is_some_and(|sense| (sense.additional.asc(), sense.additional.ascq()) == (4, 4));
        let line = if is_busy { "Format in progress" } else { "Format is not in progress" };
        return done(session.output, &json!({ "in_progress": is_busy }), line);
    }
    warn(session, arguments.consent)?;
    let cdb = Cdb::FormatUnit { parameters: 0 };
    session.scsi(cdb, ScsiData::None, FORMAT_TIMEOUT_MS)?;
    if arguments.quiet && !session.output.json() {
        return Ok(());
    }
    done(session.output, &json!({ "formatted": session.pass() }), "Format Complete")
}

pub(super) fn sanitize(
    session: &mut Session<'_>,
    arguments: &SanitizeArguments,
) -> Result<(), Failure> {
    if session.language() != Language::Ata {
        let hint = "`flysch nvme sanitize`, `flysch ufs purge` do this for theirs";
        return Err(session.speaks_not("ATA", Some(hint)));
    }
    let action = match arguments.action {
        Some(action) if !arguments.report => action,
        _ => {
            let (is_busy, percent) = sanitize_progress(session)?;
            let line = match is_busy {
                true => format!("Sanitizing: {percent:.2} %"),
                false => "Sanitize is not in progress".into(),
            };
            let value = json!({ "in_progress": is_busy, "percent": percent });
            return done(session.output, &value, &line);
        }
    };
    warn(session, arguments.consent)?;
    let (features, lba) = match action {
        Action::Crypto => (sanitize::CRYPTO, sanitize::CRYPTO_LBA),
        Action::Block => (sanitize::BLOCK_ERASE, sanitize::BLOCK_ERASE_LBA),
        // The signature and a pattern of zeros, once.
        Action::Overwrite => (sanitize::OVERWRITE, 0x4F57_0000_0000),
    };
    let count = u16::from(action == Action::Overwrite);
    let task = Taskfile {
        command: Opcode::Sanitize.into_bits(),
        device: device::LBA,
        features,
        count,
        lba,
        ..Taskfile::default()
    };
    ata_ok(session, AtaCommand { unit: 0, task, data: AtaData::None, timeout_ms: None })?;
    let mut polls = 0;
    while sanitize_progress(session)?.0 {
        polls += 1;
        if let Some(control) = session.stack().and_then(|stack| stack.ahci()) {
            control.rest(POLL_MS);
        }
        if polls == POLLS_MAX {
            let line = "it is still sanitizing: `sanitize -r` tells how far it is";
            return Err(Failure::of(session.pass(), line));
        }
    }
    if arguments.quiet && !session.output.json() {
        return Ok(());
    }
    done(session.output, &json!({ "sanitized": session.pass() }), "Sanitize Complete")
}

/// Whether it is in progress, and how far.
fn sanitize_progress(session: &mut Session<'_>) -> Result<(bool, f64), Failure> {
    /// SANITIZE OPERATION IN PROGRESS, of COUNT.
    const IN_PROGRESS: u16 = 1 << 14;
    let task = Taskfile {
        command: Opcode::Sanitize.into_bits(),
        device: device::LBA,
        features: sanitize::STATUS,
        ..Taskfile::default()
    };
    let reply =
        ata_ok(session, AtaCommand { unit: 0, task, data: AtaData::None, timeout_ms: None })?;
    let part = f64::from(reply.status.lba as u16) / 65536.0;
    Ok((reply.count & IN_PROGRESS != 0, part * 100.0))
}

/// A command that must succeed.
fn ata_ok(session: &mut Session<'_>, command: AtaCommand) -> Result<AtaReply, Failure> {
    let name = Opcode::from_bits(command.task.command);
    let reply = session.try_ata(command)?;
    if reply.status.is_error() {
        let (status, error) = (reply.status.status, reply.status.error);
        let line = format!("{name}: ATA status {status:#04x}, error {error:#04x}");
        return Err(Failure::of(session.pass(), line));
    }
    Ok(reply)
}

/// A security command with a password.
fn with_password(
    session: &mut Session<'_>,
    opcode: Opcode,
    word: u16,
    password: &str,
    timeout_ms: Option<u32>,
) -> Result<(), Failure> {
    let mut block = vec![0; SECTOR];
    block[..2].copy_from_slice(&word.to_le_bytes());
    let Some(place) = block.get_mut(2..34).and_then(|place| place.get_mut(..password.len())) else {
        return Err(Failure::usage("a password can have at most 32 bytes"));
    };
    place.copy_from_slice(password.as_bytes());
    let task =
        Taskfile { command: opcode.into_bits(), protocol: AtaProtocol::Pio, ..Taskfile::default() };
    ata_ok(session, AtaCommand { unit: 0, task, data: AtaData::Out(block), timeout_ms }).map(|_| ())
}

fn plain(session: &mut Session<'_>, opcode: Opcode) -> Result<(), Failure> {
    let task = Taskfile { command: opcode.into_bits(), ..Taskfile::default() };
    ata_ok(session, AtaCommand { unit: 0, task, data: AtaData::None, timeout_ms: None }).map(|_| ())
}

pub(super) fn security(
    session: &mut Session<'_>,
    arguments: &SecurityArguments,
) -> Result<(), Failure> {
    let Act { disable, erase, erase_enhanced, freeze, unlock, set } = &arguments.act;
    let is_master = u16::from(arguments.user == "master");
    let pass = session.pass();
    let what = if let Some(password) = set {
        arguments.consent.ask(&format!("{pass}: without this password it is lost."))?;
        let maximum = u16::from(arguments.level == "maximum");
        let word = is_master | maximum << 8;
        with_password(session, Opcode::SecuritySetPassword, word, password, None)?;
        "password set"
    } else if let Some(password) = unlock {
        with_password(session, Opcode::SecurityUnlock, is_master, password, None)?;
        "unlocked"
    } else if let Some(password) = disable {
        with_password(session, Opcode::SecurityDisablePassword, is_master, password, None)?;
        "security disabled"
    } else if let Some(password) = erase.as_ref().or(erase_enhanced.as_ref()) {
        warn(session, arguments.consent)?;
        let words = super::identify::identify_words(session)?;
        let enhanced = erase_enhanced.is_some();
        let (normal, better) = words.erase_minutes();
        let minutes = if enhanced { better } else { normal };
        // What the device does not tell may take the longest there is.
        let minutes = if minutes == 0 { 12 * 60 } else { minutes + minutes / 4 + 1 };
        plain(session, Opcode::SecurityErasePrepare)?;
        let word = is_master | u16::from(enhanced) << 1;
        let timeout = Some(minutes.saturating_mul(60_000));
        with_password(session, Opcode::SecurityEraseUnit, word, password, timeout)?;
        "erased"
    } else if *freeze {
        plain(session, Opcode::SecurityFreezeLock)?;
        "frozen"
    } else {
        return security_status(session);
    };
    done(session.output, &json!({ "device": pass, "security": what }), &format!("{pass}: {what}"))
}

fn security_status(session: &mut Session<'_>) -> Result<(), Failure> {
    let words = super::identify::identify_words(session)?;
    let pass = session.pass();
    let status = words.security();
    let bit = |n: u32| status >> n & 1 != 0;
    let level = if bit(8) { "maximum" } else { "high" };
    let rows = [
        ("security supported", bit(0)),
        ("security enabled", bit(1)),
        ("drive locked", bit(2)),
        ("security config frozen", bit(3)),
        ("count expired", bit(4)),
    ];
    let (normal, enhanced) = words.erase_minutes();
    if session.output.json() {
        let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        let mut value = serde_json::Map::from_iter(rows);
        value.insert("level".into(), level.into());
        value.insert("erase_minutes".into(), json!([normal, enhanced]));
        return session.output.value(&value);
    }
    let heading = format!("{pass}: <{} {}>", words.model(), words.firmware());
    session.output.line(heading)?;
    session.output.line("")?;
    session.output.line("Security Option           Value")?;
    let yes = |is: bool| if is { "yes" } else { "no" };
    for (name, value) in rows.into_iter().take(4) {
        session.output.line(format!("{name:<25} {}", yes(value)))?;
    }
    session.output.line(format!("{:<25} {level}", "security level"))?;
    session.output.line(format!("{:<25} {}", "enhanced erase supported", yes(bit(5))))?;
    let minutes = |minutes: u32| match minutes {
        0 => "unspecified".to_owned(),
        510 => "> 508 min".to_owned(),
        some => format!("{some} min"),
    };
    session.output.line(format!("{:<25} {}", "erase time", minutes(normal)))?;
    session.output.line(format!("{:<25} {}", "enhanced erase time", minutes(enhanced)))?;
    let master = match words.master_password() {
        0 | 0xFFFF => "unsupported".to_owned(),
        0xFFFE => "fffe (Vendor Revision)".to_owned(),
        other => format!("{other:04x}"),
    };
    session.output.line(format!("{:<25} {master}", "master password rev"))
}
