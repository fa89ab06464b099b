//! How the generator's thread used its CPU.

use std::iter::Sum;

use taillab_model::Nanos;
use taillab_model::summary::ClientCost;

/// How the client thread used its CPU during the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// From the first send of the measurement to the end of sending.
    pub elapsed: Nanos,
    /// The thread's CPU time meanwhile.
    pub thread: Nanos,
    /// Time in turns that neither sent nor received, including interrupts of such turns (the
    /// receive softirq among them).
    pub idle: Nanos,
    /// Time asleep ([`super::Waiting::Hybrid`]), which is not CPU time.
    pub asleep: Nanos,
    /// Time in [`super::Hooks::idle`] and in the client's own work for idle moments.
    pub hook: Nanos,
    /// Requests sent.
    pub requests: u64,
}

impl CpuUse {
    /// CPU time per request and the busy share, both without spinning, hooks and sleep.
    pub fn cost(&self) -> ClientCost {
        let spinning = self.idle + self.hook;
        let busy = self.thread.saturating_sub(spinning);
        let share = |part: Nanos| part.get() as f64 / self.elapsed.get().max(1) as f64;
        ClientCost {
            cpu_ns_per_request: Nanos::new(busy.get().checked_div(self.requests).unwrap_or(0)),
            busy_share: (1.0 - share(spinning + self.asleep)).clamp(0.0, 1.0),
        }
    }
}

impl Sum for CpuUse {
    /// For several threads: [`CpuUse::cost`] is then per request of all threads, and the busy
    /// share is the mean over the threads.
    fn sum<I: Iterator<Item = Self>>(threads: I) -> Self {
        threads.fold(Self::default(), |a, b| Self {
            elapsed: a.elapsed + b.elapsed,
            thread: a.thread + b.thread,
            idle: a.idle + b.idle,
            asleep: a.asleep + b.asleep,
            hook: a.hook + b.hook,
            requests: a.requests + b.requests,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_share_of_several_threads_is_their_mean() {
        let thread = |asleep, requests| CpuUse {
            elapsed: Nanos::new(100_000),
            thread: Nanos::new(100_000 - asleep),
            idle: Nanos::new(10_000),
            asleep: Nanos::new(asleep),
            hook: Nanos::new(5_000),
            requests,
        };
        let threads = [thread(60_000, 10), thread(20_000, 30)];
        let all: CpuUse = threads.iter().copied().sum();
        // 25 % and 65 %
        assert!((all.cost().busy_share - 0.45).abs() < 1e-9);
        // 25 + 65 µs for 40 requests
        assert_eq!(all.cost().cpu_ns_per_request, Nanos::new(2_250));
        assert_eq!(threads[..1].iter().copied().sum::<CpuUse>(), threads[0]);
    }

    #[test]
    fn spinning_is_not_counted() {
        let cpu = CpuUse {
            elapsed: Nanos::new(100_000),
            thread: Nanos::new(60_000),
            idle: Nanos::new(29_000),
            asleep: Nanos::new(40_000),
            hook: Nanos::new(1_000),
            requests: 10,
        };
        assert_eq!(cpu.cost().cpu_ns_per_request, Nanos::new(3_000));
        assert!((cpu.cost().busy_share - 0.3).abs() < 1e-9);
    }

    #[test]
    fn nothing_sent_costs_nothing() {
        let cost = CpuUse::default().cost();
        assert_eq!(cost.cpu_ns_per_request, Nanos::ZERO);
    }
}
