//! Logical units: data, protection, and settings of mode pages.

use alloc::vec::Vec;

use flysch_wire::scsi::AdditionalSense;
use flysch_wire::ufs::descriptor::{ConfigurationUnit, LuWriteProtect, ProvisioningType};
use flysch_wire::ufs::query::{AttributeId, FlagId, QueryResult};
use flysch_wire::ufs::upiu::Wlun;

use super::config::{ALLOCATION_UNIT, UnitConfig};
use super::parameters::Parameters;
use super::protection::Protection;
use super::provision::Provision;
use super::sense::Sense;
use super::upkeep::Stale;
use crate::media::cache::Units;
use crate::store::Store;

/// Well-known units in the order of [`LogicalUnits::attentions`].
const WELL_KNOWN: [Wlun; 4] = [Wlun::ReportLuns, Wlun::UfsDevice, Wlun::Boot, Wlun::Rpmb];

/// A logical unit.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) store: Store,
    /// First byte of the unit on the medium.
    pub(super) base: u64,
    pub(super) size: u64,
    pub(super) block_shift: u32,
    pub(super) blocks: u64,
    pub(super) boot_id: u8,
    write_protect: LuWriteProtect,
    pub(super) provisioning: ProvisioningType,
    /// bDataReliability: a power loss does not tear blocks.
    pub(super) reliable: bool,
    /// The pending UNIT ATTENTION.
    pub(super) attention: Option<Sense>,
    /// Caching page, WCE.
    pub(super) write_cache: bool,
    /// Control page, SWP.
    pub(super) software_protected: bool,
}

impl Unit {
    fn new(store: Store, size: u64, config: &ConfigurationUnit) -> Self {
        let block_shift = u32::from(config.b_logical_block_size);
        Self {
            store,
            base: 0,
            size,
            block_shift,
            blocks: size >> block_shift,
            boot_id: config.b_boot_lun_id,
            write_protect: LuWriteProtect::from_bits(config.b_lu_write_protect),
            provisioning: ProvisioningType::from_bits(config.b_provisioning_type),
            reliable: config.b_data_reliability == 1,
            attention: None,
            write_cache: true,
            software_protected: false,
        }
    }

    /// Why the unit cannot be written, if it cannot.
    #[inline]
    pub(super) fn write_refusal(&self, parameters: &Parameters) -> Option<Sense> {
        let protect =
            |additional| Some(Sense::new(flysch_wire::scsi::SenseKey::DataProtect, additional));
        match self.write_protect {
            LuWriteProtect::PowerOn if parameters.flag(FlagId::PowerOnWpEn, 0) => {
                protect(AdditionalSense::WriteProtected)
            }
            LuWriteProtect::Permanent if parameters.flag(FlagId::PermanentWpEn, 0) => {
                protect(AdditionalSense::WriteProtected)
            }
            _ if self.software_protected => protect(AdditionalSense::SoftwareWriteProtected),
            _ => None,
        }
    }

    /// Whether bLUWriteProtect protects it, so that secure write protection does not.
    pub(super) fn is_write_protected_otherwise(&self) -> bool {
        self.write_protect != LuWriteProtect::None
    }

    /// Whether `blocks` blocks from `lba` on are in the unit.
    #[inline]
    pub(super) fn has(&self, lba: u64, blocks: u32) -> bool {
        lba <= self.blocks && u64::from(blocks) <= self.blocks - lba
    }

    /// Mode pages as after a reset.
    pub(super) fn reset(&mut self) {
        self.write_cache = true;
        self.software_protected = false;
    }
}

impl Units for Vec<Option<Unit>> {
    fn unit(&mut self, number: u8) -> Option<(&mut Store, bool)> {
        let unit = self.get_mut(usize::from(number))?.as_mut()?;
        Some((&mut unit.store, unit.reliable))
    }
}

/// All units, the areas in them closed to writes, and the pending UNIT ATTENTION of each.
#[derive(Debug)]
pub(super) struct LogicalUnits {
    /// By LUN; `None` is a LUN that does not exist.
    pub(super) list: Vec<Option<Unit>>,
    pub(super) protection: Protection,
    /// UNIT ATTENTION of the well-known units.
    attentions: [Option<Sense>; WELL_KNOWN.len()],
}

impl LogicalUnits {
    /// The units of a new device.
    pub(super) fn new(configs: Vec<Option<UnitConfig>>, provision: &Provision) -> Self {
        Self {
            list: build(configs, provision),
            protection: Protection::default(),
            attentions: [None; WELL_KNOWN.len()],
        }
    }

    /// A new configuration takes effect.
    pub(super) fn provision(&mut self, before: &Provision, after: &Provision) {
        self.list = rebuild(core::mem::take(&mut self.list), before, after);
    }

    /// The device starts afresh: mode pages are reset, and every unit reports it.
    pub(super) fn start_over(&mut self, attention: Sense) {
        self.attentions = [Some(attention); WELL_KNOWN.len()];
        for unit in self.list.iter_mut().flatten() {
            unit.reset();
            unit.attention = Some(attention);
        }
    }

