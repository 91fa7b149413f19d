//! Arithmetic in values: `5*1024*$mb_memory/8`, `(1g+64k)*2`.

use super::{KiloBase, UnitError, parse_plain_size};

/// Maximum nesting of parentheses.
const DEPTH_MAX: u32 = 32;

/// Whether `text` is more than a number with its unit.
pub(super) fn is_one(text: &str) -> bool {
    text.contains(['*', '/', '+', '(', ')', '^'])
}

/// The value of an expression of sizes with `+ - * / ^` and parentheses, as fio reads it: computed
/// with fractions, which are truncated at the end.
pub(super) fn value(text: &str, base: KiloBase) -> Result<u64, UnitError> {
    let mut reader = Reader { rest: text, base, depth: 0 };
    let bad = || UnitError::Expression(text.to_string());
    let value = reader.sum().ok_or_else(bad)?;
    if !reader.rest.trim_start().is_empty() || !value.is_finite() || value < 0.0 {
        return Err(bad());
    }
    if value >= u64::MAX as f64 {
        return Err(UnitError::TooLarge(text.to_string()));
    }
    Ok(value as u64)
}

struct Reader<'t> {
    rest: &'t str,
    base: KiloBase,
    depth: u32,
}

impl Reader<'_> {
    /// Takes `sign` if it is next.
    fn takes(&mut self, sign: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        rest.inspect(|rest| self.rest = rest).is_some()
    }

    fn sum(&mut self) -> Option<f64> {
        let mut value = self.product()?;
        loop {
            if self.takes('+') {
                value += self.product()?;
            } else if self.takes('-') {
                value -= self.product()?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<f64> {
        let mut value = self.power()?;
        loop {
            if self.takes('*') {
                value *= self.power()?;
            } else if self.takes('/') {
                value /= self.power()?;
            } else {
                return Some(value);
            }
        }
    }

    fn power(&mut self) -> Option<f64> {
        let base = self.term()?;
        Some(if self.takes('^') { base.powf(self.nested(Self::power)?) } else { base })
    }

    fn term(&mut self) -> Option<f64> {
        if self.takes('-') {
            return Some(-self.nested(Self::term)?);
        }
        if self.takes('(') {
            let value = self.nested(Self::sum)?;
            return self.takes(')').then_some(value);
        }
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        self.rest = rest;
        parse_plain_size(number, self.base).ok().map(|value| value as f64)
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<f64>) -> Option<f64> {
        self.depth += 1;
        let value = if self.depth <= DEPTH_MAX { read(self) } else { None };
        self.depth -= 1;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_computed_as_fio_computes_them() {
        let cases = [
            ("5*1024*1024*8/8", 5 << 20),
            ("(1g+64k)*2", (1 << 31) + (1 << 17)),
            ("2^3^2", 512),
            ("10 - 2 * 3 + 4k", 4100),
            ("7/2", 3),
            ("7/2*2", 7),
            ("-3+5", 2),
            ("(((8)))*1", 8),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text, KiloBase::Binary), Ok(expected), "{text}");
        }
        assert_eq!(value("2*1k", KiloBase::Decimal), Ok(2000));
    }

    #[test]
    fn what_is_no_expression_is_named() {
        let deep = "(".repeat(100_000);
        for text in ["1+", "(1", "1)*2", "*", "1/0", "2-3*1", "4q*2", "1 2+3", &deep] {
            let error = value(text, KiloBase::Binary).unwrap_err().to_string();
            assert!(error.contains("is not a value"), "{text:.20}: {error:.80}");
        }
        assert!(matches!(value("2^70", KiloBase::Binary), Err(UnitError::TooLarge(_))));
    }
}
