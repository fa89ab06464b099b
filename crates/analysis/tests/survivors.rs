//! Requests that nobody answered count: a server does not look better by dropping them.

use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_analysis::load::{LoadFacts, LoadedRequest, summarise};
use taillab_analysis::rtt::summarise as summarise_rtt;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::verdict::{Evidence, TraceFacts, TracedServer, judge, withdraw_from_rtt};
use taillab_analysis::{Analysed, Analysis, AnalysisOptions, Matched, Unmatched, Window};
use taillab_model::rtt::{RoundTrip, RttCounts, RttCurves, RttOpenLoop, RttRow, RttRun};
use taillab_model::summary::{
    ArrivalsVerdict, Claim, ClaimName, ClientCost, LoadErrors, LoadSummary, Verdict,
};
use taillab_model::{
    ClientTimes, Monotonic, Nanos, RecordingContext, Request, RequestKey, Stamps, WireTimes,
};

const GAP_NS: u64 = 100_000;

fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(1_000_000_000 + ns)
}

/// A request every 100 µs that takes 20 µs, or is dropped.
fn traced(requests: u64, dropped: impl Fn(u64) -> bool) -> Matched {
    let key = RequestKey::default();
    let (lost, answered): (Vec<u64>, Vec<u64>) = (0..requests).partition(|i| dropped(*i));
    let request = |i: &u64| {
        let t1 = at(i * GAP_NS);
        Request::from(Stamps::new(t1, [None; 4], t1 + Nanos::from_micros(20)))
    };
    let unmatched = |i: u64| Unmatched {
        key,
        t1: at(i * GAP_NS),
        ambiguous: false,
        queued: false,
    };
    Matched {
        keys: vec![key; answered.len()],
        workers: vec![7; answered.len()],
        requests: answered.iter().map(request).collect(),
        unmatched: lost.into_iter().map(unmatched).collect(),
        last: Some(at(requests * GAP_NS)),
        ..Matched::default()
    }
}

fn analysed(matched: Matched) -> Analysed {
    let context = RecordingContext::default();
    let options = AnalysisOptions::new(Nanos::from_micros(10), NonZeroU32::MIN, at(0));
    let mut analysis = Analysis::new(&context, options);
    let window = Window::whole(matched, Timeline::default());
    analysis.push(&Arc::new(window), |_, _| {});
    analysis.finish(0).unwrap()
}

/// What the verdict says about requests without an answer.
fn said(analysed: &Analysed) -> Vec<String> {
    let verdict = judge(&Evidence {
        server: Some(TracedServer {
            result: &analysed.server,
            evidence: &analysed.evidence,
        }),
        recording: Some(TraceFacts::default()),
        ..Evidence::default()
    });
    let about = |key: &str| key == "unanswered";
    (verdict.warnings.into_iter())
        .filter(|warning| about(&warning.key))
        .map(|warning| warning.text)
        .collect()
}

#[test]
fn a_server_that_drops_a_third_has_no_p90() {
    // all requests of the last tenth of a second are answered, so the end cuts none off
    let found = analysed(traced(100_000, |i| i % 10 < 3 && i < 99_000));
    let sojourn = &found.server.measured.sojourn;
    assert_eq!((sojourn.count, sojourn.unanswered), (70_300, 29_700));
    assert!(sojourn.quantile(0.5).is_some());
    for q in [0.9, 0.99, 0.999] {
        assert_eq!(sojourn.quantile(q), None, "{q}");
        assert_eq!(found.server.excess.quantile(q), None, "{q}");
        assert!(found.server.ideal.sojourn.quantile(q).is_some(), "{q}");
    }
    let said = said(&found);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("29.70 %"), "{said:?}");
    assert!(
        said[0].contains("no percentile beyond 70.3 % is known"),
        "{said:?}"
    );
    let lacking: Vec<f64> = found.evidence.unsupported.iter().map(|u| u.q).collect();
    assert!(
        lacking.is_empty(),
        "more requests would not help: {lacking:?}"
    );
    let last = found.measured_ccdf.last().unwrap().1;
    assert!(last > 0.297, "the curve ends above the unanswered: {last}");
}

#[test]
fn one_in_a_hundred_thousand_is_no_reservation() {
    let found = analysed(traced(100_000, |i| i == 50_000));
    assert_eq!(found.server.measured.sojourn.unanswered, 1);
    assert_eq!(said(&found), Vec::<String>::new());
}

/// Requests that come in just before the end may still be answered.
#[test]
fn the_edge_of_the_recording_is_not_counted() {
    let found = analysed(traced(100_000, |i| i >= 99_950));
    assert_eq!(found.server.measured.sojourn.unanswered, 0);
    assert_eq!(found.server.matching.unanswered, 0);
    // a server that died earlier did not answer
    let died = analysed(traced(100_000, |i| i >= 99_000));
    let unanswered = died.server.measured.sojourn.unanswered;
    assert!((890..=910).contains(&unanswered), "{unanswered}");
    assert_eq!(died.server.matching.unanswered, unanswered);
    assert_eq!(died.server.measured.sojourn.quantile(0.9999), None);
}

