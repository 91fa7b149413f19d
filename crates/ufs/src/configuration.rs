//! Writing the configuration descriptor: what logical units a device has.
//!
//! It erases data, it can be done only once on many devices, and writing back even an *unchanged*
//! configuration has wiped devices in the field. So it takes two steps. A [`ConfigurationPlan`] is
//! made from what the device has and what is wanted; it checks everything that can be checked,
//! lists every field that would change and is identified by a token.
//! [`Operation::Configure`](crate::Operation::Configure) takes the plan only together with that
//! token, reads the device again, and refuses if it is locked or not what the plan was made from.

use crate::channel::Run;
use crate::exchange::{Message, Reply};
use crate::facts::UfsFacts;
use crate::management::Peer;
use crate::{Cause, UfsError};
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_script::Replay;
use flysch_wire::ufs::descriptor::{
    ConfigurationHeader, ConfigurationLayout, ConfigurationUnit, ConfigurationView, Field,
    GeometryDescriptor, UNITS_PER_CONFIGURATION,
};
use flysch_wire::ufs::query::{AttributeId, DescriptorId};
use flysch_wire::ufs::upiu::{QUERY_DATA_OFFSET, QueryFields};

/// A device's whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The part for the device. bLength, bDescriptorType and bConfDescContinue are up to the
    /// driver.
    pub header: ConfigurationHeader,
    /// The logical units, 8 or 32.
    pub units: Vec<ConfigurationUnit>,
}

/// One field that a plan would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigurationChange {
    /// The logical unit, or `None` for the device.
    pub unit: Option<u8>,
    /// The field, by its name in JESD220.
    pub field: &'static str,
    /// Present value.
    pub from: u64,
    /// New value.
    pub to: u64,
}

/// A checked change of configuration, not yet written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationPlan {
    layout: ConfigurationLayout,
    from: Vec<[u8; 256]>,
    to: Vec<[u8; 256]>,
    changes: Vec<ConfigurationChange>,
}

impl ConfigurationPlan {
    /// A plan that turns `from`, as read from the device, into `to`.
    ///
    /// # Errors
    /// [`UfsError::Configuration`] with the fault; also if nothing would change.
    pub fn new(
        device: &UfsFacts,
        from: &Configuration,
        to: &Configuration,
    ) -> Result<Self, UfsError> {
        let layout = ConfigurationLayout::of_device(&device.descriptor)
            .ok_or(UfsError::Descriptor("device", None))?;
        if from.units.len() != to.units.len() {
            return refuse("the number of logical units is the device's, enable or disable them");
        }
        check(&device.geometry, to)?;
        let plan = Self {
            layout,
            from: pages(layout, from)?,
            to: pages(layout, to)?,
            changes: changes(layout, from, to)?,
        };
        if plan.changes.is_empty() {
            return refuse("nothing would change, and writing alone can erase the device");
        }
        Ok(plan)
    }

    /// Every field that would change.
    pub fn changes(&self) -> &[ConfigurationChange] {
        &self.changes
    }

    /// Identifies exactly this change of exactly this device's configuration (FNV-1a over both).
    pub fn token(&self) -> u64 {
        let bytes = self.from.iter().chain(&self.to).flatten();
        bytes.fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }
}

fn refuse<T>(why: &'static str) -> Result<T, UfsError> {
    Err(UfsError::Configuration(why))
}

/// The descriptors, one per eight units.
fn pages(
    layout: ConfigurationLayout,
    configuration: &Configuration,
) -> Result<Vec<[u8; 256]>, UfsError> {
    let count = configuration.units.len() / UNITS_PER_CONFIGURATION;
    let page = |(n, units): (usize, &[ConfigurationUnit])| {
        let units: &[_; UNITS_PER_CONFIGURATION] = units
            .try_into()
            .map_err(|_| UfsError::Configuration("units come in groups of eight"))?;
        let more = u8::from(n + 1 < count);
        let header = ConfigurationHeader { b_conf_desc_continue: more, ..configuration.header };
        let mut bytes = [0; 256];
        layout
            .emit(&header, units, &mut bytes)
            .map_err(|why| UfsError::Descriptor("configuration", Some(why)))?;
        Ok(bytes)
    };
    configuration.units.chunks(UNITS_PER_CONFIGURATION).enumerate().map(page).collect()
}

