//! From a simulated server to a summary and its verdict.

use crate::common;

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use common::facts::poisson;
use common::server::Server;
use taillab_analysis::spoken::OtherProtocol;
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::streaming::{RecordingSums, ServerFacts};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::verdict::{
    Built, Evidence, ScheduleEvidence, SentLoad, ServerEvidence, TraceFacts, judge,
};
use taillab_analysis::{
    Analysed, Analysis, AnalysisError, AnalysisOptions, MatchOptions, Matched, Window, match_events,
};
use taillab_model::explanation::{Cause, CauseShare, Culprit, Share};
use taillab_model::summary::{
    Calibration, Claim, ClaimName, ClientCost, ClientKind, ClientsSummary, CutSummary,
    CutsForReason, DispersionAt, LimitedBy, LoadErrors, LoadSummary, Overhead, Overload, Reason,
    Report, SCHEMA_VERSION, Scheduled, ServerResult, UnsettledAt, Verdict, Withdrawn,
};
use taillab_model::{CutReason, Monotonic, Nanos, RecordingContext, Request, RequestKey, Stamps};

const SERVICE: Nanos = Nanos::from_micros(900);

fn options() -> AnalysisOptions {
    let from = Monotonic::from_nanos_since_boot(1_000_000_000);
    AnalysisOptions::new(SERVICE, NonZeroU32::MIN, from)
}

static CONTEXT: LazyLock<RecordingContext> = LazyLock::new(RecordingContext::default);

fn sums(
    matched: Matched,
    options: AnalysisOptions,
) -> Result<RecordingSums<'static>, AnalysisError> {
    let mut analysis = Analysis::new(&CONTEXT, options);
    let window = Window::whole(matched, Timeline::default());
    analysis.push(&Arc::new(window), |_, _| {});
    analysis.finish(0)
}

fn analyse(matched: Matched, options: AnalysisOptions) -> Result<Analysed, AnalysisError> {
    Ok(sums(matched, options)?.unjudged())
}

/// The same for all tests.
static ANALYSIS: LazyLock<Analysed> = LazyLock::new(|| analyse(half_loaded(), options()).unwrap());

/// A server at half of its capacity.
fn half_loaded() -> Matched {
    let server = Server {
        requests: 20_000,
        load: 0.5,
        ..Server::default()
    };
    let matching = MatchOptions {
        stale_after: Nanos::from_secs(100),
        ..MatchOptions::default()
    };
    match_events(server.run().events, &matching)
}

/// A run with nothing to object to.
fn good(analysis: &Analysed) -> Report {
    let spread = |from: u64, to: u64| {
        let series: Vec<Nanos> = (0..20_000_u64)
            .map(|i| Nanos::new(from + i.wrapping_mul(2_654_435_761) % (to - from)))
            .collect();
        distribution_of(&series)
    };
    Report {
        schema_version: SCHEMA_VERSION,
        command: "run".into(),
        target: "memcached".into(),
        started_unix_s: 0,
        partial: false,
        duration_ns: Nanos::from_secs(40),
        arrival_rate_per_s: 500.0,
        observer: None,
        scheduled: Some(Scheduled::same_as_measured()),
        fixes: Vec::new(),
        factorial: None,
        load: Some(LoadSummary {
            target_rate_per_s: 500.0,
            target_utilization: Some(0.5),
            sent_rate_per_s: 500.0,
            duration_ns: Nanos::from_secs(40),
            requests: 20_000,
            response_time: spread(10_000_000, 90_000_000),
            service_time: spread(10_000_000, 90_000_000),
            lateness: spread(100, 5_000),
            clients: None,
            segments: Vec::new(),
            arrivals: poisson(),
            client: ClientCost {
                cpu_ns_per_request: Nanos::from_micros(5),
                busy_share: 0.2,
            },
            errors: LoadErrors::default(),
        }),
        client_minus_server: Some(spread(8_000, 90_000)),
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
        server: ServerResult {
            overhead: Overhead {
                pairs: 3,
                throughput_loss: Some(0.05),
                throughput_loss_lo: Some(0.03),
                throughput_loss_hi: Some(0.07),
                throughput_loss_in_slices: None,
                cpu_ns_per_request: Some(700.0),
            },
            ..analysis.server.clone()
        },
        assertions: Vec::new(),
        verdict: Verdict::default(),
    }
}

