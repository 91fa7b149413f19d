//! What particular controllers do differently, as one table: match -> flags, each with its reason.

use flysch_api::machine::Identity;
use flysch_wire::ufs::registers::Ver;

/// One deviation a controller is known for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Quirk {
    /// Task management requests are never answered: recover by host reset at once.
    NoTaskManagement,
    /// UTRLCLR is ignored: if a slot has to be cleared, the host is reset at once. (The doorbell
    /// bit of a command that the controller could not fetch stays set even across HCE. That needs
    /// no quirk: if a bit is set after a reset of any controller, its slot is taken out of use.)
    StickySlots,
    /// DME_GET and DME_SET fail for every attribute: the link is left as it is.
    DmeErrorsNotFatal,
    /// There is no link whose power mode could be changed.
    NoPowerModeChange,
    /// OCS is INVALID_COMMAND_TABLE_ATTRIBUTES when there is no such logical unit.
    MissingUnitSetsOcs,
    /// MCQ run-time registers are at 0x2800 + 0x30 x queue, regardless of the queue's offset
    /// registers.
    RuntimeRegistersAt2800,
    /// Auto-hibern8 loses the link.
    AutoHibern8Broken,
    /// The device answers its first NOP OUT late: wait 200 ms for each.
    SlowNop,
    /// Change the number of lanes first, then the gear.
    LanesBeforeGear,
    /// The peer's PA_TACTIVATE must be two units longer than the host's.
    PeerTactivate,
    /// Line control commands must be off before link start-up.
    LccOff,
    /// After a change to a high gear the link needs 1 ms before it is used.
    SettleAfterGear,
}

/// A set of the deviations that an enumeration names, one bit for each.
macro_rules! set_of_quirks {
    ($(#[$doc:meta])* $set:ident, $quirk:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            /// No deviation known.
            pub const NONE: Self = Self(0);

            /// The set of these.
            pub const fn of(quirks: &[$quirk]) -> Self {
                let mut bits = 0;
                let mut i = 0;
                while i < quirks.len() {
                    bits |= 1 << quirks[i] as u32;
                    i += 1;
                }
                Self(bits)
            }

            /// Whether the set holds this one.
            #[inline]
            pub const fn has(self, quirk: $quirk) -> bool {
                self.0 >> quirk as u32 & 1 != 0
            }

            pub(crate) fn corrected(self, correction: Correction<Self>) -> Self {
                Self((self.0 | correction.add.0) & !correction.remove.0)
            }
        }
    };
}
pub(crate) use set_of_quirks;

set_of_quirks! {
    /// A set of quirks.
    Quirks, Quirk
}

impl Quirks {
    /// The quirks of a controller by its identity and its version register.
    pub fn find(identity: Identity, version: Ver) -> Self {
        let hit = |row: &&Row| {
            row.vendor == identity.vendor
                && row.device == identity.device
                && row.version.is_none_or(|v| v.number() == version.number())
        };
        Self(TABLE.iter().filter(hit).fold(0, |bits, row| bits | row.quirks.0))
    }
}

/// Corrections of a table of quirks, from a board or SoC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Correction<Q> {
    /// Quirks that are missing in the table.
    pub add: Q,
    /// Quirks in the table that do not apply.
    pub remove: Q,
}

struct Row {
    vendor: u16,
    device: u16,
    /// Only this version of the interface; `None` is all.
    version: Option<Ver>,
    quirks: Quirks,
}

/// Red Hat, Inc.: QEMU's `ufs` device (hw/ufs/ufs.c).
const QEMU: (u16, u16) = (0x1B36, 0x0013);
const INTEL: u16 = 0x8086;

use Quirk::*;

/// Sources: QEMU 10.0.2 and 11.1.3 as measured over qtest; Linux drivers/ufs/host/ufshcd-pci.c
/// for the Intel hosts.
const TABLE: &[Row] = &[
    // Both versions: no task management queue is modelled, UTRLCLR does nothing, and a missing unit
    // is reported by an OCS. Three more deviations need no flag because the driver is right either
    // way: a failed query also sets OCS (judged by its result code), a residual can be larger than
    // the transfer (then ignored), and 10.x swaps the bytes of a response's data segment length
    // (the sense length field is used).
    Row {
        vendor: QEMU.0,
        device: QEMU.1,
        version: None,
        quirks: Quirks::of(&[NoTaskManagement, StickySlots, MissingUnitSetsOcs]),
    },
    // 10.x reports UFSHCI 4.0: every DME_GET and DME_SET answers 1.
    Row {
        vendor: QEMU.0,
        device: QEMU.1,
        version: Some(Ver::V4_0),
        quirks: Quirks::of(&[DmeErrorsNotFatal, NoPowerModeChange]),
    },
    // 11.x reports UFSHCI 4.1: DME_SET succeeds and is forgotten.
    Row {
        vendor: QEMU.0,
        device: QEMU.1,
        version: Some(Ver::V4_1),
        quirks: Quirks::of(&[DmeErrorsNotFatal]),
    },
    // Lakefield.
    Row {
        vendor: INTEL,
        device: 0x98FA,
        version: None,
        quirks: Quirks::of(&[
            AutoHibern8Broken,
            SlowNop,
            LanesBeforeGear,
            PeerTactivate,
            LccOff,
            SettleAfterGear,
        ]),
    },
    // Elkhart Lake.
    intel_row(0x4B41, &[AutoHibern8Broken, LccOff]),
    intel_row(0x4B43, &[AutoHibern8Broken, LccOff]),
    // Alder Lake-N and Alder Lake-P.
    intel_row(0x51FF, &[AutoHibern8Broken, SlowNop, LccOff]),
    intel_row(0x54FF, &[AutoHibern8Broken, SlowNop, LccOff]),
    // Cannon Lake.
    intel_row(0x9DFA, &[LccOff]),
    // Meteor Lake and later: the first with MCQ.
    intel_row(0x7E47, &[LccOff, RuntimeRegistersAt2800]),
    intel_row(0xA847, &[LccOff, RuntimeRegistersAt2800]),
    intel_row(0x7747, &[LccOff, RuntimeRegistersAt2800]),
    intel_row(0xE447, &[LccOff, RuntimeRegistersAt2800]),
    intel_row(0x4D47, &[LccOff, RuntimeRegistersAt2800]),
    intel_row(0xD335, &[LccOff, RuntimeRegistersAt2800]),
];

const fn intel_row(device: u16, quirks: &[Quirk]) -> Row {
    Row { vendor: INTEL, device, version: None, quirks: Quirks::of(quirks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_qemus_are_told_apart_by_version() {
        let qemu = Identity { vendor: 0x1B36, device: 0x13 };
        let old = Quirks::find(qemu, Ver::V4_0);
        let new = Quirks::find(qemu, Ver::V4_1);
        assert!(old.has(NoPowerModeChange) && !new.has(NoPowerModeChange));
        assert!(old.has(NoTaskManagement) && new.has(NoTaskManagement));
    }

    #[test]
    fn an_unknown_controller_has_no_quirks() {
        assert_eq!(Quirks::find(Identity::default(), Ver::V4_0), Quirks::NONE);
        let alder_lake = Identity { vendor: 0x8086, device: 0x54FF };
        assert!(Quirks::find(alder_lake, Ver::V2_1).has(AutoHibern8Broken));
    }
}
