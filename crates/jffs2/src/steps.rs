//! Counts steps of work, for tests that no input makes some work more than linear.

use core::cell::Cell;

std::thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// One more step.
pub(crate) fn count() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Steps on this thread since the last call.
pub(crate) fn take() -> u64 {
    STEPS.with(|steps| steps.replace(0))
}