#[test]
fn the_parts_of_a_summary_agree_with_each_other() {
    let analysed = &*ANALYSIS;
    let found = &analysed.server;
    let n = found.measured.sojourn.count;
    assert!(n > 15_000 && n < 20_000, "{n}: the warm-up is left out");
    assert_eq!((found.ideal.sojourn.count, found.excess.count), (n, n));
    assert_eq!(found.matching.matched, n);
    assert_eq!(found.stages.t1_t2.count, found.matching.complete);
    assert!(
        (found.ideal.utilization - 0.45).abs() < 0.03,
        "{:?}",
        found.ideal
    );
    assert_eq!(found.ideal.sojourn.min, Some(SERVICE));
    let last = analysed.measured_ccdf.last().unwrap();
    assert_eq!(Some(last.0), found.measured.sojourn.max);
    assert!(found.stages_at.len() >= 5);
    // 20,000 correlated requests do not support p99.99
    let unsupported: Vec<f64> = analysed.evidence.unsupported.iter().map(|u| u.q).collect();
    assert!(unsupported.contains(&0.9999));
    assert!(analysed.evidence.unsupported.iter().all(|u| u.needs > n));
}

/// Some requests are faster than their ideal, since a service time varies and t is its mean.
#[test]
fn a_request_faster_than_its_ideal_has_no_excess_and_is_counted() {
    let at = |us: u64| Monotonic::from_nanos_since_boot(2_000_000_000 + us * 1_000);
    let request = |(t1, t6)| Request::from(Stamps::new(at(t1), [None; 4], at(t6)));
    let matched = Matched {
        requests: [(0, 400), (10_000, 12_000)]
            .map(request)
            .into_iter()
            .collect(),
        keys: vec![RequestKey::default(); 2],
        workers: vec![0; 2],
        ..Matched::default()
    };
    let found = analyse(matched, options()).unwrap();
    assert_eq!(found.evidence.faster_than_ideal, 0.5);
    let excess = found.server.excess;
    assert_eq!(
        (excess.min, excess.max),
        (Some(Nanos::ZERO), Some(Nanos::from_micros(1_100)))
    );
}

#[test]
fn without_traffic_or_responses_there_is_a_clear_error() {
    let nothing = analyse(Matched::default(), options());
    assert_eq!(nothing.unwrap_err(), AnalysisError::NoPackets { events: 0 });
    let events = Server::default().run().events;
    let matched = match_events(events, &MatchOptions::default());
    let after_the_end = AnalysisOptions {
        measure_from: Monotonic::from_nanos_since_boot(u64::MAX / 2),
        ..options()
    };
    let error = analyse(matched, after_the_end).unwrap_err();
    assert_eq!(error, AnalysisError::NothingMatched { arrivals: 200 });
}

/// The sums from which a report would have been made.
fn sums_in(report: &Report) -> ServerEvidence {
    let server = &report.server;
    ServerEvidence {
        matching: server.matching.clone(),
        sojourn: server.measured.sojourn.clone(),
        overload: server.measured.overload.clone(),
        not_compared: server.ideal.withdrawn,
        scheduled: (report.scheduled.as_ref()).map(|view| ScheduleEvidence {
            sojourn: view.sojourn.clone(),
            cut: view.cut.clone(),
        }),
        client_minus_server: report.client_minus_server.clone(),
        ..ANALYSIS.evidence.clone()
    }
}

/// The evidence in a report with these sums.
fn evidence<'a>(report: &'a Report, server: &'a ServerEvidence) -> Evidence<'a> {
    let evidence = Evidence {
        partial: report.partial,
        calibration: report.calibration.as_ref(),
        overhead: Some(&report.server.overhead),
        load: report.load.as_ref().map(|summary| SentLoad {
            summary,
            evidence: None,
            floor: None,
        }),
        built: Some(Built {
            causes: &report.server.causes,
            ..Built::default()
        }),
        ..Evidence::default()
    };
    evidence.with_server(server)
}

/// The verdict in words.
fn said(evidence: &Evidence<'_>) -> Verdict {
    judge(evidence).verdict(evidence, evidence.built.unwrap_or_default())
}

/// The verdict on a good run after `spoil` has changed it.
fn verdict(spoil: impl FnOnce(&mut Report)) -> Verdict {
    let mut summary = good(&ANALYSIS);
    spoil(&mut summary);
    let server = sums_in(&summary);
    let verdict = said(&evidence(&summary, &server));
    assert_eq!(verdict.valid, verdict.reasons.is_empty());
    for Reason { text, .. } in verdict.reasons.iter().chain(&verdict.warnings) {
        assert!(
            !text.contains('\n') && text.contains(':') | text.contains(';'),
            "{text}"
        );
    }
    verdict
}

