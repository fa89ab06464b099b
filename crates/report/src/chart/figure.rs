//! What a figure shows, before its marks have places.

/// Axes and curves, before they have places.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it is about, in a few words.
    pub title: String,
    /// What all curves have in common.
    pub subtitle: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
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
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// Its points in order; what has no place on the scales is left out.
    pub points: Vec<(f64, f64)>,
    /// Whether the points themselves are marked: there are few, and lines between them
    /// only lead the eye.
    pub marked: bool,
    /// Its class in a page's style sheet; empty for that of its place in the legend.
    pub class: &'static str,
}

impl Curve {
    /// A curve without marks at its points.
    pub fn new(label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            label: label.into(),
            points,
            marked: false,
            class: "",
        }
    }

    /// The same with a mark at each point.
    pub fn marked(self) -> Self {
        Self {
            marked: true,
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
            Self::Slower => "share of requests that are faster, on a logarithmic scale",
            Self::Utilisation => "utilisation",
            Self::Workers => "workers, on a logarithmic scale",
            Self::Rate => "requests per second",
        }
    }
}

impl Chart {
    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.curves.iter().all(|curve| curve.points.is_empty())
    }
}
