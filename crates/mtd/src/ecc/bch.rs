//! Binary BCH codes as laid out by Linux's software BCH (`lib/bch.c`).
//!
//! Theory. The bits of a step, first byte first and most significant bit first, are the
//! coefficients of a polynomial over GF(2), followed by the bits of the code, so that the whole is
//! a multiple of the generator polynomial g: the code is the remainder of the shifted data divided
//! by g. The roots of g are a^1 .. a^2t, where a generates GF(2^m). On reading, the difference
//! between the remainder of the data and the stored code is a polynomial that agrees with the error
//! at those roots; its values there are the syndromes. From them the Berlekamp-Massey algorithm
//! finds the shortest polynomial whose roots are the inverse error positions, and Chien's search
//! finds these by trying every position of the step. More than t errors usually leave a polynomial
//! with too few roots, which is how they are detected.
//!
//! Linux stores the code XORed with a mask that makes erased flash (all ones) a valid step.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::array;

/// Primitive polynomials of degree 5 to 15 that generate the fields, the same as in Linux.
const PRIMITIVE: [u32; 11] =
    [0x25, 0x43, 0x83, 0x11D, 0x211, 0x409, 0x805, 0x1053, 0x201B, 0x402B, 0x8003];
/// Maximum number of code bits: correcting 72 bits in 1 KiB takes 1008.
const CODE_BITS_MAX: u32 = 1024;
/// The same in bytes and in words.
const CODE_BYTES_MAX: usize = CODE_BITS_MAX as usize / 8;
const WORDS_MAX: usize = CODE_BITS_MAX as usize / 64;
/// Maximum number of bits corrected in one step: each takes m >= 5 bits of code.
const T_MAX: usize = CODE_BITS_MAX as usize / 5;

/// Bits of a code, left aligned.
type Code = [u8; CODE_BYTES_MAX];

/// Bytes divided at once by codes of up to 128 bits.
const SLICES: usize = 8;
/// Steps divided side by side.
const LANES: usize = 4;

/// Remainders modulo the generator, left aligned: of every first byte and, for codes of up to 128
/// bits, of that byte followed by 1 to 7 zero bytes.
#[derive(Clone, Debug)]
enum Remainders {
    /// For up to 64 bits of code.
    Short(Arc<[[u64; 256]; SLICES]>),
    /// For up to 128 bits of code.
    Narrow(Arc<[[u128; 256]; SLICES]>),
    /// For longer codes, in this many words each.
    Wide(usize, Arc<[u64]>),
}

/// A code with the tables that make it fast. Clones share them.
#[derive(Clone, Debug)]
pub struct Bch {
    m: u32,
    t: u32,
    step: usize,
    code_bits: u32,
    /// Powers of a, over two periods so that a sum of two logarithms needs no reduction.
    power: Arc<[u16]>,
    /// Logarithms to the base a; the entry for 0 is not used.
    log: Arc<[u16]>,
    remainders: Remainders,
    /// The mask that turns the code of an erased step into ones.
    mask: Arc<[u8]>,
}

impl Bch {
    /// The code over GF(2^`m`) that corrects `t` bits in a step of `step` bytes. `None` if there is
    /// no such code, or none that needs at most 1024 bits.
    pub fn new(m: u32, t: u32, step: usize) -> Option<Self> {
        let primitive = *PRIMITIVE.get(usize::try_from(m.checked_sub(5)?).ok()?)?;
        if t == 0 || t > CODE_BITS_MAX / m {
            return None;
        }
        let (power, log) = field(m, primitive);
        let (generator, code_bits) = generator(&power, &log, m, t)?;
        let order = (1usize << m) - 1;
        if step == 0 || step * 8 + code_bits as usize > order {
            return None;
        }
        let remainders = Remainders::new(&generator, code_bits);
        let (power, log, mask) = (power.into(), log.into(), Arc::default());
        let mut code = Self { m, t, step, code_bits, power, log, remainders, mask };
        let erased = code.remainder_of(&vec![0xFF; step]);
        let mask = (0..code.code_len()).map(|at| !erased[at] & used_bits(code_bits, at));
        code.mask = mask.collect();
        Some(code)
    }

    /// Bytes of code per step.
    pub fn code_len(&self) -> usize {
        self.code_bits.div_ceil(8) as usize
    }

    /// Bits corrected in one step.
    pub fn strength(&self) -> u32 {
        self.t
    }

    /// Bytes of data in one step.
    pub fn step(&self) -> usize {
        self.step
    }

