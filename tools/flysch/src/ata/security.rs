//! `flysch ata security` and `sanitize`.

use clap::{Subcommand, ValueEnum};
use flysch_ahci::{AtaCommand, AtaData, AtaReply};
use flysch_api::command::AtaProtocol;
use flysch_wire::ata::command::sanitize;
use flysch_wire::ata::identify::{sanitize as bits, security};
use flysch_wire::ata::{Identify, Opcode, SECTOR};
use serde_json::{Value, json};

use super::Session;
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::progress::Progress;

/// Maximum bytes of a password (ACS 7.37.3).
const PASSWORD_MAX: usize = 32;
/// How long an erase may take if the device gives no time, ms (hdparm: 12 hours at most).
const ERASE_MS: u32 = 12 * 3_600_000;
/// Interval at which the progress of long operations is polled, ms.
const LOOK_MS: u32 = 100;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Show the state of the security feature.
    Status,
    /// Set the user password: the device is locked at the next power-on.
    SetPassword(Password),
    /// Unlock the device until the next power-on.
    Unlock(Password),
    /// Remove the password.
    Disable(Password),
    /// Erase all user data and the password.
    Erase(Password),
    /// Refuse all of these until the next power-on.
    Freeze,
}

#[derive(Clone, Debug, clap::Args)]
struct Password {
    /// The password, up to 32 characters. Others can see it in the process list.
    #[arg(long, short, value_name = "TEXT", value_parser = password)]
    password: String,
    /// It is the master password.
    #[arg(long)]
    master: bool,
    #[command(flatten)]
    consent: Consent,
}

fn password(text: &str) -> Result<String, String> {
    match text.len() {
        1..=PASSWORD_MAX => Ok(text.to_owned()),
        _ => Err(format!("a password must have 1 to {PASSWORD_MAX} bytes")),
    }
}

/// What SANITIZE DEVICE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Show the state of the last operation.
    Status,
    /// Change the key the data is encrypted with.
    CryptoScramble,
    /// Erase all blocks.
    BlockErase,
    /// Write a pattern over all blocks.
    Overwrite,
    /// Refuse all of these until the next power-on.
    FreezeLock,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct SanitizeArguments {
    /// What to do.
    #[arg(default_value = "status")]
    action: Action,
    /// Passes of an overwrite, 1 to 16.
    #[arg(long, value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=16))]
    passes: u8,
    /// The pattern of an overwrite.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = pattern)]
    pattern: u32,
    #[command(flatten)]
    consent: Consent,
}

fn pattern(text: &str) -> Result<u32, String> {
    let number = crate::number::parse_number(text)?;
    number
        .try_into()
        .map_err(|_| format!("`{text}` is not a pattern: it must have at most 32 bits"))
}

/// Word 128 in smartctl's terms.
pub(super) fn state(word: u16) -> (String, Value) {
    let has = |bit| word & bit != 0;
    let text = if !has(security::SUPPORTED) {
        "Unavailable".to_owned()
    } else if !has(security::ENABLED) {
        let frozen = has(security::FROZEN);
        format!("Disabled, {}", if frozen { "frozen [SEC2]" } else { "NOT FROZEN [SEC1]" })
    } else {
        let level = if has(1 << 8) { "MAX" } else { "HIGH" };
        let place = match (has(security::LOCKED), has(security::FROZEN)) {
            (true, _) => "**LOCKED** [SEC4]",
            (false, true) => "not locked, frozen [SEC6]",
            (false, false) => "not locked, not frozen [SEC5]",
        };
        let tries = if has(security::COUNT_EXPIRED) { ", PW ATTEMPTS EXCEEDED" } else { "" };
        format!("ENABLED, PW level {level}, {place}{tries}")
    };
    let mut value = json!({
        "state": word,
        "string": text,
        "enabled": has(security::ENABLED),
        "frozen": has(security::FROZEN),
    });
    if has(security::ENABLED) {
        value["locked"] = json!(has(security::LOCKED));
        value["pw_attempts_exceeded"] = json!(has(security::COUNT_EXPIRED));
    }
    (text, value)
}

fn has_security(data: &Identify) -> bool {
    data.security & security::SUPPORTED != 0
}

