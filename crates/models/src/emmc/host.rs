//! The SD host controller: what it has on the command line and on the data lines for the host's
//! own registers.

use alloc::vec::Vec;

use flysch_api::machine::{GuestMemory, Instant};
use flysch_wire::mmc::sdhci::{Clock as ClockControl, Command, Interrupts, Present, auto};
use flysch_wire::mmc::{CardState, CardStatus, NATIVE_SECTOR, SECTOR};

use super::backend::Backend;
use super::card::{Load, Phase, Response};
use super::clock::{Clock, Event};
use super::config::Config;
use super::controller::Registers;
use super::device::Device;
use super::inject::{Spoilt, fault_in_data};
use super::lines::Lines;
use super::transfer::{Failed, List};
use crate::faults::{Injector, Kind};
use crate::media::Ready;

/// Clock to become stable, and resets, nanoseconds.
const STABLE_NS: u64 = 20_000;
const RESET_NS: u64 = 5_000;
/// Data the device has at hand without the medium, nanoseconds.
const REGISTER_NS: u64 = 20_000;
/// How long the host waits for a response, clocks (SDHCI: 64).
const RESPONSE_CLOCKS: u64 = 64;
/// How long it waits for data that does not come, nanoseconds: what TOUNT of 0xE says is longer.
const DATA_TIMEOUT_NS: u64 = 100_000_000;

/// A command of the host's on the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) mode: Command,
    pub(super) argument: u32,
}

/// Data of a command of the host's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) phase: Phase,
    mode: Command,
    /// Bytes in all, and of a block.
    pub(super) bytes: u64,
    block: u32,
    pub(super) blocks: u32,
    ready: Ready,
    list: List,
    /// Bytes that the buffer port has moved.
    done: u64,
}

impl Transfer {
    /// Whether its data takes room in the device's write buffer.
    fn takes_room(&self) -> bool {
        !self.phase.read && matches!(self.phase.load, Load::Sectors { .. })
    }
}

/// The buffer port: a block, and how much of it was read.
#[derive(Debug)]
struct Buffer {
    block: Vec<u8>,
    at: usize,
}

impl Buffer {
    /// A word of the block, if there is one left.
    fn next_word(&mut self) -> Option<u32> {
        let bytes = self.block.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_le_bytes(*bytes))
    }

    fn is_read(&self) -> bool {
        self.at >= self.block.len()
    }
}

/// The SD host controller.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) registers: Registers,
    lines: Lines,
    /// The command on the line, and the transfer under way.
    command: Option<Sent>,
    transfer: Option<Transfer>,
    /// Numbers of them: events of earlier ones are stale.
    command_serial: u32,
    serial: u32,
    /// Counts resets; an event of an earlier life is stale.
    epoch: u32,
    buffer: Buffer,
    /// The transfer complete interrupt waits for the end of busy.
    waits_busy: bool,
    interrupts: u64,
}

