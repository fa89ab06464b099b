//! The simulator with progress and interrupts: what `sim` and `reproduce` share.

mod random;
mod recorded;
mod refusal;
mod watch;

pub use self::random::simulate;
pub use self::recorded::play;
pub use self::refusal::refused;
pub use self::watch::{Gauge, watched};
