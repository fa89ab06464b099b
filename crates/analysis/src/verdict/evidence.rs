//! What is known about a measurement when it is judged.

use taillab_model::explanation::CauseShare;
use taillab_model::load_result::LoadStep;
use taillab_model::summary::{
    Calibration, ClaimName, ClientCost, CutSummary, LoadErrors, LoadSummary, Matching, Observer,
    Overhead, Overload, Reason, Withdrawn,
};
use taillab_model::{Distribution, Nanos, REPORTED_QUANTILES};

use super::supported::Supported;

use crate::spoken::OtherProtocol;
use crate::statistics::requests_needed;

/// Everything that a rule may read: sums, of which nothing was built yet. What a command does not measure is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// The measurement ended before its time.
    pub partial: bool,
    /// The hypervisor's name, on a virtual machine.
    pub hypervisor: Option<&'a str>,
    /// Conditions of the machine and the testbed, found before the measurement.
    pub conditions: &'a [Reason],
    /// The server's side: `run`, `trace`, `explain`.
    pub server: Option<&'a ServerEvidence>,
    /// What was built of it, as far as the rest of the evidence supports that; `None` while this is decided. Only
    /// warnings and sentences may read it.
    pub built: Option<Built<'a>>,
    /// Traffic that was recorded and not generated: `trace`, `explain`.
    pub recording: Option<TraceFacts<'a>>,
    /// How t was calibrated: `run`.
    pub calibration: Option<&'a Calibration>,
    /// What the probe costs: `run`.
    pub overhead: Option<&'a Overhead>,
    /// The requests that were sent on schedule: `run`, and `explain` of one.
    pub scheduled: Option<&'a ScheduleEvidence>,
    /// Workers that wait on a timer instead of using a CPU: `run`.
    pub virtual_workers: Option<VirtualWorkers>,
    /// A generator with a schedule: `load`, `run`.
    pub load: Option<SentLoad<'a>>,
    /// A generator without a schedule: `load -R max`, `load --ping-pong`.
    pub closed_loop: Option<ClientSide<'a>>,
    /// Answers come on a stream, where one too many can have been taken for the next request's: `load`, `run`.
    pub on_stream: bool,
    /// The first answer that was an error, or not one of the protocol: `load`.
    pub wrong_answer: Option<&'a str>,
    /// Several loads, one after the other, each with its own verdict: `load` with several rates, or a
    /// search.
    pub sweep: Option<&'a [LoadStep]>,
}

/// What was summed over the requests of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEvidence {
    /// How events and responses joined.
    pub matching: Matching,
    /// T6 − T1 of all requests.
    pub sojourn: Distribution,
    /// Work came faster than it was done.
    pub overload: Option<Overload>,
    /// Why the server cannot be compared with the ideal queue.
    pub not_compared: Option<Withdrawn>,
    /// Requests per second, where t is known.
    pub rate_per_s: Option<f64>,
    /// The recording says what the CPUs did, so that there may be causes and forecasts.
    pub shows_cpus: bool,
    /// Share of the requests faster than their ideal.
    pub faster_than_ideal: f64,
    /// Percentiles of the measured sojourn that the measurement is too short for.
    pub unsupported: Vec<Unsupported>,
    /// Events further out of order in time than the matcher can correct.
    pub late_events: u64,
    /// What most clients speak, if that is a protocol without a framing and the content was read.
    pub speaks: Option<OtherProtocol>,
    /// Matched requests that no record of the client explains.
    pub unexplained: u64,
    /// The requests that were sent on schedule; `None` if the recording has no cuts.
    pub scheduled: Option<ScheduleEvidence>,
    /// By how much the client's service time was longer than the sojourn of the same request, of those that were
    /// sent on schedule; those whose was not are left out. `None` without a client.
    pub client_minus_server: Option<Distribution>,
}

impl Default for ServerEvidence {
    fn default() -> Self {
        Self {
            matching: Matching::default(),
            sojourn: Distribution::from_sorted(&[]),
            overload: None,
            not_compared: None,
            rate_per_s: None,
            shows_cpus: false,
            faster_than_ideal: 0.0,
            unsupported: Vec::new(),
            late_events: 0,
            speaks: None,
            unexplained: 0,
            scheduled: None,
            client_minus_server: None,
        }
    }
}

