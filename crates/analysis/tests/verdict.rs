//! From a simulated server to a summary and its verdict.

use crate::common;

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use common::server::Server;
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::verdict::{Evidence, TraceFacts, TracedServer, judge, withdraw};
use taillab_analysis::{
    Analysed, Analysis, AnalysisError, AnalysisOptions, MatchOptions, Matched, Window, match_events,
};
use taillab_model::explanation::{Cause, CauseShare, Culprit, Share};
use taillab_model::summary::{
    ArrivalsReference, ArrivalsVerdict, Calibration, Claim, ClaimName, ClientCost, CutBy,
    CutSummary, DispersionAt, LoadErrors, LoadSummary, Overhead, Overload, Reason, Report,
    SCHEMA_VERSION, ServerResult, UnsettledAt, Verdict, Withdrawn,
};
use taillab_model::{CutReason, Monotonic, Nanos, RecordingContext, Request, RequestKey, Stamps};

const SERVICE: Nanos = Nanos::from_micros(900);

fn options() -> AnalysisOptions {
    let from = Monotonic::from_nanos_since_boot(1_000_000_000);
    AnalysisOptions::new(SERVICE, NonZeroU32::MIN, from)
}

fn analyse(matched: Matched, options: AnalysisOptions) -> Result<Analysed, AnalysisError> {
    let context = RecordingContext::default();
    let mut analysis = Analysis::new(&context, options);
    let window = Window::whole(matched, Timeline::default());
    analysis.push(&Arc::new(window), |_, _| {});
    analysis.finish(0)
}

/// The same for all tests.
static ANALYSIS: LazyLock<Analysed> = LazyLock::new(|| {
    let server = Server {
        requests: 20_000,
        load: 0.5,
        ..Server::default()
    };
    let matching = MatchOptions {
        stale_after: Nanos::from_secs(100),
        ..MatchOptions::default()
    };
    let matched = match_events(server.run().events, &matching);
    analyse(matched, options()).unwrap()
});

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
        cut: None,
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
            segments: Vec::new(),
            arrivals: ArrivalsVerdict {
                process: "poisson".into(),
                reference: ArrivalsReference::Process,
                cv: 1.0,
                ks_d: 0.004,
                ks_critical: 0.01,
                ad_a2: 0.5,
                ad_critical: 2.5,
                idc: Vec::new(),
                passed: true,
                dead_time: None,
            },
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
            blocks: 5,
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

