//! The keys that an image may need.

use crate::auth::AuthKey;

/// Keys to open a file system with. All are cleared when they are dropped, none shows in `Debug`.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Of an authenticated file system. With it everything is verified, and what is not as it was
    /// signed is refused.
    pub auth: Option<AuthKey>,
}
