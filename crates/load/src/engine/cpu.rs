//! How the generator's thread used its CPU.

use std::iter::Sum;

use taillab_model::Nanos;
use taillab_model::summary::ClientCost;

/// An empty turn takes one short system call, well under a microsecond. A longer one
/// was interrupted: by the receive softirq, the timer or the hypervisor.
const INTERRUPTED: Nanos = Nanos::new(1_500);

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
    /// The part of `idle` in turns that an interrupt made long.
    pub interrupted: Nanos,
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
            cpu_ns_per_request: self.per_request(busy),
            busy_share: (1.0 - share(spinning + self.asleep)).clamp(0.0, 1.0),
        }
    }

    /// Time of interrupts while the client waited, per request. Together with
    /// [`ClientCost::cpu_ns_per_request`], which contains those during sends and receipts, it is
    /// what keeps the client's CPU from being idle.
    pub fn interrupt_per_request(&self) -> Nanos {
        self.per_request(self.interrupted)
    }

    fn per_request(&self, time: Nanos) -> Nanos {
        Nanos::new(time.get().checked_div(self.requests).unwrap_or(0))
    }

    #[inline]
    pub(super) fn add_idle_turn(&mut self, took: Nanos) {
        self.idle += took;
        if took > INTERRUPTED {
            self.interrupted += took;
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
            interrupted: a.interrupted + b.interrupted,
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
            interrupted: Nanos::new(3_000),
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
        assert_eq!(all.interrupt_per_request(), Nanos::new(150));
        assert_eq!(threads[..1].iter().copied().sum::<CpuUse>(), threads[0]);
    }

    #[test]
    fn spinning_is_not_counted_and_interrupts_are_stated() {
        let mut cpu = CpuUse {
            elapsed: Nanos::new(100_000),
            thread: Nanos::new(60_000),
            asleep: Nanos::new(40_000),
            hook: Nanos::new(1_000),
            requests: 10,
            ..CpuUse::default()
        };
        for took in [400, 500, 9_000, 19_100] {
            cpu.add_idle_turn(Nanos::new(took));
        }
        assert_eq!(cpu.idle, Nanos::new(29_000));
        assert_eq!(cpu.cost().cpu_ns_per_request, Nanos::new(3_000));
        assert!((cpu.cost().busy_share - 0.3).abs() < 1e-9);
        assert_eq!(cpu.interrupt_per_request(), Nanos::new(2_810));
    }

    #[test]
    fn nothing_sent_costs_nothing() {
        let cost = CpuUse::default().cost();
        assert_eq!(cost.cpu_ns_per_request, Nanos::ZERO);
        assert_eq!(CpuUse::default().interrupt_per_request(), Nanos::ZERO);
    }
}
