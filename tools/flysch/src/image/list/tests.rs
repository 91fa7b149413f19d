use super::*;

#[test]
fn dates_are_those_of_the_calendar() {
    assert_eq!(date(0), "1970-01-01 00:00");
    assert_eq!(date(951_782_400), "2000-02-29 00:00");
    assert_eq!(date(1_000_000_000), "2001-09-09 01:46");
    assert_eq!(date(4_294_967_295), "2106-02-07 06:28");
    assert_eq!(date(-1), "1969-12-31 23:59");
}
