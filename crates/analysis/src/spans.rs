//! Stretches of time that select requests by their T1.

use taillab_model::{Monotonic, Nanos};

/// The requests that came in within a half-open stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first instant.
    pub from: Monotonic,
    /// The first instant after the stretch.
    pub to: Monotonic,
}

/// Spans in order of time that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

/// The instant `by` before `at`, or boot.
pub(crate) const fn earlier(at: Monotonic, by: Nanos) -> Monotonic {
    Monotonic::from_nanos_since_boot(at.nanos_since_boot().saturating_sub(by.get()))
}

impl From<Vec<Span>> for Spans {
    fn from(spans: Vec<Span>) -> Self {
        Self(spans)
    }
}

impl Spans {
    /// Whether an instant lies within a span.
    pub fn contain(&self, at: Monotonic) -> bool {
        let next = self.0.partition_point(|span| span.to <= at);
        self.0.get(next).is_some_and(|span| span.from <= at)
    }

    /// The parts of the spans between two instants.
    pub fn within(&self, from: Monotonic, to: Monotonic) -> impl Iterator<Item = Span> {
        let inside = self.0.iter().map(move |span| Span {
            from: span.from.max(from),
            to: span.to.min(to),
        });
        inside.filter(|span| span.from < span.to)
    }

    /// The total length of the spans between two instants.
    pub fn length(&self, from: Monotonic, to: Monotonic) -> Nanos {
        let lengths = self
            .within(from, to)
            .map(|span| span.to.saturating_since(span.from));
        lengths.sum()
    }

    /// The spans, each beginning earlier by `by`. Those that then touch or overlap are joined.
    pub fn earlier(self, by: Nanos) -> Self {
        let mut wider: Vec<Span> = Vec::with_capacity(self.0.len());
        for span in self.0 {
            let from = earlier(span.from, by);
            match wider.last_mut() {
                Some(last) if from <= last.to => last.to = span.to,
                _ => wider.push(Span { from, ..span }),
            }
        }
        Self(wider)
    }

    /// The instants outside of the spans, moved back by the length of all spans before them. `instants` are in
    /// order.
    pub fn spliced(
        &self,
        instants: impl Iterator<Item = Monotonic>,
    ) -> impl Iterator<Item = Monotonic> {
        let (mut next, mut cut) = (0, Nanos::ZERO);
        instants.filter_map(move |at| {
            while let Some(span) = self.0.get(next).filter(|span| span.to <= at) {
                cut += span.to.saturating_since(span.from);
                next += 1;
            }
            let inside = self.0.get(next).is_some_and(|span| span.from <= at);
            (!inside).then(|| earlier(at, cut))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    fn span((from, to): (u64, u64)) -> Span {
        Span {
            from: at(from),
            to: at(to),
        }
    }

    #[test]
    fn what_is_not_in_them_is_left() {
        let spans = Spans::from([(10, 20), (30, 40)].map(span).to_vec());
        let inside: Vec<u64> = (0..50).filter(|&ns| spans.contain(at(ns))).collect();
        assert_eq!(inside, (10..20).chain(30..40).collect::<Vec<u64>>());
        assert_eq!(spans.length(at(15), at(50)), Nanos::new(15));
        let spliced: Vec<Monotonic> = spans
            .spliced([5, 15, 20, 29, 33, 45].map(at).into_iter())
            .collect();
        assert_eq!(spliced, [5, 10, 19, 25].map(at));
        let wider = spans.earlier(Nanos::new(10));
        let wider: Vec<Span> = wider.within(at(5), at(60)).collect();
        assert_eq!(wider, [span((5, 40))]);
    }
}
