//! A thread that disturbs by a schedule until it is told to stop.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use taillab_load::ground_truth::GroundTruth;

use rustix::thread::{clock_nanosleep_absolute, gettid, set_current_timer_slack};
use rustix::time::{ClockId, Timespec};
use taillab_model::explanation::Culprit;
use taillab_model::{Monotonic, Nanos, Tid};

use super::{InjectionError, Schedule, system};
use taillab_host::clock::now;
use taillab_host::cpus::{self, CpuSet};

/// The longest sleep before a disturber checks whether to stop.
const LOOK: Nanos = Nanos::from_millis(50);

/// A thread that disturbs; dropping it stops it.
#[derive(Debug)]
pub struct Disturber {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<GroundTruth>>,
}

impl Disturber {
    /// Starts a thread called `name` on `cpu`. It runs `prepare`, whose failure is returned here, and then
    /// `work` until it is told to stop.
    pub(super) fn start<T>(
        name: &str,
        cpu: u32,
        prepare: impl FnOnce() -> Result<T, InjectionError> + Send + 'static,
        work: impl FnOnce(T, &Running) -> GroundTruth + Send + 'static,
    ) -> Result<Self, InjectionError> {
        let stop = Arc::new(AtomicBool::new(false));
        let running = Running {
            stop: Arc::clone(&stop),
        };
        let (tell, told) = channel();
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let ready = cpus::pin_current_thread(&CpuSet::single(cpu))
                    .map_err(InjectionError::from)
                    .and_then(|()| prepare());
                // without it disturbances begin up to 50 µs late
                let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
                match ready {
                    Ok(made) => {
                        // the caller is waiting, so this cannot fail
                        let _ = tell.send(Ok(()));
                        work(made, &running)
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                        GroundTruth::default()
                    }
                }
            })
            .map_err(system(
                "start a thread",
                "raise the limit on processes (ulimit -u)",
            ))?;
        let started = Self {
            stop,
            thread: Some(thread),
        };
        match told.recv() {
            Ok(ready) => ready.map(|()| started),
            Err(_) => Err(system("start a thread", "see the message above")(
                io::ErrorKind::BrokenPipe.into(),
            )),
        }
    }

    /// Ends it, after the current disturbance at the latest, and returns what it did.
    pub fn stop(mut self) -> GroundTruth {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<GroundTruth> {
        self.stop.store(true, Ordering::Relaxed);
        // a thread that panicked has said so on stderr
        self.thread.take()?.join().ok()
    }
}

impl Drop for Disturber {
    fn drop(&mut self) {
        self.end();
    }
}

/// Tells the thread of a disturber whether to stop.
pub(super) struct Running {
    stop: Arc<AtomicBool>,
}

impl Running {
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Calls `disturb` at each instant of the schedule.
    pub(super) fn by(&self, schedule: Schedule, mut disturb: impl FnMut(Monotonic)) {
        let mut planned = now();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        loop {
            planned = planned + schedule.every;
            // xorshift64 (Marsaglia 2003)
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let shift = Nanos::new(random % (schedule.every.get() / 4).max(1));
            let at = planned + shift;
            while now() < at && !self.is_over() {
                sleep_until(at.min(now() + LOOK));
            }
            if self.is_over() {
                return;
            }
            disturb(at);
            // after a disturbance that took too long, the next ones do not follow at once
            planned = planned.max(earlier(now(), schedule.every));
        }
    }

    /// The calling thread as a culprit.
    pub(super) fn culprit(&self, name: &str) -> Culprit {
        Culprit::Thread {
            name: name.to_owned(),
            pid: Some(std::process::id() as Tid),
            tid: Some(gettid().as_raw_nonzero().get() as Tid),
            process: None,
        }
    }
}

/// The instant that is `by` before `at`.
pub(super) fn earlier(at: Monotonic, by: Nanos) -> Monotonic {
    Monotonic::from_nanos_since_boot(at.nanos_since_boot().saturating_sub(by.get()))
}

pub(super) fn sleep_until(at: Monotonic) {
    let ns = at.nanos_since_boot();
    let at = Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    // interrupted by a signal: the caller looks at the clock
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}
