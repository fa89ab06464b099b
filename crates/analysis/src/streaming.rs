//! The analysis of a recording, [window](crate::window) by window: one pass, in bounded memory.
//!
//! Everything is summed over the requests as they come. Up to [`AnalysisOptions::exact`] requests, the
//! values themselves are kept, so that a short recording has exact quantiles. Beyond that, quantiles
//! come from a histogram, within [`HISTOGRAM_ERROR`] of the exact value, and their intervals take the
//! correlation from a [`Series`](crate::statistics::Series).
//!
//! A short recording is one window. If there are several:
//!
//! - what is usual for the server ([`Baseline`]), and which workers share a queue, is taken from the first;
//! - for the question whether slow requests come together, a request is compared with those of its
//!   window and of all windows before;
//! - only a sample of the time is replayed; the result says so.

mod limits;
mod on_schedule;
mod sums;

use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_model::explanation::NamedCurve;
use taillab_model::interval::Interval;
use taillab_model::summary::{
    BusyPeriods, BusyPeriodsOfCpu, ClaimName, Exclusions, Ideal, IdealBounds, Matching, Measured,
    Overhead, Overload, OwnWork, Scheduled, ServerResult, ServiceTimeSource, Stages, Withdrawn,
    WorkersSource,
};
use taillab_model::{Distribution, Lacking, MiddleStamps, Monotonic, Nanos, RecordingContext, Tid};

use crate::comparison::{Inside, LeastSojourns, disagrees, is_above, no_distribution};
use crate::explain::{Explained, Explainer, Sojourn};
use crate::fan_out::fan_out;
use crate::ideal::IdealArrivals;
use crate::ledger::{Baseline, Entry, Labels, LedgerOptions, SharedQueues};
use crate::matched::{MatchCounts, SentAgain};
use crate::overload::Queue;
use crate::predict::PREDICTED_QUANTILES;
use crate::replay::Sampler;
use crate::sent_again::{self, resent_responses};
use crate::spans::{Spans, earlier};
use crate::spoken::Beginnings;
use crate::statistics::{Observations, counted_curve};
use crate::streaming::limits::RecordingLimits;
use crate::streaming::on_schedule::{OnSchedule, view};
use crate::streaming::sums::{FinishedSums, Sums};
use crate::timeline::ServerTime;
use crate::verdict::{self, Judgement, ServerEvidence, Supported, Unsupported};
use crate::window::Window;
use crate::{findings, ratio};

/// By default, quantiles are exact up to this many requests.
pub const EXACT: usize = 500_000;

/// By default, this many of the slowest requests are shown in detail.
pub const SLOWEST: usize = 20;

/// What the analysis needs besides the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnalysisOptions {
    /// t: what a request costs a worker while it never waits for work.
    pub service_time: Nanos,
    /// The interval of t, where it has one.
    pub interval: Option<Interval<Nanos>>,
    /// The part of t that the server spends after the response has left; it is not in the ideal sojourn.
    pub after_response: Nanos,
    /// t without the probe, where it is known what the probe costs.
    pub unprobed: Option<Nanos>,
    /// t as the busy periods show it, where they do; if t is not that one, it must agree with it.
    pub busy_periods: Option<BusyPeriods>,
    /// t is known, and not a placeholder; otherwise there is no comparison with the ideal.
    pub service_time_known: bool,
    /// Workers c of the ideal queue.
    pub workers: NonZeroU32,
    /// Start of the measurement: requests due before it are warm-up.
    pub measure_from: Monotonic,
    /// How many of the slowest requests are shown in detail.
    pub slowest: usize,
    /// The measurement is one of many repetitions, and their spread gives the interval of a percentile.
    /// So within the measurement, requests count as independent.
    pub is_repeated: bool,
    /// Up to this many requests the quantiles are exact.
    pub exact: usize,
    /// What is usual for the server; `None` takes it from the first window.
    pub baseline: Option<Baseline>,
    /// The server's process, if it still runs; the commands of forecasts name it.
    pub process: Option<Tid>,
}

