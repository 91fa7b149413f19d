//! Deviations of particular HBAs and devices, as two tables: match -> deviation, each with its
//! reason.

use flysch_api::machine::Identity;
use flysch_wire::ata::Identify;

/// A known deviation of an HBA or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Quirk {
    /// Commands must not be queued in the device.
    NoNcq,
    /// READ LOG EXT of the queued error log must not be tried.
    NoErrorLog,
    /// STATUS keeps ERR of a failed command until an unqueued one succeeds; until then queued ones
    /// fail.
    ErrorSticks,
    /// Forced unit access is accepted but not performed.
    NoFua,
    /// DATA SET MANAGEMENT must not be queued (SEND FPDMA).
    NoQueuedTrim,
    /// DATA SET MANAGEMENT destroys other data, or hangs.
    NoTrim,
    /// The link must not sleep.
    NoLinkPower,
    /// The link works at 1.5 Gb/s only.
    Slow,
    /// 64-bit addresses are claimed but do not work.
    Only32Bit,
    /// The HBA must not be reset.
    NoHbaReset,
}

/// A set of quirks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks(u32);

impl Quirks {
    /// No known deviations.
    pub const NONE: Self = Self(0);

    /// The set of these quirks.
    pub const fn of(quirks: &[Quirk]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < quirks.len() {
            bits |= 1 << quirks[i] as u32;
            i += 1;
        }
        Self(bits)
    }

    /// Whether the set contains this one.
    pub const fn has(self, quirk: Quirk) -> bool {
        self.0 >> quirk as u32 & 1 != 0
    }

    /// The union of both sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The quirks of an HBA by its identity.
    pub fn of_hba(identity: Identity) -> Self {
        let hit = |row: &&HbaRow| (row.vendor, row.device) == (identity.vendor, identity.device);
        HBAS.iter().filter(hit).fold(Self::NONE, |set, row| set.and(Self::of(&[row.quirk])))
    }

    /// The quirks of a device by its identify data.
    pub fn of_device(identify: &Identify) -> Self {
        let model = identify.model.trim_ascii();
        let firmware = identify.firmware.trim_ascii();
        let hit = |row: &&DeviceRow| {
            matches(row.model.as_bytes(), model) && matches(row.firmware.as_bytes(), firmware)
        };
        DEVICES.iter().filter(hit).fold(Self::NONE, |set, row| set.and(Self::of(&[row.quirk])))
    }
}

/// Whether `text` equals the pattern, or starts with the part before its final `*`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_last() {
        Some((b'*', begin)) => text.starts_with(begin),
        _ => pattern == text,
    }
}

struct HbaRow {
    vendor: u16,
    device: u16,
    quirk: Quirk,
    #[cfg_attr(not(test), expect(dead_code, reason = "it is for the reader"))]
    reason: &'static str,
}

struct DeviceRow {
    model: &'static str,
    firmware: &'static str,
    quirk: Quirk,
    #[cfg_attr(not(test), expect(dead_code, reason = "it is for the reader"))]
    reason: &'static str,
}

const fn hba(vendor: u16, device: u16, quirk: Quirk, reason: &'static str) -> HbaRow {
    HbaRow { vendor, device, quirk, reason }
}

const fn device(
    model: &'static str,
    firmware: &'static str,
    quirk: Quirk,
    reason: &'static str,
) -> DeviceRow {
    DeviceRow { model, firmware, quirk, reason }
}

/// Facts from Linux (`drivers/ata/ahci.c`, board tables).
static HBAS: &[HbaRow] = &[
    hba(0x1002, 0x4380, Quirk::Only32Bit, "ATI SB600: 64-bit DMA fails on many boards"),
    hba(0x1B4B, 0x9172, Quirk::NoLinkPower, "Marvell 88SE9172: the link does not come back"),
    hba(0x1B21, 0x0611, Quirk::NoNcq, "ASMedia 1060: queued commands are lost"),
];

/// Facts from Linux (`drivers/ata/libata-core.c`, the device quirk table), FreeBSD
/// (`sys/cam/ata/ata_da.c`), and QEMU itself as measured (10.0.2, 11.1.3).
static DEVICES: &[DeviceRow] = &[
    device("QEMU HARDDISK", "*", Quirk::ErrorSticks, "an error stays in STATUS after ST is cycled"),
    device("QEMU HARDDISK", "*", Quirk::NoErrorLog, "READ LOG EXT is always aborted"),
    device("QEMU HARDDISK", "*", Quirk::NoFua, "the FUA bit of queued writes is ignored"),
    device("Micron_M500_*", "*", Quirk::NoQueuedTrim, "corrupts data"),
    device("Crucial_CT*", "MU01", Quirk::NoQueuedTrim, "M550 and MX100 of this firmware"),
    device("Samsung SSD 840*", "*", Quirk::NoQueuedTrim, "corrupts data"),
    device("Samsung SSD 850*", "*", Quirk::NoQueuedTrim, "corrupts data"),
    device("SuperSSpeed S238*", "*", Quirk::NoTrim, "trim of one range takes others along"),
    device("M88V29*", "*", Quirk::NoTrim, "trim hangs the device"),
    device("KINGDIAN S200*", "*", Quirk::NoTrim, "trim hangs the device"),
    device("WDC WD740ADFD-00", "*", Quirk::NoNcq, "queued commands time out"),
    device("ST380817AS", "3.42", Quirk::NoNcq, "queued commands time out"),
    device("Maxtor 7V300F0", "VA111630", Quirk::NoNcq, "queued commands time out"),
    device("FUJITSU MHT2060BH", "*", Quirk::NoNcq, "queued commands time out"),
    device("CT500BX100SSD1", "*", Quirk::NoLinkPower, "does not come back from slumber"),
    device("SAMSUNG MZ7TD256HAFV-000L9", "*", Quirk::NoLinkPower, "does not come back"),
    device("WD My Book", "*", Quirk::Slow, "errors on the link above 1.5 Gb/s"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_wire::ata::identify::padded;

    /// Each row is found by its identity and has a reason, and unknown identities match none.
    #[test]
    fn every_row_of_an_hba_is_found_by_its_identity() {
        for row in HBAS {
            let identity = Identity { vendor: row.vendor, device: row.device };
            assert!(Quirks::of_hba(identity).has(row.quirk), "{}", row.reason);
        }
        assert_eq!(Quirks::of_hba(Identity { vendor: 1, device: 1 }), Quirks::NONE);
    }

    #[test]
    fn every_row_of_a_device_is_found_by_model_and_firmware() {
        for row in DEVICES {
            assert!(!row.reason.is_empty());
            let name = |pattern: &'static str| pattern.trim_end_matches('*');
            assert!(!name(row.model).contains('*'), "a star ends a pattern");
            let identify = Identify {
                model: padded(name(row.model)),
                firmware: padded(name(row.firmware)),
                ..Identify::default()
            };
            assert!(Quirks::of_device(&identify).has(row.quirk), "{}", row.model);
        }
        let stranger = Identify { model: padded("FLYSCH SATA"), ..Identify::default() };
        assert_eq!(Quirks::of_device(&stranger), Quirks::NONE);
        let old = Identify { model: padded("ST380817AS"), firmware: padded("3.43"), ..stranger };
        assert!(!Quirks::of_device(&old).has(Quirk::NoNcq), "only that firmware");
    }
}
