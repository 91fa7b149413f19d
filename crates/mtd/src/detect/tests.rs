use std::vec;
use std::vec::Vec;

use flysch_api::flash::{FlashMut, Kind};
use flysch_wire::jffs2::{Compression, Inode};
use flysch_wire::ubi::EcHeader;

use super::*;
use crate::dump::tests::noise;
use crate::{Bch, Dump, Ecc, OobLayout};

/// A JFFS2 with inode nodes of the maximum length, none of which crosses a block.
fn jffs2_image(order: ByteOrder, erase_size: usize, blocks: usize, clean_markers: bool) -> Vec<u8> {
    let mut image = vec![0xFF; erase_size * blocks];
    let mut version = 0;
    for block in image.chunks_mut(erase_size) {
        let mut at = 0;
        if clean_markers {
            let header = jffs2::Header { node_type: jffs2::NodeType::CLEANMARKER, total_len: 12 };
            header.emit(order, block);
            at = 12;
        }
        loop {
            version += 1;
            let data = noise(u64::from(version), 1000 + version as usize * 37 % 3000);
            if at + Inode::LEN + data.len() > erase_size {
                break;
            }
            let inode = Inode {
                ino: 2,
                version,
                mode: 0o100_644,
                uid: 0,
                gid: 0,
                isize: 4096,
                atime: 0,
                mtime: 0,
                ctime: 0,
                offset: 0,
                csize: 0,
                dsize: data.len() as u32,
                compression: Compression::None,
                user_compression: 0,
                flags: 0,
                data_crc: 0,
            };
            at += inode.emit(&data, order, &mut block[at..]).next_multiple_of(4);
        }
    }
    image
}

fn ubi_image(erase_size: usize, blocks: usize, vid: u32, data: u32) -> Vec<u8> {
    let mut image = vec![0xFF; erase_size * blocks];
    for (number, block) in image.chunks_mut(erase_size).enumerate() {
        let header = EcHeader {
            erase_counter: number as u64,
            vid_header_offset: vid,
            data_offset: data,
            image_sequence: 7,
        };
        block[..EC_HEADER_SIZE].copy_from_slice(&header.emit());
    }
    image
}

fn dump(main: &[u8], format: &PageFormat) -> Vec<u8> {
    let mut out = vec![];
    for page in main.chunks(format.page_size as usize) {
        let mut oob = vec![0xFF; format.oob.size];
        if format.ecc.step() != 0 && page.iter().any(|&byte| byte != 0xFF) {
            let mut code = vec![0; format.ecc.code_len()];
            let places: Vec<usize> = format.oob.ecc.iter().flat_map(Clone::clone).collect();
            for (step, places) in page.chunks(format.ecc.step()).zip(places.chunks(code.len())) {
                format.ecc.compute(step, &mut code);
                places.iter().zip(&code).for_each(|(&place, &byte)| oob[place] = byte);
            }
        }
        out.extend_from_slice(page);
        out.extend(oob);
    }
    out
}

#[test]
fn block_sizes_of_jffs2_are_found_in_both_byte_orders() {
    for order in ByteOrder::ALL {
        for (erase_size, blocks) in [(8 << 10, 20), (64 << 10, 12), (128 << 10, 9)] {
            for clean_markers in [false, true] {
                let image = jffs2_image(order, erase_size, blocks, clean_markers);
                let found = plain_regions(&image, &Hints::default()).unwrap();
                assert_eq!(found.len(), 1);
                assert_eq!(found[0].content, Content::Jffs2(order));
                assert_eq!(found[0].range, 0..image.len() as u64);
                assert_eq!(found[0].geometry.erase_size as usize, erase_size, "{clean_markers}");
            }
        }
    }
}

