use std::vec;
use std::vec::Vec;

use flysch_random::XorShift64;
use proptest::prelude::*;

use super::*;
use crate::Bch;
use crate::bbt::BlockState;

pub(super) const BLOCK: u32 = 4 * 2048;

pub(super) fn formats() -> Vec<PageFormat> {
    let hamming = |step, smart_media| Ecc::Hamming { step, smart_media };
    let format = |page_size: u32, oob_size: usize, ecc: Ecc| {
        let len = page_size as usize / ecc.step().max(1) * ecc.code_len();
        let oob = match ecc {
            Ecc::Hamming { .. } => OobLayout::hamming(oob_size, len).unwrap(),
            _ => OobLayout::at_end(oob_size, len).unwrap(),
        };
        PageFormat { page_size, oob, ecc }
    };
    vec![
        format(512, 16, hamming(256, false)),
        format(512, 16, hamming(512, true)),
        format(2048, 64, hamming(256, false)),
        format(2048, 64, hamming(512, false)),
        format(2048, 64, Ecc::Bch(Bch::new(13, 4, 512).unwrap())),
        format(2048, 128, Ecc::Bch(Bch::new(14, 8, 1024).unwrap())),
        format(2048, 64, Ecc::None),
    ]
}

/// A dump of `data` as a driver with `format` would have programmed it.
pub(super) fn dump(format: &PageFormat, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for page in data.chunks(format.page_size as usize) {
        let mut oob = vec![0xFF; format.oob.size];
        let mut codes = Vec::new();
        if format.ecc.step() != 0 {
            for step in page.chunks(format.ecc.step()) {
                let mut code = vec![0; format.ecc.code_len()];
                format.ecc.compute(step, &mut code);
                codes.extend(code);
            }
        }
        let places = format.oob.ecc.iter().flat_map(Clone::clone);
        places.zip(codes).for_each(|(place, byte)| oob[place] = byte);
        bytes.extend_from_slice(page);
        bytes.extend(oob);
    }
    bytes
}

pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = XorShift64::from_state(seed | 1);
    (0..len).map(|_| random.bits() as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_dump_reads_as_what_was_programmed(
        which in 0usize..7, seed: u64, start in 0usize..16000, len in 0usize..16000,
        flip in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let format = &formats()[which];
        let data = noise(seed, 2 * BLOCK as usize);
        let mut bytes = dump(format, &data);
        let pages = data.len() / format.page_size as usize;
        // At most one flipped bit per page, in its data: every scheme corrects that.
        let mut flipped = vec![None; pages];
        if format.ecc.strength() > 0 {
            for index in flip {
                let bit = index.index(data.len() * 8);
                let (page, inside) =
                    (bit / 8 / format.page_size as usize, bit / 8 % format.page_size as usize);
                if flipped[page].is_none() {
                    bytes[page * format.stride() + inside] ^= 1 << (bit % 8);
                    flipped[page] = Some(bit / 8);
                }
            }
        }
        let flash = Dump::new(bytes, format.clone(), BLOCK).unwrap();
        prop_assert_eq!(flash.geometry().size, data.len() as u64);
        let end = (start + len).min(data.len());
        let start = start.min(end);
        let mut buffer = vec![0; end - start];
        let corrected = flash.read(start as u64, &mut buffer).unwrap();
        prop_assert_eq!(&buffer, &data[start..end]);
        // Only the steps that the range lies in are read.
        let step = format.ecc.step().max(1);
        let read = start / step * step..end.next_multiple_of(step);
        let is_read = |at: &&usize| start < end && read.contains(*at);
        let touched = flipped.iter().flatten().filter(is_read).count();
        prop_assert_eq!(corrected.bits as usize, touched);
    }
}

