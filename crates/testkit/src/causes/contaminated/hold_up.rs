//! Stretches in which the machine held the server up.

use taillab_model::{Monotonic, Tid};

/// From when to when.
pub(crate) type Stretch = (Monotonic, Monotonic);

/// One hold-up of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldUp {
    /// When.
    pub(crate) at: Stretch,
    /// The one thread that was held up; `None`: its CPU was.
    pub(crate) thread: Option<Tid>,
    /// How it is known.
    pub(crate) proof: Proof,
}

/// How a hold-up is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Proof {
    /// The timeline proves that the CPU stood still.
    Stall,
    /// An idle CPU did not wake, or not for a timer.
    Asleep,
    /// A CPU was silent, and no explanation can know why.
    Silence,
    /// Nobody took what a thread sent.
    Blocked,
}

impl HoldUp {
    pub(crate) const fn of_cpu(at: Stretch, proof: Proof) -> Self {
        Self {
            at,
            thread: None,
            proof,
        }
    }
}
