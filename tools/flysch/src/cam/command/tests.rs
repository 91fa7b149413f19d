use super::*;

#[test]
fn bytes_are_told_by_fields() {
    let answer = b"\x00\x00\x06\x02\x1f\x00\x00\x02FLYSCH  UFS MODEL       0001";
    assert_eq!(decode(answer, "s8 z8 z16 z4").unwrap(), "FLYSCH UFS MODEL 0001");
    assert_eq!(decode(answer, "i1 s2 i2").unwrap(), "0 1538");
    assert!(decode(answer, "s30 z16").is_err());
    assert!(decode(answer, "q3").is_err() && decode(answer, "i9").is_err());
    assert!(decode(answer, "s18446744073709551615 z9").is_err());
    assert_eq!(bytes("12 0 0x1F").unwrap(), [0x12, 0, 0x1F]);
    assert!(bytes("100").is_err() && bytes("zz").is_err());
}
