//! How far the excess depends on t.
//!
//! With another t, each request has another ideal sojourn, and another part of its sojourn is excess. To which causes
//! that part belongs is not computed: any share may have all of it, or nothing. With the excess E, of which a cause has
//! the share s, and the excess E + m that the lower end of t's interval leaves, the share is between s ÷ (1 + m ÷ E) and
//! (s + m ÷ E) ÷ (1 + m ÷ E); with E − l, that of the upper end, between (s − l ÷ E) ÷ (1 − l ÷ E) and s ÷ (1 − l ÷ E).

use std::ops::Range;

use taillab_model::Nanos;
use taillab_model::explanation::Share;
use taillab_model::histogram::cell;

use super::BITS;
use crate::id_map::grow_to;

/// The excess of requests whose sojourns lie in one cell of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct CellExcess {
    value: u64,
    /// With the lower end of t's interval.
    most: u64,
    /// With the upper end.
    least: u64,
}

/// Sums up the excess with t, and with both ends of its interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExcessRange(Vec<CellExcess>);

impl ExcessRange {
    /// Adds a request with this ideal sojourn, and with those of the lower and of the upper end of t's interval.
    pub(crate) fn add(&mut self, sojourn: Nanos, ideal: Nanos, [lo, hi]: [Nanos; 2]) {
        let excess = |ideal: Nanos| sojourn.saturating_sub(ideal).get();
        let sums = grow_to(&mut self.0, cell(sojourn.get(), BITS));
        sums.value += excess(ideal);
        sums.most += excess(lo.min(ideal));
        sums.least += excess(hi.max(ideal));
    }

    /// Of the requests in these cells.
    pub(super) fn margin(&self, cells: Range<usize>) -> Margin {
        let mut sum = CellExcess::default();
        let length = cells.end.saturating_sub(cells.start);
        for of_cell in self.0.iter().skip(cells.start).take(length) {
            sum.value += of_cell.value;
            sum.most += of_cell.most;
            sum.least += of_cell.least;
        }
        let part = |ns: u64| match sum.value {
            0 => 0.0,
            value => ns as f64 / value as f64,
        };
        Margin {
            more: part(sum.most - sum.value),
            less: part(sum.value - sum.least),
        }
    }
}

/// By what parts of itself an excess is larger with the lower end of t's interval, and smaller with the upper one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Margin {
    more: f64,
    less: f64,
}

impl Margin {
    /// A share of this excess, with an interval for each t of t's interval.
    pub(super) fn widen(self, share: Share) -> Share {
        let Self { more, less } = self;
        let lowest = |lo: f64| match less < 1.0 {
            true => ((lo - less) / (1.0 - less)).min(lo / (1.0 + more)),
            false => 0.0,
        };
        let highest = |hi: f64| match less < 1.0 {
            true => (hi / (1.0 - less)).max((hi + more) / (1.0 + more)),
            false => 1.0,
        };
        Share {
            value: share.value,
            lo: share.lo.map(|lo| lowest(lo).clamp(0.0, share.value)),
            hi: share.hi.map(|hi| highest(hi).clamp(share.value, 1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(requests: &[(u64, u64, [u64; 2])]) -> ExcessRange {
        let mut range = ExcessRange::default();
        for &(sojourn, ideal, ends) in requests {
            range.add(Nanos::new(sojourn), Nanos::new(ideal), ends.map(Nanos::new));
        }
        range
    }

    fn widened(margin: Margin, value: f64) -> (f64, f64) {
        let share = Share {
            value,
            lo: Some(value),
            hi: Some(value),
        };
        let share = margin.widen(share);
        (share.lo.unwrap(), share.hi.unwrap())
    }

    /// A tail of milliseconds does not depend on t; what the fast requests wait does.
    #[test]
    fn the_margin_is_that_of_the_requests_that_are_meant() {
        let all = range(&[(50, 30, [25, 35]), (1_000_000, 30, [25, 35])]);
        let end = cell(1_000, BITS);
        let fast = all.margin(0..end);
        assert_eq!((fast.more, fast.less), (0.25, 0.25));
        let slow = all.margin(end..usize::MAX);
        assert!(slow.more < 1e-5 && slow.less < 1e-5, "{slow:?}");
        assert_eq!(range(&[]).margin(0..end), Margin::default());
    }

    /// Whatever t is in its interval, and to whatever causes the difference belongs, the share is inside.
    #[test]
    fn a_share_is_in_its_interval_with_each_t() {
        let margin = range(&[(100, 60, [50, 70])]).margin(0..usize::MAX);
        // of 40 ns, 10 are this cause's: 0 to 20 of the 30 to 50 that t leaves
        let (lo, hi) = widened(margin, 0.25);
        assert!(
            lo.abs() < 1e-12 && (hi - 20.0 / 50.0).abs() < 1e-12,
            "{lo} {hi}"
        );
        // 36 of 40: 26 of 30, or 36 of 50; 30 of 30
        let (lo, hi) = widened(margin, 0.9);
        assert!((lo - 36.0 / 50.0).abs() < 1e-12 && hi == 1.0, "{lo} {hi}");
        let unknown = range(&[(100, 60, [50, 100])]).margin(0..usize::MAX);
        assert_eq!(widened(unknown, 0.5), (0.0, 1.0));
    }

    #[test]
    fn without_an_interval_nothing_is_wider() {
        assert_eq!(widened(Margin::default(), 0.3), (0.3, 0.3));
        let none = Margin {
            more: 0.1,
            less: 0.1,
        }
        .widen(Share::default());
        assert_eq!((none.lo, none.hi), (None, None));
    }
}
