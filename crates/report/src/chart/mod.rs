//! Charts with any number of curves, for `taillab sim` and `taillab reproduce`.
//!
//! A [`Chart`] says what is shown. It is laid out once, and the same drawing becomes
//! SVG, PNG and a part of an HTML page; the terminal has a drawing of its own
//! ([`crate::terminal::render_chart`]). Curves differ in colour and in dashes, so that
//! they can be told apart without colours; the legend stands outside the plot.

mod axis;
mod font;
mod layout;
mod png;
mod svg;

use crate::ReportError;

pub(crate) use self::axis::FittedAxis;

/// What is shown.
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
}

impl Axis {
    /// What stands beside the axis.
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
    /// The chart as a file of its own.
    pub fn svg(&self) -> Vec<u8> {
        svg::document(&layout::scene(self)).into_bytes()
    }

    /// The chart as an element of a page, whose style sheet may recolour it.
    pub(crate) fn svg_element(&self) -> String {
        svg::element(&layout::scene(self))
    }

    /// The chart as a picture of twice as many pixels as the SVG has units.
    ///
    /// # Errors
    /// [`ReportError::Format`] when it is too large for the rasteriser.
    pub fn png(&self) -> Result<Vec<u8>, ReportError> {
        png::encode(&layout::scene(self))
    }

    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.curves.iter().all(|curve| curve.points.is_empty())
    }
}
