//! The kinds of causes that can be injected.

use clap::ValueEnum;

/// What can be injected, in the order in which the kinds run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub enum CauseKind {
    /// Nothing: an undisturbed run, whose excess must not be charged to what is not there
    Control,
    /// Bursts of another thread on the server's CPU
    Background,
    /// Packets of others, received on the server's CPU
    Softirq,
    /// Timer interrupts on the server's CPU
    Irq,
    /// Threads that yield to those of later requests
    Order,
    /// Every other connection belongs to one of four workers
    Imbalance,
    /// A thread of the server that holds the lock of all workers
    Lock,
    /// Page faults that wait for the disk
    Fault,
    /// First touches of memory
    MinorFault,
    /// Reads from disk
    Io,
    /// One request in 100 burns 5 ms
    Slow,
    /// A CPU quota of the server's control group
    Quota,
    /// A real-time server, and a real-time thread that uses up the time that both share
    RtThrottle,
    /// A CPU that sleeps while it waits
    Idle,
    /// Requests that are lost once
    Loss,
    /// Background bursts and slow requests at once
    Two,
    /// Bursts of another thread on the generator's CPU, for which the server is not to blame
    Generator,
}

impl CauseKind {
    /// The name on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The names of all kinds.
    pub(super) fn names() -> Vec<String> {
        Self::value_variants()
            .iter()
            .map(|kind| kind.name())
            .collect()
    }
}
