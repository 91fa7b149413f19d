//! Whole JFFS2 images: mounted by summaries and by scanning, checked, walked, read.
//!
//! The input is pieces of an erased image: offset (4 bytes), length (2 bytes), bytes. The checksums
//! of nodes are corrected afterwards, so that their fields are reached.
#![no_main]

use flysch_api::flash::FlashGeometry;
use flysch_jffs2::{Jffs2, check};
use flysch_mtd::FlashImage;
use flysch_wire::jffs2::{ByteOrder, Header, crc32};
use libfuzzer_sys::fuzz_target;

const ERASE_SIZE: usize = 16384;
const BLOCKS: usize = 6;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, pieces)) = input.split_first() else { return };
    let order = ByteOrder::ALL[usize::from(choice & 1)];
    let mut image = assemble(pieces);
    if choice & 2 == 0 {
        fix_checksums(&mut image, order);
    }
    let flash = FlashImage::new(image, FlashGeometry::nor(0, ERASE_SIZE as u32));
    let Ok(fs) = Jffs2::mount(&flash, Some(order)) else { return };
    let report = flysch_vfs::verify(&fs);
    assert!(report.violations.len() <= flysch_vfs::VIOLATIONS_MAX);
    let _ = check(&flash, Some(order), &mut |_| {});
});

/// Corrects the checksums of headers and fixed parts wherever the magic number is at a node
/// boundary. The length covered by a checksum and its position depend on the node type.
fn fix_checksums(image: &mut [u8], order: ByteOrder) {
    let magic: [u8; 2] = if order == ByteOrder::Little { [0x85, 0x19] } else { [0x19, 0x85] };
    for at in (0..image.len() - 72).step_by(4) {
        if image[at..at + 2] != magic {
            continue;
        }
        let Ok(header) = Header::parse_unchecked(&image[at..], order) else { continue };
        header.emit(order, &mut image[at..]);
        let (covered, place) = match header.node_type.0 {
            0xE001 => (32, 32),
            0xE002 => (60, 64),
            0x2006 => (24, 28),
            0xE008 => (28, 28),
            0xE009 => (24, 24),
            _ => continue,
        };
        let crc = crc32(&image[at..at + covered]);
        let bytes = match order {
            ByteOrder::Little => crc.to_le_bytes(),
            ByteOrder::Big => crc.to_be_bytes(),
        };
        image[at + place..at + place + 4].copy_from_slice(&bytes);
    }
}

fn assemble(mut input: &[u8]) -> Vec<u8> {
    let mut image = vec![0xff; ERASE_SIZE * BLOCKS];
    while let Some((head, rest)) = input.split_first_chunk::<6>() {
        let at = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize % image.len();
        let length = usize::from(u16::from_le_bytes([head[4], head[5]])).min(rest.len());
        let room = length.min(image.len() - at);
        image[at..at + room].copy_from_slice(&rest[..room]);
        input = &rest[length..];
    }
    image
}
