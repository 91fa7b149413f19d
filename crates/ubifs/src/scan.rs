//! Iterating over the nodes of a LEB.
//!
//! Nodes follow one another at multiples of 8; gaps are padding nodes or padding bytes, and what is
//! not written yet reads as 0xFF. What Linux does not accept as a node is not accepted here either,
//! whatever its checksum says: an unknown type, or a length that the type cannot have. A write that
//! power loss cut short can leave anything within the last unit written.

use core::ops::Range;

use flysch_wire::ubifs::{
    Header, NODE_ALIGNMENT, NodeError, NodeKind, PADDING_BYTE, PADDING_NODE_SIZE,
};

/// What comes next in a LEB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A good node.
    Node { offset: u32, header: Header, bytes: &'a [u8] },
    /// Neither node nor padding nor erased; the scan continues at the next header.
    Garbage { range: (u32, u32), error: NodeError },
}

/// Iterates over the nodes of a LEB.
#[derive(Clone, Debug)]
pub(crate) struct Scan<'a> {
    leb: &'a [u8],
    at: u32,
    end: u32,
    /// Bytes left to checksum: overlapping headers could make every step cover the whole LEB.
    budget: u64,
}

impl<'a> Scan<'a> {
    /// Starts at `from` in a whole LEB.
    pub(crate) fn new(leb: &'a [u8], from: u32) -> Self {
        // In chunks, each of which the compiler turns into one comparison.
        let is_blank = |piece: &[u8]| piece.iter().fold(0xff, |all, byte| all & byte) == 0xff;
        let pieces = leb.rchunks(64).take_while(|piece| is_blank(piece)).map(<[u8]>::len);
        let rest = &leb[..leb.len() - pieces.sum::<usize>()];
        let written = rest.iter().rposition(|&byte| byte != 0xff).map_or(0, |last| last as u32 + 1);
        let end = written.next_multiple_of(NODE_ALIGNMENT).min(leb.len() as u32);
        Self { leb, at: from, end, budget: 8 * leb.len() as u64 }
    }

    /// Where the erased end of the LEB begins; exact once the scan is done, because a node's last
    /// bytes may look erased.
    pub(crate) fn end(&self) -> u32 {
        self.end.max(self.at)
    }

    fn rest(&self, at: u32) -> &'a [u8] {
        &self.leb[at as usize..]
    }

    /// Bytes of padding here.
    fn padding(&self) -> Option<u32> {
        let rest = self.rest(self.at);
        let bytes = rest.iter().take(PADDING_NODE_SIZE).take_while(|&&byte| byte == PADDING_BYTE);
        let bytes = bytes.count() as u32;
        (bytes != 0 && bytes.is_multiple_of(NODE_ALIGNMENT)).then_some(bytes)
    }

    fn node(&mut self, at: u32) -> Result<(Header, &'a [u8], u32), NodeError> {
        let Header { length, kind, .. } = Header::parse(self.rest(at))?;
        if let NodeKind::Unknown(_) = kind {
            return Err(NodeError::Kind(kind));
        }
        kind.check_length(length)?;
        self.budget = self.budget.checked_sub(length.into()).ok_or(NodeError::Length(length))?;
        let (header, bytes) = Header::check(self.rest(at))?;
        let mut length = u64::from(header.length);
        if header.kind == NodeKind::Padding {
            let pad = bytes.get(24..28).ok_or(NodeError::Length(header.length))?;
            length += u64::from(u32::from_le_bytes([pad[0], pad[1], pad[2], pad[3]]));
            if !length.is_multiple_of(NODE_ALIGNMENT.into()) {
                return Err(NodeError::Field("pad_len"));
            }
        }
        let next = (u64::from(at) + length).next_multiple_of(NODE_ALIGNMENT.into());
        if next > self.leb.len() as u64 {
            // The last node may end in the last, incomplete multiple of eight.
            if u64::from(at) + length > self.leb.len() as u64 {
                return Err(NodeError::Length(header.length));
            }
        }
        Ok((header, bytes, next.min(self.leb.len() as u64) as u32))
    }

    /// The garbage up to the next header or the end.
    fn resume(&self) -> Range<u32> {
        let start = self.at;
        let mut at = start + NODE_ALIGNMENT;
        while at < self.end && Header::parse(self.rest(at)).is_err() {
            at += NODE_ALIGNMENT;
        }
        start..at.min(self.end)
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        while self.at < self.end {
            let offset = self.at;
            match self.node(offset) {
                Ok((header, bytes, next)) => {
                    self.at = next;
                    if header.kind != NodeKind::Padding {
                        return Some(Item::Node { offset, header, bytes });
                    }
                }
                Err(error) => match self.padding() {
                    Some(bytes) => self.at += bytes,
                    None => {
                        let range = self.resume();
                        self.at = range.end;
                        return Some(Item::Garbage { range: (range.start, range.end), error });
                    }
                },
            }
        }
        None
    }
}
