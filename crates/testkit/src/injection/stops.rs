//! Signals that stop the whole server for a while.

use rustix::process::{Pid, Signal, kill_process};
use taillab_host::clock::now;
use taillab_host::process::set_fifo;
use taillab_load::ground_truth::{GroundTruth, InjectedInterval};
use taillab_model::explanation::{Cause, Culprit, ServerStop};

use super::disturber::{Disturber, sleep_until};
use super::{InjectionError, Schedule, system};

const NAME: &str = "tl-stops";

/// Stops these processes (SIGSTOP) for as long as the schedule says, and lets them go on (SIGCONT). The disturber is a
/// thread on `cpu`, which is not the server's.
///
/// The truth is from when the signal was sent to when they could go on.
///
/// # Errors
/// [`InjectionError`] if a signal cannot be sent to one of them.
pub fn stops(
    processes: &[u32],
    cpu: u32,
    server_cpu: u32,
    schedule: Schedule,
) -> Result<Disturber, InjectionError> {
    let processes: Vec<Pid> = (processes.iter())
        .filter_map(|process| Pid::from_raw(*process as i32))
        .collect();
    Disturber::start(
        NAME,
        cpu,
        move || {
            // without this privilege, it acts a little late
            let _ = set_fifo(0, 1);
            send(&processes, Signal::CONT).map_err(system(
                "send the server a signal",
                "run it as root, or as the server's user",
            ))?;
            Ok(processes)
        },
        move |processes, running| {
            let mut intervals = Vec::with_capacity(4096);
            running.by(schedule, |at| {
                let from = now();
                let stopped = send(&processes, Signal::STOP);
                sleep_until(at.max(from) + schedule.lasts);
                // also where one of them could not be stopped: none may stay behind
                let continued = send(&processes, Signal::CONT);
                if stopped.and(continued).is_ok() {
                    intervals.push(InjectedInterval::on_cpu(server_cpu, from..now()));
                }
            });
            let culprit = Culprit::Runtime {
                task: ServerStop::Signal.task().to_owned(),
                threads: Vec::new(),
            };
            GroundTruth::of_one(
                format!("pause:{schedule}"),
                Cause::Pause,
                Some(culprit),
                intervals,
            )
        },
    )
}

fn send(processes: &[Pid], signal: Signal) -> std::io::Result<()> {
    for process in processes {
        kill_process(*process, signal)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command};

    use taillab_host::cpus;
    use taillab_model::Nanos;

    use super::*;

    /// A process that works until it is dropped.
    struct Worker(Child);

    impl Worker {
        fn state(&self) -> char {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
            let (_, rest) = stat.rsplit_once(") ").unwrap();
            rest.chars().next().unwrap()
        }
    }

    impl Drop for Worker {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_stands_still_while_it_is_stopped_and_goes_on_afterwards() {
        let worker = Worker(Command::new("sleep").arg("600").spawn().unwrap());
        let cpu = cpus::allowed().unwrap().first().unwrap();
        let schedule = Schedule {
            every: Nanos::from_millis(20),
            lasts: Nanos::from_millis(5),
        };
        let disturber = stops(&[worker.0.id()], cpu, cpu, schedule).unwrap();
        let began = now();
        let mut seen = 0;
        while seen < 3 {
            assert!(now().saturating_since(began) < Nanos::from_secs(60));
            seen += u32::from(worker.state() == 'T');
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let truth = disturber.stop();
        assert_ne!(worker.state(), 'T');
        assert!(!truth.intervals.is_empty());
        for interval in &truth.intervals {
            assert!(interval.length() >= schedule.lasts);
        }
        assert_eq!(truth.sources[0].injected, "pause:20ms,5ms");
    }

    #[test]
    fn a_process_that_does_not_exist_is_told() {
        let cpu = cpus::allowed().unwrap().first().unwrap();
        let schedule = Schedule {
            every: Nanos::from_millis(20),
            lasts: Nanos::from_millis(5),
        };
        // larger than any number that the kernel gives (PID_MAX_LIMIT)
        let error = stops(&[1 << 23], cpu, cpu, schedule).unwrap_err();
        assert!(
            error.to_string().contains("send the server a signal"),
            "{error}"
        );
    }
}
