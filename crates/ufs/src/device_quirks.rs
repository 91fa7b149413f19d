//! What particular devices do differently, by wManufacturerID and product name, each with its
//! reason.

use crate::quirks::{Correction, set_of_quirks};
use flysch_wire::ufs::descriptor::StringDescriptor;

/// One deviation a device is known for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceQuirk {
    /// After START STOP UNIT to a lower power mode the device still draws full current for up to 2
    /// ms: supplies and clocks must stay on for that time.
    SettleBeforeLowPower,
    /// The device's receiver wakes later than it claims: its PA_TACTIVATE must be above the host's.
    /// Linux does this only for WDC's devices on Qualcomm's hosts; a longer time is safe on any
    /// host.
    PeerTactivateAboveHost,
    /// The host's PA_TACTIVATE must be 1 ms.
    HostTactivate1Ms,
    /// The device needs 100 µs more in hibernation than was agreed: PA_HIBERN8TIME.
    LongerHibern8,
    /// The host's PA_SAVECONFIGTIME is too short for the device. The attribute that lengthens it
    /// is the PHY vendor's: the [`Platform`](crate::Platform) is told.
    HostSaveConfigTime,
    /// As `HostSaveConfigTime`, by the debug attribute of DesignWare's PHY.
    DebugSaveConfigTime,
    /// WriteBooster is present although wSpecVersion is older than 3.1 and not 2.2: newer firmware
    /// added it. No other device that old is asked for it, whatever its descriptor says.
    EarlyWriteBooster,
    /// qTimestamp is refused although wSpecVersion implies it.
    NoTimestamp,
    /// What the device sends ahead of a burst in HS-G1 is too short for the host's receiver to
    /// synchronise to: its PA_TXHSG1SYNCLENGTH must be 4Ah.
    LongerPeerSync,
    /// In HS-G5, but not in lower gears, the host's transmitter has to send repeated bits 3.5 dB
    /// lower: TX_HS_EQUALIZER_SETTING of each lane.
    DeemphasisByGear,
}

set_of_quirks! {
    /// A set of deviations of devices.
    DeviceQuirks, DeviceQuirk
}

impl DeviceQuirks {
    /// The quirks of a device by its maker and its product name (iProductName), behind any host.
    pub fn find(manufacturer: u16, product: &str) -> Self {
        Self::find_in(TABLE, manufacturer, product)
    }

    /// What Qualcomm's hosts need in addition with a device of this maker. Both concern how well
    /// *their* PHY and the device's understand each other, and may do harm on another board: so
    /// they are not in [`find`](Self::find), and a platform that knows its PHY adds them in
    /// [`Platform::device`](crate::Platform::device).
    pub fn on_qualcomm(manufacturer: u16) -> Self {
        Self::find_in(ON_QUALCOMM, manufacturer, "")
    }

    fn find_in(table: &[Row], manufacturer: u16, product: &str) -> Self {
        let hit = |row: &&Row| {
            row.manufacturer == manufacturer && row.product.is_none_or(|name| name == product)
        };
        Self(table.iter().filter(hit).fold(0, |bits, row| bits | row.quirks.0))
    }

    /// Whether the name must be known, which costs a query.
    pub(crate) fn depend_on_name(manufacturer: u16) -> bool {
        TABLE.iter().any(|row| row.manufacturer == manufacturer && row.product.is_some())
    }
}

/// A product name: 16 characters according to the specification.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceName {
    bytes: [u8; 32],
    len: usize,
}

impl DeviceName {
    /// From a string descriptor; characters outside ASCII count as unknown.
    pub(crate) fn of(descriptor: &[u8]) -> Self {
        let mut name = Self::default();
        let Ok(string) = StringDescriptor::parse(descriptor) else { return name };
        for (place, char) in name.bytes.iter_mut().zip(string.chars()) {
            *place = u8::try_from(char).unwrap_or(b'?') & 0x7F;
            name.len += 1;
        }
        name
    }

    pub(crate) fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("").trim_end_matches([' ', '\0'])
    }
}

struct Row {
    manufacturer: u16,
    /// Only this product; `None` is all.
    product: Option<&'static str>,
    quirks: DeviceQuirks,
}

const MICRON: u16 = 0x12C;
const SAMSUNG: u16 = 0x1CE;
const SK_HYNIX: u16 = 0x1AD;
/// Toshiba, now Kioxia.
const KIOXIA: u16 = 0x198;
/// Western Digital, SanDisk.
const WDC: u16 = 0x145;

