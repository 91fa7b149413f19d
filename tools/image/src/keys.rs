//! Keys of images, from files: never from the command line, where others see them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use flysch_ubifs::{AuthKey, HashAlgorithm, KeyError, Keys, MasterKey, Trust};
use zeroize::Zeroizing;

/// Maximum bytes of a key file: longer ones are something else.
const FILE_MAX: u64 = 1 << 16;

/// A master key of encrypted directories: its file, and its descriptor in version 1 policies if
/// that is not the one derived by the tools. As text `FILE`, or `DESCRIPTOR:FILE` with 16
/// hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// The file: raw bytes.
    pub path: PathBuf,
    /// The descriptor.
    pub descriptor: Option<[u8; 8]>,
}

impl FromStr for KeyFile {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = text.split_once(':').and_then(|(name, path)| Some((descriptor(name)?, path)));
        Ok(match named {
            Some((descriptor, path)) => Self { path: path.into(), descriptor: Some(descriptor) },
            None => Self { path: text.into(), descriptor: None },
        })
    }
}

fn descriptor(text: &str) -> Option<[u8; 8]> {
    let is_hex = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(text, 16).ok().map(u64::to_be_bytes)).flatten()
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("{}: the key cannot be read: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// It does not contain a key.
    #[error("{}: {error}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The required form of a key.
        error: KeyError,
    },
    /// It is empty, or far too long.
    #[error("{}: a file of {length} bytes is not a key", .path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        length: u64,
    },
}

/// Reads keys: of an authenticated file system, with the hash it must use, and of encrypted
/// directories; `trust` lists trusted signers. `None` if none of these is given.
///
/// # Errors
/// [`KeyFileError`].
pub fn read_keys(
    auth: Option<(&Path, Option<HashAlgorithm>)>,
    masters: &[KeyFile],
    trust: Option<Arc<dyn Trust>>,
) -> Result<Option<Arc<Keys>>, KeyFileError> {
    if auth.is_none() && masters.is_empty() && trust.is_none() {
        return Ok(None);
    }
    let auth = match auth {
        Some((path, algorithm)) => Some(AuthKey::new(&read(path)?, algorithm)),
        None => None,
    };
    let master = |file: &KeyFile| {
        let path = &file.path;
        let key = MasterKey::new(&read(path)?, file.descriptor);
        key.map_err(|error| KeyFileError::Key { path: path.clone(), error })
    };
    let masters = masters.iter().map(master).collect::<Result<_, _>>()?;
    Ok(Some(Arc::new(Keys { auth, trust, masters, entropy: entropy() })))
}

pub(crate) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let fault = |source| KeyFileError::File { path: path.into(), source };
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_MAX as usize + 1));
    let file = File::open(path).map_err(fault)?;
    (&file).take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(fault)?;
    match bytes.len() as u64 {
        1..=FILE_MAX => Ok(bytes),
        read => {
            // No more than that was read; a device has no length.
            let length = file.metadata().map_or(read, |it| it.len().max(read));
            Err(KeyFileError::Length { path: path.into(), length })
        }
    }
}

/// Unpredictable bytes.
fn entropy() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_key_has_its_own_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for length in [0, FILE_MAX + 1, 5_000_000] {
            file.as_file().set_len(length).unwrap();
            let why = read(file.path()).unwrap_err().to_string();
            assert!(why.ends_with(&format!(": a file of {length} bytes is not a key")), "{why}");
        }
    }
}
