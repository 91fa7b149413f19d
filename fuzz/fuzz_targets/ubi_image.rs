//! Whole UBI images: detected, attached by scan and by fastmap, read.
//!
//! The input is pieces of an erased image: offset (4 bytes), length (2 bytes), bytes. The checksums
//! of headers, and of fastmaps that take one block, are corrected afterwards.
#![no_main]

use flysch_api::flash::{Flash, FlashGeometry};
use flysch_api::volume::Volume;
use flysch_mtd::FlashImage;
use flysch_ubi::{AttachOptions, FastmapUse, Ubi, find_images};
use flysch_wire::ubi::crc32;
use flysch_wire::ubi::fastmap::Superblock;
use libfuzzer_sys::fuzz_target;

const PEB_SIZE: usize = 16384;
const PEBS: usize = 16;

fuzz_target!(|input: &[u8]| {
    let mut image = assemble(input);
    for at in (0..image.len()).step_by(PEB_SIZE).flat_map(|peb| [peb, peb + 64]) {
        let crc = crc32(&image[at..at + 60]);
        if image[at..].starts_with(b"UBI") {
            image[at + 60..at + 64].copy_from_slice(&crc.to_be_bytes());
        }
    }
    fix_fastmaps(&mut image);
    let flash = FlashImage::new(image, FlashGeometry::nor(0, PEB_SIZE as u32));
    for found in find_images(&flash, None) {
        for fastmap in [FastmapUse::Use, FastmapUse::Ignore] {
            let Ok(ubi) = Ubi::attach(&flash, found, &AttachOptions { fastmap }) else { continue };
            assert_eq!(ubi.blocks().len(), found.pebs as usize);
            for info in ubi.volumes() {
                let volume = ubi.volume(info.id).expect("it is listed");
                let _ = volume.verify();
                let mut buffer = [0; 4096];
                for lnum in 0..info.reserved_pebs.min(20) {
                    let _ = Volume::read(&volume, lnum, 0, &mut buffer);
                }
                let _ = Flash::read(&volume, u64::from(info.leb_size) - 5, &mut buffer);
            }
        }
    }
});

/// A fastmap that takes one block has its checksum over that block's data.
fn fix_fastmaps(image: &mut [u8]) {
    for peb in image.chunks_exact_mut(PEB_SIZE) {
        let offset = [peb[20], peb[21], peb[22], peb[23]];
        let Some(data) = peb.get_mut(u32::from_be_bytes(offset) as usize..) else { continue };
        if Superblock::parse(data).is_ok() {
            let at = Superblock::CRC_OFFSET;
            data[at..at + 4].fill(0);
            let crc = crc32(data);
            data[at..at + 4].copy_from_slice(&crc.to_be_bytes());
        }
    }
}

fn assemble(mut input: &[u8]) -> Vec<u8> {
    let mut image = vec![0xff; PEB_SIZE * PEBS];
    while let Some((head, rest)) = input.split_first_chunk::<6>() {
        let at = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize % image.len();
        let length = usize::from(u16::from_le_bytes([head[4], head[5]])).min(rest.len());
        let room = length.min(image.len() - at);
        image[at..at + room].copy_from_slice(&rest[..room]);
        input = &rest[length..];
    }
    image
}
