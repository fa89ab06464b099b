//! One measured block: what the client saw, and what the explanation makes of the recording.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use taillab_analysis::ledger::Baseline;
use taillab_analysis::service_time::busy_periods;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    Analysis, AnalysisError, AnalysisOptions, Matched, Window, match_recording,
};
use taillab_load::fault::Fault;
use taillab_load::ground_truth::{GroundTruth, InjectedInterval, InjectedSource};
use taillab_model::explanation::{Cause, CauseShare, Culprit, Finding, Prediction, SlowRequests};
use taillab_model::summary::ServerResult;
use taillab_model::{Monotonic, Nanos, Quantile, Recording, RequestKey, quantile_rank};

use super::criteria::MOST_CONTAMINATED;
use super::kind::{BaseServer, Oracle, Promise};
use super::setup::Setup;
use crate::attribution::{Span, delays, is_meant, lost};

/// What is known about a block without the probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientBlock {
    /// From the send of each request to its answer, by the generator's clock, in the order of the
    /// schedule and without the warm-up; `None` for a request without an answer.
    pub sojourns_ns: Vec<Option<Nanos>>,
    /// Whether each of them is judged; empty if all are.
    pub judged: Vec<bool>,
    /// The client's ports of those that are judged; empty if all are.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// The share of the server's CPU time that the hypervisor took (`/proc/stat`).
    pub stolen_share: f64,
    /// The share of the block for which the generator was late with a request.
    pub late_share: f64,
}

impl ClientBlock {
    /// Whether the machine disturbed the block too much for it to prove anything.
    pub fn is_contaminated(&self) -> bool {
        self.stolen_share.max(self.late_share) > MOST_CONTAMINATED
    }

    /// How much longer the client waited in this block than in `other`, in nanoseconds: the sum over
    /// the requests of the schedule that were answered in both and are judged here.
    pub fn longer_than(&self, other: &Self) -> f64 {
        let both = self.sojourns_ns.iter().zip(&other.sojourns_ns).enumerate();
        both.filter(|(request, _)| self.judged.get(*request) != Some(&false))
            .filter_map(|(_, (this, other))| Some((this.as_ref()?, other.as_ref()?)))
            .map(|(this, other)| this.get() as f64 - other.get() as f64)
            .sum()
    }
}

/// Everything that is kept of a block apart from its recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockTruth {
    /// What was injected, and when.
    pub injected: GroundTruth,
    /// What the client saw.
    pub client: ClientBlock,
    /// When the server that this one asks had each question, by its own clock; `None` where none is asked, and in blocks
    /// that were kept before it logged that.
    #[serde(default)]
    pub backend: Option<GroundTruth>,
}

/// The excess that the ledger charges to one cause and culprit, over all requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    /// The cause that is charged.
    pub cause: Cause,
    /// The culprit, where the ledger names one.
    pub culprit: Option<Culprit>,
    /// The excess that is charged to them.
    pub excess: Nanos,
}

/// How often something happened, and for how long together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OccurrenceSum {
    /// How often.
    pub times: u64,
    /// In nanoseconds.
    pub length_ns: f64,
}

/// What a single request was charged for the injection, and what the injection cost it by the stamps
/// of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCharge {
    /// The excess that is charged for the injection.
    pub charged: Nanos,
    /// The true delay by the injection.
    pub truth: Nanos,
}

