//! A common start for threads whose preparations take different times.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use taillab_model::{Monotonic, Nanos};

use crate::clock::now;

/// From when the last thread is ready until the start: long enough for all to wake up.
const LEAD: Nanos = Nanos::from_millis(2);

/// Where threads wait for each other. Nobody waits for a thread that has given up.
#[derive(Debug)]
pub(super) struct StartLine {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Threads that have neither come nor given up.
    missing: usize,
    /// When the run begins, where that was fixed before.
    fixed: Option<Monotonic>,
    start: Option<Monotonic>,
}

impl StartLine {
    /// For this many threads, which begin at `fixed`, or else as soon as all are ready.
    pub(super) fn new(threads: usize, fixed: Option<Monotonic>) -> Self {
        Self {
            state: Mutex::new(State {
                missing: threads,
                fixed,
                start: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// One of the threads; drop it to give up.
    pub(super) fn runner(&self) -> Runner<'_> {
        Runner {
            line: self,
            came: std::cell::Cell::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn one_less(&self) {
        let mut state = self.state();
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 && state.start.is_none() {
            state.start = state.fixed.or_else(|| Some(now() + LEAD));
            self.changed.notify_all();
        }
    }
}

/// A thread on its way to the start.
#[derive(Debug)]
pub(super) struct Runner<'a> {
    line: &'a StartLine,
    came: std::cell::Cell<bool>,
}

impl Runner<'_> {
    /// Waits until all others are ready too; returns when the run begins.
    pub(super) fn start(&self) -> Monotonic {
        if !self.came.replace(true) {
            self.line.one_less();
        }
        let mut state = self.line.state();
        loop {
            if let Some(start) = state.start {
                return start;
            }
            let waited = self.line.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        if !self.came.get() {
            self.line.one_less();
        }
    }
}
