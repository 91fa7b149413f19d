//! Commands and data of the host's own registers on their way through the bus and the device, and
//! what both ways share: the bus, the media, the end of busy.

use flysch_wire::mmc::command::CommandIndex;
use flysch_wire::mmc::sdhci::{Command, Interrupts, auto, response as kind};
use flysch_wire::mmc::{CardState, CardStatus, NATIVE_SECTOR, SECTOR};

use super::card::{Answer, Busy, Card, Load, Phase, Response, base};
use super::controller::TUNING_BLOCKS;
use super::profile::level;
use super::transfer::{Failed, List};
use super::{Emmc, Event};
use crate::faults::Kind;
use crate::media::{Ready, Span};

/// Bits of a command and a response on the line, and the gaps between them, clocks.
const COMMAND_CLOCKS: u64 = 48 + 48 + 16;
/// Start bit, CRC and end bit of a block, clocks.
const BLOCK_CLOCKS: u64 = 18;
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
    bytes: u64,
    block: u32,
    pub(super) blocks: u32,
    ready: Ready,
    list: List,
    /// Bytes that the buffer port has moved.
    done: u64,
    /// Its data waits for room.
    waits: bool,
}

/// What `blocks` sectors are on the medium.
#[inline]
pub(super) fn span(card: &Card, part: u8, first: u32, blocks: u32) -> Span {
    let limit = card.parts.0[usize::from(part)].as_ref().map_or(0, |part| part.size);
    Span {
        address: base(part) + u64::from(first) * 512,
        len: u64::from(blocks) * 512,
        limit: base(part) + limit,
    }
}

impl Emmc {
    /// A command and its response on the line, nanoseconds.
    #[inline]
    pub(super) fn command_ns(&self) -> u64 {
        COMMAND_CLOCKS * 1_000_000_000 / self.registers.hertz().max(1)
    }

    /// Blocks on the data lines, nanoseconds.
    #[inline]
    fn data_ns(&self, blocks: u64, block: u64) -> u64 {
        let (lines, both) = self.registers.lines();
        let edges = u64::from(lines) * if both { 2 } else { 1 };
        let gap = u64::from(self.profile.block_gap);
        let clocks = blocks * (block * 8 / edges + BLOCK_CLOCKS + gap);
        clocks * 1_000_000_000 / self.registers.hertz().max(1)
    }

    /// When data that may start at `start` has crossed the bus, as it becomes ready.
    #[inline]
    pub(super) fn data_end(&mut self, start: u64, ready: Ready, blocks: u64) -> u64 {
        self.media.moved(blocks * 512);
        let start = self.data_free.max(start).max(ready.first);
        let page = blocks.min(u64::from(self.profile.timing.page_bytes) / 512);
        let streamed = start + self.data_ns(blocks, 512);
        self.data_free = streamed.max(ready.last + self.data_ns(page, 512));
        self.data_free
    }

    /// The command register was written: the command goes onto the line.
    pub(super) fn write_command(&mut self, mode: Command) {
        let r = &mut self.registers;
        if r.present.command_inhibit() || r.hertz() == 0 {
            // A command that cannot be sent vanishes.
            r.mode = mode;
            return;
        }
        r.mode = mode;
        r.present = r.present.with_command_inhibit(true);
        let sent = Sent { mode, argument: r.argument };
        self.command = Some(sent);
        let mut time = self.command_ns();
        if mode.data() && mode.auto() == auto::CMD23 {
            time += self.command_ns();
        }
        let start = self.command_free.max(self.now.nanos());
        self.command_free = start + time;
        self.command_serial = self.command_serial.wrapping_add(1);
        let (epoch, serial) = (self.epoch, self.command_serial);
        self.at(self.command_free, Event::Command { epoch, serial });
    }

