use super::Protocol;

/// SCSI: SAM-6, SPC-6, and the command set of the device type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scsi;

impl Protocol for Scsi {
    type Payload = Cdb;
    type Status = ScsiStatus;
}

/// Maximum length of sense data (SPC-6 4.4.1); a transport may deliver less.
pub const SENSE_MAX: usize = 252;

/// A command descriptor block of up to 16 bytes, zero padded. The operation code determines how
/// many of them count. There are longer ones (variable length CDBs, SPC-6 4.2.3), which no
/// transport here carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cdb(pub [u8; 16]);

impl From<[u8; 16]> for Cdb {
    #[inline]
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// How a SCSI device answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScsiStatus {
    /// Status code (SAM-6 5.3.1).
    pub status: u8,
    /// Sense data, if the device sent any.
    pub sense: SenseBytes,
}

/// Sense data as the transport delivered it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SenseBytes {
    bytes: [u8; SENSE_MAX],
    len: u8,
}

impl SenseBytes {
    /// The first [`SENSE_MAX`] of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(SENSE_MAX)];
        let mut sense = Self::default();
        sense.bytes[..bytes.len()].copy_from_slice(bytes);
        sense.len = bytes.len() as u8;
        sense
    }

    /// The bytes that the device sent.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Default for SenseBytes {
    fn default() -> Self {
        Self { bytes: [0; SENSE_MAX], len: 0 }
    }
}

impl core::fmt::Debug for SenseBytes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SenseBytes({:02x?})", self.as_slice())
    }
}
