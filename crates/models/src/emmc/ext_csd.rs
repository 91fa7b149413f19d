//! EXT_CSD of the device: what it says at power-on, and what CMD6 changes.

use flysch_wire::mmc::command::{SwitchArgument, access};
use flysch_wire::mmc::ext_csd::{self as at, bus_width, hs_timing, partition, sec_feature};
use flysch_wire::mmc::{CardStatus, ExtCsd, SECTOR};

use super::config::{Config, GENERAL_UNIT, PARTITION_UNIT};
use super::provision::{self, Layout, enhanced_max, is_setting};

/// Sectors of an erase group: HC_ERASE_GRP_SIZE 1.
pub(super) const ERASE_GROUP: u32 = 1024;
/// Erase groups of a write protect group.
const PROTECT_GROUPS: u8 = (GENERAL_UNIT / (ERASE_GROUP as u64 * 512)) as u8;
/// Sectors of a write protect group.
pub(super) const PROTECT_GROUP: u32 = ERASE_GROUP * PROTECT_GROUPS as u32;
/// FFU_ARG: where new firmware is written to.
pub(super) const FFU_ARGUMENT: u32 = 0x6600_0000;
/// S_A_TIMEOUT: 2^18 x 100 ns, 26 ms.
const SLEEP_AWAKE: u8 = 18;

/// The register as it is after power-on.
pub(super) fn power_on(config: &Config) -> ExtCsd {
    let profile = &config.profile;
    let mut csd = ExtCsd::default();
    let sectors = (config.size / 512).min(u32::MAX.into()) as u32;
    let general = |n: usize| config.general.get(n).copied().unwrap_or(0) / GENERAL_UNIT;
    let bytes = &mut csd.0;
    let mut put = |index: u8, value: u8| bytes[usize::from(index)] = value;
    put(at::REVISION, profile.revision);
    put(at::STRUCTURE, 2);
    put(at::DEVICE_TYPE, profile.device_type);
    put(at::STROBE_SUPPORT, profile.strobe.into());
    put(at::DRIVER_STRENGTH, 1);
    put(at::OUT_OF_INTERRUPT_TIME, 5);
    put(at::PARTITION_SWITCH_TIME, 3);
    put(at::GENERIC_CMD6_TIME, 5);
    put(at::POWER_OFF_LONG_TIME, 60);
    put(at::S_A_TIMEOUT, SLEEP_AWAKE);
    put(at::HC_ERASE_GRP_SIZE, 1);
    put(at::HC_WP_GRP_SIZE, PROTECT_GROUPS);
    put(at::ERASE_TIMEOUT_MULT, 1);
    put(at::TRIM_MULT, 2);
    put(at::SEC_TRIM_MULT, 4);
    put(at::SEC_ERASE_MULT, 4);
    put(at::REL_WR_SEC_C, 1);
    put(at::WR_REL_PARAM, 1 << 2 | 1 << 4);
    put(at::BOOT_SIZE, (config.boot_size / PARTITION_UNIT) as u8);
    put(at::RPMB_SIZE, (config.rpmb_size / PARTITION_UNIT) as u8);
    put(at::PARTITIONING_SUPPORT, 7);
    if config.native_sectors {
        put(at::NATIVE_SECTOR_SIZE, 1);
        put(at::USE_NATIVE_SECTOR, 1);
        put(at::DATA_SECTOR_SIZE, 1);
        put(at::INI_TIMEOUT_EMU, 1);
    }
    put(at::PARTITION_SETTING_COMPLETED, u8::from(!config.general.is_empty()));
    let features = sec_feature::SECURE_ERASE | sec_feature::TRIM | sec_feature::SANITIZE;
    put(at::SEC_FEATURE_SUPPORT, features | sec_feature::BAD_BLOCK);
    for byte in 0..3_u8 {
        put(at::MAX_ENHANCED_SIZE + byte, (enhanced_max(config.size) >> (8 * byte)) as u8);
    }
    for n in 0..4 {
        let size = general(n) as u32;
        for byte in 0..3_u8 {
            put(at::GP_SIZE + 3 * n as u8 + byte, (size >> (8 * byte)) as u8);
        }
    }
    bytes[usize::from(at::SEC_COUNT)..][..4].copy_from_slice(&sectors.to_le_bytes());
    bytes[usize::from(at::CACHE_SIZE)..][..4].copy_from_slice(&profile.cache_kib.to_le_bytes());
    bytes[usize::from(at::FIRMWARE_VERSION)..][..8].copy_from_slice(b"FLYSCH01");
    bytes[at::PRE_EOL_INFO] = 1;
    bytes[at::LIFE_TIME_A] = 1;
    bytes[at::LIFE_TIME_B] = 1;
    bytes[at::FFU_ARG..][..4].copy_from_slice(&FFU_ARGUMENT.to_le_bytes());
    bytes[at::SUPPORTED_MODES] = 1;
    bytes[at::FFU_FEATURES] = 0;
    bytes[at::BKOPS_SUPPORT] = 1;
    bytes[at::HPI_FEATURES] = 1;
    bytes[at::COMMAND_SETS] = 1;
    if profile.revision >= at::revision::V5_1 {
        bytes[at::BARRIER_SUPPORT] = 1;
        if profile.queue_depth != 0 {
            bytes[at::CMDQ_SUPPORT] = 1;
            bytes[at::CMDQ_DEPTH] = profile.queue_depth - 1;
        }
    }
    csd
}

