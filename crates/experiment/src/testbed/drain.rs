//! Who drains the probe while the generator sends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use taillab_host::{CpuSet, cpus};
use taillab_load::Hooks;
use taillab_model::{EventSink, Nanos};
use taillab_probe::{Probe, ProbeError};

/// Events of one request: five stamps and, if the server sleeps, a wake-up, an interrupt, a softirq, an idle
/// state and two switches. If there are more, they are kept too, at the price of a page fault.
const EVENTS_PER_REQUEST: f64 = 14.0;

/// Events that the generator moves out of the rings at a time: about a microsecond of work.
const DRAIN_AT_ONCE: usize = 48;

/// How long a thread that only drains sleeps. The usual ring takes what a busy CPU records in a tenth of a
/// second.
const PERIOD: Duration = Duration::from_millis(2);

/// A probe that records a load, and where its events go.
pub struct RecordingProbe<'a> {
    /// The probe.
    pub probe: &'a mut Probe,
    /// Its error ends the load. Whoever owns it must know the error at the end.
    pub sink: &'a mut (dyn EventSink + Send),
}

/// Drains the probe in the generator's idle gaps, and stops the load if the server has died.
///
/// The events wait in memory until the load is over, since to compress a block of them takes as long as ten requests.
/// Where there are more than that memory holds, they are compressed while the load runs, and sends are late.
///
/// A generator that is held up has no idle gaps, and the rings would overflow: what the server did would be lost
/// because of the client. So they are emptied at the latest when the generator asks whether to stop.
pub struct DrainProbe<'a> {
    /// Where a probe is attached and no other thread drains it.
    recorder: Option<RecordingProbe<'a>>,
    /// Set when the server is known to be dead.
    server_gone: &'a AtomicBool,
    /// Set when another thread that drains cannot go on.
    sink_failed: Option<&'a AtomicBool>,
    /// Whether an idle gap was long enough for all events since the last time that it was asked.
    caught_up: bool,
}

impl<'a> DrainProbe<'a> {
    /// Drains this probe, if there is one, until the server is dead.
    pub const fn new(recorder: Option<RecordingProbe<'a>>, server_gone: &'a AtomicBool) -> Self {
        Self {
            recorder,
            server_gone,
            sink_failed: None,
            caught_up: true,
        }
    }

    /// Ends the load, too, when this is set.
    const fn until(self, sink_failed: &'a AtomicBool) -> Self {
        Self {
            sink_failed: Some(sink_failed),
            ..self
        }
    }
}

impl Hooks for DrainProbe<'_> {
    #[inline]
    fn idle(&mut self, _until_next: Nanos) {
        if let Some(recorder) = &mut self.recorder {
            self.caught_up |= recorder.probe.drain(DRAIN_AT_ONCE) < DRAIN_AT_ONCE;
        }
    }

    fn should_stop(&mut self) -> bool {
        let caught_up = std::mem::take(&mut self.caught_up);
        if let Some(RecordingProbe { probe, sink }) = &mut self.recorder {
            if !caught_up {
                probe.drain(usize::MAX);
            }
            if probe.relieve(&mut **sink).is_err() {
                return true;
            }
        }
        let sink_failed = self
            .sink_failed
            .is_some_and(|it| it.load(Ordering::Relaxed));
        sink_failed || self.server_gone.load(Ordering::Relaxed)
    }
}

/// Sends a load while the probe, where one is attached, is drained: by a thread on the `free` CPUs, which compresses
/// the events as well, or in the generator's idle gaps where there are none. The gaps of one generator thread are too
/// short for the events of a server with many workers.
pub fn draining<'a, T>(
    recorder: Option<RecordingProbe<'a>>,
    free: &CpuSet,
    server_gone: &'a AtomicBool,
    load: impl FnOnce(&mut DrainProbe<'_>) -> T,
) -> T {
    match recorder {
        Some(RecordingProbe { probe, sink }) if !free.is_empty() => {
            let failed = AtomicBool::new(false);
            let drain = || {
                if probe.drain_into(sink).is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
            };
            beside(free, drain, || {
                load(&mut DrainProbe::new(None, server_gone).until(&failed))
            })
        }
        recorder => load(&mut DrainProbe::new(recorder, server_gone)),
    }
}

/// Makes room for the events of so many requests, where they wait for the end of the load.
pub fn reserve(probe: &mut Probe, requests: f64, free: &CpuSet) -> Result<(), ProbeError> {
    match free.is_empty() {
        true => probe.reserve((requests * EVENTS_PER_REQUEST) as u64),
        false => Ok(()),
    }
}

/// Does the work while a thread on these CPUs drains every [`PERIOD`].
fn beside<T>(cpus: &CpuSet, mut drain: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let end = DrainEnd(&over);
    thread::scope(|scope| {
        scope.spawn(|| {
            // if this fails it sleeps and drains beside the generator, whose record shows the delays
            let _ = cpus::pin_current_thread(cpus);
            while !over.load(Ordering::Relaxed) {
                drain();
                thread::sleep(PERIOD);
            }
        });
        let _end = end;
        work()
    })
}

/// Ends the draining thread, also where the load panics.
struct DrainEnd<'a>(&'a AtomicBool);

impl Drop for DrainEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    use super::*;

    #[test]
    fn it_is_drained_beside_the_work_until_that_is_done() {
        let allowed = cpus::allowed().unwrap();
        let drained = AtomicU32::new(0);
        let count = || {
            drained.fetch_add(1, Ordering::Relaxed);
        };
        let began = Instant::now();
        let work = || {
            while drained.load(Ordering::Relaxed) < 3 {
                assert!(began.elapsed() < Duration::from_secs(30));
                thread::yield_now();
            }
            7
        };
        assert_eq!(beside(&allowed, count, work), 7);
        let at_the_end = drained.load(Ordering::Relaxed);
        thread::sleep(3 * PERIOD);
        assert_eq!(drained.load(Ordering::Relaxed), at_the_end);
    }

    #[test]
    fn a_load_that_panics_ends_the_draining_thread() {
        let allowed = cpus::allowed().unwrap();
        let work = || -> u32 { panic!("on purpose") };
        let failed = std::panic::catch_unwind(|| beside(&allowed, || {}, work));
        assert!(failed.is_err());
    }
}
