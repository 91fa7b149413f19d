//! What particular controllers do differently, as one table: match -> flags, a reason each.

use flysch_api::machine::Identity;

/// One deviation a controller is known for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Quirk {
    /// After CC.EN was cleared CSTS must be left alone for 2.3 s.
    DelayBeforeReady,
    /// NGUID, EUI64 and UUID are the same for every device: no names.
    BogusIds,
    /// Identify with CNS above 1 does not work: namespaces are found by asking for each.
    NoNamespaceList,
}

/// A set of quirks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks(u32);

impl Quirks {
    /// No deviation known.
    pub const NONE: Self = Self(0);

    /// The set of these.
    pub const fn of(quirks: &[Quirk]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < quirks.len() {
            bits |= 1 << quirks[i] as u32;
            i += 1;
        }
        Self(bits)
    }

    /// Whether the set holds this one.
    pub const fn has(self, quirk: Quirk) -> bool {
        self.0 >> quirk as u32 & 1 != 0
    }

    /// What is in the set, as people read it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (Quirk::DelayBeforeReady, "rests after a disable"),
            (Quirk::BogusIds, "identifiers nobody gave"),
            (Quirk::NoNamespaceList, "no list of namespaces"),
        ];
        all.into_iter().filter(move |(quirk, _)| self.has(*quirk)).map(|(_, name)| name)
    }

    /// Both sets.
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

/// Reads of CSTS too soon after a reset hang these (Linux: `DELAY_BEFORE_CHK_RDY`); both ids of
/// QEMU's device have names nobody gave them (Linux: `BOGUS_NID`), and the first releases with
/// Intel's id knew no lists (Linux: `IDENTIFY_CNS`).
static TABLE: &[Row] = &[
    row(0x1BB1, 0x0100, Quirk::DelayBeforeReady),
    row(0x1C58, 0x0003, Quirk::DelayBeforeReady),
    row(0x1C58, 0x0023, Quirk::DelayBeforeReady),
    row(0x1C5F, 0x0540, Quirk::DelayBeforeReady),
    row(0x144D, 0xA821, Quirk::DelayBeforeReady),
    row(0x144D, 0xA822, Quirk::DelayBeforeReady),
    row(0x1B36, 0x0010, Quirk::BogusIds),
    row(0x8086, 0x5845, Quirk::BogusIds),
    row(0x8086, 0x5845, Quirk::NoNamespaceList),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_controller_add_up() {
        let quirks = Quirks::find(Identity { vendor: 0x8086, device: 0x5845 });
        assert!(quirks.has(Quirk::BogusIds) && quirks.has(Quirk::NoNamespaceList));
        assert!(!quirks.has(Quirk::DelayBeforeReady));
        assert_eq!(Quirks::find(Identity { vendor: 1, device: 1 }), Quirks::NONE);
    }
}
