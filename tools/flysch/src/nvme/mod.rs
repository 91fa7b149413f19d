//! `flysch nvme`: management of an NVMe controller, in nvme-cli's terms.

mod errors;
mod features;
mod identify;
mod io;
mod logs;
mod namespaces;
mod passthru;
mod registers;
mod reservations;
mod upkeep;
pub(crate) mod zones;

use std::path::Path;

use clap::Subcommand;
use flysch_nvme::{AdminCommand, AdminData, AdminReply};
use flysch_rig::{Needs, NvmeControl, Stack, Target};
use flysch_wire::nvme::{AdminOpcode, Cns, Status, log};

pub(crate) use identify::decimal_size;

use crate::failure::Failure;
use crate::file::check_inputs;
use crate::output::Output;

/// Options of `flysch nvme`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The target.
    #[arg(long = "on", value_name = "TARGET", default_value = "nvme", global = true)]
    target: Target,

    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the namespaces.
    List,
    /// Show the controller's identification.
    IdCtrl,
    /// Show a namespace's identification.
    IdNs(identify::Namespace),
    /// List namespace IDs.
    ListNs(identify::ListArguments),
    /// Show the names of a namespace.
    NsDescs(identify::Namespace),
    /// List controllers of the subsystem, or those to which a namespace is attached.
    ListCtrl(identify::ControllersArguments),
    /// Show SMART and health information.
    SmartLog,
    /// Show errors recorded by the controller.
    ErrorLog(logs::ErrorArguments),
    /// Show firmware slots.
    FwLog,
    /// Show the commands that the controller supports, and what they change.
    EffectsLog,
    /// List namespaces that have changed since the last call.
    ChangedNsListLog,
    /// Show the state of the last sanitize operation.
    SanitizeLog,
    /// List the log pages.
    SupportedLogPages,
    /// Print a log page as bytes.
    GetLog(logs::RawArguments),
    /// Read a feature, or all of them.
    GetFeature(features::GetArguments),
    /// Set a feature.
    SetFeature(features::SetArguments),
    /// Format a namespace: all of its data is lost.
    Format(upkeep::FormatArguments),
    /// Irrecoverably remove all data of the subsystem.
    Sanitize(upkeep::SanitizeArguments),
    /// Send a firmware image to the controller.
    FwDownload(upkeep::DownloadArguments),
    /// Commit the image that was sent to a slot, or activate a slot.
    FwCommit(upkeep::CommitArguments),
    /// Create a namespace.
    CreateNs(namespaces::CreateArguments),
    /// Delete a namespace and its data.
    DeleteNs(namespaces::DeleteArguments),
    /// Attach a namespace to the controller.
    AttachNs(namespaces::AttachArguments),
    /// Detach it.
    DetachNs(namespaces::DetachArguments),
    /// Make written data durable.
    Flush(identify::Namespace),
    /// Read blocks.
    Read(io::ReadArguments),
    /// Write blocks.
    Write(io::WriteArguments),
    /// Compare blocks with a file.
    Compare(io::CompareArguments),
    /// Check whether blocks can be read.
    Verify(io::Blocks),
    /// Fill blocks with zeros.
    WriteZeroes(io::ZeroArguments),
    /// Make blocks unreadable.
    WriteUncor(io::ChangeArguments),
    /// Tell the controller how ranges are used, or that they are no longer used.
    Dsm(io::DsmArguments),
    /// Copy ranges within a namespace.
    Copy(io::CopyArguments),
    /// Register a key with a namespace that hosts share.
    ResvRegister(reservations::RegisterArguments),
    /// Reserve it.
    ResvAcquire(reservations::AcquireArguments),
    /// Release the reservation.
    ResvRelease(reservations::ReleaseArguments),
    /// Show registrants, and who holds what.
    ResvReport(reservations::ReportArguments),
    /// Manage zoned namespaces.
    #[command(subcommand)]
    Zns(zones::Zoned),
    /// Reset the controller.
    Reset,
    /// Reset the whole NVM subsystem.
    SubsystemReset,
    /// Show the controller's registers.
    ShowRegs,
    /// Send any admin command.
    AdminPassthru(passthru::Arguments),
    /// Show errors seen by the driver: counters and history.
    Errors,
}

impl What {
    /// The file that it reads.
    fn input(&self) -> Option<&Path> {
        match self {
            Self::FwDownload(arguments) => Some(&arguments.image),
            Self::Write(arguments) => Some(&arguments.data),
            Self::Compare(arguments) => Some(&arguments.data),
            Self::SetFeature(arguments) => arguments.data.as_deref(),
            Self::AdminPassthru(arguments) => arguments.input_file.as_deref(),
            Self::Zns(zones::Zoned::ZoneAppend(arguments)) => Some(&arguments.data),
            _ => None,
        }
    }
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    check_inputs(arguments.what.input())?;
    let mut stack = Stack::open(&arguments.target, &Needs::default())?;
    let description = stack.description().to_owned();
    let Some(control) = stack.nvme() else {
        return Err(Failure::usage(format!("{description} is not an NVMe controller")));
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

/// A controller, and where results go.
struct Session<'a> {
    control: &'a mut dyn NvmeControl,
    output: &'a mut Output,
}

impl Session<'_> {
    /// An admin command that must succeed.
    fn admin(&mut self, command: AdminCommand) -> Result<AdminReply, Failure> {
        let opcode = AdminOpcode::from_bits(command.opcode);
        let reply = self.control.admin(command)?;
        match Status::of_field(reply.status.status) {
            Status::Success => Ok(reply),
            status => {
                Err(Failure::failed(format!("{opcode}: {status} ({:#x})", reply.status.status)))
            }
        }
    }

