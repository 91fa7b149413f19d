//! Carrying operations and errands out: taking the bus for them, what they do on it, and what
//! happens when they fail there.

use crate::bus::Response;
use crate::card::Card;
use crate::channel::{MS, Run};
use crate::control::Core;
use crate::device::{CardFacts, CardKind};
use crate::error::BusError;
use crate::history::ErrorKind;
use crate::lane::{ANSWERED, OVERDUE, WELL};
use crate::operation::{EraseKind, Operation, Output};
use crate::shared::{Errand, Terms, cause};
use crate::{Cause, EmmcError};
use alloc::boxed::Box;
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_script::{Replay, settled};
use flysch_wire::mmc::SECTOR;
use flysch_wire::mmc::command::{CommandIndex, SLEEP, SwitchArgument, erase, rca};
use flysch_wire::mmc::ext_csd::{self, flush, partition, power_off, revision};

/// Sectors of a firmware that are sent at once.
const FIRMWARE_SECTORS: usize = 32;
/// FFU_STATUS: success.
const FFU_DONE: u8 = 0;
/// BKOPS_STATUS from which on the card is slower until background operations are done.
const URGENT: u8 = 2;

impl<M: Machine> Core<M> {
    pub(crate) fn operate(&mut self, operation: &Operation) -> Run<Output> {
        if self.asleep && !matches!(operation, Operation::Awake) {
            return Err(EmmcError::Asleep.into());
        }
        let Card { channel, device } = &self.card;
        operation.check(device, channel.quirks)?;
        match operation {
            // The host turns these into other jobs.
            Operation::BringUp | Operation::Reset => Ok(Output::None),
            Operation::Shutdown => self.shut_down().map(none),
            Operation::Sleep => self.sleep_card().map(none),
            Operation::Awake => self.wake_card().map(none),
            Operation::Firmware(image) => self.update_firmware(image).map(none),
            Operation::Rpmb(request) => {
                self.with_bus((true, None), |card| request.exchange(card)).map(Output::Rpmb)
            }
            Operation::Read { partition, first, sectors } => {
                let sectors_at = SectorsAt { partition: *partition, first: *first };
                self.with_bus((true, None), |card| sectors_at.read(card, *sectors))
            }
            Operation::Write { partition, first, data } => {
                let sectors_at = SectorsAt { partition: *partition, first: *first };
                self.with_bus((true, None), |card| sectors_at.write(card, data)).map(none)
            }
            Operation::SelectPartition(access) => self.choose_partition(*access).map(none),
            Operation::SelectBoot { partition, acknowledge } => {
                let work = |card: &mut Card<M>| card.select_boot(*partition, *acknowledge);
                self.with_bus((true, None), work).map(none)
            }
            other => self.with_bus((false, None), |card| card.on_the_bus(other)),
        }
    }

    /// Does something that needs the bus, with the lanes paused, once the bus is free, at
    /// `deadline` at the latest; with `leaves` the card is taken out of its queueing mode
    /// meanwhile. Whatever the result is, the lanes run again.
    pub(crate) fn with_bus<T>(
        &mut self,
        (leaves, deadline): (bool, Option<Instant>),
        work: impl FnOnce(&mut Card<M>) -> Run<T>,
    ) -> Run<T> {
        let Self { card, speed, engine, .. } = self;
        engine.take_bus(&mut card.channel, deadline)?;
        if leaves {
            card.set_queueing(false)?;
        }
        let result = settled(work(card))?;
        let is_mended = match &result {
            Err(EmmcError::Failed(Cause::Busy(_))) => card.interrupt_busy()?,
            Err(EmmcError::Failed(Cause::Bus(_, error))) => {
                card.channel.note(ErrorKind::Bus, error.0);
                card.calm()? && speed.mend(card, *error)?
            }
            _ => true,
        };
        if !is_mended {
            // Only a reset ends it.
            card.channel.effect(|channel| channel.shared.orders.report(cause::LOST));
            return result.map_err(Into::into);
        }
        if leaves && result.is_err() {
            // It may have ended while another partition was selected.
            let home = card.device.partition;
            card.select_partition(home)?;
        }
        if leaves {
            card.set_queueing(true)?;
        }
        engine.give_bus(card);
        result.map_err(Into::into)
    }