pub(super) fn security(session: &mut Session<'_>, arguments: &Arguments) -> Result<(), Failure> {
    let data = session.identify_with("security feature set", has_security)?;
    match &arguments.what {
        What::Status => {}
        What::SetPassword(words) => {
            words.consent.ask("Without its password the device is locked for ever.")?;
            with_password(session, Opcode::SecuritySetPassword, words)?;
        }
        What::Unlock(words) => with_password(session, Opcode::SecurityUnlock, words)?,
        What::Disable(words) => with_password(session, Opcode::SecurityDisablePassword, words)?,
        What::Erase(words) => {
            words.consent.ask(&format!(
                "An erase removes all data ({} sectors) and cannot be stopped.",
                data.sectors()
            ))?;
            session.command(AtaCommand::new(Opcode::SecurityErasePrepare))?;
            with_password(session, Opcode::SecurityEraseUnit, words)?;
        }
        What::Freeze => {
            session.command(AtaCommand::new(Opcode::SecurityFreezeLock))?;
        }
    }
    let (text, value) = state(session.identify()?.security);
    session.done(&json!({ "ata_security": value }), &format!("ATA Security is:  {text}"))
}

fn with_password(
    session: &mut Session<'_>,
    opcode: Opcode,
    words: &Password,
) -> Result<(), Failure> {
    let mut data = vec![0; SECTOR];
    data[0] = words.master.into();
    data[2..2 + words.password.len()].copy_from_slice(words.password.as_bytes());
    let mut command = AtaCommand::new(opcode);
    command.task.protocol = AtaProtocol::Pio;
    command.data = AtaData::Out(data);
    if opcode == Opcode::SecurityEraseUnit {
        command.timeout_ms = Some(ERASE_MS);
    }
    session.command(command).map(drop)
}

pub(super) fn sanitize(
    session: &mut Session<'_>,
    arguments: SanitizeArguments,
) -> Result<(), Failure> {
    let SanitizeArguments { action, passes, pattern, consent } = arguments;
    let (feature, lba, needs, name) = match action {
        Action::Status => (sanitize::STATUS, 0, 0, "sanitize feature set"),
        Action::CryptoScramble => {
            (sanitize::CRYPTO, sanitize::CRYPTO_LBA, bits::CRYPTO, "crypto scramble")
        }
        Action::BlockErase => {
            (sanitize::BLOCK_ERASE, sanitize::BLOCK_ERASE_LBA, bits::BLOCK_ERASE, "block erase")
        }
        Action::Overwrite => {
            let lba = sanitize::OVERWRITE_LBA | u64::from(pattern);
            (sanitize::OVERWRITE, lba, bits::OVERWRITE, "overwrite")
        }
        Action::FreezeLock => {
            (sanitize::FREEZE_LOCK, sanitize::FREEZE_LOCK_LBA, 0, "sanitize feature set")
        }
    };
    let needs = bits::SUPPORTED | needs;
    session.identify_with(name, |data| data.sanitize & needs == needs)?;
    if needs != bits::SUPPORTED {
        let what = "A sanitize operation removes all data for ever and cannot be stopped.";
        consent.ask(what)?;
    }
    let mut command = AtaCommand::new(Opcode::Sanitize);
    (command.task.features, command.task.lba) = (feature, lba);
    if action == Action::Overwrite {
        command.task.count = u16::from(passes) & 0xF;
    }
    let mut reply = session.command(command)?;
    let mut progress = Progress::share("sanitizing");
    while action != Action::Status && reply.count & sanitize::IN_PROGRESS != 0 {
        progress.set(((reply.status.lba & 0xFFFF) * 1000) >> 16);
        session.control.rest(LOOK_MS);
        let mut status = AtaCommand::new(Opcode::Sanitize);
        status.task.features = sanitize::STATUS;
        reply = session.command(status)?;
    }
    drop(progress);
    tell_sanitize(session, &reply)
}

fn tell_sanitize(session: &mut Session<'_>, reply: &AtaReply) -> Result<(), Failure> {
    let has = |bit| reply.count & bit != 0;
    let progress = reply.status.lba & 0xFFFF;
    let text = match () {
        () if has(sanitize::IN_PROGRESS) => {
            format!("in progress, {} %", progress * 100 / 0x1_0000)
        }
        () if has(sanitize::COMPLETED) => "the last operation completed without error".into(),
        () => "idle: no operation has completed".to_owned(),
    };
    let frozen = if has(sanitize::FROZEN) { ", frozen" } else { "" };
    let told = json!({
        "in_progress": has(sanitize::IN_PROGRESS),
        "completed": has(sanitize::COMPLETED),
        "frozen": has(sanitize::FROZEN),
        "progress": progress,
    });
    session.done(&told, &format!("Sanitize status: {text}{frozen}"))
}