    /// The code of `data` as it is stored, in the first [`code_len`](Self::code_len) bytes of the
    /// result; unused bits are ones.
    pub fn compute(&self, data: &[u8]) -> [u8; CODE_BYTES_MAX] {
        self.stored(self.remainder_of(data))
    }

    /// Corrects `data`, one step, and `stored`, its code; returns the number of bits corrected, or
    /// `None` if there are more than the code can correct.
    pub fn correct(&self, data: &mut [u8], stored: &[u8]) -> Option<u32> {
        debug_assert!(data.len() == self.step && stored.len() == self.code_len());
        let Some(difference) = self.difference(&self.remainder_of(data), stored) else {
            return Some(0);
        };
        self.repair(data, &difference)
    }

    /// Corrects a step given the difference of its codes; `None` if there are too many errors.
    fn repair(&self, data: &mut [u8], difference: &Code) -> Option<u32> {
        let syndromes = self.syndromes(&difference[..self.code_len()]);
        let locator = self.locator(&syndromes[..2 * self.t as usize])?;
        self.flip_roots(&locator, data)
    }

    /// As [`compute`](Self::compute) for several steps, with their codes one after the other.
    pub fn compute_all(&self, data: &[u8], codes: &mut [u8]) {
        let len = self.code_len();
        self.divide_all(data, |at, remainder| {
            codes[at * len..][..len].copy_from_slice(&self.stored(remainder)[..len]);
        });
    }

    /// As [`correct`](Self::correct) for several steps, whose codes lie one after the other; `each`
    /// receives the result of each step.
    pub fn correct_all(
        &self,
        data: &mut [u8],
        stored: &[u8],
        mut each: impl FnMut(usize, Option<u32>),
    ) {
        let len = self.code_len();
        let stored = |at: usize| &stored[at * len..][..len];
        let mut wrong: Vec<(usize, Code)> = Vec::new();
        self.divide_all(data, |at, remainder| match self.difference(&remainder, stored(at)) {
            Some(difference) => wrong.push((at, difference)),
            None => each(at, Some(0)),
        });
        for (at, difference) in wrong {
            each(at, self.repair(&mut data[at * self.step..][..self.step], &difference));
        }
    }

    /// Passes the remainder of every step to `each`; it divides several at once, which is faster.
    fn divide_all(&self, data: &[u8], mut each: impl FnMut(usize, Code)) {
        let parts = data.chunks_exact(LANES * self.step);
        let rest = parts.remainder().chunks_exact(self.step);
        let mut at = 0;
        for part in parts {
            let steps = core::array::from_fn(|lane| &part[lane * self.step..][..self.step]);
            let remainders: [Code; LANES] = self.remainders_of(steps);
            for remainder in remainders {
                each(at, remainder);
                at += 1;
            }
        }
        for step in rest {
            each(at, self.remainder_of(step));
            at += 1;
        }
    }

    /// A remainder as it is stored.
    fn stored(&self, mut code: Code) -> Code {
        for (at, byte) in code.iter_mut().enumerate().take(self.code_len()) {
            *byte = *byte ^ self.mask[at] | !used_bits(self.code_bits, at);
        }
        code
    }

    /// The difference between a computed and a stored code; `None` if they are equal.
    fn difference(&self, computed: &Code, stored: &[u8]) -> Option<Code> {
        let mut difference = [0; CODE_BYTES_MAX];
        let mut any = 0;
        for (at, (byte, stored)) in difference.iter_mut().zip(stored).enumerate() {
            *byte = computed[at] ^ stored & used_bits(self.code_bits, at) ^ self.mask[at];
            any |= *byte;
        }
        (any != 0).then_some(difference)
    }

    fn remainder_of(&self, data: &[u8]) -> Code {
        let [code] = self.remainders_of([data]);
        code
    }