fn keys(reasons: &[Reason]) -> Vec<&str> {
    reasons.iter().map(|reason| reason.key.as_str()).collect()
}

fn load(report: &mut Report) -> &mut LoadSummary {
    report.load.as_mut().unwrap()
}

#[test]
fn clients_with_too_few_connections_are_told_how_many_they_need() {
    let waited = |share: f64| {
        let verdict = verdict(|report| {
            load(report).clients = Some(ClientsSummary {
                kind: ClientKind::Independent,
                connections: 100,
                pipeline: Some(1),
                waited: (20_000.0 * share) as u64,
                waited_share: share,
                wait: None,
                connecting: None,
            });
        });
        let warnings = verdict.warnings.into_iter();
        let mut few = warnings.filter(|warning| warning.key == "few_connections");
        few.next().map(|warning| warning.text)
    };
    assert_eq!(waited(0.01), None);
    let said = waited(0.034).unwrap();
    assert!(
        said.contains("3.4") && said.contains("about 340 connections"),
        "{said}"
    );
}

#[test]
fn a_good_run_is_valid() {
    let verdict = verdict(|_| {});
    assert_eq!(verdict.reasons, []);
    let expected = |key: &&str| ["unsupported_percentile", "faster_than_ideal"].contains(key);
    let found = keys(&verdict.warnings);
    assert!(found.iter().all(expected), "{found:?}");
}

/// The first claim that is withdrawn for this.
fn withdrawn_by(verdict: &Verdict, key: &str) -> Option<String> {
    let mut withdrawn = verdict.claims.iter().filter(|claim| !claim.valid);
    let found = withdrawn.find(|claim| claim.because.iter().any(|because| because == key));
    found.map(|claim| claim.claim.to_string())
}

#[test]
fn each_reason_against_a_run_is_found_alone() {
    type Spoil = fn(&mut Report);
    let cases: [(&str, &str, Spoil); 3] = [
        ("longer_than_client", "that the client saw", |s| {
            load(s).service_time = s.server.measured.sojourn.clone();
            s.client_minus_server = Some(distribution_of(&[]));
        }),
        ("no_answer", "none of 20,000 requests was answered", |s| {
            load(s).service_time = distribution_of(&[]);
            load(s).response_time = distribution_of(&[]);
            load(s).response_time.unanswered = 20_000;
        }),
        ("no_answer", "was answered without an error", |s| {
            load(s).errors.server_errors = 20_000;
        }),
    ];
    for (key, line, spoil) in cases {
        let verdict = verdict(spoil);
        assert_eq!(keys(&verdict.reasons), [key], "{line}");
        let text = &verdict.reasons[0].text;
        assert!(text.contains(line), "{line}: {text}");
        let blamed = |claim: &Claim| claim.because.iter().any(|because| because == key);
        assert!(verdict.claims.iter().all(blamed), "{:?}", verdict.claims);
    }
}

/// A generator that sends less than it should, or a server that does less than comes: the server's percentiles are
/// what this load does to this server, with its ideal and its causes.
#[test]
fn no_load_is_too_much_for_a_result() {
    type Spoil = fn(&mut Report);
    let cases: [(&str, &str, Spoil); 3] = [
        (
            "client_busy",
            "the generator was busy 96.00 % of the time",
            |s| load(s).client.busy_share = 0.96,
        ),
        (
            "rate_missed",
            "sent 500 requests per second of the 2,500 that were due",
            |s| load(s).target_rate_per_s = 2_500.0,
        ),
        (
            "overload",
            "6,000 requests per second arrived and the server answered 5,000",
            |s| s.server.measured.overload = Some(overload()),
        ),
    ];
    for (key, line, spoil) in cases {
        let verdict = verdict(spoil);
        assert!(verdict.valid, "{verdict:?}");
        let first = &verdict.warnings[0];
        assert_eq!(first.key, key);
        assert!(first.text.contains(line), "{line}: {}", first.text);
        assert_eq!(withdrawn_by(&verdict, key), None, "{key}");
    }
}

/// The queue was still there at the end.
fn overload() -> Overload {
    Overload {
        from_ns: Nanos::from_secs(2),
        worst_ns: Nanos::from_secs(5),
        to_ns: None,
        outlasts_load: true,
        waiting: 5_000,
        unanswered: 0,
        came_per_s: 6_000.0,
        done_per_s: 5_000.0,
        capacity_per_s: Some(5_100.0),
        service_time_ns: Some(Nanos::from_micros(196)),
        cpu: None,
    }
}

