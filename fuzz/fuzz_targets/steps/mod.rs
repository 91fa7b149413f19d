//! Common parts of the targets that drive a model.

use flysch_api::machine::Instant;
use flysch_models::machine::Model;

/// Lets `nanos` pass for a model, during which at most `events_max` events may occur.
pub fn rest(model: &mut impl Model, now: &mut Instant, nanos: u64, events_max: u32) {
    let until = now.after_nanos(nanos);
    for _ in 0..events_max {
        match model.next_event().filter(|&at| at <= until) {
            Some(at) => *now = (*now).max(at),
            None => {
                *now = until;
                model.advance(until);
                return;
            }
        }
        model.advance(*now);
    }
    panic!("it never comes to rest");
}

/// The next `N` bytes, padded with zeros.
pub fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let mut taken = [0; N];
    let count = N.min(bytes.len());
    taken[..count].copy_from_slice(&bytes[..count]);
    *bytes = &bytes[count..];
    taken
}
