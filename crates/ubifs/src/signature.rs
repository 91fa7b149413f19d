//! Superblocks signed with a certificate.
//!
//! A tool that makes an image does not have the key of the device the image is for. Instead it
//! signs the superblock, which contains the hash of the master node, and puts a PKCS#7 message
//! after it. The device verifies the message once, and replaces it by HMACs when it first writes to
//! the file system. The contents of certificates and signatures are outside this module.
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

/// Whose signatures are trusted: a set of certificates.
pub trait Trust: Send + Sync {
    /// Verifies that `signature`, a detached PKCS#7 message (DER), is a signature of `content` by a
    /// trusted signer.
    ///
    /// # Errors
    /// [`SignatureError`].
    fn verify(&self, content: &[u8], signature: &[u8]) -> Result<(), SignatureError>;
}

/// Makes signatures with a private key, wherever that is kept.
pub trait Signer: Send + Sync {
    /// A detached PKCS#7 message (DER) with a signature of `content`.
    ///
    /// # Errors
    /// Why no signature could be made.
    fn sign(&self, content: &[u8]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>;
}

/// Verifies the superblock against the signature after it.
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
        _ => Err(SignatureError::Form("it is not PKCS#7")),
    };
    verified.map_err(AuthError::Signature)
}
