//! Decimal numbers as integer nanoseconds, without the rounding of floating point.

use taillab_model::Nanos;

use super::options::TimeUnit;

/// Why a text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseFailure {
    /// It is no number.
    NotANumber,
    /// It is below 0.
    Negative,
    /// It is more than a time can hold.
    TooLarge,
}

/// A number of `unit`, rounded down to whole nanoseconds.
///
/// Seconds since 1970 have more digits than a double holds, so digits are counted, not
/// multiplied.
pub fn nanos(text: &str, unit: TimeUnit) -> Result<Nanos, ParseFailure> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => {
            let exponent: i32 = digits[at + 1..]
                .parse()
                .map_err(|_| ParseFailure::NotANumber)?;
            (&digits[..at], exponent)
        }
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
        return Err(ParseFailure::NotANumber);
    }
    // the decimal point moves this far to the right
    let shift = i64::from(unit.digits()) + i64::from(exponent);
    let mut value: u64 = 0;
    let mut nonzero = false;
    let points = whole.len() as i64 + shift;
    for (i, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let digit = u64::from(byte - b'0');
        nonzero |= digit != 0;
        if (i as i64) < points {
            value = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(digit))
                .ok_or(ParseFailure::TooLarge)?;
        }
    }
    let missing = points - (whole.len() + fraction.len()) as i64;
    if value != 0 {
        for _ in 0..missing.max(0) {
            value = value.checked_mul(10).ok_or(ParseFailure::TooLarge)?;
        }
    }
    if negative && nonzero {
        return Err(ParseFailure::Negative);
    }
    Ok(Nanos::new(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str, unit: TimeUnit) -> Result<u64, ParseFailure> {
        nanos(text, unit).map(Nanos::get)
    }

    #[test]
    fn no_digit_is_lost() {
        assert_eq!(
            ns("1795183401.123456789", TimeUnit::S),
            Ok(1_795_183_401_123_456_789)
        );
        assert_eq!(ns("12", TimeUnit::Us), Ok(12_000));
        assert_eq!(ns(" +0.5 ", TimeUnit::Ms), Ok(500_000));
        assert_eq!(ns("7.9", TimeUnit::Ns), Ok(7));
        assert_eq!(ns("1.5e3", TimeUnit::Ns), Ok(1_500));
        assert_eq!(ns("2.5e-3", TimeUnit::S), Ok(2_500_000));
        assert_eq!(ns(".5", TimeUnit::Us), Ok(500));
        assert_eq!(ns("0e99", TimeUnit::S), Ok(0));
        assert_eq!(ns("0.000000000001", TimeUnit::S), Ok(0));
        assert_eq!(ns("-0", TimeUnit::S), Ok(0));
    }

    #[test]
    fn what_is_no_time_is_told_apart() {
        for text in ["", ".", "abc", "NaN", "inf", "1,5", "1e", "--1", "0x10"] {
            assert_eq!(
                ns(text, TimeUnit::S),
                Err(ParseFailure::NotANumber),
                "{text}"
            );
        }
        assert_eq!(ns("-1", TimeUnit::S), Err(ParseFailure::Negative));
        assert_eq!(
            ns("1795183401123456789", TimeUnit::S),
            Err(ParseFailure::TooLarge)
        );
    }
}