/// The fields in which two configurations differ.
fn changes(
    layout: ConfigurationLayout,
    from: &Configuration,
    to: &Configuration,
) -> Result<Vec<ConfigurationChange>, UfsError> {
    let (from, to) = (pages(layout, from)?, pages(layout, to)?);
    let mut changes = Vec::new();
    let header = usize::from(layout.header);
    let mut compare = |unit, fields: &'static [Field], from: &[u8], to: &[u8]| {
        for field in fields {
            if let (Some(from), Some(to)) = (field.number(from), field.number(to))
                && from != to
            {
                changes.push(ConfigurationChange { unit, field: field.name, from, to });
            }
        }
    };
    for (n, (from, to)) in from.iter().zip(&to).enumerate() {
        if n == 0 {
            compare(None, ConfigurationHeader::FIELDS, &from[..header], &to[..header]);
        }
        for unit in 0..UNITS_PER_CONFIGURATION {
            let start = header + unit * usize::from(layout.unit);
            let range = start..start + usize::from(layout.unit);
            let number = (n * UNITS_PER_CONFIGURATION + unit) as u8;
            let (from, to) = (&from[range.clone()], &to[range]);
            compare(Some(number), ConfigurationUnit::FIELDS, from, to);
        }
    }
    Ok(changes)
}

/// Checks everything about a configuration that depends on the geometry of the device.
fn check(geometry: &GeometryDescriptor, wanted: &Configuration) -> Result<(), UfsError> {
    let header = &wanted.header;
    if header.b_boot_enable > 1 || header.b_descr_access_en > 1 || header.b_init_power_mode > 1 {
        return refuse("bBootEnable, bDescrAccessEn and bInitPowerMode are 0 or 1");
    }
    if header.b_init_active_icc_level > 15 {
        return refuse("bInitActiveICCLevel is 0 to 15");
    }
    let lun = header.b_high_priority_lun;
    if lun != 0x7F && usize::from(lun) >= wanted.units.len() {
        return refuse("bHighPriorityLUN is a logical unit or 0x7F");
    }
    if geometry.b_supported_sec_r_types >> header.b_secure_removal_type.min(7) & 1 == 0 {
        return refuse("the device does not support that bSecureRemovalType");
    }
    if wanted.units.iter().all(|unit| unit.b_lu_enable == 0) {
        return refuse("no logical unit would be left");
    }
    for unit in wanted.units.iter().filter(|unit| unit.b_lu_enable != 0) {
        check_unit(geometry, unit)?;
    }
    for boot in 1..=2 {
        if wanted.units.iter().filter(|unit| unit.b_boot_lun_id == boot).count() > 1 {
            return refuse("two logical units have the same bBootLunID");
        }
    }
    check_capacity(geometry, wanted)
}

fn check_unit(geometry: &GeometryDescriptor, unit: &ConfigurationUnit) -> Result<(), UfsError> {
    if unit.b_lu_enable > 2 || unit.b_boot_lun_id > 2 || unit.b_lu_write_protect > 2 {
        return refuse("bLUEnable, bBootLunID and bLUWriteProtect are 0 to 2");
    }
    if unit.d_num_alloc_units == 0 {
        return refuse("an enabled logical unit needs dNumAllocUnits");
    }
    if unit.b_memory_type > 15 || geometry.w_supported_memory_types >> unit.b_memory_type & 1 == 0 {
        return refuse("the device does not support that bMemoryType");
    }
    if !matches!(unit.b_provisioning_type, 0 | 2 | 3) || unit.b_data_reliability > 1 {
        return refuse("bProvisioningType is 0, 2 or 3 and bDataReliability 0 or 1");
    }
    // bMinAddrBlockSize counts 512-byte sectors.
    let smallest = u64::from(geometry.b_min_addr_block_size) * 512;
    if unit.b_logical_block_size > 30 || 1_u64 << unit.b_logical_block_size < smallest {
        return refuse("bLogicalBlockSize is below what the device can address");
    }
    Ok(())
}

/// dNumAllocUnits already contains the memory type's capacity adjustment factor.
fn check_capacity(geometry: &GeometryDescriptor, wanted: &Configuration) -> Result<(), UfsError> {
    let units = wanted.units.iter().filter(|unit| unit.b_lu_enable != 0);
    let allocated: u64 = units.map(|unit| u64::from(unit.d_num_alloc_units)).sum();
    let sectors = u64::from(geometry.b_allocation_unit_size) * u64::from(geometry.d_segment_size);
    if allocated.saturating_mul(sectors) > geometry.q_total_raw_device_capacity {
        return refuse("the logical units together are larger than the device");
    }
    Ok(())
}

impl Configuration {
    /// Reads all configuration descriptors.
    pub(crate) fn read<M: Machine>(peer: &mut Peer<M>) -> Run<Self> {
        let layout = ConfigurationLayout::of_device(&peer.device.descriptor)
            .ok_or(UfsError::Descriptor("device", None))?;
        let pages = if peer.device.geometry.b_max_number_lu == 1 { 4 } else { 1 };
        let mut configuration = Self { header: ConfigurationHeader::default(), units: Vec::new() };
        for page in (0..pages).rev() {
            let reply = peer.read_descriptor(DescriptorId::Configuration, page)??;
            let view = ConfigurationView::new(reply.bytes(), layout)
                .map_err(|why| UfsError::Descriptor("configuration", Some(why)))?;
            configuration.header = view.header();
            configuration.units.splice(0..0, view.units());
        }
        Ok(configuration)
    }
}

