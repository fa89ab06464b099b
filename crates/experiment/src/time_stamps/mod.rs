//! Time stamps and service times from a file, part by part, so that it may be larger than memory.

pub mod decimal;
pub mod empirical;
mod file;
mod options;
mod parquet;
mod sink;
mod text;

pub use self::file::TraceFile;
pub use self::options::{TimeUnit, TraceOptions};
