//! The device: its units, its state, and what resets do to it.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::scsi::{AdditionalSense, SenseKey};
use flysch_wire::ufs::query::{
    AttributeId, BackgroundOpStatus, ExceptionEvents, FlagId, PurgeStatus, QueryResult,
    RefreshStatus,
};
use flysch_wire::ufs::upiu::Wlun;

use super::config::{ALLOCATION_UNIT, Config, UnitConfig};
use super::firmware::Firmware;
use super::journal::{Journal, Turn};
use super::lu::{self, Unit};
use super::parameters::{Parameters, Reset};
use super::power::{Background, Power};
use super::protection::Protection;
use super::provision::{Bounds, Provision, allocation_units};
use super::rpmb::Rpmb;
use super::sense::Sense;
use super::task::{TaskRef, Tasks};
use super::upkeep::{Stale, Upkeep};
use super::writebooster::WriteBooster;
use crate::media::cache::Cache;
use crate::store::Store;

/// Case temperature of a device nobody has heated, °C.
const TEMPERATURE: i16 = 40;
/// What the temperature attributes add to °C.
const TEMPERATURE_OFFSET: i16 = 80;
/// Well-known units in the order of [`Device::attentions`].
const WELL_KNOWN: [Wlun; 4] = [Wlun::ReportLuns, Wlun::UfsDevice, Wlun::Boot, Wlun::Rpmb];
/// Size of the buffer that READ BUFFER and WRITE BUFFER reach in data mode, bytes.
pub(super) const BUFFER: usize = 4096;
/// Longest text of a string descriptor, UTF-16 units.
const STRING_MAX: usize = 126;

/// A command that waits until everything written before it is on the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) task: TaskRef,
    /// Bytes that had arrived when it began to wait.
    pub(super) watermark: u64,
}

/// How many commands the device queues; one more is answered TASK SET FULL.
#[derive(Debug)]
pub(super) struct Depths {
    /// Whether that can happen at all.
    pub(super) bound: bool,
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
}

/// Everything behind the link.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) units: Vec<Option<Unit>>,
    pub(super) provision: Provision,
    /// The configuration that takes effect at the next power cycle.
    pub(super) next_provision: Option<Provision>,
    /// A configuration of which parts are still to be written.
    pub(super) draft: Option<Provision>,
    pub(super) bounds: Bounds,
    pub(super) specification: u16,
    pub(super) serial: String,
    pub(super) depths: Depths,
    pub(super) transfer_max: u32,
    pub(super) write_booster_max: u64,
    pub(super) parameters: Parameters,
    pub(super) write_booster: WriteBooster,
    pub(super) power: Power,
    pub(super) background: Background,
    pub(super) rpmb: Rpmb,
    pub(super) protection: Protection,
    /// The device updates its firmware and refreshes itself.
    pub(super) services: bool,
    pub(super) firmware: Firmware,
    pub(super) upkeep: Upkeep,
    pub(super) journal: Journal,
    /// What READ BUFFER and WRITE BUFFER reach.
    pub(super) buffer: Vec<u8>,
    pub(super) cache: Cache,
    powered: bool,
    init_ns: u64,
    /// fDeviceInit is under way until then.
    init_until: Option<u64>,
    initialised: bool,
    /// UNIT ATTENTION of the well-known units.
    attentions: [Option<Sense>; WELL_KNOWN.len()],
    temperature: i16,
    throttled: bool,
    /// Whether an enabled exception event waits: EVENT_ALERT of every response.
    alert: bool,
    /// Writes that wait for room in the write buffer, in order.
    pub(super) writes: VecDeque<TaskRef>,
    pub(super) flushes: Vec<Waiting>,
    /// Commands that wait for older ones because of a task attribute, in order.
    pub(super) held_back: VecDeque<TaskRef>,
    /// An ORDERED command is in the device.
    pub(super) any_ordered: bool,
}