/// It comes first, whatever else there is, and says what a reader can do with the percentiles.
#[test]
fn an_overload_is_the_first_warning() {
    let found = |overload: Overload| {
        let verdict = verdict(|s| {
            s.server.measured.overload = Some(overload);
            load(s).client.busy_share = 0.99;
            s.server.matching.lost_events = 3;
        });
        verdict.warnings.into_iter().next().unwrap()
    };
    let lasting = found(overload());
    assert_eq!(lasting.key, "overload");
    assert!(
        lasting.text.contains("grow with its length"),
        "{}",
        lasting.text
    );
    let ended = found(Overload {
        to_ns: Some(Nanos::from_secs(9)),
        outlasts_load: false,
        ..overload()
    });
    for said in ["the queue was gone at 9.0 s", "depend on how long"] {
        assert!(ended.text.contains(said), "{}", ended.text);
    }
}

#[test]
fn what_spoils_a_claim_withdraws_that_one() {
    type Spoil = fn(&mut Report);
    let cases: [(&str, &str, &str, Spoil); 6] = [
        ("lost_events", "the probe lost 3 events", "p99.99", |s| {
            s.server.matching.lost_events = 3
        }),
        (
            "unmatched",
            "200 of 10,000 responses lack T1 or T6",
            "p99",
            |s| {
                (s.server.matching.responses, s.server.matching.matched) = (10_000, 9_800);
                s.server.matching.complete = 9_800;
            },
        ),
        (
            "unseen_by_probe",
            "11 of the 10,000 responses that the client received lack T1 or T6",
            "p99.9",
            |s| {
                s.server.matching.matched = 9_989;
                s.server.matching.responses = 9_989;
                (
                    s.server.matching.client_responses,
                    s.server.matching.client_matched,
                ) = (10_000, 9_989);
            },
        ),
        (
            "errors",
            "30 error responses, 1 miss in 20,000 requests",
            "p99",
            |s| {
                (load(s).errors.server_errors, load(s).errors.misses) = (30, 1);
            },
        ),
        (
            "errors",
            "1 error response in 20,000 requests",
            "p99.99",
            |s| load(s).errors.server_errors = 1,
        ),
        (
            "ideal_above_measured",
            "is not above the ideal of",
            "ideal",
            |s| {
                s.server.ideal.withdrawn = Some(Withdrawn::IdealAboveMeasured {
                    ideal_ns: Nanos::from_micros(38),
                    measured_ns: Nanos::from_micros(36),
                })
            },
        ),
    ];
    for (key, line, first, spoil) in cases {
        let verdict = verdict(spoil);
        assert_eq!(verdict.reasons, [], "{key}");
        let said = verdict.warnings.iter().find(|reason| reason.key == key);
        let said = said.map_or("", |reason| &reason.text);
        assert!(said.contains(line), "{line}: {said}");
        assert_eq!(withdrawn_by(&verdict, key).as_deref(), Some(first), "{key}");
        let median = verdict
            .claims
            .iter()
            .find(|claim| claim.claim == ClaimName::P50);
        assert!(median.unwrap().valid, "{key}");
    }
}