impl Host {
    /// The controller of `config`, after power-on.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            registers: Registers::new(config),
            lines: Lines::new(&config.profile),
            command: None,
            transfer: None,
            command_serial: 0,
            serial: 0,
            epoch: 0,
            buffer: Buffer { block: Vec::with_capacity(4096), at: 0 },
            waits_busy: false,
            interrupts: 0,
        }
    }

    /// Interrupts so far for the host's own commands.
    pub(super) fn interrupts(&self) -> u64 {
        self.interrupts
    }

    /// Whether an event is of the life since the last reset.
    pub(super) fn is_current(&self, epoch: u32) -> bool {
        epoch == self.epoch
    }

    /// Whether an event is of the transfer under way.
    pub(super) fn is_transfer(&self, serial: u32) -> bool {
        serial == self.serial
    }

    /// The present state, with that of the card's lines.
    pub(super) fn present(&self, device: &Device) -> Present {
        let transfer = self.transfer.is_some();
        let inhibit = transfer || self.waits_busy;
        self.registers.present(&device.card, transfer, inhibit)
    }

    /// Everything as after power-on.
    pub(super) fn reset(&mut self, backend: &mut Backend) {
        self.epoch = self.epoch.wrapping_add(1);
        self.stop_transfer(backend);
        self.command = None;
        self.registers.power_on();
    }

    /// The clock is written: resets for one of the lines work at once, their bits stay for a
    /// moment.
    pub(super) fn write_clock(&mut self, value: ClockControl, clock: &mut Clock) {
        if self.registers.write_clock(value) {
            clock.after(STABLE_NS, Event::Stable { epoch: self.epoch });
        }
    }

    /// What the reset bits for the lines reset, unless all is reset. They stay set for a moment.
    pub(super) fn reset_lines(
        &mut self,
        value: ClockControl,
        backend: &mut Backend,
        clock: &mut Clock,
    ) {
        if value.reset_all() {
            self.registers.reset();
        } else {
            if value.reset_command() {
                self.registers.end_command();
                self.command = None;
            }
            if value.reset_data() {
                self.stop_transfer(backend);
            }
        }
        clock.after(RESET_NS, Event::ResetDone { epoch: self.epoch });
    }

    /// When `count` commands that may go at `now` have crossed the line, each with `more`
    /// nanoseconds of who sends it.
    #[inline]
    pub(super) fn commands(&mut self, count: u64, more: u64, now: u64) -> u64 {
        self.lines.commands(&self.registers, count, more, now)
    }

    /// When `blocks` that may go at `start` have crossed the data lines, as they become `ready`.
    #[inline]
    pub(super) fn data(
        &mut self,
        backend: &mut Backend,
        start: u64,
        ready: Ready,
        blocks: u64,
    ) -> u64 {
        backend.crossed(blocks * 512);
        self.lines.data(&self.registers, start, ready, blocks)
    }

    /// The command register was written: the command goes onto the line.
    pub(super) fn send(&mut self, mode: Command, clock: &mut Clock) {
        let Some(argument) = self.registers.begin_command(mode) else { return };
        self.command = Some(Sent { mode, argument });
        let count = if mode.data() && mode.auto() == auto::CMD23 { 2 } else { 1 };
        let end = self.commands(count, 0, clock.nanos());
        self.command_serial = self.command_serial.wrapping_add(1);
        clock.at(end, Event::Command { serial: self.command_serial });
    }

    /// A command has crossed the line: what it was, unless it was taken back.
    pub(super) fn sent(&mut self, serial: u32) -> Option<Sent> {
        let sent = self.command.take_if(|_| serial == self.command_serial)?;
        self.registers.end_command();
        Some(sent)
    }

    /// Nobody responds: the host hears of it when it has waited long enough.
    pub(super) fn wait_for_response(&mut self, clock: &mut Clock) {
        let wait = RESPONSE_CLOCKS * 1_000_000_000 / self.registers.hertz().max(1);
        clock.after(wait, Event::Silence { epoch: self.epoch });
    }

    /// No response came.
    pub(super) fn silence(&mut self) {
        self.registers.raise(Interrupts::new().with_command_timeout(true));
    }

    /// Transfer complete comes with the end of busy, if the device is `busy`; whether it is.
    pub(super) fn wait_for_busy(&mut self, busy: bool) -> bool {
        self.waits_busy = busy;
        busy
    }

    /// The device is no longer busy: whether transfer complete waited for that.
    pub(super) fn waited_for_busy(&mut self) -> bool {
        core::mem::take(&mut self.waits_busy)
    }

    /// The host waits for data that never comes.
    pub(super) fn wait_in_vain(&mut self, clock: &mut Clock) {
        self.serial = self.serial.wrapping_add(1);
        clock.after(DATA_TIMEOUT_NS, Event::DataSilence { serial: self.serial });
    }

    /// Data was announced and did not come.
    pub(super) fn data_silence(&mut self) {
        self.registers.raise(Interrupts::new().with_data_timeout(true));
    }

    /// The data phase of a command begins.
    pub(super) fn begin_data(
        &mut self,
        mode: Command,
        phase: Phase,
        device: &mut Device,
        clock: &mut Clock,
    ) {
        let size = self.registers.block();
        let block = u32::from(size.size()).max(4);
        let count = if mode.multi() { u32::from(size.count()) } else { 1 };
        let mut blocks = phase.blocks.unwrap_or(count).min(count.max(1));
        if let Load::Sectors { .. } = phase.load
            && let Err(error) = device.card.ext_csd.whole(0, blocks)
        {
            // The part of a native sector at the end of what CMD12 ends is not taken.
            device.card.fail(error);
            blocks &= !(NATIVE_SECTOR / SECTOR - 1);
        }
        if blocks == 0 {
            // A count of zero stops the controller (SDHCI 2.2.3), whatever the card sends.
            return self.wait_in_vain(clock);
        }
        if phase.load == Load::Tuning {
            device.card.state = CardState::Transfer;
            return self.registers.tuning_block(device.card.lines());
        }
        let bytes = u64::from(block) * u64::from(blocks);
        let now = clock.nanos();
        self.give_room(&mut device.backend);
        let mut has_room = true;
        let ready = match phase.load {
            Load::Sectors { part, offset, .. } if phase.read => {
                let accepted = device.backend.accept(now);
                let span = device.card.parts.span(part, (offset / 512) as u32, blocks);
                device.backend.read(span, accepted)
            }
            Load::Sectors { .. } => {
                let accepted = device.backend.accept(now);
                device.card.set_well(0);
                has_room = device.backend.admit_transfer(bytes);
                Ready { first: accepted, last: accepted }
            }
            _ => Ready { first: now + REGISTER_NS, last: now + REGISTER_NS },
        };
        let list = self.registers.list();
        let transfer = Transfer { phase, mode, bytes, block, blocks, ready, list, done: 0 };
        self.transfer = Some(transfer);
        self.serial = self.serial.wrapping_add(1);
        if has_room {
            self.schedule_data(&mut device.backend, clock);
        } else {
            device.backend.program(clock);
        }
    }

    /// The data of the transfer goes onto the bus: all of it, or a block.
    pub(super) fn schedule_data(&mut self, backend: &mut Backend, clock: &mut Clock) {
        let Some(transfer) = self.transfer else { return };
        let serial = self.serial;
        if transfer.mode.dma() {
            let blocks = u64::from(transfer.blocks);
            let end = self.data(backend, clock.nanos(), transfer.ready, blocks);
            return clock.at(end, Event::Data { serial });
        }
        if transfer.phase.read {
            self.schedule_block(Event::Block { serial }, backend, clock);
        } else {
            self.offer_buffer();
        }
    }

    /// The next block of the buffer port goes onto the bus.
    fn schedule_block(&mut self, event: Event, backend: &mut Backend, clock: &mut Clock) {
        let Some(Transfer { ready, .. }) = self.transfer else { return };
        let end = self.data(backend, clock.nanos(), ready, 1);
        clock.at(end, event);
    }

    /// All data of a DMA transfer has crossed the bus: whether the data phase is over.
    pub(super) fn data_arrives(
        &mut self,
        memory: &GuestMemory,
        device: &mut Device,
        faults: &mut Injector,
        now: Instant,
    ) -> bool {
        let Some(transfer) = self.transfer else { return false };
        if self.is_spoilt(device, faults, now) {
            return false;
        }
        let Transfer { phase: Phase { read, load, .. }, list, bytes, .. } = transfer;
        let moved = match list.stride {
            0 => Err(Failed::List),
            _ => device.transfer(memory, (read, load), list, bytes),
        };
        match moved {
            Ok(()) => return true,
            Err(Failed::List) => {
                self.registers.set_adma_error();
                self.fail_data(device, Interrupts::new().with_adma(true));
            }
            Err(Failed::Store) => {
                let error = CardStatus::new().with_ecc_failed(true);
                self.fail_data_with(device, error);
            }
        }
        false
    }

    /// Whether the data on the bus is spoilt, by how both sides use it or by a fault: the transfer
    /// has ended then, or nobody hears of it any more.
    fn is_spoilt(&mut self, device: &mut Device, faults: &mut Injector, now: Instant) -> bool {
        let Some(transfer) = &self.transfer else { return true };
        if !self.registers.agrees_with(&device.card) {
            self.fail_data(device, Interrupts::new().with_data_crc(true));
            return true;
        }
        if transfer.done != 0 || !faults.is_active() {
            return false;
        }
        match fault_in_data(faults, &mut self.registers, transfer, now) {
            None => return false,
            Some(Spoilt::Bus(what)) => self.fail_data(device, what),
            Some(Spoilt::Device(error)) => self.fail_data_with(device, error),
            Some(Spoilt::Silent) => self.stop_transfer(&mut device.backend),
        }
        true
    }

    /// The data phase is over: what was moved.
    pub(super) fn end_data(&mut self) -> Option<Transfer> {
        self.transfer.take()
    }

    /// Transfer complete.
    pub(super) fn transfer_complete(&mut self, faults: &mut Injector, now: Instant) {
        self.interrupts += 1;
        self.registers.raise(Interrupts::new().with_transfer(true));
        if faults.is_active() && faults.fires(Kind::LostInterrupt, now, 0) {
            self.registers.mute();
        }
    }

    /// The data phase failed.
    fn fail_data(&mut self, device: &mut Device, what: Interrupts) {
        self.give_room(&mut device.backend);
        let Some(transfer) = self.transfer.take() else { return };
        device.card.fail_data(transfer.phase.blocks.is_some());
        self.interrupts += 1;
        self.registers.raise(what);
    }

    /// The device stops sending, or does not accept: what the host sees is data that ends.
    fn fail_data_with(&mut self, device: &mut Device, error: CardStatus) {
        device.card.fail(error);
        self.fail_data(device, Interrupts::new().with_data_timeout(true));
    }

    /// Room that was taken for data that did not come.
    fn give_room(&mut self, backend: &mut Backend) {
        if let Some(transfer) = self.transfer.filter(Transfer::takes_room) {
            backend.end_transfer(transfer.bytes);
        }
    }

    /// The host gave the data lines up, or the device was told to stop.
    pub(super) fn stop_transfer(&mut self, backend: &mut Backend) {
        self.give_room(backend);
        self.transfer = None;
        self.serial = self.serial.wrapping_add(1);
        self.waits_busy = false;
        self.registers.withdraw((true, true));
    }

    /// A block of a read is in the buffer.
    pub(super) fn block_arrives(
        &mut self,
        device: &mut Device,
        faults: &mut Injector,
        now: Instant,
    ) {
        let Some(transfer) = self.transfer else { return };
        if self.is_spoilt(device, faults, now) {
            return;
        }
        self.buffer.block.clear();
        self.buffer.block.resize(transfer.block as usize, 0);
        if !transfer.phase.read {
            return;
        }
        let read = device.give(transfer.phase.load, transfer.done, &mut self.buffer.block);
        if read.is_err() {
            return self.fail_data_with(device, CardStatus::new().with_ecc_failed(true));
        }
        self.buffer.at = 0;
        self.registers.offer_read();
    }

    fn offer_buffer(&mut self) {
        self.buffer.block.clear();
        self.registers.offer_write();
    }

    /// The buffer port is read: its word, and whether the data phase is over with it.
    pub(super) fn read_buffer(&mut self, backend: &mut Backend, clock: &mut Clock) -> (u32, bool) {
        let (true, _) = self.registers.offers() else { return (0, false) };
        let Some(word) = self.buffer.next_word() else { return (0, false) };
        (word, self.buffer.is_read() && self.block_taken(backend, clock))
    }

    /// The host has taken a block: whether the data phase is over.
    fn block_taken(&mut self, backend: &mut Backend, clock: &mut Clock) -> bool {
        self.registers.withdraw((true, false));
        let Some(transfer) = &mut self.transfer else { return false };
        transfer.done += u64::from(transfer.block);
        let ends = transfer.done >= transfer.bytes;
        if !ends {
            self.schedule_block(Event::Block { serial: self.serial }, backend, clock);
        }
        ends
    }

    /// The buffer port is written.
    pub(super) fn write_buffer(&mut self, value: u32, backend: &mut Backend, clock: &mut Clock) {
        let Some(transfer) = self.transfer else { return };
        let (_, true) = self.registers.offers() else { return };
        self.buffer.block.extend_from_slice(&value.to_le_bytes());
        if self.buffer.block.len() >= transfer.block as usize {
            self.registers.withdraw((false, true));
            self.schedule_block(Event::BlockSent { serial: self.serial }, backend, clock);
        }
    }

    /// A block from the buffer port is in the device: whether the data phase is over.
    pub(super) fn block_sent(
        &mut self,
        device: &mut Device,
        faults: &mut Injector,
        now: Instant,
    ) -> bool {
        let Some(transfer) = self.transfer else { return false };
        if self.is_spoilt(device, faults, now) {
            return false;
        }
        if device.take(transfer.phase.load, transfer.done, &self.buffer.block).is_err() {
            self.fail_data_with(device, CardStatus::new().with_error(true));
            return false;
        }
        let Some(transfer) = &mut self.transfer else { return false };
        transfer.done += u64::from(transfer.block);
        let ends = transfer.done >= transfer.bytes;
        if !ends {
            self.offer_buffer();
        }
        ends
    }

    /// A response has come.
    pub(super) fn respond(&mut self, response: Response) {
        self.registers.respond(response);
    }
}
