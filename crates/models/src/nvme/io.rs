//! The NVM command set: what a command to a namespace means.

use flysch_wire::nvme::command::{DSM_DEALLOCATE, DSM_RANGE, DsmRange, TransferFlags};
use flysch_wire::nvme::identify::ALL_NAMESPACES;
use flysch_wire::nvme::{NvmOpcode, Sqe, Status};

use super::Nvme;
use super::flow::refusal;
use super::namespace::{Namespace, WriteProtect};
use super::task::{Purpose, Work};
use super::transfer::{Parts, gather};

/// Blocks that a command names, as bytes of its namespace.
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The blocks of a transfer, if they are in the namespace.
#[inline]
fn extent(space: &Namespace, command: &Sqe) -> Result<Extent, Status> {
    let flags = TransferFlags::from_bits(command.cdw10[2]);
    blocks(space, command.slba(), u64::from(flags.nlb()) + 1)
}

#[inline]
pub(super) fn blocks(space: &Namespace, first: u64, count: u64) -> Result<Extent, Status> {
    if first > space.blocks() || count > space.blocks() - first {
        return Err(Status::LbaRange);
    }
    Ok(Extent { offset: first << space.shift, len: count << space.shift })
}

impl Nvme {
    /// What becomes of a command to a namespace.
    #[inline]
    pub(super) fn decide(&mut self, index: u16) -> Work {
        self.work_of(index).unwrap_or_else(|status| Work::Status(refusal(status)))
    }

    #[inline]
    fn work_of(&self, index: u16) -> Result<Work, Status> {
        let command = &self.tasks.get(index).command;
        let opcode = NvmOpcode::from_bits(command.opcode);
        if command.flags.fuse() != 0 || command.flags.psdt() > if self.setup.sgls { 2 } else { 0 } {
            return Err(Status::InvalidField);
        }
        if self.device.sanitized.is_under_way() {
            return Err(Status::SanitizeInProgress);
        }
        if opcode == NvmOpcode::Flush && command.nsid == ALL_NAMESPACES {
            return Ok(Work::Flush);
        }
        let number = self.namespace_of(command.nsid)?;
        let Some(space) = self.device.space(number) else { return Err(Status::InvalidNamespace) };
        if space.is_formatting {
            return Err(Status::FormatInProgress);
        }
        let changes = matches!(
            opcode,
            NvmOpcode::Write
                | NvmOpcode::WriteZeroes
                | NvmOpcode::WriteUncorrectable
                | NvmOpcode::DatasetManagement
                | NvmOpcode::ZoneAppend
                | NvmOpcode::ZoneSend
        );
        if changes && space.protect != WriteProtect::None {
            return Err(Status::WriteProtected);
        }
        if !space.reservation.allows(&self.device.features.host_id, opcode) {
            return Err(Status::ReservationConflict);
        }
        let read = |purpose| self.read_work((number, space), command, purpose);
        match opcode {
            NvmOpcode::Read => read(Purpose::Read),
            NvmOpcode::Compare => read(Purpose::Compare),
            NvmOpcode::Verify => read(Purpose::Verify),
            NvmOpcode::Write => self.write_work((number, space), command),
            NvmOpcode::ZoneAppend if space.zones.is_some() => {
                self.write_work((number, space), command)
            }
            NvmOpcode::ZoneSend | NvmOpcode::ZoneReceive if space.zones.is_some() => {
                Ok(Work::Control)
            }
            NvmOpcode::Copy => Ok(Work::Copy { space: number, offset: 0, len: 0, force: false }),
            NvmOpcode::ReservationRegister
            | NvmOpcode::ReservationReport
            | NvmOpcode::ReservationAcquire
            | NvmOpcode::ReservationRelease => Ok(Work::Control),
            NvmOpcode::Flush => Ok(Work::Flush),
            NvmOpcode::WriteZeroes | NvmOpcode::WriteUncorrectable => {
                extent(space, command).map(|_| Work::Control)
            }
            NvmOpcode::DatasetManagement => Ok(Work::Control),
            _ => Err(Status::InvalidOpcode),
        }
    }

    #[inline]
    fn write_work(&self, (number, space): (u8, &Namespace), command: &Sqe) -> Result<Work, Status> {
        let Extent { offset, len } = extent(space, command)?;
        let force = TransferFlags::from_bits(command.cdw10[2]).fua();
        let len = self.transfer_length(len)?;
        Ok(Work::Write { space: number, offset, len, force })
    }

