//! The provisioning of the device: the configuration descriptor, checked and in force.

use flysch_wire::ufs::descriptor::{
    BootLunId, ConfigurationHeader, ConfigurationLayout, ConfigurationUnit, ConfigurationView,
    LuWriteProtect, MemoryType, ProvisioningType, UNITS_PER_CONFIGURATION,
};
use flysch_wire::ufs::query::QueryResult;
use flysch_wire::ufs::rpmb::ADVANCED_MODE;

use super::config::{ALLOCATION_UNIT, BLOCK_MAX, Config, Provisioning, UNITS_MAX, WriteProtect};
use super::rpmb;

/// Number of configuration descriptors: one for every eight units.
pub(super) const PARTS: usize = UNITS_MAX / UNITS_PER_CONFIGURATION;
/// Layout of the configuration descriptor from UFS 3.1 on.
pub(super) const LAYOUT: ConfigurationLayout = ConfigurationLayout::UFS_3_1;
/// bHighPriorityLUN: no unit has it.
const NO_HIGH_PRIORITY: u8 = 0x7F;
/// Header and all units.
#[derive(Clone, Debug)]
pub(super) struct Provision {
    pub(super) header: ConfigurationHeader,
    pub(super) units: [ConfigurationUnit; UNITS_MAX],
}

/// The limits of a provision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Number of allocation units of all units together.
    pub(super) allocation_units: u64,
    /// Number of allocation units of the largest WriteBooster buffer.
    pub(super) write_booster: u32,
    /// Size of the smallest logical block, bytes.
    pub(super) block_min: u32,
}

/// Number of allocation units needed for `bytes`.
pub(super) fn allocation_units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(ALLOCATION_UNIT)).unwrap_or(u32::MAX)
}

/// The configuration in force, and future ones.
#[derive(Debug)]
pub(super) struct Provisions {
    pub(super) current: Provision,
    /// Takes effect at the next power cycle.
    next: Option<Provision>,
    /// Some parts are still to be written.
    draft: Option<Provision>,
    pub(super) bounds: Bounds,
}

impl Provisions {
    /// The configuration of a new device.
    pub(super) fn new(current: Provision, bounds: Bounds) -> Self {
        Self { current, next: None, draft: None, bounds }
    }

    /// What a host reads: the future configuration, if one was written.
    pub(super) fn shown(&self) -> &Provision {
        self.next.as_ref().unwrap_or(&self.current)
    }

    /// Takes one part of a new configuration. With the last part it is complete and checked; it
    /// waits for [`accept`](Self::accept).
    pub(super) fn write(
        &mut self,
        index: u8,
        bytes: &[u8],
    ) -> Result<Option<Provision>, QueryResult> {
        let mut next = self.draft.clone().unwrap_or_else(|| self.current.clone());
        next.take(usize::from(index), bytes)?;
        if next.header.b_conf_desc_continue == 1 {
            self.draft = Some(next);
            return Ok(None);
        }
        self.draft = None;
        next.header.b_conf_desc_continue = 0;
        next.check(&self.bounds)?;
        Ok(Some(next))
    }

    /// `next` takes effect at the next power cycle.
    pub(super) fn accept(&mut self, next: Provision) {
        self.next = Some(next);
    }

    /// The device starts afresh: an incomplete configuration is gone.
    pub(super) fn start_over(&mut self) {
        self.draft = None;
    }

    /// Power is back: returns the previous configuration, if it changes.
    pub(super) fn power_on(&mut self) -> Option<Provision> {
        let next = self.next.take()?;
        Some(core::mem::replace(&mut self.current, next))
    }
}

impl Provision {
    pub(super) fn new(config: &Config) -> Self {
        let units = config.units.iter().flatten();
        let own = units.clone().any(|unit| unit.write_booster > 0);
        let header = ConfigurationHeader {
            b_boot_enable: u8::from(units.clone().any(|unit| unit.boot_id > 0)),
            b_descr_access_en: 1,
            b_init_power_mode: 1,
            b_rpmb_region_enable: if config.advanced_rpmb { ADVANCED_MODE } else { 0 },
            b_high_priority_lun: NO_HIGH_PRIORITY,
            b_write_booster_buffer_preserve_user_space_en: 1,
            b_write_booster_buffer_type: u8::from(!own),
            d_num_shared_write_booster_buffer_alloc_units: if own {
                0
            } else {
                allocation_units(config.write_booster)
            },
            ..ConfigurationHeader::default()
        };
        let unit = |lun: usize| match config.units.get(lun) {
            Some(Some(unit)) => ConfigurationUnit {
                b_lu_enable: 1,
                b_boot_lun_id: unit.boot_id,
                b_lu_write_protect: match unit.write_protect {
                    WriteProtect::None => LuWriteProtect::None,
                    WriteProtect::PowerOn => LuWriteProtect::PowerOn,
                    WriteProtect::Permanent => LuWriteProtect::Permanent,
                }
                .into_bits(),
                d_num_alloc_units: allocation_units(unit.size),
                b_logical_block_size: unit.block_size.trailing_zeros() as u8,
                b_provisioning_type: match unit.provisioning {
                    Provisioning::Full => ProvisioningType::Full,
                    Provisioning::Discard => ProvisioningType::ThinDiscard,
                    Provisioning::Erase => ProvisioningType::ThinErase,
                }
                .into_bits(),
                d_lu_num_write_booster_buffer_alloc_units: allocation_units(unit.write_booster),
                ..ConfigurationUnit::default()
            },
            _ => ConfigurationUnit::default(),
        };
        Self { header, units: core::array::from_fn(unit) }
    }