    /// The remainders of steps of equal length, which are divided side by side.
    fn remainders_of<const N: usize>(&self, data: [&[u8]; N]) -> [Code; N] {
        let parts = data.map(<[u8]>::as_chunks::<SLICES>);
        let (pieces, rests) = (parts.map(|part| part.0), parts.map(|part| part.1));
        let mut codes = [[0; CODE_BYTES_MAX]; N];
        match &self.remainders {
            Remainders::Short(tables) => {
                let registers = side_by_side(pieces, |register: u64, piece| {
                    let first = (register ^ u64::from_be_bytes(piece)).to_be_bytes();
                    let parts = first.into_iter().zip(tables.iter().rev());
                    parts.fold(0, |sum, (byte, table)| sum ^ table[usize::from(byte)])
                });
                for ((code, rest), register) in codes.iter_mut().zip(rests).zip(registers) {
                    let register = rest.iter().fold(register, |register, byte| {
                        (register << 8) ^ tables[0][usize::from((register >> 56) as u8 ^ byte)]
                    });
                    code[..8].copy_from_slice(&register.to_be_bytes());
                }
            }
            Remainders::Narrow(tables) => {
                let registers = side_by_side(pieces, |register: u128, piece| {
                    let first = (register >> 64) as u64 ^ u64::from_be_bytes(piece);
                    let parts = first.to_be_bytes().into_iter().zip(tables.iter().rev());
                    let left = register << 64;
                    parts.fold(left, |sum, (byte, table)| sum ^ table[usize::from(byte)])
                });
                for ((code, rest), register) in codes.iter_mut().zip(rests).zip(registers) {
                    let register = rest.iter().fold(register, |register, byte| {
                        (register << 8) ^ tables[0][usize::from((register >> 120) as u8 ^ byte)]
                    });
                    code[..16].copy_from_slice(&register.to_be_bytes());
                }
            }
            Remainders::Wide(words, table) => {
                for (code, data) in codes.iter_mut().zip(data) {
                    divide_wide(data, (*words, table), code);
                }
            }
        }
        codes
    }

    fn multiply(&self, a: u16, b: u16) -> u16 {
        if a == 0 || b == 0 {
            return 0;
        }
        let sum = usize::from(self.log[usize::from(a)]) + usize::from(self.log[usize::from(b)]);
        self.power[sum]
    }

    fn divide(&self, a: u16, b: u16) -> u16 {
        if a == 0 {
            return 0;
        }
        let order = (1usize << self.m) - 1;
        let (a, b) = (self.log[usize::from(a)], self.log[usize::from(b)]);
        self.power[usize::from(a) + order - usize::from(b)]
    }

    /// Values of the difference polynomial at a^1 .. a^2t.
    fn syndromes(&self, difference: &[u8]) -> [u16; 2 * T_MAX] {
        let order = (1usize << self.m) - 1;
        let mut syndromes = [0; 2 * T_MAX];
        let syndromes_used = &mut syndromes[..2 * self.t as usize];
        let first = self.code_bits as usize - 1;
        for (at, &byte) in difference.iter().enumerate() {
            let mut bits = byte;
            while bits != 0 {
                let bit = bits.leading_zeros() as usize;
                bits &= !(0x80 >> bit);
                let exponent = first - (at * 8 + bit);
                let (mut log, twice) = (exponent, 2 * exponent % order);
                for odd in syndromes_used.iter_mut().step_by(2) {
                    *odd ^= self.power[log];
                    log += twice;
                    log -= if log >= order { order } else { 0 };
                }
            }
        }
        // The value at the square of a place is the square of the value there.
        for at in (1..syndromes_used.len()).step_by(2) {
            let root = syndromes_used[at / 2];
            syndromes_used[at] = self.multiply(root, root);
        }
        syndromes
    }

    /// Berlekamp-Massey: the error locator, constant term first; `None` above t errors.
    fn locator(&self, syndromes: &[u16]) -> Option<Vec<u16>> {
        let mut current: Vec<u16> = vec![1];
        let mut previous: Vec<u16> = vec![1];
        let (mut errors, mut shift, mut scale) = (0usize, 1usize, 1u16);
        for n in 0..syndromes.len() {
            let discrepancy = (1..=errors.min(current.len() - 1))
                .fold(syndromes[n], |sum, i| sum ^ self.multiply(current[i], syndromes[n - i]));
            if discrepancy == 0 {
                shift += 1;
                continue;
            }
            let factor = self.divide(discrepancy, scale);
            let before = current.clone();
            if current.len() < previous.len() + shift {
                current.resize(previous.len() + shift, 0);
            }
            for (i, &coefficient) in previous.iter().enumerate() {
                current[i + shift] ^= self.multiply(factor, coefficient);
            }
            if 2 * errors <= n {
                errors = n + 1 - errors;
                (previous, scale, shift) = (before, discrepancy, 1);
            } else {
                shift += 1;
            }
        }
        current.truncate(errors + 1);
        let has_degree = current.len() == errors + 1 && current[errors] != 0;
        (errors <= self.t as usize && has_degree).then_some(current)
    }

