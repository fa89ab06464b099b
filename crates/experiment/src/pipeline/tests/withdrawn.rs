//! What the evidence does not support is in no output: screen, details, JSON, page, files and the commands to run next.

#[allow(dead_code, reason = "the tests of `analysis` use more of it")]
#[path = "../../../../analysis/tests/common/facts.rs"]
mod facts;

use std::fs::File;
use std::num::{NonZeroU8, NonZeroU32};
use std::path::Path;
use std::sync::Arc;

use parquet::file::reader::{FileReader, SerializedFileReader};
use taillab_analysis::load::summarise;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::verdict::WithdrawnPart;
use taillab_analysis::{Analysis, AnalysisOptions, Window, match_recording};
use taillab_console::args::AnalysisArgs;
use taillab_console::rundir::RunDir;
use taillab_model::compare::{Change, ComparedAt, compared};
use taillab_model::explanation::SlowRequest;
use taillab_model::summary::{ClaimName, LoadSummary, ServerResult};
use taillab_model::{Event, EventKind, MiddleStamps, Monotonic, Nanos, Recording};
use taillab_report::junit::junit;
use taillab_report::metrics::Metrics;
use taillab_report::terminal::Style;
use taillab_report::{Document, html, json, perfetto, terminal};

use self::facts::load_facts;
use crate::pipeline::analyse::{Analysed, MeasurementFacts};
use crate::pipeline::next_steps;
use crate::pipeline::recording::{Source, analyse};
use crate::pipeline::spool::Spool;

/// 468 answers of redis. One program made the tail, and what would help is forecast.
const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../analysis/tests/cases/redis-resync-1.tlc"
);

/// Clients that wait for their answers.
const CLOSED_LOOP: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../analysis/tests/cases/http-posts.tlc"
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
    /// One slice, in which everything was recorded: causes and forecasts.
    FewSlices,
    /// Clients that waited for their answers: the ideal and forecasts.
    ClosedLoop,
    /// The client got no answer: everything.
    Everything,
}

/// The case of each part that a rule can take away.
const fn case_of(part: WithdrawnPart) -> Against {
    match part {
        WithdrawnPart::Nothing => Against::Nothing,
        WithdrawnPart::Comparison => Against::Comparison,
        WithdrawnPart::From(_) => Against::Tail,
        WithdrawnPart::Explanation => Against::FewSlices,
        WithdrawnPart::IdealAndForecasts => Against::ClosedLoop,
        WithdrawnPart::Everything => Against::Everything,
    }
}

/// The recording of a case.
fn recorded(against: Against) -> Vec<u8> {
    let bytes = |path| std::fs::read(path).unwrap();
    match against {
        Against::ClosedLoop => bytes(CLOSED_LOOP),
        Against::FewSlices => in_one_slice(&bytes(RECORDING)),
        Against::Tail => {
            let mut all = bytes(RECORDING);
            all.truncate(all.len() - CUT_OFF);
            all
        }
        Against::Nothing | Against::Comparison | Against::Everything => bytes(RECORDING),
    }
}

/// The same recording as a single slice.
fn in_one_slice(bytes: &[u8]) -> Vec<u8> {
    let mut recording = Recording::read(bytes).unwrap();
    let last = recording.events().map(|event| event.at).max().unwrap();
    let edge = |at: Monotonic, begins| Event {
        at,
        cpu: 0,
        kind: EventKind::Slice { begins },
    };
    let edges = [edge(recording.base, true), edge(last, false)];
    recording.insert(edges);
    recording.context.stamps = MiddleStamps::Sampled(NonZeroU8::new(16).unwrap());
    let mut sliced = Vec::new();
    recording.write(&mut sliced).unwrap();
    sliced
}

