//! One request.

use taillab_model::explanation::Cause;
use taillab_model::{ClientTimes, Nanos, Operation, RequestKey, Stamps, Tid};

/// One request as `requests.parquet` and `latency.hlog` take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRow {
    /// The server's stamps; `None` where no response was matched to the request.
    pub server: Option<Stamps>,
    /// What its packets carried; `None` where that is not known.
    pub key: Option<RequestKey>,
    /// Its sojourn in the ideal queue; `None` where T1 is not known.
    pub ideal: Option<Nanos>,
    /// The thread that served it; `None` where that was not seen.
    pub worker: Option<Tid>,
    /// What most of its excess over the ideal was charged to; `None` without an excess, or
    /// where it was not explained.
    pub main_cause: Option<Cause>,
    /// The client's times, where the client is ours.
    pub client: Option<ClientTimes>,
    /// What it asked for, where known.
    pub operation: Option<Operation>,
    /// It was sent before the measurement began.
    pub warm_up: bool,
}