impl Device {
    pub(super) fn new(config: Config) -> Self {
        let provision = Provision::new(&config);
        let total: u64 = config
            .units
            .iter()
            .flatten()
            .map(|unit| unit.size.next_multiple_of(ALLOCATION_UNIT))
            .sum();
        let own: u64 = config.units.iter().flatten().map(|unit| unit.write_booster).sum();
        let write_booster_max = config.write_booster.max(own);
        let extended = config.extended_write_booster
            && config.specification >= 0x0410
            && write_booster_max > 0;
        let write_booster = WriteBooster::new(&provision, extended);
        let volatile = config.volatile_cache || config.faults.cuts_power();
        let mut device = Self {
            bounds: Bounds {
                allocation_units: total / ALLOCATION_UNIT,
                write_booster: allocation_units(write_booster_max),
            },
            specification: config.specification,
            serial: config.serial.chars().filter(|c| c.len_utf16() == 1).take(STRING_MAX).collect(),
            depths: Depths::new(&config),
            transfer_max: config.transfer_max,
            write_booster_max,
            parameters: Parameters::new(config.specification, write_booster.is_shared()),
            write_booster,
            power: Power::new(true),
            background: Background::default(),
            rpmb: Rpmb::new(&provision.header, config.rpmb_key),
            protection: Protection::default(),
            services: config.services,
            firmware: Firmware::new(),
            upkeep: Upkeep::default(),
            journal: Journal::default(),
            buffer: vec![0; BUFFER],
            cache: Cache::new(volatile),
            powered: true,
            init_ns: config.init_ns,
            init_until: None,
            initialised: false,
            attentions: [None; WELL_KNOWN.len()],
            temperature: TEMPERATURE,
            throttled: false,
            alert: false,
            writes: VecDeque::new(),
            flushes: Vec::new(),
            held_back: VecDeque::new(),
            any_ordered: false,
            units: lu::build(config.units, &provision),
            provision,
            next_provision: None,
            draft: None,
        };
        device.start_over(Reset::PowerOn, 0);
        device
    }

    pub(super) fn is_powered(&self) -> bool {
        self.powered
    }

    /// The device starts afresh: what does not survive the reset is gone, and every unit says so.
    pub(super) fn start_over(&mut self, reset: Reset, now: u64) {
        let turn = if reset == Reset::Warm { Turn::WarmReset } else { Turn::PowerOn };
        self.journal.note(now, turn, 0);
        if self.firmware.start_over() {
            self.journal.note(now, Turn::Firmware, 0);
        }
        self.settle_upkeep(now, true);
        self.parameters.reset(reset);
        let level = self.provision.header.b_init_active_icc_level;
        self.parameters.force(AttributeId::ActiveIccLevel, u64::from(level));
        self.write_booster.reset();
        self.background.enable(true, 0);
        self.parameters.force_flag(FlagId::BackgroundOpsEn, 0, true);
        self.power = Power::new(self.provision.header.b_init_power_mode == 1);
        self.initialised = false;
        self.init_until = None;
        self.alert = false;
        self.draft = None;
        let attention = Some(Sense::attention(match reset {
            Reset::Warm => AdditionalSense::PowerOnReset,
            Reset::PowerOn => AdditionalSense::PowerOnOccurred,
        }));
        self.attentions = [attention; WELL_KNOWN.len()];
        for unit in self.units.iter_mut().flatten() {
            unit.reset();
            unit.attention = attention;
        }
    }

    /// Power is back: a new configuration takes effect.
    pub(super) fn power_on(&mut self, now: u64) {
        self.powered = true;
        self.protection.power_on();
        if let Some(next) = self.next_provision.take() {
            let units = core::mem::take(&mut self.units);
            self.units = lu::rebuild(units, &self.provision, &next);
            self.rpmb.reconfigure(&next.header);
            self.write_booster = WriteBooster::new(&next, self.write_booster.is_extended());
            self.parameters.set_shared(self.write_booster.is_shared());
            self.provision = next;
        }
        self.start_over(Reset::PowerOn, now);
    }

    pub(super) fn power_off(&mut self, now: u64) {
        self.powered = false;
        self.settle_upkeep(now, true);
        self.upkeep.forget_ends();
        self.rpmb.lose_power(now);
        self.firmware.lose_power();
        self.journal.note(now, Turn::PowerLost, 0);
        self.forget_waiting();
    }

    /// Whether units in files could take the sizes of `next`.
    pub(super) fn check_stores(&self, next: &Provision) -> Result<(), QueryResult> {
        let grows = |(lun, unit): (usize, &Option<Unit>)| match unit {
            Some(unit) if !matches!(unit.store, Store::Memory(_)) => {
                let wanted = &next.units[lun];
                wanted.b_lu_enable == 1
                    && u64::from(wanted.d_num_alloc_units) * ALLOCATION_UNIT > unit.size
            }
            _ => false,
        };
        match self.units.iter().enumerate().any(grows) {
            true => Err(QueryResult::InvalidValue),
            false => Ok(()),
        }
    }

