//! A thread that competes for the server's CPU as another process would.

use std::ops::Range;

use taillab_load::ground_truth::{GroundTruth, InjectedInterval};

use taillab_model::explanation::Cause;
use taillab_model::{Monotonic, Nanos};

use super::disturber::Disturber;
use super::{InjectionError, Schedule};
use taillab_load::clock::keep_busy;

/// The thread's name, as the kernel knows it.
const NAME: &str = "tl-background";

/// Room for this many stretches: 32 MiB of address space, touched as needed.
const ROOM: usize = 1 << 21;

/// Bursts of an ordinary (SCHED_OTHER) thread on `cpu`. Each burst uses as much CPU time as the schedule
/// says, however often the scheduler interrupts it.
///
/// # Errors
/// [`InjectionError`] when the thread cannot be started there.
pub fn background(cpu: u32, schedule: Schedule) -> Result<Disturber, InjectionError> {
    Disturber::start(
        NAME,
        cpu,
        || Ok(Vec::with_capacity(ROOM)),
        move |mut ran, running| {
            let mut unrecorded = 0;
            running.by(schedule, |_| {
                unrecorded += burn(schedule.lasts, &mut ran);
            });
            let intervals = ran
                .into_iter()
                .map(|ran| InjectedInterval::on_cpu(cpu, ran));
            GroundTruth {
                unrecorded,
                ..GroundTruth::of_one(
                    format!("background:{schedule}"),
                    Cause::Background,
                    Some(running.culprit(NAME)),
                    intervals.collect(),
                )
            }
        },
    )
}

/// Uses `time` of CPU time and notes when it had the CPU; returns the number of stretches for which
/// there was no room.
fn burn(time: Nanos, ran: &mut Vec<Range<Monotonic>>) -> u64 {
    let mut unrecorded = 0;
    keep_busy(time, |from, to| match ran.len() < ran.capacity() {
        true => ran.push(from..to),
        false => unrecorded += 1,
    });
    unrecorded
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_host::clock::now;
    use taillab_host::cpus;

    #[test]
    fn a_burst_uses_its_time_and_the_stretches_say_when() {
        let mut ran = Vec::with_capacity(1 << 16);
        let before = now();
        assert_eq!(burn(Nanos::from_millis(3), &mut ran), 0);
        let after = now();
        let used: Nanos = ran
            .iter()
            .map(|stretch| stretch.end.saturating_since(stretch.start))
            .sum();
        assert!(used >= Nanos::from_millis(3));
        assert!(used <= after.saturating_since(before));
        assert!(ran.is_sorted_by_key(|stretch| stretch.start) && ran[0].start >= before);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut ran = Vec::new();
        assert!(burn(Nanos::from_millis(1), &mut ran) >= 1);
    }

    /// How often the threads of this process with that name have gone to sleep, by the kernel's account.
    fn sleeps_of(name: &str) -> u64 {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let of = threads.filter_map(|thread| {
            let text = |file| std::fs::read_to_string(thread.path().join(file)).ok();
            (text("comm")?.trim() == name).then_some(())?;
            let status = text("status")?;
            let mut lines = status.lines();
            let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            count.trim().parse::<u64>().ok()
        });
        of.sum()
    }

    #[test]
    fn bursts_come_by_the_schedule_and_are_the_named_threads() {
        let cpu = cpus::allowed().unwrap().first().unwrap();
        let schedule = Schedule {
            every: Nanos::from_millis(10),
            lasts: Nanos::from_millis(1),
        };
        let disturber = background(cpu, schedule).unwrap();
        // a busy machine may keep it from its CPU for a while; it sleeps before each burst, and a few times
        // until the first
        let began = now();
        while sleeps_of(NAME) < 10 {
            assert!(now().saturating_since(began) < Nanos::from_secs(60));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let truth = disturber.stop();
        assert!(truth.total() >= Nanos::from_millis(2), "{}", truth.total());
        assert!(truth.intervals.iter().all(|i| i.cpu == Some(cpu as u16)));
        assert_eq!(truth.sources[0].injected, "background:10ms,1ms");
        assert!(background(4000, schedule).is_err());
    }
}
