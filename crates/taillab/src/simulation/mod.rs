//! The simulator with progress, interrupts and files: what `sim` and `reproduce` share.

mod files;
mod random;
mod recorded;
mod refusal;
mod watch;

pub use self::files::{make_directory, save_figure, write};
pub use self::random::simulate;
pub use self::recorded::play;
pub use self::refusal::refused;
pub use self::watch::{Gauge, watched};
