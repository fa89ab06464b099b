//! Storms of timer interrupts.

use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use taillab_model::explanation::{Cause, Culprit};
use taillab_model::truth::{Truth, TruthInterval, TruthSource};
use taillab_model::{Monotonic, Nanos};

use super::disturber::{Disturber, sleep_until};
use super::{InjectionError, Schedule, system};
use crate::clock::now;

const NAME: &str = "tl-timers";

/// From one interrupt of a storm to the next, so that most of the CPU is left: in a virtual
/// machine one costs more than 10 µs.
const APART: Nanos = Nanos::from_micros(40);
/// Timers of one storm at most.
const MOST: usize = 400;
/// Timers are armed so long before the first is due, and this much more for each.
const LEAD: Nanos = Nanos::from_millis(1);
const LEAD_EACH: Nanos = Nanos::from_micros(2);
/// Interrupts whose cost is looked at beforehand.
const TRIALS: usize = 200;
/// A gap beyond this between two looks at the clock is an interrupt.
const GAP: Nanos = Nanos::new(400);

/// Storms of timers that expire on `cpu`, one every 40 µs. Arming them costs that CPU some
/// hundred nanoseconds each, which is `background` of the thread that does it.
///
/// What one interrupt costs is measured before, on the same CPU, by a loop that looks at the
/// clock: what the kernel itself calls its handler is only a part of that.
///
/// # Errors
/// [`InjectionError`] when the timers cannot be made.
pub fn timer_storm(cpu: u32, schedule: Schedule) -> Result<Disturber, InjectionError> {
    let count = (schedule.lasts.get() / APART.get()).clamp(1, MOST as u64) as usize;
    Disturber::start(
        NAME,
        cpu,
        move || {
            let timers = (0..count.max(TRIALS))
                .map(|_| timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC))
                .collect::<rustix::io::Result<Vec<OwnedFd>>>()
                .map_err(|errno| {
                    system("make timers", "raise the limit on files (ulimit -n)")(errno.into())
                })?;
            let cost = cost(&timers);
            Ok((timers, cost))
        },
        move |(timers, cost), running| {
            let mut intervals = Vec::with_capacity(1 << 18);
            let mut unrecorded = 0;
            running.by(schedule, |at| {
                let from_ns = now();
                let first = at.max(from_ns) + LEAD + LEAD_EACH * count as u64;
                for (number, timer) in timers[..count].iter().enumerate() {
                    arm(timer, first + APART * number as u64);
                }
                let armed = now();
                let mut keep = |source, from_ns, to_ns| {
                    if intervals.len() < intervals.capacity() {
                        intervals.push(TruthInterval {
                            source,
                            cpu: Some(running.cpu()),
                            held: None,
                            from_ns,
                            to_ns,
                        });
                    } else {
                        unrecorded += 1;
                    }
                };
                keep(1, from_ns, armed);
                for number in 0..count {
                    let due = first + APART * number as u64;
                    keep(0, due, due + cost);
                }
                sleep_until(first + APART * count as u64);
            });
            intervals.sort_by_key(|interval| (interval.source, interval.from_ns));
            Truth {
                sources: vec![
                    TruthSource {
                        injected: format!(
                            "irq:{schedule}: {count} timers, {} each",
                            cost.to_exact_string()
                        ),
                        cause: Cause::Irq,
                        culprit: Some(Culprit::Interrupt {
                            name: "local timer".to_owned(),
                            number: None,
                        }),
                    },
                    TruthSource {
                        injected: "arming the timers".to_owned(),
                        cause: Cause::Background,
                        culprit: Some(running.culprit(NAME)),
                    },
                ],
                intervals,
                unrecorded,
            }
        },
    )
}

fn arm(timer: &OwnedFd, at: Monotonic) {
    let ns = at.nanos_since_boot();
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        },
    };
    // an absolute time of our own timer: cannot be refused
    let _ = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once);
}

/// What one expiry takes from this CPU: the median gap that a loop sees around it.
fn cost(timers: &[OwnedFd]) -> Nanos {
    const SPACE: Nanos = Nanos::from_micros(30);
    let first = now() + LEAD + LEAD_EACH * TRIALS as u64;
    for (number, timer) in timers[..TRIALS].iter().enumerate() {
        arm(timer, first + SPACE * number as u64);
    }
    let mut gaps = Vec::with_capacity(4 * TRIALS);
    let end = first + SPACE * TRIALS as u64;
    let mut last = now();
    while last < end {
        let at = now();
        let gap = at.saturating_since(last);
        if gap > GAP && last >= first && gaps.len() < gaps.capacity() {
            gaps.push(gap);
        }
        last = at;
    }
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(GAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus;

    #[test]
    fn each_timer_has_an_interval_of_the_cost_measured() {
        let cpu = cpus::allowed().unwrap().first().unwrap();
        let storm = timer_storm(
            cpu,
            Schedule {
                every: Nanos::from_millis(20),
                lasts: Nanos::from_micros(500),
            },
        )
        .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(150));
        let truth = storm.stop();
        let interrupts = truth.intervals.iter().filter(|i| i.source == 0).count();
        let armings = truth.intervals.iter().filter(|i| i.source == 1).count();
        assert!(armings >= 1, "{truth:?}");
        assert_eq!(interrupts, 12 * armings);
        assert!(truth.intervals.iter().all(|i| i.length() > Nanos::ZERO));
    }
}