    /// A command to the device, whoever sends it.
    pub(super) fn execute(&mut self, index: u8, argument: u32) -> Option<Answer> {
        let fails = index == CommandIndex::Switch.into_bits()
            && self.faults.is_active()
            && self.card.state == CardState::Transfer
            && self.faults.fires(Kind::SwitchError, self.now, argument);
        let answer = self.card.command(index, argument, (self.now, fails));
        if let Some((part, offset, bytes)) = self.card.erased.take() {
            // What was erased does not come back with a loss of power.
            self.cache.discarded(part, offset, bytes);
        }
        if index == CommandIndex::SleepAwake.into_bits() {
            self.meter_state();
        }
        answer
    }

    /// Tells the meter what state the card is in.
    pub(super) fn meter_state(&mut self) {
        let level = match self.card.state {
            _ if !self.card.is_powered => level::OFF,
            CardState::Sleep => level::SLEEP,
            _ if self.registers.hertz() == 0 => level::STILL,
            _ => level::CLOCKED,
        };
        self.media.meter_mut().enter(level, self.now.nanos());
    }

    /// The command has crossed the line.
    pub(super) fn command_arrives(&mut self) {
        let Some(Sent { mode, argument }) = self.command.take() else { return };
        self.registers.present = self.registers.present.with_command_inhibit(false);
        if self.faults.is_active() && self.fault_in_command(mode) {
            return;
        }
        let low = self.registers.control2.signal_1_8();
        let reaches = self.registers.hertz() <= self.card.clock_max() && self.card.hears(low);
        if mode.data() && mode.auto() == auto::CMD23 && reaches {
            let set = CommandIndex::SetBlockCount.into_bits();
            self.execute(set, self.registers.argument2);
        }
        let answer = if reaches { self.execute(mode.index(), argument) } else { None };
        match answer {
            Some(answer) => self.respond(mode, answer),
            None if mode.response() == kind::NONE => {
                self.registers.raise(Interrupts::new().with_command(true));
            }
            None => {
                let wait = RESPONSE_CLOCKS * 1_000_000_000 / self.registers.hertz().max(1);
                let epoch = self.epoch;
                self.after(wait, Event::Silence { epoch });
            }
        }
    }

    /// The response time-out.
    pub(super) fn silence(&mut self) {
        self.registers.raise(Interrupts::new().with_command_timeout(true));
    }

    fn respond(&mut self, mode: Command, answer: Answer) {
        let r = &mut self.registers;
        match answer.response {
            Response::None => {}
            Response::Status(word) | Response::Ocr(word) => r.response[0] = word,
            Response::Long(register) => {
                let bits = register >> 8;
                r.response = [0, 32, 64, 96].map(|shift| (bits >> shift) as u32);
            }
        }
        r.raise(Interrupts::new().with_command(true));
        if answer.busy == Busy::Interrupted {
            self.interrupt_busy();
        } else {
            self.become_busy(answer.busy);
        }
        if mode.index() == CommandIndex::StopTransmission.into_bits() {
            self.stop_transfer();
        }
        if mode.response() == kind::BUSY {
            self.waits_busy = self.card.is_busy;
            if !self.waits_busy {
                self.registers.raise(Interrupts::new().with_transfer(true));
            }
        }
        match answer.phase {
            Some(phase) => self.begin_data(mode, phase),
            None if mode.data() => self.wait_in_vain(),
            None => {}
        }
    }

    /// The host waits for data that never comes.
    fn wait_in_vain(&mut self) {
        self.serial = self.serial.wrapping_add(1);
        let (epoch, serial) = (self.epoch, self.serial);
        self.after(DATA_TIMEOUT_NS, Event::DataSilence { epoch, serial });
    }

    /// Data was announced and did not come.
    pub(super) fn data_silence(&mut self) {
        self.registers.raise(Interrupts::new().with_data_timeout(true));
    }

