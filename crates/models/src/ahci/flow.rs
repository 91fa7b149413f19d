//! Commands on their way through the device: FIS in, media, data, FIS out.

use flysch_wire::ata::log::NcqError;
use flysch_wire::ata::registers::interrupt;
use flysch_wire::ata::{D2h, Opcode, list};

use super::command::{aborted, fault, unreadable};
use super::device::PowerMode;
use super::list::{Fail, MULTIPLIER, Seat, State, TaskRef, Work};
use super::multiplier::{ANSWER_NS, Move};
use super::port::READY;
use super::profile::level;
use super::transfer::{Failed, Parts, copy};
use super::{Ahci, Event};
use crate::faults::Kind;
use crate::media::{Program, Span};

/// What ends a command well.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Good {
    pub(super) lba: u64,
    pub(super) count: u16,
    /// Bytes moved.
    pub(super) moved: u32,
    /// Data went to the host by PIO, the last block of so many bytes.
    pub(super) pio: Option<u16>,
}

impl Ahci {
    /// A command has reached the device.
    #[inline]
    pub(super) fn receive(&mut self, port: u8, slot: u8) {
        let seat = self.task(port, slot).seat;
        if seat == MULTIPLIER {
            self.task_mut(port, slot).work = Work::Multiplier;
            let name = self.name(port, slot);
            return self.after(ANSWER_NS, Event::Complete(name));
        }
        if !self.listens(seat) {
            self.task_mut(port, slot).state = State::Swallowed;
            return;
        }
        if self.faults.is_active() && self.fault_at_start(port, slot) {
            return;
        }
        let now = self.now.nanos();
        let at = &self.ports[usize::from(port)];
        let waiting = at.taken_by(seat) & !(1 << slot);
        let others_queued = waiting != 0;
        let fis = self.task(port, slot).fis;
        let is_queued = self.task(port, slot).is_queued;
        let alone_in_device = waiting == 0;
        let Some(device) = self.device_mut(seat) else { return };
        let accepted = device.media.accept(now, alone_in_device);
        device.last = [device.last[1], fis.command];
        let mut work = device.decide(&fis);
        if !is_queued && others_queued {
            // A command that is not queued among queued ones ends them all (SATA 13.6.4).
            work = Work::Fail(aborted());
        }
        if self.faults.is_active() {
            work = self.fault_in_command(port, slot, work);
        }
        self.task_mut(port, slot).work = work;
        let name = self.name(port, slot);
        let Some(device) = self.device_mut(seat) else { return };
        match work {
            Work::Read { offset, len } | Work::Verify { offset, len } => {
                let span = Span { address: offset, len: len.into(), limit: device.size };
                let ready = device.media.read(span, accepted);
                device.wake(now);
                self.task_mut(port, slot).ready = ready;
                self.at(ready.first, Event::Ready(name));
            }
            Work::Write { .. } => {
                device.wake(now);
                self.at(accepted, Event::Accepted(name));
            }
            Work::Flush => self.at(accepted, Event::Accepted(name)),
            Work::Control | Work::Settle { .. } | Work::Fail(_) | Work::Multiplier => {
                let end = device.media.answer(accepted);
                self.at(end, Event::Complete(name));
            }
        }
    }

    /// The firmware takes up a write or a flush.
    pub(super) fn accepted(&mut self, name: TaskRef) {
        let Some(task) = self.current(name) else { return };
        match task.work {
            Work::Write { len, .. } => {
                let Some(device) = self.device_mut(name.seat) else { return };
                if !device.writes.is_empty() || !device.media.admit(u64::from(len)) {
                    device.writes.push_back(name);
                    self.program(name.seat);
                } else {
                    self.receive_data(name, len);
                }
            }
            _ => self.wait_for_medium(name),
        }
    }

    fn receive_data(&mut self, name: TaskRef, len: u32) {
        let now = self.now.nanos();
        let bytes = u64::from(len);
        let Some(device) = self.device_mut(name.seat) else { return };
        let mut end = device.media.receive(now, bytes);
        if device.home.fan.is_some() {
            end = self.share_link(name.seat, (now, end), Move { bytes, to_device: true });
        }
        self.at(end, Event::Arrived(name, len));
    }

