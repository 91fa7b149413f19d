//! Zones (Zoned Namespace Command Set 1.1): each is written from its start to its end.
//!
//! A write moves the write pointer when the device takes it up, so that the next one may already be
//! on its way; a write that fails or is aborted later leaves blocks that read as zeros.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::zone::{
    PARTIAL_REPORT, REPORT_HEADER, SELECT_ALL, ZoneAction, ZoneDescriptor, ZoneState,
};
use flysch_wire::nvme::{Sqe, Status};

use super::transfer::Request;

/// A zone.
#[derive(Clone, Copy, Debug)]
struct Zone {
    state: ZoneState,
    /// Number of blocks from its start to its write pointer.
    written: u64,
}

impl Zone {
    fn is_open(&self) -> bool {
        matches!(self.state, ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened)
    }

    fn is_active(&self) -> bool {
        self.is_open() || self.state == ZoneState::Closed
    }
}

/// The zones of a namespace.
#[derive(Debug)]
pub(super) struct Zones {
    /// Number of blocks of a zone, all of which can be written.
    pub(super) blocks: u64,
    pub(super) open_max: u32,
    pub(super) active_max: u32,
    zones: Vec<Zone>,
}

impl Zones {
    /// Empty zones of `blocks` blocks each.
    pub(super) fn new(blocks: u64, total: u64, (open_max, active_max): (u32, u32)) -> Self {
        let zone = Zone { state: ZoneState::Empty, written: 0 };
        let zones = vec![zone; (total / blocks) as usize];
        Self { blocks, open_max, active_max, zones }
    }

    /// The zone that starts at `slba`.
    fn at(&self, slba: u64) -> Result<usize, Status> {
        let index = slba / self.blocks;
        match slba.is_multiple_of(self.blocks) && index < self.zones.len() as u64 {
            true => Ok(index as usize),
            false => Err(Status::InvalidField),
        }
    }

    fn open_count(&self) -> u32 {
        self.zones.iter().filter(|zone| zone.is_open()).count() as u32
    }

    /// Makes room among the active and open zones for a write to a zone. A zone that was opened by
    /// a write is closed for it.
    fn make_room(&mut self, index: usize) -> Result<(), Status> {
        let zone = self.zones[index];
        let active = self.zones.iter().filter(|zone| zone.is_active()).count() as u32;
        if self.active_max != 0 && !zone.is_active() && active >= self.active_max {
            return Err(Status::ZoneTooManyActive);
        }
        if self.open_max == 0 || zone.is_open() || self.open_count() < self.open_max {
            return Ok(());
        }
        let mut others = self.zones.iter_mut();
        let implicit = others.find(|zone| zone.state == ZoneState::ImplicitlyOpened);
        implicit.ok_or(Status::ZoneTooManyOpen)?.state = ZoneState::Closed;
        Ok(())
    }

    /// Places a write of `count` blocks: returns its first block.
    pub(super) fn write(&mut self, slba: u64, count: u64, appends: bool) -> Result<u64, Status> {
        let index = match appends {
            true => self.at(slba)?,
            false => (slba / self.blocks) as usize,
        };
        let zone = self.zones.get(index).ok_or(Status::LbaRange)?;
        match zone.state {
            ZoneState::Full => return Err(Status::ZoneFull),
            ZoneState::ReadOnly => return Err(Status::ZoneReadOnly),
            ZoneState::Offline => return Err(Status::ZoneOffline),
            _ => {}
        }
        let start = index as u64 * self.blocks;
        let first = start + zone.written;
        let inside = if appends { zone.written } else { slba - start };
        if count > self.blocks - inside {
            return Err(Status::ZoneBoundary);
        }
        if !appends && slba != first {
            return Err(Status::ZoneInvalidWrite);
        }
        self.make_room(index)?;
        let zone = &mut self.zones[index];
        zone.written += count;
        if zone.written == self.blocks {
            zone.state = ZoneState::Full;
        } else if !zone.is_open() {
            zone.state = ZoneState::ImplicitlyOpened;
        }
        Ok(first)
    }

    /// Carries out an action on one zone; returns whether its content is gone.
    pub(super) fn manage(&mut self, action: ZoneAction, index: usize) -> Result<bool, Status> {
        use ZoneState::{
            Closed, Empty, ExplicitlyOpened, Full, ImplicitlyOpened, Offline, ReadOnly,
        };
        let state = self.zones[index].state;
        let next = match (action, state) {
            (ZoneAction::Close, ImplicitlyOpened | ExplicitlyOpened | Closed) => {
                // A zone that was opened and never written has nothing to resume.
                if self.zones[index].written == 0 { Empty } else { Closed }
            }
            (ZoneAction::Finish, Empty | Closed) => {
                self.make_room(index)?;
                Full
            }
            (ZoneAction::Finish, ImplicitlyOpened | ExplicitlyOpened | Full) => Full,
            (ZoneAction::Open, Empty | Closed) => {
                self.make_room(index)?;
                ExplicitlyOpened
            }
            (ZoneAction::Open, ImplicitlyOpened | ExplicitlyOpened) => ExplicitlyOpened,
            (ZoneAction::Reset, Empty | ImplicitlyOpened | ExplicitlyOpened | Closed | Full) => {
                Empty
            }
            (ZoneAction::Offline, ReadOnly | Offline) => Offline,
            _ => return Err(Status::ZoneTransition),
        };
        let zone = &mut self.zones[index];
        let was = core::mem::replace(&mut zone.state, next);
        match action {
            ZoneAction::Finish => zone.written = self.blocks,
            ZoneAction::Reset => zone.written = 0,
            _ => {}
        }
        Ok(action == ZoneAction::Reset && was != Empty)
    }