    /// LOGICAL UNIT RESET.
    pub(super) fn reset(&mut self, lun: u8) {
        if let Some(unit) = self.get_mut(lun) {
            unit.reset();
        }
        if let Some(attention) = self.attention(lun) {
            *attention = Some(Sense::attention(AdditionalSense::BusDeviceResetFunction));
        }
    }

    /// Whether there is a unit, or a well-known one, with this LUN.
    pub(super) fn has_lun(&self, lun: u8) -> bool {
        let well_known = matches!(Wlun::from_bits(lun), Wlun::Unknown(_));
        !well_known || self.get(lun).is_some()
    }

    #[inline]
    pub(super) fn get(&self, lun: u8) -> Option<&Unit> {
        self.list.get(usize::from(lun))?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, lun: u8) -> Option<&mut Unit> {
        self.list.get_mut(usize::from(lun))?.as_mut()
    }

    /// The pending UNIT ATTENTION of a LUN.
    #[inline]
    pub(super) fn attention(&mut self, lun: u8) -> Option<&mut Option<Sense>> {
        if lun & 0x80 == 0 {
            return self.get_mut(lun).map(|unit| &mut unit.attention);
        }
        let known = WELL_KNOWN.iter().position(|wlun| wlun.into_bits() == lun)?;
        Some(&mut self.attentions[known])
    }

    /// LUN of the unit that the BOOT well-known unit refers to now.
    pub(super) fn boot_unit(&self, parameters: &Parameters, provision: &Provision) -> Option<u8> {
        let wanted = parameters.attribute(AttributeId::BootLunEn);
        if wanted == 0 || provision.header.b_boot_enable == 0 {
            return None;
        }
        let is_it = |unit: &Unit| u64::from(unit.boot_id) == wanted;
        let found = self.list.iter().position(|unit| unit.as_ref().is_some_and(is_it))?;
        Some(found as u8)
    }

    /// Whether units in files can take the sizes of `next`.
    pub(super) fn check_stores(&self, next: &Provision) -> Result<(), QueryResult> {
        let grows = |(lun, unit): (usize, &Option<Unit>)| match unit {
            Some(unit) if !matches!(unit.store, Store::Memory(_)) => {
                let wanted = &next.units[lun];
                wanted.b_lu_enable == 1
                    && u64::from(wanted.d_num_alloc_units) * ALLOCATION_UNIT > unit.size
            }
            _ => false,
        };
        match self.list.iter().enumerate().any(grows) {
            true => Err(QueryResult::InvalidValue),
            false => Ok(()),
        }
    }

    /// Block size of a unit in bytes, 1 if there is no such unit.
    pub(super) fn block_length(&self, lun: u8) -> u64 {
        self.get(lun).map_or(1, |unit| 1 << unit.block_shift)
    }

    /// Discards stale data. A store that cannot discard it keeps it, and reports that elsewhere.
    pub(super) fn discard(&mut self, range: Stale) {
        if let Some(unit) = self.get_mut(range.unit) {
            let _ = unit.store.discard(range.offset, range.len);
        }
    }
}

/// The units of a new device.
fn build(configs: Vec<Option<UnitConfig>>, provision: &Provision) -> Vec<Option<Unit>> {
    let units = configs.into_iter().zip(&provision.units).map(|(config, provisioned)| {
        let config = config?;
        let store = config.store.unwrap_or_else(|| Store::memory(config.size));
        Some(Unit::new(store, config.size, provisioned))
    });
    let mut units: Vec<_> = units.collect();
    place(&mut units);
    units
}

/// The units of a device that was provisioned anew. A unit whose size and block size do not change
/// keeps its data, as does one in a file; all others start empty.
fn rebuild(mut old: Vec<Option<Unit>>, before: &Provision, after: &Provision) -> Vec<Option<Unit>> {
    let mut units: Vec<Option<Unit>> = Vec::new();
    old.resize_with(after.units.len(), || None);
    for (lun, (kept, config)) in old.into_iter().zip(&after.units).enumerate() {
        let was = &before.units[lun];
        let same = was.d_num_alloc_units == config.d_num_alloc_units
            && was.b_logical_block_size == config.b_logical_block_size;
        units.push(match (config.b_lu_enable, kept) {
            (0, _) => None,
            (_, Some(unit)) if same => Some(Unit::new(unit.store, unit.size, config)),
            (_, kept) => {
                let size = u64::from(config.d_num_alloc_units) * ALLOCATION_UNIT;
                let store = match kept.map(|unit| unit.store) {
                    #[cfg(feature = "std")]
                    Some(Store::File(file)) => Store::File(file),
                    _ => Store::memory(size),
                };
                Some(Unit::new(store, size, config))
            }
        });
    }
    place(&mut units);
    units
}

/// Lays the units one after the other on the medium.
fn place(units: &mut [Option<Unit>]) {
    let mut base = 0;
    for unit in units.iter_mut().flatten() {
        unit.base = base;
        base += unit.size.next_multiple_of(ALLOCATION_UNIT);
    }
}
