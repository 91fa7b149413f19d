//! Work for several threads, each with its own stack.
//!
//! A thread continues with the work that it added last, and so stays in one directory: two threads
//! that create files in the same one wait for each other in the kernel. A thread with nothing left
//! takes the oldest work of another.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

struct State<T> {
    stacks: Vec<VecDeque<T>>,
    /// Jobs taken and not yet done; each may still add more.
    running: usize,
}

impl<T> State<T> {
    fn pop(&mut self, worker: usize) -> Option<T> {
        if let Some(job) = self.stacks[worker].pop_back() {
            return Some(job);
        }
        let longest = self.stacks.iter_mut().max_by_key(|stack| stack.len())?;
        longest.pop_front()
    }
}

/// Stacks of work.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Queue<T> {
    /// Empty stacks of `workers` threads.
    pub(super) fn new(workers: usize) -> Self {
        let stacks = (0..workers).map(|_| VecDeque::new()).collect();
        Self { state: Mutex::new(State { stacks, running: 0 }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work on a worker's stack; the last one is done first.
    pub(super) fn push(&self, worker: usize, jobs: impl IntoIterator<Item = T>) {
        self.state().stacks[worker].extend(jobs);
        self.changed.notify_all();
    }

    /// The next job; waits while others may still add some. `None` when all work is done.
    pub(super) fn take(&self, worker: usize) -> Option<T> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.pop(worker) {
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
        if state.running == 0 && state.stacks.iter().all(VecDeque::is_empty) {
            self.changed.notify_all();
        }
    }
}