impl AnalysisOptions {
    /// The usual options for this ideal server and this start of the measurement.
    pub const fn new(service_time: Nanos, workers: NonZeroU32, measure_from: Monotonic) -> Self {
        Self {
            service_time,
            interval: None,
            after_response: Nanos::ZERO,
            unprobed: None,
            busy_periods: None,
            service_time_known: true,
            workers,
            measure_from,
            slowest: SLOWEST,
            is_repeated: false,
            exact: EXACT,
            baseline: None,
            process: None,
        }
    }
}

/// What is known of a server besides its recording.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// Where t comes from.
    pub service_time_source: ServiceTimeSource,
    /// How the workers were found.
    pub workers_source: WorkersSource,
    /// What the busy periods of each CPU show.
    pub busy_periods_by_cpu: Vec<BusyPeriodsOfCpu>,
    /// How busy the server's CPUs were.
    pub server_cpu_busy_share: Option<f64>,
    /// What the probe costs.
    pub overhead: Overhead,
    /// The workers wait on timers instead of using a CPU.
    pub virtual_workers: bool,
}

/// What a recording shows, as far as the evidence supports it.
#[derive(Clone, Debug)]
pub struct Analysed {
    /// The server's side.
    pub server: ServerResult,
    /// What requests that were sent on schedule saw, without its claims; `None` if the recording has no cuts.
    pub scheduled: Option<Scheduled>,
    /// Requests that arrived during the measurement.
    pub arrivals: u64,
    /// The client's service time minus the sojourn of the requests that were sent on schedule, if a client was
    /// joined.
    pub client_minus_server: Option<Distribution>,
    /// Points (x, P(sojourn ≥ x)) of the measured sojourn.
    pub measured_ccdf: Vec<(Nanos, f64)>,
    /// The same for the ideal sojourn that the measured one is compared with.
    pub ideal_ccdf: Vec<(Nanos, f64)>,
    /// What this was judged by.
    pub evidence: ServerEvidence,
    /// Where everything was recorded in slices and the causes are known: of the sample's requests above p99, the share
    /// that left after the end of their slice, or may have inherited delays from before it.
    pub beyond_slice: Option<f64>,
}

impl Analysed {
    /// What the verdict should know of this.
    pub fn built(&self) -> verdict::Built<'_> {
        let view = self.scheduled.as_ref();
        verdict::Built {
            causes: &self.server.causes,
            has_forecasts: !self.server.predictions.is_empty(),
            is_replayed: view.is_some_and(|view| view.replayed.is_some()),
            beyond_slice: self.beyond_slice,
        }
    }
}

/// Why a recording cannot be analysed at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalysisError {
    /// The probe saw nothing of the server's traffic.
    #[error(
        "the probe saw none of the server's packets in {events} events: check that the server's \
         port, address and interface are the ones traced"
    )]
    NoPackets {
        /// Events read.
        events: u64,
    },
    /// So much more came than was done that all answers were of the warm-up.
    #[error(
        "work arrived faster than it was done: {came_per_s} requests per second arrived and the server \
         answered {done_per_s} per second, all of them of the warm-up; lower the load, or wait longer for \
         the answers (--timeout)"
    )]
    OnlyWarmUp {
        /// Requests that came per second while the queue grew.
        came_per_s: u64,
        /// Requests that were answered per second.
        done_per_s: u64,
    },
    /// Requests came in, but none of the measurement was matched.
    #[error(
        "{arrivals} requests came in, but none of the measurement has a response: check that the \
         server answers, and that the measurement outlasts the warm-up"
    )]
    NothingMatched {
        /// Requests that came in, warm-up included.
        arrivals: usize,
    },
}

