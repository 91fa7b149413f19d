//! What an NVMe controller sends: identify data, log pages, completions, features.
#![no_main]

use flysch_wire::nvme::identify::{descriptors, ids};
use flysch_wire::nvme::log::{ErrorEntry, FirmwareSlots, SanitizeStatus, Smart};
use flysch_wire::nvme::{Cqe, IdentifyController, IdentifyNamespace, Sqe, Status};
use libfuzzer_sys::fuzz_target;

/// A value that is parsed, written and parsed again is the same, and can be listed.
macro_rules! round_trip {
    ($bytes:ident, $($structure:ident),*) => {
        $(if let Ok(value) = $structure::parse($bytes) {
            assert_eq!($structure::parse(&value.to_bytes()).as_ref(), Ok(&value));
            assert!(value.fields().count() > 0);
        })*
    };
}

fuzz_target!(|bytes: &[u8]| {
    round_trip!(
        bytes,
        IdentifyController,
        IdentifyNamespace,
        Smart,
        ErrorEntry,
        FirmwareSlots,
        SanitizeStatus
    );
    if let Ok(controller) = IdentifyController::parse(bytes) {
        for number in 0..controller.power_states() {
            let state = controller.power_state(number);
            assert!(state.max_microwatts <= 655_350_000);
            assert_eq!(controller.power_state_bytes(number).len(), 32);
        }
        let _ = (controller.transfer_max(4096), controller.has_sgls());
    }
    if let Ok(space) = IdentifyNamespace::parse(bytes) {
        assert!(space.block_size().is_none_or(|size| (512..=65536).contains(&size)));
    }
    assert!(ids(bytes).count() <= bytes.len() / 4);
    let named: usize = descriptors(bytes).map(|descriptor| descriptor.id.len() + 4).sum();
    assert!(named <= bytes.len());
    if let Some(words) = bytes.first_chunk::<16>() {
        let words = [0, 8].map(|at| u64::from_le_bytes(*words[at..].first_chunk().expect("8")));
        let entry = Cqe::from_words(words);
        assert_eq!(entry.to_words(), words);
        let _ = Status::of_field(entry.status).to_string();
    }
    if let Some(bytes) = bytes.first_chunk::<64>() {
        let (words, _) = bytes.as_chunks::<8>();
        let words = core::array::from_fn(|at| u64::from_le_bytes(words[at]));
        let entry = Sqe::from_words(words);
        assert_eq!(Sqe::from_words(entry.to_words()), entry);
    }
});
