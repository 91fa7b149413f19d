//! The device addresses of DMA memory.

/// No addresses below this are used, so that a forgotten or wrong one is noticed.
const LOWEST: u64 = 1 << 20;

/// The lowest address for `len` bytes in one of the usable ranges (first and last address), at a
/// multiple of `align`, a power of two, with its last byte at most `highest`. `None` if there is
/// none.
pub(crate) fn place(ranges: &[(u64, u64)], len: u64, align: u64, highest: u64) -> Option<u64> {
    let last_of = |start: u64| start.checked_add(len.checked_sub(1)?);
    let fits = |&(first, last): &(u64, u64)| {
        let start = first.max(LOWEST).checked_next_multiple_of(align)?;
        (last_of(start)? <= last.min(highest)).then_some(start)
    };
    ranges.iter().filter_map(fits).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL: [(u64, u64); 2] = [(0, 0xFEDF_FFFF), (0xFEF0_0000, 0xFFFF_FFFF_FFFF)];

    #[test]
    fn lowest_range_with_room_is_taken() {
        assert_eq!(place(&INTEL, 64 << 20, 2 << 20, u64::MAX), Some(2 << 20));
        assert_eq!(place(&INTEL, 4096, 4096, u64::MAX), Some(1 << 20));
        assert_eq!(place(&INTEL, 4 << 30, 1 << 30, u64::MAX), Some(4 << 30));
        let odd = [(0x8000_0000, 0x9000_0FFF), (0x1234, 0x20_0000)];
        assert_eq!(place(&odd, 0x10_0001, 4096, u64::MAX), Some(0x10_0000));
        assert_eq!(place(&odd, 0x10_0002, 4096, u64::MAX), Some(0x8000_0000));
    }

    #[test]
    fn limits_and_nonsense_are_minded() {
        assert_eq!(place(&INTEL, 4 << 30, 4096, 0xFFFF_FFFF), None, "not below 4 GiB");
        assert_eq!(place(&[], 4096, 4096, u64::MAX), None);
        assert_eq!(place(&INTEL, 0, 4096, u64::MAX), None);
        assert_eq!(place(&[(5, 2)], 4096, 4096, u64::MAX), None);
        assert_eq!(place(&[(u64::MAX - 5, u64::MAX)], 4096, 4096, u64::MAX), None);
        assert_eq!(place(&[(0, u64::MAX)], u64::MAX, 4096, u64::MAX), None);
    }
}
