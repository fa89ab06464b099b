//! When a worker cannot work, because of a background process, an interrupt or a sleep.

use taillab_model::Nanos;

/// A vacation: an interval in which a worker does not work. A request in service resumes afterwards.
///
/// Times count from the start of the replay, or of each replication of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The worker, from 0; `None` for all of them.
    pub worker: Option<u32>,
    /// When it begins.
    pub from: Nanos,
    /// When it ends, after `from`.
    pub to: Nanos,
    /// The period with which it repeats, if it does; longer than the interval.
    pub every: Option<Nanos>,
}

/// The vacations of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vacations {
    /// Sorted, without overlaps.
    once: Vec<(f64, f64)>,
    /// (first start, length, period)
    periodic: Vec<(f64, f64, f64)>,
}

impl Vacations {
    /// The vacations of worker `worker`.
    pub(crate) fn of(worker: usize, all: &[Unavailable]) -> Self {
        let mut vacations = Self::default();
        let ns = |t: Nanos| t.get() as f64;
        for u in all {
            if u.worker.is_some_and(|w| w as usize != worker) {
                continue;
            }
            match u.every {
                Some(every) => {
                    vacations
                        .periodic
                        .push((ns(u.from), ns(u.to) - ns(u.from), ns(every)));
                }
                None => vacations.once.push((ns(u.from), ns(u.to))),
            }
        }
        vacations.once.sort_by(|a, b| a.0.total_cmp(&b.0));
        vacations.once.dedup_by(|later, earlier| {
            let joined = later.0 <= earlier.1;
            if joined {
                earlier.1 = earlier.1.max(later.1);
            }
            joined
        });
        vacations
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.once.is_empty() && self.periodic.is_empty()
    }

    /// The first time from `t` on at which the worker can work.
    pub(crate) fn ready(&self, t: f64) -> f64 {
        if self.is_empty() {
            return t;
        }
        let mut ready = t;
        loop {
            let before = ready;
            let i = self.once.partition_point(|(_, to)| *to <= ready);
            if let Some((from, to)) = self.once.get(i)
                && *from <= ready
            {
                ready = *to;
            }
            for (first, length, period) in &self.periodic {
                if ready >= *first {
                    let phase = (ready - first) % period;
                    if phase < *length {
                        ready += length - phase;
                    }
                }
            }
            if ready == before || !ready.is_finite() {
                return ready;
            }
        }
    }

    /// The first start of a vacation after `t`.
    fn next_start(&self, t: f64) -> f64 {
        let i = self.once.partition_point(|(from, _)| *from <= t);
        let once = self.once.get(i).map_or(f64::INFINITY, |(from, _)| *from);
        self.periodic.iter().fold(once, |next, (first, _, period)| {
            let start = if t < *first {
                *first
            } else {
                let phase = (t - first) % period;
                t - phase + period
            };
            next.min(start)
        })
    }

    /// When `work` that begins at `start` is done, including vacations.
    pub(crate) fn finish(&self, start: f64, work: f64) -> f64 {
        if self.is_empty() {
            return start + work;
        }
        let (mut now, mut left) = (self.ready(start), work);
        loop {
            let until = self.next_start(now);
            if now + left <= until {
                return now + left;
            }
            left -= until - now;
            now = self.ready(until);
        }
    }

    /// Moves the origin of time forward.
    pub(crate) fn rebase(&mut self, by: f64) {
        for (from, to) in &mut self.once {
            *from -= by;
            *to -= by;
        }
        for (first, _, _) in &mut self.periodic {
            *first -= by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn once(from: u64, to: u64) -> Unavailable {
        Unavailable {
            worker: None,
            from: Nanos::new(from),
            to: Nanos::new(to),
            every: None,
        }
    }

    #[test]
    fn work_stops_during_a_vacation_and_resumes() {
        let periodic = Unavailable {
            every: Some(Nanos::new(100)),
            ..once(1_000, 1_010)
        };
        let vacations = Vacations::of(0, &[once(10, 20), once(15, 30), periodic]);
        assert_eq!(vacations.ready(5.0), 5.0);
        assert_eq!(vacations.ready(12.0), 30.0);
        assert_eq!(vacations.finish(5.0, 5.0), 10.0);
        assert_eq!(vacations.finish(5.0, 6.0), 31.0);
        assert_eq!(vacations.ready(1_205.0), 1_210.0);
        assert_eq!(vacations.finish(1_010.0, 200.0), 1_230.0);
    }

    #[test]
    fn another_workers_vacation_does_not_count() {
        let other = Unavailable {
            worker: Some(1),
            ..once(0, 50)
        };
        assert!(Vacations::of(0, &[other]).is_empty());
        assert!(!Vacations::of(1, &[other]).is_empty());
    }

    proptest! {
        /// Nanosecond by nanosecond, the obvious way.
        #[test]
        fn finishing_agrees_with_counting(
            intervals in prop::collection::vec((0_u64..200, 1_u64..20, prop::option::of(21_u64..60)), 0..5),
            start in 0_u64..200,
            work in 1_u64..50,
        ) {
            let all: Vec<Unavailable> = intervals
                .iter()
                .map(|(from, length, every)| Unavailable {
                    every: every.map(Nanos::new),
                    ..once(*from, from + length)
                })
                .collect();
            let absent = |t: u64| intervals.iter().any(|(from, length, every)| {
                t >= *from && every.map_or(t - from, |e| (t - from) % e) < *length
            });
            // overlapping periodic intervals may leave no time at all: then skip
            prop_assume!((1_000..2_000).filter(|t| !absent(*t)).count() > 100);
            let (mut t, mut left) = (start, work);
            let mut end = t;
            while left > 0 {
                if !absent(t) {
                    left -= 1;
                    end = t + 1;
                }
                t += 1;
            }
            let got = Vacations::of(0, &all).finish(start as f64, work as f64);
            prop_assert_eq!(got, end as f64);
        }
    }
}
