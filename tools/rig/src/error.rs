use crate::file::FileError;
use crate::target::ParseError;

/// Why a stack could not be opened. Every message is one line that names the object, the cause and,
/// where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The target's text is wrong.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A file is no disk.
    #[error(transparent)]
    File(#[from] FileError),
}
