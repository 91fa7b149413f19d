//! EXT_CSD (7.4), 512 bytes: offsets of fields, and [`ExtCsd`], which reads them.

use crate::bytes::{array, le32};

/// Length in bytes.
pub const LENGTH: usize = 512;

/// CMDQ_MODE_EN.
pub const CMDQ_MODE_EN: u8 = 15;
/// SECURE_REMOVAL_TYPE.
pub const SECURE_REMOVAL_TYPE: u8 = 16;
/// PRODUCT_STATE_AWARENESS_ENABLEMENT.
pub const PRODUCT_STATE_AWARENESS: u8 = 17;
/// FFU_STATUS.
pub const FFU_STATUS: u8 = 26;
/// MODE_OPERATION_CODES.
pub const MODE_OPERATION_CODES: u8 = 29;
/// MODE_CONFIG: 0 normal, 1 FFU.
pub const MODE_CONFIG: u8 = 30;
/// BARRIER_CTRL.
pub const BARRIER_CTRL: u8 = 31;
/// FLUSH_CACHE: 1 flush, 2 barrier.
pub const FLUSH_CACHE: u8 = 32;
/// CACHE_CTRL.
pub const CACHE_CTRL: u8 = 33;
/// POWER_OFF_NOTIFICATION.
pub const POWER_OFF_NOTIFICATION: u8 = 34;
/// EXT_PARTITIONS_ATTRIBUTE, two bytes: four bits for each general purpose partition.
pub const EXT_PARTITIONS_ATTRIBUTE: u8 = 52;
/// EXCEPTION_EVENTS_STATUS, two bytes.
pub const EXCEPTION_STATUS: u8 = 54;
/// EXCEPTION_EVENTS_CTRL, two bytes.
pub const EXCEPTION_CTRL: u8 = 56;
/// CLASS_6_CTRL.
pub const CLASS_6_CTRL: u8 = 59;
/// INI_TIMEOUT_EMU, 100 ms: time-out of the first initialisation after the switch to native
/// sectors.
pub const INI_TIMEOUT_EMU: u8 = 60;
/// DATA_SECTOR_SIZE: the sector size in use, 0 is 512 bytes and 1 is 4 KiB.
pub const DATA_SECTOR_SIZE: u8 = 61;
/// USE_NATIVE_SECTOR: 1 switches to native sectors at the next power-on, permanently.
pub const USE_NATIVE_SECTOR: u8 = 62;
/// NATIVE_SECTOR_SIZE: the sector size of the medium, 0 is 512 bytes and 1 is 4 KiB.
pub const NATIVE_SECTOR_SIZE: u8 = 63;
/// ENH_START_ADDR, four bytes.
pub const ENHANCED_START: u8 = 136;
/// ENH_SIZE_MULT, three bytes.
pub const ENHANCED_SIZE: u8 = 140;
/// GP_SIZE_MULT, three bytes for each of four partitions.
pub const GP_SIZE: u8 = 143;
/// PARTITION_SETTING_COMPLETED.
pub const PARTITION_SETTING_COMPLETED: u8 = 155;
/// PARTITIONS_ATTRIBUTE.
pub const PARTITIONS_ATTRIBUTE: u8 = 156;
/// MAX_ENH_SIZE_MULT, three bytes: maximum size of enhanced areas, in write protect groups.
pub const MAX_ENHANCED_SIZE: u8 = 157;
/// PARTITIONING_SUPPORT.
pub const PARTITIONING_SUPPORT: u8 = 160;
/// HPI_MGMT.
pub const HPI_MGMT: u8 = 161;
/// RST_n_FUNCTION.
pub const RST_N_FUNCTION: u8 = 162;
/// BKOPS_EN.
pub const BKOPS_EN: u8 = 163;
/// BKOPS_START.
pub const BKOPS_START: u8 = 164;
/// SANITIZE_START.
pub const SANITIZE_START: u8 = 165;
/// WR_REL_PARAM.
pub const WR_REL_PARAM: u8 = 166;
/// WR_REL_SET.
pub const WR_REL_SET: u8 = 167;
/// RPMB_SIZE_MULT.
pub const RPMB_SIZE: u8 = 168;
/// USER_WP.
pub const USER_WP: u8 = 171;
/// BOOT_WP.
pub const BOOT_WP: u8 = 173;
/// BOOT_WP_STATUS.
pub const BOOT_WP_STATUS: u8 = 174;
/// ERASE_GROUP_DEF.
pub const ERASE_GROUP_DEF: u8 = 175;
/// BOOT_BUS_CONDITIONS.
pub const BOOT_BUS_CONDITIONS: u8 = 177;
/// PARTITION_CONFIG.
pub const PARTITION_CONFIG: u8 = 179;
/// ERASED_MEM_CONT.
pub const ERASED_MEM_CONT: u8 = 181;
/// BUS_WIDTH.
pub const BUS_WIDTH: u8 = 183;
/// STROBE_SUPPORT.
pub const STROBE_SUPPORT: u8 = 184;
/// HS_TIMING.
pub const HS_TIMING: u8 = 185;
/// POWER_CLASS.
pub const POWER_CLASS: u8 = 187;
/// The first byte that CMD6 cannot write.
pub const READ_ONLY: u8 = 192;
/// EXT_CSD_REV.
pub const REVISION: u8 = 192;
/// CSD_STRUCTURE.
pub const STRUCTURE: u8 = 194;
/// DEVICE_TYPE.
pub const DEVICE_TYPE: u8 = 196;
/// DRIVER_STRENGTH.
pub const DRIVER_STRENGTH: u8 = 197;
/// OUT_OF_INTERRUPT_TIME, 10 ms.
pub const OUT_OF_INTERRUPT_TIME: u8 = 198;
/// PARTITION_SWITCH_TIME, 10 ms.
pub const PARTITION_SWITCH_TIME: u8 = 199;
/// SEC_COUNT, four bytes.
pub const SEC_COUNT: u8 = 212;
/// S_A_TIMEOUT.
pub const S_A_TIMEOUT: u8 = 217;
/// HC_WP_GRP_SIZE.
pub const HC_WP_GRP_SIZE: u8 = 221;
/// REL_WR_SEC_C.
pub const REL_WR_SEC_C: u8 = 222;
/// ERASE_TIMEOUT_MULT, 300 ms.
pub const ERASE_TIMEOUT_MULT: u8 = 223;
/// HC_ERASE_GRP_SIZE, 512 KiB.
pub const HC_ERASE_GRP_SIZE: u8 = 224;
/// BOOT_SIZE_MULT, 128 KiB.
pub const BOOT_SIZE: u8 = 226;
/// SEC_TRIM_MULT.
pub const SEC_TRIM_MULT: u8 = 229;
/// SEC_ERASE_MULT.
pub const SEC_ERASE_MULT: u8 = 230;
/// SEC_FEATURE_SUPPORT.
pub const SEC_FEATURE_SUPPORT: u8 = 231;
/// TRIM_MULT, 300 ms.
pub const TRIM_MULT: u8 = 232;
/// PWR_CL_DDR_200_360: power classes of HS400.
pub const POWER_CLASS_HS400: u8 = 253;
/// BKOPS_STATUS.
pub const BKOPS_STATUS: u8 = 246;
/// POWER_OFF_LONG_TIME, 10 ms.
pub const POWER_OFF_LONG_TIME: u8 = 247;
/// GENERIC_CMD6_TIME, 10 ms.
pub const GENERIC_CMD6_TIME: u8 = 248;
/// CACHE_SIZE, four bytes, KiB.
pub const CACHE_SIZE: u8 = 249;
/// FIRMWARE_VERSION, eight bytes.
pub const FIRMWARE_VERSION: u8 = 254;
/// PRE_EOL_INFO.
pub const PRE_EOL_INFO: usize = 267;
/// DEVICE_LIFE_TIME_EST_TYP_A.
pub const LIFE_TIME_A: usize = 268;
/// DEVICE_LIFE_TIME_EST_TYP_B.
pub const LIFE_TIME_B: usize = 269;
/// NUMBER_OF_FW_SECTORS_CORRECTLY_PROGRAMMED, four bytes.
pub const FFU_SECTORS: usize = 302;
/// CMDQ_DEPTH, minus one.
pub const CMDQ_DEPTH: usize = 307;
/// CMDQ_SUPPORT.
pub const CMDQ_SUPPORT: usize = 308;
/// BARRIER_SUPPORT.
pub const BARRIER_SUPPORT: usize = 486;
/// FFU_ARG, four bytes.
pub const FFU_ARG: usize = 487;
/// OPERATION_CODE_TIMEOUT, 2^n x 100 us.
pub const OPERATION_CODE_TIMEOUT: usize = 491;
/// FFU_FEATURES.
pub const FFU_FEATURES: usize = 492;
/// SUPPORTED_MODES: bit 0 is FFU.
pub const SUPPORTED_MODES: usize = 493;
/// BKOPS_SUPPORT.
pub const BKOPS_SUPPORT: usize = 502;
/// HPI_FEATURES.
pub const HPI_FEATURES: usize = 503;
/// S_CMD_SET.
pub const COMMAND_SETS: usize = 504;

