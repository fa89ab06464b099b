//! What `taillab noise` shows to people.

#[allow(dead_code, reason = "the tests of `report` use more of it")]
#[path = "../../../report/tests/browser/mod.rs"]
mod browser;
#[macro_use]
#[path = "../../../report/tests/one_screen.rs"]
mod one_screen;

use taillab_model::explanation::Share;
use taillab_model::noise::{
    Above, LongGap, LoopKind, NoiseCause, NoiseKind, NoiseRow, OverTime, ReadStyle, TscClock,
};
use taillab_model::{Distribution, Monotonic, Nanos};
use taillab_report::terminal::Style;

use crate::result::NoiseResult;
use crate::{page, terminal};

fn distribution(from_ns: u64) -> Distribution {
    let sorted: Vec<Nanos> = (0..10_000).map(|i| Nanos::new(from_ns + i)).collect();
    Distribution::from_sorted(&sorted)
}

fn result() -> NoiseResult {
    let cause = |cause, culprit: &str, share| NoiseCause {
        cause,
        culprit: Some(culprit.into()),
        own: false,
        gaps: 100,
        length: distribution(2_000),
        stolen_ns: Nanos::from_micros((share * 1_000.0) as u64),
        share,
    };
    NoiseResult {
        schema_version: 1,
        command: "noise".into(),
        taillab_version: "0.1.0".into(),
        started_unix_s: 0,
        partial: true,
        kernel: Some("6.18".into()),
        hypervisor: Some("<KVM>".into()),
        clock: TscClock {
            frequency_hz: 2.4e9,
            quantum_ticks: 24,
            quantum_fractional_ns: 10.0,
            invariant: true,
            clocksource: "tsc".into(),
        },
        held: Vec::new(),
        notes: vec!["RT throttling is active".into()],
        quota: None,
        rows: vec![NoiseRow {
            step: String::new(),
            kind: LoopKind::User,
            reads_clock: ReadStyle::Single,
            cpu: Some(1),
            busy_cpus: 1,
            policy: "other".into(),
            threshold_ns: Nanos::from_micros(1),
            began_ns: Monotonic::from_nanos_since_boot(5),
            watched_ns: Nanos::from_secs(1),
            migrations: 2,
            reads: distribution(20),
            ccdf: vec![(20, 1.0), (10_000, 0.001)],
            above: Above::default(),
            gaps: 200,
            stolen_ns: Nanos::from_millis(1),
            stolen_share: 0.001,
            gaps_not_kept: 0,
            causes: Some(vec![
                cause(NoiseKind::Thread, "evil\u{1b}[2J 7", 0.8),
                cause(NoiseKind::Hypervisor, "nothing ran in this kernel", 0.2),
            ]),
            attributed_share: Some(0.8),
            below_share: Some(Share {
                value: 0.15,
                lo: Some(0.12),
                hi: Some(0.18),
            }),
            longest: vec![LongGap {
                from_ns: Monotonic::from_nanos_since_boot(9),
                length_ns: Nanos::from_millis(3),
                parts: vec![("thread: evil 7".into(), Nanos::from_millis(3))],
            }],
            over_time: OverTime {
                window_ns: Nanos::from_millis(100),
                stolen_ns: vec![Nanos::ZERO; 10],
                spells: vec![(2, 3, 0.5)],
            },
        }],
        comparison: vec!["No sign of a quota.".into()],
    }
}

#[test]
fn a_cause_is_read_with_its_share_and_what_was_held() {
    let text = terminal::render(&result(), true, Style::PLAIN);
    for part in [
        "PARTIAL",
        "80.0 % attributed to this kernel, 15.0 % (12–18) shown to come from below",
        "evil",
        "a step of 24 ticks",
        "spells: at 200 ms for 200 ms (50.0 % lost)",
        "No sign of a quota.",
        "RT throttling is active",
        "moved to another CPU 2 times",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() <= 50, "{text}");
    insta::assert_snapshot!(
        "noise_on_one_screen",
        terminal::render(&result(), false, Style::PLAIN)
    );
    assert!(
        text.contains("no setting was changed") && !text.contains('\u{1b}'),
        "{text}"
    );
    let page = String::from_utf8(page::render(&result())).expect("it is UTF-8");
    assert!(!page.contains("<KVM>"));
    assert!(page.contains("evil") && page.contains("thread"));
}

/// Of 64 CPUs, 33 to 39 lose most, and CPU 3 loses little but has the longest gap.
fn on_64_cpus() -> NoiseResult {
    let mut result = result();
    let one = result.rows.remove(0);
    let row = |cpu: u16| NoiseRow {
        cpu: Some(cpu),
        stolen_share: f64::from(cpu % 40) / 1_000.0,
        ..one.clone()
    };
    result.rows = (0..64).map(row).collect();
    result.rows[3].reads = distribution(1_000_000);
    result
}

#[test]
fn of_many_cpus_a_screen_shows_the_worst_and_counts_the_others() {
    let text = terminal::render(&on_64_cpus(), false, Style::PLAIN);
    let rows: Vec<&str> = (text.lines())
        .filter_map(|line| line.strip_prefix("  user space, CPU "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(rows, ["3", "33", "34", "35", "36", "37", "38", "39"]);
    assert!(text.contains("and 56 loops with less stolen"), "{text}");
    let headed = |text: &str| text.matches("What took it: user space").count();
    assert_eq!(headed(&text), 2, "{text}");
    assert!(text.contains("from 62 other loops"), "{text}");
    assert!(text.lines().count() <= 45, "{text}");
    let all = terminal::render(&on_64_cpus(), true, Style::PLAIN);
    assert_eq!(headed(&all), 64);
    assert!(all.contains("the worst 8 of 64 loops") && !all.contains("other loops"));
}

#[test]
fn of_many_cpus_a_page_has_a_line_for_each_and_the_causes_of_the_worst() {
    let page = String::from_utf8(page::render(&on_64_cpus())).expect("it is UTF-8");
    assert_eq!(page.matches("What took it: user space").count(), 8);
    assert!(page.contains("The causes of 56 other loops are in the JSON."));
    for cpu in 0..64 {
        assert!(page.contains(&format!(">user space, CPU {cpu}<")), "{cpu}");
    }
}

fn read() -> NoiseResult {
    serde_json::from_str(include_str!("screens/noise.json"))
        .expect("the result is what the schema says")
}

#[test]
fn what_takes_time_from_two_cpus() {
    let result = read();
    one_screen!(terminal::render(&result, false, Style::PLAIN));
}

#[test]
fn the_page_fits_every_width_and_captions_stay() {
    let test = "the_page_fits_every_width_and_captions_stay";
    browser::page::fits_and_captions_stay(test, "noise", &page::render(&read()));
}
