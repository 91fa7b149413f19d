use std::vec;
use std::vec::Vec;

use super::*;

fn chip() -> NorChip {
    NorChip::new(Profile::named("w25q128fv").unwrap().with_blocks(4).with_block_size(4096), 1)
}

fn read(chip: &NorChip, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    assert!(chip.read(offset, &mut buffer).is_ok());
    buffer
}

#[test]
fn bits_are_cleared_one_by_one_and_set_by_the_block() {
    let mut chip = chip();
    assert_eq!(read(&chip, 4090, 12), [0xFF; 12]);
    chip.program(4095, &[0xF0, 0x0F]).unwrap();
    chip.program(4095, &[0x30]).unwrap();
    assert_eq!(read(&chip, 4094, 4), [0xFF, 0x30, 0x0F, 0xFF]);
    assert_eq!(chip.violations(), []);
    chip.program(4095, &[0x0F]).unwrap();
    assert_eq!(chip.violations(), [Violation::NotErased { offset: 4095 }]);
    chip.erase(0).unwrap();
    assert_eq!(read(&chip, 4094, 4), [0xFF, 0xFF, 0x0F, 0xFF]);
    assert_eq!((chip.erase_count(0), chip.erase_count(1)), (1, 0));
    assert_eq!(chip.erase(4), Err(FlashError::OutOfRange));
    assert_eq!(chip.program(4 * 4096, &[0]), Err(FlashError::OutOfRange));
    assert_eq!(chip.mark_bad(0), Err(FlashError::Unsupported));
}

#[test]
fn a_write_buffer_is_an_operation() {
    let mut chip = chip();
    chip.program(250, &[1; 300]).unwrap();
    assert_eq!(chip.power().operations(), 3, "6 bytes, 256 and 38");
    assert_eq!(chip.busy_ns(), 3 * 700_000);
    chip.erase(0).unwrap();
    assert_eq!(chip.busy_ns(), 3 * 700_000 + 150_000_000);
    read(&chip, 0, 100);
    assert_eq!(chip.busy_ns(), 152_100_000 + 400 + 2000);
}

#[test]
fn a_cut_program_ends_at_some_byte() {
    for (how, seed) in Tear::ALL.into_iter().flat_map(|how| (0..20).map(move |seed| (how, seed))) {
        let mut chip = NorChip { seed, ..chip() };
        chip.power_mut().cut_at(1, how);
        assert_eq!(chip.program(0, &[0x55; 768]), Err(FlashError::PowerLost));
        assert_eq!(chip.read(0, &mut [0]), Err(FlashError::PowerLost));
        chip.power_mut().on();
        assert_eq!(read(&chip, 0, 256), [0x55; 256]);
        let cells = read(&chip, 256, 256);
        let done = cells.iter().take_while(|byte| **byte == 0x55).count();
        let untouched = cells.iter().rev().take_while(|byte| **byte == 0xFF).count();
        assert!(done + untouched >= 255, "{how}: {done} done, {untouched} untouched");
        match how {
            Tear::Before => assert_eq!(done, 0),
            Tear::Early => assert!(done <= 1),
            Tear::Half => {}
            Tear::Late => assert!(done >= 255),
            Tear::After => assert_eq!(done, 256),
        }
        assert_eq!(read(&chip, 512, 256), [0xFF; 256]);
    }
}

#[test]
fn a_cut_erase_leaves_zeros_from_the_end_a_mixture_or_nearly_nothing() {
    let mut zeros = vec![];
    for how in Tear::ALL {
        let mut chip = chip();
        chip.program(0, &[0x55; 4096]).unwrap();
        chip.power_mut().cut_at(16, how);
        assert_eq!(chip.erase(0), Err(FlashError::PowerLost));
        chip.power_mut().on();
        let cells = read(&chip, 0, 4096);
        let unstable = cells != read(&chip, 0, 4096);
        zeros.push(cells.iter().map(|byte| byte.count_zeros()).sum::<u32>());
        match how {
            Tear::Before => assert_eq!(cells, [0x55; 4096]),
            Tear::Early => {
                let whole = cells.iter().take_while(|byte| **byte == 0x55).count();
                assert!(cells[whole..].iter().all(|byte| *byte == 0), "zeros from {whole} on");
                assert!(whole < 4096);
            }
            Tear::Half => assert!(unstable),
            Tear::Late => assert!(zeros[3] <= 12),
            Tear::After => assert_eq!(cells, [0xFF; 4096]),
        }
        chip.erase(0).unwrap();
        assert_eq!(read(&chip, 0, 4096), [0xFF; 4096]);
    }
    assert!(zeros[1] > zeros[0] && zeros[2] < zeros[1], "{zeros:?}");
}

#[test]
fn failures_on_wish_and_of_age() {
    let mut chip = chip();
    chip.power_mut().fail_at(0);
    chip.power_mut().fail_at(1);
    assert_eq!(chip.program(3, &[0]), Err(FlashError::ProgramFailed { offset: 3 }));
    assert_eq!(chip.erase(0), Err(FlashError::EraseFailed { block: 0 }));
    chip.erase(0).unwrap();
    chip.wear_out(0, 200_000);
    assert_eq!(chip.erase(0), Err(FlashError::EraseFailed { block: 0 }));
    chip.erase(1).unwrap();
}

#[test]
fn worlds_are_forked_and_images_go_in_and_out() {
    let mut chip = chip();
    chip.program(5, &[1, 2]).unwrap();
    let mut other = chip.clone();
    other.erase(0).unwrap();
    assert_eq!((read(&chip, 5, 2), read(&other, 5, 2)), (vec![1, 2], vec![0xFF; 2]));
    let image = chip.image();
    assert_eq!((image.len(), &image[4..8]), (4 * 4096, &[0xFF, 1, 2, 0xFF][..]));
    let mut third = self::chip();
    third.load(&image[..6000]).unwrap();
    assert_eq!(third.image(), image);
    assert_eq!(third.load(&[0; 4 * 4096 + 1]), Err(FlashError::OutOfRange));
    for profile in PROFILES {
        assert_eq!(Profile::named(profile.name), Some(profile.clone()));
        assert_eq!(profile.geometry().size, 16 << 20);
    }
}
