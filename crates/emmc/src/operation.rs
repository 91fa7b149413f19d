//! What can be asked of a [`Host`](crate::Host), and what comes of it.

use crate::bus::Response;
use crate::control::{Core, Run, Stop, settled};
use crate::device::CardKind;
use crate::history::ErrorKind;
use crate::lane::{ANSWERED, OVERDUE, WELL};
use crate::quirks::{CardQuirk, HostQuirk};
use crate::rpmb::{RpmbReply, RpmbRequest};
use crate::shared::{Errand, cause};
use crate::{Cause, Error};
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::mmc::command::{CommandIndex, SLEEP, SwitchArgument, erase, rca};
use flysch_wire::mmc::ext_csd::{self, flush, partition, power_off, revision, sec_feature};
use flysch_wire::mmc::{CardStatus, ExtCsd, SECTOR};

/// Something the host does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Brings controller and card up; once they are up, a card reset.
    BringUp,
    /// Resets the card. Commands in flight end with a reset.
    Reset,
    /// Empties the cache, tells the card that power goes, and stops the clock.
    Shutdown,
    /// Puts the card to sleep (CMD5); everything but [`Awake`](Self::Awake) is refused then.
    Sleep,
    /// Wakes it.
    Awake,
    /// Reads EXT_CSD anew.
    ReadExtCsd,
    /// Writes a byte of EXT_CSD (CMD6). What the driver itself relies on is refused.
    Switch {
        /// The byte.
        index: u8,
        /// The value.
        value: u8,
    },
    /// Chooses the partition whose blocks the lanes read and write from now on.
    SelectPartition(u8),
    /// What the card boots from (PARTITION_CONFIG).
    SelectBoot {
        /// BOOT_PARTITION_ENABLE: 0 nothing, 1 and 2 the boot partitions, 7 the user area.
        partition: u8,
        /// BOOT_ACK: it acknowledges that it boots.
        acknowledge: bool,
    },
    /// Switches the volatile cache on or off; off empties it first.
    Cache(bool),
    /// The device status (CMD13).
    Status,
    /// Empties the volatile cache.
    Flush,
    /// What is in the cache reaches the medium before what is written from now on.
    Barrier,
    /// Gives up a range of sectors of the selected partition.
    Erase {
        /// How.
        kind: EraseKind,
        /// First sector.
        first: u32,
        /// Sectors.
        sectors: u32,
    },
    /// Removes what was erased or trimmed physically.
    Sanitize,
    /// Background operations now, to their end.
    Bkops,
    /// Looks for the sampling point again.
    Retune,
    /// Sets or clears the write protection of a group (CMD28, CMD29).
    Protect {
        /// A sector of the group.
        sector: u32,
        /// Sets it, else clears it.
        on: bool,
    },
    /// Which of 32 groups are write protected (CMD30), the first in bit 0.
    Protection {
        /// A sector of the first group.
        sector: u32,
    },
    /// Reads sectors of any partition but the replay protected memory.
    Read {
        /// PARTITION_ACCESS.
        partition: u8,
        /// First sector.
        first: u32,
        /// Sectors, 1 to [`SECTORS_MAX`].
        sectors: u16,
    },
    /// Writes sectors of any partition but the replay protected memory.
    Write {
        /// PARTITION_ACCESS.
        partition: u8,
        /// First sector.
        first: u32,
        /// Whole sectors, at most [`SECTORS_MAX`].
        data: Vec<u8>,
    },
    /// A message to the replay protected memory.
    Rpmb(Box<RpmbRequest>),
    /// Gives the card a new firmware (FFU), installs it and resets the card.
    Firmware(Vec<u8>),
}

/// Most sectors of [`Operation::Read`] and [`Operation::Write`].
pub const SECTORS_MAX: u16 = (crate::layout::SCRATCH / SECTOR as usize) as u16;

/// How sectors are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseKind {
    /// Whole erase groups.
    Erase,
    /// Sectors; they read as ERASED_MEM_CONT says.
    Trim,
    /// Sectors; what they read as is not said.
    Discard,
    /// Whole erase groups and every copy of them.
    SecureErase,
    /// Sectors and every copy of them.
    SecureTrim,
}

/// What an operation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing.
    None,
    /// EXT_CSD.
    ExtCsd(Box<ExtCsd>),
    /// What was read.
    Data(Vec<u8>),
    /// Write protection, a bit for each group.
    Protection(u32),
    /// The device status.
    Status(CardStatus),
    /// The answer of the replay protected memory.
    Rpmb(RpmbReply),
}

