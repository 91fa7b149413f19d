//! The device behind the registers: its namespaces, and its other state.

use flysch_wire::nvme::identify::ALL_NAMESPACES;
use flysch_wire::nvme::{NvmOpcode, Sqe, Status};

use super::config::Config;
use super::features::Features;
use super::firmware::Firmware;
use super::flow::refusal;
use super::identify::Identity;
use super::logs::{ErrorLog, Health};
use super::namespace::{Extent, WriteProtect};
use super::power::Power;
use super::spaces::Namespaces;
use super::task::{Purpose, Work};
use super::transfer::{Failed, Request};
use super::upkeep::Upkeep;

/// Number of bytes that a compare or a copy handles at a time.
const STEP: usize = 4096;

/// Everything behind the registers.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) identity: Identity,
    pub(super) spaces: Namespaces,
    pub(super) features: Features,
    pub(super) firmware: Firmware,
    pub(super) power: Power,
    pub(super) health: Health,
    pub(super) errors: ErrorLog,
    pub(super) upkeep: Upkeep,
    /// Maximum transfer of a command, bytes.
    pub(super) longest: u32,
    /// I/O commands may use scatter gather lists.
    has_sgls: bool,
}

impl Device {
    pub(super) fn new(config: Config) -> Self {
        Self {
            identity: Identity::new(&config),
            features: Features::new(&config),
            firmware: Firmware::new(),
            power: Power::new(config.profile.power),
            health: Health::default(),
            errors: ErrorLog::default(),
            upkeep: Upkeep::default(),
            longest: config.transfer_max,
            has_sgls: config.sgls,
            spaces: Namespaces::new(config),
        }
    }

    /// Resets the state that does not survive a controller reset.
    pub(super) fn reset(&mut self) {
        self.features.reset();
        self.power.reset();
        self.spaces.reset();
        if self.firmware.start_over() {
            self.spaces.changed.clear();
        }
    }

    /// Power is back.
    pub(super) fn power_on(&mut self) {
        self.spaces.iter_mut().for_each(|space| space.power_on());
        if !self.health.is_clean {
            self.health.unsafe_shutdowns += 1;
        }
        self.health.power_cycles += 1;
        self.reset();
    }

    /// What a command to a namespace will do.
    #[inline]
    pub(super) fn decide(&self, command: &Sqe) -> Result<Work, Status> {
        let opcode = NvmOpcode::from_bits(command.opcode);
        if command.flags.fuse() != 0 || command.flags.psdt() > if self.has_sgls { 2 } else { 0 } {
            return Err(Status::InvalidField);
        }
        if self.upkeep.is_sanitizing() {
            return Err(Status::SanitizeInProgress);
        }
        if opcode == NvmOpcode::Flush && command.nsid == ALL_NAMESPACES {
            return Ok(Work::Flush);
        }
        let space = self.spaces.attached(command.nsid)?;
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
        if !space.reservation.allows(&self.features.host.id, opcode) {
            return Err(Status::ReservationConflict);
        }
        let read = |purpose| space.read_work(command, purpose, self.longest);
        match opcode {
            NvmOpcode::Read => read(Purpose::Read),
            NvmOpcode::Compare => read(Purpose::Compare),
            NvmOpcode::Verify => read(Purpose::Verify),
            NvmOpcode::Write => space.write_work(command, self.longest),
            NvmOpcode::ZoneAppend if space.zones.is_some() => {
                space.write_work(command, self.longest)
            }
            NvmOpcode::ZoneSend | NvmOpcode::ZoneReceive if space.zones.is_some() => {
                Ok(Work::Control)
            }
            NvmOpcode::Copy => {
                Ok(Work::Copy { space: space.index(), offset: 0, len: 0, force: false })
            }
            NvmOpcode::ReservationRegister
            | NvmOpcode::ReservationReport
            | NvmOpcode::ReservationAcquire
            | NvmOpcode::ReservationRelease => Ok(Work::Control),
            NvmOpcode::Flush => Ok(Work::Flush),
            NvmOpcode::WriteZeroes | NvmOpcode::WriteUncorrectable => {
                space.extent_of(command).map(|_| Work::Control)
            }
            NvmOpcode::DatasetManagement => Ok(Work::Control),
            _ => Err(Status::InvalidOpcode),
        }
    }

