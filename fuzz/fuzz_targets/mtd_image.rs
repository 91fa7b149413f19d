//! The contents and layout of an image: page formats, error correction, bad blocks, contents at the
//! front.
//!
//! The first byte selects a page format, the second an erase block size; the rest is the image.
#![no_main]

use flysch_api::flash::{Flash, OobMode};
use flysch_mtd::detect::{Hints, page_format, plain_regions, regions};
use flysch_mtd::{Bch, Dump, Ecc, OobLayout, PageFormat, Scheme};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(([choice, blocks], image)) = input.split_first_chunk::<2>() else { return };
    let hints = Hints {
        erase_size: (blocks & 8 != 0).then_some(1 << (blocks % 24)),
        page_size: (blocks & 16 != 0).then_some(1 << (blocks % 14)),
        oob_size: (blocks & 32 != 0).then_some(1 << (blocks % 11)),
        ecc: (blocks & 64 != 0).then_some(Scheme::Hamming { step: 256, smart_media: false }),
    };
    let size = image.len() as u64;
    let found = plain_regions(image, &hints).expect("memory is read");
    assert!(found.iter().all(|region| region.range.start < region.range.end));
    assert!(found.iter().all(|region| region.range.end <= size), "inside the image");
    if let Some(format) = page_format(&image, &hints).expect("memory is read") {
        dump(image, format, 64, &hints);
    }
    if let Some(format) = chosen(*choice) {
        dump(image, format, u32::from(*blocks % 65), &hints);
    }
});

fn chosen(choice: u8) -> Option<PageFormat> {
    let (page_size, size) = [(256, 8), (512, 16), (2048, 64), (4096, 224)][usize::from(choice & 3)];
    let ecc = match choice >> 2 & 7 {
        0 => Ecc::None,
        1 => Ecc::Hamming { step: 256, smart_media: false },
        2 => Ecc::Hamming { step: 512, smart_media: choice & 128 != 0 },
        3 => Ecc::Bch(Bch::new(13, 4, 512)?),
        4 => Ecc::Bch(Bch::new(14, 8, 1024)?),
        5 => Ecc::Bch(Bch::new(13, 1, 512)?),
        _ => Ecc::Bch(Bch::new(13, 8, 512)?),
    };
    let len = (page_size as usize).checked_div(ecc.step()).unwrap_or(0) * ecc.code_len();
    let oob = match choice & 64 {
        0 => OobLayout::at_end(size, len)?,
        _ => OobLayout::hamming(size, len)?,
    };
    Some(PageFormat { page_size, oob, ecc })
}

fn dump(image: &[u8], format: PageFormat, pages: u32, hints: &Hints) {
    let page_size = format.page_size;
    let Ok(flash) = Dump::new(image, format, page_size * pages) else { return };
    let size = flash.geometry().size;
    let mut buffer = vec![0; 5000];
    for block in 0..flash.geometry().blocks().min(64) {
        let _ = flash.is_bad(block);
        let _ = flash.read(flash.geometry().block_start(block), &mut buffer);
        let _ =
            flash.read_oob(flash.geometry().block_start(block), OobMode::Auto, &mut buffer[..4]);
    }
    for region in regions(&flash, hints).expect("memory is read") {
        assert!(region.range.start < region.range.end && region.range.end <= size);
    }
}
