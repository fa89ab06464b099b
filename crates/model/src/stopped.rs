//! What can stop all threads of a server at once.

/// What the whole server stood still for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerStop {
    /// The runtime collected garbage, in threads that are known by name.
    Collection,
    /// V8 collected garbage, in threads that are called like the program.
    CollectionOfV8,
    /// The kernel copied the page tables of a large process, which had called `fork`.
    Fork,
    /// A signal or a debugger stopped it.
    Signal,
}

impl ServerStop {
    const ALL: [Self; 4] = [
        Self::Collection,
        Self::CollectionOfV8,
        Self::Fork,
        Self::Signal,
    ];

    /// In a few words, as results have it.
    pub const fn task(self) -> &'static str {
        match self {
            Self::Collection => "garbage collection",
            Self::CollectionOfV8 => "garbage collection (V8)",
            Self::Fork => "fork of a large process",
            Self::Signal => "SIGSTOP or a debugger",
        }
    }

    /// What makes it shorter or rarer.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Collection => {
                "Make the pauses shorter or rarer: less garbage, another heap size, another \
                 collector or a goal for its pauses; its own log tells when they were."
            }
            Self::CollectionOfV8 => {
                "Make its collections rarer: start node with `--max-semi-space-size=64` (MB, for \
                 scavenges), with a larger `--max-old-space-size` if `--trace-gc` shows \
                 mark-compact, or make less garbage."
            }
            Self::Fork => {
                "The kernel copies the page tables of the whole process: fork less often, or on a \
                 replica (Redis: `save`, BGSAVE, BGREWRITEAOF), or use smaller processes."
            }
            Self::Signal => {
                "Find out who stops it: while it stands still, /proc/PID/status has its State and \
                 its TracerPid."
            }
        }
    }

    /// The one with this name in results.
    pub(crate) fn named(task: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.task() == task)
    }
}
