//! How fast the server's CPUs worked: whether the same work took longer at times.
//!
//! A request needs two kinds of work on its core that have little to do with each other: the
//! application's, between read and write (T4 to T5), and the kernel's, to send the response (T5 to T6).
//! If both take longer for a while, even for the cheapest quarter of the requests, and no fewer
//! requests come than usual, the CPU is slower: because of its frequency, the other thread of its core,
//! shared caches and memory, or a hypervisor that takes it for times too short to be seen. If the
//! server itself did more for each request, the kernel's work would not change; and a disturbance of
//! some requests would not change the others.
//!
//! All CPUs have one pace, since requests do not say on which of them they were served. So one slow CPU of
//! several is not found, unless it serves more than three quarters of the requests: the cheapest quarter is
//! that of the others. Its longer services are then `slow_service`.

use taillab_model::Nanos;

use crate::matched::Matched;

/// The length that is compared: long enough for hundreds of requests, short compared with a spell.
const STRETCH: Nanos = Nanos::from_millis(100);

/// About this many requests of a stretch are examined.
const SAMPLE: usize = 256;

/// A stretch with fewer requests is ignored.
const FEWEST: usize = 32;

/// If fewer requests come than this share of the usual number, caches are cold and power states deep.
const AS_BUSY: f64 = 0.8;

/// A smaller factor can be due to load or chance.
const LEAST: f64 = 1.15;

/// The pace of work in a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paces {
    /// The lower quartile of T4 to T5, in nanoseconds.
    application_ns: u64,
    /// The lower quartile of T5 to T6.
    sending_ns: u64,
    /// Requests that came per second. A stretch may be cut by the end of a window.
    per_s: u64,
}

impl Paces {
    /// What is usual in these requests: of each figure the lower quartile over the stretches;
    /// zero where it is not known.
    pub(crate) fn usual(matched: &Matched) -> Self {
        let stretches: Vec<Self> = stretches(matched).map(|(_, paces)| paces).collect();
        let quartile = |of: fn(&Self) -> u64| {
            let mut values: Vec<u64> = stretches.iter().map(of).collect();
            lower_quartile(&mut values).unwrap_or(0)
        };
        Self {
            application_ns: quartile(|paces| paces.application_ns),
            sending_ns: quartile(|paces| paces.sending_ns),
            per_s: quartile(|paces| paces.per_s),
        }
    }

    /// By which factor all work took longer than usual; `None` if it did not.
    fn slower_than(&self, usual: &Self) -> Option<f64> {
        let ratio = |of: fn(&Self) -> u64| match (of(self), of(usual)) {
            (_, 0) => 1.0,
            (this, usual) => this as f64 / usual as f64,
        };
        let factor = ratio(|paces| paces.application_ns).min(ratio(|paces| paces.sending_ns));
        let as_busy = self.per_s as f64 >= AS_BUSY * usual.per_s as f64;
        (as_busy && factor >= LEAST).then_some(factor)
    }
}

/// When the CPUs were slower than usual.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speed {
    /// The numbers of the stretches since boot, ascending, with the factor.
    slower: Vec<(u64, f64)>,
}

impl Speed {
    /// From the requests of a window, compared with what is usual.
    pub(crate) fn of(matched: &Matched, usual: &Paces) -> Self {
        let slower = stretches(matched)
            .filter_map(|(number, paces)| Some((number, paces.slower_than(usual)?)));
        Self {
            slower: slower.collect(),
        }
    }

    /// The CPUs are slower by these factors in the stretches of 100 ms with these numbers.
    #[cfg(test)]
    pub(crate) const fn slower(slower: Vec<(u64, f64)>) -> Self {
        Self { slower }
    }

    /// Adds the next window.
    pub(crate) fn append(&mut self, next: &Self) {
        self.slower.extend_from_slice(&next.slower);
    }

    /// Whether the CPUs were never slower.
    pub(crate) const fn is_always_usual(&self) -> bool {
        self.slower.is_empty()
    }

    /// By which factor all work takes longer than usual at `at_ns`, in nanoseconds since boot.
    #[inline]
    fn factor(&self, at_ns: u64) -> Option<f64> {
        if self.slower.is_empty() {
            return None;
        }
        let number = at_ns / STRETCH.get();
        let place = self
            .slower
            .binary_search_by_key(&number, |(number, _)| *number);
        place.ok().map(|place| self.slower[place].1)
    }

    /// How much longer work takes at `at_ns` that usually takes `usual_ns`, in nanoseconds.
    #[inline]
    pub(crate) fn longer_ns(&self, at_ns: u64, usual_ns: u64) -> u64 {
        self.factor(at_ns)
            .map_or(0, |factor| (usual_ns as f64 * (factor - 1.0)) as u64)
    }

    /// How much shorter work would usually have been that took `length_ns` at `at_ns`, in nanoseconds.
    #[inline]
    pub(crate) fn shorter_ns(&self, at_ns: u64, length_ns: u64) -> u64 {
        self.factor(at_ns)
            .map_or(0, |factor| (length_ns as f64 * (1.0 - 1.0 / factor)) as u64)
    }
}

