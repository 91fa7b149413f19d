//! `geom disk attach`, `detach` and `rescan`: disks and controllers of a rig that come and go, in
//! the terms of devctl(8) and camcontrol(8).

use std::rc::Rc;
use std::time::Duration;

use flysch_api::block::Change;
use flysch_bench::units::{UnitError, parse_time};
use flysch_geom::ProviderId;
use flysch_geom::class::disk::{self, DISK};
use flysch_rig::rig::{News, OpenDisk, PlugError, Source};
use serde_json::json;

use super::list;
use super::medium::OnRig;
use super::session::Session;
use crate::failure::Failure;
use crate::output::Output;

/// What can be done with disks.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum Verb {
    #[command(flatten)]
    Show(list::Verb),
    /// Pull a disk off its controller, or pull out a controller; everything on it disappears. For
    /// models of a rig; lasts as long as the command or the mount.
    Detach {
        /// Put it back automatically after this much of the rig's time: `1500ms`, `2s`.
        #[arg(long = "for", value_name = "TIME", value_parser = away)]
        away: Option<u64>,
        /// The disk, or the controller.
        name: String,
    },
    /// Put it back: it is tasted like any new disk.
    Attach {
        /// The disk, or the controller.
        name: String,
    },
    /// Scan for disks: missing ones are orphaned, new ones are tasted.
    Rescan {
        /// Only these disks and controllers.
        names: Vec<String>,
    },
}

/// Nanoseconds that a disk is away.
fn away(text: &str) -> Result<u64, UnitError> {
    let time = parse_time(text, Duration::from_secs(1))?;
    Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let changes = match verb {
        Verb::Show(verb) => return list::run(session, "DISK", verb, output),
        Verb::Detach { away, name } => {
            session.pull(name, *away)?;
            session.rescan(Some(name))?
        }
        Verb::Attach { name } => session.put_back(name)?,
        Verb::Rescan { names } if names.is_empty() => session.rescan(None)?,
        Verb::Rescan { names } => {
            let mut all = Vec::new();
            for name in names {
                all.extend(session.rescan(Some(name))?);
            }
            all
        }
    };
    if output.json() {
        let rows =
            changes.iter().map(|change| json!({ "disk": change.disk, "change": change.word() }));
        return output.value(&rows.collect::<Vec<_>>());
    }
    for change in changes {
        output.line(format!("{}: {}", change.disk, change.word()))?;
    }
    Ok(())
}

/// A disk that appeared or disappeared.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    disk: String,
    is_there: bool,
}

impl Changed {
    fn word(&self) -> &'static str {
        if self.is_there { "found" } else { "lost" }
    }
}

fn failure(error: PlugError) -> Failure {
    match error {
        PlugError::Unknown { .. } | PlugError::Failed { .. } => Failure::failed(error),
        _ => Failure::usage(error),
    }
}

impl Session {
    /// The rig that contains this name, or the first, which reports that none does.
    fn rig_with(&mut self, name: &str) -> Result<usize, Failure> {
        let found = self.rigs.iter().position(|rig| rig.has(name));
        match (found, self.rigs.len()) {
            (Some(at), _) => Ok(at),
            (None, 0) => Err(Failure::usage(format!(
                "{name}: only models of a rig can be attached and detached; name one with --rig"
            ))),
            (None, _) => Ok(0),
        }
    }

    /// Pulls out a disk or a controller, whatever is in flight.
    pub(super) fn pull(&mut self, name: &str, away: Option<u64>) -> Result<(), Failure> {
        let at = self.rig_with(name)?;
        let rig = &mut self.rigs[at];
        match away {
            None => rig.detach(name),
            Some(nanos) => rig.detach_for(name, nanos),
        }
        .map_err(failure)
    }

    /// Puts it back, and attaches what is found.
    pub(super) fn put_back(&mut self, name: &str) -> Result<Vec<Changed>, Failure> {
        let at = self.rig_with(name)?;
        let news = self.rigs[at].attach(name).map_err(failure)?;
        self.take_in(news)
    }

