//! `latency.hlog` read back by the histogram library's own reader.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use taillab_model::{ClientTimes, Monotonic, Nanos, Stamps};
use taillab_report::requests::RequestRow;
use taillab_report::{Series, hlog};

use crate::common;

/// (tag, start of the interval) → its histogram.
type Log = BTreeMap<(String, Duration), Histogram<u64>>;

fn read(log: &[u8]) -> Log {
    let mut intervals = Log::new();
    for entry in IntervalLogIterator::new(log) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            let packed = STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram = Deserializer::new()
                .deserialize(&mut packed.as_slice())
                .unwrap();
            let tag = interval.tag().unwrap().as_str().to_owned();
            assert_eq!(interval.duration(), Duration::from_secs(1));
            let before = intervals.insert((tag, interval.start_timestamp()), histogram);
            assert!(before.is_none(), "an interval is there twice");
        }
    }
    intervals
}

#[test]
fn every_request_is_in_the_log_of_its_second() {
    let sample = common::sample(Nanos::from_secs(3));
    let mut log = Vec::new();
    let rows = sample.rows.iter().copied();
    hlog::write(rows, sample.started, 1_795_183_401, &mut log).unwrap();
    let intervals = read(&log);
    assert_eq!(intervals.len(), 9, "three series in each of three seconds");
    let text = String::from_utf8(log).unwrap();
    assert!(
        text.contains("#[BaseTime: 1795183401.000"),
        "{}",
        &text[..200]
    );

    for series in Series::ALL {
        let mut whole: Histogram<u64> = Histogram::new(3).unwrap();
        for second in 0..3 {
            let key = (series.key().to_owned(), Duration::from_secs(second));
            whole.add(&intervals[&key]).unwrap();
        }
        assert_eq!(whole.len(), sample.rows.len() as u64);
        let exact = match series {
            Series::Ideal => &sample.summary.server.ideal.sojourn,
            Series::Measured => &sample.summary.server.measured.sojourn,
            Series::Client => &sample.summary.load.as_ref().unwrap().response_time,
        };
        for q in [0.5, 0.99] {
            let exact = exact.quantile(q).unwrap().get() as f64;
            let logged = whole.value_at_quantile(q) as f64;
            // three significant digits
            assert!(
                (logged / exact - 1.0).abs() < 2e-3,
                "{series:?} {q}: {logged} {exact}"
            );
        }
    }
}

#[test]
fn rows_go_to_the_second_in_which_they_were_due() {
    let started = Monotonic::from_nanos_since_boot(5_000_000_000);
    let row = |due_ms: u64, response_us: u64, warm_up: bool| {
        let intended = started + Nanos::from_millis(due_ms);
        RequestRow {
            server: Some(Stamps {
                t1: intended,
                t2: None,
                t3: None,
                t4: None,
                t5: None,
                t6: intended + Nanos::from_micros(20),
            }),
            peer: None,
            id: None,
            ideal: Some(Nanos::from_micros(10)),
            worker: None,
            main_cause: None,
            client: Some(ClientTimes {
                intended,
                sent: intended,
                received: Some(intended + Nanos::from_micros(response_us)),
            }),
            operation: None,
            warm_up,
        }
    };
    let unanswered = RequestRow {
        server: None,
        ideal: None,
        client: Some(ClientTimes {
            received: None,
            ..row(2_600, 0, false).client.unwrap()
        }),
        ..row(2_600, 0, false)
    };
    let rows = [
        row(100, 50, true),
        row(900, 2_000_000, false), // answered two seconds later
        row(2_500, 60, false),
        row(1_999, 70, false), // out of order: counted where the log is
        unanswered,
    ];
    let mut log = Vec::new();
    hlog::write(rows, started, 0, &mut log).unwrap();
    let counts: Vec<(String, u64, u64)> = read(&log)
        .into_iter()
        .map(|((tag, start), histogram)| (tag, start.as_secs(), histogram.len()))
        .collect();
    let expected = ["client_response", "ideal", "measured"]
        .into_iter()
        .flat_map(|tag| [(tag.to_owned(), 0, 1), (tag.to_owned(), 2, 2)]);
    assert_eq!(counts, expected.collect::<Vec<_>>());
}
