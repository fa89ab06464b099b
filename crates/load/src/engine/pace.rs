//! The speed of a schedule, so that a load can follow the capacity of a server.
//!
//! The schedule is drawn for one rate. Its time runs faster or slower than the clock, at a speed
//! that is fixed for half a second at a time. A Poisson process stays one: its rate is that of the
//! schedule times the speed, and in the schedule's time ([`Pace::planned`]) it is as it was drawn.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use taillab_model::Nanos;

/// How long a speed holds.
const SEGMENT: Nanos = Nanos::from_millis(500);

/// The end cannot be put off when it is nearer than this: a thread may have reached it.
const TOO_LATE: Nanos = Nanos::from_millis(50);

/// The speed of a schedule, and its end. Any thread may change both while others send.
#[derive(Debug)]
pub struct Pace {
    warm_up: Nanos,
    /// Nothing that is due later is sent.
    end_ns: AtomicU64,
    latest_end: Nanos,
    /// The speed of segments that no thread has entered yet, as the bits of an `f64`.
    wanted: AtomicU64,
    /// The speed of each segment, fixed by the first thread that enters it; 0 until then.
    speeds: Box<[AtomicU64]>,
}

impl Pace {
    /// A pace with speed 1. The times count from the start of the schedule: the end of the warm-up,
    /// the end, and the latest time to which the end can be put off.
    pub fn new(warm_up: Nanos, end: Nanos, latest_end: Nanos) -> Self {
        let segments = latest_end.get().div_ceil(SEGMENT.get()).max(1);
        Self {
            warm_up,
            end_ns: AtomicU64::new(end.get()),
            latest_end,
            wanted: AtomicU64::new(1.0_f64.to_bits()),
            speeds: (0..segments).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The length of the schedule that may be needed at speed 1: up to the latest end.
    pub fn longest(&self) -> Nanos {
        self.latest_end
    }

    /// When the measurement begins, from the start.
    pub fn warm_up(&self) -> Nanos {
        self.warm_up
    }

    /// When the measurement ends, from the start.
    pub fn end(&self) -> Nanos {
        Nanos::new(self.end_ns.load(Relaxed))
    }

    /// Sets the speed from the next segment on; ignores anything but a positive number.
    pub fn set_speed(&self, speed: f64) {
        if speed.is_finite() && speed > 0.0 {
            self.wanted.store(speed.to_bits(), Relaxed);
        }
    }

    /// Puts the end off, at most to the latest end. Does nothing unless `now`, counted from the
    /// start, is well before the current end.
    pub fn put_off_to(&self, end: Nanos, now: Nanos) {
        let current = self.end();
        if now + TOO_LATE < current {
            let end = end.min(self.latest_end).max(current);
            self.end_ns.store(end.get(), Relaxed);
        }
    }

    /// The schedule's time at `at`, counted from the start. This enters all segments up to `at`: one
    /// that no thread has entered yet gets the speed set last, and keeps it.
    pub fn planned(&self, at: Nanos) -> Nanos {
        Walk::new(self).planned(at)
    }

    /// [`Self::planned`] for many times from the start, in ascending order.
    pub fn planned_all(&self, times: impl Iterator<Item = Nanos>) -> impl Iterator<Item = Nanos> {
        let mut walk = Walk::new(self);
        times.map(move |at| walk.planned(at))
    }

    fn speed(&self, segment: usize) -> f64 {
        let wanted = self.wanted.load(Relaxed);
        let fixed = self.speeds[segment].compare_exchange(0, wanted, Relaxed, Relaxed);
        f64::from_bits(fixed.map_or_else(|fixed| fixed, |_| wanted))
    }
}

/// A walk through the segments of a [`Pace`]. All threads compute the same times.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    pace: &'a Pace,
    segment: usize,
    speed: f64,
    /// The schedule's time at which the segment begins.
    from: Nanos,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(pace: &'a Pace) -> Self {
        Self {
            pace,
            segment: 0,
            speed: pace.speed(0),
            from: Nanos::ZERO,
        }
    }

    /// When a request is due that the schedule has at `planned`, counted from the start. Must be
    /// called with ascending times.
    #[inline]
    pub(crate) fn due(&mut self, planned: Nanos) -> Nanos {
        while planned >= self.until_planned() && self.enter_next() {}
        self.begins() + scaled(planned.saturating_sub(self.from), 1.0 / self.speed)
    }

    pub(crate) fn pace(&self) -> &'a Pace {
        self.pace
    }