#[test]
fn erased_blocks_at_the_front_are_part_of_a_jffs2() {
    let mut image = vec![0xFF; 5 << 16];
    image.extend(jffs2_image(ByteOrder::Little, 64 << 10, 9, true));
    let size = image.len() as u64;
    assert_eq!(plain_regions(&image, &Hints::default()).unwrap()[0].range, 0..size);
    image[77] = 0;
    assert_eq!(plain_regions(&image, &Hints::default()).unwrap()[0].range, 5 << 16..size);
}

fn ubifs_image(leb_size: u32, leb_count: u32) -> Vec<u8> {
    let superblock = ubifs::Superblock {
        key_hash: 0,
        key_format: 0,
        flags: ubifs::SuperblockFlags::default(),
        min_io_size: 8,
        leb_size,
        leb_count,
        leb_count_max: leb_count,
        bud_bytes_max: 0,
        log_lebs: 2,
        lpt_lebs: 2,
        orphan_lebs: 1,
        journal_heads: 1,
        fanout: 8,
        lsave_count: 256,
        format_version: 4,
        default_compression: 0,
        reserved_owner: 0,
        reserved_group: 0,
        reserved_size: 0,
        time_granularity: 1,
        uuid: [0; 16],
        ro_compat_version: 0,
        hmac: [0; ubifs::HASH_MAX],
        hmac_wkm: [0; ubifs::HASH_MAX],
        hash_algorithm: 0,
        master_hash: [0; ubifs::HASH_MAX],
    };
    let mut image = vec![0xFF; 1 << 18];
    ubifs::Node::Superblock(superblock).emit(1, ubifs::Group::None, &mut image);
    image
}

#[test]
fn a_ubifs_without_room_is_none() {
    let found = |image: &Vec<u8>| plain_regions(image, &Hints::default()).unwrap();
    let good = found(&ubifs_image(16 << 10, 16));
    assert_eq!((good[0].range.clone(), good[0].geometry.erase_size), (0..1 << 18, 16 << 10));
    for (leb_size, leb_count) in [(0, 16), (8, 16), (u32::MAX, 16), (16 << 10, 0)] {
        assert_eq!(found(&ubifs_image(leb_size, leb_count)), [], "{leb_size} {leb_count}");
    }
}

#[test]
fn headers_of_ubi_tell_block_page_and_sub_page() {
    for (erase_size, vid, data, page, sub_page, kind) in [
        (128 << 10, 512, 2048, 2048, 512, Kind::Nand),
        (128 << 10, 2048, 4096, 2048, 2048, Kind::Nand),
        (16 << 10, 512, 1024, 512, 512, Kind::Nand),
        (1 << 20, 8192, 16384, 8192, 8192, Kind::Nand),
        (64 << 10, 64, 128, 1, 1, Kind::Nor),
    ] {
        let mut image = ubi_image(erase_size, 9, vid, data);
        image[2 * erase_size..3 * erase_size].fill(0xFF); // one header lost
        image[5 * erase_size] ^= 1; // one damaged
        let found = plain_regions(&image, &Hints::default()).unwrap();
        assert_eq!(found.len(), 1);
        let geometry = found[0].geometry;
        assert_eq!(geometry.erase_size as usize, erase_size);
        assert_eq!((geometry.write_size, geometry.sub_page_size), (page, sub_page));
        assert_eq!(geometry.kind, kind);
        assert_eq!(found[0].range, 0..image.len() as u64);
    }
}

#[test]
fn contents_behind_garbage_and_behind_each_other_are_found() {
    let mut image = noise(9, 64 << 10);
    image.extend(jffs2_image(ByteOrder::Big, 64 << 10, 9, false));
    let ubi_at = image.len() as u64;
    image.extend(ubi_image(128 << 10, 4, 2048, 4096));
    let found = plain_regions(&image, &Hints::default()).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].content, &found[0].range),
        (Content::Jffs2(ByteOrder::Big), &((64 << 10)..ubi_at))
    );
    assert_eq!(found[1].range, ubi_at..image.len() as u64);
    assert_eq!(found[1].geometry.erase_size, 128 << 10);
}

