//! The analysis of a recording, window by window: one pass, in bounded memory.
//!
//! Everything is a sum over the requests as they come. Up to [`AnalysisOptions::exact`] requests,
//! the values themselves are kept, so that a short recording has exact quantiles. Beyond, they
//! are those of a histogram, within [`HISTOGRAM_ERROR`] of the truth, and their intervals take
//! the correlation from a [`Series`](crate::statistics::Series).
//!
//! A short recording is one window. Where there are several:
//!
//! - what is usual of the server ([`Baseline`]) is taken from the first;
//! - whether slow requests come together is asked of those that are slow among all before them
//!   and in their window;
//! - only a sample of the time is replayed, as the result says.

mod sums;

use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_model::summary::{
    Ideal, Matching, Measured, Overhead, ServerResult, ServiceTimeSource, Withdrawn, WorkersSource,
};
use taillab_model::{Distribution, HISTOGRAM_ERROR, Monotonic, Nanos, RecordingContext, Tid};

use crate::comparison::{Inside, no_distribution, withdrawn};
use crate::explain::{Comparison, Explained, Explainer, Sojourn};
use crate::fan_out::fan_out;
use crate::ideal::IdealArrivals;
use crate::ledger::{Baseline, Entry, Labels, LedgerOptions};
use crate::matched::MatchCounts;
use crate::overload::Queue;
use crate::replay::Sampler;
use crate::sample::Sample;
use crate::statistics::Observations;
use crate::streaming::sums::{Summed, Sums};
use crate::timeline::ServerTime;
use crate::verdict::{self, Unsupported};
use crate::window::Window;

/// Up to this many requests the quantiles are exact, unless another number is asked for.
pub const EXACT: usize = 500_000;

/// This many of the slowest requests are taken apart, unless another number is asked for.
pub const SLOWEST: usize = 20;

/// What the analysis needs besides the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnalysisOptions {
    /// t: 1 / peak throughput of one core.
    pub service_time: Nanos,
    /// t is more than a stand-in; else there is no comparison.
    pub service_time_known: bool,
    /// Workers c of the ideal queue.
    pub workers: NonZeroU32,
    /// Start of the measurement: requests due before it are warm-up.
    pub measure_from: Monotonic,
    /// How many of the slowest requests are taken apart.
    pub slowest: usize,
    /// The measurement is one of many alike, whose spread says how sure a percentile is:
    /// within it requests count as if they were independent.
    pub is_repeated: bool,
    /// Up to this many requests the quantiles are exact.
    pub exact: usize,
    /// What is usual of the server; `None`: what the first window shows.
    pub baseline: Option<Baseline>,
    /// The server's process, where it still runs: the commands of forecasts name it.
    pub process: Option<Tid>,
}

impl AnalysisOptions {
    /// The usual options for this ideal server and this start of the measurement.
    pub const fn new(service_time: Nanos, workers: NonZeroU32, measure_from: Monotonic) -> Self {
        Self {
            service_time,
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
    /// The server's side. The analysis cannot know the source of t, the probe's cost, the CPUs'
    /// busy share and whether the workers are virtual: the caller sets these.
    pub server: ServerResult,
    /// Requests that came in during the measurement.
    pub arrivals: u64,
    /// The same, with those of the warm-up.
    pub all_arrivals: u64,
    /// What the client's service time has beyond the sojourn, where a client was joined.
    pub client_minus_server: Option<Distribution>,
    /// Points (x, P(sojourn ≥ x)) of the measured sojourn.
    pub measured_ccdf: Vec<(Nanos, f64)>,
    /// The same of the ideal one.
    pub ideal_ccdf: Vec<(Nanos, f64)>,
    /// What the verdict needs and the report does not carry.
    pub evidence: verdict::ServerEvidence,
    /// The ideal sojourn as if its requests were independent: for sentences, which have no
    /// intervals. Empty where there is no comparison.
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
    /// Requests came in and were answered, but something held the generator up all the time.
    #[error(
        "nothing is left of the measurement: other programs held the generator up all the time, \
         so all of it was cut: stop them, or give the generator another CPU (--client-cpus)"
    )]
    AllCut,
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

/// The server's side; `set` knows the rest.
fn server_result(
    summed: Summed,
    ideal: Distribution,
    explained: Explained,
    set: impl FnOnce(&mut ServerResult),
) -> ServerResult {
    let (ideal, excess) = match explained.withdrawn {
        Some(_) => (no_distribution(), no_distribution()),
        None => (ideal, summed.excess),
    };
    let mut server = ServerResult {
        service_time_ns: Nanos::ZERO,
        service_time_source: ServiceTimeSource::default(),
        service_time_lo_ns: None,
        service_time_hi_ns: None,
        measured: Measured {
            sojourn: no_distribution(),
            server_cpu_busy_share: None,
            utilization: None,
            busy_ns_per_request: None,
            overload: None,
        },
        ideal: Ideal {
            sojourn: ideal,
            workers: 1,
            workers_source: WorkersSource::default(),
            virtual_workers: false,
            utilization: 0.0,
            withdrawn: explained.withdrawn,
        },
        excess,
        stages: summed.stages,
        stages_at: summed.stages_at,
        matching: Matching::default(),
        overhead: Overhead::default(),
        causes: explained.causes,
        model_fit: explained.model_fit,
        predictions: explained.predictions,
        explanation: explained.explanation,
    };
    set(&mut server);
    server
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
    /// Of the measurement, what is in no statistic.
    cut: Nanos,
    /// Requests of the first window.
    shown_by: usize,
    /// Matched requests that no record of the client explains; `None` without a client.
    unexplained: Option<u64>,
    /// Some window shows what the CPUs did.
    disturbances: bool,
    counts: MatchCounts,
    sums: Sums,
    inside: Inside,
    queue: Queue,
    busy: ServerTime,
    explainer: Option<Explainer>,
    sampler: Sampler,
    sample: Sample,
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
        Self {
            arrivals: IdealArrivals::new(service_time, workers, measure_from),
            all_arrivals: 0,
            events: 0,
            late_events: 0,
            windows: 0,
            cut: Nanos::ZERO,
            shown_by: 0,
            unexplained: None,
            disturbances: false,
            counts: MatchCounts::default(),
            sums: Sums::new(options.exact),
            inside: Inside::default(),
            queue: Queue::default(),
            busy: ServerTime::default(),
            explainer: None,
            sampler: Sampler::new(measure_from),
            sample: Sample::default(),
            options,
            context,
        }
    }