/// Whatever the sender did, what the server did with the arrivals that came is true.
#[test]
fn a_fault_of_the_schedule_withdraws_only_what_arrivals_on_schedule_saw() {
    type Spoil = fn(&mut Report);
    let cases: [(&str, &str, &str, Spoil); 6] = [
        ("late_client", "late at p50", "p50", |s| {
            load(s).lateness = load(s).response_time.clone();
        }),
        (
            "late_client",
            "late at p99.9, more than the",
            "p99.9",
            |s| {
                let far = s.server.measured.sojourn.quantile(0.999);
                for at in &mut load(s).lateness.quantiles {
                    at.value = if at.q >= 0.999 {
                        far.map(|far| far + far)
                    } else {
                        at.value
                    };
                }
            },
        ),
        (
            "cut",
            "for 40.00 % of the time, mostly because the generator's CPU stood still (the \
             hypervisor), so what arrivals on schedule would see is not known from p99 on: ",
            "p99",
            |s| s.scheduled = Some(held_up(s, 0.4, 0.0)),
        ),
        (
            "cut",
            "so what arrivals on schedule would see is not known: ",
            "p50",
            |s| {
                // nothing is left
                let mut view = held_up(s, 1.0, 0.0);
                view.sojourn = Some(distribution_of(&[]));
                s.scheduled = Some(view);
            },
        ),
        (
            "cut_too_often",
            "that 30.00 % of the requests",
            "p99.9",
            |s| s.scheduled = Some(held_up(s, 0.1, 0.3)),
        ),
        ("arrivals", "the sends are not poisson", "p90", |s| {
            load(s).arrivals.idc = vec![DispersionAt {
                window_ns: Nanos::from_millis(10),
                value: Some(9.0),
                expected: Some(1.0),
            }]
        }),
    ];
    for (key, line, first, spoil) in cases {
        let mut report = good(&ANALYSIS);
        spoil(&mut report);
        let server = sums_in(&report);
        let evidence = evidence(&report, &server);
        let judgement = judge(&evidence);
        let verdict = said(&evidence);
        assert_eq!(verdict.reasons, [], "{key}");
        let said = verdict.warnings.iter().find(|reason| reason.key == key);
        let said = said.map_or("", |reason| &reason.text);
        assert!(said.contains(line), "{line}: {said}");
        assert_eq!(withdrawn_by(&verdict, key), None);
        let claims = judgement.claims_on_schedule(&evidence);
        let of_this = claims.iter().find(|claim| {
            assert_eq!(claim.valid, claim.because.is_empty());
            claim.because.iter().any(|because| because == key)
        });
        assert_eq!(of_this.unwrap().claim.to_string(), first, "{claims:?}");
        let q = of_this.unwrap().claim.quantile().unwrap();
        let (of_all, on_schedule) = (judgement.supported(), judgement.on_schedule());
        assert!(of_all.percentile(0.9) && of_all.claim(ClaimName::Ideal));
        assert!(!on_schedule.percentile(q) && on_schedule.percentile(q - 0.0001));
        let load = on_schedule.load(report.load.clone().unwrap());
        assert_eq!(load.response_time.quantile(q), None, "{key}");
        let drawn = &ANALYSIS.measured_ccdf;
        let points = on_schedule.curve(drawn.clone());
        assert!(points.len() < drawn.len() && points.iter().all(|(_, beyond)| 1.0 - beyond < q));
        assert!(of_all.curve(drawn.clone()).len() > points.len());
    }
}

/// What is against all requests is against those on schedule too, but these may be too few where all are enough.
#[test]
fn those_on_schedule_are_judged_by_their_own_number() {
    let mut report = good(&ANALYSIS);
    report.server.matching.lost_events = 3;
    let mut view = held_up(&mut report, 0.2, 0.0);
    let some: Vec<Nanos> = (0..300)
        .map(|i| Nanos::from_micros(i * 7_919 % 1_009 + 10))
        .collect();
    view.sojourn = Some(distribution_of(&some));
    report.scheduled = Some(view);
    let server = sums_in(&report);
    let evidence = evidence(&report, &server);
    let judgement = judge(&evidence);
    let claims = judgement.claims_on_schedule(&evidence);
    let because = |name| {
        let claim = claims.iter().find(|claim| claim.claim == name);
        claim.unwrap().because.clone()
    };
    assert!(because(ClaimName::P90).is_empty(), "{claims:?}");
    assert_eq!(because(ClaimName::P99), ["unsupported_percentile"]);
    assert!(because(ClaimName::P99999).contains(&"lost_events".to_owned()));
    assert_eq!(because(ClaimName::P999), ["unsupported_percentile"]);
    let of_a_trace = Evidence {
        scheduled: None,
        ..evidence
    };
    assert_eq!(judge(&of_a_trace).claims_on_schedule(&of_a_trace), []);
}

/// What those on schedule saw: as all requests, but with a cut.
fn held_up(report: &mut Report, share: f64, missing: f64) -> Scheduled {
    Scheduled {
        same_as_measured: false,
        sojourn: Some(report.server.measured.sojourn.clone()),
        ideal: Some(report.server.ideal.sojourn.clone()),
        replayed: None,
        at_worst: None,
        cut: Some(cut(share, missing)),
        claims: Vec::new(),
    }
}

/// A cut of this share of the time; `missing` is the share that is missing above p99.9.
fn cut(share: f64, missing: f64) -> CutSummary {
    CutSummary {
        share,
        unsettled: vec![
            UnsettledAt {
                q: 0.99,
                share: missing / 3.0,
            },
            UnsettledAt {
                q: 0.999,
                share: missing,
            },
        ],
        by_reason: vec![CutsForReason {
            why: CutReason::GeneratorStalled,
            who: "the hypervisor".to_owned(),
            times: 9,
            length_ns: Nanos::from_secs(16),
            requests: 8_000,
        }],
        ..CutSummary::default()
    }
}

