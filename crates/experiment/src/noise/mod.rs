//! Loops that notice when they did not have their CPU, and what they find.

mod kernel;
mod measure;
mod plain;
mod plan;
mod rows;
mod take;
mod watch;

pub use self::measure::Measuring;
pub use self::plain::plain;
pub use self::plan::Phase;
