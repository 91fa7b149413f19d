//! Starting a command: into a slot, its table and its header.

use super::{Lane, Switching, UNITS};
use crate::slots::SLOTS;
use crate::taskfile::{Sent, fis, translate, with_tag};
use flysch_api::command::{Ata, AtaProtocol, Command, Declined, Direction, NotStarted, Taskfile};
use flysch_api::data::{BadData, Data};
use flysch_api::machine::{DmaSlice, Instant, Machine};
use flysch_wire::ata::fis::H2D_DWORDS;
use flysch_wire::ata::list::{ACMD, HEADER, HeaderFlags, PRD, PRDT};
use flysch_wire::ata::{H2d, Prd};

impl<M: Machine> Lane<M> {
    /// Starts a command. A queued one that moves a single range is written here, any other one [out
    /// of line](Self::start_other).
    #[inline(always)]
    pub(crate) fn start(&mut self, command: Command<Ata>, now: Instant) -> Result<(), Declined> {
        if self.in_flight < self.capacity
            && self.free != 0
            && command.payload.protocol == AtaProtocol::Ncq
            && let Some(target) = self.targets.get(command.unit as usize)
            && target.express
            && command.crypto.is_none()
            && command.direction != Direction::None
            && let Some(range) = self.walk.one(&command.data)
        {
            let slot = self.free.trailing_zeros() as usize % SLOTS;
            self.machine.sync_for_device(range);
            self.put_range(slot, 0, range);
            let fis = fis(&command.payload, command.unit as u8);
            self.put(slot, fis, (command.direction, 1), true);
            self.take(slot, &command, true);
            self.posted |= 1 << slot;
            self.slots[slot].owed = Some(command.token);
            return Ok(());
        }
        // Rebuilt, so that only commands that come this way must be in memory.
        let Command { unit, payload, direction, data, crypto, ordering, deadline, token } = command;
        let command = Command { unit, payload, direction, data, crypto, ordering, deadline, token };
        self.start_other(command, now)
    }

    #[cold]
    #[inline(never)]
    fn start_other(&mut self, command: Command<Ata>, _: Instant) -> Result<(), Declined> {
        match self.prepare(&command) {
            Ok(slot) => {
                self.slots[slot].owed = Some(command.token);
                Ok(())
            }
            Err(why) => Err(Declined { why, token: command.token }),
        }
    }

    /// Writes a command into a slot.
    fn prepare(&mut self, command: &Command<Ata>) -> Result<usize, NotStarted> {
        if self.in_flight >= self.capacity || self.free == 0 {
            return Err(NotStarted::Full);
        }
        let unit = self.unit_of(command)?;
        let ways = self.ways(unit);
        let Taskfile { protocol, .. } = command.payload;
        let sent = translate(&command.payload, command.direction, ways);
        let Some(Sent { fis, is_queued, packet }) = sent else {
            return Err(NotStarted::Unsupported);
        };
        let fis = H2d { pmp: unit, ..fis };
        let moves = protocol != AtaProtocol::NonData && command.direction != Direction::None;
        if moves == command.data.is_empty() {
            return Err(NotStarted::BadData(BadData::Length));
        }
        let slot = self.free.trailing_zeros() as usize;
        let segments = match moves {
            true => self.place(slot, &command.data).map_err(NotStarted::BadData)?,
            false => 0,
        };
        if let Some(packet) = packet {
            let at = self.table_of(slot);
            self.tables.region().write(at + ACMD, &packet);
        }
        self.put(slot, fis, (command.direction, segments), is_queued);
        if packet.is_some() {
            let at = slot * HEADER;
            let flags = HeaderFlags::from_bits(self.list.region().load32(at)).with_atapi(true);
            self.list.region().store32(at, flags.into_bits());
        }
        self.machine.sync_for_device(self.tables.region().span(self.table_of(slot), PRDT));
        self.take(slot, command, is_queued);
        if is_queued && self.may_post(unit) {
            self.posted |= 1 << slot;
        } else {
            self.line_up(slot, false);
        }
        self.refresh();
        Ok(slot)
    }

    /// The device a command is for, if the command may be started now.
    fn unit_of(&self, command: &Command<Ata>) -> Result<u8, NotStarted> {
        let is_unit = command.unit == 0 || self.is_multiplied() && command.unit < UNITS as u64;
        if !is_unit || command.crypto.is_some() {
            return Err(NotStarted::Unsupported);
        }
        let unit = command.unit as u8;
        let target = &self.targets[usize::from(unit)];
        if !target.is_there {
            return Err(NotStarted::Gone);
        }
        // While a command that must be alone is running or waiting, the others stay with their
        // owners, so that a long flush makes none of them miss its deadline.
        let waits = match self.turns.switching {
            Switching::Command => self.has_singles(),
            _ => self.alone & self.of_unit(unit) != 0 || !target.line.is_empty(),
        };
        if waits { Err(NotStarted::Full) } else { Ok(unit) }
    }

    fn table_of(&self, slot: usize) -> usize {
        slot * crate::layout::TABLE
    }

    /// Assigns a slot to a command.
    #[inline(always)]
    fn take(&mut self, slot: usize, command: &Command<Ata>, is_queued: bool) {
        let place = &mut self.slots[slot];
        place.deadline = command.deadline;
        place.unit = command.unit as u8;
        place.expected = command.data.len();
        place.is_queued = is_queued;
        place.abort = false;
        if !M::COHERENT && command.direction == Direction::FromDevice {
            place.incoming = command.data;
        }
        self.free &= !(1 << slot);
        self.in_flight += 1;
    }

    /// Writes one descriptor of a slot's table.
    #[inline(always)]
    fn put_range(&self, slot: usize, n: u32, range: DmaSlice) {
        let prd = Prd { address: range.address, bytes: range.len, interrupt: false }.to_words();
        if n == 0 {
            return self.tables.get(slot).put::<PRDT, 2>(prd);
        }
        let at = self.table_of(slot) + PRDT + n as usize * PRD;
        self.tables.region().store64(at, prd[0]);
        self.tables.region().store64(at + 8, prd[1]);
    }

    /// Writes the descriptors of a slot's data.
    #[inline(never)]
    fn place(&self, slot: usize, data: &Data) -> Result<u16, BadData> {
        let count = self.walk.run(data, |n, range| self.put_range(slot, n, range))?;
        if !M::COHERENT {
            for range in data.ranges(&self.data).flatten() {
                self.machine.sync_for_device(range);
            }
            let at = self.table_of(slot) + PRDT;
            self.machine.sync_for_device(self.tables.region().span(at, count as usize * PRD));
        }
        Ok(count as u16)
    }

    /// Writes the FIS and the header of a slot.
    #[inline(always)]
    pub(super) fn put(
        &self,
        slot: usize,
        mut fis: H2d,
        (direction, segments): (Direction, u16),
        is_queued: bool,
    ) {
        if is_queued {
            fis.count = with_tag(fis.count, slot);
        }
        self.tables.get(slot).put::<0, 3>(fis.to_words());
        let flags = HeaderFlags::new()
            .with_cfl(H2D_DWORDS)
            .with_pmp(fis.pmp)
            .with_write(direction == Direction::ToDevice)
            .with_prdtl(segments);
        self.list.get(slot).put::<0, 1>([u64::from(flags.into_bits()).to_le()]);
        self.machine.sync_for_device(self.tables.region().span(self.table_of(slot), PRDT + PRD));
        self.machine.sync_for_device(self.list.region().span(slot * HEADER, HEADER));
    }
}
