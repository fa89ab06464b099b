//! The verdicts as text in 80 columns.

use std::fmt::Write;

use taillab_model::Nanos;
use taillab_report::terminal::wrap;

use taillab_testkit::causes::{
    BenchResult, Criterion, Forecast, KindResult, Measured, PairResult, Verdict,
};

/// Columns of a line.
const WIDTH: usize = 80;
/// Smaller shares are left out of lists.
const LEAST: f64 = 0.005;

/// The whole result.
pub fn text(result: &BenchResult) -> String {
    let mut out = String::new();
    for kind in &result.kinds {
        one(&mut out, kind);
    }
    out.push_str(&table(&result.kinds));
    let ran = result.ran;
    let _ = write!(
        out,
        "\n{} of {ran} kinds passed, {} failed, {} inconclusive",
        result.passed,
        result.failed,
        ran - result.passed - result.failed
    );
    let _ = match result.kinds.len() as u32 - ran {
        0 => writeln!(out),
        not_run => writeln!(out, ", {not_run} not run"),
    };
    out
}

/// A paragraph, indented by two columns, whose first line begins with `mark`.
fn paragraph(out: &mut String, mark: &str, text: &str) {
    let mut lead = format!("  {mark}");
    let further_in = " ".repeat(lead.chars().count());
    for line in wrap(text, WIDTH - further_in.len()) {
        let _ = writeln!(out, "{lead}{line}");
        lead.clone_from(&further_in);
    }
}

fn one(out: &mut String, kind: &KindResult) {
    let Some(measured) = &kind.measured else {
        let _ = writeln!(out, "{}: not run", kind.kind);
        return paragraph(
            out,
            "",
            kind.not_run.as_deref().unwrap_or("no reason given"),
        );
    };
    let _ = writeln!(out, "{}: {}", kind.kind, word(measured.verdict));
    for injected in &measured.injected {
        let culprit = injected.culprit.as_ref();
        let culprit = culprit.map_or(String::new(), |name| format!(" of {name}"));
        let what = format!(
            "{}: to be charged to {}{culprit}",
            injected.injected,
            injected.cause.key()
        );
        paragraph(out, "", &what);
    }
    attempts(out, measured);
    let changes = list(measured);
    if !changes.is_empty() {
        paragraph(out, "", &format!("charged more with it: {changes}"));
    }
    for criterion in &measured.criteria {
        if criterion.verdict != Verdict::Pass || criterion.what.starts_with("charge") {
            paragraph(out, mark(criterion.verdict), &judged(criterion));
        }
    }
    if let Some(by_request) = &measured.by_request {
        let text = format!(
            "single requests: wrong by {:.0} % of the truth in all, correlation {:.2}",
            100.0 * by_request.error,
            by_request.correlation
        );
        paragraph(out, "", &text);
    }
    if let Some(forecast) = &measured.forecast {
        forecasts(out, forecast);
    }
}

/// Every pair: what it cost the client, and what was charged for it.
fn attempts(out: &mut String, measured: &Measured) {
    let one = |pair: &PairResult| {
        let contaminated = if pair.contaminated { "*" } else { "" };
        format!(
            "{}{contaminated} → {}",
            signed(pair.delay_ns),
            signed(pair.charged_ns)
        )
    };
    let pairs: Vec<String> = measured.pairs.iter().map(one).collect();
    let mut text = format!(
        "t {}, {} events lost; delay seen by the client → charged: {}",
        measured.service_time_ns,
        measured.lost_events,
        pairs.join(", ")
    );
    let share = 100.0 * measured.contaminated_share;
    let _ = write!(text, " (*contaminated by the machine: {share:.0} %)");
    paragraph(out, "", &text);
}

fn signed(ns: f64) -> String {
    let sign = if ns < 0.0 { "−" } else { "" };
    format!("{sign}{}", Nanos::new(ns.abs() as u64))
}