    fn choose_partition(&mut self, access: u8) -> Run<()> {
        self.with_bus((true, None), |card| {
            card.select_partition(access)?;
            card.channel.effect(|channel| {
                card.device.partition = access;
                channel.options.partition = access;
                let terms = channel.shared.terms();
                channel.shared.set_terms(Terms { partition: access, ..terms });
            });
            Ok(())
        })
    }

    /// Makes everything safe, announces the power-off, and stops the clock.
    fn shut_down(&mut self) -> Run<()> {
        let Self { card, engine, .. } = self;
        if card.channel.lanes_idle(false)?.is_err() {
            return Err(Cause::InFlight.into());
        }
        engine.take_bus(&mut card.channel, None)?;
        let emmc = card.device.kind == CardKind::Emmc;
        let done = if emmc { settled(card.announce_power_off())? } else { Ok(()) };
        if card.device.queue_depth != 0 {
            engine.stop(&mut card.channel)?;
        }
        card.set_clock(0)?;
        // A command that is started now ends at once; bring-up begins with other orders.
        card.channel.order(Order::PAUSE | Order::STOP | Order::GONE);
        card.channel.lanes_obey()?;
        done.map_err(Into::into)
    }

    /// Sleep (6.6.21): deselected, CMD5, busy until S_A_TIMEOUT. The lanes stay paused.
    fn sleep_card(&mut self) -> Run<()> {
        let Self { card, engine, asleep, .. } = self;
        if card.channel.lanes_idle(false)?.is_err() {
            return Err(Cause::InFlight.into());
        }
        engine.take_bus(&mut card.channel, None)?;
        card.set_queueing(false)?;
        card.flush_cache(flush::FLUSH, None)?;
        card.channel.command(CommandIndex::SelectCard, 0, Response::None)?;
        card.sleep_awake(SLEEP)?;
        card.set_clock(0)?;
        card.channel.effect(|_| *asleep = true);
        Ok(())
    }

    fn wake_card(&mut self) -> Run<()> {
        let Self { card, engine, asleep, .. } = self;
        if card.channel.once(|_| (*asleep).into()) == 0 {
            return Ok(());
        }
        let clock = card.device.timing.clock();
        card.set_clock(clock)?;
        card.sleep_awake(0)?;
        let address = card.address();
        card.channel.must(CommandIndex::SelectCard, address)?;
        card.set_queueing(true)?;
        card.channel.effect(|_| *asleep = false);
        engine.give_bus(card);
        Ok(())
    }

    /// FFU (6.6.18): the image goes to FFU_ARG in FFU mode; then it is installed, or takes effect
    /// with the reset that the host does next.
    fn update_firmware(&mut self, image: &[u8]) -> Run<()> {
        let Self { card, engine, .. } = self;
        engine.take_bus(&mut card.channel, None)?;
        card.set_queueing(false)?;
        card.write_firmware(image)?;
        let status = card.device.ext_csd.byte(ext_csd::FFU_STATUS);
        // The reset starts it, and restores the state of lanes and card.
        card.channel.effect(|channel| channel.shared.orders.report(cause::LOST));
        if status != FFU_DONE {
            return Err(Cause::Firmware(status).into());
        }
        Ok(())
    }