/// Bytes of EXT_CSD that the driver has under its hand: what it believes of them must stay true.
const OWN_BYTES: [u8; 8] = [
    ext_csd::CMDQ_MODE_EN,
    ext_csd::ERASE_GROUP_DEF,
    ext_csd::PARTITION_CONFIG,
    ext_csd::BUS_WIDTH,
    ext_csd::HS_TIMING,
    ext_csd::CACHE_CTRL,
    ext_csd::HPI_MGMT,
    ext_csd::MODE_CONFIG,
];
/// Sectors of a firmware that are sent at once.
const FIRMWARE_SECTORS: usize = 32;
/// FFU_STATUS: success.
const FFU_DONE: u8 = 0;

impl<M: Machine> Core<M> {
    pub(crate) fn operate(&mut self, operation: &Operation) -> Run<Output> {
        if self.asleep && !matches!(operation, Operation::Awake) {
            return Err(Error::Asleep.into());
        }
        self.check(operation).map_err(Stop::Failed)?;
        match operation {
            // The host turns these into other jobs.
            Operation::BringUp | Operation::Reset => Ok(Output::None),
            Operation::Shutdown => self.shut_down().map(none),
            Operation::Sleep => self.sleep_card().map(none),
            Operation::Awake => self.wake_card().map(none),
            Operation::Firmware(image) => self.update_firmware(image).map(none),
            Operation::Rpmb(request) => {
                self.with_bus((true, None), |core| core.exchange_rpmb(request)).map(Output::Rpmb)
            }
            Operation::Read { partition, first, sectors } => {
                let work = |core: &mut Self| core.read_sectors(*partition, *first, *sectors);
                self.with_bus((true, None), work)
            }
            Operation::Write { partition, first, data } => {
                let work = |core: &mut Self| core.write_sectors(*partition, *first, data);
                self.with_bus((true, None), work).map(none)
            }
            Operation::SelectPartition(access) => self.choose_partition(*access).map(none),
            Operation::SelectBoot { partition, acknowledge } => {
                let work = |core: &mut Self| core.select_boot(*partition, *acknowledge);
                self.with_bus((true, None), work).map(none)
            }
            other => self.with_bus((false, None), |core| core.on_the_bus(other)),
        }
    }

    /// What this card lacks, or what makes no sense for it.
    fn check(&self, operation: &Operation) -> Result<(), Error> {
        let csd = &self.device.ext_csd;
        let unless = |has: bool, what| if has { Ok(()) } else { Err(Error::Unsupported(what)) };
        let emmc = self.device.kind == CardKind::Emmc;
        match operation {
            Operation::BringUp
            | Operation::Reset
            | Operation::Shutdown
            | Operation::Retune
            | Operation::Status => return Ok(()),
            Operation::Erase { kind: EraseKind::Erase, .. } => {}
            _ => unless(emmc, "an operation of eMMC on an SD card")?,
        }
        match operation {
            Operation::Sleep => unless(!self.quirks.has(HostQuirk::NoSleep), "the sleep state"),
            Operation::Flush => {
                unless(self.device.cache || csd.cache_kib() == 0, "flushing a cache that is off")
            }
            Operation::Barrier => {
                unless(csd.0[ext_csd::BARRIER_SUPPORT] & 1 != 0 && self.device.cache, "the barrier")
            }
            Operation::Cache(_) => unless(csd.cache_kib() != 0, "a volatile cache"),
            Operation::SelectBoot { partition, .. } => match partition {
                0 | 7 => Ok(()),
                1 | 2 => unless(csd.boot_sectors() != 0, "boot partitions"),
                _ => Err(Error::Invalid("boot partitions are 1 and 2; 7 is the user area")),
            },
            Operation::Sanitize => unless(csd.has_sanitize(), "sanitize"),
            Operation::Bkops => {
                unless(csd.0[ext_csd::BKOPS_SUPPORT] & 1 != 0, "background operations")
            }
            Operation::Switch { index, .. } if OWN_BYTES.contains(index) => {
                Err(Error::Unsupported("a byte of EXT_CSD that is the driver's own"))
            }
            Operation::Switch { index, .. } if *index >= ext_csd::READ_ONLY => {
                Err(Error::Invalid("EXT_CSD from byte 192 on is read only"))
            }
            Operation::Firmware(image) => {
                unless(csd.0[ext_csd::SUPPORTED_MODES] & 1 != 0, "field firmware update")?;
                let whole = !image.is_empty() && image.len().is_multiple_of(SECTOR as usize);
                let why = "a firmware is a whole number of sectors of 512 bytes";
                if !whole {
                    return Err(Error::Invalid(why));
                }
                self.check_native(0, image.len() / SECTOR as usize)
            }
            Operation::Read { partition, first, sectors } => {
                self.check_range(*partition, *first, usize::from(*sectors))
            }
            Operation::Write { partition, first, data } => {
                if !data.len().is_multiple_of(SECTOR as usize) {
                    return Err(Error::Invalid("data must be whole sectors of 512 bytes"));
                }
                self.check_range(*partition, *first, data.len() / SECTOR as usize)
            }
            Operation::Erase { kind, first, sectors } => {
                unless(self.has_erase(*kind), "this kind of erase")?;
                self.check_erase(*kind, *first, *sectors)
            }
            Operation::SelectPartition(access) => {
                let there = self.device.partition_sectors(*access) != 0;
                let usable = *access != partition::RPMB && *access <= partition::MASK;
                if there && usable { Ok(()) } else { Err(Cause::NoPartition(*access).into()) }
            }
            _ => Ok(()),
        }
    }