    /// Takes the next window, and gives the accounts of the requests that end in it to `each`,
    /// where it is recorded what the CPUs did. Returns the ideal sojourns of the window's
    /// measured requests, in order of T1.
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
        self.unexplained = matched.client.map(|client| client.unexplained);
        self.disturbances |= timeline.has_disturbances();
        self.counts.add(matched, measure_from, (*from, *upto));
        let waited_for_until = self.waited_for_until(window);
        let requests = self.arrivals.take(matched, waited_for_until);
        self.sums.add(matched, &requests, measure_from);
        self.inside.add(matched);
        self.sample.add(matched, measure_from);
        self.queue.add(window, self.options.workers.get());
        self.cut += matched.cut.length(measure_from.max(*from), *upto);
        let left = matched.cut.left(measure_from.max(*from), *upto);
        let left = left.into_iter().map(|left| (left.from, left.to));
        self.busy.add(matched, timeline, left);
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

    /// A request without a response that came in by then was waited for as long as answers take:
    /// before the end by the longest sojourn, or a tenth of the recording if that is shorter.
    ///
    /// In a window that is not the last the matcher has given up all that have no response.
    fn waited_for_until(&self, window: &Window) -> Monotonic {
        /// A slow answer may take that long where the others are fast.
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
        Monotonic::from_nanos_since_boot(end.nanos_since_boot().saturating_sub(edge.get()))
    }

    /// Requests that came in so far, those of the warm-up too.
    pub const fn all_arrivals(&self) -> u64 {
        self.all_arrivals
    }

