use super::*;
use proptest::prelude::*;
use std::string::ToString;

#[test]
fn tables_neither_overlap_nor_leave_the_descriptor() {
    let tables = [
        (DeviceDescriptor::FIELDS, DeviceDescriptor::LENGTH),
        (ConfigurationHeader::FIELDS, ConfigurationHeader::LENGTH),
        (ConfigurationUnit::FIELDS, ConfigurationUnit::LENGTH),
        (UnitDescriptor::FIELDS, UnitDescriptor::LENGTH),
        (RpmbUnitDescriptor::FIELDS, RpmbUnitDescriptor::LENGTH),
        (InterconnectDescriptor::FIELDS, InterconnectDescriptor::LENGTH),
        (GeometryDescriptor::FIELDS, GeometryDescriptor::LENGTH),
        (PowerDescriptor::FIELDS, PowerDescriptor::LENGTH),
        (HealthDescriptor::FIELDS, HealthDescriptor::LENGTH),
        (FboDescriptor::FIELDS, FboDescriptor::LENGTH),
    ];
    for (fields, length) in tables {
        let mut end = 0;
        for field in fields {
            assert!(usize::from(field.offset) >= end, "{}", field.name);
            end = usize::from(field.offset) + usize::from(field.size);
            let expected = match field.name.as_bytes() {
                [b'b', b'c', b'd', ..] => 2,
                [b'b' | b'i', ..] => 1,
                [b'w', ..] if field.name.starts_with("wActiveICC") => 32,
                [b'w', ..] => 2,
                [b'd', ..] => 4,
                [b'q', ..] => 8,
                _ => 32,
            };
            assert_eq!(field.size, expected, "{}", field.name);
        }
        assert!(end <= length);
    }
}

#[test]
fn a_device_descriptor_reads_as_qemu_sends_it() {
    // The non-zero part of what QEMU 10.0 answers.
    let mut bytes = [0; 0x59];
    bytes[0] = 0x59;
    bytes[6] = 1;
    bytes[7] = 4;
    bytes[0x10] = 4;
    bytes[0x1A] = 0x16;
    bytes[0x1B] = 0x1A;
    bytes[0x1F] = 0x30;
    bytes[0x21] = 32;
    bytes[0x51..0x53].copy_from_slice(&[0x21, 0x30]);
    let device = DeviceDescriptor::parse(&bytes).unwrap();
    assert_eq!((device.b_number_lu, device.w_spec_version, device.b_queue_depth), (1, 0x400, 32));
    let features = ExtendedFeatures::from_bits(device.d_extended_ufs_features_support);
    assert!(features.write_booster() && features.hid() && features.too_high_temp());
    assert!(!features.hpb() && !features.advanced_rpmb());
    let layout = ConfigurationLayout::of_device(&device);
    assert_eq!(layout, Some(ConfigurationLayout::UFS_3_1));
    assert_eq!(layout.unwrap().length(), 0xE6);
    assert_eq!(ConfigurationLayout::UFS_3_0.length(), 0x90);
    // A 2.x device has 0x40 bytes: everything beyond them stays zero.
    bytes[0] = 0x40;
    assert_eq!(DeviceDescriptor::parse(&bytes).unwrap().d_extended_ufs_features_support, 0);
    assert_eq!(DeviceDescriptor::parse(&bytes[..8]).unwrap().b_number_wlu, 4);
}

#[test]
fn the_listing_has_the_names_of_the_specification() {
    let unit = UnitDescriptor { q_logical_block_count: 0x1_0000, ..UnitDescriptor::new() };
    let mut bytes = [0; UnitDescriptor::LENGTH];
    assert_eq!(unit.emit(&mut bytes), Ok(0x2D));
    let view = DescriptorView::new(&bytes).unwrap();
    assert!(view.is_complete());
    let (field, value) =
        view.fields(fields_of(view.id(), 0)).find(|(f, _)| f.name == "qLogicalBlockCount").unwrap();
    assert_eq!((field.offset, value), (0x0B, &[0, 0, 0, 0, 0, 1, 0, 0][..]));
    assert_eq!(field.number(&bytes), Some(0x1_0000));
    assert!(fields_of(DescriptorId::Unit, 0xC4).iter().any(|f| f.name == "bRPMBRegionEnable"));
}

#[test]
fn setting_a_field_leaves_the_rest_alone() {
    let layout = ConfigurationLayout::UFS_3_1;
    let mut bytes = [0xEE; 0xE6];
    bytes[..2].copy_from_slice(&[0xE6, 1]);
    let field = ConfigurationUnit::FIELDS.iter().find(|f| f.name == "dNumAllocUnits").unwrap();
    let unit = layout.unit_bytes(&mut bytes, 7).unwrap();
    assert!(field.set(unit, 0x0102_0304));
    assert!(!field.set(unit, 0x1_0000_0000));
    assert!(!field.set(&mut unit[..7], 1));
    assert_eq!(layout.unit_bytes(&mut bytes, 8), None);
    let view = ConfigurationView::new(&bytes, layout).unwrap();
    assert_eq!(view.units().nth(7).unwrap().d_num_alloc_units, 0x0102_0304);
    assert_eq!(bytes.iter().filter(|byte| **byte != 0xEE).count(), 2 + 4);
}

