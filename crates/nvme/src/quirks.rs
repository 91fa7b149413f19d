//! Deviations of particular controllers, as one table: match -> flags, with a reason for each.

use flysch_api::machine::Identity;

/// One known deviation of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Quirk {
    /// After CC.EN is cleared, CSTS must be left alone for 2.3 s.
    DelayBeforeReady,
    /// Identify with CNS above 1 does not work: namespaces are found by querying each.
    NoNamespaceList,
}

/// A set of quirks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks(u32);

impl Quirks {
    /// No known deviation.
    pub const NONE: Self = Self(0);

    /// The set of these deviations.
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

    /// The members of the set, in words.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (Quirk::DelayBeforeReady, "rests after a disable"),
            (Quirk::NoNamespaceList, "no list of namespaces"),
        ];
        all.into_iter().filter(move |(quirk, _)| self.has(*quirk)).map(|(_, name)| name)
    }

    /// The union of both sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The quirks of a controller by its identity.
    pub fn find(identity: Identity) -> Self {
        let hit = |row: &&Row| (row.vendor, row.device) == (identity.vendor, identity.device);
        TABLE.iter().filter(hit).fold(Self::NONE, |set, row| set.and(row.quirks))
    }
}

struct Row {
    vendor: u16,
    device: u16,
    quirks: Quirks,
}

const fn row(vendor: u16, device: u16, quirk: Quirk) -> Row {
    Row { vendor, device, quirks: Quirks::of(&[quirk]) }
}

/// Reads of CSTS too soon after a reset hang these (Linux: `DELAY_BEFORE_CHK_RDY`); the first
/// releases of QEMU's device, which had Intel's id, did not support lists (Linux: `IDENTIFY_CNS`).
static TABLE: &[Row] = &[
    row(0x1BB1, 0x0100, Quirk::DelayBeforeReady),
    row(0x1C58, 0x0003, Quirk::DelayBeforeReady),
    row(0x1C58, 0x0023, Quirk::DelayBeforeReady),
    row(0x1C5F, 0x0540, Quirk::DelayBeforeReady),
    row(0x144D, 0xA821, Quirk::DelayBeforeReady),
    row(0x144D, 0xA822, Quirk::DelayBeforeReady),
    row(0x8086, 0x5845, Quirk::NoNamespaceList),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_both_ids() {
        let quirks = Quirks::find(Identity { vendor: 0x8086, device: 0x5845 });
        assert!(quirks.has(Quirk::NoNamespaceList) && !quirks.has(Quirk::DelayBeforeReady));
        let quirks = Quirks::find(Identity { vendor: 0x1C58, device: 0x0023 });
        assert!(quirks.has(Quirk::DelayBeforeReady) && !quirks.has(Quirk::NoNamespaceList));
        assert_eq!(Quirks::find(Identity { vendor: 0x8086, device: 0x0023 }), Quirks::NONE);
    }
}
