//! What a verdict withdraws is in no output: screen, details, JSON, page, files and the commands to run next.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use taillab_console::args::AnalysisArgs;
use taillab_console::rundir::RunDir;
use taillab_model::explanation::{
    Band, BandPart, Cause, CauseShare, Culprit, Explanation, NamedCurve, PredictedPoint,
    Prediction, Share, SlowRequest, Stretch,
};
use taillab_model::summary::{Claim, ClaimName, OwnWork, Reason, Verdict};
use taillab_model::{Monotonic, Nanos, Stamps};
use taillab_report::requests::RequestRow;
use taillab_report::terminal::Style;
use taillab_report::{Document, html, json, perfetto, terminal};

use super::analyse::{Analysed, MeasurementFacts};
use super::next_steps;
use super::recording::{Source, analyse};
use super::rows::RowFiles;
use super::spool::Spool;

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../analysis/tests/golden/nginx_2_workers.tlc"
);

/// What would help, as a command.
const COMMAND: &str = "sudo taillab tune apply rt-priority -p 4711";

fn culprit() -> Culprit {
    Culprit::Thread {
        name: "kdamond.0".to_owned(),
        pid: Some(77),
        tid: Some(77),
    }
}

/// A result in which one program made the tail, with this verdict and without what that withdraws.
fn judged(verdict: Verdict) -> Analysed {
    let facts = MeasurementFacts {
        command: "run",
        ..MeasurementFacts::default()
    };
    let mut spool = Spool::in_file(File::open(RECORDING).unwrap());
    let analysed = analyse(
        Source::of(&mut spool),
        &AnalysisArgs::default(),
        facts,
        None,
    )
    .unwrap();
    let Analysed { mut report, curves } = analysed;
    let server = &mut report.server;
    let measured = server.measured.sojourn.quantile(0.99).unwrap();
    server.causes = vec![share(None), share(Some(culprit()))];
    let ideal = server.ideal.sojourn.clone();
    server.ideal.own_work = Some(OwnWork::new(ideal, 2.1));
    server.predictions = vec![prediction(measured)];
    server.explanation = Some(explanation());
    report.verdict = verdict;
    let ideal = report.server.ideal.sojourn.clone();
    Analysed::without_withdrawn((report, curves), &ideal, true)
}

fn share(culprit: Option<Culprit>) -> CauseShare {
    let share = Share {
        value: 0.9,
        lo: Some(0.8),
        hi: Some(0.95),
    };
    CauseShare {
        cause: Cause::Background,
        culprit,
        share,
        excess_share_above_p99: share,
        excess_ns: Nanos::from_millis(40),
        requests: 120,
        events: 9,
        mean_event_ns: 2.1e6,
        median_event_ns: None,
        longest_event_ns: None,
        requests_per_event: 13.3,
    }
}

fn prediction(measured_ns: Nanos) -> Prediction {
    Prediction {
        change: "rt-priority".to_owned(),
        description: "the server's threads under SCHED_FIFO".to_owned(),
        command: Some(COMMAND.to_owned()),
        removes: vec![Cause::Background],
        cost: Some("starves others".to_owned()),
        points: vec![PredictedPoint {
            q: 0.99,
            measured_ns,
            predicted_ns: Nanos::new(measured_ns.get() / 4),
            lo_ns: None,
            hi_ns: None,
        }],
    }
}

fn explanation() -> Explanation {
    let band = |from_q, to_q| Band {
        from_q,
        to_q,
        requests: 20,
        mean_sojourn_ns: 3e6,
        mean_ideal_ns: 1e5,
        parts: vec![BandPart {
            cause: Cause::Background,
            mean_excess_ns: 2.9e6,
            share: share(None).share,
        }],
    };
    let slowest = SlowRequest {
        t1: Monotonic::from_nanos_since_boot(1_000),
        port: 40_112,
        sojourn_ns: Nanos::from_millis(3),
        ideal_ns: Some(Nanos::from_micros(100)),
        stamps_ns: [None; 5],
        worker: None,
        stretches: vec![Stretch {
            from_ns: Nanos::ZERO,
            lasted_ns: Nanos::from_millis(3),
            cause: Cause::Background,
            culprit: Some(culprit()),
            inherited: false,
        }],
        joined_stretches: 0,
        activities: Vec::new(),
        omitted_activities: 0,
    };
    Explanation {
        bands: vec![band(0.0, 0.9), band(0.99, 1.0)],
        around: vec![band(0.98, 0.995)],
        slowest: vec![slowest],
        curves: vec![NamedCurve {
            name: "rt-priority".to_owned(),
            points: vec![(Nanos::new(10), 1.0), (Nanos::new(900), 0.01)],
        }],
        ..Explanation::default()
    }
}

