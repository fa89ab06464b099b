//! A lock that every request takes, and the thread that holds it from time to time.

use std::env::temp_dir;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::{gettid, set_current_timer_slack};
use rustix::time::Timespec;
use taillab_model::explanation::Culprit;
use taillab_model::{Monotonic, Nanos, Tid};

use super::account::ThreadAccount;
use super::disk::{DiskFile, READ};
use super::record::Recorder;
use super::spec::HolderActivity;
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

    /// Takes the lock and releases it. Records how long it slept while another thread had the lock.
    #[inline]
    pub(super) fn pass(&self, recorder: &Recorder, account: &ThreadAccount) {
        if matches!(self.lock.try_lock(), Err(TryLockError::WouldBlock)) {
            recorder.asleep_in(account, || {
                drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            });
        }
    }
}

/// What the holder does until its time is over.
enum Occupation {
    /// It takes no CPU time from the workers.
    Sleep,
    Read(DiskFile),
    Burn,
}

impl Occupation {
    fn of(does: HolderActivity) -> io::Result<Self> {
        Ok(match does {
            HolderActivity::Sleep => Self::Sleep,
            HolderActivity::Read => Self::Read(DiskFile::direct_in(&temp_dir(), 1)?),
            HolderActivity::Burn => Self::Burn,
        })
    }

    /// Goes on until `time`, or until `end` is readable where it sleeps.
    fn until(&self, time: Monotonic, end: &OwnedFd) {
        match self {
            Self::Sleep => {
                ended_before(time, end);
            }
            Self::Read(file) => {
                while clock::now() < time {
                    file.read_next();
                }
            }
            Self::Burn => while clock::now() < time {},
        }
    }
}

/// The thread that holds the lock. Dropping it ends it.
pub(super) struct Holder {
    does: HolderActivity,
    tid: Arc<AtomicI32>,
    /// An eventfd that is readable once the thread must end.
    end: Arc<OwnedFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Holder {
    pub(super) fn start(lock: &Arc<ServerLock>, does: HolderActivity) -> io::Result<Self> {
        let occupation = Occupation::of(does)?;
        let tid = Arc::new(AtomicI32::new(0));
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (lock, ended, own) = (Arc::clone(lock), Arc::clone(&end), Arc::clone(&tid));
        let thread = Builder::new().name(HOLDER.to_owned()).spawn(move || {
            own.store(gettid().as_raw_nonzero().get(), Relaxed);
            // if this fails, the lock is held for up to 50 µs longer
            let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
            let mut next = clock::now() + lock.every;
            while !ended_before(next, &ended) {
                let guard = lock.lock.lock().unwrap_or_else(PoisonError::into_inner);
                occupation.until(clock::now() + lock.held, &ended);
                drop(guard);
                next = (next + lock.every).max(clock::now());
            }
        })?;
        Ok(Self {
            does,
            tid,
            end,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The thread as a culprit, or what it waited for; `None` before it has started.
    pub(super) fn culprit(&self) -> Option<Culprit> {
        let tid = Some(self.tid.load(Relaxed) as Tid).filter(|tid| *tid > 0)?;
        let (name, pid, tid) = (HOLDER.to_owned(), None, Some(tid));
        Some(match self.does {
            HolderActivity::Sleep | HolderActivity::Burn => Culprit::Thread {
                name,
                pid,
                tid,
                process: None,
            },
            HolderActivity::Read => Culprit::Chain {
                name,
                pid,
                tid,
                end: Some(READ.to_owned()),
            },
        })
    }

    /// Tells the thread to release the lock and waits until it has ended.
    pub(super) fn end(&self) {
        // adding one to zero cannot fail
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // a thread that panicked has said so on stderr
            let _ = thread.join();
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sleeps until `time` or until `end` is readable, and returns whether `end` was.
fn ended_before(time: Monotonic, end: &OwnedFd) -> bool {
    loop {
        let left = time.saturating_since(clock::now());
        let wait = Timespec {
            tv_sec: (left.get() / 1_000_000_000) as i64,
            tv_nsec: (left.get() % 1_000_000_000) as i64,
        };
        match poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&wait)) {
            Ok(0) if left == Nanos::ZERO => return false,
            // woken a little early, or interrupted by a signal: check again
            Ok(0) | Err(_) => {}
            Ok(_) => return true,
        }
    }
}
