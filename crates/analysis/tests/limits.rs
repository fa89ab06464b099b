//! Each rule of the verdict on both sides of its limit.

use std::collections::BTreeSet;
use std::num::{NonZeroU8, NonZeroU32};
use std::sync::{Arc, LazyLock};

use taillab_analysis::load::{LoadFacts, LoadedRequest, summarise};
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::verdict::{
    Built, ClientSide, Evidence, Judgement, Limit, LoadEvidence, ScheduleEvidence, SentLoad,
    ServerEvidence, TraceFacts, Unsupported, VirtualWorkers, judge, rules,
};
use taillab_analysis::{Analysis, AnalysisOptions, Matched, Window};
use taillab_model::explanation::{Cause, CauseShare, Culprit, Share};
use taillab_model::load_result::LoadStep;
use taillab_model::summary::{
    ArrivalsReference, ArrivalsVerdict, BusyPeriods, Calibration, ClientCost, ClientKind,
    ClientsSummary, CutSummary, CutsForReason, DispersionAt, LimitedBy, LoadErrors, LoadSummary,
    Matching, Observer, Overhead, Reason, UnsettledAt, Verdict, Withdrawn,
};
use taillab_model::{
    ClientTimes, CutReason, Distribution, MiddleStamps, Monotonic, Nanos, RecordingContext,
    Request, RequestKey, Stamps, WireTimes,
};

use crate::common::facts::poisson;

/// What a command knows of a measurement.
#[derive(Clone, Default)]
struct Case {
    partial: bool,
    hypervisor: Option<&'static str>,
    server: Option<ServerEvidence>,
    overhead: Overhead,
    calibration: Option<Calibration>,
    virtual_workers: Option<VirtualWorkers>,
    load: Option<LoadSummary>,
    of_load: LoadEvidence,
    floor: Option<LoadSummary>,
    is_closed: bool,
    recording: Option<TraceFacts<'static>>,
    causes: Vec<CauseShare>,
    beyond_slice: Option<f64>,
    steps: Option<Vec<LoadStep>>,
}

impl Case {
    fn judged(&self) -> (Judgement, Verdict) {
        let load = self.load.as_ref().filter(|_| self.steps.is_none());
        let closed_loop = load.filter(|_| self.is_closed).map(|load| ClientSide {
            requests: load.requests,
            service_time: &load.service_time,
            cost: load.client,
            errors: &load.errors,
            evidence: Some(&self.of_load),
        });
        let mut evidence = Evidence {
            partial: self.partial,
            hypervisor: self.hypervisor,
            overhead: Some(&self.overhead),
            calibration: self.calibration.as_ref(),
            virtual_workers: self.virtual_workers,
            load: load.filter(|_| !self.is_closed).map(|summary| SentLoad {
                summary,
                evidence: self.server.is_none().then_some(&self.of_load),
                floor: self.floor.as_ref(),
            }),
            closed_loop,
            recording: self.recording,
            sweep: self.steps.as_deref(),
            ..Evidence::default()
        };
        if let Some(server) = &self.server {
            evidence = evidence.with_server(server);
        }
        let built = Built {
            causes: &self.causes,
            beyond_slice: self.beyond_slice,
            ..Built::default()
        };
        let judgement = judge(&evidence);
        let verdict = judgement.verdict(&evidence, built);
        (judgement, verdict)
    }

    fn server(&mut self) -> &mut ServerEvidence {
        self.server.as_mut().unwrap()
    }

    fn matching(&mut self) -> &mut Matching {
        &mut self.server().matching
    }

    fn sent(&mut self) -> &mut LoadSummary {
        self.load.as_mut().unwrap()
    }

    fn cut(&mut self) -> &mut CutSummary {
        let view = self.server().scheduled.as_mut().unwrap();
        view.cut.get_or_insert(CutSummary {
            by_reason: vec![CutsForReason {
                why: CutReason::GeneratorStalled,
                who: "the hypervisor".to_owned(),
                times: 9,
                length_ns: Nanos::from_secs(16),
                requests: 8_000,
            }],
            ..CutSummary::default()
        })
    }
}

