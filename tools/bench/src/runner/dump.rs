//! Saves wrong units to files.

use std::io::Write as _;
use std::path::Path;

use flysch_files::NewFile;

use crate::verify::{self, Form, Place, Version};

/// Writes the data found in the unit at `place`, and the expected data as far as it is known, to
/// files in the working directory. Returns a note for each: its name, or why there is none.
pub(super) fn write(
    (job, place): (&str, Place),
    unit: &[u8],
    form: &Form,
    expected: Option<&Version>,
) -> Vec<String> {
    let job = job.replace('/', "_");
    let file = |content: &[u8], kind: &str| {
        let name = format!("{job}.{}.{kind}", place.offset);
        let written = NewFile::create(Path::new(&name)).and_then(|file| {
            file.file().write_all(content)?;
            file.keep()
        });
        match written {
            Ok(()) => name,
            Err(error) => format!("{name}: {error}"),
        }
    };
    let right = verify::expected(unit, form, place, expected);
    let mut told = vec![file(unit, "received")];
    told.extend(right.map(|right| file(&right, "expected")));
    told
}
