//! The readable fields of EXT_CSD (JESD84-B51 7.4), by the specification's own names.

use super::ExtCsd;

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the specification.
    pub name: &'static str,
    /// Its first byte.
    pub at: u16,
    /// Bytes, 1 to 8, least significant first.
    pub bytes: u8,
}

impl Field {
    /// Its value.
    pub fn of(&self, csd: &ExtCsd) -> u64 {
        let bytes = csd.0.iter().skip(self.at.into()).take(self.bytes.into());
        bytes.rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }
}

const fn field(at: u16, bytes: u8, name: &'static str) -> Field {
    Field { name, at, bytes }
}

/// Every field, the highest byte first, as the specification lists them.
pub const FIELDS: [Field; 132] = [
    field(504, 1, "S_CMD_SET"),
    field(503, 1, "HPI_FEATURES"),
    field(502, 1, "BKOPS_SUPPORT"),
    field(501, 1, "MAX_PACKED_READS"),
    field(500, 1, "MAX_PACKED_WRITES"),
    field(499, 1, "DATA_TAG_SUPPORT"),
    field(498, 1, "TAG_UNIT_SIZE"),
    field(497, 1, "TAG_RES_SIZE"),
    field(496, 1, "CONTEXT_CAPABILITIES"),
    field(495, 1, "LARGE_UNIT_SIZE_M1"),
    field(494, 1, "EXT_SUPPORT"),
    field(493, 1, "SUPPORTED_MODES"),
    field(492, 1, "FFU_FEATURES"),
    field(491, 1, "OPERATION_CODE_TIMEOUT"),
    field(487, 4, "FFU_ARG"),
    field(486, 1, "BARRIER_SUPPORT"),
    field(308, 1, "CMDQ_SUPPORT"),
    field(307, 1, "CMDQ_DEPTH"),
    field(302, 4, "NUMBER_OF_FW_SECTORS_CORRECTLY_PROGRAMMED"),
    field(269, 1, "DEVICE_LIFE_TIME_EST_TYP_B"),
    field(268, 1, "DEVICE_LIFE_TIME_EST_TYP_A"),
    field(267, 1, "PRE_EOL_INFO"),
    field(266, 1, "OPTIMAL_READ_SIZE"),
    field(265, 1, "OPTIMAL_WRITE_SIZE"),
    field(264, 1, "OPTIMAL_TRIM_UNIT_SIZE"),
    field(262, 2, "DEVICE_VERSION"),
    field(254, 8, "FIRMWARE_VERSION"),
    field(253, 1, "PWR_CL_DDR_200_360"),
    field(249, 4, "CACHE_SIZE"),
    field(248, 1, "GENERIC_CMD6_TIME"),
    field(247, 1, "POWER_OFF_LONG_TIME"),
    field(246, 1, "BKOPS_STATUS"),
    field(242, 4, "CORRECTLY_PRG_SECTORS_NUM"),
    field(241, 1, "INI_TIMEOUT_AP"),
    field(240, 1, "CACHE_FLUSH_POLICY"),
    field(239, 1, "PWR_CL_DDR_52_360"),
    field(238, 1, "PWR_CL_DDR_52_195"),
    field(237, 1, "PWR_CL_200_195"),
    field(236, 1, "PWR_CL_200_130"),
    field(235, 1, "MIN_PERF_DDR_W_8_52"),
    field(234, 1, "MIN_PERF_DDR_R_8_52"),
    field(232, 1, "TRIM_MULT"),
    field(231, 1, "SEC_FEATURE_SUPPORT"),
    field(230, 1, "SEC_ERASE_MULT"),
    field(229, 1, "SEC_TRIM_MULT"),
    field(228, 1, "BOOT_INFO"),
    field(226, 1, "BOOT_SIZE_MULT"),
    field(225, 1, "ACC_SIZE"),
    field(224, 1, "HC_ERASE_GRP_SIZE"),
    field(223, 1, "ERASE_TIMEOUT_MULT"),
    field(222, 1, "REL_WR_SEC_C"),
    field(221, 1, "HC_WP_GRP_SIZE"),
    field(220, 1, "S_C_VCC"),
    field(219, 1, "S_C_VCCQ"),
    field(218, 1, "PRODUCTION_STATE_AWARENESS_TIMEOUT"),
    field(217, 1, "S_A_TIMEOUT"),
    field(216, 1, "SLEEP_NOTIFICATION_TIME"),
    field(212, 4, "SEC_COUNT"),
    field(211, 1, "SECURE_WP_INFO"),
    field(210, 1, "MIN_PERF_W_8_52"),
    field(209, 1, "MIN_PERF_R_8_52"),
    field(208, 1, "MIN_PERF_W_8_26_4_52"),
    field(207, 1, "MIN_PERF_R_8_26_4_52"),
    field(206, 1, "MIN_PERF_W_4_26"),
    field(205, 1, "MIN_PERF_R_4_26"),
    field(203, 1, "PWR_CL_26_360"),
    field(202, 1, "PWR_CL_52_360"),
    field(201, 1, "PWR_CL_26_195"),
    field(200, 1, "PWR_CL_52_195"),
    field(199, 1, "PARTITION_SWITCH_TIME"),
    field(198, 1, "OUT_OF_INTERRUPT_TIME"),
    field(197, 1, "DRIVER_STRENGTH"),
    field(196, 1, "DEVICE_TYPE"),
    field(194, 1, "CSD_STRUCTURE"),
    field(192, 1, "EXT_CSD_REV"),
    field(191, 1, "CMD_SET"),
    field(189, 1, "CMD_SET_REV"),
    field(187, 1, "POWER_CLASS"),
    field(185, 1, "HS_TIMING"),
    field(184, 1, "STROBE_SUPPORT"),
    field(183, 1, "BUS_WIDTH"),
    field(181, 1, "ERASED_MEM_CONT"),
    field(179, 1, "PARTITION_CONFIG"),
    field(178, 1, "BOOT_CONFIG_PROT"),
    field(177, 1, "BOOT_BUS_CONDITIONS"),
    field(175, 1, "ERASE_GROUP_DEF"),
    field(174, 1, "BOOT_WP_STATUS"),
    field(173, 1, "BOOT_WP"),
    field(171, 1, "USER_WP"),
    field(169, 1, "FW_CONFIG"),
    field(168, 1, "RPMB_SIZE_MULT"),
    field(167, 1, "WR_REL_SET"),
    field(166, 1, "WR_REL_PARAM"),
    field(163, 1, "BKOPS_EN"),
    field(162, 1, "RST_N_FUNCTION"),
    field(161, 1, "HPI_MGMT"),
    field(160, 1, "PARTITIONING_SUPPORT"),
    field(157, 3, "MAX_ENH_SIZE_MULT"),
    field(156, 1, "PARTITIONS_ATTRIBUTE"),
    field(155, 1, "PARTITION_SETTING_COMPLETED"),
    field(152, 3, "GP_SIZE_MULT_4"),
    field(149, 3, "GP_SIZE_MULT_3"),
    field(146, 3, "GP_SIZE_MULT_2"),
    field(143, 3, "GP_SIZE_MULT_1"),
    field(140, 3, "ENH_SIZE_MULT"),
    field(136, 4, "ENH_START_ADDR"),
    field(134, 1, "SEC_BAD_BLK_MGMNT"),
    field(133, 1, "PRODUCTION_STATE_AWARENESS"),
    field(132, 1, "TCASE_SUPPORT"),
    field(131, 1, "PERIODIC_WAKEUP"),
    field(130, 1, "PROGRAM_CID_CSD_DDR_SUPPORT"),
    field(63, 1, "NATIVE_SECTOR_SIZE"),
    field(62, 1, "USE_NATIVE_SECTOR"),
    field(61, 1, "DATA_SECTOR_SIZE"),
    field(60, 1, "INI_TIMEOUT_EMU"),
    field(59, 1, "CLASS_6_CTRL"),
    field(58, 1, "DYNCAP_NEEDED"),
    field(56, 2, "EXCEPTION_EVENTS_CTRL"),
    field(54, 2, "EXCEPTION_EVENTS_STATUS"),
    field(52, 2, "EXT_PARTITIONS_ATTRIBUTE"),
    field(36, 1, "PACKED_COMMAND_STATUS"),
    field(35, 1, "PACKED_FAILURE_INDEX"),
    field(34, 1, "POWER_OFF_NOTIFICATION"),
    field(33, 1, "CACHE_CTRL"),
    field(31, 1, "BARRIER_CTRL"),
    field(30, 1, "MODE_CONFIG"),
    field(26, 1, "FFU_STATUS"),
    field(22, 4, "PRE_LOADING_DATA_SIZE"),
    field(18, 4, "MAX_PRE_LOADING_DATA_SIZE"),
    field(17, 1, "PRODUCT_STATE_AWARENESS_ENABLEMENT"),
    field(16, 1, "SECURE_REMOVAL_TYPE"),
    field(15, 1, "CMDQ_MODE_EN"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_apart_and_in_order() {
        for pair in FIELDS.windows(2) {
            let end = pair[1].at + u16::from(pair[1].bytes);
            assert!(end <= pair[0].at, "{pair:?}");
        }
        let mut csd = ExtCsd::default();
        csd.0[212..216].copy_from_slice(&[1, 2, 3, 4]);
        let sectors = FIELDS.iter().find(|field| field.name == "SEC_COUNT").unwrap();
        assert_eq!((sectors.of(&csd), csd.sectors()), (0x0403_0201, 0x0403_0201));
    }
}