    /// What the whole recording shows, of which the probe lost this many events.
    ///
    /// # Errors
    /// When there is no request to analyse.
    pub fn finish(self, lost_events: u64) -> Result<Analysed, AnalysisError> {
        if self.all_arrivals == 0 {
            return Err(AnalysisError::NoPackets {
                events: self.events,
            });
        }
        let (matching, unanswered) = self.matching(lost_events);
        let (utilization, busy_ns_per_request) = self.business();
        let (options, workers) = (self.options, self.options.workers.get());
        let has_requests = self.sums.answered() > 0;
        let Some(explainer) = self.explainer.filter(|_| has_requests) else {
            return Err(nothing_left(self.cut, self.all_arrivals));
        };
        let summed = self.sums.finish(options.is_repeated, unanswered);
        let (measured, ideal) = (&summed.measured, summed.ideal.distribution());
        let sojourn = Sojourn {
            fan_out: fan_out(measured),
            distribution: measured.distribution(),
        };
        let withdrawn = match self.inside.clients_that_wait(workers) {
            _ if !options.service_time_known => Some(Withdrawn::ServiceTimeUnknown),
            Some(at_once) => Some(Withdrawn::ClientsWait { at_once }),
            None => withdrawn(&sojourn.distribution, &ideal, summed.faster_share),
        };
        let overload = (self.queue).finish(workers, options.service_time, options.measure_from);
        let overload = overload.filter(|_| options.service_time_known);
        let mut explained = Explained {
            withdrawn,
            ..Explained::default()
        };
        if self.disturbances {
            let mut limits = limits(measured, self.windows, self.shown_by);
            limits.extend(self.busy.polls().then(|| POLLS.to_owned()));
            limits.extend(self.sample.limit());
            let comparison = Comparison {
                ideal: &ideal,
                overload,
                as_independent: summed.ideal.independent_distribution(),
                withdrawn,
            };
            explained = explainer.finish(&sojourn, &matching, comparison, limits, || {
                self.sampler.finish(self.context)
            });
        }
        let evidence = verdict::ServerEvidence {
            faster_than_ideal: summed.faster_share,
            unsupported: Unsupported::of(&sojourn.distribution, measured.factors()),
            late_events: self.late_events,
            unexplained: self.unexplained.unwrap_or(0),
            read_together: self.sample.read_together(),
        };
        let server_measured = Measured {
            sojourn: sojourn.distribution,
            server_cpu_busy_share: None,
            utilization,
            busy_ns_per_request,
            overload,
        };
        let utilization = self.arrivals.rate_per_s() * options.service_time.as_secs_f64();
        Ok(Analysed {
            arrivals: self.arrivals.count(),
            all_arrivals: self.all_arrivals,
            client_minus_server: self.unexplained.map(|_| summed.client_minus_server.clone()),
            measured_ccdf: measured.curve(),
            ideal_ccdf: match explained.withdrawn {
                Some(_) => Vec::new(),
                None => summed.ideal.curve(),
            },
            evidence,
            ideal_as_independent: summed.compared_with(explained.withdrawn),
            disturbances: self.disturbances,
            server: server_result(summed, ideal, explained, |server| {
                server.measured = server_measured;
                server.matching = matching;
                server.service_time_ns = options.service_time;
                server.ideal.workers = workers;
                server.ideal.utilization = utilization / f64::from(workers);
            }),
        })
    }

    /// How events and responses joined, and how many requests nobody answered.
    fn matching(&self, lost_events: u64) -> (Matching, u64) {
        let mut matching = self.counts.clone().finish();
        matching.unanswered = matching.unanswered.saturating_sub(self.sums.cut_off);
        matching.lost_events = lost_events;
        matching.hooks.clone_from(&self.context.hooks);
        // answers that the client has and the probe missed
        let missed = matching.client_responses - matching.client_matched;
        let unanswered = self.sums.unanswered.saturating_sub(missed);
        (matching, unanswered)
    }

    /// Utilisation and busy nanoseconds per request, where they are known.
    fn business(&self) -> (Option<f64>, Option<f64>) {
        let Some(busy) = self.busy.total() else {
            return (None, None);
        };
        let workers = f64::from(self.options.workers.get());
        let available = self.arrivals.length().as_secs_f64() * workers;
        let utilization = (available > 0.0).then(|| busy.as_secs_f64() / available);
        let per_request = busy.get() as f64 / self.arrivals.count().max(1) as f64;
        (utilization, Some(per_request))
    }
}

/// The explainer of a recording that begins with this window.
fn explainer(context: &RecordingContext, options: &AnalysisOptions, first: &Window) -> Explainer {
    let baseline = options
        .baseline
        .unwrap_or_else(|| Baseline::of(&first.matched, &first.timeline, options.service_time));
    let ledger = LedgerOptions {
        service_time: options.service_time,
        workers: options.workers,
        measure_from: options.measure_from,
        trace_from: Nanos::MAX,
    };
    let (slowest, process) = (options.slowest, options.process);
    Explainer::new(context, ledger, slowest, baseline, process)
}

/// Why a measurement in which requests came in has none in its statistics.
fn nothing_left(cut: Nanos, arrivals: u64) -> AnalysisError {
    match cut > Nanos::ZERO {
        true => AnalysisError::AllCut,
        false => AnalysisError::NothingMatched {
            arrivals: arrivals as usize,
        },
    }
}

/// What is said of a server with such a thread.
const POLLS: &str = "A thread of the server never sleeps, and has no request most of the time: it polls. \
    Utilisation and t count only its time with requests.";

/// What the length of the recording costs in precision.
fn limits(measured: &Observations, windows: u64, shown_by: usize) -> Vec<String> {
    let percentiles = (!measured.is_exact()).then(|| {
        format!(
            "The recording is long, so percentiles are accurate to {:.2} %.",
            100.0 * HISTOGRAM_ERROR
        )
    });
    let usual = (windows > 1).then(|| {
        format!(
            "The recording was read in several windows: what is typical of this server (t and \
             the number of its workers, unless given) was taken from its first {shown_by} requests."
        )
    });
    percentiles.into_iter().chain(usual).collect()
}
