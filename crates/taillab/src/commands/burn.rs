//! `taillab burn`: CPU time in bursts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, read};
use rustix::time::{ClockId, clock_gettime};
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::messages;
use taillab_host::{Interrupt, InterruptPipe, cpus};
use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;

use crate::cli::BurnArgs;

/// Bursts are planned for this long at a time.
const PLANNED: Nanos = Nanos::from_secs(60);

/// Burns until it is interrupted, or the program that started it with a pipe as standard input ends; then says how much.
pub fn run(args: &BurnArgs) -> Result<Exit, Failure> {
    if let Some(cpus) = &args.cpus {
        cpus::ensure_usable(cpus).map_err(host)?;
        cpus::pin_current_thread(cpus).map_err(host)?;
    }
    // `run` starts us as /proc/self/exe: give reports a readable name. It does not matter if this fails
    let _ = rustix::thread::set_name(c"taillab burn");
    let mut planned = Planned::new(args)?;
    let interrupt = Interrupt::register().or_exit(Exit::Failed)?;
    let ended = interrupt.pipe().or_exit(Exit::Failed)?;
    let bursts = Arc::new(AtomicU64::new(0));
    let (busy, done) = (args.busy, Arc::clone(&bursts));
    thread::spawn(move || {
        let began = Instant::now();
        while let Ok(due) = planned.next_plan() {
            for due in due {
                let due = Duration::from_nanos(due.get());
                thread::sleep(due.saturating_sub(began.elapsed()));
                burn(busy);
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    wait_for_end(&ended).or_exit(Exit::Failed)?;
    let bursts = bursts.load(Ordering::Relaxed);
    messages::line(&format!(
        "burnt {busy} of CPU time {bursts} times, {} together",
        busy * bursts
    ));
    Ok(Exit::Ok)
}

/// Waits for a signal, or for the end of a pipe as standard input. Another standard input says nothing: it is at its end from
/// the start where a shell starts us in the background.
fn wait_for_end(interrupted: &InterruptPipe) -> io::Result<()> {
    let stdin = io::stdin();
    let is_pipe = FileType::from_raw_mode(fstat(&stdin)?.st_mode) == FileType::Fifo;
    loop {
        let mut awaited = vec![PollFd::new(interrupted, PollFlags::IN)];
        if is_pipe {
            awaited.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut awaited, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let came = |of: &PollFd<'_>| !of.revents().is_empty();
        let has_ended = |_: &PollFd<'_>| matches!(read(&stdin, &mut [0_u8; 4096]), Ok(0) | Err(_));
        if came(&awaited[0]) || awaited.get(1).is_some_and(|of| came(of) && has_ended(of)) {
            return Ok(());
        }
    }
}

/// When the bursts begin: one plan of [`PLANNED`] after the other.
struct Planned {
    per_s: f64,
    seed: u64,
    plans: u64,
}

impl Planned {
    fn new(args: &BurnArgs) -> Result<Self, Failure> {
        let planned = Self {
            per_s: 1.0 / args.every.as_secs_f64(),
            seed: args.seed,
            plans: 0,
        };
        planned.due()?;
        Ok(planned)
    }

    /// The bursts of the current plan, from its start.
    fn due(&self) -> Result<Vec<Nanos>, Failure> {
        ArrivalProcess::Poisson
            .schedule(self.per_s, PLANNED, self.seed.wrapping_add(self.plans))
            .or_exit(Exit::Usage)
    }

    /// The bursts of the next plan, from the start of the first one.
    fn next_plan(&mut self) -> Result<Vec<Nanos>, Failure> {
        let start = PLANNED * self.plans;
        let due = self.due()?;
        self.plans += 1;
        Ok(due.into_iter().map(|due| start + due).collect())
    }
}

/// Uses this much CPU time, however often other threads interrupt it.
fn burn(time: Nanos) {
    let used = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let until = used() + Duration::from_nanos(time.get());
    while used() < until {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_bursts_are_as_far_apart_as_asked() {
        for every in [10, 600].map(Nanos::from_secs) {
            let mut planned = Planned::new(&BurnArgs {
                cpus: None,
                busy: Nanos::from_millis(2),
                every,
                seed: 1,
            })
            .unwrap();
            let mut due = Vec::new();
            while due.len() < 1_000 {
                due.extend(planned.next_plan().unwrap());
            }
            assert!(due.is_sorted());
            let mean = due[due.len() - 1].as_secs_f64() / due.len() as f64 / every.as_secs_f64();
            assert!((0.9..1.1).contains(&mean), "{every}: {mean}");
        }
    }
}
