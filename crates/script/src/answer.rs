//! What actions answer.

/// The result of an action: a number, a reply `R` of the device, or failure with a cause `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<R, C> {
    /// A number.
    Value(u64),
    /// A reply of the device.
    Reply(R),
    /// The reason why there is neither.
    Failed(C),
}

impl<R, C> Answer<R, C> {
    /// The reply.
    ///
    /// # Errors
    /// The cause.
    ///
    /// # Panics
    /// If it is a number, which was not asked for.
    pub fn reply(self) -> Result<R, C> {
        match self {
            Self::Reply(reply) => Ok(reply),
            Self::Failed(cause) => Err(cause),
            Self::Value(_) => unreachable!("a number where a reply was asked for"),
        }
    }
}

impl<R, C> From<u64> for Answer<R, C> {
    fn from(value: u64) -> Self {
        Self::Value(value)
    }
}

/// An answer as a number, or the cause; a reply was not asked for.
impl<R, C> TryFrom<Answer<R, C>> for u64 {
    type Error = C;

    fn try_from(answer: Answer<R, C>) -> Result<Self, C> {
        match answer {
            Answer::Value(value) => Ok(value),
            Answer::Failed(cause) => Err(cause),
            Answer::Reply(_) => unreachable!("no number where one was asked for"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_number_a_reply_or_a_cause() {
        type Told = Answer<&'static str, u8>;
        assert_eq!(u64::try_from(Told::from(7)), Ok(7));
        assert_eq!(u64::try_from(Told::Failed(3)), Err(3));
        assert_eq!(Told::Reply("well").reply(), Ok("well"));
        assert_eq!(Told::Failed(3).reply(), Err(3));
    }
}
