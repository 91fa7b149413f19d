//! `flysch ufs`: management of a UFS device.

mod attributes;
mod booster;
mod crypto;
mod descriptors;
mod errors;
mod info;
mod power;
mod rpmb;
mod services;
mod units;

use std::path::Path;

use clap::Subcommand;
use flysch_rig::{Control, Needs, Stack, Target};
use flysch_ufs::{Operation, Output as Answer, Query};

use crate::failure::Failure;
use crate::file::check_inputs;
use crate::number::parse_number;
use crate::output::Output;

/// Options of `flysch ufs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The target.
    #[arg(long = "on", value_name = "TARGET", default_value = "ufs", global = true)]
    target: Target,

    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show device and controller.
    Info,
    /// Show a descriptor by its fields, or list the descriptors.
    Descriptor(descriptors::Arguments),
    /// Read or write an attribute, or list them all.
    Attribute(attributes::AttributeArguments),
    /// Read, set, clear or toggle a flag, or list them all.
    Flag(attributes::FlagArguments),
    /// List the logical units.
    Lu,
    /// Control WriteBooster: state, on, off, flush, size of its buffer, what a flush leaves.
    Wb(booster::Arguments),
    /// Control power: link gear, hibernation, device power mode.
    Power(power::Arguments),
    /// Show errors seen by the driver: counters and history.
    Errors,
    /// Access replay protected memory: key, counter, authenticated reads and writes, protected
    /// areas.
    Rpmb(rpmb::Arguments),
    /// Show the running firmware, or install a new one.
    Ffu(services::FirmwareArguments),
    /// Purge: irrecoverably remove unmapped data.
    Purge(services::PurgeArguments),
    /// Refresh: have the device rewrite its data.
    Refresh(services::RefreshArguments),
    /// Show inline encryption: capabilities, and key slots in use.
    Crypto,
    /// Show the device's error history.
    History(services::HistoryArguments),
    /// Set the device's time.
    Timestamp(services::TimestampArguments),
    /// Show, choose or read the boot unit.
    Bootlun(services::BootArguments),
}

impl What {
    /// The file that it reads.
    fn input(&self) -> Option<&Path> {
        match self {
            Self::Rpmb(arguments) => arguments.input(),
            Self::Ffu(arguments) => arguments.input(),
            _ => None,
        }
    }
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    check_inputs(arguments.what.input())?;
    let mut stack = Stack::open(&arguments.target, &Needs::default())?;
    let description = stack.description().to_owned();
    let Some(control) = stack.control() else {
        return Err(Failure::usage(format!("{description} is not a UFS device")));
    };
    let done = match &arguments.what {
        What::Info => info::run(&description, control, output),
        What::Descriptor(arguments) => descriptors::run(arguments, control, output),
        What::Attribute(arguments) => attributes::run_attribute(arguments, control, output),
        What::Flag(arguments) => attributes::run_flag(arguments, control, output),
        What::Lu => units::run(control, output),
        What::Wb(arguments) => booster::run(arguments, control, output),
        What::Power(arguments) => power::run(arguments, control, output),
        What::Errors => errors::run(control, output),
        other => service(other, control, output),
    };
    match done.map_err(|failure| failure.on(&description)) {
        Ok(()) => {
            stack.keep();
            Ok(())
        }
        Err(failure) => Err(failure.behind(&description, stack.failure())),
    }
}

/// Something that a device may lack, as named by a failure.
fn service(what: &What, control: &mut dyn Control, output: &mut Output) -> Result<(), Failure> {
    match what {
        What::Rpmb(arguments) => rpmb::run(arguments, control, output),
        What::Ffu(arguments) => services::firmware(arguments, control, output),
        What::Purge(arguments) => services::purge(arguments, control, output),
        What::Refresh(arguments) => services::refresh(arguments, control, output),
        What::Crypto => crypto::run(control, output),
        What::History(arguments) => services::history(arguments, control, output),
        What::Timestamp(arguments) => services::timestamp(arguments, control, output),
        What::Bootlun(arguments) => services::boot(arguments, control, output),
        _ => unreachable!("done elsewhere"),
    }
}

/// Sends a query that returns a number.
fn number(control: &mut dyn Control, query: Query) -> Result<u64, flysch_ufs::UfsError> {
    match control.operate(Operation::Query(query))? {
        Answer::Value(value) => Ok(value),
        _ => Ok(0),
    }
}

/// Finds the item meant by a name or a number: a name in any case, or any part of it that is
/// unique.
fn find<T: Copy>(
    kind: &str,
    given: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    bits: impl Fn(T) -> u8,
) -> Result<T, Failure> {
    let is_number = given.starts_with(|c: char| c.is_ascii_digit());
    if is_number {
        let wanted = parse_number(given).map_err(Failure::Usage)?;
        let found = all.iter().copied().find(|id| u64::from(bits(*id)) == wanted);
        return found
            .ok_or_else(|| Failure::usage(format!("there is no {kind} with the number {given}")));
    }
    let lower = given.to_ascii_lowercase();
    let exact = all.iter().copied().find(|id| name(*id).eq_ignore_ascii_case(given));
    let parts: Vec<T> =
        all.iter().copied().filter(|id| name(*id).to_ascii_lowercase().contains(&lower)).collect();
    match (exact, &parts[..]) {
        (Some(id), _) | (None, &[id]) if !given.is_empty() => Ok(id),
        (None, []) | (Some(_), _) => {
            let names: Vec<&str> = all.iter().map(|id| name(*id)).collect();
            let hint = flysch_rig::did_you_mean(given, &names);
            Err(Failure::usage(format!("there is no {kind} `{given}`{hint}")))
        }
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|id| name(*id)).collect();
            Err(Failure::usage(format!(
                "`{given}` can be {}: write more of the name",
                names.join(", ")
            )))
        }
    }
}

impl From<flysch_ufs::UfsError> for Failure {
    /// A request that the driver refused before sending anything is a usage error.
    fn from(error: flysch_ufs::UfsError) -> Self {
        use flysch_ufs::UfsError;
        match error {
            UfsError::TooNew { .. }
            | UfsError::Access(_)
            | UfsError::Value(_)
            | UfsError::Index(_)
            | UfsError::Irreversible(_)
            | UfsError::Unknown(_) => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}
