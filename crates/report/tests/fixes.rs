//! What `--fix` tried, in a terminal and on the page.

use taillab_model::Nanos;
use taillab_model::fix::{
    CONTROL, DecidedBy, Effect, Factorial, FactorialCell, Fix, FixOutcome, LatencyAt, NotKept,
    Ratio, RatioAt, TailAt,
};
use taillab_report::terminal::{Style, render};
use taillab_report::{Document, html};

use crate::common;

fn ratios(values: [(f64, f64, f64); 3]) -> Vec<RatioAt> {
    let at = |(q, (value, lo, hi))| {
        let (lo, hi) = (Some(lo), Some(hi));
        let ratio = Ratio { value, lo, hi };
        RatioAt { q, ratio }
    };
    [0.5, 0.99, 0.999].into_iter().zip(values).map(at).collect()
}

fn fix(name: &str, outcome: FixOutcome, reason: &str) -> Fix {
    Fix {
        outcome,
        reason: reason.to_owned(),
        ..Fix::blank(name, "the server\u{2019}s threads under SCHED_FIFO")
    }
}

fn tried() -> Vec<Fix> {
    let tail = |before, after| {
        Some(TailAt {
            q: 0.999,
            before_ns: Nanos::from_micros(before),
            after_ns: Nanos::from_micros(after),
            ideal_ns: Some(Nanos::from_micros(260)),
        })
    };
    let measured =
        |value: f64| ratios([1.2, 1.1, 1.0].map(|x| (value / x, value * 0.8, value * 1.3)));
    let control = Fix {
        measured: measured(1.0),
        decided_at: Some(0.999),
        decided_by: Some(DecidedBy::Measured),
        pairs: 7,
        tail: tail(5_210, 5_190),
        ..fix(
            CONTROL,
            FixOutcome::Reverted,
            "nothing was changed: p99.9 0.99 of what it was",
        )
    };
    let kept = Fix {
        predicted: ratios([(0.9, 0.8, 1.0), (0.2, 0.1, 0.3), (0.11, 0.08, 0.2)]),
        measured: measured(0.12),
        adjusted: measured(0.1),
        decided_at: Some(0.999),
        decided_by: Some(DecidedBy::Measured),
        pairs: 6,
        throughput: Some(Ratio {
            value: 1.93,
            lo: Some(1.8),
            hi: Some(2.05),
        }),
        tail: tail(5_210, 625),
        not_kept: Some(NotKept {
            why: "4 of its 6 settings were applied to the server of this run, which has ended"
                .to_owned(),
            command: "sudo taillab tune apply rt-priority -p PID".to_owned(),
        }),
        ..fix(
            "rt-priority",
            FixOutcome::Kept,
            "p99.9 0.12 of what it was, 0.10 to 0.16",
        )
    };
    vec![
        control,
        kept,
        fix(
            "nice",
            FixOutcome::Unavailable,
            "no thread of the server shares time by its niceness",
        ),
        fix(
            "others-idle",
            FixOutcome::Inconclusive,
            "not tried: the budget was already spent (--fix-budget)",
        ),
    ]
}

/// The section of a text that begins with its heading.
fn section(text: &str) -> String {
    let from = text.find("What was tried").unwrap();
    let end = text[from..].find("\nLatency distributions").unwrap();
    text[from..from + end].to_owned()
}

#[test]
fn what_was_tried_in_80_columns() {
    let mut sample = common::sample(Nanos::from_secs(20));
    sample.summary.fixes = tried();
    let text = render(&sample.report(), None, Style::PLAIN);
    insta::assert_snapshot!(section(&text));
}

#[test]
fn the_page_has_what_was_tried_only_where_something_was() {
    let mut sample = common::sample(Nanos::from_secs(20));
    let page = |document: &Document<'_>| String::from_utf8(html::render(document)).unwrap();
    assert!(!page(&sample.report()).contains("What was tried"));
    sample.summary.fixes = tried();
    let page = page(&sample.report());
    for text in [
        "What was tried",
        "rt-priority helps.",
        "0.12×",
        "1.93×",
        "not kept: 4 of its 6 settings",
        "sudo taillab tune apply rt-priority -p PID",
        "5,210.0",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

/// One mitigation that helps, one whose effect is not certain, and an interaction that weakens both.
fn factorial() -> Factorial {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let effect = |of: &[&str], value: f64, half: f64| Effect {
        of: names(of),
        at: ratios([(value, value - half, value + half); 3]),
    };
    let cell = |with: &[&str], us: u64| FactorialCell {
        with: names(with),
        at: vec![LatencyAt {
            q: 0.5,
            ns: Nanos::from_micros(us),
        }],
    };
    Factorial {
        mitigations: names(&["rt-priority", "irq-affinity"]),
        rounds: 8,
        effects: vec![
            effect(&["rt-priority"], 0.4, 0.1),
            effect(&["irq-affinity"], 0.9, 0.2),
            effect(&["rt-priority", "irq-affinity"], 1.6, 0.3),
        ],
        cells: vec![
            cell(&[], 100),
            cell(&["rt-priority"], 40),
            cell(&["irq-affinity"], 80),
            cell(&["rt-priority", "irq-affinity"], 40),
        ],
    }
}

#[test]
fn effects_and_interactions_in_80_columns_and_on_the_page() {
    let mut sample = common::sample(Nanos::from_secs(20));
    sample.summary.factorial = Some(factorial());
    let text = render(&sample.report(), None, Style::PLAIN);
    let from = text.find("All combinations").unwrap();
    let end = text[from..].find("\nLatency distributions").unwrap();
    insta::assert_snapshot!(&text[from..from + end]);
    let page = String::from_utf8(html::render(&sample.report())).unwrap();
    assert!(page.contains("rt-priority × irq-affinity") && page.contains("1.60×"));
}

#[test]
fn rounds_that_support_no_effect_say_so() {
    let mut sample = common::sample(Nanos::from_secs(20));
    let mut few = factorial();
    few.rounds = 3;
    for effect in &mut few.effects {
        effect.at.clear();
    }
    sample.summary.factorial = Some(few);
    let page = String::from_utf8(html::render(&sample.report())).unwrap();
    let said = "3 rounds of 4 combinations. These are too few, or have too few requests";
    assert!(page.contains(said));
}
