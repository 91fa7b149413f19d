//! Whether and how a block of content is compressed.

use flysch_compress::Method;
use flysch_wire::ubifs::{BLOCK_SIZE, Compression};

/// Shorter blocks are stored uncompressed (`UBIFS_MIN_COMPR_LEN`).
const LENGTH_MIN: usize = 128;

/// LZO level with a search for better matches, as in mkfs.ubifs; Linux takes the first match found.
pub const LZO_THOROUGH: i32 = 9;

/// How blocks are to be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// By one method at one level, see [`flysch_compress::compress_at`].
    One(Compression, i32),
    /// By LZO, and by deflate where that is at least this many percent shorter (`favor_lzo`, `-X`).
    FavorLzo {
        /// 1 to 99.
        percent: u32,
        /// Level of deflate, if not Linux's.
        level: Option<i32>,
    },
}

impl Packing {
    /// Compresses with a method as Linux does.
    pub fn new(compression: Compression) -> Self {
        let level = method(compression).map_or(0, Method::level);
        Self::One(compression, level)
    }
}

fn method(compression: Compression) -> Option<Method> {
    match compression {
        Compression::Lzo => Some(Method::Lzo),
        Compression::Zlib => Some(Method::Deflate),
        Compression::Zstd => Some(Method::Zstd),
        Compression::None | Compression::Unknown(_) => None,
    }
}

/// Compresses `block`, at most 4096 bytes, into `out`; returns the method and the bytes to store,
/// which are `block` itself if compression gains nothing.
pub fn pack<'o>(
    packing: Packing,
    block: &'o [u8],
    out: &'o mut [u8; BLOCK_SIZE as usize],
) -> (Compression, &'o [u8]) {
    let room = block.len().saturating_sub(1).min(out.len());
    if block.len() < LENGTH_MIN {
        return (Compression::None, block);
    }
    let packed = match packing {
        Packing::One(compression, level) => method(compression)
            .and_then(|method| flysch_compress::compress_at(method, level, block, &mut out[..room]))
            .map(|length| (compression, length)),
        Packing::FavorLzo { percent, level } => {
            let level = level.unwrap_or(Method::Deflate.level());
            favor_lzo(percent, level, block, &mut out[..room])
        }
    };
    match packed {
        Some((compression, length)) => (compression, &out[..length]),
        None => (Compression::None, block),
    }
}

fn favor_lzo(
    percent: u32,
    level: i32,
    block: &[u8],
    out: &mut [u8],
) -> Option<(Compression, usize)> {
    let compress =
        |method, level, out: &mut [u8]| flysch_compress::compress_at(method, level, block, out);
    let long = compress(Method::Lzo, LZO_THOROUGH, out);
    // The largest result for which deflate is worth it.
    let room = long.map_or(out.len(), |long| long * (100 - percent.min(99)) as usize / 100);
    let mut short = [0; BLOCK_SIZE as usize];
    match compress(Method::Deflate, level, &mut short[..room]) {
        Some(length) => {
            out[..length].copy_from_slice(&short[..length]);
            Some((Compression::Zlib, length))
        }
        None => long.map(|length| (Compression::Lzo, length)),
    }
}
