//! Measured service times from a file.

use std::path::PathBuf;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_queueing::service::Service;

use super::file::TraceFile;
use super::options::{TimeUnit, TraceOptions};

/// More values would not improve the distribution, only fill the memory.
const MOST: usize = 100_000_000;

/// `FILE` or `FILE,column=NAME,unit=us`: one service time on each line, or in a column.
pub fn read(text: &str) -> Result<Service, Failure> {
    let mut parts = text.split(',');
    let mut options = TraceOptions {
        path: PathBuf::from(parts.next().unwrap_or_default()),
        column: None,
        unit: None,
        unit_matters: true,
    };
    for part in parts {
        match part.split_once('=') {
            Some(("column", name)) => options.column = Some(name.to_owned()),
            Some(("unit", "s")) => options.unit = Some(TimeUnit::S),
            Some(("unit", "ms")) => options.unit = Some(TimeUnit::Ms),
            Some(("unit", "us")) => options.unit = Some(TimeUnit::Us),
            Some(("unit", "ns")) => options.unit = Some(TimeUnit::Ns),
            _ => {
                return Err(Failure::usage(format!(
                    "`{part}` does not belong to empirical service; write empirical:FILE,column=NAME,unit=us \
                     (units: s, ms, us, ns)"
                )));
            }
        }
    }
    let file = TraceFile::open(options)?.in_any_order();
    let mut values = Vec::new();
    file.read(|part, _| {
        values.extend_from_slice(part);
        if values.len() > MOST {
            return Err(Failure::usage(format!(
                "{} has more than {MOST} service times; take a sample of them",
                file.name()
            )));
        }
        Ok(())
    })?;
    Service::empirical(values).or_exit(Exit::Usage)
}
