//! Copy (NVM command set 3.2.2): the device reads ranges of a namespace and writes them in one
//! piece.
//!
//! The list is read once, when the firmware takes the command up. The data is read from the medium
//! and lies in the write buffer as that of a write does; nothing of it crosses the link.

use alloc::vec::Vec;

use flysch_wire::nvme::command::{CopyFlags, CopySource};
use flysch_wire::nvme::{Sqe, Status};

use super::Nvme;
use super::clock::Event;
use super::flow::refusal;
use super::io::{Extent, blocks};
use super::namespace::WriteProtect;
use super::task::{TaskRef, Work};
use super::transfer::{Parts, gather};
use crate::media::Span;

/// Most sources of a command (MSRC and one), blocks of one (MSSRL) and of all (MCL).
pub(super) const SOURCES_MAX: u8 = 128;
pub(super) const SOURCE_BLOCKS: u16 = 256;
pub(super) const COPY_BLOCKS: u32 = 256;
/// Bytes that are copied in one go.
const STEP: usize = 4096;

/// A copy that was taken up.
#[derive(Debug)]
pub(super) struct Copying {
    of: TaskRef,
    /// Ranges of the namespace, bytes.
    sources: Vec<(u64, u64)>,
}

impl Nvme {
    /// The firmware takes up a copy: reads its list and the medium.
    pub(super) fn begin_copy(&mut self, name: TaskRef) {
        let command = self.tasks.get(name.index).command;
        match self.plan_copy(&command) {
            Ok((work, sources)) => {
                let ready = self.read_sources(&command, &sources);
                self.tasks.get_mut(name.index).work = work;
                self.copies.retain(|copying| self.tasks.is_current(copying.of));
                self.copies.push(Copying { of: name, sources });
                self.clock.at(ready, Event::Ready(name));
            }
            Err(status) => {
                self.tasks.get_mut(name.index).work = Work::Status(refusal(status));
                let end = self.media.answer(self.clock.nanos());
                self.clock.at(end, Event::Complete(name));
            }
        }
    }

    /// When all sources were read.
    fn read_sources(&mut self, command: &Sqe, sources: &[(u64, u64)]) -> u64 {
        let now = self.clock.nanos();
        let Some(space) = self.device.index(command.nsid).and_then(|n| self.device.space(n)) else {
            return now;
        };
        let (base, limit) = (space.base(), space.base() + space.size);
        let mut ready = now;
        for (offset, len) in sources {
            let span = Span { address: base + offset, len: *len, limit };
            ready = ready.max(self.media.read(span, now).last);
        }
        ready
    }

    /// What a copy is: its target and its sources.
    fn plan_copy(&mut self, command: &Sqe) -> Result<(Work, Vec<(u64, u64)>), Status> {
        let flags = CopyFlags::from_bits(command.cdw10[2]);
        if flags.desfmt() != 0 || flags.prinfor() != 0 {
            return Err(Status::InvalidField);
        }
        let count = usize::from(flags.nr()) + 1;
        if count > SOURCES_MAX.into() {
            return Err(Status::CommandSize);
        }
        let number = self.namespace_of(command.nsid)?;
        let mut list = [0; SOURCES_MAX as usize * CopySource::LENGTH];
        let list = &mut list[..count * CopySource::LENGTH];
        let sizes = (self.registers.page, list.len() as u64);
        gather(Parts::new(&self.memory, command, sizes, false), list)?;
        let space = self.device.space_mut(number).ok_or(Status::InvalidNamespace)?;
        if space.protect != WriteProtect::None {
            return Err(Status::WriteProtected);
        }
        let (mut sources, mut total) = (Vec::with_capacity(count), 0);
        for bytes in list.as_chunks::<{ CopySource::LENGTH }>().0 {
            let Ok(source) = CopySource::parse(bytes) else { return Err(Status::InvalidField) };
            let len = u64::from(source.nlb) + 1;
            total += len;
            if len > SOURCE_BLOCKS.into() || total > COPY_BLOCKS.into() {
                return Err(Status::CommandSize);
            }
            let Extent { offset, len } = blocks(space, source.slba, len)?;
            if space.marks.has(offset, len) {
                return Err(Status::UnrecoveredRead);
            }
            sources.push((offset, len));
        }
        let target = blocks(space, command.slba(), total)?;
        let overlaps = |(offset, len): &(u64, u64)| {
            *offset < target.offset + target.len && target.offset < offset + len
        };
        if sources.iter().any(overlaps) {
            return Err(Status::Overlap);
        }
        if let Some(zones) = &mut space.zones {
            zones.write(command.slba(), total, false)?;
        }
        let Extent { offset, len } = target;
        let (len, force) = (len as u32, flags.fua());
        Ok((Work::Copy { space: number, offset, len, force }, sources))
    }

    /// What was read goes into the write buffer, when there is room.
    pub(super) fn buffer_copy(&mut self, name: TaskRef, len: u32) {
        if !self.writes.is_empty() || !self.media.admit(u64::from(len)) {
            self.writes.push_back(name);
            self.program();
        } else {
            self.clock.after(0, Event::Arrived(name, len));
        }
    }

    /// The data is in the write buffer and goes into the store.
    pub(super) fn complete_copy(&mut self, name: TaskRef) {
        let Work::Copy { space: number, offset, len, force } = self.tasks.get(name.index).work
        else {
            return;
        };
        let found = self.copies.iter().position(|copying| copying.of == name);
        let sources = found.map(|at| self.copies.swap_remove(at).sources).unwrap_or_default();
        let bytes = u64::from(len);
        let mark = self.media.arrived_total();
        let device = &mut self.device;
        let Some(Some(space)) = device.spaces.get_mut(usize::from(number)) else {
            return self.finish(name.index, refusal(Status::InvalidNamespace), 0);
        };
        let mut done = Ok(());
        if device.cache.is_enabled() {
            let of = (number, space.shift);
            done = device.cache.keep(of, &mut space.store, (offset, bytes), mark);
        }
        let (mut buffer, mut at) = ([0; STEP], offset);
        for (from, len) in sources {
            for step in (0..len).step_by(STEP) {
                let piece = &mut buffer[..STEP.min((len - step) as usize)];
                done = done
                    .and_then(|()| space.store.get(from + step, piece))
                    .and_then(|()| space.store.put(at, piece));
                at += piece.len() as u64;
            }
        }
        space.marks.remove(offset, bytes);
        device.health.wrote(len);
        let force = force || !device.features.write_cache();
        match done {
            Ok(()) if force => {
                self.tasks.get_mut(name.index).work = Work::Settle;
                self.wait_for_medium(name);
            }
            Ok(()) => self.finish(name.index, 0, 0),
            Err(error) if error.is_full() => {
                self.finish(name.index, refusal(Status::CapacityExceeded), 0);
            }
            Err(_) => {
                let status = self.media_error(Status::WriteFault);
                self.finish(name.index, status, 0);
            }
        }
    }
}
