//! The device: its parts, and the effects of resets, power and time on them.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::scsi::{AdditionalSense, SenseKey};
use flysch_wire::ufs::query::{
    AttributeId, CurrentPowerMode, ExceptionEvents, FlagId, PurgeStatus, RefreshStatus,
};

use super::backend::Backend;
use super::config::{ALLOCATION_UNIT, Config, UnitConfig};
use super::exceptions::Exceptions;
use super::exchange::Exchange;
use super::firmware::Firmware;
use super::journal::{Journal, Turn};
use super::link::LinkState;
use super::lu::LogicalUnits;
use super::order::Order;
use super::parameters::{Parameters, Reset};
use super::profile::level;
use super::provision::{Bounds, Provision, Provisions, allocation_units};
use super::readiness::Readiness;
use super::rpmb::Rpmb;
use super::sense::Sense;
use super::task::Tasks;
use super::upkeep::Upkeep;
use super::writebooster::WriteBooster;
use crate::faults::Injector;
use crate::media::cache::Loss;
use crate::software::Processor;
use crate::store::StoreError;

/// Size of the buffer that READ BUFFER and WRITE BUFFER access in data mode, bytes.
pub(super) const BUFFER: usize = 4096;
/// Maximum length of data of a command that is neither a read nor a write, bytes.
const SCRATCH: usize = 64 << 10;
/// Maximum length of a string descriptor, UTF-16 units.
const STRING_MAX: usize = 126;

/// How many commands the device queues; further ones are answered TASK SET FULL.
#[derive(Debug)]
pub(super) struct Depths {
    /// Whether that can happen at all.
    bound: bool,
    /// bQueueDepth.
    pub(super) device: u8,
    /// bLUQueueDepth of each unit; 0 shares the device's.
    pub(super) units: Vec<u8>,
}

impl Depths {
    fn new(config: &Config) -> Self {
        let held = config.active_commands.max(config.slots);
        let device = match config.queue_depth {
            0 => u8::try_from(held).unwrap_or(u8::MAX),
            depth => depth,
        };
        let of_unit = |unit: &Option<UnitConfig>| unit.as_ref().map_or(0, |unit| unit.queue_depth);
        let units: Vec<u8> = config.units.iter().map(of_unit).collect();
        let bound = config.queue_depth != 0 || units.iter().any(|&depth| depth != 0);
        Self { bound, device, units }
    }

    /// Whether the device or the unit already has as many commands as it can queue, not counting
    /// the one in task `index`.
    #[inline]
    pub(super) fn are_full(&self, index: u16, tasks: &Tasks) -> bool {
        self.bound && self.are_full_of(index, tasks)
    }

    fn are_full_of(&self, index: u16, tasks: &Tasks) -> bool {
        let lun = tasks.get(index).lun;
        let (mut all, mut of_unit) = (0, 0);
        for (other, task) in tasks.iter() {
            if other != index && task.in_device() && task.is_command {
                all += 1;
                of_unit += u16::from(task.lun == lun);
            }
        }
        let unit = self.units.get(usize::from(lun)).copied().unwrap_or(0);
        (unit != 0 && of_unit >= u16::from(unit)) || all >= u16::from(self.device)
    }
}

/// The fixed properties of the device.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) specification: u16,
    pub(super) serial: String,
    pub(super) depths: Depths,
    pub(super) transfer_max: u32,
    pub(super) write_booster_max: u64,
    /// The device supports firmware update and refresh.
    pub(super) services: bool,
}

impl Build {
    fn new(config: &Config, write_booster_max: u64) -> Self {
        Self {
            specification: config.specification,
            serial: config.serial.chars().filter(|c| c.len_utf16() == 1).take(STRING_MAX).collect(),
            depths: Depths::new(config),
            transfer_max: config.transfer_max,
            write_booster_max,
            services: config.services,
        }
    }
}

/// Everything behind the link.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) build: Build,
    pub(super) provisions: Provisions,
    pub(super) parameters: Parameters,
    pub(super) units: LogicalUnits,
    pub(super) backend: Backend,
    pub(super) order: Order,
    pub(super) readiness: Readiness,
    pub(super) exceptions: Exceptions,
    pub(super) rpmb: Rpmb,
    pub(super) firmware: Firmware,
    pub(super) upkeep: Upkeep,
    pub(super) journal: Journal,
    /// The software of a published host, if its time is to be spent.
    pub(super) processor: Option<Processor>,
    /// The buffer of READ BUFFER and WRITE BUFFER.
    pub(super) buffer: Vec<u8>,
    /// Data of the command being carried out.
    pub(super) scratch: Vec<u8>,
    /// The total effect of power losses.
    pub(super) lost: Loss,
}

