//! Why a client is no more.

use crate::wire::Malformed;

/// Why a client is no more.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Its connection ended, by what it sent if not by itself.
    #[error(transparent)]
    Connection(#[from] flysch_export::Ended),
    /// A file of its memory became shorter than what is mapped of it.
    #[error("its memory shrank while it was in use")]
    Torn,
    /// The server ends.
    #[error("the server ends")]
    Stopped,
}

impl From<Malformed> for Ended {
    fn from(malformed: Malformed) -> Self {
        Self::Connection(malformed.into())
    }
}
