//! Round trips of single messages: what is to be measured, and row after row of it.

mod explain;
mod failure;
mod label;
mod measure;
mod open;
mod plan;

pub use self::failure::failure;
pub use self::label::{label, size_and_conns};
pub use self::measure::{Measured, Measurement, Row};
pub use self::plan::{OURS, OpenRate, RowPlan, RttPlan, Target};
