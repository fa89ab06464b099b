//! The vocabulary of taillab: typed time, kernel events, requests and distributions.
//!
//! Every other crate uses these types; this crate depends on no other. A quantity, a clock or a record that two
//! crates share belongs here.

/// Implements `Display` with the name that the type has in JSON.
#[macro_export]
macro_rules! display_as_in_json {
    ($kind:ty) => {
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        }
    };
}

mod address;
mod application;
mod bursts;
mod cause;
pub mod compare;
mod counts;
mod distribution;
pub mod doctor;
mod event;
pub mod explanation;
pub mod fix;
pub mod histogram;
mod ideal;
pub mod interval;
pub mod load_result;
mod middle_stamps;
pub mod mitigation;
pub mod noise;
mod objective;
mod program;
mod quantile_ratio;
mod recording;
mod request;
pub mod rtt;
mod send_wait;
mod share;
mod stopped;
pub mod summary;
pub mod text;
pub mod threshold;
mod time;
mod transport;
pub mod tune;
pub mod wire;

pub use address::{AddressPart, Announcements};
pub use distribution::{
    CONFIDENCE, Distribution, Lacking, Quantile, QuantileRanks, REPORTED_QUANTILES, Unit,
    quantile_need, quantile_rank, quantile_ranks,
};
pub use event::{
    Asleep, Event, EventKind, Interrupt, PLACE_BITS, PacketId, Peer, RequestKey, SendLimit,
    SentKey, Tid, address_hash,
};
pub use histogram::{HISTOGRAM_ERROR, Histogram};
pub use middle_stamps::{MiddleStamps, ParseMiddleStampsError};
pub use objective::{Objective, ParseObjectiveError};
pub use recording::{
    CpuStream, Cut, CutReason, Damage, EventOrder, EventSink, Events, Gap, InterruptName,
    LostEvents, PackedEvent, Recorded, RecordedEvent, Recording, RecordingContext, RecordingError,
    RecordingReader, RecordingWriter, ThreadName, UpstreamServer,
};
pub use request::{
    ClientTimes, ConnectEnd, Connecting, Operation, Outcome, Request, Stage, Stamps, WireTimes,
};
pub use time::{Monotonic, Nanos, ParseNanosError};
pub use transport::{ParseTransportError, Transport};
