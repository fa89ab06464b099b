//! Rate profiles and recorded arrivals from files.

use std::path::Path;

use taillab_console::exit::Failure;
use taillab_experiment::rows::Rows;
use taillab_experiment::time_stamps::{TimeUnit, TraceFile, TraceOptions, decimal};
use taillab_model::Nanos;
use taillab_queueing::arrivals::profile::{RateProfile, rate_per_s};

/// More recorded arrivals than this are refused: they are all held in memory.
const MOST_STAMPS: usize = 500_000_000;

/// A profile as steps in the text itself, or from the file that it names.
pub fn profile(text: &str) -> Result<RateProfile, Failure> {
    if text.trim_start().starts_with("step:") {
        return text.parse().map_err(Failure::usage);
    }
    let path = Path::new(text);
    let content = std::fs::read_to_string(path).map_err(|error| {
        usage(
            path,
            format!(
                "cannot be read: {error}; give a file that you may read, or steps as in {}",
                RateProfile::EXAMPLE
            ),
        )
    })?;
    let entries = entries(&content).map_err(|what| usage(path, what))?;
    RateProfile::recorded(&entries).map_err(|error| usage(path, error.to_string()))
}

/// The instants of a trace from its first one on.
pub fn recorded(options: TraceOptions) -> Result<Vec<Nanos>, Failure> {
    let path = options.path.clone();
    let mut times: Vec<Nanos> = Vec::new();
    TraceFile::open(options)?.read(|part, _| {
        if times.len() + part.len() > MOST_STAMPS {
            let what = format!("has more than {MOST_STAMPS} time stamps; cut it into parts");
            return Err(usage(&path, what));
        }
        times.extend_from_slice(part);
        Ok(())
    })?;
    let first = times[0];
    for time in &mut times {
        *time = time.saturating_sub(first);
    }
    if times[times.len() - 1] == Nanos::ZERO {
        return Err(usage(
            &path,
            "has no rate: all its time stamps are equal; give at least two that differ",
        ));
    }
    Ok(times)
}

/// Times and rates of a CSV text.
fn entries(text: &str) -> Result<Vec<(Nanos, f64)>, String> {
    let mut entries = Vec::new();
    let Some(separator) = Rows::separator(text.as_bytes())? else {
        return Ok(entries);
    };
    let mut rows = Rows::new(text.as_bytes(), separator);
    let mut columns = None;
    while rows.advance()? {
        let is_first = columns.is_none();
        let columns = match columns {
            Some(known) => known,
            None => *columns.insert(Columns::of(&rows.cells())?),
        };
        if !(is_first && columns.header) {
            entries.push(columns.entry(&rows)?);
        }
    }
    Ok(entries)
}

/// Which column holds what.
#[derive(Clone, Copy)]
struct Columns {
    time: usize,
    rate: usize,
    unit: TimeUnit,
    header: bool,
}

impl Columns {
    /// By the names of a header, else the first two columns, in seconds.
    fn of(first: &[String]) -> Result<Self, String> {
        let header = first.iter().all(|cell| cell.parse::<f64>().is_err());
        let named = |words: &[&str]| {
            first.iter().position(|cell| {
                let cell = cell.to_ascii_lowercase();
                words.iter().any(|word| cell.contains(word))
            })
        };
        let (time, rate) = if header {
            match (
                named(&["time", "second"]),
                named(&["rate", "rps", "request", "per_s"]),
            ) {
                (Some(time), Some(rate)) if time != rate => (time, rate),
                _ => {
                    return Err(format!(
                        "has the columns {}; a rate profile needs one named like time_s and one \
                         named like rate",
                        first.join(", ")
                    ));
                }
            }
        } else {
            (0, 1)
        };
        let unit = header.then(|| TimeUnit::of_name(&first[time])).flatten();
        Ok(Self {
            time,
            rate,
            unit: unit.unwrap_or(TimeUnit::S),
            header,
        })
    }

    fn entry(&self, row: &Rows<&[u8]>) -> Result<(Nanos, f64), String> {
        let line = row.number();
        let cell = |column: usize| {
            let missing = || format!("line {line} has no column {}", column + 1);
            row.cell(column).ok_or_else(missing)
        };
        let (time, rate) = (cell(self.time)?, cell(self.rate)?);
        let at = decimal::nanos(time, self.unit)
            .map_err(|_| format!("line {line}: `{time}` is not a time"))?;
        let rate =
            rate_per_s(rate).ok_or_else(|| format!("line {line}: `{rate}` is not a rate"))?;
        Ok((at, rate))
    }
}

fn usage(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_or_place() {
        let s = Nanos::from_secs;
        for text in [
            "time_s,rate\n0,10\n2,30\n",
            "# recorded\n\nrate_per_s;host;time_ms\n10;a;0\n30;b;2000\n",
            "0,10\n2,30",
            "\u{feff}time,requests_per_s\r\n0,10\r\n2,0.03k\r\n",
        ] {
            assert_eq!(
                entries(text),
                Ok(vec![(s(0), 10.0), (s(2), 30.0)]),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, part) in [
            ("a,b\n1,2", "columns a, b"),
            ("time,rate\n1,2\n3", "line 3 has no column 2"),
            ("0,1\n-1,2", "line 2: `-1`"),
            ("0,1\n1,fast", "line 2: `fast` is not a rate"),
        ] {
            let error = entries(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn steps_are_read_from_the_text_itself() {
        assert!(profile("step:1s@10,1s@20").is_ok());
        assert!(
            profile("step:1s")
                .unwrap_err()
                .message
                .contains("step:10s@5000")
        );
        let missing = profile("/does/not/exist.csv").unwrap_err().message;
        assert!(
            missing.contains("/does/not/exist.csv") && missing.contains("step:"),
            "{missing}"
        );
    }
}
