//! `requests.parquet`: one row for each request.

#[cfg(feature = "parquet")]
mod parquet;
mod row;

#[cfg(feature = "parquet")]
pub use self::parquet::{copy_without_ideal, write_parquet};
pub use self::row::RequestRow;