/// The analysis of a recording while its windows come.
pub struct Analysis<'c> {
    options: AnalysisOptions,
    context: &'c RecordingContext,
    arrivals: IdealArrivals,
    all_arrivals: u64,
    events: u64,
    late_events: u64,
    windows: u64,
    /// Requests of the first window.
    shown_by: usize,
    /// Requests to which no response is due.
    silent: u64,
    beginnings: Beginnings,
    /// Matched requests that no record of the client explains; `None` without a client.
    unexplained: Option<u64>,
    /// A window shows what the CPUs did.
    disturbances: bool,
    counts: MatchCounts,
    left_out: Exclusions,
    /// Responses of the measurement that were sent again.
    sent_again: Vec<SentAgain>,
    sums: Sums,
    /// The experiment's view; `None` if the recording has no cuts.
    on_schedule: Option<OnSchedule<'c>>,
    inside: Inside,
    queue: Queue,
    busy: ServerTime,
    explainer: Option<Explainer>,
    sampler: Sampler,
    /// The length of the sampled time, where everything was recorded in slices.
    sampled: Nanos,
}

impl<'c> Analysis<'c> {
    /// Before the first window.
    pub fn new(context: &'c RecordingContext, options: AnalysisOptions) -> Self {
        let AnalysisOptions {
            service_time,
            workers,
            measure_from,
            ..
        } = options;
        let arrivals = IdealArrivals::new(service_time, workers, measure_from);
        let mut arrivals = arrivals.with_work_after_response(options.after_response);
        if let Some(interval) = options.interval {
            arrivals = arrivals.with_interval(interval, workers);
        }
        if let Some(unprobed) = options.unprobed {
            arrivals = arrivals.with_unprobed(unprobed, workers);
        }
        if let Some(known) = &options.busy_periods {
            let of_requests = known.receive_ns.saturating_sub(known.after_response_ns);
            let least = options.interval.map_or(service_time, |of_t| of_t.lo);
            arrivals = arrivals.with_receiver_elsewhere(least.saturating_sub(of_requests), workers);
        }
        Self {
            arrivals,
            all_arrivals: 0,
            events: 0,
            late_events: 0,
            windows: 0,
            shown_by: 0,
            silent: 0,
            beginnings: Beginnings::default(),
            unexplained: None,
            disturbances: false,
            counts: MatchCounts::default(),
            left_out: Exclusions::default(),
            sent_again: Vec::new(),
            sums: Sums::new(options.exact),
            on_schedule: OnSchedule::new(&context.cuts, &options),
            inside: Inside::default(),
            queue: Queue::default(),
            busy: ServerTime::default(),
            explainer: None,
            sampler: Sampler::new(measure_from),
            sampled: Nanos::ZERO,
            options,
            context,
        }
    }

