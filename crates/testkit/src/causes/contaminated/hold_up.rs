//! Stretches in which the machine held the server up.

use taillab_model::{Monotonic, Tid};

/// The beginning and the end.
pub(crate) type Stretch = (Monotonic, Monotonic);

/// One hold-up of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldUp {
    /// When it was held up.
    pub(crate) at: Stretch,
    /// The thread that was held up; `None` where it was the whole CPU.
    pub(crate) thread: Option<Tid>,
    /// How it is known.
    pub(crate) proof: Proof,
}

/// How a hold-up is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Proof {
    /// The timeline proves that the CPU was stopped.
    Stall,
    /// An idle CPU did not wake for a packet, a thread or a timer.
    Asleep,
    /// A CPU recorded nothing, for a reason that no explanation can know.
    Silence,
    /// A thread could not send, since the client did not read.
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
