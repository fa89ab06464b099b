//! Where everything stands.

use super::axis::FittedAxis;
use super::{Chart, Curve, font};

/// Marks on a plane, x to the right and y downwards.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) title: String,
    pub(super) marks: Vec<Mark>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mark {
    Line {
        points: Vec<(f64, f64)>,
        ink: Ink,
        width: f64,
        /// Lengths of strokes and gaps; empty for a solid line.
        dashes: &'static [f64],
    },
    Disc {
        centre: (f64, f64),
        radius: f64,
        ink: Ink,
    },
    Text {
        /// Left end, middle or right end of the base line, as `anchor` says.
        at: (f64, f64),
        anchor: Anchor,
        size: f64,
        ink: Ink,
        text: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// What a mark is, from which its colour follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Text,
    Quiet,
    Grid,
    Frame,
    /// The n-th curve.
    Curve(usize),
}

impl Ink {
    /// Red, green, blue. The curves' colours are those of Okabe and Ito (2008), for
    /// readers who do not tell all colours apart, darkened where they were too light to
    /// be read on white.
    pub(super) const fn rgb(self) -> [u8; 3] {
        const CURVES: [[u8; 3]; 8] = [
            [0x00, 0x72, 0xb2],
            [0xd5, 0x5e, 0x00],
            [0x00, 0x80, 0x5e],
            [0xc0, 0x5c, 0x91],
            [0xc9, 0x8a, 0x00],
            [0x3d, 0xa2, 0xdc],
            [0x77, 0x77, 0x77],
            [0x6a, 0x51, 0xa3],
        ];
        match self {
            Self::Text => [0x17, 0x21, 0x2b],
            Self::Quiet => [0x55, 0x63, 0x6f],
            Self::Grid => [0xe4, 0xe9, 0xee],
            Self::Frame => [0x9a, 0xa6, 0xb2],
            Self::Curve(n) => CURVES[n % CURVES.len()],
        }
    }
}

/// Strokes and gaps of the n-th curve: all differ, so that a black-and-white print can
/// be read.
const fn dashes(n: usize) -> &'static [f64] {
    const DASHES: [&[f64]; 8] = [
        &[],
        &[9.0, 4.0],
        &[2.5, 3.0],
        &[10.0, 3.5, 2.5, 3.5],
        &[16.0, 4.0],
        &[5.0, 3.0],
        &[10.0, 3.0, 2.5, 3.0, 2.5, 3.0],
        &[16.0, 4.0, 5.0, 4.0],
    ];
    DASHES[n % DASHES.len()]
}

const WIDTH: f64 = 820.0;
const PLOT_HEIGHT: f64 = 400.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 26.0;
const TITLE: f64 = 18.0;
const LABEL: f64 = 12.5;
const LINE_HEIGHT: f64 = 20.0;
const SAMPLE: f64 = 36.0;
/// Points nearer than this to the one before are left out.
const APART: f64 = 0.4;

