//! Commands on their way through the device: FIS in, media, data, FIS out.

use flysch_api::machine::GuestMemory;
use flysch_wire::ata::log::NcqError;
use flysch_wire::ata::registers::interrupt;
use flysch_wire::ata::{D2h, H2d, Opcode};

use super::Ahci;
use super::clock::Event;
use super::command::{aborted, fault, unreadable};
use super::device::{Device, PowerMode};
use super::inject::{Ending, lateness};
use super::list::{Fail, MULTIPLIER, Seat, State, Task, TaskRef, Work};
use super::multiplier::{ANSWER_NS, Move};
use super::profile::level;
use super::transfer::{Failed, Parts, copy};
use crate::media::Span;

/// How the log of faults names a command.
pub(super) fn detail(port: u8, slot: u8) -> u32 {
    u32::from(port) << 8 | u32::from(slot)
}

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
        let seat = self.hba.ports[port].task(slot).seat;
        if seat == MULTIPLIER {
            self.hba.ports[port].task_mut(slot).work = Work::Multiplier;
            let name = self.hba.ports[port].name(slot);
            return self.clock.after(ANSWER_NS, Event::Complete(name));
        }
        if !self.devices.listens(seat) {
            self.hba.ports[port].task_mut(slot).state = State::Swallowed;
            return;
        }
        if self.faults.is_active() && self.fault_at_start(port, slot) {
            return;
        }
        let now = self.clock.nanos();
        let at = &self.hba.ports[port];
        let waiting = at.taken_by(seat) & !(1 << slot);
        let others_queued = waiting != 0;
        let fis = self.hba.ports[port].task(slot).fis;
        let is_queued = self.hba.ports[port].task(slot).is_queued;
        let alone_in_device = waiting == 0;
        let Some(device) = self.devices.get_mut(seat) else { return };
        let accepted = device.backend.media.accept(now, alone_in_device);
        device.last = [device.last[1], fis.command];
        let mut work = device.decide(&fis).unwrap_or_else(Work::Fail);
        if !is_queued && others_queued {
            // A command that is not queued among queued ones ends them all (SATA 13.6.4).
            work = Work::Fail(aborted());
        }
        if self.faults.is_active() {
            let of = (self.clock.now(), detail(port, slot));
            work = device.work_with_faults(&mut self.faults, work, of);
        }
        self.hba.ports[port].task_mut(slot).work = work;
        let name = self.hba.ports[port].name(slot);
        match work {
            Work::Read { offset, len } | Work::Verify { offset, len } => {
                let span = Span { address: offset, len: len.into(), limit: device.size };
                let ready = device.backend.media.read(span, accepted);
                device.wake(now);
                self.hba.ports[port].task_mut(slot).ready = ready;
                self.clock.at(ready.first, Event::Ready(name));
            }
            Work::Write { .. } => {
                device.wake(now);
                self.clock.at(accepted, Event::Accepted(name));
            }
            Work::Flush => self.clock.at(accepted, Event::Accepted(name)),
            Work::Control | Work::Settle { .. } | Work::Fail(_) | Work::Multiplier => {
                let end = device.backend.media.answer(accepted);
                self.clock.at(end, Event::Complete(name));
            }
        }
    }

    /// The firmware takes up a write or a flush.
    pub(super) fn accepted(&mut self, name: TaskRef) {
        let Some(task) = self.hba.ports.current(name) else { return };
        match task.work {
            Work::Write { len, .. } => {
                let idle = self.is_idle(name.seat);
                let has_room = self.devices.enter(&mut self.clock, name, len);
                if !has_room && let Some(device) = self.devices.get_mut(name.seat) {
                    device.backend.program(&mut self.clock, idle);
                }
            }
            _ => self.wait_for_medium(name),
        }
    }

    /// The data of a write is in the write buffer. If the command has been taken away meanwhile,
    /// its room is free again.
    pub(super) fn data_arrived(&mut self, name: TaskRef, len: u32) {
        let (bytes, idle) = (u64::from(len), self.is_idle(name.seat));
        let is_current = self.hba.ports.current(name).is_some();
        let Some(device) = self.devices.get_mut(name.seat) else { return };
        if !is_current {
            device.backend.media.release(bytes);
            return self.devices.admit(&mut self.clock, name.seat);
        }
        device.backend.arrived(bytes);
        device.backend.program(&mut self.clock, idle);
        self.complete(name);
    }

    /// The first data of a read is there: sends it, unless nobody wants it.
    pub(super) fn send_data(&mut self, name: TaskRef) {
        let Some(task) = self.hba.ports.current(name) else { return };
        let (ready, work, now) = (task.ready, task.work, self.clock.nanos());
        let Some(device) = self.devices.get_mut(name.seat) else { return };
        let home = device.home;
        let (mut end, bytes) = match work {
            Work::Read { len, .. } => {
                (device.backend.media.send(ready, len.into()), u64::from(len))
            }
            _ => (device.backend.media.answer(ready.last.max(now)), 0),
        };
        if home.fan.is_some() {
            let of = Move { bytes, to_device: false };
            end = self.devices.share_link(home.port, (now, end), of);
        }
        self.clock.at(end, Event::Complete(name));
    }

    /// A command has run its course.
    pub(super) fn complete(&mut self, name: TaskRef) {
        let Some(task) = self.hba.ports.current(name) else { return };
        let (task, TaskRef { port, slot, .. }) = (*task, name);
        if self.faults.is_active() {
            let of = (self.clock.now(), detail(port, slot));
            let task = self.hba.ports[port].task_mut(slot);
            if let Some(late) = lateness(&mut self.faults, task, of) {
                return self.clock.after(late, Event::Complete(name));
            }
        }
        let now = self.clock.nanos();
        let ended = match (task.work, self.devices.get_mut(name.seat)) {
            (Work::Verify { .. }, _) => Ok(Good::default()),
            (Work::Settle { moved }, _) => Ok(Good { moved, ..Good::default() }),
            (Work::Multiplier, _) => self.access_multiplier(port, &task.fis).map_err(Failed::Told),
            (Work::Fail(fail), _) => Err(Failed::Told(fail)),
            (_, None) => Err(Failed::Told(aborted())),
            (Work::Read { offset, len }, Some(device)) => {
                device.read(&self.hba.memory, &task, (offset, len), now)
            }
            (Work::Write { offset, len, force }, Some(device)) => {
                let written = device.write(&self.hba.memory, &task, (offset, len), now);
                if written.is_ok() && (force || !device.write_cache) {
                    self.hba.ports[port].task_mut(slot).work = Work::Settle { moved: len };
                    return self.wait_for_medium(name);
                }
                written
            }
            (Work::Flush, Some(device)) => device.flush(&task.fis, now).map_err(Failed::Told),
            (Work::Control, Some(device)) => {
                device.carry_out(&self.hba.memory, &task, &mut self.clock, &mut self.faults)
            }
        };
        match ended {
            Ok(good) => {
                let of = (self.clock.now(), detail(port, slot));
                let ending = Ending::with_faults(&mut self.faults, of);
                self.hba.end_well((port, slot), good, (ending, now));
            }
            Err(Failed::Told(fail)) => self.end_with(port, slot, fail),
            Err(Failed::Memory) => self.hba.halt(port, interrupt::HBDS),
            Err(Failed::Overflow) => self.hba.halt(port, interrupt::OFS),
            Err(Failed::Store | Failed::Full) => self.end_with(port, slot, fault()),
        }
        self.pump(port);
    }

    /// A command ends badly.
    pub(super) fn end_with(&mut self, port: u8, slot: u8, fail: Fail) {
        let task = *self.hba.ports[port].task(slot);
        let at = &self.hba.ports[port];
        let others = at.taken_by(task.seat) & !(1 << slot) != 0;
        if let Some(device) = self.devices.get_mut(task.seat)
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
            && let Some(device) = self.devices.get_mut(task.seat)
        {
            device.health.uncorrectable += 1;
        }
        self.hba.note_done(port, slot, self.clock.nanos());
        let Fail { status, error, lba } = fail;
        let fis = D2h { interrupt: true, status, error, lba, device: task.fis.device, count: 0 };
        self.end_badly(port, slot, fis, task.is_queued || others);
    }

    /// Whether a device has no command.
    fn is_idle(&self, seat: Seat) -> bool {
        self.devices.home(seat).is_none_or(|home| self.hba.ports[home.port].taken_by(seat) == 0)
    }

    /// Keeps `name` until everything that has arrived is on the medium.
    fn wait_for_medium(&mut self, name: TaskRef) {
        let idle = self.is_idle(name.seat);
        let Some(device) = self.devices.get_mut(name.seat) else { return };
        device.backend.settle(&mut self.clock, name, idle);
    }

    pub(super) fn die_done(&mut self, seat: Seat, die: u16) {
        let idle = self.is_idle(seat);
        let Some(device) = self.devices.get_mut(seat) else { return };
        if !device.backend.die_done(&mut self.clock, die, idle) {
            return;
        }
        device.cache.programmed(device.backend.media.programmed_total());
        self.devices.admit(&mut self.clock, seat);
        if let Some(device) = self.devices.get_mut(seat) {
            device.backend.end_flushes(&mut self.clock);
        }
    }
}