    /// The data of a write is in the write buffer. If the command has been taken away meanwhile,
    /// its room is free again.
    pub(super) fn data_arrived(&mut self, name: TaskRef, len: u32) {
        let bytes = u64::from(len);
        let is_current = self.current(name).is_some();
        let Some(device) = self.device_mut(name.seat) else { return };
        if !is_current {
            device.media.release(bytes);
            return self.admit_writes(name.seat);
        }
        let slc = device.slc_used + bytes <= device.slc_bytes();
        if slc {
            device.slc_used += bytes;
        }
        device.media.arrived(bytes, slc);
        self.program(name.seat);
        self.complete(name);
    }

    /// The first data of a read is there: sends it, unless nobody wants it.
    pub(super) fn send_data(&mut self, name: TaskRef) {
        let Some(task) = self.current(name) else { return };
        let (ready, work, now) = (task.ready, task.work, self.now.nanos());
        let Some(device) = self.device_mut(name.seat) else { return };
        let is_behind = device.home.fan.is_some();
        let (mut end, bytes) = match work {
            Work::Read { len, .. } => (device.media.send(ready, len.into()), u64::from(len)),
            _ => (device.media.answer(ready.last.max(now)), 0),
        };
        if is_behind {
            let of = Move { bytes, to_device: false };
            end = self.share_link(name.seat, (now, end), of);
        }
        self.at(end, Event::Complete(name));
    }

    /// A command has run its course.
    pub(super) fn complete(&mut self, name: TaskRef) {
        let Some(task) = self.current(name) else { return };
        let (task, TaskRef { port, slot, .. }) = (*task, name);
        if self.faults.is_active() && self.fault_at_end(name) {
            return;
        }
        let ended = match task.work {
            Work::Read { offset, len } => self.complete_read(port, slot, (offset, len)),
            Work::Write { offset, len, force } => {
                match self.complete_write(port, slot, (offset, len)) {
                    Ok(_) if force || !self.device(name.seat).is_some_and(|d| d.write_cache) => {
                        self.task_mut(port, slot).work = Work::Settle { moved: len };
                        return self.wait_for_medium(name);
                    }
                    ended => ended,
                }
            }
            Work::Verify { .. } => Ok(Ok(Good::default())),
            Work::Settle { moved } => Ok(Ok(Good { moved, ..Good::default() })),
            Work::Flush => Ok(self.complete_flush(name.seat, &task.fis)),
            Work::Multiplier => Ok(self.access_multiplier(port, &task.fis)),
            Work::Fail(fail) => Ok(Err(fail)),
            Work::Control => self.carry_out(port, slot),
        };
        match ended {
            Ok(Ok(good)) => self.end_well(port, slot, good),
            Ok(Err(fail)) => self.end_with(port, slot, fail),
            Err(Failed::Memory) => self.halt(port, interrupt::HBDS),
            Err(Failed::Overflow) => self.halt(port, interrupt::OFS),
            Err(Failed::Store) => self.end_with(port, slot, fault()),
            Err(Failed::Full) => self.end_with(port, slot, fault()),
        }
        self.pump(port);
    }

    /// A command ends well.
    fn end_well(&mut self, port: u8, slot: u8, good: Good) {
        let task = *self.task(port, slot);
        let ending = match self.faults.is_active() {
            true => self.fault_in_ending(port, slot),
            false => Ending::Told,
        };
        if ending == Ending::Never {
            self.task_mut(port, slot).state = State::Swallowed;
            return;
        }
        self.done[usize::from(port) * 32 + usize::from(slot)] = self.now.nanos();
        let mut bits = interrupt::SDBS;
        if task.is_queued {
            self.end_queued(port, slot);
        } else {
            let list = self.ports[usize::from(port)].clb;
            let at = list + u64::from(slot) * list::HEADER as u64 + list::PRDBC as u64;
            if self.memory.store32(at, good.moved.to_le()).is_err() {
                return self.halt(port, interrupt::HBFS);
            }
            let fis = D2h {
                interrupt: true,
                status: READY,
                error: 0,
                lba: good.lba,
                device: task.fis.device,
                count: good.count,
            };
            self.end_alone(port, slot, fis, good.pio);
            bits = if good.pio.is_some() { interrupt::PSS } else { interrupt::DHRS };
        }
        if ending != Ending::Silent {
            self.raise(port, bits);
        }
    }