/// A block, explained.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Block {
    /// What was injected and what the client saw.
    pub truth: BlockTruth,
    /// When it began.
    pub began: Option<Monotonic>,
    /// t of the ideal queue.
    pub service_time: Nanos,
    /// Events that the probe lost.
    pub lost_events: u64,
    /// All charges to requests that are judged, by cause and culprit.
    pub charges: Vec<Charge>,
    /// Charge and truth of each request, in the order of the answers; empty if single requests have no truth.
    pub requests: Vec<RequestCharge>,
    /// What each source of the truth cost these requests together, by the stamps of both; empty if
    /// single requests have no truth.
    pub costs_ns: Vec<f64>,
    /// The sojourns in the server, in order of length.
    pub sojourns: Vec<Nanos>,
    /// Their percentiles, with intervals that allow for correlation.
    pub measured: Vec<Quantile>,
    /// Forecasts of the sojourns without a cause.
    pub predictions: Vec<Prediction>,
    /// There are causes and findings: they are not withdrawn.
    pub is_told: bool,
    /// What the log of the injection says of what ended in the time of this recording, as events are counted. Where another
    /// server is asked, the log is that server's.
    pub logged: OccurrenceSum,
    /// The same by the log of the server that asked it, from which the truth of single requests follows; `None` where no
    /// other server has a log.
    pub logged_by_asker: Option<OccurrenceSum>,
    /// The length of that which began in it, too, as requests are charged; in nanoseconds.
    pub begun_ns: f64,
    /// What the explanation says of the right causes and culprits; of slow requests with a shadow, how many there were,
    /// and by how much longer they worked than the others.
    pub found: OccurrenceSum,
    /// The first finding that is about a cause is about the right one, of which the right culprit has the largest part.
    pub is_first: bool,
    /// What slow requests cost themselves and those behind them, in nanoseconds; `None` where nothing is told.
    pub shadow_ns: Option<f64>,
    /// The sojourns in the second ideal, summed over the requests, in nanoseconds; `None` where that is not known.
    pub own_work_ns: Option<f64>,
}

/// Why a recording cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum BadRecording {
    /// It was not made by this benchmark.
    #[error(
        "the recording does not say t and the number of workers: it was not made by this benchmark"
    )]
    NoServiceTime,
    /// Its requests cannot be matched.
    #[error(transparent)]
    Match(#[from] taillab_analysis::matcher::ParseFramingError),
    /// There is no request to explain.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
}

impl Block {
    /// Explains a recording.
    ///
    /// # Errors
    /// [`BadRecording`] when it was not made by this benchmark.
    pub fn explained(
        setup: &Setup,
        recording: Recording,
        truth: BlockTruth,
    ) -> Result<Self, BadRecording> {
        let context = &recording.context;
        let workers = context.workers.and_then(NonZeroU32::new);
        let (Some(service_time), Some(workers)) = (context.service_time_ns, workers) else {
            return Err(BadRecording::NoServiceTime);
        };
        let timeline = Timeline::build(recording.events(), context);
        let matched = match_recording(&recording)?;
        let from = Monotonic::from_nanos_since_boot(context.measure_from_ns.unwrap_or(0));
        // t is divided between service and receiving as `run` divides it: a median service has met packets
        let busy = busy_periods::measure(&matched, &timeline, from).pooled;
        let baseline = Baseline::of(&matched, &timeline, service_time, busy.as_ref());
        let options = AnalysisOptions {
            baseline: Some(baseline),
            // as in a result of `run`, t is held against them, and not against a median that is below the ideal's where some
            // requests overtake others
            busy_periods: busy,
            slowest: 0,
            is_repeated: true,
            exact: usize::MAX,
            ..AnalysisOptions::new(service_time, workers, from)
        };
        let sources = setup.sources(&truth.injected);
        let is_judged = judged(&matched, &truth.client.ports);
        let costs = costs(setup, &matched, &truth.injected, service_time);
        let mut costs_ns = vec![0.0; costs.len()];
        let window = Arc::new(Window::whole(matched, timeline));
        let mut analysis = Analysis::new(context, options);
        let mut last_t6 = from;
        let mut block = Self {
            began: Some(from),
            service_time,
            lost_events: recording.lost.total(),
            ..Self::default()
        };
        analysis.push(&window, |entry, labels| {
            block.sojourns.push(Nanos::new(entry.sojourn_ns));
            last_t6 = last_t6.max(entry.stamps.t6);
            if !is_judged[entry.place] {
                return;
            }
            let mut charged = Nanos::ZERO;
            for (label, excess) in entry.excess {
                let charge = Charge {
                    cause: labels.cause(*label),
                    culprit: labels.culprit(*label),
                    excess: Nanos::new(*excess),
                };
                if charge.is_of(&sources) {
                    charged += charge.excess;
                }
                block.charge(charge);
            }
            if !costs.is_empty() {
                let of_request = costs.iter().map(|costs| costs[entry.place]);
                for (sum, cost) in costs_ns.iter_mut().zip(of_request.clone()) {
                    *sum += cost.get() as f64;
                }
                let truth = of_request.sum();
                block.requests.push(RequestCharge { charged, truth });
            }
        });
        block.costs_ns = costs_ns;
        let server = analysis.finish(0)?.unjudged().server;
        block.tell(setup, &server, &truth, last_t6);
        block.measured = server.measured.sojourn.quantiles;
        block.predictions = server.predictions;
        block.sojourns.sort_unstable();
        block.truth = truth;
        Ok(block)
    }

