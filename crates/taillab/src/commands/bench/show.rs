//! The confusion matrix as text, in 80 columns.

use std::collections::BTreeMap;
use std::fmt::Write;

use taillab_model::explanation::Cause;
use taillab_report::terminal::wrap;

use taillab_testkit::causes::{
    BenchResult, FixCheck, ForecastVerdict, Injected, KindResult, PairMedian,
};

/// Columns of a line.
const WIDTH: usize = 80;
/// What is less than this share is left out of lists and of the matrix's columns.
const LEAST: f64 = 0.005;
/// The columns of the matrix.
const LETTERS: [char; Cause::ALL.len()] = [
    'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's',
    't', 'u',
];

/// Everything, for a person.
pub fn text(result: &BenchResult) -> String {
    let mut out = String::new();
    for kind in &result.kinds {
        one(&mut out, kind);
    }
    out.push_str(&matrix(&result.kinds));
    let not_run = result.kinds.len() as u32 - result.ran;
    let _ = writeln!(
        out,
        "\n{} of {} kinds as they should be{}",
        result.found,
        result.ran,
        match not_run {
            0 => String::new(),
            count => format!(", {count} not run"),
        }
    );
    out
}

/// A paragraph whose first line begins with `mark`, two columns in.
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
        let why = kind.not_run.as_ref();
        let why = why.map_or("no reason given", |reason| &reason.text);
        let _ = writeln!(out, "{}: not run", kind.kind);
        return paragraph(out, "", why);
    };
    let verdict = match measured.shortfalls.is_empty() {
        true => "ok",
        false => "FALLS SHORT",
    };
    let _ = writeln!(out, "{}: {verdict}", kind.kind);
    let fit = match measured.model_fit_error {
        Some(error) => format!("; model fit {:.1} %", 100.0 * error),
        None => String::new(),
    };
    let figures = format!(
        "{} requests, t {}, p50 {}, p99 {}, p99.9 {}{fit}",
        measured.requests,
        measured.service_time_ns,
        measured.sojourn_p50_ns,
        measured.sojourn_p99_ns,
        measured.sojourn_p999_ns,
    );
    paragraph(out, "", &figures);
    if let Some(why) = &measured.contaminated {
        let tried = match measured.passes {
            1 => String::new(),
            passes => format!(" (the last of {passes} passes)"),
        };
        paragraph(
            out,
            "",
            &format!("CONTAMINATED by the machine: {}{tried}", why.text),
        );
    }
    for injected in &measured.injected {
        source(out, injected);
    }
    if measured.injected.is_empty() {
        let shares = list(&measured.excess_shares, None);
        paragraph(out, "", &format!("excess {}: {shares}", measured.excess_ns));
    }
    for shortfall in &measured.shortfalls {
        paragraph(out, "! ", &shortfall.text);
    }
    if let Some(fix) = &measured.fix {
        forecasts(out, fix);
    }
}

/// One thing that was injected, and what it was charged to.
fn source(out: &mut String, injected: &Injected) {
    let what = format!(
        "{}: {} times, {} requests late by {} in all{}",
        injected.injected,
        injected.occurrences,
        injected.requests,
        injected.delay_ns,
        match injected.negligible {
            true => " (too little to judge)",
            false => "",
        }
    );
    paragraph(out, "", &what);
    let charged = format!(
        "right {:.1} %; charged to {}",
        100.0 * injected.right_share,
        list(&injected.charged_shares, Some(injected.unseen_share))
    );
    paragraph(out, "  ", &charged);
    if let (Some(delay), Some(right)) = (injected.together_delay_ns, injected.together_right_share)
    {
        let with_others = format!(
            "with all else that disturbed the server late by {delay}, {:.1} % of it right; \
             charged to it in all: {}",
            100.0 * right,
            injected.charged_ns
        );
        paragraph(out, "  ", &with_others);
    }
}