    /// The data phase of a command begins.
    fn begin_data(&mut self, mode: Command, phase: Phase) {
        let block = u32::from(self.registers.block.size()).max(4);
        let count = if mode.multi() { u32::from(self.registers.block.count()) } else { 1 };
        let mut blocks = phase.blocks.unwrap_or(count).min(count.max(1));
        if let Load::Sectors { .. } = phase.load
            && let Err(error) = self.card.whole(0, blocks)
        {
            // The part of a native sector at the end of what CMD12 ends is not taken.
            self.card.fail(error);
            blocks &= !(NATIVE_SECTOR / SECTOR - 1);
        }
        if blocks == 0 {
            // A count of zero stops the controller (SDHCI 2.2.3), whatever the card sends.
            return self.wait_in_vain();
        }
        let mut transfer = Transfer {
            phase,
            mode,
            bytes: u64::from(block) * u64::from(blocks),
            block,
            blocks,
            ready: Ready::default(),
            list: List {
                address: self.registers.adma,
                stride: self.registers.stride().unwrap_or(0),
            },
            done: 0,
            waits: false,
        };
        let now = self.now.nanos();
        match phase.load {
            Load::Tuning => return self.tuning_block(),
            Load::Sectors { part, offset, .. } => {
                let accepted = self.media.accept(now, false);
                if phase.read {
                    let first = (offset / 512) as u32;
                    let span = span(&self.card, part, first, blocks);
                    transfer.ready = self.media.read(span, accepted);
                } else {
                    self.card.set_well(0);
                    transfer.ready = Ready { first: accepted, last: accepted };
                    transfer.waits = !self.media.admit(transfer.bytes);
                }
            }
            _ => transfer.ready = Ready { first: now + REGISTER_NS, last: now + REGISTER_NS },
        }
        self.transfer = Some(transfer);
        self.serial = self.serial.wrapping_add(1);
        if transfer.waits {
            return self.program();
        }
        self.schedule_data();
    }

    /// The write that waited for room has it.
    pub(super) fn admit_transfer(&mut self) {
        let Some(transfer) = &mut self.transfer else { return };
        if transfer.waits && self.media.admit(transfer.bytes) {
            transfer.waits = false;
            self.schedule_data();
        }
    }

