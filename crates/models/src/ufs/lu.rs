//! Logical units: data, protection, what a host set with mode pages.

use alloc::vec::Vec;

use flysch_wire::scsi::AdditionalSense;
use flysch_wire::ufs::descriptor::{ConfigurationUnit, LuWriteProtect, ProvisioningType};
use flysch_wire::ufs::query::FlagId;

use super::config::{ALLOCATION_UNIT, UnitConfig};
use super::parameters::Parameters;
use super::provision::Provision;
use super::sense::Sense;
use crate::media::cache::Units;
use crate::store::Store;

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
    /// The UNIT ATTENTION that waits.
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

    /// bLUWriteProtect protects it, so secure write protection does not.
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

/// The units of a new device.
pub(super) fn build(configs: Vec<Option<UnitConfig>>, provision: &Provision) -> Vec<Option<Unit>> {
    let units = configs.into_iter().zip(&provision.units).map(|(config, provisioned)| {
        let config = config?;
        let store = config.store.unwrap_or_else(|| Store::memory(config.size));
        Some(Unit::new(store, config.size, provisioned))
    });
    let mut units: Vec<_> = units.collect();
    place(&mut units);
    units
}

/// The units of a device that was provisioned anew. A unit whose size and block size stay keeps
/// its data, as does one in a file; all others start empty.
pub(super) fn rebuild(
    mut old: Vec<Option<Unit>>,
    before: &Provision,
    after: &Provision,
) -> Vec<Option<Unit>> {
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
