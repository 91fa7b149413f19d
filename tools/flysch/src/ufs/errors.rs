//! `flysch ufs errors`.

use flysch_rig::Control;
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
    let history: Vec<_> = log
        .history()
        .map(|r| {
            let what = r.step.map_or_else(|| format!("{:#010x}", r.value), str::to_owned);
            let why = r.error.map(|error| error.to_string()).unwrap_or_default();
            vec![r.at.to_string(), r.kind.name().to_owned(), what, why]
        })
        .collect();
    output.table(&["error", "count"], &counts)?;
    if history.is_empty() {
        return output.line("\nno errors since bring-up");
    }
    output.line("")?;
    output.table(&["at", "error", "value or step", "why"], &history)
}