/// EXT_CSD_REV by release of the specification.
pub mod revision {
    /// 4.41.
    pub const V4_41: u8 = 5;
    /// 4.5.
    pub const V4_5: u8 = 6;
    /// 5.0.
    pub const V5_0: u8 = 7;
    /// 5.1.
    pub const V5_1: u8 = 8;
}

/// Bits of DEVICE_TYPE.
pub mod device_type {
    /// High speed, 26 MHz.
    pub const HS26: u8 = 1;
    /// High speed, 52 MHz.
    pub const HS52: u8 = 1 << 1;
    /// High speed, both edges, 1.8 or 3 V.
    pub const DDR52: u8 = 1 << 2;
    /// High speed, both edges, 1.2 V.
    pub const DDR52_1_2V: u8 = 1 << 3;
    /// HS200, 1.8 V.
    pub const HS200: u8 = 1 << 4;
    /// HS200, 1.2 V.
    pub const HS200_1_2V: u8 = 1 << 5;
    /// HS400, 1.8 V.
    pub const HS400: u8 = 1 << 6;
    /// HS400, 1.2 V.
    pub const HS400_1_2V: u8 = 1 << 7;
}

/// Values of BUS_WIDTH.
pub mod bus_width {
    /// One line.
    pub const ONE: u8 = 0;
    /// Four.
    pub const FOUR: u8 = 1;
    /// Eight.
    pub const EIGHT: u8 = 2;
    /// Four, both edges.
    pub const FOUR_DDR: u8 = 5;
    /// Eight, both edges.
    pub const EIGHT_DDR: u8 = 6;
    /// Added to the others: enhanced strobe.
    pub const STROBE: u8 = 0x80;
}