fn judged(criterion: &Criterion) -> String {
    let wanted = format!(
        "{:.2} ± {:.2} wanted: {}",
        criterion.target,
        criterion.tolerance,
        word(criterion.verdict)
    );
    match estimate(criterion) {
        Some(estimate) => format!("{} {estimate}; {wanted}", criterion.what),
        None => format!("{}: too few pairs say anything; {wanted}", criterion.what),
    }
}

/// `0.98 (0.95 to 1.01)`.
fn estimate(criterion: &Criterion) -> Option<String> {
    let (value, lo, hi) = (criterion.value?, criterion.lo?, criterion.hi?);
    let [value, lo, hi] = [value, lo, hi].map(figure);
    Some(format!("{value} ({lo} to {hi})"))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Inconclusive => "inconclusive",
        Verdict::Fail => "FAIL",
    }
}

fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "",
        Verdict::Inconclusive => "? ",
        Verdict::Fail => "! ",
    }
}

/// `background 96.1 %, wakeup 2.0 %`, the largest first.
fn list(measured: &Measured) -> String {
    let shares = measured
        .changes
        .iter()
        .map(|(cause, share)| (*cause, *share));
    let mut shares: Vec<(&str, f64)> = shares.filter(|(_, share)| share.abs() >= LEAST).collect();
    shares.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let words = shares
        .iter()
        .map(|(cause, share)| format!("{cause} {:.1} %", 100.0 * share));
    words.collect::<Vec<String>>().join(", ")
}

/// Predicted and measured: a row for each percentile.
fn forecasts(out: &mut String, forecast: &Forecast) {
    let predicted = match forecast.predicted_pairs {
        0 => "no pair has a forecast of that".to_owned(),
        1 => format!("forecast `{}` in 1 pair", forecast.change),
        pairs => format!("forecast `{}` in {pairs} pairs", forecast.change),
    };
    paragraph(out, "", &format!("{}; {predicted}", forecast.done));
    for point in &forecast.points {
        let text = format!(
            "p{}: {} with it, {} predicted, {} measured",
            100.0 * point.q,
            point.with_ns,
            point.predicted_ns,
            point.measured_ns
        );
        paragraph(out, "  ", &text);
    }
}

/// A row for each kind that ran, in columns as wide as their contents.
fn table(kinds: &[KindResult]) -> String {
    let ran = kinds
        .iter()
        .filter_map(|kind| Some((kind.kind.as_str(), kind.measured.as_ref()?)));
    let mut rows: Vec<[String; 6]> = ran.map(|(name, measured)| row(name, measured)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["", "", "charged ÷ delay", "by request", "placebo", "pairs"];
    rows.insert(0, heads.map(str::to_owned));
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let mut out = "\n".to_owned();
    for row in &rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column);
            match column {
                3 | 4 => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            }
        });
        let line = cells.collect::<Vec<String>>().join("  ");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn row(name: &str, measured: &Measured) -> [String; 6] {
    let of = |what: &str| measured.criteria.iter().find(|it| it.what == what);
    let placebo = of("placebo").and_then(|it| it.value);
    let by_request = measured.by_request.map(|it| it.error);
    let contaminated = (measured.pairs.iter())
        .filter(|pair| pair.contaminated)
        .count();
    let contaminated = match contaminated {
        0 => String::new(),
        count => format!(" ({count}*)"),
    };
    [
        name.to_owned(),
        word(measured.verdict).to_owned(),
        of("charge").and_then(estimate).unwrap_or_default(),
        by_request.map_or(String::new(), |error| format!("±{:.0} %", 100.0 * error)),
        placebo.map_or(String::new(), figure),
        format!("{}{contaminated}", measured.pairs.len()),
    ]
}