    /// Takes the next window. If the recording shows what the CPUs did, `each` gets the accounts of the
    /// requests that end in the window. Returns the ideal sojourns of the window's measured requests, in
    /// order of T1.
    pub fn push(
        &mut self,
        window: &Arc<Window>,
        mut each: impl FnMut(&Entry<'_>, &Labels),
    ) -> Vec<Nanos> {
        let Window {
            matched,
            timeline,
            from,
            upto,
        } = &**window;
        let measure_from = self.options.measure_from;
        if self.windows == 0 {
            self.shown_by = matched.requests.len();
        }
        self.windows += 1;
        self.all_arrivals += (matched.requests.len() + matched.unmatched.len()) as u64;
        self.events += matched.events;
        self.late_events += matched.late_events;
        self.silent += matched.silent;
        self.beginnings = self.beginnings.plus(matched.beginnings);
        self.left_out.from_before += matched.from_before;
        let early = matched.early.iter();
        self.left_out.early += early.filter(|&&at| at >= measure_from).count() as u64;
        self.left_out.elsewhere += matched.elsewhere;
        self.left_out.parts += matched.parts;
        self.left_out.other_processes += matched.other_processes;
        let measured = matched.sent_again.iter();
        let measured = measured.filter(|again| again.left >= measure_from);
        let room = sent_again::MOST.saturating_sub(self.sent_again.len());
        self.sent_again.extend(measured.take(room).copied());
        self.left_out.add_unasked(&matched.unasked);
        self.left_out.forgotten += matched.forgotten + timeline.forgotten();
        self.unexplained = matched.client.map(|client| client.unexplained);
        self.disturbances |= timeline.has_disturbances();
        self.counts.add(matched, measure_from, *from..*upto);
        let waited_for_until = self.waited_for_until(window);
        let requests = self.arrivals.take(matched, waited_for_until);
        let cut = match &mut self.on_schedule {
            Some(on_schedule) => on_schedule.add(matched, &requests, *upto),
            None => Spans::default(),
        };
        self.sums.add(matched, &requests, measure_from, &cut);
        self.inside.add(matched);
        self.queue.add(window, self.options.workers.get());
        let sampled = matched.slices.sampled(measure_from.max(*from), *upto);
        if matched.slices.are_used() {
            let lengths = sampled.iter();
            self.sampled += lengths
                .map(|part| part.to.saturating_since(part.from))
                .sum();
        }
        self.busy.add(matched, timeline, &sampled);
        self.sampler.add(window);
        let explainer = match &mut self.explainer {
            Some(explainer) => explainer,
            none => none.insert(explainer(self.context, &self.options, window)),
        };
        explainer.add_ideal(matched, &requests);
        let disturbances = self.disturbances;
        explainer.add(matched, timeline, *upto, |entry, labels| {
            if disturbances {
                each(entry, labels);
            }
        });
        requests.ideal
    }

    /// How many workers, labels, delays or pairs of workers are remembered: the entries of the largest table. It does
    /// not grow with the length of the recording.
    pub fn remembered(&self) -> usize {
        self.explainer.as_ref().map_or(0, Explainer::remembered)
    }

    /// Requests without a response that arrived by this time have waited as long as answers take. It is
    /// before the end by the longest sojourn, or by a tenth of the measurement if that is shorter.
    ///
    /// In a window other than the last, the matcher has given up all requests without a response.
    fn waited_for_until(&self, window: &Window) -> Monotonic {
        /// A slow answer may take this long even if the others are fast.
        const LEAST: Nanos = Nanos::from_millis(10);
        let matched = &window.matched;
        let (Some(end), true) = (matched.last, window.is_last()) else {
            return Monotonic::MAX;
        };
        let places = matched.measured_places(self.options.measure_from);
        let longest = places.map(|place| matched.requests.sojourn(place));
        let longest = longest.fold(self.sums.longest, Nanos::max);
        let length = end.saturating_since(self.options.measure_from);
        let edge = longest.clamp(LEAST, Nanos::new(length.get() / 10).max(LEAST));
        earlier(end, edge)
    }

    /// The sums over the whole recording; `lost_events` is how many events the probe lost.
    ///
    /// # Errors
    /// When there is no request to analyse.
    pub fn finish(self, lost_events: u64) -> Result<RecordingSums<'c>, AnalysisError> {
        self.ensure_packets()?;
        let (matching, lacking) = self.matching(lost_events);
        let measured = self.business(&matching);
        let (options, workers) = (self.options, self.options.workers.get());
        let known_t = options.service_time_known.then_some(options.service_time);
        let overload = (self.queue).finish(workers, known_t, options.measure_from, self.context);
        let Some(explainer) = self.explainer.filter(|_| self.sums.answered() > 0) else {
            return Err(nothing_measured(overload, self.all_arrivals));
        };
        // in a queue that grows, the percentiles are those of this measurement
        let is_overloaded = overload.is_some();
        let summed = (self.sums).finish(options.is_repeated, is_overloaded, lacking);
        let (sojourn, mut ideal) = (summed.measured.distribution(), summed.ideal.distribution());
        let by_service_time = self.arrivals.widen(&mut ideal);
        // our own client sends by its schedule, and what it could not send in time is in its response times
        let wait = self.inside.clients_that_wait(workers);
        let clients_wait = wait.filter(|_| self.unexplained.is_none());
        let view = (self.on_schedule).map(|view| view.finish(lacking));
        let (scheduled, ideal_on_schedule) = view.unzip();
        let client_minus_server = &summed.client_minus_server;
        let evidence = ServerEvidence {
            overload,
            not_compared: not_compared(&options, clients_wait, &ideal, &sojourn),
            rate_per_s: known_t.map(|_| self.arrivals.rate_per_s()),
            shows_cpus: self.disturbances,
            faster_than_ideal: summed.faster_share,
            unsupported: Unsupported::of(&sojourn, summed.measured.factors()),
            late_events: self.late_events,
            speaks: self.beginnings.mostly(),
            unexplained: self.unexplained.unwrap_or(0),
            scheduled,
            client_minus_server: self.unexplained.map(|_| client_minus_server.clone()),
            sojourn,
            matching,
        };
        Ok(RecordingSums {
            limits: RecordingLimits {
                measured: &summed.measured,
                windows: self.windows,
                shown_by: self.shown_by,
                polls: self.busy.polls(),
                without_response: self.silent,
                with_response: self.all_arrivals,
                matching: &evidence.matching,
            }
            .texts(),
            evidence,
            options,
            context: self.context,
            measured,
            summed,
            ideal,
            by_service_time,
            ideal_on_schedule: ideal_on_schedule.flatten(),
            arrivals: self.arrivals,
            all_arrivals: self.all_arrivals,
            left_out: self.left_out,
            sent_again: self.sent_again,
            explainer: Some((explainer, self.sampler)).filter(|_| self.disturbances),
        })
    }

