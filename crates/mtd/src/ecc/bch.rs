//! Binary BCH codes as Linux's software BCH (`lib/bch.c`) lays them out.
//!
//! Theory. A step's bits, first byte first and most significant bit first, are the coefficients of
//! a polynomial over GF(2), followed by the code's bits, so that the whole is a multiple of the
//! generator polynomial g: the code is the remainder of the data, shifted up, by g. g has the roots
//! a^1 .. a^2t, where a generates GF(2^m). Reading back, the remainder of what was read differs
//! from the code that was read by a polynomial that agrees with the error at those roots; its
//! values there are the syndromes. Berlekamp and Massey's algorithm finds from them the shortest
//! polynomial whose roots are the inverse error positions, and Chien's search finds these by trying
//! every position of the step. More than t errors mostly leave a polynomial with too few roots;
//! that is how they are noticed.
//!
//! Linux stores the code xored with a mask that makes erased flash (all ones) a valid step.

use alloc::vec;
use alloc::vec::Vec;

/// Primitive polynomials of degree 5 to 15 that generate the fields; Linux uses the same.
const PRIMITIVE: [u32; 11] =
    [0x25, 0x43, 0x83, 0x11D, 0x211, 0x409, 0x805, 0x1053, 0x201B, 0x402B, 0x8003];
/// Most bits of code: 72 bits corrected in 1 KiB take 1008.
const CODE_BITS_MAX: u32 = 1024;
/// The same in bytes and in words.
const CODE_BYTES_MAX: usize = CODE_BITS_MAX as usize / 8;
const WORDS_MAX: usize = CODE_BITS_MAX as usize / 64;
/// Most bits corrected in one step: every one takes m >= 5 bits of code.
const T_MAX: usize = CODE_BITS_MAX as usize / 5;

/// Bits of a code, left aligned.
type Code = [u8; CODE_BYTES_MAX];

/// Remainders by the generator of every first byte, left aligned.
#[derive(Clone, Debug)]
enum Remainders {
    /// In one machine word: up to 128 bits of code.
    Narrow(Vec<u128>),
    /// In this many words each.
    Wide(usize, Vec<u64>),
}

/// A code, with the tables that make it fast.
#[derive(Clone, Debug)]
pub struct Bch {
    m: u32,
    t: u32,
    step: usize,
    code_bits: u32,
    /// Powers of a, twice over so that a sum of two logarithms needs no reduction.
    power: Vec<u16>,
    /// Logarithms to the base a; the one of 0 is not used.
    log: Vec<u16>,
    remainders: Remainders,
    /// What turns the code of an erased step into ones.
    mask: Vec<u8>,
}

impl Bch {
    /// The code over GF(2^`m`) that corrects `t` bits in a step of `step` bytes. `None` when there
    /// is no such code, or none that needs at most 1024 bits.
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
        let mut code = Self { m, t, step, code_bits, power, log, remainders, mask: Vec::new() };
        let erased = code.remainder_of(core::iter::repeat_n(0xFF, step));
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
    /// answer; bits that are not used are ones.
    pub fn compute(&self, data: &[u8]) -> [u8; CODE_BYTES_MAX] {
        let mut code = self.remainder_of(data.iter().copied());
        for (at, byte) in code.iter_mut().enumerate().take(self.code_len()) {
            *byte = *byte ^ self.mask[at] | !used_bits(self.code_bits, at);
        }
        code
    }

    /// Corrects `data`, one step, and `stored`, its code; returns the bits corrected, or `None`
    /// when there are more than the code can correct.
    pub fn correct(&self, data: &mut [u8], stored: &[u8]) -> Option<u32> {
        debug_assert!(data.len() == self.step && stored.len() == self.code_len());
        let mut difference = self.remainder_of(data.iter().copied());
        let mut any = 0;
        for (at, (byte, stored)) in difference.iter_mut().zip(stored).enumerate() {
            *byte ^= stored & used_bits(self.code_bits, at) ^ self.mask[at];
            any |= *byte;
        }
        if any == 0 {
            return Some(0);
        }
        let syndromes = self.syndromes(&difference[..self.code_len()]);
        let locator = self.locator(&syndromes[..2 * self.t as usize])?;
        self.flip_roots(&locator, data)
    }

