//! `flysch image check`.

use std::collections::BTreeMap;

use flysch_api::count::counted;
use flysch_api::finding::Severity;
use flysch_image::Checked;
use serde::Serialize;

use super::{Source, shown};
use crate::failure::Failure;
use crate::output::Output;

/// The severity of what costs nothing.
const NOTE: &str = "note";
/// Notes of one kind that are listed each.
const ALIKE_MAX: u64 = 3;

/// One finding in JSON.
#[derive(Serialize)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    severity: &'static str,
    structure: &'static str,
    problem: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    peb: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leb: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// Checks; fails if anything is wrong.
pub(super) fn run(source: &Source, output: &mut Output) -> Result<(), Failure> {
    let image = source.open()?;
    let wanted = source.volumes(&image)?;
    let mut records = vec![];
    let mut wrong = 0u64;
    flysch_image::check(&image, &mut |checked| {
        let is_wanted = |name: &str| wanted.iter().any(|(wanted, _)| wanted == name);
        if checked.volume.is_none_or(is_wanted) {
            wrong += u64::from(checked.finding.severity > Severity::Note);
            records.push(record(checked));
        }
    });
    if output.json() {
        let verified: serde_json::Map<_, _> = wanted
            .iter()
            .filter_map(|(name, volume)| Some((name.clone(), verified(&volume.verified()?))))
            .collect();
        output.value(&serde_json::json!({
            "wrong": wrong, "verified": verified, "findings": records,
        }))?;
    } else {
        list(&records, output)?;
        let path = source.path.display();
        match wrong {
            0 => output.line(format_args!("{path}: nothing is wrong"))?,
            count => {
                let findings = counted(count, "finding", "findings");
                output.line(format_args!("{path}: {findings}"))?;
            }
        }
    }
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::of(source.path.display(), "one thing is wrong")),
        count => Err(Failure::of(source.path.display(), format!("{count} things are wrong"))),
    }
}

/// Lists the findings. A flash that was in use holds hundreds of traces of the same kind that no
/// file shows: of these the first few speak for all.
fn list(records: &[Record], output: &mut Output) -> Result<(), Failure> {
    let mut alike: BTreeMap<_, u64> = BTreeMap::new();
    for record in records {
        if record.severity == NOTE && record.path.is_none() {
            let seen = alike.entry((&record.volume, record.structure, &record.problem));
            let seen = seen.and_modify(|seen| *seen += 1).or_insert(1);
            if *seen > ALIKE_MAX {
                continue;
            }
        }
        output.line(line(record))?;
    }
    for ((volume, structure, problem), seen) in alike {
        if let Some(more) = seen.checked_sub(ALIKE_MAX).filter(|&more| more > 0) {
            let volume = volume.as_ref().map_or(String::new(), |volume| format!("{volume}: "));
            output.line(format_args!(
                "{NOTE:<12} {volume}{structure}: {problem}: {more} more of these, all in --json"
            ))?;
        }
    }
    Ok(())
}

/// What was verified with a key, in JSON.
fn verified(verified: &flysch_image::Verified) -> serde_json::Value {
    serde_json::json!({
        "hash": verified.algorithm.name(),
        "superblock": verified.superblock.name(),
        "master_node": verified.master.name(),
    })
}

fn record(checked: Checked<'_>) -> Record {
    let Checked { volume, finding } = checked;
    Record {
        volume: volume.map(str::to_string),
        severity: match finding.severity {
            Severity::Note => NOTE,
            Severity::Inconsistent => "inconsistent",
            Severity::Lost => "lost",
        },
        structure: finding.structure,
        problem: finding.problem,
        peb: finding.place.peb,
        leb: finding.place.leb,
        offset: finding.place.offset,
        inode: finding.inode.map(|inode| inode.0),
        path: finding.path.map(|path| format!("/{}", shown(&path))),
    }
}

fn line(record: &Record) -> String {
    use std::fmt::Write;
    let mut text = format!("{:<12} ", record.severity);
    if let Some(volume) = &record.volume {
        let _ = write!(text, "{volume}: ");
    }
    let _ = write!(text, "{}: {}", record.structure, record.problem);
    let places = [("PEB", record.peb), ("LEB", record.leb), ("offset", record.offset)];
    for (name, value) in places {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {value}");
        }
    }
    if let Some(inode) = record.inode {
        let _ = write!(text, ", inode {inode}");
    }
    if let Some(path) = &record.path {
        let _ = write!(text, ", {path}");
    }
    text
}