    const fn ensure_packets(&self) -> Result<(), AnalysisError> {
        let events = self.events;
        match self.all_arrivals {
            0 => Err(AnalysisError::NoPackets { events }),
            _ => Ok(()),
        }
    }

    /// How events and responses joined, and what the distributions lack.
    fn matching(&self, lost_events: u64) -> (Matching, Lacking) {
        let mut matching = self.counts.clone().finish();
        matching.unanswered = matching.unanswered.saturating_sub(self.sums.cut_off);
        matching.lost_events = lost_events;
        matching.hooks.clone_from(&self.context.hooks);
        // responses that the client received and the probe missed were answered
        let missed = matching.client_responses - matching.client_matched;
        let lacking = Lacking {
            unanswered: self.sums.unanswered.saturating_sub(missed),
            missing: matching.missing(),
        };
        (matching, lacking)
    }

    /// Utilisation and busy nanoseconds per request, where they are known; nothing else is filled in.
    fn business(&self, matching: &Matching) -> Measured {
        let workers = f64::from(self.options.workers.get());
        let (length, requests) = match matching.stamps {
            MiddleStamps::Sampled(_) => (self.sampled, matching.asked()),
            MiddleStamps::All | MiddleStamps::Ends => {
                (self.arrivals.length(), self.arrivals.count())
            }
        };
        let available = length.as_secs_f64() * workers;
        let busy = self.busy.total();
        let requests = requests.max(1) as f64;
        Measured {
            sojourn: no_distribution(),
            server_cpu_busy_share: None,
            utilization: busy
                .filter(|_| available > 0.0)
                .map(|busy| busy.as_secs_f64() / available),
            busy_ns_per_request: busy.map(|busy| busy.get() as f64 / requests),
            overload: None,
        }
    }
}

/// The sums over a whole recording. What is made of them is decided by what they show.
pub struct RecordingSums<'c> {
    evidence: ServerEvidence,
    options: AnalysisOptions,
    context: &'c RecordingContext,
    /// Still without a sojourn.
    measured: Measured,
    summed: FinishedSums,
    /// The ideal sojourns, with the interval of t.
    ideal: Distribution,
    by_service_time: Vec<IdealBounds>,
    ideal_on_schedule: Option<Observations>,
    arrivals: IdealArrivals,
    all_arrivals: u64,
    left_out: Exclusions,
    sent_again: Vec<SentAgain>,
    /// `None` where the recording does not say what the CPUs did.
    explainer: Option<(Explainer, Sampler)>,
    limits: Vec<String>,
}

