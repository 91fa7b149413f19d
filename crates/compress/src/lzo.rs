//! LZO1X compression in one pass over the input, as fast as the format allows.
//!
//! The stream is a list of instructions, each a run of literals or a match. The meaning of a byte
//! below 16 depends on the number of literals before it, so the two low bits of a match carry up to
//! three literals that follow it, and longer runs have their own instruction; a stream never starts
//! with a match. The formats of the instructions are documented at their writers; they are
//! described in Linux's `Documentation/staging/lzo.rst`.

/// Shortest match to search for, bytes: what one comparison of words can find.
const MATCH_MIN: usize = 4;
/// Maximum distance of a match in two bytes; in three bytes; in three bytes with a distance bit.
const NEAR_MAX: usize = 0x0800;
const MIDDLE_MAX: usize = 0x4000;
const FAR_MAX: usize = 0xbfff;
/// Longest match with a near distance that fits two bytes.
const NEAR_LENGTH_MAX: usize = 8;
/// First bytes of the three kinds of matches; `Writer::copy` documents what is ORed in.
const MIDDLE: u8 = 0b0010_0000;
const FAR: u8 = 0b0001_0000;
/// The end of a stream: a far match of length 3 with a distance that no other match has.
const END: [u8; 3] = [FAR | 1, 0, 0];

/// Bits of a hash: 16 KiB of positions, which fit the first-level cache.
const HASH_BITS: u32 = 12;

/// Compresses `input`; `None` if it does not fit `output`.
///
/// As in LZO1X-1, one earlier place is tried for each position, and the steps grow if nothing has
/// been found for long: incompressible input is passed over quickly.
pub(crate) fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let mut writer = Writer { output, at: 0, first: true };
    let mut seen = [0_u32; 1 << HASH_BITS];
    let mut literals_from = 0;
    // Position 0 stands for "never seen" as well; nothing is lost but a match at the very start.
    let mut at = 1;
    while let Some(here) = word(input, at) {
        let slot = &mut seen[hash(here)];
        let earlier = *slot as usize;
        *slot = at as u32;
        let distance = at - earlier;
        if distance > FAR_MAX || word(input, earlier) != Some(here) {
            at += 1 + ((at - literals_from) >> 5);
            continue;
        }
        let length = MATCH_MIN + common(&input[earlier + MATCH_MIN..], &input[at + MATCH_MIN..]);
        writer.literals(&input[literals_from..at])?;
        writer.copy(distance, length)?;
        at += length;
        literals_from = at;
    }
    writer.literals(&input[literals_from..])?;
    writer.put(&END)?;
    Some(writer.at)
}

/// Number of earlier places with the same start to examine.
const CHAIN_MAX: usize = 48;

/// Compresses `input` better and slower: examines many earlier places, with matches from three
/// bytes on, and takes the one that saves most, unless the next position has a better one.
pub(crate) fn compress_thoroughly(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let mut writer = Writer { output, at: 0, first: true };
    let mut chains =
        Chains { input, newest: [0; 1 << HASH_BITS], older: alloc::vec![0; input.len()] };
    let mut literals_from = 0;
    let mut at = 0;
    while at < input.len() {
        let found = if at > 0 { chains.best(at) } else { None };
        chains.insert(at);
        let Some(found) = found else {
            at += 1;
            continue;
        };
        if chains.best(at + 1).is_some_and(|next| next.saved > found.saved) {
            at += 1;
            continue;
        }
        writer.literals(&input[literals_from..at])?;
        writer.copy(found.distance, found.length)?;
        (at + 1..at + found.length).for_each(|inside| chains.insert(inside));
        at += found.length;
        literals_from = at;
    }
    writer.literals(&input[literals_from..])?;
    writer.put(&END)?;
    Some(writer.at)
}

/// A match, and how many bytes it saves.
struct Match {
    distance: usize,
    length: usize,
    saved: usize,
}

/// Places by their first bytes, newest first; a place is stored plus one.
struct Chains<'i> {
    input: &'i [u8],
    newest: [u32; 1 << HASH_BITS],
    older: alloc::vec::Vec<u32>,
}

