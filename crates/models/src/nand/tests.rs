use std::string::ToString;
use std::vec;
use std::vec::Vec;

use flysch_api::flash::{Corrected, Flash, FlashMut, Kind, OobMode, Pages, PagesMut};

use super::*;

fn profile() -> Profile {
    Profile::named("MT29F2G08ABAEA").unwrap().with_blocks(16).with_pages_per_block(8)
}

fn chip(config: Config) -> NandChip {
    NandChip::new(profile(), config)
}

fn ideal() -> NandChip {
    chip(Config { wears: false, ..Config::default() })
}

fn read(chip: &NandChip, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let _ = chip.read(offset, &mut buffer);
    buffer
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.bits() as u8).collect()
}

#[test]
fn programming_clears_bits_and_erasing_sets_them() {
    let mut chip = ideal();
    assert_eq!(read(&chip, 0, 64), [0xFF; 64]);
    chip.program(0, &[0xF0; 2048]).unwrap();
    chip.program(0, &[0x3C; 512]).unwrap();
    assert_eq!(read(&chip, 511, 2), [0x30, 0xF0]);
    assert_eq!(chip.violations(), [Violation::NotErased { offset: 0 }]);
    chip.erase(0).unwrap();
    assert_eq!(read(&chip, 0, 2048), [0xFF; 2048]);
    assert_eq!((chip.erase_count(0), chip.erase_count(1)), (1, 0));
    assert_eq!(chip.program(8, &[0; 512]), Err(FlashError::Misaligned));
    assert_eq!(chip.program(1 << 40, &[0; 512]), Err(FlashError::OutOfRange));
    assert_eq!(chip.erase(16), Err(FlashError::OutOfRange));
    assert_eq!(chip.program_page(0, 2112, &[0]), Err(FlashError::OutOfRange));
}

#[test]
fn a_page_has_its_number_of_programs_and_its_turn() {
    let mut chip = ideal();
    for part in 0..4 {
        chip.program(part * 512, &[0; 512]).unwrap();
    }
    assert_eq!(chip.violations(), []);
    chip.program_oob(0, OobMode::Auto, &[0]).unwrap();
    assert_eq!(chip.violations(), [Violation::TooManyPrograms { page: 0 }]);
    let mut chip = ideal();
    chip.program(3 * 2048, &[0; 2048]).unwrap();
    chip.program(8 * 2048, &[0; 2048]).unwrap();
    assert_eq!(chip.violations(), [], "pages may be left out, and blocks go in any order");
    chip.program(2048, &[0; 2048]).unwrap();
    assert_eq!(chip.violations(), [Violation::OutOfOrder { page: 1 }]);
    chip.erase(0).unwrap();
    chip.program(2048, &[0; 2048]).unwrap();
    assert_eq!(chip.violations().len(), 1);
}

#[test]
fn out_of_band_bytes_lie_behind_the_page() {
    let mut chip = ideal();
    chip.program_oob(2048, OobMode::Auto, &[1, 2, 3]).unwrap();
    let mut oob = [0; 6];
    assert!(chip.read_oob(2048, OobMode::Place, &mut oob).is_ok());
    assert_eq!(oob, [0xFF, 0xFF, 1, 2, 3, 0xFF]);
    assert!(chip.read_oob(2048, OobMode::Auto, &mut oob[..4]).is_ok());
    assert_eq!(oob[..4], [1, 2, 3, 0xFF]);
    assert_eq!(chip.read_oob(2047, OobMode::Place, &mut oob), Err(FlashError::Misaligned));
    assert_eq!(chip.read_oob(0, OobMode::Auto, &mut [0; 63]), Err(FlashError::OutOfRange));
    let mut bytes = [0; 4];
    chip.read_page(1, 2048, &mut bytes).unwrap();
    assert_eq!(bytes, [0xFF, 0xFF, 1, 2]);
}

