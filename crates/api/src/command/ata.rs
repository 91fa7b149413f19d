use super::Protocol;

/// ATA: ACS-4, carried by SATA. The unit is the port behind a port multiplier, or 0 without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ata;

impl Protocol for Ata {
    type Payload = Taskfile;
    type Status = AtaStatus;
}

/// How a command uses the link (ACS-4 clause 4): the host must know before it sends the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AtaProtocol {
    /// No data.
    #[default]
    NonData,
    /// Data by PIO.
    Pio,
    /// Data by DMA, one command at a time.
    Dma,
    /// Data by DMA, queued (NCQ): the driver puts the number of its slot into the tag.
    Ncq,
    /// An ATAPI packet: the taskfile is the PACKET command, and the packet follows.
    Packet([u8; 16]),
    /// Software reset (SRST) by a control FIS.
    SoftReset,
}

/// The registers of a command: the fields of a host-to-device register FIS (SATA 3.5 10.5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Taskfile {
    /// COMMAND.
    pub command: u8,
    /// DEVICE.
    pub device: u8,
    /// FEATURES, 16 bits in 48-bit commands. The sector count of NCQ commands.
    pub features: u16,
    /// COUNT, 16 bits in 48-bit commands. In NCQ commands, the tag (bits 7:3, filled in by the
    /// driver) and the priority.
    pub count: u16,
    /// LBA, 28 or 48 bits.
    pub lba: u64,
    /// ICC, isochronous command completion.
    pub icc: u8,
    /// AUXILIARY.
    pub auxiliary: u32,
    /// How the command uses the link.
    pub protocol: AtaProtocol,
}

/// How an ATA device answered: the registers of its last FIS for this command, or, after an NCQ
/// error, of the NCQ command error log (GPL page 10h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AtaStatus {
    /// STATUS (ACS-4 6.2.1): ERR or CHK 0, SENSE 1, DF 5, DRDY 6, BSY 7.
    pub status: u8,
    /// ERROR (ACS-4 6.3), valid if ERR is set.
    pub error: u8,
    /// LBA of the first error, if the command reports one.
    pub lba: u64,
    /// Sense key, code and qualifier if the device reports them (SENSE set, or in the log); zero
    /// otherwise.
    pub sense: [u8; 3],
}

impl AtaStatus {
    /// ERR: the command failed, ERROR says how.
    pub const ERR: u8 = 1;
    /// DF, device fault.
    pub const DF: u8 = 1 << 5;

    /// Whether the command failed.
    pub const fn is_error(&self) -> bool {
        self.status & (Self::ERR | Self::DF) != 0
    }
}
