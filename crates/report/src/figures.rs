//! How figures are written for people.

use taillab_model::{Nanos, quantile_need};

/// A length in microseconds with one decimal and a comma between its thousands: `1,234.5`.
pub fn micros(length: Nanos) -> String {
    micros_f64(length.get() as f64)
}

/// Nanoseconds that are not whole (a mean) in the form of [`micros`].
pub fn micros_f64(ns: f64) -> String {
    grouped(ns / 1e3, 1)
}

/// An interval in microseconds: `51.7–56.5`, `≥ 51.7` where the sample has no upper end,
/// nothing where it has no lower one.
pub fn interval(lo: Option<Nanos>, hi: Option<Nanos>) -> String {
    interval_by(micros, lo, hi)
}

/// The same with each end as `write` writes it.
pub fn interval_by<T>(write: impl Fn(T) -> String, lo: Option<T>, hi: Option<T>) -> String {
    match (lo.map(&write), hi.map(&write)) {
        (Some(lo), Some(hi)) => format!("{lo}–{hi}"),
        (Some(lo), None) => format!("≥ {lo}"),
        (None, _) => String::new(),
    }
}

/// A mean length: `2.31 ms`.
pub fn mean_length(ns: f64) -> String {
    Nanos::new(ns.max(0.0).round() as u64).to_string()
}

/// A number of things, with a comma between its thousands: `345,000`.
pub fn count(n: u64) -> String {
    group(&n.to_string())
}

/// A large number of things in a few digits: `20 M`, `1.2 G`, `57,000`.
pub fn round_count(n: u64) -> String {
    let short = |unit: f64, name: &str| {
        let text = format!("{:.1}", n as f64 / unit);
        format!("{} {name}", text.trim_end_matches(".0"))
    };
    match n {
        // below, it would be rounded to 1000 M
        999_950_000.. => short(1e9, "G"),
        1_000_000.. => short(1e6, "M"),
        _ => count(n),
    }
}

/// Events per second, with fewer decimals for larger numbers: `17,250`, `8.25` or `0.0034`.
pub fn rate(per_s: f64) -> String {
    let decimals = match per_s.abs() {
        // two digits of it; below a millionth, nobody counts
        x if (1e-6..0.1).contains(&x) => (1.0 - x.log10().floor()) as usize,
        x if x < 10.0 => 2,
        x if x < 100.0 => 1,
        _ => 0,
    };
    grouped(per_s, decimals)
}

/// A share as a percentage: `6.1 %`.
pub fn percent(share: f64, decimals: usize) -> String {
    format!("{} %", grouped(share * 100.0, decimals))
}

/// A share that may not be known, as a percentage: `75.0 %` or `–`.
pub fn known_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| percent(share, 1))
}

/// `part` of `whole` as a percentage that never rounds up to 100 % or down to 0 %,
/// because one lost request in a million must show; `–` where `whole` is 0.
pub fn percent_of(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let share = part as f64 / whole as f64;
    if part == 0 || part >= whole {
        return percent(share, 0);
    }
    let decimals = (2..9)
        .find(|&decimals| {
            let text = format!("{:.decimals$}", share * 100.0);
            text.parse::<f64>().is_ok_and(|x| x > 0.0 && x < 100.0)
        })
        .unwrap_or(9);
    percent(share, decimals)
}

/// How many times: `1.17×`.
pub fn ratio(x: f64) -> String {
    match x {
        x if !x.is_finite() => "–".to_owned(),
        x if x.abs() < 10.0 => format!("{x:.2}×"),
        x if x.abs() < 100.0 => format!("{x:.1}×"),
        x => format!("{}×", grouped(x, 0)),
    }
}

/// A quantile's name: `p50`, `p99.9`, and `max` for 1.
pub fn quantile_name(q: f64) -> String {
    if q >= 1.0 {
        return "max".to_owned();
    }
    format!("p{}", percentage(q))
}

/// A probability in per cent without trailing zeros: `99.9`.
pub fn percentage(q: f64) -> String {
    let text = format!("{:.6}", q * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Shown in place of the quantile `q` when a sample of `n` cannot support it, nor even a quantile with
/// `rarer` times as many values above it.
pub fn needs(q: f64, n: u64, rarer: f64) -> String {
    let least = quantile_need(q);
    // the observations are correlated, but it is not known how much
    let more_than = (n as f64 * rarer).round() as u64;
    if more_than < least {
        format!("needs at least {} requests", count(two_digits_up(least)))
    } else {
        format!("needs more than {} requests", count(more_than))
    }
}

/// Rounded up to two significant digits.
pub fn two_digits_up(n: u64) -> u64 {
    let mut unit = 1;
    while n / unit >= 100 {
        unit *= 10;
    }
    n.div_ceil(unit).saturating_mul(unit)
}

/// When something began; 0 where a recording does not say.
pub fn began(unix_s: u64) -> String {
    match unix_s {
        0 => "an unknown time".to_owned(),
        known => utc(known),
    }
}

/// An instant in seconds since 1970 as `2026-11-20 14:03:21 UTC`.
pub fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // civil_from_days of H. Hinnant, "chrono-Compatible Low-Level Date Algorithms":
    // years begin in March, so that the leap day is a year's last
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02} UTC")
}