#[test]
fn makers_mark_bad_blocks_and_users_do() {
    let mut chip = chip(Config { factory_bad: 3, seed: 9, ..Config::default() });
    let bad: Vec<u32> = (0..16).filter(|&block| chip.is_bad(block).unwrap()).collect();
    assert_eq!(bad.len(), 3);
    assert!(!bad.contains(&0));
    assert_eq!(chip.erase(bad[0]), Err(FlashError::BadBlock { block: bad[0] }));
    assert_eq!(chip.violations(), []);
    assert_eq!(chip.erase_pages(bad[0]), Err(FlashError::EraseFailed { block: bad[0] }));
    assert_eq!(chip.violations(), [Violation::FactoryBad { block: bad[0] }]);
    assert_eq!(chip.is_bad(bad[0]), Ok(true));
    chip.program(2048, &[0; 2048]).unwrap();
    chip.mark_bad(0).unwrap();
    assert_eq!(chip.is_bad(0), Ok(true));
    assert_eq!(chip.violations().len(), 1, "marking goes against the order of pages, as it may");
}

/// Wrong bits in all of block 0, which holds zeros.
fn errors(chip: &NandChip) -> u32 {
    let mut wrong = 0;
    for page in 0..chip.profile.pages_per_block {
        let mut cells = vec![0; 2112];
        chip.read_page(u64::from(page), 0, &mut cells).unwrap();
        wrong += cells.iter().map(|byte| byte.count_ones()).sum::<u32>();
    }
    wrong
}

fn written(erases: u32) -> NandChip {
    let mut chip = chip(Config::default());
    chip.wear_out(0, erases);
    for page in 0..8 {
        chip.program_page(page, 0, &[0; 2112]).unwrap();
    }
    chip
}

#[test]
fn bit_errors_grow_with_wear() {
    let found: Vec<u32> = [0, 50_000, 100_000, 200_000].map(|n| errors(&written(n))).to_vec();
    assert!(found.is_sorted() && found[0] < 2, "{found:?}");
    // At the end of the guaranteed life: half a bit in each of the 4 steps of the 8 pages.
    assert!((8..32).contains(&found[2]), "{found:?}");
    assert_eq!(errors(&ideal()), 8 * 2112 * 8, "without wear, erased cells are erased");
}

#[test]
fn bit_errors_grow_with_reads_and_go_with_the_erase() {
    let mut chip = written(0);
    assert!(errors(&chip) < 2);
    chip.reads[0].store(2_000_000, Ordering::Relaxed);
    let disturbed = errors(&chip);
    assert!((16..64).contains(&disturbed), "{disturbed}");
    chip.erase_pages(0).unwrap();
    assert!(read(&chip, 0, 8 * 2048).iter().filter(|byte| **byte != 0xFF).count() < 2);
}

#[test]
fn cells_forget_and_worn_ones_sooner() {
    let year = 365 * 86_400 * 1_000_000_000;
    let [fresh, worn] = [0, 100_000].map(|erases| {
        let mut chip = written(erases);
        let before = errors(&chip);
        chip.wait(10 * year);
        errors(&chip) - before
    });
    assert!(fresh > 4 && worn > 5 * fresh, "{fresh} and {worn}");
}

#[test]
fn the_die_corrects_what_it_can_and_says_when_it_can_not() {
    let mut chip = chip(Config { corrects: true, ..Config::default() });
    assert_eq!((chip.geometry().ecc_strength, chip.geometry().bitflip_threshold), (4, 3));
    let data = pattern(5, 8 * 2048);
    chip.wear_out(0, 100_000);
    chip.program(0, &data).unwrap();
    let mut buffer = vec![0; data.len()];
    let corrected = chip.read(0, &mut buffer).unwrap();
    assert!(corrected.bits > 4 && corrected.worst_step <= 4, "{corrected:?}");
    assert_eq!(buffer, data);
    chip.reads[0].store(100_000_000, Ordering::Relaxed);
    assert!(matches!(chip.read(0, &mut buffer), Err(FlashError::Uncorrectable { .. })));
    assert_ne!(buffer, data);
}

#[test]
fn a_block_wears_out() {
    let mut chip = chip(Config::default());
    chip.wear_out(0, 99_999);
    chip.erase(0).unwrap();
    let more = (0..101_000).step_by(1000).find(|_| {
        chip.wear_out(0, 999);
        chip.erase(0).is_err()
    });
    assert!(more.is_some(), "no block lives twice as long as guaranteed");
    assert_eq!(chip.erase(0), Err(FlashError::EraseFailed { block: 0 }));
    chip.mark_bad(0).or_else(|_| chip.mark_bad(0)).unwrap();
    assert_eq!(chip.is_bad(0), Ok(true));
    let mut young = self::chip(Config::default());
    young.wear_out(1, 300_000);
    let fails = (0..8000).filter(|page| young.program_page(8 + page % 8, 0, &[0]).is_err()).count();
    assert!((1..40).contains(&fails), "programs fail now and then: {fails} of 8000");
}

