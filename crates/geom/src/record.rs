//! The verdicts on providers, and their reasons.

use alloc::collections::VecDeque;
use alloc::string::String;

/// Number of verdicts and of messages kept; older ones are forgotten.
const KEPT: usize = 16384;

/// A reason, and the bytes it is based on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// In words.
    pub text: String,
    /// Offset and length of those bytes of the provider.
    pub bytes: Option<(u64, u64)>,
}

impl<T: Into<String>> From<T> for Reason {
    fn from(text: T) -> Self {
        Self { text: text.into(), bytes: None }
    }
}

/// The verdict of a class that tasted a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taste {
    /// The class took it.
    Claimed(Reason),
    /// Nothing of this class was found.
    Passed(Reason),
    /// Something of this class was found, but not taken.
    Refused(Reason),
}

impl Taste {
    /// Took it, because of these bytes.
    pub fn claimed(text: impl Into<String>, at: u64, len: u64) -> Self {
        Self::Claimed(Reason { text: text.into(), bytes: Some((at, len)) })
    }

    /// Nothing of this class was found.
    pub fn passed(text: impl Into<String>) -> Self {
        Self::Passed(text.into().into())
    }

    /// Did not take what is in these bytes.
    pub fn refused(text: impl Into<String>, at: u64, len: u64) -> Self {
        Self::Refused(Reason { text: text.into(), bytes: Some((at, len)) })
    }

    /// The reason.
    pub fn reason(&self) -> &Reason {
        match self {
            Self::Claimed(reason) | Self::Passed(reason) | Self::Refused(reason) => reason,
        }
    }

    /// The outcome.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Claimed(_) => Outcome::Claimed,
            Self::Passed(_) => Outcome::Passed,
            Self::Refused(_) => Outcome::Refused,
        }
    }
}

/// The outcome of a tasting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken.
    Claimed,
    /// Nothing found.
    Passed,
    /// Found, but not taken.
    Refused,
}

impl Outcome {
    /// The outcome in one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Passed => "passed",
            Self::Refused => "refused",
        }
    }
}

/// The verdict of one class on one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The provider's name.
    pub provider: String,
    /// The class.
    pub class: &'static str,
    /// Its verdict.
    pub taste: Taste,
}

/// What was decided and what happened: the newest 16384 verdicts, and as many messages.
#[derive(Debug, Default)]
pub struct Record {
    verdicts: VecDeque<Verdict>,
    messages: VecDeque<String>,
}

impl Record {
    /// The newest verdict of every class on every provider.
    pub fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter()
    }

    /// The messages about events, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().map(String::as_str)
    }

    /// Keeps a message about an event.
    pub fn say(&mut self, message: String) {
        if self.messages.len() == KEPT {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }

    /// Keeps a verdict in place of an older one of the same class on the same provider.
    pub(crate) fn judge(&mut self, verdict: Verdict) {
        let same = |old: &Verdict| old.class == verdict.class && old.provider == verdict.provider;
        match self.verdicts.iter_mut().rev().find(|old| same(old)) {
            Some(old) => *old = verdict,
            None => {
                if self.verdicts.len() == KEPT {
                    self.verdicts.pop_front();
                }
                self.verdicts.push_back(verdict);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_newer_verdict_replaces_the_older_and_the_oldest_of_too_many_messages_goes() {
        let mut record = Record::default();
        let verdict = |provider: &str, class, text: &str| Verdict {
            provider: provider.to_string(),
            class,
            taste: Taste::passed(text),
        };
        record.judge(verdict("a", "PART", "old"));
        record.judge(verdict("a", "LABEL", "other class"));
        record.judge(verdict("b", "PART", "other provider"));
        record.judge(verdict("a", "PART", "new"));
        let texts: Vec<_> = record.verdicts().map(|it| &it.taste.reason().text[..]).collect();
        assert_eq!(texts, ["new", "other class", "other provider"]);
        (0..=KEPT).for_each(|number| record.say(format!("{number}")));
        assert_eq!(record.messages().count(), KEPT);
        assert_eq!(record.messages().next(), Some("1"));
    }
}
