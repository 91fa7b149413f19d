//! A queue between two threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A lock that is never poisoned.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue that one thread fills and on which another one waits.
#[derive(Debug)]
pub(super) struct Channel<T> {
    queue: Mutex<VecDeque<T>>,
    filled: Condvar,
    handed: AtomicU64,
}

impl<T> Channel<T> {
    pub(super) fn new() -> Arc<Self> {
        let (queue, filled) = (Mutex::new(VecDeque::new()), Condvar::new());
        Arc::new(Self { queue, filled, handed: AtomicU64::new(0) })
    }

    pub(super) fn put(&self, one: T) {
        lock(&self.queue).push_back(one);
        self.handed.fetch_add(1, Ordering::Relaxed);
        self.filled.notify_one();
    }

    /// How often something was passed on.
    pub(super) fn handed(&self) -> u64 {
        self.handed.load(Ordering::Acquire)
    }

    /// Waits for an item, or the end.
    pub(super) fn take(&self, is_over: &AtomicBool) -> VecDeque<T> {
        let mut queue = lock(&self.queue);
        while queue.is_empty() && !is_over.load(Ordering::Acquire) {
            let wait = self.filled.wait_timeout(queue, Duration::from_millis(50));
            queue = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        core::mem::take(&mut *queue)
    }
}
