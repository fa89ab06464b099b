//! Everything that explains a measured distribution: the entry for all commands.
//!
//! One pass of the [`ledger`](crate::ledger) gives each request's account; the composition,
//! the inversions, the workers and the slowest requests are summed from it as it comes.
//! The replay then forecasts, and the findings say it in words.

use std::collections::HashMap;
use std::num::NonZeroU32;

use taillab_model::explanation::{
    CauseShare, Explanation, Inversions, ModelFit, NamedCurve, Prediction, SlowRequest, WorkerShare,
};
use taillab_model::{Distribution, Monotonic, Nanos, RecordingContext, Tid};

use crate::clustering::clustering;
use crate::composition::{BANDS, Composition};
use crate::fan_out::fan_out;
use crate::heat_map::heat_map;
use crate::ledger::{self, Entry, Labels, Ledger, LedgerOptions};
use crate::matched::Matched;
use crate::slowest::slow_request;
use crate::statistics::{ccdf, inflation_at_quantiles};
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
    let places: Vec<u32> = matched
        .measured_places(options.measure_from)
        .map(|place| place as u32)
        .collect();
    let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
        return Explained::default();
    };
    let series: Vec<Nanos> = places
        .iter()
        .map(|&place| matched.requests.sojourn(place as usize))
        .collect();
    let mut sorted = series.clone();
    sorted.sort_unstable();
    let factors = inflation_at_quantiles(&series, &sorted);
    drop(series);
    let sojourn = correlated(&sorted, &factors);
    let n = sorted.len();
    let from = matched.requests.t1(first as usize);
    let to = matched.requests.t1(last as usize);
    let thresholds = BANDS.map(|q| sorted[((q * n as f64) as usize).min(n - 1)]);
    let trace_from = match options.slowest.min(n) {
        0 => Nanos::MAX,
        slowest => sorted[n - slowest],
    };

    let mut collected = Collected::default();
    let mut composition = Composition::new(thresholds, from, to);
    let ledger_options = LedgerOptions {
        service_time: options.service_time,
        workers: options.workers,
        measure_from: options.measure_from,
        trace_from,
    };
    let several = options.workers.get() > 1;
    let ledger = ledger::run(
        matched,
        timeline,
        context,
        &ledger_options,
        |entry, labels| {
            composition.add(entry.stamps.t1, entry, labels);
            collected.add(entry, several);
            if !entry.pieces.is_empty() && collected.slowest.len() < 4 * options.slowest {
                let slow = slow_request(timeline, entry, labels);
                collected.slowest.push(slow);
            }
            each(entry, labels);
        },
    );

    let length = to.saturating_since(from);
    let mut slowest = std::mem::take(&mut collected.slowest);
    slowest.sort_by_key(|request| std::cmp::Reverse(request.sojourn_ns));
    slowest.truncate(options.slowest);
    let mut curves = Vec::new();
    if several {
        collected.own_queue_ideal.sort_unstable();
        curves.push(NamedCurve {
            name: "multi_queue_ideal".to_owned(),
            points: ccdf(&collected.own_queue_ideal),
        });
    }
    let mut explanation = Explanation {
        bands: composition.bands(),
        findings: Vec::new(),
        inversions: collected.inversions(n as u64),
        workers: collected.workers(&ledger, length),
        slowest,
        heat_map: heat_map(matched, &places, sorted[0], sorted[n - 1]),
        clustering: clustering(matched, &places, &sorted),
        fan_out: fan_out(&sorted, &factors),
        curves,
        limits: limits(timeline.seen()),
    };
    drop((sorted, places));
    collected.ideal.sort_unstable();
    let ideal = Distribution::from_sorted(&collected.ideal);
    let causes = composition.shares(&ledger);
    drop((collected, composition));

    let cores = replay::Cores::new(timeline, context);
    let observed = replay::Observed::build(matched, &cores, context, options.measure_from);
    let evidence = predict::Evidence {
        sojourn: &sojourn,
        causes: &causes,
        service_time: options.service_time,
        pid: None,
        context,
    };
    let predicted = predict::predict(&observed, &evidence);
    explanation.curves.extend(predicted.curves);
    explanation.limits.extend(predicted.limits);
    explanation.findings = findings::findings(&findings::Evidence {
        sojourn: &sojourn,
        ideal: &ideal,
        causes: &causes,
        predictions: &predicted.predictions,
        model_fit: predicted.model_fit.as_ref(),
        clustering: explanation.clustering.as_ref(),
        workers: &explanation.workers,
        inversions: &explanation.inversions,
        matching: &matched.counts(options.measure_from),
        disturbances: timeline.has_disturbances(),
    });
    Explained {
        causes,
        model_fit: predicted.model_fit,
        predictions: predicted.predictions,
        explanation,
    }
}

/// The distribution of a sorted sample with these variance inflations.
fn correlated(sorted: &[Nanos], factors: &[(f64, f64)]) -> Distribution {
    Distribution::from_sorted_correlated(sorted, |q| {
        let known = factors.iter().find(|(level, _)| *level == q);
        known.map_or(1.0, |(_, factor)| *factor)
    })
}

/// What is summed beside the composition.
#[derive(Default)]
struct Collected {
    overtaken: u64,
    pairs: HashMap<(Tid, Tid), u64>,
    /// Requests and the sum of their sojourns.
    by_worker: HashMap<Tid, (u64, u64)>,
    ideal: Vec<Nanos>,
    own_queue_ideal: Vec<Nanos>,
    slowest: Vec<SlowRequest>,
}

impl Collected {
    fn add(&mut self, entry: &Entry<'_>, several: bool) {
        if let Some((_, by)) = entry.overtaken_by {
            self.overtaken += 1;
            *self.pairs.entry((by, entry.worker)).or_default() += 1;
        }
        if entry.worker != 0 {
            let sums = self.by_worker.entry(entry.worker).or_default();
            sums.0 += 1;
            sums.1 += entry.sojourn_ns;
        }
        self.ideal.push(Nanos::new(entry.ideal_ns));
        if several {
            self.own_queue_ideal
                .push(Nanos::new(entry.own_queue_ideal_ns));
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
            "Neither a canary nor stolen time was recorded: a stall of the hypervisor is found only where two CPUs or the timer show it, and stands under `slow_service` or `unexplained` otherwise.",
        ),
    ];
    let missing = missing.iter().filter(|(there, _)| !there);
    missing.map(|(_, text)| (*text).to_owned()).collect()
}
