//! Truth against ledger: what was injected, and what it was charged to.
//!
//! The truth says when the server was held back. What that cost each request follows from
//! its T1, T2 and T6 alone, so this shares nothing with the ledger that it judges:
//!
//! - **Held back** ([`delays`]): a worker serves its requests one after the other. Request i
//!   is there from T2_i on; of T1_i to T2_i, r_i lies in injected intervals. It keeps its
//!   worker from max(T2_i, T6_{i−1}) to T6_i, of which o_i does. The rest is its demand d_i,
//!   at most t: more is another disturbance. On a server that nothing else disturbs it ends
//!   at E_i = max(T2_i, E_{i−1}) + d_i + o_i with the injection and at C_i = max(T2_i − r_i,
//!   C_{i−1}) + d_i without (Lindley 1952), so E_i − C_i is the delay, the inherited part of
//!   it included. Of what two disturbances delay only together it claims nothing.
//! - **Order** ([`overtaken`]): whoever serves, the k-th response leaves when it leaves. In
//!   the order of arrival it would have been the k-th request's: T6_i − T6_(k).
//! - **Imbalance** ([`imbalanced`]): the same demands through one queue for all workers.
//! - **Loss** ([`lost`]): from when a packet was dropped to when it came again.

use taillab_model::explanation::{Cause, Culprit};
use taillab_model::truth::{Truth, TruthSource};
use taillab_model::{Monotonic, Nanos, Tid};

/// A request as the server had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// T1.
    pub t1: Monotonic,
    /// T2; T1 where that was not seen.
    pub t2: Monotonic,
    /// T6.
    pub t6: Monotonic,
    /// The thread that served it; 0 where that is not known.
    pub worker: Tid,
}

/// What the ledger says a request's excess consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Charge {
    /// Why.
    pub cause: Cause,
    /// By whom.
    pub culprit: Option<Culprit>,
    /// How much.
    pub excess_ns: u64,
}

/// What became of the delay of one injected cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The cause.
    pub source: TruthSource,
    /// Requests that it delayed.
    pub requests: u64,
    /// Their delay.
    pub injected: Nanos,
    /// What of it the ledger charged to each cause, the right one included; the largest
    /// first.
    pub charged: Vec<(Cause, Nanos)>,
    /// What of it was charged to the right cause and to the right culprit.
    pub culprit: Nanos,
    /// What of it the ledger saw no excess for.
    pub unseen: Nanos,
}

impl Row {
    fn share(&self, part: Nanos) -> f64 {
        match self.injected.get() {
            0 => 0.0,
            all => part.get() as f64 / all as f64,
        }
    }

    /// The share of the delay that is charged to a cause.
    pub fn share_of(&self, cause: Cause) -> f64 {
        let charged = self.charged.iter().find(|(other, _)| *other == cause);
        charged.map_or(0.0, |(_, part)| self.share(*part))
    }

    /// The share of the delay that is charged to the right cause and the right culprit.
    pub fn right_share(&self) -> f64 {
        self.share(self.culprit)
    }

    /// The share of it that no excess was seen for.
    pub fn unseen_share(&self) -> f64 {
        self.share(self.unseen)
    }
}

/// The delay of each request by each of the truth's sources; places as in `spans`.
///
/// `spans` is in any order. Intervals that name a CPU hold back every request, on its way to
/// its worker too; intervals that name a thread hold back those that it serves. `usual` is t:
/// a demand beyond it is not the injection's.
pub fn delays(spans: &[Span], truth: &Truth, usual: Nanos) -> Vec<Vec<Nanos>> {
    (0..truth.sources.len())
        .map(|source| delays_by(spans, truth, source, usual))
        .collect()
}

fn delays_by(spans: &[Span], truth: &Truth, source: usize, usual: Nanos) -> Vec<Nanos> {
    let intervals = |holds: &dyn Fn(Option<Tid>) -> bool| {
        let of = (truth.intervals.iter())
            .filter(|interval| usize::from(interval.source) == source && holds(interval.held));
        let mut of: Vec<(u64, u64)> = of
            .map(|interval| (ns(interval.from_ns), ns(interval.to_ns)))
            .collect();
        of.sort_unstable();
        Busy::of(&of)
    };
    let on_the_way = intervals(&|held| held.is_none());
    let mut delays = vec![Nanos::ZERO; spans.len()];
    for places in by_worker(spans) {
        let worker = places.first().map_or(0, |place| spans[*place].worker);
        let in_service = intervals(&|held| held.is_none_or(|held| held == worker || worker == 0));
        let (mut ended, mut with, mut without) = (0, 0, 0);
        for place in places {
            let span = &spans[place];
            let t6 = ns(span.t6);
            let t2 = ns(span.t2).min(t6);
            let way = on_the_way.within(ns(span.t1).min(t2), t2);
            let begun = t2.max(ended).min(t6);
            let held = in_service.within(begun, t6);
            let demand = (t6 - begun - held).min(usual.get());
            with = t2.max(with) + demand + held;
            without = (t2 - way).max(without) + demand;
            ended = t6;
            delays[place] = Nanos::new(with.saturating_sub(without));
        }
    }
    delays
}

