//! Loops that notice when they did not have their CPU: what is to run, and phase by phase what they found.

mod kernel;
mod measure;
mod plain;
mod plan;
mod rows;
mod take;
mod watch;

pub use self::measure::Measuring;
pub use self::plain::plain;
pub use self::plan::{Phase, Plan};