    /// The zones that a management command refers to: the one that it names, or all those whose
    /// state its action leads out of.
    pub(super) fn meant(&self, command: &Sqe) -> Result<Vec<usize>, Status> {
        let action = ZoneAction::from_bits(command.cdw10[3] as u8);
        if matches!(action, ZoneAction::Unknown(_)) {
            return Err(Status::InvalidField);
        }
        if command.cdw10[3] & SELECT_ALL == 0 {
            return Ok(vec![self.at(command.slba())?]);
        }
        let applies = |state: ZoneState| match action {
            ZoneAction::Close => {
                matches!(state, ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened)
            }
            ZoneAction::Finish => matches!(
                state,
                ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed
            ),
            ZoneAction::Open => state == ZoneState::Closed,
            ZoneAction::Reset => matches!(
                state,
                ZoneState::ImplicitlyOpened
                    | ZoneState::ExplicitlyOpened
                    | ZoneState::Closed
                    | ZoneState::Full
            ),
            _ => state == ZoneState::ReadOnly,
        };
        let zones = self.zones.iter().enumerate();
        Ok(zones.filter(|(_, zone)| applies(zone.state)).map(|(index, _)| index).collect())
    }

    /// Zone Management Receive, in a namespace of `blocks` blocks.
    pub(super) fn give_report(&self, request: &Request<'_>, blocks: u64) -> Result<(), Status> {
        let command = request.command;
        let bytes = (u64::from(command.cdw10[2]) + 1) * 4;
        if bytes > request.longest.into() {
            return Err(Status::InvalidField);
        }
        if command.slba() >= blocks {
            return Err(Status::LbaRange);
        }
        request.give(&self.report(command.slba(), command.cdw10[3], bytes as usize)?)
    }

    /// A report of `bytes` bytes: the zones from that of `slba` on that are in the requested state.
    fn report(&self, slba: u64, cdw13: u32, bytes: usize) -> Result<Vec<u8>, Status> {
        let wanted = match cdw13 >> 8 & 0xFF {
            0 => None,
            1 => Some(ZoneState::Empty),
            2 => Some(ZoneState::ImplicitlyOpened),
            3 => Some(ZoneState::ExplicitlyOpened),
            4 => Some(ZoneState::Closed),
            5 => Some(ZoneState::Full),
            6 => Some(ZoneState::ReadOnly),
            7 => Some(ZoneState::Offline),
            _ => return Err(Status::InvalidField),
        };
        // Zone descriptor extensions are not supported.
        if cdw13 & 0xFF != 0 || bytes < REPORT_HEADER {
            return Err(Status::InvalidField);
        }
        let first = (slba / self.blocks) as usize;
        let zones = self.zones.iter().enumerate().skip(first);
        let meant = zones.filter(|(_, zone)| wanted.is_none_or(|state| state == zone.state));
        let room = (bytes - REPORT_HEADER) / ZoneDescriptor::LENGTH;
        let (mut data, mut count) = (vec![0; REPORT_HEADER], 0_u64);
        for (index, zone) in meant {
            if (count as usize) < room {
                let zslba = index as u64 * self.blocks;
                let descriptor = ZoneDescriptor {
                    zt: ZoneDescriptor::SEQUENTIAL,
                    zs: zone.state.into_bits() << 4,
                    zcap: self.blocks,
                    zslba,
                    // A full zone has none.
                    wp: if zone.state == ZoneState::Full { u64::MAX } else { zslba + zone.written },
                    ..ZoneDescriptor::default()
                };
                data.extend(descriptor.to_bytes());
            } else if cdw13 & PARTIAL_REPORT != 0 {
                break;
            }
            count += 1;
        }
        data[..8].copy_from_slice(&count.to_le_bytes());
        data.resize(bytes, 0);
        Ok(data)
    }

    /// A controller reset: open zones are closed.
    pub(super) fn reset(&mut self) {
        for index in 0..self.zones.len() {
            if self.zones[index].is_open() {
                // Open zones can be closed.
                let _ = self.manage(ZoneAction::Close, index);
            }
        }
    }

    /// Everything is gone; zones have `blocks` blocks from now on.
    pub(super) fn erase(&mut self, blocks: u64) {
        self.blocks = blocks;
        self.zones.fill(Zone { state: ZoneState::Empty, written: 0 });
    }
}
