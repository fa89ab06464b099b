//! Options and values of several commands.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, ValueHint};
use taillab_model::Nanos;
use taillab_model::threshold::Threshold;
use taillab_queueing::arrivals::profile::rate_per_s;
use taillab_report::terminal::wrap;

/// A list in the text of a help, on lines that begin and go on at the column `indent` and end before column 78.
pub fn wrapped(list: &str, indent: usize) -> String {
    let separator = format!("\n{:indent$}", "");
    wrap(list, 78 - indent).join(&separator)
}

/// Options of every command.
#[derive(Debug, Args, Clone, Copy)]
pub struct Output {
    /// Print one JSON object on stdout instead of tables
    #[arg(long)]
    pub json: bool,
    /// Print only errors (and the object of --json)
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say what is happening, and show more of the result
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

impl Output {
    /// Whether the result is not printed.
    pub const fn is_silent(self) -> bool {
        self.quiet && !self.json
    }
}

/// Limits that a result must meet.
#[derive(Clone, Debug, Default, Args)]
pub struct LimitArgs {
    /// A limit that the result must meet: p99.9<=2ms, max<=20ms or errors<0.1%; may be repeated.
    /// Exit code 3: not met; 4: the interval does not decide
    ///
    /// Latency is the sojourn in the server, of all requests; with load, the client's response time. max and
    /// errors<=0% are limits on the measured requests, without an interval
    #[arg(long = "assert", value_name = "LIMIT")]
    pub limits: Vec<Threshold>,
    /// Write the verdict and the limits as JUnit XML; an existing file is replaced
    #[arg(hide_short_help = true, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
}

/// Options of the analysis of a recording: of `taillab trace` and `taillab explain`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct AnalysisArgs {
    /// Service time of the ideal server [default: what a request cost in the recording's busy
    /// periods]
    #[arg(long, value_name = "TIME", value_parser = positive)]
    pub service_time: Option<Nanos>,
    /// Workers of the ideal server [default: the threads that served requests, at most one per CPU]
    #[arg(short, long, value_name = "N", value_parser = workers)]
    pub workers: Option<NonZeroU32>,
    /// Print this many of the slowest requests one by one, with what each CPU did meanwhile
    /// [default: none; the saved files have 20]
    #[arg(long, value_name = "N")]
    pub slowest: Option<usize>,
}

/// A number of requests, as `20M`, `1e9` or `1.2G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        count::<NonZeroU64>(text).map(|count| Self(count.get()))
    }
}

/// Requests per second: `20000`, `20k`, `1.5M`.
pub fn rate(text: &str) -> Result<f64, String> {
    rate_per_s(text)
        .filter(|rate| *rate > 0.0)
        .ok_or_else(|| format!("`{text}` is not a rate; write e.g. 20000, 20k or 1.5M"))
}

/// A share written as `75%` or `0.75`.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text.trim(), 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value / scale),
        _ => Err("write a share, e.g. 75% or 0.75".to_owned()),
    }
}

/// `a,b,c` or `from..to:step`.
pub fn numbers(text: &str, one: impl Fn(&str) -> Result<f64, String>) -> Result<Vec<f64>, String> {
    /// A limit, since nobody waits for more systems.
    const MOST: f64 = 1_000.0;
    let Some((from, rest)) = text.split_once("..") else {
        return text.split(',').map(one).collect();
    };
    let (to, step) = rest
        .split_once(':')
        .ok_or_else(|| format!("`{text}` has no step; write from..to:step, e.g. 0.5..0.95:0.05"))?;
    let (from, to, step) = (one(from)?, one(to)?, one(step)?);
    if !(step > 0.0 && to >= from) {
        return Err(format!(
            "`{text}` must go up: from..to:step, with a step above 0"
        ));
    }
    let steps = ((to - from) / step + 1e-9).floor();
    if steps >= MOST {
        return Err(format!(
            "`{text}` has more than {MOST} values; take a larger step"
        ));
    }
    // rounded to nine decimals, so that 0.5 + 4 · 0.05 is 0.7
    let value = |i: u32| ((from + f64::from(i) * step) * 1e9).round() / 1e9;
    Ok((0..=steps as u32).map(value).collect())
}