/// What a CMD6 sets off besides the new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switched {
    /// The new value alone.
    Value,
    /// The cache is emptied; with `false` only ordered.
    Flush(bool),
    /// The cache is switched off: it is emptied first.
    CacheOff,
    /// Background operations.
    Bkops,
    /// Sanitize.
    Sanitize,
    /// The device makes itself ready for the loss of power.
    PowerOff,
    /// Firmware is installed.
    Install,
    /// The timing or the width of the bus.
    Bus,
    /// Partitioning is completed, if what was asked for fits.
    Partitioned,
}

/// EXT_CSD of a device: as it stands, and as it is after power-on. An SD card's is all zeros.
#[derive(Debug)]
pub(super) struct ExtendedCsd {
    now: ExtCsd,
    fresh: ExtCsd,
    /// Sectors of new firmware that came.
    firmware: u32,
}

impl ExtendedCsd {
    /// A register that says this after power-on.
    pub(super) fn new(fresh: ExtCsd) -> Self {
        Self { now: fresh.clone(), fresh, firmware: 0 }
    }

    /// Power came, or CMD0: all but the version of the firmware is as at first.
    pub(super) fn reset(&mut self) {
        let place = usize::from(at::FIRMWARE_VERSION)..usize::from(at::FIRMWARE_VERSION) + 8;
        let old = core::mem::replace(&mut self.now, self.fresh.clone());
        self.now.0[place.clone()].copy_from_slice(&old.0[place]);
    }

    /// What the host reads, with the fields that follow from what happened to a device of `size`
    /// bytes to which so many were `written`.
    pub(super) fn refresh(&mut self, written: u64, size: u64) {
        // Life times in tenths of 3000 cycles of the user area.
        let life = written / (size.max(1) * 300) + 1;
        let life = life.min(11) as u8;
        let bytes = &mut self.now.0;
        (bytes[at::LIFE_TIME_A], bytes[at::LIFE_TIME_B]) = (life, life);
        bytes[at::PRE_EOL_INFO] = if life > 10 { 3 } else { 1 };
        bytes[at::FFU_SECTORS..][..4].copy_from_slice(&self.firmware.to_le_bytes());
    }