impl RecordingSums<'_> {
    /// What a verdict on them needs to know.
    pub const fn evidence(&self) -> &ServerEvidence {
        &self.evidence
    }

    /// Requests that arrived, those of the warm-up included.
    pub const fn all_arrivals(&self) -> u64 {
        self.all_arrivals
    }

    /// Makes what the evidence supports.
    pub fn build(self, judgement: &Judgement, known: ServerFacts) -> Analysed {
        self.made(judgement.supported(), judgement.on_schedule(), known)
    }

    /// Makes whatever can be computed: for tests of the computation, whose recordings are as short as they can be. What
    /// a user is shown is made by [`Self::build`].
    pub fn unjudged(self) -> Analysed {
        let supported = verdict::unjudged(self.evidence.not_compared);
        self.made(&supported, &supported, ServerFacts::default())
    }

    fn made(
        mut self,
        supported: &Supported,
        on_schedule: &Supported,
        known: ServerFacts,
    ) -> Analysed {
        let is_compared = supported.claim(ClaimName::Ideal);
        let mut explained = self.explained(supported);
        let scheduled = self.evidence.scheduled.as_ref().map(|evidence| {
            let ideal = (self.ideal_on_schedule.take()).filter(|_| is_compared);
            view(evidence, ideal, explained.on_schedule.take(), on_schedule)
        });
        self.summed.ideal.assume_independent();
        let (ideal_as_independent, ideal_ccdf) = match is_compared {
            true => (self.summed.ideal.distribution(), self.summed.ideal.curve()),
            false => (no_distribution(), Vec::new()),
        };
        let beyond_slice = explained.beyond_slice;
        let own_work = explained.own_work.take();
        let (own_work, own_work_ccdf) = own_work.map(|ideal| (ideal.own_work, ideal.ccdf)).unzip();
        let mut server = self.server(supported, explained, own_work, &known);
        let base_ccdf = own_work_ccdf.filter(|_| server.ideal.base_of_own_work().is_some());
        // only in a whole result is it known where t comes from and what the probe cost
        let ideal = &supported.distribution(ideal_as_independent);
        findings::add(&mut server, ideal, self.evidence.shows_cpus);
        server.ratio = ratio::divided(&server);
        let client_minus_server = self.evidence.client_minus_server.clone();
        Analysed {
            server,
            scheduled,
            arrivals: self.arrivals.count(),
            client_minus_server: client_minus_server.map(|all| on_schedule.distribution(all)),
            measured_ccdf: supported.curve(self.summed.measured.curve()),
            ideal_ccdf: base_ccdf.unwrap_or_else(|| supported.curve(ideal_ccdf)),
            evidence: self.evidence,
            beyond_slice,
        }
    }

    /// Why requests took as long as they did.
    fn explained(&mut self, supported: &Supported) -> Explained {
        let Some((explainer, sampler)) = self.explainer.take() else {
            return Explained::default();
        };
        let sojourn = Sojourn {
            fan_out: supported.fan_out(&fan_out(&self.summed.measured)),
            distribution: supported.distribution(self.evidence.sojourn.clone()),
        };
        let least = LeastSojourns {
            ideal: &self.ideal,
            receiver_elsewhere: self.arrivals.receiver_elsewhere(&PREDICTED_QUANTILES),
        };
        let limits = std::mem::take(&mut self.limits);
        explainer.finish(&sojourn, &least, supported, limits, || {
            sampler.finish(self.context)
        })
    }

    /// The server's side, without findings and ratios.
    fn server(
        &self,
        supported: &Supported,
        explained: Explained,
        own_work: Option<OwnWork>,
        known: &ServerFacts,
    ) -> ServerResult {
        let (options, evidence) = (&self.options, &self.evidence);
        let is_compared = supported.claim(ClaimName::Ideal);
        let t = match options.service_time_known {
            true => options.service_time,
            false => Nanos::ZERO,
        };
        let of = |all: &Distribution| supported.distribution(all.clone());
        let compared = |all: &Distribution| match is_compared {
            true => of(all),
            false => no_distribution(),
        };
        let workers = options.workers.get();
        let ideal = Ideal {
            sojourn: compared(&self.ideal),
            of_schedule: (self.arrivals.of_schedule())
                .filter(|_| is_compared)
                .map(|all| supported.distribution(all)),
            by_service_time: (self.by_service_time.iter())
                .filter(|at| is_compared && supported.percentile(at.q))
                .copied()
                .collect(),
            own_work,
            workers,
            workers_source: known.workers_source,
            virtual_workers: known.virtual_workers,
            utilization: self.arrivals.rate_per_s() * t.as_secs_f64() / f64::from(workers),
            withdrawn: evidence.not_compared,
        };
        // virtual workers wait without using a CPU, so CPU time does not say how busy they are
        let use_of_cpus = Some(&self.measured).filter(|_| !known.virtual_workers);
        let measured = Measured {
            sojourn: of(&evidence.sojourn),
            server_cpu_busy_share: known.server_cpu_busy_share,
            utilization: use_of_cpus.and_then(|measured| measured.utilization),
            busy_ns_per_request: use_of_cpus.and_then(|measured| measured.busy_ns_per_request),
            overload: evidence.overload.clone(),
        };
        let stages = &self.summed.stages;
        let mut explanation = explained.explanation;
        if let Some(explanation) = &mut explanation
            && let Some(sojourns) = self.arrivals.without_probe()
            && supported.claim(ClaimName::Forecasts)
        {
            explanation.curves.push(NamedCurve {
                name: "ideal_without_probe".to_owned(),
                points: supported.curve(counted_curve(sojourns, 0)),
            });
        }
        ServerResult {
            service_time_ns: t,
            service_time_source: known.service_time_source,
            service_time_lo_ns: options.interval.map(|of_t| of_t.lo),
            service_time_hi_ns: options.interval.map(|of_t| of_t.hi),
            busy_periods: options.busy_periods,
            busy_periods_by_cpu: known.busy_periods_by_cpu.clone(),
            measured,
            ideal,
            excess: compared(&self.summed.excess),
            stages: Stages {
                t1_t2: of(&stages.t1_t2),
                t2_t3: of(&stages.t2_t3),
                t3_t4: of(&stages.t3_t4),
                t4_t5: of(&stages.t4_t5),
                t5_t6: of(&stages.t5_t6),
            },
            stages_at: (self.summed.stages_at.iter())
                .filter(|at| supported.percentile(at.q))
                .cloned()
                .collect(),
            matching: evidence.matching.clone(),
            left_out: self.left_out.clone(),
            sent_again: resent_responses(&self.sent_again),
            overhead: known.overhead.clone(),
            causes: explained.causes,
            ratio: Vec::new(),
            model_fit: explained.model_fit,
            predictions: explained.predictions,
            explanation,
        }
    }
}

