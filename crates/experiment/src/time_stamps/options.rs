//! Which file, which column, which unit.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use taillab_console::exit::Failure;

/// Which file and which column.
#[derive(Debug)]
pub struct TraceOptions {
    /// The file.
    pub path: PathBuf,
    /// A name, or a number from 1.
    pub column: Option<String>,
    /// The unit, where it is told.
    pub unit: Option<TimeUnit>,
    /// The result depends on the unit, so it must be given.
    pub unit_matters: bool,
}

/// The unit of a trace's time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    /// Seconds
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
    /// Nanoseconds
    Ns,
}

/// An error that names the file.
pub(super) fn usage(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{} {what}", path.display()))
}

impl TimeUnit {
    /// Decimal digits between this unit and nanoseconds.
    pub(super) const fn digits(self) -> u32 {
        match self {
            Self::S => 9,
            Self::Ms => 6,
            Self::Us => 3,
            Self::Ns => 0,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::S => "seconds",
            Self::Ms => "milliseconds",
            Self::Us => "microseconds",
            Self::Ns => "nanoseconds",
        }
    }

    /// The unit at the end of a column's name: `time_us`, `start (ms)`, `t[ns]`.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name
            .trim()
            .trim_end_matches([')', ']'])
            .to_ascii_lowercase();
        let at = name.rfind(['_', '(', '[', ' ', '.', '-'])?;
        match &name[at + 1..] {
            "s" | "sec" | "secs" | "seconds" => Some(Self::S),
            "ms" | "millis" | "milliseconds" => Some(Self::Ms),
            "us" | "µs" | "micros" | "microseconds" => Some(Self::Us),
            "ns" | "nanos" | "nanoseconds" => Some(Self::Ns),
            _ => None,
        }
    }
}

/// The unit: as told, else as the column is named, else seconds where it does not matter.
pub(super) fn unit(options: &TraceOptions, name: Option<&str>) -> Result<TimeUnit, Failure> {
    let named = name.and_then(TimeUnit::of_name);
    match options.unit.or(named) {
        Some(unit) => Ok(unit),
        None if options.unit_matters => Err(usage(
            &options.path,
            "does not say the unit of its times; give --trace-unit s, ms, us or ns (for \
             service times: empirical:FILE,unit=us), or scale a trace with --utilization",
        )),
        None => Ok(TimeUnit::S),
    }
}

/// The index of the wanted column among these names (numbers count from 1).
pub(super) fn choose(
    options: &TraceOptions,
    names: &[String],
    named: bool,
) -> Result<usize, Failure> {
    let list = || {
        let list: Vec<String> = if named {
            names
                .iter()
                .map(|name| format!("`{}`", name.trim()))
                .collect()
        } else {
            (1..=names.len()).map(|n| n.to_string()).collect()
        };
        list.join(", ")
    };
    if let Some(wanted) = &options.column {
        let by_name = named
            .then(|| names.iter().position(|name| name.trim() == wanted))
            .flatten();
        let by_number = || {
            let n: usize = wanted.parse().ok()?;
            (1..=names.len()).contains(&n).then(|| n - 1)
        };
        return by_name.or_else(by_number).ok_or_else(|| {
            usage(
                &options.path,
                format!("has no column `{wanted}`; it has {}", list()),
            )
        });
    }
    if names.len() == 1 {
        return Ok(0);
    }
    let of_time: Vec<usize> = (0..names.len())
        .filter(|i| named && names[*i].to_ascii_lowercase().contains("time"))
        .collect();
    match of_time.as_slice() {
        [only] => Ok(*only),
        _ => Err(usage(
            &options.path,
            format!("has the columns {}; choose one with --trace-column", list()),
        )),
    }
}