    /// Runs an errand of a lane; returns how it ended, and the device status.
    ///
    /// # Errors
    /// [`EmmcError::Recovered`]: it has not begun, because a recovery comes first.
    pub(crate) fn run_errand(&mut self, errand: Errand) -> Run<[u32; 2]> {
        let late =
            self.card.channel.once(|channel| (channel.script.now() >= errand.deadline).into()) != 0;
        if late {
            return Ok([OVERDUE, 0]);
        }
        let bus = (false, Some(errand.deadline));
        let result = settled(self.with_bus(bus, |card| errand.run(card)))?;
        Ok(match result {
            Ok(()) => [WELL, 0],
            Err(EmmcError::Recovered) => return Err(EmmcError::Recovered.into()),
            Err(EmmcError::Failed(Cause::Status(_, status))) => [ANSWERED, status.into_bits()],
            Err(EmmcError::Failed(Cause::Switch(_))) => [ANSWERED, 1 << 7],
            Err(EmmcError::Failed(Cause::Busy(_) | Cause::InFlight)) => [OVERDUE, 0],
            Err(EmmcError::Failed(Cause::Bus(_, error))) => [error.0, 0],
            Err(_) => [BusError::SILENT.0, 0],
        })
    }

    /// The card has reported an exception: logs which, and does background operations if they are
    /// urgent.
    pub(crate) fn see_exception(&mut self) -> Run<()> {
        self.with_bus((false, None), |card| {
            card.read_ext_csd()?;
            let told = card.device.ext_csd.byte(ext_csd::EXCEPTION_STATUS);
            card.channel.note(ErrorKind::Exception, told.into());
            let level = card.device.ext_csd.byte(ext_csd::BKOPS_STATUS);
            let supported = card.device.ext_csd.0[ext_csd::BKOPS_SUPPORT] & 1 != 0;
            if supported && level >= URGENT {
                let timeout = card.channel.options.timeouts.bkops_ms;
                card.switch_for(ext_csd::BKOPS_START, 1, (None, timeout))?;
            }
            Ok(())
        })
    }
}

impl<M: Machine> Card<M> {
    fn on_the_bus(&mut self, operation: &Operation) -> Run<Output> {
        match operation {
            Operation::ReadExtCsd => {
                self.read_ext_csd()?;
                let csd = self.device.ext_csd.clone();
                return Ok(Output::ExtCsd(Box::new(csd)));
            }
            Operation::Switch { index, value } => self.switch(*index, *value)?,
            Operation::Flush => self.flush_cache(flush::FLUSH, None)?,
            Operation::Barrier => self.flush_cache(flush::BARRIER, None)?,
            Operation::Sanitize => {
                let timeout = self.channel.options.timeouts.sanitize_ms;
                self.switch_for(ext_csd::SANITIZE_START, 1, (None, timeout))?;
            }
            Operation::Bkops => {
                let timeout = self.channel.options.timeouts.bkops_ms;
                self.switch_for(ext_csd::BKOPS_START, 1, (None, timeout))?;
            }
            Operation::Retune => self.retune()?,
            Operation::Cache(on) => {
                let timeout = self.channel.options.timeouts.flush_ms;
                self.switch_for(ext_csd::CACHE_CTRL, (*on).into(), (None, timeout))?;
                self.channel.effect(|channel| {
                    self.device.cache = *on;
                    channel.options.cache = *on;
                });
            }
            Operation::Status => match self.status()? {
                Ok(status) => return Ok(Output::Status(status)),
                Err(error) => return Err(Cause::Bus(CommandIndex::SendStatus, error).into()),
            },
            Operation::Erase { kind, first, sectors } => {
                let last = first + (sectors - 1);
                let arguments: &[u32] = match kind {
                    EraseKind::Erase => &[erase::ERASE],
                    EraseKind::Trim => &[erase::TRIM],
                    EraseKind::Discard => &[erase::DISCARD],
                    EraseKind::SecureErase => &[erase::SECURE_ERASE],
                    EraseKind::SecureTrim => &[erase::SECURE_TRIM_1, erase::SECURE_TRIM_2],
                };
                for &argument in arguments {
                    Erase { first: *first, last, argument }.run(self, None)?;
                }
            }
            Operation::Protect { sector, on } => {
                let index =
                    if *on { CommandIndex::SetWriteProt } else { CommandIndex::ClrWriteProt };
                let (argument, timeout) = (self.device.place(*sector), self.switch_ms());
                self.busy_command((index, argument), (None, timeout))?;
            }
            Operation::Protection { sector } => {
                let (index, argument) = (CommandIndex::SendWriteProt, self.device.place(*sector));
                if let Err(error) = self.fetch((index, argument), (4, 1))? {
                    return Err(Cause::Bus(index, error).into());
                }
                let mut bytes = [0; 4];
                self.channel.layout.scratch.read(0, &mut bytes);
                return Ok(Output::Protection(u32::from_be_bytes(bytes)));
            }
            _ => {}
        }
        Ok(Output::None)
    }

