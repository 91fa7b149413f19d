//! What switches, resets and power-on make of EXT_CSD.

use super::*;

#[test]
fn a_reset_undoes_what_is_volatile_and_keeps_settings_and_firmware() {
    let config = Config { size: 64 << 20, ..Config::default() };
    let mut csd = ExtendedCsd::new(power_on(&config));
    let set = |csd: &mut ExtendedCsd, index, value| {
        csd.switch(SwitchArgument::write(index, value), false)
    };
    assert_eq!(set(&mut csd, at::BUS_WIDTH, bus_width::EIGHT), Some(Switched::Bus));
    assert_eq!(set(&mut csd, at::CACHE_CTRL, 1), Some(Switched::Value));
    assert_eq!(set(&mut csd, at::CACHE_CTRL, 0), Some(Switched::CacheOff));
    assert_eq!(set(&mut csd, at::REVISION, 7), None, "read only");
    assert_eq!(set(&mut csd, at::GP_SIZE, 1), Some(Switched::Value));
    csd.firmware_came(8);
    csd.take_firmware();
    let layout = csd.complete(config.size, 9).expect("8 of 64 MiB");
    assert_eq!((layout.user, layout.general), (56 << 20, [8 << 20, 0, 0, 0]));
    assert_eq!(set(&mut csd, at::GP_SIZE, 2), None, "once");
    csd.set_user(layout.user);
    assert_eq!((csd.lines(), csd.now.byte(at::GP_SIZE)), ((8, false), 1));
    csd.reset();
    assert_eq!((csd.lines(), csd.now.byte(at::GP_SIZE)), ((1, false), 1));
    let version = usize::from(at::FIRMWARE_VERSION);
    assert_eq!(&csd.bytes()[version..version + 8], b"FLYSCH02");
    assert_eq!(csd.bytes()[usize::from(at::SEC_COUNT) + 2], (56 << 11 >> 16) as u8);
}
