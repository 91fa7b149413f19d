//! Why procedures return without a result.

/// There is no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending;

/// Why a procedure returned without a result: it waits, or it failed with an `E`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// There is no answer yet: it will be run again.
    Pending,
    /// It has failed.
    Failed(E),
}

impl<E> From<Pending> for Stop<E> {
    fn from(_: Pending) -> Self {
        Self::Pending
    }
}

/// An error, or a cause that an error is made from, is a failure.
impl<E: From<C>, C: core::error::Error> From<C> for Stop<E> {
    fn from(cause: C) -> Self {
        Self::Failed(cause.into())
    }
}

/// Result of a primitive.
pub type Wait<T> = Result<T, Pending>;

/// Result of a procedure.
pub type Run<T, E> = Result<T, Stop<E>>;

/// The result of a procedure once there is one, for a caller that deals with failures itself.
///
/// # Errors
/// [`Pending`] if there is none yet.
pub fn settled<T, E>(run: Run<T, E>) -> Wait<Result<T, E>> {
    match run {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Failed(error)) => Ok(Err(error)),
        Err(Stop::Pending) => Err(Pending),
    }
}
