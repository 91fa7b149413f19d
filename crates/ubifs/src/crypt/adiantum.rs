//! Adiantum: XChaCha12, NH, Poly1305 and one block of AES-256.
//!
//! Crowley and Biggers, "Adiantum: length-preserving encryption for entry-level processors",
//! IACR ToSC 2018(4).

use aes::Aes256;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use chacha20::XChaCha12;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use poly1305::Poly1305;
use poly1305::universal_hash::UniversalHash;
use zeroize::Zeroizing;

use super::BLOCK;
use super::cipher::IV;

/// Bytes that NH takes at once, and bytes of its hash.
const NH_MESSAGE: usize = 1024;
const NH_HASH: usize = 32;
/// Passes of NH, each with a key that starts four words later.
const PASSES: usize = 4;
/// Words of NH's key.
const NH_WORDS: usize = NH_MESSAGE / 4 + 4 * (PASSES - 1);

pub(super) struct Adiantum {
    key: Zeroizing<[u8; 32]>,
    aes: Aes256,
    /// Keys of Poly1305: for the header (length and IV), and for NH's hashes.
    header: Zeroizing<[u8; 32]>,
    message: Zeroizing<[u8; 32]>,
    nh: Zeroizing<[u32; NH_WORDS]>,
}

impl Adiantum {
    pub(super) fn new(key: &[u8]) -> Self {
        let mut own = Zeroizing::new([0; 32]);
        own.copy_from_slice(key);
        let mut nonce = [0; 24];
        nonce[0] = 1;
        let mut stream = XChaCha12::new((&*own).into(), (&nonce).into());
        let mut aes = Zeroizing::new([0; 32]);
        let (mut header, mut message) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
        let mut nh = Zeroizing::new([0; NH_WORDS]);
        stream.apply_keystream(&mut *aes);
        // Poly1305 as a pure hash: the half of the key that is added at the end stays zero.
        stream.apply_keystream(&mut header[..16]);
        stream.apply_keystream(&mut message[..16]);
        for word in nh.iter_mut() {
            let mut bytes = [0; 4];
            stream.apply_keystream(&mut bytes);
            *word = u32::from_le_bytes(bytes);
        }
        let aes = Aes256::new((&*aes).into());
        Self { key: own, aes, header, message, nh }
    }

    /// Encrypts 16 bytes or more.
    pub(super) fn encrypt(&self, iv: &[u8; IV], data: &mut [u8]) {
        let (left, right) = data.split_at_mut(data.len() - BLOCK);
        let mut block = sum(right, self.hash(iv, left)).to_le_bytes();
        self.aes.encrypt_block((&mut block).into());
        self.stream(block, left);
        let block = u128::from_le_bytes(block).wrapping_sub(self.hash(iv, left));
        right.copy_from_slice(&block.to_le_bytes());
    }

    pub(super) fn decrypt(&self, iv: &[u8; IV], data: &mut [u8]) {
        let (left, right) = data.split_at_mut(data.len() - BLOCK);
        let mut block = sum(right, self.hash(iv, left)).to_le_bytes();
        self.stream(block, left);
        self.aes.decrypt_block((&mut block).into());
        let block = u128::from_le_bytes(block).wrapping_sub(self.hash(iv, left));
        right.copy_from_slice(&block.to_le_bytes());
    }

    /// XORs `data` with the keystream for the nonce `block`.
    fn stream(&self, block: [u8; BLOCK], data: &mut [u8]) {
        let mut nonce = [0; 24];
        nonce[..BLOCK].copy_from_slice(&block);
        nonce[BLOCK] = 1;
        XChaCha12::new((&*self.key).into(), (&nonce).into()).apply_keystream(data);
    }

    /// The hash over the header (length and IV) and over all of a block but its last 16 bytes.
    fn hash(&self, iv: &[u8; IV], left: &[u8]) -> u128 {
        let mut header = [0; BLOCK + IV];
        header[..8].copy_from_slice(&(left.len() as u64 * 8).to_le_bytes());
        header[BLOCK..].copy_from_slice(iv);
        let mut poly = Poly1305::new((&*self.header).into());
        poly.update_padded(&header);
        let of_header = poly.finalize();
        let mut poly = Poly1305::new((&*self.message).into());
        for message in left.chunks(NH_MESSAGE) {
            poly.update_padded(&self.nh(message));
        }
        sum(&of_header, u128::from_le_bytes(poly.finalize().into()))
    }

    /// NH of up to 1024 bytes; the last 16 are padded with zeros.
    fn nh(&self, message: &[u8]) -> [u8; NH_HASH] {
        let mut sums = [0_u64; PASSES];
        for (unit, bytes) in message.chunks(16).enumerate() {
            let mut padded = [0; 16];
            padded[..bytes.len()].copy_from_slice(bytes);
            let word = |at: usize| {
                let bytes = core::array::from_fn(|byte| padded[4 * at + byte]);
                u32::from_le_bytes(bytes)
            };
            let words = [word(0), word(1), word(2), word(3)];
            for (pass, sum) in sums.iter_mut().enumerate() {
                let key = &self.nh[4 * (unit + pass)..][..4];
                let add = |at: usize| u64::from(words[at].wrapping_add(key[at]));
                let products = (add(0) * add(2)).wrapping_add(add(1) * add(3));
                *sum = sum.wrapping_add(products);
            }
        }
        let mut hash = [0; NH_HASH];
        for (out, sum) in hash.chunks_exact_mut(8).zip(sums) {
            out.copy_from_slice(&sum.to_le_bytes());
        }
        hash
    }
}

fn sum(block: &[u8], hash: u128) -> u128 {
    let bytes = core::array::from_fn(|at| block[at]);
    u128::from_le_bytes(bytes).wrapping_add(hash)
}
