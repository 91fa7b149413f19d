//! Configuration descriptor (JESD220 14.1.4.3): the provisioning of the device. Writing it can
//! erase the device and may be possible only once.

use super::field::{self, Field, descriptor, record};
use super::{DescriptorView, DeviceDescriptor, WireError};
use crate::ufs::query::DescriptorId;

/// Units in one configuration descriptor; the index selects units 0 to 7, 8 to 15 and so on.
pub const UNITS_PER_CONFIGURATION: usize = 8;

descriptor! {
    /// Header of a configuration descriptor. Its bLength is that of the whole descriptor.
    pub struct ConfigurationHeader: Configuration, 0x16 {
        /// 0: this is the last configuration descriptor to be written.
        b_conf_desc_continue: u8 = 0x02, "bConfDescContinue";
        /// 1: the boot feature is enabled.
        b_boot_enable: u8 = 0x03, "bBootEnable";
        /// 1: descriptors can be read before initialisation is done.
        b_descr_access_en: u8 = 0x04, "bDescrAccessEn";
        /// Power mode after reset: 0 UFS-Sleep, 1 active.
        b_init_power_mode: u8 = 0x05, "bInitPowerMode";
        /// The logical unit with high priority; 0x7F: none.
        b_high_priority_lun: u8 = 0x06, "bHighPriorityLUN";
        /// How purged data is removed, [`SecureRemovalType`](super::SecureRemovalType).
        b_secure_removal_type: u8 = 0x07, "bSecureRemovalType";
        /// bActiveICCLevel after reset.
        b_init_active_icc_level: u8 = 0x08, "bInitActiveICCLevel";
        /// How often the host should update the clock.
        w_periodic_rtc_update: u16 = 0x09, "wPeriodicRTCUpdate";
        /// Host performance booster mode.
        b_hpb_control: u8 = 0x0B, "bHPBControl";
        /// RPMB regions; bit 4: advanced RPMB.
        b_rpmb_region_enable: u8 = 0x0C, "bRPMBRegionEnable";
        /// Size of RPMB region 1, units of 128 KiB.
        b_rpmb_region1_size: u8 = 0x0D, "bRPMBRegion1Size";
        /// Size of RPMB region 2, units of 128 KiB.
        b_rpmb_region2_size: u8 = 0x0E, "bRPMBRegion2Size";
        /// Size of RPMB region 3, units of 128 KiB.
        b_rpmb_region3_size: u8 = 0x0F, "bRPMBRegion3Size";
        /// 1: the WriteBooster buffer does not reduce user space.
        b_write_booster_buffer_preserve_user_space_en: u8 = 0x10,
            "bWriteBoosterBufferPreserveUserSpaceEn";
        /// 0: a buffer for each unit, 1: one shared buffer.
        b_write_booster_buffer_type: u8 = 0x11, "bWriteBoosterBufferType";
        /// Size of the shared buffer, allocation units.
        d_num_shared_write_booster_buffer_alloc_units: u32 = 0x12,
            "dNumSharedWriteBoosterBufferAllocUnits";
    }
}

record! {
    /// One unit of a configuration descriptor.
    pub struct ConfigurationUnit, 0x1A {
        /// 1: enabled.
        b_lu_enable: u8 = 0x00, "bLUEnable";
        /// Boot unit, [`BootLunId`](super::BootLunId).
        b_boot_lun_id: u8 = 0x01, "bBootLunID";
        /// [`LuWriteProtect`](super::LuWriteProtect).
        b_lu_write_protect: u8 = 0x02, "bLUWriteProtect";
        /// [`MemoryType`](super::MemoryType).
        b_memory_type: u8 = 0x03, "bMemoryType";
        /// Size, allocation units (adjusted by the memory type's factor).
        d_num_alloc_units: u32 = 0x04, "dNumAllocUnits";
        /// 1: a write interrupted by power loss leaves either old or new data.
        b_data_reliability: u8 = 0x08, "bDataReliability";
        /// Log2 of the logical block size.
        b_logical_block_size: u8 = 0x09, "bLogicalBlockSize";
        /// [`ProvisioningType`](super::ProvisioningType).
        b_provisioning_type: u8 = 0x0A, "bProvisioningType";
        /// Contexts: bits 3:0 number, bits 6:4 large unit multiplier.
        w_context_capabilities: u16 = 0x0B, "wContextCapabilities";
        /// Host performance booster: active regions.
        w_lu_max_active_hpb_regions: u16 = 0x10, "wLUMaxActiveHPBRegions";
        /// Host performance booster: first pinned region.
        w_hpb_pinned_region_start_idx: u16 = 0x12, "wHPBPinnedRegionStartIdx";
        /// Host performance booster: pinned regions.
        w_num_hpb_pinned_regions: u16 = 0x14, "wNumHPBPinnedRegions";
        /// Size of the unit's WriteBooster buffer, allocation units.
        d_lu_num_write_booster_buffer_alloc_units: u32 = 0x16, "dLUNumWriteBoosterBufferAllocUnits";
    }
}