impl Device {
    /// The device of `config` in its power-on state.
    pub(super) fn new(config: Config) -> Self {
        let provision = Provision::new(&config);
        let units = config.units.iter().flatten();
        let total: u64 =
            units.clone().map(|unit| unit.size.next_multiple_of(ALLOCATION_UNIT)).sum();
        let own: u64 = units.map(|unit| unit.write_booster).sum();
        let write_booster_max = config.write_booster.max(own);
        let extended = config.extended_write_booster
            && config.specification >= 0x0410
            && write_booster_max > 0;
        let write_booster = WriteBooster::new(&provision, extended);
        let bounds = Bounds {
            allocation_units: total / ALLOCATION_UNIT,
            write_booster: allocation_units(write_booster_max),
            block_min: config.block_min(),
        };
        let mut device = Self {
            build: Build::new(&config, write_booster_max),
            parameters: Parameters::new(config.specification, write_booster.is_shared()),
            backend: Backend::new(&config, write_booster),
            order: Order::default(),
            readiness: Readiness::new(config.init_ns),
            exceptions: Exceptions::new(),
            rpmb: Rpmb::new(&provision.header, config.rpmb_key),
            firmware: Firmware::new(),
            upkeep: Upkeep::default(),
            journal: Journal::default(),
            processor: config.software.map(Processor::new),
            buffer: vec![0; BUFFER],
            scratch: vec![0; SCRATCH],
            lost: Loss::default(),
            units: LogicalUnits::new(config.units, &provision),
            provisions: Provisions::new(provision, bounds),
        };
        device.start_over(Reset::PowerOn, 0);
        device
    }

    /// The device starts afresh: what does not survive the reset is gone, and every unit reports
    /// it.
    pub(super) fn start_over(&mut self, reset: Reset, now: u64) {
        let turn = if reset == Reset::Warm { Turn::WarmReset } else { Turn::PowerOn };
        self.journal.note(now, turn, 0);
        if self.firmware.start_over() {
            self.journal.note(now, Turn::Firmware, 0);
        }
        self.settle_upkeep(now, true);
        self.parameters.reset(reset);
        let header = &self.provisions.current.header;
        let level = u64::from(header.b_init_active_icc_level);
        self.parameters.force(AttributeId::ActiveIccLevel, level);
        self.backend.write_booster.reset();
        self.backend.background.enable(true, 0);
        self.parameters.force_flag(FlagId::BackgroundOpsEn, 0, true);
        self.readiness.start_over(header.b_init_power_mode == 1);
        self.exceptions.start_over();
        self.provisions.start_over();
        self.units.start_over(Sense::attention(match reset {
            Reset::Warm => AdditionalSense::PowerOnReset,
            Reset::PowerOn => AdditionalSense::PowerOnOccurred,
        }));
    }

    /// Power is back: a new configuration takes effect.
    pub(super) fn power_on(&mut self, now: u64) {
        self.readiness.set_powered(true);
        self.units.protection.power_on();
        if let Some(before) = self.provisions.power_on() {
            let current = &self.provisions.current;
            self.units.provision(&before, current);
            self.rpmb.reconfigure(&current.header);
            let extended = self.backend.write_booster.is_extended();
            self.backend.write_booster = WriteBooster::new(current, extended);
            self.parameters.set_shared(self.backend.write_booster.is_shared());
        }
        self.start_over(Reset::PowerOn, now);
    }

    /// Power is lost.
    pub(super) fn power_off(&mut self, x: &Exchange) {
        let now = x.now();
        self.readiness.set_powered(false);
        self.settle_upkeep(now, true);
        self.upkeep.forget_ends();
        self.rpmb.lose_power(now);
        self.firmware.lose_power();
        self.journal.note(now, Turn::PowerLost, 0);
        self.forget_waiting();
        self.backend.lose_power();
        self.backend.media.set_link_rate(x.link.rate);
        self.meter_state(x);
    }

