//! Signatures of UBIFS superblocks by a certificate, as `mkfs.ubifs --auth-cert` makes them and
//! Linux verifies them: PKCS#7 (RFC 5652) with detached content, no certificates, no attributes and
//! one signer, identified by the issuer and the serial number of the certificate.
//!
//! As in Linux, a certificate is trusted because it was named: neither its issuer nor its expiry
//! date is checked.

mod der;
mod digest;
mod pem;
mod rsa;

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flysch_ubifs::{HashAlgorithm, SignatureError, Signer, Trust};

use crate::keys::{KeyFileError, read};
use der::Der;
use digest::Digest;
use rsa::{PrivateKey, PublicKey};

/// 1.2.840.113549.1.7.2.
const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
/// 1.2.840.113549.1.7.1.
const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];
/// 1.2.840.113549.1.1.1; its siblings with a hash follow it in the same family.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_WITH: [(&[u8], HashAlgorithm); 4] = [
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], HashAlgorithm::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c], HashAlgorithm::Sha384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d], HashAlgorithm::Sha512),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0e], HashAlgorithm::Sha224),
];
const NO_RSA: &str = "only RSA is supported, but its key is of another kind";

/// Why a certificate or a private key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// Its contents.
    #[error("{}: {why}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The error.
        why: &'static str,
    },
}

/// A certificate, as far as signatures need it.
#[derive(Clone, Debug)]
struct Certificate {
    /// Issuer and serial number, in the form that identifies a signer.
    name: Vec<u8>,
    key: PublicKey,
}

impl Certificate {
    /// X.509 (RFC 5280), DER.
    fn parse(der: &[u8]) -> Result<Self, &'static str> {
        const NONE: &str = "not an X.509 certificate";
        let (name, mut key) = Self::fields(der).ok_or(NONE)?;
        let algorithm = key.algorithm();
        if algorithm != Some(RSA) {
            return Err(NO_RSA);
        }
        let [0, key @ ..] = key.take(der::BIT_STRING).ok_or(NONE)? else { return Err(NONE) };
        let key = PublicKey::parse(key).ok_or("its RSA key is invalid, or of an unusual length")?;
        Ok(Self { name, key })
    }

    /// What identifies it, and its public key.
    fn fields(der: &[u8]) -> Option<(Vec<u8>, Der<'_>)> {
        let mut fields = Der(der).enter(der::SEQUENCE)?.enter(der::SEQUENCE)?;
        fields.skip(der::CONTEXT);
        let serial = fields.whole(der::INTEGER)?;
        fields.take(der::SEQUENCE)?;
        let issuer = fields.whole(der::SEQUENCE)?;
        fields.take(der::SEQUENCE)?;
        fields.take(der::SEQUENCE)?;
        let key = fields.enter(der::SEQUENCE)?;
        Some((der::value(der::SEQUENCE, &[issuer, serial]), key))
    }

    /// All certificates in a file, PEM or DER; at least one.
    fn read(path: &Path) -> Result<Vec<Self>, CertificateError> {
        let content = |why| CertificateError::Content { path: path.into(), why };
        let bytes = read(path)?;
        let blocks = pem::blocks(&bytes).ok_or_else(|| content("its PEM is incomplete"))?;
        let wanted = |label: &str| matches!(label, "" | "CERTIFICATE" | "X509 CERTIFICATE");
        let found = blocks.iter().filter(|(label, _)| wanted(label));
        let found: Result<Vec<_>, _> = found.map(|(_, der)| Self::parse(der)).collect();
        match found {
            Ok(found) if found.is_empty() => Err(content("there is no certificate in it")),
            Ok(found) => Ok(found),
            Err(why) => Err(content(why)),
        }
    }
}

/// Certificates whose signatures are believed.
struct Certificates(Vec<Certificate>);

/// Reads the certificates for verifying signatures of superblocks: PEM, any number per file, or
/// DER. `None` without files.
///
/// # Errors
/// [`CertificateError`].
pub fn read_certificates(paths: &[PathBuf]) -> Result<Option<Arc<dyn Trust>>, CertificateError> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(Certificate::read(path)?);
    }
    Ok((!all.is_empty()).then(|| Arc::new(Certificates(all)) as Arc<dyn Trust>))
}

/// The only signer of a message.
struct Signature<'a> {
    name: &'a [u8],
    digest: Digest,
    bytes: &'a [u8],
}

impl<'a> Signature<'a> {
    fn parse(message: &'a [u8]) -> Result<Self, SignatureError> {
        let mut content = Self::content(message).ok_or(SignatureError::Form("it is not PKCS#7"))?;
        let signers = content.enter(der::SET);
        let mut signers = signers.ok_or(SignatureError::Form("it names no signer"))?;
        let signer = signers.enter(der::SEQUENCE);
        let (Some(signer), true, true) = (signer, signers.end(), content.end()) else {
            return Err(SignatureError::Form("it has more than one signer"));
        };
        Self::signer(signer)
    }

