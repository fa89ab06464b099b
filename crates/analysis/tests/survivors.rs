//! Requests that nobody answered count: a server does not look better by dropping them.

use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_analysis::load::{LoadedRequest, summarise};
use taillab_analysis::rtt::summarise as summarise_rtt;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::verdict::{
    Built, Evidence, SentLoad, Supported, TraceFacts, judge, judge_client,
};
use taillab_analysis::{Analysed, Analysis, AnalysisOptions, Matched, Unmatched, Window};
use taillab_model::rtt::RoundTrip;
use taillab_model::summary::LoadErrors;
use taillab_model::{
    ClientTimes, Monotonic, Nanos, RecordingContext, Request, RequestKey, Stamps, WireTimes,
};

use crate::common::facts::load_facts;

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
        early: false,
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
    analysis.finish(0).unwrap().unjudged()
}

/// What the verdict says about requests without an answer.
fn said(analysed: &Analysed) -> Vec<String> {
    let evidence = Evidence {
        server: Some(&analysed.evidence),
        recording: Some(TraceFacts::default()),
        ..Evidence::default()
    };
    let verdict = judge(&evidence).verdict(&evidence, Built::default());
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
    let facts = load_facts(10_000.0);
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

/// What is supported of a load in which so many requests failed.
fn supported(server_errors: u64) -> Supported {
    let mut analysis = loaded(30_000, |_| true);
    analysis.summary.errors = LoadErrors {
        server_errors,
        ..LoadErrors::default()
    };
    let load = SentLoad {
        summary: &analysis.summary,
        evidence: Some(&analysis.evidence),
        floor: None,
    };
    let evidence = Evidence {
        load: Some(load),
        ..Evidence::default()
    };
    judge_client(&evidence).0
}

#[test]
fn a_percentile_that_is_not_supported_is_nowhere_in_a_row_of_round_trips() {
    let trip = |n: u64| RoundTrip {
        sent: Monotonic::from_nanos_since_boot(n * 1_000_000),
        rtt: Nanos::new(100 + n * 7_919 % 1_000),
        connection: 0,
        lost: false,
    };
    let run: Vec<RoundTrip> = (0..10_000).map(trip).collect();
    let runs = [run.clone(), run.clone(), run];
    // nothing failed; a tenth of what is above p99; all
    for (failed, below_p99, p99) in [(0, true, true), (40, true, false), (30_000, false, false)] {
        let found = summarise_rtt(&runs, &supported(failed));
        let kept = [
            found.rtt.quantile(0.9),
            found.runs[2].quantile(0.9),
            found.trimmed[1].mean_ns,
            found.fan_out[0].p50_ns,
        ];
        assert_eq!(kept.map(|at| at.is_some()), [below_p99; 4], "{kept:?}");
        // the median of 100 nodes is p99.3 of one
        let far = [
            found.rtt.quantile(0.99),
            found.runs[2].quantile(0.99),
            found.trimmed[2].mean_ns,
            found.fan_out[3].p50_ns,
            found.bursts.as_ref().map(|bursts| bursts.threshold_ns),
        ];
        assert_eq!(far.map(|at| at.is_some()), [p99; 5], "{far:?}");
        let points = found.curves.ccdf.iter();
        assert_eq!(points.clone().any(|(_, beyond)| *beyond < 0.009), p99);
        assert_eq!(points.len() > 0, below_p99);
    }
}
