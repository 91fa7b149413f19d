//! "rtime": a byte, then how many bytes to repeat from behind the last place it stood.

/// Decompresses `input` until `output` is full. `None` when the input ends before.
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
    use super::decompress;

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
