//! Error correction in software over chip models.

use flysch_api::flash::{Flash, FlashError, FlashMut};
use flysch_models::flash::Tear;
use flysch_models::nand::{Config, NandChip, Profile};
use flysch_mtd::{Bch, Ecc, Nand, OobLayout, PageFormat};

fn format(profile: &Profile, ecc: Ecc) -> PageFormat {
    let len = profile.page_size as usize / ecc.step() * ecc.code_len();
    let oob = match ecc {
        Ecc::Hamming { .. } => OobLayout::hamming(profile.oob_size as usize, len),
        _ => OobLayout::at_end(profile.oob_size as usize, len),
    };
    PageFormat { page_size: profile.page_size, oob: oob.expect("it fits"), ecc }
}

fn over(name: &str, ecc: Ecc, config: Config) -> Nand<NandChip> {
    let profile = Profile::named(name).unwrap().with_blocks(32).with_pages_per_block(16);
    let geometry = profile.geometry();
    let format = format(&profile, ecc);
    let chip = NandChip::new(profile, config);
    Nand::over(chip, format, geometry.kind, geometry.erase_size).unwrap()
}

fn bch4() -> Ecc {
    Ecc::Bch(Bch::new(13, 4, 512).unwrap())
}

fn noise(len: usize) -> Vec<u8> {
    let mut random = flysch_models::random::Random::new(3);
    (0..len).map(|_| random.bits() as u8).collect()
}

#[test]
fn what_worn_cells_flip_is_repaired() {
    let hamming = Ecc::Hamming { step: 512, smart_media: false };
    for (name, ecc, wear) in [("MT29F2G08ABAEA", bch4(), 100_000), ("K9F1G08U0B", hamming, 60_000)]
    {
        let mut nand = over(name, ecc, Config::default());
        for block in 0..32 {
            nand.pages_mut().wear_out(block, wear);
        }
        let data = noise(1 << 20);
        nand.program(0, &data).unwrap();
        let mut back = vec![0; data.len()];
        let corrected = nand.read(0, &mut back).unwrap();
        assert!(corrected.bits > 20, "{name}: {corrected:?}");
        assert_eq!(back, data, "{name}");
        assert_eq!(nand.pages().violations(), []);
    }
}

#[test]
fn bad_blocks_of_the_factory_go_into_the_table_and_stay_there() {
    let config = Config { factory_bad: 3, wears: false, ..Config::default() };
    let mut nand = over("MT29F2G08ABAEA", bch4(), config);
    let bad = |nand: &Nand<NandChip>| -> Vec<u32> {
        (0..28).filter(|&block| nand.is_bad(block).unwrap()).collect()
    };
    let marked = bad(&nand);
    nand.keep_table().unwrap();
    assert_eq!(bad(&nand), marked);
    let good = (5..28).find(|block| !marked.contains(block)).unwrap();
    // Cuts at every operation of marking another block: the old marks are never lost.
    for (cut, tear) in (0..9).flat_map(|cut| Tear::ALL.map(|tear| (cut, tear))) {
        let mut world = nand.clone();
        let now = world.pages().power().operations();
        world.pages_mut().power_mut().cut_at(now + cut, tear);
        let marking = world.mark_bad(good);
        world.pages_mut().power_mut().on();
        let (geometry, format) = (*world.geometry(), world.format().clone());
        let chip = world.into_pages();
        let again = Nand::over(chip, format, geometry.kind, geometry.erase_size).unwrap();
        let found = bad(&again);
        assert!(marked.iter().all(|block| found.contains(block)), "{cut} {tear}: {found:?}");
        assert!(found.len() <= marked.len() + 1, "{cut} {tear}: {found:?}");
        match marking {
            Ok(()) => assert!(found.contains(&good), "{cut} {tear}"),
            Err(error) => assert_eq!(error, FlashError::PowerLost),
        }
    }
}

/// The markers of small pages are in a different place from those of large ones.
#[test]
fn factory_bad_blocks_are_known_and_left_alone_with_any_code() {
    let chips = [("K9F5608U0D", 1), ("K9F5608U0D", 4), ("K9F1G08U0B", 1), ("K9F1G08U0B", 4)];
    for (name, bits) in chips {
        let profile = Profile::named(name).unwrap().with_blocks(32);
        let (page, oob) = (profile.page_size, profile.oob_size as usize);
        let format = PageFormat::in_software(page, oob, 512, bits).unwrap();
        let geometry = profile.geometry();
        let chip = NandChip::new(profile, Config { factory_bad: 3, ..Config::default() });
        let mut nand = Nand::over(chip, format, geometry.kind, geometry.erase_size).unwrap();
        let bad: Vec<u32> = (0..32).filter(|block| nand.is_bad(*block).unwrap()).collect();
        assert_eq!(bad.len(), 3, "{name}, {bits} bits: {bad:?}");
        for block in (0..32).filter(|block| !bad.contains(block)) {
            nand.erase(block).unwrap();
            let at = nand.geometry().block_start(block);
            nand.program(at, &noise(page as usize)).unwrap();
        }
        assert_eq!(nand.pages().violations(), [], "{name}, {bits} bits");
    }
}