#[test]
fn hostile_layouts_are_refused() {
    let device = |base, length| DeviceDescriptor {
        b_ud0_base_offset: base,
        b_ud_config_p_length: length,
        ..DeviceDescriptor::new()
    };
    for (base, length) in [(0, 0x1A), (0x16, 0), (0x16, 0xFF), (0xFF, 0x10)] {
        assert_eq!(ConfigurationLayout::of_device(&device(base, length)), None);
    }
    let short = [0x90u8; 0x90];
    assert!(ConfigurationView::new(&short, ConfigurationLayout::UFS_3_1).is_err());
    assert_eq!(DescriptorView::new(&[1, 0]), Err(WireError::BadField("bLength")));
    assert_eq!(DescriptorView::new(&[9]), Err(WireError::Truncated { needed: 2, got: 1 }));
}

#[test]
fn strings() {
    let mut bytes = [0; STRING_LENGTH_MAX];
    let length = StringDescriptor::emit("QEMU UFS \u{1F4BE} ", &mut bytes).unwrap();
    assert_eq!(&bytes[..4], &[length as u8, 5, 0, b'Q']);
    let text = StringDescriptor::parse(&bytes[..length]).unwrap();
    assert_eq!(text.to_string(), "QEMU UFS \u{1F4BE}");
    assert_eq!(StringDescriptor::emit(&"x".repeat(127), &mut bytes), None);
    assert_eq!(StringDescriptor::emit("x", &mut bytes[..3]), None);
    let lone_surrogate = [6, 5, 0xD8, 0, 0, 7];
    assert_eq!(StringDescriptor::parse(&lone_surrogate).unwrap().to_string(), "\u{FFFD}?");
}

#[test]
fn health_power_and_fbo() {
    let level = IccLevel::new().with_unit(CurrentUnit::Milliampere).with_value(250);
    assert_eq!((level.into_bits(), level.nanoampere()), (0x80FA, 250_000_000));
    let mut power = PowerDescriptor::new();
    power.w_active_icc_levels_vccq[15] = level.into_bits();
    let mut bytes = [0; LENGTH_MAX];
    assert_eq!(power.emit(&mut bytes), Ok(0x62));
    assert_eq!(bytes[0x40..0x42], [0x80, 0xFA]);
    let fbo = FboDescriptor { b_length: 0x12, w_fbo_version: 0x100, ..FboDescriptor::default() };
    let mut bytes = [0; FboDescriptor::LENGTH];
    fbo.emit(&mut bytes);
    assert_eq!(bytes[..3], [0x12, 1, 0]);
    assert_eq!(FboDescriptor::parse(&bytes), Ok(fbo));
}

macro_rules! settles {
    ($bytes:expr, $($descriptor:ty),*) => {$(
        if let Ok(value) = <$descriptor>::parse($bytes) {
            let mut out = [0xA5; LENGTH_MAX];
            let length = value.emit(&mut out).unwrap();
            // What was not read of bLength bytes is zero in the value and in what it emits.
            prop_assert_eq!(<$descriptor>::parse(&out[..length]), Ok(value));
        }
    )*};
}

proptest! {
    #[test]
    fn any_descriptor_settles_after_one_pass(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        id in 0u8..12,
    ) {
        if let Some(byte) = bytes.get_mut(1) {
            *byte = id;
        }
        settles!(
            &bytes, DeviceDescriptor, UnitDescriptor, RpmbUnitDescriptor, ConfigurationHeader,
            InterconnectDescriptor, GeometryDescriptor, PowerDescriptor, HealthDescriptor
        );
        let _ = FboDescriptor::parse(&bytes).map(|fbo| {
            let mut out = [0; FboDescriptor::LENGTH];
            fbo.emit(&mut out);
        });
        if let Ok(text) = StringDescriptor::parse(&bytes) {
            let _ = text.to_string();
        }
        if let Ok(view) = DescriptorView::new(&bytes) {
            for index in [0, 0xC4] {
                let fields = view.fields(fields_of(view.id(), index));
                prop_assert!(fields.count() <= fields_of(view.id(), index).len());
            }
        }
    }

    #[test]
    fn configuration_round_trips(
        bytes in proptest::collection::vec(any::<u8>(), 0xE6),
        current: bool,
    ) {
        let layout =
            if current { ConfigurationLayout::UFS_3_1 } else { ConfigurationLayout::UFS_3_0 };
        let mut bytes = bytes;
        bytes[0] = layout.length() as u8;
        bytes[1] = 1;
        let view = ConfigurationView::new(&bytes, layout).unwrap();
        let mut units = [ConfigurationUnit::default(); UNITS_PER_CONFIGURATION];
        for (slot, unit) in units.iter_mut().zip(view.units()) {
            *slot = unit;
        }
        let mut out = [0xA5; 0xE6];
        let length = layout.emit(&view.header(), &units, &mut out).unwrap();
        let again = ConfigurationView::new(&out[..length], layout).unwrap();
        prop_assert_eq!(again.header(), view.header());
        prop_assert!(again.units().eq(view.units()));
    }

    #[test]
    fn strings_round_trip(text in "\\PC{0,60}") {
        let mut bytes = [0; STRING_LENGTH_MAX];
        if let Some(length) = StringDescriptor::emit(&text, &mut bytes) {
            let parsed = StringDescriptor::parse(&bytes[..length]).unwrap();
            prop_assert!(parsed.chars().eq(text.chars()));
        }
    }
}
