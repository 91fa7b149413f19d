//! Interconnect, power parameters, device health and file based optimization descriptors
//! (JESD220 14.1.4).

use super::field::{self, Field, descriptor, record};
use super::{DescriptorView, WireError};
use crate::code::code;
use crate::ufs::query::DescriptorId;
use bitfield_struct::bitfield;

/// Length of the health descriptor up to UFS 2.1, bytes.
pub const HEALTH_LENGTH_2_1: u8 = 0x25;

descriptor! {
    /// Interconnect descriptor.
    pub struct InterconnectDescriptor: Interconnect, 0x06 {
        /// UniPro version, BCD: 0x0180 is 1.8.
        bcd_unipro_version: u16 = 0x02, "bcdUniproVersion";
        /// M-PHY version, BCD: 0x0410 is 4.1.
        bcd_mphy_version: u16 = 0x04, "bcdMphyVersion";
    }
}

descriptor! {
    /// Power parameters descriptor.
    pub struct PowerDescriptor: Power, 0x62 {
        /// Currents on VCC, [`IccLevel`](super::IccLevel) each.
        w_active_icc_levels_vcc: [u16; 16] = 0x02, "wActiveICCLevelsVCC";
        /// Currents on VCCQ, [`IccLevel`](super::IccLevel) each.
        w_active_icc_levels_vccq: [u16; 16] = 0x22, "wActiveICCLevelsVCCQ";
        /// Currents on VCCQ2, [`IccLevel`](super::IccLevel) each.
        w_active_icc_levels_vccq2: [u16; 16] = 0x42, "wActiveICCLevelsVCCQ2";
    }
}

descriptor! {
    /// Device health descriptor.
    pub struct HealthDescriptor: Health, 0x2D {
        /// [`PreEolInfo`](super::PreEolInfo).
        b_pre_eol_info: u8 = 0x02, "bPreEOLInfo";
        /// Life used, method A: units of 10 %, 0x0B exceeded, 0 not reported.
        b_device_life_time_est_a: u8 = 0x03, "bDeviceLifeTimeEstA";
        /// Life used, method B: units of 10 %, 0x0B exceeded, 0 not reported.
        b_device_life_time_est_b: u8 = 0x04, "bDeviceLifeTimeEstB";
        /// Vendor specific.
        vendor_prop_info: [u8; 32] = 0x05, "VendorPropInfo";
        /// Completed refreshes.
        d_refresh_total_count: u32 = 0x25, "dRefreshTotalCount";
        /// Progress of the refresh, units of 0.001 %.
        d_refresh_progress: u32 = 0x29, "dRefreshProgress";
    }
}

record! {
    /// File based optimization descriptor. Its second byte is not a descriptor type.
    pub struct FboDescriptor, 0x12 {
        /// Length of the descriptor, bytes.
        b_length: u8 = 0x00, "bLength";
        /// Version.
        w_fbo_version: u16 = 0x01, "wFBOVersion";
        /// Recommended range.
        d_fbo_recommended_lba_range_size: u32 = 0x03, "dFBORecommendedLBARangeSize";
        /// Largest range.
        d_fbo_max_lba_range_size: u32 = 0x07, "dFBOMaxLBARangeSize";
        /// Smallest range.
        d_fbo_min_lba_range_size: u32 = 0x0B, "dFBOMinLBARangeSize";
        /// Maximum number of ranges.
        b_fbo_max_lba_range_count: u8 = 0x0F, "bFBOMaxLBARangeCount";
        /// Alignment of ranges.
        w_fbo_lba_range_alignment: u16 = 0x10, "wFBOLBARangeAlignment";
    }
}

impl FboDescriptor {
    /// Parses a descriptor. Fields beyond its length, or beyond the bytes that were read, are zero.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below two bytes, [`WireError::BadField`] if its length is
    /// impossible.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        Ok(Self::load(DescriptorView::new(bytes)?.as_bytes()))
    }

    /// Writes the descriptor.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes.fill(0);
        self.store(bytes);
    }
}

code! {
    /// Unit of an [`IccLevel`].
    pub enum CurrentUnit: u8 {
        /// Nanoampere.
        Nanoampere = 0 => "nA",
        /// Microampere.
        Microampere = 1 => "uA",
        /// Milliampere.
        Milliampere = 2 => "mA",
        /// Ampere.
        Ampere = 3 => "A",
    }
}

/// One entry of wActiveICCLevels.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct IccLevel {
    /// The current, in [`unit`](Self::unit)s.
    #[bits(10)]
    pub value: u16,
    #[bits(4)]
    __: u8,
    /// The unit.
    #[bits(2)]
    pub unit: CurrentUnit,
}

impl IccLevel {
    /// The current in nA.
    pub const fn nanoampere(self) -> u64 {
        let value = self.value() as u64;
        match self.unit() {
            CurrentUnit::Nanoampere => value,
            CurrentUnit::Microampere => value * 1_000,
            CurrentUnit::Milliampere => value * 1_000_000,
            CurrentUnit::Ampere | CurrentUnit::Unknown(_) => value * 1_000_000_000,
        }
    }
}

code! {
    /// bPreEOLInfo.
    pub enum PreEolInfo: u8 {
        /// The device does not report it.
        NotDefined = 0 => "not defined",
        /// Less than 80 % of the reserved blocks are used.
        Normal = 1 => "normal",
        /// 80 % of the reserved blocks are used.
        Warning = 2 => "warning",
        /// 90 % of the reserved blocks are used.
        Critical = 3 => "critical",
    }
}
