//! RAID: the volumes of BIOS RAIDs, as FreeBSD's `graid`.
//!
//! A geom is a set of disks whose metadata belongs together; its providers are the volumes on them.
//! The contents of any format's metadata are represented by an [`array::Array`]; the formats are in
//! [`format::FORMATS`], one file each. If disks disagree, the one written last is trusted: a disk
//! whose serial number is not in its table is stale.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use flysch_api::block;

use super::{Class, Config, News, Object, Requests};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::Taste;
use crate::route::Route;

pub mod array;
pub mod ddf;
pub mod format;
pub mod intel;
mod metadata;
mod old;
mod rebuild;
mod request;
mod route;
mod start;
#[cfg(test)]
mod tests;
mod verbs;

use array::{Array, MemberState, PartState, RaidVolume, VolumeState};
use format::{FORMATS, Format, Found, Writing};

pub use rebuild::{CHECKPOINT, rebuild, rebuild_piece};
pub use verbs::{RaidOptions, add, delete, fail, insert, label, remove, stop};

/// The type of the class.
#[derive(Debug)]
pub struct Raid;

/// The class, to be registered with a graph.
pub static RAID: Raid = Raid;

/// A disk in the place of a member.
#[derive(Clone, Copy, Debug, Default)]
struct Disk {
    consumer: Option<ConsumerId>,
    read_errors: u32,
}

/// A disk of the set without a place: it failed, or was missing while the others were written.
#[derive(Clone, Debug)]
struct Stray {
    consumer: ConsumerId,
    failed: bool,
}

/// The state of a geom.
#[derive(Debug)]
struct State {
    format: &'static dyn Format,
    /// The trusted description; before the start, that of the newest disk so far.
    array: Array,
    running: bool,
    /// Tasted before the start: each disk with its description.
    waiting: Vec<(ConsumerId, Found)>,
    /// Indexed like the array's members.
    disks: Vec<Disk>,
    strays: Vec<Stray>,
    /// The provider of each volume, and its number.
    providers: Vec<(Option<ProviderId>, u32)>,
    /// Something has changed that the disks do not record yet.
    untold: bool,
    /// The member whose turn it is to be read.
    turn: usize,
    /// The part being rebuilt, a piece at a time.
    copying: Option<rebuild::Copying>,
}

impl State {
    /// Whether a disk is missing and the others do not record that yet.
    fn is_behind(&self) -> bool {
        let mut both = self.disks.iter().zip(&self.array.members);
        both.any(|(disk, member)| disk.consumer.is_none() && member.state != MemberState::Missing)
    }

    /// How it is written, if it can be.
    fn writing(&self) -> Option<&'static dyn Writing> {
        self.format.writing().filter(|format| format.objection(&self.array).is_none())
    }

    fn volume_of(&self, provider: ProviderId) -> Option<usize> {
        self.providers.iter().position(|(known, _)| *known == Some(provider))
    }

    /// Describes a part, in words.
    fn part_text(&self, volume: &RaidVolume, part: &array::Part) -> String {
        match part.state {
            PartState::Rebuild | PartState::Resync => {
                let done = self.copying.as_ref().and_then(|copying| copying.bytes_of(part));
                let (done, size) = (done.unwrap_or(part.done), volume.used().max(1));
                let percent = u128::from(done) * 100 / u128::from(size);
                format!("{} {percent}%", part.state.name())
            }
            state => state.name().into(),
        }
    }

    fn state_name(&self) -> Option<&'static str> {
        let states = self.array.volumes.iter().map(|volume| match self.running {
            true => volume.state(),
            false => VolumeState::Starting,
        });
        states.min().map(VolumeState::name)
    }
}

fn state(graph: &Graph, geom: GeomId) -> Result<&State, GeomError> {
    let missing = || GeomError::not_found(&graph[geom].name, "geom of class RAID");
    graph.state(geom).ok_or_else(missing)
}

fn state_mut(graph: &mut Graph, geom: GeomId) -> Result<&mut State, GeomError> {
    let name = graph[geom].name.clone();
    graph.state_mut(geom).ok_or_else(|| GeomError::not_found(name, "geom of class RAID"))
}

fn name_of(graph: &Graph, consumer: Option<ConsumerId>) -> String {
    let provider = consumer.and_then(|consumer| graph.objects().consumer(consumer)?.provider);
    provider.map_or_else(|| "NONE".into(), |provider| graph[provider].name.clone())
}

/// The format of the metadata on a disk, whether or not it is followed.
pub(super) fn recognised(graph: &mut Graph, provider: ProviderId) -> Option<&'static str> {
    FORMATS.into_iter().find_map(|format| match format.read(graph, provider) {
        Ok(None) => None,
        Ok(Some(_)) | Err(_) => Some(format.name()),
    })
}

