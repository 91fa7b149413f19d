//! Compression as flash file systems need it: one block, into a buffer of known size.
//!
//! Data to be decompressed comes from images and is hostile: whatever the bytes, a call returns,
//! writes only into `output` and takes bounded memory. The methods are implemented by
//! well-maintained crates; this crate adds a common interface, the bounds, and LZO. With the
//! feature `std` each thread keeps its contexts, deflate is read by libdeflate and written by
//! zlib-rs, and Zstandard is the C library: two to three times as fast as the implementations used
//! without it.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod deflate;
mod lzo;
mod lzo_reader;
mod zstd;

#[cfg(test)]
mod tests;

use core::fmt;

/// A compression method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// LZO1X without framing, as liblzo2 and the Linux kernel write it.
    Lzo,
    /// Deflate without a header, which UBIFS calls zlib. Any window size can be read; distances up
    /// to 2 KiB are written, because Linux reads no more.
    Deflate,
    /// Deflate with a two-byte zlib header. The checksum at the end is ignored: the block has its
    /// own CRC, and Linux's JFFS2 ignores it too.
    Zlib,
    /// One or more Zstandard frames.
    Zstd,
}

impl Method {
    /// The level at which Linux compresses: LZO1X-1, deflate 6 for UBIFS and 3 for JFFS2, Zstandard
    /// 3.
    pub fn level(self) -> i32 {
        match self {
            Self::Lzo => 1,
            Self::Deflate => 6,
            Self::Zlib | Self::Zstd => 3,
        }
    }
}

/// Why decompression failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecompressError {
    /// The input is not the output of a compressor.
    Corrupt,
    /// The output would not fit.
    TooLong,
}

impl fmt::Display for DecompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "compressed data is corrupt",
            Self::TooLong => "compressed data is longer than announced",
        })
    }
}

impl core::error::Error for DecompressError {}

/// Decompresses `input` into `output`; returns the number of bytes written.
pub fn decompress(
    method: Method,
    input: &[u8],
    output: &mut [u8],
) -> Result<usize, DecompressError> {
    match method {
        Method::Lzo => lzo_reader::decompress(input, output),
        Method::Deflate => deflate::inflate(input, output),
        Method::Zlib => deflate::inflate(strip_zlib_header(input)?, output),
        Method::Zstd => zstd::decompress(input, output),
    }
}

/// Compresses `input` at the same level as Linux; returns the number of bytes of `output` used, or
/// `None` if the result does not fit: pass an output as long as is worth it.
pub fn compress(method: Method, input: &[u8], output: &mut [u8]) -> Option<usize> {
    compress_at(method, method.level(), input, output)
}

/// Compresses `input` at `level`, as `compress` does.
///
/// Levels are 1 to 9 for deflate, 1 to 12 for zlib, and those of the library for Zstandard. For
/// LZO, 1 is a single pass, and 2 and up search for good matches. A level out of range is replaced
/// by the nearest one.
pub fn compress_at(method: Method, level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
    match method {
        Method::Lzo if level > 1 => lzo::compress_thoroughly(input, output),
        Method::Lzo => lzo::compress(input, output),
        Method::Deflate => deflate::deflate(deflate::Wrapping::Raw11, level, input, output),
        Method::Zlib => deflate::deflate(deflate::Wrapping::Zlib15, level, input, output),
        Method::Zstd => zstd::compress(level, input, output),
    }
}

/// The deflate stream after a zlib header (RFC 1950): method 8, window at most 32 KiB, correct
/// check bits, no preset dictionary.
fn strip_zlib_header(input: &[u8]) -> Result<&[u8], DecompressError> {
    let (header, rest) = input.split_first_chunk::<2>().ok_or(DecompressError::Corrupt)?;
    let known = header[0] & 0x0f == 8 && header[0] >> 4 <= 7 && header[1] & 0x20 == 0;
    if known && u16::from_be_bytes(*header).is_multiple_of(31) {
        Ok(rest)
    } else {
        Err(DecompressError::Corrupt)
    }
}
