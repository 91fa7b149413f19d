use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Text of repeated and new words, as in real files.
fn sample(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut out = Vec::new();
    while out.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out.extend_from_slice(
            ["erase ", "block ", "page ", "node\n"][state as usize >> 30].as_bytes(),
        );
        if state.is_multiple_of(7) {
            out.extend_from_slice(&state.to_le_bytes());
        }
    }
    out.truncate(length);
    out
}

fn deflate(input: &[u8], zlib: bool, window_bits: u8) -> Vec<u8> {
    let mut compressor = zlib_rs::Deflate::new(6, zlib, window_bits);
    let mut out = vec![0; input.len() + 100];
    compressor.compress(input, &mut out, zlib_rs::DeflateFlush::Finish).unwrap();
    out.truncate(compressor.total_out() as usize);
    out
}

fn zstd(input: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(input, ruzstd::encoding::CompressionLevel::Fastest)
}

fn compressed(input: &[u8]) -> [(Method, Vec<u8>); 4] {
    [
        (Method::Lzo, lzokay::compress::compress(input).unwrap()),
        (Method::Deflate, deflate(input, false, 11)),
        (Method::Zlib, deflate(input, true, 15)),
        (Method::Zstd, zstd(input)),
    ]
}

#[test]
fn every_method_gives_back_what_was_compressed() {
    for length in [1, 100, 4095, 4096, 100_000] {
        let input = sample(length);
        for (method, stored) in compressed(&input) {
            let mut output = vec![0; length];
            assert_eq!(decompress(method, &stored, &mut output), Ok(length), "{method:?} {length}");
            assert_eq!(output, input, "{method:?} {length}");
            if length > 1 {
                let short = &mut output[..length - 1];
                let answer = decompress(method, &stored, short);
                assert_eq!(answer, Err(DecompressError::TooLong), "{method:?} {length}");
            }
            let cut = &stored[..stored.len() / 2];
            assert!(decompress(method, cut, &mut output).is_err(), "{method:?} {length}");
        }
    }
}

#[test]
fn a_stream_of_liblzo2_is_read() {
    // lzo1x_1 of liblzo2 2.10 over 512 zero bytes.
    let stored = [0x12, 0, 0x20, 0, 0xdf, 0, 0, 0x11, 0, 0];
    let mut output = [1; 512];
    assert_eq!(decompress(Method::Lzo, &stored, &mut output), Ok(512));
    assert_eq!(output, [0; 512]);
}

#[test]
fn zlib_headers_are_checked_and_the_end_is_not() {
    let input = sample(4096);
    let mut stored = deflate(&input, true, 15);
    let mut output = vec![0; 4096];
    let end = stored.len() - 1;
    stored[end] ^= 0xff;
    assert_eq!(decompress(Method::Zlib, &stored, &mut output), Ok(4096));
    stored[0] = 0x79;
    assert_eq!(decompress(Method::Zlib, &stored, &mut output), Err(DecompressError::Corrupt));
}