    fn identify(&mut self, cns: Cns, nsid: u32) -> Result<Vec<u8>, Failure> {
        Ok(self.admin(AdminCommand::identify(cns, nsid))?.data)
    }

    /// Bytes of a log page from `offset` on, at most a page of memory; both are multiples of four.
    fn log(&mut self, id: u8, nsid: u32, (offset, bytes): (u64, u32)) -> Result<Vec<u8>, Failure> {
        let [low, high] = log::request(id, bytes, true);
        let cdw10 = [low, high, offset as u32, (offset >> 32) as u32, 0, 0];
        let (opcode, data) = (AdminOpcode::GetLogPage, AdminData::In(bytes));
        Ok(self.admin(AdminCommand { nsid, cdw10, data, ..AdminCommand::new(opcode) })?.data)
    }

    /// Reports that something was done: a line for people, `value` for programs.
    fn done(&mut self, value: &serde_json::Value, line: &str) -> Result<(), Failure> {
        crate::confirm::done(self.output, value, line)
    }
}

/// Executes a verb.
fn obey(session: &mut Session<'_>, what: &What) -> Result<(), Failure> {
    match what {
        What::List => identify::list(session),
        What::IdCtrl => identify::id_ctrl(session),
        What::IdNs(arguments) => identify::id_ns(session, *arguments),
        What::ListNs(arguments) => identify::list_ns(session, *arguments),
        What::NsDescs(arguments) => identify::ns_descs(session, *arguments),
        What::ListCtrl(arguments) => identify::list_ctrl(session, *arguments),
        What::SmartLog => logs::smart_log(session),
        What::ErrorLog(arguments) => logs::error_log(session, *arguments),
        What::FwLog => logs::fw_log(session),
        What::EffectsLog => logs::effects_log(session),
        What::ChangedNsListLog => logs::changed_ns_list_log(session),
        What::SanitizeLog => logs::sanitize_log(session),
        What::SupportedLogPages => logs::supported_log_pages(session),
        What::GetLog(arguments) => logs::get_log(session, arguments),
        What::GetFeature(arguments) => features::get_feature(session, arguments),
        What::SetFeature(arguments) => features::set_feature(session, arguments),
        What::Format(arguments) => upkeep::format(session, arguments),
        What::Sanitize(arguments) => upkeep::sanitize(session, arguments),
        What::FwDownload(arguments) => upkeep::fw_download(session, arguments),
        What::FwCommit(arguments) => upkeep::fw_commit(session, arguments),
        What::CreateNs(arguments) => namespaces::create_ns(session, arguments),
        What::DeleteNs(arguments) => namespaces::delete_ns(session, arguments),
        What::AttachNs(arguments) => namespaces::attach_ns(session, arguments),
        What::DetachNs(arguments) => namespaces::detach_ns(session, arguments),
        What::Flush(namespace) => io::flush(session, *namespace),
        What::Read(arguments) => io::read(session, arguments),
        What::Write(arguments) => io::write(session, arguments),
        What::Compare(arguments) => io::compare(session, arguments),
        What::Verify(blocks) => io::verify(session, blocks),
        What::WriteZeroes(arguments) => io::write_zeroes(session, arguments),
        What::WriteUncor(arguments) => io::write_uncor(session, arguments),
        What::Dsm(arguments) => io::dsm(session, arguments),
        What::Copy(arguments) => io::copy(session, arguments),
        What::ResvRegister(arguments) => reservations::resv_register(session, arguments),
        What::ResvAcquire(arguments) => reservations::resv_acquire(session, arguments),
        What::ResvRelease(arguments) => reservations::resv_release(session, arguments),
        What::ResvReport(arguments) => reservations::resv_report(session, arguments),
        What::Zns(what) => zones::zns(session, what),
        What::Reset => upkeep::reset(session, false),
        What::SubsystemReset => upkeep::reset(session, true),
        What::ShowRegs => registers::show_regs(session),
        What::AdminPassthru(arguments) => passthru::admin_passthru(session, arguments),
        What::Errors => errors::errors(session),
    }
}

impl From<flysch_nvme::NvmeError> for Failure {
    fn from(error: flysch_nvme::NvmeError) -> Self {
        match error {
            flysch_nvme::NvmeError::Unsupported(_) => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}

/// Whether a command succeeded.
fn is_success(reply: &AdminReply) -> bool {
    matches!(Status::of_field(reply.status.status), Status::Success)
}

/// ASCII from a field that is padded with spaces, as far as it is printable.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let one = |&byte: &u8| if byte.is_ascii_graphic() { byte as char } else { ' ' };
    bytes[..end].iter().map(one).collect()
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes as lines of sixteen, with their text beside them.
pub(crate) fn dump(bytes: &[u8], output: &mut Output) -> Result<(), Failure> {
    output.line("       0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f")?;
    for (number, row) in bytes.chunks(16).enumerate() {
        let digits: String = row.iter().map(|byte| format!("{byte:02x} ")).collect();
        let one = |&byte: &u8| match byte.is_ascii_graphic() || byte == b' ' {
            true => byte as char,
            false => '.',
        };
        let text: String = row.iter().map(one).collect();
        output.line(format!("{:04x}: {digits:<48}\"{text}\"", number * 16))?;
    }
    Ok(())
}

/// The number in the two bytes at `at`, which must exist.
fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The number in the four bytes at `at`, which must exist.
fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
