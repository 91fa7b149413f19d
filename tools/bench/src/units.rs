//! Numbers with units, as fio writes and reads them.

mod expression;

use core::fmt;
use std::time::Duration;

/// A number of bytes, shown short: `4k`, `128k`, `1m`, `1000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0;
        let mut unit = "";
        for larger in ["k", "m", "g", "t", "p"] {
            if value == 0 || !value.is_multiple_of(1024) {
                break;
            }
            value /= 1024;
            unit = larger;
        }
        f.pad(&format!("{value}{unit}"))
    }
}

/// The meaning of `k`; fio's option `kb_base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KiloBase {
    /// fio's default: `k`, `kb` and `ki` are 1024, `kib` is 1000.
    #[default]
    Binary,
    /// `k`, `kb` and `ki` are 1000, `kib` is 1024.
    Decimal,
}

/// An amount of bytes, absolute or relative to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many bytes.
    Bytes(u64),
    /// This many percent of the device.
    Percent(u32),
    /// This many zones of the device.
    Zones(u64),
}

impl Amount {
    /// Bytes on a device of `device` bytes in blocks of `block_size`, with zones of `zone` bytes; a
    /// percentage is rounded down to whole blocks.
    pub fn resolve(self, (device, block_size): (u64, u32), zone: u64) -> u64 {
        let bytes = self.exact(device, zone);
        match self {
            Self::Percent(_) => bytes - bytes % u64::from(block_size.max(1)),
            Self::Bytes(_) | Self::Zones(_) => bytes,
        }
    }

