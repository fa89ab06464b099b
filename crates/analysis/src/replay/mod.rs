//! Causal replay: the queue with the arrivals as they were measured, the work that each
//! request was, and its servers taken away when they were taken away.
//!
//! Replayed unchanged it must give the measured distribution back ([`fit`](self)): only
//! then does a replay with something taken out say what that something costs. What comes
//! before the queue, T1 to T2, is kept as it was measured, but for what was lost there and for
//! what had to wait until the CPU was back.

#[cfg(test)]
mod agreement;
mod build;
mod change;
mod cores;
mod fit;
mod histogram;
mod kernel;
mod loss;
mod observed;
mod pool;
mod reconstruct;
mod sample;
mod track;
mod vacations;
mod work;

pub use cores::Cores;
pub use fit::FIT_QUANTILES;
pub use observed::Observed;
pub use sample::MAX_REPLAYED;
pub use track::{CoreTimeline, CpuStretch, Leaves, Occupant, SourceId};

pub(crate) use change::{Change, Order, Sharing};
pub(crate) use fit::{Fitted, fit};
pub(crate) use histogram::BlockHistogram;
pub(crate) use kernel::replay;
pub(crate) use observed::{UNCOUNTED, VacationSource};
pub(crate) use sample::Sampler;
