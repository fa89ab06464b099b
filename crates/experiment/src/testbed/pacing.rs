//! A load given as utilisation follows the capacity as it changes.
//!
//! On a virtual machine the capacity of a server can change by a third from one minute to the next. A
//! saturated server also answers more requests per unit of CPU time than an unsaturated one. So 75 % of the
//! calibrated peak may be 60 or 96 % of the CPU. Every half second the capacity is therefore estimated
//! again, from the requests answered for each second of CPU time.

use taillab_host::{CpuSet, Roots};
use taillab_load::{FleetProgress, Pace};
use taillab_model::summary::{LoadSegment, MAX_CUT_SHARE};
use taillab_model::{Monotonic, Nanos};
use taillab_simulator::simulation::Precision;

use super::accounts::Accounts;
use super::precision::Watched;

/// Window of the capacity estimate: long compared with the life of a queue, short compared with a minute.
const WINDOW: Nanos = Nanos::from_secs(4);

/// The shortest window that gives an estimate: the kernel counts CPU time in ticks.
const SHORTEST: Nanos = Nanos::from_secs(1);

/// Length of the segments that the result shows.
const SEGMENT: Nanos = Nanos::from_secs(2);

/// The rate is never lowered below this share of the first one.
const SLOWEST: f64 = 0.5;

/// A server that waits for something other than the CPU never reaches the wanted CPU use. So the rate is
/// not raised by more than this factor, nor beyond [`MOST_OF_THE_PEAK`].
const FASTEST: f64 = 1.25;
const MOST_OF_THE_PEAK: f64 = 0.95;

/// This much time is added whenever a percentile is not known well enough.
const STEP: Nanos = Nanos::from_secs(4);

/// The decision to add time is made this long before the end.
const BEFORE_THE_END: Nanos = Nanos::from_secs(2);

/// This many seconds are added for each second that the generator was held up, because the queue that
/// builds up meanwhile is no part of what arrivals on schedule saw either.
const MADE_UP: u64 = 2;

/// What the generator's threads have sent so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sends {
    sent: u64,
    /// Of these, so many were late.
    late: u64,
    /// For how long nothing was sent though something was due.
    held_up: Nanos,
}

impl Sends {
    fn of(progress: &FleetProgress) -> Self {
        Self {
            sent: progress.sent(),
            late: progress.late(),
            held_up: progress.held_up(),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            late: self.late.saturating_sub(before.late),
            held_up: self.held_up.saturating_sub(before.held_up),
        }
    }

    /// Whether a longer measurement says more about arrivals on schedule. Where more sends are late than may be left
    /// out, nothing is said of them at all: the rate is too high, or other programs have the generator's CPU, and more
    /// time would be like the rest. To be late counts, and not to be held up: one that is held up half of the time is
    /// late for nearly all of it, because it catches up in the other half.
    fn are_worth_more_time(self) -> bool {
        self.late as f64 <= self.sent as f64 * MAX_CUT_SHARE
    }
}

/// The targets of a load that follows the server's capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Following {
    /// The first rate in requests per second, for which the schedule is drawn.
    pub first_per_s: f64,
    /// This rate as a share of the peak with the probe.
    pub of_peak: f64,
    /// The share of the server's CPUs that the load should use.
    pub busy_share: f64,
}

impl Following {
    /// The speed of the schedule at which the CPUs are used as wanted, if `answered_per_s` use
    /// `busy_share` of them.
    fn speed(&self, answered_per_s: f64, busy_share: f64) -> Option<f64> {
        let per_s = self.busy_share * answered_per_s / busy_share;
        let fastest = FASTEST.min(MOST_OF_THE_PEAK / self.of_peak).max(1.0);
        let speed = per_s / self.first_per_s;
        (speed.is_finite() && speed > 0.0).then(|| speed.clamp(SLOWEST, fastest))
    }
}

