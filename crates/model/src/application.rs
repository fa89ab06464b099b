//! What servers do between reading a request and answering it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the thread that served the requests around a percentile did between T4 and T5.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplicationAt {
    /// The percentile of the sojourn.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The requests with both stamps and a known thread.
    pub requests: u64,
    /// Their mean T4 to T5, in nanoseconds.
    #[schemars(range(min = 0))]
    pub mean_ns: f64,
    /// What it consists of, without what did not occur; sums to the mean.
    pub parts: Vec<ApplicationPart>,
}

/// A part of the time between T4 and T5.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplicationPart {
    /// What the thread did.
    pub doing: ThreadActivity,
    /// For how long on average, in nanoseconds.
    #[schemars(range(min = 0))]
    pub mean_ns: f64,
}

/// What a thread of the server does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ThreadActivity {
    /// It is on a CPU; interrupts may run on top of it.
    OnCpu,
    /// It could run, and waits for a CPU.
    WaitingForCpu,
    /// It sleeps until another server, which it has asked over TCP, answers.
    Upstream,
    /// It sleeps where sockets are waited for, for something else: another server that was not seen to be asked, the rest of
    /// an answer, or the client.
    Sockets,
    /// It sleeps in `futex`, or for a lock of the kernel: for a lock, or for work that another thread hands over.
    Lock,
    /// It sleeps in a page fault.
    PageFault,
    /// It sleeps in a system call for storage.
    Storage,
    /// It sleeps until a timer expires.
    Timer,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It sleeps in another system call.
    OtherCall,
    /// It is not known what it does.
    Unknown,
}

impl ThreadActivity {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::OnCpu,
        Self::WaitingForCpu,
        Self::Upstream,
        Self::Sockets,
        Self::Lock,
        Self::PageFault,
        Self::Storage,
        Self::Timer,
        Self::Stopped,
        Self::OtherCall,
        Self::Unknown,
    ];

    /// What a person reads in tables.
    pub const fn label(self) -> &'static str {
        match self {
            Self::OnCpu => "on the CPU",
            Self::WaitingForCpu => "waiting for it",
            Self::Upstream => "upstream",
            Self::Sockets => "sockets",
            Self::Lock => "locks",
            Self::PageFault => "page faults",
            Self::Storage => "storage",
            Self::Timer => "timers",
            Self::Stopped => "stopped",
            Self::OtherCall => "other calls",
            Self::Unknown => "unknown",
        }
    }
}
