//! `requests.parquet`: one row for each request.

#[cfg(feature = "parquet")]
pub(crate) mod parquet;

#[cfg(feature = "parquet")]
pub use self::parquet::write_parquet;

use taillab_model::{ClientTimes, Nanos, Operation, Stamps};

/// One request as `requests.parquet` and `latency.hlog` take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRow {
    /// The server's stamps; `None` where no response was matched to the request.
    pub server: Option<Stamps>,
    /// Its sojourn in the ideal queue; `None` where T1 is not known.
    pub ideal: Option<Nanos>,
    /// The client's times, where the client is ours.
    pub client: Option<ClientTimes>,
    /// What it asked for, where known.
    pub operation: Option<Operation>,
    /// It was sent before the measurement began.
    pub warm_up: bool,
}
