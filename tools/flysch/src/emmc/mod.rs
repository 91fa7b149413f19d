//! `flysch emmc`: management of an eMMC device or SD card, in mmc-utils' terms.

mod protect;
mod registers;
mod rpmb;
mod settings;
mod upkeep;

use std::path::Path;

use clap::Subcommand;
use flysch_emmc::{Operation, Output as Answer};
use flysch_rig::{EmmcControl, Needs, Stack, Target};
use flysch_wire::mmc::ExtCsd;

use crate::failure::Failure;
use crate::file::check_inputs;
use crate::output::Output;

/// Options of `flysch emmc`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The target.
    #[arg(long = "on", value_name = "TARGET", default_value = "emmc", global = true)]
    target: Target,

    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the extended CSD.
    #[command(subcommand)]
    Extcsd(registers::ExtCsdVerb),
    /// Show the card's identification.
    #[command(subcommand)]
    Cid(Read),
    /// Show the card specific data.
    #[command(subcommand)]
    Csd(Read),
    /// Show the configuration of an SD card.
    #[command(subcommand)]
    Scr(Read),
    /// Show the device status (CMD13).
    #[command(subcommand)]
    Status(registers::StatusVerb),
    /// Show life time, spare blocks and urgent background operations.
    Health,
    /// Show or set write protection.
    #[command(subcommand)]
    Writeprotect(protect::Verb),
    /// Set the partition from which the card boots.
    #[command(subcommand)]
    Bootpart(settings::BootPart),
    /// Set how it boots.
    #[command(subcommand)]
    Bootbus(settings::BootBus),
    /// Enable background operations.
    #[command(name = "bkops_en")]
    BkopsEn(settings::BkopsArguments),
    /// Run background operations now, until they are done.
    Bkops,
    /// Enable or disable the reset signal (RST_n): possible only once.
    #[command(subcommand)]
    Hwreset(settings::HardwareReset),
    /// Control the volatile cache.
    #[command(subcommand)]
    Cache(settings::Cache),
    /// Create general purpose partitions: possible only once.
    #[command(subcommand)]
    Gp(settings::General),
    /// Set the enhanced part of the user area: possible only once.
    #[command(name = "enh_area", subcommand)]
    EnhArea(settings::EnhancedArea),
    /// Access the replay protected memory.
    #[command(subcommand)]
    Rpmb(rpmb::Verb),
    /// Physically remove erased or trimmed data.
    Sanitize(upkeep::SanitizeArguments),
    /// Erase a range of sectors.
    Erase(upkeep::EraseArguments),
    /// Update the card's firmware.
    Ffu(upkeep::FirmwareArguments),
    /// Reset the card.
    Reset,
    /// Show errors seen by the driver: counters and history.
    Errors,
}

/// What to do with a register.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Read {
    /// Show it.
    Read,
}

impl What {
    /// The files that it reads.
    fn inputs(&self) -> Vec<&Path> {
        match self {
            Self::Ffu(arguments) => vec![arguments.image.as_path()],
            Self::Rpmb(verb) => verb.inputs(),
            _ => Vec::new(),
        }
    }
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    check_inputs(arguments.what.inputs())?;
    let mut stack = Stack::open(&arguments.target, &Needs::default())?;
    let description = stack.description().to_owned();
    let Some(control) = stack.emmc() else {
        return Err(Failure::usage(format!("{description} is not an eMMC device or SD card")));
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

/// A card, and where results go.
struct Session<'a> {
    control: &'a mut dyn EmmcControl,
    output: &'a mut Output,
}

impl Session<'_> {
    fn run(&mut self, what: &What) -> Result<(), Failure> {
        match what {
            What::Extcsd(registers::ExtCsdVerb::Read) => self.ext_csd_read(),
            What::Cid(Read::Read) => self.cid_read(),
            What::Csd(Read::Read) => self.csd_read(),
            What::Scr(Read::Read) => self.scr_read(),
            What::Status(registers::StatusVerb::Get) => self.status_get(),
            What::Health => self.health(),
            What::Writeprotect(verb) => self.write_protect(verb),
            What::Bootpart(verb) => self.boot_part(verb),
            What::Bootbus(verb) => self.boot_bus(verb),
            What::BkopsEn(arguments) => self.bkops_en(arguments),
            What::Bkops => self.bkops(),
            What::Hwreset(verb) => self.hardware_reset(verb),
            What::Cache(verb) => self.cache(*verb),
            What::Gp(verb) => self.general(verb),
            What::EnhArea(verb) => self.enhanced_area(verb),
            What::Rpmb(verb) => self.rpmb(verb),
            What::Sanitize(arguments) => self.sanitize(arguments),
            What::Erase(arguments) => self.erase(arguments),
            What::Ffu(arguments) => self.ffu(arguments),
            What::Reset => self.reset(),
            What::Errors => self.errors(),
        }
    }

    fn operate(&mut self, operation: Operation) -> Result<Answer, Failure> {
        Ok(self.control.operate(operation)?)
    }

    /// The current EXT_CSD.
    fn ext_csd(&mut self) -> Result<ExtCsd, Failure> {
        match self.operate(Operation::ReadExtCsd)? {
            Answer::ExtCsd(csd) => Ok(*csd),
            _ => Err(Failure::failed("the driver did not answer with EXT_CSD")),
        }
    }

    /// Writes a byte of EXT_CSD.
    fn switch(&mut self, index: u8, value: u8) -> Result<(), Failure> {
        self.operate(Operation::Switch { index, value }).map(|_| ())
    }

    /// Reports that something was done: a line for people, `value` for programs.
    fn done(&mut self, value: &serde_json::Value, line: &str) -> Result<(), Failure> {
        crate::confirm::done(self.output, value, line)
    }
}

impl From<flysch_emmc::EmmcError> for Failure {
    fn from(error: flysch_emmc::EmmcError) -> Self {
        match error {
            flysch_emmc::EmmcError::Invalid(_) => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}