    /// What the host reads.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.now.0
    }

    /// Whether the cache keeps what is written.
    pub(super) fn has_cache_on(&self) -> bool {
        self.now.byte(at::CACHE_CTRL) & 1 != 0
    }

    /// Whether the device takes tasks.
    pub(super) fn has_queue_on(&self) -> bool {
        self.now.byte(at::CMDQ_MODE_EN) & 1 != 0
    }

    /// Whether HPI interrupts what the device is busy with.
    pub(super) fn has_hpi_on(&self) -> bool {
        self.now.byte(at::HPI_MGMT) & 1 != 0
    }

    /// Whether what is written is new firmware.
    pub(super) fn takes_firmware(&self) -> bool {
        self.now.byte(at::MODE_CONFIG) == 1
    }

    /// HS_TIMING.
    pub(super) fn timing(&self) -> u8 {
        self.now.byte(at::HS_TIMING) & 0xF
    }

    /// Data lines, and whether data is on both edges.
    pub(super) fn lines(&self) -> (u8, bool) {
        match self.now.byte(at::BUS_WIDTH) & 0xF {
            bus_width::FOUR => (4, false),
            bus_width::EIGHT => (8, false),
            bus_width::FOUR_DDR => (4, true),
            bus_width::EIGHT_DDR => (8, true),
            _ => (1, false),
        }
    }

    /// Whether the device sends a strobe with its responses, too.
    pub(super) fn has_strobe(&self) -> bool {
        self.now.byte(at::BUS_WIDTH) & bus_width::STROBE != 0
    }

    /// The partition that is selected.
    pub(super) fn selected(&self) -> u8 {
        self.now.byte(at::PARTITION_CONFIG) & partition::MASK
    }

    /// Whether a boot partition is protected.
    pub(super) fn protects(&self, part: u8) -> bool {
        let status = self.now.byte(at::BOOT_WP_STATUS);
        match part {
            partition::BOOT0 => status & 3 != 0,
            partition::BOOT1 => status & 0xC != 0,
            _ => false,
        }
    }

    /// Log2 of the bytes that are read and written together.
    pub(super) fn grain_shift(&self) -> u32 {
        self.now.data_sector_bytes().ilog2()
    }

    /// Whether a range is of whole native sectors, where the device has those, or what is wrong
    /// with it ("Large sector size" of JESD84-B51).
    #[inline]
    pub(super) fn whole(&self, first: u32, blocks: u32) -> Result<(), CardStatus> {
        let part = self.now.data_sector_bytes() / SECTOR - 1;
        let none = CardStatus::new();
        if first & part != 0 {
            return Err(none.with_address_misalign(true));
        }
        if blocks & part != 0 {
            return Err(none.with_block_len_error(true));
        }
        Ok(())
    }

    /// Whether R1 tells of an event.
    pub(super) fn has_event(&self) -> bool {
        self.now.byte(at::EXCEPTION_STATUS) & self.now.byte(at::EXCEPTION_CTRL) != 0
    }

    /// Background operations are urgent, or no longer necessary.
    pub(super) fn set_urgent(&mut self, urgent: bool) {
        let bytes = &mut self.now.0;
        bytes[usize::from(at::BKOPS_STATUS)] = if urgent { 2 } else { 0 };
        let status = &mut bytes[usize::from(at::EXCEPTION_STATUS)];
        *status = if urgent { *status | at::exception::URGENT_BKOPS as u8 } else { 0 };
    }

    /// So many sectors of new firmware came.
    pub(super) fn firmware_came(&mut self, sectors: u32) {
        self.firmware += sectors;
    }

    /// New firmware runs after a reset.
    pub(super) fn take_firmware(&mut self) {
        if core::mem::take(&mut self.firmware) != 0 {
            let place = usize::from(at::FIRMWARE_VERSION);
            self.now.0[place + 7] = self.now.0[place + 7].wrapping_add(1);
        }
    }

    /// PARTITION_SETTING_COMPLETED: the settings are for ever if they fit a device of `size` bytes
    /// that is addressed in units of `1 << shift`; what the next power-on makes of it.
    pub(super) fn complete(&mut self, size: u64, shift: u32) -> Option<Layout> {
        let layout = Layout::of(&self.now, size, shift)?;
        self.now.0[usize::from(at::PARTITION_SETTING_COMPLETED)] = 1;
        provision::copy(&self.now, &mut self.fresh);
        Some(layout)
    }

    /// The user area has so many bytes from the next power-on.
    pub(super) fn set_user(&mut self, bytes: u64) {
        let sectors = (bytes / 512).min(u32::MAX.into()) as u32;
        self.fresh.0[usize::from(at::SEC_COUNT)..][..4].copy_from_slice(&sectors.to_le_bytes());
    }

    /// Carries a CMD6 out while there are `tasks` or none; `None` is SWITCH_ERROR.
    pub(super) fn switch(&mut self, argument: SwitchArgument, tasks: bool) -> Option<Switched> {
        let csd = &mut self.now;
        if argument.access() == access::COMMAND_SET {
            return (argument.set() == 0).then_some(Switched::Value);
        }
        let (index, old) = (argument.index(), csd.byte(argument.index()));
        let value = wanted(csd, argument)?;
        let effect = allowed(csd, index, value, tasks)?;
        match effect {
            // These are orders, not values.
            Switched::Flush(_)
            | Switched::Bkops
            | Switched::Sanitize
            | Switched::Install
            | Switched::Partitioned => {}
            _ => csd.0[usize::from(index)] = value,
        }
        if index == at::BOOT_WP {
            let status = &mut csd.0[usize::from(at::BOOT_WP_STATUS)];
            *status = boot_protection(*status, value);
        }
        if index == at::CACHE_CTRL && old & 1 != 0 && value & 1 == 0 {
            return Some(Switched::CacheOff);
        }
        Some(effect)
    }
}

/// The value that a switch asks for, if it writes a byte at all.
fn wanted(csd: &ExtCsd, argument: SwitchArgument) -> Option<u8> {
    let (old, value) = (csd.byte(argument.index()), argument.value());
    match argument.access() {
        access::SET_BITS => Some(old | value),
        access::CLEAR_BITS => Some(old & !value),
        access::WRITE_BYTE => Some(value),
        _ => None,
    }
}

/// BOOT_WP_STATUS after this value of BOOT_WP: two bits for each boot partition, 1 until power
/// goes, 2 for ever. What is protected stays so.
fn boot_protection(old: u8, value: u8) -> u8 {
    let bit = |n: u8| value >> n & 1 != 0;
    // With B_SEC_WP_SEL one partition is meant, which one is said beside each kind.
    let means = |part: u8, which: u8| !bit(7) || bit(which) == (part == 1);
    let of = |part: u8| {
        let state = match () {
            () if bit(2) && means(part, 3) => 2,
            () if bit(0) && means(part, 1) => 1,
            () => 0,
        };
        state.max(old >> (2 * part) & 3) << (2 * part)
    };
    of(0) | of(1)
}