impl Class for Raid {
    fn name(&self) -> &'static str {
        "RAID"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        for format in FORMATS {
            let found = match format.read(graph, provider) {
                Ok(None) => continue,
                Ok(Some(found)) => found,
                Err(refused) => {
                    let text = format!("metadata of {}: {}", format.name(), refused.why);
                    return Taste::refused(text, refused.bytes.0, refused.bytes.1);
                }
            };
            let (at, name) = (graph[provider].last_sector(), found.array.name.clone());
            return match start::join(graph, format, provider, found) {
                Ok(what) => Taste::claimed(format!("{what} of {name}"), at, 0),
                Err(error) => Taste::refused(error.to_string(), at, 0),
            };
        }
        Taste::passed("no metadata of a RAID")
    }

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        let geom = graph[provider].geom;
        let Ok(state) = state(graph, geom) else { return Ok(()) };
        let Some(number) = state.volume_of(provider) else { return Ok(()) };
        if change.write > 0 {
            let volume = &state.array.volumes[number];
            let name = &graph[provider].name;
            let is_level = matches!(volume.level, array::Level::Raid5(_));
            if is_level || state.writing().is_none() {
                let what = if is_level { volume.level.name() } else { state.format.name() };
                let cause = format!("{what} can only be read");
                return Err(GeomError::new(
                    Kind::Io(block::BlockError::WriteProtected),
                    name.as_str(),
                    cause,
                ));
            }
            let written = volume.parts.iter().filter(|part| part.state.is_written());
            let mut consumers = written.filter_map(|part| state.disks[part.member].consumer);
            if consumers.any(|consumer| graph[consumer].access.write == 0) {
                return Err(GeomError::io(name, block::BlockError::WriteProtected));
            }
        }
        let open = graph[provider].access.write;
        if open > 0 && open + change.write == 0 {
            request::clean(graph, geom, number);
        }
        Ok(())
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        match news {
            News::Orphaned(consumer) | News::Spoiled(consumer) => {
                let geom = graph[consumer].geom;
                metadata::depart(graph, geom, consumer);
                true
            }
            News::Failed(consumer, error) => {
                let geom = graph[consumer].geom;
                route::failed(graph, geom, consumer, error == block::BlockError::Gone);
                true
            }
            News::Resized(_) => false,
            News::Settled => {
                let waits = |state: &State| !state.running && !state.waiting.is_empty();
                let all: Vec<GeomId> = graph.objects().geoms_of("RAID").map(|(id, _)| id).collect();
                let mut all = all.into_iter();
                let found = all.find(|&id| graph.state::<State>(id).is_some_and(waits));
                found.inspect(|&geom| start::start(graph, geom)).is_some()
            }
        }
    }

    fn attribute(&self, graph: &Graph, provider: ProviderId, name: &str) -> Option<super::Value> {
        // A volume is not one of its disks: it has no serial number.
        let _ = (graph, provider, name);
        None
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        let geom = match object {
            Object::Geom(geom) => geom,
            Object::Provider(provider) => graph[provider].geom,
            Object::Consumer(consumer) => graph[consumer].geom,
        };
        let Some(state) = graph.state::<State>(geom) else { return Vec::new() };
        match object {
            Object::Geom(_) => {
                let mut config: Config = Vec::from([("Metadata", state.format.name().into())]);
                config.extend(state.state_name().map(|name| ("State", name.into())));
                config
            }
            Object::Provider(provider) => match state.volume_of(provider) {
                Some(number) => volume_config(graph, state, &state.array.volumes[number]),
                None => Vec::new(),
            },
            Object::Consumer(consumer) => disk_config(state, consumer),
        }
    }
}

impl Requests for Raid {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        let geom = graph[provider].geom;
        let state = graph.state::<State>(geom).ok_or(block::BlockError::Gone)?;
        let volume = state.volume_of(provider).ok_or(block::BlockError::Gone)?;
        request::start(graph, (geom, volume), io)
    }

    fn route(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        writes: bool,
    ) -> Result<Option<Route>, GeomError> {
        route::route(graph, provider, writes)
    }
}

fn volume_config(graph: &Graph, state: &State, volume: &RaidVolume) -> Config {
    let part = |part: &array::Part| {
        let disk = name_of(graph, state.disks[part.member].consumer);
        format!("{disk} ({})", state.part_text(volume, part))
    };
    let parts: Vec<String> = volume.parts.iter().map(part).collect();
    let level = volume.level.name();
    Vec::from([
        ("descr", format!("{} {level} volume", state.format.name())),
        ("Label", volume.name.clone()),
        ("RAIDLevel", level.into()),
        ("Transformation", volume.level.transformation().into()),
        ("Components", volume.parts.len().to_string()),
        ("Strip", volume.strip.to_string()),
        ("State", volume.state().name().into()),
        ("Dirty", if volume.dirty { "Yes" } else { "No" }.into()),
        ("Subdisks", parts.join(", ")),
    ])
}

fn disk_config(state: &State, consumer: ConsumerId) -> Config {
    let member = state.disks.iter().position(|disk| disk.consumer == Some(consumer));
    let stray = state.strays.iter().find(|stray| stray.consumer == consumer);
    let word = match (member, stray) {
        (Some(member), _) => match state.array.members[member].state {
            MemberState::Active => "ACTIVE",
            MemberState::Failed => "FAILED",
            MemberState::Missing => "OFFLINE",
        },
        (None, Some(stray)) if stray.failed => "STALE_FAILED",
        (None, Some(_)) => "STALE",
        (None, None) => "NONE",
    };
    let (mut states, mut places) = (Vec::new(), Vec::new());
    for (volume, (_, number)) in state.array.volumes.iter().zip(&state.providers) {
        for (slot, part) in volume.parts.iter().enumerate() {
            if Some(part.member) == member {
                states.push(state.part_text(volume, part));
                places.push(format!("r{number}({}):{slot}@{}", volume.name, part.offset));
            }
        }
    }
    let nested = if states.is_empty() { "".into() } else { format!(" ({})", states.join(", ")) };
    let errors = member.map_or(0, |member| state.disks[member].read_errors);
    Vec::from([
        ("State", format!("{word}{nested}")),
        ("Subdisks", places.join(", ")),
        ("ReadErrors", errors.to_string()),
    ])
}

/// The consumer of the disk whose provider has this name.
fn disk_named(graph: &Graph, geom: GeomId, name: &str) -> Result<ConsumerId, GeomError> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let mut consumers = graph[geom].consumers.iter().copied();
    consumers.find(|&consumer| name_of(graph, Some(consumer)) == name).ok_or_else(|| {
        let cause = format!("is not a disk of {}", graph[geom].name);
        GeomError::new(Kind::NotFound, name, cause)
    })
}
