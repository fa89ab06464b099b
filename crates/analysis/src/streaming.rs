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
use taillab_model::summary::{
    BusyPeriods, Ideal, LeftOut, Matching, Measured, Overhead, Overload, Scheduled, ServerResult,
    ServiceTimeSource, Withdrawn, WorkersSource,
};
use taillab_model::{
    Distribution, Histogram, Lacking, MiddleStamps, Monotonic, Nanos, RecordingContext, Tid,
};

use crate::comparison::{Inside, LeastSojourns, disagrees, is_above, no_distribution};
use crate::explain::{Explained, Explainer, Sojourn};
use crate::fan_out::fan_out;
use crate::findings;
use crate::ideal::IdealArrivals;
use crate::ledger::{Baseline, Entry, Labels, LedgerOptions, SharedQueues};
use crate::matched::{MatchCounts, SentAgain};
use crate::overload::Queue;
use crate::predict::PREDICTED_QUANTILES;
use crate::replay::Sampler;
use crate::sent_again::{self, resent_responses};
use crate::spans::{Spans, earlier};
use crate::statistics::{Observations, counted_curve};
use crate::streaming::limits::limits;
use crate::streaming::on_schedule::OnSchedule;
use crate::streaming::sums::Sums;
use crate::timeline::ServerTime;
use crate::verdict::{self, Unsupported};
use crate::window::Window;

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
    pub interval: Option<(Nanos, Nanos)>,
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

/// What a recording shows.
#[derive(Clone, Debug)]
pub struct Analysed {
    /// The server's side. The caller sets what the analysis does not know: the source of t, the probe's
    /// cost, the CPUs' busy share and whether the workers are virtual.
    pub server: ServerResult,
    /// What requests that were sent on schedule saw, without its claims; `None` if the recording has no cuts.
    pub scheduled: Option<Scheduled>,
    /// Requests that arrived during the measurement.
    pub arrivals: u64,
    /// The same, plus those of the warm-up.
    pub all_arrivals: u64,
    /// The client's service time minus the sojourn of the requests that were sent on schedule, if a client was
    /// joined.
    pub client_minus_server: Option<Distribution>,
    /// Points (x, P(sojourn ≥ x)) of the measured sojourn.
    pub measured_ccdf: Vec<(Nanos, f64)>,
    /// The same for the ideal sojourn.
    pub ideal_ccdf: Vec<(Nanos, f64)>,
    /// Evidence for the verdict that is not in the report.
    pub evidence: verdict::ServerEvidence,
    /// The ideal sojourn as if its requests were independent, for sentences, which have no intervals.
    /// Empty if there is no comparison.
    pub ideal_as_independent: Distribution,
    /// Interrupts, softirqs and wake-ups were recorded.
    pub disturbances: bool,
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
    /// Matched requests that no record of the client explains; `None` without a client.
    unexplained: Option<u64>,
    /// A window shows what the CPUs did.
    disturbances: bool,
    counts: MatchCounts,
    left_out: LeftOut,
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
            let least = options.interval.map_or(service_time, |(lo, _)| lo);
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
            unexplained: None,
            disturbances: false,
            counts: MatchCounts::default(),
            left_out: LeftOut::default(),
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
        self.left_out.from_before += matched.from_before;
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
        self.counts.add(matched, measure_from, (*from, *upto));
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
        let disturbances = self.disturbances;
        explainer.add(matched, timeline, *upto, |entry, labels| {
            if disturbances {
                each(entry, labels);
            }
        });
        requests.ideal
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

