//! The main table: each reported quantile in every view.

use taillab_model::{Distribution, Nanos, Quantile};

use crate::Document;
use crate::Series;
use crate::figures;

/// The quantiles of the main table; the maximum follows them.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct LatencyRow {
    /// `p50` … `p99.99`, `max`.
    pub(crate) name: String,
    /// In the order of [`Document::views`].
    pub(crate) cells: Vec<(Series, Cell)>,
    /// Measured ÷ ideal, where both are known.
    pub(crate) ratio: Option<f64>,
}

/// One figure of the table.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// The estimate and its 95 % interval, where it has one.
    Known(Nanos, Option<Interval>),
    /// What the sample lacks.
    Unsupported(String),
}

impl Cell {
    pub(crate) fn value(&self) -> Option<Nanos> {
        match self {
            Self::Known(value, _) => Some(*value),
            Self::Unsupported(_) => None,
        }
    }
}

/// The rows of the table: [`QUANTILES`] and the maximum.
pub(crate) fn rows(document: &Document<'_>) -> Vec<LatencyRow> {
    let views = document.views();
    let cells = |of: &dyn Fn(&Distribution) -> Cell| -> Vec<(Series, Cell)> {
        (views.iter())
            .map(|(series, distribution)| (*series, of(distribution)))
            .collect()
    };
    QUANTILES
        .iter()
        .map(|&q| row(figures::quantile_name(q), cells(&|d| quantile(d, q))))
        .chain(std::iter::once(row(
            figures::quantile_name(1.0),
            cells(&maximum),
        )))
        .collect()
}

/// The 95 % interval of a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    lo: Nanos,
    /// `None` when it lies beyond the largest observation.
    hi: Option<Nanos>,
}

impl Interval {
    fn of(quantile: &Quantile) -> Option<Self> {
        let (lo, hi) = (quantile.lo?, quantile.hi);
        Some(Self { lo, hi })
    }

    /// In microseconds: `51.7–56.5`, or `≥ 51.7` where the sample has no upper end.
    pub(crate) fn micros(self) -> String {
        match self.hi {
            Some(hi) => format!("{}–{}", figures::micros(self.lo), figures::micros(hi)),
            None => format!("≥ {}", figures::micros(self.lo)),
        }
    }
}

/// One quantile of a distribution with its interval, or what the sample lacks.
pub(crate) fn quantile(distribution: &Distribution, q: f64) -> Cell {
    let found = distribution
        .quantiles
        .iter()
        .find(|x| (x.q - q).abs() < 1e-12);
    match found.and_then(|x| x.value.map(|value| (value, Interval::of(x)))) {
        Some((value, interval)) => Cell::Known(value, interval),
        None => Cell::Unsupported(figures::needs(q, distribution.count)),
    }
}

pub(crate) fn maximum(distribution: &Distribution) -> Cell {
    match distribution.max {
        Some(max) => Cell::Known(max, None),
        None => Cell::Unsupported("no request".to_owned()),
    }
}

fn row(name: String, cells: Vec<(Series, Cell)>) -> LatencyRow {
    let value = |wanted: Series| {
        let cell = cells.iter().find(|(series, _)| *series == wanted)?;
        cell.1.value()
    };
    let ratio = value(Series::Measured)
        .zip(value(Series::Ideal))
        .filter(|(_, ideal)| *ideal > Nanos::ZERO)
        .map(|(measured, ideal)| measured.get() as f64 / ideal.get() as f64);
    LatencyRow { name, cells, ratio }
}
