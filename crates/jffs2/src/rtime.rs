//! "rtime": a byte, then the number of bytes to repeat from after its last occurrence.

/// Compresses all of `input`; returns the number of bytes of `output` used, or `None` if the result
/// is not shorter or does not fit.
pub(crate) fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let limit = output.len().min(input.len().saturating_sub(1));
    let mut last_position = [0usize; 256];
    let (mut at, mut out) = (0, 0);
    if limit == 0 {
        return None;
    }
    while at < input.len() {
        if out + 2 > limit {
            return None;
        }
        let value = input[at];
        at += 1;
        let from = core::mem::replace(&mut last_position[usize::from(value)], at);
        let most = (input.len() - at).min(usize::from(u8::MAX));
        let run = input[at..at + most]
            .iter()
            .zip(&input[from..])
            .take_while(|(next, earlier)| next == earlier)
            .count();
        output[out] = value;
        output[out + 1] = run as u8;
        out += 2;
        at += run;
    }
    Some(out)
}

/// Decompresses `input` until `output` is full. `None` if the input ends before that.
pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut last_position = [0usize; 256];
    let mut pairs = input.chunks_exact(2);
    let mut at = 0;
    while at < output.len() {
        let pair = pairs.next()?;
        let (value, repeat) = (pair[0], usize::from(pair[1]));
        output[at] = value;
        at += 1;
        let from = core::mem::replace(&mut last_position[usize::from(value)], at);
        if repeat > output.len() - at {
            return None;
        }
        if from + repeat >= at {
            // The repeated bytes overlap the ones being written.
            for i in 0..repeat {
                output[at + i] = output[from + i];
            }
        } else {
            output.copy_within(from..from + repeat, at);
        }
        at += repeat;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::{compress, decompress};

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(
            input in prop::collection::vec(0u8..4, 0..600),
            room in 0usize..700,
        ) {
            let mut stored = vec![0; room];
            if let Some(len) = compress(&input, &mut stored) {
                prop_assert!(len < input.len() && len <= room);
                let mut output = vec![0; input.len()];
                prop_assert_eq!(decompress(&stored[..len], &mut output), Some(()));
                prop_assert_eq!(output, input);
            }
        }
    }

    #[test]
    fn repetition_is_found_and_noise_is_refused() {
        let mut stored = [0; 64];
        assert_eq!(compress(b"zzzzzz", &mut stored), Some(2));
        assert_eq!(&stored[..2], b"z\x05");
        assert_eq!(compress(b"abcdefgh", &mut stored), None);
        assert_eq!(compress(&[7; 600], &mut stored[..5]), None, "needs six bytes");
        assert_eq!(compress(&[7; 600], &mut stored), Some(6));
    }

    #[test]
    fn repeats_come_from_behind_the_last_place_of_the_byte() {
        // 'a', 'b', then 'a' again with two bytes from behind the first 'a': "ba".
        let mut out = [0; 5];
        assert_eq!(decompress(&[b'a', 0, b'b', 0, b'a', 2], &mut out), Some(()));
        assert_eq!(&out, b"ababa");
        let mut out = [0; 6];
        assert_eq!(decompress(b"z\x05", &mut out), Some(()), "position 0 to begin with");
        assert_eq!(&out, b"zzzzzz");
    }

    #[test]
    fn bad_input_is_refused() {
        let mut out = [0; 4];
        assert_eq!(decompress(&[], &mut out), None);
        assert_eq!(decompress(b"a\x04", &mut out), None, "one byte too many");
        assert_eq!(decompress(b"a", &mut out), None, "half a pair");
        assert_eq!(decompress(b"a\x00b\x00", &mut out), None, "too short");
    }
}