/// Values of HS_TIMING, bits 3:0.
pub mod hs_timing {
    /// Backward compatible.
    pub const LEGACY: u8 = 0;
    /// High speed.
    pub const HIGH_SPEED: u8 = 1;
    /// HS200.
    pub const HS200: u8 = 2;
    /// HS400.
    pub const HS400: u8 = 3;
}

/// Bits of SEC_FEATURE_SUPPORT.
pub mod sec_feature {
    /// SECURE_ER_EN.
    pub const SECURE_ERASE: u8 = 1;
    /// SEC_BD_BLK_EN.
    pub const BAD_BLOCK: u8 = 1 << 2;
    /// SEC_GB_CL_EN: trim.
    pub const TRIM: u8 = 1 << 4;
    /// SEC_SANITIZE.
    pub const SANITIZE: u8 = 1 << 6;
}

/// Values of POWER_OFF_NOTIFICATION.
pub mod power_off {
    /// The host will announce a power-off.
    pub const ON: u8 = 1;
    /// Power-off is imminent.
    pub const SHORT: u8 = 2;
    /// Power-off is coming, with time to prepare for it.
    pub const LONG: u8 = 3;
    /// The device is going to sleep.
    pub const SLEEP: u8 = 4;
}

/// Bits of FLUSH_CACHE.
pub mod flush {
    /// Empties the cache.
    pub const FLUSH: u8 = 1;
    /// Writes data in the cache before any later data.
    pub const BARRIER: u8 = 2;
}

