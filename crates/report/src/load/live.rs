//! The line that a load shows each second while it runs.

use taillab_model::Nanos;

use crate::figures::{count, rate};

/// What happened in one window of a running load, usually the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveWindow {
    /// From the start of the load to the window's end.
    pub elapsed: Nanos,
    /// Requests sent per second of the window.
    pub sent_per_s: f64,
    /// Answers per second of the window.
    pub answered_per_s: f64,
    /// Median response time of the answers in the window; `None` without any.
    pub p50: Option<Nanos>,
    /// p99 of the same; `None` where they are too few.
    pub p99: Option<Nanos>,
    /// p99 of the lateness of the sends in the window; `None` where they are too few.
    pub lateness_p99: Option<Nanos>,
    /// Errors since the start.
    pub errors: u64,
}

/// The window on one line, without a newline: sent → answered, response times, p99 of the
/// lateness, errors. Its width is constant up to a rate of a million, and below 80.
pub fn live_line(window: &LiveWindow) -> String {
    let length = |length: Option<Nanos>| length.map_or_else(|| "–".to_owned(), |l| l.to_string());
    format!(
        "{:>4} s  {:>7}/s → {:>7}/s  p50 {:>7}  p99 {:>7}  late {:>7}  errors {}",
        window.elapsed.get() / 1_000_000_000,
        rate(window.sent_per_s),
        rate(window.answered_per_s),
        length(window.p50),
        length(window.p99),
        length(window.lateness_p99),
        count(window.errors),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_unit_and_the_width_is_constant() {
        let first = live_line(&LiveWindow {
            elapsed: Nanos::from_millis(3_004),
            sent_per_s: 20_012.3,
            answered_per_s: 19_998.7,
            p50: Some(Nanos::new(61_234)),
            p99: Some(Nanos::new(143_000)),
            lateness_p99: Some(Nanos::new(812)),
            errors: 0,
        });
        assert_eq!(
            first,
            "   3 s   20,012/s →  19,999/s  p50 61.2 µs  p99  143 µs  late  812 ns  errors 0"
        );
        let nothing = live_line(&LiveWindow::default());
        assert!(nothing.contains("p50       –") && nothing.contains("   0.00/s →"));
        assert!(first.chars().count() <= 80);
        assert_eq!(nothing.chars().count(), first.chars().count());
    }
}
