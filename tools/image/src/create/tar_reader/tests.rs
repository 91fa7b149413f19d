use super::*;

#[test]
fn numbers_are_octal_or_binary() {
    assert_eq!(number(b"0000644\0"), Some(0o644));
    assert_eq!(number(b"   644 \0"), Some(0o644));
    assert_eq!(number(b"\0\0\0\0"), Some(0));
    assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]), Some(65536));
    assert_eq!(signed(&[0xff; 12]), Some(-1));
    assert_eq!(number(&[0xff; 12]), None);
    assert_eq!(number(b"00009\0"), None);
}

#[test]
fn records_hold_any_byte() {
    let found = records(b"20 SCHILY.xattr.a=\n\n13 path=x\ny=\n").unwrap();
    assert_eq!(found[0], (b"SCHILY.xattr.a".to_vec(), b"\n".to_vec()));
    assert_eq!(found[1], (b"path".to_vec(), b"x\ny=".to_vec()));
    for bad in [&b"5 a=b\n"[..], b"x a=b\n", b"99 a=b\n", b"6 ab\n\n", b"0 a=b\n", b"2 "] {
        assert!(records(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn times_have_fractions() {
    let at = |seconds, nanoseconds| Some(Timestamp { seconds, nanoseconds });
    assert_eq!(time(b"1500000000.25"), at(1_500_000_000, 250_000_000));
    assert_eq!(time(b"-1.5"), at(-2, 500_000_000));
    assert_eq!(time(b"12"), at(12, 0));
    assert_eq!(time(b"soon"), None);
}