/// What the evidence does not support is not made, and the rest is.
#[test]
fn what_is_not_supported_is_never_made() {
    let mut report = good(&ANALYSIS);
    let build = |report: &Report| {
        let server = sums_in(report);
        let judgement = judge(&evidence(report, &server));
        let sums = sums(half_loaded(), options()).unwrap();
        let found = sums.build(&judgement, ServerFacts::default());
        let load = judgement.on_schedule().load(report.load.clone().unwrap());
        (found, load)
    };
    // nothing is against a good one
    let whole = &ANALYSIS.server.measured.sojourn;
    let (found, load_of) = build(&report);
    assert_eq!(found.server.measured.sojourn, *whole);
    assert!(load_of.response_time.quantile(0.99).is_some());
    // one in 50 is missing, and all of these may be above p99
    let matched = report.server.matching.matched;
    report.server.matching.client_responses = matched + matched / 49;
    report.server.matching.client_matched = matched;
    let (found, load_of) = build(&report);
    let server = &found.server;
    let sojourn = &server.measured.sojourn;
    for q in [0.5, 0.9] {
        assert!(sojourn.quantile(q).is_some());
        assert_eq!(sojourn.quantile(q), whole.quantile(q));
    }
    for distribution in [
        sojourn,
        &server.ideal.sojourn,
        &server.excess,
        &server.stages.t2_t3,
    ] {
        assert_eq!(distribution.quantile(0.99), None);
        assert!(
            distribution
                .quantiles
                .iter()
                .all(|at| at.q < 0.99 || at.hi.is_none())
        );
    }
    assert_eq!(load_of.response_time.quantile(0.99), None);
    assert!(server.stages_at.iter().all(|at| at.q < 0.99));
    let points = &found.measured_ccdf;
    assert!(points.len() > 10 && points.iter().all(|(_, beyond)| *beyond > 0.01));
    // of an invalid one, nothing is
    load(&mut report).errors.server_errors = 20_000;
    let (found, load_of) = build(&report);
    assert_eq!(found.server.measured.sojourn.quantile(0.5), None);
    assert_eq!(found.server.ideal.sojourn.count, 0);
    assert_eq!(load_of.response_time.quantile(0.5), None);
    assert!(found.measured_ccdf.is_empty() && found.ideal_ccdf.is_empty());
}

#[test]
fn each_warning_is_found() {
    type Spoil = fn(&mut Report);
    let cases: [(&str, &str, Spoil); 11] = [
        (
            "arrival_gaps",
            "individual gaps between sends are not exactly poisson",
            |s| load(s).arrivals.passed = false,
        ),
        ("partial", "ended early", |s| s.partial = true),
        ("not_server_limited", "were only 80.00 % busy", |s| {
            let calibration = s.calibration.as_mut().unwrap();
            calibration.server_cpu_busy_share = 0.8;
            calibration.limited_by = LimitedBy::Client;
        }),
        (
            "not_server_limited",
            "waited for something other than a CPU",
            |s| s.calibration.as_mut().unwrap().limited_by = LimitedBy::Waits,
        ),
        (
            "not_server_limited",
            "other programs used its CPUs too",
            |s| s.calibration.as_mut().unwrap().limited_by = LimitedBy::Others,
        ),
        ("errors", "1 refused send in 20,000 requests", |s| {
            load(s).errors.send_errors = 1
        }),
        (
            "ambiguous",
            "4 responses could be those of more than one",
            |s| s.server.matching.ambiguous = 4,
        ),
        (
            "stamps_out_of_order",
            "2 requests have stamps that contradict",
            |s| s.server.matching.out_of_order = 2,
        ),
        ("incomplete", "have all six stamps", |s| {
            s.server.matching.complete /= 2
        }),
        (
            "blind_windows",
            "was blind in 5 windows (at most 1.00 ms on all CPUs together), and",
            |s| {
                s.server.matching.blind_windows = 5;
                s.server.matching.blind_ns = Nanos::from_millis(1);
            },
        ),
        ("probe_cost", "costs 20.00 % of the peak", |s| {
            s.server.overhead.throughput_loss = Some(0.2)
        }),
    ];
    for (key, line, spoil) in cases {
        let Verdict {
            reasons, warnings, ..
        } = verdict(spoil);
        assert_eq!(reasons, [], "{line}");
        let found = (warnings.iter()).any(|w| w.key == key && w.text.contains(line));
        assert!(found, "{line}: {warnings:?}");
    }
    let summary = good(&ANALYSIS);
    let server = sums_in(&summary);
    let evidence = Evidence {
        hypervisor: Some("kvm"),
        ..evidence(&summary, &server)
    };
    let warnings = said(&evidence).warnings;
    assert!((warnings.iter()).any(|w| w.text.contains("virtual machine (kvm)")));
    assert!(
        warnings
            .iter()
            .any(|w| { w.text.starts_with("too few samples for p99.99: about ") })
    );
}

