//! The files of a load, read back.

use hdrhistogram::Histogram;
use proptest::prelude::*;
use taillab_model::{ClientTimes, Monotonic, Nanos, Operation, Outcome, WireTimes};
use taillab_report::chart::Axis;
use taillab_report::load::{LoadDocument, LoadRow, LoadSeries, chart, write_hlog};

use super::samples;

fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(ns)
}

/// A row that was due at `due_ns` and answered after `response_ns`, sent 10 ns late.
fn row(due_ns: u64, response_ns: Option<u64>) -> LoadRow {
    LoadRow {
        times: ClientTimes {
            intended: at(due_ns),
            sent: at(due_ns + 10),
            received: response_ns.map(|ns| at(due_ns + ns)),
        },
        wire: WireTimes::default(),
        waited: Nanos::ZERO,
        connecting: Nanos::ZERO,
        operation: Operation::Call,
        outcome: if response_ns.is_some() {
            Outcome::Done
        } else {
            Outcome::TimedOut
        },
        connection: 3,
        thread: 1,
        port: Some(40_000),
        id: response_ns.map(|_| 7),
        warm_up: false,
    }
}

/// The numbers of a percentile file's lines, and its footer's.
fn parse(text: &str) -> (Vec<Vec<f64>>, Vec<f64>) {
    let numbers = |line: &str| -> Vec<f64> {
        line.split(|c: char| c.is_whitespace() || "[],=".contains(c))
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    assert!(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"));
    let (footer, lines): (Vec<&str>, Vec<&str>) =
        text.lines().skip(2).partition(|line| line.starts_with('#'));
    assert_eq!(footer.len(), 4);
    assert!(footer[3].contains("milliseconds"));
    (
        lines.iter().map(|line| numbers(line)).collect(),
        footer.iter().flat_map(|line| numbers(line)).collect(),
    )
}

proptest! {
    /// Read back, a percentile file is the histogram of the latencies: each line's count is
    /// the number of them at or below its value, and the last one is the maximum.
    #[test]
    fn a_percentile_file_is_the_distribution(
        responses in prop::collection::vec(20_u64..20_000_000_000, 1..400)
    ) {
        let rows = responses.iter().enumerate().map(|(k, ns)| row(1_000 * k as u64, Some(*ns)));
        let totals = write_hlog(rows, at(0), 0, std::io::sink()).unwrap();
        let text = totals.percentiles(LoadSeries::ResponseTime, |_| true).unwrap();
        let (lines, footer) = parse(std::str::from_utf8(&text).unwrap());
        let mut exact: Histogram<u64> = Histogram::new(3).unwrap();
        for ns in &responses {
            exact.record(*ns).unwrap();
        }
        prop_assert!(lines.is_sorted_by(|a, b| a[0] <= b[0] && a[1] < b[1] && a[2] <= b[2]));
        for line in &lines {
            let value_ns = (line[0] * 1e6).round() as u64;
            prop_assert_eq!(exact.count_between(0, value_ns), line[2] as u64);
            prop_assert!(line[2] >= (line[1] * responses.len() as f64).floor());
            if let Some(inverse) = line.get(3) {
                // printed with two decimals
                prop_assert!((inverse * (1.0 - line[1]) - 1.0).abs() < 1e-2);
            }
        }
        let last = lines.last().unwrap();
        prop_assert_eq!((last[1], last.len()), (1.0, 3));
        prop_assert_eq!(last[2] as usize, responses.len());
        prop_assert_eq!(footer[3] as usize, responses.len());
        // six decimals of a millisecond are whole nanoseconds
        prop_assert!((footer[0] * 1e6 - exact.mean()).abs() < 1.0);
        prop_assert!((footer[2] * 1e6 - exact.max() as f64).abs() < 1.0);
        prop_assert_eq!(footer[5], 2048.0);
    }
}

#[test]
fn the_log_of_a_load_has_its_percentiles() {
    let sample = samples::sample(Nanos::from_secs(2));
    let rows = sample.rows.iter().copied();
    let totals = write_hlog(rows, at(0), 0, std::io::sink()).unwrap();
    let load = sample.report.load.as_ref().unwrap();
    for (series, exact) in [
        (LoadSeries::ResponseTime, &load.response_time),
        (LoadSeries::ServiceTime, &load.service_time),
        (LoadSeries::Lateness, &load.lateness),
    ] {
        let file = totals.percentiles(series, |_| true).unwrap();
        let (lines, _) = parse(std::str::from_utf8(&file).unwrap());
        let median_ms = lines.iter().find(|line| line[1] >= 0.5).unwrap()[0];
        let exact_ms = exact.quantile(0.5).unwrap().as_micros_f64() / 1e3;
        // three significant digits
        assert!((median_ms / exact_ms - 1.0).abs() < 2e-3, "{series:?}");
    }
}

#[test]
fn a_log_has_three_series_and_keeps_unanswered_requests_in_the_lateness() {
    let second = 1_000_000_000;
    let warm_up = LoadRow {
        warm_up: true,
        ..row(100, Some(50))
    };
    let rows = [warm_up, row(200, Some(50_000)), row(second + 5, None)];
    let mut log = Vec::new();
    let totals = write_hlog(rows, at(0), 1_795_183_401, &mut log).unwrap();
    let text = String::from_utf8(log).unwrap();
    for (tag, lines) in [("response_time", 1), ("service_time", 1), ("lateness", 2)] {
        assert_eq!(
            text.matches(&format!("Tag={tag},")).count(),
            lines,
            "{text}"
        );
    }
    let file = totals.percentiles(LoadSeries::Lateness, |_| true).unwrap();
    let (lines, _) = parse(std::str::from_utf8(&file).unwrap());
    assert_eq!(lines.last().unwrap()[2], 2.0);
    assert_eq!(lines.last().unwrap()[0], 0.000_010);
    assert!(totals.percentiles(LoadSeries::Floor, |_| true).is_none());
}

#[test]
fn parquet_holds_every_request_with_its_outcome() {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int8Type, Int64Type, UInt32Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    let stamped = LoadRow {
        wire: WireTimes {
            sent: Some(at(1_015)),
            received: Some(at(1_070)),
        },
        warm_up: true,
        ..row(1_000, Some(90))
    };
    let mut file = Vec::new();
    let written =
        taillab_report::load::write_parquet([stamped, row(2_000, None)], &mut file).unwrap();
    assert_eq!(written, 2);
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
    let schema = reader.schema().clone();
    for field in schema.fields() {
        assert!(field.metadata().contains_key("description"), "{field}");
        let is_time = field.data_type() == &arrow_schema::DataType::Int64;
        assert_eq!(field.metadata().contains_key("unit"), is_time, "{field}");
    }
    let batch = reader.build().unwrap().next().unwrap().unwrap();
    let times = |name: &str| -> Vec<Option<i64>> {
        let column = batch.column_by_name(name).unwrap();
        column.as_primitive::<Int64Type>().iter().collect()
    };
    assert_eq!(times("intended"), [Some(1_000), Some(2_000)]);
    assert_eq!(times("sent"), [Some(1_010), Some(2_010)]);
    assert_eq!(times("received"), [Some(1_090), None]);
    assert_eq!(times("kernel_sent"), [Some(1_015), None]);
    assert_eq!(times("kernel_received"), [Some(1_070), None]);
    assert_eq!(times("response_time_ns"), [Some(90), None]);
    assert_eq!(times("service_time_ns"), [Some(80), None]);
    assert_eq!(times("lateness_ns"), [Some(10), Some(10)]);
    let names = |name: &str| -> Vec<String> {
        let column = batch
            .column_by_name(name)
            .unwrap()
            .as_dictionary::<Int8Type>();
        let values = column.downcast_dict::<arrow_array::StringArray>().unwrap();
        values.into_iter().map(|v| v.unwrap().to_owned()).collect()
    };
    assert_eq!(names("outcome"), ["done", "timed_out"]);
    assert_eq!(names("operation"), ["call", "call"]);
    for (name, value) in [("connection", 3), ("thread", 1)] {
        let column = batch
            .column_by_name(name)
            .unwrap()
            .as_primitive::<UInt32Type>();
        assert!(column.values().iter().all(|v| *v == value), "{name}");
    }
    let numbers = |name: &str| -> Vec<Option<u32>> {
        let column = batch.column_by_name(name).unwrap();
        column.as_primitive::<UInt32Type>().iter().collect()
    };
    assert_eq!(numbers("client_port"), [Some(40_000); 2]);
    assert_eq!(numbers("request_id"), [Some(7), None]);
    let warm_up = batch.column_by_name("warm_up").unwrap().as_boolean();
    assert_eq!((warm_up.value(0), warm_up.value(1)), (true, false));
}

#[test]
fn the_figures_have_a_curve_for_each_series_and_quantile() {
    let sample = samples::sample(Nanos::from_secs(1));
    let figure = chart(&sample.document()).unwrap();
    let labels: Vec<&str> = figure.curves.iter().map(|c| c.label.as_str()).collect();
    assert_eq!(labels, ["response time", "lateness", "client’s floor"]);
    assert!(
        String::from_utf8(figure.svg())
            .unwrap()
            .contains("response time")
    );

    let figure = chart(&LoadDocument::of(&samples::search())).unwrap();
    assert_eq!(figure.x, Axis::Utilisation);
    let p99 = &figure.curves[1];
    assert_eq!(p99.label, "p99");
    assert!(p99.points.is_sorted_by(|a, b| a.0 < b.0));
    // where the objective breaks: a vertical line at 70 %
    let breaks = figure.curves.last().unwrap();
    assert_eq!(breaks.label, "the objective is missed");
    assert!(breaks.points.len() == 2 && breaks.points.iter().all(|p| (p.0 - 0.7).abs() < 1e-9));

    let figure = chart(&LoadDocument::of(&samples::sweep())).unwrap();
    assert_eq!(figure.x, Axis::Rate);
    let svg = String::from_utf8(figure.svg()).unwrap();
    assert!(
        svg.contains("requests per second") && svg.contains("20,000"),
        "{svg}"
    );
}

/// A p99 that the result withdraws was in this file, and so was the maximum.
#[test]
fn no_percentile_is_told_from_the_first_that_is_not_known() {
    let rows = (0..1_000).map(|n| row(1_000 + n, Some(1_000_000 * (n + 1))));
    let mut log = Vec::new();
    let totals = write_hlog(rows, at(0), 0, &mut log).unwrap();
    let text = |known: &dyn Fn(f64) -> bool| {
        let file = totals.percentiles(LoadSeries::ResponseTime, known);
        String::from_utf8(file.unwrap()).unwrap()
    };
    let whole = text(&|_| true);
    let cut = text(&|q| q < 0.99);
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let (whole, cut) = (lines(&whole), lines(&cut));
    let is_percentile = |line: &&String| !line.starts_with('#');
    let (told, all) = (
        cut.iter().filter(is_percentile).count(),
        whole.iter().filter(is_percentile).count(),
    );
    // the ones that are known are the same
    assert!(told > 20 && told < all, "{told} of {all}");
    assert_eq!(cut[..told], whole[..told]);
    let q = |line: &String| {
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    assert!(
        q(&cut[told - 1]) < 0.99 && q(&whole[told]) >= 0.99,
        "{cut:?}"
    );
    let max = cut.iter().find(|line| line.starts_with("#[Max")).unwrap();
    assert!(max.contains("not known") && max.contains("1000"), "{max}");
}
