//! Scales and their ticks.

use super::figure::{Axis, Chart};
use super::scale;
use crate::figures;

/// An axis that fits the curves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FittedAxis {
    axis: Axis,
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Values and labels, from the least.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// The axis reaches down to this share even if no curve does.
const SHALLOWEST: f64 = 1e-3;

impl FittedAxis {
    /// The axis over the values `of` all points, with at most about `most` ticks.
    pub(crate) fn new(axis: Axis, chart: &Chart, of: fn(&(f64, f64)) -> f64, most: usize) -> Self {
        let values = || {
            let points = chart.curves.iter().flat_map(|curve| &curve.points);
            points.map(of).filter(move |value| axis.has(*value))
        };
        let least = values().fold(f64::INFINITY, f64::min);
        let most_of_all = values().fold(0.0, f64::max);
        let (least, greatest) = if least.is_finite() {
            (least, most_of_all)
        } else {
            axis.nothing()
        };
        let spread = |least_room: f64| {
            let room = ((greatest - least) * 0.04).max(least_room);
            ((least - room).max(0.0), greatest + room)
        };
        let (from, to) = match axis {
            Axis::Slower => (least.min(SHALLOWEST) * 0.8, 1.0),
            Axis::Correlation => (0.0, 1.0),
            Axis::Elapsed => (least, greatest),
            Axis::Utilisation => spread(0.01),
            Axis::Rate => spread(greatest * 0.01),
            Axis::Number => spread(1.0),
            Axis::Latency | Axis::Workers => scale::covering(least, greatest, 0.02),
            // bars at both ends need room
            Axis::Lag => scale::covering(least, greatest, 0.05),
        };
        let mut fitted = Self {
            axis,
            from,
            to,
            ticks: Vec::new(),
        };
        fitted.ticks = fitted.ticks(most);
        fitted
    }

    /// Where a value lies, from 0 at the left or the bottom to 1; `None` where it has no
    /// place on the scale.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        if !self.axis.has(value) {
            return None;
        }
        Some(match self.axis.is_logarithmic() {
            true => scale::position(self.from, self.to, value),
            false => ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0),
        })
    }

    fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let (from, to) = (self.from, self.to);
        let within = |value: &f64| (from..=to).contains(value);
        let whole: fn(f64) -> String = |n| figures::count(n.round() as u64);
        let (ticks, label): (Vec<f64>, fn(f64) -> String) = match self.axis {
            Axis::Latency => {
                let mut ticks = scale::ticks(from, to, most);
                if ticks.len() < FEW_TICKS {
                    ticks = dense(from, to);
                }
                if ticks.len() < FEW_TICKS {
                    ticks = finer(from, to);
                }
                (ticks, figures::round_length)
            }
            Axis::Lag => {
                let mut ticks = scale::ticks(from, to, most);
                ticks.retain(|n| *n >= 1.0);
                (ticks, whole)
            }
            Axis::Elapsed => (finer(from, to), |ns| match ns > 0.0 {
                true => figures::round_length(ns),
                false => "0".to_owned(),
            }),
            Axis::Correlation => (finer(from, to), |share| format!("{share:.1}")),
            Axis::Slower => {
                let decades = (1..).map(|power| 10_f64.powi(-power));
                let mut shares: Vec<f64> = [1.0, 0.5].into_iter().collect();
                shares.extend(decades.take_while(within));
                shares.reverse();
                (shares, |share| {
                    format!("{} %", figures::percentage(1.0 - share))
                })
            }
            Axis::Utilisation => {
                let steps = [0.01, 0.02, 0.05, 0.1, 0.2];
                let fits = |step: &f64| (to - from) / step <= most as f64;
                let step = steps.into_iter().find(fits).unwrap_or(0.2);
                let ticks = (0..=1000).map(|i| f64::from(i) * step).filter(within);
                (ticks.collect(), |u| format!("{:.0} %", u * 100.0))
            }
            Axis::Workers => {
                let mut ticks: Vec<f64> = (0..32).map(|i| 2_f64.powi(i)).filter(within).collect();
                if ticks.len() < 2 {
                    ticks = whole_numbers(from, to);
                }
                (ticks, whole)
            }
            Axis::Rate => (finer(from, to), figures::rate),
            Axis::Number => (whole_numbers(from, to), whole),
        };
        ticks.into_iter().map(|at| (at, label(at))).collect()
    }
}

/// Fewer ticks than this say little about a scale.
const FEW_TICKS: usize = 4;

/// Ticks that are denser than 1, 2 and 5.
fn dense(from: f64, to: f64) -> Vec<f64> {
    scale::among(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0], from, to)
}

/// Ticks of a scale on which there is no room for 1, 2 and 5.
fn finer(from: f64, to: f64) -> Vec<f64> {
    let step = 10_f64.powf(((to - from) / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0]
        .map(|m| m * step)
        .into_iter()
        .find(|step| (to - from) / step <= 6.0)
        .unwrap_or(10.0 * step);
    let first = (from / step).ceil() as u64;
    (first..)
        .map(|i| i as f64 * step)
        .take_while(|x| *x <= to)
        .take(10)
        .collect()
}

/// Those of [`finer`] that are whole.
fn whole_numbers(from: f64, to: f64) -> Vec<f64> {
    let mut ticks = finer(from, to);
    ticks.retain(|n| n.fract() == 0.0);
    ticks
}

impl Axis {
    /// Whether the value has a place on the scale.
    fn has(self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || !self.is_logarithmic())
    }

    const fn is_logarithmic(self) -> bool {
        match self {
            Self::Latency | Self::Slower | Self::Workers | Self::Lag => true,
            Self::Utilisation | Self::Rate | Self::Elapsed | Self::Correlation | Self::Number => {
                false
            }
        }
    }

    /// The ends when there is nothing to show.
    const fn nothing(self) -> (f64, f64) {
        match self {
            Self::Latency => (1e3, 1e6),
            Self::Slower => (SHALLOWEST, 1.0),
            Self::Utilisation | Self::Correlation => (0.0, 1.0),
            Self::Workers | Self::Lag => (1.0, 8.0),
            Self::Elapsed => (0.0, 1e9),
            Self::Rate | Self::Number => (0.0, 1e5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Curve;

    fn numbers(numbers: std::ops::RangeInclusive<u32>) -> FittedAxis {
        let points = numbers.map(|n| (f64::from(n), 1e3));
        let chart = Chart {
            title: String::new(),
            subtitle: String::new(),
            x: Axis::Number,
            y: Axis::Latency,
            curves: vec![Curve::new("", points.collect())],
            rule: None,
        };
        FittedAxis::new(chart.x, &chart, |p| p.0, 12)
    }

    #[test]
    fn neighbours_fill_their_axis_however_late_they_come() {
        let axis = numbers(1_000_000..=1_000_200);
        assert!(axis.to - axis.from < 250.0, "{axis:?}");
    }

    #[test]
    fn a_single_number_has_a_place_between_whole_ones() {
        for (number, place, labels) in [(0, 0.0, vec!["0", "1"]), (5, 0.5, vec!["4", "5", "6"])] {
            let axis = numbers(number..=number);
            assert_eq!(axis.position(number.into()), Some(place));
            let ticks: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
            assert_eq!(ticks, labels);
        }
    }
}
