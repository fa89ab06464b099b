//! Everything that explains a measured distribution: the entry for all commands.
//!
//! One pass of the [`ledger`](crate::ledger) gives each request's account; the composition,
//! the inversions, the workers and the slowest requests are summed from it as it comes.
//! The replay then forecasts, and the findings say it in words.

use std::collections::HashMap;
use std::num::NonZeroU32;

use taillab_model::explanation::{
    Cause, CauseShare, Explanation, FanOut, Inversions, ModelFit, NamedCurve, Prediction,
    SlowRequest, WorkerShare,
};
use taillab_model::summary::Matching;
use taillab_model::{Distribution, Histogram, Monotonic, Nanos, RecordingContext, Tid};

use crate::clustering::{Clusters, threshold_rank};
use crate::composition::{Composed, Composition};
use crate::fan_out::fan_out;
use crate::heat_map::HeatCells;
use crate::ledger::{Attribution, Baseline, Entry, Labels, Ledger, LedgerOptions};
use crate::matched::Matched;
use crate::matcher::IdMap;
use crate::slowest::slow_request;
use crate::statistics::{curve_of, inflation_at_quantiles};
use crate::timeline::{Seen, Timeline};
use crate::{findings, predict, replay};

/// What an explanation needs beside the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplainOptions {
    /// t: what a request costs its core.
    pub service_time: Nanos,
    /// Workers of the ideal queue.
    pub workers: NonZeroU32,
    /// Requests due earlier are warm-up.
    pub measure_from: Monotonic,
    /// How many of the slowest requests are taken apart.
    pub slowest: usize,
    /// The measurement is one of many alike, whose spread says how sure a percentile is:
    /// within it requests count as if they were independent.
    pub is_repeated: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// Causes of the excess: the wholes, then their culprits.
    pub causes: Vec<CauseShare>,
    /// How well the replay reproduces the measurement.
    pub model_fit: Option<ModelFit>,
    /// Forecasts, the best first.
    pub predictions: Vec<Prediction>,
    /// The rest.
    pub explanation: Explanation,
    /// Of each request, in the order of [`Matched::requests`]: the cause that most of its
    /// excess is charged to; `None` without an excess, and while the server warmed up. Empty
    /// where a recording was explained in parts.
    pub main_causes: Vec<Option<Cause>>,
}

/// Pairs of workers that are listed.
const MAX_PAIRS: usize = 10;

/// Explains the measured requests.
pub fn explain(
    matched: &Matched,
    timeline: &Timeline,
    context: &RecordingContext,
    options: &ExplainOptions,
) -> Explained {
    explain_each(matched, timeline, context, options, |_, _| {})
}

/// [`explain`], and gives each measured request's account to `each`, in order of T6.
pub fn explain_each(
    matched: &Matched,
    timeline: &Timeline,
    context: &RecordingContext,
    options: &ExplainOptions,
    mut each: impl FnMut(&Entry<'_>, &Labels),
) -> Explained {
    let places = || matched.measured_places(options.measure_from);
    let series: Vec<Nanos> = places()
        .map(|place| matched.requests.sojourn(place))
        .collect();
    if series.is_empty() {
        return Explained::default();
    }
    let mut sorted = series.clone();
    sorted.sort_unstable();
    let mut factors = inflation_at_quantiles(&series, &sorted);
    if options.is_repeated {
        factors.iter_mut().for_each(|(_, factor)| *factor = 1.0);
    }
    drop(series);
    let sojourn = Sojourn {
        distribution: correlated(&sorted, &factors),
        fan_out: fan_out(&sorted, &factors),
    };
    drop(sorted);
    let baseline = Baseline::of(matched, timeline, options.service_time);
    let mut explainer = Explainer::new(context, *options, baseline);
    let mut main_causes = vec![None; matched.requests.len()];
    explainer.add(matched, timeline, Monotonic::MAX, |entry, labels| {
        main_causes[entry.place] = entry.main_cause(labels);
        each(entry, labels);
    });
    let matching = matched.counts(options.measure_from);
    let explained = explainer.finish(&sojourn, &matching, || {
        let cores = replay::Cores::new(timeline, context);
        replay::Observed::build(matched, &cores, context, options.measure_from)
    });
    Explained {
        main_causes,
        ..explained
    }
}

/// The measured sojourns.
pub(crate) struct Sojourn {
    pub(crate) distribution: Distribution,
    pub(crate) fan_out: Vec<FanOut>,
}

/// An explanation while the parts of a recording come.
pub(crate) struct Explainer<'c> {
    context: &'c RecordingContext,
    options: ExplainOptions,
    attribution: Attribution,
    /// T1 of the first and of the last measured request.
    span: Option<(Monotonic, Monotonic)>,
    sojourns: Histogram,
    composition: Option<Composition>,
    collected: Collected,
    heat: HeatCells,
    clusters: Clusters,
    seen: Seen,
    disturbances: bool,
}