/// Watches the server, and sets the pace.
pub struct Follower<'a> {
    following: Option<Following>,
    pace: &'a Pace,
    roots: Roots,
    /// The server's.
    cpus: CpuSet,
    /// The server's.
    processes: Vec<u32>,
    /// The requested end, counted from the beginning of the load.
    end: Nanos,
    /// The last time at which no request had been sent yet: the load began no earlier.
    began: Option<Monotonic>,
    /// What the generator sent before the measurement.
    sent_before: Option<Sends>,
    /// The percentile that decides how long the measurement lasts.
    watched: Option<Watched>,
    looks: Vec<Look>,
}

/// A sample of the load's progress and of the CPU counters.
struct Look {
    at: Monotonic,
    answered: u64,
    accounts: Accounts,
}

impl<'a> Follower<'a> {
    /// Without `following`, the rate stays constant. In any case the end is put off to make up for the
    /// generator's stalls, and until a percentile is known as precisely as `wanted`.
    pub fn new(
        (following, wanted): (Option<Following>, Option<Precision>),
        pace: &'a Pace,
        (roots, cpus, processes): (&Roots, &CpuSet, Vec<u32>),
    ) -> Self {
        Self {
            following,
            pace,
            roots: roots.clone(),
            cpus: cpus.clone(),
            processes,
            end: pace.end(),
            began: None,
            sent_before: None,
            watched: wanted.map(Watched::new),
            looks: Vec::new(),
        }
    }

    /// Call this about twice a second while the load runs.
    pub fn look(&mut self, now: Monotonic, progress: &FleetProgress) {
        let began = *self.began.get_or_insert(now);
        if progress.sent() == 0 {
            self.began = Some(now);
            return;
        }
        let since = now.saturating_since(began);
        if since >= self.pace.warm_up() {
            self.make_up(since, Sends::of(progress));
            self.go_on(since, now, progress);
        }
        let Some(following) = self.following else {
            return;
        };
        let Ok(accounts) = Accounts::take(&self.roots, &self.processes) else {
            return;
        };
        self.looks.push(Look {
            at: now,
            answered: progress.received(),
            accounts,
        });
        let in_window = |look: &Look| now.saturating_since(look.at) <= WINDOW;
        let first = self.looks.iter().position(in_window).unwrap_or(0);
        let newest = self.looks.len() - 1;
        if let Some(segment) = self.between(first, newest)
            && segment.length_ns >= SHORTEST
            && let Some(speed) = following.speed(segment.rate_per_s, segment.busy_share)
        {
            self.pace.set_speed(speed);
        }
    }

    /// Puts the end off to make up for the generator's stalls.
    fn make_up(&mut self, since: Nanos, sends: Sends) {
        let before = *self.sent_before.get_or_insert(sends);
        let measured = sends.since(before);
        if measured.are_worth_more_time() {
            let end = self.end + measured.held_up * MADE_UP;
            self.pace.put_off_to(end, since);
        }
    }

    /// Puts the end off until the percentile is known as precisely as wanted.
    fn go_on(&mut self, since: Nanos, now: Monotonic, progress: &FleetProgress) {
        let Some(watched) = &mut self.watched else {
            return;
        };
        watched.look(now, progress);
        if since + BEFORE_THE_END >= self.pace.end() && !watched.is_known() {
            self.pace.put_off_to(since + STEP, since);
        }
    }

    /// The server's rate and CPU use between two samples.
    fn between(&self, first: usize, last: usize) -> Option<LoadSegment> {
        let (first, last) = (self.looks.get(first)?, self.looks.get(last)?);
        let shares = last.accounts.shares_since(&first.accounts, &self.cpus)?;
        let length = last.at.saturating_since(first.at);
        let answered = last.answered.saturating_sub(first.answered);
        let began = self.began? + self.pace.warm_up();
        let rate_per_s = answered as f64 / length.as_secs_f64();
        let known = length > Nanos::ZERO && answered > 0 && shares.busy > 0.0;
        known.then(|| LoadSegment {
            from_ns: first.at.saturating_since(began),
            length_ns: length,
            rate_per_s,
            busy_share: shares.busy,
            capacity_per_s: rate_per_s / shares.busy,
        })
    }