/// A number of things: `500`, `20k`, `20M`, `1e9` or `1.2G`.
pub fn count<N: FromStr>(text: &str) -> Result<N, String> {
    let error = || format!("`{text}` is not a count; write e.g. 500, 20k, 20M, 1e9 or 1.2G");
    let digits = text.trim().replace('_', "");
    let (number, unit) = match digits.char_indices().last() {
        Some((at, 'k' | 'K')) => (&digits[..at], 1e3),
        Some((at, 'M')) => (&digits[..at], 1e6),
        Some((at, 'G' | 'B')) => (&digits[..at], 1e9),
        _ => (digits.as_str(), 1.0),
    };
    let number = number.parse::<f64>().map_err(|_| error())? * unit;
    let whole = number.round();
    // 2^53: a double cannot represent all larger whole numbers
    let is_count = (0.0..=9_007_199_254_740_992.0).contains(&whole);
    // 1.1k is not exactly 1100 as a double
    if !is_count || (number - whole).abs() > 1e-9 * whole.max(1.0) {
        return Err(error());
    }
    fitting(text, whole as u64)
}

/// A limit on a number of things; 0 means none.
pub fn limit<N: FromStr>(text: &str) -> Result<N, String> {
    match text.trim() {
        "0" => fitting(text, 0),
        _ => count(text),
    }
}

/// A number of bytes: `64`, `64K` (65,536) or `8M`.
pub fn size<N: FromStr>(text: &str) -> Result<N, String> {
    let error = || format!("`{text}` is not a size; write bytes, e.g. 64, 1K or 1472");
    let trimmed = text.trim();
    let (number, unit) = match trimmed.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1 << 10),
        None => match trimmed.strip_suffix(['m', 'M']) {
            Some(number) => (number, 1 << 20),
            None => (trimmed, 1),
        },
    };
    let bytes: Option<u64> = number.parse().ok();
    let bytes = bytes.and_then(|number| number.checked_mul(unit));
    fitting(text, bytes.ok_or_else(error)?)
}

/// The number as the type that holds it.
fn fitting<N: FromStr>(text: &str, number: u64) -> Result<N, String> {
    number.to_string().parse().map_err(|_| match number {
        0 => "it must be above 0; write e.g. 500, 20k or 20M".to_owned(),
        _ => format!("`{text}` is too large"),
    })
}

/// A number of workers.
pub fn workers(text: &str) -> Result<NonZeroU32, String> {
    (text.trim().parse()).map_err(|_| "a whole number of at least 1 is needed".to_owned())
}

/// A length of time above 0.
pub fn positive(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("it must be above 0".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_have_suffixes() {
        assert_eq!(count("100M"), Ok(100_000_000_u64));
        assert_eq!(count("1.1k"), Ok(1_100_u32));
        assert_eq!(count("1e3"), Ok(1_000_u16));
        assert_eq!(count("0"), Ok(0_u64));
        assert_eq!(size("64K"), Ok(65_536_u32));
        assert_eq!(size("8m"), Ok(8_388_608_usize));
        for wrong in ["1.5", "0.0001k", "many", "", "M", "-1", "nan"] {
            assert!(count::<u64>(wrong).is_err(), "{wrong}");
        }
        for (found, part) in [
            (count::<u16>("1M").map(u64::from), "too large"),
            (size::<u32>("4096M").map(u64::from), "too large"),
            (
                count::<NonZeroU32>("0").map(|n| u64::from(n.get())),
                "above 0",
            ),
            (size::<u64>("1.5K"), "not a size"),
        ] {
            let error = found.unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn counts_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Count>().map(|count| count.0);
        assert_eq!(read("20M"), Ok(20_000_000));
        assert_eq!(read("1e9"), Ok(1_000_000_000));
        assert_eq!(read("1.2G"), Ok(1_200_000_000));
        assert_eq!(read("1_000"), Ok(1_000));
        assert_eq!(read("64k"), Ok(64_000));
        for wrong in ["0", "-5", "NaN", "inf", "many", "", "M", "1e99"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_read_as_percent_or_fraction() {
        assert_eq!(share("75%"), Ok(0.75));
        assert_eq!(share("0.75"), Ok(0.75));
        assert!(share("most").is_err());
        assert!(share("NaN").is_err());
    }
}
