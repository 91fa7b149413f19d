//! Geometry descriptor (JESD220 14.1.4.4).

use super::field::{self, Field, descriptor, record};
use super::{DescriptorView, WireError};
use crate::ufs::query::DescriptorId;

/// Length of the geometry descriptor up to UFS 3.0, bytes.
pub const GEOMETRY_LENGTH_3_0: u8 = 0x48;
/// Length of the geometry descriptor in UFS 3.1 and 4.0, bytes.
pub const GEOMETRY_LENGTH_4_0: u8 = 0x57;

descriptor! {
    /// Geometry descriptor.
    pub struct GeometryDescriptor: Geometry, 0x69 {
        /// Reserved.
        b_media_technology: u8 = 0x02, "bMediaTechnology";
        /// Raw capacity, units of 512 bytes.
        q_total_raw_device_capacity: u64 = 0x04, "qTotalRawDeviceCapacity";
        /// 0: 8 logical units, 1: 32.
        b_max_number_lu: u8 = 0x0C, "bMaxNumberLU";
        /// Segment, units of 512 bytes.
        d_segment_size: u32 = 0x0D, "dSegmentSize";
        /// Allocation unit, segments.
        b_allocation_unit_size: u8 = 0x11, "bAllocationUnitSize";
        /// Smallest logical block, units of 512 bytes.
        b_min_addr_block_size: u8 = 0x12, "bMinAddrBlockSize";
        /// Optimal read, units of 512 bytes; 0: not reported.
        b_optimal_read_block_size: u8 = 0x13, "bOptimalReadBlockSize";
        /// Optimal write, units of 512 bytes.
        b_optimal_write_block_size: u8 = 0x14, "bOptimalWriteBlockSize";
        /// Largest DATA IN, units of 512 bytes.
        b_max_in_buffer_size: u8 = 0x15, "bMaxInBufferSize";
        /// Largest DATA OUT, units of 512 bytes.
        b_max_out_buffer_size: u8 = 0x16, "bMaxOutBufferSize";
        /// RPMB frames in one command.
        b_rpmb_read_write_size: u8 = 0x17, "bRPMB_ReadWriteSize";
        /// 0: spare blocks for each unit, 1: for each memory type.
        b_dynamic_capacity_resource_policy: u8 = 0x18, "bDynamicCapacityResourcePolicy";
        /// 1: out-of-order data is supported.
        b_data_ordering: u8 = 0x19, "bDataOrdering";
        /// Contexts of all units together.
        b_max_contex_id_number: u8 = 0x1A, "bMaxContexIDNumber";
        /// System data tag unit.
        b_sys_data_tag_unit_size: u8 = 0x1B, "bSysDataTagUnitSize";
        /// System data tag resources.
        b_sys_data_tag_res_size: u8 = 0x1C, "bSysDataTagResSize";
        /// Secure removal types, bit n: type n.
        b_supported_sec_r_types: u8 = 0x1D, "bSupportedSecRTypes";
        /// Memory types: bit 0 normal, 1 system code, 2 non-persistent, 3..6 enhanced 1..4, 15
        /// RPMB.
        w_supported_memory_types: u16 = 0x1E, "wSupportedMemoryTypes";
        /// Maximum allocation units of system code memory.
        d_system_code_max_n_alloc_u: u32 = 0x20, "dSystemCodeMaxNAllocU";
        /// Capacity factor of system code memory, 256 is one.
        w_system_code_cap_adj_fac: u16 = 0x24, "wSystemCodeCapAdjFac";
        /// Maximum allocation units of non-persistent memory.
        d_non_persist_max_n_alloc_u: u32 = 0x26, "dNonPersistMaxNAllocU";
        /// Capacity factor of non-persistent memory.
        w_non_persist_cap_adj_fac: u16 = 0x2A, "wNonPersistCapAdjFac";
        /// Maximum allocation units of enhanced memory 1.
        d_enhanced1_max_n_alloc_u: u32 = 0x2C, "dEnhanced1MaxNAllocU";
        /// Capacity factor of enhanced memory 1.
        w_enhanced1_cap_adj_fac: u16 = 0x30, "wEnhanced1CapAdjFac";
        /// Maximum allocation units of enhanced memory 2.
        d_enhanced2_max_n_alloc_u: u32 = 0x32, "dEnhanced2MaxNAllocU";
        /// Capacity factor of enhanced memory 2.
        w_enhanced2_cap_adj_fac: u16 = 0x36, "wEnhanced2CapAdjFac";
        /// Maximum allocation units of enhanced memory 3.
        d_enhanced3_max_n_alloc_u: u32 = 0x38, "dEnhanced3MaxNAllocU";
        /// Capacity factor of enhanced memory 3.
        w_enhanced3_cap_adj_fac: u16 = 0x3C, "wEnhanced3CapAdjFac";
        /// Maximum allocation units of enhanced memory 4.
        d_enhanced4_max_n_alloc_u: u32 = 0x3E, "dEnhanced4MaxNAllocU";
        /// Capacity factor of enhanced memory 4.
        w_enhanced4_cap_adj_fac: u16 = 0x42, "wEnhanced4CapAdjFac";
        /// Optimal logical block size for each memory type, four bits each.
        d_optimal_logical_block_size: u32 = 0x44, "dOptimalLogicalBlockSize";
        /// Host performance booster: region.
        b_hpb_region_size: u8 = 0x48, "bHPBRegionSize";
        /// Host performance booster: units.
        b_hpb_number_lu: u8 = 0x49, "bHPBNumberLU";
        /// Host performance booster: subregion.
        b_hpb_sub_region_size: u8 = 0x4A, "bHPBSubRegionSize";
        /// Host performance booster: active regions.
        w_device_max_active_hpb_regions: u16 = 0x4B, "wDeviceMaxActiveHPBRegions";
        /// Largest WriteBooster buffer, allocation units.
        d_write_booster_buffer_max_n_alloc_units: u32 = 0x4F, "dWriteBoosterBufferMaxNAllocUnits";
        /// Units that can have a WriteBooster buffer.
        b_device_max_write_booster_lus: u8 = 0x53, "bDeviceMaxWriteBoosterLUs";
        /// Capacity factor of the WriteBooster buffer.
        b_write_booster_buffer_cap_adj_fac: u8 = 0x54, "bWriteBoosterBufferCapAdjFac";
        /// 0 reduces user space, 1 does not, 2 either.
        b_supported_write_booster_buffer_user_space_reduction_types: u8 = 0x55,
            "bSupportedWriteBoosterBufferUserSpaceReductionTypes";
        /// 0 for each unit, 1 shared, 2 either.
        b_supported_write_booster_buffer_types: u8 = 0x56, "bSupportedWriteBoosterBufferTypes";
        /// Representation of the capacity factors; UFS 4.1.
        b_cap_adj_fac_representation: u8 = 0x68, "bCapAdjFacRepresentation";
    }
}

impl GeometryDescriptor {
    /// Maximum number of logical units.
    pub const fn logical_units_max(&self) -> u8 {
        if self.b_max_number_lu == 1 { 32 } else { 8 }
    }

    /// Size of an allocation unit, bytes; never overflows.
    pub const fn allocation_unit_bytes(&self) -> u64 {
        self.d_segment_size as u64 * self.b_allocation_unit_size as u64 * 512
    }
}
