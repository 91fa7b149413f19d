//! Deflate: libdeflate if there is an operating system, with zlib-rs for writing with a small
//! window; miniz_oxide otherwise.

use miniz_oxide::deflate::core::{self as tdefl, CompressorOxide, TDEFLFlush, TDEFLStatus};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{self as tinfl, DecompressorOxide, inflate_flags};

use crate::DecompressError;

/// The framing of a deflate stream, and its maximum distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrapping {
    /// None; distances up to 2 KiB: Linux gives its UBIFS reader a window of 11 bits.
    Raw11,
    /// A zlib header and checksum; distances up to 32 KiB.
    Zlib15,
}

#[cfg(feature = "std")]
pub(crate) fn inflate(input: &[u8], output: &mut [u8]) -> Result<usize, DecompressError> {
    use libdeflater::{DecompressionError, Decompressor};

    std::thread_local! {
        static CONTEXT: core::cell::RefCell<Decompressor> =
            core::cell::RefCell::new(Decompressor::new());
    }
    CONTEXT.with_borrow_mut(|context| {
        context.deflate_decompress(input, output).map_err(|error| match error {
            DecompressionError::InsufficientSpace => DecompressError::TooLong,
            _ => DecompressError::Corrupt,
        })
    })
}

#[cfg(not(feature = "std"))]
pub(crate) use inflate_portably as inflate;

#[cfg_attr(feature = "std", allow(dead_code, reason = "the tests compare both"))]
pub(crate) fn inflate_portably(input: &[u8], output: &mut [u8]) -> Result<usize, DecompressError> {
    let mut context = alloc::boxed::Box::<DecompressorOxide>::default();
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    match tinfl::decompress(&mut context, input, output, 0, flags) {
        (TINFLStatus::Done, _, length) => Ok(length),
        (TINFLStatus::HasMoreOutput, ..) => Err(DecompressError::TooLong),
        _ => Err(DecompressError::Corrupt),
    }
}

#[cfg(feature = "std")]
pub(crate) fn deflate(
    wrapping: Wrapping,
    level: i32,
    input: &[u8],
    output: &mut [u8],
) -> Option<usize> {
    match wrapping {
        Wrapping::Raw11 => deflate_narrow(level, input, output),
        Wrapping::Zlib15 => deflate_zlib(level, input, output),
    }
}

/// A compressor for each thread, and the level for which it was made.
#[cfg(feature = "std")]
type Kept<C> = core::cell::RefCell<Option<(i32, C)>>;

#[cfg(feature = "std")]
fn deflate_zlib(level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
    use libdeflater::{CompressionLvl, Compressor};

    std::thread_local! {
        static CONTEXT: Kept<Compressor> = const { Kept::new(None) };
    }
    let level = level.clamp(1, 12);
    CONTEXT.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(its, _)| *its != level) {
            *kept = Some((level, Compressor::new(CompressionLvl::new(level).ok()?)));
        }
        let (_, context) = kept.as_mut()?;
        context.zlib_compress(input, output).ok()
    })
}

/// libdeflate has only one window size; zlib-rs supports any.
#[cfg(feature = "std")]
fn deflate_narrow(level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
    use zlib_rs::{Deflate, DeflateFlush, Status};

    const WINDOW_BITS: u8 = 11;
    std::thread_local! {
        static CONTEXT: Kept<(Deflate, std::vec::Vec<u8>)> = const { Kept::new(None) };
    }
    let level = level.clamp(1, 9);
    CONTEXT.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(its, _)| *its != level) {
            let context = Deflate::new(level, false, WINDOW_BITS);
            *kept = Some((level, (context, std::vec::Vec::new())));
        }
        let (_, (context, room)) = kept.as_mut()?;
        // A stream that was not finished leaves something behind that a reset does not clear, and
        // zlib-rs 0.6 panics of it later: it always gets room enough.
        room.resize(input.len() + input.len() / 8 + 128, 0);
        context.reset();
        let status = context.compress(input, room, DeflateFlush::Finish);
        let length = context.total_out() as usize;
        if !matches!(status, Ok(Status::StreamEnd)) {
            *kept = None;
            return None;
        }
        output.get_mut(..length)?.copy_from_slice(&room[..length]);
        Some(length)
    })
}

#[cfg(not(feature = "std"))]
pub(crate) use deflate_portably as deflate;

/// Maximum input between two points that matches do not cross, bytes: this keeps the portable
/// compressor, whose window cannot be set, within 2 KiB.
const SECTION: usize = 2048;

#[cfg_attr(feature = "std", allow(dead_code, reason = "the tests compare both"))]
pub(crate) fn deflate_portably(
    wrapping: Wrapping,
    level: i32,
    input: &[u8],
    output: &mut [u8],
) -> Option<usize> {
    let level = level.clamp(1, 9);
    let (window_bits, section) = match wrapping {
        Wrapping::Raw11 => (-15, SECTION),
        Wrapping::Zlib15 => (15, input.len().max(1)),
    };
    let flags = tdefl::create_comp_flags_from_zip_params(level, window_bits, 0);
    let mut context = CompressorOxide::new(flags);
    let mut written = 0;
    let mut sections = input.chunks(section).peekable();
    loop {
        let part = sections.next().unwrap_or_default();
        let last = sections.peek().is_none();
        let flush = if last { TDEFLFlush::Finish } else { TDEFLFlush::Full };
        let room = output.get_mut(written..)?;
        let (status, taken, put) = tdefl::compress(&mut context, part, room, flush);
        written += put;
        match status {
            TDEFLStatus::Done if last => return Some(written),
            TDEFLStatus::Okay if !last && taken == part.len() && put < room.len() => {}
            _ => return None,
        }
    }
}