/// A verdict that withdraws these claims for this reason.
fn verdict(reason: &str, withdrawn: &[ClaimName]) -> Verdict {
    let all = (ClaimName::PERCENTILES.into_iter()).chain(ClaimName::COMPARISON);
    let claim = |claim| {
        let valid = !withdrawn.contains(&claim);
        let because = if valid { None } else { Some(reason.to_owned()) };
        Claim {
            claim,
            valid,
            because: because.into_iter().collect(),
        }
    };
    Verdict {
        valid: true,
        claims: all.map(claim).collect(),
        ..Verdict::default()
    }
}

/// Every output for people and programs, by name.
fn outputs(analysed: &Analysed) -> Vec<(&'static str, String)> {
    let document = Document {
        report: &analysed.report,
        environment: None,
        experiment_toml: None,
        curves: &analysed.curves,
    };
    let style = Style::PLAIN;
    let next = next_steps::of_run(Path::new("run"), true, analysed);
    let explanation = analysed.report.server.explanation.as_ref();
    let slowest: &[SlowRequest] = explanation.map_or(&[], |explanation| &explanation.slowest);
    let details = [
        terminal::render(&document, None, style),
        terminal::details(&document, style),
    ];
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    vec![
        ("screen", terminal::screen(&document, None, &next, style)),
        ("details", details.concat()),
        ("slowest", terminal::slowest(slowest, style)),
        ("JSON", text(json::of_report(&analysed.report).unwrap())),
        ("page", text(html::render(&document))),
        ("trace", text(perfetto::trace("server", slowest))),
    ]
}

/// Which outputs have one of these words.
fn with<'w>(outputs: &[(&'static str, String)], words: &[&'w str]) -> Vec<(&'static str, &'w str)> {
    let pairs = outputs.iter().flat_map(|(name, output)| {
        let found = words.iter().filter(move |word| output.contains(**word));
        found.map(move |word| (*name, *word))
    });
    pairs.collect()
}

/// What only an account of the excess says.
const OF_CAUSES: [&str; 3] = [
    "of the excess above p99",
    "What did it",
    "Where the excess comes from",
];

/// What only the best forecast says.
const OF_FORECASTS: [&str; 3] = [COMMAND, "would be", "What would help most"];

/// What only the ideal of each request's own work says.
const OF_OWN_WORK: &str = "Requests differ in their work";

const NAMED: [&str; 4] = ["screen", "details", "JSON", "page"];

#[test]
fn causes_and_forecasts_that_are_withdrawn_are_nowhere() {
    let words = [OF_CAUSES, OF_FORECASTS].concat();
    let whole = judged(verdict("few_slices", &[]));
    let own_work = with(&outputs(&whole), &[OF_OWN_WORK]);
    let told = own_work.iter().map(|(name, _)| *name);
    assert_eq!(told.collect::<Vec<_>>(), ["screen", "details", "page"]);
    let there = with(&outputs(&whole), &words);
    for name in NAMED {
        assert!(there.iter().any(|(of, _)| *of == name), "{name}: {there:?}");
    }
    assert!(!whole.report.server.ratio.is_empty());
    let withdrawn = [ClaimName::Causes, ClaimName::Forecasts];
    let left = judged(verdict("few_slices", &withdrawn));
    let there = with(&outputs(&left), &words);
    assert!(there.is_empty(), "{there:?}");
    let server = &left.report.server;
    assert!(server.causes.is_empty() && server.predictions.is_empty());
    assert!(server.model_fit.is_none() && server.ratio.is_empty());
    let explanation = server.explanation.as_ref().unwrap();
    assert!(explanation.bands.is_empty() && explanation.around.is_empty());
    assert!(explanation.curves.is_empty());
    // the rest stays: who held a single request up is no share of anything
    assert!(server.measured.sojourn.quantile(0.99).is_some());
    assert!(server.ideal.sojourn.quantile(0.99).is_some());
    assert_eq!(with(&outputs(&left), &["kdamond.0"])[0].0, "slowest");
    let has_ideal = |of: &Analysed| !with(&outputs(of), &["(ideal 100 µs)"]).is_empty();
    assert!(explanation.slowest[0].ideal_ns.is_some() && has_ideal(&left));
    // without an ideal, a single request has none either
    let all = [&ClaimName::PERCENTILES[..], &ClaimName::COMPARISON].concat();
    let left = judged(verdict("unmatched", &all));
    let explanation = left.report.server.explanation.as_ref().unwrap();
    assert!(explanation.slowest[0].ideal_ns.is_none() && !has_ideal(&left));
}