    /// Keeps what the result tells of the injection, besides charges: the requests of this block left until `last_t6`.
    fn tell(
        &mut self,
        setup: &Setup,
        server: &ServerResult,
        truth: &BlockTruth,
        last_t6: Monotonic,
    ) {
        self.read_logs(truth, last_t6);
        let explanation = server.explanation.as_ref();
        self.is_told = explanation.is_some() && !server.causes.is_empty();
        let slow = explanation.and_then(|explanation| explanation.slow_requests.as_ref());
        self.found = match setup.told.shadow {
            true => slow.map(OccurrenceSum::of_slow).unwrap_or_default(),
            false => OccurrenceSum::of_right(&server.causes, &truth.injected.sources),
        };
        self.shadow_ns = self.is_told.then(|| slow.map_or(0.0, shadow_ns));
        let findings = explanation.map(|explanation| explanation.findings.as_slice());
        let findings = findings.unwrap_or_default();
        let sources = setup.sources(&truth.injected);
        self.is_first = setup.cause.is_some()
            && first_cause(findings) == setup.cause
            && is_largest(&sources, setup.cause, &server.causes);
        let own_work = server.ideal.own_work.as_ref();
        self.own_work_ns =
            own_work.and_then(|ideal| Some(ideal.sojourn.mean? * ideal.sojourn.count as f64));
    }

    /// Keeps what the logs say of this block.
    fn read_logs(&mut self, truth: &BlockTruth, last_t6: Monotonic) {
        let block = self.began.unwrap_or(last_t6)..last_t6;
        let own = ended_in(&block, &truth.injected);
        let begun = own.iter().filter(|it| it.from_ns >= block.start);
        self.begun_ns = begun.map(|it| it.length().get() as f64).sum();
        let own = OccurrenceSum::of(&own);
        let backend = truth.backend.as_ref();
        let backend = backend.map(|log| OccurrenceSum::of(&ended_in(&block, log)));
        self.logged = backend.unwrap_or(own);
        self.logged_by_asker = backend.map(|_| own);
    }

    fn charge(&mut self, charge: Charge) {
        let mut known = self.charges.iter_mut();
        match known.find(|it| it.cause == charge.cause && it.culprit == charge.culprit) {
            Some(known) => known.excess += charge.excess,
            None => self.charges.push(charge),
        }
    }

    /// What is charged to a cause, in nanoseconds.
    pub fn charged_to(&self, cause: Cause) -> f64 {
        self.sum(|charge| charge.cause == cause)
    }

    /// What is charged to the causes and culprits of these sources, in nanoseconds.
    pub fn charged_to_all(&self, sources: &[InjectedSource]) -> f64 {
        self.sum(|charge| charge.is_of(sources))
    }

    /// All that is charged, in nanoseconds.
    pub fn excess(&self) -> f64 {
        self.sum(|_| true)
    }

    fn sum(&self, of: impl Fn(&Charge) -> bool) -> f64 {
        let charges = self.charges.iter().filter(|charge| of(charge));
        charges.map(|charge| charge.excess.get() as f64).sum()
    }

    /// A quantile of the sojourn in the server.
    pub fn sojourn(&self, q: f64) -> Nanos {
        let rank = quantile_rank(self.sojourns.len() as u64, q) as usize;
        self.sojourns.get(rank).copied().unwrap_or(Nanos::ZERO)
    }

    /// The same quantile with its interval; `None` where there is no such.
    pub fn measured_at(&self, q: f64) -> Option<Quantile> {
        self.measured.iter().find(|it| it.q == q).copied()
    }

    /// The forecast for this promise, if there is one. Other threads may do what was injected and still
    /// run after the fix, so a forecast that removes only the culprit is preferred.
    pub fn forecast(&self, promise: Promise) -> Option<&Prediction> {
        let named = |change: &str| self.predictions.iter().find(|it| it.change == change);
        let cause = match promise {
            Promise::Mitigation(key) => return named(key),
            Promise::Without(cause) => cause,
        };
        let sources = self.truth.injected.sources.iter();
        let culprits = sources.filter(|source| source.cause == cause);
        culprits
            .filter_map(|source| source.culprit.as_ref())
            .flat_map(|culprit| [culprit.clone(), without_thread(culprit)])
            .find_map(|culprit| named(&format!("without {culprit}")))
            .filter(|it| it.removes == [cause])
            .or_else(|| named(&format!("without {}", cause.key())))
    }
}

