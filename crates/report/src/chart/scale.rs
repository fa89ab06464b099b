//! Logarithmic axes, from `from` to `to`.

/// The ends of an axis that leaves `margin` (a share of the axis) outside `first` and `last`, which are
/// positive.
pub(super) fn covering(first: f64, last: f64, margin: f64) -> (f64, f64) {
    let first = first.max(f64::MIN_POSITIVE);
    // a single value still needs an axis of some length
    let last = last.max(first * 1.25);
    let room = (last / first).powf(margin);
    (first / room, last * room)
}

/// Where `x` lies between the ends, from 0 to 1.
pub(super) fn position(from: f64, to: f64, x: f64) -> f64 {
    ((x / from).ln() / (to / from).ln()).clamp(0.0, 1.0)
}

/// Round values (1, 2, 5 times a power of ten; only powers of ten where these would
/// be more than `most`), from the least.
pub(super) fn ticks(from: f64, to: f64, most: usize) -> Vec<f64> {
    let fine = among(&[1.0, 2.0, 5.0], from, to);
    match fine.len() <= most {
        true => fine,
        false => among(&[1.0], from, to),
    }
}

/// These multiples of powers of ten, as far as they lie on the axis.
pub(super) fn among(multiples: &[f64], from: f64, to: f64) -> Vec<f64> {
    (from.log10().floor() as i32..=to.log10().ceil() as i32)
        .flat_map(|power| multiples.iter().map(move |m| m * 10_f64.powi(power)))
        .filter(|x| (from..=to).contains(x))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let (from, to) = (3e4, 7e6);
        assert_eq!(ticks(from, to, 10), [5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6]);
        assert_eq!(ticks(from, to, 4), [1e5, 1e6]);
        assert_eq!(position(from, to, from), 0.0);
        assert_eq!(position(from, to, to), 1.0);
    }
}