impl<'c> Explainer<'c> {
    pub(crate) fn new(
        context: &'c RecordingContext,
        options: ExplainOptions,
        baseline: Baseline,
    ) -> Self {
        let ledger_options = LedgerOptions {
            service_time: options.service_time,
            workers: options.workers,
            measure_from: options.measure_from,
            trace_from: Nanos::MAX,
        };
        Self {
            attribution: Attribution::new(context, &ledger_options, baseline),
            span: None,
            sojourns: Histogram::default(),
            composition: None,
            collected: Collected::new(options),
            heat: HeatCells::default(),
            clusters: Clusters::default(),
            seen: Seen::default(),
            disturbances: false,
            context,
            options,
        }
    }

    /// Adds the next part, which ends at `upto`.
    pub(crate) fn add(
        &mut self,
        matched: &Matched,
        timeline: &Timeline,
        upto: Monotonic,
        mut each: impl FnMut(&Entry<'_>, &Labels),
    ) {
        self.seen = timeline.seen();
        self.disturbances = timeline.has_disturbances();
        let requests = &matched.requests;
        let places = || matched.measured_places(self.options.measure_from);
        for place in places() {
            let (t1, sojourn) = (requests.t1(place), requests.sojourn(place));
            self.span = Some((self.span.map_or(t1, |(from, _)| from), t1));
            self.sojourns.record(sojourn);
            self.heat.add(t1, sojourn);
        }
        // the slow ones are those that are slow among all so far
        if let Some(rank) = threshold_rank(self.sojourns.count())
            && let Some(cell) = self.sojourns.ranked().at(rank)
        {
            self.clusters.slow_is_above(cell.to);
        }
        for place in places() {
            (self.clusters).add(requests.t1(place), requests.sojourn(place));
        }
        let slowest = places().map(|place| requests.sojourn(place));
        self.attribution
            .trace_from(self.collected.may_be_slowest(slowest));
        let from = self.span.map_or(upto, |(from, _)| from);
        let composition = self
            .composition
            .get_or_insert_with(|| Composition::new(from));
        let collected = &mut self.collected;
        self.attribution
            .follow(matched, timeline, upto, |entry, labels| {
                composition.add(entry.stamps.t1, entry, labels);
                collected.add(entry);
                if !entry.pieces.is_empty() {
                    collected.slow(slow_request(timeline, entry, labels));
                }
                each(entry, labels);
            });
    }

    /// What was found; `observed` gives the queue to replay.
    pub(crate) fn finish(
        self,
        sojourn: &Sojourn,
        matching: &Matching,
        observed: impl FnOnce() -> replay::Observed,
    ) -> Explained {
        let ledger = self.attribution.finish();
        let collected = self.collected;
        let length = (self.span).map_or(Nanos::ZERO, |(from, to)| to.saturating_since(from));
        let inversions = collected.inversions(self.sojourns.count());
        let workers = collected.workers(&ledger, length);
        let mut curves = Vec::new();
        if let Some(own_queue) = collected.own_queue_ideal {
            curves.push(NamedCurve {
                name: "multi_queue_ideal".to_owned(),
                points: curve_of(&own_queue),
            });
        }
        let composed = self.composition.map(Composition::finish);
        let mut explanation = Explanation {
            bands: composed.as_ref().map_or_else(Vec::new, Composed::bands),
            findings: Vec::new(),
            inversions,
            workers,
            slowest: slowest(collected.slowest, self.options.slowest),
            heat_map: self.heat.finish(),
            clustering: self.clusters.finish(),
            fan_out: sojourn.fan_out.clone(),
            curves,
            limits: limits(self.seen),
        };
        let ideal = collected.ideal.distribution(|_| 1.0);
        let shares = composed.as_ref().map(|composed| composed.shares(&ledger));
        let causes = shares.unwrap_or_default();
        drop((composed, ledger));
        let predicted = predict::predict(
            &observed(),
            &predict::Evidence {
                sojourn: &sojourn.distribution,
                causes: &causes,
                service_time: self.options.service_time,
                pid: None,
                context: self.context,
            },
        );
        explanation.curves.extend(predicted.curves);
        explanation.limits.extend(predicted.limits);
        explanation.findings = findings::findings(&findings::Evidence {
            sojourn: &sojourn.distribution,
            ideal: &ideal,
            causes: &causes,
            predictions: &predicted.predictions,
            model_fit: predicted.model_fit.as_ref(),
            clustering: explanation.clustering.as_ref(),
            workers: &explanation.workers,
            inversions: &explanation.inversions,
            matching,
            disturbances: self.disturbances,
        });
        Explained {
            causes,
            model_fit: predicted.model_fit,
            predictions: predicted.predictions,
            explanation,
            main_causes: Vec::new(),
        }
    }
}

/// So many of the slowest, the slowest first.
fn slowest(mut requests: Vec<SlowRequest>, most: usize) -> Vec<SlowRequest> {
    requests.sort_by_key(|request| std::cmp::Reverse(request.sojourn_ns));
    requests.truncate(most);
    requests
}

/// The distribution of a sorted sample with these variance inflations.
fn correlated(sorted: &[Nanos], factors: &[(f64, f64)]) -> Distribution {
    Distribution::from_sorted_correlated(sorted, |q| {
        let known = factors.iter().find(|(level, _)| *level == q);
        known.map_or(1.0, |(_, factor)| *factor)
    })
}

/// What is summed beside the composition.
struct Collected {
    overtaken: u64,
    pairs: HashMap<(Tid, Tid), u64>,
    /// Requests and the sum of their sojourns.
    by_worker: IdMap<(u64, u64)>,
    ideal: Histogram,
    /// With several workers.
    own_queue_ideal: Option<Histogram>,
    slowest: Vec<SlowRequest>,
    most_slow: usize,
    /// The sojourns of the slowest so far, the slowest first.
    slowest_so_far: Vec<Nanos>,
}

impl Collected {
    fn new(options: ExplainOptions) -> Self {
        Self {
            overtaken: 0,
            pairs: HashMap::new(),
            by_worker: IdMap::default(),
            ideal: Histogram::default(),
            own_queue_ideal: (options.workers.get() > 1).then(Histogram::default),
            slowest: Vec::new(),
            most_slow: options.slowest,
            slowest_so_far: Vec::new(),
        }
    }

