//! The benchmark of causes: known causes of latency are injected into a server, and what the ledger
//! charges to them must be what they cost the client.
//!
//! A pair is two blocks under the same arrivals, one with the injection and one without. The truth is
//! how much longer the client waited in the first, by its own clock and independently of the probe.

mod block;
mod criteria;
mod disturb;
mod forecast;
mod judge;
mod kind;
mod pair;
mod result;
mod setup;

pub use self::block::{
    BadRecording, Block, BlockTruth, Charge, ClientBlock, OccurrenceSum, RequestCharge,
};
pub use self::disturb::{DisturbanceLog, DisturbedServer, Disturbers};
pub use self::forecast::{Forecast, ForecastPoint};
pub use self::judge::{Criterion, Verdict, look_after};
pub use self::kind::{
    BaseServer, CauseKind, Disturbance, Fix, JudgedQuantity, Oracle, Promise, Workers,
};
pub use self::pair::{Pair, PairResult, SourceResult};
pub use self::result::{BenchResult, ByRequest, Injected, KindResult, Measured};
pub use self::setup::{BenchOptions, Setup};