impl Chains<'_> {
    fn slot(&self, at: usize) -> Option<usize> {
        let start = self.input.get(at..)?.first_chunk::<3>()?;
        Some(hash(u32::from_le_bytes([0, start[0], start[1], start[2]])))
    }

    fn insert(&mut self, at: usize) {
        if let Some(slot) = self.slot(at) {
            self.older[at] = self.newest[slot];
            self.newest[slot] = at as u32 + 1;
        }
    }

    fn best(&self, at: usize) -> Option<Match> {
        let mut best: Option<Match> = None;
        let mut place = self.newest[self.slot(at)?];
        for _ in 0..CHAIN_MAX {
            let Some(earlier) = (place as usize).checked_sub(1) else { break };
            let distance = at - earlier;
            if distance > FAR_MAX {
                break;
            }
            let length = common(&self.input[earlier..], &self.input[at..]);
            let near = distance <= NEAR_MAX && length <= NEAR_LENGTH_MAX;
            let cost = if near { 2 } else { 3 + usize::from(length > 33) };
            // Far ones name at most nine bytes without extension, and three never pay there.
            let cost = cost + usize::from(distance > MIDDLE_MAX && length > 9);
            let saved = length.saturating_sub(cost);
            let is_match = length >= 3 && saved > 0;
            if is_match && best.as_ref().is_none_or(|best| saved > best.saved) {
                best = Some(Match { distance, length, saved });
            }
            place = self.older[earlier];
        }
        best
    }
}

fn word(input: &[u8], at: usize) -> Option<u32> {
    input.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
}

fn hash(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize
}

/// Length of the common prefix of two slices; the second is the shorter one.
fn common(earlier: &[u8], here: &[u8]) -> usize {
    let mut length = 0;
    let words = earlier.chunks_exact(8).zip(here.chunks_exact(8));
    for (a, b) in words {
        let a = u64::from_le_bytes(a.try_into().expect("eight bytes"));
        let b = u64::from_le_bytes(b.try_into().expect("eight bytes"));
        if a != b {
            return length + (a ^ b).trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length + earlier[length..].iter().zip(&here[length..]).take_while(|(a, b)| a == b).count()
}

/// Writes instructions; every call returns `None` once the output is full.
struct Writer<'a> {
    output: &'a mut [u8],
    at: usize,
    /// Nothing has been written yet.
    first: bool,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at + bytes.len();
        self.output.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    /// A run of literals. Up to three directly follow a match and are counted in the low bits of
    /// its last byte but one. From 4 on: `0000LLLL`, L + 3 literals. At the start of a stream also
    /// one byte, L + 17, from 18 on (17 would be taken for the mark of a later version).
    fn literals(&mut self, run: &[u8]) -> Option<()> {
        let count = run.len();
        match count {
            0 => return Some(()),
            1..=238 if self.first => self.put(&[count as u8 + 17])?,
            1..=3 => self.output[self.at - 2] |= count as u8,
            4..=18 => self.put(&[count as u8 - 3])?,
            _ => {
                self.put(&[0])?;
                self.extended(count - 18)?;
            }
        }
        self.first = false;
        self.put(run)
    }

    /// A match. Near and short: `LLLDDDSS`, `DDDDDDDD` (L + 1 bytes, L from 2 on). Otherwise a
    /// first byte with the length less 2 and, if that does not fit, extension bytes, then the
    /// distance in 14 bits above SS. The middle kind counts distances from 1, the far one from
    /// 16384, with bit 3 of the first byte as the fifteenth bit. SS is the number of literals that
    /// follow.
    fn copy(&mut self, distance: usize, length: usize) -> Option<()> {
        debug_assert!(!self.first && length >= 3 && (1..=FAR_MAX).contains(&distance));
        if distance <= NEAR_MAX && length <= NEAR_LENGTH_MAX {
            let distance = distance - 1;
            let first = (length - 1) << 5 | (distance & 7) << 2;
            return self.put(&[first as u8, (distance >> 3) as u8]);
        }
        let low = if distance <= MIDDLE_MAX {
            self.length(MIDDLE, 0x1f, length - 2)?;
            distance - 1
        } else {
            let distance = distance - MIDDLE_MAX;
            self.length(FAR | (distance >> 11) as u8 & 8, 0x07, length - 2)?;
            distance
        };
        self.put(&((low << 2) as u16).to_le_bytes())
    }

    /// The first byte of a match and its length, of which up to `most` fits that byte.
    fn length(&mut self, first: u8, most: usize, length: usize) -> Option<()> {
        if length <= most {
            return self.put(&[first | length as u8]);
        }
        self.put(&[first])?;
        self.extended(length - most)
    }

    /// A number from 1 on: a zero byte for each 255, then the rest, 1 to 255.
    fn extended(&mut self, mut number: usize) -> Option<()> {
        while number > 255 {
            self.put(&[0])?;
            number -= 255;
        }
        self.put(&[number as u8])
    }
}