    #[inline]
    fn read_work(
        &self,
        (number, space): (u8, &Namespace),
        command: &Sqe,
        purpose: Purpose,
    ) -> Result<Work, Status> {
        let Extent { offset, len } = extent(space, command)?;
        if space.marks.has(offset, len) {
            return Err(Status::UnrecoveredRead);
        }
        let len = match purpose {
            // Nothing crosses the link, so the longest transfer does not matter.
            Purpose::Verify => u32::try_from(len).map_err(|_| Status::InvalidField)?,
            _ => self.transfer_length(len)?,
        };
        Ok(Work::Read { space: number, offset, len, purpose })
    }

    /// A length that one command may transfer.
    #[inline]
    fn transfer_length(&self, len: u64) -> Result<u32, Status> {
        match u32::try_from(len) {
            Ok(len) if len <= self.setup.transfer_max => Ok(len),
            _ => Err(Status::InvalidField),
        }
    }

    /// The attached namespace of this id.
    #[inline]
    pub(super) fn namespace_of(&self, id: u32) -> Result<u8, Status> {
        if id == 0 || id as usize > self.device.spaces.len() {
            return Err(Status::InvalidNamespace);
        }
        let index = self.device.index(id).ok_or(Status::InvalidField)?;
        let attached = self.device.space(index).is_some_and(|space| space.is_attached);
        if attached { Ok(index) } else { Err(Status::InvalidField) }
    }

    /// Carries out a command without data on the medium.
    pub(super) fn carry_out(&mut self, index: u16) {
        let command = self.tasks.get(index).command;
        let done = match NvmOpcode::from_bits(command.opcode) {
            NvmOpcode::WriteZeroes => self.write_zeroes(&command),
            NvmOpcode::WriteUncorrectable => self.write_uncorrectable(&command),
            NvmOpcode::DatasetManagement => self.manage_dataset(&command),
            NvmOpcode::ReservationRegister
            | NvmOpcode::ReservationReport
            | NvmOpcode::ReservationAcquire
            | NvmOpcode::ReservationRelease => self.reserve(&command),
            NvmOpcode::ZoneSend => self.manage_zones(&command),
            NvmOpcode::ZoneReceive => self.report_zones(&command),
            _ => Err(Status::InvalidOpcode),
        };
        let status = done.map_or_else(refusal, |()| 0);
        self.finish(index, status, 0);
    }

    fn write_zeroes(&mut self, command: &Sqe) -> Result<(), Status> {
        let number = self.namespace_of(command.nsid)?;
        let space = self.device.space(number).ok_or(Status::InvalidNamespace)?;
        let extent = extent(space, command)?;
        self.deallocate(number, &extent)
    }

    fn write_uncorrectable(&mut self, command: &Sqe) -> Result<(), Status> {
        let number = self.namespace_of(command.nsid)?;
        let space = self.device.space_mut(number).ok_or(Status::InvalidNamespace)?;
        let Extent { offset, len } = extent(space, command)?;
        if space.marks.add(offset, len) { Ok(()) } else { Err(Status::CapacityExceeded) }
    }

    /// Deallocates ranges. All of them are looked at before the first is.
    fn manage_dataset(&mut self, command: &Sqe) -> Result<(), Status> {
        let number = self.namespace_of(command.nsid)?;
        let count = (command.cdw10[0] & 0xFF) as usize + 1;
        let mut bytes = [0; 256 * DSM_RANGE];
        let list = &mut bytes[..count * DSM_RANGE];
        let sizes = (self.registers.page, list.len() as u64);
        gather(Parts::new(&self.memory, command, sizes, false), list)?;
        if command.cdw10[1] & DSM_DEALLOCATE == 0 {
            return Ok(());
        }
        let space = self.device.space(number).ok_or(Status::InvalidNamespace)?;
        let (list, _) = list.as_chunks::<DSM_RANGE>();
        let extent = |space: &Namespace, bytes: &[u8; DSM_RANGE]| {
            let range = DsmRange::parse(bytes);
            blocks(space, range.slba, range.blocks.into())
        };
        list.iter().try_for_each(|range| extent(space, range).map(|_| ()))?;
        for range in list {
            let space = self.device.space(number).ok_or(Status::InvalidNamespace)?;
            let extent = extent(space, range)?;
            self.deallocate(number, &extent)?;
        }
        Ok(())
    }

    fn deallocate(&mut self, number: u8, &Extent { offset, len }: &Extent) -> Result<(), Status> {
        self.discard(number, offset, len)
    }

    /// A range of bytes reads as zeros from now on, whatever happens.
    pub(super) fn discard(&mut self, number: u8, offset: u64, len: u64) -> Result<(), Status> {
        let device = &mut self.device;
        let space = device.spaces[usize::from(number)].as_mut().ok_or(Status::InvalidNamespace)?;
        space.marks.remove(offset, len);
        let discarded = space.store.discard(offset, len);
        device.cache.discarded(number, offset, len);
        discarded.map_err(|_| Status::WriteFault)
    }
}
