//! The device's side of the command line: its states, and what each command does in them.

use alloc::collections::BTreeSet;

use flysch_api::machine::Instant;
use flysch_wire::mmc::command::{
    BlockCount, CommandIndex, DISCARD_QUEUE, DISCARD_TASK, HPI, OCR_POWERED_UP, OCR_SECTOR_MODE,
    OCR_VOLTAGES, SEND_QUEUE_STATUS, SLEEP, SwitchArgument, TaskParams, access,
};
use flysch_wire::mmc::ext_csd::{self as at, bus_width, hs_timing, partition};
use flysch_wire::mmc::{CardState, CardStatus, Cid, Csd, ExtCsd, SECTOR};

use super::config::Config;
use super::ext_csd::{self, FFU_ARGUMENT, PROTECT_GROUP, Switched};
use super::profile::Dialect;
use super::provision::{self, Layout};
use super::rpmb::Rpmb;
use super::sd::{self, Sd};
use crate::media::cache::Units;
use crate::store::Store;

/// After power-on or CMD0 the device says for so long that it is busy, nanoseconds.
const POWER_UP_NS: u64 = 3_000_000;
/// CMD6 that changes a value, nanoseconds.
pub(super) const SWITCH_NS: u64 = 30_000;
/// Sanitize, nanoseconds.
const SANITIZE_NS: u64 = 400_000_000;
/// Background operations, nanoseconds.
const BKOPS_NS: u64 = 60_000_000;
/// Sleep and awake, nanoseconds.
const SLEEP_NS: u64 = 2_000_000;
/// Partitions lie so far apart on the medium: log2 of bytes.
const PLACE_SHIFT: u32 = 42;
/// Largest device whose bytes are addressed: 2 GiB (7.4.57, OCR bit 30).
pub(super) const BYTES_MAX: u64 = 2 << 30;
/// The relative address a device has before CMD3.
const RCA: u16 = 1;

/// What a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    None,
    /// R1.
    Status(u32),
    /// R3.
    Ocr(u32),
    /// R2.
    Long(u128),
}

/// What a data phase carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Bytes of a partition from an offset on; forced to the medium.
    Sectors {
        part: u8,
        offset: u64,
        force: bool,
    },
    ExtCsd,
    Tuning,
    /// Write protection of 32 groups from this one on.
    Protection(u32),
    /// The same with its kind.
    ProtectionTypes(u32),
    /// Frames; reliable.
    Rpmb(bool),
    Firmware,
    /// What an SD card has put down for the command.
    Message,
}

/// A data phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) read: bool,
    pub(super) load: Load,
    /// Blocks CMD23 announced; `None` goes on until CMD12.
    pub(super) blocks: Option<u32>,
}

/// How long the device is busy after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    None,
    For(u64),
    /// Until everything that has arrived is on the medium.
    Medium,
    /// The high priority interrupt: what it is busy with ends now.
    Interrupted,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) phase: Option<Phase>,
    pub(super) busy: Busy,
}

/// A partition with data.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) store: Store,
    pub(super) size: u64,
}

/// The partitions by PARTITION_ACCESS.
#[derive(Debug)]
pub(super) struct Parts(pub(super) [Option<Part>; 8]);

impl Units for Parts {
    /// Sectors are written whole, or not at all.
    fn unit(&mut self, number: u8) -> Option<(&mut Store, bool)> {
        self.0.get_mut(usize::from(number))?.as_mut().map(|part| (&mut part.store, true))
    }
}

/// Where a partition lies on the medium.
pub(super) const fn base(part: u8) -> u64 {
    (part as u64) << PLACE_SHIFT
}

/// READ_BL_LEN and C_SIZE, with the largest C_SIZE_MULT, of up to 2 GiB.
pub(super) fn small_size(bytes: u64) -> Option<(u8, u32)> {
    match bytes {
        0..=0x4000_0000 => Some((9, (bytes >> 18) as u32 - 1)),
        0x4000_0001..=BYTES_MAX => Some((10, (bytes >> 19) as u32 - 1)),
        _ => None,
    }
}

