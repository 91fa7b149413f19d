//! The Hamming code of Linux's software ECC: 3 bytes for a step of 256 or 512 bytes, which correct
//! one flipped bit and detect two (`Documentation/driver-api/mtd/nand_ecc.rst`).
//!
//! Number the bits of a step by byte index and bit in the byte. For each bit of that number there
//! are two parities: one over all data bits whose number has a 1 there, and one over those with a
//! 0. A single flipped data bit changes exactly one parity of every pair; which one of each spells
//! its number.

/// Corrects up to one bit in `data`, whose stored code is `stored`; returns the number of bits
/// corrected in data or code, or `None` if there are more.
pub(super) fn correct(data: &mut [u8], stored: [u8; 3]) -> Option<u32> {
    let computed = compute(data);
    let wrong = [0, 1, 2].map(|i| stored[i] ^ computed[i]);
    let count: u32 = wrong.iter().map(|byte| byte.count_ones()).sum();
    match count {
        0 => return Some(0),
        1 => return Some(1), // in the code itself
        _ => {}
    }
    // Line parities of an odd position (a 1 in the number) against those of the even one.
    let lines = u32::from(wrong[1]) | u32::from(wrong[0]) << 8 | u32::from(wrong[2] & 3) << 16;
    let columns = u32::from(wrong[2] >> 2);
    let line_pairs = data.len().trailing_zeros();
    let byte = number(lines, line_pairs)?;
    let bit = number(columns, 3)?;
    data[byte as usize] ^= 1 << bit;
    Some(1)
}

/// The number spelled by `pairs` pairs of parities, exactly one of each of which must be set.
fn number(parities: u32, pairs: u32) -> Option<u32> {
    let mut number = 0;
    for pair in 0..pairs {
        match (parities >> (2 * pair)) & 3 {
            0b01 => {}
            0b10 => number |= 1 << pair,
            _ => return None,
        }
    }
    (parities >> (2 * pairs) == 0).then_some(number)
}

/// Bits of the index of a word of 8 bytes.
const WORD_BITS: usize = 6;
/// For each bit of the index, the bytes of such a word whose index has a 1 there.
const IN_WORD: [u64; 3] = [0xFF00_FF00_FF00_FF00, 0xFFFF_0000_FFFF_0000, 0xFFFF_FFFF_0000_0000];

/// The code of `data`, 256 or 512 bytes: line parities 15-8, line parities 7-0, then column
/// parities 5-0 with line parities 17-16 below them (ones for a step of 256 bytes). Every parity is
/// stored inverted, so that erased flash is a valid step.
pub(super) fn compute(data: &[u8]) -> [u8; 3] {
    debug_assert!(matches!(data.len(), 256 | 512));
    // Words instead of bytes: all of them together, and those with a 1 in each bit of their index.
    let mut all = 0u64;
    let mut of_bit = [0u64; WORD_BITS];
    for (index, word) in (0u64..).zip(data.as_chunks::<8>().0) {
        let word = u64::from_le_bytes(*word);
        all ^= word;
        for (bit, sum) in of_bit.iter_mut().enumerate() {
            *sum ^= word & (index >> bit & 1).wrapping_neg();
        }
    }
    let parity = |word: u64| word.count_ones() & 1;
    let odd = parity(all);
    // The "1" line parities: of bytes with a 1 in each bit of their index.
    let in_word = IN_WORD.iter().map(|mask| parity(all & mask));
    let ones = in_word.chain(of_bit.into_iter().map(parity));
    let ones = ones.enumerate().fold(0, |sum, (bit, parity)| sum | parity << bit);
    let columns = all.to_le_bytes().into_iter().fold(0, |sum, byte| sum ^ byte);
    let mut lines = 0u32;
    for pair in 0..data.len().trailing_zeros() {
        let one = (ones >> pair) & 1;
        lines |= (one << 1 | (one ^ odd)) << (2 * pair);
    }
    let column = [0x55, 0xAA, 0x33, 0xCC, 0x0F, 0xF0]
        .iter()
        .enumerate()
        .fold(0, |sum, (i, mask)| sum | ((columns & mask).count_ones() & 1) << i);
    [!(lines >> 8) as u8, !lines as u8, (!(column << 2) & 0xFC) as u8 | (!(lines >> 16) & 3) as u8]
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| ((31 * i * i + 17 * i + 7) >> 3) as u8).collect()
    }

    /// The results of the Linux kernel's function for these steps.
    #[test]
    fn codes_are_those_of_linux() {
        let flipped = |len: usize, byte: usize, bit: u8| {
            let mut data = vec![0xFF; len];
            data[byte] ^= 1 << bit;
            compute(&data)
        };
        for len in [256, 512] {
            assert_eq!(compute(&vec![0xFF; len]), [0xFF; 3]);
            assert_eq!(compute(&vec![0; len]), [0xFF; 3]);
        }
        assert_eq!(flipped(256, 0, 0), [0xAA, 0xAA, 0xAB]);
        assert_eq!(flipped(512, 0, 0), [0xAA, 0xAA, 0xAA]);
        assert_eq!(flipped(256, 200, 7), [0x5A, 0x6A, 0x57]);
        assert_eq!(flipped(512, 200, 7), [0x5A, 0x6A, 0x56]);
        assert_eq!(compute(&pattern(256)), [0xFC, 0xFF, 0xC3]);
        assert_eq!(compute(&pattern(512)), [0x99, 0x6A, 0x59]);
    }

    proptest! {
        #[test]
        fn one_flipped_bit_is_corrected_and_two_are_noticed(
            large: bool, seed in any::<[u8; 32]>(), a in any::<usize>(), b in any::<usize>(),
        ) {
            let len = if large { 512 } else { 256 };
            let data: Vec<u8> = (0..len).map(|i| seed[i % 32].wrapping_mul(i as u8 | 1)).collect();
            let code = compute(&data);
            // The unused two bits of a short code may flip unnoticed; leave them alone.
            let bits = len * 8 + 24;
            let skip = |bit: usize| !large && bit >= len * 8 + 16 && bit % 8 < 2;
            let flip = |data: &mut Vec<u8>, code: &mut [u8; 3], bit: usize| {
                if bit < len * 8 {
                    data[bit / 8] ^= 1 << (bit % 8);
                } else {
                    code[bit / 8 - len] ^= 1 << (bit % 8);
                }
            };
            let (a, b) = (a % bits, b % bits);
            prop_assume!(a != b && !skip(a) && !skip(b));
            let (mut bad, mut bad_code) = (data.clone(), code);
            flip(&mut bad, &mut bad_code, a);
            let mut fixed = bad.clone();
            prop_assert_eq!(correct(&mut fixed, bad_code), Some(1));
            prop_assert_eq!(&fixed, &data);
            flip(&mut bad, &mut bad_code, b);
            prop_assert_eq!(correct(&mut bad, bad_code), None);
        }
    }
}
