//! Ground truth against ledger: what was injected, and what it was charged to.
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

use crate::ground_truth::{GroundTruth, InjectedSource};
use taillab_model::explanation::{Cause, Culprit};
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
    /// The cause that it is charged to.
    pub cause: Cause,
    /// The culprit, where the ledger names one.
    pub culprit: Option<Culprit>,
    /// The part of the excess, in nanoseconds.
    pub excess_ns: u64,
}

/// What became of the delay of one injected cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was injected, and its right cause and culprit.
    pub source: InjectedSource,
    /// Requests that it delayed.
    pub requests: u64,
    /// Their total delay by it.
    pub injected: Nanos,
    /// What of it the ledger charged to each cause, the right one included; the largest
    /// first.
    pub charged: Vec<(Cause, Nanos)>,
    /// What of it was charged to the right cause and to the right culprit.
    pub culprit: Nanos,
    /// What of it the ledger saw no excess for.
    pub unseen: Nanos,
    /// All that was charged to the right cause and the right culprit, of whatever request: more
    /// than the delay where the same culprit also does so without us.
    pub in_all: Nanos,
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
pub fn delays(spans: &[Span], truth: &GroundTruth, usual: Nanos) -> Vec<Vec<Nanos>> {
    (0..truth.sources.len())
        .map(|source| delays_by(spans, truth, source, usual))
        .collect()
}

fn delays_by(spans: &[Span], truth: &GroundTruth, source: usize, usual: Nanos) -> Vec<Nanos> {
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
pub fn lost(spans: &[Span], truth: &GroundTruth) -> Vec<Nanos> {
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
    sources: &[InjectedSource],
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
    in_all: u64,
}

impl Tally {
    fn add(
        &mut self,
        source: &InjectedSource,
        injected: u64,
        charges: &[Charge],
        explained: impl Fn(Cause) -> u64,
    ) {
        let mut excess = [0_u64; Cause::ALL.len()];
        let mut of_culprit = 0;
        for charge in charges {
            excess[charge.cause as usize] += charge.excess_ns;
            if charge.cause == source.cause && is_meant(&source.culprit, &charge.culprit) {
                of_culprit += charge.excess_ns;
            }
        }
        self.in_all += of_culprit;
        if injected == 0 {
            return;
        }
        self.requests += 1;
        self.injected += injected;
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

    fn row(self, source: &InjectedSource) -> Row {
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
            in_all: Nanos::new(self.in_all),
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
mod tests;
