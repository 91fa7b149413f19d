//! Where a content ends behind its last structure.
//!
//! Neither UBI nor JFFS2 says how long it is. Its last block is the last one with a structure of
//! it; erased blocks behind that are its own as well, and anything else is somebody else's: a
//! kernel, an archive, a signature.

use alloc::vec;
use core::ops::Range;

use flysch_api::flash::{Flash, FlashError};
use flysch_wire::jffs2;
use flysch_wire::ubi::VID_MAGIC;

use super::{Content, Hit, WINDOW, read_some, recognise_jffs2};

/// So many whole blocks at the end of a flash, without a structure and not erased, are damaged
/// ones of the content before them.
const DAMAGED_MAX: u64 = 2;
/// In an erased block at most one byte of so many has a flipped bit.
const FLIPPED_SHARE: usize = 256;

/// The end of the content of `hit`, whose blocks of `erase_size` bytes are in `range`.
pub(super) fn end<F: Flash>(
    flash: &F,
    hit: &Hit,
    range: Range<u64>,
    erase_size: u32,
) -> Result<u64, FlashError> {
    let spacing = u64::from(erase_size.max(1));
    let mut blocks = (range.end - range.start).div_ceil(spacing);
    // The block of the hit itself needs no proof.
    let first = (hit.offset - range.start) / spacing + 1;
    while blocks > first
        && !is_own(flash, hit.content, range.start + (blocks - 1) * spacing, spacing)?
    {
        blocks -= 1;
    }
    let mut at = range.start + blocks * spacing;
    while at + spacing <= range.end && is_erased(flash, at, spacing)? {
        at += spacing;
    }
    let rest = range.end.saturating_sub(at);
    let is_damage = rest.is_multiple_of(spacing) && rest / spacing <= DAMAGED_MAX;
    let is_last = range.end == flash.geometry().size;
    Ok(if is_damage && is_last { range.end } else { at.min(range.end) })
}

/// Whether the block at `at` has a structure of `content`, perhaps a damaged one.
fn is_own<F: Flash>(
    flash: &F,
    content: Content,
    at: u64,
    spacing: u64,
) -> Result<bool, FlashError> {
    match content {
        Content::Ubi { vid_header_offset, .. } => {
            let mut magic = [0; 4];
            read_some(flash, at, &mut magic)?;
            if magic == *b"UBI#" {
                return Ok(true);
            }
            let vid = at + u64::from(vid_header_offset);
            Ok(read_some(flash, vid, &mut magic)? == magic.len()
                && magic == VID_MAGIC.to_be_bytes())
        }
        Content::Jffs2(order) => {
            let mut bytes = vec![0; usize::try_from(spacing).unwrap_or(WINDOW)];
            let len = read_some(flash, at, &mut bytes)?;
            let starts = (0..len).step_by(jffs2::ALIGNMENT);
            Ok(starts.into_iter().any(|start| recognise_jffs2(&bytes[start..len], order).is_some()))
        }
        Content::Ubifs { .. } => Ok(true),
    }
}

/// Whether the block at `at` is erased, but for some flipped bits.
fn is_erased<F: Flash>(flash: &F, at: u64, spacing: u64) -> Result<bool, FlashError> {
    let mut bytes = vec![0; usize::try_from(spacing).unwrap_or(WINDOW)];
    let len = read_some(flash, at, &mut bytes)?;
    let flipped = bytes[..len].iter().filter(|&&byte| byte != 0xFF);
    let is_flip = |byte: &u8| byte.count_zeros() == 1;
    let (mut count, mut all) = (0, true);
    flipped.for_each(|byte| (count, all) = (count + 1, all && is_flip(byte)));
    Ok(all && count <= len / FLIPPED_SHARE)
}