impl ConfigurationPlan {
    /// Writes the plan, if the device is still what the plan was made from.
    pub(crate) fn write<M: Machine>(&self, peer: &mut Peer<M>, token: u64) -> Run<()> {
        if token != self.token() {
            return Err(UfsError::Configuration("the token is that of another plan").into());
        }
        if peer.read_attribute(AttributeId::ConfigDescrLock)? != 0 {
            return Err(UfsError::Configuration("the device is locked (bConfigDescrLock)").into());
        }
        let present = Configuration::read(peer)?;
        if pages(self.layout, &present)? != self.from {
            let why = "the device is not what the plan was made from";
            return Err(UfsError::Configuration(why).into());
        }
        for (index, page) in self.to.iter().enumerate() {
            write_page(peer, index as u8, &page[..self.layout.length()])??;
        }
        Ok(())
    }
}

/// Sent once: a second try could be a second write.
fn write_page<M: Machine>(peer: &mut Peer<M>, index: u8, page: &[u8]) -> Run<Result<Reply, Cause>> {
    peer.channel.effect(|channel| {
        channel.layout.management.write(QUERY_DATA_OFFSET, page);
    });
    let idn = DescriptorId::Configuration.into_bits();
    let fields = QueryFields::write_descriptor(idn, index, 0, page.len() as u16);
    let timeout_ms = peer.channel.options.timeouts.query_ms;
    peer.exchange(Message::Query(fields), timeout_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn device() -> UfsFacts {
        let mut device = UfsFacts::default();
        device.descriptor.b_ud0_base_offset = 0x16;
        device.descriptor.b_ud_config_p_length = 0x1A;
        device.geometry = GeometryDescriptor {
            q_total_raw_device_capacity: 8192 * 100,
            d_segment_size: 8192,
            b_allocation_unit_size: 1,
            b_min_addr_block_size: 8,
            b_supported_sec_r_types: 1,
            w_supported_memory_types: 0b1001,
            ..Default::default()
        };
        device
    }

    fn configuration() -> Configuration {
        let mut units = vec![ConfigurationUnit::default(); 8];
        units[0] = ConfigurationUnit {
            b_lu_enable: 1,
            d_num_alloc_units: 100,
            b_logical_block_size: 12,
            ..Default::default()
        };
        let header = ConfigurationHeader { b_high_priority_lun: 0x7F, ..Default::default() };
        Configuration { header, units }
    }

    #[test]
    fn an_unchanged_configuration_is_never_a_plan() {
        let same = configuration();
        let plan = ConfigurationPlan::new(&device(), &same, &same);
        assert!(matches!(plan, Err(UfsError::Configuration(_))));
    }

    #[test]
    fn a_plan_names_what_it_changes() {
        let (from, mut to) = (configuration(), configuration());
        to.units[0].d_num_alloc_units = 60;
        to.units[1] = ConfigurationUnit { d_num_alloc_units: 40, ..to.units[0] };
        let plan = ConfigurationPlan::new(&device(), &from, &to).expect("a good plan");
        assert!(plan.changes().contains(&ConfigurationChange {
            unit: Some(0),
            field: "dNumAllocUnits",
            from: 100,
            to: 60,
        }));
        assert!(plan.changes().iter().any(|c| c.unit == Some(1) && c.field == "bLUEnable"));
        to.units[1].d_num_alloc_units = 39;
        let other = ConfigurationPlan::new(&device(), &from, &to).expect("another plan");
        assert_ne!(plan.token(), other.token());
    }

    #[test]
    fn what_the_device_cannot_be_is_refused() {
        let spoil: [fn(&mut Configuration); 9] = [
            |c| c.units[0].d_num_alloc_units = 101,
            |c| c.units[0].d_num_alloc_units = 0,
            |c| c.units[0].b_memory_type = 1,
            |c| c.units[0].b_logical_block_size = 11,
            |c| c.units[0].b_provisioning_type = 1,
            |c| c.units[0].b_lu_enable = 0,
            |c| c.header.b_init_active_icc_level = 16,
            |c| c.header.b_secure_removal_type = 2,
            |c| c.header.b_high_priority_lun = 8,
        ];
        for (n, spoil) in spoil.into_iter().enumerate() {
            let mut to = configuration();
            spoil(&mut to);
            let plan = ConfigurationPlan::new(&device(), &configuration(), &to);
            assert!(matches!(plan, Err(UfsError::Configuration(_))), "case {n}");
        }
    }
}