    /// The host has set fDeviceInit.
    pub(super) fn begin_init(&mut self, now: u64) {
        self.init_until = Some(now + self.init_ns);
    }

    /// Ends fDeviceInit if its time has come.
    pub(super) fn settle_init(&mut self, now: u64) {
        if self.init_until.is_some_and(|until| until <= now) {
            self.init_until = None;
            self.initialised = true;
            self.parameters.force_flag(FlagId::DeviceInit, 0, false);
        }
    }

    /// Why nothing but queries works before fDeviceInit is done.
    pub(super) fn initialising(&mut self, now: u64) -> Option<Sense> {
        self.settle_init(now);
        let sense = Sense::new(SenseKey::NotReady, AdditionalSense::BecomingReady);
        (!self.initialised).then_some(sense)
    }

    /// Why the units cannot be used now, if they cannot.
    #[inline]
    pub(super) fn not_ready(&mut self, now: u64) -> Option<Sense> {
        if self.initialised && self.power.is_active() && !self.upkeep.is_purging() {
            return None;
        }
        if let Some(sense) = self.initialising(now) {
            return Some(sense);
        }
        let sense = Sense::new(SenseKey::NotReady, AdditionalSense::InitializingCommandRequired);
        if !self.power.is_active() {
            return Some(sense);
        }
        self.settle_upkeep(now, false);
        let sense = Sense::new(SenseKey::NotReady, AdditionalSense::NotReadyInProgress);
        self.upkeep.is_purging().then_some(sense)
    }

    /// Ends purge and refresh whose time has come, or both at once.
    pub(super) fn settle_upkeep(&mut self, now: u64, stop: bool) {
        let purge = stop.then_some(PurgeStatus::StoppedPrematurely);
        self.settle_purge(now, purge);
        self.upkeep.settle_refresh(now, stop.then_some(RefreshStatus::StoppedPrematurely));
    }

    /// Ends a purge whose time has come, or at once: what it has come to is gone.
    pub(super) fn settle_purge(&mut self, now: u64, stop: Option<PurgeStatus>) {
        let was = self.upkeep.is_purging();
        let mut left = self.upkeep.settle_purge(now, stop);
        let Self { upkeep, units, .. } = self;
        while left > 0
            && let Some(range) = upkeep.pop(&mut left, |number| block_length(units, number))
        {
            discard(units, range);
        }
        let over = was && !self.upkeep.is_purging();
        if over {
            self.parameters.force_flag(FlagId::PurgeEnable, 0, false);
        }
        if over && left < u64::MAX / 2 {
            self.journal.note(now, Turn::PurgeStopped, 0);
        }
    }

    /// A range of a unit was written.
    #[inline]
    pub(super) fn rewritten(&mut self, unit: u8, offset: u64, len: u64) {
        if self.upkeep.has_stale() {
            self.upkeep.written(Stale { unit, offset, len });
            self.drop_overflow();
        }
    }

    /// A range of a unit that lets unmapped blocks read as anything was unmapped.
    pub(super) fn unmapped(&mut self, unit: u8, offset: u64, len: u64) {
        self.upkeep.unmapped(Stale { unit, offset, len });
        self.drop_overflow();
    }

    fn drop_overflow(&mut self) {
        while let Some(range) = self.upkeep.overflow() {
            discard(&mut self.units, range);
        }
    }

    pub(super) fn has_lun(&self, lun: u8) -> bool {
        let well_known = matches!(Wlun::from_bits(lun), Wlun::Unknown(_));
        !well_known || self.unit(lun).is_some()
    }

    #[inline]
    pub(super) fn unit(&self, index: u8) -> Option<&Unit> {
        self.units.get(usize::from(index))?.as_ref()
    }

    #[inline]
    pub(super) fn unit_mut(&mut self, index: u8) -> Option<&mut Unit> {
        self.units.get_mut(usize::from(index))?.as_mut()
    }