/// What would be made of a recording, whatever it lacks.
fn without_judge(bytes: &[u8], service_time: Nanos) -> ServerResult {
    let (recording, _) = Recording::recover(bytes).unwrap();
    let context = recording.context.clone();
    let timeline = Timeline::build(recording.events(), &context);
    let window = Window::whole(match_recording(&recording).unwrap(), timeline);
    let from = context.measure_from_ns;
    let from = from.map_or(recording.base, Monotonic::from_nanos_since_boot);
    let options = AnalysisOptions::new(service_time, NonZeroU32::MIN, from);
    let mut analysis = Analysis::new(&context, options);
    analysis.push(&Arc::new(window), |_, _| {});
    let lost = recording.lost.total();
    analysis.finish(lost).unwrap().unjudged().server
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
    std::fs::write(&path, recorded(against)).unwrap();
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
    summarise(std::iter::empty, load_facts(200.0)).summary
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
    let mut metrics = Metrics::default();
    metrics.add(&analysed.report.server, &[]);
    vec![
        ("screen", terminal::screen(&document, None, &next, style)),
        ("details", details.concat()),
        ("slowest", terminal::slowest(slowest, style)),
        ("JSON", text(json::of_report(&analysed.report).unwrap())),
        ("page", text(html::render(&document))),
        ("trace", text(perfetto::trace("server", slowest))),
        ("JUnit", text(junit(&analysed.report))),
        ("OpenMetrics", metrics.text("server", "0")),
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
    let all: Vec<&str> = NAMED.into_iter().chain(["JUnit"]).collect();
    assert_eq!(said.map(|(name, _)| name).collect::<Vec<_>>(), all);
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
    // with it, nothing can be compared
    let whole = judged(Against::Nothing).analysed.report.server;
    let pairs = compared(&server.measured.sojourn, &whole.measured.sojourn);
    let is_known = |at: &ComparedAt| at.ratio.is_some() || at.change() != Change::NotKnown;
    assert!(
        !pairs.is_empty() && !pairs.iter().any(is_known),
        "{pairs:?}"
    );
    assert_eq!(in_rows(&left), [true, false, false, false, false]);
}

/// A tail that is not known, below percentiles that are: neither what was measured nor a stage of it. What would have been
/// told of it is looked for everywhere.
#[test]
fn the_percentiles_of_a_tail_without_support_are_nowhere() {
    let left = judged(Against::Tail);
    let words = |server: &ServerResult, q: f64| -> Vec<String> {
        let all = [&server.measured.sojourn, &server.stages.t4_t5];
        let found: Vec<Nanos> = all.iter().filter_map(|one| one.quantile(q)).collect();
        let exact = found.iter().map(|value| value.get().to_string());
        exact.chain(found.iter().map(Nanos::to_string)).collect()
    };
    let server = &left.analysed.report.server;
    let made = without_judge(&recorded(Against::Tail), server.service_time_ns);
    assert_eq!(words(&made, 0.5), words(server, 0.5));
    assert_eq!(words(&made, 0.5).len(), 4);
    assert!(words(server, 0.9).is_empty() && words(server, 0.99).is_empty());
    let outputs = outputs(&left.analysed);
    let sought = |q| words(&made, q).into_iter();
    let (p90, p99): (Vec<String>, Vec<String>) = (sought(0.9).collect(), sought(0.99).collect());
    assert_eq!((p90.len(), p99.len()), (4, 4));
    let in_some = |words: &[String]| -> Vec<(&str, String)> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let found = with(&outputs, &words).into_iter();
        found.map(|(name, word)| (name, word.to_owned())).collect()
    };
    let found = in_some(&p90);
    assert!(found.is_empty(), "{found:?}");
    // one of the slowest requests took as long, and that is told of it alone
    let of_single = ["slowest", "JSON", "page", "trace", "details"];
    let mut found = in_some(&p99);
    found.retain(|(name, _)| !of_single.contains(name));
    assert!(found.is_empty(), "{found:?}");
    let there = with(&outputs, &[OF_CAUSES, OF_FORECASTS].concat());
    assert!(there.is_empty(), "{there:?}");
    assert_eq!(in_rows(&left), [true, true, true, false, true]);
}

/// Clients that wait for their answers: no faster server would have got the same requests.
#[test]
fn in_a_closed_loop_the_ideal_and_forecasts_are_nowhere() {
    let left = judged(Against::ClosedLoop);
    let outputs = outputs(&left.analysed);
    let there = with(&outputs, &[&OF_FORECASTS[..], &OF_CAUSES[..1]].concat());
    assert!(there.is_empty(), "{there:?}");
    let server = &left.analysed.report.server;
    assert!(server.predictions.is_empty() && server.model_fit.is_none());
    assert!(server.ratio.is_empty());
    assert!(server.ideal.sojourn.count == 0 && server.excess.count == 0);
    let [sojourn, ideal, excess, _, logged] = in_rows(&left);
    assert!(sojourn && !ideal && !excess && !logged);
    // where requests spent their time is known without an ideal, and shown where it would be
    let told = with(&outputs, &["Where the time goes"]);
    assert!(told.iter().any(|(name, _)| *name == "screen"), "{told:?}");
    // who made the result says so
    let said = with(&outputs, &["closed_loop"]);
    assert!(said.iter().any(|(name, _)| *name == "JSON"), "{said:?}");
}

/// All stamps of one slice alone: the interval of a share takes the slices as the sample.
#[test]
fn causes_of_too_few_slices_are_nowhere() {
    let left = judged(Against::FewSlices);
    let outputs = outputs(&left.analysed);
    let there = with(&outputs, &[OF_CAUSES, OF_FORECASTS].concat());
    assert!(there.is_empty(), "{there:?}");
    let server = &left.analysed.report.server;
    assert!(server.causes.is_empty() && server.predictions.is_empty());
    // the ideal needs T1 alone
    assert!(server.ideal.sojourn.quantile(0.5).is_some());
    assert_eq!(in_rows(&left), [true, true, true, false, true]);
    // without the judge, there are causes
    let made = without_judge(&recorded(Against::FewSlices), server.service_time_ns);
    assert!(!made.causes.is_empty());
}

/// Each part that a rule can take away has its case, in which nothing else is taken.
#[test]
fn each_part_that_can_be_withdrawn_has_its_case() {
    let comparison = |part| {
        let left = judged(case_of(part));
        let supported = left.analysed.supported;
        [ClaimName::Ideal, ClaimName::Causes, ClaimName::Forecasts]
            .map(|claim| supported.claim(claim))
    };
    assert_eq!(comparison(WithdrawnPart::Nothing), [true; 3]);
    assert_eq!(comparison(WithdrawnPart::Comparison), [false; 3]);
    assert_eq!(comparison(WithdrawnPart::From(0.9)), [true, false, false]);
    assert_eq!(comparison(WithdrawnPart::Explanation), [true, false, false]);
    let [ideal, _, forecasts] = comparison(WithdrawnPart::IdealAndForecasts);
    assert!(!ideal && !forecasts);
    assert_eq!(comparison(WithdrawnPart::Everything), [false; 3]);
}
