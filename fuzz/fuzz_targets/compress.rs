//! Decompression: method and size of the output, followed by the compressed input.
#![no_main]

use flysch_compress::{Method, decompress};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let &[method, low, high, ref input @ ..] = bytes else { return };
    let methods = [Method::Lzo, Method::Deflate, Method::Zlib, Method::Zstd];
    let method = methods[usize::from(method) % methods.len()];
    let mut output = vec![0xa5; usize::from(u16::from_le_bytes([low, high])) % 8193];
    if let Ok(length) = decompress(method, input, &mut output) {
        assert!(length <= output.len());
    }
});
