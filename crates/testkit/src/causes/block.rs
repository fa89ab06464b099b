//! One measured block: what the client saw, and what the explanation makes of the recording.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use taillab_analysis::ledger::Baseline;
use taillab_analysis::service_time::busy_periods;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    Analysis, AnalysisError, AnalysisOptions, Matched, Window, match_recording,
};
use taillab_load::ground_truth::{GroundTruth, InjectedInterval, InjectedSource};
use taillab_model::explanation::{Cause, CauseShare, Culprit, Prediction};
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
    /// What the log of the injection says of what ended in the time of this recording, as events are counted.
    pub logged: OccurrenceSum,
    /// The length of that which began in it, too, as requests are charged; in nanoseconds.
    pub begun_ns: f64,
    /// What the explanation says of the right causes and culprits.
    pub found: OccurrenceSum,
    /// The first finding that is about a cause is about the right one.
    pub is_first: bool,
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
        block.tell(setup, &server, &truth.injected, last_t6);
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
        truth: &GroundTruth,
        last_t6: Monotonic,
    ) {
        let began = self.began.unwrap_or(last_t6);
        let within = |it: &&InjectedInterval| it.to_ns > began && it.to_ns <= last_t6;
        for interval in truth.intervals.iter().filter(within) {
            let length_ns = interval.length().get() as f64;
            self.logged.times += u64::from(interval.times);
            self.logged.length_ns += length_ns;
            if interval.from_ns >= began {
                self.begun_ns += length_ns;
            }
        }
        let is_right = |share: &&CauseShare| {
            let mut of_cause = truth
                .sources
                .iter()
                .filter(|source| source.cause == share.cause);
            of_cause.any(|source| match (&source.culprit, &share.culprit) {
                (None, None) => true,
                (None, Some(_)) | (Some(_), None) => false,
                (truth, named) => is_meant(truth, named),
            })
        };
        for share in server.causes.iter().filter(is_right) {
            self.found.times += share.events;
            self.found.length_ns += share.events as f64 * share.mean_event_ns;
        }
        let explanation = server.explanation.as_ref();
        self.is_told = explanation.is_some() && !server.causes.is_empty();
        let mut findings = explanation
            .iter()
            .flat_map(|explanation| &explanation.findings);
        let first = findings.find_map(|finding| finding.cause);
        self.is_first = first.is_some() && first == setup.cause;
        let own_work = server.ideal.own_work.as_ref();
        self.own_work_ns =
            own_work.and_then(|ideal| Some(ideal.sojourn.mean? * ideal.sojourn.count as f64));
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
}
