//! The keys that an image may need.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::auth::AuthKey;
use crate::crypt::MasterKey;
use crate::signature::Trust;

/// Keys to open a file system with. All are cleared on drop, and none is shown by `Debug`.
#[derive(Clone, Default)]
pub struct Keys {
    /// For an authenticated file system. With it everything is verified, and whatever has changed
    /// since it was signed is refused.
    pub auth: Option<AuthKey>,
    /// Whose signatures of a superblock are trusted, for images that a tool signed and no device
    /// has written to since. Alone, it verifies only such images; with `auth`, others too.
    pub trust: Option<Arc<dyn Trust>>,
    /// Master keys of encrypted directories (fscrypt); each policy finds its own.
    pub masters: Vec<MasterKey>,
    /// Random bytes, different each time a file system is opened. The nonces of new encrypted files
    /// are derived from them; without them no encrypted file can be created.
    pub entropy: Option<[u8; 32]>,
}

impl Keys {
    /// Whether anything must be verified.
    pub(crate) fn verify(&self) -> bool {
        self.auth.is_some() || self.trust.is_some()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { auth, masters, .. } = self;
        f.debug_struct("Keys").field("auth", auth).field("masters", masters).finish_non_exhaustive()
    }
}
