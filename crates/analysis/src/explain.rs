//! The explanation of a measured distribution.
//!
//! One pass of the [`ledger`](crate::ledger) gives the account of each request. The composition, the
//! inversions, the workers and the slowest requests are summed from the accounts as they come. The
//! forecasts follow from the replay.

use std::collections::HashMap;
use std::num::NonZeroU32;

use taillab_model::explanation::{
    CauseShare, Explanation, FanOut, Inversions, ModelFit, NamedCurve, OTHER_THREADS, Prediction,
    SlowRequest, UpstreamAnswers, WorkerShare,
};
use taillab_model::summary::{ClaimName, OwnWork, ReplayedSchedule};
use taillab_model::{Distribution, Histogram, Monotonic, Nanos, RecordingContext, Tid};

use crate::application::Application;
use crate::clustering::{Clusters, threshold_rank};
use crate::comparison::{self, LeastSojourns};
use crate::composition::{Composition, ExcessRange};
use crate::heat_map::HeatCells;
use crate::heaviest::{Heaviest, WeighedSums};
use crate::ideal::MeasuredRequests;
use crate::ledger::{Attribution, Baseline, Entry, Labels, Ledger, LedgerOptions};
use crate::matched::Matched;
use crate::own_work::{OwnWorkIdeal, OwnWorkQueue};
use crate::roots::Roots;
use crate::shadow::Shadow;
use crate::sleeping::Sleepers;
use crate::slowest::slow_request;
use crate::spells::TakenTime;
use crate::statistics::counted_curve;
use crate::timeline::{RecordedKinds, Timeline};
use crate::upstreams::Upstreams;
use crate::verdict::Supported;
use crate::{predict, replay};

/// The explanation of a measurement; empty if the recording does not say what the CPUs did.
#[derive(Default)]
pub(crate) struct Explained {
    /// Causes of the excess: first as a whole, then by culprit.
    pub(crate) causes: Vec<CauseShare>,
    /// The ideal with each request's own work.
    pub(crate) own_work: Option<OwnWorkIdeal>,
    /// How well the replay reproduces the measurement.
    pub(crate) model_fit: Option<ModelFit>,
    /// Forecasts, the best first.
    pub(crate) predictions: Vec<Prediction>,
    /// What requests on schedule would have seen, by a replay.
    pub(crate) on_schedule: Option<ReplayedSchedule>,
    /// Everything else.
    pub(crate) explanation: Option<Explanation>,
    /// Of the sample's requests above p99, the share that left after the end of their slice, or may have
    /// inherited delays from before it; `None` without slices.
    pub(crate) beyond_slice: Option<f64>,
}

/// The largest number of pairs of workers that are listed.
const MAX_PAIRS: usize = 10;

/// The measured sojourns.
pub(crate) struct Sojourn {
    pub(crate) distribution: Distribution,
    pub(crate) fan_out: Vec<FanOut>,
}

/// Collects the explanation while the windows of a recording come.
pub(crate) struct Explainer {
    process: Option<Tid>,
    options: LedgerOptions,
    attribution: Attribution,
    /// T1 of the first and of the last measured request.
    span: Option<(Monotonic, Monotonic)>,
    sojourns: Histogram,
    composition: Option<Composition>,
    excess_range: ExcessRange,
    collected: AccountSums,
    heat: HeatCells,
    clusters: Clusters,
    taken: TakenTime,
    sleepers: Sleepers,
    upstreams: Upstreams,
    application: Application,
    roots: Roots,
    shadow: Shadow,
    own_work: OwnWorkQueue,
    /// Matched requests of the windows before.
    requests_before: usize,
    seen: RecordedKinds,
    /// The length of the slices, where everything was recorded in slices.
    slices: Option<Nanos>,
}

impl Explainer {
    /// Before the first window. `slowest` is how many of the slowest requests are shown in detail, and
    /// `process` is the process that commands name.
    pub(crate) fn new(
        context: &RecordingContext,
        options: LedgerOptions,
        slowest: usize,
        baseline: Baseline,
        process: Option<Tid>,
    ) -> Self {
        let LedgerOptions {
            workers,
            after_response,
            ..
        } = options;
        Self {
            own_work: OwnWorkQueue::new(workers, baseline.receive_ns(), after_response),
            attribution: Attribution::new(context, &options, baseline),
            span: None,
            sojourns: Histogram::default(),
            composition: None,
            excess_range: ExcessRange::default(),
            collected: AccountSums::new(options.workers, slowest),
            heat: HeatCells::default(),
            clusters: Clusters::default(),
            taken: TakenTime::new(options.measure_from),
            sleepers: Sleepers::new(options.measure_from),
            upstreams: Upstreams::new(options.measure_from),
            application: Application::default(),
            roots: Roots::default(),
            shadow: Shadow::default(),
            requests_before: 0,
            seen: RecordedKinds::default(),
            slices: None,
            process,
            options,
        }
    }