impl OccurrenceSum {
    fn of(log: &[InjectedInterval]) -> Self {
        Self {
            times: log.iter().map(|it| u64::from(it.times)).sum(),
            length_ns: log.iter().map(|it| it.length().get() as f64).sum(),
        }
    }

    /// How many slow requests there were, and by how much longer they worked than the others.
    fn of_slow(slow: &SlowRequests) -> Self {
        let each = slow.mean_own_ns.saturating_sub(slow.others_own_ns);
        Self {
            times: slow.requests,
            length_ns: slow.requests as f64 * each.get() as f64,
        }
    }

    /// The events of the right causes and culprits.
    fn of_right(causes: &[CauseShare], sources: &[InjectedSource]) -> Self {
        let is_right = |share: &&CauseShare| {
            let mut of_cause = sources.iter().filter(|source| source.cause == share.cause);
            of_cause.any(|source| match (&source.culprit, &share.culprit) {
                (None, None) => true,
                (None, Some(_)) | (Some(_), None) => false,
                (truth, named) => is_meant(truth, named),
            })
        };
        let mut sum = Self::default();
        for share in causes.iter().filter(is_right) {
            sum.times += share.events;
            sum.length_ns += share.events as f64 * share.mean_event_ns;
        }
        sum
    }
}

/// What slow requests cost: by how much longer they worked than the others, and for how long others waited for them.
fn shadow_ns(slow: &SlowRequests) -> f64 {
    let delays_ns = slow.delayed as f64 * slow.mean_delay_ns.get() as f64;
    OccurrenceSum::of_slow(slow).length_ns + delays_ns
}

/// The cause of the first finding that is about one.
fn first_cause(findings: &[Finding]) -> Option<Cause> {
    findings.iter().find_map(|finding| finding.cause)
}

/// Whether one of the sources of this cause is its largest culprit, with which the sentence of a finding begins; or has
/// no culprit, since the cause says it all.
fn is_largest(sources: &[InjectedSource], cause: Option<Cause>, causes: &[CauseShare]) -> bool {
    let above = |share: &&CauseShare| share.excess_share_above_p99.value;
    let culprits = causes
        .iter()
        .filter(|share| Some(share.cause) == cause && share.culprit.is_some());
    let largest = culprits.max_by(|a, b| above(a).total_cmp(&above(b)));
    let named = largest.and_then(|share| share.culprit.clone());
    let mut of_cause = (sources.iter()).filter(|source| Some(source.cause) == cause);
    of_cause.any(|source| is_meant(&source.culprit, &named))
}

/// What a log says of the things that ended in this span of time.
fn ended_in(span: &Range<Monotonic>, log: &GroundTruth) -> Vec<InjectedInterval> {
    let ended = |it: &InjectedInterval| it.to_ns > span.start && it.to_ns <= span.end;
    let mut all = occurrences(log);
    all.retain(ended);
    all
}

/// The intervals of a log, one for each time that something happened. A worker that burns CPU time logs each stretch in
/// which it had the CPU: here they are as one, from the first on, until they are as long as it was to burn.
///
/// Workers that burn at once would cut each other's: the kinds whose events are counted have one.
fn occurrences(log: &GroundTruth) -> Vec<InjectedInterval> {
    let burns: Vec<Option<Nanos>> = log.sources.iter().map(burn).collect();
    let mut all: Vec<InjectedInterval> = Vec::with_capacity(log.intervals.len());
    for interval in &log.intervals {
        let source = usize::from(interval.source);
        let burn = burns.get(source).copied().flatten();
        match all.last_mut().zip(burn) {
            Some((last, burn)) if last.source == interval.source && last.length() < burn => {
                last.to_ns = last.to_ns + interval.length();
            }
            _ => all.push(*interval),
        }
    }
    all
}

/// For how long a request with this fault burns CPU time; `None` where it is another injection.
fn burn(source: &InjectedSource) -> Option<Nanos> {
    match source.injected.parse::<Fault>() {
        Ok(Fault::Slow { lasts, .. }) => Some(lasts),
        _ => None,
    }
}

