//! Zstandard: the C library if there is an operating system, ruzstd otherwise.

use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::FrameDecoderError;

use crate::DecompressError;

/// Largest window for which a frame may request memory, bytes. A block of a flash file system is 4
/// KiB.
const WINDOW_MAX: u64 = 1 << 20;

#[cfg(feature = "std")]
pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize, DecompressError> {
    std::thread_local! {
        static CONTEXT: core::cell::RefCell<zstd_safe::DCtx<'static>> =
            core::cell::RefCell::new(zstd_safe::DCtx::create());
    }
    // ZSTD_error_dstSize_tooSmall; the library returns error codes negated.
    const TOO_SMALL: usize = 0_usize.wrapping_sub(70);
    CONTEXT.with_borrow_mut(|context| {
        context.decompress(output, input).map_err(|code| match code {
            TOO_SMALL => DecompressError::TooLong,
            _ => DecompressError::Corrupt,
        })
    })
}

#[cfg(not(feature = "std"))]
pub(crate) use decompress_portably as decompress;

#[cfg_attr(feature = "std", allow(dead_code, reason = "the tests compare both"))]
pub(crate) fn decompress_portably(
    input: &[u8],
    output: &mut [u8],
) -> Result<usize, DecompressError> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW_MAX);
    match decoder.decode_all(input, output) {
        // A frame without content leaves nothing; no frame at all is not Zstandard.
        Ok(0) if input.is_empty() => Err(DecompressError::Corrupt),
        Ok(length) => Ok(length),
        Err(FrameDecoderError::TargetTooSmall) => Err(DecompressError::TooLong),
        Err(_) => Err(DecompressError::Corrupt),
    }
}

#[cfg(feature = "std")]
pub(crate) fn compress(level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
    std::thread_local! {
        static CONTEXT: core::cell::RefCell<zstd_safe::CCtx<'static>> =
            core::cell::RefCell::new(zstd_safe::CCtx::create());
    }
    CONTEXT.with_borrow_mut(|context| context.compress(output, input, level).ok())
}

#[cfg(not(feature = "std"))]
pub(crate) use compress_portably as compress;

/// The portable compressor has only one level.
#[cfg_attr(feature = "std", allow(dead_code, reason = "the tests compare both"))]
pub(crate) fn compress_portably(_level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    let stored = compress_to_vec(input, CompressionLevel::Fastest);
    output.get_mut(..stored.len())?.copy_from_slice(&stored);
    Some(stored.len())
}
