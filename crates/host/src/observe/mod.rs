//! What a recording needs from the machine while it runs: time taken by the hypervisor and
//! by quotas, the names behind numbers, and what taillab itself costs.

mod counters;
mod names;
mod own_cost;
mod program_time;
mod steal;
mod throttle;

pub use self::counters::Counters;
pub use self::names::{name, name_own, name_threads};
pub use self::own_cost::OwnCost;
pub use self::program_time::ProgramTime;
