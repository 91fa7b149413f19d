use super::*;

#[test]
fn names_and_numbers_go_both_ways() {
    for algorithm in HashAlgorithm::ALL {
        assert_eq!(HashAlgorithm::from_code(algorithm.code()), Some(algorithm));
        assert_eq!(HashAlgorithm::from_name(algorithm.name()), Some(algorithm));
    }
    assert_eq!(HashAlgorithm::from_name("md5"), None);
}

#[test]
fn keys_do_not_show() {
    let key = AuthKey::new(b"secret", None);
    assert!(!alloc::format!("{key:?}").contains("secret"));
    let auth = Auth::new(HashAlgorithm::Sha256, Some(&key));
    assert_eq!(alloc::format!("{auth:?}"), "Auth { algorithm: Sha256, .. }");
}

#[test]
fn hashes_are_those_of_the_standards() {
    // FIPS 180-4, "abc".
    let abc = HashAlgorithm::Sha256.hash(b"abc");
    assert_eq!(abc.bytes()[..4], [0xba, 0x78, 0x16, 0xbf]);
    assert_eq!(HashAlgorithm::Sha384.hash(b"abc").bytes().len(), 48);
    // RFC 4231, test case 2.
    let keyed = Keyed::new(HashAlgorithm::Sha256, b"Jefe");
    let hmac = keyed.of(&[b"what do ya want ", b"for nothing?"]);
    assert_eq!(hmac.bytes()[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    let keyed = Keyed::new(HashAlgorithm::Sha512, b"Jefe");
    let hmac = keyed.of(&[b"what do ya want for nothing?"]);
    assert_eq!(hmac.bytes()[..4], [0x16, 0x4b, 0x7a, 0x7b]);
}