    /// Whether a polynomial whose highest coefficient is not 0 is a product of distinct linear
    /// factors: it is if x^(2^m) leaves the remainder x when divided by the polynomial.
    fn splits(&self, polynomial: &[u16]) -> bool {
        let degree = polynomial.len() - 1;
        if degree < 2 {
            return true;
        }
        let lead = polynomial[degree];
        let monic: Vec<u16> = polynomial.iter().map(|&it| self.divide(it, lead)).collect();
        let mut power = vec![0; degree];
        let mut square = vec![0; 2 * degree];
        power[1] = 1;
        for _ in 0..self.m {
            for (at, &it) in power.iter().enumerate() {
                square[2 * at] = self.multiply(it, it);
                square[2 * at + 1] = 0;
            }
            for at in (degree..2 * degree).rev() {
                let factor = square[at];
                if factor != 0 {
                    for (i, &it) in monic[..degree].iter().enumerate() {
                        square[at - degree + i] ^= self.multiply(factor, it);
                    }
                }
            }
            power.copy_from_slice(&square[..degree]);
        }
        power.iter().enumerate().all(|(at, &it)| it == u16::from(at == 1))
    }

    /// Flips the data bits at the roots of the locator; code bits need no repair.
    fn flip_roots(&self, locator: &[u16], data: &mut [u8]) -> Option<u32> {
        // Most locators of more errors than can be corrected have no roots enough anywhere, which
        // is told faster than by trying every place.
        if !self.splits(locator) {
            return None;
        }
        let bits = data.len() * 8 + self.code_bits as usize;
        let mut found = [0; T_MAX];
        let degree = locator.len() - 1;
        self.roots(locator.to_vec(), bits, &mut found)?;
        for &exponent in &found[..degree] {
            if let Some(from_end) = exponent.checked_sub(self.code_bits as usize) {
                let byte = data.len() - 1 - from_end / 8;
                data[byte] ^= 1 << (from_end % 8);
            }
        }
        Some(degree as u32)
    }

    /// The exponents below `bits` at whose inverse powers of a the polynomial is 0; `None` if there
    /// are fewer than its degree. This is Chien's search, with a polynomial that loses a factor at
    /// every root; the last root needs no search.
    fn roots(&self, mut left: Vec<u16>, bits: usize, found: &mut [usize]) -> Option<()> {
        let order = (1usize << self.m) - 1;
        let mut logs: Vec<(usize, usize)> = Vec::new();
        let mut exponent = 0;
        for found in &mut found[..left.len() - 1] {
            if let [constant, factor] = left[..] {
                let root = usize::from(self.log[usize::from(self.divide(factor, constant))]);
                *found = root;
                return (constant != 0 && root < bits).then_some(());
            }
            // Logarithm of each term at a^-exponent, and what it loses with the next.
            logs.clear();
            for (i, &term) in left.iter().enumerate().filter(|(_, term)| **term != 0) {
                let log = usize::from(self.log[usize::from(term)]) + i * (order - exponent);
                logs.push((log % order, i));
            }
            loop {
                let mut value = 0;
                for (log, step) in &mut logs {
                    value ^= self.power[*log];
                    *log = if *log >= *step { *log - *step } else { *log + order - *step };
                }
                if value == 0 {
                    break;
                }
                exponent += 1;
                if exponent == bits {
                    return None;
                }
            }
            *found = exponent;
            // Divided by x + a^-exponent, from the highest term down.
            let root = self.power[(order - exponent) % order];
            let mut carry = 0;
            for term in left.iter_mut().rev() {
                let factor = *term ^ self.multiply(carry, root);
                *term = carry;
                carry = factor;
            }
            left.pop();
            exponent += 1;
            if exponent == bits {
                return None;
            }
        }
        Some(())
    }
}

/// Powers (two periods) and logarithms of the field's generator.
fn field(m: u32, primitive: u32) -> (Vec<u16>, Vec<u16>) {
    let order = (1usize << m) - 1;
    let mut power = vec![0u16; 2 * order];
    let mut log = vec![0u16; order + 1];
    let mut value = 1u32;
    for exponent in 0..order {
        power[exponent] = value as u16;
        power[exponent + order] = value as u16;
        log[value as usize] = exponent as u16;
        value <<= 1;
        if value >> m != 0 {
            value ^= primitive;
        }
    }
    (power, log)
}

