//! Superblocks that are signed by a certificate.
//!
//! A tool that makes an image has no key of the device the image is for. It signs the superblock
//! instead, which has the hash of the master node, and puts a PKCS#7 message behind it. The device
//! verifies that once, and puts HMACs in its place when it first writes to the file system. What
//! certificates and signatures are made of is not known here.
//!
//! Facts: Linux `fs/ubifs/auth.c` (`ubifs_sb_verify_signature`).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::error::Error;

use flysch_api::volume::Volume;
use flysch_wire::ubifs::{Node, SIGNATURE_PKCS7, SUPERBLOCK_LEB, SUPERBLOCK_NODE_SIZE};

use crate::access::{Access, Fault, Scratch};
use crate::auth::{AuthError, SignatureError};
use crate::scan::{Item, Scan};

/// Whose signatures are believed: a set of certificates.
pub trait Trust: Send + Sync {
    /// Whether `signature`, a PKCS#7 message (DER) that goes without its content, is one of
    /// `content` by somebody who is trusted.
    ///
    /// # Errors
    /// [`SignatureError`].
    fn verify(&self, content: &[u8], signature: &[u8]) -> Result<(), SignatureError>;
}

/// Makes signatures: somebody's private key, wherever it is kept.
pub trait Signer: Send + Sync {
    /// A PKCS#7 message (DER) with a signature of `content`, and without it.
    ///
    /// # Errors
    /// Why there is none.
    fn sign(&self, content: &[u8]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>;
}

/// Holds the superblock against the signature behind it.
pub(crate) fn prove<V: Volume>(
    access: &Access<V>,
    trust: Option<&dyn Trust>,
) -> Result<(), AuthError> {
    let missing = AuthError::Signature(SignatureError::Missing);
    let mut scratch = Scratch::new();
    let leb = access.leb(SUPERBLOCK_LEB, &mut scratch);
    let leb = leb.map_err(|cause| {
        let (structure, place) = ("superblock", access.place(SUPERBLOCK_LEB, 0));
        AuthError::Unread { structure, cause: Fault { structure, place, cause }.into() }
    })?;
    let Some(Item::Node { header, bytes, .. }) = Scan::new(leb, SUPERBLOCK_NODE_SIZE as u32).next()
    else {
        return Err(missing);
    };
    let Ok(Node::Signature(node)) = Node::decode(header, bytes, Default::default()) else {
        return Err(missing);
    };
    if node.signature.is_empty() {
        return Err(missing);
    }
    let verified = match (node.kind, trust) {
        (_, None) => Err(SignatureError::NoCertificate),
        (SIGNATURE_PKCS7, Some(trust)) => {
            trust.verify(&leb[..SUPERBLOCK_NODE_SIZE], node.signature)
        }
        _ => Err(SignatureError::Form("it is none of PKCS#7")),
    };
    verified.map_err(AuthError::Signature)
}