/// Places of the requests of each worker, in the order in which it answered them.
fn by_worker(spans: &[Span]) -> Vec<Vec<usize>> {
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_by_key(|place| (spans[*place].worker, spans[*place].t6));
    places
        .chunk_by(|a, b| spans[*a].worker == spans[*b].worker)
        .map(<[usize]>::to_vec)
        .collect()
}

fn ns(at: Monotonic) -> u64 {
    at.nanos_since_boot()
}

/// Intervals without overlap, and how much of them lies before each.
struct Busy {
    intervals: Vec<(u64, u64)>,
    before: Vec<u64>,
}

impl Busy {
    fn of(sorted: &[(u64, u64)]) -> Self {
        let mut intervals: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
        for &(from, to) in sorted {
            match intervals.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => intervals.push((from, to)),
            }
        }
        let mut sum = 0;
        let before = intervals
            .iter()
            .map(|(from, to)| {
                sum += to - from;
                sum - (to - from)
            })
            .collect();
        Self { intervals, before }
    }

    /// Of the time before `at`, what lies in the intervals.
    fn until(&self, at: u64) -> u64 {
        match self.intervals.partition_point(|(from, _)| *from < at) {
            0 => 0,
            count => {
                let (from, to) = self.intervals[count - 1];
                self.before[count - 1] + at.min(to) - from
            }
        }
    }

    fn within(&self, from: u64, to: u64) -> u64 {
        self.until(to) - self.until(from)
    }
}

/// How much later than in the order of arrival each request was answered.
pub fn overtaken(spans: &[Span]) -> Vec<Nanos> {
    let mut arrivals: Vec<usize> = (0..spans.len()).collect();
    arrivals.sort_by_key(|place| spans[*place].t1);
    let mut departures: Vec<Monotonic> = spans.iter().map(|span| span.t6).collect();
    departures.sort_unstable();
    let mut delays = vec![Nanos::ZERO; spans.len()];
    for (place, departure) in arrivals.into_iter().zip(departures) {
        delays[place] = spans[place].t6.saturating_since(departure);
    }
    delays
}

/// How much later each request was answered than if all workers had had one queue, in the
/// order of arrival, and each request had taken as long as it did.
pub fn imbalanced(spans: &[Span]) -> Vec<Nanos> {
    let mut demands = vec![0; spans.len()];
    let by_worker = by_worker(spans);
    for places in &by_worker {
        let mut ended = 0;
        for place in places {
            let (t1, t6) = (ns(spans[*place].t1), ns(spans[*place].t6));
            demands[*place] = t6 - t1.max(ended).min(t6);
            ended = t6;
        }
    }
    let mut free = vec![0_u64; by_worker.len().max(1)];
    let mut arrivals: Vec<usize> = (0..spans.len()).collect();
    arrivals.sort_by_key(|place| spans[*place].t1);
    let mut delays = vec![Nanos::ZERO; spans.len()];
    for place in arrivals {
        let Some(worker) = free.iter_mut().min() else {
            break;
        };
        *worker = ns(spans[place].t1).max(*worker) + demands[place];
        delays[place] = Nanos::new(ns(spans[place].t6).saturating_sub(*worker));
    }
    delays
}

/// How long each request lay lost, for intervals from when its packet was dropped to when it
/// came again: of the requests that were under way all the while, the one that was answered
/// first after that.
pub fn lost(spans: &[Span], truth: &Truth) -> Vec<Nanos> {
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_by_key(|place| spans[*place].t6);
    let mut delays = vec![Nanos::ZERO; spans.len()];
    for interval in &truth.intervals {
        let after = places.partition_point(|place| spans[*place].t6 < interval.to_ns);
        let mut candidates = places[after..].iter();
        if let Some(place) = candidates.find(|place| spans[**place].t1 <= interval.from_ns) {
            delays[*place] += interval.length();
        }
    }
    delays
}