    fn remainder_of(&self, data: impl Iterator<Item = u8>) -> Code {
        let mut code = [0; CODE_BYTES_MAX];
        match &self.remainders {
            Remainders::Narrow(table) => {
                let remainder = data.fold(0, |register: u128, byte| {
                    (register << 8) ^ table[usize::from((register >> 120) as u8 ^ byte)]
                });
                code[..16].copy_from_slice(&remainder.to_be_bytes());
            }
            Remainders::Wide(words, table) => {
                let mut register = [0; WORDS_MAX];
                let register = &mut register[..*words];
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
        }
        code
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
        let first = self.code_bits as usize - 1;
        for (at, &byte) in difference.iter().enumerate() {
            let mut bits = byte;
            while bits != 0 {
                let bit = bits.leading_zeros() as usize;
                bits &= !(0x80 >> bit);
                let exponent = first - (at * 8 + bit);
                for (j, syndrome) in syndromes[..2 * self.t as usize].iter_mut().enumerate() {
                    *syndrome ^= self.power[exponent * (j + 1) % order];
                }
            }
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

    /// Chien's search: flips the data bits that the locator's roots name; code bits need no repair.
    fn flip_roots(&self, locator: &[u16], data: &mut [u8]) -> Option<u32> {
        let order = (1usize << self.m) - 1;
        let degree = locator.len() - 1;
        let bits = data.len() * 8 + self.code_bits as usize;
        let mut found = [0usize; T_MAX];
        let mut count = 0;
        // logs[i] is the logarithm of the i-th term at a^-exponent.
        let mut logs: Vec<Option<usize>> = locator
            .iter()
            .map(|&c| (c != 0).then(|| usize::from(self.log[usize::from(c)])))
            .collect();
        for exponent in 0..bits {
            let value = logs.iter().flatten().fold(0, |sum, &log| sum ^ self.power[log]);
            if value == 0 {
                found[count] = exponent;
                count += 1;
                if count == degree {
                    break;
                }
            }
            for (i, log) in logs.iter_mut().enumerate() {
                if let Some(log) = log {
                    *log = if *log >= i { *log - i } else { *log + order - i };
                }
            }
        }
        if count != degree {
            return None;
        }
        for &exponent in &found[..count] {
            if let Some(from_end) = exponent.checked_sub(self.code_bits as usize) {
                let byte = data.len() - 1 - from_end / 8;
                data[byte] ^= 1 << (from_end % 8);
            }
        }
        Some(degree as u32)
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
/// (x - r) over all roots r, that is a^1 .. a^2t and their conjugates.
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

/// The bits of byte `at` that a code of `code_bits` has.
fn used_bits(code_bits: u32, at: usize) -> u8 {
    match (code_bits as usize).saturating_sub(at * 8) {
        0 => 0,
        left @ 1..8 => !(0xFF >> left),
        _ => 0xFF,
    }
}

/// Shifts a number of several words to the left, by less than a word.
fn shift(words: &mut [u64], bits: u32) {
    for at in 0..words.len() {
        let next = words.get(at + 1).map_or(0, |next| next >> (64 - bits));
        words[at] = words[at] << bits | next;
    }
}

impl Remainders {
    fn new(generator: &[u64; WORDS_MAX], code_bits: u32) -> Self {
        let words = (code_bits.div_ceil(64) as usize).max(2);
        let table = Self::table(generator, words);
        if words > 2 {
            return Self::Wide(words, table);
        }
        let pairs = table.chunks_exact(2);
        Self::Narrow(pairs.map(|pair| u128::from(pair[0]) << 64 | u128::from(pair[1])).collect())
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