/// Lengths from 1 ms to 2 ms.
static LENGTHS: LazyLock<Distribution> = LazyLock::new(|| {
    let length = |i: u64| Nanos::new(1_000_000 + i * 7_919 % 10_007 * 100);
    distribution_of(&(0..20_000).map(length).collect::<Vec<_>>())
});

/// All of them the same.
fn all(length: f64) -> Distribution {
    let mut all = LENGTHS.clone();
    for at in &mut all.quantiles {
        at.value = at.value.map(|_| Nanos::new(length as u64));
    }
    all
}

fn at(q: f64) -> f64 {
    LENGTHS.quantile(q).unwrap().get() as f64
}

/// A load by a schedule, with a floor far below it.
fn load() -> Case {
    let summary = LoadSummary {
        target_rate_per_s: 500.0,
        target_utilization: Some(0.5),
        sent_rate_per_s: 500.0,
        duration_ns: Nanos::from_secs(40),
        requests: 20_000,
        response_time: LENGTHS.clone(),
        service_time: LENGTHS.clone(),
        lateness: all(1_000.0),
        clients: None,
        segments: Vec::new(),
        arrivals: ArrivalsVerdict {
            idc: vec![DispersionAt {
                window_ns: Nanos::from_millis(1),
                value: Some(1.0),
                expected: Some(1.0),
            }],
            ..poisson()
        },
        client: ClientCost {
            cpu_ns_per_request: Nanos::from_micros(5),
            busy_share: 0.2,
        },
        errors: LoadErrors::default(),
    };
    let floor = LoadSummary {
        response_time: all(1_000.0),
        ..summary.clone()
    };
    Case {
        of_load: LoadEvidence {
            planned_rate_per_s: 500.0,
            ..LoadEvidence::default()
        },
        load: Some(summary),
        floor: Some(floor),
        ..Case::default()
    }
}

fn closed_loop() -> Case {
    Case {
        is_closed: true,
        ..load()
    }
}

/// A sweep with one step.
fn sweep() -> Case {
    let mut case = load();
    let step = LoadStep {
        partial: false,
        load: case.sent().clone(),
        overloaded: false,
        objective: None,
        verdict: Verdict {
            valid: true,
            ..Verdict::default()
        },
    };
    Case {
        steps: Some(vec![step]),
        ..case
    }
}

/// A server that somebody else's clients ask.
fn trace() -> Case {
    let server = ServerEvidence {
        matching: Matching {
            responses: 20_000,
            matched: 20_000,
            complete: 20_000,
            slices: 100,
            ..Matching::default()
        },
        sojourn: all(900_000.0),
        rate_per_s: Some(500.0),
        shows_cpus: true,
        ..ServerEvidence::default()
    };
    Case {
        server: Some(server),
        recording: Some(TraceFacts::default()),
        causes: vec![cause("stress", 0.5)],
        ..Case::default()
    }
}

/// A server with a load of our own.
fn run() -> Case {
    let mut server = trace().server.unwrap();
    server.scheduled = Some(ScheduleEvidence::default());
    server.client_minus_server = Some(all(9_000.0));
    (
        server.matching.client_responses,
        server.matching.client_matched,
    ) = (20_000, 20_000);
    Case {
        server: Some(server),
        causes: vec![cause("stress", 0.5)],
        calibration: Some(Calibration {
            peak_per_s: 1_100.0,
            peak_lo_per_s: 1_090.0,
            peak_hi_per_s: 1_110.0,
            server_cpu_busy_share: 0.99,
            limited_by: LimitedBy::Server,
            outstanding: 32,
            blocks: 5,
            scaling: None,
        }),
        ..load()
    }
}