/// Bits of EXCEPTION_EVENTS_STATUS.
pub mod exception {
    /// URGENT_BKOPS.
    pub const URGENT_BKOPS: u16 = 1;
    /// DYNCAP_NEEDED.
    pub const DYNAMIC_CAPACITY: u16 = 1 << 1;
    /// SYSPOOL_EXHAUSTED.
    pub const SYSTEM_POOL: u16 = 1 << 2;
    /// PACKED_FAILURE.
    pub const PACKED: u16 = 1 << 3;
    /// EXTENDED_SECURITY_FAILURE.
    pub const SECURITY: u16 = 1 << 4;
}

/// PARTITION_ACCESS, the low bits of PARTITION_CONFIG.
pub mod partition {
    /// The user area.
    pub const USER: u8 = 0;
    /// The first boot partition.
    pub const BOOT0: u8 = 1;
    /// The second boot partition.
    pub const BOOT1: u8 = 2;
    /// The replay protected memory.
    pub const RPMB: u8 = 3;
    /// The first of four general purpose partitions.
    pub const GP1: u8 = 4;
    /// The mask.
    pub const MASK: u8 = 7;
}

/// EXT_CSD as read.
#[derive(Clone, PartialEq, Eq)]
pub struct ExtCsd(pub [u8; LENGTH]);

impl Default for ExtCsd {
    fn default() -> Self {
        Self([0; LENGTH])
    }
}

impl core::fmt::Debug for ExtCsd {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ExtCsd(revision {}, {} sectors)", self.revision(), self.sectors())
    }
}

impl ExtCsd {
    /// A byte below 256; CMD6 can write no others.
    #[inline]
    pub const fn byte(&self, at: u8) -> u8 {
        self.0[at as usize]
    }

    fn le24(&self, at: usize) -> u32 {
        let [a, b, c]: [u8; 3] = array(&self.0, at);
        u32::from_le_bytes([a, b, c, 0])
    }

    /// EXT_CSD_REV.
    pub const fn revision(&self) -> u8 {
        self.byte(REVISION)
    }

    /// DEVICE_TYPE, bits of [`device_type`].
    pub const fn device_type(&self) -> u8 {
        self.byte(DEVICE_TYPE)
    }

    /// DATA_SECTOR_SIZE, bytes: reads, writes and trims are whole multiples of it. Addresses and
    /// counts are still in units of 512 bytes.
    pub const fn data_sector_bytes(&self) -> u32 {
        match (self.revision(), self.byte(DATA_SECTOR_SIZE)) {
            (revision::V4_5.., 1) => super::NATIVE_SECTOR,
            _ => super::SECTOR,
        }
    }

    /// SEC_COUNT: sectors of the user area.
    pub fn sectors(&self) -> u64 {
        le32(&self.0, SEC_COUNT.into()).into()
    }

    /// Sectors of an erase group with ERASE_GROUP_DEF set.
    pub fn erase_group_sectors(&self) -> u32 {
        u32::from(self.byte(HC_ERASE_GRP_SIZE)) * 1024
    }

    /// Sectors of a write protect group with ERASE_GROUP_DEF set.
    pub fn write_protect_group_sectors(&self) -> u32 {
        u32::from(self.byte(HC_WP_GRP_SIZE)) * self.erase_group_sectors()
    }

    /// Sectors of a boot partition.
    pub fn boot_sectors(&self) -> u64 {
        u64::from(self.byte(BOOT_SIZE)) * 256
    }

    /// Sectors of the replay protected memory.
    pub fn rpmb_sectors(&self) -> u64 {
        u64::from(self.byte(RPMB_SIZE)) * 256
    }

