//! Selects the compressor for a piece of a file.

use alloc::vec;
use alloc::vec::Vec;

use flysch_compress::{Method, compress};
use flysch_wire::jffs2::Compression;

use crate::rtime;

/// A compressor used for writing. Every Linux that has them built in can read all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// LZO1X. Linux's priority 80.
    Lzo,
    /// zlib. Linux's priority 60.
    Zlib,
    /// JFFS2's own search for repetitions. Linux's priority 50.
    Rtime,
}

impl Compressor {
    /// All of them, in Linux's order of preference.
    pub const ALL: [Self; 3] = [Self::Lzo, Self::Zlib, Self::Rtime];

    /// The compressor that mkfs.jffs2 and Linux call `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compressor| compressor.name() == name)
    }

    /// Its name in mkfs.jffs2 and Linux.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.id().name()
    }

    fn id(self) -> Compression {
        match self {
            Self::Lzo => Compression::Lzo,
            Self::Zlib => Compression::Zlib,
            Self::Rtime => Compression::Rtime,
        }
    }

    fn run(self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        match self {
            Self::Lzo => compress(Method::Lzo, input, output),
            Self::Zlib => compress(Method::Zlib, input, output),
            Self::Rtime => rtime::compress(input, output),
        }
    }
}

/// How one of several compressors is chosen (`jffs2_compr_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// None: data is stored as it is.
    None,
    /// The first one, by priority, that makes the data shorter.
    Priority,
    /// The one with the shortest result.
    Size,
    /// LZO, unless the result of another one is less than 80 % of LZO's.
    FavourLzo,
}

impl Mode {
    /// The mode that mkfs.jffs2 and the mount option `compr` of Linux call `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "priority" => Self::Priority,
            "size" => Self::Size,
            "favourlzo" => Self::FavourLzo,
            _ => return None,
        })
    }
}

/// Which compressors to use. To force one, list it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compressors {
    /// How one is selected.
    pub mode: Mode,
    /// The candidates, by descending priority.
    pub enabled: Vec<Compressor>,
}

impl Compressors {
    /// Data is stored as it is.
    #[must_use]
    pub fn none() -> Self {
        Self { mode: Mode::None, enabled: vec![] }
    }
}

impl Default for Compressors {
    /// As mkfs.jffs2 and Debian's kernels: zlib, or rtime if zlib does not help.
    fn default() -> Self {
        Self { mode: Mode::Priority, enabled: vec![Compressor::Zlib, Compressor::Rtime] }
    }
}

/// LZO is preferred as long as the result of another compressor exceeds this percentage of LZO's.
const FAVOUR_LZO_PERCENT: usize = 80;
/// Pieces shorter than this are stored uncompressed, bytes.
const LEN_MIN: usize = 32;

/// Compresses pieces one after the other, with buffers that are reused.
#[derive(Debug)]
pub(crate) struct Packer {
    how: Compressors,
    best: Vec<u8>,
    trial: Vec<u8>,
}

/// How a piece is to be stored: `len` bytes of the input as `stored`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed<'a> {
    pub(crate) compression: Compression,
    pub(crate) stored: &'a [u8],
    pub(crate) len: usize,
}

impl Packer {
    pub(crate) fn new(how: Compressors) -> Self {
        Self { how, best: vec![], trial: vec![] }
    }

    /// Compresses `input`, or the longest beginning of it that is certain to fit, into at most
    /// `room` bytes. Neither is 0.
    pub(crate) fn pack<'a>(&'a mut self, input: &'a [u8], room: usize) -> Packed<'a> {
        let mut len = input.len();
        let mut found = self.choose(&input[..len]);
        if let Some((_, stored_len)) = found
            && stored_len > room
        {
            // The end of an erase block: as much as is likely to fit.
            len = len * room / stored_len * 15 / 16;
            found = self.choose(&input[..len]).filter(|(_, stored_len)| *stored_len <= room);
        }
        match found {
            // Storing as much as fits may still reach further.
            Some((compressor, stored_len)) if len >= room.min(input.len()) => {
                Packed { compression: compressor.id(), stored: &self.best[..stored_len], len }
            }
            _ => {
                let len = room.min(input.len());
                Packed { compression: Compression::None, stored: &input[..len], len }
            }
        }
    }