    pub(super) fn transfer_waits(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| transfer.waits)
    }

    fn schedule_data(&mut self) {
        let Some(transfer) = self.transfer else { return };
        let (epoch, serial) = (self.epoch, self.serial);
        if transfer.mode.dma() {
            let blocks = u64::from(transfer.blocks);
            let end = self.data_end(self.now.nanos(), transfer.ready, blocks);
            return self.at(end, Event::Data { epoch, serial });
        }
        if transfer.phase.read {
            let end = self.data_end(self.now.nanos(), transfer.ready, 1);
            self.at(end, Event::Block { epoch, serial });
        } else {
            self.offer_buffer();
        }
    }

    /// A tuning block came: after enough of them the controller has its sampling point.
    fn tuning_block(&mut self) {
        self.card.state = CardState::Transfer;
        let r = &mut self.registers;
        if !r.control2.tune() {
            return r.raise(Interrupts::new().with_read_ready(true));
        }
        r.tuned = r.tuned.saturating_add(1);
        if r.tuned >= TUNING_BLOCKS {
            let same = r.lines() == self.card.lines();
            r.control2 = r.control2.with_tune(false).with_tuned(same);
            self.detuned = false;
        }
        self.registers.raise(Interrupts::new().with_read_ready(true));
    }

    /// All data of a DMA transfer has crossed the bus.
    pub(super) fn data_arrives(&mut self) {
        let Some(transfer) = self.transfer else { return };
        let Phase { read, load, .. } = transfer.phase;
        if !self.bus_agrees() {
            return self.fail_data(Interrupts::new().with_data_crc(true));
        }
        if self.faults.is_active() && self.fault_in_data() {
            return;
        }
        let moved = if transfer.list.stride == 0 {
            Err(Failed::List)
        } else {
            self.move_data((read, load), transfer.list, transfer.bytes)
        };
        match moved {
            Ok(()) => self.end_data(),
            Err(Failed::List) => {
                self.registers.set_adma_error();
                self.fail_data(Interrupts::new().with_adma(true));
            }
            Err(Failed::Store) => {
                self.card.fail(CardStatus::new().with_ecc_failed(true));
                self.fail_data(Interrupts::new().with_data_timeout(true));
            }
        }
    }

    /// Moves data between the host's memory and what it is of.
    #[inline]
    pub(super) fn move_data(
        &mut self,
        (read, load): (bool, Load),
        list: List,
        bytes: u64,
    ) -> Result<(), Failed> {
        let Load::Sectors { part, offset, .. } = load else {
            return self.move_bytes((read, load), list, bytes);
        };
        if !read {
            self.keep_old(part, offset, bytes)?;
        }
        let Some(there) = &mut self.card.parts.0[usize::from(part)] else {
            return Err(Failed::Store);
        };
        let store = &mut there.store;
        if read {
            list.copy((&self.memory, true), bytes, |done, (region, at), len| {
                store.read(offset + done, region, at, len)
            })
        } else {
            self.card.written += bytes;
            list.copy((&self.memory, false), bytes, |done, (region, at), len| {
                store.write(offset + done, region, at, len)
            })
        }
    }

    /// What a power loss would bring back is kept.
    fn keep_old(&mut self, part: u8, offset: u64, bytes: u64) -> Result<(), Failed> {
        if !self.cache.is_enabled() {
            return Ok(());
        }
        // The write counts as arrived right after this.
        let mark = self.media.arrived_total() + bytes;
        let shift = self.card.grain_shift();
        // What comes through the buffer port comes in parts: a sector is kept with its first.
        let first = offset.next_multiple_of(1 << shift);
        let rest = (offset + bytes).saturating_sub(first);
        let Some(there) = &mut self.card.parts.0[usize::from(part)] else { return Ok(()) };
        Ok(self.cache.keep((part, shift), &mut there.store, (first, rest), mark)?)
    }

    /// Registers and messages.
    fn move_bytes(
        &mut self,
        (read, load): (bool, Load),
        list: List,
        bytes: u64,
    ) -> Result<(), Failed> {
        let mut data = alloc::vec![0; bytes as usize];
        if read {
            self.register_bytes(load, &mut data);
            return list.scatter(&self.memory, &data);
        }
        list.gather(&self.memory, &mut data)?;
        self.take_bytes(load, &data);
        Ok(())
    }

    fn register_bytes(&mut self, load: Load, data: &mut [u8]) {
        let from = match load {
            Load::ExtCsd => self.card.ext_csd.0.to_vec(),
            Load::Protection(group) => self.card.protection(group).to_be_bytes().to_vec(),
            Load::ProtectionTypes(group) => {
                self.card.protection_types(group).to_be_bytes().to_vec()
            }
            Load::Rpmb(_) => self.card.rpmb.read(data.len() / 512),
            Load::Message => self.card.message().to_vec(),
            _ => return,
        };
        let len = data.len().min(from.len());
        data[..len].copy_from_slice(&from[..len]);
    }

    fn take_bytes(&mut self, load: Load, data: &[u8]) {
        match load {
            Load::Rpmb(reliable) => self.card.rpmb.write(data, reliable),
            Load::Firmware => self.card.firmware += (data.len() / 512) as u32,
            _ => {}
        }
    }

    /// Data of a write has arrived in the device.
    pub(super) fn data_came(&mut self, bytes: u64) {
        self.media.arrived(bytes, false);
    }

    /// The data phase is over: the transfer is complete once the device is not busy with it.
    fn end_data(&mut self) {
        let Some(transfer) = self.transfer.take() else { return };
        self.card.end_data();
        let Phase { read, load, .. } = transfer.phase;
        if !read && let Load::Sectors { force, .. } = load {
            self.card.set_well(transfer.blocks);
            self.data_came(transfer.bytes);
            self.program();
            if force || !self.card.has_cache_on() {
                self.become_busy(Busy::Medium);
            }
        } else if !read {
            // Messages and firmware go to the medium at once.
            self.become_busy(Busy::For(1_000_000));
        }
        self.done[0] = self.now.nanos();
        self.waits_busy = self.card.is_busy;
        if !self.waits_busy {
            self.transfer_complete();
        }
    }

    fn transfer_complete(&mut self) {
        self.interrupts += 1;
        self.registers.raise(Interrupts::new().with_transfer(true));
        if self.faults.is_active() && self.faults.fires(Kind::LostInterrupt, self.now, 0) {
            self.registers.is_mute = true;
        }
    }

    /// The data phase failed.
    pub(super) fn fail_data(&mut self, what: Interrupts) {
        self.give_room();
        let Some(transfer) = self.transfer.take() else { return };
        self.card.fail_data(transfer.phase.blocks.is_some());
        self.interrupts += 1;
        self.registers.raise(what);
    }

    /// Room that was taken for data that did not come.
    fn give_room(&mut self) {
        if let Some(transfer) = &self.transfer
            && !transfer.phase.read
            && !transfer.waits
            && matches!(transfer.phase.load, Load::Sectors { .. })
        {
            self.media.release(transfer.bytes);
        }
    }

    /// The host gave the data lines up, or the device was told to stop.
    pub(super) fn stop_transfer(&mut self) {
        self.give_room();
        self.transfer = None;
        self.serial = self.serial.wrapping_add(1);
        self.waits_busy = false;
        let r = &mut self.registers;
        r.present = r.present.with_read_ready(false).with_write_ready(false);
    }

    /// The device is busy from now on.
    pub(super) fn become_busy(&mut self, busy: Busy) {
        if busy == Busy::None {
            // Whatever it is busy with goes on.
            return;
        }
        let stuck = self.faults.is_active() && self.faults.fires(Kind::BusyStuck, self.now, 0);
        self.busy_mark = None;
        self.busy_serial = self.busy_serial.wrapping_add(1);
        let serial = self.busy_serial;
        match busy {
            _ if stuck => self.card.is_busy = true,
            Busy::None | Busy::Interrupted => {}
            Busy::For(nanos) => {
                self.card.is_busy = true;
                self.after(nanos, Event::NotBusy { serial });
            }
            Busy::Medium => {
                let mark = self.media.arrived_total();
                self.card.is_busy = true;
                self.busy_mark = Some(mark);
                self.program();
                self.look_at_busy();
            }
        }
    }

    /// HPI: whatever the device was busy with ends now.
    fn interrupt_busy(&mut self) {
        self.busy_serial = self.busy_serial.wrapping_add(1);
        self.not_busy();
    }

    /// Whether what the device is busy with is on the medium.
    pub(super) fn look_at_busy(&mut self) {
        if self.busy_mark.is_some_and(|mark| mark <= self.media.programmed_total()) {
            self.not_busy();
        }
    }

    /// The device is ready again.
    pub(super) fn not_busy(&mut self) {
        self.busy_mark = None;
        self.card.is_busy = false;
        if core::mem::take(&mut self.waits_busy) {
            self.transfer_complete();
        }
        self.end_direct();
    }

    /// Starts as many program operations as there are data and dies.
    pub(super) fn program(&mut self) {
        let now = self.now.nanos();
        // Nobody waits for more data to fill a program unit when somebody waits for what is there.
        let waits = self.busy_mark.is_some() || self.tasks_wait() || self.transfer_waits();
        while let Some(started) = self.media.program(now, waits) {
            self.at(started.end, Event::Die(started.die));
        }
    }

    pub(super) fn die_done(&mut self, die: u16) {
        if let Err(end) = self.media.programmed(die, self.now.nanos()) {
            return self.at(end, Event::Die(die));
        }
        self.cache.programmed(self.media.programmed_total());
        self.program();
        self.admit_tasks();
        self.admit_transfer();
        self.end_settled();
        self.look_at_busy();
    }

    /// A block of a read is in the buffer.
    pub(super) fn block_arrives(&mut self) {
        let Some(transfer) = self.transfer else { return };
        if !self.bus_agrees() {
            return self.fail_data(Interrupts::new().with_data_crc(true));
        }
        if transfer.done == 0 && self.faults.is_active() && self.fault_in_data() {
            return;
        }
        let block = transfer.block as usize;
        self.buffer.clear();
        self.buffer.resize(block, 0);
        if transfer.phase.read {
            let mut bytes = core::mem::take(&mut self.buffer);
            let read = self.load_block(transfer.phase.load, transfer.done, &mut bytes);
            self.buffer = bytes;
            if read.is_err() {
                self.card.fail(CardStatus::new().with_ecc_failed(true));
                return self.fail_data(Interrupts::new().with_data_timeout(true));
            }
            self.buffer_at = 0;
            let r = &mut self.registers;
            r.present = r.present.with_read_ready(true);
            r.raise(Interrupts::new().with_read_ready(true));
        }
    }

    fn load_block(&mut self, load: Load, done: u64, bytes: &mut [u8]) -> Result<(), Failed> {
        match load {
            Load::Sectors { part, offset, .. } => {
                let there = self.card.parts.0[usize::from(part)].as_mut();
                Ok(there.ok_or(Failed::Store)?.store.get(offset + done, bytes)?)
            }
            load => {
                self.register_bytes(load, bytes);
                Ok(())
            }
        }
    }

    fn offer_buffer(&mut self) {
        self.buffer.clear();
        let r = &mut self.registers;
        r.present = r.present.with_write_ready(true);
        r.raise(Interrupts::new().with_write_ready(true));
    }

    /// The buffer port is read.
    pub(super) fn read_buffer(&mut self) -> u32 {
        let at = self.buffer_at;
        if !self.registers.present.read_ready() || at + 4 > self.buffer.len() {
            return 0;
        }
        let mut word = [0; 4];
        word.copy_from_slice(&self.buffer[at..at + 4]);
        self.buffer_at += 4;
        if self.buffer_at >= self.buffer.len() {
            self.block_taken();
        }
        u32::from_le_bytes(word)
    }

    /// The host has taken a block.
    fn block_taken(&mut self) {
        self.registers.present = self.registers.present.with_read_ready(false);
        let Some(transfer) = &mut self.transfer else { return };
        transfer.done += u64::from(transfer.block);
        let (done, bytes) = (transfer.done, transfer.bytes);
        if done >= bytes {
            return self.end_data();
        }
        let (ready, epoch, serial) = (transfer.ready, self.epoch, self.serial);
        let end = self.data_end(self.now.nanos(), ready, 1);
        self.at(end, Event::Block { epoch, serial });
    }

    /// The buffer port is written.
    pub(super) fn write_buffer(&mut self, value: u32) {
        let Some(transfer) = self.transfer else { return };
        if !self.registers.present.write_ready() {
            return;
        }
        self.buffer.extend_from_slice(&value.to_le_bytes());
        if self.buffer.len() < transfer.block as usize {
            return;
        }
        self.registers.present = self.registers.present.with_write_ready(false);
        let (epoch, serial) = (self.epoch, self.serial);
        let end = self.data_end(self.now.nanos(), transfer.ready, 1);
        self.at(end, Event::BlockSent { epoch, serial });
    }

    /// A block from the buffer port is in the device.
    pub(super) fn block_sent(&mut self) {
        let Some(transfer) = self.transfer else { return };
        if !self.bus_agrees() {
            return self.fail_data(Interrupts::new().with_data_crc(true));
        }
        if transfer.done == 0 && self.faults.is_active() && self.fault_in_data() {
            return;
        }
        let data = core::mem::take(&mut self.buffer);
        let done = transfer.done;
        if let Load::Sectors { part, offset, .. } = transfer.phase.load {
            let (at, len) = (offset + done, data.len() as u64);
            let kept = self.keep_old(part, at, len);
            let there = self.card.parts.0[usize::from(part)].as_mut();
            let put = there.map(|there| there.store.put(at, &data).is_ok());
            self.card.written += len;
            if kept.is_err() || put != Some(true) {
                self.card.fail(CardStatus::new().with_error(true));
                self.buffer = data;
                return self.fail_data(Interrupts::new().with_data_timeout(true));
            }
        } else {
            self.take_bytes(transfer.phase.load, &data);
        }
        self.buffer = data;
        let Some(transfer) = &mut self.transfer else { return };
        transfer.done += u64::from(transfer.block);
        if transfer.done >= transfer.bytes {
            return self.end_data();
        }
        self.offer_buffer();
    }
}
