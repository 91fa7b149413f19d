//! `flysch image info` and `flysch image cat`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use flysch_image::{Fact, follow};
use serde::Serialize;

use super::Source;
use crate::failure::Failure;
use crate::output::Output;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

#[derive(Serialize)]
struct Info {
    path: String,
    size: u64,
    parts: Vec<PartInfo>,
}

#[derive(Serialize)]
struct PartInfo {
    facts: std::collections::BTreeMap<&'static str, String>,
    volumes: Vec<std::collections::BTreeMap<&'static str, String>>,
}

/// Shows the contents of an image.
pub(super) fn info(source: &Source, output: &mut Output) -> Result<(), Failure> {
    let image = source.open()?;
    if output.json() {
        let map =
            |facts: Vec<Fact>| facts.into_iter().map(|fact| (fact.name, fact.value)).collect();
        let parts = image.parts.iter().map(|part| PartInfo {
            facts: map(flysch_image::facts(&image, part)),
            volumes: part
                .volumes
                .iter()
                .filter(|volume| source.wants(&image, volume))
                .map(|volume| map(flysch_image::volume_facts(volume)))
                .collect(),
        });
        let path = image.path.display().to_string();
        output.value(&Info { path, size: image.size, parts: parts.collect() })?;
        return judge(source, &image);
    }
    output.line(format_args!("{}: {} bytes", image.path.display(), image.size))?;
    let names = flysch_image::names(&image);
    let mut names = names.iter();
    for part in &image.parts {
        output.line("")?;
        lines(output, "", &flysch_image::facts(&image, part))?;
        for (volume, name) in part.volumes.iter().zip(names.by_ref()) {
            if !source.wants(&image, volume) {
                continue;
            }
            output.line("")?;
            output.line(format_args!("  volume {}", super::shown(name.as_bytes())))?;
            lines(output, "  ", &flysch_image::volume_facts(volume))?;
        }
    }
    judge(source, &image)
}

/// Fails if anything shown is uncertain.
pub(super) fn judge(source: &Source, image: &flysch_image::Image) -> Result<(), Failure> {
    let faults = flysch_image::faults(image, &|volume| source.wants(image, volume));
    match faults.first() {
        None => Ok(()),
        Some(first) => {
            let more = match faults.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more: image check)"),
            };
            let first = super::shown(first.as_bytes());
            Err(Failure::of(source.path.display(), format!("{first}{more}")))
        }
    }
}

fn lines(output: &mut Output, indent: &str, facts: &[Fact]) -> Result<(), Failure> {
    for fact in facts {
        output.line(format_args!("{indent}  {:<26}{}", fact.name, fact.value))?;
    }
    Ok(())
}

/// Prints a file.
pub(super) fn cat(source: &Source, path: &OsStr, output: &mut Output) -> Result<(), Failure> {
    let image = source.open()?;
    let fs = source.file_system(&image)?;
    let path = path.as_bytes();
    let inode = follow(&*fs, path).map_err(Failure::failed)?;
    let fail = |error| Failure::of(super::shown(path), error);
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let len = fs.read(inode, at, &mut buffer).map_err(fail)?;
        if len == 0 {
            return Ok(());
        }
        output.bytes(&buffer[..len])?;
        at += len as u64;
    }
}