    /// Number of the unit that the BOOT well-known unit stands for now.
    pub(super) fn boot_unit(&self) -> Option<u8> {
        let wanted = self.parameters.attribute(AttributeId::BootLunEn);
        let is_it = |unit: &Unit| u64::from(unit.boot_id) == wanted;
        if wanted == 0 || self.provision.header.b_boot_enable == 0 {
            return None;
        }
        let found = self.units.iter().position(|unit| unit.as_ref().is_some_and(is_it))?;
        Some(found as u8)
    }

    /// The UNIT ATTENTION that waits for a LUN.
    #[inline]
    pub(super) fn attention(&mut self, lun: u8) -> Option<&mut Option<Sense>> {
        if lun & 0x80 == 0 {
            return self.unit_mut(lun).map(|unit| &mut unit.attention);
        }
        let known = WELL_KNOWN.iter().position(|wlun| wlun.into_bits() == lun)?;
        Some(&mut self.attentions[known])
    }

    /// LOGICAL UNIT RESET.
    pub(super) fn reset_unit(&mut self, lun: u8, now: u64) {
        self.journal.note(now, Turn::UnitReset, lun);
        if let Some(unit) = self.unit_mut(lun) {
            unit.reset();
        }
        if let Some(attention) = self.attention(lun) {
            *attention = Some(Sense::attention(AdditionalSense::BusDeviceResetFunction));
        }
    }

    /// Forgets a command that waits inside the device.
    pub(super) fn forget(&mut self, name: TaskRef) {
        self.writes.retain(|task| *task != name);
        self.flushes.retain(|waiting| waiting.task != name);
    }

    /// Forgets every waiting command that is no longer in the device.
    pub(super) fn forget_stale(&mut self, tasks: &Tasks) {
        self.writes.retain(|task| tasks.is_current(*task));
        self.flushes.retain(|waiting| tasks.is_current(waiting.task));
    }

    pub(super) fn forget_waiting(&mut self) {
        self.writes.clear();
        self.flushes.clear();
        self.held_back.clear();
        self.any_ordered = false;
    }

    pub(super) fn set_temperature(&mut self, celsius: i16, now: u64) {
        self.temperature = celsius.clamp(1 - TEMPERATURE_OFFSET, 250 - TEMPERATURE_OFFSET);
        self.throttled = self.temperature_code() >= self.boundary(true);
        self.update_alert(now);
    }

    /// bDeviceCaseRoughTemperature.
    pub(super) fn temperature_code(&self) -> u64 {
        (self.temperature + TEMPERATURE_OFFSET) as u64
    }

    fn boundary(&self, high: bool) -> u64 {
        self.parameters.attribute(match high {
            true => AttributeId::DeviceTooHighTempBoundary,
            false => AttributeId::DeviceTooLowTempBoundary,
        })
    }

    /// bThrottlingStatus.
    pub(super) fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// wExceptionEventStatus.
    pub(super) fn exception_events(&mut self, now: u64) -> ExceptionEvents {
        let urgent = matches!(
            self.background.status(now),
            BackgroundOpStatus::PerformanceImpact | BackgroundOpStatus::Critical
        );
        ExceptionEvents::new()
            .with_urgent_bkops(urgent)
            .with_too_high_temp(self.temperature_code() >= self.boundary(true))
            .with_too_low_temp(self.temperature_code() <= self.boundary(false))
            .with_writebooster_flush_needed(self.write_booster.needs_flush())
            .with_performance_throttling(self.throttled)
            .with_writebooster_resize_hint(self.write_booster.hints())
            .with_pinned_writebooster_full(self.write_booster.is_pinned_full())
    }

    /// Whether responses carry EVENT_ALERT.
    #[inline]
    pub(super) fn event_alert(&self) -> bool {
        self.alert
    }

    /// Finds out anew whether an enabled exception event waits.
    pub(super) fn update_alert(&mut self, now: u64) {
        let control = self.parameters.attribute(AttributeId::ExceptionEventControl);
        self.alert = u64::from(self.exception_events(now).into_bits()) & control != 0;
    }
}

fn block_length(units: &[Option<Unit>], number: u8) -> u64 {
    match units.get(usize::from(number)) {
        Some(Some(unit)) => 1 << unit.block_shift,
        _ => 1,
    }
}

/// Stale data goes. A store that cannot take it away keeps it, and says so elsewhere.
fn discard(units: &mut [Option<Unit>], range: Stale) {
    if let Some(Some(unit)) = units.get_mut(usize::from(range.unit)) {
        let _ = unit.store.discard(range.offset, range.len);
    }
}
