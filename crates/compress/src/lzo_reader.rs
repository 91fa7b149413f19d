//! The LZO1X decompressor.
//!
//! Theory. A stream is a sequence of instructions: runs of literals, and copies of earlier output,
//! each followed by up to three literals. The meaning of an instruction byte below 16 depends on
//! the number of preceding literals. Almost everything is short, so chunks of 16 bytes are copied
//! whole if both buffers have room for that; the following output overwrites the excess (Linux
//! `Documentation/staging/lzo.rst` describes the format).

use crate::DecompressError;

/// Bytes copied at once.
const PIECE: usize = 16;
/// Distance in the instruction that ends a stream.
const END: usize = 16384;
/// Length in the instruction that ends a stream.
const END_LENGTH: usize = 3;
/// Lengths beyond this do not fit any buffer, bytes.
const LENGTH_MAX: usize = 1 << 29;
/// The value of the last literals after a run of them.
const RUN: usize = 4;

/// An instruction of two bytes, looked up by its first.
#[derive(Clone, Copy)]
struct Short {
    /// Bytes to copy; 0 if it is not such an instruction.
    length: u8,
    /// Base-2 logarithm of the weight of the second byte.
    shift: u8,
    /// The distance if the second byte is 0.
    distance: u16,
}

/// Longest copy of a short instruction, bytes.
const SHORT_MAX: usize = 8;

/// Short instructions, by what came before (no literals, up to three, a run) and by first byte.
static SHORT: [[Short; 256]; 3] = [shorts(0), shorts(1), shorts(2)];

const fn shorts(before: usize) -> [Short; 256] {
    let mut table = [Short { length: 0, shift: 0, distance: 0 }; 256];
    let mut code = 0;
    while code < table.len() {
        let near = code as u16 >> 2;
        if code >= 64 {
            let length = (code as u8 >> 5) + 1;
            table[code] = Short { length, shift: 3, distance: (near & 7) + 1 };
        } else if code < 16 && before == 1 {
            table[code] = Short { length: 2, shift: 2, distance: near + 1 };
        } else if code < 16 && before == 2 {
            table[code] = Short { length: 3, shift: 2, distance: near + 2049 };
        }
        code += 1;
    }
    table
}

/// Decompresses a whole stream into `output`; returns the number of bytes written.
pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize, DecompressError> {
    let mut reader = Reader { input, from: 0, output, to: 0 };
    let mut literals = 0;
    if let Some(&first @ 18..) = input.first() {
        reader.from = 1;
        let count = usize::from(first) - 17;
        reader.literals(count)?;
        literals = count.min(RUN);
    }
    loop {
        literals = reader.shorts(literals);
        let code = reader.byte()?;
        let (distance, length);
        if code >= 64 {
            distance = (reader.byte()? << 3) + (code >> 2 & 7) + 1;
            length = (code >> 5) + 1;
            literals = code & 3;
        } else if code >= 16 {
            let is_far = code < 32;
            let field = if is_far { 7 } else { 31 };
            length = 2 + reader.length(code & field, field)?;
            let word = reader.word()?;
            literals = word & 3;
            distance = (word >> 2) + if is_far { END + ((code & 8) << 11) } else { 1 };
            if is_far && distance == END {
                return reader.end(length);
            }
        } else if literals == 0 {
            let count = 3 + reader.length(code, 15)?;
            reader.literals(count)?;
            literals = RUN;
            continue;
        } else {
            let after_run = literals == RUN;
            distance = (reader.byte()? << 2) + (code >> 2) + if after_run { 2049 } else { 1 };
            length = if after_run { 3 } else { 2 };
            literals = code & 3;
        }
        reader.copy(distance, length)?;
        reader.literals(literals)?;
    }
}

struct Reader<'a> {
    input: &'a [u8],
    from: usize,
    output: &'a mut [u8],
    to: usize,
}

