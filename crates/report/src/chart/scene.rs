//! Charts as marks in their places: the one drawing behind the page and the SVG.

use super::axis::FittedAxis;
use super::figure::{Chart, Curve, Look};
use super::font;

/// A chart as a plain value. Marks around the plot have their places in units, x to the right
/// and y downwards; marks in the plot have them as shares of the plot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scene {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) title: String,
    /// Title, legend and the labels of the axes.
    pub(super) around: Vec<Mark>,
    /// Grid, ticks and curves.
    pub(super) plot: Vec<Mark>,
    /// Left, top, width and height of the plot.
    pub(super) area: [f64; 4],
    /// Axes as [from, to].
    pub(crate) x: [f64; 2],
    pub(crate) y: [f64; 2],
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mark {
    /// Two points, or the many of a curve.
    Line {
        points: Vec<(f64, f64)>,
        ink: Ink,
        width: f64,
        /// Lengths of strokes and gaps; empty for a solid line.
        dashes: &'static [f64],
        class: &'static str,
    },
    Disc {
        centre: (f64, f64),
        radius: f64,
        ink: Ink,
        class: &'static str,
    },
    /// A bar of a figure or of its legend.
    Bar {
        area: Area,
        ink: Ink,
        class: &'static str,
        /// Shown when the pointer is over it.
        title: String,
    },
    /// The cells of one shade.
    Cells {
        areas: Vec<Area>,
        ink: Ink,
        class: &'static str,
    },
    Text {
        /// Left end, middle or right end of the base line, as `anchor` says.
        at: (f64, f64),
        /// Units to the right and downwards from there.
        offset: (f64, f64),
        anchor: Anchor,
        size: f64,
        ink: Ink,
        class: &'static str,
        text: String,
    },
}

/// Left, top, right and bottom.
pub(super) type Area = [f64; 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The meaning of a mark, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Text,
    Quiet,
    Grid,
    Frame,
    /// The n-th curve.
    Curve(usize),
    /// The n-th shade of a heat map, from the lightest.
    Shade(usize),
}

impl Ink {
    /// Red, green, blue. The curves' colours are those of Okabe and Ito (2008), which readers
    /// with any colour vision can distinguish, darkened where they were too light on white.
    pub(super) const fn rgb(self) -> [u8; 3] {
        const CURVES: [[u8; 3]; 8] = [
            [0x00, 0x72, 0xb2],
            [0xd5, 0x5e, 0x00],
            [0x00, 0x80, 0x5e],
            [0xc0, 0x5c, 0x91],
            [0xb8, 0x7d, 0x00],
            [0x2b, 0x8c, 0xc4],
            [0x77, 0x77, 0x77],
            [0x6a, 0x51, 0xa3],
        ];
        const SHADES: [[u8; 3]; 8] = [
            [0xe8, 0xee, 0xf6],
            [0xcf, 0xdc, 0xec],
            [0xae, 0xc6, 0xe0],
            [0x86, 0xaa, 0xd2],
            [0x5c, 0x8b, 0xc0],
            [0x3a, 0x6b, 0xa8],
            [0x24, 0x4d, 0x86],
            [0x12, 0x30, 0x5e],
        ];
        match self {
            Self::Text => [0x17, 0x21, 0x2b],
            Self::Quiet => [0x55, 0x63, 0x6f],
            Self::Grid => [0xe4, 0xe9, 0xee],
            Self::Frame => [0x9a, 0xa6, 0xb2],
            Self::Curve(n) => CURVES[n % CURVES.len()],
            Self::Shade(n) => SHADES[n % SHADES.len()],
        }
    }
}

/// Strokes and gaps of the n-th curve: all differ, so that a black-and-white print can
/// be read.
pub(super) const fn dashes(n: usize) -> &'static [f64] {
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
const MARGIN: f64 = 20.0;
const TITLE: f64 = 18.0;
const LABEL: f64 = 12.5;
const LINE_HEIGHT: f64 = 20.0;
const SAMPLE: f64 = 36.0;
const DISC: f64 = 3.4;
pub(super) const CURVE_WIDTH: f64 = 2.2;
/// Points nearer than this to the one before, as a share of the plot, are left out.
const APART: f64 = 0.0007;