#[test]
fn the_power_goes_at_the_operation_asked_for_and_stays_away() {
    let mut chip = ideal();
    chip.program(0, &[1; 4096]).unwrap();
    assert_eq!(chip.power().operations(), 2, "one for each page");
    chip.power_mut().cut_at(3, Tear::After);
    chip.erase(1).unwrap();
    assert_eq!(chip.program(4096, &[2; 4096]), Err(FlashError::PowerLost));
    assert_eq!(chip.read(0, &mut [0]), Err(FlashError::PowerLost));
    assert_eq!(chip.program(0, &[0; 512]), Err(FlashError::PowerLost));
    assert_eq!(chip.erase(0), Err(FlashError::PowerLost));
    assert_eq!(chip.is_bad(0), Err(FlashError::PowerLost));
    chip.power_mut().on();
    assert_eq!(read(&chip, 4095, 2), [1, 2], "the first page was done");
    assert_eq!(read(&chip, 6144, 1), [0xFF], "the second not");
    chip.erase(0).unwrap();
}

#[test]
fn an_operation_fails_on_wish() {
    let mut chip = ideal();
    chip.power_mut().fail_at(1);
    chip.power_mut().fail_at(2);
    chip.program(0, &[0; 2048]).unwrap();
    assert_eq!(chip.program(2048, &[0; 2048]), Err(FlashError::ProgramFailed { offset: 2048 }));
    assert_eq!(chip.erase(0), Err(FlashError::EraseFailed { block: 0 }));
    chip.erase(0).unwrap();
}

/// Programs two pages of random bytes, the second one torn as `how` says.
fn cut_program(how: Tear, corrects: bool) -> (NandChip, Vec<u8>) {
    let mut chip = chip(Config { wears: false, corrects, ..Config::default() });
    let data = pattern(8, 4096);
    chip.power_mut().cut_at(1, how);
    assert_eq!(chip.program(0, &data), Err(FlashError::PowerLost));
    chip.power_mut().on();
    assert_eq!(read(&chip, 0, 2048), data[..2048], "the page before is whole");
    assert_eq!(read(&chip, 4096, 2048), [0xFF; 2048], "the one behind is untouched");
    (chip, data[2048..].to_vec())
}

#[test]
fn a_cut_program_leaves_a_torn_page_that_reads_differently() {
    for how in [Tear::Early, Tear::Half] {
        let (chip, data) = cut_program(how, false);
        let (first, second) = (read(&chip, 2048, 2048), read(&chip, 2048, 2048));
        assert_ne!(first, second, "{how}: unstable");
        assert!(first != data && first != [0xFF; 2048]);
        // No cell that was to stay 1 is 0.
        assert!(first.iter().zip(&data).all(|(cell, data)| cell & data == *data), "{how}");
    }
    assert_eq!(read(&cut_program(Tear::Before, false).0, 2048, 2048), [0xFF; 2048]);
    let (chip, data) = cut_program(Tear::After, false);
    assert_eq!(read(&chip, 2048, 2048), data);
    let (chip, data) = cut_program(Tear::Late, false);
    let wrong: u32 =
        read(&chip, 2048, 2048).iter().zip(&data).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert!(wrong <= 12, "{wrong}");
}

#[test]
fn a_torn_page_is_beyond_correction_unless_it_was_nearly_done() {
    let mut page = vec![0; 2048];
    let (chip, _) = cut_program(Tear::Half, true);
    assert_eq!(chip.read(2048, &mut page), Err(FlashError::Uncorrectable { offset: 2048 }));
    let (chip, _) = cut_program(Tear::Before, true);
    assert_eq!(chip.read(2048, &mut page), Ok(Corrected::NONE));
    let (chip, data) = cut_program(Tear::Late, true);
    match chip.read(2048, &mut page) {
        Ok(_) => assert_eq!(page, data),
        Err(error) => assert!(matches!(error, FlashError::Uncorrectable { .. })),
    }
}

