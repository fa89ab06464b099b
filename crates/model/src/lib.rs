//! The words of taillab: typed time, kernel events, requests and distributions.
//!
//! Every other crate speaks in these types and this crate uses none of them.

mod distribution;
pub mod doctor;
mod event;
pub mod load_result;
mod recording;
mod request;
pub mod summary;
mod time;

pub use distribution::{
    CONFIDENCE, Distribution, Quantile, QuantileRanks, REPORTED_QUANTILES, Unit, quantile_ranks,
};
pub use event::{Event, EventKind, PacketId, RequestKey, Tid};
pub use recording::{
    Chunk, CpuStream, Events, LostEvents, PackedEvent, Recording, RecordingError,
    VERSION as RECORDING_VERSION,
};
pub use request::{ClientTimes, Operation, Request, Stage, Stamps, WireTimes};
pub use time::{Monotonic, Nanos, ParseNanosError};
