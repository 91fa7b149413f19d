//! Places of nodes.

/// Where a node lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// LEB.
    pub lnum: u32,
    /// Byte in it.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}