/// Predicted and measured: a table, one row for each percentile, and what follows.
fn forecasts(out: &mut String, fix: &FixCheck) {
    let pairs = |count: u32| match count {
        1 => "1 pair".to_owned(),
        count => format!("{count} pairs"),
    };
    let mut what = format!("then {}: {}", fix.done, pairs(fix.pairs));
    if fix.contaminated_pairs > 0 {
        let left_out = pairs(fix.contaminated_pairs);
        let _ = write!(
            what,
            "; {left_out} more left out, contaminated by the machine"
        );
    }
    if fix.predicted_pairs < fix.pairs {
        let _ = write!(what, "; a forecast in {} of them", fix.predicted_pairs);
    }
    paragraph(out, "", &what);
    if fix.points.is_empty() {
        return paragraph(
            out,
            "! ",
            "too few pairs with a forecast to say anything of it",
        );
    }
    let short = |it: &PairMedian| format!("{} to {}", it.lo_ns, it.hi_ns);
    let _ = writeln!(out, "  forecast `{}`", fix.change);
    let _ = writeln!(
        out,
        "  {:<6}{:>9}  {:>9} {:<22}  {:>9}  {:>7}",
        "", "with it", "predicted", "", "measured", "error"
    );
    for point in &fix.points {
        let _ = writeln!(
            out,
            "  {:<6}{:>9}  {:>9} {:<22}  {:>9}  {:>7}",
            format!("p{}", 100.0 * point.q),
            point.with.median_ns.to_string(),
            point.predicted.median_ns.to_string(),
            format!("({})", short(&point.predicted)),
            point.measured.median_ns.to_string(),
            format!("{:+.0} %", 100.0 * point.error),
        );
    }
    for point in &fix.points {
        let verdict = match point.verdict {
            ForecastVerdict::Near => "came true".to_owned(),
            ForecastVerdict::Undecided => "undecided".to_owned(),
            ForecastVerdict::Missed => "MISSED".to_owned(),
            ForecastVerdict::ProvesNothing => "proves nothing".to_owned(),
        };
        let why = format!(
            "p{}: {verdict}; each pair by itself {:+.0} % ({:+.0} to {:+.0}); the cause changes it \
             by {:.0} %, two measurements without it differ by {:.0} %; measured {}, in {} of {} \
             within its forecast's own interval",
            100.0 * point.q,
            100.0 * point.pair_error,
            100.0 * point.pair_error_lo,
            100.0 * point.pair_error_hi,
            100.0 * point.effect,
            100.0 * point.control_error,
            short(&point.measured),
            point.within_interval,
            fix.predicted_pairs,
        );
        paragraph(out, "  ", &why);
    }
}

/// `background 96.1 %, softirq 2.0 %`, the largest first.
fn list(shares: &BTreeMap<&str, f64>, unseen: Option<f64>) -> String {
    let unseen = unseen.map(|share| ("no excess seen", share));
    let mut shares: Vec<(&str, f64)> = (shares.iter())
        .map(|(cause, share)| (*cause, *share))
        .chain(unseen)
        .filter(|(_, share)| *share >= LEAST)
        .collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words: Vec<String> = shares
        .iter()
        .map(|(cause, share)| format!("{cause} {:.1} %", 100.0 * share))
        .collect();
    words.join(", ")
}

