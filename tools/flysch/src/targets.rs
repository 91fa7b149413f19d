//! `flysch targets`: every kind of target and its keys, from the table that the parser uses.

use flysch_rig::{KINDS, Kind};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// Lists the targets.
pub(crate) fn run(output: &mut Output) -> Result<(), Failure> {
    if output.json() {
        return output.value(&KINDS.iter().map(to_json).collect::<Vec<_>>());
    }
    output.line("A target is KIND[@WHERE][,key=value...], such as `ufs,mcq=4,size=1G`.")?;
    for kind in &KINDS {
        output.line(format!("\n{}  {}", kind.name, kind.help))?;
        let width = kind.keys.iter().map(|key| key.name.len() + key.value.len()).max();
        for key in kind.keys {
            let pair = format!("{}={}", key.name, key.value);
            output.line(format!(
                "  {pair:<width$}  {}",
                key.help,
                width = width.unwrap_or(0) + 1
            ))?;
        }
    }
    Ok(())
}

fn to_json(kind: &Kind) -> Value {
    let keys = kind
        .keys
        .iter()
        .map(|key| json!({ "name": key.name, "value": key.value, "help": key.help }));
    json!({ "name": kind.name, "help": kind.help, "keys": keys.collect::<Vec<_>>() })
}