    /// Part `index` as a configuration descriptor.
    pub(super) fn emit(&self, index: usize, bytes: &mut [u8]) -> Option<usize> {
        let first = index * UNITS_PER_CONFIGURATION;
        let units = self.units.get(first..first + UNITS_PER_CONFIGURATION)?;
        let units: &[ConfigurationUnit; UNITS_PER_CONFIGURATION] = units.try_into().ok()?;
        LAYOUT.emit(&self.header, units, bytes).ok()
    }

    /// Takes part `index` from a configuration descriptor the host wrote.
    pub(super) fn take(&mut self, index: usize, bytes: &[u8]) -> Result<(), QueryResult> {
        let view = ConfigurationView::new(bytes, LAYOUT).map_err(|_| QueryResult::InvalidValue)?;
        if index == 0 {
            self.header = view.header();
        } else {
            self.header.b_conf_desc_continue = view.header().b_conf_desc_continue;
        }
        let first = index * UNITS_PER_CONFIGURATION;
        for (unit, new) in self.units[first..].iter_mut().zip(view.units()) {
            *unit = new;
        }
        Ok(())
    }

    /// The units that are enabled.
    pub(super) fn enabled(&self) -> impl Iterator<Item = (usize, &ConfigurationUnit)> {
        self.units.iter().enumerate().filter(|(_, unit)| unit.b_lu_enable == 1)
    }

    /// Checks whether a device can be provisioned like this.
    pub(super) fn check(&self, bounds: &Bounds) -> Result<(), QueryResult> {
        let head = &self.header;
        let regions =
            [head.b_rpmb_region1_size, head.b_rpmb_region2_size, head.b_rpmb_region3_size];
        let rpmb: u32 = regions.into_iter().map(u32::from).sum();
        let own: u64 = self
            .enabled()
            .map(|(_, unit)| u64::from(unit.d_lu_num_write_booster_buffer_alloc_units))
            .sum();
        let shared = head.b_write_booster_buffer_type == 1;
        let used: u64 = self.enabled().map(|(_, unit)| u64::from(unit.d_num_alloc_units)).sum();
        let boot = |id: u8| self.enabled().filter(|(_, unit)| unit.b_boot_lun_id == id).count();
        let right = head.b_boot_enable <= 1
            && head.b_descr_access_en <= 1
            && head.b_init_power_mode <= 1
            && (usize::from(head.b_high_priority_lun) < UNITS_MAX
                || head.b_high_priority_lun == NO_HIGH_PRIORITY)
            && head.b_secure_removal_type == 0
            && head.b_init_active_icc_level <= 15
            && head.b_write_booster_buffer_preserve_user_space_en <= 1
            && head.b_write_booster_buffer_type <= 1
            && head.d_num_shared_write_booster_buffer_alloc_units <= bounds.write_booster
            && own <= u64::from(bounds.write_booster)
            && (!shared || own == 0)
            && rpmb < u32::from(rpmb::UNITS_TOTAL)
            && used <= bounds.allocation_units
            && boot(BootLunId::BootLuA.into_bits()) <= 1
            && boot(BootLunId::BootLuB.into_bits()) <= 1
            && self.units.iter().all(|unit| is_possible(unit, bounds));
        if right { Ok(()) } else { Err(QueryResult::InvalidValue) }
    }
}

/// Whether a unit can be provisioned like this.
fn is_possible(unit: &ConfigurationUnit, bounds: &Bounds) -> bool {
    if unit.b_lu_enable == 0 {
        return true;
    }
    let provisioning = ProvisioningType::from_bits(unit.b_provisioning_type);
    unit.b_lu_enable == 1
        && !matches!(BootLunId::from_bits(unit.b_boot_lun_id), BootLunId::Unknown(_))
        && unit.b_lu_write_protect <= LuWriteProtect::Permanent.into_bits()
        && unit.b_memory_type == MemoryType::Normal.into_bits()
        && unit.d_num_alloc_units > 0
        && unit.b_data_reliability <= 1
        && (bounds.block_min.ilog2()..=BLOCK_MAX.ilog2())
            .contains(&u32::from(unit.b_logical_block_size))
        && !matches!(provisioning, ProvisioningType::Unknown(_))
}
