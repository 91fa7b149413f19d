//! Descriptors of any kind and the layouts they announce.
#![no_main]

use flysch_wire::ufs::descriptor::{
    ConfigurationHeader, ConfigurationLayout, ConfigurationUnit, ConfigurationView, DescriptorView,
    DeviceDescriptor, FboDescriptor, GeometryDescriptor, HealthDescriptor, InterconnectDescriptor,
    LENGTH_MAX, PowerDescriptor, RpmbUnitDescriptor, StringDescriptor, UNITS_PER_CONFIGURATION,
    UnitDescriptor, fields_of,
};
use libfuzzer_sys::fuzz_target;
use std::fmt::Write;

macro_rules! settles {
    ($bytes:expr, $($descriptor:ty),*) => {$(
        if let Ok(value) = <$descriptor>::parse($bytes) {
            let mut out = [0xA5; LENGTH_MAX];
            let length = value.emit(&mut out).expect("the longest there is");
            assert_eq!(<$descriptor>::parse(&out[..length]), Ok(value));
        }
    )*};
}

fuzz_target!(|bytes: &[u8]| {
    settles!(
        bytes,
        DeviceDescriptor,
        UnitDescriptor,
        RpmbUnitDescriptor,
        ConfigurationHeader,
        InterconnectDescriptor,
        GeometryDescriptor,
        PowerDescriptor,
        HealthDescriptor
    );
    if let Ok(fbo) = FboDescriptor::parse(bytes) {
        let mut out = [0; FboDescriptor::LENGTH];
        fbo.emit(&mut out);
    }
    if let Ok(text) = StringDescriptor::parse(bytes) {
        let mut shown = String::new();
        write!(shown, "{text}").expect("a string takes everything");
        assert!(!shown.chars().any(char::is_control));
    }
    let Ok(view) = DescriptorView::new(bytes) else { return };
    for index in [0, 0xC4] {
        let mut copy = view.as_bytes().to_vec();
        for (field, value) in view.fields(fields_of(view.id(), index)) {
            assert_eq!(field.bytes(bytes), Some(value));
            if let Some(number) = field.number(bytes) {
                assert!(field.set(&mut copy, number));
            }
        }
        assert_eq!(copy, view.as_bytes());
    }
    configuration(bytes);
});

/// The first bytes select the device that announces the layout.
fn configuration(bytes: &[u8]) {
    let &[base, length, ref descriptor @ ..] = bytes else { return };
    let device = DeviceDescriptor {
        b_ud0_base_offset: base,
        b_ud_config_p_length: length,
        ..DeviceDescriptor::new()
    };
    let Some(layout) = ConfigurationLayout::of_device(&device) else { return };
    let Ok(view) = ConfigurationView::new(descriptor, layout) else { return };
    let mut units = [ConfigurationUnit::default(); UNITS_PER_CONFIGURATION];
    for (slot, unit) in units.iter_mut().zip(view.units()) {
        *slot = unit;
    }
    let mut out = [0; LENGTH_MAX];
    let length = layout.emit(&view.header(), &units, &mut out).expect("checked layout");
    let again = ConfigurationView::new(&out[..length], layout).expect("just written");
    assert!(again.units().eq(view.units()));
}
