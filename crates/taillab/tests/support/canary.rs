//! What tells whether the machine stood still.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use taillab_host::CpuSet;
use taillab_host::cpus::{allowed, pin_current_thread};
use taillab_host::process::set_fifo;

use super::Meanwhile;

/// Real-time threads that only sleep, one on each CPU: the server's and its clients'. No program goes before them, so
/// if one wakes up late, its CPU stood still.
pub struct Canary(Vec<Meanwhile<Duration>>);

impl Canary {
    const NAP: Duration = Duration::from_millis(2);

    /// Starts them.
    pub fn start() -> Self {
        Self(allowed().unwrap().iter().map(Self::on).collect())
    }

    fn on(cpu: u32) -> Meanwhile<Duration> {
        let cpu = CpuSet::single(cpu);
        Meanwhile::start("canary", move |stop| {
            pin_current_thread(&cpu).unwrap();
            set_fifo(0, 99).unwrap();
            let mut longest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(Self::NAP);
                longest = longest.max(began.elapsed() - Self::NAP);
            }
            longest
        })
    }

    /// Ends them: for how long a CPU stood still at most.
    pub fn end(self) -> Duration {
        let all = self.0.into_iter().map(Meanwhile::end);
        all.max().unwrap_or_default()
    }
}