/// Whether a byte may have this value now, and what that means.
fn allowed(csd: &ExtCsd, index: u8, value: u8, tasks: bool) -> Option<Switched> {
    let plain = |fits: bool| fits.then_some(Switched::Value);
    let when = |fits: bool, effect| fits.then_some(effect);
    let open = csd.byte(at::PARTITION_SETTING_COMPLETED) == 0;
    match index {
        at::HS_TIMING => when(timing_fits(csd, value & 0xF), Switched::Bus),
        at::BUS_WIDTH => when(width_fits(csd, value), Switched::Bus),
        at::PARTITION_CONFIG => {
            let access = value & partition::MASK;
            plain(csd.partition_sectors(access) != 0 && !tasks)
        }
        at::CMDQ_MODE_EN => plain(value <= 1 && (value == 0 || csd.queue_depth() != 0) && !tasks),
        at::CACHE_CTRL => plain(value <= 1 && csd.cache_kib() != 0),
        at::FLUSH_CACHE => {
            let on = csd.byte(at::CACHE_CTRL) & 1 != 0;
            let known = matches!(value, at::flush::FLUSH | at::flush::BARRIER);
            when(on && known, Switched::Flush(value == at::flush::FLUSH))
        }
        at::POWER_OFF_NOTIFICATION => match value {
            0 | at::power_off::ON => Some(Switched::Value),
            at::power_off::SHORT..=at::power_off::SLEEP => Some(Switched::PowerOff),
            _ => None,
        },
        at::ERASE_GROUP_DEF => plain(value <= 1),
        at::HPI_MGMT => plain(value <= 1 && csd.hpi().is_some()),
        at::BKOPS_EN => plain(value <= 3),
        at::BKOPS_START => when(csd.0[at::BKOPS_SUPPORT] & 1 != 0, Switched::Bkops),
        at::SANITIZE_START => when(csd.has_sanitize(), Switched::Sanitize),
        at::MODE_CONFIG => plain(value <= 1 && csd.0[at::SUPPORTED_MODES] & 1 != 0),
        at::MODE_OPERATION_CODES => {
            let ffu = csd.byte(at::MODE_CONFIG) == 1 && csd.0[at::FFU_FEATURES] & 1 != 0;
            when(ffu && value == 1, Switched::Install)
        }
        at::SECURE_REMOVAL_TYPE
        | at::EXCEPTION_CTRL
        | at::CLASS_6_CTRL
        | at::RST_N_FUNCTION
        | at::WR_REL_SET
        | at::USER_WP
        | at::BOOT_WP
        | at::BOOT_BUS_CONDITIONS
        | at::POWER_CLASS => Some(Switched::Value),
        // Once native, native for ever.
        at::USE_NATIVE_SECTOR => plain(value == csd.byte(at::NATIVE_SECTOR_SIZE)),
        at::PARTITION_SETTING_COMPLETED => when(open && value == 1, Switched::Partitioned),
        index if is_setting(index) => plain(open),
        _ => None,
    }
}

fn timing_fits(csd: &ExtCsd, timing: u8) -> bool {
    use at::device_type as has;
    let types = csd.device_type();
    let lines = csd.byte(at::BUS_WIDTH) & 0xF;
    match timing {
        hs_timing::LEGACY => true,
        hs_timing::HIGH_SPEED => types & (has::HS26 | has::HS52) != 0,
        hs_timing::HS200 => types & has::HS200 != 0 && lines != bus_width::ONE,
        hs_timing::HS400 => types & has::HS400 != 0 && lines == bus_width::EIGHT_DDR,
        _ => false,
    }
}

fn width_fits(csd: &ExtCsd, width: u8) -> bool {
    use at::device_type as has;
    let high_speed = csd.byte(at::HS_TIMING) & 0xF == hs_timing::HIGH_SPEED;
    let ddr = csd.device_type() & (has::DDR52 | has::HS400) != 0 && high_speed;
    match width {
        bus_width::ONE | bus_width::FOUR | bus_width::EIGHT => true,
        bus_width::FOUR_DDR | bus_width::EIGHT_DDR => ddr,
        STROBE_DDR => ddr && csd.byte(at::STROBE_SUPPORT) != 0,
        _ => false,
    }
}

/// Eight lines, both edges, enhanced strobe.
const STROBE_DDR: u8 = bus_width::EIGHT_DDR | bus_width::STROBE;

#[cfg(test)]
mod tests;