/// `0.98`, `-130`: decimals only where they matter.
fn figure(value: f64) -> String {
    match value.abs() < 10.0 {
        true => format!("{value:.2}"),
        false => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use taillab_testkit::causes::{Block, BlockTruth, CauseKind, Charge, ClientBlock, Pair, Setup};

    use super::*;
    use taillab_model::explanation::Cause;

    /// Six pairs in which the injection cost 1 ms, and `us` µs were charged to `cause`.
    fn kind(kind: CauseKind, cause: Cause, us: u64) -> KindResult {
        let block = |client: u64, charges: &[(Cause, u64)]| Block {
            truth: BlockTruth {
                client: ClientBlock {
                    sojourns_ns: vec![Some(Nanos::from_micros(client))],
                    ..ClientBlock::default()
                },
                ..BlockTruth::default()
            },
            charges: (charges.iter())
                .map(|(cause, us)| Charge {
                    cause: *cause,
                    culprit: None,
                    excess: Nanos::from_micros(*us),
                })
                .collect(),
            ..Block::default()
        };
        let pair = || Pair {
            with: block(1_500, &[(cause, us)]),
            without: block(500, &[]),
        };
        let pairs: Vec<Pair> = (0..6).map(|_| pair()).collect();
        KindResult {
            kind: kind.name(),
            not_run: None,
            measured: Some(Measured::judge(&Setup::of(kind), &pairs, None)),
        }
    }

    #[test]
    fn each_attempt_and_each_verdict_is_shown() {
        let kinds = vec![
            kind(CauseKind::Order, Cause::OwnThreads, 980),
            kind(CauseKind::Imbalance, Cause::Wakeup, 900),
            KindResult {
                kind: "idle".to_owned(),
                not_run: Some("no power states".to_owned()),
                measured: None,
            },
        ];
        let shown = text(&BenchResult::new(kinds, false));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "order: pass");
        assert_eq!(lines[1], "  order: to be charged to own_threads");
        assert!(shown.contains("1.00 ms → 980 µs, 1.00 ms"), "{shown}");
        assert!(shown.contains("(*contaminated by the machine: 0 %)"));
        assert!(shown.contains("  charge 0.98 (0.98 to 0.98); 1.00 ± 0.10 wanted: pass"));
        assert!(shown.contains("imbalance: FAIL"));
        assert!(shown.contains("  charged more with it: wakeup 90.0 %"));
        assert!(shown.contains("  ! charge 0.00 (0.00 to 0.00); 1.00 ± 0.10 wanted: FAIL"));
        assert!(shown.contains("idle: not run\n  no power states"));
        assert!(
            shown.contains("\nimbalance  FAIL  0.00 (0.00 to 0.00)"),
            "{shown}"
        );
        assert!(
            shown.ends_with("\n1 of 2 kinds passed, 1 failed, 0 inconclusive, 1 not run\n"),
            "{shown}"
        );
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn a_fix_without_a_forecast_says_so() {
        let shown = |change: &str, predicted_pairs| {
            let mut out = String::new();
            let forecast = Forecast {
                change: change.to_owned(),
                done: "FIFO",
                predicted_pairs,
                points: Vec::new(),
            };
            forecasts(&mut out, &forecast);
            out
        };
        assert_eq!(shown("", 0), "  FIFO; no pair has a forecast of that\n");
        assert_eq!(shown("x", 2), "  FIFO; forecast `x` in 2 pairs\n");
    }

    /// A kind that hardly delays anything has a very wide interval.
    #[test]
    fn a_wide_interval_breaks_no_table() {
        let mut wide = kind(CauseKind::MinorFault, Cause::BlockedFault, 980);
        let criteria = &mut wide.measured.as_mut().unwrap().criteria;
        let charge = criteria.iter_mut().find(|it| it.what == "charge").unwrap();
        (charge.value, charge.lo, charge.hi) = (Some(-12.345), Some(-12_345.6), Some(9_876.5));
        let narrow = kind(CauseKind::Order, Cause::OwnThreads, 980);
        let shown = table(&[wide, narrow]);
        let lines: Vec<Vec<char>> = (shown.trim_matches('\n').lines())
            .map(|line| line.chars().collect())
            .collect();
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{shown}");
        let text = |line: &[char]| line.iter().collect::<String>();
        assert!(text(&lines[1]).contains("-12 (-12346 to 9876)"), "{shown}");
        let head = text(&lines[0]);
        let pairs = head.split("pairs").next().unwrap().chars().count();
        assert!(
            lines[1..].iter().all(|line| line[pairs..] == ['6']),
            "{shown}"
        );
    }
}
