//! `flysch nvme resv-register`, `resv-acquire`, `resv-release` and `resv-report`.

use flysch_nvme::{AdminCommand, AdminData};
use flysch_wire::nvme::reservation::{
    EXTENDED_HEADER, ExtendedRegistrant, IGNORE_KEY, Registrant, ReservationStatus,
};
use flysch_wire::nvme::{FeatureId, NvmOpcode};
use serde_json::{Value, json};

use super::identify::Namespace;
use super::io::command;
use super::{Session, hex};
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::number::parse_number;

/// Bytes of a report to request.
const REPORT: u32 = 4096;

/// Who may do what (RTYPE).
type Kind = u8;

fn kind(text: &str) -> Result<Kind, String> {
    match parse_number(text)? {
        kind @ 1..=6 => Ok(kind as u8),
        _ => Err(format!(
            "`{text}` is not a type: 1 write exclusive, 2 exclusive access, 3 and 4 the same for \
             registrants only, 5 and 6 for all registrants"
        )),
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct RegisterArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// The current key.
    #[arg(long, short = 'c', value_name = "KEY", default_value = "0", value_parser = parse_number)]
    crkey: u64,
    /// The new key.
    #[arg(long, short = 'k', value_name = "KEY", default_value = "0", value_parser = parse_number)]
    nrkey: u64,
    /// 0 registers, 1 unregisters, 2 replaces the key.
    #[arg(long, short, default_value = "0", value_parser = clap::value_parser!(u32).range(0..=2))]
    rrega: u32,
    /// 0 changes nothing, 2 is lost with the power, 3 persists.
    #[arg(long, short = 'p', default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=3))]
    cptpl: u32,
    /// Ignore the current key.
    #[arg(long, short)]
    iekey: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct AcquireArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// The current key.
    #[arg(long, short = 'c', value_name = "KEY", default_value = "0", value_parser = parse_number)]
    crkey: u64,
    /// The key of the host to preempt.
    #[arg(long, short = 'p', value_name = "KEY", default_value = "0", value_parser = parse_number)]
    prkey: u64,
    /// Who may do what, 1 to 6.
    #[arg(long, short = 't', value_name = "TYPE", value_parser = kind)]
    rtype: Kind,
    /// 0 acquires, 1 preempts, 2 preempts and aborts.
    #[arg(long, short = 'a', default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=2))]
    racqa: u32,
    /// Ignore the current key.
    #[arg(long, short)]
    iekey: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReleaseArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// The current key.
    #[arg(long, short = 'c', value_name = "KEY", default_value = "0", value_parser = parse_number)]
    crkey: u64,
    /// The type to release, 1 to 6.
    #[arg(long, short = 't', value_name = "TYPE", default_value = "1", value_parser = kind)]
    rtype: Kind,
    /// 0 releases, 1 clears all registrants.
    #[arg(long, short = 'a', default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1))]
    rrela: u32,
    /// Ignore the current key.
    #[arg(long, short)]
    iekey: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// With host identifiers of 128 bits.
    #[arg(long, short)]
    eds: bool,
}

fn reserve(
    session: &mut Session<'_>,
    (opcode, namespace): (NvmOpcode, Namespace),
    cdw10: u32,
    keys: &[u64],
) -> Result<(), Failure> {
    let nsid = session.meant(namespace)?;
    let data = AdminData::Out(keys.iter().flat_map(|key| key.to_le_bytes()).collect());
    let cdw10 = [cdw10, 0, 0, 0, 0, 0];
    session.io(AdminCommand { nsid, cdw10, data, ..command(opcode) }).map(|_| ())
}

pub(super) fn resv_register(
    session: &mut Session<'_>,
    arguments: &RegisterArguments,
) -> Result<(), Failure> {
    let RegisterArguments { namespace, crkey, nrkey, rrega, cptpl, iekey } = *arguments;
    let cdw10 = rrega | ignores(iekey) | cptpl << 30;
    let which = (NvmOpcode::ReservationRegister, namespace);
    reserve(session, which, cdw10, &[crkey, nrkey])?;
    session.done(&json!({ "registered": nrkey }), "NVME Reservation  success")
}

pub(super) fn resv_acquire(
    session: &mut Session<'_>,
    arguments: &AcquireArguments,
) -> Result<(), Failure> {
    let AcquireArguments { namespace, crkey, prkey, rtype, racqa, iekey, consent } = *arguments;
    consent.ask("Other hosts lose the namespace, for writes at least.")?;
    let cdw10 = racqa | ignores(iekey) | u32::from(rtype) << 8;
    let which = (NvmOpcode::ReservationAcquire, namespace);
    reserve(session, which, cdw10, &[crkey, prkey])?;
    session.done(&json!({ "rtype": rtype }), "NVME Reservation Acquire success")
}

pub(super) fn resv_release(
    session: &mut Session<'_>,
    arguments: &ReleaseArguments,
) -> Result<(), Failure> {
    let ReleaseArguments { namespace, crkey, rtype, rrela, iekey, consent } = *arguments;
    consent.ask("Other hosts may change the namespace again.")?;
    let cdw10 = rrela | ignores(iekey) | u32::from(rtype) << 8;
    reserve(session, (NvmOpcode::ReservationRelease, namespace), cdw10, &[crkey])?;
    session.done(&json!({ "released": rtype }), "NVME Reservation Release success")
}

pub(super) fn resv_report(
    session: &mut Session<'_>,
    arguments: &ReportArguments,
) -> Result<(), Failure> {
    let nsid = session.meant(arguments.namespace)?;
    let cdw10 = [REPORT / 4 - 1, arguments.eds.into(), 0, 0, 0, 0];
    let data = AdminData::In(REPORT);
    let command = command(NvmOpcode::ReservationReport);
    let data = session.io(AdminCommand { nsid, cdw10, data, ..command })?.data;
    let status = ReservationStatus::parse(&data).map_err(Failure::failed)?;
    let count = usize::from(status.regctl);
    let registrants: Vec<(u16, u8, String, u64)> = if arguments.eds {
        let all = data[EXTENDED_HEADER..].chunks_exact(ExtendedRegistrant::LENGTH);
        let one = |bytes| {
            let of = ExtendedRegistrant::parse(bytes).map_err(Failure::failed)?;
            Ok((of.cntlid, of.rcsts, hex(&of.hostid), of.rkey))
        };
        all.take(count).map(one).collect::<Result<_, Failure>>()?
    } else {
        let all = data[ReservationStatus::LENGTH..].chunks_exact(Registrant::LENGTH);
        let one = |bytes| {
            let of = Registrant::parse(bytes).map_err(Failure::failed)?;
            Ok((of.cntlid, of.rcsts, format!("{:x}", of.hostid), of.rkey))
        };
        all.take(count).map(one).collect::<Result<_, Failure>>()?
    };
    if session.output.json() {
        let one = |(cntlid, rcsts, hostid, rkey): &(u16, u8, String, u64)| {
            let (held, id) = (*rcsts, hostid);
            json!({ "cntlid": cntlid, "rcsts": held, "hostid": id, "rkey": rkey })
        };
        let registrants: Vec<Value> = registrants.iter().map(one).collect();
        return session.output.value(&json!({
            "gen": status.generation,
            "rtype": status.rtype,
            "regctl": status.regctl,
            "ptpls": status.ptpls,
            "regctls": registrants,
        }));
    }
    session.output.line("NVME Reservation status:")?;
    session.output.line("")?;
    session.output.line(format!("gen       : {}", status.generation))?;
    session.output.line(format!("rtype     : {}", status.rtype))?;
    session.output.line(format!("regctl    : {}", status.regctl))?;
    session.output.line(format!("ptpls     : {}", status.ptpls))?;
    for (number, (cntlid, rcsts, hostid, rkey)) in registrants.iter().enumerate() {
        session.output.line(format!("regctl[{number}] :"))?;
        session.output.line(format!("  cntlid  : {cntlid:x}"))?;
        session.output.line(format!("  rcsts   : {rcsts:x}"))?;
        session.output.line(format!("  rkey    : {rkey:x}"))?;
        session.output.line(format!("  hostid  : {hostid}"))?;
    }
    if host_id_is_none(session)? {
        session.output.line("this host has no identifier (`set-feature -f 0x81`)")?;
    }
    Ok(())
}

fn host_id_is_none(session: &mut Session<'_>) -> Result<bool, Failure> {
    use flysch_wire::nvme::AdminOpcode;
    let cdw10 = [FeatureId::HostId.into_bits().into(), 0, 0, 0, 0, 0];
    let data = AdminData::In(8);
    let command = AdminCommand::new(AdminOpcode::GetFeatures);
    let reply = session.control.admin(AdminCommand { cdw10, data, ..command })?;
    Ok(reply.status.status == 0 && reply.data.iter().all(|byte| *byte == 0))
}

fn ignores(key: bool) -> u32 {
    if key { IGNORE_KEY } else { 0 }
}