    /// Adds the next window, which ends at `upto`. `each` gets the accounts of the requests
    /// that end in it.
    pub(crate) fn add(
        &mut self,
        matched: &Matched,
        timeline: &Timeline,
        upto: Monotonic,
        mut each: impl FnMut(&Entry<'_>, &Labels),
    ) {
        self.seen = timeline.seen();
        match matched.slices.are_used() {
            false => self.taken.add(timeline, upto),
            true => self.add_slices(matched, upto),
        }
        self.sleepers.add(matched, timeline, upto);
        self.upstreams.add(timeline, upto);
        let requests = &matched.requests;
        let places = || matched.measured_places(self.options.measure_from);
        for place in places() {
            let (t1, sojourn) = (requests.t1(place), requests.sojourn(place));
            self.span = Some((self.span.map_or(t1, |(from, _)| from), t1));
            self.sojourns.record(sojourn);
            self.heat.add(t1, sojourn);
            self.application.add(matched, timeline, place);
        }
        // slow means slow among all requests so far
        if let Some(rank) = threshold_rank(self.sojourns.count())
            && let Some(cell) = self.sojourns.ranked().at(rank)
        {
            self.clusters.slow_is_above(cell.to);
        }
        for place in places() {
            let burst = (self.clusters).add(requests.t1(place), requests.sojourn(place));
            if let Some(burst) = burst.filter(|_| matched.is_asked(place)) {
                self.roots.is_slow(self.requests_before + place, burst);
            }
        }
        let asked = places().filter(|place| matched.is_asked(*place));
        let slowest = asked.map(|place| requests.sojourn(place));
        self.attribution
            .trace_from(self.collected.may_be_slowest(slowest));
        let from = self.span.map_or(upto, |(from, _)| from);
        let composition = self
            .composition
            .get_or_insert_with(|| Composition::new(from));
        self.requests_before += requests.len();
        let (collected, sleepers) = (&mut self.collected, &mut self.sleepers);
        let (roots, shadow) = (&mut self.roots, &mut self.shadow);
        let own_work = &mut self.own_work;
        self.attribution
            .follow(matched, timeline, upto, |entry, labels| {
                composition.add(entry.stamps.t1, entry, labels);
                collected.add(entry);
                sleepers.account(entry, labels);
                roots.add(entry, labels);
                shadow.add(entry, labels);
                own_work.add(entry);
                if !entry.pieces.is_empty() {
                    collected.slow(slow_request(timeline, entry, labels));
                }
                each(entry, labels);
            });
    }

    /// Adds how far the excess of a window's measured requests depends on t.
    pub(crate) fn add_ideal(&mut self, matched: &Matched, requests: &MeasuredRequests) {
        let ideals = requests.ideal.iter().zip(&requests.ideal_of_ends);
        for (&place, (&ideal, &of_ends)) in requests.places.iter().zip(ideals) {
            let sojourn = matched.requests.sojourn(place as usize);
            self.excess_range.add(sojourn, ideal, of_ends);
        }
    }

    /// How many workers, labels, delays or pairs of workers are remembered: the entries of the largest table.
    pub(crate) fn remembered(&self) -> usize {
        self.attribution
            .remembered()
            .max(self.collected.remembered())
    }

    /// Adds the length of the slices that end before `upto`: in the last window, of all that are left.
    fn add_slices(&mut self, matched: &Matched, upto: Monotonic) {
        let from = self.options.measure_from;
        let ended = (matched.slices.numbered()).filter(|(_, slice)| slice.to < upto);
        let lengths = ended.map(|(_, slice)| slice.to.saturating_since(slice.from.max(from)));
        let slices = self.slices.get_or_insert(Nanos::ZERO);
        *slices += lengths.sum();
    }

    /// The explanation, without the findings, as far as it is `supported`. `observed` makes the queue to replay, and
    /// `length_limits` are the limits that follow from the length of the recording.
    pub(crate) fn finish(
        self,
        sojourn: &Sojourn,
        least: &LeastSojourns<'_>,
        supported: &Supported,
        length_limits: Vec<String>,
        observed: impl FnOnce() -> replay::Observed,
    ) -> Explained {
        let mut limits = limits(self.seen);
        if !supported.anything() {
            limits.extend(length_limits);
            return Explained {
                explanation: Some(Explanation {
                    limits,
                    ..Explanation::default()
                }),
                ..Explained::default()
            };
        }
        let ledger = self.attribution.finish();
        let mut collected = self.collected;
        let whole = (self.span).map_or(Nanos::ZERO, |(from, to)| to.saturating_since(from));
        let length = self.slices.unwrap_or(whole);
        let one_in = whole.get() as f64 / length.get().max(1) as f64;
        let unanswered = sojourn.distribution.unanswered;
        let mut slowest = slowest(std::mem::take(&mut collected.slowest), collected.most_slow);
        for request in slowest
            .iter_mut()
            .filter(|_| !supported.claim(ClaimName::Ideal))
        {
            request.ideal_ns = None;
        }
        let mut explanation = Explanation {
            inversions: collected.inversions(self.sojourns.count()),
            workers: collected.workers(&ledger, length),
            slowest,
            heat_map: self.heat.finish(),
            // too few requests for an interval of p99 can still show whether those above it come in bursts
            clustering: (self.clusters.finish()).filter(|slow| supported.beyond(slow.q)),
            hypervisor: self.taken.finish(),
            application: self.application.finish(unanswered),
            sleeping: (self.sleepers).finish(length, unanswered),
            upstreams: (self.upstreams.finish(&ledger.labels).into_iter())
                .map(|upstream| UpstreamAnswers {
                    answers: supported.distribution(upstream.answers),
                    ..upstream
                })
                .collect(),
            fan_out: sojourn.fan_out.clone(),
            limits,
            ..Explanation::default()
        };
        (explanation.application).retain(|at| supported.percentile(at.q));
        let mut explained = Explained::default();
        let is_charged = supported.claim(ClaimName::Causes);
        if let Some(composition) = self.composition.filter(|_| is_charged) {
            let composed = composition.finish(unanswered).widened(&self.excess_range);
            explained.causes = composed.shares(&ledger, one_in.max(1.0));
            explanation.bands = composed.bands();
            (explanation.bands).retain(|band| supported.percentile(band.from_q));
            explanation.around = composed.around();
            (explanation.around).retain(|band| supported.percentile(band.to_q));
            (explanation.bursts, explanation.burst_roots) = self.roots.finish(&ledger.labels);
            explanation.slow_requests = self.shadow.finish();
            explained.beyond_slice = self.slices.map(|_| composed.beyond_slice());
        }
        drop(ledger);
        if supported.claim(ClaimName::Ideal) {
            explained.own_work = self.own_work.finish().map(|ideal| OwnWorkIdeal {
                own_work: OwnWork {
                    sojourn: supported.distribution(ideal.own_work.sojourn),
                    ..ideal.own_work
                },
                ccdf: supported.curve(ideal.ccdf),
            });
        }
        if supported.claim(ClaimName::Forecasts) {
            let predicted = predict::predict(
                &observed(),
                &predict::Basis {
                    sojourn: &sojourn.distribution,
                    causes: &explained.causes,
                    service_time: self.options.service_time,
                    process: self.process,
                },
            );
            let own_queue = collected.own_queue_ideal.as_ref();
            let own_queue = own_queue.map(|own_queue| NamedCurve {
                name: "multi_queue_ideal".to_owned(),
                points: counted_curve(own_queue, 0),
            });
            let curves = own_queue.into_iter().chain(predicted.curves);
            explanation.curves = curves
                .map(|curve| NamedCurve {
                    points: supported.curve(curve.points),
                    ..curve
                })
                .collect();
            explanation.limits.extend(predicted.limits);
            explained.model_fit = predicted.model_fit;
            explained.predictions = predicted.predictions;
            (explained.predictions).retain(|forecast| !forecast.points.is_empty());
            explained.on_schedule = predicted.on_schedule;
            comparison::widen(&mut explained.predictions, least);
        }
        explanation.limits.extend(length_limits);
        explained.explanation = Some(explanation);
        explained
    }
}

/// The `most` slowest requests, the slowest first.
fn slowest(mut requests: Vec<SlowRequest>, most: usize) -> Vec<SlowRequest> {
    requests.sort_by_key(|request| std::cmp::Reverse(request.sojourn_ns));
    requests.truncate(most);
    requests
}

/// WeighedSums other than the composition.
#[derive(Default)]
struct AccountSums {
    overtaken: u64,
    /// Requests outside of the sample.
    unasked: u64,
    /// How often who overtook whom.
    pairs: Heaviest<(Tid, Tid)>,
    /// Requests and the sum of their sojourns.
    by_worker: Heaviest<Tid>,
    /// With several workers.
    own_queue_ideal: Option<Histogram>,
    slowest: Vec<SlowRequest>,
    most_slow: usize,
    /// The sojourns of the slowest so far, the slowest first.
    slowest_so_far: Vec<Nanos>,
}

impl AccountSums {
    fn new(workers: NonZeroU32, most_slow: usize) -> Self {
        Self {
            own_queue_ideal: (workers.get() > 1).then(Histogram::default),
            most_slow,
            ..Self::default()
        }
    }