/// Why nothing of the measurement was answered.
fn nothing_measured(overload: Option<Overload>, arrivals: u64) -> AnalysisError {
    match overload {
        Some(overload) => AnalysisError::OnlyWarmUp {
            came_per_s: overload.came_per_s.round() as u64,
            done_per_s: overload.done_per_s.round() as u64,
        },
        None => AnalysisError::NothingMatched {
            arrivals: arrivals as usize,
        },
    }
}

/// Why the server cannot be compared with its ideal. `clients_wait` is the most that clients who wait for their
/// answers have outstanding.
fn not_compared(
    options: &AnalysisOptions,
    clients_wait: Option<u64>,
    ideal: &Distribution,
    measured: &Distribution,
) -> Option<Withdrawn> {
    match (clients_wait, &options.busy_periods) {
        _ if !options.service_time_known => Some(Withdrawn::ServiceTimeUnknown),
        (Some(at_once), _) => Some(Withdrawn::ClientsWait { at_once }),
        (None, Some(recorded)) => disagrees(options.service_time, recorded),
        (None, None) => is_above(ideal, measured),
    }
}

/// The explainer of a recording that begins with this window.
fn explainer(context: &RecordingContext, options: &AnalysisOptions, first: &Window) -> Explainer {
    let (t, recorded) = (options.service_time, options.busy_periods.as_ref());
    let usual = || Baseline::of(&first.matched, &first.timeline, t, recorded);
    let baseline = options.baseline.unwrap_or_else(usual);
    let ledger = LedgerOptions {
        service_time: t,
        after_response: options.after_response,
        workers: options.workers,
        measure_from: options.measure_from,
        queues: SharedQueues::of(&first.matched),
    };
    let (slowest, process) = (options.slowest, options.process);
    Explainer::new(context, ledger, slowest, baseline, process)
}
