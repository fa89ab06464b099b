//! The results of `taillab rtt`: what it prints, draws and saves.

pub(crate) mod explained;
mod figure;
mod hlog;
mod parquet;
mod result;
pub(crate) mod tables;

pub use self::figure::{around_slowest, ccdf, over_time};
pub use self::hlog::write_hlog;
pub use self::parquet::write_parquet;
pub use self::result::{RttReport, file_name, label};