impl Device {
    /// Gives data to the host.
    fn read(
        &mut self,
        memory: &GuestMemory,
        task: &Task,
        (offset, len): (u64, u32),
        now: u64,
    ) -> Result<Good, Failed> {
        let parts = Parts::new(memory, task, len.into());
        let copied = copy(parts, true, |done, (region, at), len| {
            self.store.read(offset + done, region, at, len)
        });
        self.backend.media.rests(now);
        self.health.read_sectors += u64::from(len >> self.shift);
        self.health.reads += 1;
        match copied {
            Ok(()) => {
                let pio = is_pio(task.fis.command).then_some(1 << self.shift);
                Ok(Good { moved: len, pio, ..Good::default() })
            }
            Err(Failed::Store | Failed::Full) => {
                Err(Failed::Told(unreadable(offset >> self.shift)))
            }
            Err(failed) => Err(failed),
        }
    }

    /// The data of a write is in the write buffer and goes into the store.
    fn write(
        &mut self,
        memory: &GuestMemory,
        task: &Task,
        (offset, len): (u64, u32),
        now: u64,
    ) -> Result<Good, Failed> {
        let mark = self.backend.media.arrived_total();
        if self.cache.is_enabled() {
            let of = (0, self.shift);
            self.cache.keep(of, &mut self.store, (offset, len.into()), mark)?;
        }
        let parts = Parts::new(memory, task, len.into());
        copy(parts, false, |done, (region, at), len| {
            self.store.write(offset + done, region, at, len)
        })?;
        self.backend.media.rests(now);
        self.health.written_sectors += u64::from(len >> self.shift);
        self.health.writes += 1;
        Ok(Good { moved: len, ..Good::default() })
    }

    /// Everything is on the medium: it goes to stable storage of this machine, too. Commands that
    /// change the power mode do so now.
    fn flush(&mut self, fis: &H2d, now: u64) -> Result<Good, Fail> {
        self.store.flush().map_err(|_| fault())?;
        match Opcode::from_bits(fis.command) {
            Opcode::Standby | Opcode::StandbyImmediate => self.power = PowerMode::Standby,
            Opcode::Sleep => self.power = PowerMode::Sleep,
            _ => return Ok(Good::default()),
        }
        self.backend.media.meter_mut().enter(level::STANDBY, now);
        Ok(Good::default())
    }
}

/// Whether data goes to the host by PIO.
pub(super) fn is_pio(command: u8) -> bool {
    matches!(
        Opcode::from_bits(command),
        Opcode::ReadSectors | Opcode::ReadSectorsExt | Opcode::ReadLogExt | Opcode::Identify
    )
}