/// CSD of a device whose user area has so many bytes (7.3.12): up to 2 GiB it tells them, by C_SIZE
/// and READ_BL_LEN with the largest C_SIZE_MULT; beyond that C_SIZE is the largest, and EXT_CSD
/// tells.
fn csd(bytes: u64) -> u128 {
    let (read_block_shift, size) = small_size(bytes).unwrap_or((9, 0xFFF));
    let csd = Csd {
        structure: 3,
        version: 4,
        taac: 0x4F,
        nsac: 1,
        speed: 0x32,
        classes: 0x0F5,
        read_block_shift,
        size,
        size_shift: 7,
        erase_size: 31,
        erase_count: 31,
        write_protect_size: 15,
        write_shift: 2,
        write_protected: false,
    };
    csd.emit()
}

/// The device.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) state: CardState,
    pub(super) rca: u16,
    cid: u128,
    csd: u128,
    pub(super) ext_csd: ExtCsd,
    /// EXT_CSD at power-on.
    fresh: ExtCsd,
    /// Error bits the next R1 tells.
    errors: u32,
    /// CMD23 before.
    count: Option<BlockCount>,
    /// CMD35 and CMD36 before.
    pub(super) erase: (Option<u32>, Option<u32>),
    /// CMD44 before.
    params: Option<TaskParams>,
    /// Tasks the device has.
    pub(super) tasks: u32,
    /// When it is powered up.
    pub(super) ready_at: u64,
    pub(super) is_busy: bool,
    pub(super) is_powered: bool,
    pub(super) parts: Parts,
    pub(super) rpmb: Rpmb,
    /// Write protect groups of the user area that are protected.
    pub(super) protected: BTreeSet<u32>,
    /// What was erased just now: partition, offset, bytes.
    pub(super) erased: Option<(u8, u64, u64)>,
    /// Sectors of new firmware that came.
    pub(super) firmware: u32,
    /// Bytes ever written.
    pub(super) written: u64,
    /// Bytes of the device, whatever partitions take of them.
    size: u64,
    /// Addresses count sectors (0) or bytes (9: a shift).
    pub(super) address_shift: u32,
    /// What the next power-on makes.
    next: Option<Layout>,
    /// What an SD card has of its own; its EXT_CSD is all zeros.
    pub(super) sd: Option<Sd>,
}

impl Card {
    /// The device of `config`.
    pub(super) fn new(config: &mut Config) -> Self {
        match config.profile.dialect {
            Dialect::Emmc => Self::emmc(config),
            Dialect::Sd { modes } => Self::sd(config, modes),
        }
    }

    fn emmc(config: &mut Config) -> Self {
        let fresh = ext_csd::power_on(config);
        let part = |size: u64| (size != 0).then(|| Part { store: Store::memory(size), size });
        let general = |n: usize| part(config.general.get(n).copied().unwrap_or(0));
        let user = config.store.take().unwrap_or_else(|| Store::memory(config.size));
        let user = Some(Part { store: user, size: config.size });
        let boot = || part(config.boot_size);
        let parts =
            Parts([user, boot(), boot(), None, general(0), general(1), general(2), general(3)]);
        let cid = Cid {
            manufacturer: 0xFE,
            oem: 0x014E,
            product: *b"FLYSCH",
            revision: 0x10,
            serial: config.serial,
            date: 0x0B9,
        };
        Self {
            state: CardState::Idle,
            rca: RCA,
            cid: cid.emit(),
            csd: csd(config.size),
            ext_csd: fresh.clone(),
            fresh,
            errors: 0,
            count: None,
            erase: (None, None),
            params: None,
            tasks: 0,
            ready_at: POWER_UP_NS,
            is_busy: false,
            is_powered: true,
            parts,
            rpmb: Rpmb::new(config.rpmb_size),
            protected: BTreeSet::new(),
            erased: None,
            firmware: 0,
            written: 0,
            size: config.size,
            address_shift: if config.size > BYTES_MAX { 0 } else { 9 },
            next: None,
            sd: None,
        }
    }

    /// An SD card: of what an eMMC device has the user area and the registers of its own.
    fn sd(config: &mut Config, modes: u8) -> Self {
        (config.boot_size, config.rpmb_size) = (0, 0);
        config.general.clear();
        let (cid, csd) = sd::registers(config);
        let none = ExtCsd::default();
        let device = Self::emmc(config);
        let (ext_csd, fresh) = (none.clone(), none);
        let sd = Some(Sd::new(modes));
        Self { rca: 0, cid, csd, ext_csd, fresh, sd, ..device }
    }