/// The stretches with enough requests, by number.
fn stretches(matched: &Matched) -> impl Iterator<Item = (u64, Paces)> {
    let requests = &matched.requests;
    let number = |place: usize| requests.t1(place).nanos_since_boot() / STRETCH.get();
    let mut first = 0;
    std::iter::from_fn(move || {
        if first >= requests.len() {
            return None;
        }
        let this = number(first);
        let end_ns = (this + 1).saturating_mul(STRETCH.get());
        let end = requests.first_from(taillab_model::Monotonic::from_nanos_since_boot(end_ns));
        let places = first..end;
        first = end.max(first + 1);
        Some((this, places))
    })
    .filter_map(move |(this, places)| {
        let (first, last) = (requests.t1(places.start), requests.t1(places.end - 1));
        let gaps = places.len() as u64 - 1;
        let per_s = gaps * 1_000_000_000 / last.saturating_since(first).get().max(1);
        let step = (places.len() / SAMPLE).max(1);
        let (mut application, mut sending) = (Vec::new(), Vec::new());
        for place in places.step_by(step) {
            let stamps = requests.stamps(place);
            if let (Some(t4), Some(t5)) = (stamps.t4, stamps.t5) {
                application.push(t5.saturating_since(t4).get());
                sending.push(stamps.t6.saturating_since(t5).get());
            }
        }
        let enough = application.len() >= FEWEST;
        let paces = Paces {
            application_ns: lower_quartile(&mut application)?,
            sending_ns: lower_quartile(&mut sending)?,
            per_s,
        };
        enough.then_some((this, paces))
    })
}

fn lower_quartile(values: &mut [u64]) -> Option<u64> {
    let place = values.len() / 4;
    (!values.is_empty()).then(|| *values.select_nth_unstable(place).1)
}

#[cfg(test)]
mod tests {
    use taillab_model::{Monotonic, Stamps};

    use super::*;

    /// Five seconds of requests, 100 µs apart. In the third second they come `sparser` times less often,
    /// and application and sending take `application` and `sending` times as long as their usual 8 and 4
    /// µs.
    fn requests(application: f64, sending: f64, sparser: u64) -> Matched {
        let mut matched = Matched::default();
        let mut at_us = 0;
        while at_us < 5_000_000 {
            let in_it = (2_000_000..3_000_000).contains(&at_us);
            let times = |usual_ns: f64, factor: f64| {
                let chance = (at_us * 7_919 % 1_000) as f64;
                Nanos::new((usual_ns * if in_it { factor } else { 1.0 } + chance) as u64)
            };
            let t1 = Monotonic::from_nanos_since_boot(at_us * 1_000);
            let t4 = t1 + Nanos::from_micros(5);
            let t5 = t4 + times(8_000.0, application);
            let middle = [None, None, Some(t4), Some(t5)];
            let stamps = Stamps::new(t1, middle, t5 + times(4_000.0, sending));
            matched.requests.push_stamps(stamps);
            at_us += 100 * if in_it { sparser } else { 1 };
        }
        matched
    }

    fn slower(matched: &Matched) -> Vec<(u64, f64)> {
        Speed::of(matched, &Paces::usual(matched)).slower
    }

    #[test]
    fn a_cpu_is_slower_where_all_work_takes_longer() {
        let found = slower(&requests(1.5, 1.6, 1));
        let numbers: Vec<u64> = found.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (20..30).collect::<Vec<u64>>());
        assert!(found.iter().all(|(_, factor)| (1.4..1.5).contains(factor)));
        let speed = Speed { slower: found };
        let longer = speed.longer_ns(2_450_000_000, 10_000);
        assert!((4_000..5_000).contains(&longer), "{longer}");
        assert_eq!(speed.shorter_ns(2_450_000_000, 10_000 + longer), longer);
        assert_eq!(speed.longer_ns(3_050_000_000, 10_000), 0);
        assert_eq!(speed.shorter_ns(3_050_000_000, 10_000), 0);
    }

    #[test]
    fn a_server_that_does_more_is_no_slow_cpu() {
        assert_eq!(slower(&requests(3.0, 1.0, 1)), []);
        assert_eq!(slower(&requests(1.0, 3.0, 1)), []);
        assert_eq!(slower(&requests(1.1, 1.1, 1)), []);
    }

    #[test]
    fn cold_caches_of_a_quieter_server_are_no_slow_cpu() {
        assert_eq!(slower(&requests(1.5, 1.5, 2)), []);
    }

    #[test]
    fn without_stamps_in_the_middle_nothing_is_said() {
        let mut matched = Matched::default();
        for at_us in (0..1_000_000).step_by(100) {
            let t1 = Monotonic::from_nanos_since_boot(at_us * 1_000);
            let stamps = Stamps::new(t1, [None; 4], t1 + Nanos::from_micros(20));
            matched.requests.push_stamps(stamps);
        }
        assert_eq!(Paces::usual(&matched), Paces::default());
        assert_eq!(slower(&matched), []);
    }
}