#[test]
fn too_many_bit_errors_name_their_step_and_hand_out_what_was_read() {
    let format = &formats()[2];
    let data = noise(3, BLOCK as usize);
    let mut bytes = dump(format, &data);
    let stride = format.stride();
    bytes[stride + 256] ^= 1;
    bytes[stride + 300] ^= 1;
    let flash = Dump::new(bytes, format.clone(), BLOCK).unwrap();
    let mut buffer = vec![0; BLOCK as usize];
    let error = flash.read(0, &mut buffer).unwrap_err();
    assert_eq!(error, FlashError::Uncorrectable { offset: 2048 + 256 });
    assert_eq!(buffer[..2048], data[..2048]);
    assert_eq!(buffer[4096..], data[4096..]);
    assert_eq!(buffer[2048 + 256], data[2048 + 256] ^ 1);
}

#[test]
fn factory_markers_are_seen_in_every_position() {
    let format = &formats()[4];
    let stride = format.stride();
    let bytes = dump(format, &noise(1, 6 * BLOCK as usize));
    for (page, bad) in [(4, 1), (5, 1), (7, 1), (6, u32::MAX)] {
        let mut bytes = bytes.clone();
        bytes[page * stride + 2048] = 0;
        let flash = Dump::new(bytes, format.clone(), BLOCK).unwrap();
        for block in 0..6 {
            assert_eq!(flash.is_bad(block), Ok(block == bad), "marker in page {page}");
        }
        assert_eq!(flash.is_bad(6), Err(FlashError::OutOfRange));
    }
    let mut bytes = bytes;
    bytes[2048] = 0xF7; // a bit error is no marker
    assert_eq!(Dump::new(bytes, format.clone(), BLOCK).unwrap().is_bad(0), Ok(false));
}

#[test]
fn the_newer_bad_block_table_counts() {
    let format = &formats()[6];
    let blocks = 12;
    let page = |bytes: &mut [u8], block: usize, pattern: &[u8; 4], version: u8, table: &[u8]| {
        let at = block * 4 * format.stride();
        bytes[at..at + table.len()].copy_from_slice(table);
        bytes[at + 2048 + 8..at + 2048 + 12].copy_from_slice(pattern);
        bytes[at + 2048 + 12] = version;
    };
    let mut bytes = dump(format, &vec![0xFF; blocks * BLOCK as usize]);
    page(&mut bytes, 11, b"Bbt0", 255, &[0xFF; 3]);
    page(&mut bytes, 10, b"1tbB", 0, &[0b1111_1100, 0b1101_1111, 0xFF]);
    let flash = Dump::new(bytes, format.clone(), BLOCK).unwrap();
    let table = flash.bad_block_table().unwrap();
    assert_eq!((table.block, table.version), (10, 0), "0 comes after 255");
    assert_eq!(table.state(0), BlockState::Factory);
    assert_eq!(table.state(6), BlockState::Worn);
    assert_eq!(table.state(1), BlockState::Good);
    assert_eq!(table.state(8), BlockState::Reserved);
    let bad: Vec<u32> = (0..12).filter(|&block| flash.is_bad(block).unwrap()).collect();
    assert_eq!(bad, [0, 6, 8, 9, 10, 11]);
}

#[test]
fn free_bytes_come_in_the_order_of_the_layout() {
    let format = &formats()[0];
    let mut bytes = dump(format, &[0xFF; 512]);
    (0..16).for_each(|i| bytes[512 + i] = i as u8);
    let flash = Dump::new(bytes, format.clone(), 512).unwrap();
    let mut free = [0; 8];
    assert!(flash.read_oob(0, OobMode::Auto, &mut free).is_ok());
    assert_eq!(free, [8, 9, 10, 11, 12, 13, 14, 15]);
    let mut all = [0; 16];
    assert!(flash.read_oob(0, OobMode::Place, &mut all).is_ok());
    assert_eq!(all[5], 5);
    assert_eq!(flash.read_oob(0, OobMode::Auto, &mut all), Err(FlashError::OutOfRange));
    assert_eq!(flash.read_oob(1, OobMode::Auto, &mut free), Err(FlashError::Misaligned));
    assert_eq!(flash.read_oob(512, OobMode::Auto, &mut free), Err(FlashError::OutOfRange));
}