#[test]
fn what_follows_a_content_is_not_a_part_of_it() {
    const BLOCK: usize = 16 << 10;
    let contents = [ubi_image(BLOCK, 24, 512, 1024), jffs2_image(ByteOrder::Big, BLOCK, 24, true)];
    let end_of = |image: Vec<u8>| {
        let flash = FlashImage::new(image, FlashGeometry::nor(0, 1 << 16));
        let found = regions(&flash, &Hints::default()).unwrap();
        assert_eq!(found[0].geometry.erase_size as usize, BLOCK);
        (found.len(), found[0].range.end as usize)
    };
    for content in contents {
        let whole = content.len();
        let with = |more: &[u8]| end_of([&content[..], more].concat());
        assert_eq!(with(&noise(1, 50 * BLOCK)), (1, whole), "an archive");
        assert_eq!(with(&noise(1, 5000)), (1, whole), "a signature");
        assert_eq!(with(&[0xFF; 3 * BLOCK]), (1, whole + 3 * BLOCK), "erased");
        let both = [vec![0xFF; 2 * BLOCK], noise(1, 20 * BLOCK)].concat();
        assert_eq!(with(&both), (1, whole + 2 * BLOCK));
        // The last blocks of a flash may be damaged.
        assert_eq!(with(&noise(1, 2 * BLOCK)), (1, whole + 2 * BLOCK));
        let mut flipped = vec![0xFF; BLOCK];
        flipped[77] = 0xFD;
        assert_eq!(with(&flipped), (1, whole + BLOCK), "a flipped bit");
        let mut holes = content.clone();
        holes[BLOCK..7 * BLOCK].copy_from_slice(&noise(9, 6 * BLOCK));
        let found = regions(
            &FlashImage::new(holes, FlashGeometry::nor(0, 1 << 16)),
            &Hints { erase_size: Some(BLOCK as u32), ..Hints::default() },
        );
        assert_eq!(found.unwrap()[0].range.end as usize, whole, "damage in the middle");
    }
}

#[test]
fn sizes_of_nothing_are_no_hints() {
    let hints = Hints { erase_size: Some(0), page_size: Some(0), oob_size: Some(0), ecc: None };
    for image in [ubi_image(4096, 8, 512, 1024), jffs2_image(ByteOrder::Little, 8192, 8, true)] {
        let flash = FlashImage::new(image, FlashGeometry::nor(0, 1 << 16));
        assert_eq!(regions(&flash, &hints), regions(&flash, &Hints::default()));
        assert!(matches!(page_format(flash.storage(), &hints), Ok(None)));
    }
}

#[test]
fn a_damaged_first_node_belongs_to_its_block() {
    for clean_markers in [false, true] {
        for prefix in [0, 128 << 10] {
            let mut image = noise(4, prefix);
            image.extend(jffs2_image(ByteOrder::Little, 64 << 10, 12, clean_markers));
            image[prefix..prefix + 40].fill(0);
            let found = plain_regions(&image, &Hints::default()).unwrap();
            assert_eq!(found[0].range.start, prefix as u64);
            assert_eq!(found[0].geometry.erase_size, 64 << 10);
        }
    }
}

#[test]
fn nothing_is_found_in_nothing() {
    for image in [vec![], vec![0xFF; 300_000], vec![0; 5], noise(1, 200_000)] {
        assert_eq!(plain_regions(&image, &Hints::default()).unwrap(), []);
        assert!(page_format(&image, &Hints::default()).unwrap().is_none());
    }
}

