//! Storms of timer interrupts.

use taillab_load::ground_truth::GroundTruth;

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Culprit};

use super::bpf::TimerInterrupts;
use super::busy::BusyTimes;
use super::disturber::{Disturber, sleep_until};
use super::{InjectionError, Schedule, Stop, system};
use taillab_host::clock::now;
use taillab_host::process::set_fifo;

const NAME: &str = "tl-timers";

/// The length of a handler. In a virtual machine an interrupt costs another 10 µs or more that nothing
/// records; the handler must be long compared with that.
const EACH: Nanos = Nanos::from_micros(200);
/// From one interrupt of a storm to the next; this leaves half of the CPU.
const APART: Nanos = Nanos::from_micros(400);

const REMEDY: &str = "it needs root, and a kernel with perf events and BPF";

/// Storms of timer interrupts on the server's CPU, whose handler runs a long program.
///
/// The truth is when that program ran, by its own clock. The rest of an interrupt's cost, on the way into
/// the kernel and out of it (a virtual machine exits to its hypervisor), is not claimed: nothing in the
/// kernel records when it occurs.
///
/// Each storm lasts as long as the schedule says; a thread on `client_cpu` begins and ends it.
///
/// # Errors
/// [`InjectionError`] if such timers or programs are not available, and from [`Stop`] if the record cannot
/// be read.
pub fn timer_storm(
    server_cpu: u32,
    client_cpu: u32,
    schedule: Schedule,
) -> Result<Stop, InjectionError> {
    let times = BusyTimes::new(REMEDY)?;
    let timer = TimerInterrupts::new(server_cpu, APART, &times.program(EACH, 0))
        .map_err(system("run a program at timer interrupts", REMEDY))?;
    let disturber = Disturber::start(
        NAME,
        client_cpu,
        move || {
            // without this privilege, storms end late
            let _ = set_fifo(0, 1);
            Ok(timer)
        },
        move |timer, running| {
            running.by(schedule, |_| {
                // a storm that does not begin is not in the truth either
                let _ = timer.begin();
                sleep_until(now() + schedule.lasts);
                let _ = timer.end();
            });
            GroundTruth::default()
        },
    )?;
    Ok(Box::new(move || {
        disturber.stop();
        let culprit = Culprit::Interrupt {
            name: "local timer".to_owned(),
            number: None,
        };
        times.read((server_cpu, Nanos::ZERO), REMEDY, |intervals| {
            GroundTruth::of_one(
                format!("irq:{schedule}"),
                Cause::Irq,
                Some(culprit),
                intervals,
            )
        })
    }))
}
