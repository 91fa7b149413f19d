//! Writes the nodes of the main area in sequence.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_wire::ubifs::lpt::LebProperties;
use flysch_wire::ubifs::{
    Group, HEADER_SIZE, MASTER_HMAC, MASTER_NODE_SIZE, Master, NODE_ALIGNMENT, Node, PADDING_BYTE,
    PADDING_NODE_SIZE, SIGNATURE_PKCS7, SUPERBLOCK_HMAC, SUPERBLOCK_LEB, SUPERBLOCK_NODE_SIZE,
    Signature, Superblock, align8,
};
use xxhash_rust::xxh3::Xxh3Default;

use super::{LebSink, OptionsError, UbifsCreateError};
use crate::auth::{Auth, Digest};
use crate::location::Location;
use crate::signature::Signer;

/// Where a node lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) lnum: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

impl From<Place> for Location {
    fn from(Place { lnum, offset, length }: Place) -> Self {
        Self { lnum, offset, length }
    }
}

/// The LEB being filled.
pub(super) struct Head<S> {
    sink: S,
    /// Hash of everything written, if the id is derived from the content.
    digest: Option<Xxh3Default>,
    main: Range<u32>,
    leb_size: u32,
    write_size: u32,
    lnum: u32,
    offset: u32,
    buffer: Vec<u8>,
    sequence: u64,
    properties: Vec<LebProperties>,
    /// Hashes and signs nodes, if the file system is authenticated.
    pub(super) auth: Option<Auth>,
}

impl<S: LebSink> Head<S> {
    /// A head at the start of the main area, which extends to the maximum LEB count.
    pub(super) fn new(
        main: Range<u32>,
        superblock: &Superblock,
        sink: S,
        digest: Option<Xxh3Default>,
    ) -> Self {
        Self {
            sink,
            digest,
            lnum: main.start,
            main,
            leb_size: superblock.leb_size,
            write_size: superblock.min_io_size,
            offset: 0,
            buffer: vec![0; superblock.leb_size as usize],
            sequence: 0,
            properties: Vec::new(),
            auth: None,
        }
    }

    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn main_first(&self) -> u32 {
        self.main.start
    }

    /// The LEB that the next node goes to if it fits.
    pub(super) fn lnum(&self) -> u32 {
        self.lnum
    }

    /// Where the next write would go: a LEB, and an offset that is a multiple of the write size.
    pub(super) fn position(&self) -> (u32, u32) {
        (self.lnum, self.offset.next_multiple_of(self.write_size))
    }

    /// Writes a node, to the next LEB if it does not fit this one.
    pub(super) fn append(&mut self, node: &Node<'_>) -> Result<Place, UbifsCreateError<S::Error>> {
        let length = node.size() as u32;
        if length > self.leb_size - self.offset {
            self.flush(matches!(node, Node::Index(_)))?;
        }
        let place = Place { lnum: self.lnum, offset: self.offset, length };
        let sequence = self.next_sequence();
        let end = align8(self.offset + length);
        let out = &mut self.buffer[self.offset as usize..end as usize];
        node.emit(sequence, Group::None, out);
        out[length as usize..].fill(0xff);
        if let Some(auth) = &mut self.auth {
            auth.know(place.into(), auth.hash(&out[..length as usize]));
        }
        self.offset = end;
        Ok(place)
    }

    /// Writes out the LEB, if there is something in it, and moves to the next one.
    pub(super) fn flush(&mut self, index: bool) -> Result<(), UbifsCreateError<S::Error>> {
        if self.offset == 0 {
            return Ok(());
        }
        let end = pad(&mut self.buffer, self.offset, self.write_size);
        if self.has_room() {
            self.sink
                .put(self.lnum, &self.buffer[..end as usize])
                .map_err(UbifsCreateError::Sink)?;
        }
        if let Some(digest) = &mut self.digest {
            digest.update(&self.buffer[..self.offset as usize]);
        }
        let (free, dirty) = (self.leb_size - end, end - self.offset);
        self.properties.push(LebProperties { free, dirty, index });
        self.lnum += 1;
        self.offset = 0;
        Ok(())
    }

    /// Leaves a LEB empty; the head must be at the start of one.
    pub(super) fn skip(&mut self) -> u32 {
        debug_assert_eq!(self.offset, 0);
        self.properties.push(LebProperties { free: self.leb_size, dirty: 0, index: false });
        self.lnum += 1;
        self.lnum - 1
    }

    /// Whether the LEB being filled is within the maximum. LEBs beyond it are counted but not
    /// written, so that the error can state how many are needed.
    fn has_room(&self) -> bool {
        self.lnum < self.main.end
    }

    /// Fails if the LEBs exceed the maximum LEB count.
    pub(super) fn check_room(&self) -> Result<(), UbifsCreateError<S::Error>> {
        if self.lnum <= self.main.end {
            return Ok(());
        }
        Err(UbifsCreateError::NoSpace { needed: self.lnum.into(), max: self.main.end })
    }

