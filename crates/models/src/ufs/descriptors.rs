//! The device's descriptors, derived from its configuration.

use flysch_wire::ufs::descriptor::CurrentUnit;
use flysch_wire::ufs::descriptor::{
    DeviceDescriptor, ExtendedFeatures, ExtendedWriteBooster, FboDescriptor, GEOMETRY_LENGTH_4_0,
    GeometryDescriptor, HealthDescriptor, IccLevel, InterconnectDescriptor, LENGTH_MAX, MemoryType,
    PowerDescriptor, PreEolInfo, RpmbUnitDescriptor, StringDescriptor, UfsFeatures, UnitDescriptor,
};
use flysch_wire::ufs::query::{DescriptorId, QueryResult};
use flysch_wire::ufs::rpmb::{ADVANCED_MODE, REGION_UNIT};
use flysch_wire::ufs::upiu::Wlun;

use super::config::{ALLOCATION_UNIT, BLOCK_MIN, UNITS_MAX};
use super::device::Device;
use super::provision::{LAYOUT, PARTS, allocation_units};
use super::{protection, rpmb};

/// Indices of strings.
const MANUFACTURER: u8 = 0;
const PRODUCT: u8 = 1;
const SERIAL: u8 = 2;
const OEM: u8 = 3;
const REVISION: u8 = 4;
/// Well-known units: REPORT LUNS, UFS DEVICE, BOOT, RPMB.
const WELL_KNOWN_UNITS: u8 = 4;
/// Segments of 512-byte units: 4 MiB allocation unit = 1 segment.
const SEGMENT: u32 = (ALLOCATION_UNIT / 512) as u32;
/// wManufacturerID: none assigned.
const MANUFACTURER_ID: u16 = 0;
/// wSpecVersion of UFS 4.0 and 4.1.
const UFS_4_0: u16 = 0x0400;
const UFS_4_1: u16 = 0x0410;

/// Manufacturer string, also INQUIRY's vendor.
pub(super) const VENDOR: &str = "FLYSCH";
/// Product string, also INQUIRY's product.
pub(super) const MODEL: &str = "UFS MODEL";
/// bFFUTimeout, seconds.
const FFU_TIMEOUT: u8 = 5;

/// The descriptors of a device.
pub(super) struct Descriptors<'a> {
    pub(super) device: &'a Device,
}