/// What became of the delay of each source.
///
/// `delays[s][i]` is what source s cost request i, `charges[i]` what the ledger says of it;
/// a request without charges (`None`: warm-up, or not matched) does not count. Of a delay,
/// first the excess charged to the right cause is taken, then the others in proportion,
/// less what the other sources rightly explain.
pub fn confusion(
    sources: &[TruthSource],
    delays: &[Vec<Nanos>],
    charges: &[Option<Vec<Charge>>],
) -> Vec<Row> {
    sources
        .iter()
        .enumerate()
        .map(|(number, source)| {
            let mut tally = Tally::default();
            for (place, charges) in charges.iter().enumerate() {
                let injected = delays[number][place].get();
                let Some(charges) = charges else { continue };
                if injected == 0 {
                    continue;
                }
                let explained = |cause: Cause| -> u64 {
                    let others = sources.iter().zip(delays).enumerate();
                    others
                        .filter(|(other, (of, _))| *other != number && of.cause == cause)
                        .map(|(_, (_, delays))| delays[place].get())
                        .sum()
                };
                tally.add(source, injected, charges, explained);
            }
            tally.row(source)
        })
        .collect()
}

#[derive(Default)]
struct Tally {
    requests: u64,
    injected: u64,
    charged: [u64; Cause::ALL.len()],
    culprit: u64,
    unseen: u64,
}

impl Tally {
    fn add(
        &mut self,
        source: &TruthSource,
        injected: u64,
        charges: &[Charge],
        explained: impl Fn(Cause) -> u64,
    ) {
        self.requests += 1;
        self.injected += injected;
        let mut excess = [0_u64; Cause::ALL.len()];
        let mut of_culprit = 0;
        for charge in charges {
            excess[charge.cause as usize] += charge.excess_ns;
            if charge.cause == source.cause && is_meant(&source.culprit, &charge.culprit) {
                of_culprit += charge.excess_ns;
            }
        }
        let right = injected.min(excess[source.cause as usize]);
        self.charged[source.cause as usize] += right;
        self.culprit += injected.min(of_culprit);
        let left = injected - right;
        excess[source.cause as usize] = 0;
        for cause in Cause::ALL {
            let rest = &mut excess[cause as usize];
            *rest = rest.saturating_sub(explained(cause));
        }
        let others: u64 = excess.iter().sum();
        let taken = left.min(others);
        self.unseen += left - taken;
        if taken > 0 {
            for (charged, other) in self.charged.iter_mut().zip(excess) {
                *charged += (u128::from(taken) * u128::from(other) / u128::from(others)) as u64;
            }
        }
    }

    fn row(self, source: &TruthSource) -> Row {
        let mut charged: Vec<(Cause, Nanos)> = Cause::ALL
            .into_iter()
            .map(|cause| (cause, Nanos::new(self.charged[cause as usize])))
            .filter(|(_, part)| *part > Nanos::ZERO)
            .collect();
        charged.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
        Row {
            source: source.clone(),
            requests: self.requests,
            injected: Nanos::new(self.injected),
            charged,
            culprit: Nanos::new(self.culprit),
            unseen: Nanos::new(self.unseen),
        }
    }
}