/// What was summed over the requests that were sent on schedule. The default is where nothing was cut.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleEvidence {
    /// T6 − T1 of the requests that are not cut; `None` where nothing was.
    pub sojourn: Option<Distribution>,
    /// What was cut.
    pub cut: Option<CutSummary>,
}

/// What was built of a server's side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Built<'a> {
    /// The causes of the excess.
    pub causes: &'a [CauseShare],
    /// There are forecasts.
    pub has_forecasts: bool,
    /// A replay says what arrivals on schedule would have seen.
    pub is_replayed: bool,
    /// Where everything was recorded in slices: of the sample's requests above p99, the share that left
    /// after the end of their slice, or may have inherited delays from before it.
    pub beyond_slice: Option<f64>,
}

/// A percentile that the measurement is too short for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unsupported {
    /// The percentile's probability.
    pub q: f64,
    /// Number of requests that it needs, approximately.
    pub needs: u64,
}

impl Unsupported {
    /// The reported percentiles that a distribution lacks; `factors` say how correlated its
    /// observations are ([`Observations::factors`](crate::statistics::Observations::factors)).
    pub(crate) fn of(distribution: &Distribution, factors: &[(f64, f64)]) -> Vec<Self> {
        // more requests give no percentile beyond the share that is answered
        let answered = distribution.answered_share();
        let lacks = |q: &f64| *q <= answered && distribution.quantile(*q).is_none();
        let quantiles = REPORTED_QUANTILES.into_iter().filter(lacks);
        let unsupported = quantiles.map(|q| Self {
            q,
            needs: requests_needed(factors, q),
        });
        unsupported.collect()
    }
}

/// Traffic that was recorded and not generated.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceFacts<'a> {
    /// What recording cost; `None` where the recording does not say.
    pub observer: Option<Observer>,
    /// The observer had no CPU that is not the server's.
    pub shares_cpus: bool,
    /// What is wrong with the file, with its remedy.
    pub damage: Option<&'a str>,
    /// The file has no end, which would say how many events were lost.
    pub cut_off: bool,
    /// Requests are identified by their content.
    pub framed: bool,
    /// The requests are datagrams, whose content is not read.
    pub datagrams: bool,
}

/// Workers that wait on a timer instead of using a CPU.
#[derive(Clone, Copy, Debug)]
pub struct VirtualWorkers {
    /// Number of workers.
    pub workers: u32,
    /// Mean wait of a request.
    pub wait: Nanos,
    /// CPUs that they share.
    pub cpus: usize,
}

/// A generator with a schedule.
#[derive(Clone, Copy, Debug)]
pub struct SentLoad<'a> {
    /// What it sent and received.
    pub summary: &'a LoadSummary,
    /// What the summary does not contain; `None` where only the server's side was analysed.
    pub evidence: Option<&'a LoadEvidence>,
    /// The same client against a responder that does nothing.
    pub floor: Option<&'a LoadSummary>,
}

/// What the analysis of a load knows and its summary does not contain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadEvidence {
    /// Percentiles of the response time (in a closed loop, of the service time) that the load was too short
    /// for.
    pub unsupported: Vec<Unsupported>,
    /// Rate at which the same requests were due, per second; 0 with fewer than two.
    pub planned_rate_per_s: f64,
    /// The service times grew from fifth to fifth of the measurement.
    pub growth: Option<Growth>,
}

/// Service times that grew throughout a measurement: the server answered more slowly than requests were sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// p10 of the first fifth.
    pub first: Nanos,
    /// p10 of the last.
    pub last: Nanos,
    /// Answers per second, from the first to the last.
    pub answered_per_s: f64,
}

/// What a generator sent and received, with or without a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ClientSide<'a> {
    /// Requests sent.
    pub requests: u64,
    /// From the actual send to the response.
    pub service_time: &'a Distribution,
    /// What sending cost.
    pub cost: ClientCost,
    /// What went wrong.
    pub errors: &'a LoadErrors,
    /// What is known besides; `None` where only the server's side was analysed.
    pub evidence: Option<&'a LoadEvidence>,
}

impl<'a> Evidence<'a> {
    /// The same with what was summed over the requests of a server.
    #[must_use]
    pub fn with_server(self, server: &'a ServerEvidence) -> Self {
        Self {
            server: Some(server),
            scheduled: server.scheduled.as_ref().or(self.scheduled),
            ..self
        }
    }