    /// The inverse of [`Self::due`]; also in ascending order.
    fn planned(&mut self, at: Nanos) -> Nanos {
        while at >= self.begins() + SEGMENT && self.enter_next() {}
        self.from + scaled(at.saturating_sub(self.begins()), self.speed)
    }

    fn begins(&self) -> Nanos {
        Nanos::new(self.segment as u64 * SEGMENT.get())
    }

    fn until_planned(&self) -> Nanos {
        self.from + scaled(SEGMENT, self.speed)
    }

    /// Enters the next segment, unless this is the last one.
    fn enter_next(&mut self) -> bool {
        let is_there = self.segment + 1 < self.pace.speeds.len();
        if is_there {
            self.from = self.until_planned();
            self.segment += 1;
            self.speed = self.pace.speed(self.segment);
        }
        is_there
    }
}

fn scaled(time: Nanos, by: f64) -> Nanos {
    Nanos::new((time.get() as f64 * by).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = Nanos::from_secs(1);

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn at_the_speed_1_the_schedule_is_the_clock() {
        let pace = Pace::new(Nanos::ZERO, S, S);
        let mut walk = Walk::new(&pace);
        for at in [0, 1, 499, 500, 501, 999, 5_000] {
            assert_eq!(walk.due(ms(at)), ms(at));
            assert_eq!(pace.planned(ms(at)), ms(at));
        }
    }

    /// By hand: half a second at speed 1, then at 2, where a second of the schedule takes half a second.
    #[test]
    fn a_speed_holds_from_the_next_segment_on() {
        let pace = Pace::new(Nanos::ZERO, S * 2, S * 2);
        let mut walk = Walk::new(&pace);
        assert_eq!(walk.due(ms(100)), ms(100));
        pace.set_speed(2.0);
        assert_eq!(walk.due(ms(400)), ms(400));
        assert_eq!(walk.due(ms(500)), ms(500));
        assert_eq!(walk.due(ms(1_100)), ms(800));
        pace.set_speed(0.5);
        assert_eq!(walk.due(ms(1_499)), Nanos::from_micros(999_500));
        assert_eq!(walk.due(ms(1_500)), ms(1_000));
        assert_eq!(walk.due(ms(1_600)), ms(1_200));
    }

    /// A thread that is a segment ahead of another one computes the same times.
    #[test]
    fn the_first_to_enter_a_segment_fixes_its_speed() {
        let pace = Pace::new(Nanos::ZERO, S * 2, S * 2);
        let (mut ahead, mut behind) = (Walk::new(&pace), Walk::new(&pace));
        pace.set_speed(1.5);
        let first = ahead.due(ms(600));
        pace.set_speed(0.7);
        assert_eq!(behind.due(ms(600)), first);
        assert_eq!(behind.due(ms(5_000)), ahead.due(ms(5_000)));
    }

    #[test]
    fn planned_is_the_inverse_of_due() {
        let pace = Pace::new(Nanos::ZERO, S * 3, S * 3);
        let mut walk = Walk::new(&pace);
        let planned: Vec<Nanos> = (0..3_000).map(ms).collect();
        let due: Vec<Nanos> = (planned.iter())
            .map(|at| {
                pace.set_speed(0.5 + at.as_secs_f64().fract());
                walk.due(*at)
            })
            .collect();
        assert!(due.is_sorted());
        let back: Vec<Nanos> = pace.planned_all(due.iter().copied()).collect();
        for ((planned, due), back) in planned.iter().zip(&due).zip(back) {
            let off = planned
                .saturating_sub(back)
                .max(back.saturating_sub(*planned));
            assert!(off <= Nanos::new(2), "{planned} {back}");
            assert_eq!(pace.planned(*due), back);
        }
    }

    #[test]
    fn the_end_is_put_off_in_time_and_within_bounds() {
        let pace = Pace::new(Nanos::ZERO, S, S * 2);
        pace.put_off_to(ms(1_200), ms(940));
        assert_eq!(pace.end(), ms(1_200));
        pace.put_off_to(ms(1_100), ms(940));
        assert_eq!(pace.end(), ms(1_200));
        pace.put_off_to(ms(1_500), ms(1_160));
        assert_eq!(pace.end(), ms(1_200));
        pace.put_off_to(S * 9, S);
        assert_eq!(pace.end(), S * 2);
    }

    #[test]
    fn nonsense_is_no_speed() {
        let pace = Pace::new(Nanos::ZERO, S, S);
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            pace.set_speed(speed);
        }
        assert_eq!(Walk::new(&pace).due(ms(700)), ms(700));
    }
}