/// A row for each thing that was injected, a column for each cause that was charged; empty
/// where nothing was injected.
fn matrix(kinds: &[KindResult]) -> String {
    let rows: Vec<(&str, &Injected)> = (kinds.iter())
        .filter_map(|kind| Some((kind.kind.as_str(), kind.measured.as_ref()?)))
        .flat_map(|(kind, measured)| measured.injected.iter().map(move |one| (kind, one)))
        .filter(|(_, injected)| !injected.negligible)
        .collect();
    let charged = |injected: &Injected, cause: Cause| {
        let share = injected.charged_shares.get(cause.key());
        share.copied().unwrap_or_default()
    };
    let causes: Vec<Cause> = (Cause::ALL.into_iter())
        .filter(|cause| {
            let is_charged = |(_, one): &(_, &Injected)| charged(one, *cause) >= LEAST;
            rows.iter()
                .any(|row| row.1.cause == *cause || is_charged(row))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let name = |(kind, injected): &(&str, &Injected)| match injected.injected.as_str() {
        what if what == *kind => what.to_owned(),
        what => format!("{kind} ({what})"),
    };
    let names: Vec<String> = rows.iter().map(name).collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    // a name that leaves no room for the columns is cut
    let width = width
        .unwrap_or(0)
        .min(WIDTH.saturating_sub(5 * (causes.len() + 1)));
    let mut out =
        "\nOf what each injected delay cost, % charged to ([the right cause])\n".to_owned();
    let _ = write!(out, "{:width$}", "");
    for letter in LETTERS.iter().take(causes.len()).chain(&['–']) {
        let _ = write!(out, "   {letter} ");
    }
    out.truncate(out.trim_end().len());
    for (name, (_, injected)) in names.iter().zip(&rows) {
        let name: String = name.chars().take(width).collect();
        let _ = write!(out, "\n{name:<width$}");
        for cause in &causes {
            let percent = format!("{:.0}", 100.0 * charged(injected, *cause));
            let _ = match (*cause == injected.cause, percent.as_str()) {
                (true, percent) => write!(out, "{:>5}", format!("[{percent}]")),
                (false, "0") => write!(out, "{:>4} ", "·"),
                (false, percent) => write!(out, "{percent:>4} "),
            };
        }
        let _ = write!(out, "{:>4.0}", 100.0 * injected.unseen_share);
    }
    out.push('\n');
    let legend: Vec<String> = (LETTERS.iter().zip(&causes))
        .map(|(letter, cause)| format!("{letter}\u{a0}{}", cause.key()))
        .chain(["–\u{a0}no\u{a0}excess\u{a0}seen".to_owned()])
        .collect();
    paragraph(&mut out, "", &legend.join(", "));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::Nanos;
    use taillab_testkit::causes::{FixPoint, Measured, ReasonKey};

    fn kind(name: &str, cause: Cause, charged: &[(Cause, f64)], unseen_share: f64) -> KindResult {
        let injected = Injected {
            injected: format!("{name}:1ms"),
            occurrences: 4,
            cause,
            culprit: None,
            requests: 5,
            delay_ns: Nanos::from_millis(4),
            right_share: 0.5,
            charged_shares: charged.iter().map(|(c, share)| (c.key(), *share)).collect(),
            unseen_share,
            together_delay_ns: Some(Nanos::from_millis(5)),
            together_right_share: Some(0.4),
            charged_ns: Nanos::from_millis(5),
            negligible: false,
        };
        KindResult {
            kind: name.to_owned(),
            not_run: None,
            measured: Some(Measured {
                service_time_ns: Nanos::from_micros(9),
                requests: 1_000,
                sojourn_p50_ns: Nanos::from_micros(20),
                sojourn_p99_ns: Nanos::from_micros(900),
                sojourn_p999_ns: Nanos::from_millis(2),
                lost_events: 0,
                passes: 3,
                contaminated: Some(
                    ReasonKey::SharedDelay
                        .because("the hypervisor stopped the server's CPU for long"),
                ),
                injected: vec![injected],
                excess_ns: Nanos::from_millis(9),
                excess_shares: BTreeMap::new(),
                unexplained_above_p99: 0.0,
                model_fit_error: Some(0.012),
                shortfalls: vec![
                    ReasonKey::Undercharged.because("50 % of its delay are charged to it"),
                ],
                fix: None,
            }),
        }
    }

    #[test]
    fn the_matrix_has_a_row_for_each_source_and_the_right_cell_in_brackets() {
        let kinds = [
            kind(
                "lock",
                Cause::BlockedLock,
                &[(Cause::BlockedLock, 0.97), (Cause::Wakeup, 0.02)],
                0.01,
            ),
            kind(
                "slow",
                Cause::SlowService,
                &[(Cause::BlockedLock, 1.0)],
                0.0,
            ),
        ];
        assert_eq!(
            matrix(&kinds),
            "\nOf what each injected delay cost, % charged to ([the right cause])\n\
             \u{20}                 a    b    c    –\n\
             lock (lock:1ms)   2  [97]   ·    1\n\
             slow (slow:1ms)   ·  100   [0]   0\n  \
             a wakeup, b blocked_lock, c slow_service, – no excess seen\n"
        );
        assert_eq!(matrix(&[]), "");
    }

    fn fix(points: Vec<FixPoint>) -> FixCheck {
        FixCheck {
            change: "without blocked_lock".to_owned(),
            done: "ended what was injected",
            pairs: 6,
            predicted_pairs: 5,
            contaminated_pairs: 1,
            points,
        }
    }

    fn point(q: f64, verdict: ForecastVerdict) -> FixPoint {
        let middle = |us| PairMedian {
            median_ns: Nanos::from_micros(us),
            lo_ns: Nanos::from_micros(us - 100),
            hi_ns: Nanos::from_micros(us + 100),
        };
        FixPoint {
            q,
            with: middle(10_400),
            predicted: middle(5_740),
            measured: middle(6_950),
            error: -0.174,
            pair_error: -0.14,
            pair_error_lo: -0.54,
            pair_error_hi: 0.22,
            effect: 0.62,
            control_error: 0.46,
            within_interval: 3,
            verdict,
        }
    }

    #[test]
    fn a_forecast_and_what_came_of_it_are_one_line() {
        let mut out = String::new();
        forecasts(&mut out, &fix(vec![point(0.999, ForecastVerdict::Missed)]));
        assert_eq!(
            out,
            "  then ended what was injected: 6 pairs; 1 pair more left out, contaminated by\n  \
             the machine; a forecast in 5 of them\n  \
             forecast `without blocked_lock`\n          \
             with it  predicted                          measured    error\n  \
             p99.9   10.4 ms    5.74 ms (5.64 ms to 5.84 ms)      6.95 ms    -17 %\n    \
             p99.9: MISSED; each pair by itself -14 % (-54 to +22); the cause changes it\n    \
             by 62 %, two measurements without it differ by 46 %; measured 6.85 ms to\n    \
             7.05 ms, in 3 of 5 within its forecast's own interval\n"
        );
        out.clear();
        forecasts(&mut out, &fix(Vec::new()));
        assert!(
            out.ends_with("too few pairs with a forecast to say anything of it\n"),
            "{out}"
        );
    }

    #[test]
    fn nothing_is_wider_than_a_terminal() {
        let charged: Vec<(Cause, f64)> = Cause::ALL.iter().map(|cause| (*cause, 0.02)).collect();
        let verdicts = [
            ForecastVerdict::Near,
            ForecastVerdict::Undecided,
            ForecastVerdict::ProvesNothing,
        ];
        let points = [0.5, 0.99, 0.999].into_iter().zip(verdicts);
        let points = points.map(|(q, verdict)| point(q, verdict)).collect();
        let mut fixed = kind("lock", Cause::BlockedLock, &[], 1.0);
        fixed.measured = fixed.measured.map(|it| it.with_fix(Some(fix(points))));
        let kinds = vec![
            kind(
                "a-kind-with-a-long-name-and-schedule",
                Cause::Irq,
                &charged[..9],
                0.1,
            ),
            fixed,
            KindResult {
                kind: "idle".to_owned(),
                not_run: Some(
                    ReasonKey::Unsupported
                        .because("this machine has none of what it takes, ".repeat(5)),
                ),
                measured: None,
            },
        ];
        let text = text(&BenchResult::new(kinds, false));
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert!(
            text.contains("FALLS SHORT") && text.contains("1 not run"),
            "{text}"
        );
    }
}
