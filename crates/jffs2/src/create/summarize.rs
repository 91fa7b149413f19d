//! A pass over an image that adds summaries to its blocks, as sumtool does.

use alloc::vec;

use flysch_api::flash::{Flash, FlashError};
use flysch_wire::jffs2::{ByteOrder, Dirent, Header, Inode, NodeType, SummaryEntry, Xattr, Xref};

use super::blocks::{Blocks, Written};
use super::{Jffs2CreateError, Jffs2Options};

/// Writes the nodes of `flash` into blocks with summaries. Of `options`, the byte order, the sizes
/// of blocks and clean markers, padding and size limit are used. Nodes keep their order; obsolete
/// or damaged nodes and padding are dropped.
///
/// # Errors
/// [`Jffs2CreateError::Output`], [`Jffs2CreateError::Full`]; [`Jffs2CreateError::Options`] if the
/// flash cannot be read.
pub fn summarize<F, E, S>(
    flash: &F,
    options: &Jffs2Options,
    sink: S,
) -> Result<Written, Jffs2CreateError<E>>
where
    F: Flash,
    S: FnMut(&[u8]) -> Result<(), E>,
{
    let geometry = *flash.geometry();
    let mut blocks = Blocks::new(&Jffs2Options { summary: true, ..options.clone() }, sink);
    let mut bytes = vec![0; geometry.block_len(0) as usize];
    for block in 0..geometry.blocks() {
        let bytes = &mut bytes[..geometry.block_len(block) as usize];
        if flash.is_bad(block).unwrap_or(false) {
            continue;
        }
        match flash.read(geometry.block_start(block), bytes) {
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => {}
            Err(_) => return Err(Jffs2CreateError::Options("the image cannot be read")),
        }
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let header = Header::parse(rest, options.order).ok();
            let len = header.map_or(0, |header| header.total_len as usize);
            let Some(node) = rest.get(..len).filter(|node| node.len() >= Header::LEN) else {
                at += 4;
                continue;
            };
            at += len.next_multiple_of(4);
            if let Some(entry) = entry_of(node, options.order) {
                blocks.reserve(len, entry.len())?;
                blocks.append(len, entry, |out| {
                    out[..len].copy_from_slice(node);
                    len
                });
            }
        }
    }
    blocks.finish()
}

/// The summary entry of a node, with its offset left open; `None` if the node is to be dropped.
pub(crate) fn entry_of(node: &[u8], order: ByteOrder) -> Option<SummaryEntry<'_>> {
    let header = Header::parse(node, order).ok()?;
    let (offset, total_len) = (0, header.total_len);
    Some(match header.node_type {
        NodeType::INODE => {
            let inode = Inode::parse(node, order).ok()?;
            inode.data(node).ok()?;
            SummaryEntry::Inode { ino: inode.ino, version: inode.version, offset, total_len }
        }
        NodeType::DIRENT => {
            let Dirent { pino, version, ino, kind, .. } = Dirent::parse(node, order).ok()?;
            let name = Dirent::parse(node, order).ok()?.name(node).ok()?;
            SummaryEntry::Dirent { total_len, offset, pino, version, ino, kind, name }
        }
        NodeType::XATTR => {
            let xattr = Xattr::parse(node, order).ok()?;
            xattr.name_and_value(node).ok()?;
            SummaryEntry::Xattr { xid: xattr.xid, version: xattr.version, offset, total_len }
        }
        NodeType::XREF => {
            Xref::parse(node, order).ok()?;
            SummaryEntry::Xref { offset }
        }
        _ => return None,
    })
}
