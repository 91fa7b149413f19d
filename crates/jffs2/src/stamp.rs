//! Which block was written last: a padding node with a number at the start of each block.
//!
//! JFFS2 does not record this. The last page that was written before a power cut may read correctly
//! once more and never again, so a mount must know where it is. Every block that is opened, or in
//! which writing continues, gets a padding node with a number one higher than all others; the first
//! one of a mount gets a number two higher. So if a block's number is followed by the next one, the
//! block was written to its end by a mount that continued. Other implementations ignore the content
//! of padding nodes.

use flysch_wire::jffs2::{ByteOrder, Header, NodeType, crc32};

/// Begins the node's content.
const MAGIC: [u8; 8] = *b"flysch:1";
/// Length of its content, bytes.
const CONTENT: usize = MAGIC.len() + 4 + 4 + 4;

/// A record of when a block was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Counts the blocks that were opened.
    pub(crate) number: u32,
    /// As long as this block is the one opened last, power may have been lost in all blocks from
    /// this number on: those that a mount had not yet moved when it opened this one.
    pub(crate) suspect: u32,
}

impl Stamp {
    /// Length of the node, bytes.
    pub(crate) const LEN: usize = Header::LEN + CONTENT;

    /// The node.
    pub(crate) fn emit(self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        Header { node_type: NodeType::PADDING, total_len: Self::LEN as u32 }
            .emit(order, &mut bytes);
        let content = &mut bytes[Header::LEN..];
        content[..8].copy_from_slice(&MAGIC);
        content[8..12].copy_from_slice(&self.number.to_le_bytes());
        content[12..16].copy_from_slice(&self.suspect.to_le_bytes());
        let crc = crc32(&content[..16]);
        content[16..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The stamp in a padding node; `None` if it is an ordinary one.
    pub(crate) fn parse(node: &[u8]) -> Option<Self> {
        let content = node.get(Header::LEN..Self::LEN)?;
        let word = |at: usize| {
            let bytes = content.get(at..at + 4)?;
            Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        if node.len() != Self::LEN || content[..8] != MAGIC || word(16)? != crc32(&content[..16]) {
            return None;
        }
        Some(Self { number: word(8)?, suspect: word(12)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written_and_is_a_padding_node() {
        let stamp = Stamp { number: 7, suspect: 5 };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut bytes = stamp.emit(order);
            let header = Header::parse(&bytes, order).unwrap();
            assert_eq!(header.node_type, NodeType::PADDING);
            assert_eq!(header.total_len as usize, bytes.len());
            assert_eq!(Stamp::parse(&bytes), Some(stamp));
            for at in Header::LEN..bytes.len() {
                bytes[at] ^= 4;
                assert_eq!(Stamp::parse(&bytes), None, "byte {at}");
                bytes[at] ^= 4;
            }
            assert_eq!(Stamp::parse(&bytes[..20]), None);
        }
    }
}
