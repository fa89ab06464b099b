//! Round trips: one message under way on each connection, over any protocol and with any way of
//! waiting.
//!
//! | module | what it does |
//! |---|---|
//! | [`kinds`](Proto) | protocols, modes, and which go together |
//! | `message` | what is sent, and whether what came back is its answer |
//! | `engine` | sends, waits, stamps, and counts what goes wrong |
//! | `socket`, `uring`, `shm`, `xdp`, `rdma` | the ways of the messages |
//! | [`open`](OpenClient) | messages by a schedule, by the engine of the generator |
//! | [`peer`](Peer) | the server at the other end, where it is ours |
//! | [`run`](mod@run) | the threads of the client, and one run of all of them |
//!
//! A wire gives the engine whole messages and knows nothing of clocks; the engine takes both
//! stamps of a round trip, the same for every wire: before the call that sends and after the call
//! that has received.

mod engine;
mod error;
mod kinds;
mod limits;
mod message;
mod open;
mod peer;
mod rdma;
pub mod run;
mod shm;
mod socket;
mod uring;
mod wire;
mod xdp;

pub use self::error::RttError;
pub use self::kinds::{Mode, Proto, RDMA, UnknownMode, UnknownProto};
pub use self::limits::{MOST_DATAGRAM_BYTES, MOST_STREAM_BYTES};
pub use self::message::LEAST_BYTES;
pub use self::open::OpenClient;
pub use self::peer::{Peer, PeerSpec};
pub use self::rdma::has_rdma;
pub use self::run::{ConnectionEnd, RoundTrips, RunSpec, round_trips};
pub use self::xdp::{XdpEnds, XdpMode};
