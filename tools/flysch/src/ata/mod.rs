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

use clap::Subcommand;
use flysch_ahci::{AtaCommand, AtaData, AtaReply, Operation};
use flysch_api::command::{AtaProtocol, AtaStatus};
use flysch_rig::{AhciControl, Needs, Stack, Target};
use flysch_wire::ata::registers::error;
use flysch_wire::ata::{Identify, Kind, Opcode, SECTOR};
use serde_json::json;

use crate::failure::Failure;
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

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut stack = Stack::open(&arguments.target, &Needs::default())?;
    let description = stack.description().to_owned();
    let Some(control) = stack.ahci() else {
        return Err(Failure::usage(format!("{description} is not a SATA device")));
    };
    let mut session = Session { control, output };
    let done = session.run(&arguments.what).map_err(|failure| failure.on(&description));
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
    fn run(&mut self, what: &What) -> Result<(), Failure> {
        match what {
            What::Info => self.info(),
            What::Identify(arguments) => self.show_identify(arguments),
            What::Health => self.health(),
            What::Attributes => self.attributes(),
            What::Capabilities => self.capabilities(),
            What::Smart(arguments) => self.switch_smart(*arguments),
            What::ErrorLog => self.error_log(),
            What::Selftest(arguments) => self.self_test(*arguments),
            What::SelftestLog => self.self_test_log(),
            What::Statistics => self.statistics(),
            What::LogDirectory => self.log_directory(),
            What::GetLog(arguments) => self.get_log(arguments),
            What::SetFeature(arguments) => self.set_feature(*arguments),
            What::Power(arguments) => self.power(arguments),
            What::Security(arguments) => self.security(arguments),
            What::Sanitize(arguments) => self.sanitize(*arguments),
            What::Hpa(arguments) => self.hpa(*arguments),
            What::Ama(arguments) => self.ama(*arguments),
            What::Trim(arguments) => self.trim(*arguments),
            What::Fwdownload(arguments) => self.fwdownload(arguments),
            What::Fwactivate(arguments) => self.fwactivate(*arguments),
            What::Led(arguments) => self.led(*arguments),
            What::Eject => self.tray(false),
            What::Load => self.tray(true),
            What::Toc => self.toc(),
            What::Reset => self.reset(),
            What::Passthru(arguments) => self.passthru(arguments),
            What::Errors => self.errors(),
        }
    }

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

    fn reset(&mut self) -> Result<(), Failure> {
        self.control.operate(Operation::Reset)?;
        self.done(&json!({ "reset": "link" }), "the link was reset and the device is up again")
    }

    /// Reports that something was done: a line for people, `value` for programs.
    fn done(&mut self, value: &serde_json::Value, line: &str) -> Result<(), Failure> {
        crate::confirm::done(self.output, value, line)
    }
}

impl From<flysch_ahci::Error> for Failure {
    /// A feature missing in the device or the HBA is not a usage error.
    fn from(error: flysch_ahci::Error) -> Self {
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
