//! The namespaces of a device, and what a power loss would destroy in them.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::command::{DSM_DEALLOCATE, DSM_RANGE, DsmRange};
use flysch_wire::nvme::identify::{ALL_NAMESPACES, IdentifyNamespace, LENGTH};
use flysch_wire::nvme::zone::ZoneAction;
use flysch_wire::nvme::{NvmOpcode, Sqe, Status};

use super::config::{Config, NAMESPACES_MAX, NamespaceConfig};
use super::identify::CONTROLLER;
use super::namespace::{Extent, FORMATS, Namespace};
use super::reservation::HostName;
use super::task::Work;
use super::transfer::Request;
use super::zone::Zones;
use crate::faults::Injector;
use crate::media::cache::{Cache, Loss, Units};
use crate::store::{LENGTH_MAX, Store, StoreError};

/// Number of 16-bit words in a controller list.
const CONTROLLERS: usize = LENGTH / 2;

/// The namespaces, by index: the id minus one.
#[derive(Debug)]
pub(super) struct Namespaces {
    spaces: Vec<Option<Namespace>>,
    /// Capacity of the device, bytes.
    pub(super) capacity: u64,
    /// Whether any of them has zones.
    pub(super) has_zones: bool,
    /// Ids of the namespaces that have changed since the log was read.
    pub(super) changed: Vec<u32>,
    cache: Cache,
    seed: u64,
}