/// A thread that made this share of the excess above p99.
fn cause(name: &str, value: f64) -> CauseShare {
    let share = Share {
        value,
        lo: Some(value),
        hi: Some(value),
    };
    CauseShare {
        cause: Cause::Background,
        culprit: Some(Culprit::Thread {
            name: name.into(),
            pid: Some(7),
            tid: None,
            process: None,
        }),
        share,
        excess_share_above_p99: share,
        excess_ns: Nanos::from_millis(1),
        requests: 9,
        events: 9,
        mean_event_ns: 1.0,
        median_event_ns: None,
        longest_event_ns: None,
        long_events: None,
        requests_per_event: 1.0,
    }
}

/// What a load shows whose answers take `times` as long in the last fifth as in the first.
fn growing(times: f64) -> LoadEvidence {
    let sent = |i: u64| Monotonic::from_nanos_since_boot(1_000_000_000 + i * 1_000_000);
    let request = |i: u64| LoadedRequest {
        times: ClientTimes {
            intended: sent(i),
            sent: sent(i),
            received: Some({
                let us = [100.0, 150.0, 200.0, 250.0, 100.0 * times][(i / 200) as usize];
                sent(i) + Nanos::new((us * 1e3) as u64)
            }),
        },
        wire: WireTimes::default(),
        waited: Nanos::ZERO,
        connecting: None,
    };
    let mut of = load();
    let facts = LoadFacts {
        target_rate_per_s: 1_000.0,
        target_utilization: None,
        arrivals: of.sent().arrivals.clone(),
        client: of.sent().client,
        errors: LoadErrors::default(),
        clients: None,
    };
    summarise(|| (0..1_000).map(request), facts).evidence
}

/// Whether a t of so many times the longest that the busy periods allow can be compared.
fn with_service_time(times: f64) -> Option<Withdrawn> {
    let from = Monotonic::from_nanos_since_boot(1_000);
    let recorded = BusyPeriods {
        service_time_ns: Nanos::from_micros(100),
        lo_ns: Nanos::from_micros(100),
        hi_ns: Nanos::from_micros(100),
        receive_ns: Nanos::ZERO,
        after_response_ns: Nanos::ZERO,
        seen: 10_000,
        left_out: 0,
    };
    let options = AnalysisOptions {
        busy_periods: Some(recorded),
        ..AnalysisOptions::new(Nanos::new((1e5 * times) as u64), NonZeroU32::MIN, from)
    };
    let context = RecordingContext::default();
    let mut analysis = Analysis::new(&context, options);
    let request = Request::from(Stamps::new(from, [None; 4], from + Nanos::from_millis(1)));
    let matched = Matched {
        requests: [request].into_iter().collect(),
        keys: vec![RequestKey::default()],
        workers: vec![0],
        ..Matched::default()
    };
    let window = Window::whole(matched, Timeline::default());
    analysis.push(&Arc::new(window), |_, _| {});
    analysis.finish(0).unwrap().evidence().not_compared
}

/// Makes the rule apply; with a threshold, by bringing what it looks at to this value.
type Spoil = fn(&mut Case, f64);

