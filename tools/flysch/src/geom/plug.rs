//! `geom disk attach`, `detach` and `rescan`: disks and controllers of a rig that go and come back,
//! in the words of devctl(8) and camcontrol(8).

use std::rc::Rc;

use flysch_api::block::Change;
use flysch_geom::ProviderId;
use flysch_geom::class::disk::{self, DISK};
use flysch_rig::rig::{News, PlugError, Source};
use serde_json::json;

use super::list;
use super::medium::OnRig;
use super::session::Session;
use crate::failure::Failure;
use crate::output::Output;

/// What can be done to disks.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum Verb {
    #[command(flatten)]
    Show(list::Verb),
    /// Pull a disk off its controller, or a controller out, as it is: what stands on it goes. For
    /// models of a rig; lasts as long as the command or the mount.
    Detach {
        /// The disk, or the controller.
        name: String,
    },
    /// Put it back: it is looked at like any disk that is new.
    Attach {
        /// The disk, or the controller.
        name: String,
    },
    /// Look which disks are there: those that went are orphaned, new ones are tasted.
    Rescan {
        /// Only these disks and controllers.
        names: Vec<String>,
    },
}

/// Does it.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let changes = match verb {
        Verb::Show(verb) => return list::run(session, "DISK", verb, output),
        Verb::Detach { name } => {
            session.pull(name)?;
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
        let rows = changes.iter().map(|change| {
            let what = if change.is_there { "found" } else { "lost" };
            json!({ "disk": change.disk, "change": what })
        });
        return output.value(&rows.collect::<Vec<_>>());
    }
    for change in changes {
        let what = if change.is_there { "found" } else { "lost" };
        output.line(format!("{}: {what}", change.disk))?;
    }
    Ok(())
}

/// A disk that came or went.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    disk: String,
    is_there: bool,
}

fn failure(error: PlugError) -> Failure {
    match error {
        PlugError::Failed { .. } => Failure::failed(error),
        _ => Failure::usage(error),
    }
}

impl Session {
    /// The rig that has this, or the first, which says that there is none.
    fn rig_with(&mut self, name: &str) -> Result<usize, Failure> {
        let found = self.rigs.iter().position(|rig| rig.has(name));
        match (found, self.rigs.len()) {
            (Some(at), _) => Ok(at),
            (None, 0) => Err(Failure::usage(format!(
                "{name}: only models of a rig are attached and detached; name one by --rig"
            ))),
            (None, _) => Ok(0),
        }
    }

    /// Pulls a disk or a controller out, whatever is under way.
    pub(super) fn pull(&mut self, name: &str) -> Result<(), Failure> {
        let at = self.rig_with(name)?;
        self.rigs[at].detach(name).map_err(failure)
    }

    /// Puts it back, and takes in what is found.
    pub(super) fn put_back(&mut self, name: &str) -> Result<Vec<Changed>, Failure> {
        let at = self.rig_with(name)?;
        let news = self.rigs[at].attach(name).map_err(failure)?;
        self.take_in(news)
    }

    /// Looks what is there, and takes in what changed.
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

    /// Looks after disks that said that they are gone.
    pub(super) fn look_after_gone(&mut self) {
        let gone = std::mem::take(&mut *self.gone.borrow_mut());
        for name in gone {
            if self.rigs.iter().any(|rig| rig.has(&name))
                && let Err(error) = self.rescan(Some(&name))
            {
                self.graph.say(format!("DISK: {name}: {error}"));
            }
        }
    }

    fn take_in(&mut self, news: Vec<News>) -> Result<Vec<Changed>, Failure> {
        let mut all = Vec::new();
        for news in news {
            match news {
                News::Lost(disk) => {
                    self.graph.say(format!("DISK: {disk}: lost"));
                    if let Some(provider) = self.lane_of(&disk) {
                        self.lanes.remove(&provider);
                        disk::changed(&mut self.graph, provider, Change::Gone);
                    }
                    all.push(Changed { disk, is_there: false });
                }
                News::Found(disk) => {
                    self.graph.say(format!("DISK: {}: found", disk.name));
                    let Source::Lanes(lanes) = disk.source else { continue };
                    let gone = Rc::clone(&self.gone);
                    let medium = OnRig::new(&lanes[0], (disk.name.clone(), disk.serial), gone);
                    let inserted = DISK.insert(&mut self.graph, &disk.name, Box::new(medium));
                    let provider = inserted.map_err(|error| self.failure(error))?;
                    self.lanes.insert(provider, lanes);
                    self.graph.settle();
                    all.push(Changed { disk: disk.name, is_there: true });
                }
                _ => {}
            }
        }
        Ok(all)
    }

    fn lane_of(&self, name: &str) -> Option<ProviderId> {
        let mut all = self.lanes.keys().copied();
        all.find(|provider| {
            self.graph.find_provider(*provider).is_some_and(|there| there.name == name)
        })
    }
}