    /// The result for the whole recording; `lost_events` is how many events the probe lost.
    ///
    /// # Errors
    /// When there is no request to analyse.
    pub fn finish(self, lost_events: u64) -> Result<Analysed, AnalysisError> {
        self.ensure_packets()?;
        let (matching, lacking) = self.matching(lost_events);
        let busy = self.busy_workers(&matching);
        let (options, workers) = (self.options, self.options.workers.get());
        let t = options.service_time;
        let known_t = options.service_time_known.then_some(t);
        let overload = (self.queue).finish(workers, known_t, options.measure_from, self.context);
        let Some(explainer) = self.explainer.filter(|_| self.sums.answered() > 0) else {
            return Err(nothing_measured(overload, self.all_arrivals));
        };
        // in a queue that grows, the percentiles are those of this measurement
        let is_overloaded = overload.is_some();
        let summed = (self.sums).finish(options.is_repeated, is_overloaded, lacking);
        let (measured, mut ideal) = (&summed.measured, summed.ideal.distribution());
        let by_service_time = self.arrivals.widen(&mut ideal);
        let sojourn = Sojourn {
            fan_out: fan_out(measured),
            distribution: measured.distribution(),
        };
        // our own client sends by its schedule, and what it could not send in time is in its response times
        let wait = self.inside.clients_that_wait(workers);
        let clients_wait = wait.filter(|_| self.unexplained.is_none());
        let withdrawn = withdrawn(&options, clients_wait, (&ideal, &sojourn.distribution));
        let mut explained = if self.disturbances {
            let (shown, polls) = ((self.windows, self.shown_by), self.busy.polls());
            let came = (self.silent, self.all_arrivals);
            let limits = limits(measured, shown, polls, came, &matching);
            let least = LeastSojourns {
                ideal: &ideal,
                receiver_elsewhere: self.arrivals.receiver_elsewhere(&PREDICTED_QUANTILES),
            };
            explainer.finish(&sojourn, &least, withdrawn, limits, || {
                self.sampler.finish(self.context)
            })
        } else {
            unexplained(withdrawn)
        };
        let is_compared = explained.withdrawn.is_none();
        let replayed = std::mem::take(&mut explained.on_schedule);
        let scheduled = (self.on_schedule)
            .map(|view| view.finish(lacking, is_compared).with_replayed(replayed));
        let evidence = verdict::ServerEvidence {
            faster_than_ideal: summed.faster_share,
            unsupported: Unsupported::of(&sojourn.distribution, measured.factors()),
            beyond_slice: explained.beyond_slice,
            late_events: self.late_events,
            unexplained: self.unexplained.unwrap_or(0),
        };
        let utilization = self.arrivals.rate_per_s() * t.as_secs_f64();
        let (sojourn_of_ideal, excess, mut as_independent) = match is_compared {
            true => (ideal, summed.excess, summed.ideal),
            false => (no_distribution(), no_distribution(), Observations::of(&[])),
        };
        as_independent.assume_independent();
        let ideal_as_independent = as_independent.distribution();
        add_unprobed(&mut explained, self.arrivals.without_probe());
        let ideal = Ideal {
            sojourn: sojourn_of_ideal,
            of_schedule: self.arrivals.of_schedule().filter(|_| is_compared),
            by_service_time: match is_compared {
                true => by_service_time,
                false => Vec::new(),
            },
            own_work: explained.own_work,
            workers,
            workers_source: WorkersSource::default(),
            virtual_workers: false,
            utilization: utilization / f64::from(workers),
            withdrawn: explained.withdrawn,
        };
        let mut server = ServerResult {
            service_time_ns: t,
            // who calls this knows where t comes from, what the probe costs, and how busy the CPUs were
            service_time_source: ServiceTimeSource::default(),
            service_time_lo_ns: None,
            service_time_hi_ns: None,
            busy_periods: options.busy_periods,
            busy_periods_by_cpu: Vec::new(),
            measured: Measured {
                sojourn: sojourn.distribution,
                server_cpu_busy_share: None,
                utilization: busy.utilization,
                busy_ns_per_request: busy.ns_per_request,
                overload,
            },
            ideal,
            excess,
            stages: summed.stages,
            stages_at: summed.stages_at,
            matching,
            left_out: self.left_out,
            sent_again: resent_responses(&self.sent_again),
            overhead: Overhead::default(),
            causes: explained.causes,
            ratio: Vec::new(),
            model_fit: explained.model_fit,
            predictions: explained.predictions,
            explanation: explained.explanation,
        };
        findings::renew(&mut server, &ideal_as_independent, self.disturbances);
        Ok(Analysed {
            server,
            scheduled,
            arrivals: self.arrivals.count(),
            all_arrivals: self.all_arrivals,
            client_minus_server: self.unexplained.map(|_| summed.client_minus_server),
            measured_ccdf: measured.curve(),
            ideal_ccdf: as_independent.curve(),
            evidence,
            ideal_as_independent,
            disturbances: self.disturbances,
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

    /// How much of the time the workers were busy.
    fn busy_workers(&self, matching: &Matching) -> BusyWorkers {
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
        BusyWorkers {
            utilization: busy
                .filter(|_| available > 0.0)
                .map(|busy| busy.as_secs_f64() / available),
            ns_per_request: busy.map(|busy| busy.get() as f64 / requests),
        }
    }
}

/// How much of the time the workers were busy, where that is known.
struct BusyWorkers {
    utilization: Option<f64>,
    ns_per_request: Option<f64>,
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

/// Why the server is not compared with its ideal. `clients_wait` is the most that clients who wait for their
/// answers have outstanding.
fn withdrawn(
    options: &AnalysisOptions,
    clients_wait: Option<u64>,
    (ideal, measured): (&Distribution, &Distribution),
) -> Option<Withdrawn> {
    match (clients_wait, &options.busy_periods) {
        _ if !options.service_time_known => Some(Withdrawn::ServiceTimeUnknown),
        (Some(at_once), _) => Some(Withdrawn::ClientsWait { at_once }),
        (None, Some(recorded)) => disagrees(options.service_time, recorded),
        (None, None) => is_above(ideal, measured),
    }
}

/// Adds the curve of the ideal without the probe, where it was asked for and there is a comparison.
fn add_unprobed(explained: &mut Explained, sojourns: Option<&Histogram>) {
    let (Some(explanation), None) = (&mut explained.explanation, explained.withdrawn) else {
        return;
    };
    let curve = |sojourns| NamedCurve {
        name: "ideal_without_probe".to_owned(),
        points: counted_curve(sojourns, 0),
    };
    explanation.curves.extend(sojourns.map(curve));
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

/// What there is where the recording does not say what the CPUs did.
fn unexplained(withdrawn: Option<Withdrawn>) -> Explained {
    Explained {
        withdrawn,
        ..Explained::default()
    }
}