/// A round length in nanoseconds (a tick, a window) without trailing zeros: `1 ms`.
pub fn round_length(ns: f64) -> String {
    let text = Nanos::new(ns.round() as u64).to_string();
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// The text with a no-break space between each number and its unit, so that a line does
/// not end between them.
pub fn glued(text: &str) -> String {
    let mut glued = String::with_capacity(text.len());
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        glued.push_str(word);
        let Some(next) = words.peek() else { break };
        let ends_in_number = word.ends_with(|c: char| c.is_ascii_digit());
        let next = next.trim_end_matches([',', ';', '.', ')']);
        let is_unit = matches!(next, "%" | "ns" | "µs" | "ms" | "s");
        glued.push(if ends_in_number && is_unit {
            NO_BREAK_SPACE
        } else {
            ' '
        });
    }
    glued
}

/// What [`glued`] puts before a unit.
pub const NO_BREAK_SPACE: char = '\u{a0}';

/// `2 requests`, `1 request`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// A number of bytes in a few digits: `41.2 MB`. A number that would be rounded to 1000 has the next unit.
pub fn bytes(n: f64) -> String {
    match n {
        n if n >= 999.95e6 => format!("{:.1} GB", n / 1e9),
        n if n >= 999.5e3 => format!("{:.1} MB", n / 1e6),
        n if n >= 999.5 => format!("{:.0} kB", n / 1e3),
        n => format!("{n:.0} B"),
    }
}

/// A number with `decimals` decimals and a comma between its thousands.
pub fn grouped(x: f64, decimals: usize) -> String {
    if !x.is_finite() {
        return "–".to_owned();
    }
    let text = format!("{:.decimals$}", x.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let sign = if x < 0.0 && text.bytes().any(|b| matches!(b, b'1'..=b'9')) {
        "−"
    } else {
        ""
    };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", group(whole))
}

/// A comma before every third digit from the end.
fn group(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use taillab_model::quantile_ranks;

    use super::*;

    #[test]
    fn lengths_and_counts_group_their_thousands() {
        assert_eq!(micros(Nanos::new(0)), "0.0");
        assert_eq!(micros(Nanos::new(98_349)), "98.3");
        assert_eq!(micros(Nanos::new(1_234_567)), "1,234.6");
        assert_eq!(count(345_000), "345,000");
        assert_eq!(count(999), "999");
        assert_eq!(rate(17_249.6), "17,250");
        assert_eq!(rate(8.25), "8.25");
        let slow = [0.1, 0.05, 0.0034, 0.0].map(rate);
        assert_eq!(slow, ["0.10", "0.050", "0.0034", "0.00"]);
        assert_eq!(percent(-0.0123, 1), "−1.2 %");
        assert_eq!(percent(-0.0001, 1), "0.0 %");
        assert_eq!(percent(f64::NAN, 1), "– %");
    }

    #[test]
    fn what_is_rounded_up_to_a_thousand_has_the_next_unit() {
        let counts = [999_999, 1_000_000, 999_940_000, 999_960_000, 1_240_000_000];
        assert_eq!(
            counts.map(round_count),
            ["999,999", "1 M", "999.9 M", "1 G", "1.2 G"]
        );
        let sizes = [
            999.0,
            999.9,
            999_400.0,
            999_900.0,
            999_940_000.0,
            999_999_999.0,
        ];
        assert_eq!(
            sizes.map(bytes),
            ["999 B", "1 kB", "999 kB", "1.0 MB", "999.9 MB", "1.0 GB"]
        );
    }

    #[test]
    fn round_lengths_have_no_trailing_zeros() {
        let texts = [500.0, 2e3, 1e5, 1e6, 2.5e6, 1e10].map(round_length);
        assert_eq!(
            texts,
            ["500 ns", "2 µs", "100 µs", "1 ms", "2.5 ms", "10 s"]
        );
    }

    #[test]
    fn a_number_keeps_its_unit() {
        assert_eq!(
            glued("late by 1.2 µs, in 5 % of 3 s or so"),
            "late by 1.2\u{a0}µs, in 5\u{a0}% of 3\u{a0}s or so"
        );
    }

    #[test]
    fn one_lost_request_shows_in_the_percentage() {
        assert_eq!(percent_of(10, 10), "100 %");
        assert_eq!(percent_of(9_999_999, 10_000_000), "99.99999 %");
        assert_eq!(percent_of(1, 10_000_000), "0.00001 %");
        assert_eq!(percent_of(1, 4), "25.00 %");
        assert_eq!(percent_of(0, 0), "–");
    }

    #[test]
    fn quantiles_have_their_usual_names() {
        let names = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0].map(quantile_name);
        assert_eq!(
            names,
            ["p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "max"]
        );
    }

    #[test]
    fn an_unsupported_quantile_says_what_it_needs() {
        for q in [0.9, 0.99, 0.999, 0.9999, 0.99999] {
            let least = quantile_need(q);
            assert!(quantile_ranks(least, q, 1.0).is_some());
            assert!(quantile_ranks(least - 1, q, 1.0).is_none());
        }
        assert_eq!(two_digits_up(56_641), 57_000);
        assert_eq!(two_digits_up(60), 60);
        assert_eq!(two_digits_up(u64::MAX), u64::MAX);
        assert!(needs(0.9999, 1_000, 1.0).starts_with("needs at least "));
        let more = |rarer| needs(0.9999, 345_000, rarer);
        assert_eq!(more(1.0), "needs more than 345,000 requests");
        assert_eq!(more(10.0), "needs more than 3,450,000 requests");
    }

    #[test]
    fn dates_agree_with_date_u() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_183_401), "2026-11-20 14:03:21 UTC");
    }
}
