//! Sense data of the model, compact enough to be kept in a task.

use flysch_wire::scsi::sense::{self, FIXED_LENGTH, FieldPointer};
use flysch_wire::scsi::{AdditionalSense, SenseKey};

/// Key, code and what they refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sense {
    pub(super) key: SenseKey,
    pub(super) additional: AdditionalSense,
    /// INFORMATION: the first block in error, if there is one and it fits.
    information: Option<u32>,
    /// The byte of the CDB that is wrong.
    byte: Option<u8>,
}

impl Sense {
    pub(super) const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Self { key, additional, information: None, byte: None }
    }

    /// ILLEGAL REQUEST.
    pub(super) const fn illegal(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::IllegalRequest, additional)
    }

    /// INVALID FIELD IN CDB, at `byte`.
    pub(super) const fn field(byte: u8) -> Self {
        let mut sense = Self::illegal(AdditionalSense::InvalidFieldInCdb);
        sense.byte = Some(byte);
        sense
    }

    /// UNIT ATTENTION.
    pub(super) const fn attention(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::UnitAttention, additional)
    }

    /// MEDIUM ERROR on block `lba`.
    pub(super) fn medium(additional: AdditionalSense, lba: u64) -> Self {
        let information = u32::try_from(lba).ok();
        Self { information, ..Self::new(SenseKey::MediumError, additional) }
    }

    /// DATA PROTECT, space allocation failed: the storage below the unit has no room.
    pub(super) const fn full() -> Self {
        Self::new(SenseKey::DataProtect, AdditionalSense::SpaceAllocationFailedWriteProtect)
    }

    /// Fixed format sense data.
    pub(super) fn to_fixed(self) -> [u8; FIXED_LENGTH] {
        let mut sense = sense::Sense::new(self.key, self.additional);
        sense.information = self.information.map(u64::from);
        if let Some(byte) = self.byte {
            sense = sense.with_field(FieldPointer { in_cdb: true, bit: None, byte: byte.into() });
        }
        let mut bytes = [0; FIXED_LENGTH];
        sense.emit_fixed(&mut bytes);
        bytes
    }
}
