//! Work for several threads: the last put in is taken first.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

struct State<T> {
    jobs: Vec<T>,
    /// Jobs taken and not yet done; each may still put in more.
    running: usize,
}

/// A stack of work.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { jobs: vec![], running: 0 }), changed: Condvar::new() }
    }
}

impl<T> Queue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: T) {
        self.state().jobs.push(job);
        self.changed.notify_one();
    }

    /// The next job; waits while others may still put in some. `None` when all work is done.
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop() {
                state.running += 1;
                return Some(job);
            }
            if state.running == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A job that was taken is done.
    pub(super) fn done(&self) {
        let mut state = self.state();
        state.running -= 1;
        if state.running == 0 && state.jobs.is_empty() {
            self.changed.notify_all();
        }
    }
}