/// The culprit as all threads of its name and process: forecasts may name them together.
fn without_thread(culprit: &Culprit) -> Culprit {
    match culprit {
        Culprit::Thread {
            name, pid, process, ..
        } => Culprit::Thread {
            name: name.clone(),
            pid: *pid,
            tid: None,
            process: process.clone(),
        },
        other => other.clone(),
    }
}

impl Charge {
    /// Whether it names the cause and the culprit of one of these sources.
    fn is_of(&self, sources: &[InjectedSource]) -> bool {
        let mut sources = sources.iter();
        sources.any(|source| source.cause == self.cause && is_meant(&source.culprit, &self.culprit))
    }
}

/// What each source of the truth cost each request; empty if single requests have no truth.
fn costs(setup: &Setup, matched: &Matched, truth: &GroundTruth, usual: Nanos) -> Vec<Vec<Nanos>> {
    match setup.oracle {
        Oracle::HeldBack => delays(&spans(setup, matched), truth, usual),
        Oracle::Loss => vec![lost(&spans(setup, matched), truth)],
        Oracle::Structure | Oracle::Client | Oracle::Log | Oracle::Outside | Oracle::Nothing => {
            Vec::new()
        }
    }
}

/// Whether each request came from one of these ports; all are where there are none.
fn judged(matched: &Matched, ports: &[u16]) -> Vec<bool> {
    let of = |key: &RequestKey| {
        let peer = matched.clients.of(key.connection);
        ports.is_empty() || peer.is_some_and(|peer| ports.contains(&peer.port()))
    };
    matched.keys.iter().map(of).collect()
}

