//! The three distributions as text: one line for each percentile, time to the right.

use super::Style;
use super::text::Ink;
use crate::scale::LogScale;
use crate::{Curve, Series, figures};

/// Percentiles of the lines, as the share of slower requests: three to a decade, so
/// that the lines are evenly spaced on a logarithmic axis.
const MANTISSAS: [f64; 3] = [1.0, 0.5, 0.2];
/// Columns before the axis.
const LABELS: usize = 10;
/// Narrower than this, the figure says nothing.
const NARROWEST: usize = 60;

/// The figure's lines; `None` without curves or without room.
pub(super) fn lines(curves: &[Curve], style: Style) -> Option<Vec<String>> {
    if style.width < NARROWEST {
        return None;
    }
    let drawn: Vec<&Curve> = Series::ALL
        .iter()
        .filter_map(|&series| curves.iter().find(|curve| curve.series == series))
        .filter(|curve| curve.points.len() > 1)
        .collect();
    let times = || {
        drawn
            .iter()
            .flat_map(|curve| curve.points.iter().map(|p| p.0))
    };
    let (first, last) = (times().min()?, times().max()?);
    let least_share = drawn
        .iter()
        .flat_map(|curve| curve.points.iter().map(|p| p.1))
        .filter(|share| *share > 0.0)
        .fold(1.0, f64::min);
    let width = style.width - LABELS - 4;
    let scale = LogScale::covering(first.get().max(1) as f64, last.get().max(1) as f64);
    let column = |ns: f64| (scale.position(ns) * (width - 1) as f64).round() as usize;

    let mut lines = Vec::new();
    let mut decade = 1.0;
    'decades: loop {
        for mantissa in MANTISSAS {
            let share = decade * mantissa;
            if share >= 1.0 {
                continue;
            }
            if share < least_share {
                break 'decades;
            }
            lines.push(line(&drawn, share, mantissa, &column, width, style));
        }
        decade /= 10.0;
    }
    let mut axis = vec!['─'; width];
    let mut labels = vec![' '; width];
    for tick in scale.ticks(width / 10) {
        let at = column(tick);
        axis[at] = '┴';
        let text: Vec<char> = figures::round_length(tick).chars().collect();
        let start = at.saturating_sub(text.len() / 2).min(width - text.len());
        let clear = start.saturating_sub(1)..(start + text.len() + 1).min(width);
        if labels[clear].iter().all(|c| *c == ' ') {
            labels[start..start + text.len()].copy_from_slice(&text);
        }
    }
    let quiet = |text: String| style.paint(Ink::Quiet, &text);
    lines.push(quiet(format!("{:LABELS$}└{}", "", String::from_iter(axis))));
    let labels = String::from_iter(labels);
    lines.push(quiet(format!("{:LABELS$} {}", "", labels.trim_end())));
    let legend: Vec<String> = drawn
        .iter()
        .map(|curve| {
            let (ink, mark) = mark(curve.series);
            format!(
                "{} {}",
                style.paint(ink, &mark.to_string()),
                curve.series.label()
            )
        })
        .collect();
    lines.push(format!("{:LABELS$}  {}", "", legend.join("   ")));
    Some(lines)
}

const fn mark(series: Series) -> (Ink, char) {
    match series {
        Series::Ideal => (Ink::Ideal, '◆'),
        Series::Measured => (Ink::Measured, '●'),
        Series::Client => (Ink::Client, '○'),
    }
}

/// One percentile: a mark for each curve, and between ideal and measured the excess.
fn line(
    curves: &[&Curve],
    share: f64,
    mantissa: f64,
    column: &impl Fn(f64) -> usize,
    width: usize,
    style: Style,
) -> String {
    let mut cells = vec![(Ink::Quiet, ' '); width];
    let at = |series: Series| -> Option<usize> {
        let curve = curves.iter().find(|curve| curve.series == series)?;
        Some(column(curve.time_at(share)?))
    };
    if let (Some(from), Some(to)) = (at(Series::Ideal), at(Series::Measured)) {
        for cell in &mut cells[from.min(to)..=from.max(to)] {
            *cell = (Ink::Quiet, '─');
        }
    }
    // the later ones are drawn over the earlier ones where they fall together
    for series in [Series::Client, Series::Ideal, Series::Measured] {
        if let Some(at) = at(series) {
            cells[at] = mark(series);
        }
    }
    let label = if mantissa == 1.0 || share == 0.5 {
        format!("{} %", figures::percentage(1.0 - share))
    } else {
        String::new()
    };
    let tick = if label.is_empty() { '│' } else { '┤' };
    let mut text = style.paint(
        Ink::Quiet,
        &format!("{label:>width$} {tick}", width = LABELS - 1),
    );
    let end = cells
        .iter()
        .rposition(|(_, c)| *c != ' ')
        .map_or(0, |last| last + 1);
    for (ink, c) in &cells[..end] {
        if *c == ' ' {
            text.push(' ');
        } else {
            text.push_str(&style.paint(*ink, &c.to_string()));
        }
    }
    text
}