    /// The same, not rounded.
    pub fn exact(self, device: u64, zone: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Zones(count) => count.saturating_mul(zone),
            Self::Percent(percent) => {
                let bytes = u128::from(device) * u128::from(percent) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Why a number was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// There is no number.
    #[error("`{0}` is not a number")]
    NotANumber(String),
    /// What follows the number is no unit.
    #[error("`{text}` is not one whole number with a unit; {known}")]
    Unit {
        /// The text.
        text: String,
        /// The possible units.
        known: &'static str,
    },
    /// More than all.
    #[error("`{0}` is more than all of the device: 100% is the most")]
    Percentage(String),
    /// It cannot be computed.
    #[error("`{0}` is not a value that can be computed, like 4k*3 or (1g+64k)/2")]
    Expression(String),
    /// It does not fit into 64 bits.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

const SIZE_UNITS: &str = "use b, k, m, g, t or p";
const TIME_UNITS: &str = "use us, ms, s, m, h or d";

/// Reads a size or count: `4k`, `1g`, `0x200`, `512`, or an expression of these: `5*1g/8`.
///
/// # Errors
/// [`UnitError`] naming the text.
pub fn parse_size(text: &str, base: KiloBase) -> Result<u64, UnitError> {
    if expression::is_one(text) {
        return expression::value(text, base);
    }
    parse_plain_size(text, base)
}

fn parse_plain_size(text: &str, base: KiloBase) -> Result<u64, UnitError> {
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let (letter, rest) = unit.split_at(unit.chars().next().map_or(0, char::len_utf8));
    let power = match letter {
        "" | "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => 6,
    };
    let other = rest == "ib";
    let known = matches!(rest, "" | "b" | "i" | "ib") && (power > 0 || rest.is_empty());
    if !known || power > 5 {
        return Err(UnitError::Unit { text: text.to_string(), known: SIZE_UNITS });
    }
    let factor: u64 = if (base == KiloBase::Binary) == other { 1000 } else { 1024 };
    number.checked_mul(factor.pow(power)).ok_or_else(|| UnitError::TooLarge(text.to_string()))
}

/// Reads a size, a percentage of the device: `25%`, or a number of its zones: `3z`.
///
/// # Errors
/// [`UnitError`] naming the text.
pub fn parse_amount(text: &str, base: KiloBase) -> Result<Amount, UnitError> {
    if let Some(zones) = text.strip_suffix(['z', 'Z']) {
        let count = zones.parse().map_err(|_| UnitError::NotANumber(text.to_string()));
        return count.map(Amount::Zones);
    }
    match text.strip_suffix('%') {
        None => parse_size(text, base).map(Amount::Bytes),
        Some(percent) => match percent.parse() {
            Ok(percent @ 0..=100) => Ok(Amount::Percent(percent)),
            Ok(_) => Err(UnitError::Percentage(text.to_string())),
            Err(_) => Err(UnitError::NotANumber(text.to_string())),
        },
    }
}

/// Reads a time; a number without a unit counts `default`.
///
/// # Errors
/// [`UnitError`] naming the text.
pub fn parse_time(text: &str, default: Duration) -> Result<Duration, UnitError> {
    let (number, unit) = split(text)?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" => default,
        "us" | "usec" => Duration::from_micros(1),
        "ms" | "msec" => Duration::from_millis(1),
        "s" | "sec" => Duration::from_secs(1),
        "m" | "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        "d" => Duration::from_secs(86_400),
        _ => return Err(UnitError::Unit { text: text.to_string(), known: TIME_UNITS }),
    };
    let nanos = u64::try_from(u128::from(number) * unit.as_nanos());
    // No cause: it is too large, which is what is said.
    nanos.map(Duration::from_nanos).map_err(|_| UnitError::TooLarge(text.to_string()))
}

/// The number at the start of `text` and what follows it.
fn split(text: &str) -> Result<(u64, &str), UnitError> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let is_digit = |c: char| c.is_digit(radix);
    let end = digits.find(|c| !is_digit(c)).unwrap_or(digits.len());
    if end == 0 {
        return Err(UnitError::NotANumber(text.to_string()));
    }
    let number = u64::from_str_radix(&digits[..end], radix);
    // No cause: digits that are no number are too many.
    let number = number.map_err(|_| UnitError::TooLarge(text.to_string()))?;
    Ok((number, &digits[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first column is what Debian's fio 3.33 made of `--size=TEXT`.
    #[test]
    fn sizes_mean_what_they_mean_to_fio() {
        for (bytes, text) in [
            (3, "3"),
            (3, "3b"),
            (3072, "3k"),
            (3072, "3Kb"),
            (3072, "3ki"),
            (3000, "3KiB"),
            (32, "0x20"),
            (2_097_152, "2mb"),
            (2_000_000, "2mib"),
        ] {
            assert_eq!(parse_size(text, KiloBase::Binary), Ok(bytes), "{text}");
        }
        for (bytes, text) in [(3000, "3k"), (3000, "3kb"), (3000, "3ki"), (3072, "3kib")] {
            assert_eq!(parse_size(text, KiloBase::Decimal), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "k", "-1", "3x", "2.5k", "1e3", "3 k", "20000000000000000000", "16384p", "µ"]
        {
            assert!(parse_size(text, KiloBase::Binary).is_err(), "{text}");
        }
        assert!(parse_amount("101%", KiloBase::Binary).is_err());
        assert!(parse_time("5 parsec", Duration::from_secs(1)).is_err());
    }

    #[test]
    fn times_have_units_and_a_default() {
        let second = Duration::from_secs(1);
        for (millis, text) in [(7000, "7"), (5, "5ms"), (60_000, "1m"), (90_000, "90s")] {
            assert_eq!(parse_time(text, second), Ok(Duration::from_millis(millis)), "{text}");
        }
        let micro = Duration::from_micros(1);
        assert_eq!(parse_time("250", micro), Ok(Duration::from_micros(250)));
    }

    #[test]
    fn percentages_are_of_the_device_in_whole_blocks() {
        let amount = parse_amount("25%", KiloBase::Binary).unwrap();
        assert_eq!(amount.resolve((1 << 20, 4096), 0), 1 << 18);
        assert_eq!(Amount::Percent(33).resolve((40_960, 4096), 0), 12_288);
        let zones = parse_amount("3z", KiloBase::Binary).unwrap();
        assert_eq!(zones.resolve((1 << 20, 512), 65_536), 196_608);
    }

    #[test]
    fn sizes_are_shown_short_and_read_back() {
        for bytes in [0, 1, 512, 1000, 4096, 6144, 131_072, 1 << 30, 1 << 40] {
            assert_eq!(parse_size(&Size(bytes).to_string(), KiloBase::Binary), Ok(bytes));
        }
        assert_eq!(Size(131_072).to_string(), "128k");
    }
}