    /// Power came.
    pub(super) fn power_on(&mut self, now: u64) {
        self.reset(now);
        if let Some(sd) = &mut self.sd {
            sd.power_on();
        }
    }

    /// Power came, or CMD0: everything volatile is as at first.
    fn reset(&mut self, now: u64) {
        let firmware = self.ext_csd.0[usize::from(at::FIRMWARE_VERSION)..][..8].to_vec();
        self.ext_csd = self.fresh.clone();
        self.ext_csd.0[usize::from(at::FIRMWARE_VERSION)..][..8].copy_from_slice(&firmware);
        self.state = CardState::Idle;
        self.rca = if self.sd.is_some() { 0 } else { RCA };
        (self.errors, self.tasks) = (0, 0);
        (self.count, self.erase, self.params) = (None, (None, None), None);
        self.is_busy = false;
        self.ready_at = now + POWER_UP_NS;
        if let Some(sd) = &mut self.sd {
            sd.reset();
        }
    }

    /// The data of a command has crossed the bus.
    pub(super) fn end_data(&mut self) {
        self.state = CardState::Transfer;
        if let Some(sd) = &mut self.sd {
            sd.end_data();
        }
    }

    /// Whether the cache keeps what is written.
    pub(super) fn has_cache_on(&self) -> bool {
        self.ext_csd.byte(at::CACHE_CTRL) & 1 != 0
    }

    /// It did not cross the bus, or not well. With a count of its own the device is done; else it
    /// waits for CMD12.
    pub(super) fn fail_data(&mut self, counted: bool) {
        if counted {
            self.state = CardState::Transfer;
        }
        if let Some(sd) = &mut self.sd {
            sd.fail_data();
        }
    }

    /// Data lines as the device drives them, and whether on both edges.
    pub(super) fn lines(&self) -> (u8, bool) {
        if let Some(sd) = &self.sd {
            return sd.lines();
        }
        match self.ext_csd.byte(at::BUS_WIDTH) & 0xF {
            bus_width::FOUR => (4, false),
            bus_width::EIGHT => (8, false),
            bus_width::FOUR_DDR => (4, true),
            bus_width::EIGHT_DDR => (8, true),
            _ => (1, false),
        }
    }

    /// HS_TIMING.
    pub(super) fn timing(&self) -> u8 {
        self.ext_csd.byte(at::HS_TIMING) & 0xF
    }

    /// The fastest clock of its timing, Hz.
    pub(super) fn clock_max(&self) -> u64 {
        if matches!(self.state, CardState::Idle | CardState::Ready | CardState::Identification) {
            return 400_000;
        }
        match (&self.sd, self.timing()) {
            (Some(sd), _) => sd.clock_max(),
            (_, hs_timing::LEGACY) => 26_000_000,
            (_, hs_timing::HIGH_SPEED) => 52_000_000,
            _ => 200_000_000,
        }
    }

    /// R1 now; the errors are told once.
    pub(super) fn status(&mut self) -> u32 {
        let state = if self.is_busy { CardState::Programming } else { self.state };
        let urgent =
            self.ext_csd.byte(at::EXCEPTION_STATUS) & self.ext_csd.byte(at::EXCEPTION_CTRL);
        let status = CardStatus::new()
            .with_state(state)
            .with_ready_for_data(!self.is_busy)
            .with_exception_event(urgent != 0);
        status.into_bits() | core::mem::take(&mut self.errors)
    }

    /// An error for the next R1.
    pub(super) fn fail(&mut self, error: CardStatus) {
        self.errors |= error.into_bits();
    }

    pub(super) fn answer(&mut self, busy: Busy) -> Option<Answer> {
        let response = Response::Status(self.status());
        Some(Answer { response, phase: None, busy })
    }

    /// R1 with an error.
    pub(super) fn refuse(&mut self, error: CardStatus) -> Option<Answer> {
        self.fail(error);
        self.answer(Busy::None)
    }

    /// No response, and the next one says why.
    pub(super) fn ignore(&mut self) -> Option<Answer> {
        self.fail(CardStatus::new().with_illegal_command(true));
        None
    }