    /// The segments of the measurement in order; none if the rate was constant.
    pub fn segments(&self) -> Vec<LoadSegment> {
        let Some(began) = self.began else {
            return Vec::new();
        };
        let measured_from = began + self.pace.warm_up();
        let is_measured = |look: &Look| look.at >= measured_from;
        let Some(begin) = self.looks.iter().position(is_measured) else {
            return Vec::new();
        };
        let mut segments = Vec::new();
        let mut first = begin;
        for (last, look) in self.looks.iter().enumerate().skip(begin) {
            if look.at.saturating_since(self.looks[first].at) >= SEGMENT {
                segments.extend(self.between(first, last));
                first = last;
            }
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLLOWING: Following = Following {
        first_per_s: 30_000.0,
        of_peak: 0.75,
        busy_share: 0.75,
    };

    #[test]
    fn the_speed_is_what_uses_the_cpus_as_wanted() {
        // as calibrated
        assert_eq!(FOLLOWING.speed(30_000.0, 0.75), Some(1.0));
        // each request takes a quarter more
        assert_eq!(FOLLOWING.speed(30_000.0, 0.9375), Some(0.8));
        // the same after the rate has been lowered
        assert_eq!(FOLLOWING.speed(24_000.0, 0.75), Some(0.8));
    }

    #[test]
    fn the_speed_has_bounds() {
        assert_eq!(FOLLOWING.speed(3_000.0, 1.0), Some(0.5));
        // a server that waits for something other than its CPU
        assert_eq!(FOLLOWING.speed(30_000.0, 0.1), Some(1.25));
        let near_the_peak = Following {
            first_per_s: 36_000.0,
            of_peak: 0.9,
            busy_share: 0.9,
        };
        let most = near_the_peak.speed(36_000.0, 0.1).unwrap();
        assert!((most - 0.95 / 0.9).abs() < 1e-9);
        let above = Following {
            of_peak: 1.2,
            ..near_the_peak
        };
        assert_eq!(above.speed(36_000.0, 0.1), Some(1.0));
    }

    /// A measurement from 2 s to 6 s, and at most to 42 s, at 40,000/s, on virtual time: in each half second this
    /// share of the sends is late, and for this share of it nothing is sent. Returns the end.
    fn ends(late: f64, held_up: f64) -> Nanos {
        let (warm_up, asked) = (Nanos::from_secs(2), Nanos::from_secs(6));
        let pace = Pace::new(warm_up, asked, Nanos::from_secs(42));
        let (roots, cpus) = (Roots::default(), CpuSet::single(0));
        let mut follower = Follower::new((None, None), &pace, (&roots, &cpus, vec![]));
        let half = Nanos::from_millis(500);
        let mut now = warm_up;
        // what the warm-up was like does not matter
        let mut sends = Sends {
            sent: 80_000,
            late: 80_000,
            held_up: Nanos::from_secs(1),
        };
        while now < pace.end() {
            follower.make_up(now, sends);
            now += half;
            sends.sent += 20_000;
            sends.late += (late * 20_000.0) as u64;
            sends.held_up += Nanos::new((held_up * half.get() as f64) as u64);
        }
        pace.end()
    }

    #[test]
    fn the_end_is_put_off_for_stalls_and_not_for_a_generator_that_cannot_keep_the_schedule() {
        let asked = Nanos::from_secs(6);
        assert_eq!(ends(0.0, 0.0), asked);
        let stalled = ends(0.15, 0.1);
        assert!(
            stalled > asked && stalled < asked + Nanos::from_secs(2),
            "{stalled}"
        );
        // beside a compiler: it has the CPU for half of the time, and 97 % of the schedule was missed
        assert_eq!(ends(0.85, 0.49), asked);
        // a rate that is too high
        assert_eq!(ends(1.0, 0.9), asked);
    }

    #[test]
    fn what_says_nothing_changes_nothing() {
        assert_eq!(FOLLOWING.speed(0.0, 0.5), None);
        assert_eq!(FOLLOWING.speed(0.0, 0.0), None);
        assert_eq!(FOLLOWING.speed(1.0, 0.0), None);
    }
}