/// Whatever is dropped, there is no percentile beyond the answered share, and those below it are not lower than
/// those of a server that drops nothing.
#[test]
fn dropping_makes_no_percentile_better() {
    let all = analysed(traced(20_000, |_| false)).server.measured.sojourn;
    // on either side of where p50, p90 and p99 are lost, and between
    for every in [2, 3, 4, 5, 9, 10, 11, 12, 20, 50, 99, 100, 101, 150, 399] {
        let dropped = analysed(traced(20_000, |i| i.is_multiple_of(every)));
        let some = &dropped.server.measured.sojourn;
        for (all, some) in all.quantiles.iter().zip(&some.quantiles) {
            if let Some(value) = some.value {
                assert!(some.q <= 1.0 - 1.0 / every as f64 + 1e-4, "one in {every}");
                assert!(Some(value) >= all.value, "one in {every}: {some:?}");
            }
        }
    }
}

fn loaded(requests: u64, answered: impl Fn(u64) -> bool) -> taillab_analysis::load::LoadAnalysis {
    let request = |i: u64| LoadedRequest {
        times: ClientTimes {
            intended: at(i * GAP_NS),
            sent: at(i * GAP_NS + 100),
            received: answered(i).then(|| at(i * GAP_NS + 50_000 + i % 997)),
        },
        wire: WireTimes::default(),
        waited: Nanos::ZERO,
        connecting: None,
    };
    let facts = LoadFacts {
        target_rate_per_s: 10_000.0,
        target_utilization: None,
        arrivals: ArrivalsVerdict {
            process: "poisson".into(),
            reference: Default::default(),
            cv: 1.0,
            ks_d: 0.0,
            ks_critical: 1.0,
            ad_a2: 0.0,
            ad_critical: 1.0,
            idc: Vec::new(),
            passed: true,
            dead_time: None,
        },
        client: ClientCost {
            cpu_ns_per_request: Nanos::from_micros(1),
            busy_share: 0.1,
        },
        errors: LoadErrors::default(),
        clients: None,
    };
    summarise(|| (0..requests).map(request), facts)
}

#[test]
fn time_outs_of_a_load_are_longer_than_its_answers() {
    let found = loaded(50_000, |i| i % 50 != 0);
    for times in [&found.summary.response_time, &found.summary.service_time] {
        assert_eq!((times.count, times.unanswered), (49_000, 1_000));
        assert!(times.quantile(0.9).is_some());
        assert_eq!((times.quantile(0.99), times.quantile(0.999)), (None, None));
    }
    let none = loaded(5_000, |_| false).summary.response_time;
    assert!(none.quantiles.iter().all(|q| q.value.is_none()), "{none:?}");
}

/// A row by a schedule, with three runs.
fn open_row(verdict: Verdict) -> (RttRow, RttCurves) {
    let trip = |n: u64| RoundTrip {
        sent: Monotonic::from_nanos_since_boot(n * 1_000_000),
        rtt: Nanos::new(100 + n * 7_919 % 1_000),
        connection: 0,
        lost: false,
    };
    let run: Vec<RoundTrip> = (0..10_000).map(trip).collect();
    let found = summarise_rtt(&[run.clone(), run.clone(), run]);
    let runs = found.runs.into_iter().map(|rtt| RttRun {
        length_ns: Nanos::from_secs(10),
        client_cpu_ns_per_round_trip: None,
        rtt,
    });
    let row = RttRow {
        proto: "udp".to_owned(),
        mode: "blocking".to_owned(),
        size_bytes: 64,
        conns: 1,
        counts: RttCounts::default(),
        open_loop: Some(RttOpenLoop {
            capacity: None,
            load: LoadSummary {
                response_time: found.rtt.clone(),
                ..loaded(30_000, |_| true).summary
            },
            verdict,
        }),
        rtt: found.rtt,
        runs: runs.collect(),
        trimmed: found.trimmed,
        worst_to_median: found.worst_to_median,
        bursts: found.bursts,
        fan_out: found.fan_out,
        needs: found.needs,
        explanation: None,
        unexplained_because: None,
        functional_only: None,
        xdp_attachment: None,
        partial: false,
        ended_after_ns: None,
        failure: None,
    };
    (row, found.curves)
}

#[test]
fn a_withdrawn_percentile_is_nowhere_in_a_row_of_round_trips() {
    // from an invalid result everything is taken out
    for valid in [false, true] {
        let (mut row, mut curves) = open_row(Verdict {
            valid,
            claims: vec![Claim {
                claim: ClaimName::P99,
                valid: false,
                because: vec!["late_client".to_owned()],
            }],
            ..Verdict::default()
        });
        withdraw_from_rtt(&mut row, &mut curves);
        let kept = [
            row.rtt.quantile(0.9),
            row.runs[2].rtt.quantile(0.9),
            row.trimmed[1].mean_ns,
            row.fan_out[0].p50_ns,
        ];
        assert_eq!(kept.map(|at| at.is_some()), [valid; 4], "{kept:?}");
        let load = &row.open_loop.as_ref().unwrap().load;
        // the median of 100 nodes is p99.3 of one
        let spoiled = [
            load.response_time.quantile(0.99),
            row.rtt.quantile(0.99),
            row.runs[2].rtt.quantile(0.99),
            row.trimmed[2].mean_ns,
            row.fan_out[3].p50_ns,
            row.bursts.as_ref().map(|bursts| bursts.threshold_ns),
        ];
        assert!(spoiled.iter().all(Option::is_none), "{spoiled:?}");
        let far = curves.ccdf.iter().filter(|(_, beyond)| *beyond < 0.009);
        assert_eq!(far.count(), 0);
        assert_eq!(curves.ccdf.is_empty(), !valid);
    }
}