#[test]
fn portable_readers_agree() {
    type Reader = fn(&[u8], &mut [u8]) -> Result<usize, DecompressError>;
    for length in [1, 4096, 200_000] {
        let input = sample(length);
        let readers: [(Reader, Vec<u8>); 2] = [
            (zstd::decompress_portably, zstd(&input)),
            (deflate::inflate_portably, deflate(&input, false, 11)),
        ];
        for (reader, stored) in readers {
            let mut output = vec![0; length];
            assert_eq!(reader(&stored, &mut output), Ok(length));
            assert_eq!(output, input);
            assert_eq!(reader(&stored, &mut output[..length - 1]), Err(DecompressError::TooLong));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_input_never_panics(
        which in 0_usize..4,
        damage in proptest::collection::vec((0_usize..4096, any::<u8>()), 0..20),
        room in 0_usize..5000,
    ) {
        let (method, mut stored) = compressed(&sample(4096)).into_iter().nth(which).unwrap();
        let length = stored.len();
        for (at, value) in damage {
            stored[at % length] = value;
        }
        let mut output = vec![0; room];
        if let Ok(written) = decompress(method, &stored, &mut output) {
            prop_assert!(written <= room);
        }
        let _ = zstd::decompress_portably(&stored, &mut output);
        let _ = deflate::inflate_portably(&stored, &mut output);
    }

    /// Compares with an independent reader, on streams that are valid, damaged, or too long.
    #[test]
    fn lzo_is_read_as_others_read_it(
        parts in proptest::collection::vec((any::<u16>(), any::<u8>(), 0_usize..300), 0..60),
        damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..3),
        missing in prop_oneof![Just(0_usize), 0_usize..40],
        ours: bool,
    ) {
        let input = repetitive(parts);
        let mut stored = vec![0; input.len() + input.len() / 16 + 200];
        if ours {
            let length = compress(Method::Lzo, &input, &mut stored).unwrap();
            stored.truncate(length);
        } else {
            stored = lzokay::compress::compress(&input).unwrap();
        }
        let length = stored.len();
        for (at, value) in damage {
            stored[at % length] = value;
        }
        let mut output = vec![0; input.len().saturating_sub(missing)];
        let mut expected = output.clone();
        let answer = decompress(Method::Lzo, &stored, &mut output);
        match lzokay::decompress::decompress(&stored, &mut expected) {
            Ok(length) => {
                prop_assert_eq!(answer, Ok(length));
                prop_assert!(output[..length] == expected[..length]);
            }
            Err(_) => prop_assert!(answer.is_err()),
        }
    }

    #[test]
    fn any_input_never_panics(input in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut output = vec![0; 4096];
        for method in [Method::Lzo, Method::Deflate, Method::Zlib, Method::Zstd] {
            let _ = decompress(method, &input, &mut output);
        }
        let _ = zstd::decompress_portably(&input, &mut output);
        let _ = deflate::inflate_portably(&input, &mut output);
    }
}

/// Bytes composed of earlier ones and new ones.
fn repetitive(parts: Vec<(u16, u8, usize)>) -> Vec<u8> {
    let mut input = Vec::new();
    for (back, byte, length) in parts {
        let back = usize::from(back);
        if back > input.len() {
            input.extend(core::iter::repeat_n(byte, length % 30));
        } else {
            let from = input.len() - back;
            let again: Vec<u8> = input[from..].iter().copied().take(length).collect();
            input.extend(again);
            input.push(byte);
        }
    }
    input
}

/// Inputs that produce every instruction of the formats: runs and matches of all lengths, near and
/// far, empty input, and noise.
fn inputs() -> Vec<Vec<u8>> {
    let noise = |length: usize, mut state: u32| -> Vec<u8> {
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(step).collect()
    };
    let mut inputs = vec![vec![], vec![7], vec![0; 4096], vec![0xff; 200_000], noise(4096, 1)];
    for length in [2, 3, 4, 5, 19, 238, 239, 255, 600, 4095, 4096, 70_000] {
        inputs.push(sample(length));
        inputs.push(noise(length, length as u32));
    }
    for distance in [1, 8, 2047, 2048, 2049, 16_384, 16_385, 32_768, 49_151, 49_152, 60_000] {
        for length in [4, 8, 9, 10, 33, 34, 264, 300, 2000] {
            for between in 1..6 {
                let mut input = noise(distance.max(length), 3);
                let again = input[input.len() - distance..].iter().copied().cycle().take(length);
                let again: Vec<u8> = again.collect();
                input.extend(again);
                input.extend(noise(between, 9));
                input.extend_from_within(input.len() - 7..);
                inputs.push(input);
            }
        }
    }
    inputs
}

#[test]
fn what_is_compressed_comes_back() {
    for input in inputs() {
        let mut stored = vec![0; input.len() + input.len() / 16 + 200];
        let length = compress_at(Method::Lzo, 9, &input, &mut stored).unwrap();
        let mut output = vec![0; input.len()];
        assert_eq!(decompress(Method::Lzo, &stored[..length], &mut output), Ok(input.len()));
        assert!(output == input, "{}", input.len());
        let other = lzokay::decompress::decompress(&stored[..length], &mut output);
        assert_eq!(other, Ok(input.len()));
        for method in [Method::Lzo, Method::Deflate, Method::Zlib, Method::Zstd] {
            let mut stored = vec![0; input.len() + input.len() / 16 + 200];
            let length = compress(method, &input, &mut stored).unwrap();
            let mut output = vec![0; input.len()];
            let answer = decompress(method, &stored[..length], &mut output);
            assert_eq!(answer, Ok(input.len()), "{method:?} {}", input.len());
            assert!(output == input, "{method:?} {}", input.len());
            if length > 0 {
                let short = &mut stored[..length - 1];
                assert_eq!(compress(method, &input, short), None, "{method:?} {}", input.len());
            }
        }
    }
}

#[test]
fn what_did_not_fit_leaves_nothing_behind() {
    let inputs = inputs();
    let (noise, text) = (&inputs[4], sample(4096));
    for method in [Method::Lzo, Method::Deflate, Method::Zlib, Method::Zstd] {
        let mut stored = vec![0; 4095];
        let once = compress(method, &text, &mut stored).unwrap();
        let first = stored[..once].to_vec();
        for _ in 0..100 {
            assert_eq!(compress(method, noise, &mut stored), None, "{method:?}");
            assert_eq!(compress(method, &text, &mut stored[..once - 1]), None, "{method:?}");
        }
        assert_eq!(compress(method, &text, &mut stored), Some(once), "{method:?}");
        assert_eq!(stored[..once], first, "{method:?}");
    }
}

#[test]
fn portable_writers_are_read() {
    use crate::deflate::{Wrapping, deflate_portably};
    for input in inputs() {
        let mut stored = vec![0; input.len() + input.len() / 16 + 200];
        let mut output = vec![0; input.len()];
        for (wrapping, method) in
            [(Wrapping::Raw11, Method::Deflate), (Wrapping::Zlib15, Method::Zlib)]
        {
            let length = deflate_portably(wrapping, 6, &input, &mut stored).unwrap();
            assert_eq!(decompress(method, &stored[..length], &mut output), Ok(input.len()));
            assert!(output == input);
            assert_eq!(deflate_portably(wrapping, 6, &input, &mut stored[..length - 1]), None);
        }
        let length = zstd::compress_portably(3, &input, &mut stored).unwrap();
        assert_eq!(decompress(Method::Zstd, &stored[..length], &mut output), Ok(input.len()));
        assert!(output == input);
    }
}

#[test]
fn deflate_for_ubifs_does_not_reach_farther_than_linux_reads() {
    use crate::deflate::{Wrapping, deflate, deflate_portably};
    let noise = inputs().swap_remove(4);
    let input: Vec<u8> = [&noise[..2100], &noise[..1996]].concat();
    let mut stored = vec![0; 5000];
    let length = deflate(Wrapping::Zlib15, 9, &input, &mut stored).unwrap();
    assert!(length < 2400, "the second part is a repeat of the first: {length}");
    for writer in [deflate, deflate_portably] {
        let length = writer(Wrapping::Raw11, 9, &input, &mut stored).unwrap();
        assert!(length > 4000, "a distance of 2100 was used: {length}");
    }
}

#[test]
fn lzo_packs_as_liblzo2_does() {
    // lzo1x_1_compress of liblzo2 2.10 makes 1677 bytes of this text.
    let mut stored = vec![0; 4096];
    let length = compress(Method::Lzo, &sample(4096), &mut stored).unwrap();
    assert!((1600..=1677).contains(&length), "{length} bytes");
    // Its lzo1x_999_compress makes 1111.
    let length = compress_at(Method::Lzo, 9, &sample(4096), &mut stored).unwrap();
    assert!(length <= 1400, "{length} bytes");
}

proptest! {
    #[test]
    fn anything_compressed_comes_back(
        parts in proptest::collection::vec((any::<u16>(), any::<u8>(), 0_usize..300), 0..60),
    ) {
        let input = repetitive(parts);
        for method in [Method::Lzo, Method::Deflate, Method::Zlib, Method::Zstd] {
            let mut stored = vec![0; input.len() + input.len() / 16 + 200];
            let length = compress(method, &input, &mut stored).unwrap();
            let mut output = vec![0; input.len()];
            prop_assert_eq!(decompress(method, &stored[..length], &mut output), Ok(input.len()));
            prop_assert!(output == input);
        }
    }
}
