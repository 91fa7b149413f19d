use super::*;
use std::format;

#[test]
fn every_name_has_its_row_and_every_row_its_name() {
    for (id, info) in AttributeId::ALL.iter().zip(ATTRIBUTES) {
        assert_eq!(*id, info.id);
        let width = match id.name().as_bytes()[0] {
            b'b' => 1,
            b'w' => 2,
            b'd' => 4,
            b'q' => 8,
            other => panic!("{other}"),
        };
        assert_eq!(info.width, width, "{id}");
        assert_eq!(AttributeId::by_name(&id.name().to_uppercase()), Some(*id));
    }
    assert_eq!(AttributeId::ALL.len(), ATTRIBUTES.len());
    for (id, info) in FlagId::ALL.iter().zip(FLAGS) {
        assert_eq!(*id, info.id);
        assert_eq!(FlagId::by_name(id.name()), Some(*id));
    }
    assert_eq!(FlagId::ALL.len(), FLAGS.len());
}

#[test]
fn the_attribute_that_hung_a_part_is_refused_there() {
    let hint = AttributeId::WriteBoosterBufferResizeHint.info().unwrap();
    assert!(!hint.since.is_in(0x0300) && hint.since.is_in(0x0410));
    let booster = FlagId::WriteBoosterEn.info().unwrap();
    assert!(booster.since.is_in(0x0220) && booster.since.is_in(0x0310));
    assert!(!booster.since.is_in(0x0300) && !booster.since.is_in(0x0210));
    assert_eq!(format!("{}", booster.since), "3.1");
}

#[test]
fn access_and_limits() {
    let seconds = AttributeId::SecondsPassed.info().unwrap();
    assert!(!seconds.access.read && seconds.access.is_writable());
    assert_eq!(seconds.value_max(), u64::from(u32::MAX));
    assert_eq!(AttributeId::Timestamp.info().unwrap().value_max(), u64::MAX);
    assert_eq!(AttributeId::RefClkFreq.info().unwrap().value_max(), 255);
    assert_eq!(AttributeId::from_bits(0x3A).info(), None);
    assert_eq!(format!("{}", seconds.access), "write only / volatile");
    assert_eq!(temperature_celsius(0x78), Some(40));
    assert_eq!((temperature_celsius(0), temperature_celsius(251)), (None, None));
}
