//! What `taillab reproduce` shows of measured figures.

#[allow(dead_code, reason = "the tests of `report` use more of it")]
#[path = "../../../report/tests/browser/mod.rs"]
mod browser;

use taillab_model::{Distribution, Nanos};
use taillab_report::chart::Axis;
use taillab_report::terminal::Style;

use crate::result::{
    JudgedClaim, ReproducedCurve, ReproducedFigure, Reproduction, SCHEMA_VERSION, Verdict,
};
use crate::{page, terminal};

fn curve(label: &str, from_us: u64) -> ReproducedCurve {
    let sorted: Vec<Nanos> = (0..20_000)
        .map(|n| Nanos::new(from_us * (1_000 + n * n / 100_000)))
        .collect();
    let points = sorted.iter().step_by(500).zip(0..);
    ReproducedCurve {
        label: label.to_owned(),
        sojourn: Distribution::from_sorted(&sorted),
        points: points
            .map(|(latency, n)| (latency.get() as f64, 1.0 - f64::from(n) / 41.0))
            .collect(),
    }
}

fn claim(statement: &str, ours: Option<(f64, f64, f64)>, verdict: Verdict) -> JudgedClaim {
    JudgedClaim {
        statement: statement.to_owned(),
        source: "section 4.1".to_owned(),
        paper: "far below 1×".to_owned(),
        ours: ours.map(|(_, value, _)| value),
        lo: ours.map(|(lo, ..)| lo),
        hi: ours.map(|(.., hi)| hi),
        unit: "×",
        verdict,
        explanation: Some("the kernels of today schedule differently".to_owned()),
        why: Some("the interval over all blocks is outside of “below 0.5”".to_owned()),
    }
}

/// A measured figure with a statement of each verdict.
fn measured() -> Reproduction {
    let figure = ReproducedFigure {
        figure: "fig5-memcached-set".to_owned(),
        title: "memcached and the reproducible set: one CPU at 80 %".to_owned(),
        curves: vec![
            curve("default", 40),
            curve("real time", 20),
            curve("ideal", 15),
        ],
        claims: vec![
            claim(
                "real time improves the tail",
                Some((0.3, 0.4, 0.45)),
                Verdict::Agrees,
            ),
            claim(
                "niceness hardly helps",
                Some((0.2, 0.3, 0.4)),
                Verdict::Disagrees,
            ),
            claim(
                "the median is near the ideal one",
                Some((0.5, 1.9, 8.0)),
                Verdict::Undecided,
            ),
            JudgedClaim {
                why: Some(
                    "“no deep idle states” is not possible here: <no idle states>".to_owned(),
                ),
                ..claim(
                    "without idle states the tail is gone",
                    None,
                    Verdict::Undecided,
                )
            },
        ],
        note: Some("memcached over UDP: t is 14.9 µs, 53,000 requests per second.".to_owned()),
        show: "sudo taillab reproduce tales fig5".to_owned(),
        took_s: 83.3,
        axes: (Axis::Latency, Axis::Slower),
        drawn: Vec::new(),
        tabulated: true,
    };
    Reproduction {
        schema_version: SCHEMA_VERSION,
        command: "reproduce",
        paper: "Tales of the Tail",
        machine: "Linux 6.18, 2 CPUs, virtual (KVM)".to_owned(),
        partial: false,
        figures: vec![figure],
        left_out: vec!["fig7-nginx needs 6 CPUs, and 2 are here".to_owned()],
    }
}

#[test]
fn a_measured_figure_shows_ratios_with_intervals_and_reasons() {
    insta::assert_snapshot!(terminal::render(&measured(), Style::PLAIN));
    let page = String::from_utf8(page::render(&measured())).unwrap();
    // numbers keep their units
    let page = page.replace('\u{a0}', " ");
    for part in [
        "1 of 4 claims agree",
        "1 that we do not confirm",
        "2 undecided",
        "Linux 6.18, 2 CPUs, virtual (KVM)",
        "Left out: fig7-nginx needs 6 CPUs",
        "sudo taillab reproduce tales fig5 took 83.3 s.",
        "the kernels of today schedule differently",
        "&lt;no idle states&gt;",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(page.matches("<figure").count(), 1);
}

#[test]
fn the_page_fits_every_width_and_captions_stay() {
    let test = "the_page_fits_every_width_and_captions_stay";
    browser::page::fits_and_captions_stay(test, "reproduce", &page::render(&measured()));
}