/// The verdict on a good run after `spoil` has changed it.
fn verdict(spoil: impl FnOnce(&mut Report)) -> Verdict {
    let mut summary = good(&ANALYSIS);
    spoil(&mut summary);
    let verdict = judge(&Evidence::of_report(&summary, &ANALYSIS.evidence));
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
    let cases: [(&str, &str, Spoil); 6] = [
        (
            "client_busy",
            "the client was busy 96.00 % of the time",
            |s| load(s).client.busy_share = 0.96,
        ),
        ("overload", "100.00 % of the capacity", |s| {
            s.server.ideal.utilization = 1.0
        }),
        ("longer_than_client", "that the client saw", |s| {
            load(s).service_time = s.server.measured.sojourn.clone()
        }),
        // too late at the median: no percentile is left
        ("late_client", "so no percentile is known", |s| {
            load(s).lateness = load(s).service_time.clone()
        }),
        ("late_client", "late at p50", |s| {
            load(s).lateness = load(s).response_time.clone();
            load(s).errors.timeouts = 1; // one in 20,000 is a warning only
        }),
        ("errors", "2,000 time-outs in 20,000 requests", |s| {
            load(s).errors.timeouts = 2_000;
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

#[test]
fn what_spoils_a_claim_withdraws_that_one() {
    type Spoil = fn(&mut Report);
    let cases: [(&str, &str, &str, Spoil); 10] = [
        ("lost_events", "the probe lost 3 events", "p99.9", |s| {
            s.server.matching.lost_events = 3
        }),
        (
            "unmatched",
            "200 of 10,000 responses lack T1 or T6",
            "p90",
            |s| {
                (s.server.matching.responses, s.server.matching.matched) = (10_000, 9_800);
                s.server.matching.complete = 9_800;
            },
        ),
        (
            "unseen_by_probe",
            "11 of the 10,000 responses that the client received lack T1 or T6",
            "p99",
            |s| {
                (
                    s.server.matching.client_responses,
                    s.server.matching.client_matched,
                ) = (10_000, 9_989);
            },
        ),
        ("late_client", "late at p99.9", "p99.9", |s| {
            let far = s.server.measured.sojourn.quantile(0.999);
            for at in &mut load(s).lateness.quantiles {
                at.value = if at.q >= 0.999 {
                    far.map(|far| far + far)
                } else {
                    at.value
                };
            }
        }),
        (
            "cut",
            "40.00 % of the measurement had to be cut",
            "p99",
            |s| s.cut = Some(cut(0.4, 0.0)),
        ),
        (
            "cut_too_often",
            "that 30.00 % of the requests",
            "p99.9",
            |s| s.cut = Some(cut(0.1, 0.3)),
        ),
        ("arrivals", "the sends are not poisson", "p90", |s| {
            load(s).arrivals.idc = vec![DispersionAt {
                window_ns: Nanos::from_millis(10),
                value: Some(9.0),
                expected: Some(1.0),
            }]
        }),
        (
            "errors",
            "30 time-outs, 1 miss in 20,000 requests",
            "p99",
            |s| {
                (load(s).errors.timeouts, load(s).errors.misses) = (30, 1);
            },
        ),
        (
            "few_errors",
            "1 refused send in 20,000 requests",
            "p99.99",
            |s| load(s).errors.send_errors = 1,
        ),
        (
            "ideal_above_measured",
            "is not above the ideal of",
            "ideal",
            |s| s.server.ideal.sojourn = s.server.measured.sojourn.clone(),
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
        by_reason: vec![CutBy {
            why: CutReason::GeneratorStalled,
            who: "the hypervisor".to_owned(),
            times: 9,
            length_ns: Nanos::from_secs(16),
            requests: 8_000,
        }],
        ..CutSummary::default()
    }
}

/// What is withdrawn is no longer in the report, and the rest is.
#[test]
fn what_is_withdrawn_is_taken_out_of_the_report() {
    let mut report = good(&ANALYSIS);
    // one in 500 is missing: p99 is withdrawn
    report.server.matching.client_responses = 10_000;
    report.server.matching.client_matched = 9_980;
    let (p50, p90) = (
        report.server.measured.sojourn.quantile(0.5),
        report.server.measured.sojourn.quantile(0.9),
    );
    report.verdict = judge(&Evidence::of_report(&report, &ANALYSIS.evidence));
    let mut points = ANALYSIS.measured_ccdf.clone();
    assert!(withdraw(&mut report, [&mut points]));
    let found = &report.server;
    let sojourn = &found.measured.sojourn;
    assert_eq!((sojourn.quantile(0.5), sojourn.quantile(0.9)), (p50, p90));
    assert!(p90.is_some());
    for distribution in [
        sojourn,
        &found.ideal.sojourn,
        &found.excess,
        &found.stages.t2_t3,
    ] {
        assert_eq!(distribution.quantile(0.99), None);
        assert!(
            distribution
                .quantiles
                .iter()
                .all(|at| at.q < 0.99 || at.hi.is_none())
        );
    }
    assert_eq!(load(&mut report).response_time.quantile(0.99), None);
    assert!(report.server.stages_at.iter().all(|at| at.q < 0.99));
    assert!(points.len() > 10 && points.iter().all(|(_, beyond)| *beyond > 0.01));
    // nothing is withdrawn from a report without objections, nor from an invalid one
    let mut report = good(&ANALYSIS);
    report.verdict = judge(&Evidence::of_report(&report, &ANALYSIS.evidence));
    let p99 = report.server.measured.sojourn.quantile(0.99);
    withdraw(&mut report, []);
    assert_eq!(report.server.measured.sojourn.quantile(0.99), p99);
    load(&mut report).client.busy_share = 0.97;
    report.verdict = judge(&Evidence::of_report(&report, &ANALYSIS.evidence));
    assert!(!withdraw(&mut report, []) && p99.is_some());
    assert_eq!(report.server.measured.sojourn.quantile(0.99), p99);
}

#[test]
fn each_warning_is_found() {
    type Spoil = fn(&mut Report);
    let cases: [(&str, &str, Spoil); 9] = [
        (
            "arrival_gaps",
            "individual gaps between sends are not exactly poisson",
            |s| load(s).arrivals.passed = false,
        ),
        ("partial", "ended early", |s| s.partial = true),
        ("not_server_limited", "were only 80.00 % busy", |s| {
            s.calibration.as_mut().unwrap().server_cpu_busy_share = 0.8
        }),
        ("few_errors", "1 refused send in 20,000 requests", |s| {
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
            "was blind in 5 windows, 1.00 ms at most on all CPUs together, that",
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
    let evidence = Evidence {
        hypervisor: Some("kvm"),
        ..Evidence::of_report(&summary, &ANALYSIS.evidence)
    };
    let warnings = judge(&evidence).warnings;
    assert!((warnings.iter()).any(|w| w.text.contains("virtual machine (kvm)")));
    assert!(
        warnings
            .iter()
            .any(|w| { w.text.starts_with("too few samples for p99.99: about ") })
    );
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
        }),
        share: above,
        excess_share_above_p99: above,
        excess_ns: Nanos::from_millis(1),
        requests: 9,
        episodes: 9,
        mean_episode_ns: 1.0,
        requests_per_episode: 1.0,
    }
}

/// Warnings about taillab's own part of the tail, and about a queue that grew.
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
    let grew = verdict(|s| {
        s.server.measured.overload = Some(Overload {
            from_ns: Nanos::from_secs(2),
            worst_ns: Nanos::from_secs(5),
            to_ns: None,
            waiting: 5_000,
            came_per_s: 6_000.0,
            done_per_s: 5_000.0,
            capacity_per_s: 5_100.0,
            service_time_ns: Nanos::from_micros(196),
            cpu: None,
        });
    });
    assert!(warned(&grew.warnings, "queue_grew"));
}

/// A trace has no client, and its t is often an estimate, so less is known and less makes it invalid.
#[test]
fn a_trace_is_judged_by_what_was_recorded() {
    let mut result = good(&ANALYSIS).server;
    result.ideal.sojourn = result.measured.sojourn.clone();
    result.matching.ambiguous = 3;
    result.matching.lost_events = 2;
    let recording = |framed, damage: Option<_>| TraceFacts {
        shares_cpus: true,
        damage,
        cut_off: damage.is_some(),
        framed,
        ..TraceFacts::default()
    };
    let judged = |recording| {
        judge(&Evidence {
            partial: true,
            server: Some(TracedServer {
                result: &result,
                evidence: &ANALYSIS.evidence,
            }),
            recording: Some(recording),
            ..Evidence::default()
        })
    };
    let whole = judged(recording(false, None));
    assert_eq!(whole.reasons, []);
    assert!(whole.warnings[0].text.contains("--disturbances none"));
    let expected = [
        "lost_events",
        "estimated_ideal_above_measured",
        "unsupported_percentile",
        "partial",
        "ambiguous",
        "shared_cpus",
    ];
    assert_eq!(keys(&whole.warnings), expected);
    assert!(
        whole.warnings[4]
            .text
            .contains("name the server's protocol")
    );
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
    assert!(of("ambiguous").text.contains("speaks what --protocol says"));
}

/// Conditions of the machine come last, and none is reported twice.
#[test]
fn conditions_of_the_machine_are_warnings() {
    let conditions = ["virtual_machine", "loopback"].map(|key| Reason::new(key, "so it is"));
    let judged = |hypervisor| {
        judge(&Evidence {
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
