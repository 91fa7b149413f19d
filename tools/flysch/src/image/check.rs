//! `flysch image check`.

use flysch_api::count::counted;
use flysch_api::finding::Severity;
use flysch_image::Checked;
use serde::Serialize;

use super::{Source, shown};
use crate::failure::Failure;
use crate::output::Output;

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
        for record in &records {
            output.line(line(record))?;
        }
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
            Severity::Note => "note",
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