    /// Writes a LEB that holds only this node.
    pub(super) fn single(
        &mut self,
        lnum: u32,
        node: &Node<'_>,
    ) -> Result<(), UbifsCreateError<S::Error>> {
        let sequence = self.next_sequence();
        let mut content = vec![0; node.size().next_multiple_of(self.write_size as usize)];
        let length = node.emit(sequence, Group::None, &mut content) as u32;
        if let Some(auth) = &self.auth {
            match node {
                Node::Superblock(_) => auth.sign(&mut content, SUPERBLOCK_HMAC.start),
                Node::Master(_) => auth.sign(&mut content, MASTER_HMAC.start),
                _ => {}
            }
        }
        let end = align8(length);
        content[length as usize..end as usize].fill(0xff);
        pad(&mut content, end, self.write_size);
        self.put(lnum, &content)
    }

    /// Writes the superblock, followed by the signature `signer` makes of it.
    pub(super) fn signed(
        &mut self,
        superblock: &Superblock,
        signer: &dyn Signer,
    ) -> Result<(), UbifsCreateError<S::Error>> {
        let sequence = self.next_sequence();
        let mut content = vec![0; self.leb_size as usize];
        let (node, rest) = content.split_at_mut(SUPERBLOCK_NODE_SIZE);
        Node::Superblock(*superblock).emit(sequence, Group::None, node);
        let signature = signer.sign(node);
        let signature =
            signature.map_err(|error| UbifsCreateError::Options(OptionsError::Signer(error)))?;
        let signature = Node::Signature(Signature { kind: SIGNATURE_PKCS7, signature: &signature });
        if signature.size() > rest.len() {
            return Err(UbifsCreateError::Options(OptionsError::SignatureRoom(self.leb_size)));
        }
        let sequence = self.next_sequence();
        let length = SUPERBLOCK_NODE_SIZE + signature.emit(sequence, Group::None, rest);
        let end = align8(length as u32);
        content[length..end as usize].fill(0xff);
        let end = pad(&mut content, end, self.write_size);
        self.put(SUPERBLOCK_LEB, &content[..end as usize])
    }

    /// Hash of a master node for a signed superblock. It does not cover the header, which differs
    /// between the copies.
    pub(super) fn hash_of_master(&self, master: Master) -> Digest {
        let mut node = [0; MASTER_NODE_SIZE];
        Node::Master(master).emit(0, Group::None, &mut node);
        self.auth.as_ref().map_or(Digest::NONE, |auth| auth.hash(&node[HEADER_SIZE..]))
    }

    /// Passes a LEB outside the main area to the sink.
    pub(super) fn put(
        &mut self,
        lnum: u32,
        content: &[u8],
    ) -> Result<(), UbifsCreateError<S::Error>> {
        self.sink.put(lnum, content).map_err(UbifsCreateError::Sink)
    }

    /// Takes the properties of the main area's LEBs collected so far.
    pub(super) fn take_properties(&mut self) -> Vec<LebProperties> {
        core::mem::take(&mut self.properties)
    }

    /// Derives the id from the content, if it is not given, and marks it as a UUID of version 8,
    /// the custom format of RFC 9562.
    pub(super) fn finish_uuid(&mut self, superblock: &mut Superblock) {
        let Some(mut digest) = self.digest.take() else { return };
        for field in [superblock.leb_count_max, superblock.leb_size, superblock.min_io_size] {
            digest.update(&field.to_le_bytes());
        }
        let mut uuid = digest.digest128().to_be_bytes();
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        superblock.uuid = uuid;
    }

    /// Hash of a written node; [`Digest::NONE`] unless nodes are hashed.
    pub(super) fn hash_of(&self, place: Place) -> Digest {
        let known = self.auth.as_ref().and_then(|auth| auth.known(place.into()));
        known.copied().unwrap_or(Digest::NONE)
    }

    pub(super) fn into_sink(self) -> S {
        self.sink
    }
}

/// Pads `buffer` from `offset` to a multiple of the write size, with a padding node or, where none
/// fits, padding bytes. Returns the padded end.
fn pad(buffer: &mut [u8], offset: u32, write_size: u32) -> u32 {
    debug_assert!(offset.is_multiple_of(NODE_ALIGNMENT));
    let end = offset.next_multiple_of(write_size);
    let gap = &mut buffer[offset as usize..end as usize];
    match gap.len().checked_sub(PADDING_NODE_SIZE) {
        Some(more) => {
            Node::Padding(more as u32).emit(0, Group::None, gap);
            gap[PADDING_NODE_SIZE..].fill(0);
        }
        None => gap.fill(PADDING_BYTE),
    }
    end
}