    fn has_erase(&self, kind: EraseKind) -> bool {
        let csd = &self.device.ext_csd;
        match kind {
            EraseKind::Erase => true,
            EraseKind::Trim => self.device.has_trim(),
            EraseKind::Discard => csd.has_discard(),
            EraseKind::SecureErase | EraseKind::SecureTrim => {
                csd.byte(ext_csd::SEC_FEATURE_SUPPORT) & sec_feature::SECURE_ERASE != 0
                    && !self.device.quirks.has(CardQuirk::NoSecure)
            }
        }
    }

    fn check_range(&self, access: u8, first: u32, sectors: usize) -> Result<(), Error> {
        let there = self.device.partition_sectors(access);
        if there == 0 || access == partition::RPMB || access > partition::MASK {
            return Err(Cause::NoPartition(access).into());
        }
        if sectors == 0 || sectors > SECTORS_MAX.into() {
            return Err(Error::Invalid("1 to 32 sectors can be moved at once"));
        }
        if u64::from(first) + sectors as u64 > there {
            return Err(Error::Invalid("the range is not in the partition"));
        }
        self.check_native(first, sectors)
    }

    /// A device with native sectors takes whole ones.
    fn check_native(&self, first: u32, sectors: usize) -> Result<(), Error> {
        let native = self.device.block_size() / SECTOR;
        if first.is_multiple_of(native) && sectors.is_multiple_of(native as usize) {
            return Ok(());
        }
        Err(Error::Invalid(
            "the device has native sectors of 4096 bytes: the first sector of 512 and their number \
             must be multiples of 8",
        ))
    }

    fn check_erase(&self, kind: EraseKind, first: u32, sectors: u32) -> Result<(), Error> {
        let there = self.device.partition_sectors(self.device.partition);
        if sectors == 0 || u64::from(first) + u64::from(sectors) > there {
            return Err(Error::Invalid("the range is not in the partition"));
        }
        let group = self.erase_group();
        let whole = matches!(kind, EraseKind::Erase | EraseKind::SecureErase);
        let aligned = first.is_multiple_of(group) && sectors.is_multiple_of(group);
        if whole && self.device.kind == CardKind::Emmc && !aligned {
            return Err(Error::Invalid("only whole erase groups can be erased: trim sectors"));
        }
        self.check_native(first, sectors as usize)
    }

    /// Sectors of an erase group.
    fn erase_group(&self) -> u32 {
        match self.device.ext_csd.erase_group_sectors() {
            0 => self.device.csd.erase_group_sectors().max(1),
            sectors => sectors,
        }
    }