    /// Loses the data that is not on the medium, or some of it.
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub(super) fn lose_writes(&mut self, faults: &mut Injector) -> Result<Loss, StoreError> {
        let loss = self.backend.cache.lose(&mut self.units.list, faults)?;
        self.lost.survived += loss.survived;
        self.lost.vanished += loss.vanished;
        self.lost.torn += loss.torn;
        Ok(loss)
    }

    /// Tells the meter the state of device and link.
    pub(super) fn meter_state(&mut self, x: &Exchange) {
        let level = match self.readiness.mode() {
            _ if !self.readiness.is_powered() => level::OFF,
            CurrentPowerMode::Sleep => level::SLEEP,
            CurrentPowerMode::PowerDown => level::POWER_DOWN,
            CurrentPowerMode::DeepSleep => level::DEEP_SLEEP,
            _ if x.link.state == LinkState::Hibernated => level::HIBERNATE,
            _ => level::ACTIVE,
        };
        self.backend.media.meter_mut().enter(level, x.now());
    }

    /// Ends fDeviceInit if its time has come.
    pub(super) fn settle_init(&mut self, now: u64) {
        if self.readiness.settle_init(now) {
            self.parameters.force_flag(FlagId::DeviceInit, 0, false);
        }
    }

    /// Why only queries work until fDeviceInit is done.
    pub(super) fn initialising(&mut self, now: u64) -> Option<Sense> {
        self.settle_init(now);
        let sense = Sense::new(SenseKey::NotReady, AdditionalSense::BecomingReady);
        (!self.readiness.is_initialised()).then_some(sense)
    }

    /// Why the units cannot be used now, if they cannot.
    #[inline]
    pub(super) fn not_ready(&mut self, now: u64) -> Option<Sense> {
        let active = self.readiness.is_active();
        if self.readiness.is_initialised() && active && !self.upkeep.is_purging() {
            return None;
        }
        if let Some(sense) = self.initialising(now) {
            return Some(sense);
        }
        let sense = Sense::new(SenseKey::NotReady, AdditionalSense::InitializingCommandRequired);
        if !active {
            return Some(sense);
        }
        self.settle_upkeep(now, false);
        let sense = Sense::new(SenseKey::NotReady, AdditionalSense::NotReadyInProgress);
        self.upkeep.is_purging().then_some(sense)
    }

    /// Ends purge and refresh once due, or now if `stop`.
    fn settle_upkeep(&mut self, now: u64, stop: bool) {
        let purge = stop.then_some(PurgeStatus::StoppedPrematurely);
        self.settle_purge(now, purge);
        self.upkeep.settle_refresh(now, stop.then_some(RefreshStatus::StoppedPrematurely));
    }

    /// Ends a purge once due, or now to `stop` it: the data it has reached is gone.
    pub(super) fn settle_purge(&mut self, now: u64, stop: Option<PurgeStatus>) {
        let was = self.upkeep.is_purging();
        let mut left = self.upkeep.settle_purge(now, stop);
        let Self { upkeep, units, .. } = self;
        while left > 0
            && let Some(range) = upkeep.pop(&mut left, |number| units.block_length(number))
        {
            units.discard(range);
        }
        let over = was && !self.upkeep.is_purging();
        if over {
            self.parameters.force_flag(FlagId::PurgeEnable, 0, false);
        }
        if over && left < u64::MAX / 2 {
            self.journal.note(now, Turn::PurgeStopped, 0);
        }
    }

    /// LOGICAL UNIT RESET.
    pub(super) fn reset_unit(&mut self, lun: u8, now: u64) {
        self.journal.note(now, Turn::UnitReset, lun);
        self.units.reset(lun);
    }

    /// Forgets every waiting command.
    pub(super) fn forget_waiting(&mut self) {
        self.backend.forget_waiting();
        self.order.forget();
    }

    /// wExceptionEventStatus.
    pub(super) fn exception_events(&mut self, now: u64) -> ExceptionEvents {
        let Backend { background, write_booster, .. } = &mut self.backend;
        self.exceptions.events(&self.parameters, background.status(now), write_booster)
    }

    /// Determines again whether an enabled exception event is pending.
    pub(super) fn update_alert(&mut self, now: u64) {
        let events = self.exception_events(now);
        self.exceptions.update(events, &self.parameters);
    }

    /// Sets the case temperature, °C.
    pub(super) fn set_temperature(&mut self, celsius: i16, now: u64) {
        self.exceptions.set_temperature(celsius, &self.parameters);
        self.update_alert(now);
    }
}
