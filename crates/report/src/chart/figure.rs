//! What a figure shows, before its marks have places.

use crate::figures::counted;

/// The maximum number of curves in a figure, since more could not be distinguished.
pub const MOST_CURVES: usize = 8;

/// What a figure says where it has no place for all curves: `; 2 rows not drawn`.
pub fn not_drawn(curves: usize, one: &str, many: &str) -> String {
    match curves.saturating_sub(MOST_CURVES) {
        0 => String::new(),
        n => format!("; {} not drawn", counted(n as u64, one, many)),
    }
}

/// Axes and curves, before they have places.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it is about, in a few words.
    pub title: String,
    /// What all curves have in common.
    pub subtitle: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// In the order of the legend.
    pub curves: Vec<Curve>,
    /// A value of `x` to mark, with its label.
    pub rule: Option<(f64, String)>,
}

/// What an axis measures, from which its scale and its labels follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// A latency in nanoseconds, on a logarithmic scale.
    Latency,
    /// The share of requests that are slower, on a logarithmic scale from 1 at the top;
    /// labelled with the share that is faster.
    Slower,
    /// The utilisation from 0 to 1, on a linear scale.
    Utilisation,
    /// The number of workers, on a logarithmic scale.
    Workers,
    /// Requests per second, on a linear scale.
    Rate,
    /// Nanoseconds since the start, on a linear scale.
    Elapsed,
    /// How many requests later another one came, on a logarithmic scale.
    Lag,
    /// A correlation from 0 to 1, on a linear scale.
    Correlation,
    /// The number of a request in order of time, on a linear scale.
    Number,
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// Its points in order; what has no place on the scales is left out.
    pub points: Vec<(f64, f64)>,
    /// What is drawn at the points.
    pub look: Look,
    /// Its class in a page's style sheet; empty for that of its place in the legend.
    pub class: &'static str,
}

/// What is drawn at the points of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A line through them.
    Line,
    /// A line through them and a mark at each: there are few, and the line only leads the eye.
    Marked,
    /// A bar from the foot of the plot up to each.
    Bars,
    /// Rectangles between two points each, which are opposite corners: one shade of a heat map.
    Cells,
}

impl Curve {
    /// A curve without marks at its points.
    pub fn new(label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            label: label.into(),
            points,
            look: Look::Line,
            class: "",
        }
    }

    /// The same with a mark at each point.
    pub fn marked(self) -> Self {
        Self {
            look: Look::Marked,
            ..self
        }
    }

    /// The class of the n-th curve of a chart.
    pub(crate) fn class(&self, n: usize) -> &'static str {
        const PLACES: [&str; 8] = [
            "series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7",
            "series-8",
        ];
        match self.class {
            "" => PLACES[n % PLACES.len()],
            class => class,
        }
    }
}

impl Axis {
    /// The label of the axis.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Latency => "latency, on a logarithmic scale",
            Self::Slower => "share that is faster, on a logarithmic scale",
            Self::Utilisation => "utilisation",
            Self::Workers => "workers, on a logarithmic scale",
            Self::Rate => "requests per second",
            Self::Elapsed => "time since the start",
            Self::Lag => "requests later, on a logarithmic scale",
            Self::Correlation => "correlation",
            Self::Number => "number in order of time",
        }
    }
}

impl Chart {
    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.drawn().next().is_none()
    }

    /// The curves that have points, each with its place: the legend names no others.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = (usize, &Curve)> {
        let curves = self.curves.iter().enumerate();
        curves.filter(|(_, curve)| !curve.points.is_empty())
    }
}
