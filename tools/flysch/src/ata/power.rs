//! `flysch ata power`.

use clap::ValueEnum;
use flysch_ahci::AtaCommand;
use flysch_wire::ata::Opcode;
use flysch_wire::ata::command::power;
use serde_json::json;

use super::Session;
use crate::failure::Failure;

/// What to do (ACS 4.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Show the power mode (CHECK POWER MODE).
    Check,
    /// Enter idle (IDLE, or IDLE IMMEDIATE without a timer).
    Idle,
    /// Enter standby (STANDBY, or STANDBY IMMEDIATE without a timer).
    Standby,
    /// Enter sleep, from which only a reset wakes the device.
    Sleep,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// What to do.
    #[arg(default_value = "check")]
    mode: Mode,
    /// Enter standby after this many seconds without a command: 5 to 1200 in steps of five, or half
    /// hours up to 19800. 0 is never.
    #[arg(long, short = 't', value_name = "SECONDS", value_parser = timer)]
    timer: Option<(u32, u8)>,
}

/// Seconds, and the COUNT of STANDBY that means them (ACS 7.47.3).
fn timer(text: &str) -> Result<(u32, u8), String> {
    let wrong = || {
        format!(
            "`{text}` seconds cannot be set: it must be 0, 5 to 1200 in steps of 5, or half hours \
             up to 11"
        )
    };
    let seconds: u32 = text.parse().map_err(|_| wrong())?;
    let code = match seconds {
        0 => 0,
        seconds if seconds <= 1200 && seconds % 5 == 0 => seconds / 5,
        seconds if seconds <= 19_800 && seconds % 1800 == 0 => 240 + seconds / 1800,
        _ => return Err(wrong()),
    };
    Ok((seconds, code as u8))
}

/// How CHECK POWER MODE names the modes (ACS 7.3).
fn name(count: u16) -> &'static str {
    match count & 0xFF {
        power::STANDBY => "standby",
        0x01 => "standby_y",
        power::IDLE => "idle",
        0x81 => "idle_a",
        0x82 => "idle_b",
        0x83 => "idle_c",
        power::ACTIVE => "active/idle",
        _ => "unknown",
    }
}

pub(super) fn power(session: &mut Session<'_>, arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { mode, timer } = *arguments;
    let opcode = match (mode, timer) {
        (Mode::Check, None) => return check_power(session),
        (Mode::Idle, None) => Opcode::IdleImmediate,
        (Mode::Idle, Some(_)) => Opcode::Idle,
        (Mode::Standby, None) => Opcode::StandbyImmediate,
        (Mode::Standby, Some(_)) => Opcode::Standby,
        (Mode::Sleep, None) => Opcode::Sleep,
        (Mode::Check | Mode::Sleep, Some(_)) => {
            return Err(Failure::usage("a timer needs idle or standby"));
        }
    };
    let mut command = AtaCommand::new(opcode);
    command.task.count = timer.map_or(0, |(_, code)| code.into());
    session.command(command)?;
    if mode == Mode::Sleep {
        let line = "the device sleeps, and only a reset wakes it";
        return session.done(&json!({ "mode": "sleep" }), line);
    }
    check_power(session)
}

fn check_power(session: &mut Session<'_>) -> Result<(), Failure> {
    let count = session.command(AtaCommand::new(Opcode::CheckPowerMode))?.count;
    let mode = name(count);
    let told = json!({ "mode": mode, "count": count & 0xFF });
    session.done(&told, &format!("drive state is:  {mode}"))
}
