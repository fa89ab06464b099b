//! Causal replay: the recorded queue simulated again, with the measured arrivals, the work of each
//! request, and the times in which each server was unavailable.
//!
//! A replay without changes must reproduce the measured distribution ([`fit`](self)). Only then does a
//! replay without one disturbance say what that disturbance costs. The time before the queue, T1 to
//! T2, is kept as measured, except for retransmissions and for packets that waited until their CPU was
//! back.

#[cfg(test)]
pub(crate) mod agreement;
mod build;
mod change;
mod cores;
mod fit;
mod histogram;
mod kernel;
mod loss;
mod observed;
mod pace;
mod peers;
mod pool;
mod reconstruct;
mod sample;
mod track;
mod vacations;
mod work;

pub use cores::Cores;
pub use fit::FIT_QUANTILES;
pub use observed::Observed;
pub use track::{CoreTimeline, CpuStretch, Occupant, SourceId, StretchEnd};

pub(crate) use change::{Change, Order, Sharing};
pub(crate) use fit::{Fitted, fit};
pub(crate) use histogram::BlockHistogram;
pub(crate) use kernel::replay;
pub(crate) use observed::{UNCOUNTED, VacationSource};
pub(crate) use sample::Sampler;