    /// The least sojourn of a request that may be among the slowest, now that these are there
    /// too.
    fn may_be_slowest(&mut self, sojourns: impl Iterator<Item = Nanos>) -> Nanos {
        let so_far = &mut self.slowest_so_far;
        let most = self.most_slow;
        let mut least = so_far.last().copied().unwrap_or_default();
        for sojourn in sojourns {
            if so_far.len() < most || sojourn > least {
                let place = so_far.partition_point(|other| *other >= sojourn);
                so_far.insert(place, sojourn);
                so_far.truncate(most);
                least = so_far.last().copied().unwrap_or(Nanos::MAX);
            }
        }
        so_far.last().copied().unwrap_or(Nanos::MAX)
    }

    fn add(&mut self, entry: &Entry<'_>) {
        if let Some((_, by)) = entry.overtaken_by {
            self.overtaken += 1;
            *self.pairs.entry((by, entry.worker)).or_default() += 1;
        }
        if entry.worker != 0 {
            let sums = self.by_worker.entry(entry.worker).or_default();
            sums.0 += 1;
            sums.1 += entry.sojourn_ns;
        }
        self.ideal.record(Nanos::new(entry.ideal_ns));
        if let Some(own_queue) = &mut self.own_queue_ideal {
            own_queue.record(Nanos::new(entry.own_queue_ideal_ns));
        }
    }

