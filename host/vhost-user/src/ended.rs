//! Why a client is gone.

use crate::wire::Malformed;

/// Why a client is gone.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Its connection ended, by itself or because of invalid input.
    #[error(transparent)]
    Connection(#[from] flysch_export::Ended),
    /// A file of its memory became shorter than its mapping.
    #[error("its memory shrank while it was in use")]
    Torn,
    /// The server ends.
    #[error("the server is ending")]
    Stopped,
}

impl From<Malformed> for Ended {
    fn from(malformed: Malformed) -> Self {
        Self::Connection(malformed.into())
    }
}