impl Scene {
    pub(crate) fn of(chart: &Chart) -> Self {
        let axis_x = FittedAxis::new(chart.x, chart, |p| p.0, 12);
        let axis_y = FittedAxis::new(chart.y, chart, |p| p.1, 10);
        let mut plot = Vec::new();
        put_ticks(&axis_x, &axis_y, &mut plot);
        if let Some((at, label)) = &chart.rule {
            put_rule(&axis_x, *at, label, &mut plot);
        }
        // dotted and dashed curves go over the measured one, so that both show where they coincide
        let (solid, others): (Vec<_>, Vec<_>) =
            (chart.curves.iter().enumerate()).partition(|(_, curve)| curve.class == "measured");
        for (n, curve) in solid.into_iter().chain(others.into_iter().rev()) {
            let place = |&(x, y): &(f64, f64)| {
                // nothing is slower: the curve falls to the foot of the plot
                let y = axis_y.position(y).map_or(1.0, |share| 1.0 - share);
                Some((axis_x.position(x)?, y))
            };
            put_curve(n, curve, place, &mut plot);
        }
        let mut around = Vec::new();
        let mut y = 34.0;
        for (text, size, ink) in [
            (&chart.title, TITLE, Ink::Text),
            (&chart.subtitle, LABEL, Ink::Quiet),
        ] {
            for line in wrapped(text, size, WIDTH - 2.0 * MARGIN) {
                around.push(text_at((MARGIN, y), Anchor::Start, size, ink, &line));
                y += size * 1.35;
            }
        }
        y = legend(chart, y + 10.0, &mut around) + 12.0;
        let label = |at, anchor, text| text_at(at, anchor, LABEL, Ink::Quiet, text);
        around.push(label((MARGIN, y), Anchor::Start, chart.y.label()));
        let (top, width) = (y + 12.0, WIDTH - RIGHT - LEFT);
        let bottom = top + PLOT_HEIGHT;
        around.push(label(
            (WIDTH - RIGHT, bottom + 42.0),
            Anchor::End,
            chart.x.label(),
        ));
        Self {
            width: WIDTH,
            height: bottom + 58.0,
            title: chart.title.clone(),
            around,
            plot,
            area: [LEFT, top, width, PLOT_HEIGHT],
            x: [axis_x.from, axis_x.to],
            y: [axis_y.from, axis_y.to],
        }
    }
}

fn text_at(at: (f64, f64), anchor: Anchor, size: f64, ink: Ink, text: &str) -> Mark {
    Mark::Text {
        at,
        offset: (0.0, 0.0),
        anchor,
        size,
        ink,
        class: "",
        text: text.to_owned(),
    }
}

fn straight(from: (f64, f64), to: (f64, f64), ink: Ink, class: &'static str) -> Mark {
    Mark::Line {
        points: vec![from, to],
        ink,
        width: 1.0,
        dashes: &[],
        class,
    }
}

/// The grid with its labels, and the two axes.
fn put_ticks(axis_x: &FittedAxis, axis_y: &FittedAxis, marks: &mut Vec<Mark>) {
    let text = |at, offset, anchor, class, text: &str| Mark::Text {
        at,
        offset,
        anchor,
        size: LABEL,
        ink: Ink::Text,
        class,
        text: text.to_owned(),
    };
    // a label at the left end may reach beyond it
    let mut free_from = -1.0;
    for (place, (value, label)) in axis_x.ticks.iter().enumerate() {
        let Some(x) = axis_x.position(*value) else {
            continue;
        };
        marks.push(straight((x, 0.0), (x, 1.0), Ink::Grid, ""));
        let half = font::width(label, LABEL) / 2.0 / (WIDTH - LEFT - RIGHT);
        if x - half > free_from {
            let class = match keeps_label(axis_x, place) {
                true => "x",
                false => "x fine",
            };
            marks.push(text((x, 1.0), (0.0, 19.0), Anchor::Middle, class, label));
            free_from = x + half + 0.01;
        }
    }
    for (value, label) in &axis_y.ticks {
        let Some(y) = axis_y.position(*value).map(|share| 1.0 - share) else {
            continue;
        };
        marks.push(straight((0.0, y), (1.0, y), Ink::Grid, ""));
        marks.push(text(
            (0.0, y),
            (-9.0, LABEL * 0.36),
            Anchor::End,
            "y",
            label,
        ));
    }
    marks.push(straight((0.0, 1.0), (1.0, 1.0), Ink::Frame, ""));
    marks.push(straight((0.0, 0.0), (0.0, 1.0), Ink::Frame, ""));
}

/// Whether a tick keeps its label where there is little room. Powers of ten do, or every second one of
/// them if there are many; if there are too few, every second tick does.
fn keeps_label(axis: &FittedAxis, place: usize) -> bool {
    /// Labels that fit on a narrow page.
    const FIT: usize = 4;
    let is_decade = |(value, _): &(f64, String)| {
        let decade = value.log10();
        (decade - decade.round()).abs() < 1e-9
    };
    let decades = |ticks: &[(f64, String)]| ticks.iter().filter(|tick| is_decade(tick)).count();
    let is_second = decades(&axis.ticks[..place]).is_multiple_of(2);
    match decades(&axis.ticks) {
        0 | 1 => place.is_multiple_of(2),
        many => is_decade(&axis.ticks[place]) && (many <= FIT || is_second),
    }
}

