//! Rigs: creates what their files describe and is missing.

use std::ffi::OsString;
use std::path::Path;

use flysch_rig::rig::RigFile;

use super::session::Session;
use super::{Action, Line, act};
use crate::failure::Failure;
use crate::output::Output;

/// Reads the file of a rig.
pub(super) fn read(path: &Path) -> Result<RigFile, Failure> {
    let classes = flysch_geom::all().map(|class| class.name());
    let rig = RigFile::read(path, &classes)?;
    events(&rig)?;
    Ok(rig)
}

/// A verb executed at a certain time, and its place in the file.
pub(super) struct Timed {
    /// Nanoseconds after the first request.
    pub(super) at: u64,
    pub(super) place: String,
    pub(super) action: Action,
}

/// Events while the rig is used, earliest first.
pub(super) fn events(rig: &RigFile) -> Result<Vec<Timed>, Failure> {
    let mut all = Vec::new();
    for event in &rig.events {
        for (line, text) in &event.run {
            let (place, action) = verb(rig, *line, ("run", text))?;
            if matches!(action, Action::Mount(_) | Action::Copy(_)) {
                let what = "not while requests are under way";
                return Err(Failure::usage(format!("{place}: `run`: {text}: {what}")));
            }
            all.push(Timed { at: event.at, place, action });
        }
    }
    Ok(all)
}

/// The verb in a line, and its place.
fn verb(
    rig: &RigFile,
    line: usize,
    (key, text): (&str, &str),
) -> Result<(String, Action), Failure> {
    let place = format!("{}: line {line}", rig.path.display());
    let wrong = |what: &str| Failure::usage(format!("{place}: `{key}`: {what}"));
    let words = shlex::split(text).ok_or_else(|| wrong("a quote is not closed"))?;
    let verb = Line::of(words.into_iter().map(OsString::from));
    let verb = verb.map_err(|what| wrong(&what))?;
    Ok((place, verb.action))
}

/// Creates what should stand on the disks of a rig and is missing.
pub(super) fn make(session: &mut Session, rig: &RigFile) -> Result<(), Failure> {
    let base = rig.path.parent().map(Path::to_path_buf).unwrap_or_default();
    let before = std::mem::replace(&mut session.base, base);
    let made = make_all(session, rig);
    session.base = before;
    made
}

fn make_all(session: &mut Session, rig: &RigFile) -> Result<(), Failure> {
    for geom in &rig.geoms {
        if session.graph.provider(&geom.name).is_ok() {
            continue;
        }
        for (line, text) in &geom.create {
            let (place, action) = verb(rig, *line, ("create", text))?;
            let (mut output, _) = Output::kept(false);
            act(session, &action, &mut output).map_err(|failure| match failure {
                Failure::Usage(text) => Failure::Usage(format!("{place}: {text}")),
                other => other.on(&place),
            })?;
        }
        if session.graph.provider(&geom.name).is_err() {
            let line = geom.create.first().map_or(1, |(line, _)| *line);
            let (path, name) = (rig.path.display(), &geom.name);
            let cause = "does not exist after all of `create` was done; has it another name?";
            return Err(Failure::failed(format!("{path}: line {line}: {name} {cause}")));
        }
    }
    Ok(())
}