    /// A command at `now`; `None` is no response. `switch_fails`: a fault.
    pub(super) fn command(
        &mut self,
        index: u8,
        argument: u32,
        (now, switch_fails): (Instant, bool),
    ) -> Option<Answer> {
        if !self.is_powered {
            return None;
        }
        let index = CommandIndex::from_bits(index);
        if self.sd.is_some() {
            return self.sd_command(index, argument, (now.nanos(), switch_fails));
        }
        let mine = self.is_mine(argument);
        match (index, self.state) {
            (CommandIndex::SleepAwake, CardState::Sleep | CardState::StandBy) if mine => {
                self.sleep(argument)
            }
            (CommandIndex::GoIdleState, CardState::Sleep) => {
                self.reset(now.nanos());
                self.none()
            }
            (_, CardState::Sleep) => None,
            (CommandIndex::SendOpCond, CardState::Idle | CardState::Ready) => {
                Some(self.power_up(argument, now.nanos()))
            }
            (CommandIndex::SetRelativeAddr, CardState::Identification) => {
                self.rca = (argument >> 16) as u16;
                let answer = self.answer(Busy::None);
                self.state = CardState::StandBy;
                answer
            }
            (CommandIndex::SendStatus, _) if mine => self.send_status(argument),
            _ => self.shared_command(index, argument, now.nanos(), |card, count| {
                card.in_transfer(index, argument, (count, switch_fails))
            }),
        }
    }

    /// Whether a command is for this card, which has that address.
    pub(super) fn is_mine(&self, argument: u32) -> bool {
        (argument >> 16) as u16 == self.rca
    }

    /// What both dialects have of the states of a card; `in_transfer` is what is theirs in the
    /// transfer state, with the count of CMD23 before.
    pub(super) fn shared_command(
        &mut self,
        index: CommandIndex,
        argument: u32,
        now: u64,
        in_transfer: impl FnOnce(&mut Self, Option<BlockCount>) -> Option<Answer>,
    ) -> Option<Answer> {
        let count = self.count.take();
        let mine = self.is_mine(argument);
        match (index, self.state) {
            (CommandIndex::GoIdleState, _) => {
                self.reset(now);
                self.none()
            }
            (CommandIndex::AllSendCid, CardState::Ready) => {
                self.state = CardState::Identification;
                self.long(self.cid)
            }
            (CommandIndex::SendCsd, CardState::StandBy) if mine => self.long(self.csd),
            (CommandIndex::SendCid, CardState::StandBy) if mine => self.long(self.cid),
            (CommandIndex::SelectCard, CardState::StandBy) if mine => {
                let answer = self.answer(Busy::None);
                self.state = CardState::Transfer;
                answer
            }
            (CommandIndex::SelectCard, CardState::Transfer) if !mine => {
                self.state = CardState::StandBy;
                self.none()
            }
            (CommandIndex::StopTransmission, _) if self.is_busy && argument & HPI == 0 => {
                self.answer(Busy::None)
            }
            (_, _) if self.is_busy => self.ignore(),
            (CommandIndex::StopTransmission, CardState::SendingData | CardState::ReceiveData) => {
                let answer = self.answer(Busy::None);
                self.state = CardState::Transfer;
                answer
            }
            (_, CardState::Transfer) => in_transfer(self, count),
            _ => self.ignore(),
        }
    }

    /// A command that is not answered.
    fn none(&self) -> Option<Answer> {
        Some(Answer { response: Response::None, phase: None, busy: Busy::None })
    }

    /// Commands that read and write sectors, if they are taken now.
    pub(super) fn sector_command(
        &mut self,
        index: CommandIndex,
        argument: u32,
        count: Option<BlockCount>,
    ) -> Option<Answer> {
        match index {
            CommandIndex::SetBlocklen if argument == 512 => self.answer(Busy::None),
            CommandIndex::SetBlocklen => self.refuse(CardStatus::new().with_block_len_error(true)),
            CommandIndex::ReadSingleBlock => self.transfer(true, argument, ONE),
            CommandIndex::WriteBlock => self.transfer(false, argument, ONE),
            CommandIndex::ReadMultipleBlock => self.transfer(true, argument, count),
            CommandIndex::WriteMultipleBlock => self.transfer(false, argument, count),
            _ => self.ignore(),
        }
    }

    pub(super) fn long(&self, register: u128) -> Option<Answer> {
        let response = Response::Long(register);
        Some(Answer { response, phase: None, busy: Busy::None })
    }