/// A labelled vertical line.
fn put_rule(axis: &FittedAxis, at: f64, label: &str, marks: &mut Vec<Mark>) {
    if !(axis.from..=axis.to).contains(&at) {
        return;
    }
    let Some(x) = axis.position(at) else { return };
    marks.push(Mark::Line {
        points: vec![(x, 0.0), (x, 1.0)],
        ink: Ink::Quiet,
        width: 1.0,
        dashes: &[3.0, 3.0],
        class: "service",
    });
    marks.push(Mark::Text {
        at: (x, 1.0),
        offset: (5.0, -8.0),
        anchor: Anchor::Start,
        size: LABEL,
        ink: Ink::Quiet,
        class: "service",
        text: label.to_owned(),
    });
}

fn put_curve(
    n: usize,
    curve: &Curve,
    place: impl Fn(&(f64, f64)) -> Option<(f64, f64)>,
    marks: &mut Vec<Mark>,
) {
    let class = curve.class(n);
    match curve.look {
        Look::Line | Look::Marked => put_line(n, curve, place, marks),
        Look::Bars => {
            /// As a share of the room that a bar has.
            const THICKNESS: f64 = 0.6;
            let half = THICKNESS / 2.0 / curve.points.len() as f64;
            marks.extend(curve.points.iter().filter_map(|point| {
                let (x, y) = place(point)?;
                Some(Mark::Bar {
                    area: [x - half, y, x + half, 1.0],
                    ink: Ink::Curve(n),
                    class,
                    title: format!("{}: {:.3}", point.0, point.1),
                })
            }));
        }
        Look::Cells => {
            let corners = curve.points.chunks_exact(2);
            let areas = corners.filter_map(|ends| {
                let ((left, bottom), (right, top)) = (place(&ends[0])?, place(&ends[1])?);
                Some([left, top, right, bottom])
            });
            let areas: Vec<Area> = areas.collect();
            if !areas.is_empty() {
                marks.push(Mark::Cells {
                    areas,
                    ink: Ink::Shade(n),
                    class,
                });
            }
        }
    }
}

fn put_line(
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
    if curve.look == Look::Marked {
        marks.extend(points.iter().map(|&centre| Mark::Disc {
            centre,
            radius: DISC,
            ink,
            class: curve.class(n),
        }));
    }
    marks.push(Mark::Line {
        points,
        ink,
        width: CURVE_WIDTH,
        dashes: dashes(n),
        class: curve.class(n),
    });
}

/// Puts the legend in rows from `y` down; returns the `y` of what follows.
fn legend(chart: &Chart, mut y: f64, marks: &mut Vec<Mark>) -> f64 {
    let mut x = MARGIN;
    for (n, curve) in chart.drawn() {
        let width = SAMPLE + 8.0 + font::width(&curve.label, LABEL) + 24.0;
        if x > MARGIN && x + width - 24.0 > WIDTH - MARGIN {
            x = MARGIN;
            y += LINE_HEIGHT;
        }
        let middle = y - LABEL * 0.36;
        put_sample(n, curve, (x, middle), marks);
        let at = (x + SAMPLE + 8.0, y);
        marks.push(text_at(at, Anchor::Start, LABEL, Ink::Text, &curve.label));
        x += width;
    }
    y + LINE_HEIGHT
}

/// A short piece of the curve, its left end and middle at `at`.
fn put_sample(n: usize, curve: &Curve, (x, y): (f64, f64), marks: &mut Vec<Mark>) {
    let ink = match curve.look {
        Look::Cells => Ink::Shade(n),
        _ => Ink::Curve(n),
    };
    if matches!(curve.look, Look::Bars | Look::Cells) {
        marks.push(Mark::Bar {
            area: [x + SAMPLE - 14.0, y - 7.0, x + SAMPLE, y + 7.0],
            ink,
            class: "",
            title: String::new(),
        });
        return;
    }
    marks.push(Mark::Line {
        points: vec![(x, y), (x + SAMPLE, y)],
        ink,
        width: 2.6,
        dashes: dashes(n),
        class: "",
    });
    if curve.look == Look::Marked {
        marks.push(Mark::Disc {
            centre: (x + SAMPLE / 2.0, y),
            radius: DISC,
            ink,
            class: "",
        });
    }
}

/// The text in lines that are no wider than `most`.
fn wrapped(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if font::width(&format!("{line} {word}"), size) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
