//! `flysch ata`: the management side of a SATA device, in the words of smartctl, hdparm and
//! camcontrol.

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
    /// Names, size, versions, speed, as smartctl -i has them.
    Info,
    /// What the device says of itself, feature by feature, as camcontrol identify has it.
    Identify(identify::Arguments),
    /// Whether the device expects to fail (SMART RETURN STATUS).
    Health,
    /// SMART attributes with their thresholds.
    Attributes,
    /// What SMART can do, and where it stands.
    Capabilities,
    /// Switch SMART on or off.
    Smart(smart::SwitchArguments),
    /// Errors the device keeps.
    ErrorLog,
    /// Begin a self-test, or end the one that runs.
    Selftest(self_test::Arguments),
    /// Self-tests that ended.
    SelftestLog,
    /// What the device counts (device statistics log).
    Statistics,
    /// Logs there are.
    LogDirectory,
    /// Pages of a log as bytes.
    GetLog(logs::RawArguments),
    /// Switch a feature.
    SetFeature(identify::FeatureArguments),
    /// Ask for a power mode, or change it.
    Power(power::Arguments),
    /// Password, lock, erase.
    Security(security::Arguments),
    /// Remove all data for ever.
    Sanitize(security::SanitizeArguments),
    /// The host protected area: how much of the disk can be reached (SET MAX ADDRESS).
    Hpa(reach::HpaArguments),
    /// The accessible max address, which takes the place of the host protected area in ACS-3.
    Ama(reach::AmaArguments),
    /// Trim sectors: what they hold is lost.
    Trim(reach::TrimArguments),
    /// Send a firmware image and put it into force.
    Fwdownload(firmware::Arguments),
    /// Put the image that was sent with `--defer` into force.
    Fwactivate(firmware::ActivateArguments),
    /// Show where the device is, or that it failed, by the LEDs of its enclosure.
    Led(led::Arguments),
    /// Open the tray of an optical drive.
    Eject,
    /// Close it.
    Load,
    /// Tracks of the disc in an optical drive.
    Toc,
    /// Reset the link and the device (COMRESET).
    Reset,
    /// Any command that is not queued.
    Passthru(passthru::Arguments),
    /// Errors seen by the driver: counters and history.
    Errors,
}

/// Does it.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut stack = Stack::open(&arguments.target, &Needs::default())?;
    let description = stack.description().to_owned();
    let Some(control) = stack.ahci() else {
        return Err(Failure::usage(format!("{description} is no SATA device")));
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

/// A device, and whom to tell.
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

    /// A command that must end well.
    fn command(&mut self, command: AtaCommand) -> Result<AtaReply, Failure> {
        let opcode = Opcode::from_bits(command.task.command);
        let unit = self.control.devices().unit;
        let reply = self.control.command(command.to(unit))?;
        match reply.status.is_error() {
            false => Ok(reply),
            true => Err(Failure::failed(format!("{opcode}: {}", words(&reply.status)))),
        }
    }

    /// Identify data as it is now.
    fn identify_bytes(&mut self) -> Result<Vec<u8>, Failure> {
        let packet = self.control.device().is_some_and(|d| d.identify.kind == Kind::Packet);
        let opcode = if packet { Opcode::IdentifyPacket } else { Opcode::Identify };
        Ok(self.command(reading(opcode, SECTOR as u32))?.data)
    }

    fn identify(&mut self) -> Result<Identify, Failure> {
        Identify::parse(&self.identify_bytes()?).map_err(Failure::failed)
    }

    /// Identify data of a device that has a feature; else a line that says it has not.
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

    /// Tells that something was done: a line for people, `value` for programs.
    fn done(&mut self, value: &serde_json::Value, line: &str) -> Result<(), Failure> {
        crate::confirm::done(self.output, value, line)
    }
}

impl From<flysch_ahci::Error> for Failure {
    /// Also what the device or the HBA lacks is no wrong use.
    fn from(error: flysch_ahci::Error) -> Self {
        Self::failed(error)
    }
}

/// A command that reads so many bytes by PIO.
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

/// The number of two bytes at `at`; they are there.
fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