    fn power_up(&mut self, argument: u32, now: u64) -> Answer {
        let mut ocr = OCR_VOLTAGES;
        if self.address_shift == 0 {
            ocr |= OCR_SECTOR_MODE;
        }
        if now >= self.ready_at && argument & OCR_VOLTAGES != 0 {
            ocr |= OCR_POWERED_UP;
            self.state = CardState::Ready;
        }
        Answer { response: Response::Ocr(ocr), phase: None, busy: Busy::None }
    }

    fn sleep(&mut self, argument: u32) -> Option<Answer> {
        let sleeps = argument & SLEEP != 0;
        let answer = self.answer(Busy::For(SLEEP_NS));
        self.state = if sleeps { CardState::Sleep } else { CardState::StandBy };
        answer
    }

    /// CMD13, which may be the high priority interrupt, or ask for the queue.
    fn send_status(&mut self, argument: u32) -> Option<Answer> {
        if argument & SEND_QUEUE_STATUS != 0 {
            let response = Response::Status(self.tasks);
            return Some(Answer { response, phase: None, busy: Busy::None });
        }
        let on = self.ext_csd.byte(at::HPI_MGMT) & 1 != 0;
        if argument & HPI != 0 && on && self.is_busy {
            return self.answer(Busy::Interrupted);
        }
        self.answer(Busy::None)
    }

    fn in_transfer(
        &mut self,
        index: CommandIndex,
        argument: u32,
        (count, switch_fails): (Option<BlockCount>, bool),
    ) -> Option<Answer> {
        let queueing = self.ext_csd.byte(at::CMDQ_MODE_EN) & 1 != 0;
        let sector = argument >> self.address_shift;
        match index {
            CommandIndex::QueuedTaskParams if queueing => {
                self.params = Some(TaskParams::from_bits(argument));
                self.answer(Busy::None)
            }
            CommandIndex::CmdqTaskMgmt if queueing => self.manage_tasks(argument),
            CommandIndex::Switch => self.switch(SwitchArgument::from_bits(argument), switch_fails),
            CommandIndex::SendExtCsd => {
                self.refresh();
                self.phase(true, Load::ExtCsd, Some(1))
            }
            CommandIndex::SetBlockCount => self.set_count(BlockCount::from_bits(argument)),
            CommandIndex::SendTuningBlock if self.timing() == hs_timing::HS200 => {
                self.phase(true, Load::Tuning, Some(1))
            }
            CommandIndex::EraseGroupStart => self.set_erase_start(argument),
            CommandIndex::EraseGroupEnd => self.set_erase_end(argument),
            CommandIndex::Erase => self.erase_range(argument),
            CommandIndex::SetWriteProt | CommandIndex::ClrWriteProt => {
                self.protect(sector, index == CommandIndex::SetWriteProt)
            }
            CommandIndex::SendWriteProt => {
                self.phase(true, Load::Protection(sector / PROTECT_GROUP), Some(1))
            }
            CommandIndex::SendWriteProtType => {
                self.phase(true, Load::ProtectionTypes(sector / PROTECT_GROUP), Some(1))
            }
            CommandIndex::SetBlocklen => self.sector_command(index, argument, count),
            _ if !queueing => self.sector_command(index, argument, count),
            _ => self.ignore(),
        }
    }

    /// CMD23: of the command that comes next.
    pub(super) fn set_count(&mut self, count: BlockCount) -> Option<Answer> {
        self.count = Some(count);
        self.answer(Busy::None)
    }

    pub(super) fn phase(&mut self, read: bool, load: Load, blocks: Option<u32>) -> Option<Answer> {
        let response = Response::Status(self.status());
        self.state = if read { CardState::SendingData } else { CardState::ReceiveData };
        Some(Answer { response, phase: Some(Phase { read, load, blocks }), busy: Busy::None })
    }

    /// The partition that is selected.
    pub(super) fn selected(&self) -> u8 {
        self.ext_csd.byte(at::PARTITION_CONFIG) & partition::MASK
    }