    /// A command ends badly.
    pub(super) fn end_with(&mut self, port: u8, slot: u8, fail: Fail) {
        let task = *self.task(port, slot);
        let at = &self.ports[usize::from(port)];
        let others = at.taken_by(task.seat) & !(1 << slot) != 0;
        if let Some(device) = self.device_mut(task.seat)
            && (task.is_queued || others)
            && !device.is_packet()
        {
            device.ncq_error = Some(NcqError {
                not_queued: !task.is_queued,
                tag: slot,
                status: fail.status,
                error: fail.error,
                lba: fail.lba,
                count: task.fis.count,
                device: task.fis.device,
                sense: [0; 3],
            });
        }
        if fail.error & flysch_wire::ata::registers::error::UNC != 0
            && let Some(device) = self.device_mut(task.seat)
        {
            device.health.uncorrectable += 1;
        }
        self.done[usize::from(port) * 32 + usize::from(slot)] = self.now.nanos();
        let Fail { status, error, lba } = fail;
        let fis = D2h { interrupt: true, status, error, lba, device: task.fis.device, count: 0 };
        self.end_badly(port, slot, fis, task.is_queued || others);
    }

    fn complete_read(
        &mut self,
        port: u8,
        slot: u8,
        (offset, len): (u64, u32),
    ) -> Result<Result<Good, Fail>, Failed> {
        let task = *self.task(port, slot);
        let Some(Some(device)) = self.devices.get_mut(usize::from(task.seat)) else {
            return Ok(Err(aborted()));
        };
        let parts = Parts::new(&self.memory, &task, len.into());
        let copied = copy(parts, true, |done, (region, at), len| {
            device.store.read(offset + done, region, at, len)
        });
        device.media.rests(self.now.nanos());
        device.health.read_sectors += u64::from(len >> device.shift);
        device.health.reads += 1;
        match copied {
            Ok(()) => {
                let pio = is_pio(task.fis.command).then_some(1 << device.shift);
                Ok(Ok(Good { moved: len, pio, ..Good::default() }))
            }
            Err(Failed::Store | Failed::Full) => Ok(Err(unreadable(offset >> device.shift))),
            Err(failed) => Err(failed),
        }
    }

    /// The data of a write is in the write buffer and goes into the store.
    fn complete_write(
        &mut self,
        port: u8,
        slot: u8,
        (offset, len): (u64, u32),
    ) -> Result<Result<Good, Fail>, Failed> {
        let task = *self.task(port, slot);
        let Some(Some(device)) = self.devices.get_mut(usize::from(task.seat)) else {
            return Ok(Err(aborted()));
        };
        let mark = device.media.arrived_total();
        if device.cache.is_enabled() {
            let of = (0, device.shift);
            device.cache.keep(of, &mut device.store, (offset, len.into()), mark)?;
        }
        let parts = Parts::new(&self.memory, &task, len.into());
        copy(parts, false, |done, (region, at), len| {
            device.store.write(offset + done, region, at, len)
        })?;
        device.media.rests(self.now.nanos());
        device.health.written_sectors += u64::from(len >> device.shift);
        device.health.writes += 1;
        Ok(Ok(Good { moved: len, ..Good::default() }))
    }

    /// Everything is on the medium: it goes to stable storage of this machine, too. Commands that
    /// change the power mode do so now.
    fn complete_flush(&mut self, seat: Seat, fis: &flysch_wire::ata::H2d) -> Result<Good, Fail> {
        let now = self.now.nanos();
        let Some(device) = self.device_mut(seat) else { return Err(aborted()) };
        device.store.flush().map_err(|_| fault())?;
        match Opcode::from_bits(fis.command) {
            Opcode::Standby | Opcode::StandbyImmediate => device.power = PowerMode::Standby,
            Opcode::Sleep => device.power = PowerMode::Sleep,
            _ => return Ok(Good::default()),
        }
        device.media.meter_mut().enter(level::STANDBY, now);
        Ok(Good::default())
    }

