//! Encryption and decryption with a file's key.

use alloc::boxed::Box;
use core::fmt;

use aes::cipher::{
    Array, Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit, typenum::U16,
};
use aes::{Aes128, Aes256};
use sha2::{Digest, Sha256};

use super::adiantum::Adiantum;
use super::{BLOCK, CipherMode};

/// Bytes of an initialization vector: the block's number and, in some modes, the file's nonce.
pub(super) const IV: usize = 32;

/// The cipher of one file. Clears its key on drop.
pub(crate) struct FileCipher {
    method: Method,
    /// The file's nonce where it is not part of the key.
    nonce: Option<[u8; 16]>,
}

enum Method {
    Xts { data: Box<Aes256>, tweak: Box<Aes256> },
    Cts256(Box<Aes256>),
    Cts128(Box<Aes128>),
    Essiv { data: Box<Aes128>, iv: Box<Aes256> },
    Adiantum(Box<Adiantum>),
}

impl fmt::Debug for FileCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileCipher")
    }
}

fn aes<C: KeyInit>(key: &[u8]) -> Box<C> {
    Box::new(C::new_from_slice(key).expect("the key has the mode's length"))
}

impl FileCipher {
    /// A cipher for a mode; `key` has the length the mode requires.
    pub(super) fn new(mode: CipherMode, key: &[u8], nonce: Option<[u8; 16]>) -> Self {
        let method = match mode {
            CipherMode::Aes256Xts => Method::Xts { data: aes(&key[..32]), tweak: aes(&key[32..]) },
            CipherMode::Aes256Cts => Method::Cts256(aes(key)),
            CipherMode::Aes128Cts => Method::Cts128(aes(key)),
            CipherMode::Aes128Cbc => {
                Method::Essiv { data: aes(key), iv: aes(&Sha256::digest(key)) }
            }
            CipherMode::Adiantum => Method::Adiantum(Box::new(Adiantum::new(key))),
        };
        Self { method, nonce }
    }

    fn iv(&self, number: u64) -> [u8; IV] {
        let mut iv = [0; IV];
        iv[..8].copy_from_slice(&number.to_le_bytes());
        if let Some(nonce) = self.nonce {
            iv[8..24].copy_from_slice(&nonce);
        }
        iv
    }

    /// Encrypts block `number` of a file, or a name (number 0), in place: at least 16 bytes, and
    /// content in multiples of 16.
    pub(crate) fn encrypt(&self, number: u64, data: &mut [u8]) {
        let iv = self.iv(number);
        match &self.method {
            Method::Xts { data: aes, tweak } => {
                let start = start_of(&**tweak, &iv);
                whiten(data, start);
                aes.encrypt_blocks(blocks(data));
                whiten(data, start);
            }
            Method::Cts256(aes) => cts_encrypt(&**aes, data),
            Method::Cts128(aes) => cts_encrypt(&**aes, data),
            Method::Essiv { data: aes, iv: hidden } => {
                cbc_encrypt(&**aes, start_of(&**hidden, &iv), data);
            }
            Method::Adiantum(adiantum) => adiantum.encrypt(&iv, data),
        }
    }

    /// Undoes [`encrypt`](Self::encrypt).
    pub(crate) fn decrypt(&self, number: u64, data: &mut [u8]) {
        let iv = self.iv(number);
        match &self.method {
            Method::Xts { data: aes, tweak } => {
                let start = start_of(&**tweak, &iv);
                whiten(data, start);
                aes.decrypt_blocks(blocks(data));
                whiten(data, start);
            }
            Method::Cts256(aes) => cts_decrypt(&**aes, data),
            Method::Cts128(aes) => cts_decrypt(&**aes, data),
            Method::Essiv { data: aes, iv: hidden } => {
                cbc_decrypt(&**aes, start_of(&**hidden, &iv), data);
            }
            Method::Adiantum(adiantum) => adiantum.decrypt(&iv, data),
        }
    }
}

/// The first block of `iv`, encrypted: the initial value of XTS and ESSIV.
fn start_of<C>(aes: &C, iv: &[u8; IV]) -> [u8; BLOCK]
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut start = core::array::from_fn(|at| iv[at]);
    aes.encrypt_block((&mut start).into());
    start
}

/// The whole blocks of `data`.
fn blocks(data: &mut [u8]) -> &mut [Array<u8, U16>] {
    Array::slice_as_chunks_mut(data).0
}

fn xor(block: &mut [u8], other: &[u8]) {
    block.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

/// XTS (IEEE 1619): XORs each block with the tweak, which doubles from block to block.
fn whiten(data: &mut [u8], tweak: [u8; BLOCK]) {
    let mut tweak = u128::from_le_bytes(tweak);
    for block in data.chunks_exact_mut(BLOCK) {
        xor(block, &tweak.to_le_bytes());
        let carry = if tweak >> 127 == 0 { 0 } else { 0x87 };
        tweak = tweak << 1 ^ carry;
    }
}

fn cbc_encrypt<C>(aes: &C, mut last: [u8; BLOCK], data: &mut [u8])
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    for block in blocks(data) {
        xor(block, &last);
        aes.encrypt_block(block);
        last = (*block).into();
    }
}

fn cbc_decrypt<C>(aes: &C, mut last: [u8; BLOCK], data: &mut [u8])
where
    C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    for block in blocks(data) {
        let stored = (*block).into();
        aes.decrypt_block(block);
        xor(block, &last);
        last = stored;
    }
}

/// Offset of the last two blocks, which ciphertext stealing handles and of which the second may be
/// short; `None` for a single block.
fn stolen(length: usize) -> Option<usize> {
    (length > BLOCK).then(|| (length - 1) / BLOCK * BLOCK - BLOCK)
}

/// CBC with ciphertext stealing; the last two blocks are always swapped (RFC 3962).
fn cts_encrypt<C>(aes: &C, data: &mut [u8])
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let Some(at) = stolen(data.len()) else { return cbc_encrypt(aes, [0; BLOCK], data) };
    let rest = data.len() - at - BLOCK;
    cbc_encrypt(aes, [0; BLOCK], &mut data[..at + BLOCK]);
    let mut last = Block::<C>::default();
    last.copy_from_slice(&data[at..at + BLOCK]);
    let short = last;
    xor(&mut last[..rest], &data[at + BLOCK..]);
    aes.encrypt_block(&mut last);
    data[at..at + BLOCK].copy_from_slice(&last);
    data[at + BLOCK..].copy_from_slice(&short[..rest]);
}

fn cts_decrypt<C>(aes: &C, data: &mut [u8])
where
    C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let Some(at) = stolen(data.len()) else { return cbc_decrypt(aes, [0; BLOCK], data) };
    let rest = data.len() - at - BLOCK;
    let mut last = Block::<C>::default();
    last.copy_from_slice(&data[at..at + BLOCK]);
    aes.decrypt_block(&mut last);
    // The bytes stolen from the block before are at the end of this one.
    let mut before = last;
    before[..rest].copy_from_slice(&data[at + BLOCK..]);
    xor(&mut last[..rest], &before[..rest]);
    data[at..at + BLOCK].copy_from_slice(&before);
    cbc_decrypt(aes, [0; BLOCK], &mut data[..at + BLOCK]);
    data[at + BLOCK..].copy_from_slice(&last[..rest]);
}
