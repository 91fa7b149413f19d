//! TLS for clients that ask for it: certificates under QEMU's names, and the stream.

use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

const CA: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
/// Pre-shared keys, under the names used by QEMU and nbdkit.
const PRE_SHARED: &str = "keys.psk";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or invalid.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// Pre-shared keys.
    #[error(
        "{}: TLS with pre-shared keys is not supported (rustls has none): use certificates, in \
         {CA}, {CERTIFICATE} and {KEY}",
        .0.display()
    )]
    PreShared(PathBuf),
    /// The files do not match.
    #[error("{}: the certificates cannot be used: {why}", folder.display())]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        why: String,
    },
}

/// The prerequisites of encryption: the certificates, and who must use it.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// Whether clients without TLS are refused.
    pub is_required: bool,
}

impl Tls {
    /// Reads `ca-cert.pem`, `ca-crl.pem` if it exists, `server-cert.pem` and `server-key.pem` in
    /// `folder`. With `verifies`, only clients with a certificate of that authority are admitted.
    ///
    /// # Errors
    /// Something is missing or invalid.
    pub fn load(folder: &Path, is_required: bool, verifies: bool) -> Result<Self, TlsError> {
        let pre_shared = folder.join(PRE_SHARED);
        if pre_shared.exists() && !folder.join(CERTIFICATE).exists() {
            return Err(TlsError::PreShared(pre_shared));
        }
        let file = |name: &str, why: String| TlsError::File { path: folder.join(name), why };
        let certificates = |name: &'static str| {
            let read = CertificateDer::pem_file_iter(folder.join(name));
            let read = read.and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let all = read.map_err(|error| file(name, error.to_string()))?;
            if all.is_empty() {
                return Err(file(name, "holds no certificate".to_owned()));
            }
            Ok(all)
        };
        let chain = certificates(CERTIFICATE)?;
        let key = PrivateKeyDer::from_pem_file(folder.join(KEY));
        let key = key.map_err(|error| file(KEY, error.to_string()))?;
        let unusable = |why: String| TlsError::Unusable { folder: folder.to_owned(), why };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| unusable(error.to_string()))?;
        let builder = if verifies {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(CA)? {
                roots.add(certificate).map_err(|error| file(CA, error.to_string()))?;
            }
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            if folder.join(REVOKED).exists() {
                let lists = CertificateRevocationListDer::pem_file_iter(folder.join(REVOKED));
                let lists = lists.and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let lists = lists.map_err(|error| file(REVOKED, error.to_string()))?;
                verifier = verifier.with_crls(lists);
            }
            let verifier = verifier.build().map_err(|error| unusable(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let config = builder.with_single_cert(chain, key);
        let config = Arc::new(config.map_err(|error| unusable(error.to_string()))?);
        Ok(Self { config, is_required })
    }

    /// A configuration without certificates: no handshake succeeds.
    #[cfg(test)]
    pub(crate) fn empty(is_required: bool) -> Self {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let nobody = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
        let config = builder.with_no_client_auth().with_cert_resolver(nobody);
        Self { config: Arc::new(config), is_required }
    }

    /// The server's side of a new connection.
    pub(crate) fn begin(&self) -> io::Result<ServerConnection> {
        ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)
    }
}

/// A stream, encrypted or not. It never blocks.
#[derive(Debug)]
pub(crate) struct Stream<S> {
    pub(crate) socket: S,
    tls: Option<Box<ServerConnection>>,
}

impl<S: Read + Write> Stream<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, tls: None }
    }

    /// From here on everything is encrypted.
    pub(crate) fn encrypt(&mut self, tls: ServerConnection) {
        self.tls = Some(Box::new(tls));
    }

    /// Reads available data.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(to) };
        loop {
            match tls.reader().read(to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Who closes without saying so has closed all the same.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            if let Err(error) = tls.process_new_packets() {
                // The client is told why, if it still listens.
                let _ = tls.write_tls(&mut self.socket);
                return Err(io::Error::other(format!("TLS: {error}")));
            }
        }
    }

    /// Writes as much as there is room for.
    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write(from) };
        let written = tls.writer().write(from)?;
        self.flush()?;
        match written {
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(written),
        }
    }

    /// Sends data that is already encrypted. Returns whether all of it was sent.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether encrypted data waits for room.
    pub(crate) fn is_behind(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Announces the end of the stream.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = self.flush();
        }
    }
}
