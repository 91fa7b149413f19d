//! Words of edits.

use flysch_api::vfs::{FileKind, Timestamp};

/// Value of an extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value(pub(super) Vec<u8>);

/// Permissions of a new file.
pub(super) fn mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o7777);
    mode.ok_or_else(|| format!("`{text}` is not an octal mode such as 644 or 4755"))
}

/// The kinds of node made by mknod.
pub(super) fn kind(text: &str) -> Result<FileKind, String> {
    match text {
        "b" => Ok(FileKind::BlockDevice),
        "c" | "u" => Ok(FileKind::CharacterDevice),
        "p" => Ok(FileKind::Fifo),
        "s" => Ok(FileKind::Socket),
        _ => Err(format!("`{text}` is not one of b, c, p and s")),
    }
}

/// Text, or `0x` and hexadecimal digits.
pub(super) fn value(text: &str) -> Result<Value, String> {
    let Some(digits) = text.strip_prefix("0x") else { return Ok(Value(text.into())) };
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map(Value).ok_or_else(|| format!("`{text}` is not an even number of hexadecimal digits"))
}

/// `@SECONDS`, or `YYYY-MM-DD`, optionally with `HH:MM[:SS]` after a space or `T`, optionally `Z`:
/// UTC. Each may have up to nine decimals.
pub(super) fn date(text: &str) -> Result<Timestamp, String> {
    let wrong =
        || format!("`{text}` is not a time such as 2026-11-22T09:30:00 (UTC) or @1700000000");
    let clean = text.strip_suffix('Z').unwrap_or(text);
    let (whole, decimals) = clean.split_once('.').map_or((clean, None), |(a, b)| (a, Some(b)));
    let seconds: Option<i64> = match whole.strip_prefix('@') {
        Some(seconds) => seconds.parse().ok(),
        // Decimals of minutes are none.
        None if decimals.is_some() && whole.matches(':').count() < 2 => None,
        None => calendar(whole),
    };
    let nanoseconds = decimals.map_or(Some(0), nanoseconds).ok_or_else(wrong)?;
    let seconds = seconds.ok_or_else(wrong)?;
    // Nanoseconds count forward, before 1970 too.
    Ok(match (whole.starts_with("@-"), nanoseconds) {
        (true, 1..) => Timestamp { seconds: seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
        _ => Timestamp { seconds, nanoseconds },
    })
}

/// Decimals of a second.
fn nanoseconds(decimals: &str) -> Option<u32> {
    let is_number = decimals.bytes().all(|byte| byte.is_ascii_digit());
    let fits = is_number && (1..=9).contains(&decimals.len());
    fits.then(|| format!("{decimals:0<9}").parse().ok())?
}

fn calendar(text: &str) -> Option<i64> {
    let (day, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let number = |text: &str, most: i64| {
        let digits = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|&number| digits && number <= most)
    };
    let mut parts = day.split('-');
    let year = number(parts.next()?, 9999)?;
    let month = number(parts.next()?, 12).filter(|&month| month > 0)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let day = number(parts.next()?, days).filter(|&day| day > 0)?;
    let mut clock = time.split(':');
    let (hour, minute) = (number(clock.next()?, 23)?, number(clock.next()?, 59)?);
    let second = clock.next().map_or(Some(0), |second| number(second, 59))?;
    if parts.next().is_some() || clock.next().is_some() {
        return None;
    }
    // Days since 1970, years counted from March (Howard Hinnant, days_from_civil).
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with date(1).
    #[test]
    fn dates_are_those_of_the_calendar() {
        for text in ["1970-01-01", "2000-02-29 23:59:59", "2026-11-22T09:30Z", "1901-12-13 20:45"] {
            let words = ["-u", "+%s", "-d", &text.replace('T', " ")];
            let output = std::process::Command::new("date").args(words).output().unwrap();
            let expected = String::from_utf8(output.stdout).unwrap();
            assert_eq!(date(text).unwrap().seconds.to_string(), expected.trim(), "{text}");
        }
        assert_eq!(date("@-5").unwrap().seconds, -5);
        let whole = |text| date(text).map(|time| (time.seconds, time.nanoseconds));
        assert_eq!(whole("@7.25"), Ok((7, 250_000_000)));
        assert_eq!(whole("@-7.25"), Ok((-8, 750_000_000)));
        assert_eq!(whole("1970-01-01 00:00:09.000000001Z"), Ok((9, 1)));
        for text in [
            "",
            "@",
            "2026",
            "2026-02-29",
            "2026-13-01",
            "2026-1-1 24:00",
            "2026-1-1 1:2:3:4",
            "@1.",
            "@1.x",
            "2026-01-01.5",
            "@1.0123456789",
        ] {
            assert!(date(text).is_err(), "{text}");
        }
    }
}
