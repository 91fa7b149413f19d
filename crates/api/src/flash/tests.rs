use super::*;

#[test]
fn a_short_last_block_is_counted_and_measured() {
    let geometry = FlashGeometry::nand(0x2_0800, 0x2_0000, 2048, 512);
    assert_eq!(geometry.blocks(), 2);
    assert_eq!(
        [0, 1, 2].map(|block| geometry.block_len(block)),
        [0x2_0000, 0x800, 0],
        "whole block, short block, beyond the end"
    );
    assert_eq!(geometry.pages_per_block(), 64);
    assert_eq!(geometry.check_block(2), Err(FlashError::OutOfRange));
}

#[test]
fn ranges_are_checked_without_overflow() {
    let geometry = FlashGeometry::nor(100, 64);
    assert_eq!(geometry.check(0, 100), Ok(()));
    assert_eq!(geometry.check(100, 0), Ok(()));
    for (offset, len) in [(0, 101), (100, 1), (101, 0), (u64::MAX, 1), (1, usize::MAX)] {
        assert_eq!(geometry.check(offset, len), Err(FlashError::OutOfRange), "{offset} {len}");
    }
}

#[test]
fn corrected_bits_add_up_and_the_worst_step_stays() {
    let mut sum = Corrected { bits: 3, worst_step: 2 };
    sum += Corrected { bits: 4, worst_step: 1 };
    assert_eq!(sum, Corrected { bits: 7, worst_step: 2 });
    let geometry = FlashGeometry { bitflip_threshold: 3, ..FlashGeometry::nor(64, 64) };
    assert!(!sum.needs_scrub(&geometry));
    sum += Corrected { bits: 3, worst_step: 3 };
    assert!(sum.needs_scrub(&geometry));
    assert!(!sum.needs_scrub(&FlashGeometry::nor(64, 64)), "no error correction, no threshold");
}
