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
            .map(|r| json!({ "at_ns": r.at.nanos(), "kind": r.kind.name(), "value": r.value }))
            .collect();
        return output.value(&json!({ "counts": counts, "history": history }));
    }
    let counts: Vec<_> =
        log.counts().map(|(kind, count)| vec![kind.name().to_owned(), count.to_string()]).collect();
    let history: Vec<_> = log
        .history()
        .map(|r| vec![r.at.to_string(), r.kind.name().to_owned(), format!("{:#010x}", r.value)])
        .collect();
    output.table(&["error", "count"], &counts)?;
    if history.is_empty() {
        return output.line("\nno errors since bring-up");
    }
    output.line("")?;
    output.table(&["at", "error", "value"], &history)
}
