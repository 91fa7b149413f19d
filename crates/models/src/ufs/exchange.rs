//! What is between the controller and the device: the link, the commands that both hold, the host's
//! memory, and the faults of all of it.

use flysch_api::machine::{DmaRegion, GuestMemory, OutOfRange};
use flysch_wire::ufs::utrd::Ocs;

use super::SLOTS;
use super::agenda::Agenda;
use super::config::Config;
use super::crypto::Engine;
use super::link::{Link, LinkState};
use super::lu::Unit;
use super::task::Tasks;
use super::transfer::{Part, Parts};
use crate::faults::{Injector, Kind};
use crate::media::Media;
use crate::store::StoreError;

/// Link, commands, memory, time and faults.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The host's memory as the controller sees it.
    pub(super) memory: GuestMemory,
    /// Encrypts data in transit.
    pub(super) crypto: Engine,
    pub(super) link: Link,
    pub(super) tasks: Tasks,
    pub(super) agenda: Agenda,
    pub(super) faults: Injector,
}

impl Exchange {
    /// A link that is down, no commands, and the faults of `config`.
    pub(super) fn new(config: &Config, memory: GuestMemory) -> Self {
        let tasks = SLOTS.max(config.active_commands as usize);
        Self {
            memory,
            crypto: Engine::new(config.crypto_slots),
            link: Link::new(config.profile.gear_max, config.profile.lanes),
            tasks: Tasks::new(tasks),
            agenda: Agenda::new(2 * tasks + 64),
            faults: Injector::new(config.faults.clone(), config.seed),
        }
    }

    /// The present, nanoseconds.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.agenda.now()
    }

    /// Whether a fault happens here and now; `tag` is recorded in the log of faults.
    #[inline]
    pub(super) fn fires(&mut self, kind: Kind, tag: u32) -> bool {
        self.faults.fires(kind, self.agenda.instant(), tag)
    }

    /// Whether the link hibernates now, on command or by itself.
    #[inline]
    pub(super) fn is_hibernated(&self, media: &Media) -> bool {
        let by_itself = self.tasks.held == 0 && media.is_auto_hibernated(self.now());
        self.link.state == LinkState::Hibernated || by_itself
    }

    /// Writes a response UPIU into the command descriptor of task `index`; returns how the task
    /// ends.
    #[inline]
    pub(super) fn answer(&self, index: u16, unit: &[u8]) -> Ocs {
        let task = self.tasks.get(index);
        let at = task.ucd.wrapping_add(task.response.offset_bytes() as u64);
        if unit.len() > task.response.response_bytes() {
            return Ocs::MismatchResponseUpiuSize;
        }
        match self.memory.write(at, unit) {
            Ok(()) => Ocs::Success,
            Err(_) => Ocs::InvalidCommandTableAttributes,
        }
    }

    /// Sends `moved` bytes at byte `offset` of `unit` to the host.
    #[inline]
    pub(super) fn send(
        &mut self,
        index: u16,
        (unit, offset): (&mut Unit, u64),
        moved: u64,
    ) -> Result<(), Failed> {
        let Self { memory, crypto, tasks, .. } = self;
        let task = tasks.get(index);
        match task.crypto {
            None => copy(Parts::new(memory, task, moved), true, |done, (region, at), len| {
                unit.store.read(offset + done, region, at, len)
            }),
            Some(key) => crypto.decrypt(key, (&mut unit.store, offset), (memory, task), moved),
        }
    }

    /// Takes `moved` bytes for byte `offset` of `unit` from the host.
    #[inline]
    pub(super) fn receive(
        &mut self,
        index: u16,
        (unit, offset): (&mut Unit, u64),
        moved: u64,
    ) -> Result<(), Failed> {
        let Self { memory, crypto, tasks, .. } = self;
        let task = tasks.get(index);
        match task.crypto {
            None => copy(Parts::new(memory, task, moved), false, |done, (region, at), len| {
                unit.store.write(offset + done, region, at, len)
            }),
            Some(key) => crypto.encrypt(key, (&mut unit.store, offset), (memory, task), moved),
        }
    }
}

/// Why a copy failed.
pub(super) enum Failed {
    Transfer(Ocs),
    Store,
    /// The storage below the unit has no room.
    Full,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        if error.is_full() { Self::Full } else { Self::Store }
    }
}

impl From<OutOfRange> for Failed {
    fn from(_: OutOfRange) -> Self {
        Self::Transfer(Ocs::InvalidPrdtAttributes)
    }
}

#[inline]
fn copy(
    parts: Parts<'_>,
    to_host: bool,
    mut one: impl FnMut(u64, (&DmaRegion, usize), usize) -> Result<(), StoreError>,
) -> Result<(), Failed> {
    let memory = parts.memory;
    for part in parts {
        let Part { address, done, len } = part.map_err(Failed::Transfer)?;
        memory.pieces((address, len), to_host, |region, at, place| {
            one(done + place.start as u64, (region, at), place.len()).map_err(Failed::from)
        })?;
    }
    Ok(())
}
