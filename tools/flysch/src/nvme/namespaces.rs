//! `flysch nvme create-ns`, `delete-ns`, `attach-ns` and `detach-ns`.

use flysch_nvme::{AdminCommand, AdminData, Operation};
use flysch_wire::nvme::identify::{ALL_NAMESPACES, LENGTH};
use flysch_wire::nvme::{AdminOpcode, IdentifyNamespace};
use serde_json::json;

use super::{Session, upkeep};
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::number::parse_number;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct CreateArguments {
    /// Size, blocks.
    #[arg(long, short = 's', value_name = "BLOCKS", value_parser = parse_number)]
    nsze: u64,
    /// Capacity, blocks (default: the size).
    #[arg(long, short = 'c', value_name = "BLOCKS", value_parser = parse_number)]
    ncap: Option<u64>,
    /// Number of the LBA format.
    #[arg(long, short = 'f', value_name = "NUMBER", default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..16))]
    flbas: u8,
    /// Allow several controllers to share it.
    #[arg(long, short = 'm')]
    shared: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct DeleteArguments {
    /// The namespace; `all` for all of them.
    #[arg(long, short, value_name = "ID", value_parser = some_or_all)]
    namespace_id: u32,
    #[command(flatten)]
    consent: Consent,
}

fn some_or_all(text: &str) -> Result<u32, String> {
    match text {
        "all" => Ok(ALL_NAMESPACES),
        text => super::features::word(text),
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct AttachArguments {
    /// The namespace.
    #[arg(long, short, value_name = "ID")]
    namespace_id: u32,
    /// The controller (default: this one).
    #[arg(long, short, value_name = "ID", value_parser = upkeep::id)]
    controllers: Option<u16>,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct DetachArguments {
    #[command(flatten)]
    which: AttachArguments,
    #[command(flatten)]
    consent: Consent,
}

pub(super) fn create_ns(
    session: &mut Session<'_>,
    arguments: &CreateArguments,
) -> Result<(), Failure> {
    let CreateArguments { nsze, ncap, flbas, shared } = *arguments;
    let (ncap, nmic) = (ncap.unwrap_or(nsze), shared.into());
    let wanted = IdentifyNamespace { nsze, ncap, flbas, nmic, ..Default::default() };
    let data = AdminData::Out(wanted.to_bytes().to_vec());
    let command = AdminCommand::new(AdminOpcode::NamespaceManagement);
    let id = session.admin(AdminCommand { data, ..command })?.status.result;
    let line = format!(
        "create-ns: Success, created nsid:{id}; `attach-ns --namespace-id {id}` lets it be used"
    );
    session.done(&json!({ "nsid": id }), &line)
}

pub(super) fn delete_ns(
    session: &mut Session<'_>,
    arguments: &DeleteArguments,
) -> Result<(), Failure> {
    let nsid = arguments.namespace_id;
    let which = match nsid {
        ALL_NAMESPACES => "all namespaces and all data in them".to_owned(),
        id => format!("namespace {id} and all data in it"),
    };
    arguments.consent.ask(&format!("This deletes {which}."))?;
    let cdw10 = [1, 0, 0, 0, 0, 0];
    let command = AdminCommand::new(AdminOpcode::NamespaceManagement);
    session.admin(AdminCommand { nsid, cdw10, ..command })?;
    session.control.operate(Operation::Rescan)?;
    session.done(&json!({ "deleted": nsid }), &format!("delete-ns: Success, deleted {which}"))
}

pub(super) fn attach_ns(
    session: &mut Session<'_>,
    arguments: &AttachArguments,
) -> Result<(), Failure> {
    attachment(session, arguments, true)
}

pub(super) fn detach_ns(
    session: &mut Session<'_>,
    arguments: &DetachArguments,
) -> Result<(), Failure> {
    let id = arguments.which.namespace_id;
    arguments.consent.ask(&format!("Whoever uses namespace {id} loses it."))?;
    attachment(session, &arguments.which, false)
}

fn attachment(
    session: &mut Session<'_>,
    arguments: &AttachArguments,
    attach: bool,
) -> Result<(), Failure> {
    let nsid = arguments.namespace_id;
    let this = session.control.device().controller.cntlid;
    let controller = arguments.controllers.unwrap_or(this);
    // A list of one controller (figure 270 of 2.0).
    let mut list = vec![0; LENGTH];
    list[0] = 1;
    list[2..4].copy_from_slice(&controller.to_le_bytes());
    let cdw10 = [u32::from(!attach), 0, 0, 0, 0, 0];
    let command = AdminCommand::new(AdminOpcode::NamespaceAttachment);
    session.admin(AdminCommand { nsid, cdw10, data: AdminData::Out(list), ..command })?;
    session.control.operate(Operation::Rescan)?;
    let word = if attach { "attach-ns" } else { "detach-ns" };
    let told = json!({ "nsid": nsid, "controller": controller, "attached": attach });
    session.done(&told, &format!("{word}: Success, nsid:{nsid}, controller {controller:#x}"))
}