    /// What `blocks` sectors from `first` on are, or why they cannot be moved.
    pub(super) fn range(&self, read: bool, first: u32, blocks: u32) -> Result<u8, CardStatus> {
        let none = CardStatus::new();
        let part = self.selected();
        let Some(there) = &self.parts.0[usize::from(part)] else {
            return Err(none.with_out_of_range(true));
        };
        let end = (u64::from(first) + u64::from(blocks)) * 512;
        if end > there.size {
            return Err(none.with_out_of_range(true));
        }
        if !read && self.is_protected(part, first, blocks) {
            return Err(none.with_wp_violation(true));
        }
        Ok(part)
    }

    /// Log2 of the bytes that are read and written together.
    pub(super) fn grain_shift(&self) -> u32 {
        self.ext_csd.data_sector_bytes().ilog2()
    }

    /// Whether a range is of whole native sectors, where the device has those, or what is wrong
    /// with it ("Large sector size" of JESD84-B51).
    #[inline]
    pub(super) fn whole(&self, first: u32, blocks: u32) -> Result<(), CardStatus> {
        let part = self.ext_csd.data_sector_bytes() / SECTOR - 1;
        let none = CardStatus::new();
        if first & part != 0 {
            return Err(none.with_address_misalign(true));
        }
        if blocks & part != 0 {
            return Err(none.with_block_len_error(true));
        }
        Ok(())
    }

    fn is_protected(&self, part: u8, first: u32, blocks: u32) -> bool {
        match part {
            partition::BOOT0 => self.ext_csd.byte(at::BOOT_WP_STATUS) & 3 != 0,
            partition::BOOT1 => self.ext_csd.byte(at::BOOT_WP_STATUS) & 0xC != 0,
            partition::USER => {
                let last = first.saturating_add(blocks.max(1) - 1) / PROTECT_GROUP;
                self.protected.range(first / PROTECT_GROUP..=last).next().is_some()
            }
            _ => false,
        }
    }

    fn transfer(&mut self, read: bool, place: u32, count: Option<BlockCount>) -> Option<Answer> {
        let blocks = count.map(|count| u32::from(count.blocks()));
        let reliable = count.is_some_and(|count| count.reliable() || count.forced());
        if self.selected() == partition::RPMB {
            let blocks = blocks.filter(|&blocks| blocks != 0);
            let Some(blocks) = blocks else {
                return self.refuse(CardStatus::new().with_error(true));
            };
            return self.phase(read, Load::Rpmb(reliable), Some(blocks));
        }
        if !read && self.ext_csd.byte(at::MODE_CONFIG) == 1 {
            if place != FFU_ARGUMENT {
                return self.refuse(CardStatus::new().with_out_of_range(true));
            }
            if let Err(error) = self.whole(0, blocks.unwrap_or(0)) {
                return self.refuse(error);
            }
            return self.phase(false, Load::Firmware, blocks);
        }
        if blocks == Some(0) {
            return self.refuse(CardStatus::new().with_block_len_error(true));
        }
        let first = place >> self.address_shift;
        if first << self.address_shift != place {
            return self.refuse(CardStatus::new().with_address_misalign(true));
        }
        if let Err(error) = self.whole(first, blocks.unwrap_or(0)) {
            return self.refuse(error);
        }
        match self.range(read, first, blocks.unwrap_or(1)) {
            Ok(part) => {
                let offset = u64::from(first) * 512;
                self.phase(read, Load::Sectors { part, offset, force: reliable }, blocks)
            }
            Err(error) => self.refuse(error),
        }
    }

    fn switch(&mut self, argument: SwitchArgument, fails: bool) -> Option<Answer> {
        let effect = match fails || self.chooses_nothing(argument) {
            true => None,
            false => ext_csd::switch(&mut self.ext_csd, argument, self.tasks != 0),
        };
        let effect = match effect {
            Some(Switched::Partitioned) => self.partition(),
            effect => effect,
        };
        let answer = |card: &mut Self, busy| card.answer(busy);
        match effect {
            None => {
                let answer = answer(self, Busy::For(SWITCH_NS));
                self.fail(CardStatus::new().with_switch_error(true));
                answer
            }
            Some(Switched::Flush(true) | Switched::CacheOff | Switched::PowerOff) => {
                answer(self, Busy::Medium)
            }
            Some(Switched::Bkops) => {
                self.ext_csd.0[usize::from(at::BKOPS_STATUS)] = 0;
                self.ext_csd.0[usize::from(at::EXCEPTION_STATUS)] = 0;
                answer(self, Busy::For(BKOPS_NS))
            }
            Some(Switched::Sanitize) => answer(self, Busy::For(SANITIZE_NS)),
            Some(_) => answer(self, Busy::For(SWITCH_NS)),
        }
    }

