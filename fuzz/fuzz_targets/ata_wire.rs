//! What a SATA device sends: identify data, FISes, log pages, SMART pages; and what a host writes
//! into its list.
#![no_main]

use flysch_wire::ata::fis::PioSetup;
use flysch_wire::ata::log::{NcqError, STATISTICS};
use flysch_wire::ata::smart::{SELF_TESTS_MAX, SmartData, self_test_page, self_tests, thresholds};
use flysch_wire::ata::{D2h, H2d, Header, Identify, Prd, dsm, log};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(data) = Identify::parse(bytes) {
        let again = Identify::parse(&data.to_bytes()).expect("what was written");
        assert_eq!(Identify::parse(&again.to_bytes()).as_ref(), Ok(&again));
        assert_eq!((again.sectors(), again.sector_bytes()), (data.sectors(), data.sector_bytes()));
        assert!(data.sector_bytes() == 0 || data.sector_bytes().is_power_of_two());
        assert!((1..=32).contains(&data.queue_depth));
    }
    if let Ok(fis) = H2d::parse(bytes) {
        let words: Vec<u8> = fis.to_words().iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(H2d::parse(&words), Ok(fis));
    }
    if let Ok(fis) = D2h::parse(bytes) {
        assert_eq!(D2h::parse(&fis.to_bytes()), Ok(fis));
        let _ = fis.signature();
    }
    if let Ok(fis) = PioSetup::parse(bytes) {
        assert_eq!(PioSetup::parse(&fis.to_bytes()), Ok(fis));
    }
    if let Ok(entry) = NcqError::parse(bytes) {
        assert_eq!(NcqError::parse(&entry.to_bytes()), Ok(entry));
    }
    if let Ok(data) = SmartData::parse(bytes) {
        assert_eq!(SmartData::parse(&data.to_bytes()), Ok(data));
    }
    assert!(thresholds(bytes).count() <= 30);
    if let Ok(tests) = self_tests(bytes) {
        let tests: Vec<_> = tests.collect();
        assert!(tests.len() <= SELF_TESTS_MAX);
        let page = self_test_page(&tests);
        let again: Vec<_> = self_tests(&page).expect("what was written").collect();
        assert_eq!(again, tests);
    }
    for statistic in &STATISTICS {
        let value = statistic.of(bytes).unwrap_or(0);
        assert!(value >> (8 * u32::from(statistic.bytes)).min(63) <= 1);
    }
    assert!(dsm::ranges(bytes).count() <= bytes.len() / dsm::RANGE);
    let _ = (log::sends_trim(bytes), log::DevSleepTiming::parse(bytes));
    if let Some(bytes) = bytes.first_chunk::<16>() {
        let words = [0, 8].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("8")));
        let header = Header::from_words(words);
        assert_eq!(Header::from_words(header.to_words()), header);
        let prd = Prd::from_words(words);
        assert_eq!(Prd::from_words(prd.to_words()), prd);
    }
});
