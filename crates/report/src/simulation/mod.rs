//! The results of `taillab sim`: what it prints, draws and exports.
//!
//! The shape of the JSON is `schemas/sim.schema.json`.

mod figure;
mod parquet;
mod result;
pub(crate) mod tables;

pub use self::figure::chart;
pub use self::parquet::write_parquet;
pub use self::result::{
    Engine, Exact, ExactQuantile, Fanout, Runs, SCHEMA_VERSION, SimulatedRun, SimulationReport,
    Swept, WarmUp, Z, ZQuantile,
};
