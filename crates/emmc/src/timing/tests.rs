//! The clock divider.

use super::*;

#[test]
fn the_clock_is_never_faster_than_asked_for() {
    for base in [52_000_000, 200_000_000, 255_000_000] {
        for hertz in [400_000, 26_000_000, 52_000_000, 200_000_000] {
            for ten_bits in [false, true] {
                let division = division(base, hertz, ten_bits);
                let clock = base / (2 * u32::from(division)).max(1);
                let floor = !ten_bits && division == 0x80;
                assert!(clock <= hertz || floor, "{base} {hertz} {division}");
            }
        }
    }
    assert_eq!(division(52_000_000, 400_000, true), 65);
    assert_eq!(division(200_000_000, 52_000_000, true), 2);
}
