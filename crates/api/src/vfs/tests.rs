use super::*;

mod whole;

#[test]
fn device_numbers_survive_their_encodings() {
    let small = DeviceNumber { major: 179, minor: 3 };
    assert_eq!(DeviceNumber::from_old(0xb303), small);
    let big = DeviceNumber { major: 259, minor: 70_000 };
    assert_eq!(big.to_new(), Some(0x1111_0370));
    assert_eq!(DeviceNumber::from_new(0x1111_0370), big);
    let huge = DeviceNumber { major: 0x1_2345, minor: 0xfed_cba9 };
    assert_eq!(huge.to_new(), None);
    assert_eq!(DeviceNumber::from_huge(huge.to_huge()), huge);
    assert_eq!(DeviceNumber::from_huge(big.to_huge()), big);
}