#[test]
fn a_torn_page_is_whole_again_after_an_erase_only() {
    let (mut chip, _) = cut_program(Tear::Half, false);
    chip.program(2048, &[0xFF; 2048]).unwrap();
    assert_ne!(read(&chip, 2048, 2048), read(&chip, 2048, 2048));
    chip.program(2048, &[0; 2048]).unwrap();
    assert_eq!(read(&chip, 2048, 2048), [0; 2048], "cells that are pulled to 0 are stable");
    chip.erase(0).unwrap();
    assert_eq!(read(&chip, 0, 4096), [0xFF; 4096]);
}

#[test]
fn a_cut_erase_leaves_a_block_that_only_looks_like_something() {
    let data = pattern(4, 8 * 2048);
    for how in Tear::ALL {
        let mut chip = ideal();
        chip.program(0, &data).unwrap();
        chip.power_mut().cut_at(8, how);
        assert_eq!(chip.erase(0), Err(FlashError::PowerLost));
        chip.power_mut().on();
        let cells = read(&chip, 0, data.len());
        let zeros: u32 = cells.iter().map(|byte| byte.count_zeros()).sum();
        assert!(cells.iter().zip(&data).all(|(cell, data)| cell & data == *data), "{how}");
        let unstable = cells != read(&chip, 0, data.len());
        match how {
            Tear::Before => assert_eq!(cells, data),
            Tear::Early => assert!(zeros > 50_000 && unstable, "{zeros}"),
            Tear::Half => assert!((10_000..50_000).contains(&zeros) && unstable, "{zeros}"),
            Tear::Late => assert!(zeros <= 8 * 12),
            Tear::After => assert_eq!(zeros, 0),
        }
        chip.erase(0).unwrap();
        assert_eq!(read(&chip, 0, data.len()), vec![0xFF; data.len()]);
    }
}

#[test]
fn what_is_written_over_a_half_erased_block_is_not_what_is_read() {
    let mut chip = ideal();
    chip.program(0, &[0; 2048]).unwrap();
    chip.power_mut().cut_at(1, Tear::Half);
    assert!(chip.erase(0).is_err());
    chip.power_mut().on();
    let data = pattern(6, 2048);
    chip.program(0, &data).unwrap();
    assert_ne!(read(&chip, 0, 2048), data);
    assert_eq!(chip.violations(), [Violation::NotErased { offset: 0 }]);
}

#[test]
fn an_upper_page_takes_its_lower_page_with_it() {
    let mlc = Profile::named("H27UCG8T2ETR").unwrap().with_blocks(2);
    let config = Config { wears: false, ..Config::default() };
    let page = 16384;
    let cut = |profile: Profile, how: Tear| {
        let mut chip = NandChip::new(profile, config);
        let data = pattern(2, 5 * page);
        chip.power_mut().cut_at(4, how);
        assert!(chip.program(0, &data).is_err());
        chip.power_mut().on();
        let cells = read(&chip, 0, 5 * page);
        let damaged: Vec<usize> =
            (0..4).filter(|n| cells[n * page..][..page] != data[n * page..][..page]).collect();
        (chip, damaged)
    };
    let (chip, damaged) = cut(mlc.clone(), Tear::Half);
    assert_eq!(damaged, [1], "page 4 shares its cells with page 1");
    assert_eq!(chip.geometry().kind, Kind::MlcNand);
    assert_ne!(read(&chip, 16384, 8192), read(&chip, 16384, 8192), "and they are unstable");
    assert_eq!(cut(mlc.clone(), Tear::After).1, [0; 0]);
    let (chip, damaged) = cut(mlc.single_level(), Tear::Half);
    assert_eq!((damaged, chip.geometry().pages_per_block()), (vec![], 128));
}

#[test]
fn time_is_that_of_the_cells_and_the_bus() {
    let mut chip = ideal();
    let timing = chip.profile().timing;
    let bus = |bytes: u64| (bytes + 7) * timing.cycle_ns;
    chip.program(0, &[0; 2048]).unwrap();
    assert_eq!(chip.busy_ns(), timing.program_ns + bus(2048));
    let before = chip.busy_ns();
    read(&chip, 100, 4);
    assert_eq!(chip.busy_ns() - before, timing.read_ns + bus(4));
    let before = chip.busy_ns();
    chip.erase_pages(0).unwrap();
    assert_eq!(chip.busy_ns() - before, timing.erase_ns + bus(0));
    assert_eq!(chip.counts(), Counts { reads: 1, programs: 1, erases: 1 });
    // Upper pages of two-bit cells take longer.
    let mlc = Profile::named("H27UCG8T2ETR").unwrap().with_blocks(1);
    let mut chip = NandChip::new(mlc, Config::default());
    chip.program(0, &[0; 16384]).unwrap();
    let lower = chip.busy_ns();
    chip.program(2 * 16384, &[0; 16384]).unwrap();
    assert_eq!(chip.busy_ns() - 2 * lower, 2_000_000);
}