/// The generator polynomial without its leading term, left aligned, and its degree: the product of
/// (x - r) over all roots r, which are a^1 .. a^2t and their conjugates.
fn generator(power: &[u16], log: &[u16], m: u32, t: u32) -> Option<([u64; WORDS_MAX], u32)> {
    let order = (1usize << m) - 1;
    let mut is_root = vec![false; order];
    for odd in (1..2 * t as usize).step_by(2) {
        let mut exponent = odd % order;
        for _ in 0..m {
            is_root[exponent] = true;
            exponent = 2 * exponent % order;
        }
    }
    let mut polynomial: Vec<u16> = vec![1];
    for root in (0..order).filter(|&exponent| is_root[exponent]) {
        let mut next = vec![0u16; polynomial.len() + 1];
        for (i, &coefficient) in polynomial.iter().enumerate() {
            next[i + 1] ^= coefficient;
            if coefficient != 0 {
                next[i] ^= power[usize::from(log[usize::from(coefficient)]) + root];
            }
        }
        polynomial = next;
    }
    let degree = polynomial.len() as u32 - 1;
    if degree > CODE_BITS_MAX || polynomial.iter().any(|&c| c > 1) {
        return None;
    }
    let mut aligned = [0; WORDS_MAX];
    for (place, &coefficient) in polynomial[..degree as usize].iter().rev().enumerate() {
        aligned[place / 64] |= u64::from(coefficient) << (63 - place % 64);
    }
    Some((aligned, degree))
}

/// The bits in byte `at` of a code of `code_bits` bits.
fn used_bits(code_bits: u32, at: usize) -> u8 {
    match (code_bits as usize).saturating_sub(at * 8) {
        0 => 0,
        left @ 1..8 => !(0xFF >> left),
        _ => 0xFF,
    }
}

/// Shifts a number of several words to the left by less than a word.
fn shift(words: &mut [u64], bits: u32) {
    for at in 0..words.len() {
        let next = words.get(at + 1).map_or(0, |next| next >> (64 - bits));
        words[at] = words[at] << bits | next;
    }
}

/// Divides parts of equal length in an interleaved way, so that none has to wait for another.
fn side_by_side<T: Copy + Default, const N: usize>(
    parts: [&[[u8; SLICES]]; N],
    next: impl Fn(T, [u8; SLICES]) -> T,
) -> [T; N] {
    let mut registers = [T::default(); N];
    let len = parts.iter().map(|part| part.len()).min().unwrap_or(0);
    let parts = parts.map(|part| &part[..len]);
    for at in 0..len {
        for (register, part) in registers.iter_mut().zip(&parts) {
            *register = next(*register, part[at]);
        }
    }
    registers
}

/// The remainder of `data` modulo the generator, with this table of several words for each byte.
fn divide_wide(data: &[u8], (words, table): (usize, &[u64]), code: &mut Code) {
    let mut register = [0; WORDS_MAX];
    let register = &mut register[..words];
    for byte in data {
        let row = usize::from((register[0] >> 56) as u8 ^ byte) * words;
        shift(register, 8);
        let row = &table[row..row + words];
        register.iter_mut().zip(row).for_each(|(word, more)| *word ^= more);
    }
    for (out, word) in code.chunks_exact_mut(8).zip(register) {
        out.copy_from_slice(&word.to_be_bytes());
    }
}

/// The tables of every byte, and of every byte followed by more and more zero bytes.
fn sliced<T: Copy>(first: [T; 256], next: impl Fn(T) -> T) -> [[T; 256]; SLICES] {
    let mut tables = [first; SLICES];
    for at in 1..SLICES {
        tables[at] = tables[at - 1].map(&next);
    }
    tables
}

impl Remainders {
    fn new(generator: &[u64; WORDS_MAX], code_bits: u32) -> Self {
        let words = code_bits.div_ceil(64) as usize;
        let table = Self::table(generator, words);
        // The next table is that of the remainders before with one more byte that is 0.
        match words {
            1 => {
                let first: [u64; 256] = array::from_fn(|byte| table[byte]);
                let next = |it: u64| (it << 8) ^ first[(it >> 56) as usize];
                Self::Short(Arc::new(sliced(first, next)))
            }
            2 => {
                let pair =
                    |byte| u128::from(table[2 * byte]) << 64 | u128::from(table[2 * byte + 1]);
                let first: [u128; 256] = array::from_fn(pair);
                let next = |it: u128| (it << 8) ^ first[(it >> 120) as usize];
                Self::Narrow(Arc::new(sliced(first, next)))
            }
            _ => Self::Wide(words, table.into()),
        }
    }

    /// Remainders of every byte followed by zeros.
    fn table(generator: &[u64; WORDS_MAX], words: usize) -> Vec<u64> {
        let mut table = vec![0; 256 * words];
        for (byte, register) in (0..).zip(table.chunks_exact_mut(words)) {
            register[0] = byte << 56;
            for _ in 0..8 {
                let carry = register[0] >> 63 == 1;
                shift(register, 1);
                if carry {
                    register.iter_mut().zip(generator).for_each(|(word, more)| *word ^= more);
                }
            }
        }
        table
    }
}

#[cfg(test)]
mod tests;
