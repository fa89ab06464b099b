//! Real-time threads that use up the CPU time that the kernel grants to real-time threads.

use std::fs::File;
use std::os::unix::fs::FileExt;

use taillab_load::ground_truth::{GroundTruth, InjectedInterval};

use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use super::disturber::{Disturber, earlier, sleep_until};
use super::{InjectionError, system};
use taillab_host::clock::now;
use taillab_host::process::set_fifo;

const NAME: &str = "tl-rt-hog";

/// The SCHED_FIFO priority of the hog, below that of the server (see [`make_real_time`]).
const HOG: u8 = 1;
const SERVER: u8 = 10;

/// A gap of this length in a thread that never sleeps and outranks all ordinary ones is not
/// the server's work: the kernel held real-time threads back (by default for 50 ms in each
/// second: `kernel.sched_rt_runtime_us`).
const HELD_BACK: Nanos = Nanos::from_millis(10);

/// With pauses the hog spins for the first time and then sleeps for the second. Together with a server
/// that takes up to four fifths of the CPU it leaves more than a twentieth, so nobody is held back.
const SPIN: Nanos = Nanos::from_millis(3);
const PAUSE: Nanos = Nanos::from_millis(1);

/// How often the hog reads how long the server has been on a CPU.
const ASK: Nanos = Nanos::from_millis(1);

const REMEDY: &str = "it needs root or CAP_SYS_NICE, and real-time time in this control group \
     (cpu.rt_runtime_us)";

/// How much the hog takes of the time that real-time threads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appetite {
    /// Runs without a pause.
    All,
    /// Sleeps for a quarter of its time, so that there is always some left.
    WithPauses,
}

/// A thread on `cpu` that spins under SCHED_FIFO below the priority of the threads of the `server`. All it
/// takes from them is the time that real-time threads share.
///
/// When real-time threads may run again, the server goes first and serves the waiting requests. So the
/// server's own time, by the kernel's account, is cut from the end of each gap of the hog.
///
/// # Errors
/// [`InjectionError`] without the privilege.
pub fn rt_hog(cpu: u32, server: &[u32], appetite: Appetite) -> Result<Disturber, InjectionError> {
    // a thread that has ended needs no account
    let accounts: Vec<File> = (server.iter())
        .filter_map(|thread| File::open(format!("/proc/{thread}/schedstat")).ok())
        .collect();
    Disturber::start(
        NAME,
        cpu,
        || set_fifo(0, HOG).map_err(system("spin under SCHED_FIFO", REMEDY)),
        move |(), running| {
            let mut intervals = Vec::with_capacity(1024);
            let (mut last, mut asked, mut served) = (now(), now(), on_cpu(&accounts));
            let mut spins_from = last;
            while !running.is_over() {
                let at = now();
                if appetite == Appetite::WithPauses && at.saturating_since(spins_from) > SPIN {
                    sleep_until(at + PAUSE);
                    (last, spins_from) = (now(), now());
                    continue;
                }
                let gap = at.saturating_since(last);
                if gap > HELD_BACK || at.saturating_since(asked) > ASK {
                    let before = std::mem::replace(&mut served, on_cpu(&accounts));
                    let to_ns = earlier(at, served.saturating_sub(before));
                    if to_ns.saturating_since(last) > HELD_BACK {
                        intervals.push(InjectedInterval::on_cpu(cpu, last..to_ns));
                    }
                    asked = at;
                }
                last = at;
            }
            GroundTruth::of_one("rt-throttle".to_owned(), Cause::Throttled, None, intervals)
        },
    )
}

/// How long these threads have been on a CPU in all: the first number
/// (`/proc/PID/schedstat`, Documentation/scheduler/sched-stats.rst).
fn on_cpu(accounts: &[File]) -> Nanos {
    let one = |account: &File| {
        let mut text = [0; 64];
        let length = account.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let number = text.split_ascii_whitespace().next()?;
        number.parse().ok().map(Nanos::new)
    };
    accounts.iter().filter_map(one).sum()
}

/// Gives threads SCHED_FIFO for the rest of their lives, as one would to keep other threads away from a
/// server.
///
/// # Errors
/// [`InjectionError`] without the privilege.
pub fn make_real_time(threads: &[u32]) -> Result<(), InjectionError> {
    make_fifo(threads, SERVER)
}

/// Gives threads SCHED_FIFO below the priority of [`make_real_time`], so that they run only while none of
/// those can.
///
/// # Errors
/// [`InjectionError`] without the privilege.
pub fn make_yielding(threads: &[u32]) -> Result<(), InjectionError> {
    make_fifo(threads, SERVER - 1)
}

fn make_fifo(threads: &[u32], priority: u8) -> Result<(), InjectionError> {
    for thread in threads {
        match set_fifo(*thread, priority) {
            // it has ended meanwhile
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            other => other.map_err(system("give the server SCHED_FIFO", REMEDY))?,
        }
    }
    Ok(())
}
