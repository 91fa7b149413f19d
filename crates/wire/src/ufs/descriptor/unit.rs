//! Unit and RPMB unit descriptors (JESD220 14.1.4.5, 14.1.4.6).

use super::field::{self, Field, descriptor, record};
use super::{DescriptorView, WireError};
use crate::code::code;
use crate::ufs::query::DescriptorId;

descriptor! {
    /// Unit descriptor.
    pub struct UnitDescriptor: Unit, 0x2D {
        /// Number of the logical unit.
        b_unit_index: u8 = 0x02, "bUnitIndex";
        /// 0 disabled, 1 enabled.
        b_lu_enable: u8 = 0x03, "bLUEnable";
        /// Boot unit, [`BootLunId`](super::BootLunId).
        b_boot_lun_id: u8 = 0x04, "bBootLunID";
        /// [`LuWriteProtect`](super::LuWriteProtect).
        b_lu_write_protect: u8 = 0x05, "bLUWriteProtect";
        /// Queue depth of the unit; 0: the queue is shared.
        b_lu_queue_depth: u8 = 0x06, "bLUQueueDepth";
        /// Whether soldering can damage the data.
        b_psa_sensitive: u8 = 0x07, "bPSASensitive";
        /// [`MemoryType`](super::MemoryType).
        b_memory_type: u8 = 0x08, "bMemoryType";
        /// 1: a write interrupted by power loss leaves either old or new data.
        b_data_reliability: u8 = 0x09, "bDataReliability";
        /// Log2 of the logical block size.
        b_logical_block_size: u8 = 0x0A, "bLogicalBlockSize";
        /// Logical blocks.
        q_logical_block_count: u64 = 0x0B, "qLogicalBlockCount";
        /// Optimal erase, logical blocks.
        d_erase_block_size: u32 = 0x13, "dEraseBlockSize";
        /// [`ProvisioningType`](super::ProvisioningType).
        b_provisioning_type: u8 = 0x17, "bProvisioningType";
        /// Physical memory, logical blocks.
        q_phy_mem_resource_count: u64 = 0x18, "qPhyMemResourceCount";
        /// Contexts: bits 3:0 number, bits 6:4 large unit multiplier.
        w_context_capabilities: u16 = 0x20, "wContextCapabilities";
        /// Large unit granularity minus one, MiB.
        b_large_unit_granularity_m1: u8 = 0x22, "bLargeUnitGranularity_M1";
        /// Host performance booster: active regions.
        w_lu_max_active_hpb_regions: u16 = 0x23, "wLUMaxActiveHPBRegions";
        /// Host performance booster: first pinned region.
        w_hpb_pinned_region_start_idx: u16 = 0x25, "wHPBPinnedRegionStartIdx";
        /// Host performance booster: pinned regions.
        w_num_hpb_pinned_regions: u16 = 0x27, "wNumHPBPinnedRegions";
        /// Size of the unit's WriteBooster buffer, allocation units.
        d_lu_num_write_booster_buffer_alloc_units: u32 = 0x29, "dLUNumWriteBoosterBufferAllocUnits";
    }
}

descriptor! {
    /// RPMB unit descriptor: the unit descriptor with index 0xC4.
    pub struct RpmbUnitDescriptor: Unit, 0x23 {
        /// 0xC4.
        b_unit_index: u8 = 0x02, "bUnitIndex";
        /// 0 disabled, 1 enabled.
        b_lu_enable: u8 = 0x03, "bLUEnable";
        /// Zero.
        b_boot_lun_id: u8 = 0x04, "bBootLunID";
        /// Zero.
        b_lu_write_protect: u8 = 0x05, "bLUWriteProtect";
        /// Queue depth of the unit.
        b_lu_queue_depth: u8 = 0x06, "bLUQueueDepth";
        /// Whether soldering can damage the data.
        b_psa_sensitive: u8 = 0x07, "bPSASensitive";
        /// 0x0F.
        b_memory_type: u8 = 0x08, "bMemoryType";
        /// Bits 3:1: regions 1 to 3 are enabled; bit 4: advanced RPMB mode.
        b_rpmb_region_enable: u8 = 0x09, "bRPMBRegionEnable";
        /// 8: 256 bytes.
        b_logical_block_size: u8 = 0x0A, "bLogicalBlockSize";
        /// Blocks of all regions.
        q_logical_block_count: u64 = 0x0B, "qLogicalBlockCount";
        /// Size of region 0, units of 128 KiB.
        b_rpmb_region0_size: u8 = 0x13, "bRPMBRegion0Size";
        /// Size of region 1, units of 128 KiB.
        b_rpmb_region1_size: u8 = 0x14, "bRPMBRegion1Size";
        /// Size of region 2, units of 128 KiB.
        b_rpmb_region2_size: u8 = 0x15, "bRPMBRegion2Size";
        /// Size of region 3, units of 128 KiB.
        b_rpmb_region3_size: u8 = 0x16, "bRPMBRegion3Size";
        /// Zero.
        b_provisioning_type: u8 = 0x17, "bProvisioningType";
        /// Physical memory, blocks.
        q_phy_mem_resource_count: u64 = 0x18, "qPhyMemResourceCount";
    }
}

impl UnitDescriptor {
    /// Logical block size in bytes; `None` if it is not between 512 bytes and 1 GiB.
    pub const fn block_size(&self) -> Option<u32> {
        match self.b_logical_block_size {
            9..=30 => Some(1 << self.b_logical_block_size),
            _ => None,
        }
    }
}

code! {
    /// bBootLunID.
    pub enum BootLunId: u8 {
        /// Not a boot unit.
        NotBootable = 0 => "not bootable",
        /// Boot logical unit A.
        BootLuA = 1 => "Boot LU A",
        /// Boot logical unit B.
        BootLuB = 2 => "Boot LU B",
    }
}

code! {
    /// bLUWriteProtect.
    pub enum LuWriteProtect: u8 {
        /// Writable.
        None = 0 => "not write protected",
        /// Write protected if fPowerOnWPEn is set.
        PowerOn = 1 => "power on write protect",
        /// Write protected if fPermanentWPEn is set.
        Permanent = 2 => "permanent write protect",
    }
}

code! {
    /// bMemoryType.
    pub enum MemoryType: u8 {
        /// Normal.
        Normal = 0 => "Normal",
        /// System code.
        SystemCode = 1 => "System code",
        /// Not persistent.
        NonPersistent = 2 => "Non-Persistent",
        /// Enhanced 1.
        Enhanced1 = 3 => "Enhanced 1",
        /// Enhanced 2.
        Enhanced2 = 4 => "Enhanced 2",
        /// Enhanced 3.
        Enhanced3 = 5 => "Enhanced 3",
        /// Enhanced 4.
        Enhanced4 = 6 => "Enhanced 4",
        /// RPMB.
        Rpmb = 0x0F => "RPMB",
    }
}

code! {
    /// bProvisioningType.
    pub enum ProvisioningType: u8 {
        /// Thin provisioning off.
        Full = 0 => "thin provisioning disabled",
        /// Thin provisioning, TPRZ 0: UNMAP discards.
        ThinDiscard = 2 => "thin provisioning, discard",
        /// Thin provisioning, TPRZ 1: UNMAP erases.
        ThinErase = 3 => "thin provisioning, erase",
    }
}