/// Requests that were not seen withdraw the percentiles that they may all be above, and causes and forecasts only
/// where they are so many that these may be others.
#[test]
fn a_few_missing_requests_take_no_cause_away() {
    let judged = |missing: u64| {
        let causes = vec![thread("stress", Share::default())];
        verdict(|s| {
            s.server.causes = causes;
            s.server.matching.responses = 1_984;
            s.server.matching.matched = 1_984 - missing;
            s.server.matching.ambiguous = missing;
        })
    };
    let holds = |missing, name| {
        let verdict = judged(missing);
        let claim = verdict.claims.iter().find(|claim| claim.claim == name);
        !claim.unwrap().because.contains(&"unmatched".to_owned())
    };
    for (name, most) in [
        (ClaimName::P999, 1),
        (ClaimName::P99, 19),
        (ClaimName::P90, 198),
        (ClaimName::Causes, 198),
        (ClaimName::Ideal, 991),
    ] {
        assert!(holds(most, name) && !holds(most + 2, name), "{name}");
    }
    let text = &judged(12).warnings[0].text;
    let begin = "12 of 1,984 responses lack T1 or T6 (12 are ambiguous), so p99.9 and higher \
                 percentiles are withdrawn; the other intervals allow for all of these being the \
                 slowest, or the fastest: ";
    assert!(text.starts_with(begin), "{text}");
}

/// Each reason to withdraw the comparison has its own key.
#[test]
fn a_withdrawn_comparison_is_in_the_verdict() {
    let withdrawn = |withdrawn| verdict(|s| s.server.ideal.withdrawn = Some(withdrawn));
    let above = withdrawn(Withdrawn::IdealAboveMeasured {
        ideal_ns: Nanos::from_micros(38_300),
        measured_ns: Nanos::from_micros(2_430),
    });
    let said = above
        .warnings
        .iter()
        .find(|warning| warning.key == "ideal_above_measured");
    assert!(said.unwrap().text.contains("measured p50 of 2.43 ms"));
    assert_eq!(
        withdrawn_by(&above, "ideal_above_measured").as_deref(),
        Some("ideal")
    );
    for (why, key) in [
        (Withdrawn::ClientsWait { at_once: 8 }, "closed_loop"),
        (Withdrawn::ServiceTimeUnknown, "service_time_unknown"),
        (
            Withdrawn::ServiceTimeDisagrees {
                given_ns: Nanos::from_micros(24),
                recorded_ns: Nanos::from_micros(16),
            },
            "service_time_disagrees",
        ),
    ] {
        let found = withdrawn(why);
        assert!(found.valid, "{found:?}");
        let said = found.warnings.iter().filter(|warning| warning.key == key);
        assert_eq!(said.count(), 1, "{key}: {found:?}");
    }
}

#[test]
fn shares_without_intervals_are_a_warning() {
    let warned = |above: Share| {
        let warnings = verdict(|s| s.server.causes = vec![thread("stress", above)]).warnings;
        warnings
            .iter()
            .any(|warning| warning.key == "share_intervals")
    };
    let unknown = Share {
        value: 0.75,
        ..Share::default()
    };
    assert!(warned(unknown));
    assert!(!warned(Share {
        lo: Some(0.6),
        hi: Some(0.9),
        ..unknown
    }));
}