/// Positions of the units in a configuration descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigurationLayout {
    /// Length of the header, bytes.
    pub header: u8,
    /// Length of a unit, bytes.
    pub unit: u8,
}

impl ConfigurationLayout {
    /// UFS 2.0 to 3.0: 0x90 bytes.
    pub const UFS_3_0: Self = Self { header: 0x10, unit: 0x10 };
    /// From UFS 3.1 on: 0xE6 bytes.
    pub const UFS_3_1: Self = Self { header: 0x16, unit: 0x1A };

    /// The layout that a device reports; `None` if it is impossible: units that overlap the two
    /// bytes at the start of every descriptor, are shorter than the oldest layout or extend beyond
    /// a descriptor.
    pub const fn of_device(device: &DeviceDescriptor) -> Option<Self> {
        let layout = Self { header: device.b_ud0_base_offset, unit: device.b_ud_config_p_length };
        if layout.header < 2 || layout.unit < Self::UFS_3_0.unit || layout.length() > 0xFF {
            return None;
        }
        Some(layout)
    }

    /// Length of the whole descriptor, bytes.
    pub const fn length(&self) -> usize {
        self.header as usize + self.unit as usize * UNITS_PER_CONFIGURATION
    }

    const fn unit_range(&self, unit: usize) -> (usize, usize) {
        let start = self.header as usize + unit * self.unit as usize;
        (start, start + self.unit as usize)
    }

    /// The bytes of unit 0 to 7 of a descriptor, for [`Field::set`].
    pub fn unit_bytes<'a>(&self, descriptor: &'a mut [u8], unit: usize) -> Option<&'a mut [u8]> {
        let (start, end) = self.unit_range(unit);
        if unit < UNITS_PER_CONFIGURATION { descriptor.get_mut(start..end) } else { None }
    }

    /// Writes a whole descriptor: header, units and zeros, with the bLength and bDescriptorType it
    /// must have. Returns its length.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if it does not fit, [`WireError::BadField`] if the layout is longer
    /// than a descriptor can be.
    pub fn emit(
        &self,
        header: &ConfigurationHeader,
        units: &[ConfigurationUnit; UNITS_PER_CONFIGURATION],
        bytes: &mut [u8],
    ) -> Result<usize, WireError> {
        let length = self.length();
        let b_length = u8::try_from(length).map_err(|_| WireError::BadField("bLength"))?;
        WireError::check_len(bytes, length)?;
        let out = &mut bytes[..length];
        out.fill(0);
        let head = ConfigurationHeader {
            b_length,
            b_descriptor_type: DescriptorId::Configuration.into_bits(),
            ..*header
        };
        head.store(&mut out[..usize::from(self.header)]);
        for (n, unit) in units.iter().enumerate() {
            let (start, end) = self.unit_range(n);
            unit.store(&mut out[start..end]);
        }
        Ok(length)
    }
}

/// A configuration descriptor as bytes.
#[derive(Clone, Copy, Debug)]
pub struct ConfigurationView<'a> {
    bytes: &'a [u8],
    layout: ConfigurationLayout,
}

impl<'a> ConfigurationView<'a> {
    /// Checks the length once.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if it is shorter than the layout, [`WireError::WrongCode`] if it is
    /// another descriptor, [`WireError::BadField`] if its length is impossible.
    pub fn new(bytes: &'a [u8], layout: ConfigurationLayout) -> Result<Self, WireError> {
        let view = DescriptorView::new(bytes)?;
        view.expect(DescriptorId::Configuration)?;
        WireError::check_len(view.as_bytes(), layout.length())?;
        Ok(Self { bytes: view.as_bytes(), layout })
    }

    /// The header.
    pub fn header(&self) -> ConfigurationHeader {
        ConfigurationHeader::load(&self.bytes[..usize::from(self.layout.header)])
    }

    /// The units.
    pub fn units(&self) -> impl Iterator<Item = ConfigurationUnit> + 'a {
        let (bytes, layout) = (self.bytes, self.layout);
        (0..UNITS_PER_CONFIGURATION).map(move |n| {
            let (start, end) = layout.unit_range(n);
            ConfigurationUnit::load(&bytes[start..end])
        })
    }
}
