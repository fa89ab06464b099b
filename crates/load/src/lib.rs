//! An open-loop load generator that judges whether it kept its schedule.
//!
//! | module | what it does |
//! |---|---|
//! | [`protocol`] | what requests contain and what responses mean |
//! | [`transport`] | sockets: sends and receives bytes |
//! | [`client`] | both together: sends request k, says which request was answered |
//! | [`engine`] | the open loop, where every request has a due time; ping-pong |
//! | [`rtt`] | round trips over any transport, with any way of waiting |
//! | [`stamps`] | the kernel's timestamps of what a socket sends and receives |
//! | [`mod@saturate`] | the closed loop that finds a server's highest throughput |
//! | [`mod@prefill`] | stores every key before a measurement |
//! | [`fleet`] | several client threads together |
//! | [`mod@target`] | the server, as a user writes it |
//! | [`verdict`] | whether the requests were sent as the arrival process says |
//! | [`serve`] | the built-in servers |
//! | [`fault`] | deliberate delays of a built-in server, and [`ground_truth`]: what was really done to it |
//! | [`perf`] | software events of the kernel, which count time on a CPU |
//!
//! Only a [`fleet`], [`rtt`] and the servers start threads. Everything else runs on the calling thread,
//! which the caller pins and puts into the right network namespace.
//!
//! How these work together, and who the clients are: `README.md` of this crate.
//!
//! `unsafe` is needed for time stamps and batches of sockets, for io_uring, AF_XDP, shared memory and
//! libibverbs of [`rtt`], and for the memory that a [`fault`] touches.

pub mod client;
pub mod clock;
mod endpoint;
pub mod engine;
mod error;
#[cfg(test)]
mod fake;
pub mod fault;
pub mod fleet;
pub mod ground_truth;
mod named;
pub mod perf;
pub mod prefill;
pub mod protocol;
pub mod rtt;
pub mod saturate;
pub mod serve;
mod sockopt;
pub mod stamps;
pub mod target;
pub mod transport;
pub mod verdict;
mod wrong_answer;

pub use client::{
    AnyClient, Client, DatagramClient, Draw, EachClient, HabitNames, Habits, Sending, StreamClient,
};
pub use endpoint::Endpoint;
pub use engine::{
    CpuUse, Entry, Hooks, LiveCounts, LiveHistogram, LoadRun, NoHooks, OpenLoop, Pace, PingPong,
    Progress, Record, StopReason, Wait, Waiting, open_loop, ping_pong,
};
pub use error::LoadError;
pub use fleet::{ClosedFleet, Fleet, FleetProgress, FleetRun, OpenFleet};
pub use prefill::{Prefilled, prefill};
pub use protocol::keys::KeyDistribution;
pub use protocol::{Ask, Codec, EchoWorkload, Protocol, Resource, StoreWorkload, Workload};
pub use saturate::{ClosedLoop, Saturation, saturate};
pub use stamps::KernelStamps;
pub use taillab_model::Outcome;
pub use target::Target;
pub use verdict::{SHORTEST_WINDOW, arrivals_verdict, schedule_verdict};
pub use wrong_answer::WrongAnswer;
