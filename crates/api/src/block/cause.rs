use core::fmt;

use crate::command::{AtaStatus, MmcStatus, NvmeStatus};

/// How a device described a failure, in its own protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The device said nothing, or nothing that was understood.
    #[default]
    None,
    /// SCSI status (SAM-6 5.3.1) and, with CHECK CONDITION, the sense data that came with it
    /// (SPC-6 4.4).
    Scsi {
        /// Status code.
        status: u8,
        /// Sense key.
        key: u8,
        /// Additional sense code.
        asc: u8,
        /// Additional sense code qualifier.
        ascq: u8,
        /// INFORMATION: the first block affected by a failed transfer, if the device reports it.
        information: Option<u64>,
    },
    /// ATA status and error registers, and the sense data that some devices also report.
    Ata(AtaStatus),
    /// NVMe status.
    Nvme(NvmeStatus),
    /// MMC device status.
    Mmc(MmcStatus),
}

impl Cause {
    /// A CHECK CONDITION with this sense.
    pub const fn sense(key: u8, asc: u8, ascq: u8) -> Self {
        Self::Scsi { status: 2, key, asc, ascq, information: None }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no cause told"),
            Self::Scsi { status: 2, key, asc, ascq, information } => {
                write!(f, "sense {key:x}/{asc:02x}/{ascq:02x}")?;
                information.map_or(Ok(()), |block| write!(f, " at block {block}"))
            }
            Self::Scsi { status, .. } => write!(f, "SCSI status {status:#04x}"),
            Self::Ata(AtaStatus { status, error, .. }) => {
                write!(f, "ATA status {status:#04x}, error {error:#04x}")
            }
            Self::Nvme(status) => {
                write!(f, "NVMe status {:x}/{:02x}", status.code_type(), status.code())
            }
            Self::Mmc(status) => write!(f, "MMC device status {:#010x}", status.status),
        }
    }
}
