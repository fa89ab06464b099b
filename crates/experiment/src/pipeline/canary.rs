//! Stalls of the machine, as seen by a thread that should have looked at the clock and could not.
//!
//! A thread that acts long after it should have did not have its CPU: the hypervisor or another task had
//! it. The time that another task took is left out; the kernel says how long a thread waited for its CPU
//! (`/proc/PID/schedstat`, see the kernel's `Documentation/scheduler/sched-stats.rst`). The ledger counts a
//! stall as evidence only if the server's CPU was stalled at the same time.
//!
//! The generator of `run` is such a thread, because it looks at the clock all the time between sends.
//! `trace` uses a [`Canary`].

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use taillab_host::clock::now;
use taillab_host::{CpuSet, Roots, cpus};
use taillab_load::clock::waited_for_cpu;
use taillab_load::{FleetRun, Wait};
use taillab_model::{Event, EventKind, Monotonic, Nanos};

/// A shorter delay is not a stall. This is many times longer than it takes to read the longest batch of
/// answers or to wake a thread.
const STALL: Nanos = Nanos::from_micros(200);

/// The time between two looks of a [`Canary`] at the clock, which take less than 1 % of its CPU.
const PERIOD: Nanos = Nanos::from_millis(1);

/// The stalls of the generator's threads, each on its CPU, stamped at their ends.
pub fn stalls(load: &FleetRun, cpus: &CpuSet) -> Vec<Event> {
    let threads = load.runs.iter().zip(cpus.iter());
    threads
        .flat_map(|(run, cpu)| {
            let sends = (run.record.iter()).map(|entry| (entry.times.intended, entry.turn()));
            without_waits(late(sends), &run.waits).map(move |(at, lasted)| stalled(cpu, at, lasted))
        })
        .collect()
}

fn stalled(cpu: u32, at: Monotonic, lasted: Nanos) -> Event {
    Event {
        at,
        cpu: u16::try_from(cpu).unwrap_or(u16::MAX),
        kind: EventKind::Stalled { lasted },
    }
}

/// A thread that sleeps and looks at the clock until this is dropped. It runs on a CPU that is not the
/// server's.
///
/// It sees stalls that last longer than [`PERIOD`], and only those of its own virtual CPU.
pub struct Canary {
    stop: Arc<AtomicBool>,
    seen: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Canary {
    /// Starts on one of these CPUs.
    ///
    /// # Errors
    /// There is no CPU for it, no thread can be started, or the kernel does not count how long threads
    /// wait.
    pub fn start(own_cpus: &CpuSet, roots: &Roots) -> io::Result<Self> {
        let cpu = own_cpus.iter().next().ok_or(io::ErrorKind::NotFound)?;
        let waits = roots.proc.join("thread-self/schedstat");
        let stop = Arc::new(AtomicBool::new(false));
        let (out, seen) = channel();
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().spawn(move || {
            // without either it would report stalls that did not happen
            if let Ok(waits) = File::open(waits)
                && cpus::pin_current_thread(&CpuSet::single(cpu)).is_ok()
            {
                look(cpu, &waits, &stopped, &out);
            }
        })?;
        Ok(Self {
            stop,
            seen,
            thread: Some(thread),
        })
    }

    /// The stalls since the last call.
    pub fn stalls(&self) -> impl Iterator<Item = Event> {
        self.seen.try_iter()
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(cpu: u32, waits: &File, stop: &AtomicBool, out: &Sender<Event>) {
    let mut waited = waited_for_cpu(waits);
    while !stop.load(Ordering::Relaxed) {
        let due = now() + PERIOD;
        thread::sleep(Duration::from_nanos(PERIOD.get()));
        let woke = now();
        let before = std::mem::replace(&mut waited, waited_for_cpu(waits));
        let (Some(before), Some(waited)) = (before, waited) else {
            return;
        };
        // the wait for the CPU came last, after the sleep was over
        let free = woke.nanos_since_boot() - waited.saturating_sub(before).get();
        let free = Monotonic::from_nanos_since_boot(free);
        for (at, lasted) in late([(due, free)].into_iter()) {
            if out.send(stalled(cpu, at, lasted)).is_err() {
                return;
            }
        }
    }
}

/// The end and the length of each stall of a thread, from the times at which its actions were due and done.
/// During a stall an action is due and none is done.
fn late(
    sends: impl Iterator<Item = (Monotonic, Monotonic)>,
) -> impl Iterator<Item = (Monotonic, Nanos)> {
    let mut before: Option<Monotonic> = None;
    sends.filter_map(move |(due, sent)| {
        let idle_since = before.map_or(due, |before| before.max(due));
        before = Some(sent);
        let lasted = sent.saturating_since(idle_since);
        (lasted >= STALL).then_some((sent, lasted))
    })
}

/// These stalls, without the last part of each, in which the thread waited while another task had the CPU.
fn without_waits(
    late: impl Iterator<Item = (Monotonic, Nanos)>,
    waits: &[Wait],
) -> impl Iterator<Item = (Monotonic, Nanos)> {
    late.filter_map(|(at, lasted)| {
        let place = waits.binary_search_by_key(&at, |wait| wait.at);
        let waited = place.map_or(Nanos::ZERO, |place| waits[place].lasted);
        let free = at.nanos_since_boot().saturating_sub(waited.get());
        let lasted = lasted.saturating_sub(waited);
        (lasted >= STALL).then_some((Monotonic::from_nanos_since_boot(free), lasted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_one_however_many_sends_it_made_late() {
        let at = |us: u64| Monotonic::from_nanos_since_boot(us * 1_000);
        // due every 100 µs; from 250 to 900 µs nothing could be sent
        let sends = [
            (100, 101),
            (200, 201),
            (300, 900),
            (400, 902),
            (500, 904),
            (1_000, 1_001),
        ];
        let sends = sends.map(|(due, sent)| (at(due), at(sent)));
        let stalls: Vec<_> = late(sends.into_iter()).collect();
        assert_eq!(stalls, [(at(900), Nanos::from_micros(600))]);
    }

    #[test]
    fn what_another_task_took_from_the_generator_is_no_stall() {
        let at = |us: u64| Monotonic::from_nanos_since_boot(us * 1_000);
        let late = [(900, 600), (5_000, 2_000), (9_000, 400)];
        let late = late.map(|(us, lasted)| (at(us), Nanos::from_micros(lasted)));
        let wait = |us, lasted| Wait {
            at: at(us),
            lasted: Nanos::from_micros(lasted),
        };
        let waits = [wait(900, 500), wait(5_000, 300), wait(7_000, 99)];
        let left: Vec<_> = without_waits(late.into_iter(), &waits).collect();
        assert_eq!(left, [(at(4_700), Nanos::from_micros(1_700)), late[2]]);
    }

    #[test]
    fn how_long_a_thread_waited_for_a_cpu_is_read_from_its_account() {
        let waits = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(waits.path(), "168529 3122171 2\n").unwrap();
        let file = File::open(waits.path()).unwrap();
        assert_eq!(waited_for_cpu(&file), Some(Nanos::new(3_122_171)));
    }
}