    /// The generator, whichever it was.
    pub(super) fn client(&self) -> Option<ClientSide<'a>> {
        self.closed_loop.or_else(|| {
            let SentLoad {
                summary, evidence, ..
            } = self.load?;
            Some(ClientSide {
                requests: summary.requests,
                service_time: &summary.service_time,
                cost: summary.client,
                errors: &summary.errors,
                evidence,
            })
        })
    }

    /// A load whose server was not traced.
    pub(super) fn load_alone(&self) -> Option<SentLoad<'a>> {
        self.load.filter(|_| self.server.is_none())
    }

    /// Errors that count against the measurement.
    ///
    /// A run fills its server, so a miss is an error there, and so is a connection that ends. A time-out is none: if
    /// the server sent no response, the request counts as longer than all others, and if it did, its sojourn is known.
    /// A load alone takes the server as it finds it: a miss is an answer, and a connection that
    /// ended between two requests cost no request.
    pub(super) fn errors(&self) -> Option<LoadErrors> {
        let errors = *self.client()?.errors;
        Some(match self.server {
            Some(_) => errors.of_server(0),
            None => LoadErrors {
                misses: 0,
                connections_closed: 0,
                connections_reset: 0,
                ..errors
            },
        })
    }

    /// Requests per second, of the client or of the recorded traffic.
    pub(super) fn rate_per_s(&self) -> Option<f64> {
        let per_s = match (self.load, self.server) {
            (Some(load), _) => load.summary.sent_rate_per_s,
            (None, Some(server)) => server.rate_per_s?,
            (None, None) => return None,
        };
        (per_s.is_finite() && per_s > 0.0).then_some(per_s)
    }

    /// The lowest unsupported percentile, and the number of requests in the sample.
    pub(super) fn unsupported(&self) -> Option<(Unsupported, u64)> {
        let unsupported = match self.server {
            Some(server) => &server.unsupported,
            None => &self.client()?.evidence?.unsupported,
        };
        let has = self.measured()?.count;
        // The percentiles beyond the first need even more.
        Some((*unsupported.first()?, has))
    }

    /// What was measured: the sojourn, or else the client's response time (in a closed loop, its service
    /// time); `None` for a sweep.
    pub(super) fn measured(&self) -> Option<&'a Distribution> {
        match (self.server, self.load, self.closed_loop) {
            (Some(server), ..) => Some(&server.sojourn),
            (None, Some(load), _) => Some(&load.summary.response_time),
            (None, None, Some(closed)) => Some(closed.service_time),
            (None, None, None) => None,
        }
    }

    /// The same of the requests that were sent on schedule: of all, where nothing was cut.
    pub(super) fn on_schedule(&self) -> Option<&'a Distribution> {
        let kept = self.scheduled.and_then(|view| view.sojourn.as_ref());
        kept.or_else(|| self.measured())
    }

    /// Whether the result makes, or would make if it were `supported`, this claim besides its percentiles.
    pub(super) fn claims(&self, claim: ClaimName, supported: &Supported) -> bool {
        let Some(server) = self.server else {
            return false;
        };
        let built = self.built.unwrap_or_default();
        let is_made = match claim {
            ClaimName::Causes => !built.causes.is_empty(),
            ClaimName::Forecasts => built.has_forecasts,
            _ => true,
        };
        is_made || (server.shows_cpus && !supported.claim(claim))
    }

    /// Lateness and what it is compared with (the sojourn, or else the response time) at a
    /// percentile that both support.
    pub(super) fn lateness_at(&self, q: f64) -> Option<(Nanos, Nanos)> {
        let lateness = &self.load?.summary.lateness;
        Some((lateness.quantile(q)?, self.on_schedule()?.quantile(q)?))
    }

    /// The same at the highest such percentile up to p99.9, preceded by its probability.
    pub(super) fn lateness(&self) -> Option<(f64, Nanos, Nanos)> {
        [0.999, 0.99, 0.9, 0.5].into_iter().find_map(|q| {
            let (lateness, whole) = self.lateness_at(q)?;
            Some((q, lateness, whole))
        })
    }

    /// Why the server is not compared with the ideal.
    pub(super) fn not_compared(&self) -> Option<Withdrawn> {
        self.server?.not_compared
    }
}
