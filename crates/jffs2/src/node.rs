//! Reading nodes from the flash: fixed part, stored bytes, decompressed bytes.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::finding::Place;
use flysch_api::flash::{Flash, FlashError};
use flysch_api::vfs::{Damage, FsError};
use flysch_compress::{Method, decompress};
use flysch_wire::jffs2::{
    ByteOrder, Compression, Dirent, Header, Inode, Jffs2NodeError as NodeError, NodeType, Xattr,
    Xref,
};

use crate::found::{Address, NodeRef};
use crate::{rtime, rubin};

/// Maximum bytes of a file in one node. Linux writes at most a page, 4 KiB to 64 KiB; holes may be
/// longer but store nothing.
pub(crate) const DATA_MAX: u32 = 256 << 10;
/// Maximum stored bytes to read for one node.
const STORED_MAX: u32 = DATA_MAX + 4096;
/// The largest page size to consider if the image does not record its size, bytes.
const UNKNOWN_PAGE: u64 = 4096;
/// The smallest possible page size, bytes.
const LEAST_PAGE: u64 = 512;
/// Maximum bytes that a writer leaves unused at the end of a block: Linux ends a block if the next
/// node, with at most an uncompressed page of 4 KiB, does not fit.
const LEFT_OVER_MAX: u64 = 4096 + Inode::LEN as u64;
/// An interrupted write leaves the end of a node erased; this many bytes are enough to tell.
const TORN_TAIL: usize = 4;

/// The position of a node, for the user.
pub(crate) fn place<F: Flash>(flash: &F, address: Address) -> Place {
    place_at(flash, address.offset())
}

/// The same for any byte of the flash.
pub(crate) fn place_at<F: Flash>(flash: &F, offset: u64) -> Place {
    let geometry = flash.geometry();
    let block = geometry.block_of(offset);
    let inside = offset - geometry.block_start(block);
    Place { peb: Some(block), leb: None, offset: u32::try_from(inside).ok() }
}

/// Reads bytes; uncorrectable bits are left to the checksums to detect.
pub(crate) fn read<F: Flash>(flash: &F, offset: u64, buffer: &mut [u8]) -> Result<(), FsError> {
    match flash.read(offset, buffer) {
        Ok(_) | Err(FlashError::Uncorrectable { .. }) => Ok(()),
        Err(error) => Err(failed(flash, offset, error)),
    }
}

/// Translates an error on reading a node for the caller.
pub(crate) fn failed<F: Flash>(flash: &F, offset: u64, error: FlashError) -> FsError {
    let place = place_at(flash, offset);
    match error {
        FlashError::OutOfRange => {
            FsError::Damaged { structure: "node cut off", place, cause: Damage::Truncated }
        }
        source => FsError::Medium { place, source },
    }
}

/// Whether `node` is a node with this length, of a known type, and all its checksums are right.
pub(crate) fn is_whole(node: &[u8], order: ByteOrder) -> bool {
    let header = Header::parse(node, order);
    let Some(header) = header.ok().filter(|it| it.total_len as usize == node.len()) else {
        return false;
    };
    let checked = match header.node_type {
        NodeType::INODE => Inode::parse(node, order).and_then(|it| it.data(node).map(drop)),
        NodeType::DIRENT => Dirent::parse(node, order).and_then(|it| it.name(node).map(drop)),
        NodeType::XATTR => {
            Xattr::parse(node, order).and_then(|it| it.name_and_value(node).map(drop))
        }
        NodeType::XREF => Xref::parse(node, order).map(drop),
        _ => return false,
    };
    checked.is_ok()
}