    /// Sends data of namespace `number` to the host: returns the status field to end with.
    #[inline]
    pub(super) fn read(
        &mut self,
        (number, offset, len): (u8, u64, u32),
        request: &Request<'_>,
    ) -> u16 {
        let Some(space) = self.spaces.get_mut(number) else {
            return refusal(Status::InvalidNamespace);
        };
        let read = request.each_piece(len.into(), true, |done, (region, at), len| {
            space.store.read(offset + done, region, at, len)
        });
        self.health.read(len);
        self.read_status(read)
    }

    /// Compares data of namespace `number` with the host's: returns the status field to end with.
    pub(super) fn compare(
        &mut self,
        (number, offset, len): (u8, u64, u32),
        request: &Request<'_>,
    ) -> u16 {
        let Some(space) = self.spaces.get_mut(number) else {
            return refusal(Status::InvalidNamespace);
        };
        let (mut ours, mut theirs, mut equal) = ([0; STEP], [0; STEP], true);
        let compared = request.each_piece(len.into(), false, |done, (region, at), len| {
            for step in (0..len).step_by(STEP) {
                let size = STEP.min(len - step);
                space.store.get(offset + done + step as u64, &mut ours[..size])?;
                region.read(at + step, &mut theirs[..size]);
                equal &= ours[..size] == theirs[..size];
            }
            Ok(())
        });
        match compared {
            Ok(()) if !equal => refusal(Status::CompareFailure),
            compared => self.read_status(compared),
        }
    }

    /// Takes data from the host into namespace `number`. `mark` is the number of bytes that had
    /// arrived in the write buffer with it.
    pub(super) fn write(
        &mut self,
        (number, offset, len): (u8, u64, u32),
        request: &Request<'_>,
        mark: u64,
    ) -> u16 {
        let extent = Extent { offset, len: len.into() };
        let (space, kept) = match self.spaces.prepare_write(number, extent, mark) {
            Ok(found) => found,
            Err(status) => return refusal(status),
        };
        let written = request.each_piece(len.into(), false, |done, (region, at), len| {
            space.store.write(offset + done, region, at, len)
        });
        space.marks.remove(offset, len.into());
        self.health.wrote(len);
        self.write_status(written.and(kept.map_err(Failed::from)))
    }

    /// Copies ranges of namespace `number`, offset and length in bytes, to one place in it; `mark`
    /// is as for a [write](Self::write).
    pub(super) fn copy(
        &mut self,
        (number, offset, len): (u8, u64, u32),
        sources: &[(u64, u64)],
        mark: u64,
    ) -> u16 {
        let extent = Extent { offset, len: len.into() };
        let (space, mut done) = match self.spaces.prepare_write(number, extent, mark) {
            Ok(found) => found,
            Err(status) => return refusal(status),
        };
        let (mut buffer, mut at) = ([0; STEP], offset);
        for &(from, len) in sources {
            for step in (0..len).step_by(STEP) {
                let piece = &mut buffer[..STEP.min((len - step) as usize)];
                done = done
                    .and_then(|()| space.store.get(from + step, piece))
                    .and_then(|()| space.store.put(at, piece));
                at += piece.len() as u64;
            }
        }
        space.marks.remove(offset, len.into());
        self.health.wrote(len);
        self.write_status(done.map_err(Failed::from))
    }

    /// Everything is on the medium: flushes it to this machine's stable storage, too.
    pub(super) fn flush(&mut self) -> u16 {
        self.spaces.flush().map_or(Status::Internal.into_bits(), |()| 0)
    }

    /// The status field for the result of a read.
    #[inline]
    fn read_status(&mut self, read: Result<(), Failed>) -> u16 {
        match read {
            Ok(()) => 0,
            Err(Failed::Refused(status)) => refusal(status),
            Err(Failed::Store | Failed::Full) => self.media_error(Status::UnrecoveredRead),
        }
    }

    /// The status field for the result of a write.
    #[inline]
    fn write_status(&mut self, written: Result<(), Failed>) -> u16 {
        match written {
            Ok(()) => 0,
            Err(Failed::Refused(status)) => refusal(status),
            Err(Failed::Store) => self.media_error(Status::WriteFault),
            Err(Failed::Full) => refusal(Status::CapacityExceeded),
        }
    }

    /// Counts a medium error; returns the status field to end with.
    fn media_error(&mut self, status: Status) -> u16 {
        self.health.media_errors += 1;
        refusal(status)
    }
}
