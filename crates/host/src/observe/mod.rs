//! What a recording needs from the machine while it runs: time taken by the hypervisor and
//! by quotas, the names behind numbers, and what we cost ourselves.

mod names;
mod own_cost;
mod program_time;
mod steal;
mod throttle;

pub use self::names::{interrupts, of_server, of_threads};
pub use self::own_cost::OwnCost;
pub use self::program_time::{ProgramTime, ProgramTimeError};
pub use self::steal::StealSampler;
pub use self::throttle::ThrottleSampler;