    /// Does something that needs the bus, with the lanes paused, once the bus is free, at
    /// `deadline` at the latest; with `leaves` the card is taken out of its queueing mode
    /// meanwhile. The lanes run again whatever comes of it.
    pub(crate) fn with_bus<T>(
        &mut self,
        (leaves, deadline): (bool, Option<Instant>),
        work: impl FnOnce(&mut Self) -> Run<T>,
    ) -> Run<T> {
        self.take_bus(deadline)?;
        if leaves {
            self.card_queueing(false)?;
        }
        let result = settled(work(self))?;
        let is_mended = match &result {
            Err(Error::Failed(Cause::Busy(_))) => self.interrupt_busy()?,
            Err(Error::Failed(Cause::Bus(_, error))) => self.end_disturbed(*error)?,
            _ => true,
        };
        if !is_mended {
            // Nothing but a reset ends it.
            self.effect(|core| core.shared.orders.report(cause::LOST));
            return result.map_err(Into::into);
        }
        if leaves && result.is_err() {
            // It may have ended while another partition was selected.
            let home = self.device.partition;
            self.select_partition(home)?;
        }
        if leaves {
            self.card_queueing(true)?;
        }
        self.give_bus();
        result.map_err(Into::into)
    }

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
                let timeout = self.options.timeouts.sanitize_ms;
                self.switch_for(ext_csd::SANITIZE_START, 1, (None, timeout))?;
            }
            Operation::Bkops => {
                let timeout = self.options.timeouts.bkops_ms;
                self.switch_for(ext_csd::BKOPS_START, 1, (None, timeout))?;
            }
            Operation::Retune => self.retune()?,
            Operation::Cache(on) => {
                let timeout = self.options.timeouts.flush_ms;
                self.switch_for(ext_csd::CACHE_CTRL, (*on).into(), (None, timeout))?;
                self.effect(|core| {
                    core.device.cache = *on;
                    core.options.cache = *on;
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
                    self.erase((*first, last), argument, None)?;
                }
            }
            Operation::Protect { sector, on } => {
                let index =
                    if *on { CommandIndex::SetWriteProt } else { CommandIndex::ClrWriteProt };
                let (argument, timeout) = (self.place(*sector), self.switch_ms());
                self.busy_command((index, argument), (None, timeout))?;
            }
            Operation::Protection { sector } => {
                let (index, argument) = (CommandIndex::SendWriteProt, self.place(*sector));
                if let Err(error) = self.fetch((index, argument), (4, 1))? {
                    return Err(Cause::Bus(index, error).into());
                }
                let mut bytes = [0; 4];
                self.layout.scratch.read(0, &mut bytes);
                return Ok(Output::Protection(u32::from_be_bytes(bytes)));
            }
            _ => {}
        }
        Ok(Output::None)
    }

    /// A sector as an argument.
    fn place(&self, sector: u32) -> u32 {
        if self.device.sector_addressed { sector } else { sector << 9 }
    }

    /// FLUSH_CACHE.
    fn flush_cache(&mut self, value: u8, deadline: Option<Instant>) -> Run<()> {
        if !self.device.cache {
            return Ok(());
        }
        let timeout = self.options.timeouts.flush_ms;
        self.switch_for(ext_csd::FLUSH_CACHE, value, (deadline, timeout))
    }

    /// CMD35, CMD36, CMD38; of an SD card CMD32, CMD33, CMD38.
    fn erase(
        &mut self,
        (first, last): (u32, u32),
        argument: u32,
        deadline: Option<Instant>,
    ) -> Run<()> {
        let sd = self.device.kind == CardKind::Sd;
        let (start, end, argument) = match sd {
            true => (CommandIndex::SdEraseStart, CommandIndex::SdEraseEnd, erase::ERASE),
            false => (CommandIndex::EraseGroupStart, CommandIndex::EraseGroupEnd, argument),
        };
        let timeout = self.erase_ms((first, last), argument);
        let (first, last) = (self.place(first), self.place(last));
        self.must(start, first)?;
        self.must(end, last)?;
        self.busy_command((CommandIndex::Erase, argument), (deadline, timeout)).map(|_| ())
    }

    /// How long an erase may take, ms: what the card says per group, 60 s at most (Linux).
    fn erase_ms(&self, (first, last): (u32, u32), argument: u32) -> u32 {
        let csd = &self.device.ext_csd;
        let groups = last.saturating_sub(first) / self.erase_group() + 1;
        let each = match argument {
            erase::ERASE => csd.erase_ms(),
            erase::SECURE_ERASE => {
                csd.erase_ms().saturating_mul(csd.byte(ext_csd::SEC_ERASE_MULT).max(1).into())
            }
            erase::SECURE_TRIM_1 | erase::SECURE_TRIM_2 => {
                csd.erase_ms().saturating_mul(csd.byte(ext_csd::SEC_TRIM_MULT).max(1).into())
            }
            _ => csd.trim_ms(),
        };
        each.saturating_mul(groups).clamp(1_000, 60_000)
    }

    fn select_boot(&mut self, partition: u8, acknowledge: bool) -> Run<()> {
        let access = self.device.partition & partition::MASK;
        let value = u8::from(acknowledge) << 6 | (partition & 7) << 3 | access;
        self.switch(ext_csd::PARTITION_CONFIG, value)?;
        self.read_ext_csd()
    }

    fn choose_partition(&mut self, access: u8) -> Run<()> {
        self.with_bus((true, None), |core| {
            core.select_partition(access)?;
            core.effect(|core| {
                core.device.partition = access;
                core.options.partition = access;
                let terms = core.shared.terms();
                core.shared.set_terms(crate::shared::Terms { partition: access, ..terms });
            });
            Ok(())
        })
    }

    /// Sectors of a partition by way of the scratch memory.
    fn read_sectors(&mut self, access: u8, first: u32, sectors: u16) -> Run<Output> {
        self.select_partition(access)?;
        self.set_block_count(sectors, false)?;
        let (index, argument) = (CommandIndex::ReadMultipleBlock, self.place(first));
        let fetched = self.fetch((index, argument), (SECTOR as u16, sectors))?;
        let home = self.device.partition;
        self.select_partition(home)?;
        if let Err(error) = fetched {
            return Err(Cause::Bus(index, error).into());
        }
        let mut data = alloc::vec![0; usize::from(sectors) * SECTOR as usize];
        self.layout.scratch.read(0, &mut data);
        Ok(Output::Data(data))
    }

    fn write_sectors(&mut self, access: u8, first: u32, data: &[u8]) -> Run<()> {
        let sectors = (data.len() / SECTOR as usize) as u16;
        self.select_partition(access)?;
        self.set_block_count(sectors, false)?;
        let command = (CommandIndex::WriteMultipleBlock, self.place(first));
        let stored = self.store(command, sectors, |core| core.layout.scratch.write(0, data));
        let stored = settled(stored)?;
        let home = self.device.partition;
        self.select_partition(home)?;
        stored.map_err(Into::into)
    }

    /// Everything safe, power-off told, clock off.
    fn shut_down(&mut self) -> Run<()> {
        if self.lanes_idle(false)?.is_err() {
            return Err(Cause::InFlight.into());
        }
        self.take_bus(None)?;
        let emmc = self.device.kind == CardKind::Emmc;
        let done = if emmc { settled(self.say_goodbye())? } else { Ok(()) };
        if self.device.queue_depth != 0 {
            self.stop_engine()?;
        }
        self.set_clock(0)?;
        // Whoever starts something now is told at once; bring-up begins with other orders.
        let gone = Order::PAUSE | Order::STOP | Order::GONE;
        self.effect(|core| core.shared.orders.publish(gone));
        self.lanes_obey()?;
        done.map_err(Into::into)
    }

    fn say_goodbye(&mut self) -> Run<()> {
        self.card_queueing(false)?;
        self.flush_cache(flush::FLUSH, None)?;
        if self.device.ext_csd.revision() < revision::V4_5 {
            return Ok(());
        }
        let told = self.device.ext_csd.power_off_long_ms();
        let timeout = told.max(self.switch_ms());
        self.switch_for(ext_csd::POWER_OFF_NOTIFICATION, power_off::LONG, (None, timeout))
    }

    /// Sleep (6.6.21): deselected, CMD5, busy until S_A_TIMEOUT. The lanes stay paused.
    fn sleep_card(&mut self) -> Run<()> {
        if self.lanes_idle(false)?.is_err() {
            return Err(Cause::InFlight.into());
        }
        self.take_bus(None)?;
        self.card_queueing(false)?;
        self.flush_cache(flush::FLUSH, None)?;
        self.command(CommandIndex::SelectCard, 0, Response::None)?;
        self.sleep_awake(SLEEP)?;
        self.set_clock(0)?;
        self.effect(|core| core.asleep = true);
        Ok(())
    }

    /// CMD5 and the wait after it: CMD13 is not allowed there.
    fn sleep_awake(&mut self, flag: u32) -> Run<()> {
        let index = CommandIndex::SleepAwake;
        let argument = rca(self.device.rca) | flag;
        self.must(index, argument)?;
        let nanos = self.device.ext_csd.sleep_awake_ns();
        let timeout = (nanos / crate::control::MS) as u32 + 10;
        if !self.until_not_busy(None, timeout)? {
            return Err(Cause::Busy(index).into());
        }
        Ok(())
    }

    fn wake_card(&mut self) -> Run<()> {
        if self.once(|core| core.asleep.into()) == 0 {
            return Ok(());
        }
        let clock = self.device.timing.clock();
        self.set_clock(clock)?;
        self.sleep_awake(0)?;
        let address = self.address();
        self.must(CommandIndex::SelectCard, address)?;
        self.card_queueing(true)?;
        self.effect(|core| core.asleep = false);
        self.give_bus();
        Ok(())
    }

    /// FFU (6.6.18): the image goes to FFU_ARG in FFU mode; then it is installed, or taken over by
    /// the reset that the host does next.
    fn update_firmware(&mut self, image: &[u8]) -> Run<()> {
        self.take_bus(None)?;
        self.card_queueing(false)?;
        self.switch(ext_csd::MODE_CONFIG, 1)?;
        let argument = {
            let at = ext_csd::FFU_ARG;
            let csd = &self.device.ext_csd.0;
            u32::from_le_bytes([csd[at], csd[at + 1], csd[at + 2], csd[at + 3]])
        };
        for chunk in image.chunks(FIRMWARE_SECTORS * SECTOR as usize) {
            let sectors = (chunk.len() / SECTOR as usize) as u16;
            self.set_block_count(sectors, false)?;
            let command = (CommandIndex::WriteMultipleBlock, argument);
            self.store(command, sectors, |core| core.layout.scratch.write(0, chunk))?;
        }
        let installs = self.device.ext_csd.0[ext_csd::FFU_FEATURES] & 1 != 0;
        if installs {
            let timeout = self.options.timeouts.flush_ms;
            self.switch_for(ext_csd::MODE_OPERATION_CODES, 1, (None, timeout))?;
        } else {
            self.switch(ext_csd::MODE_CONFIG, 0)?;
        }
        self.read_ext_csd()?;
        let status = self.device.ext_csd.byte(ext_csd::FFU_STATUS);
        // The reset makes it run, and puts lanes and card where they were.
        self.effect(|core| core.shared.orders.report(cause::LOST));
        if status != FFU_DONE {
            return Err(Cause::Firmware(status).into());
        }
        Ok(())
    }

    /// An errand of a lane: how it ended, and the device status.
    ///
    /// # Errors
    /// [`Error::Recovered`]: it has not begun, since a recovery comes first.
    pub(crate) fn run_errand(&mut self, errand: Errand) -> Run<[u32; 2]> {
        let late = self.once(|core| (core.now >= errand.deadline).into()) != 0;
        if late {
            return Ok([OVERDUE, 0]);
        }
        let bus = (false, Some(errand.deadline));
        let result = settled(self.with_bus(bus, |core| core.errand_on_bus(errand)))?;
        Ok(match result {
            Ok(()) => [WELL, 0],
            Err(Error::Recovered) => return Err(Error::Recovered.into()),
            Err(Error::Failed(Cause::Status(_, status))) => [ANSWERED, status.into_bits()],
            Err(Error::Failed(Cause::Switch(_))) => [ANSWERED, 1 << 7],
            Err(Error::Failed(Cause::Busy(_) | Cause::InFlight)) => [OVERDUE, 0],
            Err(Error::Failed(Cause::Bus(_, error))) => [error.0, 0],
            Err(_) => [crate::error::BusError::SILENT.0, 0],
        })
    }

    fn errand_on_bus(&mut self, errand: Errand) -> Run<()> {
        let Errand { index, argument, first, last, deadline } = errand;
        let done = if CommandIndex::from_bits(index) == CommandIndex::Erase {
            settled(self.erase((first, last), argument, Some(deadline)))?
        } else if self.is_needless_flush(index, argument) {
            Ok(())
        } else {
            let command = (CommandIndex::from_bits(index), argument);
            settled(self.busy_command(command, (Some(deadline), 0)))?.map(|_| ())
        };
        done.map_err(Into::into)
    }

    /// HPI, and the card ready after it.
    fn interrupt_busy(&mut self) -> Run<bool> {
        self.effect(|core| core.errors.note(core.now, ErrorKind::Overdue, 0));
        if !self.interrupt_card()? {
            return Ok(false);
        }
        let ready = self.wait_ready(CommandIndex::StopTransmission, (None, 100));
        Ok(settled(ready)?.is_ok())
    }

    /// A flush of a card without a cache.
    fn is_needless_flush(&self, index: u8, argument: u32) -> bool {
        let flush = SwitchArgument::write(ext_csd::FLUSH_CACHE, flush::FLUSH).into_bits();
        !self.device.cache && index == CommandIndex::Switch.into_bits() && argument == flush
    }
}

fn none((): ()) -> Output {
    Output::None
}
