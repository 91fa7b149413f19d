//! Numbers as FreeBSD's tools write and read them.

/// A size in at most four characters, like FreeBSD's `humanize_number` with a buffer of five.
pub(super) fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    /// Remainders from here on are rounded up.
    const HALF: u64 = 973;
    let (mut value, mut rest, mut unit) = (bytes, 0, 0);
    while (value >= 1000 || value == 999 && rest >= HALF) && unit + 1 < UNITS.len() {
        (value, rest, unit) = (value / 1024, value % 1024, unit + 1);
    }
    if unit > 0 && (value < 9 || value == 9 && rest < HALF) {
        let tenths = (rest * 10 + 512) / 1024;
        return format!("{}.{}{}", value + tenths / 10, tenths % 10, UNITS[unit]);
    }
    format!("{}{}", value + (rest + 512) / 1024, UNITS[unit])
}

/// Sectors: a number of them, or bytes with a unit (`512k`, `1g`, `100b`).
pub(super) fn sectors(text: &str, sector: u32) -> Result<u64, String> {
    let wrong = || format!("`{text}` is neither a number of sectors nor a size such as 512k or 1g");
    if let Ok(sectors) = text.parse() {
        return Ok(sectors);
    }
    let bytes = bytes(text).ok_or_else(wrong)?;
    if bytes % u64::from(sector) != 0 {
        return Err(format!("{text} is not a multiple of the sector of {sector} bytes"));
    }
    Ok(bytes / u64::from(sector))
}

/// Bytes with a unit of FreeBSD's.
pub(super) fn bytes(text: &str) -> Option<u64> {
    match text.strip_suffix(['b', 'B']).filter(|rest| rest.parse::<u64>().is_ok()) {
        Some(plain) => plain.parse().ok(),
        None => flysch_rig::size::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_freebsd() {
        for (bytes, text) in [
            (0, "0B"),
            (512, "512B"),
            (999, "999B"),
            (1000, "1.0K"),
            (524_288, "512K"),
            (503_808, "492K"),
            (1_028_096, "1.0M"),
            (1 << 30, "1.0G"),
            (10 * 1024 - 1, "10K"),
            (9 * 1024 + 972, "9.9K"),
            (750_156_374_016, "699G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn sectors_are_read() {
        assert_eq!(sectors("100", 512), Ok(100));
        assert_eq!(sectors("1m", 512), Ok(2048));
        assert_eq!(sectors("512b", 512), Ok(1));
        assert!(sectors("1k", 4096).is_err());
        assert!(sectors("x", 512).is_err());
    }
}
