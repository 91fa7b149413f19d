//! DATA OUT, DATA IN and READY TO TRANSFER (JESD220 10.7.3 to 10.7.5). The host controller sends
//! and receives them by itself; only a tracer of the link sees them, never a driver.

use super::{Header, LENGTH};
use crate::bytes::{be32, put};

/// DATA OUT.
pub type DataOut = DataUpiu;
/// DATA IN.
pub type DataIn = DataUpiu;
/// READY TO TRANSFER.
pub type ReadyToTransfer = DataUpiu;

/// Any of the three UPIUs, all of which specify a part of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataUpiu {
    /// The header.
    pub header: Header,
    /// Offset of this part in the command's data, bytes.
    pub data_buffer_offset: u32,
    /// Length of this part, bytes.
    pub data_transfer_count: u32,
}

impl DataUpiu {
    pub(super) fn after(header: Header, bytes: &[u8; LENGTH]) -> Self {
        Self { header, data_buffer_offset: be32(bytes, 12), data_transfer_count: be32(bytes, 16) }
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        self.header.emit(bytes);
        put(bytes, 12, self.data_buffer_offset.to_be_bytes());
        put(bytes, 16, self.data_transfer_count.to_be_bytes());
        put(bytes, 20, [0; 12]);
    }
}
