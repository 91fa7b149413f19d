//! `flysch nvme show-regs`.

use flysch_wire::nvme::registers::TIMEOUT_UNIT_MS;
use serde_json::json;

use super::Session;
use crate::failure::Failure;

pub(super) fn show_regs(session: &mut Session<'_>) -> Result<(), Failure> {
    let (version, cap, quirks) = session.control.controller();
    let page = |n: u8| 4096_u64 << n;
    if session.output.json() {
        return session.output.value(&json!({
            "cap": cap.into_bits(),
            "vs": version.into_bits(),
            "queue_entries_max": u32::from(cap.mqes()) + 1,
            "doorbell_stride_bytes": 4 << cap.dstrd(),
            "ready_timeout_ms": u32::from(cap.to()) * TIMEOUT_UNIT_MS,
            "subsystem_reset": cap.nssrs(),
            "page_min_bytes": page(cap.mpsmin()),
            "page_max_bytes": page(cap.mpsmax()),
            "quirks": quirks.names().collect::<Vec<_>>(),
        }));
    }
    let yes = |is: bool| if is { "Yes" } else { "No" };
    session.output.line(format!("cap     : {:x}", cap.into_bits()))?;
    let rows = [
        ("NVM Subsystem Reset Supported     (NSSRS)", yes(cap.nssrs()).to_owned()),
        ("Memory Page Size Maximum         (MPSMAX)", format!("{} bytes", page(cap.mpsmax()))),
        ("Memory Page Size Minimum         (MPSMIN)", format!("{} bytes", page(cap.mpsmin()))),
        ("Doorbell Stride                   (DSTRD)", format!("{} bytes", 4 << cap.dstrd())),
        (
            "Timeout                              (TO)",
            format!("{} ms", u32::from(cap.to()) * TIMEOUT_UNIT_MS),
        ),
        ("Contiguous Queues Required          (CQR)", yes(cap.cqr()).to_owned()),
        ("Maximum Queue Entries Supported    (MQES)", (u32::from(cap.mqes()) + 1).to_string()),
    ];
    for (name, value) in rows {
        session.output.line(format!("\t{name}: {value}"))?;
    }
    session.output.line(format!("version : {:x}", version.into_bits()))?;
    session.output.line(format!("\tNVMe specification {version}"))?;
    let known: Vec<&str> = quirks.names().collect();
    let known = if known.is_empty() { "none known".into() } else { known.join(", ") };
    session.output.line(format!("deviations : {known}"))
}