impl Reader<'_> {
    /// Executes short instructions as long as there is room for whole chunks, where `literals` is
    /// the number of preceding literals; returns the new number.
    #[inline]
    fn shorts(&mut self, mut literals: usize) -> usize {
        let mut before = literals.min(1) + usize::from(literals == RUN);
        while let Some(word) = self.input.get(self.from..).and_then(|it| it.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*word);
            let code = word as u8;
            let short = SHORT[before][usize::from(code)];
            let length = usize::from(short.length);
            let distance =
                usize::from(short.distance) + (usize::from((word >> 8) as u8) << short.shift);
            let from = self.to.wrapping_sub(distance);
            let Some(copied) = self.output.get(from..).and_then(|it| it.first_chunk::<SHORT_MAX>())
            else {
                break;
            };
            let copied = *copied;
            let Some(room) = room(self.output, self.to) else { break };
            if length == 0 || length > SHORT_MAX || length > distance {
                break;
            }
            room[..SHORT_MAX].copy_from_slice(&copied);
            // Up to three literals and a byte that does not count.
            room[length..length + 4].copy_from_slice(&((word >> 16) as u32).to_le_bytes());
            literals = usize::from(code & 3);
            before = literals.min(1);
            self.from += 2 + literals;
            self.to += length + literals;
        }
        literals
    }

    #[inline]
    fn byte(&mut self) -> Result<usize, DecompressError> {
        let byte = *self.input.get(self.from).ok_or(DecompressError::Corrupt)?;
        self.from += 1;
        Ok(usize::from(byte))
    }

    #[inline]
    fn word(&mut self) -> Result<usize, DecompressError> {
        let bytes = self.input.get(self.from..self.from + 2).ok_or(DecompressError::Corrupt)?;
        self.from += 2;
        Ok(usize::from(bytes[0]) | usize::from(bytes[1]) << 8)
    }

    /// A length from its field of the instruction: 0 means that it is more than `most`, and bytes
    /// to be added follow.
    #[inline]
    fn length(&mut self, field: usize, most: usize) -> Result<usize, DecompressError> {
        if field != 0 {
            return Ok(field);
        }
        let mut length = most;
        loop {
            match self.byte()? {
                0 if length > LENGTH_MAX => return Err(DecompressError::TooLong),
                0 => length += 255,
                last => return Ok(length + last),
            }
        }
    }

    /// Copies `count` literals.
    #[inline]
    fn literals(&mut self, count: usize) -> Result<(), DecompressError> {
        let (from, to) = (self.from, self.to);
        if count <= PIECE
            && let Some(piece) = piece(self.input, from)
            && let Some(room) = room(self.output, to)
        {
            *room = piece;
        } else {
            let piece = self.input.get(from..from + count).ok_or(DecompressError::Corrupt)?;
            let room = self.output.get_mut(to..to + count).ok_or(DecompressError::TooLong)?;
            room.copy_from_slice(piece);
        }
        self.from += count;
        self.to += count;
        Ok(())
    }

    /// Repeats `length` bytes from `distance` bytes back in the output.
    #[inline]
    fn copy(&mut self, distance: usize, length: usize) -> Result<(), DecompressError> {
        let to = self.to;
        let mut from = to.checked_sub(distance).ok_or(DecompressError::Corrupt)?;
        let end = to + length;
        if distance < PIECE || end + PIECE > self.output.len() {
            return self.copy_slowly(from, end);
        }
        let mut at = to;
        while at < end {
            let (Some(piece), Some(room)) = (piece(self.output, from), room(self.output, at))
            else {
                return Err(DecompressError::TooLong);
            };
            *room = piece;
            from += PIECE;
            at += PIECE;
        }
        self.to = end;
        Ok(())
    }

    /// For the end of the output, or if the source overlaps with the copy.
    fn copy_slowly(&mut self, from: usize, end: usize) -> Result<(), DecompressError> {
        let to = self.to;
        if end > self.output.len() {
            return Err(DecompressError::TooLong);
        }
        if to - from == 1 {
            let byte = self.output[from];
            self.output[to..end].fill(byte);
        } else if from + (end - to) <= to {
            self.output.copy_within(from..from + (end - to), to);
        } else {
            // What is repeated grows by what was repeated.
            for (earlier, at) in (from..).zip(to..end) {
                self.output[at] = self.output[earlier];
            }
        }
        self.to = end;
        Ok(())
    }

    /// The last instruction: nothing may follow it.
    fn end(&self, length: usize) -> Result<usize, DecompressError> {
        let is_end = length == END_LENGTH && self.from == self.input.len();
        if is_end { Ok(self.to) } else { Err(DecompressError::Corrupt) }
    }
}

#[inline]
fn piece(bytes: &[u8], at: usize) -> Option<[u8; PIECE]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[inline]
fn room(bytes: &mut [u8], at: usize) -> Option<&mut [u8; PIECE]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}