fn spans(setup: &Setup, matched: &Matched) -> Vec<Span> {
    let several = !matches!(
        setup.server,
        BaseServer::Datagrams
            | BaseServer::Streams
            | BaseServer::LongStreams
            | BaseServer::ManyStreams
    );
    (0..matched.requests.len())
        .map(|place| (place, matched.requests.stamps(place)))
        .map(|(place, stamps)| Span {
            t1: stamps.t1,
            t2: stamps.t2.unwrap_or(stamps.t1),
            t6: stamps.t6,
            // a single worker has also served the requests whose worker was not seen
            worker: if several { matched.workers[place] } else { 0 },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use taillab_model::explanation::Share;

    use super::*;

    #[test]
    fn blocks_are_compared_request_by_request() {
        let block = |sojourns: &[Option<u64>]| ClientBlock {
            sojourns_ns: sojourns.iter().map(|it| it.map(Nanos::new)).collect(),
            ..ClientBlock::default()
        };
        let with = block(&[Some(30), None, Some(7), Some(50)]);
        let without = block(&[Some(10), Some(9), None, Some(60)]);
        assert_eq!(with.longer_than(&without), 10.0);
        assert_eq!(without.longer_than(&with), -10.0);
        let first = ClientBlock {
            judged: vec![true, true, true, false],
            ..with
        };
        assert_eq!(first.longer_than(&without), 20.0);
    }

    #[test]
    fn only_what_names_the_right_cause_and_culprit_is_right() {
        let thread = |tid| Culprit::Thread {
            name: "tl-background".to_owned(),
            pid: Some(1),
            tid,
            process: None,
        };
        let mut block = Block::default();
        for (cause, culprit, excess) in [
            (Cause::Background, Some(thread(Some(7))), 5),
            (Cause::Background, Some(thread(Some(7))), 6),
            (Cause::Background, Some(thread(Some(8))), 100),
            (Cause::Wakeup, None, 1_000),
        ] {
            block.charge(Charge {
                cause,
                culprit,
                excess: Nanos::new(excess),
            });
        }
        let source = InjectedSource {
            injected: "background:1ms,1ms".to_owned(),
            cause: Cause::Background,
            culprit: Some(thread(Some(7))),
        };
        assert_eq!(block.charges.len(), 3);
        assert_eq!(block.charged_to_all(&[source]), 11.0);
        assert_eq!(block.charged_to(Cause::Background), 111.0);
        assert_eq!(block.excess(), 1_111.0);
    }

    fn at_us(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(1_000 * us)
    }

    /// A log of stretches from and to these µs.
    fn log(injected: &str, stretches: &[(u64, u64)]) -> GroundTruth {
        let interval = |&(from, to): &(u64, u64)| InjectedInterval {
            source: 0,
            cpu: None,
            held: Some(7),
            from_ns: at_us(from),
            to_ns: at_us(to),
            times: 1,
        };
        let intervals = stretches.iter().map(interval).collect();
        GroundTruth::of_one(injected.to_owned(), Cause::SlowService, None, intervals)
    }

    #[test]
    fn a_burn_that_interrupts_cut_in_pieces_is_logged_once() {
        let stretches = [
            (0, 2_000),
            (2_010, 5_010),
            (60_000, 65_000),
            (90_000, 95_000),
        ];
        let span = at_us(1_000)..at_us(80_000);
        let sum = |injected: &str| OccurrenceSum::of(&ended_in(&span, &log(injected, &stretches)));
        let times = |injected: &str| sum(injected).times;
        assert_eq!((times("slow:100,5ms"), times("pause:120ms,8ms")), (2, 3));
        // what interrupted it is no part of it
        assert_eq!(sum("slow:100,5ms").length_ns, 10e6);
    }

    #[test]
    fn events_are_those_of_the_server_that_is_asked_where_it_has_a_log() {
        let mut truth = BlockTruth {
            injected: log("upstream:100,7998", &[(10, 5_200), (9_000, 14_200)]),
            ..BlockTruth::default()
        };
        let read = |truth: &BlockTruth| {
            let mut block = Block {
                began: Some(at_us(0)),
                ..Block::default()
            };
            block.read_logs(truth, at_us(20_000));
            let by_asker = block.logged_by_asker.map(|own| own.length_ns);
            (block.logged.length_ns, by_asker)
        };
        assert_eq!(read(&truth), (10.39e6, None));
        truth.backend = Some(log("backend:5ms", &[(100, 5_100), (9_100, 14_100)]));
        assert_eq!(read(&truth), (10e6, Some(10.39e6)));
    }

    #[test]
    fn a_block_that_was_kept_without_a_log_of_the_server_that_is_asked_is_read() {
        let mut kept = serde_json::to_value(BlockTruth::default()).unwrap();
        kept.as_object_mut().unwrap().remove("backend").unwrap();
        let read: BlockTruth = serde_json::from_value(kept).unwrap();
        assert_eq!(read, BlockTruth::default());
    }

    #[test]
    fn slow_requests_cost_their_own_work_and_the_delays_of_others() {
        let slow = SlowRequests {
            requests: 12,
            operations: Vec::new(),
            mean_own_ns: Nanos::from_micros(5_300),
            others_own_ns: Nanos::from_micros(300),
            delayed: 100,
            mean_delay_ns: Nanos::from_millis(2),
        };
        let found = OccurrenceSum::of_slow(&slow);
        assert_eq!((found.times, found.length_ns), (12, 60e6));
        assert_eq!(shadow_ns(&slow), 260e6);
    }

    /// What the table says of a server that is asked at this port.
    fn asked_at(port: u16, above_p99: f64) -> CauseShare {
        let share = Share {
            value: above_p99,
            ..Share::default()
        };
        CauseShare {
            cause: Cause::Upstream,
            culprit: Some(server_at(port)),
            share,
            excess_share_above_p99: share,
            excess_ns: Nanos::from_millis(1),
            requests: 1,
            events: 1,
            mean_event_ns: 5e6,
            median_event_ns: None,
            longest_event_ns: None,
            long_events: None,
            requests_per_event: 1.0,
        }
    }

    fn server_at(port: u16) -> Culprit {
        Culprit::Upstream {
            servers: vec![format!("127.0.0.1:{port}")],
        }
    }

    #[test]
    fn the_right_culprit_has_the_largest_part_of_its_cause() {
        let source = |culprit| {
            [InjectedSource {
                injected: "upstream:100,7998".to_owned(),
                cause: Cause::Upstream,
                culprit,
            }]
        };
        let other = CauseShare {
            cause: Cause::Pause,
            ..asked_at(1, 0.9)
        };
        let causes = [other, asked_at(7_998, 0.6), asked_at(80, 0.3)];
        let of = |culprit, cause| is_largest(&source(culprit), Some(cause), &causes);
        assert!(of(Some(server_at(7_998)), Cause::Upstream));
        assert!(!of(Some(server_at(80)), Cause::Upstream));
        // the cause says it all
        assert!(of(None, Cause::Upstream));
        // nothing of it was injected
        assert!(!of(None, Cause::Pause));
    }
}
