//! `flysch cam`: the devices on the buses of targets, and commands to them, spelled as in
//! camcontrol(8).

mod buses;
mod command;
mod debug;
mod describe;
mod destroy;
pub(crate) mod devlist;
mod enclosure;
mod identify;
mod machine;
mod modepage;
mod probe;
mod scsi;
mod session;
mod told;

pub(crate) use describe::{DiskFacts, facts_of};

use clap::Subcommand;
use flysch_rig::Target;

use machine::Machine;
use session::Session;

use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch cam`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A target; each is a bus. May be repeated.
    #[arg(long = "on", value_name = "TARGET", default_value = "ufs", global = true)]
    targets: Vec<Target>,

    /// Add a modelled enclosure with this many slots, which hold the disks, on a separate bus.
    #[arg(long, value_name = "SLOTS", global = true)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=200))]
    enclosure: Option<u8>,

    #[command(subcommand)]
    verb: Verb,
}

/// Which device, and how commands are sent to it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Device {
    /// The device: `pass0`, `da0`, or `BUS:TARGET[:LUN]`; not needed if there is only one.
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Name of its driver; use with -u.
    #[arg(short = 'n', value_name = "NAME", requires = "unit", conflicts_with = "device")]
    name: Option<String>,
    /// Number of its unit; use with -n.
    #[arg(short = 'u', value_name = "UNIT", requires = "name")]
    unit: Option<u32>,
    /// How often to retry a command.
    #[arg(short = 'C', value_name = "COUNT", default_value = "1")]
    retries: u32,
    /// Time-out of a command, seconds.
    #[arg(short = 't', value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86400))]
    timeout: Option<u32>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what the command layer does for another verb.
    Debug(debug::Arguments),
    #[command(flatten)]
    Plain(Box<Plain>),
}

/// A verb that is executed on its own.
#[derive(Debug, Subcommand)]
enum Plain {
    /// List the devices on the buses.
    Devlist(devlist::How),
    /// List the peripheral drivers on a device.
    Periphlist(Device),
    /// Test whether a device is ready.
    Tur(Device),
    /// Show INQUIRY data, serial number and transfer rate.
    Inquiry(scsi::InquiryArguments),
    /// Show the identification of an ATA or NVMe device.
    Identify(Device),
    /// List the logical units of a target.
    Reportluns(scsi::LunsArguments),
    /// Show size and blocks.
    Readcap(scsi::CapacityArguments),
    /// Start a device.
    Start(Device),
    /// Stop a device.
    Stop(Device),
    /// Start a device and load its medium.
    Load(Device),
    /// Stop a device and eject its medium.
    Eject(Device),
    /// Scan a bus, or all buses, again.
    Rescan(buses::Which),
    /// Reset a bus or a device.
    Reset(buses::Which),
    /// List mode pages, show one, or change a field.
    Modepage(modepage::Arguments),
    /// Send any SCSI or ATA command.
    Cmd(command::Arguments),
    /// Show or limit the number of commands in flight.
    Tags(buses::TagsArguments),
    /// Show what was negotiated with a device.
    Negotiate(buses::NegotiateArguments),
    /// Format a SCSI unit.
    Format(destroy::FormatArguments),
    /// Irrecoverably remove everything from a device.
    Sanitize(destroy::SanitizeArguments),
    /// Show the contents of an enclosure, as `sesutil map` does.
    Sesmap(enclosure::MapArguments),
    /// Manage the passwords of an ATA device.
    Security(destroy::SecurityArguments),
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let (verb, debug) = match &arguments.verb {
        Verb::Plain(verb) => (&**verb, None),
        Verb::Debug(debug) => match debug.parse()? {
            Some((verb, wanted)) => (verb, Some(wanted)),
            None => return Ok(()),
        },
    };
    let mut machine = Machine::open(&arguments.targets)?;
    if let Some(slots) = arguments.enclosure {
        machine.add_enclosure(slots)?;
    }
    if let Some(debug) = debug {
        let switch = debug.switch(&machine)?;
        machine.set_debug(switch);
    }
    verb.run(machine, output)
}

impl Plain {
    fn run(&self, mut machine: Machine, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Devlist(how) => return devlist::show(&machine, *how, output),
            Self::Rescan(which) => return buses::rescan(machine, which, output),
            Self::Reset(which) => return buses::reset(machine, which, output),
            Self::Sesmap(arguments) => return enclosure::map(&mut machine, arguments, output),
            _ => {}
        }
        let session = |device: &Device| Session::new(machine, device, output);
        match self {
            Self::Devlist(_) | Self::Rescan(_) | Self::Reset(_) | Self::Sesmap(_) => Ok(()),
            Self::Periphlist(device) => buses::periphlist(&mut session(device)?),
            Self::Tur(device) => scsi::tur(&mut session(device)?),
            Self::Inquiry(arguments) => scsi::inquiry(&mut session(&arguments.device)?, arguments),
            Self::Identify(device) => identify::identify(&mut session(device)?),
            Self::Reportluns(arguments) => {
                scsi::reportluns(&mut session(&arguments.device)?, arguments)
            }
            Self::Readcap(arguments) => scsi::readcap(&mut session(&arguments.device)?, arguments),
            Self::Start(device) => scsi::start_stop(&mut session(device)?, true, false),
            Self::Stop(device) => scsi::start_stop(&mut session(device)?, false, false),
            Self::Load(device) => scsi::start_stop(&mut session(device)?, true, true),
            Self::Eject(device) => scsi::start_stop(&mut session(device)?, false, true),
            Self::Modepage(arguments) => {
                modepage::modepage(&mut session(&arguments.device)?, arguments)
            }
            Self::Cmd(arguments) => command::cmd(&mut session(&arguments.device)?, arguments),
            Self::Tags(arguments) => buses::tags(&mut session(&arguments.device)?, arguments),
            Self::Negotiate(arguments) => {
                buses::negotiate(&mut session(&arguments.device)?, arguments)
            }
            Self::Format(arguments) => destroy::format(&mut session(&arguments.device)?, arguments),
            Self::Sanitize(arguments) => {
                destroy::sanitize(&mut session(&arguments.device)?, arguments)
            }
            Self::Security(arguments) => {
                destroy::security(&mut session(&arguments.device)?, arguments)
            }
        }
    }
}