impl Descriptors<'_> {
    /// Writes the descriptor and returns its length.
    pub(super) fn descriptor(
        &self,
        id: DescriptorId,
        index: u8,
        bytes: &mut [u8; LENGTH_MAX],
    ) -> Result<usize, QueryResult> {
        let first = |emitted: Option<usize>| match index {
            0 => emitted.ok_or(QueryResult::GeneralFailure),
            _ => Err(QueryResult::InvalidIndex),
        };
        match id {
            DescriptorId::Device => first(self.device_descriptor().emit(bytes).ok()),
            DescriptorId::Geometry => first(self.geometry_descriptor().emit(bytes).ok()),
            DescriptorId::Interconnect => first(interconnect().emit(bytes).ok()),
            DescriptorId::Power => first(power().emit(bytes).ok()),
            DescriptorId::Health => first(self.health_descriptor().emit(bytes).ok()),
            DescriptorId::Fbo if self.device.build.specification >= 0x0400 => {
                FboDescriptor::default().emit(bytes.first_chunk_mut().expect("long enough"));
                bytes[0] = FboDescriptor::LENGTH as u8;
                first(Some(FboDescriptor::LENGTH))
            }
            DescriptorId::Configuration if usize::from(index) < PARTS => {
                let shown = self.device.provisions.shown();
                shown.emit(usize::from(index), bytes).ok_or(QueryResult::GeneralFailure)
            }
            DescriptorId::Configuration => Err(QueryResult::InvalidIndex),
            DescriptorId::Unit => self.unit_descriptor(index, bytes),
            DescriptorId::String => {
                let text = match index {
                    MANUFACTURER => VENDOR,
                    PRODUCT => MODEL,
                    SERIAL => &self.device.build.serial,
                    OEM => "",
                    REVISION => self.device.firmware.revision(),
                    _ => return Err(QueryResult::InvalidIndex),
                };
                StringDescriptor::emit(text, bytes).ok_or(QueryResult::GeneralFailure)
            }
            DescriptorId::Fbo | DescriptorId::Unknown(_) => Err(QueryResult::InvalidIdn),
        }
    }

    fn extended_features(&self) -> ExtendedFeatures {
        ExtendedFeatures::new()
            .with_ffu(self.device.build.services)
            .with_refresh(self.device.build.services)
            .with_advanced_rpmb(self.device.build.specification >= UFS_4_0)
            .with_too_high_temp(true)
            .with_too_low_temp(true)
            .with_write_booster(self.device.build.write_booster_max > 0)
            .with_performance_throttling(true)
            .with_device_level_exception(self.device.build.specification >= UFS_4_1)
    }

    fn device_descriptor(&self) -> DeviceDescriptor {
        let head = &self.device.provisions.current.header;
        DeviceDescriptor {
            b_number_lu: self.device.provisions.current.enabled().count() as u8,
            b_number_wlu: WELL_KNOWN_UNITS,
            b_boot_enable: head.b_boot_enable,
            b_descr_access_en: head.b_descr_access_en,
            b_init_power_mode: head.b_init_power_mode,
            b_high_priority_lun: head.b_high_priority_lun,
            b_secure_removal_type: head.b_secure_removal_type,
            b_security_lu: 1,
            b_background_ops_term_lat: 5,
            b_init_active_icc_level: head.b_init_active_icc_level,
            w_spec_version: self.device.build.specification,
            w_manufacture_date: 0x0126,
            i_manufacturer_name: MANUFACTURER,
            i_product_name: PRODUCT,
            i_serial_number: SERIAL,
            i_oem_id: OEM,
            w_manufacturer_id: MANUFACTURER_ID,
            b_ud0_base_offset: LAYOUT.header,
            b_ud_config_p_length: LAYOUT.unit,
            b_device_rtt_cap: 2,
            w_periodic_rtc_update: head.w_periodic_rtc_update,
            b_ufs_features_support: UfsFeatures::new()
                .with_ffu(self.device.build.services)
                .with_refresh(self.device.build.services)
                .with_too_high_temp(true)
                .with_too_low_temp(true)
                .into_bits(),
            b_ffu_timeout: FFU_TIMEOUT,
            b_queue_depth: self.device.build.depths.device,
            b_num_secure_wp_area: protection::AREAS_MAX as u8,
            w_device_version: 1,
            i_product_revision_level: REVISION,
            w_extended_write_booster_support: ExtendedWriteBooster::new()
                .with_resize(self.device.backend.write_booster.is_extended())
                .with_fifo_partial_flush(self.device.backend.write_booster.is_extended())
                .with_pinned_partial_flush(self.device.backend.write_booster.is_extended())
                .into_bits(),
            d_extended_ufs_features_support: self.extended_features().into_bits(),
            b_write_booster_buffer_preserve_user_space_en: head
                .b_write_booster_buffer_preserve_user_space_en,
            b_write_booster_buffer_type: head.b_write_booster_buffer_type,
            d_num_shared_write_booster_buffer_alloc_units: head
                .d_num_shared_write_booster_buffer_alloc_units,
            ..DeviceDescriptor::new()
        }
    }

    fn geometry_descriptor(&self) -> GeometryDescriptor {
        let length = if self.device.build.specification >= UFS_4_1 {
            GeometryDescriptor::LENGTH as u8
        } else {
            GEOMETRY_LENGTH_4_0
        };
        GeometryDescriptor {
            q_total_raw_device_capacity: self.device.provisions.bounds.allocation_units
                * ALLOCATION_UNIT
                / 512,
            b_max_number_lu: 1,
            d_segment_size: SEGMENT,
            b_allocation_unit_size: 1,
            b_min_addr_block_size: (self.device.provisions.bounds.block_min / BLOCK_MIN) as u8,
            b_optimal_read_block_size: 32,
            b_optimal_write_block_size: 32,
            b_max_in_buffer_size: 8,
            b_max_out_buffer_size: 8,
            b_rpmb_read_write_size: self.device.rpmb.blocks_max(),
            b_data_ordering: 1,
            b_max_contex_id_number: 5,
            b_supported_sec_r_types: 1,
            w_supported_memory_types: 1 | 1 << 15,
            d_write_booster_buffer_max_n_alloc_units: allocation_units(
                self.device.build.write_booster_max,
            ),
            b_device_max_write_booster_lus: if self.device.build.write_booster_max > 0 {
                UNITS_MAX as u8
            } else {
                0
            },
            b_write_booster_buffer_cap_adj_fac: 3,
            b_supported_write_booster_buffer_user_space_reduction_types: 2,
            b_supported_write_booster_buffer_types: 2,
            ..GeometryDescriptor::with_length(length)
        }
    }

    fn health_descriptor(&self) -> HealthDescriptor {
        let (progress, total) = self.device.upkeep.refreshed();
        HealthDescriptor {
            b_pre_eol_info: PreEolInfo::Normal.into_bits(),
            b_device_life_time_est_a: 1,
            b_device_life_time_est_b: 1,
            d_refresh_total_count: total,
            d_refresh_progress: progress,
            ..HealthDescriptor::new()
        }
    }

    fn unit_descriptor(
        &self,
        index: u8,
        bytes: &mut [u8; LENGTH_MAX],
    ) -> Result<usize, QueryResult> {
        if index == Wlun::Rpmb.into_bits() {
            let emitted = self.rpmb_descriptor().emit(bytes);
            return emitted.map_err(|_| QueryResult::GeneralFailure);
        }
        let config = self.device.provisions.current.units.get(usize::from(index));
        let config = config.ok_or(QueryResult::InvalidIndex)?;
        let unit = self.device.units.get(index);
        let blocks = unit.map_or(0, |unit| unit.blocks);
        let descriptor = UnitDescriptor {
            b_unit_index: index,
            b_lu_enable: config.b_lu_enable,
            b_boot_lun_id: config.b_boot_lun_id,
            b_lu_write_protect: config.b_lu_write_protect,
            b_lu_queue_depth: self
                .device
                .build
                .depths
                .units
                .get(usize::from(index))
                .copied()
                .unwrap_or(0),
            b_memory_type: config.b_memory_type,
            b_data_reliability: config.b_data_reliability,
            b_logical_block_size: config.b_logical_block_size,
            q_logical_block_count: blocks,
            d_erase_block_size: unit.map_or(0, |unit| (ALLOCATION_UNIT >> unit.block_shift) as u32),
            b_provisioning_type: config.b_provisioning_type,
            q_phy_mem_resource_count: blocks,
            d_lu_num_write_booster_buffer_alloc_units: config
                .d_lu_num_write_booster_buffer_alloc_units,
            ..UnitDescriptor::new()
        };
        descriptor.emit(bytes).map_err(|_| QueryResult::GeneralFailure)
    }

    fn rpmb_descriptor(&self) -> RpmbUnitDescriptor {
        let sizes = self.device.rpmb.region_units();
        let enabled: u8 = (1..rpmb::REGIONS).filter(|&n| sizes[n] > 0).map(|n| 1 << n).sum();
        let mode = if self.device.rpmb.is_advanced() { ADVANCED_MODE } else { 0 };
        let block = self.device.rpmb.block_length();
        let blocks = sizes.iter().map(|&units| u64::from(units) * u64::from(REGION_UNIT / block));
        let blocks = blocks.sum();
        RpmbUnitDescriptor {
            b_unit_index: Wlun::Rpmb.into_bits(),
            b_lu_enable: 1,
            b_memory_type: MemoryType::Rpmb.into_bits(),
            b_rpmb_region_enable: enabled | mode,
            b_logical_block_size: block.trailing_zeros() as u8,
            q_logical_block_count: blocks,
            b_rpmb_region0_size: sizes[0],
            b_rpmb_region1_size: sizes[1],
            b_rpmb_region2_size: sizes[2],
            b_rpmb_region3_size: sizes[3],
            q_phy_mem_resource_count: blocks,
            ..RpmbUnitDescriptor::new()
        }
    }
}

fn interconnect() -> InterconnectDescriptor {
    InterconnectDescriptor {
        bcd_unipro_version: 0x0200,
        bcd_mphy_version: 0x0500,
        ..InterconnectDescriptor::new()
    }
}

/// Sixteen levels, 100 mA apart, on each rail.
fn power() -> PowerDescriptor {
    let level = |n: usize| {
        let level = IccLevel::new().with_unit(CurrentUnit::Milliampere);
        level.with_value(100 * (n as u16 + 1).min(10)).into_bits()
    };
    let levels = core::array::from_fn(level);
    PowerDescriptor {
        w_active_icc_levels_vcc: levels,
        w_active_icc_levels_vccq: levels,
        w_active_icc_levels_vccq2: [0; 16],
        ..PowerDescriptor::new()
    }
}