#[test]
fn worlds_are_forked_and_copied_on_write() {
    let mut chip = ideal();
    chip.program(0, &[1; 2048]).unwrap();
    let mut other = chip.clone();
    assert!(!chip.is_alone(0));
    other.program(2048, &[2; 2048]).unwrap();
    other.erase(0).unwrap();
    assert!(chip.is_alone(0) && !chip.is_alone(1));
    assert_eq!((read(&chip, 0, 1), read(&chip, 2048, 1)), (vec![1], vec![0xFF]));
    assert_eq!((chip.power().operations(), other.power().operations()), (1, 3));
    // Equal worlds have equal fates.
    let fate = |mut chip: NandChip| {
        chip.power_mut().cut_at(1, Tear::Half);
        let _ = chip.program(2048, &pattern(1, 2048));
        chip.power_mut().on();
        read(&chip, 2048, 2048)
    };
    assert_eq!(fate(chip.clone()), fate(chip));
}

#[test]
fn an_image_goes_in_and_comes_out() {
    let mut chip = chip(Config { factory_bad: 2, wears: false, ..Config::default() });
    let image = pattern(3, 3 * 8 * 2048);
    chip.load(&image, false).unwrap();
    let bad: Vec<u32> = (0..16).filter(|&block| chip.is_bad(block).unwrap()).collect();
    let out = chip.image(false);
    assert_eq!(out.len(), 16 * 8 * 2048);
    for block in (0..3).filter(|block| !bad.contains(block)) {
        let range = block as usize * 8 * 2048..(block as usize + 1) * 8 * 2048;
        assert_eq!(out[range.clone()], image[range]);
    }
    let with_oob = chip.image(true);
    assert_eq!(with_oob.len(), 16 * 8 * 2112);
    let mut second = ideal();
    second.load(&with_oob, true).unwrap();
    assert_eq!(second.image(true), with_oob);
    assert!(bad.iter().all(|&block| second.is_bad(block).unwrap()), "markers are in it");
    assert_eq!(ideal().load(&vec![0; 16 * 8 * 2048 + 1], false), Err(FlashError::OutOfRange));
}

#[test]
fn a_chip_is_kept_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { factory_bad: 1, wears: false, ..Config::default() };
    for with_oob in [false, true] {
        let path = folder.path().join(if with_oob { "oob" } else { "plain" });
        let open = || NandChip::in_file(&path, with_oob, profile(), config);
        let mut chip = open().unwrap();
        let bad: Vec<u32> = (0..16).filter(|&block| chip.is_bad(block).unwrap()).collect();
        assert!(open().unwrap_err().to_string().contains("in use"));
        chip.program(0, &[7; 4096]).unwrap();
        chip.program_oob(2048, OobMode::Auto, &[5]).unwrap();
        chip.program(8 * 2048, &[7; 2048]).unwrap();
        chip.erase(1).unwrap();
        chip.sync().unwrap();
        drop(chip.clone());
        let (image, len) = (chip.image(with_oob), if with_oob { 2112 } else { 2048 });
        drop(chip);
        assert_eq!(std::fs::read(&path).unwrap(), image);
        assert_eq!(image.len(), 16 * 8 * len);
        let again = open().unwrap();
        assert_eq!(again.image(with_oob), image);
        assert_eq!(again.is_bad(bad[0]), Ok(with_oob));
        let other = NandChip::in_file(&path, !with_oob, profile(), config);
        drop(again);
        let text = other.err().map(|error| error.to_string()).unwrap();
        assert!(text.contains("in use"), "{text}");
        let text = NandChip::in_file(&path, !with_oob, profile(), config).unwrap_err().to_string();
        assert!(text.contains("the chip needs"), "{text}");
    }
}