#[test]
fn page_formats_are_found_with_their_error_correction() {
    let main = jffs2_image(ByteOrder::Little, 128 << 10, 9, false);
    assert!(page_format(&main, &Hints::default()).unwrap().is_none(), "no out-of-band bytes");
    let bch = |m, t, step| Ecc::Bch(Bch::new(m, t, step).unwrap());
    let hamming = |step| Ecc::Hamming { step, smart_media: false };
    for (page_size, oob_size, ecc) in [
        (2048, 64, hamming(256)),
        (512, 16, hamming(256)),
        (4096, 128, hamming(512)),
        (2048, 64, bch(13, 4, 512)),
        (2048, 128, bch(13, 8, 512)),
        (4096, 224, bch(14, 8, 1024)),
        (2048, 64, Ecc::None),
        (4096, 256, Ecc::None),
        (512, 16, Ecc::None),
    ] {
        let len = page_size as usize / ecc.step().max(1) * ecc.code_len();
        let oob = match ecc {
            Ecc::Hamming { .. } => OobLayout::hamming(oob_size, len),
            _ if page_size == 512 => OobLayout::small_page(oob_size, len),
            _ => OobLayout::at_end(oob_size, len),
        };
        let format = PageFormat { page_size, oob: oob.unwrap(), ecc };
        let mut bytes = dump(&main, &format);
        bytes[5000] ^= 0x10; // somewhere in a page or between two
        let found =
            page_format(&bytes, &Hints::default()).unwrap().expect("out-of-band bytes are there");
        assert_eq!((found.page_size, found.oob.size), (page_size, oob_size));
        assert_eq!(found.ecc.step(), format.ecc.step());
        assert_eq!(found.ecc.strength(), format.ecc.strength());
        let flash = Dump::new(bytes, found, 128 << 10).unwrap();
        let regions = regions(&flash, &Hints::default()).unwrap();
        assert_eq!(regions[0].geometry.erase_size, 128 << 10);
    }
}

/// Controllers put codes of their own where others have the marker.
#[test]
fn a_byte_that_most_pages_use_is_no_marker() {
    let main = jffs2_image(ByteOrder::Little, 128 << 10, 9, false);
    let layout = OobLayout::at_end(64, 0).unwrap();
    let format = PageFormat { page_size: 2048, oob: layout, ecc: Ecc::None };
    let plain = dump(&main, &format);
    let mut coded = plain.clone();
    for page in coded.chunks_mut(2112).filter(|page| page[..2048].iter().any(|&it| it != 0xFF)) {
        page[2048..2060].copy_from_slice(b"code 0123456");
    }
    for (mut bytes, is_marked) in [(plain, true), (coded, false)] {
        let block = 64 * 2112;
        bytes[2 * block..3 * block].fill(0);
        let found = page_format(&bytes, &Hints::default()).unwrap().expect("they are there");
        assert_eq!(found.oob.bad_marker, is_marked.then_some(0));
        let mut flash = Dump::new(bytes, found, 128 << 10).unwrap();
        let bad: Vec<u32> = (0..9).filter(|&block| flash.is_bad(block).unwrap()).collect();
        assert_eq!(bad, if is_marked { vec![2] } else { vec![] });
        let marked = flash.mark_bad(4);
        assert_eq!(marked, if is_marked { Ok(()) } else { Err(FlashError::Unsupported) });
        assert_eq!(flash.is_bad(4), Ok(is_marked));
    }
}

/// Headers in pages padded with zeros: Hamming codes of so little data happen to be zeros too.
#[test]
fn blocks_of_ubi_that_are_free_for_megabytes_are_plain() {
    let mut image = ubi_image(1 << 20, 6, 4096, 8192);
    for block in image.chunks_mut(1 << 20) {
        block[EC_HEADER_SIZE..4096].fill(0);
    }
    assert!(page_format(&image, &Hints::default()).unwrap().is_none());

    let code_len = 2048 / 256 * 3;
    let oob = OobLayout::hamming(64, code_len).unwrap();
    let ecc = Ecc::Hamming { step: 256, smart_media: false };
    let format = PageFormat { page_size: 2048, oob, ecc };
    let found = page_format(&dump(&image, &format), &Hints::default())
        .unwrap()
        .expect("out-of-band bytes are there");
    assert_eq!((found.page_size, found.ecc.step()), (2048, 256));
}
