//! Our own server under our own load: the setup that `run` and `bench` measure.

mod accounts;
mod background;
mod blocks;
mod calibrate;
mod capacity;
mod client;
pub mod context;
mod drain;
pub mod measure;
mod pacing;
mod peak;
mod precision;
mod rig;
pub mod servers;

pub use self::background::BackgroundLoad;
pub use self::calibrate::{Calibrated, calibrate};
pub use self::client::LoadClient;
pub use self::drain::{DrainProbe, RecordingProbe, draining};
pub use self::measure::Recorded;
pub use self::rig::Rig;
