//! `flysch cam`: what is on the buses of targets, and commands to it, as camcontrol(8) spells them.

mod buses;
mod command;
mod describe;
mod destroy;
pub(crate) mod devlist;
mod enclosure;
mod identify;
mod machine;
mod modepage;
mod scsi;
mod session;

pub(crate) use describe::serial_of;

use clap::Subcommand;
use flysch_rig::Target;

use machine::Machine;
use session::Session;

use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch cam`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A target, each a bus; may be repeated.
    #[arg(long = "on", value_name = "TARGET", default_value = "ufs", global = true)]
    targets: Vec<Target>,

    /// A modelled enclosure with so many slots, the disks in them, on a bus of its own.
    #[arg(long, value_name = "SLOTS", global = true)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=200))]
    enclosure: Option<u8>,

    #[command(subcommand)]
    verb: Verb,
}

/// Which device, and how commands are put to it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Device {
    /// The device: `pass0`, `da0`, or `BUS:TARGET[:LUN]`; not needed if there is only one.
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Name of its driver, with -u.
    #[arg(short = 'n', value_name = "NAME", requires = "unit", conflicts_with = "device")]
    name: Option<String>,
    /// Number of its unit, with -n.
    #[arg(short = 'u', value_name = "UNIT", requires = "name")]
    unit: Option<u32>,
    /// How often a command is tried again.
    #[arg(short = 'C', value_name = "COUNT", default_value = "1")]
    retries: u32,
    /// How long a command may take, seconds.
    #[arg(short = 't', value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86400))]
    timeout: Option<u32>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List what is on the buses.
    Devlist(devlist::How),
    /// List the peripheral drivers on a device.
    Periphlist(Device),
    /// Is it ready?
    Tur(Device),
    /// What it says about itself: INQUIRY data, serial number, transfer rate.
    Inquiry(scsi::InquiryArguments),
    /// What an ATA or NVMe device says about itself.
    Identify(Device),
    /// The logical units of a target.
    Reportluns(scsi::LunsArguments),
    /// Size and blocks.
    Readcap(scsi::CapacityArguments),
    /// Start it.
    Start(Device),
    /// Stop it.
    Stop(Device),
    /// Start it and load its medium.
    Load(Device),
    /// Stop it and eject its medium.
    Eject(Device),
    /// Look again at what is on a bus, or on all.
    Rescan(buses::Which),
    /// Reset a bus or a device.
    Reset(buses::Which),
    /// Mode pages: list them, show one, change a field.
    Modepage(modepage::Arguments),
    /// Any SCSI or ATA command.
    Cmd(command::Arguments),
    /// Commands in flight at once.
    Tags(buses::TagsArguments),
    /// What was negotiated with a device.
    Negotiate(buses::NegotiateArguments),
    /// Format a SCSI unit.
    Format(destroy::FormatArguments),
    /// Remove everything from a device for ever.
    Sanitize(destroy::SanitizeArguments),
    /// What is in an enclosure, as `sesutil map` prints it.
    Sesmap(enclosure::MapArguments),
    /// Passwords of an ATA device.
    Security(destroy::SecurityArguments),
}

/// Does it.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut machine = Machine::open(&arguments.targets)?;
    if let Some(slots) = arguments.enclosure {
        machine.add_enclosure(slots)?;
    }
    match &arguments.verb {
        Verb::Devlist(how) => return devlist::show(&machine, *how, output),
        Verb::Rescan(which) => return buses::rescan(machine, which, output),
        Verb::Reset(which) => return buses::reset(machine, which, output),
        Verb::Sesmap(arguments) => return enclosure::map(&mut machine, arguments, output),
        _ => {}
    }
    let session = |device: &Device| Session::new(machine, device, output);
    match &arguments.verb {
        Verb::Devlist(_) | Verb::Rescan(_) | Verb::Reset(_) | Verb::Sesmap(_) => Ok(()),
        Verb::Periphlist(device) => session(device)?.periphlist(),
        Verb::Tur(device) => session(device)?.tur(),
        Verb::Inquiry(arguments) => session(&arguments.device)?.inquiry(arguments),
        Verb::Identify(device) => session(device)?.identify(),
        Verb::Reportluns(arguments) => session(&arguments.device)?.reportluns(arguments),
        Verb::Readcap(arguments) => session(&arguments.device)?.readcap(arguments),
        Verb::Start(device) => session(device)?.start_stop(true, false),
        Verb::Stop(device) => session(device)?.start_stop(false, false),
        Verb::Load(device) => session(device)?.start_stop(true, true),
        Verb::Eject(device) => session(device)?.start_stop(false, true),
        Verb::Modepage(arguments) => session(&arguments.device)?.modepage(arguments),
        Verb::Cmd(arguments) => session(&arguments.device)?.cmd(arguments),
        Verb::Tags(arguments) => session(&arguments.device)?.tags(arguments),
        Verb::Negotiate(arguments) => session(&arguments.device)?.negotiate(arguments),
        Verb::Format(arguments) => session(&arguments.device)?.format(arguments),
        Verb::Sanitize(arguments) => session(&arguments.device)?.sanitize(arguments),
        Verb::Security(arguments) => session(&arguments.device)?.security(arguments),
    }
}
