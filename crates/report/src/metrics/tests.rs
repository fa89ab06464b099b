use std::collections::{BTreeMap, BTreeSet};

use taillab_model::Distribution;
use taillab_model::explanation::{Cause, Share};

use super::*;

/// A sample of the text: name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

/// A family: its type, its unit, its samples.
#[derive(Default)]
struct Family {
    kind: String,
    unit: Option<String>,
    has_help: bool,
    samples: Vec<Sample>,
}

fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// A value in quotes, and what follows it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut rest = text.strip_prefix('"').expect("a label is quoted").chars();
    loop {
        match rest.next().expect("the quote is closed") {
            '"' => return (value, rest.as_str()),
            '\\' => value.push(match rest.next() {
                Some('n') => '\n',
                Some(c @ ('"' | '\\')) => c,
                other => panic!("an unknown escape {other:?}"),
            }),
            c => value.push(c),
        }
    }
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a value follows");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once('=').expect("a label has a value");
            assert!(is_name(label), "{line}");
            let (value, after) = quoted(after);
            labels.push((label.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("one space before the value");
    let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
    (name.to_owned(), labels, value)
}

/// Reads the text by the grammar of OpenMetrics 1.0: families are not interleaved, their metadata comes first, names end
/// as their type asks, and nothing follows `# EOF`.
fn parsed(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        assert!(!line.is_empty() && line == line.trim(), "{line:?}");
        if let Some(metadata) = line.strip_prefix("# ") {
            let mut words = metadata.splitn(3, ' ');
            let (what, name, rest) = (
                words.next().unwrap(),
                words.next().unwrap(),
                words.next().unwrap(),
            );
            assert!(is_name(name), "{line}");
            if name != current {
                assert!(!families.contains_key(name), "{name} is interleaved");
                current = name.to_owned();
            }
            let family = families.entry(current.clone()).or_default();
            assert!(family.samples.is_empty(), "metadata behind samples: {line}");
            match what {
                "TYPE" => family.kind = rest.to_owned(),
                "UNIT" => family.unit = Some(rest.to_owned()),
                "HELP" => family.has_help = true,
                _ => panic!("{line}"),
            }
            continue;
        }
        let sample = sample(line);
        let family = families
            .get_mut(&current)
            .expect("a family before its samples");
        let suffix = sample
            .0
            .strip_prefix(&current)
            .expect("a sample of this family");
        let allowed: &[&str] = match family.kind.as_str() {
            "info" => &["_info"],
            "counter" => &["_total"],
            "summary" => &["_count", "_sum"],
            "histogram" => &["_bucket", "_count", "_sum"],
            kind => panic!("type {kind}"),
        };
        assert!(allowed.contains(&suffix), "{line}");
        family.samples.push(sample);
    }
    for (name, family) in &families {
        assert!(family.has_help && !family.kind.is_empty(), "{name}");
        assert!(
            family
                .unit
                .as_ref()
                .is_none_or(|unit| name.ends_with(unit.as_str())),
            "{name}"
        );
        let distinct: BTreeSet<_> = family
            .samples
            .iter()
            .map(|(name, labels, _)| (name, labels))
            .collect();
        assert_eq!(
            distinct.len(),
            family.samples.len(),
            "{name}: a sample is there twice"
        );
        let negative = family
            .samples
            .iter()
            .find(|(_, _, value)| value.is_nan() || *value < 0.0);
        assert!(negative.is_none(), "{negative:?}");
    }
    families
}

fn micros(values: &[u64]) -> Vec<Nanos> {
    values.iter().map(|us| Nanos::from_micros(*us)).collect()
}

fn cause(cause: Cause, culprit: Option<Culprit>, us: u64) -> CauseShare {
    let share = Share {
        value: 0.0,
        lo: None,
        hi: None,
    };
    CauseShare {
        cause,
        culprit,
        share,
        excess_share_above_p99: share,
        excess_ns: Nanos::from_micros(us),
        requests: 1,
        events: 0,
        mean_event_ns: 0.0,
        median_event_ns: None,
        longest_event_ns: None,
        long_events: None,
        requests_per_event: 0.0,
    }
}