    /// Keeps `name` until everything that has arrived is on the medium.
    fn wait_for_medium(&mut self, name: TaskRef) {
        let Some(device) = self.device_mut(name.seat) else { return };
        let watermark = device.media.arrived_total();
        device.flushes.push((name, watermark));
        self.program(name.seat);
        self.end_flushes(name.seat);
    }

    /// Starts as many program operations as there are data and dies; with nothing else to do,
    /// moves data from the SLC area to TLC.
    pub(super) fn program(&mut self, seat: Seat) {
        let now = self.now.nanos();
        let Some(Some(device)) = self.devices.get_mut(usize::from(seat)) else { return };
        let idle = self.ports[usize::from(device.home.port)].taken_by(seat) == 0;
        // Nobody waits for more data to fill a program unit when a flush waits, or when a write
        // waits for the room of what lies there.
        let stalled = !device.writes.is_empty() && device.media.is_resting();
        let partial = stalled || !device.flushes.is_empty();
        let mut push = |end, die| {
            self.events.push(flysch_api::machine::Instant::from_nanos(end), Event::Die(seat, die));
        };
        while let Some(started) = device.media.program(now, partial) {
            push(started.end, started.die);
        }
        let limit = device.media.unit(Program::Flush);
        while device.slc_used > 0 && idle {
            let bytes = device.slc_used.min(limit);
            let Some(started) = device.media.flush_slc(now, bytes) else { return };
            device.slc_used -= bytes;
            push(started.end, started.die);
        }
    }

    pub(super) fn die_done(&mut self, seat: Seat, die: u16) {
        let now = self.now.nanos();
        let Some(device) = self.device_mut(seat) else { return };
        if let Err(end) = device.media.programmed(die, now) {
            return self.at(end, Event::Die(seat, die));
        }
        device.cache.programmed(device.media.programmed_total());
        self.program(seat);
        self.admit_writes(seat);
        self.end_flushes(seat);
    }

    /// Lets waiting writes send their data as far as there is room.
    pub(super) fn admit_writes(&mut self, seat: Seat) {
        while let Some(name) = self.device(seat).and_then(|device| device.writes.front().copied()) {
            let Work::Write { len, .. } = self.task(name.port, name.slot).work else { break };
            let Some(device) = self.device_mut(seat) else { return };
            if !device.media.admit(u64::from(len)) {
                break;
            }
            device.writes.pop_front();
            self.receive_data(name, len);
        }
    }

    fn end_flushes(&mut self, seat: Seat) {
        let now = self.now.nanos();
        let Some(Some(device)) = self.devices.get_mut(usize::from(seat)) else { return };
        let programmed = device.media.programmed_total();
        let mut at = 0;
        while at < device.flushes.len() {
            if device.flushes[at].1 > programmed {
                at += 1;
                continue;
            }
            let (name, _) = device.flushes.remove(at);
            let end = device.media.answer(now);
            self.events.push(flysch_api::machine::Instant::from_nanos(end), Event::Complete(name));
        }
    }

    /// What a fault makes of a good end.
    fn fault_in_ending(&mut self, port: u8, slot: u8) -> Ending {
        let detail = u32::from(port) << 8 | u32::from(slot);
        if self.faults.fires(Kind::StuckDoorbell, self.now, detail) {
            return Ending::Never;
        }
        match self.faults.fires(Kind::LostInterrupt, self.now, detail) {
            true => Ending::Silent,
            false => Ending::Told,
        }
    }
}

/// How a good end is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Told,
    /// Without an interrupt.
    Silent,
    Never,
}

/// Whether data goes to the host by PIO.
pub(super) fn is_pio(command: u8) -> bool {
    matches!(
        Opcode::from_bits(command),
        Opcode::ReadSectors | Opcode::ReadSectorsExt | Opcode::ReadLogExt | Opcode::Identify
    )
}