    /// Leaves the best result in `best`; returns which compressor made it and how long it is.
    fn choose(&mut self, input: &[u8]) -> Option<(Compressor, usize)> {
        if self.how.mode == Mode::None || input.len() < LEN_MIN {
            return None;
        }
        if self.trial.len() < input.len() {
            self.trial.resize(input.len(), 0);
            self.best.resize(input.len(), 0);
        }
        let limit = input.len() - 1;
        let mut best: Option<(Compressor, usize)> = None;
        for &compressor in &self.how.enabled {
            let Some(len) = compressor.run(input, &mut self.trial[..limit]) else { continue };
            if best.is_none_or(|best| self.is_better((compressor, len), best)) {
                best = Some((compressor, len));
                core::mem::swap(&mut self.best, &mut self.trial);
            }
            if self.how.mode == Mode::Priority {
                break;
            }
        }
        best
    }

    fn is_better(&self, new: (Compressor, usize), old: (Compressor, usize)) -> bool {
        let favoured = |len: usize| len * FAVOUR_LZO_PERCENT / 100;
        match (self.how.mode, new.0, old.0) {
            (Mode::FavourLzo, Compressor::Lzo, _) => favoured(new.1) < old.1,
            (Mode::FavourLzo, _, Compressor::Lzo) => new.1 < favoured(old.1),
            _ => new.1 < old.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use flysch_random::SplitMix64;

    use super::*;

    fn text() -> Vec<u8> {
        b"JFFS2 is a log-structured file system. ".iter().copied().cycle().take(4096).collect()
    }

    fn packer(mode: Mode, enabled: &[Compressor]) -> Packer {
        Packer::new(Compressors { mode, enabled: enabled.to_vec() })
    }

    #[test]
    fn modes_choose_as_they_say() {
        let text = text();
        let all = Compressor::ALL;
        let by_priority = packer(Mode::Priority, &all).pack(&text, 4096).compression;
        assert_eq!(by_priority, Compression::Lzo);
        let lens = all.map(|one| packer(Mode::Priority, &[one]).pack(&text, 4096).stored.len());
        let mut by_size = packer(Mode::Size, &all);
        assert_eq!(by_size.pack(&text, 4096).stored.len(), *lens.iter().min().unwrap());
        let mut none = packer(Mode::None, &all);
        assert_eq!(none.pack(&text, 4096).compression, Compression::None);
    }

    #[test]
    fn lzo_is_favoured_until_others_save_a_fifth() {
        let packer = packer(Mode::FavourLzo, &Compressor::ALL);
        let (lzo, zlib) = (Compressor::Lzo, Compressor::Zlib);
        assert!(!packer.is_better((zlib, 85), (lzo, 100)));
        assert!(packer.is_better((zlib, 79), (lzo, 100)));
        assert!(packer.is_better((lzo, 100), (zlib, 85)));
        assert!(!packer.is_better((lzo, 100), (zlib, 79)));
    }

    #[test]
    fn what_is_packed_fits_and_says_how_far_it_reaches() {
        let mut random = SplitMix64::new(1);
        let noise: Vec<u8> = (0..4096).map(|_| random.bits() as u8).collect();
        for mode in [Mode::None, Mode::Priority, Mode::Size, Mode::FavourLzo] {
            let mut packer = packer(mode, &Compressor::ALL);
            for input in [&text()[..], &noise[..], &noise[..1]] {
                for room in [1, 60, 128, 700, 4096] {
                    let packed = packer.pack(input, room);
                    assert!(packed.stored.len() <= room && packed.len >= room.min(input.len()));
                    assert!(packed.len <= input.len());
                    if packed.compression == Compression::None {
                        assert_eq!(packed.stored, &input[..packed.len]);
                    }
                }
            }
        }
    }
}