    /// Scans, and applies the changes.
    pub(super) fn rescan(&mut self, name: Option<&str>) -> Result<Vec<Changed>, Failure> {
        let rigs = match name {
            Some(name) => vec![self.rig_with(name)?],
            None => (0..self.rigs.len()).collect(),
        };
        let mut all = Vec::new();
        for at in rigs {
            let news = self.rigs[at].rescan(name).map_err(failure)?;
            all.extend(self.take_in(news)?);
        }
        Ok(all)
    }

    /// Whether disks reported anything: then [`look`](Self::look) is due.
    pub(super) fn has_news(&mut self) -> bool {
        let mut any = false;
        // Each is asked: what comes back by itself is back with the question.
        for rig in &mut self.rigs {
            any |= rig.has_news();
        }
        any
    }

    /// Handles disks that reported their removal, and events that disks and controllers reported;
    /// returns the disks found.
    pub(super) fn look(&mut self) -> Vec<String> {
        self.look_after_gone();
        let mut found = Vec::new();
        for at in 0..self.rigs.len() {
            let news = self.rigs[at].look().map_err(failure);
            match news.and_then(|news| self.take_in(news)) {
                Ok(all) => found.extend(all.into_iter().filter(|it| it.is_there)),
                Err(error) => self.graph.record.say(format!("DISK: {error}")),
            }
        }
        found.into_iter().map(|it| it.disk).collect()
    }

    fn look_after_gone(&mut self) {
        let gone = std::mem::take(&mut *self.gone.borrow_mut());
        for name in gone {
            if self.rigs.iter().any(|rig| rig.has(&name))
                && let Err(error) = self.rescan(Some(&name))
            {
                self.graph.record.say(format!("DISK: {name}: {error}"));
            }
        }
    }

    fn take_in(&mut self, news: Vec<News>) -> Result<Vec<Changed>, Failure> {
        let mut all = Vec::new();
        for news in news {
            match news {
                News::Lost(disk) => {
                    self.graph.record.say(format!("DISK: {disk}: lost"));
                    if let Some(provider) = self.lane_of(&disk) {
                        self.lanes.remove(&provider);
                        disk::changed(&mut self.graph, provider, Change::Gone);
                    }
                    all.push(Changed { disk, is_there: false });
                }
                News::Found(disk) => {
                    self.graph.record.say(format!("DISK: {}: found", disk.name));
                    let Source::Lanes(lanes) = disk.source else { continue };
                    let gone = Rc::clone(&self.gone);
                    let medium = OnRig::new(&lanes[0], (disk.name.clone(), disk.serial), gone);
                    let inserted = DISK.insert(&mut self.graph, &disk.name, Box::new(medium));
                    let provider = inserted.map_err(|error| self.failure(error))?;
                    self.lanes.insert(provider, lanes);
                    self.graph.settle();
                    all.push(Changed { disk: disk.name, is_there: true });
                }
                News::Changed(disk, change) => self.disk_changed(disk, change),
                _ => {}
            }
        }
        Ok(all)
    }

    /// An event of a disk that stays.
    fn disk_changed(&mut self, disk: OpenDisk, change: Change) {
        let what = match change {
            Change::Reset => "was reset".into(),
            Change::Resized { bytes } => format!("has {bytes} bytes now"),
            Change::Medium => "may have another medium".into(),
            _ => return,
        };
        self.graph.record.say(format!("DISK: {}: {what}", disk.name));
        let Some(provider) = self.lane_of(&disk.name) else { return };
        if let Source::Lanes(lanes) = disk.source {
            self.lanes.insert(provider, lanes);
        }
        disk::changed(&mut self.graph, provider, change);
    }

    fn lane_of(&self, name: &str) -> Option<ProviderId> {
        let mut all = self.lanes.keys().copied();
        all.find(|provider| {
            self.graph.objects().provider(*provider).is_some_and(|there| there.name == name)
        })
    }
}
