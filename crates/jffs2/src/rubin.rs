//! The Rubin coders: an arithmetic code over bits, with one fixed probability for each of the eight
//! bits of a byte.
//!
//! The coder narrows an interval `[low, low + width)` in a 16-bit window bit by bit; the decoder
//! follows it and checks on which side of the division the code value lies. Whenever the top bit of
//! the window is settled, everything is shifted up by one bit.

/// Top bit of the window.
const TOP: u32 = 1 << 15;

/// Probability that each bit of a byte is set, lowest bit first, out of `total`.
struct Model {
    total: u32,
    ones: [u32; 8],
}

/// Decodes data written by the coder with a fixed model.
pub(crate) fn decompress_fixed(input: &[u8], output: &mut [u8]) {
    let model = Model { total: 1043, ones: [277, 249, 290, 267, 229, 341, 212, 241] };
    Decoder::new(input).fill(&model, output);
}

/// Decodes data written by the coder whose model, out of 256, is in the first 8 bytes. `None` if
/// the data is shorter.
pub(crate) fn decompress_dynamic(input: &[u8], output: &mut [u8]) -> Option<()> {
    let (ones, rest) = input.split_first_chunk::<8>()?;
    let model = Model { total: 256, ones: ones.map(u32::from) };
    Decoder::new(rest).fill(&model, output);
    Some(())
}

struct Decoder<'a> {
    input: &'a [u8],
    next_bit: usize,
    low: u32,
    width: u32,
    value: u32,
}

impl<'a> Decoder<'a> {
    fn new(input: &'a [u8]) -> Self {
        let mut decoder = Self { input, next_bit: 0, low: 0, width: 2 * TOP, value: 0 };
        for _ in 0..16 {
            decoder.value = decoder.value << 1 | decoder.bit();
        }
        decoder
    }

    /// The next input bit, highest first; zeros after the end.
    fn bit(&mut self) -> u32 {
        let byte = self.input.get(self.next_bit / 8).copied().unwrap_or(0);
        let bit = byte >> (7 - self.next_bit % 8) & 1;
        self.next_bit += 1;
        u32::from(bit)
    }

    fn symbol(&mut self, model: &Model, index: usize) -> u8 {
        while self.low >= TOP || self.low + self.width <= TOP {
            self.low = (self.low & (TOP - 1)) << 1;
            self.width <<= 1;
            self.value = (self.value & (TOP - 1)) << 1 | self.bit();
        }
        let zeros = model.total - model.ones[index];
        let split = (zeros * self.width / model.total).clamp(1, self.width - 1);
        let is_one = self.value >= self.low + split;
        if is_one {
            self.low += split;
            self.width -= split;
        } else {
            self.width = split;
        }
        u8::from(is_one)
    }

    fn fill(&mut self, model: &Model, output: &mut [u8]) {
        for byte in output {
            *byte = (0..8).fold(0, |sum, index| sum | self.symbol(model, index) << index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// The coder, written from the same description, to have something to decode.
    fn encode(model: &Model, data: &[u8]) -> Vec<u8> {
        let (mut low, mut width) = (0u32, 2 * TOP);
        let mut bits: Vec<bool> = vec![];
        for (byte, index) in data.iter().flat_map(|&byte| (0..8).map(move |i| (byte, i))) {
            while low >= TOP || low + width <= TOP {
                bits.push(low & TOP != 0);
                low = (low & (TOP - 1)) << 1;
                width <<= 1;
            }
            let zeros = model.total - model.ones[index];
            let split = (zeros * width / model.total).clamp(1, width - 1);
            if byte >> index & 1 == 1 {
                low += split;
                width -= split;
            } else {
                width = split;
            }
        }
        for _ in 0..16 {
            bits.push(low & TOP != 0);
            low = (low & (TOP - 1)) << 1;
        }
        bits.chunks(8)
            .map(|c| c.iter().enumerate().fold(0, |b, (i, &bit)| b | u8::from(bit) << (7 - i)))
            .collect()
    }

    proptest! {
        #[test]
        fn what_was_coded_is_decoded(
            data in prop::collection::vec(any::<u8>(), 0..300), ones: [u8; 8],
        ) {
            let mut out = vec![0; data.len()];
            let fixed = Model { total: 1043, ones: [277, 249, 290, 267, 229, 341, 212, 241] };
            decompress_fixed(&encode(&fixed, &data), &mut out);
            prop_assert_eq!(&out, &data);

            let ones = ones.map(|n| n.max(1));
            let model = Model { total: 256, ones: ones.map(u32::from) };
            let mut input = ones.to_vec();
            input.extend(encode(&model, &data));
            prop_assert_eq!(decompress_dynamic(&input, &mut out), Some(()));
            prop_assert_eq!(&out, &data);
        }

        #[test]
        fn any_bytes_end(input in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut out = [0; 512];
            decompress_fixed(&input, &mut out);
            let model_is_there = input.len() >= 8;
            prop_assert_eq!(decompress_dynamic(&input, &mut out).is_some(), model_is_there);
        }
    }
}
