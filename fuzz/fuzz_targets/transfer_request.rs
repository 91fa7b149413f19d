//! Structures in host memory between driver and controller, and register values.
#![no_main]

use flysch_wire::ufs::cqe::{self, Cqe};
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::registers::{
    Ahit, Cap, Interrupts, McqCap, McqConfig, Ver, ring_entries, ring_size_field,
};
use flysch_wire::ufs::uic::{UicArgument1, UicArgument2};
use flysch_wire::ufs::utmrd::{self, Utmrd};
use flysch_wire::ufs::utrd::{self, Utrd};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(bytes) = bytes.first_chunk::<{ utrd::LENGTH }>() {
        let value = Utrd::parse(bytes);
        let mut out = [0xA5; utrd::LENGTH];
        value.emit(&mut out);
        assert_eq!(&out, bytes);
        let words = value.to_words().map(u64::to_ne_bytes);
        assert_eq!(words.as_flattened(), bytes);
        let _ = (value.response.offset_bytes(), value.response.response_bytes());
    }
    if let Some(bytes) = bytes.first_chunk::<{ cqe::LENGTH }>() {
        let value = Cqe::parse(bytes);
        let mut out = [0xA5; cqe::LENGTH];
        value.emit(&mut out);
        assert_eq!(Cqe::parse(&out), value);
        assert_eq!(value.ucd.base() % utrd::UCD_ALIGNMENT, 0);
    }
    if let Some(bytes) = bytes.first_chunk::<{ prdt::LENGTH }>() {
        let entry = PrdtEntry::parse(bytes);
        assert!((1..=prdt::ENTRY_MAX).contains(&entry.length));
        let mut out = [0xA5; prdt::LENGTH];
        entry.emit(&mut out);
        assert_eq!(PrdtEntry::parse(&out), entry);
        let total: u64 =
            prdt::entries(entry.address, entry.length).map(|e| u64::from(e.length)).sum();
        assert_eq!(total, u64::from(entry.length));
    }
    if let Some(bytes) = bytes.first_chunk::<{ utmrd::LENGTH }>() {
        let value = Utmrd::parse(bytes);
        let mut out = [0xA5; utmrd::LENGTH];
        value.emit(&mut out);
        assert_eq!(Utmrd::parse(&out), value);
    }
    if let Some(bytes) = bytes.first_chunk::<4>() {
        registers(u32::from_le_bytes(*bytes));
    }
});

fn registers(value: u32) {
    let cap = Cap::from_bits(value);
    assert!((1..=32).contains(&cap.transfer_slots()) && (1..=8).contains(&cap.task_slots()));
    assert!((1..=256).contains(&cap.active_commands_max()));
    let mcq = McqCap::from_bits(value);
    for queue in [0, mcq.maxq()] {
        assert!(mcq.queue_offset(queue) >= mcq.bank_offset());
    }
    let idle_us = Ahit::from_bits(value).idle_us();
    assert!(idle_us <= Ahit::IDLE_MAX_US);
    assert!(Ahit::from_idle_us(idle_us).idle_us() <= idle_us);
    let _ = Ver::from_bits(value).number();
    assert_eq!(
        Interrupts::from_bits(value).names().count() as u32,
        (value & 0x0037_1FFF).count_ones()
    );
    assert!((1..=512).contains(&McqConfig::from_bits(value).active_commands()));
    if let Some(field) = ring_size_field(value) {
        assert_eq!(ring_entries(field), value);
    }
    assert_eq!(UicArgument1::from_bits(value).into_bits(), value);
    let argument = UicArgument2::from_bits(value);
    assert_eq!(argument.with_result(argument.result()).into_bits(), value);
}