    /// FLUSH_CACHE.
    fn flush_cache(&mut self, value: u8, deadline: Option<Instant>) -> Run<()> {
        if !self.device.cache {
            return Ok(());
        }
        let timeout = self.channel.options.timeouts.flush_ms;
        self.switch_for(ext_csd::FLUSH_CACHE, value, (deadline, timeout))
    }

    fn select_boot(&mut self, partition: u8, acknowledge: bool) -> Run<()> {
        let access = self.device.partition & partition::MASK;
        let value = u8::from(acknowledge) << 6 | (partition & 7) << 3 | access;
        self.switch(ext_csd::PARTITION_CONFIG, value)?;
        self.read_ext_csd()
    }

    /// Empties the cache and announces that the power will be switched off.
    fn announce_power_off(&mut self) -> Run<()> {
        self.set_queueing(false)?;
        self.flush_cache(flush::FLUSH, None)?;
        if self.device.ext_csd.revision() < revision::V4_5 {
            return Ok(());
        }
        let told = self.device.ext_csd.power_off_long_ms();
        let timeout = told.max(self.switch_ms());
        self.switch_for(ext_csd::POWER_OFF_NOTIFICATION, power_off::LONG, (None, timeout))
    }

    /// Writes an image in FFU mode, and has it installed if the device supports that.
    fn write_firmware(&mut self, image: &[u8]) -> Run<()> {
        self.switch(ext_csd::MODE_CONFIG, 1)?;
        let argument = {
            let at = ext_csd::FFU_ARG;
            let csd = &self.device.ext_csd.0;
            u32::from_le_bytes([csd[at], csd[at + 1], csd[at + 2], csd[at + 3]])
        };
        for chunk in image.chunks(FIRMWARE_SECTORS * SECTOR as usize) {
            let sectors = (chunk.len() / SECTOR as usize) as u16;
            self.channel.set_block_count(sectors, false)?;
            let command = (CommandIndex::WriteMultipleBlock, argument);
            self.store(command, sectors, |scratch| scratch.write(0, chunk))?;
        }
        let installs = self.device.ext_csd.0[ext_csd::FFU_FEATURES] & 1 != 0;
        if installs {
            let timeout = self.channel.options.timeouts.flush_ms;
            self.switch_for(ext_csd::MODE_OPERATION_CODES, 1, (None, timeout))?;
        } else {
            self.switch(ext_csd::MODE_CONFIG, 0)?;
        }
        self.read_ext_csd()
    }

    /// CMD5 and the wait after it: CMD13 is not allowed there.
    fn sleep_awake(&mut self, flag: u32) -> Run<()> {
        let index = CommandIndex::SleepAwake;
        let argument = rca(self.device.rca) | flag;
        self.channel.must(index, argument)?;
        let nanos = self.device.ext_csd.sleep_awake_ns();
        let timeout = (nanos / MS) as u32 + 10;
        if !self.channel.until_not_busy(None, timeout)? {
            return Err(Cause::Busy(index).into());
        }
        Ok(())
    }

