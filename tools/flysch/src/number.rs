//! Numbers as people write and read them.

/// A number as users write it: decimal, or hexadecimal after `0x`.
pub(crate) fn parse_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    // No cause: the words say what is wanted.
    parsed.map_err(|_| format!("`{text}` is not a number such as 3 or 0x1F"))
}

/// A number as `0x1F (31)`, wide enough for its bytes.
pub(crate) fn show_number(value: u64, width: usize) -> String {
    format!("{value:#0digits$x} ({value})", digits = 2 + 2 * width)
}
