//! Logarithmic axes.

/// A logarithmic axis from `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogScale {
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl LogScale {
    /// An axis on which `first` and `last` (both positive) lie inside the ends by `margin`, as a
    /// share of the axis.
    pub(crate) fn covering(first: f64, last: f64, margin: f64) -> Self {
        let first = first.max(f64::MIN_POSITIVE);
        // a single value still needs an axis of some length
        let last = last.max(first * 1.25);
        let room = (last / first).powf(margin);
        Self {
            from: first / room,
            to: last * room,
        }
    }

    pub(crate) const fn ends(self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Where `x` lies between the ends, from 0 to 1.
    pub(crate) fn position(self, x: f64) -> f64 {
        ((x / self.from).ln() / (self.to / self.from).ln()).clamp(0.0, 1.0)
    }

    /// Round values (1, 2, 5 times a power of ten; only powers of ten where these would
    /// be more than `most`), from the least.
    pub(crate) fn ticks(self, most: usize) -> Vec<f64> {
        let among = |mantissas: &[f64]| -> Vec<f64> {
            let (first, last) = (
                self.from.log10().floor() as i32,
                self.to.log10().ceil() as i32,
            );
            (first..=last)
                .flat_map(|power| mantissas.iter().map(move |m| m * 10_f64.powi(power)))
                .filter(|x| (self.from..=self.to).contains(x))
                .collect()
        };
        let fine = among(&[1.0, 2.0, 5.0]);
        if fine.len() <= most {
            return fine;
        }
        among(&[1.0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = LogScale { from: 3e4, to: 7e6 };
        assert_eq!(scale.ticks(10), [5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6]);
        assert_eq!(scale.ticks(4), [1e5, 1e6]);
        assert_eq!(scale.position(3e4), 0.0);
        assert_eq!(scale.position(7e6), 1.0);
    }
}