/// Whether a culprit is the one that did it, as far as both say who they mean.
fn is_meant(truth: &Option<Culprit>, named: &Option<Culprit>) -> bool {
    let (Some(truth), Some(named)) = (truth, named) else {
        // the truth blames nobody: the cause says it all
        return truth.is_none();
    };
    match (truth, named) {
        (
            Culprit::Thread { name, tid, pid },
            Culprit::Thread {
                name: other,
                tid: tid_named,
                pid: pid_named,
            },
        ) => match (tid, tid_named) {
            (Some(tid), Some(named)) => tid == named,
            _ => name == other && (pid.is_none() || pid_named.is_none() || pid == pid_named),
        },
        (Culprit::Interrupt { name, .. }, Culprit::Interrupt { name: other, .. })
        | (Culprit::Softirq { name }, Culprit::Softirq { name: other })
        | (Culprit::SystemCall { name }, Culprit::SystemCall { name: other }) => name == other,
        _ => truth == named,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taillab_model::truth::TruthInterval;

    use super::*;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(1_000_000 + ns)
    }

    /// Longer than any demand here.
    const LONG: Nanos = Nanos::new(1_000);

    fn span(t1: u64, t6: u64, worker: Tid) -> Span {
        Span {
            t1: at(t1),
            t2: at(t1),
            t6: at(t6),
            worker,
        }
    }

    fn source(cause: Cause, culprit: Option<Culprit>) -> TruthSource {
        TruthSource {
            injected: cause.key().to_owned(),
            cause,
            culprit,
        }
    }

    fn held(source: u16, from: u64, to: u64, held: Option<Tid>) -> TruthInterval {
        TruthInterval {
            source,
            cpu: None,
            held,
            from_ns: at(from),
            to_ns: at(to),
        }
    }

    fn raw(delays: &[Nanos]) -> Vec<u64> {
        delays.iter().map(|delay| delay.get()).collect()
    }

    /// Service 10; held back from 5 to 35: the first loses 30, the next two inherit what
    /// their own idle time does not swallow.
    #[test]
    fn a_delay_is_inherited_until_an_idle_time_swallows_it() {
        let spans = [
            span(0, 40, 1),
            span(15, 50, 1),
            span(45, 60, 1),
            span(200, 210, 1),
        ];
        let truth = Truth {
            sources: vec![source(Cause::Background, None)],
            intervals: vec![held(0, 5, 35, None), held(0, 100, 150, None)],
            unrecorded: 0,
        };
        // undisturbed: 10, 25, 55
        assert_eq!(raw(&delays(&spans, &truth, LONG)[0]), [30, 25, 5, 0]);
    }

    #[test]
    fn a_thread_that_is_held_back_delays_its_own_requests_only() {
        let spans = [span(0, 30, 1), span(0, 30, 2), span(5, 40, 2)];
        let truth = Truth {
            sources: vec![source(Cause::BlockedLock, None)],
            intervals: vec![held(0, 2, 12, Some(2))],
            unrecorded: 0,
        };
        assert_eq!(raw(&delays(&spans, &truth, LONG)[0]), [0, 10, 10]);
    }

    #[test]
    fn the_way_to_the_worker_is_no_delay_where_only_a_thread_is_held_back() {
        let queued = |t2, span| Span { t2: at(t2), ..span };
        let truth = |held_back| Truth {
            sources: vec![source(Cause::Background, None)],
            intervals: vec![held(0, 5, 35, held_back)],
            unrecorded: 0,
        };
        // the second was 15 on its way, while the first was held back
        let spans = [span(0, 40, 1), queued(30, span(15, 50, 1))];
        let delays_by = |held_back| raw(&delays(&spans, &truth(held_back), LONG)[0]);
        assert_eq!(delays_by(Some(1)), [30, 10]);
        // whoever has the CPU holds up its packets as well
        assert_eq!(delays_by(None), [30, 25]);
    }

    #[test]
    fn what_another_disturbance_made_is_not_claimed() {
        // service 10; the first took 100 more for another reason, then 30 for this one
        let spans = [span(0, 140, 1), span(15, 150, 1), span(16, 160, 1)];
        let truth = Truth {
            sources: vec![source(Cause::Background, None)],
            intervals: vec![held(0, 105, 135, None)],
            unrecorded: 0,
        };
        // alone: 40, 50, 60 instead of 10, 25, 35
        let alone = delays(&spans, &truth, Nanos::new(10));
        assert_eq!(raw(&alone[0]), [30, 25, 25]);
    }

    proptest! {
        /// More in the same times is no less delay, and a server that only the injection
        /// disturbs is delayed by all that it lost.
        #[test]
        fn alone_an_injection_costs_what_it_took(
            gaps in prop::collection::vec(0_u64..40, 1..60),
            losses in prop::collection::vec(0_u64..60, 60),
        ) {
            let (mut spans, mut intervals, mut expected) = (vec![], vec![], vec![]);
            let (mut came, mut free, mut ideal) = (0_u64, 0_u64, 0_u64);
            for (gap, loss) in gaps.iter().zip(&losses) {
                came += gap;
                let begin = came.max(free);
                free = begin + 10 + loss;
                ideal = came.max(ideal) + 10;
                intervals.push(held(0, begin, begin + loss, Some(1)));
                spans.push(span(came, free, 1));
                expected.push(free - ideal);
            }
            let truth = Truth {
                sources: vec![source(Cause::BlockedIo, None)],
                intervals,
                unrecorded: 0,
            };
            prop_assert_eq!(raw(&delays(&spans, &truth, Nanos::new(10))[0]), expected);
        }
    }

    #[test]
    fn who_is_overtaken_is_late_and_who_overtakes_is_not() {
        let spans = [span(0, 30, 1), span(1, 10, 2), span(2, 20, 3)];
        assert_eq!(raw(&overtaken(&spans)), [20, 0, 0]);
        let in_order = [span(0, 10, 1), span(1, 20, 2), span(2, 30, 3)];
        assert_eq!(raw(&overtaken(&in_order)), [0, 0, 0]);
    }

    #[test]
    fn an_idle_worker_beside_a_queue_is_imbalance() {
        // worker 1 has three requests of 10, worker 2 one that is over at once
        let spans = [
            span(0, 10, 1),
            span(0, 20, 1),
            span(0, 30, 1),
            span(0, 10, 2),
        ];
        // one queue for both: two at 10, two at 20
        assert_eq!(raw(&imbalanced(&spans)), [0, 10, 10, 0]);
    }

    #[test]
    fn a_lost_request_is_the_one_that_was_under_way_all_the_while() {
        let spans = [
            span(0, 10, 1),
            span(5, 500, 1),
            span(480, 495, 1),
            span(490, 510, 1),
        ];
        let truth = Truth {
            sources: vec![source(Cause::Retransmit, None)],
            intervals: vec![held(0, 7, 487, None)],
            unrecorded: 0,
        };
        assert_eq!(raw(&lost(&spans, &truth)), [0, 480, 0, 0]);
    }

    fn charge(cause: Cause, name: Option<&str>, excess_ns: u64) -> Charge {
        Charge {
            cause,
            culprit: name.map(|name| Culprit::Softirq {
                name: name.to_owned(),
            }),
            excess_ns,
        }
    }

    #[test]
    fn each_nanosecond_of_a_delay_goes_to_one_place() {
        let net = Culprit::Softirq {
            name: "NET_RX".to_owned(),
        };
        let sources = [source(Cause::Softirq, Some(net))];
        let delays = [[100, 50, 70, 9].map(Nanos::new).to_vec()];
        let charges = [
            // more than was injected: only that counts, of the right culprit
            Some(vec![charge(Cause::Softirq, Some("NET_RX"), 120)]),
            // the right cause, another culprit; 20 to a wrong cause, 10 to nothing
            Some(vec![
                charge(Cause::Softirq, Some("TIMER"), 20),
                charge(Cause::Irq, None, 20),
            ]),
            // two wrong ones, in proportion
            Some(vec![
                charge(Cause::Wakeup, None, 300),
                charge(Cause::Unexplained, None, 100),
            ]),
            None,
        ];
        let rows = confusion(&sources, &delays, &charges);
        let row = &rows[0];
        assert_eq!((row.requests, row.injected), (3, Nanos::new(220)));
        assert_eq!(row.culprit, Nanos::new(100));
        assert_eq!(row.unseen, Nanos::new(10));
        assert!((row.share_of(Cause::Softirq) - 120.0 / 220.0).abs() < 1e-12);
        assert!((row.right_share() - 100.0 / 220.0).abs() < 1e-12);
        assert_eq!(row.charged[0].0, Cause::Softirq);
        let all: Nanos = row.charged.iter().map(|(_, part)| *part).sum();
        // 70 × 3 ÷ 4 is rounded down twice
        assert!(row.injected - all - row.unseen <= Nanos::new(1));
    }

    #[test]
    fn what_another_injected_cause_explains_is_no_confusion() {
        let sources = [
            source(Cause::Background, None),
            source(Cause::SlowService, None),
        ];
        let delays = [vec![Nanos::new(100)], vec![Nanos::new(40)]];
        let charges = [Some(vec![
            charge(Cause::Background, None, 90),
            charge(Cause::SlowService, None, 40),
        ])];
        let rows = confusion(&sources, &delays, &charges);
        assert_eq!(rows[0].unseen, Nanos::new(10));
        assert_eq!(rows[0].share_of(Cause::SlowService), 0.0);
        assert_eq!(rows[1].right_share(), 1.0);
    }

    #[test]
    fn a_culprit_is_known_by_its_thread_or_else_by_its_name() {
        let thread = |name: &str, tid| {
            Some(Culprit::Thread {
                name: name.to_owned(),
                pid: Some(7),
                tid,
            })
        };
        assert!(is_meant(&thread("a", Some(1)), &thread("b", Some(1))));
        assert!(!is_meant(&thread("a", Some(1)), &thread("a", Some(2))));
        assert!(is_meant(&thread("a", Some(1)), &thread("a", None)));
        assert!(!is_meant(&thread("a", Some(1)), &None));
        assert!(is_meant(&None, &thread("a", None)));
    }
}
