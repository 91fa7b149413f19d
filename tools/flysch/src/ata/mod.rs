//! `flysch ata`: management of a SATA device, in the terms of smartctl, hdparm and camcontrol.

mod disc;
mod errors;
mod firmware;
mod identify;
mod led;
mod logs;
mod passthru;
mod power;
mod reach;
mod security;
mod self_test;
mod smart;

use std::path::Path;

use clap::Subcommand;
use flysch_ahci::{AtaCommand, AtaData, AtaReply, Operation};
use flysch_api::command::{AtaProtocol, AtaStatus};
use flysch_rig::{AhciControl, Needs, Stack, Target};
use flysch_wire::ata::registers::error;
use flysch_wire::ata::{Identify, Kind, Opcode, SECTOR};
use serde_json::json;

use crate::failure::Failure;
use crate::file::check_inputs;
use crate::output::Output;

/// Options of `flysch ata`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The target.
    #[arg(long = "on", value_name = "TARGET", default_value = "ahci", global = true)]
    target: Target,

    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show names, size, versions and speed, as smartctl -i does.
    Info,
    /// Show every feature of the device, as camcontrol identify does.
    Identify(identify::Arguments),
    /// Show whether the device expects to fail (SMART RETURN STATUS).
    Health,
    /// Show SMART attributes with their thresholds.
    Attributes,
    /// Show SMART capabilities and status.
    Capabilities,
    /// Switch SMART on or off.
    Smart(smart::SwitchArguments),
    /// Show the errors recorded by the device.
    ErrorLog,
    /// Start a self-test, or end the running one.
    Selftest(self_test::Arguments),
    /// Show completed self-tests.
    SelftestLog,
    /// Show what the device counts (device statistics log).
    Statistics,
    /// List the logs.
    LogDirectory,
    /// Print pages of a log as bytes.
    GetLog(logs::RawArguments),
    /// Switch a feature on or off.
    SetFeature(identify::FeatureArguments),
    /// Show the power mode, or change it.
    Power(power::Arguments),
    /// Manage password, lock and erase.
    Security(security::Arguments),
    /// Irrecoverably remove all data.
    Sanitize(security::SanitizeArguments),
    /// Show or set the host protected area, which limits the accessible size (SET MAX ADDRESS).
    Hpa(reach::HpaArguments),
    /// Show or set the accessible max address, which replaces the host protected area in ACS-3.
    Ama(reach::AmaArguments),
    /// Trim sectors: their content is lost.
    Trim(reach::TrimArguments),
    /// Send a firmware image and activate it.
    Fwdownload(firmware::Arguments),
    /// Activate the image that was sent with `--defer`.
    Fwactivate(firmware::ActivateArguments),
    /// Locate the device, or mark it as failed, by the LEDs of its enclosure.
    Led(led::Arguments),
    /// Open the tray of an optical drive.
    Eject,
    /// Close the tray.
    Load,
    /// List the tracks of the disc in an optical drive.
    Toc,
    /// Reset the link and the device (COMRESET).
    Reset,
    /// Send any unqueued command.
    Passthru(passthru::Arguments),
    /// Show errors seen by the driver: counters and history.
    Errors,
}

impl What {
    /// The file that it reads.
    fn input(&self) -> Option<&Path> {
        match self {
            Self::Fwdownload(arguments) => Some(&arguments.image),
            Self::Passthru(arguments) => arguments.data_out.as_deref(),
            _ => None,
        }
    }
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    check_inputs(arguments.what.input())?;
    let mut stack = Stack::open(&arguments.target, &Needs::default())?;
    let description = stack.description().to_owned();
    let Some(control) = stack.ahci() else {
        return Err(Failure::usage(format!("{description} is not a SATA device")));
    };
    let mut session = Session { control, output };
    let done = obey(&mut session, &arguments.what).map_err(|failure| failure.on(&description));
    match done {
        Ok(()) => {
            stack.keep();
            Ok(())
        }
        Err(failure) => Err(failure.behind(&description, stack.failure())),
    }
}

/// A device, and where results go.
struct Session<'a> {
    control: &'a mut dyn AhciControl,
    output: &'a mut Output,
}