/// The key of a rule, a measurement to which it does not apply, and how to make it apply.
type Row = (&'static str, fn() -> Case, Spoil);

/// A row for each rule.
const ROWS: &[Row] = &[
    ("no_answer", load, |c, _| {
        c.sent().response_time = distribution_of(&[]);
    }),
    ("longer_than_client", run, |c, _| {
        c.server().client_minus_server = None;
        c.sent().service_time = c.server().sojourn.clone();
    }),
    ("no_load", sweep, |c, _| c.steps = Some(Vec::new())),
    ("overload", load, |c, x| {
        c.sent().target_utilization = Some(x)
    }),
    ("growing", load, |c, x| c.of_load = growing(x)),
    ("server_overloaded", sweep, |c, _| {
        let overload = Reason::new("overload", "it was so: lower the load");
        c.steps.as_mut().unwrap()[0].verdict.warnings = vec![overload];
    }),
    ("rate_missed", load, |c, x| {
        c.sent().sent_rate_per_s = 500.0 * x
    }),
    ("client_busy", load, |c, x| c.sent().client.busy_share = x),
    ("late_client", load, |c, x| {
        c.sent().lateness = all(at(0.5) * x)
    }),
    ("cut", run, |c, x| c.cut().share = x),
    ("cut_too_often", run, |c, x| {
        c.cut().unsettled = vec![UnsettledAt { q: 0.99, share: x }];
    }),
    ("arrivals", load, |c, x| {
        c.sent().arrivals.reference = ArrivalsReference::Schedule;
        c.sent().arrivals.idc[0].value = Some(1.0 + x);
    }),
    ("lost_events", trace, |c, _| c.matching().lost_events = 1),
    ("losses_unknown", trace, |c, _| {
        c.recording = Some(TraceFacts {
            cut_off: true,
            ..TraceFacts::default()
        });
    }),
    ("unmatched", trace, |c, _| c.matching().matched -= 1),
    ("unseen_by_probe", run, |c, _| {
        c.matching().client_matched -= 1
    }),
    ("errors", load, |c, _| c.sent().errors.server_errors = 1),
    ("unanswered", trace, |c, x| {
        c.server().sojourn.count = 1_000_000;
        c.server().sojourn.unanswered = (1e6 * x) as u64;
    }),
    ("service_time_disagrees", trace, |c, x| {
        c.server().not_compared = with_service_time(x);
    }),
    ("ideal_above_measured", trace, |c, _| {
        c.server().not_compared = Some(Withdrawn::IdealAboveMeasured {
            ideal_ns: Nanos::from_micros(38),
            measured_ns: Nanos::from_micros(36),
        });
    }),
    ("service_time_unknown", trace, |c, _| {
        c.server().not_compared = Some(Withdrawn::ServiceTimeUnknown);
    }),
    ("few_slices", trace, |c, x| {
        c.matching().stamps = MiddleStamps::Sampled(NonZeroU8::new(16).unwrap());
        c.matching().slices = x as u64;
    }),
    ("closed_loop", trace, |c, _| {
        c.server().not_compared = Some(Withdrawn::ClientsWait { at_once: 8 });
    }),
    ("unsupported_percentile", load, |c, _| {
        c.of_load.unsupported = vec![Unsupported {
            q: 0.9999,
            needs: 39_000,
        }];
    }),
    ("damaged", trace, |c, _| {
        c.recording = Some(TraceFacts {
            damage: Some("cut off: record again"),
            ..TraceFacts::default()
        });
    }),
    ("partial", trace, |c, _| c.partial = true),
    ("not_server_limited", run, |c, _| {
        c.calibration.as_mut().unwrap().limited_by = LimitedBy::Waits;
    }),
    ("faster_than_ideal", trace, |c, x| {
        c.server().faster_than_ideal = x
    }),
    ("misses", load, |c, _| c.sent().errors.misses = 1),
    ("connections_ended", load, |c, _| {
        c.sent().errors.connections_reset = 1;
    }),
    ("lateness", load, |c, x| {
        c.sent().lateness = all(at(0.999) * x)
    }),
    ("few_connections", load, |c, x| {
        c.sent().clients = Some(ClientsSummary {
            kind: ClientKind::Independent,
            connections: 100,
            pipeline: Some(1),
            waited: 100,
            waited_share: x,
            wait: None,
            connecting: None,
        });
    }),
    ("floor", load, |c, x| {
        c.floor.as_mut().unwrap().response_time = all(at(0.5) * x);
    }),
    ("client_peak", closed_loop, |c, x| {
        c.sent().client.busy_share = x
    }),
    ("ambiguous", trace, |c, _| c.matching().ambiguous = 1),
    ("foreign_requests", run, |c, _| c.server().unexplained = 1),
    ("late_events", trace, |c, _| c.server().late_events = 1),
    ("stamps_out_of_order", trace, |c, _| {
        c.matching().out_of_order = 1
    }),
    ("incomplete", trace, |c, x| {
        c.matching().complete = (20_000.0 * x) as u64;
    }),
    ("beyond_slice", trace, |c, x| c.beyond_slice = Some(x)),
    ("share_intervals", trace, |c, _| {
        c.causes[0].excess_share_above_p99.lo = None;
    }),
    ("blind_windows", trace, |c, _| {
        c.matching().blind_windows = 1
    }),
    ("probe_cost", run, |c, x| {
        c.overhead.throughput_loss = Some(x)
    }),
    ("shared_cpus", trace, |c, _| {
        c.recording = Some(TraceFacts {
            shares_cpus: true,
            ..TraceFacts::default()
        });
    }),
    ("observer_cost", trace, |c, x| {
        c.recording = Some(TraceFacts {
            observer: Some(Observer {
                cpu_share: x,
                program_ns_per_request: None,
                events_per_request: 20.0,
                written_bytes_per_s: 0.0,
                peak_memory_bytes: 0,
            }),
            ..TraceFacts::default()
        });
    }),
    ("tracer_in_tail", trace, |c, x| {
        c.causes.push(cause("this tracer", x))
    }),
    ("generator_in_tail", run, |c, x| {
        c.causes.push(cause("this generator", x))
    }),
    ("arrival_gaps", load, |c, _| {
        c.sent().arrivals.passed = false
    }),
    ("gaps_not_judged", load, |c, _| {
        c.sent().arrivals.reference = ArrivalsReference::Schedule;
    }),
    ("bursts_not_judged", load, |c, _| {
        c.sent().arrivals.idc.clear()
    }),
    ("virtual_machine", trace, |c, _| c.hypervisor = Some("kvm")),
    ("virtual_workers", run, |c, _| {
        c.virtual_workers = Some(VirtualWorkers {
            workers: 4,
            wait: Nanos::from_millis(1),
            cpus: 2,
        });
    }),
];

/// Whether a rule applies to a case, which is judged as it is said.
fn applies(case: &Case, key: &str) -> bool {
    let (judgement, verdict) = case.judged();
    let (reasons, warnings) = (&verdict.reasons, &verdict.warnings);
    assert_eq!(verdict.valid, reasons.is_empty());
    assert_eq!(judgement.supported().anything(), verdict.valid);
    for claim in &verdict.claims {
        let supported = judgement.supported().claim(claim.claim);
        assert_eq!(claim.valid, supported, "{claim:?}");
        let is_said = |key: &String| reasons.iter().chain(warnings).any(|said| said.key == *key);
        assert!(claim.because.iter().all(is_said), "{claim:?}");
    }
    let mut said = reasons
        .iter()
        .chain(warnings)
        .filter(|said| said.key == key);
    let first = said.next();
    if let Some(Reason { text, .. }) = first {
        assert!(!text.contains('\n') && text.contains([':', ';']), "{text}");
    }
    assert!(said.next().is_none(), "{key} twice");
    first.is_some()
}

/// A rule without a row here fails, and so does one that does not apply on exactly one side of its limit.
#[test]
fn each_rule_applies_on_one_side_of_its_limit() {
    for rule in rules() {
        let key = rule.key;
        let row = ROWS.iter().find(|(of, ..)| *of == key);
        let (_, base, spoil) = row.unwrap_or_else(|| panic!("{key} has no row"));
        assert!(!applies(&base(), key), "{key} without cause");
        let spoiled = |value: f64| {
            let mut case = base();
            spoil(&mut case, value);
            applies(&case, key)
        };
        let because = match rule.limit {
            Limit::Any(because) => {
                assert!(spoiled(1.0), "{key}");
                because
            }
            Limit::At(limit, because) => {
                let sides = [0.99, 1.01].map(|times| spoiled(limit * times));
                assert!(sides[0] != sides[1], "{key} at {limit}: {sides:?}");
                because
            }
        };
        assert!(
            because.len() > 10 && !because.ends_with('.'),
            "{key}: {because}"
        );
    }
    let keys = |keys: &mut dyn Iterator<Item = &'static str>| keys.collect::<BTreeSet<_>>();
    let rows = keys(&mut ROWS.iter().map(|(key, ..)| *key));
    assert_eq!(rows, keys(&mut rules().map(|rule| rule.key)));
}
