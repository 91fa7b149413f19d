//! The `key=value` pairs of a target.

use crate::error::PairError;
use crate::kind::{Key, Kind};

/// The `key=value` pairs of a target, each known to its kind and given once.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    pairs: Vec<(&'static Key, &'a str)>,
}

impl<'a> Pairs<'a> {
    /// Reads what follows the kind: nothing, or a comma before each pair.
    ///
    /// # Errors
    /// What is no pair, no key of this kind, or given twice.
    pub fn parse(kind: &'static Kind, rest: &'a str) -> Result<Self, PairError> {
        let mut pairs: Vec<(&'static Key, &str)> = Vec::new();
        if let Some(odd) = rest.strip_prefix(':') {
            return Err(PairError::NotAPair { given: odd.into() });
        }
        for piece in rest.split(',').skip(1) {
            let Some((name, value)) = piece.split_once('=') else {
                return Err(PairError::NotAPair { given: piece.into() });
            };
            let key = kind
                .keys
                .iter()
                .find(|key| key.name == name)
                .ok_or_else(|| PairError::Key { kind, given: name.into() })?;
            if pairs.iter().any(|(known, _)| known.name == name) {
                return Err(PairError::Twice { key: key.name });
            }
            pairs.push((key, value));
        }
        Ok(Self { pairs })
    }

    /// The key of that name, and its value as it was written.
    pub fn given(&self, name: &str) -> Option<(&'static Key, &'a str)> {
        self.pairs.iter().find(|(key, _)| key.name == name).copied()
    }

    /// The value of `name` as `read` understands it.
    ///
    /// # Errors
    /// It does not; the error says what the key's value must be.
    pub fn get<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, PairError> {
        let Some((key, value)) = self.given(name) else {
            return Ok(None);
        };
        let refuse = || {
            let expected = match key.value {
                "BYTES" => "a size such as 512M, 4G or 1048576, a multiple of 4096".into(),
                "FILE" | "PROGRAM" => "a path".into(),
                "NUMBER" => "a number".into(),
                "MICROSECONDS" => "a number of microseconds, at least 1, such as 2000".into(),
                "COUNT:MICROSECONDS" => {
                    "1 to 31 completions and 40 to 10200 microseconds, such as 8:400".into()
                }
                other => other.into(),
            };
            PairError::Value { key: key.name, given: value.into(), expected }
        };
        read(value).map(Some).ok_or_else(refuse)
    }

    /// The same for a key whose values need more words than the table has: `expected`.
    ///
    /// # Errors
    /// [`PairError::Value`] with these words.
    pub fn get_or<T>(
        &self,
        name: &str,
        expected: impl FnOnce() -> String,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, PairError> {
        self.get(name, read).map_err(|error| match error {
            PairError::Value { key, given, .. } => {
                PairError::Value { key, given, expected: expected() }
            }
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::key;

    const SEED: Key = key("seed", "NUMBER", "seed (1)");
    const PLAIN: Kind = Kind { name: "plain", help: "", keys: &[SEED] };
    const RICH: Kind =
        Kind { name: "rich", help: "", keys: &[SEED, key("mode", "slow|fast", "how (slow)")] };

    fn told(kind: &'static Kind, rest: &str) -> String {
        Pairs::parse(kind, rest).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_be_right() {
        assert_eq!(
            told(&RICH, ",mod=1"),
            "target `rich` has no key `mod`, did you mean `mode`?; its keys are seed, mode"
        );
        assert_eq!(told(&PLAIN, ",seed=1,seed=2"), "key `seed` is given twice");
        assert!(told(&PLAIN, ",seed").starts_with("`seed` is not `key=value`"));
        assert!(told(&PLAIN, ":x").starts_with("`x` is not `key=value`"));
        let pairs = Pairs::parse(&RICH, ",mode=fats,seed=x").unwrap();
        let mode = pairs.get("mode", |text| (text == "fast").then_some(()));
        let told = mode.unwrap_err().to_string();
        assert_eq!(told, "`mode=fats`: expected slow|fast, did you mean `fast`?");
        let seed = pairs.get("seed", |text| text.parse::<u64>().ok());
        assert_eq!(seed.unwrap_err().to_string(), "`seed=x`: expected a number");
        let seed = pairs.get_or("seed", || "1 to 3".into(), |text| text.parse::<u64>().ok());
        assert_eq!(seed.unwrap_err().to_string(), "`seed=x`: expected 1 to 3");
    }
}