/// An invalid result showed 16 forecasts, 55 causes and a command to apply one of them.
#[test]
fn of_an_invalid_result_nothing_is_left_that_it_claims() {
    let claims = [&ClaimName::PERCENTILES[..], &ClaimName::COMPARISON].concat();
    let why = "none of 7 requests was answered";
    let left = judged(Verdict {
        valid: false,
        reasons: vec![Reason::new("no_answer", why)],
        ..verdict("no_answer", &claims)
    });
    let more = [OF_OWN_WORK, "kdamond.0", "--fix"];
    let words = [&OF_CAUSES[..], &OF_FORECASTS, &more].concat();
    let outputs = outputs(&left);
    let there = with(&outputs, &words);
    assert!(there.is_empty(), "{there:?}");
    let said = with(&outputs, &[why]).into_iter().map(|(name, _)| name);
    assert_eq!(said.collect::<Vec<_>>(), NAMED);
    let server = &left.report.server;
    let stages = &server.stages;
    for distribution in [
        &server.measured.sojourn,
        &server.ideal.sojourn,
        server.ideal.base(),
        &server.excess,
        &stages.t1_t2,
        &stages.t4_t5,
    ] {
        let mut values = distribution.quantiles.iter().map(|at| (at.value, at.lo));
        assert!(values.all(|value| value == (None, None)));
    }
    assert!(left.curves.iter().all(|curve| curve.points.is_empty()));
    assert!(server.stages_at.is_empty() && server.ideal.by_service_time.is_empty());
}

/// A tail that is withdrawn, below percentiles that hold: neither what was measured nor the ideal nor a stage.
#[test]
fn the_percentiles_of_a_withdrawn_tail_are_nowhere() {
    let values = |of: &Analysed, q: f64| -> Vec<Nanos> {
        let server = &of.report.server;
        let all = [
            &server.measured.sojourn,
            &server.ideal.sojourn,
            &server.stages.t4_t5,
        ];
        all.iter().filter_map(|one| one.quantile(q)).collect()
    };
    let whole = judged(verdict("few_slices", &[]));
    let words = |q: f64| -> Vec<String> {
        let found = values(&whole, q);
        assert_eq!(found.len(), 3, "{q}");
        let exact = found.iter().map(|value| value.get().to_string());
        exact.chain(found.iter().map(Nanos::to_string)).collect()
    };
    let (held, tail) = (words(0.5), words(0.99));
    let tail: Vec<&str> = tail.iter().map(String::as_str).collect();
    // of the screen and in JSON, as text and as a number
    let there = with(&outputs(&whole), &tail);
    for name in ["screen", "JSON", "page"] {
        assert!(there.iter().any(|(of, _)| *of == name), "{name}: {there:?}");
    }
    // from p90 on: in so short a recording, a point of the curve just below p99 has the value of p99
    let withdrawn = [&ClaimName::PERCENTILES[1..], &ClaimName::COMPARISON[1..]].concat();
    let left = outputs(&judged(verdict("few_slices", &withdrawn)));
    let there = with(&left, &tail);
    assert!(there.is_empty(), "{there:?}");
    let held: Vec<&str> = held.iter().map(String::as_str).collect();
    assert!(with(&left, &held).len() >= 3);
}

/// The files with a row for each request are written before it is known what is withdrawn.
#[test]
fn no_row_has_what_is_withdrawn() {
    let at = Monotonic::from_nanos_since_boot;
    let row = RequestRow {
        server: Some(Stamps::new(at(100), [None; 4], at(400))),
        peer: None,
        id: None,
        ideal: Some(Nanos::new(200)),
        worker: Some(7),
        main_cause: Some(Cause::Background),
        client: None,
        operation: None,
        warm_up: false,
    };
    let files = |withdrawn: &[ClaimName]| {
        let left = judged(verdict("few_slices", withdrawn));
        let place = tempfile::tempdir().unwrap();
        let mut dir = RunDir::create(place.path().join("run"), 0).unwrap();
        let mut files = RowFiles::begin(&dir, at(1), 0).unwrap();
        files.push(row);
        let written = files.finish().unwrap();
        written.keep(&mut dir, &left.report).unwrap();
        let rows = File::open(dir.path().join("requests.parquet")).unwrap();
        let rows = SerializedFileReader::new(rows).unwrap();
        let about = rows.metadata().file_metadata();
        let columns = about.schema_descr().columns().iter();
        let columns: Vec<String> = columns.map(|column| column.name().to_owned()).collect();
        let has = ["sojourn_ns", "ideal_ns", "excess_ns", "main_cause"]
            .map(|name| columns.iter().any(|column| column == name));
        let log = std::fs::read_to_string(dir.path().join("latency.hlog")).unwrap();
        (has, log.contains("Tag=ideal,"))
    };
    assert_eq!(files(&[]), ([true; 4], true));
    assert_eq!(
        files(&[ClaimName::Causes]),
        ([true, true, true, false], true)
    );
    assert_eq!(
        files(&ClaimName::COMPARISON),
        ([true, false, false, false], false)
    );
}
