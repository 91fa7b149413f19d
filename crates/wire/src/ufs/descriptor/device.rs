//! Device descriptor (JESD220 14.1.4.2).

use super::field::{self, Field, descriptor, record};
use super::{DescriptorView, WireError};
use crate::code::code;
use crate::ufs::query::DescriptorId;
use bitfield_struct::bitfield;

/// Length of the device descriptor up to UFS 3.0, bytes.
pub const DEVICE_LENGTH_3_0: u8 = 0x40;

descriptor! {
    /// Device descriptor.
    pub struct DeviceDescriptor: Device, 0x59 {
        /// Device type: 0, a device.
        b_device: u8 = 0x02, "bDevice";
        /// Device class: 0, mass storage.
        b_device_class: u8 = 0x03, "bDeviceClass";
        /// Bit 0 clear: bootable; bit 1 clear: embedded.
        b_device_sub_class: u8 = 0x04, "bDeviceSubClass";
        /// Protocol: 0, SCSI.
        b_protocol: u8 = 0x05, "bProtocol";
        /// Enabled logical units, without the well-known ones.
        b_number_lu: u8 = 0x06, "bNumberLU";
        /// Well-known logical units.
        b_number_wlu: u8 = 0x07, "bNumberWLU";
        /// 1: the boot feature is enabled.
        b_boot_enable: u8 = 0x08, "bBootEnable";
        /// 1: descriptors can be read before initialisation is done.
        b_descr_access_en: u8 = 0x09, "bDescrAccessEn";
        /// Power mode after reset: 0 UFS-Sleep, 1 active.
        b_init_power_mode: u8 = 0x0A, "bInitPowerMode";
        /// The logical unit with high priority; 0x7F: none.
        b_high_priority_lun: u8 = 0x0B, "bHighPriorityLUN";
        /// How purged data is removed, [`SecureRemovalType`](super::SecureRemovalType).
        b_secure_removal_type: u8 = 0x0C, "bSecureRemovalType";
        /// 1: there is an RPMB unit.
        b_security_lu: u8 = 0x0D, "bSecurityLU";
        /// Time to stop background operations, units of 10 ms.
        b_background_ops_term_lat: u8 = 0x0E, "bBackgroundOpsTermLat";
        /// bActiveICCLevel after reset.
        b_init_active_icc_level: u8 = 0x0F, "bInitActiveICCLevel";
        /// Version of the specification: 0x0310 is 3.1.
        w_spec_version: u16 = 0x10, "wSpecVersion";
        /// Month (high byte) and year (low byte), BCD.
        w_manufacture_date: u16 = 0x12, "wManufactureDate";
        /// String index.
        i_manufacturer_name: u8 = 0x14, "iManufacturerName";
        /// String index.
        i_product_name: u8 = 0x15, "iProductName";
        /// String index.
        i_serial_number: u8 = 0x16, "iSerialNumber";
        /// String index.
        i_oem_id: u8 = 0x17, "iOemID";
        /// JEDEC manufacturer id.
        w_manufacturer_id: u16 = 0x18, "wManufacturerID";
        /// Offset of unit 0 in the configuration descriptor.
        b_ud0_base_offset: u8 = 0x1A, "bUD0BaseOffset";
        /// Length of a unit in the configuration descriptor.
        b_ud_config_p_length: u8 = 0x1B, "bUDConfigPLength";
        /// Maximum outstanding READY TO TRANSFER requests.
        b_device_rtt_cap: u8 = 0x1C, "bDeviceRTTCap";
        /// How often the host should update the clock.
        w_periodic_rtc_update: u16 = 0x1D, "wPeriodicRTCUpdate";
        /// Optional features, [`UfsFeatures`](super::UfsFeatures).
        b_ufs_features_support: u8 = 0x1F, "bUFSFeaturesSupport";
        /// Longest firmware update, s.
        b_ffu_timeout: u8 = 0x20, "bFFUTimeout";
        /// Queue depth shared by all units; 0: each unit has its own.
        b_queue_depth: u8 = 0x21, "bQueueDepth";
        /// Version of the device.
        w_device_version: u16 = 0x22, "wDeviceVersion";
        /// Secure write protect areas.
        b_num_secure_wp_area: u8 = 0x24, "bNumSecureWPArea";
        /// Maximum data that can be loaded before soldering.
        d_psa_max_data_size: u32 = 0x25, "dPSAMaxDataSize";
        /// Longest bPSAState change.
        b_psa_state_timeout: u8 = 0x29, "bPSAStateTimeout";
        /// String index.
        i_product_revision_level: u8 = 0x2A, "iProductRevisionLevel";
        /// Host performance booster version.
        w_hpb_version: u16 = 0x40, "wHPBVersion";
        /// Host performance booster mode.
        b_hpb_control: u8 = 0x42, "bHPBControl";
        /// [`ExtendedWriteBooster`](super::ExtendedWriteBooster); UFS 4.1.
        w_extended_write_booster_support: u16 = 0x4D, "wExtendedWriteBoosterSupport";
        /// Optional features, [`ExtendedFeatures`](super::ExtendedFeatures).
        d_extended_ufs_features_support: u32 = 0x4F, "dExtendedUFSFeaturesSupport";
        /// 1: the WriteBooster buffer does not reduce user space.
        b_write_booster_buffer_preserve_user_space_en: u8 = 0x53,
            "bWriteBoosterBufferPreserveUserSpaceEn";
        /// 0: a buffer for each unit, 1: one shared buffer.
        b_write_booster_buffer_type: u8 = 0x54, "bWriteBoosterBufferType";
        /// Size of the shared buffer, allocation units.
        d_num_shared_write_booster_buffer_alloc_units: u32 = 0x55,
            "dNumSharedWriteBoosterBufferAllocUnits";
    }
}

