//! What the evidence does not support is in no output: screen, details, JSON, page, files and the commands to run next.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use taillab_analysis::load::{LoadFacts, summarise};
use taillab_console::args::AnalysisArgs;
use taillab_console::rundir::RunDir;
use taillab_model::Nanos;
use taillab_model::explanation::SlowRequest;
use taillab_model::summary::{
    ArrivalsReference, ArrivalsVerdict, ClaimName, ClientCost, LoadErrors, LoadSummary,
};
use taillab_report::terminal::Style;
use taillab_report::{Document, html, json, perfetto, terminal};

use super::analyse::{Analysed, MeasurementFacts};
use super::next_steps;
use super::recording::{Source, analyse};
use super::spool::Spool;

/// 468 answers of redis. One program made the tail, and what would help is forecast.
const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../analysis/tests/cases/redis-resync-1.tlc"
);

/// So many bytes of its end say what it lost.
const CUT_OFF: usize = 64;

/// What is against a result of the recording.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Against {
    Nothing,
    /// A t that is contradicted: ideal, causes and forecasts.
    Comparison,
    /// What was lost at the end: p90 and beyond, causes and forecasts.
    Tail,
    /// The client got no answer: everything.
    Everything,
}

/// A result, and what is in its files with a row for each request: the columns, and the log.
struct Outcome {
    analysed: Analysed,
    columns: Vec<String>,
    log: String,
}

fn judged(against: Against) -> Outcome {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("capture.tlc");
    let mut bytes = std::fs::read(RECORDING).unwrap();
    if against == Against::Tail {
        bytes.truncate(bytes.len() - CUT_OFF);
    }
    std::fs::write(&path, bytes).unwrap();
    let args = AnalysisArgs {
        service_time: (against == Against::Comparison).then(|| Nanos::from_millis(1)),
        ..AnalysisArgs::default()
    };
    let facts = MeasurementFacts {
        command: "explain",
        load: (against == Against::Everything).then(|| (unanswered(), Vec::new())),
        ..MeasurementFacts::default()
    };
    let mut dir = RunDir::create(place.path().join("run"), 0).unwrap();
    let mut spool = Spool::in_file(File::open(path).unwrap());
    let analysed = analyse(Source::of(&mut spool), &args, facts, Some(&mut dir)).unwrap();
    let rows = File::open(dir.path().join("requests.parquet")).unwrap();
    let rows = SerializedFileReader::new(rows).unwrap();
    let about = rows.metadata().file_metadata();
    let columns = about.schema_descr().columns().iter();
    Outcome {
        analysed,
        columns: columns.map(|column| column.name().to_owned()).collect(),
        log: std::fs::read_to_string(dir.path().join("latency.hlog")).unwrap(),
    }
}