    /// Adds these sojourns; returns the shortest sojourn that may still be among the slowest.
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
        // without stamps T2 is an estimate, which does not show the order
        self.unasked += u64::from(!entry.asked);
        if let Some(by) = entry.overtaken_by.filter(|_| entry.asked) {
            self.overtaken += 1;
            let once = WeighedSums { weight: 1, ns: 0 };
            self.pairs.add((by, entry.worker), once);
        }
        if entry.worker != 0 {
            let one = WeighedSums {
                weight: 1,
                ns: entry.sojourn_ns,
            };
            self.by_worker.add(entry.worker, one);
        }
        if let Some(own_queue) = &mut self.own_queue_ideal {
            own_queue.record(Nanos::new(entry.own_queue_ideal_ns));
        }
    }

    /// Keeps a request that may be one of the slowest. There may be many such requests, so the list is
    /// cut from time to time.
    fn slow(&mut self, request: SlowRequest) {
        self.slowest.push(request);
        if self.slowest.len() > 4 * self.most_slow {
            self.slowest = slowest(std::mem::take(&mut self.slowest), self.most_slow);
        }
    }

    fn inversions(&mut self, requests: u64) -> Inversions {
        let (pairs, _) = std::mem::take(&mut self.pairs).finish();
        let pairs = pairs.into_iter().take(MAX_PAIRS);
        let pairs = pairs.map(|((a, b), sums)| (a, b, sums.weight)).collect();
        let requests = requests.saturating_sub(self.unasked).max(1);
        Inversions {
            overtaken: self.overtaken,
            share: self.overtaken as f64 / requests as f64,
            pairs,
        }
    }