    /// Sectors of general purpose partition `n`, 0 to 3.
    pub fn gp_sectors(&self, n: usize) -> u64 {
        let mult = self.le24(usize::from(GP_SIZE) + 3 * (n & 3));
        u64::from(mult) * u64::from(self.write_protect_group_sectors())
    }

    /// MAX_ENH_SIZE_MULT: sectors that can be enhanced, user area and partitions together.
    pub fn enhanced_max_sectors(&self) -> u64 {
        let mult = self.le24(MAX_ENHANCED_SIZE.into());
        u64::from(mult) * u64::from(self.write_protect_group_sectors())
    }

    /// Sectors of the partition with this PARTITION_ACCESS; 0 if there is none.
    pub fn partition_sectors(&self, access: u8) -> u64 {
        match access & partition::MASK {
            partition::USER => self.sectors(),
            partition::BOOT0 | partition::BOOT1 => self.boot_sectors(),
            partition::RPMB => self.rpmb_sectors(),
            gp => self.gp_sectors(usize::from(gp - partition::GP1)),
        }
    }

    /// CACHE_SIZE, KiB.
    pub fn cache_kib(&self) -> u32 {
        le32(&self.0, CACHE_SIZE.into())
    }

    /// Tasks the device queues; 0 if it has no queue.
    pub fn queue_depth(&self) -> u8 {
        match self.0[CMDQ_SUPPORT] & 1 {
            0 => 0,
            _ => (self.0[CMDQ_DEPTH] & 0x1F) + 1,
        }
    }

    /// GENERIC_CMD6_TIME, milliseconds; 0 if not given.
    pub fn switch_ms(&self) -> u32 {
        u32::from(self.byte(GENERIC_CMD6_TIME)) * 10
    }

    /// PARTITION_SWITCH_TIME, milliseconds.
    pub fn partition_switch_ms(&self) -> u32 {
        u32::from(self.byte(PARTITION_SWITCH_TIME)) * 10
    }

    /// S_A_TIMEOUT, nanoseconds; values above 23, which the specification does not define, count as
    /// 23.
    pub fn sleep_awake_ns(&self) -> u64 {
        match self.byte(S_A_TIMEOUT) {
            0 => 0,
            n => 100 << n.min(23),
        }
    }

    /// POWER_OFF_LONG_TIME, milliseconds.
    pub fn power_off_long_ms(&self) -> u32 {
        u32::from(self.byte(POWER_OFF_LONG_TIME)) * 10
    }

    /// Time to erase one group, milliseconds.
    pub fn erase_ms(&self) -> u32 {
        u32::from(self.byte(ERASE_TIMEOUT_MULT).max(1)) * 300
    }

    /// Time of a trim, milliseconds.
    pub fn trim_ms(&self) -> u32 {
        u32::from(self.byte(TRIM_MULT).max(1)) * 300
    }

    /// The command that sends a high priority interrupt: `Some(true)` is CMD12, `Some(false)`
    /// CMD13; `None` if it is not supported.
    pub fn hpi(&self) -> Option<bool> {
        let features = self.0[HPI_FEATURES];
        (features & 1 != 0).then_some(features & 2 != 0)
    }

    /// Whether sectors can be trimmed.
    pub fn has_trim(&self) -> bool {
        self.byte(SEC_FEATURE_SUPPORT) & sec_feature::TRIM != 0
    }

    /// Whether sectors can be discarded.
    pub fn has_discard(&self) -> bool {
        self.revision() >= revision::V4_5
    }

    /// Whether sanitize is supported.
    pub fn has_sanitize(&self) -> bool {
        self.byte(SEC_FEATURE_SUPPORT) & sec_feature::SANITIZE != 0
    }

    /// Whether a reliable write may have any number of sectors (WR_REL_PARAM, EN_REL_WR); otherwise
    /// REL_WR_SEC_C sectors are reliable.
    pub fn has_enhanced_reliable_write(&self) -> bool {
        self.byte(WR_REL_PARAM) & 1 << 2 != 0
    }
}