/// Two windows of a trace.
fn metrics() -> Metrics {
    let mut metrics = Metrics::default();
    let stage = Distribution::from_sorted(&micros(&[10, 30]));
    let stages = Stages {
        t1_t2: stage.clone(),
        t2_t3: stage.clone(),
        t3_t4: stage.clone(),
        t4_t5: stage.clone(),
        t5_t6: stage,
    };
    let softirq = Culprit::Softirq {
        name: "NET_RX".to_owned(),
    };
    let thread = |tid| Culprit::Thread {
        name: "stress".to_owned(),
        pid: None,
        tid: Some(tid),
        process: None,
    };
    for _ in 0..2 {
        metrics.add_sojourns(&micros(&[5, 6, 400, 20_000_000]));
        metrics.add_stages(&stages);
        metrics.add_causes(&[
            cause(Cause::Background, None, 100),
            cause(Cause::Softirq, None, 50),
            cause(Cause::Background, Some(thread(7)), 60),
            cause(Cause::Background, Some(thread(8)), 30),
            cause(Cause::Softirq, Some(softirq.clone()), 50),
        ]);
        metrics.add_matching(&Matching {
            responses: 6,
            matched: 4,
            ambiguous: 1,
            unanswered: 2,
            lost_events: 3,
            blind_ns: Nanos::from_millis(5),
            ..Matching::default()
        });
    }
    metrics.set_skipped(9);
    metrics
}

#[test]
fn the_text_obeys_the_grammar_and_has_what_was_measured() {
    let families = parsed(&metrics().text("nginx", "0.1.0"));
    let value = |family: &str, name: &str, label: &[(&str, &str)]| {
        let labels: Vec<_> = label
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let samples = &families[family].samples;
        let found = samples
            .iter()
            .find(|sample| sample.0 == format!("{family}{name}") && sample.1 == labels);
        found
            .unwrap_or_else(|| panic!("{family}{name} {label:?}"))
            .2
    };
    let excess = |cause, culprit| {
        value(
            "taillab_excess_seconds",
            "_total",
            &[("cause", cause), ("culprit", culprit)],
        )
    };
    assert!((excess("background", "thread") - 180e-6).abs() < 1e-12);
    // 10 µs in each window have no culprit
    assert!((excess("background", "none") - 20e-6).abs() < 1e-12);
    assert!((excess("softirq", "softirq") - 100e-6).abs() < 1e-12);
    let stage = [("stage", "t4_t5")];
    assert_eq!(value("taillab_stage_seconds", "_count", &stage), 4.0);
    assert!((value("taillab_stage_seconds", "_sum", &stage) - 80e-6).abs() < 1e-12);
    for (name, count) in [
        ("responses", 12.0),
        ("matched", 8.0),
        ("ambiguous", 2.0),
        ("unanswered", 4.0),
        ("lost_events", 6.0),
    ] {
        assert_eq!(
            value(&format!("taillab_{name}"), "_total", &[]),
            count,
            "{name}"
        );
    }
    assert!((value("taillab_blind_seconds", "_total", &[]) - 0.01).abs() < 1e-12);
    assert_eq!(value("taillab_skipped_seconds", "_total", &[]), 9.0);
}

#[test]
fn buckets_are_cumulative_and_fixed() {
    let families = parsed(&metrics().text("nginx", "0.1.0"));
    let sojourn = &families["taillab_sojourn_seconds"];
    let buckets: Vec<(f64, f64)> = (sojourn.samples.iter())
        .filter(|(name, ..)| name.ends_with("_bucket"))
        .map(|(_, labels, value)| (labels[0].1.parse().unwrap(), *value))
        .collect();
    assert_eq!(buckets.len(), BUCKETS.len() + 1);
    assert!(
        buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
        "{buckets:?}"
    );
    // a sojourn that is exactly as long as a bucket belongs to it
    assert_eq!(buckets[0], (5e-6, 2.0));
    assert_eq!(buckets[1], (1e-5, 4.0));
    assert_eq!(buckets[6], (5e-4, 6.0));
    assert_eq!(buckets[buckets.len() - 2], (10.0, 6.0));
    assert_eq!(buckets[buckets.len() - 1], (f64::INFINITY, 8.0));
    let of = |end: &str| {
        sojourn
            .samples
            .iter()
            .find(|(name, ..)| name.ends_with(end))
            .unwrap()
            .2
    };
    assert_eq!(of("_count"), 8.0);
    assert!((of("_sum") - 2.0 * 20.000_411).abs() < 1e-9);
}

#[test]
fn the_ends_of_buckets_are_written_as_the_format_asks() {
    let text = metrics().text("nginx", "0.1.0");
    for le in ["5e-06", "1e-05", "0.0001", "1.0", "10.0", "+Inf"] {
        let bucket = format!("taillab_sojourn_seconds_bucket{{le=\"{le}\"}} ");
        assert!(text.contains(&bucket), "{bucket}");
    }
}

#[test]
fn nothing_measured_is_a_text_too_and_names_are_escaped() {
    let families = parsed(&Metrics::default().text("a \"quoted\" \\ name\nof two lines", "0.1.0"));
    let info = &families["taillab"].samples[0];
    assert_eq!(info.1[1].1, "a \"quoted\" \\ name\nof two lines");
    assert!(families["taillab_excess_seconds"].samples.is_empty());
    assert_eq!(
        families["taillab_sojourn_seconds"].samples.len(),
        BUCKETS.len() + 3
    );
}
