//! Tears the page that was written last, as a power cut in the middle of programming it would.

use std::io;
use std::path::Path;

use crate::noise::Noise;

/// The structure of a flash image.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Number of bytes written at a time: a page; on NOR the write buffer.
    pub(crate) page: usize,
    /// Number of out-of-band bytes after each page, if they are in the image.
    pub(crate) oob: usize,
    /// Pages per erase block times `page`.
    pub(crate) block: usize,
    /// Whether blocks have UBI headers, which give their order.
    pub(crate) is_ubi: bool,
}

/// Copies the image with one of the last written pages torn: from some offset in the page on, it is
/// erased or random. Prints on standard output what was torn.
pub(crate) fn tear(from: &Path, to: &Path, shape: Shape, seed: u64) -> io::Result<()> {
    let mut noise = Noise::new(seed);
    let mut image = std::fs::read(from)?;
    let stride = shape.page + shape.oob;
    let block_len = shape.block / shape.page * stride;
    let mut blocks: Vec<(u64, usize, usize)> = vec![];
    for (block, bytes) in image.chunks(block_len).enumerate() {
        if let Some(page) = last_page(bytes, shape, stride) {
            let room = (bytes.len() / stride - page) as u64;
            blocks.push((order(bytes, shape).unwrap_or(room), block, page));
        }
    }
    blocks.sort_unstable();
    let recent = &blocks[blocks.len().saturating_sub(if shape.is_ubi { 3 } else { 1 })..];
    if recent.is_empty() {
        return Err(io::Error::other("no block is half written"));
    }
    let &(_, block, page) = noise.pick(recent);
    let start = block * block_len + page * stride;
    let skip = noise.below(shape.page as u64) as usize;
    let with_ones = noise.chance(2);
    for byte in &mut image[start + skip..start + shape.page] {
        *byte = if with_ones { 0xFF } else { noise.next() as u8 };
    }
    let how = if with_ones { "erased" } else { "random" };
    println!("tore block {block} page {page} from byte {skip} on: {how}");
    std::fs::write(to, image)
}

/// The last written page of a partly written block, not counting headers.
fn last_page(block: &[u8], shape: Shape, stride: usize) -> Option<usize> {
    let written = |page: &[u8]| page[..shape.page].iter().any(|&byte| byte != 0xFF);
    let pages: Vec<&[u8]> = block.chunks_exact(stride).collect();
    let last = pages.iter().rposition(|page| written(page))?;
    // The first pages are UBI's headers, or JFFS2's marker of an erased block.
    let first = if shape.is_ubi { 128_usize.div_ceil(shape.page).max(2) } else { 1 };
    (last >= first && last + 1 < pages.len()).then_some(last)
}

/// A value that is higher in a block that was begun later. `None` for JFFS2, which does not record
/// it, but the block that it is writing to has more room than the completed ones.
fn order(block: &[u8], shape: Shape) -> Option<u64> {
    if !shape.is_ubi {
        return None;
    }
    let at = block.windows(4).position(|bytes| bytes == b"UBI!").unwrap_or(0);
    let sequence = block.get(at + 40..at + 48).and_then(|bytes| bytes.try_into().ok());
    Some(sequence.map_or(0, u64::from_be_bytes))
}
