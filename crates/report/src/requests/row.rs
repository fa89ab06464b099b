//! One request.

use taillab_model::explanation::Cause;
use taillab_model::{ClientTimes, Nanos, Operation, Peer, Stamps, Tid};

/// One request as `requests.parquet` and `latency.hlog` take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRow {
    /// The server's stamps; `None` where no response was matched to the request.
    pub server: Option<Stamps>,
    /// Who sent it; `None` where that is not known.
    pub peer: Option<Peer>,
    /// Which of its client's requests it is, as [`RequestKey::id`](taillab_model::RequestKey::id); `None` where that is
    /// not known.
    pub id: Option<u16>,
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