/// Whether power was cut while a damaged node of `len` bytes was written. That is so if nothing is
/// written after its page in its block, and
/// - either error correction gives up on that page, whatever else reads correctly in it,
/// - or no node follows in that page, and there is garbage after the node, the node's last page is
///   erased, or the block has so much room left that its writer must have been interrupted.
///
/// Data that decayed elsewhere has none of these signs, and is not taken for something that never
/// existed.
///
/// # Errors
/// What the flash answers instead of giving the bytes that tell.
pub(crate) fn is_cut_off<F: Flash>(
    flash: &F,
    order: ByteOrder,
    offset: u64,
    len: u64,
) -> Result<bool, FlashError> {
    let geometry = flash.geometry();
    let block = geometry.block_of(offset);
    let block_end = geometry.block_start(block) + u64::from(geometry.block_len(block));
    let end = offset.saturating_add(len).next_multiple_of(4);
    let has_pages = geometry.write_size > 1;
    let unit = if has_pages { geometry.write_size.into() } else { UNKNOWN_PAGE };
    let page_end = end.next_multiple_of(unit).min(block_end);
    let is_long = len > u64::from(STORED_MAX) * 2;
    if end > page_end || is_long || !is_erased(flash, page_end, block_end)? {
        return Ok(false);
    }
    let mut bytes = vec![0; (page_end - offset) as usize];
    match flash.read(offset, &mut bytes) {
        Ok(_) | Err(FlashError::Uncorrectable { .. }) => {}
        Err(FlashError::OutOfRange) => return Ok(false),
        Err(error) => return Err(error),
    }
    if has_pages && is_beyond_repair(flash, page_end - unit, unit as usize)? {
        return Ok(true);
    }
    let behind = &bytes[(end - offset) as usize..];
    let mut steps = (0..behind.len()).step_by(4);
    if steps.any(|at| Header::parse(&behind[at..], order).is_ok()) {
        return Ok(false);
    }
    let has_garbage = behind.iter().any(|&byte| byte != 0 && byte != 0xFF);
    // The last page it reaches into may not have been begun, be it for a byte of the node only.
    let unit = if has_pages { unit } else { LEAST_PAGE };
    let last_page = offset.saturating_add(len).saturating_sub(1) / unit * unit;
    let is_tail_erased =
        last_page > offset && bytes[(last_page - offset) as usize..].iter().all(|&b| b == 0xFF);
    let is_bare = behind.iter().all(|&byte| byte == 0xFF);
    Ok(has_garbage || is_tail_erased || (is_bare && block_end - end >= LEFT_OVER_MAX))
}

