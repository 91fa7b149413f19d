//! Fields of structures, changed with their checksums corrected.

use flysch_wire::jffs2::{self, ByteOrder};
use flysch_wire::{ubi, ubifs};

use super::Sample;
use crate::ubifs::Random;

/// The structures to look for.
#[derive(Clone, Copy, Debug)]
enum Structure {
    /// Starts with the UBIFS magic number.
    Ubifs,
    /// Starts with the JFFS2 magic number in this byte order.
    Jffs2(ByteOrder),
    /// An erase counter or volume identifier header.
    Ubi,
    /// A record of the volume table; the first few are in every layout block.
    Record,
}

/// Changes one field somewhere.
pub(super) fn edit(sample: &Sample, bytes: &mut [u8], random: &mut Random) {
    // From a random position, wrapping around at the end: all are equally likely.
    let start = random.below(bytes.len() as u64) as usize & !3;
    let places = (start..bytes.len()).chain(0..start).step_by(4);
    let ubi_wanted = random.below(3) == 0;
    let mut found = places.filter_map(|at| Some((at, structure(&bytes[at..], ubi_wanted)?)));
    let Some((at, structure)) = found.next() else { return };
    let at = match structure {
        // The table follows the headers, wherever the data begins.
        Structure::Record => at + sample.block_size.min(2048),
        _ => at,
    };
    if at < bytes.len() {
        change(&mut bytes[at..], structure, random);
    }
}

fn structure(bytes: &[u8], ubi_wanted: bool) -> Option<Structure> {
    match *bytes.first_chunk::<4>()? {
        [0x31, 0x18, 0x10, 0x06] if !ubi_wanted => Some(Structure::Ubifs),
        [0x85, 0x19, ..] => Some(Structure::Jffs2(ByteOrder::Little)),
        [0x19, 0x85, ..] => Some(Structure::Jffs2(ByteOrder::Big)),
        [b'U', b'B', b'I', b'#'] if ubi_wanted => Some(Structure::Ubi),
        [b'U', b'B', b'I', b'!'] if ubi_wanted => {
            let is_table = bytes.get(8..10) == Some(&[0x7F, 0xFF]);
            Some(if is_table { Structure::Record } else { Structure::Ubi })
        }
        _ => None,
    }
}

/// A number likely to be at some limit.
fn interesting(random: &mut Random, before: u32) -> u32 {
    match random.below(10) {
        0 => 0,
        1 => u32::MAX,
        2 => i32::MAX as u32,
        3 => 1 << random.below(32),
        4 => (1u64 << random.below(32)).wrapping_sub(1) as u32,
        5 => before.wrapping_add(1),
        6 => before.wrapping_sub(1),
        7 => before ^ 1 << random.below(32),
        8 => random.below(4096) as u32,
        _ => random.below(1 << 32) as u32,
    }
}

/// Changes 1, 2 or 4 bytes between `from` and `to`.
fn change_field(bytes: &mut [u8], from: usize, to: usize, big: bool, random: &mut Random) {
    let width = [1, 2, 4][random.below(3) as usize];
    let to = to.min(bytes.len());
    if from + width > to {
        return;
    }
    let at = from + random.below((to - from) as u64 / width as u64) as usize * width;
    let field = &mut bytes[at..at + width];
    let mut word = [0; 4];
    if big {
        word[4 - width..].copy_from_slice(field);
        let value = interesting(random, u32::from_be_bytes(word)).to_be_bytes();
        field.copy_from_slice(&value[4 - width..]);
    } else {
        word[..width].copy_from_slice(field);
        let value = interesting(random, u32::from_le_bytes(word)).to_le_bytes();
        field.copy_from_slice(&value[..width]);
    }
}

fn change(bytes: &mut [u8], structure: Structure, random: &mut Random) {
    match structure {
        Structure::Ubifs => change_ubifs(bytes, random),
        Structure::Jffs2(order) => change_jffs2(bytes, order, random),
        Structure::Ubi => {
            change_field(bytes, 4, 60, true, random);
            seal_big_endian(bytes, 60);
        }
        Structure::Record => {
            change_field(bytes, 0, 168, true, random);
            seal_big_endian(bytes, 168);
        }
    }
}

fn seal_big_endian(bytes: &mut [u8], covered: usize) {
    if bytes.len() >= covered + 4 {
        let crc = ubi::crc32(&bytes[..covered]);
        bytes[covered..covered + 4].copy_from_slice(&crc.to_be_bytes());
    }
}

fn change_ubifs(bytes: &mut [u8], random: &mut Random) {
    // Mostly the fixed part, which carries the most meaning.
    let reach = if random.below(4) == 0 { 4096 } else { 200 };
    let length = |bytes: &[u8]| {
        let field = bytes.get(16..20).and_then(|field| field.first_chunk::<4>());
        field.map_or(0, |field| u32::from_le_bytes(*field) as usize)
    };
    change_field(bytes, 8, length(bytes).min(reach), false, random);
    let end = length(bytes);
    if (24..=bytes.len()).contains(&end) {
        let crc = ubifs::crc32(&bytes[8..end]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

fn change_jffs2(bytes: &mut [u8], order: ByteOrder, random: &mut Random) {
    let Ok(header) = jffs2::Header::parse_unchecked(bytes, order) else { return };
    let is_header = random.below(8) == 0;
    let to = if is_header { 8 } else { (header.total_len as usize).min(120) };
    change_field(bytes, if is_header { 2 } else { 12 }, to, order == ByteOrder::Big, random);
    let Ok(header) = jffs2::Header::parse_unchecked(bytes, order) else { return };
    header.emit(order, bytes);
    let put = |bytes: &mut [u8], from: usize, to: usize, at: usize| {
        let Some(covered) = bytes.get(from..to) else { return };
        let crc = jffs2::crc32(covered);
        let crc = if order == ByteOrder::Big { crc.to_be_bytes() } else { crc.to_le_bytes() };
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&crc);
        }
    };
    let end = header.total_len as usize;
    match header.node_type.0 | 0x2000 {
        0xE001 => {
            put(bytes, 40, end, 36);
            put(bytes, 0, 32, 32);
        }
        0xE002 => {
            put(bytes, 68, end, 60);
            put(bytes, 0, 60, 64);
        }
        0x2006 => {
            put(bytes, 32, end, 24);
            put(bytes, 0, 24, 28);
        }
        0xE008 => {
            put(bytes, 32, end, 24);
            put(bytes, 0, 28, 28);
        }
        0xE009 => put(bytes, 0, 24, 24),
        _ => {}
    }
}