use DeviceQuirk::*;

/// Source: Linux drivers/ufs/core/ufshcd.c, and those rows of drivers/ufs/host/ufs-mediatek.c and
/// ufs-qcom.c that concern the device and are at worst a little slower behind another host: a
/// longer wait, a longer time to wake, one more query. That Samsung's devices need the link tested
/// after a NAC requires no row: it is tested after every UIC error. That some supplies need a pause
/// after they were switched off (UFS_DEVICE_QUIRK_DELAY_AFTER_LPM, which Linux has dropped) is up
/// to the platform.
const TABLE: &[Row] = &[
    of_maker(MICRON, &[SettleBeforeLowPower]),
    of_maker(SAMSUNG, &[SettleBeforeLowPower, PeerTactivateAboveHost, LongerHibern8]),
    of_maker(SK_HYNIX, &[SettleBeforeLowPower, HostSaveConfigTime]),
    of_product(SK_HYNIX, "hB8aL1", &[DebugSaveConfigTime]),
    of_product(SK_HYNIX, "H9HQ21AFAMZDAR", &[EarlyWriteBooster]),
    of_maker(KIOXIA, &[SettleBeforeLowPower]),
    of_product(KIOXIA, "THGLF2G9C8KBADG", &[HostTactivate1Ms]),
    of_product(KIOXIA, "THGLF2G9D8KBADG", &[HostTactivate1Ms]),
    of_product(KIOXIA, "THGJFJT1E45BATP", &[NoTimestamp]),
    of_product(KIOXIA, "THGJFJT0E25BAIP", &[NoTimestamp]),
    of_maker(WDC, &[PeerTactivateAboveHost]),
];

/// Source: Linux drivers/ufs/host/ufs-qcom.c, the rows that concern the host's PHY.
const ON_QUALCOMM: &[Row] = &[of_maker(SAMSUNG, &[LongerPeerSync, DeemphasisByGear])];

const fn of_maker(manufacturer: u16, quirks: &[DeviceQuirk]) -> Row {
    Row { manufacturer, product: None, quirks: DeviceQuirks::of(quirks) }
}

const fn of_product(manufacturer: u16, product: &'static str, quirks: &[DeviceQuirk]) -> Row {
    Row { manufacturer, product: Some(product), quirks: DeviceQuirks::of(quirks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_and_products_add_up() {
        let any = DeviceQuirks::find(SK_HYNIX, "something");
        assert!(any.has(HostSaveConfigTime) && !any.has(DebugSaveConfigTime));
        let one = DeviceQuirks::find(SK_HYNIX, "hB8aL1");
        assert!(one.has(HostSaveConfigTime) && one.has(DebugSaveConfigTime));
        assert_eq!(DeviceQuirks::find(0, "hB8aL1"), DeviceQuirks::NONE);
        assert!(DeviceQuirks::depend_on_name(KIOXIA) && !DeviceQuirks::depend_on_name(MICRON));
    }

    #[test]
    fn what_only_one_hosts_phy_needs_is_in_a_table_of_its_own() {
        assert!(DeviceQuirks::find(WDC, "").has(PeerTactivateAboveHost));
        assert!(DeviceQuirks::find(SK_HYNIX, "").has(SettleBeforeLowPower));
        let both = DeviceQuirks::of(&[LongerPeerSync, DeemphasisByGear]);
        assert_eq!(DeviceQuirks::on_qualcomm(SAMSUNG), both);
        assert_eq!(DeviceQuirks::find(SAMSUNG, "").0 & both.0, 0);
        assert_eq!(DeviceQuirks::on_qualcomm(MICRON), DeviceQuirks::NONE);
    }

    #[test]
    fn a_correction_adds_and_takes_away() {
        let correction = Correction {
            add: DeviceQuirks::of(&[NoTimestamp]),
            remove: DeviceQuirks::of(&[LongerHibern8]),
        };
        let samsung = DeviceQuirks::find(SAMSUNG, "").corrected(correction);
        assert!(samsung.has(NoTimestamp) && samsung.has(SettleBeforeLowPower));
        assert!(!samsung.has(LongerHibern8));
    }

    #[test]
    fn a_name_is_trimmed() {
        let bytes = [10, 5, 0, b'a', 0, b'B', 0, b' ', 0, 0];
        assert_eq!(DeviceName::of(&bytes).as_str(), "aB");
        assert_eq!(DeviceName::of(&[]).as_str(), "");
    }
}