    /// A partition to be selected whose size is written, and which is made at the next power-on.
    fn chooses_nothing(&self, argument: SwitchArgument) -> bool {
        let access = argument.value() & partition::MASK;
        argument.access() == access::WRITE_BYTE
            && argument.index() == at::PARTITION_CONFIG
            && access >= partition::GP1
            && self.parts.0[usize::from(access)].is_none()
    }

    /// PARTITION_SETTING_COMPLETED: the settings are for ever if they fit.
    fn partition(&mut self) -> Option<Switched> {
        let layout = Layout::of(&self.ext_csd, self.size, self.address_shift)?;
        self.ext_csd.0[usize::from(at::PARTITION_SETTING_COMPLETED)] = 1;
        provision::copy(&self.ext_csd, &mut self.fresh);
        self.next = Some(layout);
        Some(Switched::Value)
    }

    /// After power-on the device is the one that was asked for. What was in the user area stays as
    /// far as it fits; the partitions are empty.
    pub(super) fn take_partitions(&mut self) {
        let Some(layout) = self.next.take() else { return };
        let sectors = (layout.user / 512).min(u32::MAX.into()) as u32;
        self.fresh.0[usize::from(at::SEC_COUNT)..][..4].copy_from_slice(&sectors.to_le_bytes());
        if self.size <= BYTES_MAX {
            self.csd = csd(layout.user);
        }
        for access in [partition::USER].into_iter().chain(partition::GP1..=partition::MASK) {
            let size = layout.size(access).unwrap_or(0);
            match &mut self.parts.0[usize::from(access)] {
                Some(part) => part.size = size,
                none if size != 0 => *none = Some(Part { store: Store::memory(size), size }),
                _ => {}
            }
        }
        self.protected.clear();
    }

    /// The fields that follow from what happened.
    fn refresh(&mut self) {
        // Life times in tenths of 3000 cycles of the user area.
        let life = self.written / (self.size.max(1) * 300) + 1;
        let life = life.min(11) as u8;
        let bytes = &mut self.ext_csd.0;
        (bytes[at::LIFE_TIME_A], bytes[at::LIFE_TIME_B]) = (life, life);
        bytes[at::PRE_EOL_INFO] = if life > 10 { 3 } else { 1 };
        bytes[at::FFU_SECTORS..][..4].copy_from_slice(&self.firmware.to_le_bytes());
    }

    /// Urgent background operations, as they become necessary.
    pub(super) fn set_urgent(&mut self) {
        self.ext_csd.0[usize::from(at::BKOPS_STATUS)] = 2;
        self.ext_csd.0[usize::from(at::EXCEPTION_STATUS)] |= at::exception::URGENT_BKOPS as u8;
    }

    /// New firmware runs after a reset.
    pub(super) fn take_firmware(&mut self) {
        if core::mem::take(&mut self.firmware) != 0 {
            let place = usize::from(at::FIRMWARE_VERSION);
            self.ext_csd.0[place + 7] = self.ext_csd.0[place + 7].wrapping_add(1);
        }
    }

    /// CMD44 and CMD45 of the engine: a task, or the error the device answers with.
    pub(super) fn queue(&mut self, read: bool, first: u32, blocks: u32) -> Result<u8, CardStatus> {
        let queueing = self.ext_csd.byte(at::CMDQ_MODE_EN) & 1 != 0;
        if !queueing || blocks == 0 {
            return Err(CardStatus::new().with_illegal_command(true));
        }
        self.whole(first, blocks)?;
        self.range(read, first, blocks)
    }

    fn manage_tasks(&mut self, argument: u32) -> Option<Answer> {
        match argument & 0xF {
            DISCARD_QUEUE => self.tasks = 0,
            DISCARD_TASK => self.tasks &= !(1 << (argument >> 16 & 0x1F)),
            _ => return self.refuse(CardStatus::new().with_error(true)),
        }
        self.answer(Busy::None)
    }
}

/// One block.
const ONE: Option<BlockCount> = Some(BlockCount::new().with_blocks(1));
