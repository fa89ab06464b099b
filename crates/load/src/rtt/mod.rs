//! Round trips: one message at a time on each connection, over any protocol and in any waiting
//! mode.
//!
//! | module | what it does |
//! |---|---|
//! | [`kinds`](Proto) | protocols, modes, and which of them work together |
//! | `message` | what is sent, and the check of what comes back |
//! | `engine` | sends, waits, stamps and counts errors |
//! | `socket`, `uring`, `shm`, `xdp`, `rdma` | the wires: how messages travel |
//! | [`open`](OpenClient) | messages on a schedule, sent by the generator's engine |
//! | [`peer`](Peer) | the server at the other end |
//! | [`run`](mod@run) | the client's threads, and one run of all of them |
//!
//! A wire gives whole messages to the engine and reads no clock. The engine takes both
//! stamps of a round trip in the same way for every wire: before the call that sends and after the
//! call that has received.

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

pub use self::engine::{ConnectionEnd, RoundTrips};
pub use self::error::RttError;
pub use self::kinds::{Mode, Proto, RDMA, UnknownMode, UnknownProto};
pub use self::message::LEAST_BYTES;
pub use self::open::OpenClient;
pub use self::peer::{Peer, PeerSpec};
pub use self::rdma::has_rdma;
pub use self::run::{RunSpec, round_trips};
pub use self::xdp::{XdpEnds, XdpMode};