pub(super) fn scene(chart: &Chart) -> Scene {
    let mut marks = Vec::new();
    let mut y = 34.0;
    let text = |at, anchor, size, ink, text: &str| Mark::Text {
        at,
        anchor,
        size,
        ink,
        text: text.to_owned(),
    };
    let margin = 20.0;
    for (line, size, ink) in [
        (&chart.title, TITLE, Ink::Text),
        (&chart.subtitle, LABEL, Ink::Quiet),
    ] {
        for line in wrapped(line, size, WIDTH - 2.0 * margin) {
            marks.push(text((margin, y), Anchor::Start, size, ink, &line));
            y += size * 1.35;
        }
    }
    y += 10.0;
    y = legend(chart, margin, y, &mut marks);
    y += 12.0;
    marks.push(text(
        (margin, y),
        Anchor::Start,
        LABEL,
        Ink::Quiet,
        chart.y.label(),
    ));
    let top = y + 12.0;
    let bottom = top + PLOT_HEIGHT;
    let (left, right) = (LEFT, WIDTH - RIGHT);
    let axis_x = FittedAxis::new(chart.x, chart, |p| p.0, 12);
    let axis_y = FittedAxis::new(chart.y, chart, |p| p.1, 10);
    let x_at = |share: f64| left + share * (right - left);
    let y_at = |share: f64| bottom - share * (bottom - top);

    let rule = |from, to, ink, width| Mark::Line {
        points: vec![from, to],
        ink,
        width,
        dashes: &[],
    };
    let mut free_from = 0.0;
    for (value, label) in &axis_x.ticks {
        let Some(x) = axis_x.position(*value).map(x_at) else {
            continue;
        };
        marks.push(rule((x, top), (x, bottom), Ink::Grid, 1.0));
        let half = font::width(label, LABEL) / 2.0;
        if x - half > free_from {
            let at = (x.min(WIDTH - half - 2.0), bottom + 19.0);
            marks.push(text(at, Anchor::Middle, LABEL, Ink::Text, label));
            free_from = x + half + 8.0;
        }
    }
    for (value, label) in &axis_y.ticks {
        let Some(y) = axis_y.position(*value).map(y_at) else {
            continue;
        };
        marks.push(rule((left, y), (right, y), Ink::Grid, 1.0));
        let at = (left - 9.0, y + LABEL * 0.36);
        marks.push(text(at, Anchor::End, LABEL, Ink::Text, label));
    }
    marks.push(rule((left, bottom), (right, bottom), Ink::Frame, 1.2));
    marks.push(rule((left, top), (left, bottom), Ink::Frame, 1.2));
    let at = (right, bottom + 42.0);
    marks.push(text(at, Anchor::End, LABEL, Ink::Quiet, chart.x.label()));

    for (n, curve) in chart.curves.iter().enumerate() {
        let place = |&(x, y): &(f64, f64)| {
            Some((
                x_at(axis_x.position(x)?),
                // nothing is slower: the curve falls to the foot of the plot
                axis_y.position(y).map_or(bottom, y_at),
            ))
        };
        put_curve(n, curve, place, &mut marks);
    }
    Scene {
        width: WIDTH,
        height: bottom + 58.0,
        title: chart.title.clone(),
        marks,
    }
}

fn put_curve(
    n: usize,
    curve: &Curve,
    place: impl Fn(&(f64, f64)) -> Option<(f64, f64)>,
    marks: &mut Vec<Mark>,
) {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut skipped = None;
    for point in curve.points.iter().filter_map(place) {
        let near = |last: &(f64, f64)| {
            (last.0 - point.0).abs() < APART && (last.1 - point.1).abs() < APART
        };
        if points.last().is_some_and(near) {
            skipped = Some(point);
        } else {
            points.push(point);
            skipped = None;
        }
    }
    points.extend(skipped);
    let ink = Ink::Curve(n);
    if curve.marked {
        marks.extend(points.iter().map(|&centre| Mark::Disc {
            centre,
            radius: 3.4,
            ink,
        }));
    }
    marks.push(Mark::Line {
        points,
        ink,
        width: 2.2,
        dashes: dashes(n),
    });
}

/// Puts the legend in rows from `y` on; returns where the next thing can stand.
fn legend(chart: &Chart, margin: f64, y: f64, marks: &mut Vec<Mark>) -> f64 {
    let (mut x, mut y) = (margin, y);
    for (n, curve) in chart.curves.iter().enumerate() {
        let width = SAMPLE + 8.0 + font::width(&curve.label, LABEL) + 24.0;
        if x > margin && x + width - 24.0 > WIDTH - margin {
            x = margin;
            y += LINE_HEIGHT;
        }
        let ink = Ink::Curve(n);
        let middle = y - LABEL * 0.36;
        marks.push(Mark::Line {
            points: vec![(x, middle), (x + SAMPLE, middle)],
            ink,
            width: 2.6,
            dashes: dashes(n),
        });
        if curve.marked {
            marks.push(Mark::Disc {
                centre: (x + SAMPLE / 2.0, middle),
                radius: 3.4,
                ink,
            });
        }
        marks.push(Mark::Text {
            at: (x + SAMPLE + 8.0, y),
            anchor: Anchor::Start,
            size: LABEL,
            ink: Ink::Text,
            text: curve.label.clone(),
        });
        x += width;
    }
    y + LINE_HEIGHT
}

/// The text in lines that are no wider than `most`.
fn wrapped(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = format!("{line} {word}");
        if !line.is_empty() && font::width(&longer, size) > most {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}
