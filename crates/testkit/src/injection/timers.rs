//! Storms of timer interrupts.

use crate::ground_truth::{GroundTruth, InjectedSource};
use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Culprit};

use super::bpf::TimerInterrupts;
use super::busy::BusyTimes;
use super::disturber::{Disturber, sleep_until};
use super::rt_hog::set_fifo;
use super::{InjectionError, Schedule, on_cpu, system};
use taillab_host::clock::now;

const NAME: &str = "tl-timers";

/// The length of a handler: in a virtual machine an interrupt costs 10 µs and more on top of it, which
/// nobody sees, and which must be little beside what is seen.
const EACH: Nanos = Nanos::from_micros(200);
/// From one interrupt of a storm to the next: half of the CPU is left.
const APART: Nanos = Nanos::from_micros(400);

const REMEDY: &str = "it needs root, and a kernel with perf events and BPF";

/// Storms of interrupts by the timer of the server's CPU, whose handler is made dear by a
/// program that it runs.
///
/// The truth is when that program ran, by its own clock. What else an interrupt costs,
/// its way into the kernel and out of it (a virtual machine leaves for its hypervisor and
/// comes back), is not claimed: nobody in the kernel knows when that was.
pub struct TimerStorm {
    disturber: Disturber,
    times: BusyTimes,
    schedule: Schedule,
    server_cpu: u32,
}

impl TimerStorm {
    /// Storms, each of as long as the schedule says, begun and ended from `client_cpu`.
    ///
    /// # Errors
    /// [`InjectionError`] where such timers or programs cannot be had.
    pub fn start(
        server_cpu: u32,
        client_cpu: u32,
        schedule: Schedule,
    ) -> Result<Self, InjectionError> {
        let times = BusyTimes::new(REMEDY)?;
        let timer = TimerInterrupts::new(server_cpu, APART, &times.program(EACH, 0))
            .map_err(system("run a program at timer interrupts", REMEDY))?;
        let disturber = Disturber::start(
            NAME,
            client_cpu,
            move || {
                // where it may not, a storm ends late
                let _ = set_fifo(0, 1);
                Ok(timer)
            },
            move |timer, running| {
                running.by(schedule, |_| {
                    // one that does not begin is not in the truth either
                    let _ = timer.begin();
                    sleep_until(now() + schedule.lasts);
                    let _ = timer.end();
                });
                GroundTruth::default()
            },
        )?;
        Ok(Self {
            disturber,
            times,
            schedule,
            server_cpu,
        })
    }

    /// Ends it and says when the handlers ran.
    ///
    /// # Errors
    /// [`InjectionError`] where the record cannot be read.
    pub fn stop(self) -> Result<GroundTruth, InjectionError> {
        self.disturber.stop();
        let (handlers, unrecorded) = self.times.read(Nanos::ZERO, REMEDY)?;
        Ok(GroundTruth {
            sources: vec![InjectedSource {
                injected: format!("irq:{}", self.schedule),
                cause: Cause::Irq,
                culprit: Some(Culprit::Interrupt {
                    name: "local timer".to_owned(),
                    number: None,
                }),
            }],
            intervals: on_cpu(self.server_cpu, handlers),
            unrecorded,
        })
    }
}
