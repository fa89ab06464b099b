//! `requests.parquet`: one row for each request.

mod parquet;
mod row;

pub use self::parquet::{TABLE, copy_without_causes, copy_without_ideal, write_parquet};
pub use self::row::RequestRow;
