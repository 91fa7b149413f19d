//! The one date format fio's JSON has: that of ctime(3), in UTC.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `seconds` since 1970 as `Sat Nov 21 10:45:52 2026`.
pub fn ctime(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years counted from 1 March, so that the leap day is the last of its year: 400 years have
    // 146 097 days, 719 468 days lie between 1 March of year 0 and 1970.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[month as usize]);
    format!("{weekday} {month} {day:>2} {hour:02}:{minute:02}:{second:02} {year}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn agrees_with_the_calendar() {
        assert_eq!(super::ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(super::ctime(951_782_399), "Mon Feb 28 23:59:59 2000");
        assert_eq!(super::ctime(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(super::ctime(1_795_257_952), "Sat Nov 21 10:45:52 2026");
        assert_eq!(super::ctime(4_107_542_400), "Mon Mar  1 00:00:00 2100");
    }
}
