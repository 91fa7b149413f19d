//! What eMMC devices and SD cards report about themselves: CID, CSD, EXT_CSD, SCR and switch
//! status. Parsed values survive being emitted, and no number computed from them overflows.
#![no_main]

use flysch_wire::mmc::sd::{SWITCH_STATUS, Scr, access_mode_of, access_modes};
use flysch_wire::mmc::{CardStatus, Cid, Csd, ExtCsd};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(register) = bytes.first_chunk::<16>() {
        registers(u128::from_be_bytes(*register));
    }
    if let Some(bytes) = bytes.first_chunk::<{ Scr::LENGTH }>() {
        let scr = Scr::parse(bytes);
        assert_eq!(Scr::parse(&scr.emit()), scr);
    }
    if let Some(status) = bytes.first_chunk::<SWITCH_STATUS>() {
        let _ = access_modes(status);
        assert!(access_mode_of(status) <= 0xF);
    }
    if let Some(status) = bytes.first_chunk::<4>() {
        let status = CardStatus::from_bits(u32::from_le_bytes(*status));
        assert_eq!(status.errors().into_bits() & !status.into_bits(), 0);
        let _ = status.is_ready();
    }
    if let Some(bytes) = bytes.first_chunk::<512>() {
        ext_csd(&ExtCsd(*bytes));
    }
});

fn registers(register: u128) {
    let cid = Cid::parse(register);
    assert_eq!(Cid::parse(cid.emit()), cid);
    let cid = Cid::parse_sd(register);
    assert_eq!(Cid::parse_sd(cid.emit_sd()), cid);
    let csd = Csd::parse(register);
    assert_eq!(Csd::parse(csd.emit()), csd);
    let _ = csd.sectors();
    let csd = Csd::parse_sd(register);
    assert_eq!(Csd::parse_sd(csd.emit_sd()), csd);
    let _ = csd.sectors();
}

fn ext_csd(data: &ExtCsd) {
    let sizes = [data.sectors(), data.boot_sectors(), data.rpmb_sectors()];
    let partitions = (0..=7).map(|access| data.partition_sectors(access));
    let general = (0..4).map(|n| data.gp_sectors(n));
    let _ = sizes.into_iter().chain(partitions).chain(general).fold(0, u64::wrapping_add);
    let _ = (data.enhanced_max_sectors(), data.cache_kib(), data.hpi());
    assert!([512, 4096].contains(&data.data_sector_bytes()));
    assert!(data.queue_depth() <= 32);
    let _ = (data.erase_group_sectors(), data.write_protect_group_sectors());
    let times = [data.switch_ms(), data.partition_switch_ms(), data.power_off_long_ms()];
    let _ = (times, data.erase_ms(), data.trim_ms(), data.sleep_awake_ns());
    let _ = (data.has_trim(), data.has_discard(), data.has_sanitize());
    let _ = data.has_enhanced_reliable_write();
}
