//! Sizes in the usual notation.

/// Reads `4096`, `512M`, `4G`, `1.5T`, `4GiB`, `64kB`: every unit is a power of 1024, as in fio.
/// `None` for anything else and for what does not fit.
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let fraction: f64 = number.parse().ok()?;
    let bytes = fraction * (1_u64 << shift) as f64;
    (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// Writes a size with the largest unit of 1024 that leaves at most one decimal: `4 GiB`, `1.5 MiB`.
pub fn display(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let unit = (((63 - bytes.leading_zeros()) / 10) as usize).min(UNITS.len());
    let value = bytes as f64 / (1_u64 << (10 * unit)) as f64;
    let name = UNITS[unit - 1];
    if value.fract() == 0.0 { format!("{value:.0} {name}") } else { format!("{value:.1} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kb", 4096),
            ("1.5M", 3 << 19),
            ("4G", 4 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "-1", "4X", "4 G", "1.2.3", "18446744073709551615K", "1e3", "."] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_written() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (3 << 19, "1.5 MiB"),
            (4 << 30, "4 GiB"),
            (1 << 50, "1 PiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(display(bytes), text);
        }
    }
}
