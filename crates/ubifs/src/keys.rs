//! The keys that an image may need.

use alloc::vec::Vec;
use core::fmt;

use crate::auth::AuthKey;
use crate::crypt::MasterKey;

/// Keys to open a file system with. All are cleared when they are dropped, none shows in `Debug`.
#[derive(Clone, Default)]
pub struct Keys {
    /// Of an authenticated file system. With it everything is verified, and what is not as it was
    /// signed is refused.
    pub auth: Option<AuthKey>,
    /// Master keys of encrypted directories (fscrypt); each policy finds its own.
    pub masters: Vec<MasterKey>,
    /// Random bytes, other ones for each opening: from them follow the numbers that keep new
    /// encrypted files apart. Without, none can be made.
    pub entropy: Option<[u8; 32]>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { auth, masters, .. } = self;
        f.debug_struct("Keys").field("auth", auth).field("masters", masters).finish_non_exhaustive()
    }
}