fn is_beyond_repair<F: Flash>(flash: &F, page: u64, len: usize) -> Result<bool, FlashError> {
    match flash.read(page, &mut vec![0; len]) {
        Ok(_) | Err(FlashError::OutOfRange) => Ok(false),
        Err(FlashError::Uncorrectable { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether everything from `start` to `end` is erased.
fn is_erased<F: Flash>(flash: &F, start: u64, end: u64) -> Result<bool, FlashError> {
    let mut bytes = [0; 1024];
    let mut at = start;
    while at < end {
        let len = (end - at).min(bytes.len() as u64) as usize;
        let is_read = match flash.read(at, &mut bytes[..len]) {
            Ok(_) => true,
            Err(FlashError::Uncorrectable { .. } | FlashError::OutOfRange) => false,
            Err(error) => return Err(error),
        };
        if !is_read || bytes[..len].iter().any(|&byte| byte != 0xFF) {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

/// The verdict on the data of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// The checksum is right.
    Good,
    /// The write was interrupted: the end of the data was never programmed, or [`is_cut_off`].
    /// Linux ignores such a node, and the earlier content is visible.
    Torn,
    /// The checksum is wrong.
    Damaged,
}

/// Reads bytes and caches the last pages: small nodes are close together, and error correction
/// reads a page as a whole.
#[derive(Debug)]
pub(crate) struct Pages<'f, F> {
    flash: &'f F,
    /// Position at which `bytes` begin.
    at: u64,
    bytes: Vec<u8>,
}

impl<'f, F: Flash> Pages<'f, F> {
    pub(crate) fn new(flash: &'f F) -> Self {
        Self { flash, at: 0, bytes: vec![] }
    }

    /// `len` bytes from `offset` on; uncorrectable bits are left to the checksums to detect.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<&[u8], FsError> {
        let geometry = self.flash.geometry();
        let node_end = offset.saturating_add(len as u64);
        if node_end > geometry.size {
            let place = place_at(self.flash, offset);
            return Err(FsError::Damaged {
                structure: "node cut off",
                place,
                cause: Damage::Truncated,
            });
        }
        let unit = u64::from(geometry.write_size.max(1));
        let page = offset / unit * unit;
        let kept_end = self.at + self.bytes.len() as u64;
        if offset < self.at || offset >= kept_end {
            self.bytes.clear();
            self.at = page;
        } else if node_end > kept_end {
            // The last page of what is there may begin this node.
            let old = page.saturating_sub(self.at);
            self.bytes.drain(..old as usize);
            self.at += old;
        }
        let have = self.bytes.len();
        let end = node_end.next_multiple_of(unit).min(geometry.size);
        let want = (end - self.at) as usize;
        if want > have {
            self.bytes.resize(want, 0);
            if let Err(error) = read(self.flash, self.at + have as u64, &mut self.bytes[have..]) {
                self.bytes.clear();
                return Err(error);
            }
        }
        Ok(&self.bytes[(offset - self.at) as usize..][..len])
    }
}

/// Reads the data of nodes; reuses its buffers from one node to the next.
#[derive(Debug)]
pub(crate) struct Reader<'f, F> {
    flash: &'f F,
    order: ByteOrder,
    pages: Pages<'f, F>,
    data: Vec<u8>,
}

impl<'f, F: Flash> Reader<'f, F> {
    pub(crate) fn new(flash: &'f F, order: ByteOrder) -> Self {
        Self { flash, order, pages: Pages::new(flash), data: vec![] }
    }

    /// Reads the fixed part of an inode node and verifies it.
    pub(crate) fn inode(&mut self, node: NodeRef) -> Result<Inode, FsError> {
        let damaged = self.damaged("inode node", node);
        let bytes = self.pages.read(node.address.offset(), Inode::LEN)?;
        let inode = Inode::parse(bytes, self.order).map_err(|error| damaged(damage(error)))?;
        // A summary may say what it likes.
        if inode.ino != node.ino || inode.version != node.version {
            return Err(damaged(Damage::Mismatch));
        }
        Ok(inode)
    }

    /// Reads the node and judges its data.
    pub(crate) fn judge(&mut self, node: NodeRef) -> Result<(Inode, Data), FsError> {
        let (flash, order) = (self.flash, self.order);
        let (inode, stored) = self.load(node)?;
        let offset = node.address.offset();
        let data = match inode.data(stored) {
            Ok(_) => Data::Good,
            Err(_) if is_torn(&inode, stored) => Data::Torn,
            Err(_) => match is_cut_off(flash, order, offset, node.total_len.into()) {
                Ok(true) => Data::Torn,
                Ok(false) => Data::Damaged,
                Err(error) => return Err(failed(flash, offset, error)),
            },
        };
        Ok((inode, data))
    }

    /// The stored bytes of a symlink or device node.
    pub(crate) fn stored(&mut self, node: NodeRef) -> Result<&[u8], FsError> {
        let damaged = self.damaged("inode data", node);
        let (inode, bytes) = self.load(node)?;
        inode.data(bytes).map_err(|error| damaged(damage(error)))
    }

    /// The bytes `skip..skip + output.len()` of the node's data, which must exist.
    pub(crate) fn data(
        &mut self,
        node: NodeRef,
        skip: u32,
        output: &mut [u8],
    ) -> Result<(), FsError> {
        let damaged = self.damaged("inode data", node);
        let mut scratch = core::mem::take(&mut self.data);
        let (inode, bytes) = self.load(node)?;
        let stored = inode.data(bytes).map_err(|error| damaged(damage(error)))?;
        let len = inode.data_len();
        let skip = skip as usize;
        if len > DATA_MAX || skip + output.len() > len as usize {
            return Err(damaged(Damage::Field("data length")));
        }
        let whole = skip == 0 && output.len() == len as usize;
        let result = if whole {
            expand(inode.compression, stored, output)
        } else if inode.compression == Compression::None {
            match stored.get(skip..skip + output.len()) {
                Some(part) => {
                    output.copy_from_slice(part);
                    Ok(())
                }
                None => Err(Expand::Corrupt),
            }
        } else {
            scratch.resize(len as usize, 0);
            let result = expand(inode.compression, stored, &mut scratch);
            output.copy_from_slice(&scratch[skip..skip + output.len()]);
            result
        };
        self.data = scratch;
        result.map_err(|error| match error {
            Expand::Corrupt => damaged(Damage::Compression),
            Expand::Unknown(what) => FsError::Unsupported(what),
        })
    }

    /// The error for a damaged part of `node`, still without the kind of damage.
    fn damaged(
        &self,
        structure: &'static str,
        node: NodeRef,
    ) -> impl Fn(Damage) -> FsError + use<F> {
        let place = place(self.flash, node.address);
        move |cause| FsError::Damaged { structure, place, cause }
    }

    /// Reads the whole node, as far as a truncated image contains it.
    fn load(&mut self, node: NodeRef) -> Result<(Inode, &[u8]), FsError> {
        let damaged = self.damaged("inode node", node);
        let offset = node.address.offset();
        let left = self.flash.geometry().size.saturating_sub(offset);
        let len = u64::from(node.total_len.min(Inode::LEN as u32 + STORED_MAX)).min(left) as usize;
        let bytes = match self.flash.point(offset, len) {
            Some(bytes) => bytes,
            None => self.pages.read(offset, len)?,
        };
        let inode = match Inode::parse(bytes, self.order) {
            Ok(inode) if inode.ino == node.ino && inode.version == node.version => inode,
            Ok(_) => return Err(damaged(Damage::Mismatch)),
            Err(error) => return Err(damaged(damage(error))),
        };
        Ok((inode, bytes))
    }
}

fn is_torn(inode: &Inode, node: &[u8]) -> bool {
    let Some(stored) = node.get(Inode::LEN..Inode::LEN + inode.stored_len() as usize) else {
        return false;
    };
    let tail = &stored[stored.len().saturating_sub(TORN_TAIL)..];
    !tail.is_empty() && tail.iter().all(|&byte| byte == 0xFF)
}

/// What is wrong with a node, in the terms common to all formats.
pub(crate) fn damage(error: NodeError) -> Damage {
    match error {
        NodeError::Truncated => Damage::Truncated,
        NodeError::Magic(_) => Damage::Magic,
        NodeError::Type(_) | NodeError::SummaryEntry(_) => Damage::Kind,
        NodeError::Length => Damage::Field("length"),
        NodeError::HeaderCrc
        | NodeError::NodeCrc
        | NodeError::NameCrc
        | NodeError::DataCrc
        | NodeError::SummaryCrc => Damage::Checksum,
    }
}

/// Why data could not be expanded.
enum Expand {
    Corrupt,
    Unknown(&'static str),
}

/// Expands `stored` so that it fills `output`.
fn expand(compression: Compression, stored: &[u8], output: &mut [u8]) -> Result<(), Expand> {
    match compression {
        Compression::None | Compression::Copy => {
            let bytes = stored.get(..output.len()).ok_or(Expand::Corrupt)?;
            output.copy_from_slice(bytes);
            Ok(())
        }
        Compression::Zero => {
            output.fill(0);
            Ok(())
        }
        Compression::Rtime => rtime::decompress(stored, output).ok_or(Expand::Corrupt),
        // Linux has these two numbers crosswise.
        Compression::RubinMips => rubin::decompress_dynamic(stored, output).ok_or(Expand::Corrupt),
        Compression::DynRubin => {
            rubin::decompress_fixed(stored, output);
            Ok(())
        }
        Compression::Zlib => inflate(Method::Zlib, stored, output),
        Compression::Lzo => inflate(Method::Lzo, stored, output),
        Compression::Lzma => Err(Expand::Unknown("LZMA compression of OpenWrt's kernels")),
        Compression::Unknown(_) => Err(Expand::Unknown("compression of an unknown kind")),
    }
}

fn inflate(method: Method, stored: &[u8], output: &mut [u8]) -> Result<(), Expand> {
    match decompress(method, stored, output) {
        Ok(len) if len == output.len() => Ok(()),
        _ => Err(Expand::Corrupt),
    }
}
