//! `flysch ufs errors`.

use flysch_rig::Control;
use flysch_ufs::ErrorRecord;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

pub(super) fn run(control: &mut dyn Control, output: &mut Output) -> Result<(), Failure> {
    let log = control.errors();
    if output.json() {
        let counts = log.counts().map(|(kind, count)| (kind.name().to_owned(), json!(count)));
        let counts: serde_json::Map<_, _> = counts.collect();
        let history: Vec<_> = log
            .history()
            .map(|r| {
                let why = r.error.map(|error| error.to_string());
                let (at, kind) = (r.at.nanos(), r.kind.name());
                json!({ "at_ns": at, "kind": kind, "value": r.value, "step": r.step, "why": why })
            })
            .collect();
        return output.value(&json!({ "counts": counts, "history": history }));
    }
    let counts: Vec<_> =
        log.counts().map(|(kind, count)| vec![kind.name().to_owned(), count.to_string()]).collect();
    let history: Vec<_> = log.history().map(row).collect();
    output.table(&["error", "count"], &counts)?;
    if history.is_empty() {
        return output.line("\nno errors since bring-up");
    }
    output.line("")?;
    output.table(&["at", "error", "value or step", "why"], &history)
}

/// Time, kind, place and cause.
fn row(record: ErrorRecord) -> Vec<String> {
    let what = record.step.map_or_else(|| format!("{:#010x}", record.value), str::to_owned);
    let why = record.error.map(|error| error.to_string()).unwrap_or_default();
    vec![record.at.to_string(), record.kind.name().to_owned(), what, why]
}

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_api::machine::Instant;
    use flysch_ufs::{Cause, ErrorKind, UfsError};

    #[test]
    fn a_step_that_was_passed_over_is_told_with_its_name_and_cause() {
        let (at, step) = (Instant::from_nanos(1_500_000_000), "reference clock");
        let error = Some(UfsError::Step { step, cause: Cause::Timeout });
        let record =
            ErrorRecord { at, kind: ErrorKind::Skipped, value: 10, step: Some(step), error };
        let row = row(record);
        assert_eq!(row[..3], ["1.500000000 s", "skipped step", "reference clock"]);
        assert!(row[3].contains("reference clock") && row[3].contains("time"), "{}", row[3]);
    }
}