impl Session<'_> {
    /// A command that must succeed.
    fn command(&mut self, command: AtaCommand) -> Result<AtaReply, Failure> {
        let opcode = Opcode::from_bits(command.task.command);
        let unit = self.control.devices().unit;
        let reply = self.control.command(command.to(unit))?;
        match reply.status.is_error() {
            false => Ok(reply),
            true => Err(Failure::failed(format!("{opcode}: {}", words(&reply.status)))),
        }
    }

    /// The current identify data.
    fn identify_bytes(&mut self) -> Result<Vec<u8>, Failure> {
        let packet = self.control.device().is_some_and(|d| d.identify.kind == Kind::Packet);
        let opcode = if packet { Opcode::IdentifyPacket } else { Opcode::Identify };
        Ok(self.command(reading(opcode, SECTOR as u32))?.data)
    }

    fn identify(&mut self) -> Result<Identify, Failure> {
        Identify::parse(&self.identify_bytes()?).map_err(Failure::failed)
    }

    /// Identify data of a device that has a feature; otherwise an error that names it.
    fn identify_with(
        &mut self,
        what: &str,
        has: impl FnOnce(&Identify) -> bool,
    ) -> Result<Identify, Failure> {
        let data = self.identify()?;
        match has(&data) {
            true => Ok(data),
            false => Err(Failure::failed(format!("the device has no {what}"))),
        }
    }

    /// Reports that something was done: a line for people, `value` for programs.
    fn done(&mut self, value: &serde_json::Value, line: &str) -> Result<(), Failure> {
        crate::confirm::done(self.output, value, line)
    }
}

/// Executes a verb.
fn obey(session: &mut Session<'_>, what: &What) -> Result<(), Failure> {
    match what {
        What::Info => identify::info(session),
        What::Identify(arguments) => identify::show_identify(session, arguments),
        What::Health => smart::health(session),
        What::Attributes => smart::attributes(session),
        What::Capabilities => smart::capabilities(session),
        What::Smart(arguments) => smart::switch_smart(session, *arguments),
        What::ErrorLog => smart::error_log(session),
        What::Selftest(arguments) => self_test::self_test(session, *arguments),
        What::SelftestLog => self_test::self_test_log(session),
        What::Statistics => logs::statistics(session),
        What::LogDirectory => logs::log_directory(session),
        What::GetLog(arguments) => logs::get_log(session, arguments),
        What::SetFeature(arguments) => identify::set_feature(session, *arguments),
        What::Power(arguments) => power::power(session, arguments),
        What::Security(arguments) => security::security(session, arguments),
        What::Sanitize(arguments) => security::sanitize(session, *arguments),
        What::Hpa(arguments) => reach::hpa(session, *arguments),
        What::Ama(arguments) => reach::ama(session, *arguments),
        What::Trim(arguments) => reach::trim(session, *arguments),
        What::Fwdownload(arguments) => firmware::fwdownload(session, arguments),
        What::Fwactivate(arguments) => firmware::fwactivate(session, *arguments),
        What::Led(arguments) => led::led(session, *arguments),
        What::Eject => disc::tray(session, false),
        What::Load => disc::tray(session, true),
        What::Toc => disc::toc(session),
        What::Reset => reset(session),
        What::Passthru(arguments) => passthru::passthru(session, arguments),
        What::Errors => errors::errors(session),
    }
}

fn reset(session: &mut Session<'_>) -> Result<(), Failure> {
    session.control.operate(Operation::Reset)?;
    session.done(&json!({ "reset": "link" }), "the link was reset and the device is up again")
}

impl From<flysch_ahci::AhciError> for Failure {
    /// A feature missing in the device or the HBA is not a usage error.
    fn from(error: flysch_ahci::AhciError) -> Self {
        Self::failed(error)
    }
}

/// A command that reads this many bytes by PIO.
fn reading(opcode: Opcode, bytes: u32) -> AtaCommand {
    let mut command = AtaCommand::new(opcode);
    command.task.protocol = AtaProtocol::Pio;
    command.data = AtaData::In(bytes);
    command
}

/// STATUS and ERROR in words.
fn words(status: &AtaStatus) -> String {
    let what = match status.error {
        e if e & error::ICRC != 0 => "damaged on the way",
        e if e & error::UNC != 0 => "cannot be read",
        e if e & error::IDNF != 0 => "no such address",
        e if e & error::ABRT != 0 => "the device did not carry it out",
        _ => "failed",
    };
    format!("{what} (status {:#04x}, error {:#04x})", status.status, status.error)
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The number in the two bytes at `at`, which must exist.
fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
