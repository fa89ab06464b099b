//! Deliberate disturbances of the machine, with the ground truth of what was disturbed and when.
//!
//! | what | how | the truth |
//! |---|---|---|
//! | [`background`] | a thread of ours burns time on the server's CPU | when it really ran, by its own clock |
//! | [`timer_storm`] | a timer interrupts that CPU repeatedly, with a long handler | when the handlers ran |
//! | [`packet_flood`] | packets from a third namespace, steered to that CPU, each expensive to receive | when the kernel received each |
//! | [`packet_loss`] | request packets are dropped before TCP sees them | when each was dropped, and when it arrived again |
//! | [`quota`] | the server's control group may use almost no CPU for a while | when it was held back, by the group's own account |
//! | [`stops`] | a signal stops the server's processes for a while | when it was sent, and when they could go on |
//! | [`backend`] | another server takes its time with each answer; `upstream` of the built-in servers asks it | its own, of when it had read each question and when it had answered; and the server's, of when it waited |
//! | [`slow_reader`] | another client, which takes 8 kB of the server's responses every 10 ms | its own, of when it asked and when it could have read all |
//! | [`rt_hog`] | a real-time thread uses up the CPU time of all real-time threads | when it was held back itself |
//!
//! Everything ends with this process, however it ends: threads, sockets, namespaces, programs held by
//! descriptors. Only an empty control group could be left behind; the journal lists it.

mod backend;
mod background;
mod bpf;
mod busy;
mod disturber;
mod flood;
mod loss;
mod quota;
mod rt_hog;
mod slow_reader;
mod stops;
mod timers;

use std::io;

use taillab_load::ground_truth::GroundTruth;

use taillab_model::Nanos;

use taillab_host::cpus::CpuError;
use taillab_host::journal::JournalError;
use taillab_host::testbed::TestbedError;

pub use self::backend::{BACKEND_PORT, backend};
pub use self::background::background;
pub use self::disturber::Disturber;
pub use self::flood::packet_flood;
pub use self::loss::packet_loss;
pub use self::quota::{CpuGroup, quota};
pub use self::rt_hog::{Appetite, make_real_time, make_yielding, rt_hog};
pub use self::slow_reader::{ReadsFrom, slow_reader};
pub use self::stops::stops;
pub use self::timers::timer_storm;

/// A running disturbance: calling this ends it and returns what it did; dropping it only ends it.
pub type Stop = Box<dyn FnOnce() -> Result<GroundTruth, InjectionError>>;

/// When to disturb: how often and for how long. Each start is moved by up to a quarter of the period, by
/// a fixed sequence, so that the disturbances do not fall into step with the kernel's tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// From one disturbance to the next.
    pub every: Nanos,
    /// The length of one disturbance.
    pub lasts: Nanos,
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{},{}",
            self.every.to_exact_string(),
            self.lasts.to_exact_string()
        )
    }
}

/// Why a disturbance cannot be made here.
#[derive(Debug, thiserror::Error)]
pub enum InjectionError {
    /// The CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The third namespace or its link cannot be made or removed.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// The kernel refuses a call.
    #[error("cannot {what}: {source}; {remedy}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
        /// What a person can do about it.
        remedy: &'static str,
    },
    /// The journal of what must be undone after a crash cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// No control group can be given a quota.
    #[error(
        "no control group can be given a CPU quota here ({why}): mount the cpu controller, or \
         enable it in the root group's cgroup.subtree_control"
    )]
    NoQuota {
        /// What was looked for.
        why: String,
    },
}

fn system(what: &'static str, remedy: &'static str) -> impl FnOnce(io::Error) -> InjectionError {
    move |source| InjectionError::System {
        what,
        source,
        remedy,
    }
}
