//! Copy (NVM command set 3.2.2): the device reads ranges of a namespace and writes them
//! contiguously.
//!
//! The list is read once, when the firmware takes up the command. The data is read from the medium
//! and enters the write buffer as that of a write does; none of it crosses the link.

use alloc::vec::Vec;

use flysch_wire::nvme::Status;
use flysch_wire::nvme::command::{CopyFlags, CopySource};

use super::namespace::{Extent, WriteProtect};
use super::spaces::Namespaces;
use super::task::{TaskRef, Tasks, Work};
use super::transfer::Request;

/// Maximum number of sources of a command (MSRC plus one), blocks of one (MSSRL) and of all (MCL).
pub(super) const SOURCES_MAX: u8 = 128;
pub(super) const SOURCE_BLOCKS: u16 = 256;
pub(super) const COPY_BLOCKS: u32 = 256;

/// Ranges of a namespace to copy, offset and length in bytes.
pub(super) type Sources = Vec<(u64, u64)>;

/// The copies in progress, and their sources.
#[derive(Debug, Default)]
pub(super) struct Copies(Vec<(TaskRef, Sources)>);

impl Copies {
    /// A copy is taken up; those of `tasks` that have ended meanwhile are forgotten.
    pub(super) fn begin(&mut self, of: TaskRef, sources: Sources, tasks: &Tasks) {
        self.0.retain(|(name, _)| tasks.is_current(*name));
        self.0.push((of, sources));
    }

    /// A copy ends: returns its sources.
    pub(super) fn take(&mut self, of: TaskRef) -> Sources {
        let found = self.0.iter().position(|(name, _)| *name == of);
        found.map(|at| self.0.swap_remove(at).1).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Namespaces {
    /// The target and the sources of a copy.
    pub(super) fn plan_copy(&mut self, request: &Request<'_>) -> Result<(Work, Sources), Status> {
        let command = request.command;
        let flags = CopyFlags::from_bits(command.cdw10[2]);
        if flags.desfmt() != 0 || flags.prinfor() != 0 {
            return Err(Status::InvalidField);
        }
        let count = usize::from(flags.nr()) + 1;
        if count > SOURCES_MAX.into() {
            return Err(Status::CommandSize);
        }
        let number = self.attached(command.nsid)?.index();
        let mut list = [0; SOURCES_MAX as usize * CopySource::LENGTH];
        let list = &mut list[..count * CopySource::LENGTH];
        request.take(list)?;
        let space = self.get_mut(number).ok_or(Status::InvalidNamespace)?;
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
            let Extent { offset, len } = space.extent(source.slba, len)?;
            if space.marks.has(offset, len) {
                return Err(Status::UnrecoveredRead);
            }
            sources.push((offset, len));
        }
        let target = space.extent(command.slba(), total)?;
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
}
