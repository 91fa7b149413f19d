//! Finds UBI images in a dump, and the size of their erase blocks.
//!
//! An erase counter header starts every erase block, so the distance between two of them is a
//! multiple of the block size, and the most frequent distance is the size itself: a missing or
//! erased block only adds a few larger ones. Images that were made one by one and written one after
//! the other differ in their image sequence number or, if that was fixed, each begin with a volume
//! table.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_api::flash::{Flash, FlashError};
use flysch_wire::ubi::{EC_HEADER_SIZE, EC_MAGIC, EcHeader, LAYOUT_VOLUME, VidHeader};

/// Headers start at multiples of this in any dump we accept, bytes.
const STEP: u64 = 512;
/// Bytes examined to find the block size.
const PROBE_MAX: u64 = 256 << 20;
/// Headers examined to find the block size.
const PROBE_HEADERS: usize = 256;
/// Bytes read at a time if the flash does not support direct access.
const CHUNK: usize = 64 << 10;
/// Erase blocks are at least this large, bytes.
const PEB_SIZE_MIN: u64 = 2048;

/// Erase blocks are at most this large, bytes.
const PEB_SIZE_MAX: u64 = 64 << 20;

/// Location of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UbiImage {
    /// First byte.
    pub start: u64,
    /// Size of an erase block, bytes.
    pub peb_size: u32,
    /// Number of erase blocks, including a truncated last one.
    pub pebs: u32,
    /// Image sequence number; 0 if none is known.
    pub image_sequence: u32,
}

/// Finds every UBI image on `flash`.
///
/// `peb_size` is the erase block size if it is known and not 0; otherwise it is derived from the
/// headers, and the first image need not start at the first byte.
pub fn find_images<F: Flash + ?Sized>(flash: &F, peb_size: Option<u32>) -> Vec<UbiImage> {
    let peb_size = peb_size.filter(|&size| size > 0);
    // The size needs many headers, the place of the first one only that.
    let headers = if peb_size.is_some() { 1 } else { PROBE_HEADERS };
    let Some((first, guess)) = probe(flash, headers) else { return Vec::new() };
    let peb_size = peb_size.map_or(guess, u64::from);
    // Blocks before the first good header may be damaged ones of the same image; what does not
    // start on a block boundary is a prefix.
    let start = first % peb_size;
    let size = flash.geometry().size.saturating_sub(start);
    let pebs = u32::try_from(size.div_ceil(peb_size)).unwrap_or(u32::MAX);
    let whole = UbiImage { start, peb_size: peb_size as u32, pebs, image_sequence: 0 };
    split(flash, &whole)
}

/// The first header, and the block size derived from the first `headers` of them.
fn probe<F: Flash + ?Sized>(flash: &F, headers: usize) -> Option<(u64, u64)> {
    let mut found = Vec::new();
    let mut distances = BTreeMap::new();
    let mut chunk = alloc::vec![0; CHUNK];
    let size = flash.geometry().size.min(PROBE_MAX);
    let mut at = 0;
    while at < size && found.len() < headers {
        let length = (size - at).min(CHUNK as u64) as usize;
        if !matches!(
            flash.read(at, &mut chunk[..length]),
            Ok(_) | Err(FlashError::Uncorrectable { .. })
        ) {
            // Not what was read before.
            chunk.fill(0);
        }
        for (index, head) in chunk[..length].chunks(STEP as usize).enumerate() {
            if head.starts_with(&EC_MAGIC.to_be_bytes()) && EcHeader::parse(head).is_ok() {
                let here = at + index as u64 * STEP;
                if let Some(last) = found.last() {
                    *distances.entry(here - last).or_insert(0_u32) += 1;
                }
                found.push(here);
            }
        }
        at += length as u64;
    }
    let first = *found.first()?;
    let sizes = PEB_SIZE_MIN..=PEB_SIZE_MAX;
    let usable = distances.iter().filter(|(distance, _)| sizes.contains(*distance));
    // Of equally frequent distances the smallest: the others can be its multiples.
    let guess = usable.max_by_key(|&(distance, count)| (*count, core::cmp::Reverse(*distance)));
    let alone = flash.geometry().erase_size.max(PEB_SIZE_MIN as u32);
    Some((first, guess.map_or(u64::from(alone), |(&distance, _)| distance)))
}

/// What one block's headers say about the image to which it belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    sequence: Option<u32>,
    starts_table: bool,
}

/// Splits a run of blocks where one image ends and another begins.
fn split<F: Flash + ?Sized>(flash: &F, whole: &UbiImage) -> Vec<UbiImage> {
    let marks: Vec<Mark> = (0..whole.pebs).map(|peb| mark(flash, whole, peb)).collect();
    let mut counts = BTreeMap::new();
    for sequence in marks.iter().filter_map(|mark| mark.sequence) {
        *counts.entry(sequence).or_insert(0_u32) += 1;
    }
    let is_unknown = |peb: &u32| marks[*peb as usize].sequence == Some(0);
    let last_unknown = (0..whole.pebs).rfind(is_unknown).unwrap_or(0);
    let mut images: Vec<UbiImage> = Vec::new();
    let mut table_seen = false;
    let mut last_header = 0;
    for (peb, mark) in (0..).zip(&marks) {
        let Some(sequence) = mark.sequence else { continue };
        let stray = counts[&sequence] == 1 && counts.len() > 1;
        let new = match images.last_mut() {
            None => true,
            Some(_) if mark.starts_table && table_seen => true,
            // Blocks with 0, as old implementations left it, belong to any image. Where some are
            // on both sides, their image is known now.
            Some(image) if image.image_sequence == 0 && peb < last_unknown && !stray => {
                image.image_sequence = sequence;
                false
            }
            Some(image) => !stray && sequence != 0 && image.image_sequence != sequence,
        };
        if new {
            let start = if images.is_empty() { 0 } else { last_header + 1 };
            close(&mut images, whole, start);
            images.push(UbiImage {
                start: whole.start + u64::from(start) * u64::from(whole.peb_size),
                image_sequence: sequence,
                ..*whole
            });
            table_seen = false;
        }
        table_seen |= mark.starts_table;
        last_header = peb;
    }
    close(&mut images, whole, whole.pebs);
    images
}

/// Ends the last image before block `end`.
fn close(images: &mut [UbiImage], whole: &UbiImage, end: u32) {
    if let Some(image) = images.last_mut() {
        let first = (image.start - whole.start) / u64::from(whole.peb_size);
        image.pebs = end - first as u32;
    }
}

fn mark<F: Flash + ?Sized>(flash: &F, whole: &UbiImage, peb: u32) -> Mark {
    let at = whole.start + u64::from(peb) * u64::from(whole.peb_size);
    let mut header = [0; EC_HEADER_SIZE];
    let mut read = |offset: u64| flash.read(offset, &mut header).is_ok().then_some(header);
    let ec = read(at).and_then(|bytes| EcHeader::parse(&bytes).ok());
    let vid = ec
        .and_then(|ec| read(at + u64::from(ec.vid_header_offset)))
        .and_then(|bytes| VidHeader::parse(&bytes).ok());
    // Only images straight from ubinize have sequence number 0 here; in a used device an old copy
    // of the table may still lie about.
    let starts_table =
        vid.is_some_and(|vid| vid.volume == LAYOUT_VOLUME && vid.lnum == 0 && vid.sequence == 0);
    Mark { sequence: ec.map(|ec| ec.image_sequence), starts_table }
}
