use super::*;
use std::format;

#[test]
fn arguments_are_packed_as_the_registers_want_them() {
    let arg = UicArgument1::new()
        .with_mib_attribute(UicAttribute::PaPwrmode)
        .with_gen_selector_index(selector_rx_lane(1));
    assert_eq!(arg.into_bits(), 0x1571_0005);
    let mode = PaPowerMode::new().with_tx(LinkMode::Fast).with_rx(LinkMode::SlowAuto);
    assert_eq!(mode.into_bits(), 0x51);
    let result = UicArgument2::from_bits(0x0001_0008);
    assert_eq!(result.result(), UicResult::PeerCommunicationFailure);
    assert_eq!(result.attr_set_type(), 1);
}

#[test]
fn rates_are_those_of_the_published_table() {
    let rates = [145_920_000, 291_840_000, 583_680_000, 1_167_360_000, 2_334_720_000];
    for (gear, rate) in (1..).zip(rates) {
        assert_eq!(hs_lane_bytes_s(gear, HsSeries::B), Some(rate));
    }
    assert_eq!(hs_lane_bytes_s(6, HsSeries::B), None);
    assert_eq!(hs_lane_bytes_s(0, HsSeries::A), None);
}

#[test]
fn every_number_survives() {
    for bits in 0..=u16::MAX {
        assert_eq!(UicAttribute::from_bits(bits).into_bits(), bits);
    }
    for bits in 0..=u8::MAX {
        assert_eq!(UicOpcode::from_bits(bits).into_bits(), bits);
        assert_eq!(UicResult::from_bits(bits).into_bits(), bits);
    }
    assert_eq!(format!("{}", UicOpcode::DmeLinkstartup), "DME_LINKSTARTUP");
    assert_eq!(format!("{}", UicResult::from_bits(0x77)), "unknown (0x77)");
}
