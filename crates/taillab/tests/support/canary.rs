//! What tells whether the machine stood still.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use taillab_host::CpuSet;
use taillab_host::cpus::{allowed, pin_current_thread};
use taillab_host::process::set_fifo;

use super::Meanwhile;

/// A real-time thread that only sleeps, on the first CPU: the server's, where no other is asked for. No program
/// goes before it, so if it wakes up late, the machine stood still.
pub struct Canary(Meanwhile<Duration>);

impl Canary {
    const NAP: Duration = Duration::from_millis(2);

    /// Starts it.
    pub fn start() -> Self {
        let cpu = CpuSet::single(allowed().unwrap().first().unwrap());
        Self(Meanwhile::start("canary", move |stop| {
            pin_current_thread(&cpu).unwrap();
            set_fifo(0, 99).unwrap();
            let mut longest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(Self::NAP);
                longest = longest.max(began.elapsed() - Self::NAP);
            }
            longest
        }))
    }

    /// Ends it: for how long the machine stood still at most.
    pub fn end(self) -> Duration {
        self.0.end()
    }
}
