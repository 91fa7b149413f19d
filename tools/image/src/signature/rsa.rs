//! RSA signatures by the rules of PKCS#1 version 1.5 (RFC 8017, 8.2).
//!
//! Numbers are those of `crypto-bigint`, whose exponentiations take the same time for all exponents
//! of one length. (The crate `rsa` has no release without an open advisory.)

use std::fmt;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroizing;

use super::der::{self, Der};
use super::digest::Digest;

/// Bits of a modulus: shorter ones have been broken, and nobody uses longer ones.
const BITS: std::ops::RangeInclusive<usize> = 1024..=8192;

/// A key that verifies signatures.
#[derive(Clone, Debug)]
pub(super) struct PublicKey {
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

impl PublicKey {
    /// From a `RSAPublicKey`.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let mut key = Der(der).enter(der::SEQUENCE)?;
        Self::new(key.unsigned()?, key.unsigned()?)
    }

    fn new(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let usable = BITS.contains(&(modulus.len() * 8))
            && modulus.last()? % 2 == 1
            // One of 1 would make every message its own signature.
            && exponent.last()? % 2 == 1
            && exponent != [1]
            && exponent.len() <= 8;
        usable.then(|| Self { modulus: modulus.into(), exponent: exponent.into() })
    }

    /// Whether `signature` is a signature for this hash.
    pub(super) fn verify(&self, (digest, hash): (Digest, &[u8]), signature: &[u8]) -> bool {
        if signature.len() != self.modulus.len() || *signature >= *self.modulus {
            return false;
        }
        let message = power(signature, &self.exponent, &self.modulus);
        let wanted = encode((digest, hash), self.modulus.len());
        wanted.is_some() && message == wanted
    }
}

/// A key that signs.
pub(super) struct PrivateKey {
    public: PublicKey,
    exponent: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// From a `RSAPrivateKey`.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let mut key = Der(der).enter(der::SEQUENCE)?;
        // More than two primes are of another version.
        if !key.unsigned()?.is_empty() {
            return None;
        }
        let public = PublicKey::new(key.unsigned()?, key.unsigned()?)?;
        let exponent = Zeroizing::new(key.unsigned()?.to_vec());
        (exponent.len() <= public.modulus.len()).then_some(Self { public, exponent })
    }

    /// Whether it belongs to this certificate's key.
    pub(super) fn belongs_to(&self, public: &PublicKey) -> bool {
        self.public.modulus == public.modulus && self.public.exponent == public.exponent
    }

    /// A signature for this hash. `None` if the key is invalid: its parts do not match.
    pub(super) fn sign(&self, (digest, hash): (Digest, &[u8])) -> Option<Vec<u8>> {
        let message = encode((digest, hash), self.public.modulus.len())?;
        let signature = power(&message, &self.exponent, &self.public.modulus)?;
        // What a computer got wrong may tell the key to who sees it.
        self.public.verify((digest, hash), &signature).then_some(signature)
    }
}

/// A hash in the form that is signed: padded to this many bytes (EMSA-PKCS1-v1_5).
fn encode((digest, hash): (Digest, &[u8]), length: usize) -> Option<Vec<u8>> {
    let algorithm = der::value(
        der::SEQUENCE,
        &[&der::value(der::OBJECT, &[digest.object()]), &der::value(der::NULL, &[])],
    );
    let info = der::value(der::SEQUENCE, &[&algorithm, &der::value(der::OCTET_STRING, &[hash])]);
    let fill = length.checked_sub(info.len() + 3).filter(|&fill| fill >= 8)?;
    Some([&[0, 1][..], &vec![0xff; fill], &[0], &info].concat())
}

/// `base` to the power of `exponent`, modulo `modulus`, with as many bytes as the modulus.
fn power(base: &[u8], exponent: &[u8], modulus: &[u8]) -> Option<Vec<u8>> {
    let bits = u32::try_from(modulus.len() * 8).ok()?;
    let modulus = BoxedUint::from_be_slice(modulus, bits).ok()?;
    let params = BoxedMontyParams::new_vartime(Odd::new(modulus).into_option()?);
    let base = BoxedMontyForm::new(BoxedUint::from_be_slice(base, bits).ok()?, &params);
    let exponent_bits = u32::try_from(exponent.len() * 8).ok()?;
    let exponent = Zeroizing::new(BoxedUint::from_be_slice(exponent, exponent_bits).ok()?);
    let bytes = base.pow(&exponent).retrieve().to_be_bytes();
    bytes.get(bytes.len().checked_sub(bits as usize / 8)?..).map(<[u8]>::to_vec)
}