code! {
    /// bSecureRemovalType.
    pub enum SecureRemovalType: u8 {
        /// Erased.
        Erase = 0 => "erase of the physical memory",
        /// Overwritten with one pattern, then erased.
        Overwrite = 1 => "overwriting with a single character, then erase",
        /// Overwritten with a pattern, its complement and a random pattern.
        OverwriteComplementRandom = 2
            => "overwriting with a character, its complement, a random character",
        /// In a vendor defined way.
        Vendor = 3 => "vendor defined",
    }
}

code! {
    /// wManufacturerID: JEDEC bank and code of manufacturers of UFS devices.
    pub enum ManufacturerId: u16 {
        /// Micron.
        Micron = 0x012C => "Micron",
        /// SanDisk, Western Digital.
        SanDisk = 0x0145 => "SanDisk",
        /// Kioxia, Toshiba.
        Kioxia = 0x0198 => "Kioxia",
        /// SK hynix.
        SkHynix = 0x01AD => "SK hynix",
        /// Samsung.
        Samsung = 0x01CE => "Samsung",
    }
}

/// bUFSFeaturesSupport.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct UfsFeatures {
    /// Field firmware update.
    pub ffu: bool,
    /// Production state awareness.
    pub psa: bool,
    /// Device life span mode.
    pub device_life_span: bool,
    /// Refresh operation.
    pub refresh: bool,
    /// TOO_HIGH_TEMPERATURE event.
    pub too_high_temp: bool,
    /// TOO_LOW_TEMPERATURE event.
    pub too_low_temp: bool,
    /// Extended temperature range.
    pub extended_temperature: bool,
    __: bool,
}

/// dExtendedUFSFeaturesSupport.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ExtendedFeatures {
    /// Field firmware update.
    pub ffu: bool,
    /// Production state awareness.
    pub psa: bool,
    /// Device life span mode.
    pub device_life_span: bool,
    /// Refresh operation.
    pub refresh: bool,
    /// TOO_HIGH_TEMPERATURE event.
    pub too_high_temp: bool,
    /// TOO_LOW_TEMPERATURE event.
    pub too_low_temp: bool,
    /// Extended temperature range.
    pub extended_temperature: bool,
    /// Host performance booster.
    pub hpb: bool,
    /// WriteBooster.
    pub write_booster: bool,
    /// PERFORMANCE_THROTTLING event.
    pub performance_throttling: bool,
    /// Advanced RPMB.
    pub advanced_rpmb: bool,
    __: bool,
    /// DEVICE_LEVEL_EXCEPTION event.
    pub device_level_exception: bool,
    /// Host initiated defragmentation.
    pub hid: bool,
    #[bits(2)]
    __: u8,
    /// EXT_IID.
    pub ext_iid: bool,
    #[bits(15)]
    __: u16,
}

/// wExtendedWriteBoosterSupport.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct ExtendedWriteBooster {
    /// The buffer can be resized.
    pub resize: bool,
    /// Partial flush, first in first out.
    pub fifo_partial_flush: bool,
    /// Partial flush, pinned data stays.
    pub pinned_partial_flush: bool,
    #[bits(13)]
    __: u16,
}