/// A thread that ran on the server's core, with its share of the excess above p99.
fn thread(name: &str, above: Share) -> CauseShare {
    CauseShare {
        cause: Cause::Background,
        culprit: Some(Culprit::Thread {
            name: name.into(),
            pid: Some(7),
            tid: None,
            process: None,
        }),
        share: above,
        excess_share_above_p99: above,
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

/// Warnings about taillab's own part of the tail.
#[test]
fn our_own_part_of_the_tail_is_a_warning() {
    let part = |name: &str, above: f64| {
        let share = Share {
            value: above,
            ..Share::default()
        };
        verdict(|s| s.server.causes = vec![thread(name, share)]).warnings
    };
    let warned = |warnings: &[Reason], key| warnings.iter().any(|warning| warning.key == key);
    let tracer = part("this tracer", 0.85);
    assert!(warned(&tracer, "tracer_in_tail"), "{tracer:?}");
    assert!(warned(&part("this generator", 0.06), "generator_in_tail"));
    for (name, above) in [("this tracer", 0.04), ("taillab", 0.9)] {
        assert!(!warned(&part(name, above), "tracer_in_tail"), "{name}");
    }
}

/// A trace has no client, and its t is often an estimate, so less is known and less makes it invalid.
#[test]
fn a_trace_is_judged_by_what_was_recorded() {
    let mut server = sums_in(&good(&ANALYSIS));
    server.scheduled = None;
    server.matching.ambiguous = 3;
    server.matching.lost_events = 2;
    let recording = |framed, damage: Option<_>| TraceFacts {
        shares_cpus: true,
        damage,
        cut_off: damage.is_some(),
        framed,
        ..TraceFacts::default()
    };
    let judged = |recording| {
        said(&Evidence {
            partial: true,
            server: Some(&server),
            recording: Some(recording),
            ..Evidence::default()
        })
    };
    let whole = judged(recording(false, None));
    assert_eq!(whole.reasons, []);
    assert!(whole.warnings[0].text.contains("--disturbances none"));
    let expected = [
        "lost_events",
        "unsupported_percentile",
        "partial",
        "faster_than_ideal",
        "ambiguous",
        "shared_cpus",
    ];
    assert_eq!(keys(&whole.warnings), expected);
    assert!(whole.warnings[4].text.contains("name that with --protocol"));
    let damaged = judged(recording(true, Some("cut off; record again")));
    assert_eq!(damaged.reasons, []);
    assert_eq!(
        withdrawn_by(&damaged, "losses_unknown").as_deref(),
        Some("p90")
    );
    let of = |key| {
        damaged
            .warnings
            .iter()
            .find(|warning| warning.key == key)
            .unwrap()
    };
    assert_eq!(of("damaged").text, "cut off; record again");
    assert!(of("losses_unknown").text.contains("(at least 2)"));
    // who has named it is not told to, and few ambiguous responses are no sign of another protocol
    assert!(of("ambiguous").text.contains("record for longer"));
    server.matching.ambiguous = 2 * server.matching.matched;
    let most = said(&Evidence {
        server: Some(&server),
        recording: Some(recording(true, None)),
        ..Evidence::default()
    });
    let ambiguous = most
        .warnings
        .iter()
        .find(|warning| warning.key == "ambiguous");
    assert!(
        ambiguous
            .unwrap()
            .text
            .contains("speaks what --protocol says")
    );
    // what the server speaks may be known, and what cannot work is not advised
    let advised = |server: &ServerEvidence, recording| {
        let judged = said(&Evidence {
            server: Some(server),
            recording: Some(recording),
            ..Evidence::default()
        });
        let mut all = judged.warnings.into_iter();
        all.find(|warning| warning.key == "ambiguous").unwrap().text
    };
    server.speaks = Some(OtherProtocol::Tls);
    let encrypted = advised(&server, recording(true, None));
    assert!(
        encrypted.ends_with("speaks TLS, whose content cannot be read, so leave --protocol out")
    );
    let without = advised(&server, recording(false, None));
    assert!(!without.contains("TLS"), "{without}");
    let datagrams = TraceFacts {
        datagrams: true,
        ..recording(false, None)
    };
    let datagrams = advised(&server, datagrams);
    assert!(!datagrams.contains("--protocol"), "{datagrams}");
}

/// Conditions of the machine come last, and none is reported twice.
#[test]
fn conditions_of_the_machine_are_warnings() {
    let conditions = ["virtual_machine", "loopback"].map(|key| Reason::new(key, "so it is"));
    let judged = |hypervisor| {
        said(&Evidence {
            hypervisor,
            conditions: &conditions,
            ..Evidence::default()
        })
    };
    let verdict = judged(Some("kvm"));
    assert!(verdict.valid);
    assert_eq!(keys(&verdict.warnings), ["virtual_machine", "loopback"]);
    assert!(verdict.warnings[0].text.contains("(kvm)"));
    assert_eq!(judged(None).warnings, conditions);
}

/// The median of the client is of other requests than that of the server, as in a queue that grows, but each
/// request that both saw took the client longer.
#[test]
fn medians_of_different_requests_are_no_contradiction() {
    let verdict = verdict(|s| load(s).service_time = s.server.measured.sojourn.clone());
    assert!(verdict.valid, "{:?}", verdict.reasons);
}
