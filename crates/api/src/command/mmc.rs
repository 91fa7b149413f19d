use super::Protocol;

/// MMC: JESD84-B51 on an SDHCI. The unit is the partition (PARTITION_ACCESS of EXT_CSD 179).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mmc;

impl Protocol for Mmc {
    type Payload = MmcCommand;
    type Status = MmcStatus;
}

/// The response to a command (JESD84-B51 6.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MmcResponse {
    /// None.
    None,
    /// R1: device status.
    #[default]
    R1,
    /// R1, then busy on DAT0.
    R1b,
    /// R2: CID or CSD, 128 bits.
    R2,
    /// R3: OCR.
    R3,
    /// R4, R5: fast I/O, interrupt state.
    R4,
}

/// A command of the bus, or a task of the device's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MmcCommand {
    /// Command index, 0 to 63.
    pub index: u8,
    /// Argument.
    pub argument: u32,
    /// The response to the command.
    pub response: MmcResponse,
    /// Bytes per block, 0 without data. The number of blocks follows from the length of the data.
    pub block: u16,
    /// Send CMD23 first, with these bits in its argument besides the count: reliable write 31,
    /// packed 30, tag 29, context 28:25, forced programming 24.
    pub set_block_count: Option<u32>,
}

/// How an MMC device answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MmcStatus {
    /// Device status (R1, JESD84-B51 6.13), or the 32 bits of R3 or R4.
    pub status: u32,
    /// The 128 bits of R2, whose CRC is not delivered; zero for other responses.
    pub long: u128,
}

impl MmcStatus {
    /// The error bits of R1: ADDRESS_OUT_OF_RANGE 31 to ERROR 19 without DEVICE_IS_LOCKED 25, which
    /// is a state; CID/CSD_OVERWRITE 16, WP_ERASE_SKIP 15, SWITCH_ERROR 7.
    pub const ERRORS: u32 = 0xFDF9_8080;

    /// Whether R1 reports an error.
    pub const fn is_error(&self) -> bool {
        self.status & Self::ERRORS != 0
    }
}