    /// Ends what the card is busy with by HPI; whether it is ready then.
    fn interrupt_busy(&mut self) -> Run<bool> {
        self.channel.note(ErrorKind::Overdue, 0);
        if !self.interrupt()? {
            return Ok(false);
        }
        let ready = self.wait_ready(CommandIndex::StopTransmission, (None, 100));
        Ok(settled(ready)?.is_ok())
    }
}

/// Where sectors are read and written by way of the scratch memory.
#[derive(Clone, Copy, Debug)]
struct SectorsAt {
    partition: u8,
    first: u32,
}

impl SectorsAt {
    fn read<M: Machine>(self, card: &mut Card<M>, sectors: u16) -> Run<Output> {
        card.select_partition(self.partition)?;
        card.channel.set_block_count(sectors, false)?;
        let (index, argument) = (CommandIndex::ReadMultipleBlock, card.device.place(self.first));
        let fetched = card.fetch((index, argument), (SECTOR as u16, sectors))?;
        let home = card.device.partition;
        card.select_partition(home)?;
        if let Err(error) = fetched {
            return Err(Cause::Bus(index, error).into());
        }
        let mut data = alloc::vec![0; usize::from(sectors) * SECTOR as usize];
        card.channel.layout.scratch.read(0, &mut data);
        Ok(Output::Data(data))
    }

    fn write<M: Machine>(self, card: &mut Card<M>, data: &[u8]) -> Run<()> {
        let sectors = (data.len() / SECTOR as usize) as u16;
        card.select_partition(self.partition)?;
        card.channel.set_block_count(sectors, false)?;
        let command = (CommandIndex::WriteMultipleBlock, card.device.place(self.first));
        let stored = card.store(command, sectors, |scratch| scratch.write(0, data));
        let stored = settled(stored)?;
        let home = card.device.partition;
        card.select_partition(home)?;
        stored.map_err(Into::into)
    }
}

/// An erase of a range of sectors.
#[derive(Clone, Copy, Debug)]
struct Erase {
    first: u32,
    last: u32,
    argument: u32,
}

impl Erase {
    /// CMD35, CMD36, CMD38; of an SD card CMD32, CMD33, CMD38.
    fn run<M: Machine>(self, card: &mut Card<M>, deadline: Option<Instant>) -> Run<()> {
        let Self { first, last, argument } = self;
        let sd = card.device.kind == CardKind::Sd;
        let (start, end, argument) = match sd {
            true => (CommandIndex::SdEraseStart, CommandIndex::SdEraseEnd, erase::ERASE),
            false => (CommandIndex::EraseGroupStart, CommandIndex::EraseGroupEnd, argument),
        };
        let timeout = card.device.erase_ms((first, last), argument);
        let (first, last) = (card.device.place(first), card.device.place(last));
        card.channel.must(start, first)?;
        card.channel.must(end, last)?;
        card.busy_command((CommandIndex::Erase, argument), (deadline, timeout)).map(|_| ())
    }
}

impl Errand {
    /// Does what is asked; the bus is the host's.
    fn run<M: Machine>(self, card: &mut Card<M>) -> Run<()> {
        let Self { index, argument, first, last, deadline } = self;
        let done = if CommandIndex::from_bits(index) == CommandIndex::Erase {
            settled(Erase { first, last, argument }.run(card, Some(deadline)))?
        } else if self.is_needless_flush(&card.device) {
            Ok(())
        } else {
            let command = (CommandIndex::from_bits(index), argument);
            settled(card.busy_command(command, (Some(deadline), 0)))?.map(|_| ())
        };
        done.map_err(Into::into)
    }

    /// Whether this is a flush of a card without a cache.
    fn is_needless_flush(self, device: &CardFacts) -> bool {
        let flush = SwitchArgument::write(ext_csd::FLUSH_CACHE, flush::FLUSH).into_bits();
        !device.cache && self.index == CommandIndex::Switch.into_bits() && self.argument == flush
    }
}

fn none((): ()) -> Output {
    Output::None
}
