//! A lock that every request takes, and the thread that now and then keeps it.

use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{gettid, set_current_timer_slack};
use rustix::time::Timespec;
use taillab_model::explanation::Culprit;
use taillab_model::{Monotonic, Nanos, Tid};

use super::super::responder::Stop;
use super::account::ThreadAccount;
use super::record::Recorder;
use crate::clock;

/// The name of the thread, as the kernel knows it.
const HOLDER: &str = "lock-holder";

/// The lock: a futex, taken without a system call while it is free.
pub(super) struct ServerLock {
    every: Nanos,
    held: Nanos,
    lock: Mutex<()>,
}

impl ServerLock {
    pub(super) fn new(every: Nanos, held: Nanos) -> Self {
        Self {
            every,
            held,
            lock: Mutex::new(()),
        }
    }

    /// Takes the lock and gives it back; sleeps, and says so, while somebody has it.
    #[inline]
    pub(super) fn pass(&self, recorder: &Recorder, account: &ThreadAccount) {
        if matches!(self.lock.try_lock(), Err(TryLockError::WouldBlock)) {
            recorder.asleep_in(account, || {
                drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            });
        }
    }
}

/// The thread that keeps the lock. It sleeps with the lock in its hands, as a thread that
/// waits for a disk would, and so takes no CPU from the workers.
pub(super) struct Holder {
    tid: Arc<AtomicI32>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    pub(super) fn start(lock: &Arc<ServerLock>, stop: &Arc<Stop>) -> io::Result<Self> {
        let tid = Arc::new(AtomicI32::new(0));
        let (lock, stop, own) = (Arc::clone(lock), Arc::clone(stop), Arc::clone(&tid));
        let thread = Builder::new().name(HOLDER.to_owned()).spawn(move || {
            own.store(gettid().as_raw_nonzero().get(), Relaxed);
            // where it cannot be set the lock is kept for up to 50 µs more
            let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
            let mut next = clock::now() + lock.every;
            while !ended_before(next, &stop) {
                let guard = lock.lock.lock().unwrap_or_else(PoisonError::into_inner);
                ended_before(clock::now() + lock.held, &stop);
                drop(guard);
                next = (next + lock.every).max(clock::now());
            }
        })?;
        Ok(Self {
            tid,
            thread: Some(thread),
        })
    }

    /// Who it is; `None` before it has begun.
    pub(super) fn culprit(&self) -> Option<Culprit> {
        let tid = self.tid.load(Relaxed);
        (tid > 0).then(|| Culprit::Thread {
            name: HOLDER.to_owned(),
            pid: None,
            tid: Some(tid as Tid),
        })
    }

    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // a thread that panicked has said so on stderr
            let _ = thread.join();
        }
    }
}

/// Sleeps until `time`, or until the server is to stop: then it says so.
fn ended_before(time: Monotonic, stop: &Stop) -> bool {
    while !stop.is_set() {
        let left = time.saturating_since(clock::now());
        if left == Nanos::ZERO {
            return false;
        }
        let left = Timespec {
            tv_sec: (left.get() / 1_000_000_000) as i64,
            tv_nsec: (left.get() % 1_000_000_000) as i64,
        };
        // interrupted by a signal: looked at again
        let _ = poll(&mut [PollFd::new(stop.event(), PollFlags::IN)], Some(&left));
    }
    true
}
