//! Charts with any number of curves: the figures of every command.
//!
//! A [`Chart`] is a function of a result. [`Scene`] gives each of its marks a place; the SVG and the
//! figure of a page are drawn from it. A terminal draws the same axes and curves with
//! characters ([`crate::terminal::render_chart`]). Curves differ in colour and in dashes, so
//! that a figure reads without colours; the legend is outside the plot. PNG and PDF are the Python package's.

mod axis;
mod figure;
mod font;
mod scale;
mod scene;
mod svg;

pub(crate) use self::axis::FittedAxis;
pub use self::figure::{Axis, Chart, Curve, Look, MOST_CURVES, not_drawn};
pub(crate) use self::scene::Scene;
pub(crate) use self::svg::{curve_look, put_plot};
