//! `flysch nvme errors`.

use serde_json::json;

use super::Session;
use crate::failure::Failure;

/// The driver's counters.
pub(super) fn errors(session: &mut Session<'_>) -> Result<(), Failure> {
    let log = session.control.errors();
    let counts = log.counts().map(|(kind, count)| (kind.name(), count));
    if session.output.json() {
        let counts = counts.map(|(name, count)| (name.to_owned(), json!(count)));
        let counts: serde_json::Map<_, _> = counts.collect();
        let record = |r: &flysch_nvme::ErrorRecord| {
            let (at, kind) = (r.at.nanos(), r.kind.name());
            json!({ "at_ns": at, "kind": kind, "value": r.value })
        };
        let history: Vec<_> = log.history().map(record).collect();
        return session.output.value(&json!({ "counts": counts, "history": history }));
    }
    let counts: Vec<_> =
        counts.map(|(name, count)| vec![name.to_owned(), count.to_string()]).collect();
    let row = |r: &flysch_nvme::ErrorRecord| {
        vec![r.at.to_string(), r.kind.name().to_owned(), format!("{:#010x}", r.value)]
    };
    let history: Vec<_> = log.history().map(row).collect();
    session.output.table(&["error", "count"], &counts)?;
    if history.is_empty() {
        return session.output.line("\nno errors since bring-up");
    }
    session.output.line("")?;
    session.output.table(&["at", "error", "value"], &history)
}
