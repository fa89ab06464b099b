//! The live view as it appears on the screen.

use taillab_model::Nanos;
use taillab_report::live::{Moment, Screen};
use taillab_report::terminal::Style;

use crate::common;

fn screen() -> Screen {
    let sample = common::explained::trace(Nanos::from_secs(20));
    let summary = sample.summary;
    let whole = Moment::of(&summary.server, summary.arrival_rate_per_s);
    let mut last = whole.clone();
    last.rate_per_s = 17_803.0;
    last.p99 = Some(Nanos::from_micros(1_312));
    last.p999 = None;
    Screen {
        target: summary.target,
        elapsed: Nanos::from_secs(187),
        total: Some(Nanos::from_secs(600)),
        last,
        whole,
        p99_history: (0..187_u64)
            .map(|i| match i % 40 {
                7 => None,
                n if n < 4 => Some(Nanos::from_micros(2_000 + 300 * n)),
                n => Some(Nanos::from_micros(390 + 5 * n)),
            })
            .collect(),
        observer: summary.observer,
        note: Some("recording into memcached.tlc (804 MB); q or Ctrl-C ends".to_owned()),
    }
}

fn text(screen: &Screen, width: usize, height: usize) -> String {
    let style = Style {
        colour: false,
        width,
    };
    screen.lines(style, height).join("\n")
}

#[test]
fn a_screen_of_80_by_24() {
    insta::assert_snapshot!(text(&screen(), 80, 24));
}

#[test]
fn a_large_screen() {
    insta::assert_snapshot!(text(&screen(), 120, 50));
}

#[test]
fn a_small_screen() {
    insta::assert_snapshot!(text(&screen(), 50, 10));
}

#[test]
fn a_screen_with_colours() {
    let style = Style {
        colour: true,
        width: 80,
    };
    let text = screen().lines(style, 24).join("\n");
    insta::assert_snapshot!(text.replace('\u{1b}', "^"));
}

/// The first second: nothing is known yet.
#[test]
fn an_empty_screen() {
    let screen = Screen {
        target: "port 80 over TCP".to_owned(),
        ..Screen::default()
    };
    insta::assert_snapshot!(text(&screen, 80, 24));
}

#[test]
fn every_size_is_kept() {
    let full = screen();
    for width in [0, 1, 10, 39, 40, 57, 80, 300] {
        for height in [0, 1, 2, 5, 10, 24, 60] {
            for colour in [false, true] {
                let lines = full.lines(Style { colour, width }, height);
                assert!(lines.len() <= height, "{} lines of {height}", lines.len());
                for line in &lines {
                    let mut columns = 0;
                    let mut in_code = false;
                    for c in line.chars() {
                        in_code |= c == '\u{1b}';
                        columns += usize::from(!in_code);
                        in_code &= c != 'm';
                    }
                    assert!(columns <= width, "{columns} columns of {width}: {line}");
                }
            }
        }
    }
}

#[test]
fn lost_events_are_shown() {
    let mut screen = screen();
    assert!(!text(&screen, 80, 24).contains("lost"));
    screen.whole.matching.lost_events = 1_204;
    assert!(text(&screen, 80, 24).contains("1,204 events lost"));
}

#[test]
fn names_from_outside_cannot_steer_the_terminal() {
    let mut screen = screen();
    let hostile = "\u{1b}[2Jowned\r\n".to_owned();
    screen.target = hostile.clone();
    screen.note = Some(hostile);
    let text = text(&screen, 80, 40);
    assert!(text.contains("owned"));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
}
