//! Time stamps from a file, part by part, so that it may be larger than memory.

pub mod decimal;
mod parquet;
mod text;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use taillab_model::Nanos;

use crate::cli::TimeUnit;
use crate::exit::{Exit, Failure};

/// Time stamps handed over at a time.
const PART: usize = 65_536;

/// A file of time stamps that could be opened and whose column is known.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    size: u64,
    format: Format,
    order: Order,
}

#[derive(Debug)]
enum Format {
    Text(text::Layout),
    Parquet(parquet::Layout),
}

/// Whether values must rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Instants.
    Rising,
    /// Lengths.
    Any,
}

/// Which file and which column.
#[derive(Debug)]
pub struct TraceOptions {
    pub path: PathBuf,
    /// A name, or a number from 1.
    pub column: Option<String>,
    pub unit: Option<TimeUnit>,
    /// The result depends on the unit: it must be told by someone.
    pub unit_matters: bool,
}

impl TraceFile {
    /// Looks at the file's beginning: its format, its column, its unit.
    pub fn open(options: TraceOptions) -> Result<Self, Failure> {
        let path = options.path.clone();
        let cannot = |error: io::Error| {
            let what = format!("cannot be read: {error}; give a file that you may read");
            usage(&path, what)
        };
        let metadata = std::fs::metadata(&path).map_err(cannot)?;
        if !metadata.is_file() {
            return Err(usage(
                &path,
                "is no regular file, and a trace is read twice; save it to a file first",
            ));
        }
        let mut magic = Vec::new();
        let file = File::open(&path).map_err(cannot)?;
        file.take(4).read_to_end(&mut magic).map_err(cannot)?;
        let format = if magic == *b"PAR1" {
            Format::Parquet(parquet::Layout::find(&options)?)
        } else {
            Format::Text(text::Layout::find(&options)?)
        };
        Ok(Self {
            path,
            size: metadata.len(),
            format,
            order: Order::Rising,
        })
    }

    /// The same file, whose values need not rise.
    pub fn in_any_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// The file's name without its folders.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Bytes, for the progress bar.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Hands all values over in parts, each with the bytes of the file that it took.
    pub fn read(
        &self,
        mut each: impl FnMut(&[Nanos], u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut sink = Sink {
            path: &self.path,
            order: self.order,
            last: None,
            count: 0,
            part: Vec::with_capacity(PART),
            bytes: 0,
            each: &mut each,
        };
        match &self.format {
            Format::Text(layout) => layout.read(&self.path, &mut sink)?,
            Format::Parquet(layout) => layout.read(&self.path, self.size, &mut sink)?,
        }
        sink.flush()?;
        if sink.count == 0 {
            return Err(usage(
                &self.path,
                "has no time stamps; write one on each line, or choose another file",
            ));
        }
        Ok(())
    }
}

/// What is done with each part and the bytes of the file that it took.
type Each<'a> = dyn FnMut(&[Nanos], u64) -> Result<(), Failure> + 'a;

/// Takes values one by one and hands them over in parts.
struct Sink<'a> {
    path: &'a Path,
    order: Order,
    /// The last value.
    last: Option<Nanos>,
    count: u64,
    part: Vec<Nanos>,
    bytes: u64,
    each: &'a mut Each<'a>,
}

impl Sink<'_> {
    /// The value at `place` (`line 17`), whose text took `bytes`.
    fn push(
        &mut self,
        value: Nanos,
        bytes: u64,
        place: impl Fn() -> String,
    ) -> Result<(), Failure> {
        if self.order == Order::Rising
            && let Some(last) = self.last
            && value < last
        {
            let back = last.saturating_sub(value);
            return Err(usage(
                self.path,
                format!(
                    "is not in order: {} is {back} before the time stamp above it; sort the file by \
                     time",
                    place()
                ),
            ));
        }
        self.last = Some(value);
        self.count += 1;
        self.bytes += bytes;
        self.part.push(value);
        if self.part.len() == PART {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        (self.each)(&self.part, self.bytes)?;
        self.part.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// An error that names the file.
fn usage(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("{} {what}", path.display()))
}

impl TimeUnit {
    /// Decimal digits between this unit and nanoseconds.
    const fn digits(self) -> u32 {
        match self {
            Self::S => 9,
            Self::Ms => 6,
            Self::Us => 3,
            Self::Ns => 0,
        }
    }

    const fn name(self) -> &'static str {
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
fn unit(options: &TraceOptions, name: Option<&str>) -> Result<TimeUnit, Failure> {
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
fn choose(options: &TraceOptions, names: &[String], named: bool) -> Result<usize, Failure> {
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
