//! What a worker does between a request and its answer.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;

use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec};
use taillab_model::Monotonic;
use taillab_queueing::notation::NotationError;
use taillab_queueing::service::{Service, ServiceError, ServiceTimes};

use crate::clock;

/// Called once on a worker's thread; returns what the worker calls before each request, for
/// example an injected fault.
pub type BeforeRequest = Arc<dyn Fn() -> Box<dyn FnMut() + Send> + Send + Sync>;

/// What a worker does between a request and its answer.
///
/// As text `none`, `spin:exponential:50us` or `wait:lognormal:1ms,cv=2`: how the time is spent,
/// then a distribution in the notation of the simulator.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ServiceTime {
    /// Nothing.
    #[default]
    None,
    /// Reads the clock until it has had the CPU for that long: like real work, it takes longer when
    /// something else takes the CPU. No system call where the clock can be read without one.
    Spin(Service),
    /// Sleeps on a timer: the worker is busy but its CPU is free, so that many workers
    /// can be studied on few CPUs. Every answer is late by the timer's wake-up (25 µs on
    /// the virtual machine where it was measured), so times below a few hundred microseconds
    /// are inaccurate.
    Wait(Service),
}

/// The text is not a service time.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadServiceTime {
    /// Neither `none` nor `spin:` nor `wait:`.
    #[error(
        "`{0}` is not a service time: write none, spin:DIST (keeps the CPU busy) or wait:DIST (sleeps), e.g. spin:exponential:50us"
    )]
    Kind(String),
    /// What follows is not a distribution.
    #[error(transparent)]
    Law(#[from] NotationError),
}

impl ServiceTime {
    /// The work of worker `stream`, with what it calls before each request.
    pub(super) fn worker(
        &self,
        seed: u64,
        stream: u64,
        make_before: Option<BeforeRequest>,
    ) -> Result<Work, ServiceError> {
        let service = match self {
            Self::None => Timed::None,
            Self::Spin(law) => Timed::Spin(law.times(seed, stream)?),
            Self::Wait(law) => Timed::Wait(law.times(seed, stream)?),
        };
        Ok(Work {
            service,
            make_before,
            before: None,
        })
    }
}

impl fmt::Display for ServiceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Spin(law) => write!(f, "spin:{law}"),
            Self::Wait(law) => write!(f, "wait:{law}"),
        }
    }
}

impl FromStr for ServiceTime {
    type Err = BadServiceTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().split_once(':') {
            None if text.trim() == "none" => Ok(Self::None),
            Some(("spin", law)) => Ok(Self::Spin(law.parse()?)),
            Some(("wait", law)) => Ok(Self::Wait(law.parse()?)),
            _ => Err(BadServiceTime::Kind(text.to_owned())),
        }
    }
}

/// One worker's work: its own stream of service times, and what it does before each request.
pub(super) struct Work {
    service: Timed,
    make_before: Option<BeforeRequest>,
    before: Option<Box<dyn FnMut() + Send>>,
}

#[derive(Debug)]
enum Timed {
    None,
    Spin(ServiceTimes),
    Wait(ServiceTimes),
}

impl Work {
    /// To be called on the worker's thread, before it serves.
    pub(super) fn prepare(&mut self) {
        self.before = self.make_before.as_ref().map(|make| make());
        if matches!(self.service, Timed::Wait(_)) {
            // The kernel may lengthen a sleep by the timer slack, 50 µs by default. If it cannot be
            // set, sleeps are longer and the answers' times show it.
            let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
        }
    }

    /// Serves one request: returns when its time is over, never earlier.
    #[inline]
    pub(super) fn serve(&mut self) {
        if let Some(before) = &mut self.before {
            before();
        }
        match &mut self.service {
            Timed::None => {}
            Timed::Spin(times) => clock::keep_busy(times.draw(), |_, _| {}),
            Timed::Wait(times) => {
                let end = clock::now() + times.draw();
                sleep_until(end);
            }
        }
    }
}

fn sleep_until(end: Monotonic) {
    let ns = end.nanos_since_boot();
    let request = Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    // absolute, so that a signal in between changes nothing
    while clock_nanosleep_absolute(ClockId::Monotonic, &request) == Err(rustix::io::Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use taillab_model::Nanos;

    use super::*;

    #[test]
    fn text_is_read_and_written_back() {
        for text in ["none", "spin:exponential:50us", "wait:lognormal:1ms,cv=2"] {
            assert_eq!(text.parse::<ServiceTime>().unwrap().to_string(), text);
        }
        for (text, says) in [
            ("burn:exponential:50us", "spin:DIST"),
            ("spin", "spin:exponential:50us"),
            ("exponential:50us", "wait:DIST"),
            ("spin:exponential", "lacks `mean`"),
            ("wait:normal:1ms", "exponential:50us"),
        ] {
            let error = text.parse::<ServiceTime>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    /// Spinning and sleeping last at least as long as the times drawn from the same stream.
    #[test]
    fn service_takes_at_least_the_time_drawn() {
        for text in ["spin:exponential:20us", "wait:exponential:200us"] {
            let service: ServiceTime = text.parse().unwrap();
            let mut work = service.worker(5, 2, None).unwrap();
            work.prepare();
            let (ServiceTime::Spin(law) | ServiceTime::Wait(law)) = &service else {
                panic!("{text}");
            };
            for drawn in law.times(5, 2).unwrap().take(50) {
                let begin = clock::now();
                work.serve();
                assert!(clock::now().saturating_since(begin) >= drawn, "{text}");
            }
        }
    }

    /// While a worker sleeps, its thread uses almost no CPU.
    #[test]
    fn sleeping_leaves_the_cpu_to_others() {
        let cpu = |text: &str| {
            let service: ServiceTime = text.parse().unwrap();
            let mut work = service.worker(1, 0, None).unwrap();
            work.prepare();
            let begin = clock::thread_cpu_time();
            work.serve();
            clock::thread_cpu_time().saturating_sub(begin)
        };
        let time = Nanos::from_millis(20);
        assert!(cpu("wait:deterministic:20ms") < Nanos::new(time.get() / 2));
        assert!(cpu("spin:deterministic:20ms") > Nanos::new(time.get() / 2));
    }
}