/// A load without an answer.
fn unanswered() -> LoadSummary {
    let facts = LoadFacts {
        target_rate_per_s: 200.0,
        target_utilization: None,
        arrivals: ArrivalsVerdict {
            process: "poisson".to_owned(),
            reference: ArrivalsReference::Process,
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
            cpu_ns_per_request: Nanos::ZERO,
            busy_share: 0.0,
        },
        errors: LoadErrors::default(),
        clients: None,
    };
    summarise(std::iter::empty, facts).summary
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

/// The program that made the tail.
const CULPRIT: &str = "lto cgu.06";

/// What only an account of the excess says, and a warning about it.
const OF_CAUSES: [&str; 3] = [
    "of the excess above p99",
    "What did it",
    "Where the excess comes from",
];

/// What only a forecast says.
const OF_FORECASTS: [&str; 3] = ["taillab tune plan", "rt-priority", "would be"];

const NAMED: [&str; 4] = ["screen", "details", "JSON", "page"];

/// What the files with rows have: the sojourn, the ideal, the excess, its main cause; and the ideals in the log.
fn in_rows(outcome: &Outcome) -> [bool; 5] {
    let has = |name: &str| outcome.columns.iter().any(|column| column == name);
    let logged = outcome.log.contains("Tag=ideal,");
    [
        has("sojourn_ns"),
        has("ideal_ns"),
        has("excess_ns"),
        has("main_cause"),
        logged,
    ]
}

#[test]
fn what_is_supported_is_in_every_output() {
    let whole = judged(Against::Nothing);
    let supported = &whole.analysed.supported;
    assert!(
        ClaimName::COMPARISON
            .iter()
            .all(|claim| supported.claim(*claim))
    );
    let there = with(
        &outputs(&whole.analysed),
        &[OF_CAUSES, OF_FORECASTS].concat(),
    );
    for name in NAMED {
        assert!(there.iter().any(|(of, _)| *of == name), "{name}: {there:?}");
    }
    let server = &whole.analysed.report.server;
    assert!(!server.ratio.is_empty() && server.model_fit.is_some());
    assert_eq!(in_rows(&whole), [true; 5]);
}

#[test]
fn causes_and_forecasts_without_support_are_nowhere() {
    let left = judged(Against::Comparison);
    assert!(left.analysed.supported.percentile(0.99));
    let outputs = outputs(&left.analysed);
    let there = with(&outputs, &[OF_CAUSES, OF_FORECASTS].concat());
    assert!(there.is_empty(), "{there:?}");
    let server = &left.analysed.report.server;
    assert!(server.causes.is_empty() && server.predictions.is_empty());
    assert!(server.model_fit.is_none() && server.ratio.is_empty());
    assert!(server.ideal.sojourn.count == 0 && server.excess.count == 0);
    let explanation = server.explanation.as_ref().unwrap();
    assert!(explanation.bands.is_empty() && explanation.around.is_empty());
    assert!(explanation.curves.is_empty());
    // the rest stays: who held a single request up is no share of anything
    assert!(server.measured.sojourn.quantile(0.99).is_some());
    let named = with(&outputs, &[CULPRIT]);
    assert!(named.contains(&("slowest", CULPRIT)), "{named:?}");
    // without an ideal, a single request has none either
    assert!(explanation.slowest[0].ideal_ns.is_none());
    assert_eq!(in_rows(&left), [true, false, false, false, false]);
}

/// An invalid result showed 16 forecasts, 55 causes and a command to apply one of them.
#[test]
fn of_an_invalid_result_nothing_is_made() {
    let left = judged(Against::Everything);
    let words = [&OF_CAUSES[..], &OF_FORECASTS, &[CULPRIT, "--fix"]].concat();
    let outputs = outputs(&left.analysed);
    let there = with(&outputs, &words);
    assert!(there.is_empty(), "{there:?}");
    let said = with(&outputs, &["requests was answered"]).into_iter();
    assert_eq!(said.map(|(name, _)| name).collect::<Vec<_>>(), NAMED);
    let server = &left.analysed.report.server;
    for distribution in [
        &server.measured.sojourn,
        &server.ideal.sojourn,
        server.ideal.base(),
        &server.excess,
        &server.stages.t1_t2,
        &server.stages.t4_t5,
    ] {
        let mut values = distribution.quantiles.iter().map(|at| (at.value, at.lo));
        assert!(values.all(|value| value == (None, None)));
    }
    let mut curves = left.analysed.curves.iter();
    assert!(curves.all(|curve| curve.points.is_empty()));
    assert!(server.stages_at.is_empty() && server.ideal.by_service_time.is_empty());
    assert_eq!(in_rows(&left), [true, false, false, false, false]);
}

/// A tail that is not known, below percentiles that are: neither what was measured nor a stage of it.
#[test]
fn the_percentiles_of_a_tail_without_support_are_nowhere() {
    let (whole, left) = (judged(Against::Nothing), judged(Against::Tail));
    let words = |of: &Analysed, q: f64| -> Vec<String> {
        let server = &of.report.server;
        let all = [&server.measured.sojourn, &server.stages.t4_t5];
        let found: Vec<Nanos> = all.iter().filter_map(|one| one.quantile(q)).collect();
        let exact = found.iter().map(|value| value.get().to_string());
        exact.chain(found.iter().map(Nanos::to_string)).collect()
    };
    assert_eq!(words(&whole.analysed, 0.99).len(), 4);
    assert_eq!(words(&left.analysed, 0.5).len(), 4);
    assert!(words(&left.analysed, 0.9).is_empty() && words(&left.analysed, 0.99).is_empty());
    let outputs = outputs(&left.analysed);
    let there = with(&outputs, &[OF_CAUSES, OF_FORECASTS].concat());
    assert!(there.is_empty(), "{there:?}");
    assert_eq!(in_rows(&left), [true, true, true, false, true]);
}