impl Namespaces {
    pub(super) fn new(config: Config) -> Self {
        let taken: u64 = config.namespaces.iter().map(|space| space.size).sum();
        let has_zones = config.namespaces.iter().any(|space| space.zones.is_some());
        let seed = config.seed;
        let mut spaces: Vec<Option<Namespace>> = (1..)
            .zip(config.namespaces)
            .map(|(id, of)| Some(Namespace::new(id, of, seed)))
            .collect();
        spaces.resize_with(NAMESPACES_MAX, || None);
        Self {
            spaces,
            capacity: config.capacity.max(taken),
            has_zones,
            changed: Vec::new(),
            cache: Cache::new(config.volatile_cache || config.faults.cuts_power()),
            seed,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.spaces.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Namespace> {
        self.spaces.iter_mut().flatten()
    }

    /// The index of a namespace by its id, attached or not.
    #[inline]
    pub(super) fn index(&self, id: u32) -> Option<u8> {
        let index = id.checked_sub(1)?;
        self.spaces.get(index as usize)?.as_ref().map(|_| index as u8)
    }

    #[inline]
    pub(super) fn get(&self, index: u8) -> Option<&Namespace> {
        self.spaces.get(usize::from(index))?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u8) -> Option<&mut Namespace> {
        self.spaces.get_mut(usize::from(index))?.as_mut()
    }

    /// The attached namespace with this id.
    #[inline]
    pub(super) fn attached(&self, id: u32) -> Result<&Namespace, Status> {
        if id == 0 || id as usize > self.spaces.len() {
            return Err(Status::InvalidNamespace);
        }
        let space = self.get((id - 1) as u8).ok_or(Status::InvalidField)?;
        if space.is_attached { Ok(space) } else { Err(Status::InvalidField) }
    }

    /// As [`attached`](Self::attached), mutable.
    pub(super) fn attached_mut(&mut self, id: u32) -> Result<&mut Namespace, Status> {
        let index = self.attached(id)?.index();
        self.get_mut(index).ok_or(Status::InvalidNamespace)
    }

    /// Capacity not allocated to any namespace, bytes.
    pub(super) fn unallocated(&self) -> u64 {
        let taken: u64 = self.iter().map(|space| space.size).sum();
        self.capacity.saturating_sub(taken)
    }

    /// Enters a changed namespace in the log.
    pub(super) fn note_change(&mut self, id: u32) {
        if id != ALL_NAMESPACES && !self.changed.contains(&id) {
            self.changed.push(id);
        }
    }

    /// A controller reset.
    pub(super) fn reset(&mut self) {
        self.iter_mut().for_each(Namespace::reset);
    }

    /// Namespace Management, create: returns the id of the new namespace.
    pub(super) fn create(&mut self, request: &Request<'_>) -> Result<u32, Status> {
        let mut data = [0; LENGTH];
        request.take(&mut data)?;
        let Ok(wanted) = IdentifyNamespace::parse(&data) else { return Err(Status::InvalidField) };
        let format = FORMATS.get(usize::from(wanted.format_in_use())).ok_or(Status::Format)?;
        if wanted.dps != 0 || wanted.nmic > 1 {
            return Err(Status::InvalidField);
        }
        if wanted.ncap != wanted.nsze {
            return Err(Status::ThinProvisioning);
        }
        let size = wanted.nsze.checked_shl(format.shift.into()).filter(|_| wanted.nsze < 1 << 48);
        let size = size.filter(|size| (1..=LENGTH_MAX).contains(size));
        let size = size.ok_or(Status::InvalidField)?.next_multiple_of(4096);
        if size > self.unallocated() {
            return Err(Status::NamespaceCapacity);
        }
        let free = self.spaces.iter().position(Option::is_none);
        let index = free.filter(|index| *index < NAMESPACES_MAX);
        let index = index.ok_or(Status::NamespaceIdUnavailable)?;
        let id = index as u32 + 1;
        let block_size = 1 << format.shift;
        let config = NamespaceConfig { block_size, ..NamespaceConfig::memory(size) };
        let created = Namespace::new(id, config, self.seed);
        self.spaces[index] = Some(Namespace { is_attached: false, ..created });
        Ok(id)
    }

    /// The indices that `id` refers to, which may be the broadcast id.
    pub(super) fn meant(&self, id: u32) -> Result<Vec<u8>, Status> {
        match id {
            ALL_NAMESPACES => Ok((0..NAMESPACES_MAX as u8).collect()),
            id => Ok(vec![self.index(id).ok_or(Status::InvalidNamespace)?]),
        }
    }

    /// Namespace Management, delete: returns the id of the namespace if it was attached.
    pub(super) fn delete(&mut self, index: u8) -> Option<u32> {
        let space = self.spaces[usize::from(index)].take()?;
        self.cache.discarded(index, 0, space.size);
        space.is_attached.then_some(space.id)
    }

    /// Namespace Attachment: to this controller, the only one.
    pub(super) fn attach(&mut self, request: &Request<'_>) -> Result<(), Status> {
        let mut data = [0; LENGTH];
        request.take(&mut data)?;
        let (list, _) = data.as_chunks::<2>();
        let count = usize::from(u16::from_le_bytes(list[0]));
        let ours = (1..CONTROLLERS).contains(&count)
            && list[1..=count].iter().all(|id| u16::from_le_bytes(*id) == CONTROLLER);
        if !ours {
            return Err(Status::ControllerList);
        }
        let index = self.index(request.command.nsid).ok_or(Status::InvalidNamespace)?;
        let space = self.get_mut(index).ok_or(Status::InvalidNamespace)?;
        match (request.command.cdw10[0] & 0xF, space.is_attached) {
            (0, true) => return Err(Status::AlreadyAttached),
            (1, false) => return Err(Status::NotAttached),
            (0, false) => space.is_attached = true,
            (1, true) => space.is_attached = false,
            _ => return Err(Status::InvalidField),
        }
        Ok(())
    }

    /// Attaches or detaches a namespace; returns whether that changed anything.
    pub(super) fn set_attached(&mut self, id: u32, is_attached: bool) -> bool {
        let index = self.index(id);
        let Some(space) = index.and_then(|index| self.get_mut(index)) else { return false };
        core::mem::replace(&mut space.is_attached, is_attached) != is_attached
    }

    /// Carries out a command of `host` that moves no data on the medium.
    pub(super) fn carry_out(
        &mut self,
        request: &Request<'_>,
        host: &HostName,
    ) -> Result<(), Status> {
        let command = request.command;
        match NvmOpcode::from_bits(command.opcode) {
            NvmOpcode::WriteZeroes => {
                let space = self.attached(command.nsid)?;
                let (number, extent) = (space.index(), space.extent_of(command)?);
                self.discard(number, extent)
            }
            NvmOpcode::WriteUncorrectable => {
                self.attached_mut(command.nsid)?.mark_unreadable(command)
            }
            NvmOpcode::DatasetManagement => self.manage_dataset(request),
            NvmOpcode::ReservationRegister
            | NvmOpcode::ReservationReport
            | NvmOpcode::ReservationAcquire
            | NvmOpcode::ReservationRelease => {
                self.attached_mut(command.nsid)?.reservation.carry_out(request, host)
            }
            NvmOpcode::ZoneSend => self.manage_zones(command),
            NvmOpcode::ZoneReceive => {
                let space = self.attached(command.nsid)?;
                let zones = space.zones.as_ref().ok_or(Status::InvalidOpcode)?;
                zones.give_report(request, space.blocks())
            }
            _ => Err(Status::InvalidOpcode),
        }
    }

    /// Deallocates ranges, after all of them have been checked.
    fn manage_dataset(&mut self, request: &Request<'_>) -> Result<(), Status> {
        let command = request.command;
        let number = self.attached(command.nsid)?.index();
        let count = (command.cdw10[0] & 0xFF) as usize + 1;
        let mut bytes = [0; 256 * DSM_RANGE];
        let list = &mut bytes[..count * DSM_RANGE];
        request.take(list)?;
        if command.cdw10[1] & DSM_DEALLOCATE == 0 {
            return Ok(());
        }
        let space = self.get(number).ok_or(Status::InvalidNamespace)?;
        let (list, _) = list.as_chunks::<DSM_RANGE>();
        let extent = |space: &Namespace, bytes: &[u8; DSM_RANGE]| {
            let range = DsmRange::parse(bytes);
            space.extent(range.slba, range.blocks.into())
        };
        list.iter().try_for_each(|range| extent(space, range).map(|_| ()))?;
        for range in list {
            let space = self.get(number).ok_or(Status::InvalidNamespace)?;
            let extent = extent(space, range)?;
            self.discard(number, extent)?;
        }
        Ok(())
    }

    /// Zone Management Send.
    fn manage_zones(&mut self, command: &Sqe) -> Result<(), Status> {
        let space = self.attached(command.nsid)?;
        let (number, action) = (space.index(), ZoneAction::from_bits(command.cdw10[3] as u8));
        let zones = space.zones.as_ref().ok_or(Status::InvalidOpcode)?;
        let (meant, len) = (zones.meant(command)?, zones.blocks << space.shift);
        for index in meant {
            let zones = self.zones_mut(number).ok_or(Status::InvalidOpcode)?;
            if zones.manage(action, index)? {
                self.discard(number, Extent { offset: index as u64 * len, len })?;
            }
        }
        Ok(())
    }

    fn zones_mut(&mut self, index: u8) -> Option<&mut Zones> {
        self.get_mut(index)?.zones.as_mut()
    }

    /// Places a write to a zoned namespace: returns the resulting work, and the block that is
    /// reported to the host.
    pub(super) fn place(&mut self, command: &Sqe, work: Work) -> Result<(Work, u64), Status> {
        let opcode = NvmOpcode::from_bits(command.opcode);
        let (number, count) = match work {
            Work::Write { space, len, .. } => (space, len),
            Work::Control
                if matches!(opcode, NvmOpcode::WriteZeroes | NvmOpcode::WriteUncorrectable) =>
            {
                (self.attached(command.nsid)?.index(), 0)
            }
            work => return Ok((work, 0)),
        };
        let Some(space) = self.get_mut(number) else { return Ok((work, 0)) };
        let shift = space.shift;
        let Some(zones) = &mut space.zones else { return Ok((work, 0)) };
        let count = match count {
            0 => u64::from(command.cdw10[2] & 0xFFFF) + 1,
            bytes => u64::from(bytes) >> shift,
        };
        let appends = opcode == NvmOpcode::ZoneAppend;
        let first = zones.write(command.slba(), count, appends)?;
        let placed = match work {
            Work::Write { space, len, force, .. } => {
                Work::Write { space, offset: first << shift, len, force }
            }
            work => work,
        };
        Ok((placed, if appends { first } else { 0 }))
    }

    /// Makes a range of bytes read as zeros from now on, even after a power loss.
    fn discard(&mut self, number: u8, Extent { offset, len }: Extent) -> Result<(), Status> {
        let space = self.spaces[usize::from(number)].as_mut().ok_or(Status::InvalidNamespace)?;
        space.marks.remove(offset, len);
        let discarded = space.store.discard(offset, len);
        self.cache.discarded(number, offset, len);
        discarded.map_err(|_| Status::WriteFault)
    }

    /// Erases a namespace; its block size becomes that of `format`, if there is one.
    pub(super) fn erase(&mut self, index: u8, format: Option<u8>) {
        let Some(Some(space)) = self.spaces.get_mut(usize::from(index)) else { return };
        self.cache.discarded(index, 0, space.size);
        let format = format.unwrap_or(space.format);
        space.erase(format);
        space.is_formatting = false;
    }

    /// The namespace for a write to `extent`. The old content is kept first, if a power loss is to
    /// restore it, until `mark` bytes have been programmed.
    #[inline]
    pub(super) fn prepare_write(
        &mut self,
        number: u8,
        Extent { offset, len }: Extent,
        mark: u64,
    ) -> Result<(&mut Namespace, Result<(), StoreError>), Status> {
        let Some(Some(space)) = self.spaces.get_mut(usize::from(number)) else {
            return Err(Status::InvalidNamespace);
        };
        let mut kept = Ok(());
        if self.cache.is_enabled() {
            let of = (number, space.shift);
            kept = self.cache.keep(of, &mut space.store, (offset, len), mark);
        }
        Ok((space, kept))
    }

    /// This many bytes have been programmed so far: a power loss no longer affects them.
    pub(super) fn programmed(&mut self, total: u64) {
        self.cache.programmed(total);
    }

    /// Flushes everything to this machine's stable storage.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        let mut flushed = Ok(());
        for space in self.iter_mut() {
            flushed = flushed.and(space.store.flush());
        }
        flushed
    }

    /// Power is lost: decides the fate of what is not on the medium.
    pub(super) fn lose(&mut self, faults: &mut Injector) -> Result<Loss, StoreError> {
        self.cache.lose(&mut self.spaces, faults)
    }
}

impl Units for Vec<Option<Namespace>> {
    fn unit(&mut self, number: u8) -> Option<(&mut Store, bool)> {
        let space = self.get_mut(usize::from(number))?.as_mut()?;
        Some((&mut space.store, false))
    }
}