    /// Many may be as slow as the slowest but some: only so many are kept.
    fn slow(&mut self, request: SlowRequest) {
        self.slowest.push(request);
        if self.slowest.len() > 4 * self.most_slow {
            self.slowest = slowest(std::mem::take(&mut self.slowest), self.most_slow);
        }
    }

    fn inversions(&self, requests: u64) -> Inversions {
        let pairs = self.pairs.iter();
        let mut pairs: Vec<(Tid, Tid, u64)> = pairs.map(|(&(a, b), &n)| (a, b, n)).collect();
        pairs.sort_by_key(|&(a, b, n)| (std::cmp::Reverse(n), a, b));
        pairs.truncate(MAX_PAIRS);
        Inversions {
            overtaken: self.overtaken,
            share: self.overtaken as f64 / requests.max(1) as f64,
            pairs,
        }
    }

    fn workers(&self, ledger: &Ledger, length: Nanos) -> Vec<WorkerShare> {
        let served: HashMap<Tid, u64> = ledger.served_ns.iter().copied().collect();
        let share = |(&tid, &(requests, sojourns)): (&Tid, &(u64, u64))| WorkerShare {
            tid,
            name: ledger.labels.thread_name(tid),
            requests,
            busy_share: (served.get(&tid).copied().unwrap_or(0) as f64
                / length.get().max(1) as f64)
                .min(1.0),
            mean_sojourn_ns: sojourns as f64 / requests as f64,
        };
        let mut workers: Vec<WorkerShare> = self.by_worker.iter().map(share).collect();
        workers.sort_by_key(|worker| (std::cmp::Reverse(worker.requests), worker.tid));
        workers
    }
}

/// What was not recorded, and what it costs.
fn limits(seen: Seen) -> Vec<String> {
    let missing = [
        (
            seen.switches,
            "Switches of threads were not recorded: other threads on the server's CPUs cannot be told from slow service.",
        ),
        (
            seen.wakes,
            "Wake-ups were not recorded: time until a woken worker runs stands under `wakeup` as a whole.",
        ),
        (
            seen.interrupts,
            "Interrupts were not recorded: their time stands under the thread that they interrupted, mostly `slow_service`.",
        ),
        (
            seen.softirqs,
            "Softirqs were not recorded: their time stands under the thread that they interrupted, mostly `slow_service`.",
        ),
        (
            seen.idle,
            "No exit from a power state was recorded: `idle_exit` stands under `wakeup`.",
        ),
        (
            seen.sleeps,
            "Why threads slept was not recorded: locks, storage and page faults stand under `blocked_other`.",
        ),
        (
            seen.stalls,
            "No canary noticed a stall and no time was stolen, or nobody looked: a stall of the hypervisor is found only where two CPUs, an interrupt between them or the timer show it, and stands under `slow_service` or `unexplained` otherwise.",
        ),
    ];
    let missing = missing.iter().filter(|(there, _)| !there);
    missing.map(|(_, text)| (*text).to_owned()).collect()
}
