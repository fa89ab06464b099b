//! Open-loop load generator with an absolute schedule and its own verdict.
//!
//! | module | what it does |
//! |---|---|
//! | [`protocol`] | what goes into a request and what an answer says |
//! | [`transport`] | the sockets: bytes out, bytes in |
//! | [`client`] | joins the two: sends request k, says which request was answered |
//! | [`engine`] | the open loop: every request at its scheduled time, never re-based; ping-pong |
//! | [`rtt`] | round trips over any protocol, in any way of waiting |
//! | [`stamps`] | the kernel's own stamps of what a socket sends and receives |
//! | [`mod@saturate`] | the closed loop that finds a server's peak |
//! | [`mod@prefill`] | stores every key before a measurement |
//! | [`fleet`] | several client threads together |
//! | [`mod@target`] | where a load goes, as a person writes it |
//! | [`verdict`] | whether the arrivals sent were the process wanted |
//! | [`serve`] | the built-in servers |
//!
//! Everything but a [`fleet`] runs on the calling thread, which the caller has pinned and
//! put into the right network namespace.

pub mod client;
pub mod clock;
mod endpoint;
pub mod engine;
mod error;
#[cfg(test)]
mod fake;
pub mod fleet;
pub mod prefill;
pub mod protocol;
pub mod rtt;
pub mod saturate;
pub mod serve;
pub mod stamps;
pub mod target;
pub mod transport;
pub mod verdict;
mod wrong_answer;

pub use client::{AnyClient, Client, DatagramClient, StreamClient};
pub use endpoint::Endpoint;
pub use engine::{
    CpuUse, Entry, Hooks, LiveCounts, LiveHistogram, LoadRun, NoHooks, OpenLoop, Pace, PingPong,
    Progress, Record, StopReason, Wait, Waiting, open_loop, ping_pong,
};
pub use error::LoadError;
pub use fleet::{ClosedFleet, Fleet, FleetProgress, FleetRun, OpenFleet};
pub use prefill::{Prefilled, prefill};
pub use protocol::keys::KeyDistribution;
pub use protocol::{Asks, Codec, EchoWorkload, HttpWorkload, Protocol, StoreWorkload, Workload};
pub use saturate::{ClosedLoop, Saturation, saturate};
pub use stamps::KernelStamps;
pub use taillab_model::Outcome;
pub use target::Target;
pub use verdict::{arrivals_verdict, schedule_verdict};
pub use wrong_answer::WrongAnswer;