    /// The part after the content, which is detached, and certificates, which are ignored.
    fn content(message: &'a [u8]) -> Option<Der<'a>> {
        let mut message = Der(message).enter(der::SEQUENCE)?;
        (message.take(der::OBJECT)? == SIGNED_DATA).then_some(())?;
        let mut content = message.enter(der::CONTEXT)?.enter(der::SEQUENCE)?;
        content.unsigned()?;
        content.take(der::SET)?;
        let mut inner = content.enter(der::SEQUENCE)?;
        (inner.take(der::OBJECT)? == DATA && inner.end()).then_some(())?;
        content.skip(der::CONTEXT);
        content.skip(der::CONTEXT | 1);
        Some(content)
    }

    fn signer(mut signer: Der<'a>) -> Result<Self, SignatureError> {
        const BROKEN: SignatureError =
            SignatureError::Form("what it says of its signer is not DER");
        let form = |what| Err(SignatureError::Form(what));
        let version = signer.unsigned().ok_or(BROKEN)?;
        if version != [1] {
            return form("its signer is not named by issuer and serial number");
        }
        let name = signer.whole(der::SEQUENCE).ok_or(BROKEN)?;
        let digest = signer.algorithm().and_then(Digest::from_object);
        let Some(digest) = digest else { return form("it uses none of the SHA-2 hashes") };
        if signer.0.first() == Some(&der::CONTEXT) {
            return form("it signs attributes, which mkfs.ubifs does not");
        }
        let known = match signer.algorithm() {
            Some(RSA) => true,
            Some(algorithm) => RSA_WITH.contains(&(algorithm, digest.0)),
            None => false,
        };
        if !known {
            return form(NO_RSA);
        }
        let bytes = signer.take(der::OCTET_STRING).ok_or(BROKEN)?;
        Ok(Self { name, digest, bytes })
    }
}

impl Trust for Certificates {
    fn verify(&self, content: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let signature = Signature::parse(signature)?;
        let certificate = self.0.iter().find(|it| it.name == signature.name);
        let certificate = certificate.ok_or(SignatureError::Signer)?;
        let hash = signature.digest.of(content);
        match certificate.key.verify((signature.digest, &hash), signature.bytes) {
            true => Ok(()),
            false => Err(SignatureError::Wrong),
        }
    }
}

/// A signer with a private key, under the name in a certificate.
struct CertifiedKey {
    certificate: Certificate,
    key: PrivateKey,
    digest: Digest,
}

impl fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertifiedKey").field("certificate", &self.certificate).finish()
    }
}

/// Reads a private key and its certificate, PEM or DER, for signing superblocks.
///
/// # Errors
/// [`CertificateError`], also if they do not belong together.
pub fn read_signer(
    key: &Path,
    certificate: &Path,
    algorithm: HashAlgorithm,
) -> Result<Arc<dyn Signer>, CertificateError> {
    let content = |path: &Path, why| CertificateError::Content { path: path.into(), why };
    let private = private_key(&read(key)?).map_err(|why| content(key, why))?;
    let certificates = Certificate::read(certificate)?;
    let mut mine = certificates.into_iter().filter(|it| private.belongs_to(&it.key));
    let mine = mine
        .next()
        .ok_or_else(|| content(certificate, "the private key belongs to another certificate"))?;
    Ok(Arc::new(CertifiedKey { certificate: mine, key: private, digest: Digest(algorithm) }))
}

fn private_key(bytes: &[u8]) -> Result<PrivateKey, &'static str> {
    const NONE: &str = "there is no private key in it";
    let blocks = pem::blocks(bytes).ok_or("its PEM is incomplete")?;
    let is_key = |label: &str| label.is_empty() || label.ends_with("PRIVATE KEY");
    let (label, der) = blocks.iter().find(|(label, _)| is_key(label)).ok_or(NONE)?;
    match &label[..] {
        "ENCRYPTED PRIVATE KEY" => Err("the key is encrypted: decrypt it first (openssl pkey)"),
        "RSA PRIVATE KEY" if der.is_empty() => Err("the key is encrypted or broken"),
        "RSA PRIVATE KEY" => PrivateKey::parse(der).ok_or(NONE),
        "PRIVATE KEY" | "" => {
            let inner = pkcs8(der).map_err(|known| if known { NO_RSA } else { NONE })?;
            PrivateKey::parse(inner).ok_or("its RSA key is invalid, or of an unusual length")
        }
        _ => Err(NO_RSA),
    }
}

/// The key in a `PrivateKeyInfo` (RFC 5208); returns whether it is one at all, even of another
/// kind.
fn pkcs8(der: &[u8]) -> Result<&[u8], bool> {
    let mut info = Der(der).enter(der::SEQUENCE).ok_or(false)?;
    info.unsigned().ok_or(false)?;
    let mut algorithm = info.enter(der::SEQUENCE).ok_or(false)?;
    let name = algorithm.take(der::OBJECT).ok_or(false)?;
    if name != RSA {
        return Err(true);
    }
    info.take(der::OCTET_STRING).ok_or(false)
}

impl Signer for CertifiedKey {
    fn sign(&self, content: &[u8]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        use der::{CONTEXT, INTEGER, NULL, OBJECT, OCTET_STRING, SEQUENCE, SET, value};
        let hash = self.digest.of(content);
        let signature = self.key.sign((self.digest, &hash));
        let signature = signature.ok_or("the parts of the private key do not match each other")?;
        let one = value(INTEGER, &[&[1]]);
        let hash_name = value(SEQUENCE, &[&value(OBJECT, &[self.digest.object()])]);
        let rsa = value(SEQUENCE, &[&value(OBJECT, &[RSA]), &value(NULL, &[])]);
        let signature = value(OCTET_STRING, &[&signature]);
        let signer = value(SEQUENCE, &[&one, &self.certificate.name, &hash_name, &rsa, &signature]);
        let inner = value(SEQUENCE, &[&value(OBJECT, &[DATA])]);
        let hashes = value(SET, &[&hash_name]);
        let content = value(SEQUENCE, &[&one, &hashes, &inner, &value(SET, &[&signer])]);
        let name = value(OBJECT, &[SIGNED_DATA]);
        Ok(value(SEQUENCE, &[&name, &value(CONTEXT, &[&content])]))
    }
}