    /// The workers, those with the most requests first; the last one is [`OTHER_THREADS`] if there were very many.
    fn workers(&mut self, ledger: &Ledger, length: Nanos) -> Vec<WorkerShare> {
        let mut served: HashMap<Tid, u64> = ledger.served_ns.iter().copied().collect();
        let (workers, others) = std::mem::take(&mut self.by_worker).finish();
        let share = |tid: Tid, sums: WeighedSums, served_ns: u64| WorkerShare {
            tid,
            name: ledger.labels.thread_name(tid),
            requests: sums.weight,
            busy_share: served_ns as f64 / length.get().max(1) as f64,
            mean_sojourn_ns: sums.ns as f64 / sums.weight as f64,
        };
        let workers = workers.into_iter().map(|(tid, sums)| {
            let share = share(tid, sums, served.remove(&tid).unwrap_or(0));
            let busy_share = share.busy_share.min(1.0);
            WorkerShare {
                busy_share,
                ..share
            }
        });
        let mut workers: Vec<WorkerShare> = workers.collect();
        if let Some(sums) = others {
            let served_ns = ledger.served_by_others_ns + served.values().sum::<u64>();
            workers.push(share(OTHER_THREADS, sums, served_ns));
        }
        workers
    }

    /// How many entries the larger of its tables has.
    fn remembered(&self) -> usize {
        self.pairs.len().max(self.by_worker.len())
    }
}

/// What was not recorded, and what the accounts therefore cannot show.
fn limits(seen: RecordedKinds) -> Vec<String> {
    let missing = [
        (
            seen.switches,
            "Context switches were not recorded: other threads on the server's CPUs look like \
             slow service.",
        ),
        (
            seen.wakes,
            "Wake-ups were not recorded: the whole time until a woken worker runs is counted as \
             `wakeup`.",
        ),
        (
            seen.interrupts,
            "Interrupts were not recorded: their time is charged to the thread that they \
             interrupted, mostly as `slow_service`.",
        ),
        (
            seen.softirqs,
            "Softirqs were not recorded: their time is charged to the thread that they \
             interrupted, mostly as `slow_service`.",
        ),
        (
            seen.idle,
            "No exit from a power state was recorded: `idle_exit` is counted as `wakeup`.",
        ),
        (
            seen.sleeps,
            "Why threads slept was not recorded: locks, storage and page faults are counted as \
             `blocked_other`.",
        ),
        (
            seen.stalls,
            "Hypervisor stalls: no canary noticed one and no time was stolen, or neither was \
             recorded, so a stall is found only where two CPUs, an interrupt between them or the \
             timer show it. Otherwise it is counted as `slow_service` or `unexplained`.",
        ),
    ];
    let missing = missing.iter().filter(|(there, _)| !there);
    missing.map(|(_, text)| (*text).to_owned()).collect()
}
